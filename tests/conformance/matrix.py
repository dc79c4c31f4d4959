"""The table of docs/reference/support.md, of the lists that the conformance suite holds devices to:

    PYTHONPATH=tests python -m conformance.matrix

replaces it.
"""

from __future__ import annotations

from pathlib import Path

from conformance.devices import DEPENDS, EXPECTED_FAILURES, UNSUPPORTED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "support.md"
BEGIN = "<!-- by tests/conformance/matrix.py -->\n"

ENGINES = {
    "cpu:onednn": "CPU, oneDNN",
    "cpu:direct": "CPU, direct",
    "cpu:reference": "CPU, reference",
    "cuda:cudnn": "GPU, cuDNN",
    "cuda:depthwise": "GPU, depthwise",
    "cuda:fp32x3": "GPU, fp32x3",
    "cuda:direct": "GPU, direct",
}
# What a reader asks, and the case that holds the answer.
ROWS = {
    "forward": "forward",
    "gradient of the input": "backward_data",
    "gradient of the filter": "backward_filter",
    "gradient of the bias": "backward_bias",
    "float64": "convolve_f64",
    "float16": "convolve_f16",
    "bfloat16": "convolve_bf16",
    "partial sums of float64 (C is split)": "accumulate_f64",
    "partial sums of float32": "accumulate_f32",
    "partial sums of float16, in float32": "accumulate_f16",
    "partial sums of bfloat16, in float32": "accumulate_bf16",
    "bias, scale, residual and every activation on the tile": "finish_every_activation",
    "pools on the tile, with saved bits": "finish_pools_and_bits",
    "gradients from saved bits": "restore_from_pools_and_bits",
    "the same bits from run to run": "deterministic",
    "the same bits whatever the budget, float32": "invariant_f32",
    "the same, float64": "invariant_f64",
    "the same, float16": "invariant_f16",
    "the same, bfloat16": "invariant_bf16",
    "a NaN reaches what reads it, and nothing else": "nan_local",
}


def table() -> str:
    """With the reasons below it, by number."""
    notes: dict[str, int] = {}

    def cell(engine: str, case: str) -> str:
        for listed, word in ((UNSUPPORTED, "no"), (EXPECTED_FAILURES, "no"), (DEPENDS, "depends")):
            if reason := listed.get(engine, {}).get(case):
                return f"{word} ({notes.setdefault(reason, len(notes) + 1)})"
        return "yes"

    lines = [f"| | {' | '.join(ENGINES.values())} |", f"|---|{'---|' * len(ENGINES)}"]
    for words, case in ROWS.items():
        lines.append(f"| {words} | {' | '.join(cell(engine, case) for engine in ENGINES)} |")
    reasons = [f"{number}. {reason}." for reason, number in notes.items()]
    return "\n".join([*lines, "", *reasons]) + "\n"


def main() -> None:
    head, _, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table()}", encoding="utf-8")


if __name__ == "__main__":
    main()
