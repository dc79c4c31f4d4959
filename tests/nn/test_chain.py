"""Layers one after the other, steps, and what is kept in files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nn.comparing import FLOAT64, assert_same, tensors
from python.support import DTYPES, integers

import oocdnn
from oocdnn import nn


def small(dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return nn.Chain(
        nn.Conv2d(2, 3, 3, padding=1, dtype=dtype, seed=rng),
        nn.ReLU(),
        nn.Chain(nn.MaxPool2d(2), nn.Flatten()),
        nn.Linear(12, 4, dtype=dtype, seed=rng),
    )


def small_of_torch(torch):
    made = torch.nn
    inner = made.Sequential(made.MaxPool2d(2), made.Flatten())
    outer = made.Conv2d(2, 3, 3, padding=1), made.ReLU(), inner, made.Linear(12, 4)
    return made.Sequential(*outer).double()


def test_a_chain_is_pytorchs_with_the_same_names(torch):
    chain = small(FLOAT64)
    assert list(chain.state_dict()) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert_same(chain, small_of_torch(torch), torch, integers((3, 2, 4, 4), 5, FLOAT64))
    assert len(chain) == 4
    assert list(chain)[1] is chain[1]


def test_what_nobody_needs_is_not_computed(monkeypatch):
    calls = []
    real = oocdnn.gradients.conv_backward_data
    monkeypatch.setattr(
        oocdnn.gradients,
        "conv_backward_data",
        lambda *args, **keywords: calls.append(1) or real(*args, **keywords),
    )
    chain = nn.Chain(nn.ReLU(), nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 1))
    y = chain(integers((1, 2, 5, 5)))
    assert chain.backward(np.ones_like(y), needs_dx=False) is None
    assert len(calls) == 1
    assert all(parameter.grad is not None for parameter in chain.parameters())
    chain(integers((1, 2, 5, 5)))
    chain.zero_grad()
    assert chain.backward(np.ones_like(y)).shape == (1, 2, 5, 5)


def test_each_backward_has_a_forward():
    chain, x = small(), integers((3, 2, 4, 4))
    with pytest.raises(RuntimeError, match=r"Linear\.backward has nothing to go back to"):
        chain.backward(np.zeros((3, 4), np.float32))
    chain.eval()(x)
    with pytest.raises(RuntimeError, match="train"):
        chain.backward(np.zeros((3, 4), np.float32))
    chain.train()(x)
    chain.backward(np.zeros((3, 4), np.float32))
    with pytest.raises(RuntimeError):
        chain.backward(np.zeros((3, 4), np.float32))
    with pytest.raises(TypeError, match="layer 0 is of type int"):
        nn.Chain(3)
    with pytest.raises(oocdnn.InvalidProblem, match="Flatten"):
        nn.Linear(4, 2)(np.zeros((1, 2, 2), np.float32))


def test_a_call_that_fails_leaves_no_gradient():
    def fails(*, out, beta):
        out[...] = 7
        raise KeyboardInterrupt

    parameter = nn.Parameter(np.zeros(3))
    parameter.accumulate(lambda out, beta: np.copyto(out, 1.0))
    np.testing.assert_array_equal(parameter.grad, np.ones(3))
    with pytest.raises(KeyboardInterrupt):
        parameter.accumulate(fails)
    assert parameter.grad is None


RULES = st.sampled_from([
    {},
    {"weight_decay": 0.25},
    {"momentum": 0.5},
    {"momentum": 0.5, "dampening": 0.25},
    {"momentum": 0.75, "nesterov": True, "weight_decay": 0.5},
])  # fmt: skip


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rule=RULES, lr=st.sampled_from([0.5, 0.125]), pause=st.integers(0, 4))
def test_steps_are_pytorchs(torch, rule, lr, pause):
    """Also where an optimizer goes on with what another one has saved, and with a new step."""
    mine = [nn.Parameter(integers(shape, 1, FLOAT64)) for shape in ((3, 2), (4,))]
    theirs = [torch.nn.Parameter(torch.from_numpy(p.data.copy())) for p in mine]
    ours, reference = nn.SGD(mine, lr, **rule), torch.optim.SGD(theirs, lr, **rule)
    for i in range(6):
        for p, q in zip(mine, theirs, strict=True):
            gradient = integers(p.data.shape, 10 + i, FLOAT64)
            given_one = i != 2 or p is mine[0]
            p.grad = gradient if given_one else None
            q.grad = torch.from_numpy(gradient.copy()) if given_one else None
        ours.step()
        reference.step()
        if i == pause:
            state = ours.state_dict()
            ours = nn.SGD(mine, lr, **rule)
            ours.load_state_dict(state)
            ours.lr = reference.param_groups[0]["lr"] = lr / 2
        for p, q in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(p.data, q.detach().numpy(), rtol=1e-14)
    ours.zero_grad()
    assert mine[0].grad is None


@pytest.mark.parametrize("name", DTYPES)
def test_steps_of_every_type(name):
    kind = DTYPES[name]
    parameter = nn.Parameter(integers((5,), 1, kind))
    optimizer = nn.SGD([parameter], 0.5, momentum=0.5, weight_decay=0.5, nesterov=True)
    for _ in range(2):
        parameter.grad = integers((5,), 2, kind)
        optimizer.step()
    assert parameter.data.dtype == kind


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": -1.0},
        {"momentum": -0.5},
        {"nesterov": True},
        {"nesterov": True, "momentum": 0.5, "dampening": 0.25},
        {"weight_decay": float("nan")},
    ],
)
def test_what_a_step_refuses(wrong):
    with pytest.raises(oocdnn.InvalidProblem, match=r"negative|nesterov"):
        nn.SGD([], **{"lr": 0.1, **wrong})
    with pytest.raises(oocdnn.InvalidProblem, match=r"not known here: momentum_buffer\.0"):
        nn.SGD([], 0.1).load_state_dict({"momentum_buffer.0": np.zeros(3)})


@pytest.mark.parametrize("name", DTYPES)
def test_files_hold_what_there_was(tmp_path, name):
    chain = small(DTYPES[name])
    nn.save(tmp_path / "net.npz", chain.state_dict())
    assert [file.name for file in tmp_path.iterdir()] == ["net.npz"]
    again = small(DTYPES[name], seed=1)
    assert any((again.state_dict()[k] != v).any() for k, v in chain.state_dict().items())
    read = nn.load(tmp_path / "net.npz")
    again.load_state_dict(read)
    for key, value in chain.state_dict().items():
        assert read[key].dtype == value.dtype
        np.testing.assert_array_equal(again.state_dict()[key], value)


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    nn.save(tmp_path / "net.npz", {"a": np.ones(3)})

    def breaks(file, **arrays):
        file.write(b"half")
        raise OSError("no room")

    monkeypatch.setattr(np, "savez", breaks)
    with pytest.raises(OSError, match="no room"):
        nn.save(tmp_path / "net.npz", {"a": np.zeros(3)})
    np.testing.assert_array_equal(nn.load(tmp_path / "net.npz")["a"], np.ones(3))
    assert [file.name for file in tmp_path.iterdir()] == ["net.npz"]


def test_other_files_are_told_of(tmp_path):
    np.save(tmp_path / "one.npy", np.ones(3))
    (tmp_path / "text").write_text("text")
    (tmp_path / "empty").touch()
    (tmp_path / "cut").write_bytes(b"PK\x03\x04 and no more")
    for file in tmp_path.iterdir():
        with pytest.raises(oocdnn.InvalidProblem, match="was not written by save"):
            nn.load(file)
    with pytest.raises(FileNotFoundError):
        nn.load(tmp_path / "gone")


def test_states_that_do_not_fit_change_nothing(torch):
    chain = small()
    before = {name: value.copy() for name, value in chain.state_dict().items()}
    state = {name: np.zeros_like(value) for name, value in before.items()}
    for wrong, text in (
        ({**state, "3.weight": np.zeros((4, 13))}, r"3\.weight has shape \(4, 13\)"),
        ({**state, "4.weight": np.zeros(3)}, r"not known here: 4\.weight"),
        ({"0.weight": state["0.weight"]}, r"missing: 0\.bias, 3\.bias, 3\.weight"),
    ):
        with pytest.raises(oocdnn.InvalidProblem, match=text):
            chain.load_state_dict(wrong)
        for name, value in chain.state_dict().items():
            np.testing.assert_array_equal(value, before[name])
    chain.load_state_dict(tensors(torch, state))
    assert not any(value.any() for value in chain.state_dict().values())


def deep(rng, pools=(None, 2, None)):
    channels = zip((3, 4, 5), (4, 5, 2), pools, strict=True)
    return [
        nn.ConvBiasActPool(c, k, 3, padding=1, activation="relu", pool=pool, seed=rng)
        for c, k, pool in channels
    ]


def test_convolutions_that_do_not_train_run_depth_first(monkeypatch):
    calls = []
    real = nn.chain.conv_chain
    monkeypatch.setattr(
        nn.chain, "conv_chain", lambda x, links: calls.append(len(links)) or real(x, links)
    )
    rng = np.random.default_rng(0)
    layers = [*deep(rng), nn.Conv2d(2, 3, 3, seed=rng), nn.ReLU(), nn.Conv2d(3, 3, 1, seed=rng)]
    chain = nn.Chain(*layers)
    for parameter in chain.parameters():
        parameter.data[:] = integers(parameter.data.shape, largest=1)
    x = integers((2, 3, 12, 12))
    trained = chain(x)
    assert not calls
    np.testing.assert_array_equal(chain.eval()(x), trained)
    assert calls == [5]


def test_a_forward_of_somebodys_own_is_run():
    class Doubled(nn.Conv2d):
        def forward(self, x):
            return 2 * super().forward(x)

    class Fused(nn.ConvBiasActPool):
        def forward(self, x):
            return 2 * super().forward(x)

    class Counted(nn.Conv2d):
        asked = 0

        def link(self):
            Counted.asked += 1
            return super().link()

    x = integers((1, 2, 6, 6))
    for layer in (Doubled(2, 2, 3, seed=1), Fused(2, 2, 3, seed=1), nn.Conv2d(2, 2, 3, seed=1)):
        if type(layer) is nn.Conv2d:
            layer.forward = lambda x: 2 * nn.Conv2d(2, 2, 3, seed=1).forward(x)
        chain = nn.Chain(Counted(2, 2, 3, seed=0), layer).eval()
        wanted = 2 * nn.Conv2d(2, 2, 3, seed=1).forward(chain[0].forward(x))
        np.testing.assert_array_equal(chain(x), wanted)
    assert Counted.asked == 3
