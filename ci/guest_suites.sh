#!/usr/bin/env bash
# Runs in the guest of ci/vm: all suites of one tier that need a device and one host, in one boot.
#
#   ci/vm/run.sh --memory 4G -- ci/guest_suites.sh "$PWD/build/dev" fast|gate|full|long [all|threads|rest [LISTED]]
#   ci/guest_suites.sh --list LISTED "$PWD/build/dev" ...     (not in a guest: lists the tests for the other)
#
# fast: the tests labelled rxe, command lines of documents, and the quick start over rdma; gate (and
# full): also those labelled rxe-gate, and faults of the link over tcp between two network namespaces;
# long: rxe-long. Two guests at once share that: `threads` is what wants two processors, `rest` all else.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
list=''
if [[ ${1:-} == --list ]]; then
  list=${2:-}
  shift $(($# < 2 ? $# : 2))
fi
if (($# < 2)) || ! [[ $2 =~ ^(fast|gate|full|long)$ && ${3:-all} =~ ^(all|threads|rest)$ ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0"
  exit 2
fi
[[ $list || ${REMORA_VM_GUEST:-} ]] || { echo "guest_suites: run it by ci/vm/run.sh" >&2; exit 2; }
tree=$1 tier=$2 part=${3:-all} status=0
how=(--together)
if [[ ${4:-} ]]; then how+=(--listed "$4"); fi
export REMORA_REQUIRE_DEVICE=1
[[ $tier == long ]] || export REMORA_FAULT_ROUNDS=least

case $tier in
  fast) labels='^rxe$' ;;
  gate | full) labels='^rxe(-gate)?$' ;;
  long) labels='^rxe-long$' ;;
esac
# An emulator of one processor does with a third less of the machine's time, and that is enough where one
# thread waits for another. What is about several threads has two. Both guests take about as long, in the
# first tier as in the gate.
rest='^(apps\.|Protection/|Fault/(Memlock|WarmRestart)'
rest+='|Verbs(Api|Connection|Device|Examples|Loopback|Memory|Overrun|Perftest|Process|Transport|TwoGuests)\.'
rest+='|Conformance/(Administration|AdministrationRight|AsyncQueueLoss|Auth|Batch|BatchNotify|Buffer'
rest+='|ClientLoss|Descriptors|Error|Extent|Lapse|Leaving|Lifecycle|Lock|Misuse|Pattern'
rest+='|PausedHolder|PausedServer|Pieces|Removal|Resize|Series|ServerLoss|ServerReturn|ServerStop'
rest+='|SharedSessions)Test/)'
case $part in
  all) choice=() ;;
  threads) choice=(-E "$rest") ;;
  rest) choice=(-R "$rest") ;;
esac
if [[ $list ]]; then exec "$here/run_ctest.sh" "$tree" --together --list "$list" -L "$labels" "${choice[@]}"; fi

printf '  spent: boot %s\n' "$(cut -d ' ' -f 1 /proc/uptime)"
"$here/run_ctest.sh" "$tree" "${how[@]}" -L "$labels" "${choice[@]}" || status=1
[[ $tier != long && $part != threads ]] || exit "$status"

"$here/check_commands.py" --build "$tree" --where guest || status=1

if "$here/quickstart-run.sh" --bin "$tree" --transport rdma --seconds 1; then
  echo "ok - quickstart: in the guest, over rdma"
else
  echo "not ok - quickstart: in the guest, over rdma"
  status=1
fi
[[ $tier != fast ]] || exit "$status"

if "$here/../tests/rxe/serving.sh" "$tree"; then
  echo "ok - serving: in the guest, over rdma"
else
  echo "not ok - serving: in the guest, over rdma"
  status=1
fi

if "$here/../tests/rxe/doctor.sh" "$tree"; then
  echo "ok - doctor: each finding, made in the guest"
else
  echo "not ok - doctor: each finding, made in the guest"
  status=1
fi

set +e
"$here/../tests/fault/netns_faults.sh" "$tree" \
  --only '@(partition-1|link-down-1)' 2>&1 |
  awk -v name="two namespaces" -f "$here/gtest_verdicts.awk"
states=("${PIPESTATUS[@]}")
set -e
if ((states[0] != 0 && states[1] != 2)); then
  echo "not ok - two namespaces: the run # exit status ${states[0]}"
fi
((states[0] == 0 && states[1] == 0)) || status=1
exit "$status"
