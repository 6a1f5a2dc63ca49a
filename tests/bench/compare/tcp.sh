# shellcheck shell=bash disable=SC2034,SC2154  # variables of compare.sh
# TCP over the machine's loopback: beside sockets by hand, UCX, memcached, redis and nbdkit. Sourced
# by compare.sh.

section_tcp() {
  section_versions="$(version_of libucx-dev memcached redis-server nbdkit fio)"
  driver polling "$build/tests/bench/side_remora" --transport tcp
  driver blocking "$build/tests/bench/side_remora" --transport tcp --mode blocking
  driver many "$build/tests/bench/side_remora" --transport tcp --face many
  driver sockets "$build/tests/bench/peer_sockets"
  driver sockets_blocking "$build/tests/bench/peer_sockets" --mode blocking
  driver ucx "$build/tests/bench/peer_ucx" --transport tcp
  local store
  for store in memcached redis; do
    driver "$store" "$build/tests/bench/peer_kv" --store "$store"
    driver "${store}_blocking" "$build/tests/bench/peer_kv" --store "$store" --mode blocking
  done
  multi_get_drivers
  need memcached memcached memcached
  need memcached_blocking memcached memcached
  need redis redis-server redis-server
  need redis_blocking redis-server redis-server
  need nbdkit nbdkit nbdkit
  need nbdkit fio fio
  need nbdkit jq jq
  rows_sockets
  # More client threads are no slower than one.
  threads_rows tcp '>=1.0' 1
  neighbours_rows tcp
  rows_ucx
  rows_stores
  rows_multi_get
  ((list)) || [[ -n ${driver_absent[nbdkit]:-} ]] || start_nbdkit
  rows_nbdkit
  stop_service nbdkit_server
}

rows_sockets() {
  local op
  declare -A small=([read]='>=0.85' [write]='>=0.7') large=([read]='>=0.95' [write]='>=0.7')
  # A write is acknowledged when every later read returns it, on both sides.
  for op in read write; do
    row "$op 64 B, depth 1, polling" "raw sockets" ns '<=1.2' \
      polling "$op 64 1 ns" sockets "$op 64 1 ns"
  done
  for op in read write; do
    row "$op 64 B, depth 1, blocking" "raw sockets" ns - \
      blocking "$op 64 1 ns" sockets_blocking "$op 64 1 ns"
  done
  for op in read write; do
    sockets_row "$op" 64 32 "${small[$op]}"
    sockets_row "$op" 4096 32 '>=0.7'
    sockets_row "$op" 65536 8 '>=0.7'
    sockets_row "$op" 1048576 4 "${large[$op]}"
  done
  many_rows 32
}

# many_rows COUNT: calls with so many pairs of 64 B.
many_rows() {
  local op
  for op in read write; do
    row "${op}_many 64 B, of $1, polling" "raw sockets" ops/s '>=1.0' \
      many "$op 64 $1 steady/s" sockets "$op 64 $1 steady/s"
  done
}

# sockets_row OP SIZE DEPTH GOAL
sockets_row() {
  row "$1 $(size_name "$2"), depth $3, polling" "raw sockets" ops/s "$4" \
    polling "$1 $2 $3 steady/s" sockets "$1 $2 $3 steady/s"
}

rows_ucx() {
  local op size
  declare -A goals=([64]='>=3' [4096]='>=2.5' [65536]='>=2' [1048576]='>=1.5')
  for op in read write; do
    row "$op 64 B, depth 1, polling" "UCX tcp" ns - polling "$op 64 1 ns" ucx "$op 64 1 ns"
    for size in 64 4096 65536 1048576; do
      row "$op $(size_name "$size"), depth 32, polling" "UCX tcp" ops/s "${goals[$size]}" \
        polling "$op $size 32 steady/s" ucx "$op $size 32 steady/s"
    done
  done
}

rows_stores() {
  local store op
  for store in memcached redis; do
    for op in read write; do
      row "$op 4 KiB, depth 32, polling" "$store, pipelined" ops/s '>=2.5' \
        polling "$op 4096 32 steady/s" "$store" "$op 4096 32 steady/s"
      # A rate of 1.2 at depth 1, as the median of the times.
      row "$op 4 KiB, depth 1, blocking" "$store" ns '<=0.833' \
        blocking "$op 4096 1 ns" "${store}_blocking" "$op 4096 1 ns"
    done
  done
}

# --- the cache of apps/examples, beside stores ------------------------------------------------------

# 65,536 values of 1 KiB on each side.
multi_get_drivers() {
  local store
  driver kv_cache_tcp "$build/tests/bench/side_kv_cache" --transport tcp --region-mib 64
  driver kv_cache_shm "$build/tests/bench/side_kv_cache" --transport shm --region-mib 64
  for store in memcached redis; do
    driver "${store}_multi" "$build/tests/bench/peer_kv" --store "$store" --region-mib 64 \
      --value-bytes 1024 --gets multi
  done
  need memcached_multi memcached memcached
  need redis_multi redis-server redis-server
}

# Of 100 keys each; a store finds a key by itself, the cache by two calls of read_many(). The stores
# have no shared memory: their client is on the same host over tcp.
rows_multi_get() {
  local transport
  for transport in tcp shm; do
    row "multi-get of 100 values of 1 KiB, kv_cache over $transport" "redis MGET" ops/s '>=4' \
      "kv_cache_$transport" 'read 1024 100 steady/s' redis_multi 'read 1024 100 steady/s'
    row "multi-get of 100 values of 1 KiB, kv_cache over $transport" "memcached get" ops/s '>=4' \
      "kv_cache_$transport" 'read 1024 100 steady/s' memcached_multi 'read 1024 100 steady/s'
  done
}

# --- nbdkit's memory plugin, by fio ----------------------------------------------------------------

nbd_port=10839
start_nbdkit() {
  taskset -c 0 nbdkit --foreground --ipaddr 127.0.0.1 --port "$nbd_port" memory 1G \
    >"$work/nbdkit.log" 2>&1 &
  service_pid[nbdkit_server]=$!
  # Every page is there before anything is timed; as a side effect it waits for the server.
  local tries
  for ((tries = 0; tries < 20; ++tries)); do
    nbd_fio write 1m 8 --size=1g >/dev/null 2>&1 && return 0
    sleep 0.2
  done
  absent nbdkit "it did not start: $(tail -n 1 "$work/nbdkit.log")"
  failed=1
}

# nbd_fio OP SIZE DEPTH [OPTION...]: fio's report as JSON.
nbd_fio() {
  local op=$1 size=$2 depth=$3
  shift 3
  taskset -c 1 fio --name=peer --ioengine=nbd --uri="nbd://127.0.0.1:$nbd_port" --rw="$op" \
    --bs="$size" --iodepth="$depth" --thread --randrepeat=0 --norandommap --output-format=json "$@"
}

# JOB is that of a program that reads jobs, in the same units: steady/s from fio's log of single
# milliseconds, ns from its histogram. fio needs a second to be steady.
measure_nbdkit() {
  local op size depth unit log=$work/fio
  read -r op size depth unit <<<"$1"
  nbd_fio "rand$op" "$size" "$depth" --size=1g --time_based --runtime=1 --lat_percentiles=1 \
    --write_iops_log="$log" --log_avg_msec=1 --output="$log.json" >&2
  if [[ $unit == ns ]]; then
    sed '/^fio: connected/d' "$log.json" | jq -r ".jobs[0].$op.lat_ns.percentile[\"50.000000\"]"
  else
    cut -d, -f2 "${log}_iops.1.log" | sort -n |
      awk '{ value[NR] = $1 } END { print value[int(NR * 0.9)] }'
  fi
}

rows_nbdkit() {
  local op
  for op in read write; do
    row "$op 4 KiB, depth 32, polling" "nbdkit memory, fio" ops/s '>=2.5' \
      polling "$op 4096 32 steady/s" nbdkit "$op 4096 32 steady/s"
    row "$op 4 KiB, depth 1, blocking" "nbdkit memory, fio" ns '<=0.833' \
      blocking "$op 4096 1 ns" nbdkit "$op 4096 1 ns"
  done
}
