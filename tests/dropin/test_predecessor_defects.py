"""Defects of earlier systems behind cuDNN's interface, each with a test of ours."""

import numpy as np
import oracle
import pytest
from dropin.test_convolutions import Problem
from python.support import assert_equal, channels_last, integers


def test_ooc_cudnn_ignored_strides_of_descriptors(calls):
    """Every second image of a batch, rows with gaps."""
    room = integers((4, 3, 8, 12))
    x, w = room[::2, :, :, :7], integers((2, 3, 3, 3), 1)
    y = np.zeros((2, 2, 6, 5), np.float32)
    data, factor = calls.data, calls.factor
    calls.lib.check(
        calls.lib.cudnnConvolutionForward(
            calls.handle, factor(1.0, x), calls.tensor(x), data(x), calls.filter(w), data(w),
            calls.convolution(2), 0, data(None), 0, factor(0.0, x), calls.tensor(y), data(y),
        )
    )  # fmt: skip
    assert_equal(y, oracle.forward(x, w))


def test_ooc_cudnn_took_float_factors_for_double_tensors(calls):
    problem = Problem(calls, (1, 2, 5, 5), (3, 2, 3, 3), {}, np.float64)
    calls.lib.check(problem.forward(alpha=0.1))
    assert_equal(problem.y, 0.1 * oracle.forward(problem.x, problem.w))


def test_ooc_cudnn_refused_groups(calls):
    problem = Problem(calls, (1, 4, 5, 5), (6, 2, 3, 3), {"groups": 2})
    calls.lib.check(problem.backward_filter())
    expected = oracle.backward_filter(problem.x, problem.y, (6, 2, 3, 3), groups=2)
    assert_equal(problem.w, expected)


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.5])
def test_the_gradient_of_the_filter_is_summed_over_the_batch_whatever_beta(calls, beta):
    """ooc_cuDNN ignored beta; ucudnn passed it to each part of the batch, so that with 0 only the
    last part's gradient was left."""
    problem = Problem(calls, (64, 8, 12, 12), (8, 8, 3, 3), {})
    old = problem.w.astype(np.float64)
    calls.lib.check(problem.backward_filter(beta=beta))
    expected = oracle.backward_filter(problem.x, problem.y, old.shape) + beta * old
    assert_equal(problem.w, expected)


def test_ucudnn_left_the_count_of_found_algorithms_unset(calls):
    lib = calls.lib
    problem = Problem(calls, (1, 2, 5, 5), (3, 2, 3, 3), {})
    count = lib.ffi.new("int *", -7)
    found = lib.ffi.new("cudnnConvolutionFwdAlgoPerf_t[2]")
    lib.check(
        lib.cudnnFindConvolutionForwardAlgorithm(
            calls.handle, problem.xd, problem.wd, problem.cd, problem.yd, 2, count, found
        )
    )
    assert count[0] == 1
    assert found[0].status == 0


def test_ucudnn_took_4_axes_only_and_whole_channels(calls):
    problem = Problem(calls, (1, 4, 4, 5, 6), (4, 2, 3, 3, 3), {"groups": 2})
    calls.lib.check(problem.forward())
    assert_equal(problem.y, oracle.forward(problem.x, problem.w, groups=2))


def test_ooc_cudnn_took_nchw_only(calls):
    problem = Problem(calls, (1, 3, 6, 6), (2, 3, 3, 3), {}, np.float32, channels_last)
    calls.lib.check(problem.forward())
    assert_equal(problem.y, oracle.forward(problem.x, problem.w))


def test_ooc_cudnn_ended_the_process_where_it_could_not_go_on(calls):
    """Every failure is a status; the handle is good afterwards."""
    problem = Problem(calls, (1, 3, 6, 6), (2, 3, 3, 3), {})
    data = calls.data
    bad = calls.lib.cudnnConvolutionForward(
        calls.handle, calls.factor(1.0, problem.x), problem.xd, data(problem.x), problem.wd,
        data(problem.w), problem.cd, 0, data(None), 0, calls.factor(0.0, problem.x), problem.xd,
        data(problem.y),
    )  # fmt: skip
    assert bad == calls.lib.CUDNN_STATUS_BAD_PARAM
    calls.lib.check(problem.forward())
