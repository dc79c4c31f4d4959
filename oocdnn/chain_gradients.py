"""The gradients of a chain of convolutions, depth first: each tile of the batch goes forward
through the links once more and then backward, and what is between two links, and what the backward
pass needs of it, never leaves the device.

So x and dz cross the wire once, and so do weights and gradients. Links are those of
`oocdnn.conv_chain`; arrays, keywords and errors those of `oocdnn.functions`.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple, SupportsIndex

import numpy as np

from oocdnn._arguments import need_kind, several
from oocdnn._arrays import pins
from oocdnn._arrays.allocation import allocate
from oocdnn._calls import call_geometry
from oocdnn._calls.operation import Common, MathName, read_finish
from oocdnn._calls.stack import current_context
from oocdnn._core.call import Convolution, Slot
from oocdnn._core.native import Progress
from oocdnn._shown import shown
from oocdnn.arrays import Operands, View, unwrap, view
from oocdnn.chain import Link, Made, calls_of, error_at, make_all, need_host
from oocdnn.errors import InvalidProblem, Unsupported
from oocdnn.fused import Saved, check_slopes

Need = Literal["dx", "dw", "db"] | tuple[Literal["dw", "db"], int]


class ChainGradients(NamedTuple):
    """The gradients of a chain with respect to x, and by link to w and b. None: was not needed."""

    dx: Any
    dw: list[Any]
    db: list[Any]


class _Needs(NamedTuple):
    dx: bool
    dw: list[bool]  # by link
    db: list[bool]

    def any(self) -> bool:
        return self.dx or any(self.dw) or any(self.db)


def conv_chain_backward(
    dz: Any,
    x: Any,
    links: Sequence[Link],
    *,
    needs: Iterable[Need] = ("dx", "dw", "db"),
    saved: Sequence[Saved | None] | None = None,
    math: MathName | None = None,
    stream: Any = None,
    progress: Progress | None = None,
    workspace: SupportsIndex | None = None,
) -> ChainGradients:
    """The gradients of `conv_chain(x, links)` with respect to x and each link's w and b.

    dz: the gradient with respect to its result; x: [N, C, [D, [H,]] W].
    needs: "dx"; "dw" and "db" of all links, or ("dw", 2), ("db", 2) of a single one. Of a link
        without b there is no db. What leads to no gradient that is needed is not computed.
    saved: by link what it saved in a forward pass, or None where that is computed again, as with
        None for all links. What only leads to what was saved is not computed.
    Returns a `ChainGradients`. Its parts are shaped as what they are gradients of.

    The batch is cut, no sample is: where one sample does not fit the budget with what all links
    make of it, OutOfMemory says which budget works. A link with `alpha`, `scale` or `residual` is
    Unsupported, and so is a reproducible context. Then the links can run one by one, by
    `conv_bias_act_pool` with `save_for_backward` and its backward.
    """
    data, gradient = view("x", x), view("dz", dz)
    context = current_context()
    with ExitStack() as stack:
        made = make_all(links, data.shape)
        wanted = wanted_of(needs, made)
        if not wanted.any():
            raise InvalidProblem("needs is empty; it names dx, dw, db or several of them")
        call_geometry.need_shape("dz", gradient.shape, made[-1].shape, "the chain's result")
        given = (None,) * len(made) if saved is None else _saved_of(saved)
        if len(given) != len(made):
            raise InvalidProblem(f"saved is of {len(given)} links, and the chain has {len(made)}")
        operands = [stack.enter_context(Operands(data)) for _ in made]
        operands[0].read("input", data)
        operands[-1].read("z", gradient)
        for number, (one, mine) in enumerate(zip(made, operands, strict=True)):
            with error_at(number):
                _need_plain(one.link)
                theirs = given[number]
                if theirs is not None and theirs.view is not None:
                    mine.read("saved", theirs.view)
                mine.read("w", one.w)
                read_finish(mine, one.link.finish(), one.geometry.shape)

        def make(slot: Slot, number: int, like: View, shape: tuple[int, ...]) -> Any:
            result = allocate(data, shape, slot == "x", context.results.empty)
            operands[number].write(slot, result._replace(name=like.name), shape)
            return unwrap(result)

        need_host(context, operands)
        dx = make("x", 0, data, data.shape) if wanted.dx else None
        dw = [
            make("dw", i, one.w, one.w.shape) if wanted.dw[i] else None
            for i, one in enumerate(made)
        ]
        db = [
            make("db", i, one.w, one.w.shape[:1]) if wanted.db[i] else None
            for i, one in enumerate(made)
        ]
        common = Common(None, 1.0, 0.0, "cross_correlation", math, stream, progress, workspace)
        calls = list(calls_of(context, made, common, operands))
        for number, theirs in enumerate(given):
            if theirs is not None:
                with error_at(number):
                    _need_same(theirs, calls[number], made[number])
                    check_slopes(theirs, gradient)
        in_memory = (one for mine in operands for one in mine.in_memory)
        with pins.Use(context, in_memory):
            context.run_chain_backward(calls, [mine.tensors for mine in operands], progress)
    return ChainGradients(dx, dw, db)


def _saved_of(saved: Iterable[Saved | None]) -> tuple[Saved | None, ...]:
    """What each link saved."""
    given = several("saved", saved, "what each link saved, or None for one that saved nothing")
    for number, theirs in enumerate(given):
        if theirs is not None:
            need_kind(f"saved[{number}]", theirs, Saved, "what the link saved, or None")
    return given


def _need_plain(link: Link) -> None:
    for name, other in (("scale", link.scale), ("residual", link.residual)):
        if other is not None:
            raise Unsupported(f"{name} in a chain's gradients; compute them link by link")


def _need_same(saved: Saved, call: Convolution, made: Made) -> None:
    theirs = saved.call
    mine = call.window, call.groups, call.pool, call.epilogue, made.geometry.shape
    if mine != (theirs.window, theirs.groups, theirs.pool, theirs.epilogue, saved.y_shape):
        raise InvalidProblem("saved is of another convolution; pass what this one has saved")


def wanted_of(needs: Iterable[Need], made: Sequence[Made]) -> _Needs:
    if isinstance(needs, str):
        raise InvalidProblem(f"needs is {shown(needs)}; pass a tuple: ({shown(needs)},)")
    biased = [one.link.b is not None for one in made]
    wanted = _Needs(False, [False] * len(made), [False] * len(made))
    for need in several("needs", needs, 'a tuple, as ("dx", "dw")'):
        word: Any = need if isinstance(need, str) else None
        if word == "dx":
            wanted = wanted._replace(dx=True)
        elif word == "dw":
            wanted.dw[:] = [True] * len(made)
        elif word == "db":
            wanted.db[:] = biased
        else:
            name, number = _single(need, len(made))
            if name == "db" and not biased[number]:
                raise InvalidProblem(f"needs has {shown(need)}, and link {number} has no b")
            getattr(wanted, name)[number] = True
    return wanted


def _single(need: Any, count: int) -> tuple[str, int]:
    if isinstance(need, tuple) and len(need) == 2 and need[0] in ("dw", "db"):
        number = need[1]
        whole = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
        if whole and 0 <= number < count:
            return need[0], int(number)
    raise InvalidProblem(
        f'needs has {shown(need)}; the values are "dx", "dw", "db", and of a single link '
        '("dw", number) or ("db", number)'
    )
