"""Memory stays pinned for as long as any call uses it."""

from __future__ import annotations

from oocdnn._arrays.pins import _Pinned


class Memory(_Pinned):
    pinned = True

    def unpin(self) -> None:
        self.pinned = False


def test_memory_that_no_call_uses_is_unpinned_at_once() -> None:
    memory = Memory()
    memory.let_go()
    assert not memory.pinned


def test_the_last_of_several_calls_unpins() -> None:
    memory = Memory()
    memory.calls = 2
    memory.let_go()
    memory.leave()
    assert memory.pinned
    memory.leave()
    assert not memory.pinned


def test_calls_leave_memory_pinned_that_is_still_wanted() -> None:
    memory = Memory()
    memory.calls = 1
    memory.leave()
    assert memory.pinned
