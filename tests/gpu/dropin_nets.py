"""Networks of an unmodified PyTorch, one scene a process: see dropin_programs.py."""

from __future__ import annotations

import hashlib
import statistics
import time

import torch
from dropin_scene import figure, main, same
from torch import nn
from torch.nn.functional import cross_entropy

STEPS, MORE = 20, 40


def bottleneck(inputs: int, width: int, stride: int) -> nn.Module:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            outputs = 4 * width
            self.path = nn.Sequential(
                nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
                nn.ReLU(), nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
            )  # fmt: skip
            same_size = inputs == outputs and stride == 1
            self.side = nn.Identity() if same_size else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )  # fmt: skip

        def forward(self, x):
            return (self.path(x) + self.side(x)).relu()

    return Block()


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    inputs = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers)


def small() -> nn.Module:
    def part(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, outputs, 3, stride, 1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]  # fmt: skip

    return nn.Sequential(
        *part(3, 32, 1), *part(32, 64, 2), *part(64, 64, 1), nn.Flatten(), nn.Linear(65536, 10)
    )


def prepared(net: nn.Module, images: int, side: int, classes: int):
    """The net on the GPU, its optimizer, one batch and its classes; all from the same seed."""
    torch.backends.cudnn.deterministic = True
    net = net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    x = torch.randn(images, 3, side, side, device="cuda")
    return net, optimizer, x, torch.randint(0, classes, (images,), device="cuda")


def train(make) -> None:
    """Training steps in deterministic mode: the losses to their last bit, the time of a step."""
    torch.manual_seed(0)
    net, optimizer, x, target = prepared(make(), 64, 224, 1000)

    def step() -> float:
        optimizer.zero_grad()
        loss = cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step() for _ in range(STEPS)]
    same("losses", hashlib.sha256(repr(losses).encode()).hexdigest()[:16])
    times = []
    for _ in range(MORE):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    tens = (times[i : i + 10] for i in range(0, MORE, 10))
    figure("step-ms", min(map(statistics.median, tens)) * 1e3)
    figure("last-loss", losses[-1])


def capture(_: bool) -> None:
    """A whole training step captured in a CUDA graph, and replayed."""
    torch.manual_seed(0)
    net, optimizer, x, target = prepared(small(), 16, 64, 10)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for _ in range(10):
        graph.replay()
        losses.append(loss.item())
    same("losses", repr([f"{value:.9g}" for value in losses]).replace(" ", ""))


def compiled(_: bool) -> None:
    """torch.compile, which captures graphs of its own."""
    torch.manual_seed(0)
    net, optimizer, x, target = prepared(small(), 16, 64, 10)
    fast = torch.compile(net, mode="reduce-overhead")
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = cross_entropy(fast(x), target)
        loss.backward()
        optimizer.step()
        losses.append(f"{loss.item():.9g}")
    same("losses", repr(losses).replace(" ", ""))


if __name__ == "__main__":
    main(
        {
            "resnet": lambda _: train(resnet50),
            "vgg16": lambda _: train(vgg16),
            "capture": capture,
            "compile": compiled,
        }
    )
