#!/usr/bin/env bash
# Everything that a GPU machine has to show: the suites on the CUDA device, then the figures. Needs the
# package and the testing library (OOCDNN_TESTING_LIBRARY); goes on after a failure and says so last.
# The whole takes more than an hour; STEPS names what of it to run, SPILL which parts of the step spill,
# LIMIT_BITS and LIMIT_NETWORKS names and options of the steps limit-bits and limit-networks.
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

# The architectures that the library says it has kernels for are those in its file; NVRTC compiles
# them where the file has none.
architectures() {
  local library=${OOCDNN_LIBRARY:?names the library} listed
  listed=$(cuobjdump --list-elf "$library" | grep -o 'sm_[0-9]*' | sort -uV | tr '\n' ' ')
  echo "in the file: $listed"
  python3 -m oocdnn info --json --device cuda | python3 -c "
import json, sys
(kernels,) = (c for c in json.load(sys.stdin)['core']['components'] if c['name'] == 'kernels')
print('said:', kernels['text'])
listed = '''$listed'''.strip()
sys.exit(kernels['text'] != f'built in for {listed}' if listed else 'NVRTC' not in kernels['text'])"
}

# `figures STEP STUDY OPTION...`
figures() {
  step "$1" python3 -m oocdnn bench study "$2" "${@:3}" ${OUT:+--out "$OUT/$1.json"}
}

# `benched NAME SECONDS OPTION...`: `oocdnn bench` with arrays in pinned memory, whose results are a
# folder. It goes on with what the folder holds, and begins nothing after so many seconds (BENCH_SECONDS);
# of long sets either the most telling comes first, or a sample. PyTorch pins by several threads.
benched() {
  local seconds=${BENCH_SECONDS:-$2}
  local -x PYTORCH_CUDA_ALLOC_CONF=pinned_use_cuda_host_register:True,pinned_num_register_threads:8
  step "bench-$1" timeout -k 9 $((seconds + 60)) python3 -m oocdnn bench --device cuda \
    --placement pinned --seconds "$seconds" "${@:3}" ${OUT:+--resume --out "$OUT/bench-$1"}
}

# `measured SCRIPT OPTION...`: rows of training steps within a limit of device memory.
measured() {
  env -u PYTHONSAFEPATH python3 "tests/gpu/$1.py" ${OUT:+--out "$OUT/training/$1.json"} "${@:2}"
}

# A sample of every set's problems, few images of each.
check_sets() {
  local one sets=()
  for one in vgg16 resnet18 resnet50 alexnet deepbench deepbench-inference poster modern large fused network; do
    sets+=(--set $one)
  done
  python3 -m oocdnn bench check --device cuda --placement pinned --quick "${sets[@]}" --shuffle \
    --seconds "${BENCH_SECONDS:-30}"
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
step operands python3 -m pytest -q tests/gpu/test_operands.py tests/gpu/test_prepared.py \
  tests/gpu/test_batches.py "$@"
step fused python3 -m pytest -q tests/gpu/test_fused.py tests/gpu/test_gradients_together.py \
  tests/gpu/test_chain.py "$@"
step normalization python3 -m pytest -q tests/gpu/test_normalization.py "$@"
step calibration python3 -m pytest -q -rs tests/gpu/test_calibration.py tests/gpu/test_beside.py "$@"
step training python3 -m pytest -q -rs tests/gpu/test_training.py tests/nn "$@"
step pins python3 -m pytest -q tests/gpu/test_pins.py tests/gpu/test_call_pins.py \
  tests/gpu/test_results.py "$@"
step swap python3 -m pytest -q tests/gpu/test_swap.py "$@"
step gradual python3 -m pytest -q tests/gpu/test_gradual.py "$@"
step plans python3 -m pytest -q tests/python/test_remembered.py \
  -k "next_context or follow or timed or fits" "$@"
step many-calls python3 -m pytest -q tests/gpu/test_many_calls.py "$@"
step two-gpus python3 -m pytest -q -rs tests/gpu/test_two_gpus.py tests/gpu/test_device_group.py \
  tests/gpu/test_spatial.py tests/gpu/test_borrowed_links.py "$@"
step torch python3 -m pytest -q -rs tests/gpu/test_torch.py tests/gpu/test_torch_peers.py tests/pytorch "$@"
step limit python3 -m pytest -q -rs tests/gpu/test_memory_limit.py tests/gpu/test_program.py \
  tests/gpu/test_compiled_backend.py "$@"
step limit-bits measured limit_bits ${LIMIT_BITS-}
step limit-networks python3 -m oocdnn bench training ${OUT:+--out "$OUT/training/limit_networks.json"} \
  ${LIMIT_NETWORKS---profile}
step readme python3 -m pytest -q tests/python/test_readme.py -k python_blocks "$@"
step python python3 -m pytest -q tests/python/test_functions.py tests/python/test_arrays.py \
  tests/python/test_files.py tests/python/test_context.py "$@"
step engine python3 -m pytest -q tests/engine "$@"
needs compute-sanitizer memcheck sanitizer memcheck
needs compute-sanitizer racecheck sanitizer racecheck
needs ninja without-nvcc tests/gpu/without_nvcc.sh
step dropin python3 tests/gpu/dropin_programs.py
step frontend env -u PYTHONSAFEPATH python3 tests/gpu/dropin_frontend.py
step spill python3 tests/gpu/spill_programs.py ${SPILL-} ${OUT:+--out "$OUT/spill.json"}
step pass-rates python3 tests/gpu/pass_rates.py
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
both=(--words f32/tf32 --words f32)
benched network 140 --set network --only n256 --only n64 --only n1024 "${both[@]}" --budget 14GiB \
  --warm 0.5 --peer torch --peer accumulate --peer checkpoint --peer save-on-cpu --peer layer-by-layer
benched poster 80 --set poster --words f32/tf32 --only c2048 --only c512 --only c1024 --only "" \
  --budget 4GiB --warm 0.5 --peer torch --peer prefetch --peer managed --peer zero-copy
benched poster 80 --set poster --words f32 --only c512 --only c1024 --only c256 --only "" \
  --budget 4GiB --warm 0.5 --peer torch --peer prefetch --peer managed
benched deepbench 40 --set deepbench --shuffle --words f32/tf32 --warm 0.2 --peer torch
benched large 50 --set large --only "video m" --only "video e" --only volume --only "decoder 4096" \
  --only U-Net --only "decoder 8192" --only "CT s" --only pathology --only "" --words bf16 \
  --budget 4GiB --warm 0.5 --peer torch
step bench-check check_sets
benched vgg16 50 --set vgg16 --shuffle --words f32/tf32 --warm 0.3 --peer torch --peer zero-copy
benched fused 50 --set fused --shuffle --words f32/tf32 --warm 0.3 --peer torch
step validate python3 -m oocdnn.perfmodel validate --device cuda:0 ${OUT:+--out "$OUT/validate.json"}

if ((${#failed[@]})); then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo PASSED
