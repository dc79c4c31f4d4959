"""One round of random calls of the Python interface, each drawn with its arguments."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fuzz import odd
from fuzz.right import ACTIVATIONS, PLANS, PROBLEMS, Sizes, parameters_of

import oocdnn
from oocdnn import nn, workspace

CALLS_OF_ROUND = 60

Call = Callable[[], Any]


class Fault(Exception):
    """A call that did what none may do."""


class Round:
    """The calls of one round, and what they keep for later ones."""

    def __init__(self, seed: str) -> None:
        self.r = random.Random(seed)
        self.contexts: list[Any] = []
        self.sums: list[Any] = [oocdnn.Sums()]
        self.saved: list[Any] = []
        self.layers: list[tuple[Any, tuple[int, ...], str]] = []
        self.interrupts = False

    # Arguments.

    def _spoil(self, function: Any, keywords: dict[str, Any]) -> dict[str, Any]:
        """With one or two arguments of the function exchanged for odd ones, a third of the time."""
        if self.r.random() < 0.65:
            return keywords
        spoiled, names = dict(keywords), parameters_of(function)
        for _ in range(self.r.randint(1, 2) if names else 0):
            spoiled[self.r.choice(names)] = odd.value(self.r)
        return spoiled

    def _array(self, shape: tuple[int, ...], dtype: str) -> Any:
        return odd.array(self.r, shape, dtype, odd=self.r.random() < 0.05)

    def _progress(self) -> Any:
        def interrupt(done: int, tiles: int) -> None:
            self.interrupts = True
            raise odd.Broken("progress")

        def ask(done: int, tiles: int) -> None:
            assert 0 <= done <= tiles
            assert oocdnn.current_context().stats.tiles >= 0

        return self.r.choice((interrupt, ask))

    def _some(self, sizes: Sizes, out: tuple[int, ...], channels: int) -> dict[str, Any]:
        """Some of the keywords that calls share."""
        r, dtype = self.r, sizes.dtype
        choices: dict[str, Callable[[], Any]] = {
            "mode": lambda: "convolution",
            "alpha": lambda: r.choice((2, -1.0, 0)),
            "math": lambda: "tf32",
            "workspace": lambda: r.choice((0, 4096)),
            "stream": lambda: None,
            "out": lambda: self._array(out, dtype),
            "progress": self._progress,
        }
        finishes: dict[str, Callable[[], Any]] = {
            "b": lambda: self._array((channels,), dtype),
            "activation": lambda: r.choice(ACTIVATIONS),
            "scale": lambda: self._array((channels,), dtype),
            "residual": lambda: self._array(out, dtype),
            "residual_alpha": lambda: 0.5,
        }
        choices |= finishes
        names = r.sample(list(choices), r.choice((0, 0, 1, 2, 3)))
        return {name: choices[name]() for name in names}

    # Calls.

    def convolve(self) -> Call:
        sizes = Sizes(self.r)
        keywords = self._some(sizes, sizes.y, sizes.k) | sizes.moves()
        keywords |= {"x": self._array(sizes.x, sizes.dtype), "w": self._array(sizes.w, sizes.dtype)}
        if self.r.random() < 0.1:
            self.sums.append(oocdnn.Sums())
            keywords["sums"] = self.sums[-1]
        if self.r.random() < 0.05:
            keywords["prologue"] = oocdnn.Prologue(
                self._array((*sizes.x[:2], 2), "float32"), "relu"
            )
        function = getattr(oocdnn, f"conv{sizes.rank}d")
        spoiled = self._spoil(function, keywords)
        return lambda: function(**spoiled)

    def transpose(self) -> Call:
        sizes = Sizes(self.r)
        keywords = {"x": self._array(sizes.y, sizes.dtype), "w": self._array(sizes.w, sizes.dtype)}
        keywords |= sizes.moves()
        if self.r.random() < 0.2:
            keywords["output_padding"] = sizes.stride - 1
        function = getattr(oocdnn, f"conv_transpose{sizes.rank}d")
        spoiled = self._spoil(function, keywords)
        return lambda: function(**spoiled)

    def gradient(self) -> Call:
        sizes, r = Sizes(self.r), self.r
        x, w, y = (self._array(s, sizes.dtype) for s in (sizes.x, sizes.w, sizes.y))
        which = r.randint(0, 2)
        if which == 0:
            keywords = {"dy": y, "w": w, "x_shape": sizes.x, **sizes.moves()}
            function = oocdnn.conv_backward_data
        elif which == 1:
            keywords = {"x": x, "dy": y, "w_shape": sizes.w, **sizes.moves()}
            function = oocdnn.conv_backward_filter
        else:
            keywords, function = {"dy": y}, oocdnn.conv_backward_bias
        spoiled = self._spoil(function, keywords)
        return lambda: function(**spoiled)

    def _pool(self) -> Any:
        r = self.r
        return r.choice((
            None, 1, 2, oocdnn.Pool("max", 2, 1, 1), oocdnn.Pool("avg", 1),
            oocdnn.Pool("avg", 2, 1, 1, True, False),
            oocdnn.Pool(**self._spoil(oocdnn.Pool, {"mode": "max", "window": 2})),
        ))  # fmt: skip

    def fused(self) -> Call:
        sizes = Sizes(self.r)
        keywords = {"x": self._array(sizes.x, sizes.dtype), "w": self._array(sizes.w, sizes.dtype)}
        keywords |= sizes.moves() | {"pool": self._pool(), "activation": self.r.choice(ACTIVATIONS)}
        keywords["save_for_backward"] = saves = self.r.random() < 0.5
        spoiled = self._spoil(oocdnn.conv_bias_act_pool, keywords)

        def call() -> None:
            made = oocdnn.conv_bias_act_pool(**spoiled)
            if saves and isinstance(made, tuple):
                self.saved.append((*made, spoiled["x"], spoiled["w"]))

        return call

    def fused_backward(self) -> Call:
        if not self.saved:
            return self.fused()
        z, saved, x, w = self.r.choice(self.saved)
        keywords = {"dz": np.ones_like(z), "saved": saved, "x": x, "w": w}
        if self.r.random() < 0.3:
            keywords["needs"] = self.r.choice((("dx",), ("dw", "db"), ("db",), (), "dx", ("dy",)))
        spoiled = self._spoil(oocdnn.conv_bias_act_pool_backward, keywords)
        return lambda: oocdnn.conv_bias_act_pool_backward(**spoiled)

    def _links(self) -> tuple[Any, list[Any], tuple[int, ...]]:
        r, n, c = self.r, self.r.randint(1, 3), self.r.randint(1, 2)
        x, links = self._array((n, c, 5, 5), "float32"), []
        channels = c
        for _ in range(r.randint(1, 3)):
            k = r.randint(1, 2)
            fields = {"w": self._array((k, channels, 3, 3), "float32"), "padding": 1}
            if r.random() < 0.3:
                fields["b"] = self._array((k,), "float32")
            if r.random() < 0.3:
                fields["activation"] = r.choice(ACTIVATIONS)
            if r.random() < 0.3:
                fields = self._spoil(oocdnn.Link, fields)
            links.append(oocdnn.Link(**fields))
            channels = k
        return x, links, (n, channels, 5, 5)

    def chain(self) -> Call:
        x, links, shape = self._links()
        if self.r.random() < 0.5:
            spoiled = self._spoil(oocdnn.conv_chain, {"x": x, "links": links})
            return lambda: oocdnn.conv_chain(**spoiled)
        dz = self._array(shape, "float32")
        spoiled = self._spoil(oocdnn.conv_chain_backward, {"dz": dz, "x": x, "links": links})
        return lambda: oocdnn.conv_chain_backward(**spoiled)

    def upsample(self) -> Call:
        sizes = Sizes(self.r)
        keywords = {"x": self._array(sizes.x, sizes.dtype), "w": self._array(sizes.w, sizes.dtype)}
        keywords |= {"groups": sizes.groups, "padding": 1, "factor": self.r.randint(1, 3)}
        spoiled = self._spoil(oocdnn.conv_upsample, keywords)
        # A filter of so many taps is made, which takes gigabytes and minutes.
        if any(type(value) is int and 2**24 < value < 2**40 for value in spoiled.values()):
            return lambda: None
        return lambda: oocdnn.conv_upsample(**spoiled)

    def normalise(self) -> Call:
        r = self.r
        c = r.randint(1, 4)
        vector = self._array((c,), "float32")
        options: list[tuple[Any, dict[str, Any]]] = [
            (oocdnn.group_norm, {"sums": r.choice(self.sums), "groups": 1}),
            (oocdnn.instance_norm, {"sums": r.choice(self.sums)}),
            (oocdnn.batch_norm, {"mean": vector, "variance": np.ones(c, "f4"), "samples": 2}),
            (oocdnn.batch_statistics, {"sums": r.choice(self.sums)}),
        ]
        function, keywords = r.choice(options)
        spoiled = self._spoil(function, keywords)
        return lambda: function(**spoiled)

    def memory(self) -> Call:
        r = self.r
        if r.random() < 0.5:
            spoiled = self._spoil(oocdnn.empty, {"shape": (2, 3)})
            return lambda: oocdnn.empty(**spoiled)
        given = odd.array(r, (2, 3), odd=r.random() < 0.4)
        if r.random() < 0.2:
            given = odd.value(r)

        def call() -> None:
            with oocdnn.pin(given):
                pass

        return call

    def strings(self) -> Call:
        r = self.r
        context = r.choice(self.contexts) if self.contexts else oocdnn.current_context()
        problem: Any = r.choice(PROBLEMS)
        if r.random() < 0.3:
            at = r.randint(0, len(problem))
            problem = (
                problem[:at] + r.choice(("x", "-1", "\0", "é", "9" * 40, "")) + problem[at + 2 :]
            )
        plan = r.choice(PLANS)
        options: list[tuple[Any, dict[str, Any]]] = [
            (context.plan, {"problem": problem}),
            (context.price, {"problem": problem, "plan": plan}),
            (context.use_plan, {"problem": problem, "plan": plan}),
            (context.candidates, {"problem": problem, "best": 2, "random": 1, "seed": 3}),
            (context.refine, {"problem": problem, "compute_seconds": [1e-3]}),
            (oocdnn.plan_for_profile, {"problem": problem, "profile": "cpu", "budget": "1MiB"}),
            (workspace.micro_batch_sizes, {"batch": r.randint(1, 20), "policy": "all"}),
        ]
        function, keywords = r.choice(options)
        spoiled = self._spoil(function, keywords)
        return lambda: function(**spoiled)

    def division(self) -> Call:
        r = self.r

        def micro() -> Any:
            fields = {
                "samples": r.randint(1, 6),
                "seconds": r.random(),
                "workspace_bytes": r.randint(0, 9),
            }
            return workspace.MicroBatch(**self._spoil(workspace.MicroBatch, fields))

        choices = [micro() for _ in range(r.randint(0, 4))]
        batch = r.randint(1, 12)
        options: list[tuple[Any, dict[str, Any]]] = [
            (workspace.pareto, {"choices": choices, "batch": batch}),
            (workspace.even, {"choices": choices, "batch": batch}),
            (
                workspace.divide_batch,
                {"choices": choices, "batch": batch, "limit": r.randint(0, 9)},
            ),
            (workspace.equal_shares, {"layers": {"a": choices}, "total": 9}),
            (workspace.divide_workspace, {"layers": {"a": choices, 2: choices}, "total": 9}),
        ]
        function, keywords = r.choice(options)
        if r.random() < 0.7:
            return lambda: function(**keywords)
        spoiled = dict(keywords)
        spoiled[r.choice(list(keywords))] = odd.value(r)
        return lambda: function(**spoiled)

    def context(self) -> Call:
        r = self.r
        keywords: dict[str, Any] = {"device": "cpu", "budget": r.choice(("64KiB", "1MiB", 1 << 20))}
        keywords |= {"threads": 1, "engine": r.choice((None, "direct", "reference"))}
        spoiled = self._spoil(oocdnn.Context, keywords)

        def call() -> None:
            made = oocdnn.Context(**spoiled)
            if made.device != "cpu":
                raise Fault(f"a context on {made.device}")
            self.contexts.append(made)
            if len(self.contexts) > 3:
                self.contexts.pop(0).close()

        return call

    def state(self) -> Call:
        r = self.r
        context = r.choice(self.contexts) if self.contexts else oocdnn.current_context()
        options: list[Call] = [
            lambda: context.stats,
            lambda: context.check_reports(),
            lambda: context.take_trace(),
            lambda: context.release(),
            lambda: context.closed,
            lambda: context.host_memory(odd.value(r)),
            lambda: context.measure_parts(r.choice(PROBLEMS), odd.value(r)),
            lambda: context.calibrate(odd.value(r)) if r.random() < 0.01 else None,
            lambda: context.close() if r.random() < 0.1 else None,
            lambda: context.plan(odd.value(r)),
        ]
        return r.choice(options)

    def layer(self) -> Call:
        r = self.r
        rank = r.randint(1, 3)
        c, k = r.randint(1, 2), r.randint(1, 2)
        shape = (r.randint(1, 2), c, *(4,) * rank)
        dtype = r.choice(odd.TYPES)
        conv = {"in_channels": c, "out_channels": k, "kernel_size": 3, "padding": 1, "seed": 1}
        conv["dtype"] = dtype
        window, made = {"window": 2}, {"num_features": c, "dtype": dtype}
        options: list[tuple[Any, dict[str, Any]]] = [
            (getattr(nn, f"Conv{rank}d"), conv),
            (getattr(nn, f"ConvTranspose{rank}d"), conv),
            (nn.ConvBiasActPool, conv | {"rank": rank, "activation": r.choice(ACTIVATIONS)}),
            (getattr(nn, f"MaxPool{rank}d"), window),
            (getattr(nn, f"AvgPool{rank}d"), window),
            (getattr(nn, f"BatchNorm{rank}d"), made),
            (getattr(nn, f"InstanceNorm{rank}d"), made),
            (nn.GroupNorm, {"num_groups": 1, "num_channels": c, "dtype": dtype}),
            (nn.Upsample, {"scale_factor": 2}),
            (nn.ELU, {"alpha": 1.0}),
            (nn.ClippedReLU, {"top": 6.0}),
            (nn.Swish, {"beta": 1.0}),
            (nn.ReLU, {}),
            (nn.Tanh, {}),
            (nn.Flatten, {}),
        ]
        kind, keywords = r.choice(options)
        spoiled = self._spoil(kind, keywords)

        def call() -> None:
            self.layers.append((kind(**spoiled), shape, dtype))
            if len(self.layers) > 12:
                self.layers.pop(0)

        return call

    def train(self) -> Call:
        r = self.r
        if not self.layers:
            return self.layer()
        layer, shape, dtype = r.choice(self.layers)
        net = (
            layer
            if r.random() < 0.6
            else nn.Chain(
                *(one for one, _, _ in r.sample(self.layers, r.randint(1, len(self.layers))))
            )
        )
        x = odd.value(r) if r.random() < 0.08 else self._array(shape, dtype)

        def step() -> None:
            y = net(x)
            dy = odd.value(r) if r.random() < 0.1 else np.ones_like(y)
            net.backward(dy)
            optimizer = nn.SGD(net.parameters(), lr=0.1)
            optimizer.step()
            optimizer.zero_grad()

        spoiled = self._spoil(nn.SGD, {"parameters": net.parameters(), "lr": 0.1})
        path = Path(odd.FOLDER.name) / "state.npz" if r.random() < 0.5 else odd.value(r)
        if isinstance(path, (str, bytes)):
            path = Path(odd.FOLDER.name) / str(path)[:20].replace("\0", "0")
        loss = {"x": self._array((2, 3), "float32"), "targets": np.array([0, 2])}
        wrong = self._spoil(nn.CrossEntropyLoss.forward, loss)
        wrong.pop("self", None)
        options: list[Call] = [
            step, step, step,
            lambda: nn.SGD(**spoiled),
            lambda: nn.CrossEntropyLoss()(**wrong),
            lambda: net.backward(odd.value(r)),
            lambda: nn.Chain(odd.value(r), layer),
            lambda: nn.Residual(odd.value(r)),
            lambda: nn.save(path, net.state_dict()),
            lambda: nn.save(Path(odd.FOLDER.name) / "state.npz", odd.value(r)),
            lambda: nn.load(path),
            lambda: net.load_state_dict(odd.value(r)),
            lambda: nn.CrossEntropyLoss(odd.value(r)),
            lambda: nn.Linear(**self._spoil(nn.Linear, {"in_features": 2, "out_features": 3})),
            lambda: nn.Parameter(odd.value(r)),
            lambda: oocdnn.concatenate(odd.value(r)),
        ]  # fmt: skip
        return r.choice(options)

    def calls(self) -> Iterator[tuple[str, Call]]:
        kinds = (
            [self.convolve] * 7 + [self.transpose] * 3 + [self.gradient] * 4 + [self.fused] * 3
            + [self.fused_backward] * 2 + [self.chain] * 2 + [self.upsample, self.normalise]
            + [self.memory, self.strings, self.division, self.division, self.context, self.state]
            + [self.layer, self.train, self.train]
        )  # fmt: skip
        self.contexts.append(oocdnn.Context("cpu", "1MiB", threads=1))
        for _ in range(CALLS_OF_ROUND):
            kind = self.r.choice(kinds)
            yield kind.__name__, kind()

    def close(self) -> None:
        for context in self.contexts:
            context.close()
