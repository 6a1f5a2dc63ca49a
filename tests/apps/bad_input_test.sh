#!/usr/bin/env bash
# What users and other programs do wrong: one clear message, a documented status, nothing left.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

remora_server() { run "$1" "$2" "$bin/remora-server" --config "$work/bad.yaml" "${@:3}"; }
# one_message: the last run's stderr is one line of ours, with nothing from a library before it.
one_message() { same "$(grep -c '' "$work/err")" 1 && has err '^remora(-server)?: '; }

# --- configurations that are wrong --------------------------------------------------------------
configurations() {
  run 2 "server without --config" "$bin/remora-server"
  run 7 "configuration that does not exist" "$bin/remora-server" --config "$work/nosuch.yaml"
  says "the file is named" 'nosuch\.yaml'
  cat >"$work/bad.yaml" <<'YAML'
listen: {port: 99999}
pool: {size: 64MB}
pol: 3
YAML
  remora_server 7 "configuration with three faults"
  says "first fault has its place" 'bad\.yaml:1:16: .*99999'
  says "second fault has its place" 'bad\.yaml:2:14: .*64MiB'
  says "third fault has its place and a suggestion" 'bad\.yaml:3:1: .*pool'
  says "they are counted" '3 faults; nothing was started'
  run 7 "config check" "$remora" config check "$work/bad.yaml"
  run 7 "config check as JSON" "$remora" config check "$work/bad.yaml" --json
  json "config check JSON" '(.ok | not) and (.faults | length) == 3 and .faults[0].line == 1'
  json "with an error like all others" '.error.code == "configuration" and .error.exit_code == 7'
  run 7 "config show of a wrong file" "$remora" config show "$work/bad.yaml"
  printf 'pool: [\n' >"$work/bad.yaml"
  remora_server 7 "syntax error"
  small_config >"$work/good.yaml"
  run 0 "server --check" "$bin/remora-server" --config "$work/good.yaml" --check
  run 0 "config check of a good file" "$remora" config check "$work/good.yaml"
  run 0 "config show" "$remora" config show "$work/good.yaml"
  cp "$work/out" "$work/shown.yaml"
  run 0 "what config show prints is a configuration" "$remora" config check "$work/shown.yaml"
  run 0 "config show as JSON" "$remora" config show "$work/good.yaml" --json
  json "config show JSON" '.pool.size_bytes == 67108864 and (.origins["pool.size"] | endswith(":3"))'

  run 0 "config init" "$remora" config init "$work/init.yaml"
  run 0 "what config init writes is a configuration" "$remora" config check "$work/init.yaml"
  run 0 "config init prints" "$remora" config init --pool 128MiB
  is "the pool that was asked for" has out '^  size: 128MiB$'
  run 5 "config init overwrites nothing" "$remora" config init "$work/init.yaml"
  says "and says so" 'is not overwritten'
  run 2 "config init of an address that is none" "$remora" config init --listen 'a b'
  says "and names the key" 'listen\.address'
  run 2 "config init of a pool that is too small" "$remora" config init --pool 1KiB
  run 0 "config init for other hosts" "$remora" config init "$work/network.yaml" --listen 0.0.0.0
  is "says what clients need" has out 'remora key generate admin.key'
  run 7 "its key file is not there" "$remora" config check "$work/network.yaml"
  run 0 "until it is made" "$remora" key generate "$work/admin.key"
  run 0 "then the file is good" "$remora" config check "$work/network.yaml"
  run 0 "config schema" "$remora" config schema
  json "it is JSON" '.properties.pool.required == ["size"]'
}
# Over one transport is enough, and in an emulated guest every process costs.
[[ $transport == rdma ]] || configurations

# --- a machine that cannot --------------------------------------------------------------------
small_config | sed -E 's/size: 64MiB, piece: 4MiB/size: 60TiB/' >"$work/bad.yaml"
remora_server 5 "pool larger than the machine's memory"
says "memory: both numbers and what to do" '65970697666560.*pool\.size'
is "memory: one message besides the log" same "$(grep -vc '^20' "$work/err")" 1
small_config | sed -E 's/rdma: [a-z]+/rdma: required, rdma_device: nosuch0/' >"$work/bad.yaml"
remora_server 3 "a device that does not exist"
says "device: named, with what to do" 'nosuch0.*transports\.rdma'
small_config | sed -E 's/address: "[0-9.]+", port/address: "192.0.2.1", port/' >"$work/bad.yaml"
address_named() { says "address: the key, the value and what to do" "listen\.address: $1: .*; .*$2"; }
remora_server 4 "an address of another machine"
address_named '192\.0\.2\.1' "'ip addr'"
sed -i -E 's/rdma: [a-z]+, shm: [a-z]+, tcp: [a-z]+/rdma: auto, shm: auto, tcp: auto/' "$work/bad.yaml"
remora_server 4 "an address of another machine, where other transports would do"
address_named '192\.0\.2\.1' "'ip addr'"
sed -i 's/192\.0\.2\.1/nosuchhost.invalid/' "$work/bad.yaml"
remora_server 4 "a name that does not resolve"
address_named 'nosuchhost\.invalid' "'getent hosts NAME'"
small_config | sed -E 's/metrics: .*/metrics: {address: "192.0.2.1:9471"}/' >"$work/bad.yaml"
remora_server 4 "a metrics address of another machine"
says "metrics address: the key, the value and what to do" "metrics\.address: 192\.0\.2\.1: .*'ip addr'"
if [[ $transport == shm ]]; then
  small_config | sed 's/, shm: true//' >"$work/bad.yaml"
  remora_server 3 "a region that no transport opens"
  says "the region and what to do" "regions: cache: .*'shm: true'"
fi
is "nothing is left" nothing_left

# --- where sockets may be ------------------------------------------------------------------------
folders() {
  local name=$1 pattern=$2 folder=$3
  small_config | sed -E 's/rdma: off, shm: required/rdma: auto, rdma_device: nosuch0, shm: auto/' >"$work/bad.yaml"
  REMORA_RUNTIME_DIR=$folder remora_server 3 "$name"
  says "$name: why, in one message with why there is no rdma" \
    "^remora-server: .*no transport.*; rdma: .*nosuch0.*; shm: socket folder: $folder: $pattern"
  small_config >"$work/bad.yaml"
  REMORA_RUNTIME_DIR=$folder remora_server 5 "$name, shm required"
  says "$name: what to do" "^remora-server: .*$folder: $pattern.*mode 0700.*REMORA_RUNTIME_DIR"
  is "$name: nothing is left" test -z "$(ls -A "$folder" 2>/dev/null)"
}
if [[ $transport == shm ]]; then
  mkdir -m 777 "$work/open"
  chmod 777 "$work/open"
  folders "a folder that every user may write to" "permission denied: every user" "$work/open"
  folders "a folder that does not exist" "not found" "$work/nosuch"
  is "it is not made" test ! -e "$work/nosuch"
  chmod 1777 "$work/open"
  run 4 "a client that looks elsewhere" env REMORA_RUNTIME_DIR="$work/open" "$remora" ls "$(uri)"
  says "it says where it looked and what must match" \
    "$work/open/remora-$port.sock: .*same user.*same REMORA_RUNTIME_DIR"
fi

# --- a server that is there already ---------------------------------------------------------------
start_server
remora_server_twice() { "$bin/remora-server" --config "$work/server.yaml" >"$work/out" 2>"$work/err"; }
remora_server_twice
is "a second server on the port" same $? 4
says "address in use: what and what to do" "(remora-$port.sock|$port|$metrics).*address in use"
run 0 "the first one goes on" "$remora" ls "$(uri)"
small_config | sed -E "s/port: $port/port: $((port + 1))/" >"$work/bad.yaml"
remora_server 4 "a taken metrics address"
says "metrics address is named" "$metrics"
is "the second leaves nothing" same "$(find "$REMORA_RUNTIME_DIR" -name "*$((port + 1))*")" ""

# --- clients that ask for what is not there -------------------------------------------------------
run 4 "no server listens there" "$remora" ls "remora://$host:1?transport=$transport"
says "connection refused: what and what to do" '^remora: .*refused.*remora-server'
is "one message" one_message
json_errors() {
  local silent="remora://$host:1/r?transport=$transport" command
  for command in "ls ${silent/\/r/}" "create $silent --size 4KiB" "stat $silent" "rm $silent" \
    "put $bin/remora $silent" "get $silent $work/file" "read $silent --offset 0 --length 1" \
    "write $silent --offset 0 --data x" "cas $silent --offset 0 0 1" "add $silent --offset 0 1" \
    "bench $silent"; do
    # shellcheck disable=SC2086  # words
    run 4 "${command%% *} as JSON where no server listens" "$remora" --json $command
    json "${command%% *}: the JSON of errors" '.error | .exit_code == 4 and
      .code == "connection refused" and (.message | length) > 0 and has("reason") and
      has("operation") and has("subject") and has("errno")'
  done
}
[[ $transport == rdma ]] || json_errors
run 3 "put into an unknown region" "$remora" put "$bin/remora" "$(uri nosuch)"
is "one message" one_message
head -c 17825792 /dev/urandom >"$work/big"
run 3 "put of a file that does not fit" "$remora" put "$work/big" "$(uri cache)"
says "it says how much and that nothing was written" '17825792 bytes do not fit.*16777216.*nothing'
run 0 "read" "$remora" read "$(uri cache)" --offset 0 --length 16 --json
json "nothing was written" '.hex == "00000000000000000000000000000000"'
is "put of a stream that does not fit" eval \
  "cat '$work/big' | '$remora' put - '$(uri cache)' >'$work/out' 2>'$work/err'; same \$? 3"
says "it says how much was written" 'more than the 16777216 bytes.*[0-9]+ bytes were written'
run 5 "put of a file that does not exist" "$remora" put "$work/nosuch" "$(uri cache)" --json
says "the file is named" 'nosuch.*No such file'
json "JSON has the code and the status" '.error | .code == "not found" and .exit_code == 5'
run 4 "a host that does not exist" "$remora" ls "remora://no..such..host"
says "the host is named" 'no\.\.such\.\.host: not found; check the host'
run 5 "put of a directory" "$remora" put "$work" "$(uri cache)"
run 5 "get onto a full disk" "$remora" get "$(uri cache)" /dev/full
says "the disk is full" '/dev/full.*No space left on device'
is "the device is still one" test -c /dev/full
run 5 "get into a folder that does not exist" "$remora" get "$(uri cache)" "$work/nosuch/file"
run 3 "get more than there is" "$remora" get "$(uri cache)" "$work/file" --length 17MiB
is "no file appears" test ! -e "$work/file"
is "stdout on a full disk" eval "'$remora' ls '$(uri)' >/dev/full 2>'$work/err'; same \$? 5"
says "stdout: the disk is full" 'standard output: No space left on device'
run 3 "bench of blocks larger than the region" "$remora" bench "$(uri cache)" --size 32MiB --seconds 0.1
run 2 "bench of an unknown operation" "$remora" bench "$(uri cache)" --op fly
run 2 "bench of atomics of 4 KiB" "$remora" bench "$(uri cache)" --op add --size 4KiB

# --- a limit that is too small --------------------------------------------------------------------
if [[ $transport == rdma ]]; then
  (
    ulimit -l 64
    setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$remora" put "$bin/remora" "$(uri cache)"
  ) >"$work/out" 2>"$work/err"
  is "put with too small a memlock limit" same $? 5
  says "memlock: what to do" 'ulimit -l'
fi

# --- programs that speak nonsense -----------------------------------------------------------------
if [[ $transport == shm ]]; then
  for kind in silence noise flood; do
    run 0 "nonsense on the socket: $kind" "$probe" "$kind" \
      "$REMORA_RUNTIME_DIR/remora-$port.sock"
    run 0 "the server goes on" "$remora" ls "$(uri)"
  done
  is "the socket is for its owner only" same \
    "$(stat -c %a "$REMORA_RUNTIME_DIR/remora-$port.sock")" 600
elif command -v rping >/dev/null; then
  timeout 20 rping -c -a "$host" -p "$port" -C 3 >"$work/out" 2>&1
  is "a program of others on the rdma port is refused" test $? -ne 0
  run 0 "the server goes on" "$remora" ls "$(uri)"
fi
sessions() { curl -fsS "http://$metrics/metrics" | awk '/^remora_server_sessions[{]/ { sum += $2 } END { print sum }'; }
no_sessions() { [[ $(sessions) == 0 ]]; }
is "no session is left" eventually no_sessions

stop_server
is "the server ends cleanly" same "$status" 0
is "nothing is left" nothing_left
finish
