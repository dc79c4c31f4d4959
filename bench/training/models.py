"""Networks that the measurements of `memory_limit` train: one table for all scripts.

Models of torchvision and timm are imported where they are made. `Training` is a network with its
optimizer and its kind of arithmetic, whose `step` is the usual one: forward, loss, backward,
optimizer, with autocast and a gradient scaler where the arithmetic asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Mode:
    """Arithmetic of a step: the type of autocast, TF32 allowed or not, a gradient scaler or not."""

    autocast: torch.dtype | None = None
    tf32: bool = True
    scaled: bool = False


MODES = {
    "fp32": Mode(tf32=False),
    "tf32": Mode(),
    "bf16": Mode(torch.bfloat16),
    "fp16": Mode(torch.float16, scaled=True),
}


@dataclass(frozen=True)
class Model:
    """A network of the table.

    Args:
        make: Makes it, with random weights.
        channels: Of the input.
        size: Pixels of an axis of the input.
        dims: Spatial axes.
        classes: Of the target.
        dense: The target has a class for each pixel, not one for each image.
        sample: Images for a comparison of bits: activations of some GiB in fp32.
        sample_size: Pixels of an axis in that comparison.
    """

    make: Callable[[], nn.Module]
    channels: int = 3
    size: int = 224
    dims: int = 2
    classes: int = 1000
    dense: bool = False
    sample: int = 64
    sample_size: int = 0

    def batch(self, images: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Random images of shape (images, channels, size, ...) and their classes."""
        axes = (size,) * self.dims
        device = generator.device
        x = torch.randn(images, self.channels, *axes, generator=generator, device=device)
        shape = (images, *axes) if self.dense else (images,)
        return x, torch.randint(self.classes, shape, generator=generator, device=device)


# Networks of our own.


class Double(nn.Sequential):
    """Two convolutions of a U-Net, each with a norm and an activation in place."""

    def __init__(self, inputs: int, outputs: int, dims: int) -> None:
        layers: list[nn.Module] = []
        for channels in (inputs, outputs):
            if dims == 3:
                layers += [
                    nn.Conv3d(channels, outputs, 3, padding=1),
                    nn.InstanceNorm3d(outputs, affine=True),
                    nn.LeakyReLU(0.01, inplace=True),
                ]
            else:
                layers += [
                    nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
                    nn.BatchNorm2d(outputs),
                    nn.ReLU(inplace=True),
                ]
        super().__init__(*layers)


class UNet(nn.Module):
    """Widths double from level to level; transposed convolutions on the way up."""

    def __init__(
        self,
        dims: int,
        channels: int,
        classes: int,
        widths: tuple[int, ...],
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        conv, up, pool = {
            2: (nn.Conv2d, nn.ConvTranspose2d, nn.MaxPool2d),
            3: (nn.Conv3d, nn.ConvTranspose3d, nn.MaxPool3d),
        }[dims]
        pairs = zip((channels, *widths), widths, strict=False)
        self.down = nn.ModuleList(Double(i, o, dims) for i, o in pairs)
        self.pool = pool(2)
        self.dropout = nn.Dropout(dropout)
        rising = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(up(wide, narrow, 2, stride=2) for wide, narrow in rising)
        self.level = nn.ModuleList(Double(2 * narrow, narrow, dims) for _, narrow in rising)
        self.head = conv(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for down in self.down[:-1]:
            skips.append(down(x))
            x = self.pool(skips[-1])
        x = self.dropout(self.down[-1](x))
        for up, level in zip(self.up, self.level, strict=True):
            x = level(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)


class Residual(nn.Module):
    """A bottleneck without a change of size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        narrow = channels // 4
        self.path = nn.Sequential(
            nn.Conv2d(channels, narrow, 1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, narrow, 3, padding=1, bias=False),
            nn.BatchNorm2d(narrow),
            nn.ReLU(inplace=True),
            nn.Conv2d(narrow, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        y += x
        return F.relu(y, inplace=True)


def small(channels: int = 64, blocks: int = 6) -> nn.Sequential:
    """A residual network with dropout, for programs that are about something else."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        *(Residual(channels) for _ in range(blocks)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(channels, 10),
    )


# Those of torchvision and timm.


def _torchvision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        made: nn.Module = torchvision.models.get_model(name, weights=None)
        return made

    return make


def _deeplab(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        made: nn.Module = torchvision.models.get_model(name, weights=None, weights_backbone=None)
        return made

    return make


def _timm(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        made: nn.Module = timm.create_model(name, drop_path_rate=0.0)
        return made

    return make


def _resnet(blocks: tuple[int, ...]) -> Callable[[], nn.Module]:
    """Of `3 * sum(blocks) + 2` layers."""

    def make() -> nn.Module:
        from torchvision.models.resnet import Bottleneck, ResNet

        made: nn.Module = ResNet(Bottleneck, list(blocks))
        return made

    return make


_SEGMENTED = Model(nn.Identity, classes=21, dense=True)
_VOLUMES = Model(nn.Identity, channels=1, size=160, dims=3, classes=3, dense=True)

MODELS: dict[str, Model] = {
    "alexnet": Model(_torchvision("alexnet"), sample=1024),
    "vgg16": Model(_torchvision("vgg16"), sample=48),
    "vgg16_bn": Model(_torchvision("vgg16_bn"), sample=32),
    "resnet18": Model(_torchvision("resnet18"), sample=128),
    "resnet50": Model(_torchvision("resnet50"), sample=48),
    "resnet152": Model(_torchvision("resnet152"), sample=24),
    "resnet1517": Model(_resnet((3, 8, 491, 3)), sample=4),
    "mobilenet_v3_large": Model(_torchvision("mobilenet_v3_large"), sample=128),
    "efficientnet_b0": Model(_torchvision("efficientnet_b0"), sample=64),
    "efficientnet_v2_s": Model(_torchvision("efficientnet_v2_s"), sample=48),
    "convnext_tiny": Model(_torchvision("convnext_tiny"), sample=48),
    "convnext_base": Model(_torchvision("convnext_base"), sample=24),
    "timm:convnext_base": Model(_timm("convnext_base"), sample=24),
    "densenet121": Model(_torchvision("densenet121"), sample=48),
    "deeplabv3_resnet50": replace(_SEGMENTED, make=_deeplab("deeplabv3_resnet50"), sample=16),
    "deeplabv3_resnet101": replace(_SEGMENTED, make=_deeplab("deeplabv3_resnet101"), sample=12),
    "unet2d": Model(
        lambda: UNet(2, 3, 4, (64, 128, 256, 512), dropout=0.1),
        size=256,
        classes=4,
        dense=True,
        sample=12,
    ),
    "unet3d": replace(
        _VOLUMES, make=lambda: UNet(3, 1, 3, (32, 64, 128, 256)), sample=1, sample_size=112
    ),
    "small": Model(small, size=128, classes=10, sample=64),
    # Of bytes that a test on the CPU can hold.
    "small_unet2d": Model(
        lambda: UNet(2, 3, 4, (8, 16, 32), dropout=0.1), size=32, classes=4, dense=True, sample=4
    ),
    "small_unet3d": replace(_VOLUMES, make=lambda: UNet(3, 1, 3, (4, 8)), size=16, sample=2),
}


# What has no deterministic gradient on a GPU is replaced where bits are compared.


class Broadcast(nn.Module):
    """Layers after a global pool, whose result each pixel has: bilinear upsampling of one pixel."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).expand(-1, -1, *x.shape[2:])


class Segmenter(nn.Module):
    """A backbone and a classifier whose result is enlarged to the nearest pixel."""

    def __init__(self, backbone: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.backbone, self.classifier = backbone, classifier

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(self.classifier(self.backbone(x)["out"]), x.shape[2:], mode="nearest")


class WholePool(nn.Module):
    """`AdaptiveAvgPool2d` where the input is a multiple of the output: means of whole windows."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = (size, size) if isinstance(size, int) else tuple(size)

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[2:]) == self.size:
            return x
        height, width = self.size
        return x.unflatten(3, (width, -1)).mean(4).unflatten(2, (height, -1)).mean(3)


class PlanePool(nn.Module):
    """`MaxPool3d(2)` by pools of planes: rows and columns first, then along the depth."""

    def forward(self, x: Tensor) -> Tensor:
        channels, depth = x.shape[1:3]
        x = F.max_pool2d(x.flatten(1, 2), 2).unflatten(1, (channels, depth))
        rows = x.shape[3:]
        return F.max_pool2d(x.flatten(3), (2, 1)).unflatten(3, rows)


def deterministic(net: nn.Module) -> tuple[nn.Module, list[str]]:
    """The network with deterministic operations only, and what was replaced."""
    replaced = []
    if hasattr(net, "classifier") and hasattr(net, "backbone"):
        convs = net.classifier[0].convs
        convs[-1] = Broadcast(convs[-1])
        net = Segmenter(net.backbone, net.classifier)
        replaced = [
            "bilinear upsampling of one pixel: expand",
            "bilinear upsampling: nearest",
        ]
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.AdaptiveAvgPool2d) and child.output_size not in (1, (1, 1)):
                setattr(parent, name, WholePool(child.output_size))
                replaced.append("AdaptiveAvgPool2d: means of whole windows")
            elif isinstance(child, nn.MaxPool3d):
                setattr(parent, name, PlanePool())
                replaced.append("MaxPool3d: pools of planes")
    return net, list(dict.fromkeys(replaced))


def loss_of(y: Any, target: Tensor) -> Tensor:
    """Cross entropy; the mean of a class for each pixel is taken apart, as its sum by atomic
    operations is not deterministic."""
    y = y["out"] if isinstance(y, dict) else y
    if target.ndim > 1:
        return F.cross_entropy(y, target, reduction="none").mean()
    return F.cross_entropy(y, target)


Objective = Callable[[Callable[[Tensor], Any], Tensor, Tensor], Tensor]


def _objective(forward: Callable[[Tensor], Any], x: Tensor, target: Tensor) -> Tensor:
    return loss_of(forward(x), target)


class Training:
    """A network on a device, with its optimizer.

    Args:
        model: Of the table, or like it.
        mode: Of `MODES`.
        device: cuda or cpu. fp16 is bf16 on the CPU, whose convolutions have no fp16.
        images: In a batch; those for a comparison of bits by default.
        size: Pixels of an axis; the model's own by default.
        last: Channels last in memory.
        exact: Without operations that have no deterministic gradient on a GPU.
    """

    def __init__(
        self,
        model: Model,
        mode: str,
        device: str,
        *,
        images: int = 0,
        size: int = 0,
        last: bool = False,
        exact: bool = False,
    ) -> None:
        self.model, self.mode = model, MODES[mode]
        self.device = torch.device(device)
        self.images, self.size = images or self.model.sample, size or self.model.size
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = self.mode.tf32
        torch.manual_seed(0)
        with self.device:  # random weights take seconds on a host
            net = self.model.make()
        net, self.replaced = deterministic(net) if exact else (net, [])
        self.net = net.to(self.device).train()
        self._order = torch.contiguous_format
        if last:
            self._order = torch.channels_last_3d if self.model.dims == 3 else torch.channels_last
            self.net = self.net.to(memory_format=self._order)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.mode.scaled)
        self.forward: Callable[[Tensor], Any] = self.net
        self.objective: Objective = _objective
        self.parts = 1  # of a batch, whose gradients are accumulated
        self.process, self.processes = 0, 1  # which batches are this process's

    def batch(self, number: int = 0) -> tuple[Tensor, Tensor]:
        """The same for the same number."""
        seed = number * self.processes + self.process
        generator = torch.Generator(self.device).manual_seed(seed)
        x, target = self.model.batch(self.images, self.size, generator)
        return x.contiguous(memory_format=self._order), target

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        dtype = self.mode.autocast
        if dtype is torch.float16 and self.device.type == "cpu":
            dtype = torch.bfloat16
        with torch.autocast(self.device.type, dtype, enabled=dtype is not None):
            return self.objective(self.forward, x, target)

    def step(self, x: Tensor, target: Tensor) -> Tensor:
        """Returns the loss, of the last part of the batch."""
        self.optimizer.zero_grad(set_to_none=True)
        for part, its in zip(x.chunk(self.parts), target.chunk(self.parts), strict=True):
            loss = self.loss(part, its)
            self.scaler.scale(loss / self.parts if self.parts > 1 else loss).backward()
            loss = loss.detach()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def fixed_bytes(self) -> int:
        """Of parameters, their gradients, the optimizer's state, and buffers."""
        parameters = list(self.net.parameters())
        tensors = [*parameters, *self.net.buffers()]
        tensors += [one.grad for one in parameters if one.grad is not None]
        for state in self.optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
        return sum(one.numel() * one.element_size() for one in tensors)
