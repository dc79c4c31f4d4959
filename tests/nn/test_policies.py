"""Chains that keep some of what they make while they train, and compute the rest again: the values
and gradients of their layers, whatever is kept."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from engine.cases import DEVICE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nn.comparing import fill
from nn.test_recomputed import same, step
from python.support import integers

import oocdnn
from oocdnn import nn
from oocdnn.nn import _sections
from oocdnn.perfmodel.profile import Profile

POLICIES = st.one_of(
    st.booleans(), st.just("auto"), st.lists(st.booleans(), min_size=10, max_size=10)
)


@st.composite
def layers(draw):
    """Functions that make up to five layers; some are no links. All go together."""
    made, channels = [], 2
    for seed in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["conv", "fused", "relu", "pool", "residual"]))
        out = draw(st.integers(1, 4))
        made.append(_layer(kind, channels, out, seed))
        channels = out if kind in ("conv", "fused") else channels
    return made


def _layer(kind, channels, out, seed):
    if kind == "conv":
        return lambda: nn.Conv2d(channels, out, 3, padding=1, bias=seed % 2 == 0)
    if kind == "fused":
        pool = oocdnn.Pool("max", 2, 1) if seed % 2 else None
        return lambda: nn.ConvBiasActPool(channels, out, 3, padding=2, activation="relu", pool=pool)
    if kind == "residual":
        return lambda: nn.Residual(nn.Conv2d(channels, channels, 1), activation=nn.ReLU())
    return nn.ReLU if kind == "relu" else lambda: nn.MaxPool2d(2, 1)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    makers=layers(),
    policy=POLICIES,
    budget=st.sampled_from(["64MiB", "24KiB" if DEVICE == "cpu" else "1MiB"]),
    times=st.integers(1, 2),
)
def test_results_are_the_same(makers, policy, budget, times):
    x = integers((4, 2, 8, 8))
    given_policy = policy[: len(makers)] if isinstance(policy, list) else policy
    wanted = step(nn.Chain(*(make() for make in makers)), x, times)
    with oocdnn.Context(DEVICE, budget, profile="none"):
        chain = nn.Chain(*(make() for make in makers), recompute=given_policy)
        same(step(chain, x, times), wanted)


def five(recompute):
    return nn.Chain(
        *(nn.ConvBiasActPool(c, k, 3, padding=1, activation="relu", seed=c)
          for c, k in ((2, 4), (4, 4), (4, 6), (6, 4), (4, 3))),
        recompute=recompute,
    )  # fmt: skip


class Counting(oocdnn.Context):
    """Counts what crosses in all its calls."""

    h2d = d2h = 0

    def count(self, run):
        def counted(*arguments, **keywords):
            run(*arguments, **keywords)
            self.h2d += self.stats.bytes_h2d
            self.d2h += self.stats.bytes_d2h

        return counted

    def __enter__(self):
        for name in ("run", "run_chain", "run_chain_backward", "run_again"):
            setattr(self, name, self.count(getattr(super(), name)))
        return super().__enter__()


def crossed(policy, x):
    """Toward the device and from it, in forward and in backward."""
    with Counting("cpu", "512KiB", profile="none") as context:
        chain = five(policy)
        y = chain(x)
        forward = context.h2d, context.d2h
        chain.backward(np.ones_like(y))
        return forward, (context.h2d - forward[0], context.d2h - forward[1])


@pytest.mark.parametrize("kept", range(4))
def test_what_is_kept_crosses_once_each_way_and_nothing_else(kept):
    """The result of a link, and its bits, out in forward, and in again: the result for the next
    section's forward too."""
    x = integers((16, 2, 16, 16))
    again = [i != kept for i in range(5)]
    nothing, some = crossed(True, x), crossed(again, x)
    elements = x.shape[0] * 16 * 16 * (4, 4, 6, 4)[kept]
    z, bits = elements * 4, elements // 8
    biased = 4 * (4, 4, 6, 4)[kept]  # the bias of a link that is not computed again stays outside
    assert some[0] == (nothing[0][0] + z, nothing[0][1] + z + bits)
    assert some[1][0] == nothing[1][0] + z + bits + z - biased
    assert some[1][1] == nothing[1][1] + z


def test_keeping_all_is_a_call_for_each_link():
    x = integers((16, 2, 16, 16))
    assert crossed([False] * 5, x) == crossed(False, x)


def cuts_of(count):
    """All ways to cut so many links."""
    for flags in range(2**count):
        yield list(_sections.cuts_by([bool(flags >> i & 1) for i in range(count)]))


@pytest.mark.parametrize("budget", ["64MiB", "96KiB", "48KiB"])
def test_the_cheapest_way_is_chosen(budget):
    """Of all there are, by their prices."""
    x, chain = integers((16, 2, 16, 16)), five("auto")
    with oocdnn.Context("cpu", budget, profile="none", link_gb_per_s=0.5):
        wanted = step(five(False), x)
        same(step(chain, x), wanted)
        (chosen,) = chain._chosen.values()
        like = oocdnn.arrays.view("x", x)
        links = [one.link for one in nn.chain.runs_of(chain.layers)[0].links]
        shapes = [x.shape, *(one.shape for one in oocdnn.chain.make_all(links, x.shape))]
        prices = {}

        def price(cut):
            if cut not in prices:
                prices[cut] = _sections._seconds(
                    like, shapes[cut.begin], links[cut.begin : cut.end], cut.saves
                )
            return prices[cut]

        assert math.isfinite(sum(map(price, chosen)))
        least = min(sum(map(price, cuts)) for cuts in cuts_of(5))
        assert sum(map(price, chosen)) == pytest.approx(least)


@pytest.mark.parametrize("policy", [True, "auto", [True, False, True, True, False]])
def test_an_empty_batch(policy):
    chain, x = five(policy), np.zeros((0, 2, 8, 8), np.float32)
    y = chain(x)
    assert y.shape == (0, 3, 8, 8)
    assert chain.backward(y).shape == x.shape
    assert not any(parameter.grad.any() for parameter in chain.parameters())


def test_a_run_that_has_become_longer_has_its_own_choice():
    """It used to be cut as the one before it, and ended where that did."""
    chain, x = five("auto"), integers((4, 2, 8, 8))
    fill(chain)
    chain[2].eval()
    chain(x)
    chain[2].train()
    same(step(chain, x), step(five(False), x))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("policy", [True, [True, False, True], "auto"])
@pytest.mark.parametrize("times", [1, 2])
def test_links_may_share_parameters(dtype, policy, times):
    def tied(recompute):
        layers = [nn.Conv2d(2, 2, 3, padding=1, dtype=dtype, seed=i) for i in range(3)]
        layers[2].weight, layers[2].bias = layers[0].weight, layers[1].bias
        return nn.Chain(*layers, recompute=recompute)

    x = integers((4, 2, 6, 6), dtype=dtype)
    same(step(tied(policy), x, times), step(tied(False), x, times))


def machine(wire, flops):
    return Profile(
        machine="another",
        measured=True,
        fetch_bytes_per_second=wire,
        drain_bytes_per_second=wire,
        both_bytes_per_second=wire,
        flops_fallback=flops,
    )


@pytest.mark.parametrize(
    ("wire", "flops", "wanted"),
    [
        (1e6, 1e12, [(0, 5, False)]),
        (1e12, 1e6, [(i, i + 1, True) for i in range(5)]),
    ],
)
def test_the_wire_and_the_arithmetic_decide(tmp_path, wire, flops, wanted):
    file = tmp_path / "profile.txt"
    file.write_text(machine(wire, flops).text(), encoding="utf-8")
    with oocdnn.Context("cpu", "64MiB", profile=file):
        chain = five("auto")
        chain(integers((16, 2, 16, 16)))
    assert list(chain._chosen.values()) == [wanted]


def test_each_context_has_its_own_choice():
    """Also one that lies where another has been."""
    chain, x = five("auto"), integers((4, 2, 8, 8))
    for _ in range(20):
        with oocdnn.Context("cpu", "64MiB", profile="none"):
            chain(x)
    assert len(chain._chosen) == 20


def test_prices_are_those_of_calls():
    """Where there is room for the workspace, of which a price knows nothing."""
    x = integers((16, 2, 16, 16))
    with oocdnn.Context("cpu", "64MiB", profile="none") as context:
        links = [one.link for one in nn.chain.runs_of(five(True).layers)[0].links]
        like = oocdnn.arrays.view("x", x)
        z = context.conv_chain(x, links)
        forward = context.stats.predicted_seconds
        context.conv_chain_backward(np.ones_like(z), x, links)
        both = forward + context.stats.predicted_seconds
        assert _sections._seconds(like, x.shape, links, False) == pytest.approx(both)


@pytest.mark.parametrize("wrong", ["all", [True], None, 2])
def test_what_is_no_policy(wrong):
    with pytest.raises(oocdnn.InvalidProblem, match="recompute is"):
        nn.Chain(nn.Conv2d(1, 1, 1), nn.ReLU(), recompute=wrong)
