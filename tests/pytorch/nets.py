"""A 3-D U-Net in plain torch: two levels, group norm, transposed convolutions."""

from __future__ import annotations

import torch
from torch import nn


def block(channels: int, features: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(channels, features, 3, padding=1, bias=False),
        nn.GroupNorm(2, features),
        nn.ReLU(),
        nn.Conv3d(features, features, 3, padding=1, padding_mode="replicate"),
        nn.GroupNorm(2, features),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """From one channel to `classes`; spatial sizes are multiples of 4."""

    def __init__(self, classes: int = 2, width: int = 4) -> None:
        super().__init__()
        self.down = nn.ModuleList([block(1, width), block(width, 2 * width)])
        self.shrink = nn.ModuleList(nn.Conv3d(one, one, 2, stride=2) for one in (width, 2 * width))
        self.middle = block(2 * width, 4 * width)
        self.grow = nn.ModuleList(
            nn.ConvTranspose3d(2 * one, one, 2, stride=2) for one in (2 * width, width)
        )
        self.up = nn.ModuleList([block(4 * width, 2 * width), block(2 * width, width)])
        self.out = nn.Conv3d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for down, shrink in zip(self.down, self.shrink, strict=True):
            skips.append(down(x))
            x = shrink(skips[-1])
        x = self.middle(x)
        for grow, up in zip(self.grow, self.up, strict=True):
            x = up(torch.cat([skips.pop(), grow(x)], 1))
        return self.out(x)


def train(model: nn.Module, steps: int, extent: int = 24) -> list[float]:
    """The losses of steps of SGD on one volume: a ball is to be told from noise."""
    generator = torch.Generator().manual_seed(1)
    axis = torch.linspace(-1, 1, extent)
    target = (sum(a**2 for a in torch.meshgrid(axis, axis, axis, indexing="ij")) < 0.5).long()
    noise = torch.randn(extent, extent, extent, generator=generator)
    parameter = next(model.parameters())
    x = (target + noise)[None, None].to(parameter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target[None].to(parameter.device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
