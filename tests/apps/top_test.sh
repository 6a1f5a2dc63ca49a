#!/usr/bin/env bash
# remora top: in a terminal (tmux), in a pipe, for a script, with credentials, and without an answer.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v tmux >/dev/null || { echo "no tmux: run ci/setup.sh test"; exit 77; }

small_config >"$work/server.yaml"
sed -i "s|^metrics: .*|metrics: {address: \"$metrics\", token_file: token, user: sre, password: pa55}|" \
  "$work/server.yaml"
echo "t0ken" >"$work/token"
echo "pa55" >"$work/password"
echo "wrong" >"$work/wrong"
start_server "$work/server.yaml"
nice -n 10 "$remora" bench "$(uri cache)" --depth 4 --op read,add --seconds 600 --metrics "$client_metrics" \
  >"$work/bench.out" 2>&1 </dev/null &
bench=$!
pids+=("$bench")
counted() { curl -fs --max-time 5 "http://$client_metrics/metrics" | grep '^remora_client_operations_total.* [1-9]' >/dev/null; }
is "a benchmark runs" eventually counted

# --- one look -------------------------------------------------------------------------------------
run 0 "a look at a client" "$remora" top "$client_metrics"
is "its first line says what it is" has out "^$client_metrics  client .*  ready\$"
is "it names the server" has out "$host:$port"
rates() { "$remora" top --json "http://$client_metrics/" >"$work/out" && jq -e \
  '[.processes[0].operations[] | select(.op == "read" and .per_second > 0 and .p99_seconds > 0)] | length == 1' \
  "$work/out" >/dev/null; }
is "rates and percentiles for a script" eventually rates
run 3 "credentials are wanted" "$remora" top "$metrics"
says "and the message says how to give them" "--token-file, or --user with --password-file"
run 3 "a wrong token is refused" "$remora" top "$metrics" --token-file "$work/wrong"
says "and called so" "refuses these credentials"
run 0 "the token lets in" "$remora" top "$metrics" --token-file "$work/token"
is "sessions of the server" has out "$transport  "
is "regions of the server" has out "^ cache "
run 0 "user and password let in" "$remora" top "$metrics" --user sre --password-file "$work/password"
run 0 "configuration is shown without secrets" "$remora" config show "$work/server.yaml"
hidden() { ! grep -qE 't0ken|pa55' "$work/out"; }
is "no secret in it" hidden
run 0 "nor in its JSON" "$remora" config show "$work/server.yaml" --json
is "no secret in that" hidden
answers() { same "$(curl -s -o /dev/null -w '%{http_code}' --max-time 5 "$@")" "$code"; }
code=401; is "/metrics wants credentials" answers "http://$metrics/metrics"
code=200; is "/metrics with the token" answers -H 'Authorization: Bearer t0ken' "http://$metrics/metrics"
code=200; is "/readyz needs none" answers "http://$metrics/readyz"
code=200; is "/healthz needs none" answers "http://$metrics/healthz"

# --- bad input ------------------------------------------------------------------------------------
run 4 "no server there" "$remora" top "${metrics%:*}:1"
says "and the message says what to look at" "cannot connect: .*metrics.address"
run 2 "not an address" "$remora" top nowhere
run 2 "an interval out of range" "$remora" top "$client_metrics" --interval 1ms
run 2 "a user without a password" "$remora" top "$client_metrics" --user sre
run 5 "a token file that is not there" "$remora" top "$client_metrics" --token-file "$work/nothing"
run 5 "an empty token file" "$remora" top "$client_metrics" --token-file /dev/null
run 4 "not an endpoint of Remora" "$remora" --timeout 2s top "$host:$port"

# --- a long list ----------------------------------------------------------------------------------
# paged PORT: the history of the benchmark, and a server of five sessions, two a page.
paged() {
  exec python3 - "${metrics%:*}" "$1" "$client_metrics" <<'PYTHON'
import http.server, json, sys, urllib.parse, urllib.request
address, port, real = sys.argv[1:]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/status":
            after = urllib.parse.parse_qs(url.query).get("sessions_after", ["0"])[0]
            ids = [str(i) for i in range(1, 6) if str(i) > after]
            body = json.dumps({"kind": "server", "regions": [], "regions_next": None, "sessions_total": 5,
                               "sessions": [{"id": i} for i in ids[:2]],
                               "sessions_next": ids[1] if len(ids) > 2 else None}).encode()
        else:
            body = urllib.request.urlopen(f"http://{real}{self.path}").read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer((address, int(port)), Handler).serve_forever()
PYTHON
}
paged 9490 >/dev/null 2>&1 &
pids+=($!)
all_sessions() { "$remora" top --json "${metrics%:*}:9490" >"$work/out" && jq -e \
  '[.processes[0].status.sessions[].id] == ["1", "2", "3", "4", "5"]' "$work/out" >/dev/null; }
is "sessions of all pages, each once" eventually all_sessions

# --- peers whose answer does not end --------------------------------------------------------------
# endless KIND PORT: serves that kind of answer, forever.
endless() {
  exec python3 - "$1" "${metrics%:*}" "$2" <<'PYTHON'
import socket, sys, threading, time
kind, address, port = sys.argv[1:]
listener = socket.create_server((address, int(port)))

def serve(peer):
    try:
        peer.recv(65536)
        if kind == "foreign":
            peer.sendall(b"HTTP/1.1 421 Misdirected Request\r\nContent-Length: 0\r\n\r\n")
            peer.close()
            return
        peer.sendall(b"HTTP/1.1 2" if kind == "status" else b"HTTP/1.1 200 OK\r\n")
        while kind in ("headers", "slow"):
            peer.sendall(b"".join(b"X-%d: %s\r\n" % (i, b"y" * 60) for i in range(1 if kind == "slow" else 999)))
            if kind == "slow":
                time.sleep(0.2)
        if kind == "body":
            peer.sendall(b"\r\n")
        while kind != "silent":
            peer.sendall(b"0" * 65536)
        time.sleep(600)
    except OSError:
        pass

while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
PYTHON
}
endless_port=9480
for kind in headers slow status body silent; do
  endless_port=$((endless_port + 1))
  endless "$kind" "$endless_port" >/dev/null 2>&1 &
  pids+=($!)
  listens() { timeout 1 bash -c "exec 3<>/dev/tcp/${metrics%:*}/$endless_port" 2>/dev/null; }
  is "a peer with an endless answer: $kind" eventually listens
  SECONDS=0
  run 4 "top ends by --timeout: $kind" \
    "$remora" --timeout 2s top "${metrics%:*}:$endless_port"
  says "it says why: $kind" 'no answer in time|has no end'
  is "and is not late: $kind" test "$SECONDS" -le 20
done

endless foreign 9480 >/dev/null 2>&1 &
pids+=($!)
endless_port=9480
eventually listens
run 3 "an endpoint that does not answer to the name" "$remora" top "${metrics%:*}:9480"
says "and the message says what to do" 'metrics\.allowed_hosts'

# --- a terminal -----------------------------------------------------------------------------------
tmux_socket=$work/tmux
terminal() { tmux -S "$tmux_socket" -f /dev/null "$@"; }
trap 'terminal kill-server 2>/dev/null; cleanup' EXIT
terminal new-session -d -x 110 -y 30 \
  "'$remora' top '$metrics' '$client_metrics' --token-file '$work/token' --interval 300ms; echo \"ended: \$?\"; exec cat"
shows() { terminal capture-pane -p >"$work/out" && grep -qE -- "$1" "$work/out"; }
is "both processes are there" eventually shows "^$metrics  server .*  ready"
is "the client's operations" eventually shows "read +[0-9.]+ (k|M)?ops/s"
is "its keys" shows "q: quit"
terminal resize-window -x 50 -y 12
is "it follows the size of the terminal" eventually shows "more lines"
terminal resize-window -x 110 -y 30
terminal send-keys " "
is "space pauses" eventually shows "PAUSED"
terminal send-keys " "
is "and goes on" eventually shows "space: pause"
stop_server KILL
is "a server that has gone is told" eventually shows "NO ANSWER for [0-9]+ s: cannot connect"
terminal send-keys q
is "q quits and gives the screen back" eventually shows "^ended: 0"
terminal kill-server
# --- signals: the screen is given back ------------------------------------------------------------
screen_is() { same "$(terminal display-message -p '#{alternate_on}')" "$1"; }
for signal in QUIT TERM HUP INT ABRT XCPU ALRM USR1; do
  tmux_socket=$work/tmux.$signal  # a server that is about to end would refuse the next session
  terminal new-session -d -x 110 -y 30 \
    "'$remora' top '$client_metrics' --interval 345ms; echo \"ended: \$?\"; exec cat"
  is "top draws" eventually shows "q: quit"
  is "on the alternate screen" screen_is 1
  if [[ $signal == QUIT ]]; then
    terminal send-keys "C-\\"
  else
    kill "-$signal" "$(terminal list-panes -F '#{pane_pid}' | xargs -I{} pgrep -P {} -x remora)"
  fi
  is "SIG$signal gives the screen back" eventually shows "^ended: 1[0-9]+"
  is "it is the usual one" screen_is 0
  is "and keys are echoed" eval \
    "same \"\$(stty -F \$(terminal display-message -p '#{pane_tty}') -a | grep -oE ' -?(echo|icanon) ' | sort | tr -d '\n')\" ' echo  icanon '"
  terminal kill-server
done
finish
