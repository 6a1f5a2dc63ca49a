#!/usr/bin/env bash
# The conformance suite between two hosts: the server in guest 0, the suite in guest 1.
#
#   ci/vm/run.sh --guests 2 -- tests/conformance/two_guests.sh build/dev [GTEST_ARGUMENT...]
#
# Tests that need their server in their own process, or that kill it, are skipped and say so.
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
case $REMORA_VM_GUEST in
  0)
    "$program" --helper server orphan=1 stdin=ignore transport=rdma port=$port \
      pool=$((64 << 20)) piece=$((1 << 20)) >/tmp/server.out &
    server=$!
    for ((i = 0; i < 300; ++i)); do
      if grep -q '^listening' /tmp/server.out; then break; fi
      kill -0 "$server" || { echo "two_guests: the server did not start" >&2; exit 1; }
      sleep 0.1
    done
    vm-signal listening
    vm-wait finished "${REMORA_TEST_TIMEOUT:-900}"
    kill -TERM "$server"
    wait "$server"
    echo "server: ended cleanly"
    ;;
  *)
    status=0
    vm-wait listening 60
    REMORA_TEST_TRANSPORT=rdma REMORA_TEST_SERVER=$REMORA_VM_PEER_ADDRESS:$port \
      "$program" "$@" || status=$?
    vm-signal finished
    exit "$status"
    ;;
esac
