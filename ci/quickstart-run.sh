#!/usr/bin/env bash
# Runs a memory server and its clients once through everything: a file stored, read back and
# compared; counters incremented by four clients at once; latency and bandwidth; metrics; shutdown.
# ci/quickstart.sh builds and calls it, on the machine or in the guest.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
config=$root/config/examples/quickstart.yaml
clients=4
rounds=10  # increments by each client, by fetch-and-add and by compare-and-swap; each is a process
# shellcheck source=ci/local_programs.sh
. "$root/ci/local_programs.sh"

usage() {
  cat <<'USAGE'
usage: ci/quickstart-run.sh --bin BUILD_TREE [--transport shm|tcp|rdma] [--seconds S] [FILE]

  --bin        build tree or folder that holds remora-server and remora
  --transport  shm (default), tcp or rdma; rdma needs a device
  --seconds    length of each measurement (default 2)
  FILE         what is stored (default: the C++ compiler proper, some 30 MiB; over rdma the C library)
USAGE
}

die() {
  printf 'quickstart: error: %s\n' "$*" >&2
  if [[ -s ${work:-}/server.log ]]; then
    echo "--- the server's last lines ---" >&2
    tail -n 20 "$work/server.log" >&2
  fi
  exit 1
}

bin='' transport=shm seconds=2 file=''
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --bin) bin=${2:?--bin needs a folder}; shift ;;
    --transport) transport=${2:?--transport needs a name}; shift ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift ;;
    -*) usage >&2; die "unknown option '$1'" ;;
    *) [[ -z $file ]] || die "one FILE only"; file=$1 ;;
  esac
  shift
done
[[ $bin ]] || { usage >&2; die "--bin is needed"; }
[[ $transport =~ ^(shm|tcp|rdma)$ ]] || die "transport is shm, tcp or rdma, not '$transport'"
for tool in jq curl sha256sum; do
  command -v "$tool" >/dev/null || die "$tool is missing: run ci/setup.sh build"
done

server=$(find_program remora-server)
remora=$(find_program remora)
[[ -f $config ]] || die "$config is missing"

if [[ -z $file ]]; then
  if [[ $transport == rdma ]]; then file=$(file_to_store small); else file=$(file_to_store large); fi
fi
[[ -f $file && -r $file ]] || die "cannot read '$file'"
size=$(stat -Lc %s "$file")
((size > 0)) || die "'$file' is empty"

make_work quickstart

# Soft-RoCE answers on the address of its network device, not on loopback.
host=127.0.0.1
if [[ $transport == rdma ]]; then host=${REMORA_VM_ADDRESS:-$host}; fi
port=$(free_port 7471)
metrics_port=$(free_port 9471)
metrics=127.0.0.1:$metrics_port
# An emulated guest takes ten seconds to populate as much as the example has.
smaller=()
if [[ $transport == rdma ]]; then smaller=(-e 's/size: 256MiB/size: 32MiB/; s/size: 128MiB/size: 8MiB/'); fi
sed -E "${smaller[@]}" -e "/^listen:/,/^[^ #]/ { s/127\.0\.0\.1/$host/; s/\b7471\b/$port/ }" \
  -e "s/\b9471\b/$metrics_port/" "$config" >"$work/server.yaml"

# Atomics of a mapped region are the CPU's, so over rdma no region may be one.
mapped=()
if [[ $transport == shm ]]; then mapped=(--shm); fi
if [[ $transport == rdma ]]; then rounds=1; fi  # an emulated guest takes a second for each process

uri() { printf 'remora://%s:%s%s?transport=%s\n' "$host" "$port" "${1:+/$1}" "$transport"; }
cli() { timeout 120 "$remora" "$@"; }

step "starting remora-server on $host:$port, metrics on http://$metrics/metrics"
"$server" --config "$work/server.yaml" >"$work/server.log" 2>&1 &
server_pid=$!
program_pids+=("$server_pid")
for ((tries = 0; ; ++tries)); do
  kill -0 "$server_pid" 2>/dev/null || die "remora-server ended at its start"
  if cli ls "$(uri)" >"$work/ls.txt" 2>"$work/ls.err"; then break; fi
  ((tries < 100)) || die "remora-server does not answer: $(cat "$work/ls.err")"
  sleep 0.2
done
sed 's/^/    /' "$work/ls.txt"

# --- a file there and back ----------------------------------------------------------------------
step "storing $file ($((size / 1024)) KiB), block by block"
blocks=$(((size + 4095) / 4096))
cli create "$(uri file)" --size "$((blocks * 4))KiB" "${mapped[@]}" >/dev/null ||
  die "cannot create a region of $size bytes"
cli put "$file" "$(uri file)"
step "reading it back"
cli get --length "$size" "$(uri file)" "$work/copy"
there=$(sha256sum <"$file" | cut -d' ' -f1)
back=$(sha256sum <"$work/copy" | cut -d' ' -f1)
rm -f "$work/copy"
[[ $there == "$back" ]] || die "SHA-256 differs: $there stored, $back read"
step "SHA-256 $there: the same"

# --- counters -----------------------------------------------------------------------------------
step "$clients clients at once: $rounds fetch-and-adds and $rounds compare-and-swaps each"
cli create "$(uri counters)" --size 4KiB "${mapped[@]}" >/dev/null || die "cannot create the counters"
count() {
  local round seen expected=0
  for ((round = 0; round < rounds; ++round)); do
    cli add "$(uri counters)" --offset 0 1 >/dev/null || return 1
    while :; do  # increments by compare-and-swap: try with what was seen last until it fits
      # It prints what stood there, and exits 1 if that was not the expected.
      seen=$(cli cas "$(uri counters)" --offset 8 "$expected" $((expected + 1))) || (($? == 1)) || return 1
      if ((seen == expected)); then break; fi
      expected=$seen
    done
    expected=$((expected + 1))
  done
}
pids=()
for ((client = 0; client < clients; ++client)); do
  count &
  pids+=($!)
done
for pid in "${pids[@]}"; do
  wait "$pid" || die "a counting client failed"
done
wanted=$((clients * rounds))
for offset in 0 8; do
  sum=$(cli add "$(uri counters)" --offset "$offset" 0)
  [[ $sum == "$wanted" ]] || die "the counter at $offset is ${sum:-unreadable}, not $wanted"
done
step "both counters are $wanted: no update was lost"

# --- latency and bandwidth ----------------------------------------------------------------------
step "latency and bandwidth, $seconds s each"
printf '    %-6s %7s %6s %12s %10s %10s %10s\n' op size depth op/s MiB/s 'p50 us' 'p99 us'
bench() {
  local op=$1 bytes=$2 depth=$3 line
  cli bench "$(uri file)" --op "$op" --size "$bytes" --depth "$depth" --threads 1 \
    --seconds "$seconds" --json >"$work/bench.json" || die "remora bench --op $op failed"
  line=$(jq -r '[.operations_per_second, .bytes_per_second / 1048576,
    .latency_ns.p50 / 1000, .latency_ns.p99 / 1000] | @tsv' "$work/bench.json") ||
    die "unexpected answer of remora bench: $(head -c 300 "$work/bench.json")"
  # shellcheck disable=SC2086  # four numbers
  printf '    %-6s %7s %6s %12.0f %10.1f %10.2f %10.2f\n' "$op" "$bytes" "$depth" $line
}
bench read 4KiB 1
bench write 4KiB 1
bench read 4KiB 32
bench read 64KiB 8
bench add 8B 1

# --- what the server says of itself -------------------------------------------------------------
step "metrics at http://$metrics/metrics:"
curl -fsS --max-time 10 "http://$metrics/metrics" >"$work/metrics.txt" ||
  die "nothing to scrape at http://$metrics/metrics"
awk '/^remora_/ && !/_bucket/ && $NF != 0 && ++shown <= 8 { print "    " $0 } END { exit !shown }' \
  "$work/metrics.txt" ||
  die "no remora_ series at http://$metrics/metrics"
curl -fsS --max-time 10 "http://$metrics/healthz" >/dev/null || die "/healthz does not answer"

for region in file counters; do
  cli rm "$(uri "$region")" >/dev/null || die "cannot remove region $region"
done
step "shutting down"
kill -TERM "$server_pid"
for ((tries = 0; tries < 150; ++tries)); do
  kill -0 "$server_pid" 2>/dev/null || break
  sleep 0.1
done
kill -0 "$server_pid" 2>/dev/null && die "remora-server did not end within 15 s of SIGTERM"
status=0
wait "$server_pid" || status=$?
program_pids=()
((status == 0)) || die "remora-server ended with status $status"
step "done: the server ended cleanly"
