"""Gradients of every layer and every option against finite differences, in float64 and without
PyTorch; values against their definitions; steps of SGD against its rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest

from oocdnn import Pool, nn

F64 = np.float64
STEP = 1e-5  # of the differences, which are central
DIRECTIONS = 3  # drawn at random: a gradient in a wrong place differs in each

ACTIVATIONS = {
    "identity": (nn.Identity, lambda x: x),
    "relu": (nn.ReLU, lambda x: max(x, 0.0)),
    "clipped": (lambda: nn.ClippedReLU(0.75), lambda x: min(max(x, 0.0), 0.75)),
    "elu": (nn.ELU, lambda x: x if x > 0 else math.exp(x) - 1),
    "elu0.5": (lambda: nn.ELU(0.5), lambda x: x if x > 0 else 0.5 * (math.exp(x) - 1)),
    "sigmoid": (nn.Sigmoid, lambda x: 1 / (1 + math.exp(-x))),
    "tanh": (nn.Tanh, math.tanh),
    "swish": (nn.Swish, lambda x: x / (1 + math.exp(-x))),
    "softplus": (lambda: nn.Softplus(2.0), lambda x: math.log(1 + math.exp(2 * x)) / 2),
    "swish2": (lambda: nn.Swish(2.0), lambda x: x / (1 + math.exp(-2 * x))),
}
SPECS = (None, "relu", ("clipped_relu", 0.75), ("elu", 0.5), "sigmoid", "tanh", ("swish", 2.0))
POOLS = (
    None,
    2,
    Pool("max", (3, 2), (2, 1), ((1, 0), (0, 1)), True),
    Pool("avg", 2),
    Pool("avg", 3, 2, 1, False, True),
    Pool("avg", 3, 2, 1, True, False),
)

Case = tuple[Callable[[], Any], tuple[int, ...]]  # a layer, and the shape of x


def layers() -> dict[str, Case]:
    """Every layer that has a backward, with its options."""
    found: dict[str, Case] = {name: (make, (2, 3, 4, 5)) for name, (make, _) in ACTIVATIONS.items()}
    for rank in (1, 2, 3):
        extents = (7, 6, 5)[:rank]
        maximum, average = getattr(nn, f"MaxPool{rank}d"), getattr(nn, f"AvgPool{rank}d")
        convolution, transposed = getattr(nn, f"Conv{rank}d"), getattr(nn, f"ConvTranspose{rank}d")
        fused = nn.ConvBiasActPool
        made: dict[str, Callable[[], Any]] = {
            "max": lambda p=maximum: p(2),
            "max overlapping": lambda p=maximum: p(3, 2, 1),
            "max ceil": lambda p=maximum: p(2, 2, 0, True),
            "avg": lambda p=average: p(2),
            "avg overlapping": lambda p=average: p(3, 2, 1),
            "avg ceil": lambda p=average: p(3, 2, 1, True),
            "avg inside": lambda p=average: p(3, 2, 1, False, False),
            "avg inside ceil": lambda p=average: p(3, 2, 1, True, False),
            "conv": lambda c=convolution: c(4, 6, 3, dtype=F64, seed=1),
            "conv moved": lambda c=convolution: c(4, 6, 3, 2, 1, 2, 2, False, dtype=F64, seed=2),
            "conv same": lambda c=convolution: c(4, 6, 2, padding="same", dtype=F64, seed=3),
            "transposed": lambda c=transposed: c(4, 6, 3, dtype=F64, seed=4),
            "transposed moved": lambda c=transposed: c(
                4, 6, 3, 2, 1, 1, 2, False, 2, dtype=F64, seed=5
            ),
            "fused": lambda c=fused, r=rank: c(
                4, 6, 3, padding=1, activation="tanh", pool=2, rank=r, dtype=F64, seed=6
            ),
        }
        found |= {f"{name} {rank}d": (make, (2, 4, *extents)) for name, make in made.items()}
    for i, spec in enumerate(SPECS):
        for j, pool in enumerate(POOLS):
            found[f"fused {spec} pool {j}"] = (
                lambda spec=spec, pool=pool: nn.ConvBiasActPool(
                    3,
                    4,
                    3,
                    padding=1,
                    bias=pool != 2,
                    activation=spec,
                    pool=pool,
                    dtype=F64,
                    seed=7,
                ),
                (2, 3, 6, 7),
            )
        activation = list(ACTIVATIONS)[i]
        make = ACTIVATIONS[activation][0]
        found[f"residual {activation}"] = (
            lambda make=make: nn.Residual(
                nn.Conv2d(3, 3, 3, padding=1, dtype=F64, seed=8), activation=make()
            ),
            (2, 3, 5, 4),
        )
        found[f"shortcut {activation}"] = (
            lambda make=make: nn.Residual(
                nn.Conv2d(3, 4, 3, 2, 1, dtype=F64, seed=9),
                nn.Tanh(),
                nn.Conv2d(4, 4, 1, dtype=F64, seed=10),
                activation=make(),
                shortcut=nn.Conv2d(3, 4, 1, 2, dtype=F64, seed=11),
            ),
            (2, 3, 5, 4),
        )
    found["linear"] = (lambda: nn.Linear(5, 4, dtype=F64, seed=12), (3, 5))
    found["linear without bias"] = (lambda: nn.Linear(5, 4, False, dtype=F64, seed=13), (3, 5))
    found["flatten"] = (nn.Flatten, (2, 3, 4))
    for recompute in (False, True, "auto", (True, False, False, True, False, False)):
        found[f"chain {recompute}"] = (lambda recompute=recompute: chain(recompute), (2, 3, 8, 8))
    return found


def chain(recompute: Any) -> nn.Chain:
    return nn.Chain(
        nn.Conv2d(3, 4, 3, padding=1, dtype=F64, seed=14),
        nn.Sigmoid(),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 5, 3, dtype=F64, seed=15),
        nn.ELU(),
        nn.Residual(nn.Conv2d(5, 5, 1, dtype=F64, seed=16)),
        recompute=recompute,
    )


LAYERS = layers()
# Without a backward, or no layers.
OTHERS = {"CrossEntropyLoss", "Layer", "Parameter", "SGD", "Upsample", "load", "save"}


def filled(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers that are all different by much more than the step, in an order drawn by lot."""
    count = math.prod(shape)
    values = (np.arange(count) - count / 2 + 0.25) * (3.0 / count)
    return np.random.default_rng(seed).permutation(values).reshape(shape)


def slope(f: Callable[[], float], array: np.ndarray, direction: np.ndarray) -> float:
    """The change of f as `array` does along the direction; leaves the array as it was."""
    kept, ends = array.copy(), []
    for sign in (1, -1):
        array[...] = kept + sign * STEP * direction
        ends.append(f())
    array[...] = kept
    return (ends[0] - ends[1]) / (2 * STEP)


def assert_is_the_gradient(
    gradient: np.ndarray, f: Callable[[], float], array: np.ndarray, what: str
) -> None:
    assert gradient.shape == array.shape, what
    rng = np.random.default_rng(5)
    for _ in range(DIRECTIONS):
        direction = rng.standard_normal(array.shape)
        size = float(np.linalg.norm(gradient)) * float(np.linalg.norm(direction)) + 1e-3
        found = float((gradient * direction).sum())
        assert found == pytest.approx(slope(f, array, direction), abs=1e-7 * size), what


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_the_values(name: str) -> None:
    make, shape = LAYERS[name]
    layer, x = make(), filled(shape, 1)
    y = layer(x)
    assert y.dtype == F64
    dy = filled(y.shape, 2)
    dx = layer.backward(dy)

    def f() -> float:
        return float((layer(x) * dy).sum())

    assert_is_the_gradient(dx, f, x, "x")
    found = dict(layer.named_parameters())
    for label, parameter in found.items():
        assert_is_the_gradient(parameter.grad, f, parameter.data, label)
    once = {label: parameter.grad.copy() for label, parameter in found.items()}
    layer(x)
    assert layer.backward(dy, needs_dx=False) is None or isinstance(layer, nn.Chain)
    for label, parameter in found.items():  # added to what was there
        np.testing.assert_allclose(parameter.grad, 2 * once[label], rtol=1e-12, atol=1e-12)


def test_every_layer_with_a_backward_is_among_them() -> None:
    tried: set[str] = set()

    def count(layer: nn.Layer) -> None:
        tried.add(type(layer).__name__)
        for _, child in layer.children():
            count(child)

    for make, _ in LAYERS.values():
        count(make())
    without = {name for name in nn.__all__ if "Norm" in name}
    assert tried == set(nn.__all__) - OTHERS - without


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_of_activations(name: str) -> None:
    make, definition = ACTIVATIONS[name]
    x = np.concatenate([filled((2, 3, 11), 3), np.zeros((2, 3, 1))], axis=2)
    expected = np.vectorize(definition)(x)
    np.testing.assert_allclose(make()(x), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "inside"])
@pytest.mark.parametrize("ceil", [False, True], ids=["floor", "ceil"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_averages_and_their_gradients_by_the_definition(
    rank: int, ceil: bool, counted: bool
) -> None:
    window, stride, padding = (3, 2, 4)[:rank], (2, 1, 3)[:rank], ((1, 1), (0, 1), (2, 1))[:rank]
    layer = getattr(nn, f"AvgPool{rank}d")(window, stride, padding, ceil, counted)
    x = filled((2, 2, 4, 3, 5)[: rank + 2], 4)
    by = oracle.Pool("avg" if counted else "avg_inside", window, stride, padding, ceil)
    y = layer(x)
    np.testing.assert_allclose(y, oracle.pool(x, by)[0], rtol=1e-14)
    dy = filled(y.shape, 5)
    dx, expected = layer.backward(dy), np.zeros_like(x)
    for place in np.ndindex(*x.shape[2:]):  # what one element gives to each window
        one = np.zeros_like(x)
        one[(..., *place)] = 1.0
        expected[(..., *place)] = (oracle.pool(one, by)[0] * dy).sum(tuple(range(2, rank + 2)))
    np.testing.assert_allclose(dx, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 3, 2)])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_cross_entropy(reduction: str, shape: tuple[int, ...]) -> None:
    loss, x = nn.CrossEntropyLoss(reduction), filled(shape, 6)
    targets = np.random.default_rng(7).integers(0, shape[1], (shape[0], *shape[2:]))
    value, dx = loss(x, targets), loss.backward()
    powers = np.exp(x)
    true = np.take_along_axis(powers, targets[:, None], 1)[:, 0]
    each = -np.log(true / powers.sum(1))
    assert value == pytest.approx(each.mean() if reduction == "mean" else each.sum(), rel=1e-13)
    assert_is_the_gradient(dx, lambda: float(loss(x, targets)), x, "x")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.5, "dampening": 0.25},
        {"momentum": 0.5, "dampening": 0.25, "weight_decay": 0.1},
        {"momentum": 0.5, "nesterov": True},
        {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
    ],
    ids=str,
)
def test_steps_are_those_of_the_rule(options: dict[str, Any]) -> None:
    momentum, dampening = options.get("momentum", 0.0), options.get("dampening", 0.0)
    parameter, still = nn.Parameter(np.array([1.0, -2.0])), nn.Parameter(np.ones(2))
    optimizer = nn.SGD([still, parameter], lr=0.5, **options)
    expected, velocity = [1.0, -2.0], [None, None]
    for step, gradients in enumerate(([1.0, 3.0], [-2.0, 0.5], [0.25, 4.0])):
        optimizer.lr = lr = (0.5, 0.25, 1.0)[step]
        parameter.grad = np.array(gradients)
        optimizer.step()
        for i in range(2):
            g = gradients[i] + options.get("weight_decay", 0.0) * expected[i]
            v = velocity[i]
            velocity[i] = v = g if v is None else momentum * v + (1 - dampening) * g
            if momentum:
                g = g + momentum * v if options.get("nesterov") else v
            expected[i] -= lr * g
        np.testing.assert_allclose(parameter.data, expected, rtol=1e-14)
    np.testing.assert_array_equal(still.data, 1.0)  # has no gradient
    optimizer.zero_grad()
    assert parameter.grad is None
