#!/usr/bin/env bash
# Everything that a GPU machine has to show: the suites on the CUDA device, then the wires. Needs the
# package and the testing library (OOCDNN_TESTING_LIBRARY); goes on after a failure and says so last.
#
#   tests/gpu/run.sh [what is handed to pytest]
cd "$(dirname "$0")/../.." || exit
export OOCDNN_TEST_DEVICE=cuda PYTHONSAFEPATH=1
failed=()

step() {
  local name=$1 began=$SECONDS
  shift
  "$@" || failed+=("$name")
  echo "== $name: $((SECONDS - began)) s"
}

step info python3 -m oocdnn info --device cuda
step device python3 tests/gpu/smoke.py --quick
step conformance python3 -m pytest -q tests/conformance -k cuda "$@"
step operands python3 -m pytest -q tests/gpu/test_operands.py "$@"
step python python3 -m pytest -q tests/python/test_functions.py tests/python/test_arrays.py \
  tests/python/test_files.py tests/python/test_context.py "$@"
step engine python3 -m pytest -q tests/engine "$@"
step wires python3 -m oocdnn.bench.gpu ${OUT:+--out "$OUT/gpu.json"}

if ((${#failed[@]})); then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo PASSED
