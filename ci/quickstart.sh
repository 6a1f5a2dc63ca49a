#!/usr/bin/env bash
# From a fresh checkout to a running memory server that a client has used: installs what is missing,
# builds the library and two programs, and runs ci/quickstart-run.sh.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# The preset `quickstart` compiles several sources at a time and optimises the data path alone.
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
cmake --preset quickstart >"$log" 2>&1 || {
  cat "$log" >&2
  die "cmake failed"
}

# Shows Ninja's progress as a share and the time left: one line that changes on a terminal, else a
# line every ten seconds. Everything else that Ninja says, such as a compiler's errors, goes to the log.
show_progress() {
  local mark finished total elapsed text shown=-10 done_ms left
  while IFS=' ' read -r mark finished total elapsed text; do
    if [[ $mark != '@' ]]; then
      printf '%s\n' "$mark $finished $total $elapsed $text" >>"$log"
      continue
    fi
    # Ninja counts finished steps: what is left takes as long a step as what is done has taken.
    done_ms=${elapsed/./} left='?'
    if ((finished > 0)); then left=$((10#$done_ms * (total - finished) / finished / 1000)); fi
    if [[ -t 1 ]]; then
      printf '\rquickstart: building: %3d %%, about %s s left \033[K' $((100 * finished / total)) "$left"
    elif ((finished == total || ${elapsed%.*} >= shown + 10)); then
      shown=${elapsed%.*}
      say "building: $((100 * finished / total)) %, ${elapsed%.*} s, about $left s left"
    fi
  done
  if [[ -t 1 ]]; then printf '\n'; fi
}
say "building the library and two programs"
: >"$log"
NINJA_STATUS='@ %f %t %e ' ninja -C "$tree" remora remora-server 2>&1 | show_progress || {
  cat "$log" >&2
  die "the build failed"
}
rm -f "$log"

if ((rxe)); then
  say "starting a guest with Soft-RoCE"
  exec ci/vm/run.sh --timeout 600 -- "$root/ci/quickstart-run.sh" --bin "$root/$tree" \
    --transport rdma ${file:+"$file"}
fi
exec ci/quickstart-run.sh --bin "$tree" ${file:+"$file"}
