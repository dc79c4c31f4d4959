"""A small network, and training steps of it that do not fit in `LIMIT` without a plan."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F


def block(channels: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *block(3),
        *block(8),
        *block(8),
        nn.MaxPool2d(2),
        *block(8),
        nn.Flatten(),
        nn.Linear(8 * 64, 5),
    )


def step(net: nn.Module, optimizer: torch.optim.Optimizer, batch: int = 8) -> float:
    torch.manual_seed(batch)
    x, target = torch.randn(batch, 3, 16, 16), torch.randint(0, 5, (batch,))
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), target)
    loss.backward()
    optimizer.step()
    return loss.item()


def several(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        step(net, optimizer)


def pair() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer, torch.optim.Optimizer]:
    ours = network()
    theirs = copy.deepcopy(ours)
    made = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in (ours, theirs)]
    return ours, theirs, made[0], made[1]


# Less than the steps here keep, more than they need.
LIMIT = 300_000
