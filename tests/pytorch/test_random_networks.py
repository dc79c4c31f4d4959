"""Random small networks within random limits: the bits of plain PyTorch, and the predicted peak."""

from __future__ import annotations

import copy
import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from oocdnn.bench.training.counting import Counter, CountingCard
from oocdnn.network.planner import Plan, least_limit
from oocdnn.torch.limit.session import memory_limit
from oocdnn.torch.limit.steps import Mode

EXAMPLES = int(os.environ.get("OOCDNN_RANDOM_NETWORKS", "10"))
CHANNELS = 4
STEPS = 6

ACTIVATIONS = {
    "relu": torch.relu,
    "relu_": lambda x: torch.relu_(x.clone()),
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "gelu": F.gelu,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
JOINS = ("add", "mul", "cat")
LAYERS = ("conv", "norm", "group", "layer", "dropout", "pool", "gate", "shared", "mask", "drop")
NAMES = (*LAYERS, *ACTIVATIONS, *JOINS)


class Net(nn.Module):
    """Operations one after the other; joins read an earlier result of the same size too. `scaled`
    ones save small tensors before all others."""

    def __init__(self, operations: list[tuple[str, int]], scaled: bool) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(3, 1, 1)) if scaled else None
        self.operations = operations
        self.first = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.shared = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.layers = nn.ModuleList(self._layer(name) for name, _ in operations)
        self.last = nn.Linear(CHANNELS, 3)

    @staticmethod
    def _layer(name: str) -> nn.Module:
        made: dict[str, nn.Module] = {
            "conv": nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
            "norm": nn.BatchNorm2d(CHANNELS),
            "group": nn.GroupNorm(2, CHANNELS),
            "layer": nn.LayerNorm(CHANNELS),
            "dropout": nn.Dropout(0.3),
            "gate": nn.Conv2d(CHANNELS, CHANNELS, 1),
            "cat": nn.Conv2d(2 * CHANNELS, CHANNELS, 1),
        }
        return made.get(name, nn.Identity())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x if self.scale is None else x * self.scale.exp())
        known = [x]
        for (name, back), layer in zip(self.operations, self.layers, strict=True):
            other = known[-1 - back % len(known)]
            x = self._run(name, layer, x, other)
            known.append(x)
        return self.last(x.mean((2, 3)))

    def _run(
        self, name: str, layer: nn.Module, x: torch.Tensor, other: torch.Tensor
    ) -> torch.Tensor:
        if name in ACTIVATIONS:
            return ACTIVATIONS[name](x)
        if name == "pool":
            return F.max_pool2d(x, 2) if x.shape[-1] > 2 else x
        if name == "mask":
            return x.masked_fill(x.detach() > 1.0, 0.5)
        if name == "drop":
            return torch.native_dropout(x, 0.3, True)[0]
        if name == "gate":
            return x * torch.sigmoid(layer(x.mean((2, 3), keepdim=True)))
        if name == "shared":
            return self.shared(x)
        if name == "layer":
            return layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        if name in JOINS and other.shape == x.shape:
            if name == "cat":
                return layer(torch.cat([x, other], 1))
            return x + other if name == "add" else x * other
        return layer(x) if name not in JOINS else x


def train(net: nn.Module, batch: int, between: list[int]) -> list[str]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for number in range(STEPS):
        torch.manual_seed(number)
        x, target = torch.randn(batch, 3, 8, 8), torch.randint(0, 3, (batch,))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())  # NaN is equal to itself
        between.append(number)
    return losses


operations = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 7)), min_size=2, max_size=14)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    operations=operations, batch=st.integers(2, 5), share=st.floats(0.0, 0.9), scaled=st.booleans()
)
def test_random_networks_have_the_bits_of_plain_pytorch(
    operations: list[tuple[str, int]], batch: int, share: float, scaled: bool
) -> None:
    torch.manual_seed(0)
    plain = Net(operations, scaled)
    ours, probe = copy.deepcopy(plain), copy.deepcopy(plain)
    limit = _limit(probe, batch, share)
    counter = Counter()
    for tensor in (*ours.parameters(), *ours.buffers()):
        counter.add(tensor)
    card = CountingCard(counter)
    peaks: list[int] = []
    plans: list[Plan | None] = []  # for the step that follows

    class Peaks(list[int]):
        def append(self, number: int) -> None:
            peaks.append(counter.most)
            plans.append(run.plan)
            counter.most = 0

    with counter, memory_limit(limit, card=card, planning=0.1) as run:
        losses = train(ours, batch, Peaks())
        assert run._steps.mode in (Mode.FOLLOW, Mode.KEEP)
    card.close()
    assert losses == train(plain, batch, [])
    assert plans[-2] is not None
    assert peaks[-1] == plans[-2].peak_bytes <= limit
    for a, b in zip(plain.state_dict().values(), ours.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def _limit(net: nn.Module, batch: int, share: float) -> int:
    """Between the least that the step needs and what holds everything."""
    counter = Counter()
    for tensor in (*net.parameters(), *net.buffers()):
        counter.add(tensor)
    card = CountingCard(counter)
    with counter, memory_limit(1 << 40, card=card, planning=0.1) as run:
        train(net, batch, [])
        timeline = run.timelines[0]
    card.close()
    least, most = least_limit(timeline), timeline.peak_bytes
    return least + int(share * (most - least)) + 1
