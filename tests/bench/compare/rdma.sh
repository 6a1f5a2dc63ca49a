# shellcheck shell=bash disable=SC2034,SC2154  # variables of compare.sh
# Real verbs over Soft-RoCE, all in one boot of a guest (ci/vm): beside perftest, a loop written by
# hand and the kernel's NVMe-oF target. Sourced by compare.sh, on the machine and in the guest.

section_rdma() {
  section_ms=$guest_ms
  if ((inside || list)); then
    rdma_programs
    rdma_rows
    return 0
  fi
  local program
  for program in qemu-system-x86_64 ib_read_bw; do
    if ! command -v "$program" >/dev/null; then
      note "left out: the whole section: there is no $program (ci/setup.sh vm)"
      return 0
    fi
  done
  local options=(--inside --only rdma --build "$build")
  ((quick)) && options+=(--quick)
  ((smoke)) && options+=(--smoke)
  ci/vm/run.sh --memory 6G --timeout 7200 -- tests/bench/compare.sh "${options[@]}" || failed=1
}

rdma_programs() {
  section_versions="$(version_of perftest rdma-core fio nvme-cli)"
  local address=${REMORA_VM_ADDRESS:-10.77.0.1}
  rdma_device=${REMORA_VM_DEVICE:-rxe0} rdma_address=$address rdma_gid=0
  ((list)) || rdma_gid=$(gid_index "$address")
  driver remora "$build/tests/bench/side_remora" --transport rdma --address "$address"
  driver remora32 "$build/tests/bench/side_remora" --transport rdma --address "$address" --batch 32
  driver verbs "$build/tests/bench/peer_verbs" --device "$rdma_device" --gid "$rdma_gid"
  need perftest ib_read_bw perftest
  need nvme nvme nvme-cli
  need nvme fio fio
  need nvme jq jq
}

# The index of the GID that belongs to an IPv4 address.
gid_index() {
  local wanted file a b c d
  IFS=. read -r a b c d <<<"$1"
  wanted=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "$a" "$b" "$c" "$d")
  for file in "/sys/class/infiniband/$rdma_device/ports/1/gids/"*; do
    if [[ $(<"$file") == "$wanted" ]]; then basename "$file" && return; fi
  done
  die "$rdma_device has no GID of $1"
}

rdma_rows() {
  local op size depth
  for op in read write; do
    for size in 4096 65536 1048576; do
      depth=$((size == 1048576 ? 8 : 32))
      row "$op $(size_name "$size"), depth $depth" perftest ops/s '>=1.0' \
        remora "$op $size $depth ops/s" perftest "$op $size $depth ops/s"
    done
  done
  # perftest posts lists of 32 and asks for one completion a list.
  row "write 8 B, depth 128, batches of 32" "ib_write_bw -l 32 -Q 32" ops/s '>=1.0' \
    remora32 "write 8 128 ops/s" perftest "write 8 128 ops/s"
  for op in read cas add; do
    row "$op 8 B, depth 1" perftest ns '<=1.05' remora "$op 8 1 ns" perftest "$op 8 1 ns"
  done
  for size in 8 4096; do
    row "write $(size_name "$size"), depth 1" "verbs by hand" ns '<=1.05' \
      remora "write $size 1 ns" verbs "write $size 1 ns"
  done
  # Over the same gibibyte as ours, where perftest works on one hot word.
  for op in read cas add; do
    row "$op 8 B, depth 1" "verbs by hand" ns - remora "$op 8 1 ns" verbs "$op 8 1 ns"
  done
  neighbours_rows rdma --address "${REMORA_VM_ADDRESS:-10.77.0.1}"
  ((list)) || [[ -n ${driver_absent[nvme]:-} ]] || start_nvme
  row "read 4 KiB, depth 1" "kernel NVMe-oF, fio" ops/s '>=4' \
    remora "read 4096 1 ops/s" nvme "read 4096 1 ops/s"
  row "read 4 KiB, depth 32" "kernel NVMe-oF, fio" ops/s '>=1.6' \
    remora "read 4096 32 ops/s" nvme "read 4096 32 ops/s"
}

# --- perftest --------------------------------------------------------------------------------------

# perftest_pair PROGRAM OPTION...: a server on processor 0 and a client on 1; the client's report.
perftest_port_file='' perftest_port=19000
perftest_pair() {
  local program=$1 listening tries output=''
  shift
  # measure() runs this in a subshell, so the last port is in a file.
  perftest_port_file=$work/perftest_port
  [[ -r $perftest_port_file ]] && perftest_port=$(<"$perftest_port_file")
  echo "$((++perftest_port))" >"$perftest_port_file"
  local options=(-d "$rdma_device" -x "$rdma_gid" -F -p "$perftest_port" "$@")
  taskset -c 0 "$program" "${options[@]}" >/dev/null 2>&1 &
  listening=$!
  for ((tries = 0; tries < 50; ++tries)); do
    output=$(taskset -c 1 "$program" "${options[@]}" "$rdma_address" 2>/dev/null) && break
    sleep 0.1
  done
  wait "$listening" || true
  printf '%s\n' "$output"
}

# Rates: the average in MiB a second is column 4, messages a second in millions column 5. Times: the
# median in microseconds is column 5.
measure_perftest() {
  local op size depth unit seconds=$(((guest_ms + 999) / 1000)) options
  read -r op size depth unit <<<"$1"
  if [[ $unit == ns ]]; then
    options=(-s "$size" -n "$((guest_ms * 8))")
    case $op in
      read) perftest_pair ib_read_lat "${options[@]}" ;;
      cas) perftest_pair ib_atomic_lat -A CMP_AND_SWAP -n "$((guest_ms * 8))" ;;
      add) perftest_pair ib_atomic_lat -A FETCH_AND_ADD -n "$((guest_ms * 8))" ;;
    esac | awk -v size="$size" '$1 == size && NF >= 6 { printf "%.1f\n", $5 * 1000; exit }'
    return
  fi
  options=(-s "$size" -t "$depth" -f 0 -D "$seconds")
  ((size > 8)) || options=(-s "$size" -t "$depth" -n "$((guest_ms * 60 / 32 * 32))" -l 32 -Q 32)
  perftest_pair "ib_${op}_bw" "${options[@]}" |
    awk -v size="$size" '$1 == size && NF >= 5 {
      printf "%.1f\n", (size > 8 ? $4 * 1048576 / size : $5 * 1e6); exit }'
}

# --- the kernel's NVMe-oF target over RDMA ---------------------------------------------------------

start_nvme() {
  local target=/sys/kernel/config/nvmet name=remora-bench device=''
  if ! { modprobe brd rd_nr=1 rd_size=1048576 && modprobe nvmet-rdma && modprobe nvme-rdma &&
    dd if=/dev/zero of=/dev/ram0 bs=1M count=1024 status=none; }; then
    absent nvme "the guest's kernel has no brd, nvmet-rdma or nvme-rdma"
    return 0
  fi
  mkdir "$target/subsystems/$name"
  echo 1 >"$target/subsystems/$name/attr_allow_any_host"
  mkdir "$target/subsystems/$name/namespaces/1"
  echo /dev/ram0 >"$target/subsystems/$name/namespaces/1/device_path"
  echo 1 >"$target/subsystems/$name/namespaces/1/enable"
  mkdir "$target/ports/1"
  echo rdma >"$target/ports/1/addr_trtype"
  echo ipv4 >"$target/ports/1/addr_adrfam"
  echo "$rdma_address" >"$target/ports/1/addr_traddr"
  echo 4420 >"$target/ports/1/addr_trsvcid"
  ln -s "$target/subsystems/$name" "$target/ports/1/subsystems/$name"
  local tries
  nvme connect -t rdma -a "$rdma_address" -s 4420 -n "$name" \
    --hostnqn=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555 >&2 || true
  for ((tries = 0; tries < 100; ++tries)); do
    device=$(compgen -G '/dev/nvme*n1' | head -n 1) && break
    sleep 0.1
  done
  nvme_device=$device
  if [[ -z $device ]]; then
    absent nvme "the namespace did not appear: see dmesg"
    failed=1
  fi
}

measure_nvme() {
  local op size depth unit
  read -r op size depth unit <<<"$1"
  taskset -c 1 fio --name=peer --filename="$nvme_device" --ioengine=libaio --direct=1 \
    --rw="rand$op" --bs="$size" --iodepth="$depth" --thread --randrepeat=0 --norandommap \
    --time_based --runtime="$(((guest_ms + 999) / 1000))" --output-format=json |
    jq -r ".jobs[0].$op.iops"
}
