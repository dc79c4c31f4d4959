"""Sets of convolutions that are measured together: networks, published lists, users' cases.

A network's set lists each of its convolutions once and says how often it occurs, so that totals of
the network can be computed. Batches are those of the source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from oocdnn.bench.layers import DIRECTIONS, Direction, Layer, layer


@dataclass(frozen=True)
class Set:
    """Layers, with names that are unique in the set, and the directions that they run in.

    `times` says how often a layer occurs, where that is not once; `only` which directions a layer
    runs in, where they are not those of the set.
    """

    name: str
    about: str
    layers: tuple[Layer, ...]
    directions: tuple[Direction, ...]
    times: Mapping[str, int] = field(default_factory=dict, hash=False)
    only: Mapping[str, tuple[Direction, ...]] = field(default_factory=dict, hash=False)

    def times_of(self, case: Layer) -> int:
        return self.times.get(case.name, 1)

    @property
    def calls(self) -> tuple[tuple[Layer, Direction], ...]:
        """What runs, each layer once in each of its directions."""
        return tuple(
            (case, direction)
            for case in self.layers
            for direction in self.only.get(case.name, self.directions)
        )

    @property
    def flops(self) -> int:
        """Floating-point operations of all layers in one direction, each as often as it occurs."""
        return sum(self.times_of(case) * case.flops for case in self.layers)


# name, channels, height and width, filters, taps, stride, times; padding keeps the extents.
Square = tuple[str, int, int, int, int, int, int]

VGG16: tuple[Square, ...] = (
    ("conv1_1", 3, 224, 64, 3, 1, 1),
    ("conv1_2", 64, 224, 64, 3, 1, 1),
    ("conv2_1", 64, 112, 128, 3, 1, 1),
    ("conv2_2", 128, 112, 128, 3, 1, 1),
    ("conv3_1", 128, 56, 256, 3, 1, 1),
    ("conv3_2", 256, 56, 256, 3, 1, 1),
    ("conv3_3", 256, 56, 256, 3, 1, 1),
    ("conv4_1", 256, 28, 512, 3, 1, 1),
    ("conv4_2", 512, 28, 512, 3, 1, 1),
    ("conv4_3", 512, 28, 512, 3, 1, 1),
    ("conv5_1", 512, 14, 512, 3, 1, 1),
    ("conv5_2", 512, 14, 512, 3, 1, 1),
    ("conv5_3", 512, 14, 512, 3, 1, 1),
)

# A convolution that occurs several times has torchvision's name of the first one.
RESNET18: tuple[Square, ...] = (
    ("conv1", 3, 224, 64, 7, 2, 1),
    ("layer1.0.conv1", 64, 56, 64, 3, 1, 4),
    ("layer2.0.conv1", 64, 56, 128, 3, 2, 1),
    ("layer2.0.conv2", 128, 28, 128, 3, 1, 3),
    ("layer2.0.downsample", 64, 56, 128, 1, 2, 1),
    ("layer3.0.conv1", 128, 28, 256, 3, 2, 1),
    ("layer3.0.conv2", 256, 14, 256, 3, 1, 3),
    ("layer3.0.downsample", 128, 28, 256, 1, 2, 1),
    ("layer4.0.conv1", 256, 14, 512, 3, 2, 1),
    ("layer4.0.conv2", 512, 7, 512, 3, 1, 3),
    ("layer4.0.downsample", 256, 14, 512, 1, 2, 1),
)

# The downsample of layer1 is the same convolution as its conv3.
RESNET50: tuple[Square, ...] = (
    ("conv1", 3, 224, 64, 7, 2, 1),
    ("layer1.0.conv1", 64, 56, 64, 1, 1, 1),
    ("layer1.0.conv2", 64, 56, 64, 3, 1, 3),
    ("layer1.0.conv3", 64, 56, 256, 1, 1, 4),
    ("layer1.1.conv1", 256, 56, 64, 1, 1, 2),
    ("layer2.0.conv1", 256, 56, 128, 1, 1, 1),
    ("layer2.0.conv2", 128, 56, 128, 3, 2, 1),
    ("layer2.0.conv3", 128, 28, 512, 1, 1, 4),
    ("layer2.0.downsample", 256, 56, 512, 1, 2, 1),
    ("layer2.1.conv1", 512, 28, 128, 1, 1, 3),
    ("layer2.1.conv2", 128, 28, 128, 3, 1, 3),
    ("layer3.0.conv1", 512, 28, 256, 1, 1, 1),
    ("layer3.0.conv2", 256, 28, 256, 3, 2, 1),
    ("layer3.0.conv3", 256, 14, 1024, 1, 1, 6),
    ("layer3.0.downsample", 512, 28, 1024, 1, 2, 1),
    ("layer3.1.conv1", 1024, 14, 256, 1, 1, 5),
    ("layer3.1.conv2", 256, 14, 256, 3, 1, 5),
    ("layer4.0.conv1", 1024, 14, 512, 1, 1, 1),
    ("layer4.0.conv2", 512, 14, 512, 3, 2, 1),
    ("layer4.0.conv3", 512, 7, 2048, 1, 1, 3),
    ("layer4.0.downsample", 1024, 14, 2048, 1, 2, 1),
    ("layer4.1.conv1", 2048, 7, 512, 1, 1, 2),
    ("layer4.1.conv2", 512, 7, 512, 3, 1, 2),
)

ALEXNET = (
    layer("conv1", (256, 3, 224, 224), 64, 11, padding=2, stride=4),
    layer("conv2", (256, 64, 27, 27), 192, 5, padding=2),
    layer("conv3", (256, 192, 13, 13), 384, 3, padding=1),
    layer("conv4", (256, 384, 13, 13), 256, 3, padding=1),
    layer("conv5", (256, 256, 13, 13), 256, 3, padding=1),
)

# One convolution of DeepBench: channels, height, width, filters, taps in height and in width;
# padding and stride are the same on both axes.
Row = tuple[int, int, int, int, int, int, int, int]


@dataclass(frozen=True)
class Family:
    """Convolutions of one application in DeepBench, each run with several batches."""

    name: str
    training: tuple[int, ...]
    inference: tuple[int, ...]
    rows: tuple[Row, ...]


# The training set and the inference set for servers of code/kernels/conv_problems.h in
# github.com/baidu-research/DeepBench at da81ba7; some entries are equal there. Its inference set
# for devices is the last family with a batch of 1, and one entry that is commented out.
DEEPBENCH = (
    Family(
        "speech",
        (4, 8, 16, 32),
        (1, 2, 4),
        (
            (1, 161, 700, 32, 5, 20, 0, 2),
            (32, 79, 341, 32, 5, 10, 0, 2),
        ),
    ),
    Family(
        "ocr",
        (16,),
        (1,),
        (
            (1, 48, 480, 16, 3, 3, 1, 1),
            (16, 24, 240, 32, 3, 3, 1, 1),
            (32, 12, 120, 64, 3, 3, 1, 1),
            (64, 6, 60, 128, 3, 3, 1, 1),
        ),
    ),
    Family(
        "face",
        (8,),
        (1,),
        (
            (3, 108, 108, 64, 3, 3, 1, 2),
            (64, 54, 54, 64, 3, 3, 1, 1),
            (128, 27, 27, 128, 3, 3, 1, 1),
            (128, 14, 14, 256, 3, 3, 1, 1),
            (256, 7, 7, 512, 3, 3, 1, 1),
        ),
    ),
    Family(
        "vision",
        (8, 16),
        (1, 2),
        (
            (3, 224, 224, 64, 3, 3, 1, 1),
            (64, 112, 112, 128, 3, 3, 1, 1),
            (128, 56, 56, 256, 3, 3, 1, 1),
            (256, 28, 28, 512, 3, 3, 1, 1),
            (512, 14, 14, 512, 3, 3, 1, 1),
            (512, 7, 7, 512, 3, 3, 1, 1),
        ),
    ),
    Family(
        "inception",
        (16,),
        (1, 2),
        (
            (3, 224, 224, 64, 7, 7, 3, 2),
            (192, 28, 28, 32, 5, 5, 2, 1),
            (192, 28, 28, 64, 1, 1, 0, 1),
            (512, 14, 14, 48, 5, 5, 2, 1),
            (512, 14, 14, 192, 1, 1, 0, 1),
            (832, 7, 7, 256, 1, 1, 0, 1),
            (832, 7, 7, 128, 5, 5, 2, 1),
        ),
    ),
    Family(
        "face-id",
        (8, 16),
        (1, 2),
        (
            (64, 56, 56, 64, 3, 3, 1, 1),
            (64, 56, 56, 256, 1, 1, 0, 2),
            (128, 28, 28, 128, 3, 3, 1, 1),
            (128, 28, 28, 512, 1, 1, 0, 2),
            (256, 14, 14, 256, 1, 1, 0, 1),
            (256, 14, 14, 256, 3, 3, 1, 1),
            (256, 14, 14, 1024, 1, 1, 0, 2),
            (512, 7, 7, 512, 1, 1, 0, 1),
            (2048, 7, 7, 512, 1, 1, 3, 2),
        ),
    ),
    Family(
        "speaker",
        (16,),
        (1, 2),
        (
            (1, 161, 700, 64, 5, 5, 1, 2),
            (64, 80, 350, 64, 3, 3, 1, 1),
            (64, 80, 350, 128, 5, 5, 1, 2),
            (128, 40, 175, 128, 3, 3, 1, 1),
            (128, 40, 175, 256, 5, 5, 1, 2),
            (256, 20, 84, 256, 3, 3, 1, 1),
            (256, 20, 84, 512, 5, 5, 1, 2),
            (512, 10, 42, 512, 3, 3, 1, 1),
        ),
    ),
    Family(
        "resnet",
        (8, 16),
        (1, 2),
        (
            (64, 112, 112, 64, 1, 1, 0, 1),
            (64, 56, 56, 256, 1, 1, 0, 1),
            (256, 56, 56, 64, 1, 1, 0, 1),
            (256, 56, 56, 128, 1, 1, 0, 2),
            (128, 28, 28, 512, 1, 1, 0, 1),
            (512, 28, 28, 128, 1, 1, 0, 1),
            (512, 28, 28, 256, 1, 1, 0, 2),
            (256, 14, 14, 1024, 1, 1, 0, 1),
            (512, 28, 28, 1024, 1, 1, 0, 2),
            (1024, 14, 14, 256, 1, 1, 0, 1),
            (256, 14, 14, 1024, 1, 1, 0, 1),
            (1024, 14, 14, 512, 1, 1, 0, 2),
            (512, 7, 7, 512, 3, 3, 1, 1),
            (512, 7, 7, 2048, 1, 1, 0, 1),
            (1024, 14, 14, 2048, 1, 1, 0, 2),
            (2048, 7, 7, 512, 1, 1, 0, 1),
        ),
    ),
)

POSTER_CHANNELS = (64, 128, 256, 512, 1024, 2048)

# Where users met the shape, and the element type that they had.
LARGE = (
    # pytorch#128947, f32: from a depth of 5 on, the columns of all taps are written out
    layer("video model", (1, 256, 5, 1090, 1922), 64, 3),
    # pytorch#95024, f16: likewise from a height of 362 on
    layer("volume", (1, 64, 362, 370, 251), 32, 3, padding=1),
    # pytorch#132300, bf16
    layer("video encoder", (1, 3, 24, 1008, 1792), 128, 3, padding=1),
    # MAISI of MONAI, f16: the last block of its decoder
    layer("CT synthesis", (1, 64, 512, 512, 768), 64, 3, padding=1),
    # HunyuanVideo and its like, bf16
    layer("video decoder", (1, 128, 129, 720, 1280), 128, 3, padding=1),
    # Stable Diffusion and FLUX, bf16
    layer("image decoder 4096", (1, 256, 4096, 4096), 256, 3, padding=1),
    layer("image decoder 8192", (1, 128, 8192, 8192), 128, 3, padding=1),
    # pytorch#56922, f32: training on whole volumes
    layer("3-D U-Net", (1, 32, 360, 360, 360), 32, 3, padding=1),
    # osti.gov/biblio/1997785, f32: the first layer, whose input needs no gradient
    layer("pathology", (1, 3, 22528, 22528), 64, 7, padding=3, stride=2),
    # MONAI#1189, f32
    layer("micro CT", (1, 16, 561, 1504, 1504), 16, 3, padding=1),
)
LARGE_TRAINING: Mapping[str, tuple[Direction, ...]] = {
    "3-D U-Net": DIRECTIONS,
    "pathology": ("fwd", "bwd_filter"),
}

# Layers that are not as VGG16's and ResNet's are: many groups, large filters, dilation, wide 1x1.
MODERN = (
    # timm's mobilenetv2_100 and efficientnet_b0
    layer("MobileNet depthwise 3x3", (128, 144, 56, 56), 144, 3, padding=1, groups=144),
    layer("MobileNet depthwise 3x3/2", (128, 96, 112, 112), 96, 3, padding=1, stride=2, groups=96),
    layer("EfficientNet depthwise 5x5", (128, 480, 14, 14), 480, 5, padding=2, groups=480),
    # timm's convnext_base
    layer("ConvNeXt depthwise 7x7", (64, 128, 56, 56), 128, 7, padding=3, groups=128),
    layer("ConvNeXt pointwise", (64, 128, 56, 56), 512, 1),
    # RepLKNet-31B: the first and the third stage
    layer("RepLKNet depthwise 31x31", (32, 128, 56, 56), 128, 31, padding=15, groups=128),
    layer("RepLKNet depthwise 27x27", (64, 512, 14, 14), 512, 27, padding=13, groups=512),
    # torchvision's resnext50_32x4d and deeplabv3_resnet101, at 520 x 520
    layer("ResNeXt 3x3, 32 groups", (128, 128, 56, 56), 128, 3, padding=1, groups=32),
    layer("DeepLab, dilation 12", (16, 2048, 65, 65), 256, 3, padding=12, dilation=12),
    layer("DeepLab, dilation 36", (16, 2048, 65, 65), 256, 3, padding=36, dilation=36),
    # WaveNet: two taps, and the dilation of its tenth layer
    layer("WaveNet, dilation 512", (16, 128, 65_536), 256, 2, dilation=512),
    # a causal video encoder: frames are padded by the caller, on one side
    layer(
        "causal video",
        (1, 128, 19, 240, 416),
        128,
        3,
        padding=(0, 1, 1),
    ),
    layer("depthwise 3x3x3", (4, 64, 32, 128, 128), 64, 3, padding=1, groups=64),
    layer("wide pointwise", (32, 4096, 32, 32), 4096, 1),
    layer("strided pointwise", (256, 256, 56, 56), 512, 1, stride=2),
)


def _network(name: str, about: str, n: int, rows: tuple[Square, ...]) -> Set:
    """A network's convolutions with a batch of `n`, for training."""
    layers = tuple(
        layer(label, (n, c, size, size), k, taps, padding=taps // 2, stride=stride)
        for label, c, size, k, taps, stride, _ in rows
    )
    times = {label: often for label, *_, often in rows if often > 1}
    return Set(name, about, layers, DIRECTIONS, times)


def _entry(name: str, n: int, row: Row) -> Layer:
    """A convolution of DeepBench."""
    c, height, width, k, rows, columns, padding, stride = row
    return Layer(
        name=name,
        n=n,
        c=c,
        k=k,
        extents=(height, width),
        taps=(rows, columns),
        padding=(padding, padding),
        stride=(stride, stride),
        dilation=(1, 1),
        groups=1,
    )


def _deepbench(training: bool) -> tuple[Layer, ...]:
    """A list of DeepBench, with names like "speech2 n16"."""
    return tuple(
        _entry(f"{family.name}{number} n{n}", n, row)
        for family in DEEPBENCH
        for n in (family.training if training else family.inference)
        for number, row in enumerate(family.rows, 1)
    )


def _sweep() -> tuple[Layer, ...]:
    return tuple(layer(f"c{c}", (1, c, 1024, 1024), c, 3, padding=1) for c in POSTER_CHANNELS)


SETS: dict[str, Set] = {
    one.name: one
    for one in (
        _network("vgg16", "the convolutions of VGG16, batch 64", 64, VGG16),
        _network("resnet18", "the convolutions of ResNet-18, batch 256", 256, RESNET18),
        _network(
            "resnet50",
            "the convolutions of ResNet-50 with the stride in the 3x3 (v1.5), batch 256",
            256,
            RESNET50,
        ),
        Set("alexnet", "the convolutions of torchvision's AlexNet, batch 256", ALEXNET, DIRECTIONS),
        Set(
            "deepbench",
            "the training convolutions of Baidu's DeepBench",
            _deepbench(training=True),
            DIRECTIONS,
        ),
        Set(
            "deepbench-inference",
            "the inference convolutions of Baidu's DeepBench",
            _deepbench(training=False),
            ("fwd",),
        ),
        Set(
            "poster",
            "one image of 1024x1024, 3x3 taps, from 64 to 2048 channels in and out",
            _sweep(),
            ("fwd",),
        ),
        Set(
            "modern",
            "depthwise, grouped, dilated and wide layers of networks since VGG16",
            MODERN,
            DIRECTIONS,
        ),
        Set(
            "large",
            "layers that users could not run, or only in pieces",
            LARGE,
            ("fwd",),
            only=LARGE_TRAINING,
        ),
    )
}
