#!/usr/bin/env bash
# remora-server as a service: readiness, signals, the watchdog, closed standard descriptors, open files.
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
finish
