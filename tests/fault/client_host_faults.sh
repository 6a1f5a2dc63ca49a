#!/usr/bin/env bash
# A client's whole host is gone, under load, over rdma: the server in guest 0, with a neighbour that
# goes on, the client in guest 1.
#
#   ci/vm/run.sh --guests 2 -- tests/fault/client_host_faults.sh build/dev
#
# One round a pair of guests. Prints a line and GoogleTest's verdict. Exit status 1: it failed.
# shellcheck disable=SC2119  # start_server: no prefix here
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=link_faults.sh
. "$here/link_faults.sh"

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0"
  exit $(($# == 0 ? 2 : 0))
fi
[[ ${REMORA_VM_GUESTS:-} == 2 ]] || link_die "run it by ci/vm/run.sh --guests 2"
link_arguments "$@"

# shellcheck disable=SC2034  # link_faults.sh
transport=rdma server_address=10.77.0.1 client_prefix=(env)
# shellcheck disable=SC2034  # link_faults.sh
mixes=('')

if [[ $REMORA_VM_GUEST == 1 ]]; then
  vm-wait neighbour.counted 180
  start_load kill 120 0 --rate 300 --depth 16
  loads_say 'under way' 60
  vm-signal client.under.way
  vm-wait client.counted 60
  sleep 1
  vm-signal client.gone
  vm-kill
fi

# How much the server has of what a client makes it hold.
held() {
  curl -sf --max-time 5 http://127.0.0.1:9471/metrics |
    awk -v name="^$1[ {]" '$0 ~ name { sum += $NF } END { print sum + 0 }'
}

start_server
# It is there before the count of what the server holds, and stays until it is told to end.
start_load partition-1 300 0 --rate 200 --depth 16
loads_say 'under way' 60
baseline=$(rdma resource show) sessions_before=$(sessions) grants_before=$(held remora_server_grants)
holds_before=$(server_holds_settled "$server" http://127.0.0.1:9471)
vm-signal neighbour.counted
vm-wait client.under.way 180
test_name=client-kill broken=0 extra=''
test_began=$(milliseconds)
echo "[ RUN      ] LinkFaultTest.client-kill/rdma"
(($(sessions) > sessions_before)) || wrong "the client of the other guest has no session"
[[ $(rdma resource show) != "$baseline" ]] || wrong "the client of the other guest has no device objects"
vm-signal client.counted
vm-wait client.gone 60
began=$(milliseconds)
# A lease of 10 s, and 10 s for which the session is kept.
for ((try = 0; try < 160; ++try)); do
  if [[ $(sessions) == "$sessions_before" && $(rdma resource show) == "$baseline" ]]; then break; fi
  sleep 0.25
done
took=$(($(milliseconds) - began))
[[ $(sessions) == "$sessions_before" ]] || wrong "the server still has $(sessions) sessions, with those it keeps"
[[ $(held remora_server_grants) == "$grants_before" ]] || wrong "the server still has $(held remora_server_grants) grants"
if [[ $(rdma resource show) != "$baseline" ]]; then
  wrong "the server's device objects were $baseline and are $(rdma resource show)"
fi
await 10 "$holds_before" server_holds "$server" http://127.0.0.1:9471 ||
  wrong "I8: the server held $holds_before and now holds $found"
((took <= 25000)) || wrong "that took $took ms"
kill -TERM "${load_pids[@]}" 2>/dev/null || true
end_loads
[[ $(value '[.failed[]] | add // 0') == 0 ]] || wrong "operations of the neighbour failed"
[[ $(value .interrupted) == 0 ]] || wrong "the neighbour's session was interrupted"
extra="released_after_ms=$took "
end_test 1
((failures == 0))
