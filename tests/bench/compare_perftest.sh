#!/usr/bin/env bash
# Reads and writes of remora over rdma against perftest on the same device, in interleaved pairs.
#
#   ci/vm/run.sh --timeout 1800 -- tests/bench/compare_perftest.sh build/release
#
# Environment: PAIRS (15), SECONDS_EACH (1), DEPTH (32), SIZES ("4096 65536"), OPS ("read write").
set -euo pipefail

if (($# != 1)) || [[ $1 == -h || $1 == --help ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "$0"
  exit $(($# == 1 ? 0 : 2))
fi
tree=$1
pairs=${PAIRS:-15} seconds=${SECONDS_EACH:-1} depth=${DEPTH:-32}
sizes=${SIZES:-4096 65536} ops=${OPS:-read write}
address=${REMORA_VM_ADDRESS:?run it by ci/vm/run.sh}
device=${REMORA_VM_DEVICE:-rxe0}
remora=$tree/apps/remora server=$tree/apps/remora-server table=$tree/tests/bench/ratio_table
for program in "$remora" "$server" "$table"; do
  [[ -x $program ]] || { echo "compare_perftest: there is no $program: build it" >&2; exit 2; }
done
for program in ib_read_bw ib_write_bw jq; do
  command -v "$program" >/dev/null || { echo "compare_perftest: there is no $program" >&2; exit 2; }
done

work=$(mktemp -d)
children=()
clean_up() {
  for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT

# --- the index of the GID that belongs to the address -----------------------------------------
gid_index() {
  local wanted file a b c d
  IFS=. read -r a b c d <<<"$address"
  wanted=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "$a" "$b" "$c" "$d")
  for file in "/sys/class/infiniband/$device/ports/1/gids/"*; do
    if [[ $(<"$file") == "$wanted" ]]; then basename "$file" && return; fi
  done
  echo "compare_perftest: $device has no GID of $address" >&2
  return 1
}
gid=$(gid_index)

# --- our server -------------------------------------------------------------------------------
cat >"$work/server.yaml" <<YAML
listen: {address: "$address", port: 7471}
transports: {rdma: required, shm: off}
pool: {size: 256MiB, huge_pages: never}
auth: none
regions:
  - {name: bench, size: 128MiB}
YAML
"$server" --config "$work/server.yaml" 2>"$work/server.log" &
children+=($!)
uri="remora://$address:7471/bench?transport=rdma"
for ((i = 0; i < 100; ++i)); do
  if "$remora" stat "$uri" >/dev/null 2>&1; then break; fi
  ((i < 99)) || { cat "$work/server.log" >&2; exit 1; }
  sleep 0.1
done

# --- one side of a pair: bytes a second ---------------------------------------------------------
ours() {
  "$remora" bench "$uri" --op "$1" --size "$2" --depth "$depth" --threads 1 --seconds "$seconds" \
    --json | jq -r .bytes_per_second
}

# perftest reports MiB in column 4 (the average); -D measures by time.
peer_port=19000
peer() {
  local program=ib_$1_bw options
  peer_port=$((peer_port + 1))
  options=(-d "$device" -x "$gid" -s "$2" -t "$depth" -D "$seconds" -f 0 -F -p "$peer_port")
  "$program" "${options[@]}" >/dev/null 2>&1 &
  local listening=$!
  children+=("$listening")
  local tries output
  for ((tries = 0; tries < 50; ++tries)); do
    if output=$("$program" "${options[@]}" "$address" 2>/dev/null); then break; fi
    sleep 0.1
  done
  wait "$listening" || true
  awk -v size="$2" '$1 == size && NF >= 4 { print $4 * 1048576; found = 1; exit } END { exit !found }' \
    <<<"$output"
}

megabytes() { awk -v a="$1" 'BEGIN { printf "%.3f", a / 1e6 }'; }

echo "$(uname -r), $(nproc) processors, $device GID $gid, depth $depth, $seconds s a side," \
  "$(date -u +%F)" >&2
for op in $ops; do
  for size in $sizes; do
    for ((pair = 0; pair < pairs; ++pair)); do
      if ((pair % 2)); then
        theirs=$(peer "$op" "$size") mine=$(ours "$op" "$size")
      else
        mine=$(ours "$op" "$size") theirs=$(peer "$op" "$size")
      fi
      printf '%s\tperftest\tMB/s\t>=0.95\t%s\t%s\n' "$op $size" "$(megabytes "$mine")" \
        "$(megabytes "$theirs")"
    done
  done
done | tee "$work/pairs" >&2
"$table" <"$work/pairs"
