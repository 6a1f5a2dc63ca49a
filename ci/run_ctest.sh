#!/usr/bin/env bash
# Runs CTest in a build tree and reports every test as a line that ci/test.sh can count:
#   ok - NAME      not ok - NAME # how      ok - NAME # SKIP reason
# It runs alike on the machine and in the guest.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: ci/run_ctest.sh BUILD_TREE [CTEST_ARGUMENT...]

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
trap 'rm -f "$report"' EXIT
status=0
# Other programs' lines must not be counted as ours: CTest's own output is indented.
ctest --test-dir "$tree" --no-tests=error --output-on-failure --output-junit "$report" \
  --test-output-size-passed 65536 \
  "$@" 2>&1 | sed 's/^/  /' || status=$?
python3 "$here/ctest_report.py" "$report" || status=$?
exit "$status"
