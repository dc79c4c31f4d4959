"""Small networks of the blocks of torchvision's and timm's models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int,
    activation: Callable[[], nn.Module] | None,
    **kwargs: int,
) -> nn.Sequential:
    """torchvision's Conv2dNormActivation."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, **kwargs),
        nn.BatchNorm2d(outputs),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


def stochastic_depth(x: Tensor, p: float, training: bool) -> Tensor:
    """torchvision's, in mode `row`."""
    if not training or p == 0.0:
        return x
    noise = torch.empty([x.shape[0]] + [1] * (x.ndim - 1), dtype=x.dtype, device=x.device)
    noise = noise.bernoulli_(1.0 - p)
    noise.div_(1.0 - p)
    return x * noise


class SqueezeExcitation(nn.Module):
    def __init__(
        self,
        channels: int,
        squeezed: int,
        activation: Callable[[], nn.Module] = nn.ReLU,
        gate: Callable[[], nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation, self.gate = activation(), gate()

    def forward(self, x: Tensor) -> Tensor:
        scale = self.gate(self.fc2(self.activation(self.fc1(self.avgpool(x)))))
        return scale * x


class MBConv(nn.Module):
    """EfficientNet's and MobileNetV3's; the fused one without a gate."""

    def __init__(
        self,
        channels: int,
        expanded: int,
        activation: Callable[[], nn.Module],
        gate: Callable[[], nn.Module] | None,
        p: float,
    ) -> None:
        super().__init__()
        if gate is None:
            layers = [
                conv_norm(channels, expanded, 3, activation),
                conv_norm(expanded, channels, 1, None),
            ]
        else:
            inner = nn.SiLU if activation is not nn.ReLU else nn.ReLU
            layers = [
                conv_norm(channels, expanded, 1, activation),
                conv_norm(expanded, expanded, 3, activation, groups=expanded),
                SqueezeExcitation(expanded, channels // 4, partial(inner, inplace=True), gate),
                conv_norm(expanded, channels, 1, None),
            ]
        self.block, self.p = nn.Sequential(*layers), p

    def forward(self, x: Tensor) -> Tensor:
        result = stochastic_depth(self.block(x), self.p, self.training)
        result += x
        return result


def efficientnet() -> nn.Module:
    silu = partial(nn.SiLU, inplace=True)
    return nn.Sequential(
        conv_norm(3, 16, 3, silu, stride=2),
        MBConv(16, 32, silu, None, 0.1),
        MBConv(16, 32, silu, nn.Sigmoid, 0.1),
        MBConv(16, 32, silu, nn.Sigmoid, 0.0),
        conv_norm(16, 64, 1, silu),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2, inplace=True),
        nn.Linear(64, 5),
    )


def mobilenet() -> nn.Module:
    swish, relu = partial(nn.Hardswish, inplace=True), partial(nn.ReLU, inplace=True)
    gate = partial(nn.Hardsigmoid, inplace=True)
    return nn.Sequential(
        conv_norm(3, 16, 3, swish, stride=2),
        MBConv(16, 32, relu, gate, 0.0),
        MBConv(16, 32, swish, gate, 0.0),
        conv_norm(16, 64, 1, swish),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.Hardswish(inplace=True),
        nn.Dropout(0.2, inplace=True),
        nn.Linear(32, 5),
    )


class LayerNorm2d(nn.LayerNorm):
    """Over the channels of images."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    """torchvision's block of ConvNeXt; as timm has it: the scale to the right, the sum anew."""

    def __init__(self, channels: int, p: float, timm: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))
        self.p, self.timm = p, timm

    def forward(self, x: Tensor) -> Tensor:
        y = self.mlp(self.norm(self.conv(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        y = y.mul(self.scale.reshape(1, -1, 1, 1)) if self.timm else self.scale * y
        y = stochastic_depth(y, self.p, self.training)
        if self.timm:
            return y + x
        y += x
        return y


def convnext(timm: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 4),
        LayerNorm2d(16, eps=1e-6),
        CNBlock(16, 0.1, timm),
        CNBlock(16, 0.0, timm),
        LayerNorm2d(16, eps=1e-6),
        nn.Conv2d(16, 32, 2, 2),
        CNBlock(32, 0.1, timm),
        CNBlock(32, 0.1, timm),
        nn.AdaptiveAvgPool2d(1),
        LayerNorm2d(32, eps=1e-6),
        nn.Flatten(),
        nn.Linear(32, 5),
    )


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, dilation, dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x
        return self.relu(y)


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(4 * growth)
        self.relu = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        y = self.conv1(self.relu(self.norm1(torch.cat(features, 1))))
        return self.conv2(self.relu(self.norm2(y)))


class DenseBlock(nn.Module):
    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(inputs + i * growth, growth) for i in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


def densenet() -> nn.Module:
    return nn.Sequential(
        conv_norm(3, 16, 7, partial(nn.ReLU, inplace=True), stride=2),
        nn.MaxPool2d(3, 2, 1),
        DenseBlock(16, 8, 3),
        nn.BatchNorm2d(40),
        nn.ReLU(inplace=True),
        nn.Conv2d(40, 20, 1, bias=False),
        nn.AvgPool2d(2, 2),
        DenseBlock(20, 8, 2),
        nn.BatchNorm2d(36),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(36, 5),
    )


class ASPP(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [conv_norm(inputs, outputs, 1, nn.ReLU)]
            + [
                nn.Sequential(
                    nn.Conv2d(inputs, outputs, 3, padding=rate, dilation=rate, bias=False),
                    nn.BatchNorm2d(outputs),
                    nn.ReLU(),
                )
                for rate in (2, 3)
            ]
        )
        self.pooling = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), conv_norm(inputs, outputs, 1, nn.ReLU)
        )
        self.project = nn.Sequential(conv_norm(4 * outputs, outputs, 1, nn.ReLU), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        parts = [branch(x) for branch in self.branches]
        pooled = self.pooling(x)
        parts.append(F.interpolate(pooled, x.shape[-2:], mode="bilinear", align_corners=False))
        return self.project(torch.cat(parts, 1))


class DeepLab(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            conv_norm(3, 16, 7, partial(nn.ReLU, inplace=True), stride=2),
            nn.MaxPool2d(3, 2, 1),
            Bottleneck(16, 8),
            Bottleneck(16, 8, 2),
        )
        self.classifier = nn.Sequential(
            ASPP(16, 8), conv_norm(8, 8, 3, nn.ReLU), nn.Conv2d(8, 5, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.classifier(self.backbone(x))
        return F.interpolate(y, x.shape[-2:], mode="bilinear", align_corners=False)


class EncoderBlock(nn.Module):
    """torchvision's ViT."""

    def __init__(self, width: int, p: float) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, 2, dropout=p, batch_first=True)
        self.dropout = nn.Dropout(p)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(p),
            nn.Linear(4 * width, width),
            nn.Dropout(p),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        y = self.dropout(y) + x
        return y + self.mlp(self.ln_2(y))


class ViT(nn.Module):
    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, 32, 8, 8)
        self.class_token = nn.Parameter(torch.zeros(1, 1, 32))
        self.pos_embedding = nn.Parameter(torch.randn(1, 65, 32) * 0.02)
        self.dropout = nn.Dropout(p)
        self.layers = nn.Sequential(EncoderBlock(32, p), EncoderBlock(32, p))
        self.ln, self.head = nn.LayerNorm(32, eps=1e-6), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_proj(x).reshape(x.shape[0], 32, -1).permute(0, 2, 1)
        y = torch.cat([self.class_token.expand(x.shape[0], -1, -1), y], 1)
        y = self.ln(self.layers(self.dropout(y + self.pos_embedding)))
        return self.head(y[:, 0])


class Double(nn.Sequential):
    """Two convolutions of a U-Net, each with a norm and an activation in place."""

    def __init__(self, inputs: int, outputs: int, dims: int) -> None:
        conv = nn.Conv3d if dims == 3 else nn.Conv2d
        layers: list[nn.Module] = []
        for channels in (inputs, outputs):
            layers.append(conv(channels, outputs, 3, padding=1))
            if dims == 3:
                layers += [
                    nn.InstanceNorm3d(outputs, affine=True),
                    nn.LeakyReLU(0.01, inplace=True),
                ]
            else:
                layers += [nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class UNet(nn.Module):
    def __init__(self, dims: int, bilinear: bool = False) -> None:
        super().__init__()
        widths = (8, 16, 32)
        self.down = nn.ModuleList(
            Double(i, o, dims) for i, o in zip((3, *widths), widths, strict=False)
        )
        self.pool = nn.MaxPool3d(2) if dims == 3 else nn.MaxPool2d(2)
        transposed = nn.ConvTranspose3d if dims == 3 else nn.ConvTranspose2d
        self.up, self.dec = nn.ModuleList(), nn.ModuleList()
        for wide, narrow in zip(widths[:0:-1], widths[-2::-1], strict=True):
            if bilinear:
                up = nn.Sequential(
                    nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
                    nn.Conv2d(wide, narrow, 1),
                )
                self.up.append(up)
            else:
                self.up.append(transposed(wide, narrow, 2, stride=2))
            self.dec.append(Double(2 * narrow, narrow, dims))
        self.head = (nn.Conv3d if dims == 3 else nn.Conv2d)(widths[0], 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for i, down in enumerate(self.down):
            x = down(x)
            if i + 1 < len(self.down):
                skips.append(x)
                x = self.pool(x)
        for up, dec in zip(self.up, self.dec, strict=True):
            skip, x = skips.pop(), up(x)
            pads = [(a - b) // 2 for a, b in zip(skip.shape[:1:-1], x.shape[:1:-1], strict=True)]
            x = F.pad(x, [side for pad in pads for side in (pad, pad)])
            x = dec(torch.cat([skip, x], 1))
        return self.head(x)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "efficientnet": (efficientnet, (4, 3, 64, 64)),
    "mobilenet": (mobilenet, (4, 3, 64, 64)),
    "convnext": (convnext, (4, 3, 64, 64)),
    "convnext, timm": (lambda: convnext(timm=True), (4, 3, 64, 64)),
    "densenet": (densenet, (4, 3, 64, 64)),
    "deeplab": (DeepLab, (4, 3, 64, 64)),
    "vit": (ViT, (4, 3, 64, 64)),
    "unet, 2-D": (lambda: UNet(2), (2, 3, 64, 64)),
    "unet, bilinear": (lambda: UNet(2, bilinear=True), (2, 3, 64, 64)),
    "unet, 3-D": (lambda: UNet(3), (2, 3, 16, 16, 16)),
}
