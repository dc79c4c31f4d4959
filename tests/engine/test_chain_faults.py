"""Chains where the n-th allocation, copy, run, ... fails, and where there is less memory than was
planned with."""

from __future__ import annotations

import numpy as np
import pytest
from engine.cases import DEVICE
from engine.test_chain_backward import check_gradients
from engine.test_chain_backward import link_by_link as gradients_link_by_link
from engine.test_chain_calls import integers, link_by_link, vgg
from engine.test_chain_residuals import blocks
from engine.test_faults import KINDS, MOST_CALLS

import oocdnn

FAILURES = (oocdnn.DeviceError, oocdnn.OutOfMemory, oocdnn.Unsupported)


@pytest.fixture(scope="module")
def chain():
    """x, links, and what they make of x."""
    rng = np.random.default_rng(7)
    x, links = integers(rng, (2, 3, 8, 8), np.float32), blocks(1, 2, rng)
    with oocdnn.Context(DEVICE, "64MiB") as context:
        return x, links, link_by_link(context, x, links)


def attempt(chain, wrap: str) -> bool:
    """True where the call went through; after a failure that passes the context serves the next."""
    x, links, wanted = chain
    try:
        context = oocdnn.Context(DEVICE, "1MiB", wrap=wrap, profile="none", engine="direct")
    except FAILURES:
        return False
    with context:
        try:
            z = context.conv_chain(x, links)
        except FAILURES:
            np.testing.assert_array_equal(context.conv_chain(x, links), wanted)
            return False
        np.testing.assert_array_equal(z, wanted)
        assert not context.check_reports()
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_nth_call_fails(chain, kind):
    for nth in range(1, MOST_CALLS):
        if attempt(chain, f"check,fault:{kind}:{nth}"):
            break
    else:
        pytest.fail(f"the call still fails at {kind} number {MOST_CALLS}")


def attempt_gradients(case, wrap: str) -> bool:
    """The same of a chain's gradients."""
    x, dz, links, wanted = case
    try:
        context = oocdnn.Context(DEVICE, "1MiB", wrap=wrap, profile="none", engine="direct")
    except FAILURES:
        return False
    with context:
        try:
            made = context.conv_chain_backward(dz, x, links)
        except FAILURES:
            again = context.conv_chain_backward(dz, x, links)
            check_gradients(again, wanted, links, ("dx", "dw", "db"))
            return False
        check_gradients(made, wanted, links, ("dx", "dw", "db"))
        assert not context.check_reports()
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_nth_call_of_gradients_fails(kind):
    rng = np.random.default_rng(9)
    x, links = integers(rng, (2, 3, 8, 8), np.float32), vgg(1, rng)[:2]
    dz = integers(rng, (2, 1, 4, 4), np.float32)
    with oocdnn.Context(DEVICE, "64MiB") as context:
        case = x, dz, links, gradients_link_by_link(context, dz, x, links)
    most = 2 * MOST_CALLS  # twice as many problems have events
    for nth in range(1, most):
        if attempt_gradients(case, f"check,fault:{kind}:{nth}"):
            break
    else:
        pytest.fail(f"the call still fails at {kind} number {most}")


def test_less_memory_than_planned_is_planned_again():
    rng = np.random.default_rng(8)
    x, links = integers(rng, (8, 3, 64, 64), np.float32), vgg(4, rng)[:4]
    with oocdnn.Context(DEVICE, "64MiB") as large:
        wanted = link_by_link(large, x, links)
    with oocdnn.Context(DEVICE, 4 << 20, wrap="limit:1MiB", profile="none") as small:
        np.testing.assert_array_equal(small.conv_chain(x, links), wanted)
        assert small.stats.peak_device_bytes <= 1 << 20


def test_less_memory_than_planned_for_gradients_is_planned_again():
    rng = np.random.default_rng(10)
    x, links = integers(rng, (8, 3, 64, 64), np.float32), vgg(4, rng)[:4]
    dz = integers(rng, (8, 8, 16, 16), np.float32)
    with oocdnn.Context(DEVICE, "64MiB") as large:
        wanted = gradients_link_by_link(large, dz, x, links)
    with oocdnn.Context(DEVICE, 4 << 20, wrap="limit:2MiB", profile="none") as small:
        made = small.conv_chain_backward(dz, x, links)
        assert small.stats.peak_device_bytes <= 2 << 20
    check_gradients(made, wanted, links, ("dx", "dw", "db"))


def test_bits_do_not_depend_on_the_budget():
    """Reals, on an engine that is invariant: the bits of a call for each link."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal((4, 3, 32, 32)).astype(np.float32)
    links = [
        oocdnn.Link(link.w + 0.01, link.b, padding=1, activation="relu", pool=link.pool)
        for link in vgg(2, rng)[:7]
    ]
    links += [oocdnn.Link(np.full((8, 8, 3, 3), 0.3, np.float32), padding=1, residual=6)]
    made = []
    for budget in ("64MiB", "256KiB", "64KiB"):
        with oocdnn.Context(DEVICE, budget, reproducible=True, profile="none") as context:
            made.append(context.conv_chain(x, links))
            made.append(link_by_link(context, x, links))
    for other in made[1:]:
        np.testing.assert_array_equal(other, made[0])
