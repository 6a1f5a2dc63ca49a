#!/usr/bin/env bash
# Runs in both guests of ci/vm: what wants client and server on two hosts, in one boot, with the smallest
# counts that would have found what was ever found (tests/fault/docs/counts.md).
#
#   ci/vm/run.sh --guests 2 -- ci/two_guests_suites.sh "$PWD/build/dev"
#
# The server's guest is killed at the end. Prints GoogleTest's verdicts. Exit status 1: a suite failed here.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
(($# == 1)) || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
[[ ${REMORA_VM_GUESTS:-} == 2 ]] || { echo "two_guests_suites: run it by ci/vm/run.sh --guests 2" >&2; exit 2; }
tree=$1 status=0
# Of conformance, the suites that two hosts may change: what wires, orders, locks and refuses.
suites='*/ErrorTest.*:*/FenceTest.*:*/LanesTest.*:*/LifecycleTest.*:*/LockTest.*:*/QueueTest.*'

# suite NAME COMMAND...: in both guests, with signals of its own; neither begins before the other is there.
suite() {
  local name=$1
  shift
  export REMORA_VM_SIGNALS=$name
  vm-signal "ready.$REMORA_VM_GUEST"
  vm-wait "ready.$((1 - REMORA_VM_GUEST))" 900
  echo "suite: $name"
  "$@" || {
    echo "$name ended with status $?"
    status=1
    REMORA_VM_SIGNALS=suites vm-signal "failed.$REMORA_VM_GUEST"
  }
}

suite verbs "$tree/tests/rxe/rxe_verbs" '--gtest_filter=*TwoGuests*'
suite conformance "$here/../tests/conformance/two_guests.sh" "$tree" "--gtest_filter=$suites"
suite fabric "$here/../tests/rxe/fabric_settings.sh" "$tree"
export REMORA_FAULT_ROUNDS=least
suite faults "$here/../tests/fault/two_guests_faults.sh" "$tree" \
  --only '@(lane-error-*|server-kill|client-kill|server-stop-5|loss-5|partition-1|link-down-1|kill)'
# That has killed guest 0: guest 1 answers for both.
if REMORA_VM_SIGNALS=suites vm-wait failed.0 0 2>/dev/null; then status=1; fi
exit "$status"
