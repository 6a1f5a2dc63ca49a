# shellcheck shell=bash disable=SC2034,SC2154  # variables of compare.sh
# Programs that take turns, rows and tables. Sourced by compare.sh.

failed=0
declare -A driver_command=() driver_in=() driver_out=() driver_pid=() driver_absent=()
declare -A service_pid=()
section='' work='' notes=()

say() { printf 'compare: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 2; }

check_build() {
  local program programs=(tests/bench/ratio_table)
  case ${sections[*]} in
    nbd) programs+=(apps/remora-server) ;;
    volume) programs+=(tests/bench/side_volume tests/bench/side_rebuild tests/bench/side_failover) ;;
    *) programs+=(tests/bench/side_remora tests/bench/bench_shm_vs_memcpy) ;;
  esac
  for program in "${programs[@]}"; do
    [[ -x $build/$program ]] ||
      die "there is no $build/$program: cmake --preset release && cmake --build --preset release"
  done
  (($(nproc) >= 2)) || die "two processors are needed, one for each side"
  work=$(mktemp -d)
}

clean_up() {
  local name
  for name in "${!driver_pid[@]}"; do kill "${driver_pid[$name]}" 2>/dev/null || true; done
  for name in "${!service_pid[@]}"; do kill "${service_pid[$name]}" 2>/dev/null || true; done
  [[ -z $work ]] || rm -rf "$work"
  [[ -z ${files_folder:-} ]] || rm -rf "$files_folder"
}

# --- programs --------------------------------------------------------------------------------------

# driver NAME COMMAND...: a program that answers jobs (jobs.h), started when the first row wants it.
driver() {
  local name=$1
  shift
  driver_command[$name]=$*
  local program=$1
  [[ $program == "$build"/* && ! -x $program ]] &&
    absent "$name" "$program was not built: its library is absent (ci/setup.sh bench, then configure again)"
  return 0
}

# absent DRIVER WHY: its rows are left out.
absent() { driver_absent[$1]=$2; }

# need DRIVER PROGRAM PACKAGE
need() {
  command -v "$2" >/dev/null ||
    absent "$1" "there is no $2: install the package $3 (ci/setup.sh bench)"
}

start_driver() {
  local name=$1 fd words
  read -ra words <<<"${driver_command[$name]}"
  mkfifo "$work/$name.in" "$work/$name.out"
  (
    for fd in "${driver_in[@]}" "${driver_out[@]}"; do exec {fd}>&-; done # so that they see an end
    exec "${words[@]}" <"$work/$name.in" >"$work/$name.out" 2>"$work/$name.log"
  ) &
  driver_pid[$name]=$!
  exec {fd}>"$work/$name.in"
  driver_in[$name]=$fd
  exec {fd}<"$work/$name.out"
  driver_out[$name]=$fd
}

# Ends all programs but those that are named, and gives their memory back: each has a gibibyte of its own,
# and a guest not room for all of them at once.
stop_drivers_but() {
  local name
  for name in "${!driver_pid[@]}"; do
    [[ " $* " == *" $name "* ]] || stop_driver "$name"
  done
}

# stop_driver NAME: its exit status goes to `ended`.
stop_driver() {
  local name=$1 fd
  ended=0
  fd=${driver_in[$name]}
  exec {fd}>&-
  fd=${driver_out[$name]}
  exec {fd}<&-
  wait "${driver_pid[$name]}" || ended=$?
  rm -f "$work/$name.in" "$work/$name.out"
  unset "driver_pid[$name]" "driver_in[$name]" "driver_out[$name]"
}

# stop_service NAME: a daemon that rows use; service_pid has its pid.
stop_service() {
  local pid=${service_pid[$1]:-}
  [[ -n $pid ]] || return 0
  kill "$pid" 2>/dev/null || true
  wait "$pid" || true
  unset "service_pid[$1]"
}

# how_ended STATUS: in words.
how_ended() {
  if (($1 == 137)); then
    echo "was killed by SIGKILL: out of memory, unless it was ended by hand (dmesg)"
  elif (($1 > 128)); then
    echo "was killed by SIG$(kill -l "$1")"
  else
    echo "ended with status $1"
  fi
}

# measure DRIVER JOB: sets `reply`, or returns 1. A function measure_DRIVER stands for programs that
# do not read jobs.
measure() {
  local name=$1 job=$2
  reply=''
  if declare -F "measure_$name" >/dev/null; then
    reply=$("measure_$name" "$job" 2>>"$work/$name.log") || true
  else
    [[ -n ${driver_pid[$name]:-} ]] || start_driver "$name"
    { printf '%s %s\n' "$job" "${section_ms:-$ms}" >&"${driver_in[$name]}"; } 2>/dev/null || true
    read -r -t 180 reply <&"${driver_out[$name]}" || true
  fi
  [[ $reply =~ ^[0-9.]+$ ]] && return 0
  if [[ ! $reply && ${driver_pid[$name]:-} ]] && ! kill -0 "${driver_pid[$name]}" 2>/dev/null; then
    stop_driver "$name"
    say "error: $name $(how_ended "$ended") at '$job'"
  else
    say "error: $name did not answer '$job'${reply:+, but said: $reply}"
  fi
  tail -n 5 "$work/$name.log" >&2 2>/dev/null || true
  return 1
}

# --- rows ------------------------------------------------------------------------------------------

# wanted NAME PEER GOAL: whether this row is to be measured.
wanted() {
  [[ "$1 $2" =~ ${ROWS:-.} ]] || return 1
  ((list)) || return 0
  printf '%-6s %-52s %-24s %s\n' "$section" "$1" "$2" "$3"
  return 1
}

# row NAME PEER UNIT GOAL OURS OUR_JOB THEIRS THEIR_JOB
row() {
  local name=$1 peer=$2 unit=$3 goal=$4 ours=$5 our_job=$6 theirs=$7 their_job=$8 pair mine other
  wanted "$name" "$peer" "$goal" || return 0
  if [[ -n ${driver_absent[$theirs]:-} ]]; then
    leave_out "$name" "$peer" "${driver_absent[$theirs]}"
    return 0
  fi
  stop_drivers_but "$ours" "$theirs"
  for ((pair = 0; pair < pairs; ++pair)); do
    if ((pair % 2)); then
      measure "$theirs" "$their_job" || break
      other=$reply
      measure "$ours" "$our_job" || break
      mine=$reply
    else
      measure "$ours" "$our_job" || break
      mine=$reply
      measure "$theirs" "$their_job" || break
      other=$reply
    fi
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$peer" "$unit" "$goal" "$mine" "$other" >>"$work/pairs"
  done
  if ((pair < pairs)); then
    failed=1
    note "not complete: $name beside $peer: a program failed"
    ((!smoke)) || echo "not ok - $section: $name beside $peer"
  elif ((smoke)); then
    echo "ok - $section: $name beside $peer"
  fi
}

note() { notes+=("$*"); }
leave_out() {
  note "left out: $1 beside $2: $3"
  ((!smoke)) || echo "ok - $section: $1 beside $2 # SKIP $3"
}

# threads_rows TRANSPORT GOAL FEWER: 2 threads beside 1, 4 and 8 beside FEWER of our own.
threads_rows() {
  local threads op
  for threads in 1 2 4 8; do
    driver "$1_threads_$threads" "$build/tests/bench/side_remora" --transport "$1" --threads "$threads"
  done
  for op in read write; do
    threads_row "$1" "$2" "$op" 2 1
    threads_row "$1" "$2" "$op" 4 "$3"
    threads_row "$1" "$2" "$op" 8 "$3"
  done
}
# threads_row TRANSPORT GOAL OP THREADS FEWER
threads_row() {
  row "$3 4 KiB, depth 32, $4 threads" "$5 of our own" ops/s "$2" \
    "$1_threads_$4" "$3 4096 32 ops/s" "$1_threads_$5" "$3 4096 32 ops/s"
}

# neighbours_rows TRANSPORT OPTION...: batches of neighbouring blocks in a random order, each to its
# place in registered memory, beside batches of random blocks.
neighbours_rows() {
  local transport=$1 op size depth
  shift
  driver "$transport.shuffled" "$build/tests/bench/side_remora" --transport "$transport" "$@" \
    --blocks shuffled
  driver "$transport.random" "$build/tests/bench/side_remora" --transport "$transport" "$@" \
    --batch 1024
  for op in read write; do
    for size in 64 4096; do
      for depth in 32 256; do
        row "$op $(size_name "$size"), batches of $depth shuffled neighbours" "random blocks" ops/s - \
          "$transport.shuffled" "$op $size $depth steady/s" \
          "$transport.random" "$op $size $depth steady/s"
      done
    done
  done
}

# --- sections --------------------------------------------------------------------------------------

begin_section() {
  section=$1 notes=() section_ms=''
  ((list)) || : >"$work/pairs"
}

# The table to stdout, with what is needed to judge it.
end_section() {
  stop_drivers_but
  ((list)) && return 0
  if [[ -s $work/pairs ]] && ((!smoke)); then
    printf '\n## %s\n\n' "$section"
    printf 'Linux %s, %s processors, %s; spin round trip %s ns; pairs of %s ms a side.\n' \
      "$(uname -r)" "$(nproc)" "$(date -u +%F)" "$("$build/tests/bench/ratio_table" --spin)" \
      "${section_ms:-$ms}"
    printf '%s\n\n' "${section_versions:-}"
    "$build/tests/bench/ratio_table" <"$work/pairs" || failed=1
  fi
  ((${#notes[@]})) && printf '%s\n' '' "${notes[@]}"
  return 0
}

# version_of PACKAGE...: "memcached 1.6.18-1" of those that are installed, for the line above a table.
version_of() {
  local package found all=''
  for package in "$@"; do
    found=$(dpkg-query -W -f='${Version}' "$package" 2>/dev/null) || continue
    all+="${all:+, }$package $found"
  done
  printf '%s' "$all"
}

# size_name BYTES: "64 B", "4 KiB"
size_name() {
  if (($1 < 1024)); then
    echo "$1 B"
  elif (($1 < 1048576)); then
    echo "$(($1 / 1024)) KiB"
  else
    echo "$(($1 / 1048576)) MiB"
  fi
}
