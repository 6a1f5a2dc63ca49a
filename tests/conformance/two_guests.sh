#!/usr/bin/env bash
# The conformance suite between two hosts: the server in guest 0, the suite in guest 1.
#
#   ci/vm/run.sh --guests 2 -- tests/conformance/two_guests.sh build/dev [GTEST_ARGUMENT...]
#
# Tests that look into their server are skipped and say so. Then two more servers are killed under load.
set -euo pipefail

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0"
  exit $(($# == 0 ? 2 : 0))
fi
program=$1/tests/conformance/conformance
shift
[[ -x $program ]] || { echo "two_guests: there is no $program: build it" >&2; exit 2; }
[[ ${REMORA_VM_GUESTS:-} == 2 ]] || { echo "two_guests: run it by ci/vm/run.sh --guests 2" >&2; exit 2; }

port=7471
loss='ServerKillTest.KilledServerEndsEachOperationOnce
ServerKillTest.OperationsTakenBeforeTheDeathAndSubmittedAfterItEndOnce'

# serve NUMBER: a server at port + NUMBER, in the background; its process id in `server`.
serve() {
  "$program" --helper server orphan=1 stdin=ignore transport=rdma port=$((port + $1)) \
    pool=$((64 << 20)) piece=$((64 << 10)) >"/tmp/server.$1" &
  server=$!
  for ((i = 0; i < 300; ++i)); do
    if grep -q '^listening' "/tmp/server.$1"; then break; fi
    kill -0 "$server" || { echo "two_guests: the server did not start" >&2; exit 1; }
    sleep 0.1
  done
  vm-signal "listening.$1"
}

# run NUMBER ARGUMENT...: the suite against that server.
run() {
  local number=$1
  shift
  vm-wait "listening.$number" 60
  REMORA_TEST_TRANSPORT=rdma REMORA_TEST_SERVER=$REMORA_VM_PEER_ADDRESS:$((port + number)) \
    "$program" "$@"
}

limit=${REMORA_TEST_TIMEOUT:-900}
if [[ $REMORA_VM_GUEST == 0 ]]; then
  serve 0
  vm-wait finished "$limit"
  kill -TERM "$server"
  wait "$server"
  echo "server: ended cleanly"
  number=0
  for _ in $loss; do
    number=$((number + 1))
    serve "$number"
    vm-wait "kill.$number" "$limit"
    kill -KILL "$server"
    wait "$server" || true
  done
else
  status=0
  run 0 "$@" || status=$?
  vm-signal finished
  number=0
  for name in $loss; do
    number=$((number + 1))
    REMORA_TEST_KILL="vm-signal kill.$number" run "$number" --gtest_filter="*$name/rdma" || status=$?
    vm-signal "kill.$number" # also where the test did not get so far
  done
  exit "$status"
fi
