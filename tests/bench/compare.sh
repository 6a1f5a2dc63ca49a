#!/usr/bin/env bash
# One table: Remora beside what one would otherwise use, measured in turn on this machine.
#
#   tests/bench/compare.sh [--only SECTIONS] [--quick | --smoke] [--build build/release] [--list]
#
#   --only SECTIONS   some of shm,tcp,files,nbd,volume,rdma (rdma: a guest with Soft-RoCE, ci/vm/run.sh)
#   --quick           7 short pairs a row: whether all of it runs, not what it says
#   --smoke           one pair a row, as short as may be, no table: a line a row that has run
#   --build DIR       the build tree, relative to the repository (build/release)
#   --list            print the rows and their goals, measure nothing
#
# Environment: PAIRS (15) of each row, MS (200) a side of a pair, GUEST_MS (1000) in the guest,
# ROWS: a regular expression; only rows whose name and peer match it.
#
# Peers come from `ci/setup.sh bench` (rdma: and vm); rows of absent ones are left out, and that is
# said. The exit status is 0 whatever the ratios are, 1 when something that is there did not run.
set -euo pipefail

bench_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$bench_here/../.."

sections=(shm tcp files nbd volume rdma) build=build/release list=0 quick=0 smoke=0 inside=0
while (($#)); do
  case $1 in
    -h | --help) sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --only) IFS=, read -ra sections <<<"${2:?--only shm,tcp,files,nbd,volume,rdma}"; shift ;;
    --build) build=${2:?--build DIR}; shift ;;
    --list) list=1 ;;
    --quick) quick=1 ;;
    --smoke) smoke=1 ;;
    --inside) inside=1 ;; # this is the guest already
    *) echo "compare: unknown option '$1' (--help)" >&2; exit 2 ;;
  esac
  shift
done
pairs=${PAIRS:-$((quick ? 7 : 15))} ms=${MS:-$((quick ? 50 : 200))}
guest_ms=${GUEST_MS:-$((quick ? 300 : 1000))}
if ((smoke)); then pairs=1 ms=20 guest_ms=100; fi
export bench_here build list quick smoke inside pairs ms guest_ms

# shellcheck source=tests/bench/compare/lib.sh
. "$bench_here/compare/lib.sh"
for section in "${sections[@]}"; do
  [[ $section =~ ^(shm|tcp|files|nbd|volume|rdma)$ ]] ||
    die "there is no section '$section' (shm, tcp, files, nbd, volume, rdma)"
done
((list)) || check_build
trap clean_up EXIT
trap '' PIPE # a program that has died is noticed by its missing answer
trap 'exit 130' INT
trap 'exit 143' TERM
for section in "${sections[@]}"; do
  # shellcheck source=/dev/null
  . "$bench_here/compare/$section.sh"
  begin_section "$section"
  "section_$section"
  end_section
done
exit "$failed"
