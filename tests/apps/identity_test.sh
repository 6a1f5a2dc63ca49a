#!/usr/bin/env bash
# Which server a name, a port, a socket's file or a port file stands for: never another one.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The first 8 bytes of a region, over shm.
first_bytes() { "$remora" read "$1" --offset 0 --length 8 --json 2>/dev/null | jq -r .hex; }
untouched() { same "$(first_bytes "$(uri cache)")" 0000000000000000; }

start_server
first=$server

# --- a host that is not this one ------------------------------------------------------------------
elsewhere="remora://192.0.2.55:$port/cache?transport=shm"
run 4 "write to another host over shm" "$remora" write "$elsewhere" --offset 0 --data x
says "both are named" "192\.0\.2\.55.*$REMORA_RUNTIME_DIR"
is "nothing was written here" untouched

# --- two servers of one port ----------------------------------------------------------------------
cat >"$work/second.yaml" <<YAML
listen: {address: 127.0.0.2, port: $port}
transports: {rdma: off, shm: off, tcp: required}
pool: {size: 8MiB, huge_pages: never}
regions:
  - {name: cache, size: 1MiB}
  - {name: extra, size: 1MiB}
auth: none
YAML
start_server "$work/second.yaml"
second=$server
run 0 "write to the second, by whatever transport there is" \
  "$remora" write "remora://127.0.0.2:$port/cache" --offset 0 --data second
is "the first has none of it" untouched
run 4 "the second over shm" "$remora" read "remora://127.0.0.2:$port/cache?transport=shm" --offset 0 --length 8
says "the one that was asked for, and the one that is there" \
  "127\.0\.0\.2:$port.*127\.0\.0\.1:$port"
run 0 "the second's region is removed" "$remora" rm "remora://127.0.0.2:$port/cache"
run 0 "the first's is there" "$remora" stat "$(uri cache)"
server=$second
stop_server
run 4 "the second has ended" "$remora" ls "remora://127.0.0.2:$port"

# --- another network namespace --------------------------------------------------------------------
elsewhere() { unshare -n -- bash -c 'ip link set lo up; exec "$@"' - "$@"; }
if elsewhere true 2>"$work/err"; then
  run 4 "a client of another network namespace" \
    unshare -n -- bash -c 'ip link set lo up; exec "$@"' - \
    "$remora" write "$(uri cache)" --offset 0 --data x
  says "it says why" "127\.0\.0\.1:$port.*network namespace"
  is "nothing was written" untouched
else
  echo "ok - a client of another network namespace # SKIP it takes root to make one"
fi

# --- root and a server of another user ------------------------------------------------------------
server=$first
stop_server
is "the first ends cleanly" same "$status" 0
if ((EUID == 0)) && setpriv --reuid=65534 --regid=65534 --clear-groups true 2>"$work/err"; then
  mkdir -m 700 "$work/theirs"
  chmod 711 "$work"
  cp "$bin/remora-server" "$work/theirs/"
  small_config | sed 's/^metrics.*//' >"$work/theirs/server.yaml"
  chown -R 65534:65534 "$work/theirs"
  REMORA_RUNTIME_DIR=$work/theirs setpriv --reuid=65534 --regid=65534 --clear-groups \
    "$work/theirs/remora-server" --config "$work/theirs/server.yaml" \
    --port-file "$work/theirs/port" >"$work/server.log" 2>&1 &
  server=$!
  pids+=("$server")
  is "a server of another user" eventually test -s "$work/theirs/port"
  run 0 "root writes over shm" env REMORA_RUNTIME_DIR="$work/theirs" \
    "$remora" write "$(uri cache)" --offset 0 --data x
  run 0 "root reads over shm" env REMORA_RUNTIME_DIR="$work/theirs" \
    "$remora" read "$(uri cache)" --offset 0 --length 8
  stop_server
else
  echo "ok - root and a server of another user # SKIP it takes root"
fi

# --- a file where the socket would be ------------------------------------------------------------
socket=$REMORA_RUNTIME_DIR/remora-$port.sock
echo precious >"$socket"
small_config >"$work/bad.yaml"
run 5 "a file where the socket would be" "$bin/remora-server" --config "$work/bad.yaml"
says "it is named" "$socket"
is "it is not touched" same "$(cat "$socket")" precious
sed -E 's/shm: required, tcp: off/shm: auto, tcp: required/' "$work/bad.yaml" >"$work/auto.yaml"
run 5 "neither without shm" "$bin/remora-server" --config "$work/auto.yaml"
says "it is named, too" "$socket"
rm "$socket"

# --- a successor's socket and port file -----------------------------------------------------------
start_server
before=$server
mv "$socket" "$work/moved"
small_config | sed 's/^metrics.*//' >"$work/server.yaml"
start_server "$work/server.yaml"
after=$server
server=$before
stop_server
is "the one before ends cleanly" same "$status" 0
is "the port file of the one after stays" test -s "$work/port"
run 0 "the one after is reached" "$remora" ls "$(uri)"
server=$after
stop_server
is "the one after ends cleanly" same "$status" 0
is "nothing is left" nothing_left
finish
