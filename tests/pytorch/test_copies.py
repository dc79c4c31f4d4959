"""Copies of taken modules compute with what is theirs: parameters, strides, and all else."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytorch.test_modules import sample, taken_convolutions, whole_numbers
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import oocdnn.torch

pytestmark = pytest.mark.usefixtures("ctx")
NAMES = [f"Conv{kind}{rank}d" for kind in ("", "Transpose") for rank in (1, 2, 3)]


class Named(nn.ConvTranspose2d):
    """Computes as torch's does."""


def made(name: str) -> nn.Module:
    module = Named(4, 4, 2, stride=2) if name == "Named" else getattr(nn, name)(4, 4, 2, stride=2)
    whole_numbers(module)
    return module


def shallow(module):
    """A shallow copy, with a dictionary of parameters of its own as torch's tools give it."""
    twin = copy.copy(module)
    twin._parameters = dict(module._parameters)
    return twin


def with_hooks(module):
    module.register_forward_hook(lambda *_: None)
    return shallow(module)


def pickled(module):
    return pickle.loads(pickle.dumps(module))


def pickled_plainly(module):
    """With the pickler that is written in Python, and the oldest protocol."""
    file = io.BytesIO()
    pickle._Pickler(file, 0).dump(module)
    return pickle._Unpickler(io.BytesIO(file.getvalue())).load()


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def replicated(module):
    return module._replicate_for_data_parallel()


def in_a_model(module):
    return copy.deepcopy(nn.Sequential(nn.Identity(), module))[1]


def averaged(module):
    return torch.optim.swa_utils.AveragedModel(module).module


WAYS = [
    shallow,
    with_hooks,
    copy.deepcopy,
    pickled,
    pickled_plainly,
    saved,
    replicated,
    in_a_model,
    averaged,
    lambda module: shallow(shallow(module)),
    lambda module: shallow(pickled(module)),
    lambda module: replicated(replicated(module)),
    lambda module: replicated(copy.deepcopy(module)),
]
IDS = [
    *(way.__name__ for way in WAYS[:9]),
    "twice shallow",
    "shallow of pickled",
    "twice replicated",
    "replicated copy",
]


def change(module) -> None:
    """Other parameters, and another stride."""
    for name, step in (("weight", 1), ("bias", 2)):
        value = getattr(module, name)
        other = (value.detach() + step) if value is not None else torch.full((4,), float(step))
        if name in module._parameters:
            other = nn.Parameter(other)
        setattr(module, name, other)
    module.stride = (1,) * len(module.kernel_size)


@pytest.mark.parametrize("way", WAYS, ids=IDS)
@pytest.mark.parametrize("name", [*NAMES, "Named"])
def test_a_copy_computes_with_its_own(name, way):
    module = made(name)
    plain, x = copy.deepcopy(module), sample(len(module.kernel_size))
    before = plain(x)
    assert oocdnn.torch.take(module) == [""]
    twin = way(module)
    if twin._parameters.get("weight") is None:  # a replica's are plain tensors
        for key, value in plain.named_parameters():
            setattr(twin, key, value.detach().clone())
    assert torch.equal(twin(x), before)
    change(twin)
    expected = copy.copy(plain)
    expected._parameters = dict(plain._parameters)
    change(expected)
    assert torch.equal(twin(x), expected(x))
    assert torch.equal(twin.forward(x), expected(x))
    assert torch.equal(module(x), before)
    assert (taken_convolutions(twin, x), taken_convolutions(module, x)) == (1, 1)
    assert type(twin) is type(plain)
    assert oocdnn.torch.give_back(twin) == [""]
    assert torch.equal(twin(x), expected(x))
    assert (taken_convolutions(twin, x), taken_convolutions(module, x)) == (0, 1)
    assert vars(twin).keys() - {"_is_replica", "weight", "bias"} == vars(plain).keys()


@pytest.mark.parametrize("name", NAMES)
def test_parameters_that_are_lent(name):
    module = made(name)
    plain, x = copy.deepcopy(module), sample(len(module.kernel_size))
    oocdnn.torch.take(module)
    others = {key: value.detach() + 1 for key, value in plain.named_parameters()}
    lent = (torch.func.functional_call(one, others, (x,)) for one in (module, plain))
    assert torch.equal(*lent)
    assert torch.equal(module(x), plain(x))
    for assign in (False, True):
        state = {key: value + 2 + assign for key, value in others.items()}
        for one in (module, plain):
            one.load_state_dict(state, assign=assign)
        assert torch.equal(module(x), plain(x))
    torch.utils.swap_tensors(module.weight, nn.Parameter(others["weight"].clone()))
    plain.load_state_dict({**plain.state_dict(), "weight": others["weight"]})
    assert torch.equal(module(x), plain(x))


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.orthogonal])
@pytest.mark.parametrize("name", NAMES)
def test_copies_of_normalized_weights(name, norm, early):
    """Taken before the weight is parametrized, and behind."""
    module = made(name).double()
    x = sample(len(module.kernel_size)).double()
    if early:
        oocdnn.torch.take(module)
    norm(module)
    if not early:
        assert oocdnn.torch.take(module) == [""]
    plain = copy.deepcopy(module)
    oocdnn.torch.give_back(plain)
    twin, other = copy.deepcopy(module), copy.deepcopy(plain)
    with torch.no_grad():
        for one in (twin, other):
            for parameter in one.parameters():
                parameter.mul_(2)
    expected = other(x)
    torch.testing.assert_close(twin(x), expected)
    torch.testing.assert_close(module(x), plain(x))
    assert taken_convolutions(twin, x) == taken_convolutions(module, x) == 1
    if parametrize.is_parametrized(twin):
        parametrize.remove_parametrizations(twin, "weight")
        torch.testing.assert_close(twin(x), expected)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", NAMES)
def test_weights_that_hooks_make(name):
    module, x = made(name), sample(int(name[-2]))
    plain = nn.utils.weight_norm(copy.deepcopy(module))
    oocdnn.torch.take(module)
    nn.utils.weight_norm(module)
    with torch.no_grad():
        for one in (module, plain):
            one.weight_g.mul_(2)
    torch.testing.assert_close(module(x), plain(x))
    replica = replicated(module)
    replica.weight_g, replica.weight_v, replica.bias = (
        one.detach().clone() for one in (plain.weight_g * 2, plain.weight_v, plain.bias * 2)
    )
    torch.testing.assert_close(replica(x), 2 * plain(x))


def test_replicas_of_a_model(monkeypatch):
    """torch.nn.parallel.replicate, with devices that are all the host."""
    model = nn.Sequential(made("Conv2d"), nn.Sequential(made("ConvTranspose2d"))).double()
    oocdnn.torch.take(model)
    x, expected = sample(2).double(), copy.deepcopy(model)
    oocdnn.torch.give_back(expected)
    scaled = [[p * n for p in model.parameters()] for n in (2, 3)]
    inside = sys.modules["torch.nn.parallel.replicate"]
    monkeypatch.setattr(inside, "_broadcast_coalesced_reshape", lambda *_, **__: scaled)
    monkeypatch.setattr(inside, "_get_device_index", lambda *_: 0)
    for n, replica in zip((2, 3), nn.parallel.replicate(model, [0, 1], detach=True), strict=True):
        wide = copy.deepcopy(expected)
        with torch.no_grad():
            for parameter in wide.parameters():
                parameter.mul_(n)
        assert torch.equal(replica(x), wide(x))
        assert taken_convolutions(replica, x) == 2


LOAD = """
import copy, pickle, sys, torch
module = pickle.load(sys.stdin.buffer)
twin = copy.copy(module)
twin._parameters = {name: torch.nn.Parameter(value.detach() + 1)
                    for name, value in module._parameters.items()}
sys.stdout.buffer.write(pickle.dumps([oocdnn_of(one) for one in (module, twin)]))
"""


def test_copies_in_another_process(tmp_path):
    """Which has imported nothing of ours but what the pickle names."""
    program = LOAD.replace("oocdnn_of(one)", "one(torch.ones(1, 4, 3, 3)).detach().tolist()")
    module = made("ConvTranspose2d")
    oocdnn.torch.take(module)
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(module),
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    twin = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    x = torch.ones(1, 4, 3, 3)
    assert pickle.loads(done.stdout) == [one(x).tolist() for one in (module, twin)]


def test_classes_with_copies_of_their_own():
    class Own(nn.Conv2d):
        def __reduce__(self):
            return made, ("Conv2d",)

    module = Own(4, 4, 2, stride=2)
    assert oocdnn.torch.take(module) == [""]
    assert type(copy.copy(module)) is nn.Conv2d
    assert oocdnn.torch.give_back(copy.copy(module)) == []
