#!/usr/bin/env bash
# remora-server's log: a reader that ends or stops reading neither ends nor delays the server.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

log=$work/log
mkfifo "$log"
small_config >"$work/server.yaml"
# start_into_fifo: the server with its standard error in the pipe, which this script may hold open.
start_into_fifo() {
  rm -f "$work/port"
  "$bin/remora-server" --config "$work/server.yaml" --port-file "$work/port" 2>"$log" 7>&- &
  server=$!
  pids+=("$server")
}
started() { [[ -s $work/port ]]; }
# stops_in SECONDS: SIGTERM, and the exit status is 0 by then.
stops_in() {
  local began=$SECONDS
  stop_server TERM
  same "$status" 0 && ((SECONDS - began <= $1))
}
lost() { curl -fsS --max-time 5 "http://$metrics/metrics" | awk '/^remora_log_lines_lost_total/ {print $2}'; }
some_lost() { [[ $(lost) -gt 0 ]]; }

# --- nothing reads the pipe ------------------------------------------------------------------------
exec 7<>"$log"
dd if=/dev/zero of="$log" oflag=nonblock bs=4096 count=1024 2>/dev/null </dev/zero
start_into_fifo
is "a full pipe does not keep it from starting" eventually started
run 0 "a full pipe does not keep it from serving" "$remora" ls "$(uri)"
kill -HUP "$server"
run 0 "nor does SIGHUP with a full pipe" "$remora" ls "$(uri)"
run 0 "/healthz" curl -fsS --max-time 5 "http://$metrics/healthz"
is "SIGTERM ends it with a full pipe, in time" stops_in 30
is "nothing is left" nothing_left

# --- the reader ends -------------------------------------------------------------------------------
exec 7>&-
head -n 1 "$log" >"$work/first" &
pids+=($!)
start_into_fifo
is "it starts" eventually started
is "the reader reads a line, and ends" eventually grep -q 'preparing a pool' "$work/first"
for _ in 1 2 3; do run 0 "it serves without a reader" "$remora" ls "$(uri)"; done
is "lost lines are counted" eventually some_lost
cat "$log" >"$work/second" &
pids+=($!)
told() {
  "$remora" ls "$(uri)" >/dev/null && grep -qE 'warning: [0-9]+ lines? of the log (was|were) lost' "$work/second"
}
is "a new reader is told how many" eventually told
is "SIGTERM ends it" stops_in 30
is "the new reader has the last line" eventually grep -q 'info: stopped$' "$work/second"
is "nothing is left" nothing_left

# --- a start that fails still says why --------------------------------------------------------------
sed 's/size: 64MiB, piece: 4MiB/size: 60TiB/' "$work/server.yaml" >"$work/large.yaml"
run 5 "a start that fails" "$bin/remora-server" --config "$work/large.yaml"
says "it says why" '^remora-server: cannot start with .*pool.size'
is "behind what was logged" same "$(tail -n 1 "$work/err" | cut -d: -f1)" remora-server

# --- connections that are no client's ---------------------------------------------------------------
# foreign: 200 of them, one after the other.
foreign() {
  local try
  if [[ $transport == shm ]]; then
    "$probe" foreign "$REMORA_RUNTIME_DIR/remora-$port.sock"
    return
  fi
  for ((try = 0; try < 200; ++try)); do
    # What is longer than an introduction, and none; then the server hangs up.
    { printf '%0200d' 0 >&6; cat <&6 >/dev/null; } 6<>"/dev/tcp/$host/$port" 2>/dev/null
  done
}
foreign_lines() { grep -cE '(not the protocol|hung up on|too many requests)' "$work/server.log"; }
start_server
began=$SECONDS
foreign
lines=$(foreign_lines)
# Of each of two kinds one in each second that has begun.
bounded() { ((lines > 0 && lines <= 2 * (SECONDS - began + 2))); }
is "200 connections that speak no protocol write a line a second" bounded
run 0 "clients are served" "$remora" ls "$(uri)"
stop_server

# --- log.format: json -------------------------------------------------------------------------------
{ small_config; echo 'log: {format: json}'; } >"$work/json.yaml"
start_server "$work/json.yaml"
if [[ $transport == shm ]]; then
  # Longer than a message may be, from a client that has not introduced itself.
  python3 - "$REMORA_RUNTIME_DIR/remora-$port.sock" <<'PYTHON'
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
    client.connect(sys.argv[1])
    client.send(bytes(20000))
    try:
        while client.recv(4096):
            pass
    except ConnectionError:  # the server does not read the rest
        pass
PYTHON
fi
run 0 "clients are served" "$remora" ls "$(uri)"
kill -HUP "$server"
reloaded() { grep -q '"event":"config.taken"' "$work/server.log"; }
is "SIGHUP is an event" eventually reloaded
stop_server
# true_of FILE EXPRESSION, in_log NAME EXPRESSION: jq finds it true of all lines as one array.
true_of() { jq -es "$2" "$work/$1" >"$work/jq"; }
in_log() { is "$1" true_of server.log "$2"; }
in_log "each line is an object with a time, a level, an event and a text" 'length > 4 and all(.[];
  (.time | test("^[0-9-]{10}T[0-9:]{8}[.][0-9]{6}Z$")) and (.level | IN("info", "warning", "error"))
  and (.event | test("^[a-z0-9_]+[.][a-z0-9_]+$")) and (.text | type == "string"))'
in_log "they begin with these" 'all(.[]; keys_unsorted[:4] == ["time", "level", "event", "text"])'
in_log "the port is a number" "any(.[]; .event == \"server.ready\" and .port == $port)"
in_log "a session has its id, its client and its transport" 'any(.[]; .event == "session.opened"
  and (.session | test("^[0-9a-f]+$")) and (.client | type == "string")
  and .transport == "'"$transport"'" and (.peer | length > 0))'
if [[ $transport == shm ]]; then
  in_log "a client that breaks the protocol before its session is a warning" 'any(.[];
    .event == "session.protocol" and .level == "warning" and (.peer | length > 0)
    and (.reason | test("control message too long")))'
fi
in_log "on a loopback address, 'auth: none' is no event" 'all(.[]; .event != "auth.none")'
in_log "the last line is the end" '.[-1].event == "server.stopped"'
sed 's/size: 64MiB, piece: 4MiB/size: 60TiB/' "$work/json.yaml" >"$work/large.yaml"
run 5 "a start that fails" "$bin/remora-server" --config "$work/large.yaml"
is "it says why as an event" true_of err '.[-1] | .event == "server.not_started"
  and .level == "error" and (.text | test("pool.size"))'

# --- every host may come in, without a key ----------------------------------------------------------
cat >"$work/open.yaml" <<YAML
listen: {address: 0.0.0.0, port: $port}
transports: {rdma: off, shm: off, tcp: required}
pool: {size: 64MiB, piece: 4MiB, huge_pages: never}
auth: none
log: {format: json}
YAML
start_server "$work/open.yaml"
stop_server
in_log "it warns once that they are administrators" '[.[] | select(.event == "auth.none")]
  | length == 1 and .[0].level == "warning" and .[0].address == "0.0.0.0" and (.[0].text | test("drain the server"))'
finish
