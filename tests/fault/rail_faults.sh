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
# shellcheck source=device_functions.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/device_functions.sh"
set_rounds 2 10

serve() {
  start_server <<YAML
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
}
# lanes_made DEVICE: how many lanes the load has made over it, by its log. (The kernel names the
# thread that made a queue pair, and that one has ended.)
lanes_made() { grep -c "client lane: queue pair [0-9]* on $1:" "$work/load.err" || true; }
# has_made_lanes DEVICE COUNT: whether the load has made more than COUNT.
has_made_lanes() { (($(lanes_made "$1") > $2)); }

# start_load OPTION... The deadline is more than a busy emulator needs to leave one rail for the other, and
# less than the 29 s for which a sound device was once lost with the one that had gone.
start_load() {
  run_load --uri "remora://$address:7471/cache?transport=rdma&rails=2" --deadline-ms 10000 --seed 11 \
    --log debug "$@"
  await 300 grep -q 'under way' "$work/load.err"
}
# judge_rails NAME: the load's own judgement, and the codes with which operations may end: what was
# posted on the device that went, and may have been carried out, is kIndeterminate. Nothing else may
# fail.
judge_rails() {
  local other
  judge_load "$1"
  other=$(jq -r '[.failed | to_entries[] | select(.key != "indeterminate") | .value] | add // 0' \
    "$work/load.json")
  is "$1: no operation failed that could have been carried out ($other)" test "$other" = 0
  is "$1: no session was lost" test "$(jq -r .lost "$work/load.json")" = 0
}

both_have_lanes() { has_made_lanes "$device" 1 && has_made_lanes rxe1 1; }  # the warm-up has one
add_second() { rdma link add rxe1 type rxe netdev a0; }
prepare() {
  add_veth 10.79.0.1
  add_second
}

part_second() {
  serve
  start_load
  is 'second: the session has lanes over both devices' both_have_lanes
  sleep 3
  local round made
  for ((round = 1; round <= rounds; ++round)); do
    made=$(lanes_made rxe1)
    delete_device rxe1 "second $round" server.log
    is "second $round: the session has resumed" await 50 resumed $((2 * round - 1))
    sleep 2
    add_second
    # The pause before a rail is asked again doubles each time, from 1 s to 30 s.
    is "second $round: the session takes the rail back" await 400 has_made_lanes rxe1 "$made"
    ((round == rounds)) || sleep 2
  done
  judge_rails second
  is 'second: the session resumed twice each time: without the rail, and with it' \
    at_least "$(jq -r .resumed "$work/load.json")" $((2 * rounds))
  stop_server
}

part_first() {
  serve
  # Without atomics: theirs is the device that goes.
  start_load --swaps 0 --adds 0
  sleep 3
  local made
  made=$(lanes_made "$device")
  timeout 60 rdma link del "$device" || true
  is 'first: the session has resumed over the other device' await 50 resumed 1
  sleep 3
  rdma link add "$device" type rxe netdev "$netdev"
  is 'first: the session takes the rail back' await 400 has_made_lanes "$device" "$made"
  judge_rails first
  stop_server
}

prepare
for part in $parts; do "part_$part"; done
rdma link del rxe1 2>/dev/null || true
ip link del a0
echo "$failures failed"
((failures == 0))
