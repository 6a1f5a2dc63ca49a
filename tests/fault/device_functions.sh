# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # what the scripts read and set that source this
# Sourced by device_faults.sh and rail_faults.sh: checks, a server and a verifying load in a guest of
# ci/vm with root and Soft-RoCE. They set `tree`, and get the programs of it, the guest's `device`,
# `netdev` and `address`, and a folder `work`, which is removed at the end. Outside a guest the script
# ends here.

script=${0##*/}
load=$tree/tests/fault/fault_load server_program=$tree/apps/remora-server remora=$tree/apps/remora
device=${REMORA_VM_DEVICE:-rxe0} netdev=${REMORA_VM_NETDEV:-veth0} address=${REMORA_VM_ADDRESS:-}
if [[ ! $address ]]; then
  if [[ ${REMORA_REQUIRE_DEVICE:-} == 1 ]]; then
    echo "$script: no guest of ci/vm, and a device is required" >&2
    exit 1
  fi
  echo "$script: skipped: this is no guest of ci/vm"
  exit 77
fi
work=$(mktemp -d "/tmp/${script%.sh}.XXXXXX")
failures=0 server='' loader=''

# shellcheck disable=SC2317  # a trap
cleanup() {
  for child in $loader $server; do kill -KILL "$child" 2>/dev/null || true; done
  wait 2>/dev/null || true
  if ((failures != 0)); then
    tail -n 80 "$work"/*.log "$work"/*.err 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap cleanup EXIT

# set_rounds ROUNDS LONG: sets `rounds` by REMORA_FAULT_ROUNDS: a number, `long`, or `least`, which is one.
set_rounds() {
  rounds=${REMORA_FAULT_ROUNDS:-$1}
  case $rounds in
    long) rounds=$2 ;;
    least) rounds=1 ;;
  esac
  [[ $rounds =~ ^[0-9]+$ ]] || rounds=$1
}

is() {
  local name=$1
  shift
  if "$@"; then
    echo "ok: $name"
  else
    echo "FAILED: $name: $*"
    failures=$((failures + 1))
  fi
}
at_most() { (($1 <= $2)); }
at_least() { (($1 >= $2)); }
# await TENTHS COMMAND...: until it succeeds.
await() {
  local tries=$1
  shift
  while ! "$@"; do
    ((tries-- > 0)) || return 1
    sleep 0.1
  done
}
ms() { date +%s%3N; }
# add_veth ADDRESS: the interface `a0`, for a second device.
add_veth() {
  ip link add a0 mtu 9000 type veth peer name a1 mtu 9000
  ip addr add "$1/24" dev a0
  ip link set a0 up
  ip link set a1 up
}
# given_back LOG NAME: for each time that the program with that log has given the device back, how many milliseconds
# after it found the device gone, without those that went by in the driver's calls.
given_back() {
  sed -n "s/.*rdma: $2 is given back, \([0-9]*\) ms after it was found to be gone, \([0-9]*\) of them.*/\1 \2/p" \
    "$work/$1" | awk '{ print $1 - $2 }'
}
has_given_back() { (($(given_back "$1" "$2" | wc -l) > $3)); }
# delete_device NAME WHAT LOG...: `rdma link del` must not wait for the programs that use the device. It takes
# less than half a second, on a busy machine several, and would never return if it waited. What the programs with
# these logs need by themselves is judged more closely: not the emulator's work.
delete_device() {
  local name=$1 what=$2 began took log own
  local -A before
  shift 2
  for log; do before[$log]=$(given_back "$log" "$name" | wc -l); done
  began=$(ms)
  timeout 60 rdma link del "$name" || true
  took=$(($(ms) - began))
  is "$what: 'rdma link del' returned within 30 s ($took ms)" at_most "$took" 30000
  for log; do
    is "$what: the device is given back ($log)" await 300 has_given_back "$log" "$name" "${before[$log]}"
    own=$(given_back "$log" "$name" | tail -n 1)
    is "$what: that took 5 s at most beside the driver (${own:-never} ms)" at_most "${own:-60000}" 5000
  done
}

# start_server: its configuration is read from standard input.
start_server() {
  cat >"$work/server.yaml"
  "$server_program" --config "$work/server.yaml" >"$work/server.log" 2>&1 &
  server=$!
  await 300 ready
}
stop_server() {
  kill -TERM "$server"
  wait "$server" || true
  server=''
}
ready() { curl -sf --max-time 2 -o /dev/null http://127.0.0.1:9471/readyz; }
series() { curl -sf --max-time 2 http://127.0.0.1:9471/metrics | awk -v name="$1" 'index($0, name) == 1 { sum += $NF } END { print sum + 0 }'; }
resumed() { [[ $(series remora_server_sessions_resumed_total) -ge $1 ]]; }

# run_load OPTION...: in the background, until judge_load ends it; `load_rate` operations a second at most.
load_rate=2000
run_load() {
  "$load" --rate "$load_rate" --json --seconds 600 "$@" >"$work/load.json" 2>"$work/load.err" &
  loader=$!
}
# judge_load NAME: lets the load go on for two seconds more, ends it and shows its own judgement: an
# operation that was late, a wrong byte, an atomic too many.
judge_load() {
  local code=0
  sleep 2
  kill -TERM "$loader" || true
  wait "$loader" || code=$?
  loader=''
  is "$1: the load found nothing wrong" test "$code" = 0
  is "$1: no violation" test "$(jq -r .violations_total "$work/load.json")" = 0
  jq -c '{ok, failed, first_failed, interrupted, resumed, lost, longest_verdict_ms, longest_overrun_ms, longest_silence_ms, violations: .violations[:3]}' \
    "$work/load.json" || true
}
