#!/usr/bin/env bash
# Runs the fuzzers: each over its committed corpus, then on from a copy of it for some time.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
source_dir=$root/tests/fuzz
build=$root/build/fuzz
all=(control_fuzz authentication_fuzz tcp_frames_fuzz yaml_fuzz uri_fuzz catalog_fuzz volume_records_fuzz)
seconds=30 seed=0 jobs=2 keep=0 chosen=()

usage() {
  cat <<'USAGE'
usage: tests/fuzz/run.sh [--seconds N] [--seed N] [--fuzzer NAME]... [--jobs N] [--build FOLDER]
                         [--keep]

Runs fuzzers that the preset `fuzz` has built: first over what is committed in
tests/fuzz/corpus/NAME, then N seconds (default 30; 0: not) on a copy of it. A line `ok - ...` or
`not ok - ...` for each part. Inputs that fail are kept in FOLDER/findings/NAME.

  --seed N       of what is tried (default: another one in each run)
  --fuzzer NAME  this one, with or without its `_fuzz`; may be given again (default: all)
  --jobs N       so many at a time (default 2)
  --build FOLDER what the preset has built (default build/fuzz)
  --keep         add to the corpus what was found and reaches something new, to be committed
USAGE
}
die() { printf 'fuzz: error: %s\n' "$*" >&2; exit 2; }

while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift ;;
    --seed) seed=${2:?--seed needs a number}; shift ;;
    --fuzzer) chosen+=("${2:?--fuzzer needs a name}"); shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    --build) build=$(realpath -- "${2:?--build needs a folder}"); shift ;;
    --keep) keep=1 ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
  shift
done
[[ $seconds =~ ^[0-9]+$ && $seed =~ ^[0-9]{1,9}$ && $jobs =~ ^[1-9][0-9]*$ ]] ||
  die "--seconds, --seed and --jobs take numbers"
((${#chosen[@]})) || chosen=("${all[@]}")
for i in "${!chosen[@]}"; do
  chosen[i]=${chosen[i]%_fuzz}_fuzz
  [[ " ${all[*]} " == *" ${chosen[i]} "* ]] || die "no fuzzer '${chosen[i]}'; there are: ${all[*]}"
  [[ -x $build/tests/fuzz/${chosen[i]} ]] ||
    die "${chosen[i]} is not built: cmake --preset fuzz && cmake --build --preset fuzz"
done

# Options of every run. Threads of a server free what the input's own thread has allocated, so
# libFuzzer's look for leaks after each run would take nearly all of the time: what leaks is found
# when the process ends.
options_of() {
  local name=$1
  printf '%s\n' -timeout=120 -rss_limit_mb=3072 -max_len=4096 -print_final_stats=1 -detect_leaks=0 \
    "-seed=$seed" "-artifact_prefix=$build/findings/$name/"
  [[ ! -f $source_dir/dictionaries/$name.dict ]] ||
    printf -- '-dict=%s\n' "$source_dir/dictionaries/$name.dict"
}

# part NAME TITLE LOG COMMAND...: runs it; its verdict goes to standard output.
part() {
  local name=$1 title=$2 log=$3 status=0 runs edges finding
  shift 3
  timeout --kill-after=10 $((seconds + 180)) "$@" >"$log" 2>&1 </dev/null || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | cut -d ' ' -f 2 || true)
  if ((status == 0 && ${runs:-0} > 0 && ${edges:-0} > 0)); then
    printf 'ok - fuzz: %s: %s%d runs, %d edges\n' "$name" "$title" "$runs" "$edges"
    return 0
  fi
  finding=$(sed -n 's/.*Test unit written to //p' "$log" | head -n 1)
  printf 'not ok - fuzz: %s: %s# exit status %d, see %s\n' "$name" "$title" "$status" "$log"
  grep -aE '^(property violated|SUMMARY|==[0-9]+==ERROR)' "$log" | head -n 5 || true
  if [[ $finding ]]; then
    printf 'to reproduce: %s %s\n' "$build/tests/fuzz/$name" "$finding"
    printf 'once it is mended: cp %s %s\n' "$finding" "$source_dir/corpus/$name/"
  else
    tail -n 20 "$log"
  fi
  return 1
}

fuzz() {
  local name=$1 work=$build/runs/$1 options status=0
  local program=$build/tests/fuzz/$name corpus=$source_dir/corpus/$name
  rm -rf "$work"
  mkdir -p "$work/corpus" "$build/findings/$name"
  mapfile -t options < <(options_of "$name")
  part "$name" "the corpus: " "$work/corpus.log" "$program" "${options[@]}" -runs=0 "$corpus" ||
    return 1
  if ((seconds == 0)); then return 0; fi
  cp "$corpus"/* "$work/corpus/"
  part "$name" "" "$work/fuzz.log" "$program" "${options[@]}" "-max_total_time=$seconds" \
    "$work/corpus" || status=1
  if ((keep)); then
    # The fewest and smallest that reach what all of them reach.
    "$program" "${options[@]}" -max_len=1024 -set_cover_merge=1 "$corpus" "$work/corpus" \
      >"$work/merge.log" 2>&1 || status=1
    for found in "$corpus"/????????????????????????????????????????; do
      [[ ! -f $found ]] || mv "$found" "$corpus/found-${found: -12}"
    done
  fi
  return "$status"
}

# So many at a time, each to a file of its own; shown in their order.
results=$(mktemp -d "${TMPDIR:-/tmp}/remora-fuzz.XXXXXX")
trap 'rm -rf "$results"' EXIT
running=0
for name in "${chosen[@]}"; do
  if ((running == jobs)); then
    wait -n || true
    running=$((running - 1))
  fi
  { fuzz "$name" >"$results/$name" 2>&1 && touch "$results/$name.ok"; } &
  running=$((running + 1))
done
wait || true
status=0
for name in "${chosen[@]}"; do
  cat "$results/$name"
  [[ -e $results/$name.ok ]] || status=1
done
exit "$status"
