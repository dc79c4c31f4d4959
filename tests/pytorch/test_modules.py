"""Modules that take the place of torch's, and models whose convolutions are taken."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from pytorch.cases import Case
from pytorch.nets import UNet, train
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils._python_dispatch import TorchDispatchMode

import oocdnn.torch

pytestmark = pytest.mark.usefixtures("ctx")
CONVOLUTIONS = [f"Conv{rank}d" for rank in (1, 2, 3)]
NAMES = [*CONVOLUTIONS, *(f"ConvTranspose{rank}d" for rank in (1, 2, 3))]


def whole_numbers(module: nn.Module) -> None:
    for parameter in module.parameters():
        values = torch.arange(parameter.numel()) % 5 - 2
        parameter.data = values.to(parameter).reshape(parameter.shape)


def sample(rank: int) -> torch.Tensor:
    return Case(rank, False, (), (), None, {}).filled((2, 4, *(9,) * rank), 0)


class Counter(TorchDispatchMode):
    """Counts the operators of ours that are called within."""

    ours = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.ours += function.namespace == "oocdnn"
        return function(*args, **(kwargs or {}))


def taken_convolutions(model: nn.Module, x: torch.Tensor) -> int:
    """How many convolutions of a forward pass are ours."""
    with Counter() as counter:
        model(x)
    return counter.ours


@pytest.mark.parametrize("name", NAMES)
def test_same_state_dict_and_same_results(name):
    arguments = (4, 6, 3)
    keywords = {"stride": 2, "padding": 1, "groups": 2}
    torchs = getattr(nn, name)(*arguments, **keywords)
    ours = getattr(oocdnn.torch, name)(*arguments, **keywords)
    whole_numbers(torchs)
    assert isinstance(ours, getattr(nn, name))
    assert ours.load_state_dict(torchs.state_dict()) == torchs.load_state_dict(ours.state_dict())
    assert repr(ours) == repr(torchs)
    x = sample(torchs.weight.ndim - 2)
    assert torch.equal(ours(x), torchs(x))
    assert torch.equal(ours(x[0]), torchs(x[0]))
    assert taken_convolutions(ours, x) == 1


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("padding", [2, "same"])
def test_padding_modes(name, mode, padding):
    keywords = {"padding": padding, "padding_mode": mode}
    torchs, ours = (getattr(at, name)(4, 4, 3, **keywords) for at in (nn, oocdnn.torch))
    whole_numbers(torchs)
    whole_numbers(ours)
    x = sample(torchs.weight.ndim - 2)
    assert torch.equal(ours(x), torchs(x))


@pytest.mark.parametrize("size", [(18, 18), (19, 20), [2, 5, 19, 19]])
def test_output_size(size):
    torchs, ours = (at.ConvTranspose2d(4, 5, 2, stride=3, padding=4) for at in (nn, oocdnn.torch))
    whole_numbers(torchs)
    whole_numbers(ours)
    x = sample(2)
    assert torch.equal(ours(x, output_size=size), torchs(x, output_size=size))
    with pytest.raises(ValueError, match="requested an output size"):
        ours(x, output_size=(50, 50))


class Scaled(nn.Conv2d):
    """Computes in a way of its own."""

    def forward(self, x):
        return 2 * super().forward(x)


class Named(nn.Conv2d):
    """Computes as torch's does."""


def mixture() -> nn.Sequential:
    model = nn.Sequential(
        nn.Conv2d(4, 4, 3),
        nn.Sequential(Scaled(4, 4, 3), Named(4, 4, 1)),
        parametrizations.weight_norm(nn.Conv2d(4, 4, 1)),
        nn.ConvTranspose2d(4, 4, 2),
        oocdnn.torch.Conv2d(4, 4, 1),
        nn.Linear(5, 3),
    )
    whole_numbers(model)
    return model.double()


def test_take_and_give_back():
    model, x = mixture(), sample(2)[..., :8].double()
    before, parts = model(x), list(model.modules())
    classes, parameters = [type(one) for one in parts], list(model.parameters())
    assert taken_convolutions(model, x) == 1
    names = ["0", "1.1", "2", "3"]
    assert oocdnn.torch.take(model) == names
    assert oocdnn.torch.take(model) == []
    assert taken_convolutions(model, x) == 5
    torch.testing.assert_close(model(x), before)
    assert [type(one) for one in model.modules()] == classes
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert all(a is b for a, b in zip(model.modules(), parts, strict=True))
    assert oocdnn.torch.give_back(model) == names
    assert oocdnn.torch.give_back(model) == []
    assert taken_convolutions(model, x) == 1
    assert torch.equal(model(x), before)


def test_a_predicate_says_which():
    model, x = mixture(), sample(2)[..., :8].double()
    assert oocdnn.torch.take(model, lambda name, _: name.startswith("1")) == ["1.1"]
    found = oocdnn.torch.take(model, where=lambda _, module: module.kernel_size[0] > 1)
    assert found == ["0", "3"]
    assert taken_convolutions(model, x) == 4
    assert oocdnn.torch.take(nn.Conv1d(1, 1, 1)) == [""]


def test_parametrizations_come_and_go():
    layer, x = parametrizations.weight_norm(nn.Conv2d(4, 4, 3)), sample(2)
    oocdnn.torch.take(layer)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Conv2d
    assert taken_convolutions(layer, x) == 1
    parametrizations.weight_norm(layer)
    assert taken_convolutions(layer, x) == 1
    assert oocdnn.torch.give_back(layer) == [""]
    assert taken_convolutions(layer, x) == 0


def pickled(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, pickled, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_of_taken_modules_are_taken(duplicate):
    model, x = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ConvTranspose2d(4, 4, 2)), sample(2)
    oocdnn.torch.take(model)
    twin = duplicate(model)
    assert torch.equal(twin(x), model(x))
    assert taken_convolutions(twin, x) == 2
    with torch.no_grad():
        model[0].weight.zero_()
        model[1].weight.zero_()
    assert not torch.equal(twin(x), model(x))
    assert oocdnn.torch.give_back(twin) == ["0", "1"]
    assert taken_convolutions(twin, x) == 0
    assert taken_convolutions(model, x) == 2


def test_hooks_still_run():
    layer, seen = nn.Conv2d(4, 4, 3), []
    layer.register_forward_hook(lambda *_: seen.append("forward"))
    layer.register_full_backward_hook(lambda *_: seen.append("backward"))
    oocdnn.torch.take(layer)
    layer(sample(2).requires_grad_()).sum().backward()
    assert seen == ["forward", "backward"]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-11)], ids=str
)
def test_a_unet_trains_to_the_losses_of_plain_torch(ctx, dtype, tolerance):
    torch.manual_seed(0)
    plain = UNet().to(dtype)
    state = copy.deepcopy(plain.state_dict())
    expected = train(plain, 20)
    model = UNet().to(dtype)
    assert len(oocdnn.torch.take(model)) == 15
    model.load_state_dict(state)
    losses = train(model, 20)
    assert losses == pytest.approx(expected, rel=tolerance)
    assert losses[-1] < 0.8 * losses[0]
    largest = 8 * 24**3 * dtype.itemsize  # what the last block reads
    assert ctx.stats.budget_bytes < largest
