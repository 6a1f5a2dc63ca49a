#!/usr/bin/env bash
# remora-server that ends: by signals, killed, with clients at work; and clients that are killed.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

opened() { [[ $("$remora" stat "$(uri cache)" --json | jq .open) == "$1" ]]; }

# --- signals ---------------------------------------------------------------------------------------
start_server
stop_server INT
is "SIGINT ends it with 0" same "$status" 0
is "SIGINT leaves nothing" nothing_left

# GNU timeout sends SIGTERM twice: to the process and to its group.
if [[ $transport == shm ]]; then
  small_config >"$work/server.yaml"
  timeout 1 "$bin/remora-server" --config "$work/server.yaml" >"$work/server.log" 2>&1
  is "two SIGTERMs at once: status of timeout" same $? 124
  is "two SIGTERMs at once leave nothing" nothing_left
fi
{
  small_config
  echo "limits: {drain_timeout: 1h}"
} >"$work/drain.yaml"
start_server "$work/drain.yaml"
"$remora" bench "$(uri cache)" --seconds 60 >/dev/null 2>&1 &
client=$!
pids+=("$client")
is "a client works" eventually opened 1
kill -TERM "$server"
stopping() { grep -q 'SIGTERM: stopping' "$work/server.log"; }
is "the first SIGTERM is heard" eventually stopping
sleep 0.5
is "it waits for the client" kill -0 "$server"
stop_server TERM
is "the second SIGTERM ends the wait, with 0" same "$status" 0
is "the second SIGTERM leaves nothing" nothing_left
wait "$client"

# --- killed while clients work --------------------------------------------------------------------
# killed NAME CODES COMMAND...: the server is killed a second after the command opened the region; the
# command ends by itself with one of the codes, and says why.
killed() {
  local name=$1 codes=$2 client code=0 began
  shift 2
  start_server
  timeout 60 "$@" >"$work/out" 2>"$work/err" &
  client=$!
  pids+=("$client")
  eventually opened 1 || echo "    the client does not open the region"
  sleep 1
  stop_server KILL
  began=$SECONDS
  wait "$client" || code=$?
  if [[ " $codes " == *" $code "* ]]; then ok "$name: status $code"; else not_ok "$name: status $code, not one of $codes"; fi
  is "$name: within its deadline" test $((SECONDS - began)) -le 30
  says "$name: it says why" '^remora: .*(connection lost|indeterminate|timed out)'
}
slowly() { while head -c 65536 /dev/zero; do sleep 0.05; done; }
put_slowly() { slowly | "$remora" --timeout 5s put - "$(uri cache)"; }
export -f slowly put_slowly uri
export remora host port transport
killed "server killed during put" "4 6" bash -c put_slowly
slow_reader() { while sleep 0.2 && (($(head -c 65536 | wc -c) > 0)); do :; done; }
get_slowly() {
  "$remora" --timeout 5s get "$(uri cache)" - | slow_reader
  return "${PIPESTATUS[0]}"
}
export -f slow_reader get_slowly
killed "server killed during get" "4" bash -c get_slowly
killed "server killed during bench" "4 6" "$remora" --timeout 5s bench "$(uri cache)" --op write --seconds 30
is "bench still reports what it measured" has out 'ops/s'
is "no temporary file stays" same "$(find "$work" -name '.*.??????' | wc -l)" 0
{
  small_config
  echo "limits: {drain_timeout: 500ms}"
} >"$work/drain.yaml"
start_server "$work/drain.yaml"
run 0 "a new server starts where one was killed" "$remora" ls "$(uri)"

# --- stopped, not killed, while a client works ------------------------------------------------------
timeout 60 "$remora" --timeout 5s bench "$(uri cache)" --seconds 30 >"$work/out" 2>"$work/err" &
client=$!
pids+=("$client")
eventually opened 1
stop_server TERM
is "SIGTERM with a client at work ends it with 0" same "$status" 0
code=0
wait "$client" || code=$?
is "its client is told" test "$code" -eq 4
is "nothing is left" nothing_left

# --- clients that are killed ------------------------------------------------------------------------
start_server
timeout 60 "$remora" bench "$(uri cache)" --seconds 30 >/dev/null 2>&1 &
client=$!
pids+=("$client")
is "a client's grant is counted" eventually opened 1
kill -KILL "$(ps -o pid= --ppid "$client" | tr -d ' ')" "$client"
wait "$client" 2>/dev/null
is "a killed client's grant goes" eventually opened 0
stop_server
is "the server ends cleanly" same "$status" 0
is "nothing is left" nothing_left
finish
