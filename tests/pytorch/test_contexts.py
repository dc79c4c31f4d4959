"""Which context computes, above all where autograd runs in a thread that is in no `with` block."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import oocdnn.torch
from oocdnn._calls import stack

BUDGET = "1MiB"


@pytest.fixture(autouse=True)
def nothing_is_entered(monkeypatch):
    """No default context: who asks for one fails."""

    def refuse() -> oocdnn.Context:
        raise AssertionError("the default context is used")

    monkeypatch.setattr(stack, "_default_context", refuse)


@pytest.fixture
def calls(monkeypatch) -> list[oocdnn.Context]:
    """The contexts that computed, in order."""
    seen: list[oocdnn.Context] = []
    run = oocdnn.Context.run

    def watched(self, *arguments):
        seen.append(self)
        return run(self, *arguments)

    monkeypatch.setattr(oocdnn.Context, "run", watched)
    return seen


def operands():
    return torch.ones(1, 2, 9, 9, requires_grad=True), torch.ones(2, 2, 3, 3, requires_grad=True)


def in_a_thread(function):
    errors = []

    def work():
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def test_the_block_of_the_thread_counts(calls):
    with oocdnn.Context("cpu", BUDGET) as outer:
        y = oocdnn.torch.conv2d(*operands())
        with oocdnn.Context("cpu", BUDGET) as inner:
            y.sum().backward()
    assert calls == [outer, inner, inner]


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_gradients_in_another_thread_use_the_context_of_their_call(calls, name):
    function = getattr(oocdnn.torch, name)
    with oocdnn.Context("cpu", BUDGET) as first:
        y = function(*operands())
        with oocdnn.Context("cpu", BUDGET) as second:
            z = function(*operands())
        in_a_thread(lambda: y.sum().backward())
        assert calls == [first, second, first, first]
    assert second.closed
    assert z is not y


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_compiled_gradients_use_the_context_of_the_latest_call(calls, name):
    function = getattr(oocdnn.torch, name)
    compiled = torch.compile(lambda x, w: function(x, w), fullgraph=True, backend="aot_eager")
    with oocdnn.Context("cpu", BUDGET) as traced:
        y = compiled(*operands())
        in_a_thread(lambda: y.sum().backward())
        assert calls == [traced] * 3
    calls.clear()
    with oocdnn.Context("cpu", BUDGET) as context:
        y = compiled(*operands())
        in_a_thread(lambda: y.sum().backward())
    assert calls == [context] * 3
    torch.compiler.reset()


def test_a_thread_that_does_not_differentiate_asks_for_the_default():
    with oocdnn.Context("cpu", BUDGET):
        oocdnn.torch.conv2d(*operands())
        with pytest.raises(AssertionError, match="default"):
            in_a_thread(lambda: oocdnn.torch.conv2d(*operands()))


def test_a_closed_context_is_not_used_again(calls):
    with oocdnn.Context("cpu", BUDGET):
        y = oocdnn.torch.conv2d(*operands())
    with oocdnn.Context("cpu", BUDGET) as other:
        y.sum().backward()
    assert calls[1:] == [other] * 2
    with oocdnn.Context("cpu", BUDGET):
        y = oocdnn.torch.conv2d(*operands())
    with pytest.raises(AssertionError, match="default"):
        y.sum().backward()
