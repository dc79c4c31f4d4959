#!/usr/bin/env bash
# Everything that a GPU machine has to show: the suites on the CUDA device, then the figures. Needs the
# package and the testing library (OOCDNN_TESTING_LIBRARY); goes on after a failure and says so last.
# The whole takes more than an hour; STEPS names what of it to run, SPILL which parts of the step spill.
#
#   [STEPS="memcheck floor"] [OUT=new folder of the figures] tests/gpu/run.sh [what is handed to pytest]
cd "$(dirname "$0")/../.." || exit
export OOCDNN_TEST_DEVICE=cuda PYTHONSAFEPATH=1
failed=()

wanted() {
  [[ -z ${STEPS-} || " $STEPS " == *" $1 "* ]]
}

step() {
  local name=$1 began=$SECONDS
  shift
  wanted "$name" || return 0
  "$@" || failed+=("$name")
  echo "== $name: $((SECONDS - began)) s"
}

# `needs TOOL NAME COMMAND...`: a step that is skipped, and says so, where the tool is not there.
needs() {
  local tool=$1
  shift
  if command -v "$tool" >/dev/null; then
    step "$@"
  elif wanted "$1"; then
    echo "== $1: skipped, there is no $tool"
  fi
}

# The folder of a script that is run is where its imports are.
smoke() {
  env -u PYTHONSAFEPATH "${@:2}" python3 tests/gpu/smoke.py --quick $1
}

# The architectures that the library says it has kernels for are those in its file.
architectures() {
  local library=${OOCDNN_LIBRARY:?names the library} listed
  listed=$(cuobjdump --list-elf "$library" | grep -o 'sm_[0-9]*' | sort -uV | tr '\n' ' ')
  echo "in the file: $listed"
  python3 -m oocdnn info --json --device cuda | python3 -c "
import json, sys
(kernels,) = (c for c in json.load(sys.stdin)['core']['components'] if c['name'] == 'kernels')
print('said:', kernels['text'])
sys.exit(not kernels['text'].endswith('''$listed'''.strip()))"
}

# `figures STEP STUDY OPTION...`
figures() {
  step "$1" python3 -m oocdnn bench study "$2" "${@:3}" ${OUT:+--out "$OUT/$1.json"}
}

# `benched NAME OPTION...`: `oocdnn bench` with arrays in pinned memory, whose results are a folder. It
# goes on with what the folder holds, and begins no problem after BENCH_SECONDS.
benched() {
  step "bench-$1" python3 -m oocdnn bench --device cuda --placement pinned "${@:2}" \
    ${BENCH_SECONDS:+--seconds "$BENCH_SECONDS"} ${OUT:+--resume --out "$OUT/bench-$1"}
}

# Every set, few images of each.
check_sets() {
  local one failed=0
  for one in vgg16 resnet18 resnet50 alexnet deepbench deepbench-inference poster fused network; do
    python3 -m oocdnn bench check --device cuda --placement pinned --quick --set $one || failed=1
  done
  return $failed
}

# Our own kernels only: cuDNN's are not ours to check, and many.
sanitizer() {
  smoke "--cases 40 --device cuda:0:direct" timeout 120 compute-sanitizer --tool "$1" \
    --report-api-errors no --error-exitcode 9
}

step info python3 -m oocdnn info --device cuda
needs cuobjdump architectures architectures
step device smoke ""
step conformance python3 -m pytest -q tests/conformance -k cuda "$@"
step operands python3 -m pytest -q tests/gpu/test_operands.py tests/gpu/test_batches.py "$@"
step fused python3 -m pytest -q tests/gpu/test_fused.py "$@"
step normalization python3 -m pytest -q tests/gpu/test_normalization.py "$@"
step calibration python3 -m pytest -q -rs tests/gpu/test_calibration.py "$@"
step training python3 -m pytest -q -rs tests/gpu/test_training.py tests/nn "$@"
step pins python3 -m pytest -q tests/gpu/test_pins.py tests/gpu/test_results.py "$@"
step many-calls python3 -m pytest -q tests/gpu/test_many_calls.py "$@"
step two-gpus python3 -m pytest -q -rs tests/gpu/test_two_gpus.py "$@"
step torch python3 -m pytest -q -rs tests/gpu/test_torch.py tests/pytorch "$@"
step readme python3 -m pytest -q tests/python/test_readme.py -k python_blocks "$@"
step python python3 -m pytest -q tests/python/test_functions.py tests/python/test_arrays.py \
  tests/python/test_files.py tests/python/test_context.py "$@"
step engine python3 -m pytest -q tests/engine "$@"
needs compute-sanitizer memcheck sanitizer memcheck
needs compute-sanitizer racecheck sanitizer racecheck
needs ninja without-nvcc tests/gpu/without_nvcc.sh
step dropin python3 tests/gpu/dropin_programs.py
step spill python3 tests/gpu/spill_programs.py ${SPILL-} ${OUT:+--out "$OUT/spill.json"}
step calibrate python3 -m oocdnn calibrate --device cuda
figures epilogue-rates passes
figures copies copies
figures wires wires
figures floor floor
figures in-core in-core --pinned
figures chain fused
figures depth-first chain
figures depth-first-resnet chain --network resnet50
figures samples samples
figures peers peers
figures workspace workspace
figures shares shares
step bench-check check_sets
benched vgg16 --set vgg16 --words f32/tf32
benched fused --set fused --words f32/tf32
benched poster --set poster --budget 4GiB
benched poster-tf32 --set poster --budget 4GiB --words f32/tf32
benched network --set network --budget 14GiB
benched network-tf32 --set network --budget 14GiB --words f32/tf32
benched large --set large --words bf16 --budget 4GiB --peer torch
benched deepbench --set deepbench --words f32/tf32 --peer torch
step validate python3 -m oocdnn.perfmodel validate --device cuda:0 ${OUT:+--out "$OUT/validate.json"}

if ((${#failed[@]})); then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo PASSED
