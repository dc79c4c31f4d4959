"""Chains that save what the gradients of their last link need, and gradients that are given it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from counted import Counted
from engine.cases import DEVICE
from engine.test_chain_backward import (
    CHECKED,
    ENGINES,
    EXAMPLES,
    arrays_of,
    bytes_in,
    check_gradients,
    equal,
    link_by_link,
    pads_beyond_its_reach,
    small,
    sparse,
    trained,
)
from engine.test_chain_calls import integers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocdnn

BUDGETS = ("64MiB", "32KiB", "16KiB", "8KiB")


def saved_by_calls(context, x, links):
    """By link what it gives, and what it saves, by calls of their own."""
    passed, saved = [], []
    for link in links:
        fields = {name: value for name, value in vars(link).items() if name not in ("w", "b")}
        x, bits = context.conv_bias_act_pool(x, link.w, link.b, save_for_backward=True, **fields)
        passed.append(x)
        saved.append(bits)
    return passed, saved


def same_bits(made, wanted):
    assert (made.bits is None) == (wanted.bits is None)
    if made.bits is not None:
        np.testing.assert_array_equal(made.bits, wanted.bits)


def test_a_chain_saves_what_its_last_link_would_by_itself():
    counted = Counted()
    with oocdnn.Context(DEVICE, "64MiB") as large:

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=trained(), budget=st.sampled_from(BUDGETS), engine=st.sampled_from(ENGINES))
        def check(case, budget, engine):
            counted.begin()
            x, _, links, _ = case
            passed, wanted = saved_by_calls(large, x, links)
            with oocdnn.Context(DEVICE, budget, engine=engine, profile="none", **CHECKED) as it:
                try:
                    z, saved = it.conv_chain(x, links, save_for_backward=True)
                except oocdnn.OutOfMemory:
                    with pytest.raises(oocdnn.OutOfMemory):
                        saved_by_calls(it, x, links)
                    return
                equal(z, passed[-1])
                same_bits(saved, wanted[-1])
                assert it.check_reports() == []
                assert it.stats.peak_device_bytes <= it.stats.budget_bytes
                counted.done()

        check()
    counted.need(0.5)


def test_gradients_of_what_was_saved():
    """Of any links."""
    counted = Counted()
    with oocdnn.Context(DEVICE, "64MiB") as large:

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            case=trained(),
            budget=st.sampled_from(BUDGETS[:2]),
            engine=st.sampled_from(ENGINES),
            kept=st.lists(st.booleans(), min_size=5, max_size=5),
        )
        def check(case, budget, engine, kept):
            counted.begin()
            x, dz, links, needs = case
            _, saved = saved_by_calls(large, x, links)
            given_saved = [one if keeps else None for one, keeps in zip(saved, kept, strict=False)]
            with oocdnn.Context(DEVICE, budget, engine=engine, profile="none", **CHECKED) as it:
                try:
                    made = it.conv_chain_backward(dz, x, links, needs=needs, saved=given_saved)
                except oocdnn.Unsupported:
                    assert any(map(pads_beyond_its_reach, links))
                    return
                except oocdnn.OutOfMemory:
                    assert budget != "64MiB"
                    return
                check_gradients(made, link_by_link(large, dz, x, links), links, needs)
                assert it.check_reports() == []
                assert it.stats.peak_device_bytes <= it.stats.budget_bytes
                counted.done()

        check()
    counted.need(0.5)


@pytest.mark.parametrize("budget", ["64MiB", "896KiB"])
def test_bits_cross_once_each_way(budget):
    x, dz, links = small(np.random.default_rng(0))
    own = bytes_in(x, dz, links) - x.nbytes - dz.nbytes
    with oocdnn.Context(DEVICE, "64MiB") as large:
        wanted = link_by_link(large, dz, x, links)
    with oocdnn.Context(DEVICE, budget, profile="none", **CHECKED) as context:
        z, saved = context.conv_chain(x, links, save_for_backward=True)
        assert (context.stats.tiles > 1) == (budget != "64MiB")
        assert context.stats.bytes_h2d == x.nbytes + own
        assert context.stats.bytes_d2h == z.nbytes + saved.nbytes
        made = context.conv_chain_backward(dz, x, links, saved=[None] * 4 + [saved])
        check_gradients(made, wanted, links, ("dx", "dw", "db"))
        # Nobody reads the last link's bias.
        assert context.stats.bytes_h2d == bytes_in(x, dz, links) + saved.nbytes - links[-1].b.nbytes
        assert context.stats.bytes_d2h == sum(array.nbytes for array in arrays_of(made))


def test_plans_that_save_are_others():
    """Though their links are the same."""
    x, dz, links = small(np.random.default_rng(9))
    with oocdnn.Context(DEVICE, "1MiB", profile="none") as context:
        z = context.conv_chain(x, links)
        again, saved = context.conv_chain(x, links, save_for_backward=True)
        equal(again, z)
        equal(context.conv_chain(x, links), z)
        made = context.conv_chain_backward(dz, x, links)
        kept = context.conv_chain_backward(dz, x, links, saved=[None] * 4 + [saved])
        third = context.conv_chain_backward(dz, x, links)
    for one in (kept, third):
        for mine, right in zip(arrays_of(one), arrays_of(made), strict=True):
            equal(mine, right)


def test_where_no_sample_fits_the_last_link_runs_by_itself():
    rng = np.random.default_rng(3)
    x, links = integers(rng, (2, 3, 64, 64), np.float32), small(rng)[2][:1]
    links += [oocdnn.Link(sparse(rng, (8, 8, 3, 3), np.float32), padding=1, activation="relu")] * 2
    with oocdnn.Context(DEVICE, "64MiB") as large:
        passed, wanted = saved_by_calls(large, x, links)
    with oocdnn.Context(DEVICE, "192KiB", profile="none", **CHECKED) as context:
        z, saved = context.conv_chain(x, links, save_for_backward=True)
        assert context.stats.tiles > len(x)
    equal(z, passed[-1])
    same_bits(saved, wanted[-1])


def test_smooth_activations_leave_slopes():
    x, dz, links = small(np.random.default_rng(2))
    soft = [oocdnn.Link(one.w, one.b, padding=1, activation="tanh", pool=one.pool) for one in links]
    with oocdnn.Context(DEVICE, "1MiB", **CHECKED) as context:
        _, saved = context.conv_chain(x, soft, save_for_backward=True)
        made = context.conv_chain_backward(dz, x, soft, saved=[None] * 4 + [saved])
        again = context.conv_chain_backward(dz, x, soft)
    for mine, right in zip(arrays_of(made), arrays_of(again), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-4)


def test_an_empty_batch():
    x, dz, links = small(np.random.default_rng(5), n=0)
    with oocdnn.Context(DEVICE, "1MiB") as context:
        z, saved = context.conv_chain(x, links, save_for_backward=True)
        made = context.conv_chain_backward(dz, x, links, saved=[None] * 4 + [saved])
    assert z.shape == dz.shape
    assert made.dx.shape == x.shape
    assert all(not one.any() for one in (*made.dw, *made.db))


def test_what_was_saved_elsewhere_is_refused():
    x, dz, links = small(np.random.default_rng(6))
    with oocdnn.Context(DEVICE, "64MiB") as context:
        _, saved = saved_by_calls(context, x, links)
        with pytest.raises(oocdnn.InvalidProblem, match="link 4 of a chain: saved is of another"):
            context.conv_chain_backward(dz, x, links, saved=[None] * 4 + [saved[0]])
        with pytest.raises(oocdnn.InvalidProblem, match="saved is of 1 links"):
            context.conv_chain_backward(dz, x, links, saved=[saved[-1]])


def test_slopes_of_another_type_are_refused():
    """Of as many bytes, which nothing else could tell apart."""
    x, dz, links = small(np.random.default_rng(7))

    def soft(dtype):
        return [
            oocdnn.Link(one.w.astype(dtype), one.b, padding=1, activation="elu", pool=one.pool)
            for one in links
        ]

    with oocdnn.Context(DEVICE, "64MiB") as context:
        _, saved = context.conv_chain(
            x.astype(ml_dtypes.bfloat16), soft(ml_dtypes.bfloat16), save_for_backward=True
        )
        halves = dz.astype(np.float16), x.astype(np.float16), soft(np.float16)
        with pytest.raises(oocdnn.InvalidDtype, match="link 4 of a chain: dz has elements of"):
            context.conv_chain_backward(*halves, saved=[None] * 4 + [saved])
