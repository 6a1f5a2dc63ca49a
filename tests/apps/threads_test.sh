#!/usr/bin/env bash
# No thread to be had, at every place where a program starts one: it says so and what to do, or does
# without. By a pthread_create() that refuses, and by a real limit (RLIMIT_NPROC).
# shellcheck disable=SC2317,SC2119,SC2016  # functions are called by is; bash -c has parameters
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

refuse=${REMORA_REFUSE_THREADS:?the library that refuses threads}
starts=12  # more than any of these programs starts

# said: what a program without a thread has written.
said() { has err 'no thread can be started.*ulimit -u' || has err 'connection lost.*no thread'; }

# every_start NAME COMMAND...: with one thread refused, and with all from there on, it works or says
# why it does not; at least once it says so.
every_start() {
  local name=$1 n end status failures=0 wrong=0
  shift
  for ((n = 0; n < starts; ++n)); do
    for end in $((n + 1)) 9999; do
      status=0
      LD_PRELOAD=$refuse REMORA_TEST_REFUSE_THREADS=$n-$end timeout 60 "$@" \
        >"$work/out" 2>"$work/err" </dev/null || status=$?
      ((status == 0)) && continue
      failures=$((failures + 1))
      ((status == 5)) && said && continue
      wrong=$((wrong + 1))
      not_ok "$name: threads $n to $end refused: status $status"
    done
  done
  ((wrong == 0 && failures > 0)) && ok "$name: $failures failures, each of which says why"
  ((failures > 0)) || not_ok "$name: no thread was missed"
}

start_server
head -c 3000000 /dev/urandom >"$work/file"
every_start "bench" "$remora" bench "$(uri cache)" --seconds 0.02 --warmup 0 --threads 3
every_start "ls" "$remora" ls "$(uri)"
every_start "put" "$remora" put "$work/file" "$(uri cache)"
every_start "get" "$remora" get "$(uri cache)" -
every_start "top" "$remora" top "$metrics" --once
run 0 "what was put is there" "$remora" get "$(uri cache)" -
is "as it was" cmp -n 3000000 "$work/file" "$work/out"
stop_server

# serves N END: a server without those threads serves, or says why not.
serves() {
  local pid up=0
  status=0
  rm -f "$work/port"
  LD_PRELOAD=$refuse REMORA_TEST_REFUSE_THREADS=$1-$2 "$bin/remora-server" \
    --config "$work/server.yaml" --port-file "$work/port" >"$work/out" 2>"$work/err" &
  pid=$!
  pids+=("$pid")
  up_or_ended() { [[ -s $work/port ]] || ended "$pid"; }
  eventually up_or_ended
  [[ -s $work/port ]] && up=1
  kill -TERM "$pid" 2>/dev/null
  { wait "$pid"; } 2>/dev/null || status=$?
  ((up == 1 && status == 0)) || { ((status == 5)) && said && refused=$((refused + 1)); }
}
refused=0
for ((n = 0; n < starts; ++n)); do
  for end in $((n + 1)) 9999; do
    serves "$n" "$end" || not_ok "server: threads $n to $end refused: status $status"
  done
done
is "a server that gets no thread says so" test "$refused" -gt 0

# --- a real limit ---------------------------------------------------------------------------------
# As a user of its own, with no other process. Over shm the server is another user's.
other_user=$((64000 + $$ % 1000))
limited=(setpriv --reuid "$other_user" --regid "$other_user" --clear-groups --inh-caps=-all
  bash -c 'ulimit -u "$1" && shift && exec "$@"' limited)
if [[ $transport != tcp ]]; then
  echo "# the real limit is tried over tcp"
elif ! "${limited[@]}" 99 "$remora" --version >/dev/null 2>&1; then
  echo "# no real limit: this needs root, and programs that another user may run"
else
  chmod 755 "$work"
  start_server
  run 5 "bench with a limit of one" "${limited[@]}" 1 "$remora" bench "$(uri cache)" --seconds 0.1
  says "names the limit and what to do" \
    'RLIMIT_NPROC 1: .*no thread can be started.*raise the limit on threads: .ulimit -u.'
  run 0 "bench with a limit that is enough" "${limited[@]}" 20 "$remora" bench "$(uri cache)" --seconds 0.1
  stop_server
  chmod 644 "$work/server.yaml"
  run 5 "a server with a limit of two" "${limited[@]}" 2 "$bin/remora-server" --config "$work/server.yaml"
  says "it names the limit" 'RLIMIT_NPROC 2: .*no thread can be started'
fi
finish
