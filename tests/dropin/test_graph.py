"""The graph API where there is no GPU, against the reference: integer filling, threshold 0."""

import numpy as np
import oracle
import pytest
from dropin.building import CLIENTS, build, run
from dropin.test_convolutions import CASES, IDS
from python.support import DTYPES, assert_equal, channels_last, integers

X, W, Y, B, Z, S, A1, A2, A3 = range(1, 10)


@pytest.mark.parametrize("headers", ["ours", "nvidia"])
def test_the_graph_client_computes_what_it_expects(tmp_path, headers):
    program = build(CLIENTS / "graph.c", tmp_path / "graph", headers, extra=("-lm",))
    done = run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def operands(x_shape, w_shape, window, dtype=np.float32, layout=np.asarray):
    x, w = (layout(integers(s, seed, dtype)) for seed, s in enumerate((x_shape, w_shape)))
    y = layout(integers(oracle.forward(x, w, **window).shape, 2, dtype))
    return x, w, y


def convolve(graphs, direction, x, w, y, window, **factors):
    tensors = [graphs.tensor(uid, array) for uid, array in ((X, x), (W, w), (Y, y))]
    how = graphs.window(x.ndim - 2, **window)
    graphs.run([graphs.convolution(direction, *tensors, how, **factors)], {X: x, W: w, Y: y})


@pytest.mark.parametrize("direction", ["FORWARD", "BACKWARD_DATA", "BACKWARD_FILTER"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_three_directions(graphs, case, direction):
    _, x_shape, w_shape, window = case
    x, w, y = operands(x_shape, w_shape, window)
    before = [array.copy() for array in (x, w, y)]
    convolve(graphs, direction, x, w, y, window, alpha=2.0, beta=1.0)
    old = {"FORWARD": before[2], "BACKWARD_DATA": before[0], "BACKWARD_FILTER": before[1]}
    out = {"FORWARD": y, "BACKWARD_DATA": x, "BACKWARD_FILTER": w}[direction]
    total = {
        "FORWARD": lambda: oracle.forward(before[0], before[1], **window),
        "BACKWARD_DATA": lambda: oracle.backward_data(before[2], before[1], x_shape, **window),
        "BACKWARD_FILTER": lambda: oracle.backward_filter(before[0], before[2], w_shape, **window),
    }[direction]()
    assert_equal(out, 2.0 * total + old[direction].astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", [np.asarray, channels_last], ids=["nchw", "nhwc"])
def test_types_and_layouts(graphs, dtype, layout):
    window = {"padding": 1, "stride": 2}
    x, w, y = operands((2, 4, 7, 7), (6, 4, 3, 3), window, DTYPES[dtype], layout)
    convolve(graphs, "FORWARD", x, w, y, window)
    assert_equal(y, oracle.forward(x, w, **window))


def test_padding_that_differs_before_and_after(graphs):
    window = {"padding": ((0, 2), (1, 0))}
    x, w, y = operands((1, 2, 6, 5), (3, 2, 3, 3), window)
    convolve(graphs, "FORWARD", x, w, y, window)
    assert_equal(y, oracle.forward(x, w, **window))


class Chain:
    """A forward convolution whose result goes through pointwise operations."""

    def __init__(self, graphs):
        self.graphs = graphs
        self.x, self.w, self.y = operands((2, 3, 6, 5), (4, 3, 3, 3), {"padding": 1})
        self.arrays = {X: self.x, W: self.w, Y: self.y}
        self.virtual = [graphs.tensor(uid, self.y, virtual=True) for uid in (A1, A2, A3)]
        self.out = graphs.tensor(Y, self.y)
        x, w = graphs.tensor(X, self.x), graphs.tensor(W, self.w)
        how = graphs.window(2, padding=1)
        self.operations = [graphs.convolution("FORWARD", x, w, self.virtual[0], how)]

    def operand(self, uid, array):
        self.arrays[uid] = array
        return self.graphs.tensor(uid, array)

    def total(self):
        return oracle.forward(self.x, self.w, padding=1)


def test_residual_bias_and_relu_as_pytorch_builds_them(graphs):
    chain = Chain(graphs)
    z, b = integers(chain.y.shape, 4), integers((1, 4, 1, 1), 5)
    one, two, three = chain.virtual
    chain.operations += [
        graphs.pointwise("ADD", one, two, chain.operand(Z, z), alpha2=3.0),
        graphs.pointwise("ADD", two, three, chain.operand(B, b), alpha2=1.0),
        graphs.pointwise("RELU_FWD", three, chain.out, RELU_LOWER_CLIP=0.0,
                         RELU_UPPER_CLIP=3.4028234663852886e38),
    ]  # fmt: skip
    graphs.run(chain.operations, chain.arrays)
    expected = oracle.finish(
        chain.total(), bias=b, residual=z, residual_alpha=3.0, activation="relu"
    )
    assert_equal(chain.y, expected)


def test_a_residual_with_the_factor_0_is_not_read(graphs):
    """PyTorch passes the output for it, which holds whatever was there."""
    chain = Chain(graphs)
    chain.y[...] = np.nan
    b = integers((1, 4, 1, 1), 5)
    one, two, three = chain.virtual
    chain.operations += [
        graphs.pointwise("ADD", one, two, chain.operand(Z, chain.y), alpha2=0.0),
        graphs.pointwise("ADD", two, three, chain.operand(B, b)),
        graphs.pointwise("RELU_FWD", three, chain.out),
    ]
    graphs.run(chain.operations, chain.arrays)
    assert_equal(chain.y, oracle.finish(chain.total(), bias=b, activation="relu"))


def test_one_pointer_under_two_names(graphs):
    """The output is its own residual: PyTorch's in-place add."""
    chain = Chain(graphs)
    old = chain.y.copy()
    chain.operations += [
        graphs.pointwise("ADD", chain.virtual[0], chain.out, chain.operand(Z, chain.y))
    ]
    graphs.run(chain.operations, chain.arrays)
    assert_equal(chain.y, chain.total() + old)


def test_scale_then_bias_with_swapped_operands(graphs):
    chain = Chain(graphs)
    s, b = integers((1, 4, 1, 1), 4), integers((1, 4, 1, 1), 5)
    one, two, _ = chain.virtual
    chain.operations += [
        graphs.pointwise("MUL", chain.operand(S, s), two, one),
        graphs.pointwise("ADD", two, chain.out, chain.operand(B, b)),
    ]
    graphs.run(chain.operations, chain.arrays)
    assert_equal(chain.y, oracle.finish(chain.total(), scale=s, bias=b))


@pytest.mark.parametrize(
    ("mode", "numbers", "name", "parameter"),
    [
        ("RELU_FWD", {"RELU_UPPER_CLIP": 4.0}, "clip", 4.0),
        ("IDENTITY", {}, "identity", 0.0),
        ("TANH_FWD", {}, "tanh", 0.0),
        ("SIGMOID_FWD", {}, "sigmoid", 0.0),
        ("ELU_FWD", {"ELU_ALPHA": 0.5}, "elu", 0.5),
        ("SWISH_FWD", {"SWISH_BETA": 1.5}, "swish", 1.5),
        ("SOFTPLUS_FWD", {"SOFTPLUS_BETA": 1.5}, "softplus", 1.5),
    ],
)
def test_activations(graphs, mode, numbers, name, parameter):
    chain = Chain(graphs)
    chain.operations += [graphs.pointwise(mode, chain.virtual[0], chain.out, **numbers)]
    graphs.run(chain.operations, chain.arrays)
    expected = oracle.activate(chain.total(), name, parameter)
    np.testing.assert_allclose(chain.y, expected, rtol=1e-6, atol=1e-6)


def status_of(graphs, *operations) -> int:
    return graphs.lib.cudnnBackendFinalize(graphs.graph(*operations))


def test_graphs_that_are_no_such_convolution_are_refused_with_a_reason(graphs, lib):
    pattern = lib.CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN
    chain = Chain(graphs)
    add = graphs.pointwise("ADD", chain.virtual[0], chain.out, chain.operand(Z, chain.y))
    assert status_of(graphs, add) == pattern
    assert status_of(graphs, chain.operations[0]) == pattern  # its result is stored nowhere
    relu = graphs.pointwise("RELU_FWD", chain.virtual[0], chain.virtual[1])
    bias = chain.operand(B, integers((1, 4, 1, 1)))
    after = graphs.pointwise("ADD", chain.virtual[1], chain.out, bias)
    assert status_of(graphs, chain.operations[0], relu, after) == pattern
    text = lib.ffi.new("char[200]")
    lib.cudnnGetLastErrorString(text, 200)
    assert b"after the activation" in lib.ffi.string(text)


def test_operands_that_do_not_fit_are_bad_parameters(graphs, lib):
    x, w, y = operands((1, 4, 6, 6), (2, 4, 3, 3), {})
    how = graphs.window(2)
    xd, wd, yd = (graphs.tensor(uid, a) for uid, a in ((X, x), (W, w), (Y, y)))
    for bad in (
        (xd, graphs.tensor(W, integers((2, 3, 3, 3))), yd),
        (xd, wd, graphs.tensor(Y, integers((1, 2, 5, 4)))),
        (xd, wd, graphs.tensor(Y, y.astype(np.float16))),
    ):
        assert status_of(graphs, graphs.convolution("FORWARD", *bad, how)) == 2000


def test_everything_a_client_asks_of_a_plan_is_answered(graphs, lib):
    x, w, y = operands((1, 4, 6, 6), (2, 4, 3, 3), {})
    tensors = [graphs.tensor(uid, a) for uid, a in ((X, x), (W, w), (Y, y))]
    op = graphs.convolution("FORWARD", *tensors, graphs.window(2))
    graph = graphs.finalize(graphs.graph(op))
    assert graphs.get(graph, "OPERATIONGRAPH_ENGINE_GLOBAL_COUNT", "INT64") == [1]
    config = graphs.configuration(graph)
    assert graphs.described(config) == {
        "engine": [0],
        "workspace": [0],
        "shared": [0],  # of 32 bits, as cuDNN's
        "knobs": [],
        "NUMERICAL_NOTE": [],
        "BEHAVIOR_NOTE": [],
    }
    plan = graphs.plan(config)
    assert graphs.get(plan, "EXECUTION_PLAN_WORKSPACE_SIZE", "INT64") == [0]
    again = graphs.make("ENGINECFG")
    assert graphs.get(plan, "EXECUTION_PLAN_ENGINE_CONFIG", "BACKEND_DESCRIPTOR", into=again)
    size = lib.ffi.new("size_t *", 7)
    pack = graphs.pack({X: x, W: w, Y: y})
    lib.check(lib.cudnnGetExecutionPlanWorkspaceSize(graphs.handle, plan, pack, size))
    assert size[0] == 0


def test_an_engine_can_be_named_instead_of_found(graphs):
    """By its index, as explicit clients do."""
    x, w, y = operands((1, 4, 6, 6), (2, 4, 3, 3), {})
    tensors = [graphs.tensor(uid, a) for uid, a in ((X, x), (W, w), (Y, y))]
    op = graphs.convolution("FORWARD", *tensors, graphs.window(2))
    engine, config = graphs.make("ENGINE"), graphs.make("ENGINECFG")
    graph = graphs.finalize(graphs.graph(op))
    graphs.set(engine, "ENGINE_OPERATION_GRAPH", "BACKEND_DESCRIPTOR", graph)
    graphs.set(engine, "ENGINE_GLOBAL_INDEX", "INT64", 0)
    graphs.set(config, "ENGINECFG_ENGINE", "BACKEND_DESCRIPTOR", graphs.finalize(engine))
    plan = graphs.plan(graphs.finalize(config))
    pack = graphs.pack({X: x, W: w, Y: y})
    graphs.lib.check(graphs.lib.cudnnBackendExecute(graphs.handle, plan, pack))
    assert_equal(y, oracle.forward(x, w))


def test_statuses_of_bad_calls_are_cudnns(graphs, lib):
    null, ffi = lib.ffi.NULL, lib.ffi
    dims = lib.CUDNN_ATTR_TENSOR_DIMENSIONS, lib.CUDNN_TYPE_INT64
    four = ffi.new("int64_t[4]", [1, 2, 3, 4])
    tensor = graphs.make("TENSOR")
    assert lib.cudnnBackendSetAttribute(null, *dims, 4, four) == 2002
    assert lib.cudnnBackendSetAttribute(tensor, *dims, 4, null) == 2000
    assert lib.cudnnBackendSetAttribute(tensor, *dims, -1, four) == 2000
    assert graphs.try_set(tensor, "CONVOLUTION_SPATIAL_DIMS", "INT64", [2]) == 2000
    assert lib.cudnnBackendFinalize(tensor) == 2000  # nothing is set
    assert lib.cudnnBackendGetAttribute(tensor, *dims, 4, null, four) == 1001
    assert lib.cudnnBackendFinalize(null) == 2002
    assert lib.cudnnBackendDestroyDescriptor(null) == 2002
    done = graphs.tensor(X, integers((1, 2, 3, 4)))
    assert lib.cudnnBackendFinalize(done) == 2000
    assert graphs.try_set(done, "TENSOR_UNIQUE_ID", "INT64", [8]) == 2000
    wrong = lib.CUDNN_ATTR_TENSOR_DIMENSIONS, lib.CUDNN_TYPE_DATA_TYPE
    assert lib.cudnnBackendGetAttribute(done, *wrong, 4, null, four) == 2010
    graph = graphs.make("OPERATIONGRAPH")
    operation = graphs.make("OPERATION_CONVOLUTION_FORWARD")
    given = graphs.try_set(graph, "OPERATIONGRAPH_OPS", "BACKEND_DESCRIPTOR", [operation])
    assert given == 2004
    assert lib.cudnnBackendFinalize(operation) == 2000
    assert lib.cudnnBackendExecute(graphs.handle, null, null) == 2002


ATTRIBUTE_TYPE = 2010  # CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE


@pytest.mark.parametrize(
    ("kind", "name", "wrong", "right"),
    [
        ("TENSOR", "TENSOR_DIMENSIONS", ["FLOAT", "DOUBLE", "VOID_PTR"], ["INT64"]),
        ("TENSOR", "TENSOR_DATA_TYPE", ["INT64", "HEUR_MODE"], ["DATA_TYPE"]),
        ("TENSOR", "TENSOR_IS_VIRTUAL", ["INT64"], ["BOOLEAN"]),
        ("CONVOLUTION", "CONVOLUTION_SPATIAL_DIMS", ["BOOLEAN"], ["INT64"]),
        ("POINTWISE", "POINTWISE_ELU_ALPHA", ["BOOLEAN", "INT64"], ["FLOAT", "DOUBLE"]),
        (
            "OPERATION_CONVOLUTION_FORWARD",
            "OPERATION_CONVOLUTION_FORWARD_ALPHA",
            ["BOOLEAN", "INT64"],
            ["FLOAT", "DOUBLE"],
        ),
        ("OPERATION_CONVOLUTION_FORWARD", "OPERATION_CONVOLUTION_FORWARD_X", ["VOID_PTR"], []),
        ("VARIANT_PACK", "VARIANT_PACK_UNIQUE_IDS", ["FLOAT"], ["INT64"]),
    ],
)
def test_an_attribute_of_another_type_is_refused(graphs, lib, kind, name, wrong, right):
    made = graphs.make(kind)
    for given in wrong:
        value = lib.ffi.NULL if given == "VOID_PTR" else 1
        assert graphs.try_set(made, name, given, [value]) == ATTRIBUTE_TYPE, given
    for given in right:
        assert graphs.try_set(made, name, given, [1]) == 0, given


def test_an_unfinished_part_is_found_when_the_whole_is_finished(graphs, lib):
    operation = graphs.make("OPERATION_CONVOLUTION_FORWARD")
    unfinished = graphs.make("TENSOR")
    name = "OPERATION_CONVOLUTION_FORWARD_X"
    assert graphs.try_set(operation, name, "BACKEND_DESCRIPTOR", [unfinished]) == 0
    assert lib.cudnnBackendFinalize(operation) == 2000


def test_a_read_gives_as_many_elements_as_there_is_room_for(graphs, lib):
    done = graphs.tensor(X, integers((1, 2, 3, 4)))
    assert graphs.get(done, "TENSOR_DIMENSIONS", "INT64", room=2) == [1, 2]
    count = lib.ffi.new("int64_t *")
    dims = lib.CUDNN_ATTR_TENSOR_DIMENSIONS, lib.CUDNN_TYPE_INT64
    lib.check(lib.cudnnBackendGetAttribute(done, *dims, 0, count, lib.ffi.NULL))
    assert count[0] == 4


# The cases of clients/hostile.c, in its order.
PARTS = ["counts", "axes", "sizes", "results", "chain", "into_itself"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return build(CLIENTS / "hostile.c", tmp_path_factory.mktemp("hostile") / "hostile")


@pytest.mark.parametrize("part", PARTS)
def test_what_no_correct_program_passes_is_answered_with_a_status(hostile, part):
    done = run([hostile, str(PARTS.index(part))])
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
