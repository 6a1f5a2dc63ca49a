# shellcheck shell=bash disable=SC2034,SC2154  # variables of compare.sh
# Volumes over servers on loopback: striped and mirrored beside one region, a rebuild beside a plain
# copy and nbdcopy, and the time without a write after a member was killed. Sourced by compare.sh.
#
# All servers of a program share one processor, and none polls. The cluster's records are in a file.

volume_group_mib=128 volume_nbd_port=10842

section_volume() {
  section_versions="$(version_of nbdkit libnbd-bin)"
  local bench=$build/tests/bench
  driver volume_region "$bench/side_volume" --shape region
  driver volume_striped "$bench/side_volume" --shape striped
  driver volume_mirror "$bench/side_volume" --shape mirror --servers 2
  driver volume_exclusive "$bench/side_volume" --shape mirror --servers 2 --writer exclusive
  driver volume_copy "$bench/side_rebuild" --how plain --group-mib "$volume_group_mib"
  driver volume_rebuild "$bench/side_rebuild" --how rebuild --group-mib "$volume_group_mib"
  need volume_nbdcopy nbdkit nbdkit
  need volume_nbdcopy nbdcopy libnbd-bin
  volume_striped_rows
  volume_mirror_rows
  volume_rebuild_rows
  volume_failover_rows
}

volume_striped_rows() {
  local op
  for op in read write; do
    volume_row "$op" 4096 32 "striped over three servers" '>=0.9' volume_striped
    volume_row "$op" 1048576 4 "striped over three servers" '>=0.9' volume_striped
  done
}
volume_mirror_rows() {
  volume_row write 4096 32 "mirror:2, exclusive" '>=0.45' volume_exclusive
  volume_row write 4096 32 "mirror:2" - volume_mirror
  volume_time_row write "mirror:2, exclusive" '<=1.3' volume_exclusive
  volume_time_row write "mirror:2" - volume_mirror
  volume_row read 4096 32 "mirror:2" - volume_mirror
}
# volume_row OP SIZE DEPTH SHAPE GOAL DRIVER: rates.
volume_row() {
  local job="$1 $2 $3 steady/s"
  row "$1 $(size_name "$2"), depth $3, $4" "one region" ops/s "$5" "$6" "$job" volume_region "$job"
}
# volume_time_row OP SHAPE GOAL DRIVER: the median time of one operation.
volume_time_row() {
  local job="$1 4096 1 ns"
  row "$1 4 KiB, depth 1, $2" "one region" ns "$3" "$4" "$job" volume_region "$job"
}

# All of a rebuild counts: the claim, the new region, the copy, the removal of the old one.
volume_rebuild_rows() {
  local job="write 1048576 4 ops/s"
  row "rebuild of $volume_group_mib MiB, 4 zones at once" "reads and writes" MiB/s '>=0.7' \
    volume_rebuild "$job" volume_copy "$job"
  volume_nbd_start
  row "rebuild of $volume_group_mib MiB, 4 zones at once" "nbdcopy, nbdkit memory" MiB/s - \
    volume_rebuild "$job" volume_nbdcopy copy
  stop_service volume_nbd_from
  stop_service volume_nbd_to
}

# Two memory plugins of nbdkit over tcp, both with all pages touched, the first with random bytes.
volume_nbd_start() {
  ((!list)) && [[ -z ${driver_absent[volume_nbdcopy]:-} ]] || return 0
  local side port=$volume_nbd_port tries
  for side in from to; do
    taskset -c 0 nbdkit --foreground --ipaddr 127.0.0.1 --port "$port" memory "${volume_group_mib}M" \
      >"$work/volume_nbd_$side.log" 2>&1 &
    service_pid[volume_nbd_$side]=$!
    port=$((port + 1))
  done
  head -c "$((volume_group_mib * 1048576))" /dev/urandom >"$work/volume_random"
  for ((tries = 0; tries < 50; ++tries)); do
    if nbdcopy "$work/volume_random" "nbd://127.0.0.1:$volume_nbd_port" 2>>"$work/volume_nbdcopy.log" &&
      measure_volume_nbdcopy copy >/dev/null 2>&1; then
      rm -f "$work/volume_random"
      return 0
    fi
    kill -0 "${service_pid[volume_nbd_from]}" "${service_pid[volume_nbd_to]}" 2>/dev/null || break
    sleep 0.2
  done
  absent volume_nbdcopy "it did not start: $(tail -n 1 "$work/volume_nbdcopy.log")"
  failed=1
}
measure_volume_nbdcopy() {
  local began=$EPOCHREALTIME
  taskset -c 1 timeout 60 nbdcopy --no-extents "nbd://127.0.0.1:$volume_nbd_port" \
    "nbd://127.0.0.1:$((volume_nbd_port + 1))" >&2
  awk -v began="$began" -v ended="$EPOCHREALTIME" -v mib="$volume_group_mib" \
    'BEGIN { printf "%.3f\n", mib / (ended - began) }'
}

# The peer is the goal itself. A primary is not replaced before readers' confirmations have expired.
volume_failover_rows() {
  local member
  for member in backup primary; do
    row "kill -9 of a $member to the first write without it" "2 s" ms '<=1' \
      "volume_failover_$member" "$member" volume_two_seconds "-"
  done
}
volume_failover() { timeout 120 "$build/tests/bench/side_failover" --member "$1"; }
measure_volume_failover_backup() { volume_failover "$1"; }
measure_volume_failover_primary() { volume_failover "$1"; }
measure_volume_two_seconds() { echo 2000; }
