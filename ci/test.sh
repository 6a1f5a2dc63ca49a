#!/usr/bin/env bash
# Installs, builds, checks and tests everything. The last line is `N passed, N failed`.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
budget_s=1500        # 25 minutes on 2 cores
logs=$root/build/ci-logs
jobs=$(nproc)
tests_at_once=$((2 * jobs)) # most of them wait for something: a deadline, a lease, another process
self=ci/test.sh

# name | limit in seconds | only with --full | what it does
stages_table="
setup      |1200|  |install missing Debian packages (build, test, vm)
format     | 120|  |clang-format-14 on every source that git knows
shellcheck | 120|  |shellcheck on every shell script
layers     | 120|  |who may include and link whom, the hosted workflow; seeded faults must be caught
dev        |1500|  |build dev with every public header alone; native tests
soak       | 300|  |a random fault every 10 s under load: a minute over tcp, one over shm
quickstart | 300|  |the run part of ci/quickstart.sh, natively, with the dev build
install    | 600|  |install, move the prefix, build outside projects against it
fuzz       | 900|  |build fuzz; every fuzzer over its corpus, then 30 s each, two at a time
tidy       |1800|  |clang-tidy-14 on the sources of the product
vm         |4200|  |guest with Soft-RoCE: ci/vm's own checks, rxe tests, quickstart over rdma
asan       |2400|  |build asan-ubsan; native tests
tsan       |1800|  |build and run the tests of metrics, engine, conformance and some faults (shm, tcp) under ThreadSanitizer
tidy-tests |2400|f |clang-tidy-14 on the sources of the tests
vm-long    |5400|f |what the guests are spared in vm: slow tests, ci/vm's faults, all of conformance in two
vm-asan    |3600|f |rxe tests in the guest with AddressSanitizer
vm-repeat  |7200|f |rxe tests in the guest, three times over; two guests, three times over
docker     |3600|f |the images built without a registry, and run in the guest by podman
fresh      |5400|f |ci/quickstart.sh and ci/test.sh in a new Debian root
"
# Suites that the `vm` stage repeats between two hosts: what wires, orders, locks and refuses.
two_hosts_suites='*/ErrorTest.*:*/FenceTest.*:*/LanesTest.*:*/LifecycleTest.*:*/LockTest.*:*/QueueTest.*'
# Test folders built and run under ThreadSanitizer, and of one of them which tests: those that break
# most in the shortest time. All of them by hand, as tests/fault/README.md says.
tsan_folders=(tests/unit/metrics tests/unit/engine tests/conformance tests/fault)
declare -A tsan_tests=(
  [tests/fault]='^(StampTest|LoadPage|LoadLedger)|/LaneTest\.(Cut|Peer)|/(RevokeTest|ServerKillTest|LoadTest)\.|/ClientKillTest.*/tcp'
)

usage() {
  cat <<USAGE
usage: $self [--full] [--only STAGE,...] [--skip STAGE,...] [--within MINUTES] [--list]

Runs the stages in order, each with its log in build/ci-logs/STAGE.log, and ends with one table.
Exit status 0 only if everything passed.

  --full        also the long stages
  --only A,B    these stages, whether long or not
  --skip A,B    not these
  --within M    none that would begin later than M minutes from now; they are listed as skipped
  --list        the stages, and what each does
USAGE
}

die() { printf 'test: error: %s\n' "$*" >&2; exit 2; }

stage_names=()
declare -A stage_limit=() stage_full=() stage_text=()
while IFS='|' read -r name limit full text; do
  name=${name// /}
  [[ $name ]] || continue
  stage_names+=("$name")
  stage_limit[$name]=${limit// /}
  stage_full[$name]=${full// /}
  stage_text[$name]=$text
done <<<"$stages_table"

# --- the stages: each prints `ok - ...` / `not ok - ...`, and fails by its exit status ----------

ok() { printf 'ok - %s\n' "$*"; }
skip() { printf 'ok - %s # SKIP %s\n' "$1" "$2"; }

# Builds targets (default: all) of a preset, configured first. Ninja makes a second call cheap.
build() {
  local preset=$1
  shift
  cmake --preset "$preset" >"$logs/configure-$preset.log" 2>&1 || {
    cat "$logs/configure-$preset.log"
    return 1
  }
  cmake --build --preset "$preset" --parallel "$jobs" ${1:+--target "$@"}
}

stage_setup() {
  ci/setup.sh all
  ok "setup: packages of build, test and vm"
}

stage_format() {
  local sources
  mapfile -d '' -t sources < <(git ls-files -z -- '*.h' '*.cc')
  echo "${#sources[@]} files"
  printf '%s\0' "${sources[@]}" | xargs -0 -n 20 -P "$jobs" clang-format-14 --dry-run -Werror
  ok "format: ${#sources[@]} files"
}

stage_shellcheck() {
  local scripts file
  # By their first line: a file without one is sourced, and read along with who sources it.
  mapfile -t scripts < <(git ls-files | while read -r file; do
    [[ -f $file && ! -L $file ]] || continue
    if head -c 64 "$file" | head -n 1 | grep -qaE '^#! ?(/usr)?/bin/(env )?(ba|da)?sh'; then
      echo "$file"
    fi
  done)
  shellcheck -x -P SCRIPTDIR "${scripts[@]}"
  ok "shellcheck: ${#scripts[@]} scripts"
}

stage_layers() {
  ci/check_layers.py --self-test
  ci/check_layers.py
  ci/check_workflow.py --self-test
  ci/check_workflow.py
}

stage_dev() {
  build dev
  ok "dev: builds without warnings"
  build dev all_verify_interface_header_sets
  ok "dev: every public header compiles alone"
  ci/run_ctest.sh build/dev -LE rxe -j "$tests_at_once"
}

stage_soak() {
  build dev fault
  local transport status=0
  for transport in tcp shm; do
    if REMORA_TEST=1 REMORA_TEST_TRANSPORT=$transport build/dev/tests/fault/fault --soak 60; then
      ok "soak: 60 s over $transport"
    else
      echo "not ok - soak: 60 s over $transport"
      status=1
    fi
  done
  return "$status"
}

stage_quickstart() {
  build dev
  ci/quickstart-run.sh --bin build/dev --seconds 1
  ok "quickstart: natively, over shm"
}

stage_install() {
  build dev
  ci/consumer/run.sh build/dev build/consumer
}

stage_vm() {
  build dev
  local status=0 links
  # Faults of the link are mostly waiting: beside all else.
  vm_links >"$logs/vm-links.log" 2>&1 &
  links=$!
  ci/vm/test.sh quick || status=1
  vm_ctest build/dev '^rxe$' || status=1
  if ci/vm/run.sh --timeout 600 -- "$root/ci/quickstart-run.sh" --bin "$root/build/dev" \
    --transport rdma --seconds 1; then
    ok "quickstart: in the guest, over rdma"
  else
    echo "not ok - quickstart: in the guest, over rdma"
    status=1
  fi
  vm_hosts quick || status=1
  wait "$links" || status=1
  cat "$logs/vm-links.log"
  return "$status"
}

# vm_ctest TREE LABEL: tests that need a device, in one guest. A missing device fails them there.
vm_ctest() {
  local tree=$1 label=$2
  # CTest lists the tests of every program before it selects some: once here is faster than there.
  ctest --test-dir "$tree" -N -L "$label" >"$logs/rxe-list.log" 2>&1
  if grep -q '^Total Tests: 0' "$logs/rxe-list.log"; then
    echo "not ok - rxe tests # no test carries the label $label"
    return 1
  fi
  ci/vm/run.sh --memory 4G --timeout 1500 -- env REMORA_REQUIRE_DEVICE=1 \
    "$root/ci/run_ctest.sh" "$root/$tree" -L "$label"
}

# vm_hosts quick|all: what wants client and server on two hosts, which run the same command and learn
# from their environment which one they are (ci/vm/README.md).
vm_hosts() {
  local suites=() status=0
  if [[ $1 == quick ]]; then suites=("--gtest_filter=$two_hosts_suites"); fi
  vm_pair "two guests: verbs" "$root/build/dev/tests/rxe/rxe_verbs" '--gtest_filter=*TwoGuests*' ||
    status=1
  vm_pair "two guests: conformance" "$root/tests/conformance/two_guests.sh" "$root/build/dev" \
    "${suites[@]}" || status=1
  vm_pair "two guests: client gone" "$root/tests/fault/client_host_faults.sh" "$root/build/dev" ||
    status=1
  return "$status"
}

# Faults of the link between two hosts, and of what is at its ends.
vm_links() {
  local status=0
  # In one pair of guests: each boots as long as some of the faults take.
  vm_verdicts "two guests: fault" --guests 2 --memory 2G --timeout 3000 -- \
    "$root/tests/fault/two_guests_faults.sh" "$root/build/dev" || status=1
  vm_verdicts "two namespaces: fault" --timeout 1200 -- "$root/tests/fault/netns_faults.sh" \
    "$root/build/dev" || status=1
  return "$status"
}

# vm_pair NAME COMMAND...: in two guests. Call it and vm_verdicts where errexit is off, as in
# `vm_pair ... || status=1`.
vm_pair() { vm_verdicts "$1" --guests 2 --memory 2G --timeout 900 -- "${@:2}"; }

# vm_verdicts NAME OPTION... -- COMMAND...: GoogleTest's verdicts turned into lines that are counted.
vm_verdicts() {
  local name=$1 options=() states
  shift
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  echo "$name"
  ci/vm/run.sh "${options[@]}" -- env REMORA_REQUIRE_DEVICE=1 "$@" 2>&1 |
    awk -v name="$name" '
      { print; fflush() }
      { guest = ""; line = $0 }
      /^\[[01]\] / { guest = substr($0, 1, 4); line = substr($0, 5) }
      line ~ /^\[ +(OK|FAILED|SKIPPED) +\] .*\([0-9]+ ms\)/ {
        test = line
        sub(/^\[[^]]*\] /, "", test)
        sub(/(, where .*)? \([0-9]+ ms\).*/, "", test)
        verdict = name ": " test (guest ? " " substr(guest, 1, 3) : "")
        if (line ~ /^\[ +OK/) print "ok - " verdict
        else if (line ~ /^\[ +SKIPPED/) print "ok - " verdict " # SKIP " last[guest]
        else { print "not ok - " verdict; failed = 1 }
        counted = 1
        fflush()
        next
      }
      { last[guest] = line }
      END { exit failed ? 2 : !counted }'
  states=("${PIPESTATUS[@]}")
  if ((states[1] == 2)); then return 1; fi
  if ((states[0] == 0 && states[1] == 0)); then return 0; fi
  # Badly ended without a verdict of a test: a failure of its own.
  echo "not ok - $name: the run # exit status ${states[0]}"
  return 1
}

stage_asan() {
  build asan-ubsan
  ok "asan: builds without warnings"
  ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1} \
    LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$root/ci/lsan.supp:print_suppressions=0} \
    UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1} \
    ci/run_ctest.sh build/asan-ubsan -LE rxe -E '^apps\.(page|prometheus)$' -j "$tests_at_once"
}

stage_tsan() {
  local folder status=0 targets=() folders=()
  for folder in "${tsan_folders[@]}"; do
    if [[ -f $folder/CMakeLists.txt ]]; then
      folders+=("$folder")
      targets+=("$folder/all")
    else
      skip "tsan: $folder" "no such folder"
    fi
  done
  ((${#targets[@]})) || return 0
  build tsan "${targets[@]}"
  ok "tsan: builds without warnings"
  # Address randomisation beyond 28 bits is more than GCC 12's ThreadSanitizer can map.
  local plain=()
  if setarch "$(uname -m)" -R true 2>/dev/null; then plain=(setarch "$(uname -m)" -R); fi
  for folder in "${folders[@]}"; do
    TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:suppressions=$root/ci/tsan.supp} \
      "${plain[@]}" ci/run_ctest.sh "build/tsan/$folder" -LE rxe -R "${tsan_tests[$folder]:-.}" \
      -j "$tests_at_once" || status=1
  done
  return "$status"
}

stage_fuzz() {
  build fuzz
  ok "fuzz: builds without warnings"
  # The same inputs in each run, as far as they get: what is new is looked for by hand, for longer.
  tests/fuzz/run.sh --seconds 30 --seed 1
}

# tidy_of FOLDER...: clang-tidy there.
tidy_of() {
  cmake --preset tidy >"$logs/configure-tidy.log" 2>&1 || {
    cat "$logs/configure-tidy.log"
    return 1
  }
  local generated
  mapfile -t generated < <(ninja -C build/tidy -t targets all | sed -n 's/^\([^ ]*\.pb\.h\): .*/\1/p')
  if ((${#generated[@]})); then ninja -C build/tidy "${generated[@]}"; fi
  ci/tidy.py --build build/tidy -j "$jobs" "$@"
}

stage_tidy() { tidy_of verbs engine config metrics apps; }

stage_tidy_tests() { tidy_of tests; }

stage_vm_long() {
  build dev
  local status=0
  ci/vm/test.sh faults || status=1
  vm_ctest build/dev '^rxe-long$' || status=1
  vm_hosts all || status=1
  return "$status"
}

stage_vm_asan() {
  build asan-ubsan
  vm_ctest build/asan-ubsan '^rxe$'
}

stage_vm_repeat() {
  build dev
  local round status=0
  for round in 1 2 3; do
    echo "round $round"
    vm_ctest build/dev '^rxe$' || status=1
    vm_hosts quick || status=1
    vm_links || status=1
  done
  return "$status"
}

stage_docker() { ci/docker/test.sh; }

stage_fresh() { ci/fresh.sh; }

# --- running them -------------------------------------------------------------------------------

only='' skipped='' full=0 within_s=''
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --full) full=1 ;;
    --only) only=${2:?--only needs a list of stages}; shift ;;
    --only=*) only=${1#*=} ;;
    --skip) skipped=${2:?--skip needs a list of stages}; shift ;;
    --skip=*) skipped=${1#*=} ;;
    --within)
      [[ ${2:-} =~ ^[1-9][0-9]{0,4}$ ]] || die "--within needs minutes"
      within_s=$((60 * $2))
      shift
      ;;
    --list)
      for name in "${stage_names[@]}"; do
        printf '%-11s %s%s\n' "$name" "${stage_text[$name]}" "${stage_full[$name]:+ (--full)}"
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
chosen=()
for name in "${stage_names[@]}"; do
  if [[ $only ]]; then
    [[ ,$only, == *,$name,* ]] || continue
  elif [[ ${stage_full[$name]} ]] && ((!full)); then
    continue
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

# Whoever ends this run after some time would learn nothing of what has passed.
skip_stage() {
  local name=$1 reason="it would have begun after $((SECONDS / 60)) minutes (--within)"
  skip "the whole stage" "$reason" >"$logs/$name.log"
  stage_passed[$name]=0 stage_failed[$name]=0 stage_skipped[$name]=1 stage_seconds[$name]=0
  printf '%-11s skipped: %s\n' "$name" "$reason"
}

for name in "${chosen[@]}"; do
  if [[ $within_s ]] && ((SECONDS > within_s)); then
    skip_stage "$name"
  else
    run_stage "$name"
  fi
done

total_passed=0 total_failed=0
echo
printf '%-11s %7s %7s %8s %8s\n' stage passed failed skipped seconds
for name in "${chosen[@]}"; do
  printf '%-11s %7d %7d %8d %8d\n' "$name" "${stage_passed[$name]}" "${stage_failed[$name]}" \
    "${stage_skipped[$name]}" "${stage_seconds[$name]}"
  total_passed=$((total_passed + stage_passed[$name]))
  total_failed=$((total_failed + stage_failed[$name]))
done
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
if ((SECONDS > budget_s)) && ! ((full)) && [[ ! $only ]]; then
  echo "warning: $SECONDS s is over the budget of $budget_s s"
fi
echo "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
echo "$total_passed passed, $total_failed failed"
((total_failed == 0))
