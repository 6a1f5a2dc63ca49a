#!/usr/bin/env bash
# Faults of the link between two hosts, over rdma: the server in guest 0, the load in guest 1. Loss,
# duplication, reordering, corruption, partitions, a link that goes down, a host that is gone; lanes
# that break with requests in flight; servers and clients that are killed, servers that are stopped.
#
#   ci/vm/run.sh --guests 2 -- tests/fault/two_guests_faults.sh build/dev [--only PATTERN]
#
# The server's guest is killed at the end. Prints a line a fault and GoogleTest's verdicts.
# Exit status 1: a test failed.
# shellcheck disable=SC2119  # start_server and nothing_left: no prefix here
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=link_faults.sh
. "$here/link_faults.sh"
# shellcheck source-path=SCRIPTDIR source=lane_errors.sh
. "$here/lane_errors.sh"
# shellcheck source-path=SCRIPTDIR source=process_faults.sh
. "$here/process_faults.sh"

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0"
  link_help
  exit $(($# == 0 ? 2 : 0))
fi
[[ ${REMORA_VM_GUESTS:-} == 2 ]] || link_die "run it by ci/vm/run.sh --guests 2"
link_arguments "$@"
flight=$tree/tests/fault/fault_flight
[[ -x $flight ]] || link_die "there is no $flight: build it"
declare -A lane_rounds_of=([1]=3 [2]=20 [20]=200)
lane_rounds=${lane_rounds_of[$rounds]}
process_arguments

# shellcheck disable=SC2034  # link_faults.sh
transport=rdma server_address=10.77.0.1 client_prefix=(env)
# Never writes and atomics on one queue pair: rxe of Linux 6.1 answers a write that comes again with a
# plain acknowledgement of the last request of all, and takes such a one for an atomic's answer, whose
# old value is then never stored. See docs/rxe-faults.md.
# shellcheck disable=SC2034  # link_faults.sh
mixes=('--swaps 0 --adds 0' '--writes 0 --reads 6')
if [[ ${REMORA_FAULT_MIX:-} == all ]]; then mixes=(''); fi
patience=36000 # of one guest for the other; the runner's --timeout comes first

# Requests that came twice or not in order, answers that did, and packets sent again.
count_repairs() {
  local name sum=0
  for name in duplicate_request out_of_seq_request rcvd_seq_err completer_retry_err; do
    sum=$((sum + $(cat "/sys/class/infiniband/$REMORA_VM_DEVICE/ports/1/hw_counters/$name")))
  done
  echo "$sum"
}

link_here() { vm-link "$@"; }

# rxe of Linux 6.1 sends nothing by its connection manager any more, for any program, once that had
# something to say while the interface was down: one round a load, then a device anew. See docs/rxe-faults.md.
link_down_comes_back=no
renew_device() {
  rdma link delete "$REMORA_VM_DEVICE"
  rdma link add "$REMORA_VM_DEVICE" type rxe netdev "$REMORA_VM_NETDEV"
  local try
  for ((try = 0; try < 100; ++try)); do
    if grep -q '0a4d' "/sys/class/infiniband/$REMORA_VM_DEVICE/ports/1/gids"/* 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  link_die "$REMORA_VM_DEVICE did not come back"
}

# The other guest goes through the same faults in the same order.
link_both() {
  local name=$1 step=begin
  shift
  [[ $1 != pass ]] || step=end
  vm-signal "$step.$name"
  vm-wait "$step.$name.done" 60
  vm-link "$@"
}

server_impaired() { vm-wait "impaired.$1" 0 2>"$work/null"; }
server_repaired() { vm-wait "repaired.$1" 0 2>"$work/null"; }

# What the server's guest does while the client's conducts.
serve_faults() {
  local name arguments before
  while read -r name arguments; do
    chosen "$name" || continue
    vm-wait "begin.$name" "$patience"
    before=$(count_repairs)
    # shellcheck disable=SC2086  # words
    vm-link netem $arguments
    vm-signal "begin.$name.done"
    vm-wait "end.$name" "$patience"
    if (($(link_passed env) >= operations)); then vm-signal "impaired.$name"; fi
    vm-link pass
    if (($(count_repairs) > before)); then vm-signal "repaired.$name"; fi
    vm-signal "end.$name.done"
  done <<<"$netem_faults"
}

# The other host is gone, without a word, under load.
kill_test() {
  begin_test kill
  start_load kill 14 0 --rate 200 --depth 16 --deadline-ms 2000 --reconnect-seconds 5
  loads_say 'under way' 60
  sleep 2
  vm-signal kill
  end_loads
  [[ $(value '.looked_around | any') == false ]] || wrong "blocks could be read: the host was not gone"
  (($(value '[.failed[]] | add // 0') > 0)) || wrong "no operation failed: the host was not gone"
  [[ $(value .resumed) == 0 ]] || wrong "a session was resumed"
  end_test 1
}

if [[ $REMORA_VM_GUEST == 0 ]]; then
  start_server
  if lane_errors_chosen; then start_lane_error_servers; fi
  baseline=$(rdma resource show)
  vm-signal listening
  serve_process_faults
  serve_faults
  vm-wait calm "$patience"
  nothing_left
  for ((try = 0; try < 40; ++try)); do
    left=$(rdma resource show)
    [[ $left != "$baseline" ]] || break
    sleep 0.25
  done
  if [[ $left != "$baseline" ]]; then
    echo "the server's device objects were $baseline and are $left"
    failures=$((failures + 1))
  fi
  if ((failures)); then vm-signal server.failed; fi
  vm-signal looked
  chosen kill || exit "$failures"
  vm-wait kill 120
  vm-kill
fi

vm-wait listening 120
client_objects=$(host_objects)
process_tests # first: they begin with what an unused server holds
lane_error_tests
if chosen kill || chosen_any; then link_tests; fi
vm-signal calm
vm-wait looked 180
if vm-wait server.failed 0 2>"$work/null"; then failures=$((failures + 1)); fi
if chosen kill; then kill_test; fi
echo "$((tests - failures)) of $tests tests passed here"
((failures == 0))
