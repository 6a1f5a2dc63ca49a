# shellcheck shell=bash
# shellcheck disable=SC2154  # what the scripts set that source this
# Faults of the link between a server and a load, with their counts. Sourced by two_guests_faults.sh
# (rdma, two hosts) and netns_faults.sh (tcp, two network namespaces). Those say what `transport`,
# `server_address`, `mixes` (options of the loads that work at the same time, each in a region of its
# own) and `client_prefix` (what their commands begin with) are, and provide
#
#   link_both NAME ARGUMENT...   `vm-link ARGUMENT...` at both ends; NAME is the fault's
#   link_here ARGUMENT...        at the client's end only
#   count_repairs                how often a transport has had to mend something so far, at this end
#   server_repaired NAME         whether it had to at the server's, while NAME lasted
#   server_impaired NAME         whether netem has had the packets there, while NAME lasted

link_help() {
  cat <<'USAGE'
  --only PATTERN      faults whose name matches, e.g. 'loss-*' (all)
  --gtest_filter=...  left out of account: CI hands it to every script of this kind

REMORA_FAULT_ROUNDS=long: 100,000 operations and 20 rounds instead of 2,000 and 2, cuts of 10 s and
60 s beside those of 1 s; 50 kills of a process instead of 5. REMORA_FAULT_ROUNDS=least: 500 operations,
1 round, 2 kills, 3 lanes that break instead of 20. REMORA_FAULT_SEED: of what the loads draw.
USAGE
}

# A name and what netem does with what leaves either end.
netem_faults='loss-0.1 loss 0.1%
loss-1 loss 1%
loss-5 loss 5%
duplicate duplicate 5%
reorder delay 2ms reorder 30%
corrupt corrupt 1%'

# A name, what breaks the link at the client's end, and what mends it.
cut_faults='partition drop both:pass
one-way-out drop out:pass
one-way-in drop in:pass
link-down down:up'
link_down_comes_back=yes # whether connections can be made again, once the interface is up
test_suite=LinkFaultTest server_port=7471 client_objects='' # where a caller has no others

link_die() {
  echo "${0##*/}: $*" >&2
  exit 2
}

# link_arguments ARGUMENT...: sets `tree`, the programs, the counts and the folder of this run.
link_arguments() {
  local program
  tree='' only='*'
  while (($#)); do
    case $1 in
      --only)
        (($# >= 2)) || link_die "--only needs a pattern"
        only=$2
        shift
        ;;
      --gtest_filter=*) ;;
      -*) link_die "unknown option $1 (see --help)" ;;
      *) tree=$1 ;;
    esac
    shift
  done
  [[ $tree ]] || link_die "which build tree? (see --help)"
  load=$tree/tests/fault/fault_load server_program=$tree/apps/remora-server
  for program in "$load" "$server_program"; do
    [[ -x $program ]] || link_die "there is no $program: build it"
  done
  for program in jq curl; do
    command -v "$program" >/dev/null || link_die "$program is missing: run ci/setup.sh build"
  done
  operations=2000 rounds=2 lengths=1 records=20000
  case ${REMORA_FAULT_ROUNDS:-short} in
    short) ;;
    least) operations=500 rounds=1 ;;
    long) operations=100000 rounds=20 lengths='1 10 60' records=100000 ;;
    *) link_die "REMORA_FAULT_ROUNDS is '$REMORA_FAULT_ROUNDS': use least, short or long" ;;
  esac
  seed=${REMORA_FAULT_SEED:-$((RANDOM * 30 + 1))}
  work=$(mktemp -d /tmp/link-faults.XXXXXX)
  tests=0 failures=0
}

# chosen NAME: whether --only wants it.
# shellcheck disable=SC2053  # a pattern
chosen() { [[ $1 == $only ]]; }
chosen_any() {
  local name length
  while read -r name _; do
    if chosen "$name"; then return 0; fi
  done <<<"$netem_faults"
  while read -r name _; do
    for length in $lengths; do
      if chosen "$name-$length"; then return 0; fi
    done
  done <<<"$cut_faults"
  return 1
}

# Each fault has a region of its own, which is zero: no block need be written before it begins.
region_names() {
  local name length round
  while read -r name _; do echo "$name"; done <<<"$netem_faults"
  while read -r name _; do
    for length in $lengths; do
      echo "$name-$length"
      if [[ $name == link-down && $link_down_comes_back == no ]]; then
        for ((round = 1; round < rounds; ++round)); do echo "$name-$length.again$round"; done
      fi
    done
  done <<<"$cut_faults"
  echo kill
  echo warm
}

# start_server [PREFIX...]: remora-server for one transport; its process id in `server`.
start_server() {
  local name index try
  {
    echo "listen: { address: $server_address, port: $server_port }"
    echo 'transports:'
    for name in rdma shm tcp; do
      if [[ $name == "$transport" ]]; then echo "  $name: required"; else echo "  $name: off"; fi
    done
    echo "pool: { size: $(($(region_names | wc -l) * ${#mixes[@]} * 2 + 16))MiB, piece: 1MiB }"
    echo 'auth: none'
    echo 'limits: { drain_timeout: 0s }'
    echo 'metrics: { address: "127.0.0.1:9471" }'
    echo 'regions:'
    for name in $(region_names); do
      for index in "${!mixes[@]}"; do
        echo "  - { name: $name.$index, size: 2MiB, block: 4KiB }"
      done
    done
  } >"$work/server.yaml"
  "$@" "$server_program" --config "$work/server.yaml" >"$work/server.log" 2>&1 &
  server=$!
  for ((try = 0; try < 300; ++try)); do
    if "$@" curl -sf --max-time 2 -o "$work/ready" http://127.0.0.1:9471/readyz; then
      warm_server "$server_port" "$@"
      await 30 0 sessions "$@" || link_die "the server keeps the session of the client that has warmed it: $found"
      server_idle=$(server_holds_settled "$server" http://127.0.0.1:9471 "$@")
      return 0
    fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cat "$work/server.log" >&2
  link_die "the server did not get ready"
}

# warm_server PORT [PREFIX...]: what is made once and kept is made for the first client.
warm_server() {
  local port=$1
  shift
  "$@" "$load" ${mixes[0]:+${mixes[0]}} --fresh --operations 20 --seconds 60 --queues 1 --threads 1 --depth 4 \
    --deadline-ms 20000 --uri "remora://$server_address:$port/warm.0?transport=$transport" \
    >"$work/warm" 2>&1 || { cat "$work/warm" >&2; link_die "the server does not serve"; }
}

# await SECONDS WANTED COMMAND...: until it prints that. What it does print is in `found`.
await() {
  local until=$((EPOCHSECONDS + $1)) wanted=$2
  shift 2
  while found=$("$@"); [[ $found != "$wanted" ]]; do
    ((EPOCHSECONDS < until)) || return 1
    sleep 0.1
  done
}

# server_holds PID METRICS [PREFIX...]: what a server's process has of the system, and what it has of
# devices by its own count: the kernel does not list windows (I8). No line where it does not answer.
server_holds() {
  local pid=$1 url=$2 of_devices
  shift 2
  of_devices=$("$@" curl -sf --max-time 5 "$url/metrics" | awk '
    /^remora_server_registrations[ {]/ { registrations += $NF }
    /^remora_server_windows[ {]/ { windows += $NF }
    END { if (NR) print "registrations=" registrations + 0 " windows=" windows + 0 }') || return 0
  # The one that asked has hung up: its descriptor is the server's for a moment longer.
  echo "descriptors=$(find "/proc/$pid/fd" -mindepth 1 | wc -l) threads=$(find "/proc/$pid/task" -mindepth 1 -maxdepth 1 | wc -l)" \
    "$(awk '/^Vm(Pin|Lck):/ { printf "%s%s ", $1, $2 }' "/proc/$pid/status")$of_devices"
}

# server_holds_settled ARGUMENT...: once it has said the same three times.
server_holds_settled() {
  local now last='' same=0 try
  for ((try = 0; try < 50 && same < 3; ++try)); do
    now=$(server_holds "$@")
    if [[ $now && $now == "$last" ]]; then same=$((same + 1)); else same=0; fi
    last=$now
    sleep 0.1
  done
  echo "$last"
}

# host_objects: of the devices of this host. A device that was made anew has another number.
host_objects() { if [[ $transport == rdma ]]; then rdma resource show | sed 's/^[0-9]*: //'; fi; }

# expect_host_as_before: of what there was before the first load, `client_objects`, nothing is added.
expect_host_as_before() {
  [[ ${client_objects:-} ]] || return 0
  await 30 "$client_objects" host_objects ||
    wrong "I8: device objects of the client's host were $client_objects and are $found"
}

# link_passed [PREFIX...]: packets that netem has had there, or lost; 0 where there is none.
link_passed() {
  "$@" vm-link show | awk '/^qdisc/ { netem = $2 == "netem" }
    netem && /Sent/ { gsub(/[(,]/, ""); print $4 + $7; seen = 1; exit } END { if (!seen) print 0 }'
}

# sessions [PREFIX...]: how many the server has, with those that it keeps for clients to come back.
sessions() {
  "$@" curl -sf --max-time 5 http://127.0.0.1:9471/metrics |
    awk '/^remora_server_sessions(_kept)?[ {]/ { sum += $NF } END { print NR ? sum : "unknown" }'
}

# start_load REGION SECONDS OPERATIONS ARGUMENT...: in the background, one for each of `mixes`, which
# share OPERATIONS (0: as many as there are). Their process ids go to `load_pids`.
start_load() {
  local region=$1 seconds=$2 count=() index=0 mix
  if (($3)); then count=(--operations $(($3 / ${#mixes[@]}))); fi
  shift 3
  load_pids=()
  for mix in "${mixes[@]}"; do
    # shellcheck disable=SC2086  # words
    "${client_prefix[@]}" "$load" $mix --fresh --json --seed $((seed + index)) --records "$records" \
      --uri "remora://$server_address:$server_port/$region.$index?transport=$transport" \
      --seconds "$seconds" "${count[@]}" "$@" >"$work/report.$index" 2>"$work/load.$index.log" &
    load_pids+=($!)
    index=$((index + 1))
  done
}

# loads_say TEXT SECONDS: waits until each does, or has ended.
loads_say() {
  local until=$((EPOCHSECONDS + $2)) index
  for index in "${!load_pids[@]}"; do
    while ! grep -q "$1" "$work/load.$index.log"; do
      kill -0 "${load_pids[index]}" 2>/dev/null || break
      if ((EPOCHSECONDS >= until)); then
        wrong "load $index did not say '$1' within $2 s"
        return 0
      fi
      sleep 0.2
    done
  done
}

# end_loads: waits for them, and makes one report of theirs.
end_loads() {
  local index status
  for index in "${!load_pids[@]}"; do
    status=0
    wait "${load_pids[index]}" || status=$?
    if ((status != 0)); then
      wrong "load $index ended with status $status (1: a promise was broken)"
      jq -r '.violations[]' "$work/report.$index" 2>/dev/null | sed 's/^/  /' || true
      sed 's/^/  /' "$work/load.$index.log"
    fi
  done
  jq -s 'def total(key): map(key) | add;
    { operations: total(.operations), ok: total(.ok),
      failed: (map(.failed | to_entries[]) | group_by(.key)
               | map({ key: .[0].key, value: (map(.value) | add) }) | from_entries),
      longest_verdict_ms: map(.longest_verdict_ms) | max,
      longest_overrun_ms: map(.longest_overrun_ms) | max,
      longest_silence_ms: map(.longest_silence_ms) | max,
      longest_stall_ms: map(.longest_stall_ms) | max, excused: total(.excused),
      given_back_ms: map(.given_back_ms) | max,
      least_silence_ms: map(.longest_silence_ms) | min,
      interrupted: total(.interrupted), resumed: total(.resumed), lost: total(.lost),
      opened: total(.opened), open_failures: total(.open_failures), stale: total(.stale),
      atomics: map(.atomics) | max, lives: map(.lives) | max, looked_around: map(.looked_around),
      look_errors: (map(.look_error | select(. != "")) | unique | join("; ")) }
    | . + { line: ("operations=\(.operations) ok=\(.ok) failed{" +
        (.failed | to_entries | map((.key | gsub(" "; "_")) + "=\(.value)") | join(",")) +
        "} longest_verdict_ms=\(.longest_verdict_ms) longest_overrun_ms=\(.longest_overrun_ms)" +
        " longest_silence_ms=\(.longest_silence_ms) interrupted=\(.interrupted)" +
        " resumed=\(.resumed) lost=\(.lost) opened=\(.opened) given_back_ms=\(.given_back_ms)" +
        " longest_stall_ms=\(.longest_stall_ms) excused=\(.excused)") }' \
    "$work"/report.* >"$work/report" 2>"$work/null" || wrong "a load left no report"
  (($(value .atomics) < records)) || wrong "a load had no room for more atomics before its end"
}

# value FILTER: of the report of all loads; 0 without one.
value() { jq -r "$1" "$work/report" 2>/dev/null || echo 0; }

# wrong TEXT...: the running test has failed.
wrong() {
  echo "  $*"
  broken=1
}

milliseconds() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }

begin_test() {
  test_name=$1 broken=0 extra=''
  test_began=$(milliseconds)
  rm -f "$work"/report* "$work"/load.*.log
  echo "[ RUN      ] $test_suite.$test_name/$transport"
}

# end_test ROUNDS: the line and the verdict.
end_test() {
  local verdict='[       OK ]'
  expect_host_as_before
  echo "fault: $test_suite.$test_name transport=$transport rounds=$1 $(value .line) ${extra}seed=$seed"
  tests=$((tests + 1))
  if ((broken)); then
    verdict='[  FAILED  ]' failures=$((failures + 1))
  fi
  echo "$verdict $test_suite.$test_name/$transport ($(($(milliseconds) - test_began)) ms)"
}

# What the client's host makes of the link.
tell_of_link() {
  "${client_prefix[@]}" ip neigh show | sed 's/^/  neighbour: /' || true
  "${client_prefix[@]}" tc qdisc show | sed 's/^/  /' || true
  "${client_prefix[@]}" busybox ping -c 2 -W 1 "$server_address" 2>&1 | sed -n 's/.*packets transmitted/  ping: &/p' || true
}

# One memory all the time, and each block read once more when the link was whole again.
expect_same_memory() {
  if [[ $(value '.looked_around | all') != true ]]; then
    wrong "with the link mended, not every block could be read: $(value .look_errors)"
    tell_of_link
  fi
  [[ $(value .lives) == 1 ]] || wrong "the memory had $(value .lives) lives; its server went on"
}

# netem_test NAME ARGUMENT...: so many operations over a link which treats packets so at both ends.
netem_test() {
  local name=$1 before here there=no percent passed
  shift
  begin_test "$name"
  link_both "$name" netem "$@"
  before=$(count_repairs)
  # Packets may need several of a transport's time-outs: the verdict is about what is answered.
  start_load "$name" $((operations / 20 + 100)) "$operations" --deadline-ms 20000 \
    --control-deadline-ms 20000
  loads_say 'at rest' $((operations / 20 + 150))
  here=$(($(count_repairs) - before))
  passed=$(link_passed "${client_prefix[@]}")
  link_both "$name" pass
  if server_repaired "$name"; then there=yes; fi
  end_loads
  extra="repairs=$here server_repairs=$there packets=$passed "
  # However few were to be hit: a packet an operation has gone through netem, at either end. Rare
  # faults are seen by nothing else.
  ((passed >= operations)) || wrong "netem has had $passed packets of the client's: the fault was not there"
  server_impaired "$name" || wrong "netem has not had the server's packets: the fault was not there"
  expect_same_memory
  # A packet an operation at least: where ten must have been hit, something was to be mended.
  percent=${*: -1}
  percent=${percent%\%}
  if awk -v hit="$percent" -v n="$operations" 'BEGIN { exit !(hit * n / 100 >= 10) }' &&
    ((here == 0)) && [[ $there == no ]]; then
    wrong "neither end had anything to mend: the fault was not there"
  fi
  end_test 1
}

# cut_test REGION LENGTH BREAK MEND TIMES: under load, the link is cut so for LENGTH s, so many times.
cut_test() {
  local name=$1 length=$2 break=$3 mend=$4 times=$5 round gap pid
  gap=$((length / 2 + 3))
  begin_test "$name"
  # Within the longest cut, sessions lapse, are lost, and are followed by others. Each cut leaves as
  # many atomics of unknown outcome as were under way: the fewer, the sooner their order is found.
  # It is told when to end: the time is for when it is not told, on a host that takes long to cut and mend.
  start_load "$name" $((times * (length + gap + 30) + 300)) 0 --rate 200 --depth 16 --deadline-ms 2000 \
    --reconnect-seconds 30
  loads_say 'under way' 60
  sleep 1
  for ((round = 0; round < times; ++round)); do
    # shellcheck disable=SC2086  # words
    link_here $break
    sleep "$length"
    # shellcheck disable=SC2086
    link_here $mend
    sleep "$gap"
  done
  for pid in "${load_pids[@]}"; do
    kill -TERM "$pid" 2>/dev/null || wrong "a load ended before the last cut was mended"
  done
  end_loads
  if [[ $mend != up || $link_down_comes_back == yes ]]; then expect_same_memory; fi
  (($(value .least_silence_ms) >= length * 900)) ||
    wrong "operations were answered for all the time: the link was not cut"
  end_test "$times"
}

# All of both kinds that are wanted.
link_tests() {
  local name arguments length round
  chosen kill || chosen_any || link_die "--only '$only' matches no fault"
  while read -r name arguments; do
    # shellcheck disable=SC2086  # words
    if chosen "$name"; then netem_test "$name" $arguments; fi
  done <<<"$netem_faults"
  while read -r name arguments; do
    for length in $lengths; do
      chosen "$name-$length" || continue
      if [[ $name == link-down && $link_down_comes_back == no ]]; then
        cut_test "$name-$length" "$length" down up 1
        renew_device
        for ((round = 1; round < rounds; ++round)); do
          cut_test "$name-$length.again$round" "$length" down up 1
          renew_device
        done
      else
        cut_test "$name-$length" "$length" "${arguments%:*}" "${arguments#*:}" "$rounds"
      fi
    done
  done <<<"$cut_faults"
}

# nothing_left [PREFIX...]: within the time that the server keeps a lost session, none is left.
nothing_left() {
  local found=unknown began try
  broken=0 began=$(milliseconds)
  echo "[ RUN      ] LinkFaultTest.NothingIsLeft/$transport"
  for ((try = 0; try < 120; ++try)); do
    found=$(sessions "$@")
    [[ $found != 0 ]] || break
    sleep 0.25
  done
  tests=$((tests + 1))
  if [[ $found != 0 ]]; then
    wrong "the server still has $found sessions"
  elif ! await 30 "$server_idle" server_holds "$server" http://127.0.0.1:9471 "$@"; then
    wrong "I8: the server held $server_idle and now holds $found"
  else
    echo "  $server_idle"
  fi
  if ((!broken)); then
    echo "[       OK ] LinkFaultTest.NothingIsLeft/$transport ($(($(milliseconds) - began)) ms)"
  else
    failures=$((failures + 1))
    echo "[  FAILED  ] LinkFaultTest.NothingIsLeft/$transport ($(($(milliseconds) - began)) ms)"
  fi
}
