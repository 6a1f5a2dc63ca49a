# shellcheck shell=bash disable=SC2034,SC2154  # variables of compare.sh
# Shared memory: beside memcpy of the same pages, UCX and libfabric. Sourced by compare.sh.

# memcpy_row GOAL OP SIZE BLOCKS COPY_THREADS: one program measures both sides in one process.
memcpy_row() {
  local goal=$1 op=$2 size=$3 blocks=$4 threads=$5 name options=() pin=(taskset -c 1)
  name="$op $(size_name "$size"), depth 32"
  if ((threads > 1)); then
    name+=", $threads copying threads"
    pin=()
  fi
  wanted "$name" memcpy "$goal" || return 0
  [[ $op == read ]] || options+=(--write)
  if ! "${pin[@]}" "$build/tests/bench/bench_shm_vs_memcpy" --lines --goal "$goal" --block "$size" \
    --pairs "$pairs" --blocks "$((blocks * ms / 200 + 1))" --copy-threads "$threads" "${options[@]}" \
    >>"$work/pairs"; then
    failed=1
    note "not complete: $name beside memcpy"
    ((!smoke)) || echo "not ok - $section: $name beside memcpy"
  elif ((smoke)); then
    echo "ok - $section: $name beside memcpy"
  fi
}

# many_row GOAL OP SIZE COUNT BLOCKS: calls with COUNT pairs, in the same program.
many_row() {
  local goal=$1 op=$2 size=$3 count=$4 blocks=$5 name options=()
  name="${op}_many $(size_name "$size"), of $count"
  wanted "$name" memcpy "$goal" || return 0
  [[ $op == read ]] || options+=(--write)
  if ! taskset -c 1 "$build/tests/bench/bench_shm_vs_memcpy" --lines --many --goal "$goal" \
    --block "$size" --depth "$count" --pairs "$pairs" --blocks "$((blocks * ms / 200 + 1))" \
    "${options[@]}" >>"$work/pairs"; then
    failed=1
    note "not complete: $name beside memcpy"
    ((!smoke)) || echo "not ok - $section: $name beside memcpy"
  elif ((smoke)); then
    echo "ok - $section: $name beside memcpy"
  fi
}

section_shm() {
  local op size count
  section_versions="$(version_of libucx-dev libfabric-dev)"
  declare -A goals=([read]='>=0.5' [write]='>=0.4')
  for op in read write; do
    memcpy_row "${goals[$op]}" "$op" 64 3000000 1
    memcpy_row '>=0.9' "$op" 4096 400000 1
    memcpy_row '>=0.97' "$op" 65536 25000 1
    memcpy_row '>=1.0' "$op" 1048576 1500 1
    memcpy_row '>=1.6' "$op" 1048576 1500 2
  done

  for count in 32 1024; do
    many_row '>=0.75' read 64 "$count" 3000000
    many_row '>=0.6' write 64 "$count" 3000000
  done

  threads_rows shm '>=0.9' 2
  driver remora "$build/tests/bench/side_remora" --transport shm
  driver ucx "$build/tests/bench/peer_ucx" --transport posix
  driver libfabric "$build/tests/bench/peer_libfabric" --provider shm
  ucx_row() { row "$1" "UCX posix" ops/s "$2" remora "$3 steady/s" ucx "$3 steady/s"; }
  ucx_row "get 64 B, depth 32" '>=2.5' 'read 64 32'
  ucx_row "put 64 B, depth 32" '>=1.0' 'write 64 32'
  ucx_row "get 4 KiB, depth 32" '>=1.3' 'read 4096 32'
  ucx_row "put 4 KiB, depth 32" '>=1.05' 'write 4096 32'
  ucx_row "fetch-add, depth 32" '>=2' 'add 8 32'
  for op in read write; do
    for size in 64 4096 65536 1048576; do
      row "$op $(size_name "$size"), depth 32" "libfabric shm" ops/s '>=1.0' \
        remora "$op $size 32 steady/s" libfabric "$op $size 32 steady/s"
    done
  done
}
