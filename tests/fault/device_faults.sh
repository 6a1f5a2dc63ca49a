#!/usr/bin/env bash
# RDMA devices that there are several of, and that go and come back, under a verifying load. In a
# guest of ci/vm with root and Soft-RoCE:  tests/fault/device_faults.sh BUILD_TREE [PART...]
#
# Parts: several (two devices: everything goes by the one that has the address), removal (`rdma link
# del` and `add`, REMORA_FAULT_ROUNDS of them: 3), address (the address goes and comes back).
set -euo pipefail

tree=${1:?which build tree?}
shift
parts=${*:-several removal address}
rounds=${REMORA_FAULT_ROUNDS:-3}
[[ $rounds == long ]] && rounds=20
[[ $rounds =~ ^[0-9]+$ ]] || rounds=3
load=$tree/tests/fault/fault_load server_program=$tree/apps/remora-server remora=$tree/apps/remora
device=${REMORA_VM_DEVICE:-rxe0} netdev=${REMORA_VM_NETDEV:-veth0} address=${REMORA_VM_ADDRESS:-}
if [[ ! $address ]]; then
  if [[ ${REMORA_REQUIRE_DEVICE:-} == 1 ]]; then
    echo 'device_faults.sh: no guest of ci/vm, and a device is required' >&2
    exit 1
  fi
  echo 'device_faults.sh: skipped: this is no guest of ci/vm'
  exit 77
fi
work=$(mktemp -d /tmp/device-faults.XXXXXX)
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
    tail -n 60 "$work"/*.log "$work"/*.err 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap cleanup EXIT

# serve ADDRESS
serve() {
  cat >"$work/server.yaml" <<YAML
listen: { address: $1, port: 7471 }
transports: { rdma: required, shm: off, tcp: off }
pool: { size: 32MiB, piece: 4MiB }
auth: none
limits: { session_keep: 60s, drain_timeout: 0s }
metrics: { address: "127.0.0.1:9471" }
log: { level: debug }
regions:
  - { name: cache, size: 4MiB, block: 4KiB }
  - { name: words, size: 64KiB, block: 64B }
YAML
  "$server_program" --config "$work/server.yaml" >"$work/server.log" 2>&1 &
  server=$!
  await 300 ready
}
ready() { curl -sf --max-time 2 -o /dev/null http://127.0.0.1:9471/readyz; }
status() { curl -sf --max-time 2 http://127.0.0.1:9471/status; }
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

# What the kernel has for the device beside what it makes for itself.
held() { rdma resource show "$1" 2>/dev/null || rdma resource | grep "$1:"; }

start_load() {
  "$load" --uri "remora://$address:7471/cache?transport=rdma" --seconds "$1" --seed 7 --rate 2000 \
    --json >"$work/load.json" 2>"$work/load.err" &
  loader=$!
}
# The load's own judgement: an operation that was late, a wrong byte, an atomic too many.
judge_load() {
  local code=0
  wait "$loader" || code=$?
  loader=''
  is "$1: the load found nothing wrong" test "$code" = 0
  is "$1: no violation" test "$(jq -r .violations_total "$work/load.json")" = 0
  jq -c '{ok, failed, first_failed, interrupted, resumed, lost, longest_verdict_ms, longest_overrun_ms, longest_silence_ms, violations: .violations[:3]}' \
    "$work/load.json" || true
}
resumed() { [[ $(series remora_server_sessions_resumed_total) -ge $1 ]]; }

part_several() {
  ip link add a0 mtu 9000 type veth peer name a1 mtu 9000
  ip addr add 10.78.0.1/24 dev a0
  ip link set a0 up
  ip link set a1 up
  rdma link add rxe1 type rxe netdev a0
  serve 10.78.0.1
  local uri=remora://10.78.0.1:7471
  is 'two devices: the one of the address serves' \
    test "$(status | jq -r '[.devices[].name] | join(" ")')" = rxe1
  is 'two devices: the other one is left out, with its reason' \
    test "$(status | jq -r '.devices_left_out[] | select(.name == "rxe0") | .reason')" = \
    'listen.address is an address of rxe1'
  is 'two devices: a series tells' test "$(series 'remora_server_rdma_device_serving{device="rxe0"}')" = 0
  is 'two devices: and of the other' test "$(series 'remora_server_rdma_device_serving{device="rxe1"}')" = 1
  is 'two devices: configured regions are of it' \
    test "$(status | jq -r '[.regions[].atomics] | unique | join(" ")')" = rxe1
  is 'two devices: an atomic on a configured region' \
    "$remora" add "$uri/words?transport=rdma" --offset 0 1
  "$remora" create "$uri/made?transport=rdma" --size 64KiB || true
  is 'two devices: a created region is of it' \
    test "$(status | jq -r '.regions[] | select(.name == "made") | .atomics')" = rxe1
  is 'two devices: an atomic on a created region' "$remora" add "$uri/made?transport=rdma" --offset 0 1
  stop_server
  rdma link del rxe1
  ip link del a0
}

part_removal() {
  serve "$address"
  local baseline round began took
  start_load $((rounds * 8 + 10))
  sleep 3
  for ((round = 1; round <= rounds; ++round)); do
    began=$(ms)
    timeout 60 rdma link del "$device" || true
    took=$(($(ms) - began))
    is "removal $round: 'rdma link del' returned within 5 s ($took ms)" at_most "$took" 5000
    is "removal $round: /readyz says that it has gone" await 30 not_ready
    is "removal $round: /status says so" \
      test "$(status | jq -r '.devices[0].state')" = gone
    sleep 1
    rdma link add "$device" type rxe netdev "$netdev"
    is "removal $round: the server serves again" await 100 ready
    is "removal $round: the session has come back" await 100 resumed "$round"
    sleep 2
  done
  is 'removal: losses are counted' \
    test "$(series remora_server_rdma_device_losses_total)" = "$rounds"
  judge_load removal
  is 'removal: the session resumed each time' at_least "$(jq -r .resumed "$work/load.json")" "$rounds"
  stop_server
  sleep 1
  baseline=$(held "$device")
  is "removal: nothing is left on the device: $baseline" \
    grep -q 'qp 1 cm_id 0 mr 0 ctx 0' <<<"$baseline"
}
not_ready() { ! ready; }

part_address() {
  serve "$address"
  start_load 25
  sleep 4
  local before after
  before=$(jq -n 'now')
  ip addr del "$address/24" dev "$netdev"
  sleep 2
  ip addr add "$address/24" dev "$netdev"
  is 'address: the session has come back' await 100 resumed 1
  after=$(jq -n 'now')
  echo "address: gone for 2 s; resumed after $(jq -n "$after - $before") s"
  judge_load address
  is "address: no read was lost" test "$(jq -r '.failed["connection lost"] // 0' "$work/load.json")" = 0
  stop_server
}

for part in $parts; do "part_$part"; done
echo "$failures failed"
((failures == 0))
