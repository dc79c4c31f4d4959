"""The C functions of workspace division, as a program in C calls them: wrongly, and in threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from oocdnn._core import native
from oocdnn._core.cdefs import Status

FFI, NULL = native._ffi(), native._ffi().NULL
OUT_OF_MEMORY, INVALID = Status.OUT_OF_MEMORY, Status.INVALID_PROBLEM


@pytest.fixture
def lib():
    return native._library()


def last_error(lib) -> str:
    return FFI.string(lib.oocdnn_last_error()).decode()


def test_what_is_missing_is_named(lib):
    one, length = FFI.new("oocdnn_micro_batch[]", [(1, 1.0, 0)]), FFI.new("int64_t *")
    sizes, found = FFI.new("const int64_t **"), FFI.new("const oocdnn_division **")
    options = FFI.new("const oocdnn_workspace_option *[1]")
    counts, chosen = FFI.new("int64_t[]", [1]), FFI.new("int64_t[1]")
    made = FFI.new("oocdnn_workspace_division *")
    calls = [
        (lib.oocdnn_micro_batch_sizes, (2, 8, NULL, length), "the place for the sizes"),
        (lib.oocdnn_micro_batch_sizes, (2, 8, sizes, NULL), "the place for their number"),
        (lib.oocdnn_micro_batch_sizes, (3, 8, sizes, length), "no batch policy 3"),
        (lib.oocdnn_pareto_divisions, (NULL, 1, 8, found, length), "the array of choices"),
        (lib.oocdnn_pareto_divisions, (one, -1, 8, found, length), "cannot be -1"),
        (lib.oocdnn_pareto_divisions, (one, 1, 8, NULL, length), "the place for the divisions"),
        (lib.oocdnn_pareto_divisions, (one, 1, 8, found, NULL), "the place for their number"),
        (lib.oocdnn_even_divisions, (one, 1, 8, NULL, length), "the place for the divisions"),
        (lib.oocdnn_divide_batch, (one, 1, 8, 0, NULL), "the place for the division"),
        (lib.oocdnn_divide_workspace, (NULL, counts, 1, 0, chosen, made), "the arrays of options"),
        (lib.oocdnn_divide_workspace, (options, NULL, 1, 0, chosen, made), "their lengths"),
        (lib.oocdnn_divide_workspace, (options, counts, 1, 0, NULL, made), "what is chosen"),
        (lib.oocdnn_divide_workspace, (options, counts, 1, 0, chosen, NULL), "for the division"),
        (lib.oocdnn_divide_workspace, (options, counts, 1, 0, chosen, made), "an array of options"),
        (lib.oocdnn_divide_workspace, (options, counts, -1, 0, chosen, made), "cannot be -1"),
    ]
    for function, arguments, text in calls:
        assert function(*arguments) == INVALID
        assert text in last_error(lib)


def test_the_least_that_works_travels_beside_the_text(lib):
    one, found = FFI.new("oocdnn_micro_batch[]", [(1, 1.0, 7)]), FFI.new("const oocdnn_division **")
    assert lib.oocdnn_divide_batch(one, 1, 8, 6, found) == OUT_OF_MEMORY
    assert lib.oocdnn_last_error_detail() == 7
    assert lib.oocdnn_divide_batch(one, 1, 8, 7, found) == Status.OK
    assert last_error(lib) == ""


def test_what_is_handed_out_belongs_to_the_thread(lib):
    """Both threads have called before either reads."""
    meet = Barrier(2)

    def divide(samples: int) -> tuple[int, int]:
        one = FFI.new("oocdnn_micro_batch[]", [(samples, 1.0, samples)])
        found = FFI.new("const oocdnn_division **")
        assert lib.oocdnn_divide_batch(one, 1, 64, 64, found) == Status.OK
        meet.wait()
        return found[0].workspace_bytes, found[0].parts[0].count

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(divide, (8, 16))) == [(8, 8), (16, 4)]


def test_a_convolution_has_the_contexts_limit_unless_it_says_so(lib):
    for direction in range(4):
        assert lib.oocdnn_default_convolution(direction, 2).workspace_limit == -1


def test_what_is_missing_to_measure_is_named(lib):
    found, count = FFI.new("const oocdnn_micro_batch **"), FFI.new("int64_t *")
    context = FFI.new("oocdnn_context **")
    options = FFI.new("oocdnn_options *", lib.oocdnn_default_options())
    device = FFI.new("char[]", b"cpu")
    options.device = device
    assert lib.oocdnn_create(options, context) == Status.OK
    text, batch = FFI.new("char[]", b"conv1d:fwd x2x1x4 w1x1x1"), FFI.new("int64_t *")
    calls = [
        ((NULL, text, 1, found, count, batch), "the context"),
        ((context[0], NULL, 1, found, count, batch), "the problem string"),
        ((context[0], text, 1, NULL, count, batch), "the place for the choices"),
        ((context[0], text, 1, found, NULL, batch), "the place for their number"),
        ((context[0], text, 1, found, count, NULL), "the place for the batch"),
        ((context[0], text, 3, found, count, batch), "no batch policy 3"),
    ]
    for arguments, what in calls:
        assert lib.oocdnn_measure_parts(*arguments) == INVALID
        assert what in last_error(lib)
    assert lib.oocdnn_measure_parts(context[0], text, 1, found, count, batch) == Status.OK
    assert batch[0] == 2
    assert {found[0][i].samples for i in range(count[0])} == {1, 2}
    lib.oocdnn_destroy(context[0])
