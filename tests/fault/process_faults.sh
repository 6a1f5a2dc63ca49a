# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # what link_faults.sh and its caller read and set
# Processes that are killed or stopped, between two guests: the server in guest 0, the loads in guest 1.
# Sourced by two_guests_faults.sh, behind link_faults.sh. Each fault has a server of its own, which
# guest 0 starts, breaks and looks at; guest 1 has the loads, and the verdict.

# A name, and the `limits.session_lease` and `limits.session_keep` of its server. No session lapses by a
# stop of 1 s; of those of 5 and 30 s clients hear nothing for longer than their lease.
process_faults='server-kill 10s 10s
client-kill 10s 200ms
lock-holder 3s 20s
server-stop-1 10s 20s
server-stop-5 3s 20s
server-stop-30 10s 20s'
process_port=7474 process_metrics=http://127.0.0.1:9474

# process_arguments: `process_wanted`, the faults that are to be tried, and how often each is.
process_arguments() {
  local name
  process_wanted=() holder_program=$tree/tests/fault/fault remora_program=$tree/apps/remora
  while read -r name _; do
    chosen "$name" || continue
    if [[ $name == lock-holder && ! (-x $holder_program && -x $remora_program) ]]; then
      link_die "there is no $holder_program, or no $remora_program: build them"
    fi
    process_wanted+=("$name")
  done <<<"$process_faults"
}

# process_rounds NAME
process_rounds() {
  case $1 in
    *-kill) echo $((rounds == 1 ? 2 : rounds == 2 ? 5 : 50)) ;;
    *) echo "$rounds" ;;
  esac
}

# pause_for LEAST MOST: a while of so many milliseconds.
pause_for() {
  local ms=$(($1 + RANDOM % ($2 - $1 + 1)))
  sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
}

# victim_region ROUND INDEX: the load that writes takes over what the one before it has left, and would
# find what lands late; that of the atomics wants words that are zero.
victim_region() {
  if (($2)); then echo "victim-$1.$2"; else echo victim.0; fi
}

# process_regions NAME: of the server of that fault.
process_regions() {
  local index round
  echo warm.0
  if [[ $1 == lock-holder ]]; then
    for ((round = 1; round <= $(process_rounds "$1"); ++round)); do echo "lock-holder.$round"; done
    return 0
  fi
  for index in "${!mixes[@]}"; do echo "$1.$index"; done
  [[ $1 == client-kill ]] || return 0
  for index in "${!mixes[@]}"; do
    for ((round = 1; round <= $(process_rounds "$1"); ++round)); do victim_region "$round" "$index"; done
  done | sort -u
}

# --- Guest 0: the server -------------------------------------------------------------------------

# process_config NAME LEASE KEEP
process_config() {
  local region regions
  regions=$(process_regions "$1")
  echo "listen: { address: $server_address, port: $process_port }"
  echo 'transports: { rdma: required, shm: off, tcp: off }'
  echo "pool: { size: $(($(wc -l <<<"$regions") * 4 + 16))MiB, piece: 1MiB }"
  echo 'auth: none'
  echo "limits: { session_lease: $2, session_keep: $3, drain_timeout: 0s }"
  echo "metrics: { address: \"${process_metrics#http://}\" }"
  echo 'regions:'
  for region in $regions; do echo "  - { name: $region, size: 4MiB, block: 4KiB }"; done
}

# start_process_server: its process id in `process_server`. It may not be ready yet.
start_process_server() {
  "$server_program" --config "$work/process.yaml" >"$work/process.log" 2>&1 &
  process_server=$!
}

# server_wrong TEXT...: the running test has failed, and its load is to know.
server_wrong() {
  echo "  $process_name: $*"
  vm-signal "$process_name.failed"
}

# process_counts: what the server holds for clients.
process_counts() {
  curl -sf --max-time 5 "$process_metrics/metrics" | awk '
    /^remora_server_sessions[ {]/ { sessions += $NF }
    /^remora_server_sessions_kept[ {]/ { kept += $NF }
    /^remora_server_grants[ {]/ { grants += $NF }
    END { if (NR) print "sessions=" sessions + 0 " kept=" kept + 0 " grants=" grants + 0 }' || true
}

# process_ended REASON: how many sessions the server has ended so.
process_ended() {
  curl -sf --max-time 5 "$process_metrics/metrics" |
    awk -v wanted="reason=\"$1\"" 'index($0, "remora_server_sessions_ended_total") == 1 && index($0, wanted) {
      sum += $NF; ++seen } END { print seen ? sum + 0 : "unknown" }' || true
}

# all_at_work ROUND: each load has a session and a grant.
all_at_work() {
  local wanted="sessions=${#mixes[@]} kept=0 grants=${#mixes[@]}"
  await 60 "$wanted" process_counts && return 0
  server_wrong "after round $1 the server had '$found' instead of '$wanted'"
  [[ $found ]] || sed 's/^/  /' "$work/process.log"
  return 1
}

# Under way, it is killed and another one listens there.
break_by_server_kill() {
  local round
  vm-wait server-kill.under.way "$patience"
  for ((round = 1; round <= $(process_rounds server-kill); ++round)); do
    pause_for 200 600 # a grant is there before the first operation is
    kill -KILL "$process_server"
    wait "$process_server" 2>"$work/null" || true
    pause_for 0 100
    start_process_server
    all_at_work "$round" || return 0
  done
}

# break_by_stop LENGTH
break_by_stop() {
  local round count packets answered=0
  local sent=/sys/class/infiniband/$REMORA_VM_DEVICE/ports/1/hw_counters/sent_pkts
  count=$(process_rounds "$process_name")
  vm-wait "$process_name.under.way" "$patience"
  for ((round = 1; round <= count; ++round)); do
    pause_for 100 400
    kill -STOP "$process_server"
    # What was under way when it was stopped is over by the middle of the first second.
    sleep 0.5
    packets=$(cat "$sent")
    sleep 0.5
    answered=$((answered + $(cat "$sent") - packets))
    sleep $(($1 - 1))
    grep -q '^State:.T' "/proc/$process_server/status" || server_wrong "the server was not stopped"
    kill -CONT "$process_server"
    sleep 1
    all_at_work "$round" || return 0
  done
  # One-sided reads and writes are the device's, and go on: of all rounds, 10 a second at least.
  ((answered >= count * 5)) || server_wrong "while the server was stopped, its device sent $answered packets"
  found=$(process_ended lapsed)
  [[ $found == 0 ]] || server_wrong "$found sessions lapsed, by the server's own pause"
}

# The loads are killed by the other guest; here is looked at what is left of them.
watch_client_kill() {
  local round counts with_clients objects
  vm-wait client-kill.under.way "$patience"
  counts="sessions=${#mixes[@]} kept=0 grants=${#mixes[@]}"
  await 60 "$counts" process_counts || server_wrong "with the neighbours the server had '$found' instead of '$counts'"
  objects=$(rdma resource show)
  with_clients="sessions=$((2 * ${#mixes[@]})) kept=0 grants=$((2 * ${#mixes[@]}))"
  vm-signal client-kill.counted
  for ((round = 1; round <= $(process_rounds client-kill); ++round)); do
    vm-wait "client-kill.$round.up" "$patience"
    await 30 "$with_clients" process_counts ||
      server_wrong "round $round: with the clients the server had '$found' instead of '$with_clients'"
    [[ $(rdma resource show) != "$objects" ]] || server_wrong "round $round: the clients have no device objects"
    vm-signal "client-kill.$round.seen"
    vm-wait "client-kill.$round.gone" 60
    await 30 "$counts" process_counts || server_wrong "round $round: the server had $counts and has $found"
    await 30 "$objects" rdma resource show ||
      server_wrong "round $round: the server's device objects were $objects and are $found"
    vm-signal "client-kill.$round.back"
  done
}

# process_kept: how many sessions wait for their clients.
process_kept() { process_counts | sed 's/.*kept=\([0-9]*\).*/\1/'; }

# A holder that stands still in the other guest is given up here, and its session is kept.
watch_lock_holder() {
  local round
  for ((round = 1; round <= $(process_rounds lock-holder); ++round)); do
    vm-wait "lock-holder.$round.stopped" "$patience"
    await 30 1 process_kept || server_wrong "round $round: the holder has not lapsed: '$found' are kept"
    vm-signal "lock-holder.$round.lapsed"
  done
}

# What the server's guest does while the other conducts.
serve_process_faults() {
  local process_name lease keep without idle held none='sessions=0 kept=0 grants=0'
  while read -r process_name lease keep; do
    [[ " ${process_wanted[*]} " == *" $process_name "* ]] || continue
    vm-wait "$process_name.begin" "$patience"
    without=$(rdma resource show)
    process_config "$process_name" "$lease" "$keep" >"$work/process.yaml"
    start_process_server
    if ! await 60 "$none" process_counts; then
      cat "$work/process.log" >&2
      link_die "the server of $process_name did not get ready"
    fi
    warm_server "$process_port"
    await 60 "$none" process_counts || link_die "the server keeps the session of the client that has warmed it: $found"
    idle=$(rdma resource show) held=$(server_holds_settled "$process_server" "$process_metrics")
    vm-signal "$process_name.listening"
    case $process_name in
      server-kill) break_by_server_kill ;;
      client-kill) watch_client_kill ;;
      lock-holder) watch_lock_holder ;;
      server-stop-*) break_by_stop "${process_name##*-}" ;;
    esac
    vm-signal "$process_name.done"
    vm-wait "$process_name.end" "$patience"
    await 60 "$none" process_counts || server_wrong "the server has $found left"
    await 30 "$idle" rdma resource show || server_wrong "the server's device objects were $idle and are $found"
    # One that was started again has clients before it could count: as the first one held.
    await 30 "$held" server_holds "$process_server" "$process_metrics" ||
      server_wrong "I8: the server held $held and now holds $found"
    kill -TERM "$process_server"
    wait "$process_server" || server_wrong "the server did not end well"
    await 30 "$without" rdma resource show || server_wrong "device objects were $without and are $found"
    vm-signal "$process_name.looked"
  done <<<"$process_faults"
}

# --- Guest 1: the loads --------------------------------------------------------------------------

# each FILTER: whether it holds of each load's report.
each() { jq -s -e "length > 0 and all($1)" "$work"/report.* >"$work/null" 2>&1; }

# End of the loads, which go on until they are told.
tell_loads_to_end() {
  local pid
  for pid in "${load_pids[@]}"; do
    kill -TERM "$pid" 2>/dev/null || wrong "a load ended before it was told to"
  done
  end_loads
}

# No operation failed, in one session.
expect_undisturbed() {
  [[ $(value '[.failed[]] | add // 0') == 0 ]] || wrong "operations of $1 failed"
  each '.interrupted == 0 and .opened == 1' || wrong "$1 did not keep one session all the time"
}

# load_under_way NAME RATE ARGUMENT...
load_under_way() {
  start_load "$1" 36000 0 --rate "$2" --depth 16 --queues 1 --threads 1 \
    --reconnect-seconds 60 "${@:3}"
  loads_say 'under way' 60
  vm-signal "$1.under.way"
}

server_kill_test() {
  local count
  count=$(process_rounds server-kill)
  load_under_way server-kill 200 --deadline-ms 2000 --varied
  vm-wait server-kill.done "$patience"
  pause_for 100 300
  tell_loads_to_end
  # One that was between two sessions when its server went again has missed a life.
  each "2 * .stale > $count and .stale <= $count" || wrong "not every load heard of new memory, about $count times"
  each '.lives == .stale + 1' || wrong "new memory is not as often there as it is said to be"
  each '.resumed == 0 and .lost == 0' || wrong "a load believes that its session was resumed, or is lost"
  each ".open_failures <= $((8 * count))" || wrong "there was a storm of attempts to get in again"
  each .looked_around || wrong "not every block could be read at the end: $(value .look_errors)"
  # Whether those whose memory is new were posted is not known. In few rounds none else may be.
  ((rounds == 1)) ||
    (($(value '[.failed | to_entries[] | select(.key != "stale region").value] | add // 0') > 0)) ||
    wrong "no operation was cut off: the server was not killed mid-transfer"
  extra="stale=$(value .stale) open_failures=$(value .open_failures) "
}

# server_stop_test LENGTH
server_stop_test() {
  local name=server-stop-$1 deadline_ms=2000
  if (($1 == 1)); then deadline_ms=20000; fi
  load_under_way "$name" 200 --deadline-ms "$deadline_ms"
  vm-wait "$name.done" "$patience"
  pause_for 300 500
  tell_loads_to_end
  expect_same_memory
  each '.lost == 0 and .stale == 0 and .opened == 1' || wrong "a load did not keep its session"
  each '.resumed == .interrupted' || wrong "a load's session was not resumed each time"
  if (($1 == 1)); then
    expect_undisturbed 'a load'
  else
    each '.interrupted > 0' || wrong "no load noticed: the server was not stopped for longer than its lease"
  fi
}

# start_victims ROUND: a load for each of `mixes`, their process ids in `victims`.
start_victims() {
  local index region fresh
  victims=()
  for index in "${!mixes[@]}"; do
    region=$(victim_region "$1" "$index") fresh=()
    if ((index)); then fresh=(--fresh); fi
    # shellcheck disable=SC2086  # words
    "$load" ${mixes[index]} "${fresh[@]}" --seed $((seed + 100 * $1 + index)) --seconds 36000 --rate 400 \
      --depth 16 --queues 1 --threads 1 --varied --records "$records" --uri "remora://$server_address:$server_port/$region?transport=$transport" \
      >"$work/victim.$index" 2>&1 &
    victims+=($!)
  done
  for index in "${!victims[@]}"; do
    until grep -q 'under way' "$work/victim.$index"; do
      if ! kill -0 "${victims[index]}" 2>/dev/null; then
        wrong "round $1: client $index ended by itself: $(cat "$work/victim.$index")"
        return 0
      fi
      sleep 0.1
    done
  done
}

client_kill_test() {
  local round pid status began took longest=0
  # The neighbours of those that are killed.
  load_under_way client-kill 100 --deadline-ms 20000
  vm-wait client-kill.counted 60
  for ((round = 1; round <= $(process_rounds client-kill); ++round)); do
    start_victims "$round"
    vm-signal "client-kill.$round.up"
    vm-wait "client-kill.$round.seen" 60
    pause_for 20 150
    # Nothing is answered any more, so what they have posted is in flight when they are killed.
    vm-link drop in
    sleep 0.2
    kill -KILL "${victims[@]}" 2>/dev/null || true
    vm-link pass
    began=$(milliseconds)
    for pid in "${victims[@]}"; do
      status=0
      wait "$pid" 2>"$work/null" || status=$?
      ((status == 137)) || wrong "round $round: a client ended with status $status before it was killed"
    done
    # Of one that is killed there is no report; what it found it has said at once.
    if grep -h 'violation' "$work"/victim.*; then wrong "round $round: a client that was killed had found that"; fi
    vm-signal "client-kill.$round.gone"
    vm-wait "client-kill.$round.back" 120
    took=$(($(milliseconds) - began))
    if ((took > longest)); then longest=$took; fi
  done
  tell_loads_to_end
  expect_same_memory
  expect_undisturbed 'a neighbour'
  extra="released_after_ms=$longest "
}

# start_holder NAME REGION: it takes the lock and holds it, until a line to `holder_input` has it write.
# Its process id in `holder`, what it says in NAME.
start_holder() {
  local try
  rm -f "$work/$1.in"
  mkfifo "$work/$1.in"
  "$holder_program" --helper lock-holder "uri=$(holder_uri "$2")" <"$work/$1.in" >"$work/$1" 2>&1 &
  holder=$!
  exec {holder_input}>"$work/$1.in"
  for ((try = 0; try < 300; ++try)); do
    if grep -q '^held' "$work/$1"; then return 0; fi
    kill -0 "$holder" 2>/dev/null || break
    sleep 0.1
  done
  wrong "$1 does not hold the lock: $(cat "$work/$1")"
  return 1
}

holder_uri() { echo "remora://$server_address:$server_port/$1?transport=$transport"; }

# expect_guarded REGION BYTE TEXT: what the lock guards is that, octal, all over.
expect_guarded() {
  "$remora_program" get "$(holder_uri "$1")" "$work/guarded" --offset 2MiB --length 4KiB >"$work/get" 2>&1 ||
    wrong "what the lock guards could not be read: $(cat "$work/get")"
  if ! head -c 4096 /dev/zero | tr '\0' "\\$2" | cmp -s - "$work/guarded"; then wrong "$3"; fi
}

# A holder is stopped past its ttl and its lease; another one takes the lock; what the first one
# writes when it wakes up must not land.
lock_holder_test() {
  local round stopped stopped_input said refused=0 uncertain=0
  for ((round = 1; round <= $(process_rounds lock-holder); ++round)); do
    start_holder stopped "lock-holder.$round" || return 0
    stopped=$holder stopped_input=$holder_input
    kill -STOP "$stopped"
    vm-signal "lock-holder.$round.stopped"
    vm-wait "lock-holder.$round.lapsed" 60
    start_holder successor "lock-holder.$round" || return 0
    kill -CONT "$stopped"
    echo write >&"$stopped_input"
    exec {stopped_input}>&-
    wait "$stopped" || wrong "round $round: the one that was stopped ended badly"
    said=$(tail -n 1 "$work/stopped")
    # Posted before it has heard that its lanes are gone, its outcome is not known to it.
    case $said in
      'access refused: fenced by a newer grant') refused=$((refused + 1)) ;;
      indeterminate*) uncertain=$((uncertain + 1)) ;;
      *) wrong "round $round: the late write ended as '$said'" ;;
    esac
    expect_guarded "lock-holder.$round" 000 "round $round: the late write has landed"
    echo write >&"$holder_input"
    exec {holder_input}>&-
    wait "$holder" || wrong "round $round: the one that followed ended badly"
    [[ $(tail -n 1 "$work/successor") == ok ]] || wrong "round $round: its write ended as '$(tail -n 1 "$work/successor")'"
    expect_guarded "lock-holder.$round" 377 "round $round: the successor's write is not there"
  done
  echo "{ \"line\": \"operations=$((2 * (round - 1))) ok=$((round - 1)) failed{access_refused=$refused,indeterminate=$uncertain}\" }" >"$work/report"
}

process_test() {
  local name=$1 test_suite=ProcessFaultTest server_port=$process_port
  begin_test "$name"
  vm-signal "$name.begin"
  vm-wait "$name.listening" 120
  case $name in
    server-kill) server_kill_test ;;
    client-kill) client_kill_test ;;
    lock-holder) lock_holder_test ;;
    server-stop-*) server_stop_test "${name##*-}" ;;
  esac
  vm-signal "$name.end"
  vm-wait "$name.looked" 180
  if vm-wait "$name.failed" 0 2>"$work/null"; then wrong "the server's guest has said what"; fi
  end_test "$(process_rounds "$name")"
}

process_tests() {
  local name
  for name in "${process_wanted[@]}"; do process_test "$name"; done
}
