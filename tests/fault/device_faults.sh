#!/usr/bin/env bash
# RDMA devices that there are several of, and that go and come back, under a verifying load. In a
# guest of ci/vm with root and Soft-RoCE:  tests/fault/device_faults.sh BUILD_TREE [PART...]
#
# Parts: several (two devices: atomics and locks of each region go by the one that has the address), removal (`rdma link
# del` and `add`, REMORA_FAULT_ROUNDS of them: 3), address (the address goes and comes back).
set -euo pipefail

tree=${1:?which build tree?}
shift
parts=${*:-several removal address}
# shellcheck source=device_functions.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/device_functions.sh"
set_rounds 3 20

# serve ADDRESS
serve() {
  start_server <<YAML
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
}
status() { curl -sf --max-time 2 http://127.0.0.1:9471/status; }

# What the kernel has for the device beside what it makes for itself.
held() { rdma resource show "$1" 2>/dev/null || rdma resource | grep "$1:"; }

# start_load OPTION...
start_load() { run_load --uri "remora://$address:7471/cache?transport=rdma" --seed 7 "$@"; }

# count_under_lock URI: two processes count to 10 each under one lock, by reads and writes: the last one
# finds all of them.
count_under_lock() {
  local first counted
  "$tree/apps/lock" "$1" 10 >"$work/lock.first" 2>&1 &
  first=$!
  "$tree/apps/lock" "$1" 10 >"$work/lock.second" 2>&1 || return 1
  wait "$first" || return 1
  counted=$(sed -n 's/^counted to \([0-9]*\), token .*/\1/p' "$work"/lock.{first,second} | sort -n | tail -n 1)
  [[ $counted == 20 ]]
}

part_several() {
  add_veth 10.78.0.1
  rdma link add rxe1 type rxe netdev a0
  serve 10.78.0.1
  local uri=remora://10.78.0.1:7471
  is 'two devices: the one of the address serves' \
    test "$(status | jq -r '[.devices[].name] | join(" ")')" = rxe1
  is 'two devices: the other one is left out, with its reason' \
    test "$(status | jq -r '.devices_left_out[] | select(.name == "rxe0") | .reason')" = \
    'listen.address is an address of rxe1'
  is 'two devices: the log says so' \
    grep -q 'rdma: rxe0 is left out: listen.address is an address of rxe1' "$work/server.log"
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
  # Compare-and-swap, fences and the renewal of the lock's grant.
  is 'two devices: a lock on a configured region' count_under_lock "$uri/words?transport=rdma"
  is 'two devices: a lock on a created region' count_under_lock "$uri/made?transport=rdma"
  # The other device has no part in it.
  is 'two devices: nothing is on the other one' \
    grep -q 'qp 1 cm_id 0 mr 0 ' <<<"$(held "$device")"
  stop_server
  rdma link del rxe1
  ip link del a0
}

part_removal() {
  serve "$address"
  local baseline round
  start_load --log info
  sleep 3
  for ((round = 1; round <= rounds; ++round)); do
    delete_device "$device" "removal $round" server.log load.err
    is "removal $round: /readyz says that it has gone" await 30 not_ready
    is "removal $round: /status says so" \
      test "$(status | jq -r '.devices[0].state')" = gone
    sleep 1
    rdma link add "$device" type rxe netdev "$netdev"
    is "removal $round: the server serves again" await 100 ready
    is "removal $round: the session has come back" await 100 resumed "$round"
    ((round == rounds)) || sleep 2
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

# seconds_of_load: how many operations were ok in each second of the load so far, a line each.
seconds_of_load() { sed -n 's/^fault_load: ok \([0-9]*\)$/\1/p' "$work/load.err"; }
has_seconds() { (($(seconds_of_load | wc -l) >= $1)); }
# regained SECONDS RATE: of the ten seconds after so many, one had 90 % of the rate.
regained() { seconds_of_load | awk -v from="$1" -v rate="$2" 'NR > from && NR <= from + 10 && $1 >= 0.9 * rate { found = 1 } END { exit !found }'; }

part_address() {
  serve "$address"
  # Fewer than an emulated device carries out, so that the load sets the rate.
  load_rate=200
  start_load --each-second
  is 'address: the load is under way' await 300 has_seconds 8
  local before after rate seconds
  # The median of five.
  rate=$(seconds_of_load | tail -n 5 | sort -n | sed -n 3p)
  is "address: the load has a rate ($rate in a second)" at_least "${rate:-0}" 50
  before=$(jq -n 'now')
  ip addr del "$address/24" dev "$netdev"
  sleep 2
  ip addr add "$address/24" dev "$netdev"
  is 'address: the session has come back' await 100 resumed 1
  seconds=$(seconds_of_load | wc -l)
  after=$(jq -n 'now')
  is "address: within ten seconds of the load it has 90 % of its rate ($rate in a second)" \
    await 300 regained "$seconds" "$rate"
  echo "address: operations in each second: $(seconds_of_load | tr '\n' ' ')"
  echo "address: gone for 2 s; resumed after $(jq -n "$after - $before") s"
  judge_load address
  is "address: no read was lost" test "$(jq -r '.failed["connection lost"] // 0' "$work/load.json")" = 0
  stop_server
}

for part in $parts; do "part_$part"; done
echo "$failures failed"
((failures == 0))
