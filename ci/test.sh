#!/usr/bin/env bash
# Installs, builds, checks and tests everything. The last line is `N passed, N failed`.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
logs=$root/build/ci-logs
jobs=$(nproc)
tests_at_once=$((3 * jobs)) # most of them wait for something: a deadline, a lease, another process
self=ci/test.sh

# name | limit in seconds | tier: g from --gate on, f with --full, else always | what it does
stages_table="
setup      |1200| |install missing Debian packages (build, test, vm)
format     | 300| |clang-format-14 on every source that git knows
shellcheck | 300| |shellcheck on every shell script; with --gate those that have changed, or name one that has
layers     | 300| |which folder may include and link which, words, documents, the hosted workflow; seeded faults must be caught
dev        |2400| |build dev; native tests
quickstart | 900| |the run part of ci/quickstart.sh, natively, and ci/cluster.sh, with the dev build, whose units are those of its own
install    | 900| |install, move the prefix, build outside projects against it; command lines of documents
vm         |2400| |two guests with Soft-RoCE at once: rxe tests, quickstart over rdma; with --gate faults there, too
faults     |1800|g|native tests that the fast tier leaves out: faults with short counts, memcheck
tidy       |1800|g|clang-tidy-14 on what has changed of the product
affected   |3000|a|build; the tests whose programs, scripts or data have changed (--affected)
hosts      |1800|f|two guests with Soft-RoCE: verbs, conformance, faults of link, lanes and processes
asan       |2400|g|build asan-ubsan with clang, -Wthread-safety, every public header alone; seeded misuse of mutexes must be refused; fuzz corpora; native tests
tsan       |1800|g|build and run the tests of metrics, engine and conformance (shm, tcp) under ThreadSanitizer
long       |9000|f|native tests that take a minute each; command lines of documents
repeat     |9000|f|native tests of less than a second, a hundred times each
soak       |3600|f|a random fault every 10 s under load: a minute over tcp, one over shm; command lines of documents
sanitizers |7200|f|what asan and tsan leave out: programs over tcp, conformance over shm and by the C API, faults under ThreadSanitizer
fuzz-timed |2400|f|every fuzzer for two minutes, two at a time
tidy-all   |2400|f|clang-tidy-14 on the sources of the product
tidy-tests |2400|f|clang-tidy-14 on the sources of the tests
vm-self    |2400|f|ci/vm's own checks; command lines of documents
vm-long    |18000|f|rxe tests that take long; all of conformance and all faults between two guests; command lines of documents
vm-asan    |3600|f|rxe tests in the guest with AddressSanitizer
vm-repeat  |9000|f|rxe tests in the guest, three times over; two guests, three times over
bench      |14400|f|tests/bench/compare.sh --smoke: whether every row of it runs; command lines of documents
docker     |9000|f|the images built without a registry, and run in the guest by podman; command lines of documents
package    |9000|f|the Debian packages: built twice, lintian, installed, upgraded and purged, also under systemd
fresh      |14400|f|ci/quickstart.sh and ci/test.sh in a new Debian root, within their limits of time; command lines of documents
"
# Test folders built and run under ThreadSanitizer. All of them by hand, as tests/fault/docs/by-hand.md says.
tsan_folders=(tests/unit/metrics tests/unit/engine tests/conformance)
# What of a folder is built for that, and which of its tests run; all of it, where nothing is said.
declare -A tsan_programs=(
  [tests/conformance]='conformance tcp_peers'
  [tests/fault]='fault unit_fault'
)
# Of the faults, with --full, those that break most in the shortest time.
declare -A tsan_tests=(
  [tests/conformance]='^[^c]'
  [tests/fault]='^(StampTest|LoadPage|LoadLedger)|/LaneTest\.(Cut|Peer)|/(RevokeTest|ServerKillTest|LoadTest)\.|/ClientKillTest.*/tcp'
)
# What these run is the same code, which other tests run over another transport, by the C++ API, or as
# another device: with --full only.
asan_later='^(apps\..*\.tcp|apps\.(bench|completion|daemon|examples|man|schema|start|top)(\.shm)?'
asan_later+='|Conformance/.*/shm|c\.(conformance|sessions)\..*'
# One large configuration, and how the tests themselves judge a history.
asan_later+='|LoadServer\.AsManyRegionsAsMayBe|Linearizability\.ManyUnknownOnesAreNoObstacle'
asan_later+='|unit_(verbs|engine)\.device\.(mlx5-no-atomics|bnxt_re.*|irdma|rxe)|Fault/(ClientKill|ServerKill|Crowd)Test\..*)$'

# The rdma transport as other devices, with --full only: no device changes which threads share what.
tsan_later='^unit_engine\.device\.(mlx5-no-atomics|bnxt_re.*|irdma|rxe)$'

usage() {
  cat <<USAGE
usage: $self [--gate | --full] [--only STAGE,...] [--skip STAGE,...] [--affected [BASE]] [--list]

Runs the stages in order, each with its log in build/ci-logs/STAGE.log, and ends with one table: what
passed, and what each stage spent on building and running. Exit status 0 only if everything passed.

  (nothing)     what a user relies on, once: a newcomer's proof
  --gate        that, and sanitizers, clang-tidy of what has changed, fuzz corpora, faults with short
                counts: what .ci/run calls before a change lands
  --full        all stages: hours
  --only A,B    these stages, whatever their tier
  --skip A,B    not these
  --affected [BASE]
                build, and run the tests whose programs, scripts or data have changed since BASE, as Ninja
                knows them; those that need a device in one guest
  --base REV    what has changed is counted from here (default: where the branch left its upstream, or
                else what was there four hours ago)
  --list        the stages, and what each does
USAGE
}

die() { printf 'test: error: %s\n' "$*" >&2; exit 2; }

stage_names=()
declare -A stage_limit=() stage_tier=() stage_text=()
while IFS='|' read -r name limit letter text; do
  name=${name// /}
  [[ $name ]] || continue
  stage_names+=("$name")
  stage_limit[$name]=${limit// /}
  stage_tier[$name]=${letter// /}
  stage_text[$name]=$text
done <<<"$stages_table"

# shellcheck source=stages.sh
. "$root/ci/stages.sh"

# --- running them -------------------------------------------------------------------------------

only='' skipped='' tier=fast base='' affected=0
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --gate) tier=gate ;;
    --full) tier=full ;;
    --only) only=${2:?--only needs a list of stages}; shift ;;
    --only=*) only=${1#*=} ;;
    --skip) skipped=${2:?--skip needs a list of stages}; shift ;;
    --skip=*) skipped=${1#*=} ;;
    --affected)
      affected=1
      if [[ ${2:-} && $2 != -* ]]; then base=$2; shift; fi
      ;;
    --base) base=${2:?--base needs a revision}; shift ;;
    --list)
      declare -A tier_text=([g]=' (--gate)' [f]=' (--full)')
      for name in "${stage_names[@]}"; do
        printf '%-11s %s%s\n' "$name" "${stage_text[$name]}" "${tier_text[${stage_tier[$name]:-none}]:-}"
      done
      exit 0
      ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
  shift
done
for name in ${only//,/ } ${skipped//,/ }; do
  [[ -n ${stage_limit[$name]:-} ]] || die "no stage '$name' (see --list)"
done
# What has changed is counted from where this branch left the one it follows; on that one itself, as in
# a clone that CI makes, from what was there four hours ago.
if [[ ! $base ]]; then
  base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || true)
  if [[ ! $base || $base == "$(git rev-parse HEAD)" ]]; then
    base=$(git rev-list -1 --before='4 hours ago' HEAD)
  fi
  [[ $base ]] || base=$(git rev-list --max-parents=0 HEAD | tail -n 1)
fi
git rev-parse --verify --quiet "$base^{commit}" >/dev/null || die "there is no commit '$base'"
if ((affected)); then
  [[ ! $only ]] || die "--affected chooses the tests itself: leave out --only"
  only=format,layers,affected
fi
chosen=()
for name in "${stage_names[@]}"; do
  if [[ $only ]]; then
    [[ ,$only, == *,$name,* ]] || continue
  else
    case ${stage_tier[$name]} in
      g) [[ $tier != fast ]] || continue ;;
      f) [[ $tier == full ]] || continue ;;
      a) continue ;;
    esac
  fi
  [[ ,$skipped, != *,$name,* ]] || continue
  chosen+=("$name")
done
((${#chosen[@]})) || die "no stage is left to run"

mkdir -p "$logs"
exec 9>"$logs/.lock"
flock -n 9 || die "another $self runs in this tree"

child=''
stop_child() {
  [[ $child ]] || return 0
  kill -TERM -- "-$child" 2>/dev/null || true
  for _ in {1..100}; do
    kill -0 -- "-$child" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL -- "-$child" 2>/dev/null || true
  child=''
}
trap 'stop_child; exit 130' INT TERM HUP
trap stop_child EXIT

live=0
if [[ -t 1 ]]; then live=1; fi

# One line that changes on a terminal; a line every 30 seconds elsewhere.
show_progress() {
  local name=$1 seconds=$2 last
  if ((live)); then
    last=$(tail -n 1 "$logs/$name.log" 2>/dev/null | tr -d '\r\033' | cut -c "1-$(($(tput cols 2>/dev/null || echo 80) - 24))")
    printf '\r\033[K%-11s %4d s  %s' "$name" "$seconds" "$last"
  elif ((seconds > 0 && seconds % 30 == 0)); then
    last=$(tail -n 1 "$logs/$name.log" 2>/dev/null | tr -d '\r\033' | cut -c 1-90)
    printf '  ... %s %d s: %s\n' "$name" "$seconds" "$last"
  fi
}

declare -A stage_passed=() stage_failed=() stage_skipped=() stage_seconds=()
run_stage() {
  local name=$1 log=$logs/$1.log started=$SECONDS status=0 elapsed shown=-1 note=''
  ((live)) || printf '==> %s:%s\n' "$name" " ${stage_text[$name]}"
  set -m  # a process group of its own, so that all of it can be ended
  ("stage_${name//-/_}") >"$log" 2>&1 9>&- </dev/null &
  child=$!
  set +m
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.25
    elapsed=$((SECONDS - started))
    if ((elapsed != shown)); then
      shown=$elapsed
      show_progress "$name" "$elapsed"
    fi
    if ((elapsed > stage_limit[$name])); then
      note="stopped after its limit of ${stage_limit[$name]} s"
      echo "not ok - $name # $note" >>"$log"
      local running=$child
      stop_child
      child=$running
      break
    fi
  done
  wait "$child" || status=$?
  child=''
  local passed failed ignored
  ignored=$(grep -cE '^ok\b.*# SKIP' "$log" || true)
  passed=$(($(grep -cE '^ok\b' "$log" || true) - ignored))
  failed=$(grep -cE '^not ok\b' "$log" || true)
  if ((status != 0 && failed == 0)); then
    failed=1
    note="exit status $status"
    echo "not ok - $name # $note" >>"$log"
  elif ((passed + failed + ignored == 0)); then
    failed=1
    echo "not ok - $name # it counted nothing" >>"$log"
  fi
  stage_passed[$name]=$passed stage_failed[$name]=$failed stage_skipped[$name]=$ignored
  stage_seconds[$name]=$((SECONDS - started))
  ((live)) && printf '\r\033[K'
  printf '%-11s %s  %d passed, %d failed, %d skipped, %d s%s\n' "$name" \
    "$( ((failed)) && echo FAILED || echo ok)" "$passed" "$failed" "$ignored" \
    "${stage_seconds[$name]}" "${note:+ ($note)}"
  if ((failed)); then
    printf -- '--- the end of %s ---\n' "${log#"$root"/}"
    tail -n 60 "$log" | cut -c 1-400 | sed 's/^/  | /'
  fi
}

for name in "${chosen[@]}"; do run_stage "$name"; done

total_passed=0 total_failed=0 counts=()
for name in "${chosen[@]}"; do
  counts+=("$name=${stage_seconds[$name]},${stage_passed[$name]},${stage_failed[$name]},${stage_skipped[$name]}")
  total_passed=$((total_passed + stage_passed[$name]))
  total_failed=$((total_failed + stage_failed[$name]))
done
echo
for name in "${chosen[@]}"; do
  sed -nE "s/^ok( [0-9]+)? - (.*) # SKIP (.*)/skipped: $name: \2: \3/p" "$logs/$name.log"
done
# Each fault: how often it was tried, what became of the operations, the longest time to a verdict.
for name in "${chosen[@]}"; do
  sed -nE "s/^(\[[0-9]\]|) *fault: (.*)/fault: $name: \2/p" "$logs/$name.log"
done
for name in "${chosen[@]}"; do
  sed -nE "s/^not ok( [0-9]+)?( -)? (.*)/failed: $name: \3/p" "$logs/$name.log"
done
ci/times.py --logs "$logs" "${counts[@]}" || true  # what was spent decides nothing
echo "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
echo "$total_passed passed, $total_failed failed"
((total_failed == 0))
