"""What chains and their gradients are predicted to take, of arrays in host memory that need not be
there: they count as results that calls make."""

from collections.abc import Sequence

from oocdnn._calls.call_geometry import Shape
from oocdnn._calls.operation import Common
from oocdnn._calls.stack import current_context
from oocdnn._core import requests
from oocdnn._core.call import Convolution, Slot, Tensor
from oocdnn._core.cdefs import DType
from oocdnn.arrays import View, view
from oocdnn.chain import Link, Made, calls_of, make_all, nowhere
from oocdnn.chain_gradients import Need, wanted_of

_COMMON = Common(None, 1.0, 0.0, "cross_correlation", None, None, None, None)
Tensors = list[dict[Slot, Tensor]]


class _Priced:
    """Links of x, which is like an array and has that shape."""

    def __init__(self, like: View, shape: Shape, links: Sequence[Link]) -> None:
        self._like, self._x = like, shape
        self.made = make_all(links, shape)
        self.calls: list[Convolution] = list(calls_of(current_context(), self.made, _COMMON, ()))

    def at(self, shape: Shape) -> Tensor:
        return nowhere(self._like, shape)

    def parameters(self) -> Tensors:
        return [self._parameters(one) for one in self.made]

    def _parameters(self, one: Made) -> dict[Slot, Tensor]:
        own: dict[Slot, Tensor] = {"w": self.at(one.w.shape)}
        if one.link.b is not None:
            own["bias"] = self.at(one.w.shape[:1])._replace(dtype=view("b", one.link.b).dtype)
        return own

    def saved(self) -> Tensor | None:
        """Of the last link; None where nothing is."""
        last, x = self.made[-1], self.made[-2].shape if len(self.made) > 1 else self._x
        tensors = {**self._parameters(last), "x": self.at(x), self.result(): self.at(last.shape)}
        count = requests.saved_bytes(self.calls[-1]._replace(saves=True), tensors)
        return self.at((count,))._replace(dtype=DType.BYTE) if count else None

    def result(self) -> Slot:
        return "y" if self.made[-1].after.pool is None else "z"


def chain_seconds(like: View, shape: Shape, links: Sequence[Link], saves: bool) -> float:
    """Of `conv_chain`, with `saves` as `save_for_backward`."""
    priced = _Priced(like, shape, links)
    tensors, calls = priced.parameters(), priced.calls
    tensors[0]["x"] = priced.at(shape)
    tensors[-1][priced.result()] = priced.at(priced.made[-1].shape)
    saved = priced.saved() if saves else None
    if saved is not None:
        tensors[-1]["saved"] = saved
        calls[-1] = calls[-1]._replace(saves=True)
    sources = [one.source for one in priced.made]
    return current_context().price_chain(calls, tensors, sources)


def gradient_seconds(
    like: View, shape: Shape, links: Sequence[Link], needs: Sequence[Need], saved: bool
) -> float:
    """Of `conv_chain_backward`; `saved`: whether the last link has saved what it needs."""
    priced = _Priced(like, shape, links)
    tensors, wanted = priced.parameters(), wanted_of(needs, priced.made)
    tensors[0]["input"] = priced.at(shape)
    tensors[-1]["z"] = priced.at(priced.made[-1].shape)
    bits = priced.saved() if saved else None
    if bits is not None:
        tensors[-1]["saved"] = bits
    if wanted.dx:
        tensors[0]["x"] = priced.at(shape)
    for mine, dw, db in zip(tensors, wanted.dw, wanted.db, strict=True):
        mine.update({"dw": mine["w"]} if dw else {})
        mine.update({"db": mine["bias"]} if db else {})
    return current_context().price_chain_backward(priced.calls, tensors)
