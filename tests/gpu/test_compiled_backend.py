"""Compiled training within a limit on a GPU: what Inductor computes, in the planned bytes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from torch import Tensor, nn
from torch.nn import functional as F

from oocdnn.network.plan import Policy
from oocdnn.torch.compiled import plans
from oocdnn.torch.compiled.backend import oocdnn
from oocdnn.torch.limit.cuda_card import CudaCard

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
]

MIB = 1 << 20
SLACK = 1.1  # of the planned bytes


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    yield
    torch._dynamo.reset()


def network() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), *(Block(64) for _ in range(8)), nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    net = net.cuda().to(memory_format=torch.channels_last)
    x = torch.randn(64, 3, 112, 112, device="cuda").to(memory_format=torch.channels_last)
    return net, x, torch.randint(0, 10, (64,), device="cuda")


def train(net: nn.Module, call: Any, x: Tensor, target: Tensor, steps: int = 6) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for number in range(steps):
        torch.manual_seed(number)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(call(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def allocated(call: Any) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated())


@pytest.mark.parametrize("share", [0.7, 0.4])
def test_compiled_training_keeps_to_the_limit(share: float) -> None:
    net, x, target = network()
    other = copy.deepcopy(net)
    call = torch.compile(other)
    expected = train(other, call, x, target)
    before = torch.cuda.memory_allocated()
    most = allocated(partial(train, other, call, x, target, 2)) - before
    torch._dynamo.reset()
    del other, call
    torch.cuda.empty_cache()

    used = CudaCard(torch.device("cuda", 0)).others() + torch.cuda.memory_allocated()
    limit = used + int(share * most)
    call = torch.compile(net, backend=oocdnn, options={"memory_limit": limit})
    found = train(net, call, x, target)
    assert found == pytest.approx(expected, rel=2e-2)
    plan = plans()[-1]
    choices = {one.policy for one in plan.schedule.choices}
    assert choices & {Policy.SWAP, Policy.REBUILD}
    before = torch.cuda.memory_allocated()
    peak = allocated(partial(train, net, call, x, target, 2)) - before
    assert peak <= SLACK * plan.peak_bytes + 32 * MIB
    assert peak < 0.9 * most


def test_no_page_locked_memory_is_made_after_the_first_steps() -> None:
    from oocdnn.torch.compiled import copies

    net, x, target = network()
    first = torch.compile(copy.deepcopy(net), backend=oocdnn, options={"memory_limit": 1 << 40})
    first(x).sum().backward()
    del first
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    used = CudaCard(torch.device("cuda", 0)).others() + torch.cuda.memory_allocated()
    limit = used + plans()[-1].timeline.peak_bytes // 2
    call = torch.compile(net, backend=oocdnn, options={"memory_limit": limit})
    train(net, call, x, target, 2)
    (slabs,) = copies._slabs.values()
    bytes_then = slabs._in_use + slabs._free_bytes
    train(net, call, x, target, 4)
    assert slabs._in_use + slabs._free_bytes == bytes_then
    assert slabs._in_use == 0
