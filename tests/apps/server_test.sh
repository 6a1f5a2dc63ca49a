#!/usr/bin/env bash
# remora-server as a daemon: readiness, signals, what a kill leaves, what clients of a killed server
# see.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

opened() { [[ $("$remora" stat "$(uri cache)" --json | jq .open) == "$1" ]]; }

# --- readiness and signals ------------------------------------------------------------------------
"$probe" notify "$work/notify.sock" >"$work/notified" &
pids+=($!)
eventually test -S "$work/notify.sock"
NOTIFY_SOCKET=$work/notify.sock start_server
notified() { grep -q "$1" "$work/notified"; }
is "READY=1 is sent" eventually notified '^READY=1$'
is "the log says where it listens" grep -qE "listening on port $port: .*metrics: http://$metrics" "$work/server.log"
is "the port file holds the port" same "$(cat "$work/port")" "$port"
run 0 "/healthz" curl -fsS --max-time 5 "http://$metrics/healthz"
kill -HUP "$server"
run 0 "SIGHUP does not end it" "$remora" ls "$(uri)"
stop_server TERM
is "SIGTERM ends it with 0" same "$status" 0
is "STOPPING=1 is sent" eventually notified '^STOPPING=1$'
is "SIGTERM leaves nothing" nothing_left

# --- the watchdog of a service manager --------------------------------------------------------------
pings() { grep -c '^WATCHDOG=1$' "$work/notified"; }
more_pings() { (($(pings) >= $1)); }
# marked NAME: what has been sent until now is in $work/notified, since messages keep their order.
marked() {
  python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(
    sys.argv[2].encode(), sys.argv[1])' "$work/notify.sock" "$1"
  eventually notified "^$1\$"
}
WATCHDOG_USEC=300000 NOTIFY_SOCKET=$work/notify.sock start_server
is "it is pinged while the server makes progress" eventually more_pings 4
run 0 "and the server serves" "$remora" ls "$(uri)"
kill -STOP "$server"
await_stop() { [[ $(ps -o stat= -p "$server") == T* ]]; }
eventually await_stop
marked MARK=stopped
stopped=$(pings)
sleep 1
marked MARK=still
is "a server that stands still sends none" same "$(pings)" "$stopped"
kill -CONT "$server"
is "and goes on when it goes on" eventually more_pings $((stopped + 2))
stop_server
is "it ends with 0" same "$status" 0
marked MARK=ended
before=$(pings)
WATCHDOG_USEC=300000 WATCHDOG_PID=1 NOTIFY_SOCKET=$work/notify.sock start_server
sleep 1
marked MARK=other
is "pings that another process is asked for are not sent" same "$(pings)" "$before"
stop_server

# --- closed standard descriptors -------------------------------------------------------------------
# standard_of PID: what its descriptors 0 to 2 are, one word.
standard_of() {
  local fd
  for fd in 0 1 2; do readlink "/proc/$1/fd/$fd" || echo closed; done | sort -u | tr '\n' ' '
}
# closes_on_exec PID: what the program has made goes with an exec.
closes_on_exec() {
  local fd made flags
  for fd in "/proc/$1/fd/"*; do
    made=$(readlink "$fd") || continue
    [[ $made =~ ^(socket:|anon_inode:|/memfd:|/dev/infiniband) ]] || continue
    flags=$(awk '/^flags:/ {print $2}' "/proc/$1/fdinfo/${fd##*/}")
    ((8#$flags & 8#2000000)) || { echo "    ${fd##*/} ($made) stays open"; return 1; }
  done
}
small_config >"$work/server.yaml"
rm -f "$work/port"
"$bin/remora-server" --config "$work/server.yaml" --port-file "$work/port" <&- >&- 2>&- &
server=$!
pids+=("$server")
is "a server without standard descriptors starts" eventually test -s "$work/port"
is "its own are none of them" same "$(standard_of "$server")" "/dev/null "
"$remora" bench "$(uri cache)" --seconds 60 <&- >&- 2>&- &
client=$!
pids+=("$client")
is "a client without them works" eventually opened 1
is "its own are none of them either" same "$(standard_of "$client")" "/dev/null "
is "what a server opens is closed by exec" closes_on_exec "$server"
is "and what a client opens" closes_on_exec "$client"
kill -KILL "$client"
{ wait "$client"; } 2>/dev/null
stop_server
is "the server ends with 0" same "$status" 0
start_server
status=0
"$remora" ls "$(uri)" >&- 2>"$work/err" || status=$?
is "output that goes nowhere is an error" same "$status" 5
says "which says so" '^remora: standard output: Bad file descriptor'
status=0
"$remora" put - "$(uri cache)" <&- >"$work/out" 2>"$work/err" || status=$?
is "so is input that comes from nowhere" same "$status" 5
stop_server
# --- open files -----------------------------------------------------------------------------------
is "it may have as many open files as there may be" same "$(
  ulimit -Sn 256
  start_server >&2
  awk '/^Max open files/ {print ($4 == $5)}' "/proc/$server/limits"
  stop_server
)" 1
is "too few of them are warned of" same "$(
  ulimit -n 512
  start_server >&2
  stop_server
  grep -c 'warning: 512 open files are allowed' "$work/server.log"
)" 1
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
