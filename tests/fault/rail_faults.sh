#!/usr/bin/env bash
# A session with lanes over two RDMA devices, one of which is cut under a verifying load. In a guest
# of ci/vm with root and Soft-RoCE:  tests/fault/rail_faults.sh BUILD_TREE [PART...]
#
# Parts: second (the device goes that the session was not opened over, and comes back,
# REMORA_FAULT_ROUNDS times: 2), first (that of the control channel and of the region's atomics).
set -euo pipefail

tree=${1:?which build tree?}
shift
parts=${*:-second first}
rounds=${REMORA_FAULT_ROUNDS:-2}
[[ $rounds == long ]] && rounds=10
[[ $rounds =~ ^[0-9]+$ ]] || rounds=2
load=$tree/tests/fault/fault_load server_program=$tree/apps/remora-server
device=${REMORA_VM_DEVICE:-rxe0} netdev=${REMORA_VM_NETDEV:-veth0} address=${REMORA_VM_ADDRESS:-}
if [[ ! $address ]]; then
  if [[ ${REMORA_REQUIRE_DEVICE:-} == 1 ]]; then
    echo 'rail_faults.sh: no guest of ci/vm, and a device is required' >&2
    exit 1
  fi
  echo 'rail_faults.sh: skipped: this is no guest of ci/vm'
  exit 77
fi
work=$(mktemp -d /tmp/rail-faults.XXXXXX)
failures=0 server='' loader=''

is() {
  local name=$1
  shift
  if "$@"; then
    echo "ok: $name"
  else
    echo "FAILED: $name: $*"
    failures=$((failures + 1))
  fi
}
at_most() { (($1 <= $2)); }
at_least() { (($1 >= $2)); }

# shellcheck disable=SC2317  # a trap
cleanup() {
  for child in $loader $server; do kill -KILL "$child" 2>/dev/null || true; done
  wait 2>/dev/null || true
  if ((failures != 0)); then
    tail -n 80 "$work"/*.log "$work"/*.err 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap cleanup EXIT

serve() {
  cat >"$work/server.yaml" <<YAML
listen: { address: 0.0.0.0, port: 7471 }
transports: { rdma: required, shm: off, tcp: off, rdma_device: [$device, rxe1] }
pool: { size: 32MiB, piece: 4MiB }
auth: none
limits: { session_keep: 60s, drain_timeout: 0s, resumes_per_minute: 1000 }
metrics: { address: "127.0.0.1:9471" }
log: { level: debug }
regions:
  - { name: cache, size: 4MiB, block: 4KiB, atomics: $device }
YAML
  "$server_program" --config "$work/server.yaml" >"$work/server.log" 2>&1 &
  server=$!
  await 300 ready
}
ready() { curl -sf --max-time 2 -o /dev/null http://127.0.0.1:9471/readyz; }
series() { curl -sf --max-time 2 http://127.0.0.1:9471/metrics | awk -v name="$1" 'index($0, name) == 1 { sum += $NF } END { print sum + 0 }'; }
# await TENTHS COMMAND...: until it succeeds.
await() {
  local tries=$1
  shift
  while ! "$@"; do
    ((tries-- > 0)) || return 1
    sleep 0.1
  done
}
stop_server() {
  kill -TERM "$server"
  wait "$server" || true
  server=''
}
ms() { date +%s%3N; }
# Lanes of sessions on a device, as the kernel has queue pairs of the load's process.
pairs_on() { rdma resource show qp link "$1" 2>/dev/null | grep -c "pid $loader" || true; }
has_pairs_on() { (($(pairs_on "$1") > 0)); }
resumed() { [[ $(series remora_server_sessions_resumed_total) -ge $1 ]]; }

# start_load SECONDS OPTION...
start_load() {
  local seconds=$1
  shift
  "$load" --uri "remora://$address:7471/cache?transport=rdma&rails=2" --seconds "$seconds" \
    --seed 11 --rate 2000 --json "$@" >"$work/load.json" 2>"$work/load.err" &
  loader=$!
  await 100 has_pairs_on rxe1
}
# The load's own judgement, and the codes with which operations may end: what was posted on the
# device that went, and may have been carried out, is kIndeterminate. Nothing else may fail.
judge_load() {
  local name=$1 code=0 other
  wait "$loader" || code=$?
  loader=''
  is "$name: the load found nothing wrong" test "$code" = 0
  is "$name: no violation" test "$(jq -r .violations_total "$work/load.json")" = 0
  other=$(jq -r '[.failed | to_entries[] | select(.key != "indeterminate") | .value] | add // 0' \
    "$work/load.json")
  is "$name: no operation failed that could have been carried out ($other)" test "$other" = 0
  is "$name: no session was lost" test "$(jq -r .lost "$work/load.json")" = 0
  jq -c '{ok, failed, interrupted, resumed, longest_verdict_ms, longest_overrun_ms, longest_silence_ms}' \
    "$work/load.json" || true
}

add_second() { rdma link add rxe1 type rxe netdev a0; }
prepare() {
  ip link add a0 mtu 9000 type veth peer name a1 mtu 9000
  ip addr add 10.79.0.1/24 dev a0
  ip link set a0 up
  ip link set a1 up
  add_second
}

part_second() {
  serve
  start_load $((rounds * 16 + 12))
  is 'second: the session has lanes on both devices' has_pairs_on "$device"
  sleep 3
  local round began took
  for ((round = 1; round <= rounds; ++round)); do
    began=$(ms)
    timeout 60 rdma link del rxe1 || true
    took=$(($(ms) - began))
    is "second $round: 'rdma link del' returned within 5 s ($took ms)" at_most "$took" 5000
    is "second $round: the session has resumed" await 50 resumed $((2 * round - 1))
    sleep 2
    add_second
    is "second $round: the session takes the rail back" await 100 has_pairs_on rxe1
    sleep 2
  done
  judge_load second
  is 'second: the session resumed twice each time: without the rail, and with it' \
    at_least "$(jq -r .resumed "$work/load.json")" $((2 * rounds))
  stop_server
}

part_first() {
  serve
  # Without atomics: theirs is the device that goes.
  start_load 24 --swaps 0 --adds 0
  sleep 3
  timeout 60 rdma link del "$device" || true
  is 'first: the session has resumed over the other device' await 50 resumed 1
  sleep 3
  rdma link add "$device" type rxe netdev "$netdev"
  is 'first: the session takes the rail back' await 100 has_pairs_on "$device"
  judge_load first
  stop_server
}

prepare
for part in $parts; do "part_$part"; done
rdma link del rxe1 2>/dev/null || true
ip link del a0
echo "$failures failed"
((failures == 0))
