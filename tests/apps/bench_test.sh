#!/usr/bin/env bash
# `remora bench`: numbers that agree with each other and with the memory, and every wrong option.
# shellcheck disable=SC2317,SC2119,SC2016  # functions are called by is; jq has variables
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

start_server
# bench NAME OPTIONS...: a short run that succeeds, as JSON.
bench() {
  local name=$1
  shift
  run 0 "$name" "$remora" bench "$(uri cache)" --seconds 0.3 --warmup 0.05 --json "$@"
}
# What holds of every result: sums over the operations are the whole, and percentiles ascend.
agrees='def ascends: .latency_ns | .p50 <= .p90 and .p90 <= .p99 and .p99 <= .p999 and .p999 <= .max;
  def sane: .operations > 0 and .errors == {} and .operations_per_second > 0 and .bytes > 0 and
    .latency_ns.mean > 0 and .latency_ns.p50 > 0 and ascends;
  def near($a; $b): ($a - $b | fabs) <= 1e-6 * $b;
  def agrees: sane and .cpu_ns_per_operation > 0 and ([.by_op[] | sane] | all) and
    ([.by_op[].operations] | add) == .operations and ([.by_op[].bytes] | add) == .bytes and
    ([.by_op[].latency_ns.max] | max) == .latency_ns.max and
    near(.operations / .seconds; .operations_per_second) and near(.bytes / .seconds; .bytes_per_second);'

# --- one operation, one size, one depth -----------------------------------------------------------
for op in read write cas add; do
  bench "bench $op" --op "$op" --threads 2 --depth 8
  json "bench $op measures" "$agrees agrees and (.results | length) == 1 and (.results[0] | agrees) and
    .results[0].operations == .operations and .op == \"$op\" and (.by_op | keys) == [\"$op\"] and
    .transport == \"$transport\" and .depth == 8 and .threads == 2 and .batch == 0 and
    .pattern == \"random\" and .spin_ns == 50000 and .seed >= 0"
done
json "atomics are 8 bytes" '.size_bytes == 8 and .bytes == .operations * 8'
bench "sequential, in batches" --sequential --batch 4 --depth 8 --size 64KiB
json "they are told" '.pattern == "sequential" and .batch == 4 and .bytes == .operations * 65536'

bench "over several lanes" --lanes 3 --threads 3 --size 4KiB
lanes=3
[[ $transport == shm ]] && lanes=1  # to memory that is mapped there is one way
json "so many" ".lanes == $lanes and .threads == 3 and .operations > 0"

# --- mixes ----------------------------------------------------------------------------------------
bench "a mix" --op read:70,write:30 --size 64B --seed 42 --spin 1s
json "its parts are the whole" "$agrees agrees and .op == \"read:70,write:30\" and .seed == 42 and
  .spin_ns == 1000000000 and .by_op.read.weight == 70 and .by_op.write.weight == 30"
json "by their weights" '.operations < 500 or (.by_op.read.operations / .operations | . > 0.55 and . < 0.85)'
bench "all operations at once" --op read,write,cas,add --size 4KiB --spin 0 --threads 2
json "bytes by operation" "$agrees agrees and .spin_ns == 0 and (.by_op | length) == 4 and
  .by_op.read.bytes == .by_op.read.operations * 4096 and .by_op.cas.bytes == .by_op.cas.operations * 8"

# --- sweeps ---------------------------------------------------------------------------------------
bench "a sweep" --op read:1,write:1 --size 64B,4KiB --depth 1,4
json "each size at each depth" "$agrees [.results[] | [.size_bytes, .depth]] ==
  [[64, 1], [64, 4], [4096, 1], [4096, 4]] and ([.results[] | agrees] | all)"
json "nothing of one result stands at the top" 'has("operations") or has("size_bytes") | not'

# --- for people -----------------------------------------------------------------------------------
run 0 "a table" "$remora" bench "$(uri cache)" --op read:1,write:1 --size 64B,4KiB --depth 4 \
  --seconds 0.2 --warmup 0 --seed 7
is "the conditions, with the seed" has out "^random read:1,write:1 over $transport, 1 thread, 0.2 s each, spin 50us, seed 7$"
is "the head" has out 'size +depth +op +rate +bytes +mean +p50 +p90 +p99 +p99.9 +max +CPU/op +errors$'
is "a row an operation and one for all" same "$(awk '{ print $1, $2, $3 }' "$work/out" | tail -n +3 | grep -cE '^(64B|4KiB) 4 read|^write|^all')" 6
is "rates" has out ' read +[0-9.]+ [kM]?ops/s +[0-9.]+ [GM]B/s'
is "nothing is drawn where there is no terminal" same "$(cat "$work/err")" ""
drawn() {
  timeout 60 script -qec "'$remora' bench '$(uri cache)' --seconds 2.5 --warmup 0 >'$work/table'" \
    "$work/typescript" </dev/null >/dev/null && tr '\r' '\n' <"$work/typescript" >"$work/out"
}
if command -v script >/dev/null; then
  is "on a terminal" drawn
  is "a line each second" has out \
    'bench  4KiB depth 32  measuring  [0-9.]+ [kM]?ops/s  .*  p99 [0-9.]+ [num]?s  0 errors  [0-9]+ s left'
  is "it is wiped" same "$(grep -a $'\033' "$work/out" | tail -n 1)" $'\033[K'
fi

# --- the order of blocks --------------------------------------------------------------------------
run 0 "a fresh seed" "$remora" bench "$(uri cache)" --seconds 0.05 --warmup 0 --json
first=$(jq .seed "$work/out")
run 0 "another fresh seed" "$remora" bench "$(uri cache)" --seconds 0.05 --warmup 0 --json
is "each run has its own" test "$first" != "$(jq .seed "$work/out")"

# --- wrong options --------------------------------------------------------------------------------
# wrong PATTERN OPTIONS...: a usage error, in one line that says what is expected.
wrong() {
  local pattern=$1
  shift
  run 2 "refused: $*" "$remora" bench "$(uri cache)" --seconds 0.1 "$@"
  says "  says $pattern" "^remora: .*$pattern"
  is "  in one line" same "$(wc -l <"$work/err")" 1
}
wrong "'fly' is no operation; expected read, write, cas or add" --op fly
wrong "did you mean 'write'" --op read:1,wirte:1
wrong "expected 1 to 1000000" --op read:0
wrong "to all or to none" --op read:70,write
wrong "read stands twice" --op read:1,read:2
wrong "write 4KiB" --size 4kb
wrong "is empty" --size 64B,
wrong "at least 1B" --size 0
wrong "expected 1 to 65536" --depth 1,0
wrong "at most 4" --depth 8,4 --batch 5
wrong "works on 8 bytes, not --size 4KiB" --op add --size 4KiB
wrong "multiple of 8, not 12B; the next above is 16B" --op read,cas --size 12B
wrong "multiple of 8, not 3B; the next below is 0B" --op add --offset 3B
wrong "holds no block of --size 64KiB; at least 64KiB" --size 4KiB,64KiB --length 8KiB
wrong "no --metrics" --linger 1
wrong "whole number" --seed -1
wrong "has no unit" --spin 5
wrong "excludes" --sequential --random
wrong "1 to 256" --threads 0
many=1$(printf ',%d' {2..32})
wrong "make 1024 runs; at most 256" --size "$many" --depth "$many"
# Numbers that are none, or out of their range, of every option that takes one.
for option in --seconds --warmup --linger --threads --lanes --batch --depth --size --offset --length \
  --spin --seed --timeout; do
  for value in nan inf -inf -1 1e999 ''; do
    run 2 "$option '$value' is refused" timeout 60 "$remora" bench "$(uri cache)" --metrics "$client_metrics" \
      "$option=$value"
  done
done
run 3 "blocks larger than the region" "$remora" bench "$(uri cache)" --size 4KiB,32MiB --seconds 0.1
says "before anything is measured" 'blocks of 33554432 bytes .* do not fit'
stop_server
is "nothing is left" nothing_left
finish
