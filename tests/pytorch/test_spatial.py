"""Tensors that are split over processes: results and gradients are those of whole tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.distributed.is_available():
    pytest.skip("PyTorch has no torch.distributed", allow_module_level=True)

from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch import spatial_cases as cases
from pytorch.processes import Processes

from oocdnn.torch import spatial
from oocdnn.torch.spatial.edges import edges_of
from oocdnn.torch.spatial.layout import Layout
from oocdnn.torch.spatial.windows import Window

COUNT = 4


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    processes = Processes(COUNT, tmp_path_factory.mktemp("group"))
    yield processes
    processes.close()


@pytest.mark.parametrize("lengths", [None, (1, 6, 2, 3), (0, 12, 0, 0), (5, 0, 6, 1)])
@pytest.mark.parametrize("name", cases.FUNCTIONS)
def test_functions(group, name, lengths):
    group.run(cases.function, name, (2, 4, 12, 6), lengths, 2)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", cases.NORMS)
def test_norms(group, name, training):
    group.run(cases.norm, name, (3, 4, 7, 5), (2, 1, 0, 4), training)
    group.run(cases.norm, name, (3, 4, 7, 5), (7, 0, 0, 0), training)


@st.composite
def convolutions(draw):
    """A convolution of any kind, the axis of its split, and the rows of each process."""
    rank = draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    groups = draw(st.sampled_from([1, 1, 2]))
    channels = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    at = draw(st.integers(0, rank - 1))
    taps, options, extents = [], {"groups": groups}, []
    named = ("stride", "padding", "dilation", *(["output_padding"] if transposed else []))
    for name in named:
        options[name] = []
    for _ in range(rank):
        taps.append(draw(st.integers(1, 4)))
        stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
        options["stride"].append(stride)
        options["dilation"].append(dilation)
        reach = dilation * (taps[-1] - 1) + 1
        options["padding"].append(draw(st.integers(0, (reach - 1) // 2 if transposed else 3)))
        if transposed:
            options["output_padding"].append(draw(st.integers(0, max(stride, dilation) - 1)))
        extents.append(max(draw(st.integers(1, 5)), reach - 2 * options["padding"][-1]))
    lengths = None
    if draw(st.booleans()):
        lengths = [draw(st.integers(0, 6)) for _ in range(COUNT)]
        lengths[draw(st.integers(0, COUNT - 1))] += max(extents[at] - sum(lengths), 0)
        extents[at] = sum(lengths)
    else:
        extents[at] = max(draw(st.integers(1, 14)), extents[at])
    shape = [draw(st.integers(1, 2)), channels[0], *extents]
    filters = channels if transposed else channels[::-1]
    weight = [filters[0], filters[1] // groups, *taps]
    least_bytes = draw(st.sampled_from([0, 1 << 27]))
    return transposed, shape, weight, at + 2, lengths, options, draw(st.booleans()), least_bytes


@settings(max_examples=100, deadline=None)
@given(case=convolutions())
def test_convolutions(group, case):
    group.run(cases.convolution, *case)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", cases.NETWORKS)
def test_networks(group, name, channels_last):
    losses = group.run(cases.network, name, 2, None, channels_last)
    assert all(each == losses[0] for each in losses), "processes have unlike losses"


@pytest.mark.parametrize(("axis", "lengths"), [(3, None), (2, (0, 5, 12, 7)), (2, (1, 1, 1, 21))])
def test_a_network_that_is_split_in_other_ways(group, axis, lengths):
    group.run(cases.network, "unet3d", axis, lengths, False)


LARGE = (
    ({"padding": 1}, 3),
    ({"padding": 3}, 7),
    ({"padding": 2, "dilation": 2}, 3),
    ({"padding": 1, "stride": 2}, 3),
    ({"padding": 3, "stride": 2}, 7),
    ({"padding": 1, "stride": 3}, 4),
    ({"padding": "same"}, 4),
    ({"padding": 0}, 3),
)


@pytest.mark.parametrize(("options", "taps"), LARGE)
def test_convolutions_whose_ends_alone_need_other_rows(group, options, taps):
    for lengths in (None, (24, 24, 25, 23), (18, 30, 18, 30)):
        case = (False, (2, 3, 96, 5), (2, 3, taps, 2), 2, lengths, options)
        group.run(cases.convolution, *case, True, 0)


def test_ends_are_found():
    window = Window(3, 1, 1, 1, 1)
    rows = Layout("a group", -1, (24, 24, 24, 24))
    edges = edges_of(window, rows, rows)
    assert [edge.padding for edge in edges] == [1, 1, 1, 1]
    assert [edge.first.outputs for edge in edges] == [(0, 0), (24, 25), (48, 49), (72, 73)]
    assert [edge.last.inputs for edge in edges] == [(22, 25), (46, 49), (70, 73), (96, 96)]
    halved = rows.with_lengths((12, 12, 12, 12))
    assert edges_of(Window(3, 2, 1, 1, 1), rows, halved) is not None
    assert edges_of(window, rows.with_lengths((1, 1, 1, 93)), rows) is None


@pytest.mark.parametrize("name", cases.LOSSES)
def test_losses(group, name):
    group.run(cases.loss, name, None)
    group.run(cases.loss, name, (0, 11, 1, 0))


@pytest.mark.parametrize(
    "case",
    [
        cases.dtensors,
        cases.refusals,
        cases.attributes,
        cases.under_autocast,
        cases.hybrid,
        cases.replicas,
        cases.memory_orders,
        cases.equal_elements,
        cases.parameters_alone,
        cases.random_numbers,
        cases.other_operands,
    ],
)
def test_case(group, case):
    group.run(case)


@pytest.mark.parametrize("reentrant", [True, False])
def test_within_checkpoint(group, reentrant):
    group.run(cases.recomputed, reentrant)


def test_within_a_memory_limit(group):
    pytest.importorskip("highspy", reason="plans of networks are solved by HiGHS")
    group.run(cases.within_a_memory_limit)


def test_without_a_group():
    with pytest.raises(RuntimeError, match="torchrun"):
        spatial.scatter(torch.zeros(1, 1, 4, 4), 2)
