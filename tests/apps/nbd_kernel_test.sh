#!/usr/bin/env bash
# The kernel's NBD client and ext4 on the plugin of nbdkit, in a guest: a file system under load, and a
# server that is killed meanwhile and comes back with new memory.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

plugin=${REMORA_NBDKIT_PLUGIN:?the file nbdkit-remora-plugin.so}
PATH=$PATH:/usr/sbin:/sbin
[[ -n ${REMORA_VM_GUEST:-} ]] || { echo "it mounts a file system: run it by ci/vm/run.sh"; exit 77; }
for tool in nbdkit nbd-client mkfs.ext4 debugfs fio; do
  command -v "$tool" >/dev/null || { echo "there is no $tool: ci/setup.sh nbd"; exit 77; }
done
for module in nbd ext4; do
  modprobe "$module" || { echo "not ok - the guest's kernel has no $module"; exit 1; }
done
socket=$work/nbd.sock device=/dev/nbd0 mounted=$work/mounted
mkdir "$mounted"
cd "$work" || exit 1
end_all() {
  umount -l "$mounted" 2>/dev/null
  nbd-client -d "$device" >/dev/null 2>&1
  cleanup
}
trap end_all EXIT

# attach: nbdkit on the region, and the kernel's device on nbdkit.
attach() {
  rm -f "$socket"
  nbdkit --foreground --unix "$socket" "$plugin" "$(uri cache)" reconnect-for=30s deadline=2s \
    >"$work/nbdkit.log" 2>&1 &
  nbdkit=$!
  pids+=("$nbdkit")
  eventually test -S "$socket"
  run 0 "nbd-client" nbd-client -unix "$socket" "$device" -nonetlink -block-size 4096
}
detach() {
  run 0 "nbd-client -d" nbd-client -d "$device"
  kill "$nbdkit"
  eventually ended "$nbdkit"
}
logged() { grep -qE -- "$1" "$work/nbdkit.log"; }
# verify NAME [OPTION...]: fio writes a file of the file system, and reads it back.
verify() {
  run 0 "$1" fio --name=file --directory="$mounted" --rw=randwrite --bs=4k --size=512k --ioengine=psync \
    --fsync=16 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randrepeat=0 "${@:2}"
}

start_server
attach
run 0 "mkfs.ext4" mkfs.ext4 -q "$device"
run 0 "mount" mount -t ext4 "$device" "$mounted"
head -c 4194304 /dev/urandom >random
run 0 "a file is copied" cp random "$mounted/random"
verify "fio verifies"
run 0 "umount" umount "$mounted"
run 0 "e2fsck" e2fsck -f -n "$device"
printf 'a line\n' >line
run 0 "debugfs writes" debugfs -w -R 'write line line' "$device"
run 0 "e2fsck of what it has written" e2fsck -f -n "$device"
run 0 "mount once more" mount -t ext4 -o errors=continue "$device" "$mounted"
is "the file has its bytes" cmp random "$mounted/random"
is "so has that of debugfs" cmp line "$mounted/line"

fio --name=cut --directory="$mounted" --rw=randwrite --bs=4k --size=512k --ioengine=psync --fsync=4 \
  --verify=crc32c --verify_fatal=1 --verify_state_save=0 --loops=200 --time_based --runtime=600 \
  >"$work/killed.out" 2>&1 &
writer=$!
pids+=("$writer")
written() { [[ $(stat -c %b "$mounted/cut.0.0" 2>/dev/null || echo 0) -gt 0 ]]; }
is "fio writes" eventually written
stop_server KILL
start_server "$work/server.yaml"
is "the log says that the memory is new" eventually logged 'has new memory'
is "fio ends" eventually ended "$writer"
{ wait "$writer"; } 2>/dev/null
is "with an error" test $? -ne 0
refused() { ! dd if="$device" of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null; }
is "the device refuses reads" refused
run 0 "umount of what is gone" umount "$mounted"
detach

attach
run 0 "mkfs.ext4 on the new memory" mkfs.ext4 -q "$device"
run 0 "mount of it" mount -t ext4 "$device" "$mounted"
verify "fio verifies on it"
run 0 "umount of it" umount "$mounted"
run 0 "e2fsck of it" e2fsck -f -n "$device"
detach
stop_server
is "the server ends cleanly" same "$status" 0
finish
