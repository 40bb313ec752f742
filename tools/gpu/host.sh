#!/usr/bin/env bash
# Run the GPU checks on a bare host: environment, compile caches of an earlier run, steps, caches for the next run.
#
#   tools/gpu/host.sh OUT STEP...
#
# STEP is one of: driver tests memcheck equal12 equal48 tokens48 idle fp8 plain_cliff vamp_cliff calibrate doctor serve
# record_replay record_sweep record_fill experts save. `idle` is what VAMP costs with nothing offloaded, growth, padded
# graphs and the soak, at full depth; `fp8` is equal12 with FP8 weights. Every step writes its log and its JSON to OUT and
# prints a short tail; a step that fails does not stop the others. Packed Python packages are taken from .gpu/up.sh,
# compile caches from .gpu-cache/caches.* (pieces that `save` made), each if it is there.
set -uo pipefail
OUT=$1
shift
mkdir -p "$OUT"
MODEL=data/models/qwen3-next-tp2-rank
[ -f .gpu/up.sh ] && . .gpu/up.sh
if ls .gpu-cache/caches.* >/dev/null 2>&1 && [ ! -e ~/.cache/vllm/.restored ]; then
  cat .gpu-cache/caches.* | tar -xJf - -C ~ && touch ~/.cache/vllm/.restored
fi

python3 -m tools.gpu.environment >"$OUT/environment.json" 2>/dev/null

step() { # step NAME LINES SECONDS COMMAND...
  local name=$1 lines=$2 limit=$3 start=$SECONDS status
  shift 3
  timeout -k 10 "$limit" "$@" >"$OUT/$name.log" 2>&1
  status=$?
  echo "== $name: status $status, $((SECONDS - start)) s"
  grep -v -E "INFO|WARNING|^\s*$|it/s\]" "$OUT/$name.log" | tail -n "$lines" | cut -c1-220
}

for wanted in "$@"; do
  case $wanted in
    driver) step driver 30 120 python3 -m tools.gpu.check_driver --out "$OUT/driver.json" ;;
    tests) step tests 40 240 python3 -m pytest -q -p no:cacheprovider tests/gpu ;;
    memcheck) step memcheck 12 110 compute-sanitizer --tool memcheck --report-api-errors no python3 -m pytest -q -p no:cacheprovider tests/gpu ;;
    equal12) step equal12 60 560 python3 -m tools.gpu.engine_check --model $MODEL --depth 12 --out "$OUT/equal12" ;;
    equal48) step equal48 60 590 python3 -m tools.gpu.engine_check --model $MODEL --out "$OUT/equal48" ;;
    tokens48) step tokens48 60 400 python3 -m tools.gpu.engine_check --model $MODEL --only tokens --only warm --only costs \
      --only growth --only "decode, nothing" --out "$OUT/tokens48" ;;
    idle) step idle 60 590 python3 -m tools.gpu.engine_check --model $MODEL --only '^warm up$' --only '^costs$' \
      --only '^tokens$' --only '^decode$' --only 'nothing offloaded$' --only 'nothing staged' --only 'padded' --only '^growth' \
      --only 'soak' --out "$OUT/idle" ;;
    fp8) step fp8 60 560 env VLLM_USE_DEEP_GEMM=0 VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER=0 \
      python3 -m tools.gpu.engine_check --model $MODEL-fp8 --depth 12 --out "$OUT/fp8" ;;
    plain_cliff | vamp_cliff)
      step "$wanted" 12 400 python3 -m tools.gpu.cliff --model $MODEL --system "${wanted%_cliff}" --out "$OUT/$wanted.json" ;;
    calibrate) step calibrate 60 590 python3 -m vamp.calibrate --model $MODEL --out "$OUT/calibrate.json" ;;
    doctor) step doctor 20 120 python3 -m vamp.doctor $MODEL ;;
    serve) step serve 30 580 python3 -m tools.gpu.serve_check --out "$OUT/serve.json" ;;
    # RATIOS=0,15 and LEVELS=16,28 choose what is run; every finished run is in OUT at once
    record_replay) step record_replay 30 590 python3 -m tools.gpu.runs --kind replay --ratios "${RATIOS:-0,15,20}" --out "$OUT" ;;
    record_sweep)
      step record_sweep 60 590 python3 -m tools.gpu.runs --kind inhouse --ratios "${RATIOS:-0,15}" ${LEVELS:+--concurrency "$LEVELS"} --out "$OUT" ;;
    record_fill) step record_fill 30 590 python3 -m tools.gpu.runs --kind fill --ratios "${RATIOS:-0,15,20}" --out "$OUT" ;;
    experts) step experts 20 400 python3 -m tools.gpu.experts --model $MODEL --out "$OUT/experts.json" ;;
    save) tar -C ~ -cJf - .cache/vllm .triton 2>/dev/null | split -b 15M - "$OUT/caches." && du -ch "$OUT"/caches.* | tail -1 ;;
    *) echo "unknown step $wanted" >&2; exit 2 ;;
  esac
done
