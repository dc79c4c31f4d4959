"""Comparisons of split tensors with whole ones, which each process of a group runs. Values are
small integers, so that sums in any order are equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oocdnn.torch import spatial
from oocdnn.torch.spatial import convolution as implementation


def device() -> torch.device:
    """Of the process: its GPU where the group communicates by NCCL."""
    on_gpu = torch.distributed.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def whole(shape: Sequence[int], seed: int, low: int = -3, high: int = 4) -> Tensor:
    drawn = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, tuple(shape), generator=drawn).double().to(device())


def gathered(value: Any) -> Tensor:
    return value.full_tensor() if isinstance(value, spatial.SpatialTensor) else value


def compare(
    function: Callable[..., Any], x: Tensor, axis: int, lengths: Sequence[int] | None,
    parameters: Sequence[Tensor] = (), near: bool = False,
) -> None:  # fmt: skip
    """Results and gradients of `function(x, *parameters)`, split and whole."""

    def equal(found: Tensor, expected: Tensor, what: str) -> None:
        assert found.shape == expected.shape, (what, found.shape, expected.shape)
        if near:
            torch.testing.assert_close(
                found, expected, rtol=1e-9, atol=1e-9, msg=lambda m: what + m
            )
        else:
            assert torch.equal(found, expected), what

    found = []
    for split in (False, True):
        own = x.clone().requires_grad_()
        others = [p.clone().requires_grad_() for p in parameters]
        y = function(spatial.scatter(own, axis, None, lengths) if split else own, *others)
        assert isinstance(y, Tensor)
        factor = whole(y.shape, 5, 1, 4)
        total = (y * factor).sum()
        total.backward()
        found.append((gathered(y).detach(), total.detach(), own.grad, *(p.grad for p in others)))
    names = ("result", "loss", "gradient of x", *(f"gradient {i}" for i in range(len(parameters))))
    for plain, ours, name in zip(*found, names, strict=True):
        equal(ours, plain, name)


def convolution(
    transposed: bool, shape: Sequence[int], weight: Sequence[int], axis: int,
    lengths: Sequence[int] | None, options: dict[str, Any], bias: bool = True,
    least_bytes: int = 1 << 27,
) -> None:  # fmt: skip
    """`least_bytes`: of each process, from which on only the ends of its rows are computed with
    those of others."""
    implementation.LEAST_BYTES = least_bytes
    rank = len(weight) - 2
    name = f"conv{'_transpose' * transposed}{rank}d"
    function = getattr(F, name)
    channels = weight[1] * options.get("groups", 1) if transposed else weight[0]
    parameters = [whole(weight, 1), *([whole((channels,), 2)] if bias else [])]
    compare(
        lambda x, w, b=None: function(x, w, b, **options),
        whole(shape, 3),
        axis,
        lengths,
        parameters,
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "max_pool 3/2": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool 2": lambda x: F.max_pool2d(x, 2),
    "max_pool ceil": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "max_pool dilated": lambda x: F.max_pool2d(x, 2, 1, 1, 2),
    "avg_pool 4/4": lambda x: F.avg_pool2d(x, 4, 4),
    "avg_pool 4/2": lambda x: F.avg_pool2d(x, 4, 2, 2),
    "global mean": lambda x: F.adaptive_avg_pool2d(x, 1) * 1024,
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest 3": lambda x: F.interpolate(x, scale_factor=(3, 2)),
    "nearest to a size": lambda x: F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] * 2)),
    "bilinear": lambda x: F.interpolate(x, scale_factor=4, mode="bilinear") * 64,
    "pad": lambda x: F.pad(x, (1, 2, 3, 4), value=2.0),
    "pad front": lambda x: F.pad(x, (0, 0, 2, 0)),
    "crop": lambda x: F.pad(x, (-1, 0, -1, -2)),
    "pad circular": lambda x: F.pad(x, (1, 1, 2, 3), mode="circular"),
    "pad reflect": lambda x: F.pad(x, (1, 1, 2, 3), mode="reflect"),
    "pad replicate": lambda x: F.pad(x, (1, 1, 2, 3), mode="replicate"),
    "operators": lambda x: (x + 1) * x - 2 * x / 4 + x**2,
    "relu": lambda x: F.relu(x) + torch.relu(x) + x.relu(),
    "relu in place": lambda x: F.relu(x * 2, inplace=True),
    "leaky": lambda x: F.leaky_relu(x, 0.5),
    "cat": lambda x: torch.cat([x, F.relu(x), x[:, :1]], 1),
    "cat of other splits": lambda x: torch.cat(
        [x, F.pad(F.pad(x, (0, 0, 1, 0)), (0, 0, -1, 0))], 1
    ),
    "shuffle": lambda x: x.view(2, 2, -1, *x.shape[2:]).transpose(1, 2).reshape(x.shape) * 2,
    "groups": lambda x: x.reshape(x.shape[0] * 2, 2, *x.shape[2:]).sum(1),
    "expand": lambda x: x[:, :1].expand(-1, 4, *x.shape[2:]) * x,
    "chunk": lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1],
    "permute": lambda x: (x.permute(0, 2, 3, 1) * torch.arange(4.0, device=x.device)).permute(
        0, 3, 1, 2
    ),
    "positions": lambda x: x * torch.arange(float(x.shape[2]), device=x.device)[:, None],
    "of rows": lambda x: x.sum(3),
    "of channels": lambda x: x.sum((1,), keepdim=True),
    "squeeze and excite": lambda x: x * F.relu(x.sum((2, 3), keepdim=True)),
    "sum": lambda x: x.sum() * x.square().sum(),
    "mean": lambda x: x.mean((0, 2)) * x.shape[0] * x.shape[2],
    "zeros": lambda x: x + torch.zeros_like(x) + torch.ones_like(x),
    "where": lambda x: torch.where(x > 0, x, -x),
    "to": lambda x: x.float().double(),
}


def function(name: str, shape: Sequence[int], lengths: Sequence[int] | None, axis: int) -> None:
    near = name in ("bilinear", "mean")
    compare(FUNCTIONS[name], whole(shape, 7), axis, lengths, near=near)


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "batch without parameters": lambda c: nn.BatchNorm2d(c, affine=False),
    "batch cumulative": lambda c: nn.BatchNorm2d(c, momentum=None),
    "instance": nn.InstanceNorm2d,
    "instance affine": lambda c: nn.InstanceNorm2d(c, affine=True, track_running_stats=True),
    "group": lambda c: nn.GroupNorm(2, c),
    "layer": lambda c: nn.GroupNorm(1, c, affine=False),
}


def norm(name: str, shape: Sequence[int], lengths: Sequence[int], training: bool) -> None:
    torch.manual_seed(0)
    plain = NORMS[name](shape[1]).double().train(training).to(device())
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(torch.rand_like(parameter))
    ours = NORMS[name](shape[1]).double().train(training).to(device())
    ours.load_state_dict(plain.state_dict())
    x = torch.rand(tuple(shape), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x = x.to(device())
    modules = iter((plain, ours))
    compare(lambda x: next(modules)(x), x, 2, lengths, near=True)
    for (name, first), (_, second) in zip(
        [*plain.named_parameters(), *plain.named_buffers()],
        [*ours.named_parameters(), *ours.named_buffers()],
        strict=True,
    ):
        torch.testing.assert_close(second, first, rtol=1e-9, atol=1e-9, msg=name)
        if first.grad is not None:
            torch.testing.assert_close(second.grad, first.grad, rtol=1e-9, atol=1e-9, msg=name)


class Squeezed(nn.Module):
    """A residual block with squeeze and excite, and a stride."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 2, 1), nn.SiLU(inplace=True),
            nn.Conv2d(2, channels, 1), nn.Sigmoid(),
        )  # fmt: skip
        self.second = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.head = nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.norm(self.first(x)), inplace=True))
        y = F.gelu(self.second(x))
        y = y * self.squeeze(y)
        y += x
        return self.head(y.mean((2, 3)))


def unet(dims: int) -> nn.Module:
    from oocdnn.bench.training.models import UNet

    return UNet(dims, 2, 3, (4, 8, 8))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "unet3d": (lambda: unet(3), (2, 2, 24, 8, 12), True),
    "unet2d": (lambda: unet(2), (2, 2, 40, 16), True),
    "classifier": (lambda: Squeezed(6), (3, 3, 61, 30), False),
}


def network(
    name: str, axis: int, lengths: Sequence[int] | None, channels_last: bool, steps: int = 3
) -> list[float]:
    """Trains a network with whole and with split tensors; returns the losses."""
    make, shape, dense = NETWORKS[name]
    x = whole(shape, 1) / 3
    classes = (shape[0], *shape[2:]) if dense else (shape[0],)
    target = whole(classes, 2, 0, 3).long()
    if channels_last:
        x = x.to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
    losses: list[list[float]] = []
    trained = []
    for split in (False, True):
        torch.manual_seed(0)
        net = make().double().to(device())
        optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
        own = spatial.scatter(x, axis, None, lengths) if split else x
        labels = spatial.scatter(target, axis - 1, None, lengths) if split and dense else target
        losses.append([])
        for _ in range(steps):
            loss = F.cross_entropy(net(own), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(float(loss))
        trained.append(net.state_dict())
    for key, value in trained[0].items():
        torch.testing.assert_close(trained[1][key], value, rtol=1e-7, atol=1e-9, msg=key)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-9, atol=1e-9)
    return losses[1]


LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "weighted": lambda x, t: F.cross_entropy(x, t, torch.tensor([1.0, 2.0, 4.0]).to(x)),
    "ignoring": lambda x, t: F.cross_entropy(x, t, ignore_index=1),
    "weighted, ignoring": lambda x, t: F.cross_entropy(
        x, t, torch.tensor([1.0, 2.0, 4.0]).to(x), ignore_index=0
    ),
    "smoothed": lambda x, t: F.cross_entropy(x, t, label_smoothing=0.25),
    "of sums": lambda x, t: F.cross_entropy(x, t, reduction="sum"),
    "of pixels": lambda x, t: F.cross_entropy(x, t, reduction="none").mean(),
    "probabilities": lambda x, t: F.cross_entropy(x, (x.detach() * t[:, None]).softmax(1)),
    "nll": lambda x, t: F.nll_loss(F.log_softmax(x, 1), t),
    "mse": lambda x, t: F.mse_loss(x[:, 0], t.double()),
    "l1 sum": lambda x, t: F.l1_loss(x[:, 0], t.double(), reduction="sum"),
    "binary": lambda x, t: F.binary_cross_entropy_with_logits(
        x[:, 0], (t > 0).double(), pos_weight=torch.tensor(2.0).to(x)
    ),
    "dice": lambda x, t: 1 - 2 * (x.softmax(1)[:, 1] * (t == 1)).sum() / (x.softmax(1).sum() + 1),
}  # fmt: skip


def loss(name: str, lengths: Sequence[int] | None) -> None:
    x, target = whole((2, 3, 12, 5), 1) / 2, whole((2, 12, 5), 2, 0, 3).long()
    found = []
    for split in (False, True):
        own = x.clone().requires_grad_()
        if split:
            operands = [spatial.scatter(v, d, None, lengths) for v, d in ((own, 2), (target, 1))]
        else:
            operands = [own, target]
        value = LOSSES[name](*operands)
        value.backward()
        found.append((value.detach(), own.grad))
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-9)


def dtensors() -> None:
    """To and from torch.distributed.tensor, with uneven rows too."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    count = torch.distributed.get_world_size()
    mesh = init_device_mesh(device().type, (count,))
    x = whole((2, 3, 9, 5), 1)
    placed = distribute_tensor(x, mesh, [Shard(2)])
    split = spatial.from_dtensor(placed)
    assert split.shape == x.shape
    assert split.to_local().data_ptr() == placed.to_local().data_ptr()
    assert torch.equal(split.full_tensor(), x)
    uneven = spatial.scatter(x, 2, mesh, (9, *[0] * (count - 1)))
    back = spatial.to_dtensor(uneven, mesh)
    assert back.shape == x.shape
    assert back.placements == (Shard(2),)
    assert torch.equal(back.full_tensor(), x)
    refused(
        ValueError,
        "one Shard",
        lambda: spatial.from_dtensor(placed.redistribute(mesh, [Replicate()])),
    )


def refused(kind: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        call()


def twice(x: Tensor) -> None:
    """Second derivatives."""
    leaf = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(leaf.square().sum() ** 2, leaf, create_graph=True)
    g.square().sum().backward()


def refusals() -> None:
    x = spatial.scatter(whole((2, 4, 12, 6), 1), 2)
    plain = whole((2, 4, 12, 6), 2)
    no, wrong = NotImplementedError, ValueError
    refused(no, "full_tensor()", lambda: torch.fft.fft(x))
    refused(no, "full_tensor()", lambda: x.flatten(1))
    refused(no, "full_tensor()", lambda: x[:, :, 2:5])
    refused(no, "full_tensor()", lambda: x.reshape(2, -1))
    refused(no, "full_tensor()", lambda: x.softmax(2))
    refused(no, "full_tensor()", lambda: torch.cat([x, x], 2))
    refused(no, "full_tensor()", lambda: F.interpolate(x, size=(13, 6)))
    refused(
        no,
        "full_tensor()",
        lambda: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    )
    refused(no, "full_tensor()", lambda: F.adaptive_avg_pool2d(x, 2))
    refused(no, "indices", lambda: F.max_pool2d(x, 2, return_indices=True))
    refused(no, "full_tensor()", lambda: F.layer_norm(x, (12, 6)))
    refused(no, "amax", lambda: x.max(1))
    refused(no, "saved", lambda: torch.save(x, "/dev/null"))
    refused(wrong, "split one of its last 1", lambda: F.conv1d(x, whole((4, 4, 3), 3)))
    refused(RuntimeError, "Kernel size", lambda: F.conv2d(x, whole((4, 4, 13, 3), 3)))
    refused(RuntimeError, "bias", lambda: F.conv2d(x, whole((4, 4, 3, 3), 3), whole((3,), 3)))
    refused(RuntimeError, "strided", lambda: F.conv2d(x, whole((4, 4, 3, 3), 3), None, 2, "same"))
    refused(wrong, "half of the window", lambda: F.max_pool2d(x, 2, 2, (2, 0)))
    refused(wrong, "no reduction", lambda: F.mse_loss(x, plain, reduction="meen"))
    refused(no, "out=", lambda: torch.add(x, 1, out=plain))
    refused(no, "full_tensor()", lambda: x.view(2, 4, 72))
    refused(RuntimeError, "invalid", lambda: x.view(2, 4, 13, 6))
    refused(IndexError, "dimension 5", lambda: x.sum(5))
    refused(TypeError, "plain tensor", lambda: F.cross_entropy(plain, x))
    refused(RuntimeError, "once_differentiable", lambda: twice(x))
    refused(wrong, "larger than", lambda: F.max_pool2d(x, 13))
    refused(wrong, "12", lambda: x + plain[:, :, :5])
    refused(wrong, "split differently", lambda: x + spatial.scatter(plain, 3))
    refused(wrong, "do not split", lambda: spatial.scatter(plain, 2, None, (12,)))
    refused(wrong, "gradient", lambda: x.detach().requires_grad_().backward())
    refused(wrong, "local rows", lambda: spatial.pointwise(lambda rows: rows[:, :, :0], x))
    refused(TypeError, "plain", lambda: plain.add_(x))
    refused(TypeError, "input", lambda: F.conv2d(plain, x))
    refused(IndexError, "axis 7", lambda: spatial.scatter(plain, 7))


def attributes() -> None:
    whole_one = whole((2, 4, 12, 6), 1)
    x = spatial.scatter(whole_one, -2)
    assert x.shape == x.size() == whole_one.shape
    assert (x.size(2), x.numel(), len(x), x.ndim, x.dtype) == (12, 576, 2, 4, torch.float64)
    assert "axis=2" in repr(x)
    assert isinstance(x, torch.Tensor)
    own = x.to_local()
    assert type(own) is torch.Tensor
    assert own.data_ptr() == x.to_local().data_ptr()
    leaf = x.detach().requires_grad_()
    (leaf * 2).sum().backward()
    assert torch.equal(leaf.grad.full_tensor(), torch.full_like(whole_one, 2))
    assert x.new_zeros(3).shape == (3,)
    same = spatial.pointwise(lambda rows, scale: rows * scale, x, whole((12, 6), 3))
    assert torch.equal(same.full_tensor(), whole_one * whole((12, 6), 3))


def under_autocast() -> None:
    """The types that torch.autocast gives, and gradients in those of the parameters."""
    torch.manual_seed(0)
    x = spatial.scatter(whole((2, 3, 24, 8), 1).float(), 2)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 3)).to(
        device()
    )
    with torch.autocast(device().type, torch.bfloat16):
        y = net[0](x)
        assert y.dtype == torch.bfloat16
        z = net(x)
    z.float().square().mean().backward()
    plain = [parameter.grad.clone() for parameter in net.parameters()]
    net.zero_grad()
    with torch.autocast(device().type, torch.bfloat16):
        expected = net(x.full_tensor())
    expected.float().square().mean().backward()
    torch.testing.assert_close(z.full_tensor(), expected, rtol=0.05, atol=0.05)
    for ours, parameter in zip(plain, net.parameters(), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, parameter.grad, rtol=0.1, atol=0.02)


def recomputed(reentrant: bool) -> None:
    """Within torch.utils.checkpoint."""
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    block = (
        nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())
        .double()
        .to(device())
    )
    x = whole((2, 3, 12, 5), 1)
    found = []
    for again in (False, True):
        own = spatial.scatter(x, 2).requires_grad_()
        block.zero_grad()
        y = checkpoint(block, own, use_reentrant=reentrant) if again else block(own)
        (y * 2).sum().backward()
        found.append(
            [
                y.full_tensor().detach(),
                own.grad.full_tensor(),
                *(p.grad for p in block.parameters()),
            ]
        )
    for first, second in zip(*found, strict=True):
        assert torch.equal(first, second)


def hybrid() -> None:
    """Two groups of split tensors, and DistributedDataParallel over them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    mesh = init_device_mesh(device().type, (2, 2), mesh_dim_names=("data", "space"))
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))
    plain = plain.double().to(device())
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))
    net = net.double().to(device())
    net.load_state_dict(plain.state_dict())
    x = whole((2, 3, 12, 6), 1)
    plain(x).square().mean().backward()
    ours = DistributedDataParallel(net, process_group=mesh["data"].get_group())
    sample = mesh["data"].get_local_rank()
    own = spatial.scatter(x[sample : sample + 1], 2, mesh["space"])
    ours(own).square().mean().backward()
    for first, second in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(first.grad, second.grad, rtol=1e-9, atol=1e-9)


def replicas() -> None:
    torch.manual_seed(torch.distributed.get_rank())
    net = spatial.replicate(nn.Sequential(nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2)).to(device()))
    weight = net[0].weight.detach()
    every = [torch.empty_like(weight) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(every, weight)
    assert all(torch.equal(weight, other) for other in every)


def within_a_memory_limit() -> None:
    """Each process plans for itself: the losses stay, and tensors are swapped."""
    from oocdnn.torch.limit.host_card import HostCard
    from oocdnn.torch.limit.session import memory_limit

    drawn = torch.Generator().manual_seed(1)
    x = spatial.scatter(torch.randn(8, 3, 64, 16, generator=drawn), 2)
    target = torch.arange(8) % 5
    losses: list[list[float]] = [[], []]

    def step(net: nn.Module, optimizer: torch.optim.Optimizer, found: list[float]) -> None:
        loss = F.cross_entropy(net(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())

    for limited in (False, True):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for channels in (3, 8, 8, 8):
            layers += [nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        if not limited:
            for _ in range(6):
                step(net, optimizer, losses[0])
            continue
        card = HostCard(least_bytes=256)
        with memory_limit(300_000, card=card, planning=0.2) as run:
            for _ in range(6):
                step(net, optimizer, losses[1])
            assert run.plan is not None
            assert run.plan.swapped_bytes > 0
        card.close()
    assert losses[0] == losses[1]


def memory_orders() -> None:
    """Processes whose rows have unlike strides, as empty ones and those of one channel have."""
    last = torch.channels_last
    x = whole((2, 3, 4, 6), 1)
    count = torch.distributed.get_world_size()
    for lengths in ((4, 0, 0, 0), (1, 1, 1, 1), (0, 3, 1, 0)):
        lengths = (*lengths[: count - 1], sum(lengths[count - 1 :]))
        split = spatial.scatter(x.to(memory_format=last), 2, None, lengths)
        assert torch.equal(split.full_tensor(), x)
        assert torch.equal(split.transpose(1, 3).full_tensor(), x.transpose(1, 3))
    one = whole((2, 1, 20, 6), 2).to(memory_format=last)
    w, v = whole((4, 1, 2, 2), 3), whole((4, 4, 3, 3), 4)
    compare(lambda x, w, v: F.conv2d(F.conv2d(x, w, stride=2), v, padding=1), one, 2, None, (w, v))
    torch.manual_seed(0)
    deep = nn.Sequential(
        nn.Conv2d(3, 4, 3, 1, 1), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, 1, 1), nn.MaxPool2d(2),
        nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, 1, 1), nn.ConvTranspose2d(4, 4, 2, 2),
        nn.Conv2d(4, 4, 3, 1, 1),
    ).double().to(device(), memory_format=last)  # fmt: skip
    for order in (last, torch.contiguous_format):
        compare(deep, whole((2, 3, 8, 6), 5).to(memory_format=order), 2, None, near=True)
    norm = nn.BatchNorm2d(4).double().to(device())
    rows = whole((2, 4, 6, 5), 6).to(memory_format=last)
    compare(norm, rows, 2, (6, *[0] * (count - 1)), near=True)


def parameters_alone() -> None:
    """Norms with a weight or a bias only."""
    x = whole((2, 4, 8, 5), 1) / 3
    value = whole((4,), 2)
    for function in (
        lambda x, v: F.batch_norm(x, None, None, v, None, True),
        lambda x, v: F.batch_norm(x, None, None, None, v, True),
        lambda x, v: F.group_norm(x, 2, v, None),
        lambda x, v: F.instance_norm(x, None, None, None, v),
    ):
        compare(function, x, 2, None, [value], near=True)


def random_numbers() -> None:
    """Generators that begin alike stay alike. Masks of rows differ, those of channels do not."""
    x = spatial.scatter(torch.ones(2, 64, 9, 8, device=device()), 2)
    torch.manual_seed(1)
    dropped = F.dropout(x, 0.5).full_tensor()
    kept = (dropped != 0).double().mean()
    assert 0.4 < kept < 0.6
    assert not torch.equal(dropped[:, :, 0], dropped[:, :, 3])
    channels = F.dropout2d(x, 0.5).full_tensor()
    assert torch.equal(channels, channels[:, :, :1, :1].expand_as(channels))
    drawn = torch.rand_like(x).full_tensor()
    assert not torch.equal(drawn[:, :, 0], drawn[:, :, 3])
    state = torch.get_rng_state()
    every: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(every, state.tolist())
    assert all(other == every[0] for other in every)
    assert torch.equal(F.dropout(x, 0.5, training=False).full_tensor(), x.full_tensor())


def other_operands() -> None:
    """What review found: results that were of the local rows, or of another object."""
    x = spatial.scatter(whole((1, 1, 4, 4), 1), 2)
    assert x.squeeze(2).shape == (1, 1, 4, 4)
    assert x.squeeze().shape == (4, 4)
    other = spatial.scatter(whole((1, 1, 12, 4), 2).float(), 2)
    assert x.to(other).dtype == torch.float32
    assert torch.equal(x.type_as(other).full_tensor(), x.full_tensor().float())
    plain = torch.zeros(1, 4, dtype=torch.float64, device=device())
    row = spatial.scatter(whole((4, 4), 3), 0)
    spatial.pointwise(lambda a, b: b.expand_as(a), row, plain)
    assert type(plain) is torch.Tensor
    single = spatial.scatter(whole((2, 3, 1, 4), 4), 2)
    both = torch.cat([single, whole((2, 3, 1, 4), 5)], 1)
    assert torch.equal(
        both.full_tensor(), torch.cat([single.full_tensor(), whole((2, 3, 1, 4), 5)], 1)
    )
    stacked = torch.stack([x, x], 4)
    assert torch.equal(stacked.full_tensor(), torch.stack([x.full_tensor()] * 2, 4))
    ties = torch.tensor([1.0, 1.0, 0.0, 1.0], device=device()).double()
    compare(lambda x: x.amax(), ties, 0, None, near=True)
    compare(lambda x: x.amax((0, 1)), whole((2, 3, 9), 6), 2, (3, 0, 6, 0), near=True)
    undefined = spatial.scatter(torch.tensor([1.0, torch.nan, 0.0, 2.0], device=device()), 0)
    assert bool(undefined.amax().isnan())
    weight = whole((2, 3, 9, 4), 7).abs() + 1
    x = whole((2, 3, 9, 4), 8)
    compare(lambda x: F.mse_loss(x, torch.zeros_like(x), weight=weight), x, 2, None, near=True)
    half = spatial.scatter(torch.ones(1, 1, 400, 400, device=device(), dtype=torch.float16), 2)
    assert float(F.mse_loss(half, torch.zeros_like(half))) == 1
    with torch.inference_mode():
        F.avg_pool2d(spatial.scatter(whole((1, 1, 9, 9), 1), 2), 3, 2, 1, count_include_pad=False)
    x = whole((1, 1, 9, 9), 1)
    compare(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x, 2, None, near=True)


def equal_elements() -> None:
    """Norms of channels whose elements are all equal, on one process or on all."""
    x = whole((2, 4, 8, 5), 1) / 3
    x[:, 0] = 2
    x[:, 1, :2] = 1
    x[1, 2] = 0
    for function in (
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.instance_norm(x),
        lambda x: F.group_norm(x, 2),
    ):
        compare(function, x, 2, None, near=True)
