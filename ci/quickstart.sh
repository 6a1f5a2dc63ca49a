#!/usr/bin/env bash
# From a fresh checkout to a running memory server that a client has used: installs what is missing,
# builds release, and runs ci/quickstart-run.sh.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# Not build/release: a quick start needs neither tests nor benchmarks, and leaves that tree alone.
tree=build/quickstart

usage() {
  cat <<'USAGE'
usage: ci/quickstart.sh [--rxe] [FILE]

  --rxe  all of it in a guest, over real verbs on Soft-RoCE (the first time fetches a kernel)
  FILE   the file to store and read back (default: a large one that every machine has)
USAGE
}

say() { printf 'quickstart: %s\n' "$*"; }
die() { printf 'quickstart: error: %s\n' "$*" >&2; exit 1; }

rxe=0 file=''
for argument in "$@"; do
  case "$argument" in
    -h | --help) usage; exit 0 ;;
    --rxe) rxe=1 ;;
    -*) usage >&2; die "unknown option '$argument'" ;;
    *) [[ -z $file ]] || die "one FILE only"; file=$argument ;;
  esac
done
if [[ $file ]]; then
  [[ -f $file && -r $file ]] || die "cannot read '$file'"
  file=$(realpath -- "$file")
fi

groups=(build)
((rxe)) && groups+=(vm)
ci/setup.sh "${groups[@]}"

say "configuring $tree"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset release -B "$tree" -DREMORA_BUILD_TESTS=OFF -DREMORA_BUILD_BENCHMARKS=OFF \
  -DREMORA_WARNINGS_AS_ERRORS=OFF >"$log" 2>&1 || {
  cat "$log" >&2
  die "cmake failed"
}
rm -f "$log"
say "building"
NINJA_STATUS='quickstart: [%f/%t, %e s] ' cmake --build "$tree" --parallel

if ((rxe)); then
  say "starting a guest with Soft-RoCE"
  exec ci/vm/run.sh --timeout 600 -- "$root/ci/quickstart-run.sh" --bin "$root/$tree" \
    --transport rdma ${file:+"$file"}
fi
exec ci/quickstart-run.sh --bin "$tree" ${file:+"$file"}
