# shellcheck shell=bash disable=SC2034,SC2317,SC2119
# Sourced by the tests of the programs: a private folder, servers on ports of their own, checks that
# print `ok - NAME` or `not ok - NAME`, and an end that leaves nothing running.
#
# Environment: REMORA_BIN (folder of the programs), TRANSPORT (shm, the default, tcp or rdma),
# REMORA_VM_ADDRESS (address of the RDMA device), REMORA_REQUIRE_DEVICE=1 (no skipping).
set -uo pipefail

bin=${REMORA_BIN:?the folder that holds remora and remora-server}
transport=${TRANSPORT:-shm}
remora=$bin/remora
probe=${REMORA_PROBE:-}
host=127.0.0.1
if [[ $transport == rdma ]]; then
  host=${REMORA_VM_ADDRESS:-}
  if [[ -z $host ]]; then
    [[ ${REMORA_REQUIRE_DEVICE:-} == 1 ]] && { echo "not ok - no RDMA device: REMORA_VM_ADDRESS is not set"; exit 1; }
    echo "no RDMA device: run it by ci/vm/run.sh"
    exit 77
  fi
fi

# /tmp and not TMPDIR: a socket's path has at most 107 bytes.
work=$(mktemp -d /tmp/remora-apps.XXXXXX)
export REMORA_RUNTIME_DIR=$work/run
mkdir -m 700 "$REMORA_RUNTIME_DIR"
# Sanitized programs report a leak by their exit status too; 99 is none of ours.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:exitcode=99 UBSAN_OPTIONS=${UBSAN_OPTIONS:-}:exitcode=99

# A port below those that the kernel gives to outgoing connections, and a loopback address, that no
# other test uses at the same time.
port=$((20000 + $$ % 12000))
metrics=127.$(($$ / 250 % 250 + 1)).$(($$ % 250 + 1)).1:9471
client_metrics=${metrics%:*}:9472

passed=0 failed=0
pids=()
cleanup() {
  local pid
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

ok() { passed=$((passed + 1)); echo "ok - $*"; }
not_ok() {
  failed=$((failed + 1))
  echo "not ok - $*"
  sed 's/^/    out: /' "$work/out" 2>/dev/null | head -n 20
  sed 's/^/    err: /' "$work/err" 2>/dev/null | head -n 20
}
# is NAME COMMAND...: the command succeeds.
is() {
  local name=$1
  shift
  if "$@"; then ok "$name"; else not_ok "$name: $*"; fi
}
same() { [[ $1 == "$2" ]] || { echo "    '$1' is not '$2'"; return 1; }; }
has() { grep -qE -- "$2" "$work/$1"; }

# run CODE NAME COMMAND...: it ends with that status within a minute; output in $work/out and err.
run() {
  local code=$1 name=$2 status=0
  shift 2
  timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
  if ((status == code)); then ok "$name"; else not_ok "$name: status $status, not $code: $*"; fi
}
# says NAME PATTERN: the last run's stderr, one line of it, matches.
says() { is "$1" has err "$2"; }
# json NAME EXPRESSION: jq finds it true in the last run's output.
json_holds() { jq -e "$1" "$work/out" >/dev/null; }
json() { is "$1" json_holds "$2"; }

uri() { printf 'remora://%s:%s%s?transport=%s' "$host" "$port" "${1:+/$1}" "$transport"; }
if [[ $transport == shm ]]; then mapped=(--shm) shm=true; else mapped=() shm=false; fi

# The configuration of a small server on standard output.
small_config() {
  local rdma=off shm_wanted=off tcp=off
  case $transport in
    rdma) rdma=required ;;
    shm) shm_wanted=required ;;
    tcp) tcp=required ;;
  esac
  cat <<YAML
listen: {address: "$host", port: $port}
transports: {rdma: $rdma, shm: $shm_wanted, tcp: $tcp}
pool: {size: 64MiB, piece: 4MiB, huge_pages: never}
regions:
  - {name: cache, size: 16MiB, shm: $shm}
auth: none
metrics: {address: "$metrics"}
YAML
}

# Waits for up to 40 s until COMMAND succeeds. Many of these start programs, which take from the tests beside
# them: what takes longer than two seconds, a lease for example, is asked for less often.
eventually() {
  local tries pause=0.1
  for ((tries = 0; tries < 150; ++tries)); do
    "$@" && return 0
    sleep "$pause"
    ((tries < 20)) || pause=0.3
  done
  return 1
}
ended() { ! kill -0 "$1" 2>/dev/null; }

# start_server [CONFIG]: in the background; its pid in $server, its log in $work/server.log. A server
# that was started before and still runs appends to that file: none overwrites the lines of another.
start_server() {
  local config=${1:-$work/server.yaml}
  [[ -n ${1:-} ]] || small_config >"$config"
  rm -f "$work/port"
  : >"$work/server.log"
  "$bin/remora-server" --config "$config" --port-file "$work/port" >>"$work/server.log" 2>&1 &
  server=$!
  pids+=("$server")
  ready() { [[ -s $work/port ]] || ended "$server"; }
  eventually ready
  [[ -s $work/port ]] && return 0
  echo "not ok - the server did not start"
  sed 's/^/    server: /' "$work/server.log"
  exit 1
}
# stop_server [SIGNAL]: its exit status in $status.
stop_server() {
  status=0
  kill "-${1:-TERM}" "$server"
  eventually ended "$server" || { kill -KILL "$server"; echo "    the server did not end"; }
  { wait "$server"; } 2>/dev/null || status=$?
}
# nothing_left: no socket, no port file.
nothing_left() { same "$(ls -A "$REMORA_RUNTIME_DIR")" "" && [[ ! -e $work/port ]]; }

finish() {
  echo "# $passed passed, $failed failed over $transport"
  ((failed == 0)) || exit 1
  exit 0
}
