"""Tensors that are split over GPUs, with NCCL: as tests/pytorch/test_spatial.py on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pytorch import spatial_cases as cases
from pytorch.processes import Processes

GPUS = min(torch.cuda.device_count(), 4)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS < 2, reason=f"needs two GPUs, has {GPUS}"),
]
CONVOLUTIONS = (
    (False, (2, 4, 17, 9), (6, 4, 3, 3), {"padding": 1}),
    (False, (2, 4, 17, 9), (6, 2, 5, 3), {"padding": 2, "stride": 2, "groups": 2}),
    (False, (1, 3, 21, 6, 7), (4, 3, 3, 3, 3), {"padding": "same", "dilation": 2}),
    (False, (2, 4, 16, 8), (4, 4, 2, 2), {"padding": "same"}),
    (False, (1, 8, 16, 8), (8, 1, 7, 7), {"padding": 3, "groups": 8}),
    (True, (2, 4, 9, 5), (4, 3, 2, 2), {"stride": 2}),
    (True, (2, 4, 9, 5), (4, 3, 4, 4), {"stride": 2, "padding": 1}),
    (True, (1, 4, 9, 5, 4), (4, 2, 3, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
)


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    processes = Processes(GPUS, tmp_path_factory.mktemp("group"), "nccl")
    yield processes
    processes.close()


@pytest.mark.parametrize("name", cases.FUNCTIONS)
def test_functions(group, name):
    group.run(cases.function, name, (2, 4, 12, 6), None, 2)
    group.run(cases.function, name, (2, 4, 12, 6), (2, 10, 0, 0)[:GPUS], 2)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", cases.NORMS)
def test_norms(group, name, training):
    group.run(cases.norm, name, (3, 4, 7, 5), (2, 5, 0, 0)[:GPUS], training)
    group.run(cases.norm, name, (1, 4, 256, 128), None, training)  # columns in pieces


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(group, case):
    transposed, shape, weight, options = case
    group.run(cases.convolution, transposed, shape, weight, 2, None, options)
    group.run(cases.convolution, transposed, shape, weight, 3, None, options)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", cases.NETWORKS)
def test_networks(group, name, channels_last):
    losses = group.run(cases.network, name, 2, None, channels_last)
    assert all(each == losses[0] for each in losses), "processes have unlike losses"


@pytest.mark.parametrize(
    "case",
    [
        cases.dtensors,
        cases.attributes,
        cases.under_autocast,
        cases.memory_orders,
        cases.equal_elements,
        cases.random_numbers,
        cases.replicas,
    ],
)
def test_case(group, case):
    group.run(case)


@pytest.mark.parametrize("name", cases.LOSSES)
def test_losses(group, name):
    group.run(cases.loss, name, None)
