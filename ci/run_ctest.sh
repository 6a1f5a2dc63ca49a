#!/usr/bin/env bash
# Runs CTest in a build tree and reports every test as a line that ci/test.sh can count:
#   ok - NAME      not ok - NAME # how      ok - NAME # SKIP reason
# It runs alike on the machine and in the guest.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: ci/run_ctest.sh BUILD_TREE [--names FILE] [CTEST_ARGUMENT...]

  --names FILE  the tests that it names, one a line, and no others

  ci/run_ctest.sh build/dev -LE rxe
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

report=$(mktemp "${TMPDIR:-/tmp}/remora-ctest.XXXXXX.xml")
numbers=$(mktemp "${TMPDIR:-/tmp}/remora-ctest.XXXXXX")
trap 'rm -f "$report" "$numbers"' EXIT
selection=()
if [[ ${1:-} == --names ]]; then
  # CTest 3.25 takes one expression or the numbers of its own list, from a file since they may be many.
  ctest --test-dir "$tree" --show-only=json-v1 | python3 -c '
import json, sys
wanted = set(open(sys.argv[1], encoding="utf-8").read().splitlines())
found = [str(i) for i, test in enumerate(json.load(sys.stdin)["tests"], 1) if test["name"] in wanted]
if len(found) != len(wanted):
    sys.exit(f"run_ctest: of {len(wanted)} names in {sys.argv[1]} CTest knows {len(found)}")
print(",".join(["0", "0", "0", *found]))' "$2" >"$numbers"
  selection=(-I "$numbers")
  shift 2
fi
status=0
# Other programs' lines must not be counted as ours: CTest's own output is indented.
ctest --test-dir "$tree" --no-tests=error --output-on-failure --output-junit "$report" \
  --test-output-size-passed 65536 \
  "${selection[@]}" "$@" 2>&1 | sed -u 's/^/  /' || status=$?
python3 "$here/ctest_report.py" "$report" || status=$?
exit "$status"
