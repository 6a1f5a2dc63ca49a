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
counted() { curl -fs --max-time 5 "http://$client_metrics/metrics" | grep -q '^remora_client_operations_total.* [1-9]'; }
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
run 4 "nobody there" "$remora" top "${metrics%:*}:1"
says "and the message says what to look at" "cannot connect: .*metrics.address"
run 2 "not an address" "$remora" top nowhere
run 2 "an interval out of range" "$remora" top "$client_metrics" --interval 1ms
run 2 "a user without a password" "$remora" top "$client_metrics" --user sre
run 5 "a token file that is not there" "$remora" top "$client_metrics" --token-file "$work/nothing"
run 5 "an empty token file" "$remora" top "$client_metrics" --token-file /dev/null
run 4 "not an endpoint of Remora" "$remora" --timeout 2s top "$host:$port"

# --- a terminal -----------------------------------------------------------------------------------
terminal() { tmux -S "$work/tmux" -f /dev/null "$@"; }
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
finish
