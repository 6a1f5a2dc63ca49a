#!/usr/bin/env bash
# Proves that ci/quickstart.sh and ci/test.sh work from nothing, and how long they take: in a new Debian 12
# root that has git and a shell, on a clone of this repository. The root is removed afterwards.
set -euo pipefail

# Seconds on two cores: from nothing, and once more. The only place where a time fails a run.
quickstart_limit=180 quickstart_warm_limit=20 test_limit=900 test_warm_limit=480

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
suite=bookworm

usage() {
  cat <<'USAGE'
usage: ci/fresh.sh [--no-vm] [--keep] [--at FOLDER] [COMMAND...]

  --no-vm     leave out the guest's stage
  --keep      do not remove the root at the end; its path is printed
  --at        where to make it (default: a new folder under $TMPDIR or /var/tmp; about 5 GB)
  COMMAND     run this in the clone instead of the two scripts, as in: ci/fresh.sh ci/setup.sh all

The two scripts are run in a root each, since the second would find what the first has installed, and each
is run twice: from nothing and warm. Then the command lines of documents that want such a root are run. A run that takes longer than the limits in this file fails; with
more than two cores or beside other work the figures say nothing.

Tests what is committed. Needs root (sudo is tried) and this machine's apt sources.
USAGE
}

say() { printf 'fresh: %s\n' "$*"; }
die() { printf 'fresh: error: %s\n' "$*" >&2; exit 1; }

arguments=("$@")
keep=0 vm=1 place='' command=()
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --keep) keep=1 ;;
    --no-vm) vm=0 ;;
    --at) place=${2:?--at needs a folder}; shift ;;
    -*) usage >&2; die "unknown option '$1'" ;;
    *) command=("$@"); break ;;
  esac
  shift
done

if ((EUID != 0)); then
  command -v sudo >/dev/null || die "this needs root, to make a root file system and mount /proc in it"
  exec sudo -- "$root/ci/fresh.sh" "${arguments[@]}"
fi
"$root/ci/setup.sh" fresh

# This machine's own sources, keys and settings: what it can install, the new root can too.
# shellcheck source=debian_root.sh
. "$root/ci/debian_root.sh"
debian_root_house remora-fresh "$place"
debian_root_sources "$suite" || die "no apt source of this machine offers $suite"

make_root() {
  local started=$SECONDS
  say "a Debian root with git and a shell, from ${debian_sources[*]}"
  debian_root_make "$house/root" "$suite" git,bash
  say "made in $((SECONDS - started)) s"
  git clone --quiet --no-hardlinks "$root" "$house/root/src/remora"
  git -C "$root" diff --quiet HEAD -- || say "note: changes that are not committed are not tested"
}
remove_root() { rm -rf --one-file-system "$house/root"; }

enter() { debian_root_enter "$house/root" /src/remora "$@"; }

status=0
# run LIMIT NAME COMMAND...: LIMIT is in seconds, 0 for none.
run() {
  local limit=$1 title=$2 began=$SECONDS code=0 took
  shift 2
  say "running: $title"
  enter "$@" || code=$?
  took=$((SECONDS - began))
  if ((code)); then
    status=1
    echo "not ok - fresh: $title # exit status $code"
  elif ((limit && took > limit)); then
    status=1
    echo "not ok - fresh: $title # it took $took s, and its limit is $limit s"
  else
    echo "ok - fresh: $title ($took s$( ((limit)) && echo ", limit $limit s"))"
  fi
}

if ((${#command[@]})); then
  make_root
  run 0 "${command[*]}" "${command[@]}"
  exit "$status"
fi
make_root
run "$quickstart_limit" "ci/quickstart.sh from nothing" ci/quickstart.sh
run "$quickstart_warm_limit" "ci/quickstart.sh warm" ci/quickstart.sh
run 0 "the quick start's programs say that they have no volumes" bash -c \
  'build/quickstart/apps/remora volume ls remora+file:///tmp/c.json 2>&1 | grep "volume: .*REMORA_BUILD_VOLUMES"'
remove_root
tests=(ci/test.sh)
((vm)) || tests+=(--skip vm)
make_root
run "$test_limit" "${tests[*]} from nothing" "${tests[@]}"
run "$test_warm_limit" "${tests[*]} warm" "${tests[@]}"
run 0 "command lines of documents" ci/check_commands.py --where fresh
exit "$status"
