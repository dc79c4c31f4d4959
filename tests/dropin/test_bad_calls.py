"""What bad calls answer: cuDNN's own statuses, in a table that is also held to the real library,
where one is here. (Where cuDNN crashes on a null pointer, we answer BAD_PARAM; the row says so.)"""

import ctypes

import numpy as np
import pytest
from dropin import building

from oocdnn import cudnn

BAD, NOT_SUPPORTED = 2000, 3000
NULL = None


def ints(*values):
    return (ctypes.c_int * max(len(values), 1))(*values)


ONES, ZEROS, HUGE = ints(*[1] * 9), ints(*[0] * 9), ints(*[2**31 - 1] * 9)

# Function, descriptor kind ("": none), the other arguments, cuDNN's status, whether cuDNN itself
# survives the call and is held to the status.
TABLE = [
    ("CreateTensorDescriptor", "", (NULL,), BAD, True),
    ("DestroyTensorDescriptor", "", (NULL,), 0, True),
    ("SetTensor4dDescriptor", "", (NULL, 0, 0, 1, 1, 1, 1), BAD, True),
    ("SetTensor4dDescriptor", "Tensor", (0, 0, 1, 1, 1, 0), BAD, True),
    ("SetTensor4dDescriptor", "Tensor", (0, 0, -1, 1, 1, 1), BAD, True),
    ("SetTensor4dDescriptor", "Tensor", (9, 0, 1, 1, 1, 1), BAD, True),
    ("SetTensor4dDescriptor", "Tensor", (0, 99, 1, 1, 1, 1), BAD, True),
    ("SetTensor4dDescriptor", "Tensor", (2, 0, 1, 4, 1, 1), BAD, True),
    ("SetTensor4dDescriptor", "Tensor", (0, 0, 2047, 1024, 1024, 1), 0, True),
    ("SetTensor4dDescriptorEx", "Tensor", (0, 1, 2, 3, 4, 0, 12, 4, 1), 0, True),
    ("SetTensor4dDescriptorEx", "Tensor", (0, 0, 2, 3, 4, 24, 12, 4, 1), BAD, True),
    ("SetTensor4dDescriptorEx", "Tensor", (0, 3, 2, 3, 4, 0, 12, 4, 1), BAD, True),
    ("SetTensor4dDescriptorEx", "Tensor", (0, 1, 2, 3, 4, -24, 12, 4, -1), 0, True),
    ("SetTensorNdDescriptor", "Tensor", (0, 1, ONES, ONES), BAD, True),
    ("SetTensorNdDescriptor", "Tensor", (0, 2, ONES, ONES), 0, True),
    ("SetTensorNdDescriptor", "Tensor", (0, 8, ONES, ONES), 0, True),
    ("SetTensorNdDescriptor", "Tensor", (0, 9, ONES, ONES), NOT_SUPPORTED, True),
    ("SetTensorNdDescriptor", "Tensor", (0, 4, ZEROS, ONES), BAD, True),
    ("SetTensorNdDescriptor", "Tensor", (0, 4, NULL, ONES), BAD, False),
    ("SetTensorNdDescriptor", "Tensor", (0, 4, ONES, NULL), BAD, False),
    ("SetTensorNdDescriptorEx", "Tensor", (3, 0, 4, ONES), BAD, True),
    ("SetTensorNdDescriptorEx", "Tensor", (1, 0, 9, ONES), NOT_SUPPORTED, True),
    ("SetTensorNdDescriptorEx", "Tensor", (0, 0, 8, HUGE), NOT_SUPPORTED, False),
    ("GetTensor4dDescriptor", "Tensor", (NULL,) * 9, BAD, True),
    ("GetTensorSizeInBytes", "Tensor", (NULL,), BAD, False),
    ("SetFilter4dDescriptor", "", (NULL, 0, 0, 1, 1, 1, 1), BAD, True),
    ("SetFilter4dDescriptor", "Filter", (0, 0, 1, 1, 1, 0), BAD, True),
    ("SetFilter4dDescriptor", "Filter", (99, 0, 1, 1, 1, 1), BAD, True),
    ("SetFilter4dDescriptor", "Filter", (0, 9, 1, 1, 1, 1), BAD, True),
    ("SetFilter4dDescriptor", "Filter", (0, 2, 2, 4, 1, 1), BAD, True),
    ("SetFilterNdDescriptor", "Filter", (0, 0, 2, ONES), BAD, True),
    ("SetFilterNdDescriptor", "Filter", (0, 0, 3, ONES), 0, True),
    ("SetFilterNdDescriptor", "Filter", (0, 0, 9, ONES), NOT_SUPPORTED, True),
    ("SetFilterNdDescriptor", "Filter", (0, 0, 4, NULL), BAD, False),
    ("SetFilterNdDescriptor", "Filter", (0, 0, 8, HUGE), NOT_SUPPORTED, False),
    ("SetConvolution2dDescriptor", "", (NULL, 0, 0, 1, 1, 1, 1, 0, 0), BAD, True),
    ("SetConvolution2dDescriptor", "Convolution", (-1, 0, 1, 1, 1, 1, 0, 0), BAD, True),
    ("SetConvolution2dDescriptor", "Convolution", (0, 0, 0, 1, 1, 1, 0, 0), BAD, True),
    ("SetConvolution2dDescriptor", "Convolution", (0, 0, 1, 1, 0, 1, 0, 0), BAD, True),
    ("SetConvolution2dDescriptor", "Convolution", (0, 0, 1, 1, 1, 1, 2, 0), BAD, True),
    ("SetConvolution2dDescriptor", "Convolution", (0, 0, 1, 1, 1, 1, 0, 99), BAD, True),
    ("SetConvolution2dDescriptor", "Convolution", (0, 0, 1, 1, 1, 1, 0, 3), BAD, True),
    ("SetConvolutionNdDescriptor", "Convolution", (6, ZEROS, ONES, ONES, 1, 0), 0, True),
    ("SetConvolutionNdDescriptor", "Convolution", (7, ZEROS, ONES, ONES, 1, 0), 3000, True),
    ("SetConvolutionNdDescriptor", "Convolution", (2, NULL, ONES, ONES, 1, 0), BAD, False),
    ("SetConvolutionGroupCount", "Convolution", (0,), BAD, True),
    ("SetConvolutionGroupCount", "", (NULL, 1), BAD, True),
    ("SetConvolutionMathType", "Convolution", (9,), BAD, True),
    ("SetConvolutionReorderType", "Convolution", (5,), BAD, True),
    ("GetConvolutionGroupCount", "Convolution", (NULL,), BAD, False),
    ("SetActivationDescriptor", "Activation", (9, 0, ctypes.c_double(0)), BAD, True),
    ("SetActivationDescriptor", "Activation", (3, 2, ctypes.c_double(0)), BAD, True),
    ("SetActivationDescriptor", "Activation", (3, 0, ctypes.c_double(-1)), 0, True),
    ("SetPooling2dDescriptor", "Pooling", (9, 0, 2, 2, 0, 0, 2, 2), BAD, True),
    ("SetPooling2dDescriptor", "Pooling", (0, 9, 2, 2, 0, 0, 2, 2), BAD, True),
    ("SetPooling2dDescriptor", "Pooling", (0, 0, 0, 2, 0, 0, 2, 2), BAD, True),
    ("SetPooling2dDescriptor", "Pooling", (0, 0, 2, 2, 0, 0, 0, 2), BAD, True),
    ("SetPooling2dDescriptor", "Pooling", (0, 0, 2, 2, 3, 3, 2, 2), 0, True),
    ("SetPoolingNdDescriptor", "Pooling", (0, 0, 0, ONES, ZEROS, ONES), BAD, True),
    ("SetPoolingNdDescriptor", "Pooling", (0, 0, 7, ONES, ZEROS, ONES), NOT_SUPPORTED, True),
    ("SetOpTensorDescriptor", "OpTensor", (9, 0, 0), BAD, True),
    ("SetOpTensorDescriptor", "OpTensor", (0, 99, 0), BAD, True),
    ("SetOpTensorDescriptor", "OpTensor", (0, 0, 5), BAD, True),
    ("SetOpTensorDescriptor", "OpTensor", (0, 3, 0), BAD, True),
    ("Create", "", (NULL,), BAD, True),
    ("Destroy", "", (NULL,), 0, True),
    ("SetStream", "", (NULL, NULL), BAD, True),
    ("GetStream", "", (NULL, NULL), BAD, True),
    ("GetProperty", "", (0, NULL), BAD, True),
    ("GetProperty", "", (9, ints(0)), BAD, True),
    ("GetConvolutionForwardAlgorithmMaxCount", "", (NULL, ints(0)), BAD, True),
    ("GetConvolutionBackwardDataAlgorithmMaxCount", "", (NULL, ints(0)), BAD, True),
    ("AddTensor", "", (NULL,) * 7, BAD, True),
]


def ids(row):
    shown = [list(a)[:2] if isinstance(a, ctypes.Array) else getattr(a, "value", a) for a in row[2]]
    return f"{row[0]}({row[1]}{shown})"


def call(library, function, kind, arguments):
    first = ()
    if kind:
        descriptor = ctypes.c_void_p()
        assert getattr(library, f"cudnnCreate{kind}Descriptor")(ctypes.byref(descriptor)) == 0
        first = (descriptor,)
    status = getattr(library, f"cudnn{function}")(*first, *arguments)
    if kind:
        assert getattr(library, f"cudnnDestroy{kind}Descriptor")(descriptor) == 0
    return status


@pytest.fixture(scope="module")
def ours(lib):
    return ctypes.CDLL(str(cudnn.dropin_path()))


@pytest.fixture(scope="module")
def real():
    return ctypes.CDLL(str(building.real_library()))


@pytest.mark.parametrize("row", TABLE, ids=ids)
def test_status(ours, row):
    function, kind, arguments, status, _ = row
    assert call(ours, function, kind, arguments) == status
    if status != 0:
        text = ctypes.create_string_buffer(256)
        ours.cudnnGetLastErrorString(text, 256)
        assert text.value


@pytest.mark.parametrize("row", [row for row in TABLE if row[4]], ids=ids)
def test_the_real_library_answers_the_same(real, row):
    function, kind, arguments, status, _ = row
    assert call(real, function, kind, arguments) == status


def test_names_of_statuses_are_cudnns(ours):
    real = ctypes.CDLL(str(building.real_library()))
    for library in (ours, real):
        library.cudnnGetErrorString.restype = ctypes.c_char_p
    for status in (0, 1, 1001, 2000, 2002, 2005, 3000, 3004, 4000, 4003, 5000, 5003, 9999):
        assert ours.cudnnGetErrorString(status) == real.cudnnGetErrorString(status), status


@pytest.mark.parametrize("which", ["ours", "real"])
def test_a_read_of_fewer_axes_gives_these(request, which):
    """The rank is the tensor's, and only as many extents are written as were asked for."""
    library = request.getfixturevalue(which)
    tensor = ctypes.c_void_p()
    assert library.cudnnCreateTensorDescriptor(ctypes.byref(tensor)) == 0
    dims, strides = ints(1, 2, 3, 4, 5), ints(120, 60, 20, 5, 1)
    assert library.cudnnSetTensorNdDescriptor(tensor, 0, 5, dims, strides) == 0
    dtype, rank, out, steps = ints(-1), ints(-1), ints(*[-7] * 8), ints(*[-7] * 8)
    assert library.cudnnGetTensorNdDescriptor(tensor, 3, dtype, rank, out, steps) == 0
    assert (dtype[0], rank[0]) == (0, 5)
    assert list(out) == [1, 2, 3] + [-7] * 5
    assert list(steps) == [120, 60, 20] + [-7] * 5
    assert library.cudnnDestroyTensorDescriptor(tensor) == 0


@pytest.mark.parametrize("which", ["ours", "real"])
@pytest.mark.parametrize(
    ("strides", "elements"), [((-60, 20, 5, -1), 120), ((-1, -1, -1, -1), 11), ((0, 0, -7, 1), 26)]
)
def test_a_size_counts_from_the_lowest_element_to_the_highest(request, which, strides, elements):
    library = request.getfixturevalue(which)
    tensor, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert library.cudnnCreateTensorDescriptor(ctypes.byref(tensor)) == 0
    dims = [
        1 if stride == 0 else extent for stride, extent in zip(strides, (2, 3, 4, 5), strict=True)
    ]
    assert library.cudnnSetTensor4dDescriptorEx(tensor, 0, *dims, *strides) == 0
    assert library.cudnnGetTensorSizeInBytes(tensor, ctypes.byref(size)) == 0
    assert size.value == 4 * elements
    assert library.cudnnDestroyTensorDescriptor(tensor) == 0


def test_a_number_that_fits_no_int_is_not_told(ours):
    """Our tensors may be larger than the interface can say."""
    tensor = ctypes.c_void_p()
    assert ours.cudnnCreateTensorDescriptor(ctypes.byref(tensor)) == 0
    assert ours.cudnnSetTensor4dDescriptor(tensor, 0, 0, 2, 1, 65536, 65536) == 0
    out = [ints(-7) for _ in range(9)]
    assert ours.cudnnGetTensor4dDescriptor(tensor, *out) == NOT_SUPPORTED
    assert [place[0] for place in out] == [-7] * 9
    rank, dims, strides = ints(0), ints(*[-7] * 4), ints(*[-7] * 4)
    read = (tensor, 4, ints(0), rank, dims, strides)
    assert ours.cudnnGetTensorNdDescriptor(*read) == NOT_SUPPORTED
    assert list(strides) == [-7] * 4
    assert ours.cudnnGetTensorNdDescriptor(tensor, 4, ints(0), rank, dims, NULL) == 0
    assert list(dims) == [2, 1, 65536, 65536]
    size = ctypes.c_size_t()
    assert ours.cudnnGetTensorSizeInBytes(tensor, ctypes.byref(size)) == 0
    assert size.value == 2 * 65536**2 * 4
    assert ours.cudnnSetTensorNdDescriptor(tensor, 0, 8, HUGE, HUGE) == 0
    assert ours.cudnnGetTensorSizeInBytes(tensor, ctypes.byref(size)) == NOT_SUPPORTED
    assert ours.cudnnDestroyTensorDescriptor(tensor) == 0


@pytest.mark.parametrize(
    ("x", "w", "window", "status"),
    [
        ((1, 3, 8, 8), (4, 3, 3, 3), {"padding": 1}, 0),
        ((1, 3, 8, 8), (4, 2, 3, 3), {"padding": 1}, BAD),
        ((1, 4, 8, 8), (4, 2, 3, 3), {"groups": 2}, 0),
        ((1, 3, 2, 2), (4, 3, 9, 9), {}, BAD),
    ],
)
def test_output_extents(calls, x, w, window, status):
    out = calls.lib.ffi.new("int[4]")
    found = calls.lib.cudnnGetConvolutionNdForwardOutputDim(
        calls.convolution(2, **window),
        calls.tensor(np.zeros(x, np.float32)),
        calls.filter(np.zeros(w, np.float32)),
        4,
        out,
    )
    assert found == status


def test_convolutions_refuse_what_does_not_fit_together(calls):
    lib, data = calls.lib, calls.data
    x, w, y = (np.zeros(s, np.float32) for s in ((1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6)))
    one, zero = calls.factor(1.0, x), calls.factor(0.0, x)
    good = {
        "handle": calls.handle, "alpha": one, "xd": calls.tensor(x), "x": data(x),
        "wd": calls.filter(w), "w": data(w), "cd": calls.convolution(2), "algorithm": 0,
        "workspace": data(None), "bytes": 0, "beta": zero, "yd": calls.tensor(y), "y": data(y),
    }  # fmt: skip
    null = lib.ffi.NULL
    wide = np.zeros((1, 3, 8, 8))
    bad = {
        "handle": null,
        "alpha": null,
        "xd": calls.tensor(wide),
        "x": null,
        "wd": calls.filter(np.zeros((4, 2, 3, 3), np.float32)),
        "w": null,
        "cd": calls.convolution(3),
        "algorithm": 8,
        "beta": null,
        "yd": calls.tensor(np.zeros((1, 4, 5, 6), np.float32)),
        "y": data(x),
    }
    assert lib.cudnnConvolutionForward(*good.values()) == 0
    for name, value in bad.items():
        status = lib.cudnnConvolutionForward(*{**good, name: value}.values())
        assert status == BAD, name


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("function", ["Forward", "BackwardData", "BackwardFilter"])
def test_a_null_filter_is_refused_mirrored_or_not(calls, function, flip):
    lib, data = calls.lib, calls.data
    x, w, y = (np.zeros(s, np.float32) for s in ((1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6)))
    one, zero = calls.factor(1.0, x), calls.factor(0.0, x)
    place = {
        "x": (calls.tensor(x), data(x)),
        "w": (calls.filter(w), lib.ffi.NULL),
        "y": (calls.tensor(y), data(y)),
    }
    order = {"Forward": "xwy", "BackwardData": "wyx", "BackwardFilter": "xyw"}[function]
    first, second, result = (place[name] for name in order)
    convolution = calls.convolution(2, flip=flip)
    status = getattr(lib, f"cudnnConvolution{function}")(
        calls.handle, one, *first, *second, convolution, 0, data(None), 0, zero, *result
    )
    assert status == BAD
    text = lib.ffi.new("char[]", 256)
    lib.cudnnGetLastErrorString(text, 256)
    assert b"null" in lib.ffi.string(text)
