"""A net of five layers, and the losses of its training."""

from __future__ import annotations

import numpy as np

from oocdnn import nn

BATCH, EPOCHS = 128, 5
RULE = {"momentum": 0.9, "weight_decay": 1e-4, "nesterov": True}


def net(dtype=np.float32, seed: int = 0) -> nn.Chain:
    """For images [N, 1, 8, 8] of ten classes."""
    given = {"dtype": dtype, "seed": np.random.default_rng(seed)}
    return nn.Chain(
        nn.Conv2d(1, 8, 3, padding=1, **given),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, **given),
        nn.Swish(),
        nn.ConvBiasActPool(8, 16, 3, padding=1, activation="relu", pool=2, **given),
        nn.Flatten(),
        nn.Linear(256, 64, **given),
        nn.Tanh(),
        nn.Linear(64, 10, **given),
    )


def net_of_torch(torch, values):
    """The same in PyTorch, with these values of the parameters in order."""
    made = torch.nn
    dtype = getattr(torch, values[0].dtype.name)
    result = made.Sequential(
        made.Conv2d(1, 8, 3, padding=1),
        made.ReLU(),
        made.Conv2d(8, 8, 3, padding=1),
        made.SiLU(),
        made.Conv2d(8, 16, 3, padding=1),
        made.ReLU(),
        made.MaxPool2d(2),
        made.Flatten(),
        made.Linear(256, 64),
        made.Tanh(),
        made.Linear(64, 10),
    ).to(dtype)
    with torch.no_grad():
        for parameter, value in zip(result.parameters(), values, strict=True):
            parameter.copy_(torch.from_numpy(value))
    return result


def batches(images, classes):
    """Of every epoch, in the order of the samples."""
    for _ in range(EPOCHS):
        for begin in range(0, len(images), BATCH):
            yield images[begin : begin + BATCH], classes[begin : begin + BATCH]


def losses(chain: nn.Chain, images, classes, lr) -> list[float]:
    """Of each step."""
    loss, found = nn.CrossEntropyLoss(), []
    optimizer = nn.SGD(chain.parameters(), lr, **RULE)
    for x, targets in batches(images, classes):
        optimizer.zero_grad()
        found.append(float(loss(chain(x), targets)))
        assert chain.backward(loss.backward(), needs_dx=False) is None
        optimizer.step()
    return found


def losses_of_torch(torch, module, images, classes, lr) -> list[float]:
    loss, found = torch.nn.CrossEntropyLoss(), []
    optimizer = torch.optim.SGD(module.parameters(), lr, **RULE)
    for x, targets in batches(torch.from_numpy(images), torch.from_numpy(classes)):
        optimizer.zero_grad()
        value = loss(module(x), targets)
        value.backward()
        optimizer.step()
        found.append(value.item())
    return found
