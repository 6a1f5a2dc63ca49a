# shellcheck shell=bash
# shellcheck disable=SC2154  # root, logs, jobs, tests_at_once, tier, base: what ci/test.sh sets
# The stages of ci/test.sh, which sources this: each is a function that prints `ok - NAME` and
# `not ok - NAME`, and fails by its exit status. A line `  spent: build|boot|run SECONDS` says what
# a part of it took, `  took: SECONDS NAME` what a test did.

ok() { printf 'ok - %s\n' "$*"; }
skip() { printf 'ok - %s # SKIP %s\n' "$1" "$2"; }

milliseconds() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

# spent KIND BEGAN: KIND is build, boot or run; BEGAN was said by milliseconds().
spent() {
  local ms=$(($(milliseconds) - $2))
  printf '  spent: %s %d.%03d\n' "$1" $((ms / 1000)) $((ms % 1000))
}

# Builds targets (default: all) of a preset, configured first. Ninja makes a second call cheap.
build() {
  local preset=$1 began status=0
  began=$(milliseconds)
  shift
  cmake --preset "$preset" >"$logs/configure-$preset.log" 2>&1 || {
    cat "$logs/configure-$preset.log"
    return 1
  }
  cmake --build --preset "$preset" --parallel "$jobs" ${1:+--target "$@"} || status=$?
  spent build "$began"
  return "$status"
}

stage_setup() {
  ci/setup.sh all
  ok "setup: packages of build, test and vm"
}

stage_format() {
  local sources
  mapfile -d '' -t sources < <(git ls-files -z -- '*.h' '*.cc' '*.c')
  echo "${#sources[@]} files"
  printf '%s\0' "${sources[@]}" | xargs -0 -n 20 -P "$jobs" clang-format-14 --dry-run -Werror
  ok "format: ${#sources[@]} files"
}

stage_shellcheck() {
  local scripts file
  # By their first line, which names a shell or, where a file is sourced, tells shellcheck of it: a folder's files
  # that a script sources by a variable's name are read along with no script.
  mapfile -t scripts < <(git ls-files | while read -r file; do
    [[ -f $file && ! -L $file ]] || continue
    if head -c 64 "$file" | head -n 1 | grep -qaE '^#! ?(/usr)?/bin/(env )?(ba|da)?sh|^# shellcheck shell='; then
      echo "$file"
    fi
  done)
  local all=${#scripts[@]} others=''
  if [[ $tier == gate ]]; then
    local changed
    changed=$(changed_scripts "${scripts[@]}")
    mapfile -t scripts < <(printf '%s' "${changed:+$changed$'\n'}")
    others=" of $all, the others are as they were in ${base:0:12}"
  fi
  if ((${#scripts[@]})); then
    printf '%s\0' "${scripts[@]}" | xargs -0 -n 4 -P "$jobs" shellcheck -x -P SCRIPTDIR
  fi
  ok "shellcheck: ${#scripts[@]} scripts$others"
}

# changed_scripts SCRIPT...: those that have changed, or that name a script that has: they may source it.
changed_scripts() {
  local names changed
  names=$(git diff --name-only "$base" -- "$@" '*.sh') || return 1
  if [[ ! $names ]]; then return 0; fi
  mapfile -t changed <<<"$names"
  {
    printf '%s\n' "${changed[@]}" | grep -xF -f <(printf '%s\n' "$@") || true
    grep -lF -f <(printf '%s\n' "${changed[@]##*/}") -- "$@" || true
  } | sort -u
}

# Each program takes one processor: as many at once as there are, those that take longest first. What one
# says stays together.
stage_layers() {
  # shellcheck disable=SC2016  # the shell of each expands it
  xargs -d '\n' -P "$jobs" -I COMMAND \
    bash -c 'status=0; said=$(COMMAND 2>&1) || status=1; printf "%s\n" "$said"; exit "$status"' <<'COMMANDS'
ci/check_words.py
ci/check_docs.py
ci/check_snippets.py --self-test
ci/check_commands.py --self-test
ci/check_layers.py --self-test
ci/check_layers.py
ci/check_classes.py --self-test
ci/check_classes.py
ci/check_words.py --self-test
ci/check_names.py --self-test
ci/check_names.py
ci/check_events.py --self-test
ci/check_events.py
ci/check_docs.py --self-test
engine/c/man/make_pages.py --check
ci/check_workflow.py --self-test
ci/check_workflow.py
ci/suites.py --self-test
ci/ctest_report.py --self-test
COMMANDS
}

stage_dev() {
  build dev
  ok "dev: builds without warnings"
  local unchanged='^$'
  leave_out apps.rules metrics/prometheus tests/apps/rules_test.sh
  leave_out volume_model.mutants tests/volume_model
  ci/run_ctest.sh build/dev --together -LE "$later_native" -E "$unchanged" -j "$tests_at_once"
}

# leave_out TEST PATH...: in the gate, adds to the caller's expression `unchanged` a test that finds the same each
# time, unless what it is made of has changed: only that can be a fault.
leave_out() {
  if [[ $tier != gate ]] || ! git diff --quiet "$base" -- "${@:2}"; then return 0; fi
  unchanged+="|^${1//./\\.}\$"
  skip "$1" "${*:2} as in ${base:0:12}"
}

# What the fast tier leaves out of the native tests: what is labelled for later tiers, and for a device.
later_native='^(gate|long|rxe.*)$'

stage_faults() {
  build dev
  local unchanged='^$'
  leave_out volume_model tests/volume_model
  ci/run_ctest.sh build/dev --together -L '^gate$' -E "$unchanged" -j "$tests_at_once"
}

stage_long() {
  build dev
  local status=0
  ci/run_ctest.sh build/dev -L '^long$' -j "$tests_at_once" || status=1
  # With the search of the volume model, which is a command of its README.
  ci/check_commands.py --where long || status=1
  return "$status"
}

# Those of the first tier that take less than a second, until one fails: each a hundred times.
stage_repeat() {
  build dev
  local times=$logs/repeat
  # How long each takes is measured here, beside as many others as below.
  ci/run_ctest.sh build/dev -LE "$later_native" -j "$tests_at_once" >"$times.log" || {
    cat "$times.log"
    return 1
  }
  sed -nE 's/^  took: 0\.[0-9]+ (.*)/\1/p' "$times.log" >"$times.txt"
  echo "$(wc -l <"$times.txt") tests"
  ci/run_ctest.sh build/dev --names "$times.txt" --repeat until-fail:100 -j "$tests_at_once"
}

stage_soak() {
  build dev fault
  local transport status=0
  for transport in tcp shm; do
    if REMORA_TEST_TRANSPORT=$transport build/dev/tests/fault/fault --soak 60; then
      ok "soak: 60 s over $transport"
    else
      echo "not ok - soak: 60 s over $transport"
      status=1
    fi
  done
  ci/check_commands.py --where soak || status=1
  return "$status"
}

# With the programs of dev: the quick start's own tree compiles the same sources as the same units, which
# is compared. Its own build is a part of the stage fresh.
stage_quickstart() {
  build dev remora remora-server
  cmake --preset quickstart >"$logs/configure-quickstart.log" 2>&1 || {
    cat "$logs/configure-quickstart.log"
    return 1
  }
  if ! same_units build/quickstart build/dev; then
    echo "not ok - quickstart: its units are those of dev # see CMAKE_UNITY_BUILD_BATCH_SIZE in CMakePresets.json"
    return 1
  fi
  ok "quickstart: its units are those of dev"
  ci/quickstart-run.sh --bin build/dev --seconds 1
  ok "quickstart: natively, over shm"
  ci/cluster.sh --bin build/dev
  ok "quickstart: a volume over three servers"
}

# units_of TREE: "UNIT SOURCE" for each source that TREE compiles together with others, in their order.
# Generated sources are named by their tree.
units_of() {
  jq -r '.[].file | select(test("/Unity/unity_[^/]*$"))' "$1/compile_commands.json" |
    xargs grep -H '^#include "' |
    sed -E "s|^[^:]*/$1/([^:]+):#include \"(.*)\"\$|\1 \2|; s|/$1/|/TREE/|" | LC_ALL=C sort -s -k 1,1
}

# same_units TREE OTHER: each source that TREE compiles together with others is in the same unit of OTHER, in
# the same order. OTHER may have more: TREE has no volumes, but a source in each program that refuses them,
# which a unit test compiles in OTHER.
same_units() {
  local here=$logs/units-here.txt there=$logs/units-there.txt
  units_of "$1" | sed '/\/without_volumes\.cc$/d' >"$here"
  # Tests of OTHER compile some of the sources, too.
  units_of "$2" | awk '{ target = $1; sub(/\/Unity\/.*/, "", target) }
    NR == FNR { known[target, $2]; next } (target, $2) in known' "$here" - >"$there"
  echo "$(wc -l <"$here") sources of $1 compared with those of $2"
  [[ -s $here ]] && diff "$here" "$there"
}

stage_install() {
  build dev
  local commands=$logs/commands.log pid status=0
  # Beside it: the commands wait, and the outside projects are compiled.
  ci/check_commands.py --build build/dev >"$commands" 2>&1 &
  pid=$!
  ci/consumer/run.sh build/dev build/consumer || status=1
  wait "$pid" || status=1
  cat "$commands"
  return "$status"
}

# Everything that needs a device and one host.
stage_vm() {
  build dev
  vm_pair_of_guests build/dev "$tier"
}

# vm_list TREE TIER PART: writes to $logs/rxe-PART what a guest is to run. CTest reads the tests of every program
# before it selects some: half a minute in a guest.
vm_list() {
  ci/guest_suites.sh --list "$logs/rxe-$3" "$root/$1" "$2" "$3" || return 1
  if ! grep -q '^add_test' "$logs/rxe-$3/CTestTestfile.cmake"; then
    echo "not ok - rxe tests # no test of the part $3 carries the label rxe"
    return 1
  fi
}

# vm_guest TREE fast|gate|long: the suites of that tier in one guest (ci/guest_suites.sh).
vm_guest() {
  local seconds=3000
  [[ $2 != long ]] || seconds=12000  # sixty tests one after the other, of up to half an hour each
  vm_list "$1" "$2" all || return 1
  ci/vm/run.sh --memory 4G --timeout "$seconds" -- \
    "$root/ci/guest_suites.sh" "$root/$1" "$2" all "$logs/rxe-all"
}

# The same in two guests at once, which do not know of each other: one with two processors, for what is
# about several threads, and one with one (ci/guest_suites.sh).
vm_pair_of_guests() {
  local rest=$logs/vm-rest.log pid status=0
  vm_list "$1" "$2" rest || return 1
  vm_list "$1" "$2" threads || return 1
  ci/vm/run.sh --cpus 1 --memory 3G --timeout 3000 -- \
    "$root/ci/guest_suites.sh" "$root/$1" "$2" rest "$logs/rxe-rest" >"$rest" 2>&1 &
  pid=$!
  ci/vm/run.sh --memory 4G --timeout 3000 -- \
    "$root/ci/guest_suites.sh" "$root/$1" "$2" threads "$logs/rxe-threads" || status=1
  echo "the other guest:"
  wait "$pid" || status=1
  sed '/^  spent: boot/d' "$rest"  # it was beside the first one's
  return "$status"
}

# The tests that a change since `base` can affect, chosen by name (ci/affected.py).
stage_affected() {
  build dev
  ok "affected: builds without warnings"
  ci/affected.py --build build/dev "$base" >"$logs/affected.txt"
  local group status=0
  for group in native rxe; do
    # A file of names, since they may be more than a command line holds.
    awk -v group="$group" '!/^ / { wanted = $0 == group; next } wanted { print substr($0, 3) }' \
      "$logs/affected.txt" >"$logs/affected-$group.txt"
    [[ -s $logs/affected-$group.txt ]] || { skip "affected: $group" "no test depends on what has changed"; continue; }
    echo "$(wc -l <"$logs/affected-$group.txt") $group tests"
    if [[ $group == native ]]; then
      ci/run_ctest.sh build/dev --names "$logs/affected-native.txt" -j "$tests_at_once" || status=1
    else
      ci/vm/run.sh --memory 4G --timeout 2800 -- env REMORA_REQUIRE_DEVICE=1 \
        "$root/ci/run_ctest.sh" "$root/build/dev" --names "$logs/affected-rxe.txt" || status=1
    fi
  done
  return "$status"
}

# Two guests, one boot: what wants client and server on two hosts, with the smallest counts that would
# have found what was ever found (tests/fault/docs/counts.md).
stage_hosts() {
  build dev
  vm_verdicts "two guests" --guests 2 --memory 2G --timeout 1700 -- \
    "$root/ci/two_guests_suites.sh" "$root/build/dev"
}

# vm_pair NAME COMMAND...: in two guests. Call it and vm_verdicts where errexit is off, as in
# `vm_pair ... || status=1`.
vm_pair() { vm_verdicts "$1" --guests 2 --memory 2G --timeout 3000 -- "${@:2}"; }

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
  # shellcheck disable=SC2016  # the guest's shell expands it
  ci/vm/run.sh "${options[@]}" -- sh -c 'printf "  spent: boot %s\n" "$(cut -d " " -f 1 /proc/uptime)"
    exec env REMORA_REQUIRE_DEVICE=1 "$@"' sh "$@" 2>&1 |
    awk -v name="$name" -f ci/gtest_verdicts.awk
  states=("${PIPESTATUS[@]}")
  if ((states[1] == 2)); then return 1; fi
  if ((states[0] == 0 && states[1] == 0)); then return 0; fi
  # Badly ended without a verdict of a test: a failure of its own.
  echo "not ok - $name: the run # exit status ${states[0]}"
  return 1
}

# The tree of clang, which also checks the use of mutexes, and in which each fuzzer goes over its corpus.
stage_asan() {
  local status=0
  build asan-ubsan
  ok "asan: builds without warnings"
  build asan-ubsan all_verify_interface_header_sets
  ok "asan: every public header compiles alone"
  ci/check_thread_safety.py --build build/asan-ubsan || status=1
  tests/fuzz/run.sh --seconds 0 --build build/asan-ubsan || status=1
  run_asan -LE "$asan_never" -E "$asan_later" || status=1
  return "$status"
}

# Labels of native tests that never run with AddressSanitizer, or in a later tier.
asan_never='^(long|no-sanitizer|rxe.*)$'

# run_asan CTEST_ARGUMENT...: the tests of that tree that these choose.
run_asan() {
  ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1} \
    ASAN_SYMBOLIZER_PATH=${ASAN_SYMBOLIZER_PATH:-/usr/lib/llvm-14/bin/llvm-symbolizer} \
    LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$root/ci/lsan.supp:print_suppressions=0} \
    UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1} \
    REMORA_TIMEOUT_FACTOR=4 \
    ci/run_ctest.sh build/asan-ubsan --together "$@" -j "$tests_at_once"
}

stage_tsan() {
  local folder status=0 targets=()
  for folder in "${tsan_folders[@]}"; do
    # shellcheck disable=SC2206  # a list of words
    targets+=(${tsan_programs[$folder]:-$folder/all})
  done
  build tsan "${targets[@]}"
  ok "tsan: builds without warnings"
  for folder in "${tsan_folders[@]}"; do
    run_tsan "$folder" "${tsan_tests[$folder]:-.}" "$tsan_later" || status=1
  done
  return "$status"
}

# run_tsan FOLDER EXPRESSION [OTHERS [LABELS]]: the tests of the folder with such names, without those of OTHERS and
# without these labels.
run_tsan() {
  # Address randomisation beyond 28 bits is more than the ThreadSanitizer of GCC 12 and clang 14 can map.
  local plain=()
  if setarch "$(uname -m)" -R true 2>/dev/null; then plain=(setarch "$(uname -m)" -R); fi
  TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:suppressions=$root/ci/tsan.supp} \
    REMORA_TIMEOUT_FACTOR=4 \
    "${plain[@]}" ci/run_ctest.sh "build/tsan/$1" --together -LE "${4:-^(long|rxe.*)\$}" -R "$2" \
    -E "_NOT_BUILT\$${3:+|$3}" -j "$tests_at_once"
}

# What the gate leaves out of both.
stage_sanitizers() {
  local status=0
  build asan-ubsan all conformance_c volume_model
  run_asan -LE "$asan_never" -R "$asan_later" || status=1
  run_asan -L '^again$' || status=1
  # shellcheck disable=SC2086  # a list of words
  build tsan auth_peers conformance_c protection tests/unit/engine/all ${tsan_programs[tests/fault]}
  run_tsan tests/unit/engine "$tsan_later" || status=1
  # All but the programs of the stage tsan; of the C API also the halves with the label `again`.
  run_tsan tests/conformance . '^(Conformance/|Tcp|LocalPorts)' '^rxe' || status=1
  run_tsan tests/fault "${tsan_tests[tests/fault]}" || status=1
  ci/check_commands.py --where sanitizers || status=1
  return "$status"
}

# Each fuzzer from a fixed seed: the same inputs in each run, as far as they get.
stage_fuzz_timed() {
  build fuzz
  tests/fuzz/run.sh --seconds 120 --seed 1
}

# tidy_of ARGUMENT...: clang-tidy there (ci/tidy.py).
tidy_of() {
  cmake --preset tidy >"$logs/configure-tidy.log" 2>&1 || {
    cat "$logs/configure-tidy.log"
    return 1
  }
  local generated
  mapfile -t generated < <(ninja -C build/tidy -t targets all | sed -n 's/^\([^ /][^ ]*\.pb\.h\): .*/\1/p')
  if ((${#generated[@]})); then ninja -C build/tidy "${generated[@]}"; fi
  ci/tidy.py --build build/tidy -j "$jobs" "$@"
}

stage_tidy() {
  ci/check_thread_safety.py --tidy
  tidy_of --changed-since "$base" verbs engine config metrics apps
}

stage_tidy_all() { tidy_of verbs engine config metrics apps; }

stage_tidy_tests() { tidy_of tests; }

stage_vm_self() {
  local status=0
  ci/vm/test.sh all || status=1
  ci/check_commands.py --where vm-self || status=1
  return "$status"
}

stage_vm_long() {
  build dev
  local status=0
  vm_guest build/dev long || status=1
  vm_pair "two guests: conformance" "$root/tests/conformance/two_guests.sh" "$root/build/dev" || status=1
  vm_pair "two guests: client gone" "$root/tests/fault/client_host_faults.sh" "$root/build/dev" ||
    status=1
  vm_pair "two guests: fault" "$root/tests/fault/two_guests_faults.sh" "$root/build/dev" || status=1
  vm_pair "two guests: mirror" "$root/tests/fault/two_guests_mirror.sh" "$root/build/dev" || status=1
  vm_verdicts "two namespaces: fault" --timeout 1200 -- "$root/tests/fault/netns_faults.sh" \
    "$root/build/dev" || status=1
  ci/check_commands.py --where vm-long || status=1
  return "$status"
}

stage_vm_asan() {
  cmake --preset asan-ubsan -DREMORA_BUILD_DEVICE_TESTS=ON >"$logs/configure-asan-ubsan.log"
  build asan-ubsan
  vm_guest build/asan-ubsan gate
}

stage_vm_repeat() {
  build dev
  local round status=0
  for round in 1 2 3; do
    echo "round $round"
    vm_guest build/dev gate || status=1
    stage_hosts || status=1
  done
  return "$status"
}

stage_bench() {
  ci/setup.sh bench vm
  build dev
  local status=0
  tests/bench/compare.sh --smoke --build build/dev || status=1
  # Whether the commands work, with pairs as short as those of --quick, where they do not say how many.
  PAIRS=7 MS=50 GUEST_MS=300 ci/check_commands.py --where bench || status=1
  return "$status"
}

stage_docker() { ci/docker/test.sh; }

stage_package() {
  ci/setup.sh build package fresh vm
  local status=0
  ci/package.sh --twice || status=1
  ci/package_test.sh --systemd || status=1
  return "$status"
}

stage_fresh() { ci/fresh.sh; }
