# shellcheck shell=bash disable=SC2034,SC2154  # variables of compare.sh
# Block devices: the plugin of apps/nbdkit beside nbdkit's own memory plugin, both driven by fio, then
# by qemu-img bench: QEMU's block layer, as a virtual machine uses it.
# Sourced by compare.sh.
#
# Neither side is bound to processors: over tcp ours has one more process than its peer.

nbd_server_port=10840

section_nbd() {
  section_versions="$(version_of nbdkit fio qemu-utils)" section_ms=1000
  nbd_plugin=$build/apps/nbdkit/nbdkit-remora-plugin.so
  need nbd_memory nbdkit nbdkit
  need nbd_memory fio fio
  need nbd_memory jq jq
  need nbd_memory qemu-img qemu-utils
  [[ -e $nbd_plugin ]] ||
    absent nbd_memory "$nbd_plugin was not built: ci/setup.sh nbd, then configure again"
  nbd_offer memory memory 256M
  local transport
  for transport in shm tcp; do
    nbd_serve "$transport"
    nbd_rows "$transport"
    stop_service "nbd_$transport"
    stop_service remora_server
  done
  stop_service nbd_memory
}

# nbd_ready: whether rows are measured at all.
nbd_ready() { ((!list)) && [[ -z ${driver_absent[nbd_memory]:-} ]]; }

nbd_rows() {
  local transport=$1 op goal='>=1.0'
  [[ $transport == shm ]] || goal='>=0.85'
  for op in read write; do
    nbd_row "$transport" "$op" 4096 32 ops/s "$goal"
    nbd_row "$transport" "$op" 1048576 8 MiB/s '>=0.9'
    nbd_row "$transport" "$op" 4096 1 ns -
    nbd_row "$transport" "qemu-$op" 4096 32 ops/s "$goal"
    nbd_row "$transport" "qemu-$op" 1048576 8 MiB/s '>=0.9'
  done
}
# nbd_row TRANSPORT OP SIZE DEPTH UNIT GOAL
nbd_row() {
  row "${2/qemu-/qemu-img bench, } $(size_name "$3"), depth $4, nbdkit-remora over $1" \
    "nbdkit memory" "$5" "$6" \
    "nbd_$1" "$2 $3 $4 $5" nbd_memory "$2 $3 $4 $5"
}

# nbd_serve TRANSPORT: a server of ours with 256 MiB, and nbdkit with our plugin on it.
nbd_serve() {
  nbd_ready || return 0
  local transport=$1 shm=off tcp=off mapped=false tries
  if [[ $transport == shm ]]; then shm=required mapped=true; else tcp=required; fi
  [[ -d $work/run ]] || mkdir -m 700 "$work/run"
  cat >"$work/nbd.yaml" <<YAML
listen: {address: 127.0.0.1, port: $nbd_server_port}
transports: {rdma: off, shm: $shm, tcp: $tcp}
pool: {size: 256MiB, huge_pages: never}
regions:
  - {name: bench, size: 256MiB, shm: $mapped}
auth: none
YAML
  rm -f "$work/nbd.port"
  REMORA_RUNTIME_DIR=$work/run "$build/apps/remora-server" --config "$work/nbd.yaml" \
    --port-file "$work/nbd.port" >"$work/remora_server.log" 2>&1 &
  service_pid[remora_server]=$!
  for ((tries = 0; tries < 600; ++tries)); do
    [[ -s $work/nbd.port ]] && break
    sleep 0.1
  done
  nbd_offer "$transport" "$(realpath "$nbd_plugin")" \
    "uri=remora://127.0.0.1:$nbd_server_port/bench?transport=$transport"
}

# nbd_offer SIDE PLUGIN PARAMETER...: nbdkit at a socket of its own; all its pages are touched.
nbd_offer() {
  nbd_ready || return 0
  local side=$1 tries
  shift
  REMORA_RUNTIME_DIR=$work/run nbdkit --foreground --unix "$work/nbd_$side.sock" "$@" \
    >"$work/nbd_$side.log" 2>&1 &
  service_pid[nbd_$side]=$!
  for ((tries = 0; tries < 50; ++tries)); do
    nbd_work "$side" write 1m 8 --size=256m >/dev/null 2>&1 && return 0
    kill -0 "${service_pid[nbd_$side]}" 2>/dev/null || break
    sleep 0.2
  done
  absent nbd_memory "nbdkit did not serve $side: $(tail -n 1 "$work/nbd_$side.log")"
  failed=1
}

# nbd_work SIDE RW SIZE DEPTH [OPTION...]: fio.
nbd_work() {
  local side=$1 rw=$2 size=$3 depth=$4
  shift 4
  timeout 60 fio --name=side --ioengine=nbd "--uri=nbd+unix:///?socket=$work/nbd_$side.sock" \
    --rw="$rw" --bs="$size" --iodepth="$depth" --thread --randrepeat=0 --norandommap \
    --output-format=json "$@"
}

# nbd_measure SIDE JOB: the mean rate, or the median time. A rate of blocks of 1 MiB is in MiB/s. fio needs a second to be steady.
nbd_measure() {
  local side=$1 op size depth unit report=$work/nbd_fio.json
  read -r op size depth unit <<<"$2"
  if [[ $op == qemu-* ]]; then
    nbd_measure_qemu "$side" "${op#qemu-}" "$size" "$depth"
    return
  fi
  nbd_work "$side" "rand$op" "$size" "$depth" --size=256m --time_based --runtime=1 \
    --lat_percentiles=1 --output="$report" >&2
  if [[ $unit == ns ]]; then
    sed '/^fio: connected/d' "$report" | jq -r ".jobs[0].$op.lat_ns.percentile[\"50.000000\"]"
  else
    sed '/^fio: connected/d' "$report" | jq -r ".jobs[0].$op.iops"
  fi
}
# nbd_measure_qemu SIDE OP SIZE DEPTH: the mean rate of one block after the other, with no cache of QEMU's.
nbd_measure_qemu() {
  local side=$1 op=$2 size=$3 depth=$4 count=100000 writes=() seconds
  if ((size > 65536)); then count=3000; fi
  if ((smoke)); then count=$((count / 50)); fi
  if [[ $op == write ]]; then writes=(-w); fi
  seconds=$(timeout 60 qemu-img bench -f raw -t none -c "$count" -d "$depth" -s "$size" "${writes[@]}" \
    "nbd+unix:///?socket=$work/nbd_$side.sock" | sed -n 's/^Run completed in \([0-9.]*\) seconds.*/\1/p')
  [[ -n $seconds ]] || return 1
  awk -v count="$count" -v seconds="$seconds" 'BEGIN {printf "%.1f\n", count / (seconds > 0 ? seconds : 0.001)}'
}
measure_nbd_memory() { nbd_measure memory "$1"; }
measure_nbd_shm() { nbd_measure shm "$1"; }
measure_nbd_tcp() { nbd_measure tcp "$1"; }
