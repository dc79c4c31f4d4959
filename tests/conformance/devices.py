"""The devices that the conformance suite runs on, and what each is known not to do.

A case that answers "unsupported" must be listed in UNSUPPORTED (or DEPENDS, where the machine
decides), one that fails in EXPECTED_FAILURES, each with the reason. An entry of UNSUPPORTED or
EXPECTED_FAILURES that is no longer true fails its test.
"""

DEVICES = (
    "null",
    "cpu",
    "cpu:reference",
    "cpu:direct",
    "cpu:onednn",
    "check(cpu)",
    "limit(cpu)",
    "fault(cpu)",
    "trace(cpu)",
    "check(trace(cpu:direct,jitter=3))",
    "check(cpu:direct,threads=1,link=0.5)",
    "cuda:direct",
    "cuda:cudnn",
    "cuda:depthwise",
    "cuda:fp32x3",
    "check(cuda:direct)",
)

# Wrappers hand engines through, so beside a check device these run few of the engines' cases; nor
# does the CPU device, each of whose engines runs them alone, and the check device with all of them.
WRAPPED = tuple(device for device in DEVICES if "(" in device and device != "check(cpu)")
ENGINE_CASES = ("backward", "convolve", "accumulate", "invariant", "deterministic", "nan_local")
# Hundreds of random tiles for kernels that a device has whichever engine computes and whoever wraps
# it. Shorter cases of the same run on every device (finish_pools_and_bits, fetch_of_parts, ...).
KERNEL_CASES = (
    "copies_through_bounce",
    "finish_every_part",
    "finish_narrow",
    "finish_square",
    "finish_turned",
    "finish_wide",
    "restore_from_square",
    "restore_from_wide",
)
KERNELS_OF_ANOTHER = (
    *WRAPPED,
    "cpu:reference",
    "cpu:direct",
    "cpu:onednn",
    "cuda:cudnn",
    "cuda:depthwise",
    "cuda:fp32x3",
)

NO_BIAS = "oneDNN has no backward bias of its own; the direct engine does it"
NO_F64 = "oneDNN convolves no f64"
NOT_INVARIANT = "oneDNN claims no invariance: some 1x1 kernels re-block their sum by spatial size"
INSTRUCTIONS = "oneDNN takes 16-bit types only where the processor has the instructions"
NOT_NARROW = "no engine of the CPU device has sums of 16 bits to be pooled"
AT_ONCE = "the null device runs everything at once"

NOT_HELD_UP = "the suite holds up copies by a layout that copies itself, which host devices have"
_HELD = (
    "enqueue_returns_before_the_work",
    "synchronize_event_waits",
    "event_can_be_recorded_again",
    "wait_takes_the_latest_record",
    "wait_orders_streams",
    "error_skips_what_is_behind",
    "error_is_told_once",
    "first_error_is_told",
    "events_fire_behind_an_error",
)
ON_GPU = dict.fromkeys(_HELD, NOT_HELD_UP) | {
    "blocked_tiles_have_zero_padding": "the CUDA device has plain tiles only"
}

NULL_BLOCKS = "the null device sums in no blocks"
CUDNN_NO_BIAS = "cuDNN's graphs have no backward bias; the direct engine does it"
CUDNN_NOT_INVARIANT = "cuDNN's bits depend on the tile's shape"
DEPTHWISE_NO_BIAS = "it is for groups of one input channel; the direct engine does the bias"
DEPTHWISE_NO_F64 = "a filter's gradient of float64 is one sum, which is the direct engine's to do"
FP32X3_NO_BIAS = "it is for products; the direct engine does the bias"
FP32X3_FLOAT32 = dict.fromkeys(
    (
        "convolve_f64", "convolve_f16", "convolve_bf16",
        "accumulate_f64", "accumulate_f16", "accumulate_bf16",
        "invariant_f64", "invariant_f16", "invariant_bf16",
        "invariant_sums_f64", "invariant_sums_bf16",
    ),
    "it computes float32",
)  # fmt: skip
FP32X3_ALONE = dict.fromkeys(("backward_bias", "backward_bias_of_reals"), FP32X3_NO_BIAS) | {
    "invariant_f32": "it adds in another order where a tile cuts a sum",
    "invariant_sums_f32": "it adds in another order where a tile cuts a sum",
}
ONEDNN_NAN = (
    "oneDNN leaves padding out that is equal at both ends, so a NaN of the filter misses the edges"
)
CUDNN_NAN = (
    "cuDNN has kernels for gradients of the input that leave padding out, so a NaN of the filter "
    "misses the edges, and others that multiply zeros between strided elements, so it spreads"
)

UNSUPPORTED = {
    "null": {
        "invariant_sums_f32": NULL_BLOCKS,
        "invariant_sums_f64": NULL_BLOCKS,
        "invariant_sums_bf16": NULL_BLOCKS,
        "finish_pools_and_bits": "the null device has no use for what is made of sums",
        "finish_dense_pools": "the null device has no use for what is made of sums",
        "finish_narrow_pools": "the null device has no use for what is made of sums",
        "finish_square_pools": "the null device has no use for what is made of sums",
        "finish_turned_pools": "the null device has no use for what is made of sums",
        "finish_wide_pools": "the null device has no use for what is made of sums",
        "restore_from_pools_and_bits": "nor for what such sums' gradients are",
        "restore_from_square_pools": "nor for what such sums' gradients are",
        "restore_from_wide_pools": "nor for what such sums' gradients are",
    },
    "cpu": {"finish_narrow_pools": NOT_NARROW},
    "check(cpu)": {"finish_narrow_pools": NOT_NARROW},
    "cuda:direct": ON_GPU,
    "cuda:cudnn": ON_GPU
    | {
        "backward_bias": CUDNN_NO_BIAS,
        "backward_bias_of_reals": CUDNN_NO_BIAS,
        "invariant_f32": CUDNN_NOT_INVARIANT,
        "invariant_f64": CUDNN_NOT_INVARIANT,
        "invariant_f16": CUDNN_NOT_INVARIANT,
        "invariant_bf16": CUDNN_NOT_INVARIANT,
        "invariant_sums_f32": CUDNN_NOT_INVARIANT,
        "invariant_sums_f64": CUDNN_NOT_INVARIANT,
        "invariant_sums_bf16": CUDNN_NOT_INVARIANT,
        "nan_local": CUDNN_NAN,
    },
    "cuda:depthwise": ON_GPU
    | {
        "backward_bias": DEPTHWISE_NO_BIAS,
        "backward_bias_of_reals": DEPTHWISE_NO_BIAS,
        "accumulate_f64": DEPTHWISE_NO_F64,
        "invariant_sums_f64": DEPTHWISE_NO_F64,
    },
    "cuda:fp32x3": ON_GPU | FP32X3_ALONE | FP32X3_FLOAT32,
    "check(cuda:direct)": ON_GPU,
    "cpu:onednn": {
        "backward_bias": NO_BIAS,
        "backward_bias_of_reals": NO_BIAS,
        "convolve_f64": NO_F64,
        "accumulate_f64": NO_F64,
        "invariant_f32": NOT_INVARIANT,
        "invariant_f64": NOT_INVARIANT,
        "invariant_f16": NOT_INVARIANT,
        "invariant_bf16": NOT_INVARIANT,
        "invariant_sums_f32": NOT_INVARIANT,
        "invariant_sums_f64": NOT_INVARIANT,
        "invariant_sums_bf16": NOT_INVARIANT,
        "nan_local": ONEDNN_NAN,
    },
}
DEPENDS = {
    "cpu:onednn": {
        "convolve_f16": INSTRUCTIONS,
        "convolve_bf16": INSTRUCTIONS,
        "accumulate_f16": INSTRUCTIONS,
        "accumulate_bf16": INSTRUCTIONS,
    },
}
EXPECTED_FAILURES = {
    "null": {
        "enqueue_returns_before_the_work": AT_ONCE,
        "wait_takes_the_latest_record": AT_ONCE,
    },
}


def runs(device: str, case: str) -> bool:
    """Whether the suite runs this case on this device."""
    if case.startswith(ENGINE_CASES):
        return device != "cpu" and device not in WRAPPED
    return device not in KERNELS_OF_ANOTHER or not case.startswith(KERNEL_CASES)
