#!/usr/bin/env bash
# Runs CTest in a build tree and reports every test as a line that ci/test.sh can count:
#   ok - NAME      not ok - NAME # how      ok - NAME # SKIP reason
# It runs alike on the machine and in the guest.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: ci/run_ctest.sh BUILD_TREE [--together [--list FOLDER | --listed FOLDER]] [--names FILE]
                       [CTEST_ARGUMENT...]

  --together    cases of a GoogleTest suite share a process (ci/suites.py); each has its verdict all the
                same, and what a broken process leaves undone is run by itself
  --list FOLDER    writes there what would run, and runs nothing
  --listed FOLDER  runs what --list wrote there, for the same arguments: in a guest, where CTest takes half a
                   minute to read the tests of all programs
  --names FILE  the tests that it names, one a line, and no others

  ci/run_ctest.sh build/dev --together -LE rxe -j 4
  ci/run_ctest.sh build/dev/tests/unit/metrics
USAGE
}

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
  usage
  exit $(($# == 0 ? 2 : 0))
fi
tree=$1
shift
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
[[ -f $tree/CTestTestfile.cmake ]] || { echo "run_ctest: no tests in $tree: configure and build it" >&2; exit 2; }

work=$(mktemp -d "${TMPDIR:-/tmp}/remora-ctest.XXXXXX")
trap 'rm -rf "$work"' EXIT
together=0 list='' listed='' selection=()
if [[ ${1:-} == --together ]]; then
  together=1
  shift
fi
case ${1:-} in
  --list) list=${2:?--list needs a folder}; shift 2 ;;
  --listed) listed=${2:?--listed needs a folder}; shift 2 ;;
esac
((together)) || [[ ! $list$listed ]] || { echo "run_ctest: --list and --listed need --together" >&2; exit 2; }
if [[ ${1:-} == --names ]]; then
  # CTest 3.25 takes one expression or the numbers of its own list, from a file since they may be many.
  ctest --test-dir "$tree" --show-only=json-v1 | python3 -c '
import json, sys
wanted = set(open(sys.argv[1], encoding="utf-8").read().splitlines())
found = [str(i) for i, test in enumerate(json.load(sys.stdin)["tests"], 1) if test["name"] in wanted]
if len(found) != len(wanted):
    sys.exit(f"run_ctest: of {len(wanted)} names in {sys.argv[1]} CTest knows {len(found)}")
print(",".join(["0", "0", "0", *found]))' "$2" >"$work/numbers"
  selection=(-I "$work/numbers")
  shift 2
fi

# run TREE CTEST_ARGUMENT...: its report is $work/report.xml. Other programs' lines must not be counted
# as ours: CTest's own output is indented.
run() {
  ctest --test-dir "$1" --no-tests=error --output-on-failure --output-junit "$work/report.xml" \
    --test-output-size-passed 8388608 --test-output-size-failed 8388608 "${@:2}" 2>&1 | sed -u 's/^/  /'
}

status=0
if ((!together)); then
  run "$tree" "${selection[@]}" "$@" || status=$?
  python3 "$here/ctest_report.py" "$work/report.xml" || status=$?
  exit "$status"
fi

# What is chosen by label and name is listed; how many at once is for the run.
jobs=() choice=()
while (($#)); do
  case $1 in
    -j) jobs=(-j "${2:?-j needs a number}"); shift ;;
    -j[0-9]*) jobs=("$1") ;;
    *) choice+=("$1") ;;
  esac
  shift
done
if [[ $listed ]]; then
  cp -- "$listed"/{CTestTestfile.cmake,groups.json} "$work"
else
  ctest --test-dir "$tree" --show-only=json-v1 "${selection[@]}" "${choice[@]}" |
    python3 "$here/suites.py" "$work"
fi
if [[ $list ]]; then
  mkdir -p "$list"
  cp -- "$work"/{CTestTestfile.cmake,groups.json} "$list"
  exit 0
fi
run "$work" "${jobs[@]}" || status=$?
python3 "$here/ctest_report.py" "$work/report.xml" "$work" || status=$?
if [[ -s $work/again.txt ]]; then
  echo "  $(wc -l <"$work/again.txt") tests that a broken process left undone, each by itself:"
  "$0" "$tree" --names "$work/again.txt" || status=$?
fi
exit "$status"
