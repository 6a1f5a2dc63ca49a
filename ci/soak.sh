#!/usr/bin/env bash
# The long counts of the fault tests, and a soak: random faults for an hour. Not a part of ci/test.sh.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

usage() {
  cat <<'USAGE'
usage: ci/soak.sh [--minutes N] [--transport LIST] [--only rounds|soak|guest|link] [--seed N] [--build TREE]

Runs the fault tests with the long counts of tests/fault, then one random fault every 10 s,
then, where there is QEMU, the long counts over rdma in a guest, and the faults between two hosts
(rdma) and two network namespaces (tcp).
Prints a line a test and a line a fault; what fails is repeated at the end. Exit status 0 only if
no invariant was broken.

  --minutes N       the soak, all transports together (60)
  --transport LIST  of shm, tcp (tcp,shm), for the long counts and the soak on this machine; rdma
                    where there is a device: ci/soak.sh --transport rdma inside ci/vm/run.sh
  --only PART       only the long counts (rounds), the soak, the long counts over rdma in a guest
                    (guest), or the link (six hours in an emulator)
  --seed N          of everything random; without it each test draws one and prints it
  --build TREE      a build tree that is there (default: build/dev, which is built first)
USAGE
}

die() { printf 'soak: error: %s\n' "$*" >&2; exit 2; }

minutes=60 transports=tcp,shm only='' tree=''
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --minutes) minutes=${2:?--minutes needs a number}; shift ;;
    --transport) transports=${2:?--transport needs a list}; shift ;;
    --only) only=${2:?--only needs rounds, soak, guest or link}; shift ;;
    --seed) export REMORA_FAULT_SEED=${2:?--seed needs a number}; shift ;;
    --build) tree=${2:?--build needs a folder}; shift ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
  shift
done
[[ $minutes =~ ^[1-9][0-9]*$ ]] || die "--minutes '$minutes': expected a number above 0"
[[ -z $only || $only =~ ^(rounds|soak|guest|link)$ ]] || die "--only '$only': expected rounds, soak, guest or link"
IFS=, read -r -a names <<<"$transports"
for name in "${names[@]}"; do
  [[ $name == shm || $name == tcp || $name == rdma ]] || die "--transport '$name': expected shm, tcp or rdma"
done

if [[ -z $tree ]]; then
  tree=build/dev
  cmake --preset dev >/dev/null
  cmake --build --preset dev --parallel "$(nproc)" --target fault fault_load fault_flight protection rxe_verbs remora-server
fi
[[ -d $tree ]] || die "there is no folder $tree"
tree=$(cd "$tree" && pwd)
program=$tree/tests/fault/fault protection=$tree/tests/conformance/protection
overrun=$tree/tests/rxe/rxe_verbs
for name in "$program" "$protection" "$overrun"; do
  [[ -x $name ]] || die "there is no $name: build the target ${name##*/}"
done

log=$(mktemp "${TMPDIR:-/tmp}/remora-soak.XXXXXX.log")
trap 'rm -f "$log"' EXIT
status=0
# run TRANSPORT PROGRAM ARGUMENT...
run() {
  local transport=$1
  shift
  local states
  set +e
  REMORA_FAULT_ROUNDS=long REMORA_TEST_TRANSPORT=$transport "$@" 2>&1 |
    tee -a "$log" | grep --line-buffered -E '^(fault|soak): |^\[  (FAILED|SKIPPED)|Failure|^I[0-9]+: '
  states=("${PIPESTATUS[@]}")
  set -e
  ((states[0] == 0)) || status=1
}

forgeries='*Forgeries*:*ForeignInvalidation*:*LaneFlush*'
# guest PROGRAM ARGUMENT...: over rdma, in a guest of its own.
guest() {
  local states
  set +e
  ci/vm/run.sh --memory 4G --timeout 43200 -- env REMORA_REQUIRE_DEVICE=1 \
    REMORA_FAULT_ROUNDS=long REMORA_TEST_TRANSPORT=rdma "$@" 2>&1 |
    tee -a "$log" | grep --line-buffered -E '^(fault|soak): |^\[  (FAILED|SKIPPED)|Failure|^I[0-9]+: |^vm: error'
  states=("${PIPESTATUS[@]}")
  set -e
  ((states[0] == 0)) || status=1
}

# link SCRIPT OPTION... [-- ARGUMENT...]: one of tests/fault's scripts in guests of its own.
link() {
  local script=$root/tests/fault/$1 options=() states
  shift
  while (($#)) && [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  set +e
  REMORA_FAULT_ROUNDS=long ci/vm/run.sh "${options[@]}" --timeout 43200 -- "$script" "$tree" "${@:2}" 2>&1 |
    sed -u 's/^\[[01]\] //' | tee -a "$log" | grep --line-buffered -E '^fault: |^\[  FAILED|^  |^vm: error'
  states=("${PIPESTATUS[@]}")
  set -e
  ((states[0] == 0)) || status=1
}

if [[ -z $only || $only == rounds ]]; then
  for name in "${names[@]}"; do run "$name" "$program" --gtest_filter=-'*SoakTest*'; done
  for name in "${names[@]}"; do
    if [[ $name != shm ]]; then
      run "$name" "$protection" --gtest_filter="$forgeries"
    fi
    if [[ $name == rdma ]]; then run rdma "$overrun" --gtest_filter='VerbsOverrun*'; fi
  done
fi
if [[ -z $only || $only == soak ]]; then
  for name in "${names[@]}"; do run "$name" "$program" --soak "$((minutes * 60 / ${#names[@]}))"; done
fi
in_guests=no
if [[ -z $only && -z ${REMORA_VM_GUEST:-} ]] && command -v qemu-system-x86_64 >/dev/null; then in_guests=yes; fi
if [[ $only == guest || $in_guests == yes ]]; then
  # All suites that have a case over rdma: kills, stops, revocations, lock holders, crowds, peers by
  # hand, notices, memlock.
  guest "$program" --gtest_filter='*/rdma:-*SoakTest*'
  guest "$protection" --gtest_filter="$forgeries"
  guest "$overrun" --gtest_filter='VerbsOverrun*'
fi
if [[ $only == link || $in_guests == yes ]]; then
  link netns_faults.sh
  link two_guests_faults.sh --guests 2
  # That has killed one guest; here are the others.
  for ((i = 1; i < 20; ++i)); do link two_guests_faults.sh --guests 2 -- --only kill; done
  for ((i = 0; i < 20; ++i)); do link client_host_faults.sh --guests 2; done
fi

passed=$(grep -cE '^\[       OK \] .*\(' "$log" || true)
failed=$(grep -cE '^\[  FAILED  \] .*\([0-9]+ ms\)' "$log" || true)
if ((failed)); then
  echo "--- what failed ---"
  grep -E '^\[  FAILED  \] .*\([0-9]+ ms\)' "$log"
fi
if ((passed + failed == 0)); then
  echo "soak: nothing was run" >&2
  status=1
fi
echo "$passed passed, $failed failed"
exit "$status"
