#!/usr/bin/env bash
# A virtual machine whose root file system is a region: QEMU's NBD client on the plugin of nbdkit, the
# kernel of ci/vm, and a root of busybox alone. It boots, writes a file and powers itself off; the file
# system is then whole, and has the file.
# shellcheck disable=SC2317,SC2119,SC2034,SC2154  # functions are called by eventually; VM_* are of ci/vm
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

plugin=${REMORA_NBDKIT_PLUGIN:?the file nbdkit-remora-plugin.so}
PATH=$PATH:/usr/sbin:/sbin
for tool in nbdkit nbdcopy nbdinfo mkfs.ext4 e2fsck debugfs qemu-system-x86_64 busybox modprobe cpio setpriv; do
  command -v "$tool" >/dev/null || { echo "there is no $tool: ci/setup.sh nbd vm"; exit 77; }
done
VM_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../ci/vm" && pwd -P)
for part in common kernel qemu accel; do
  # shellcheck source=/dev/null
  . "$VM_HERE/$part.sh"
done
vm_cache_folder
[[ -e $VM_CACHE/current ]] || { echo "there is no kernel in $VM_CACHE: ci/vm/run.sh --prepare"; exit 77; }
vm_locked vm_prepare_kernel
vm_locked vm_choose_accel "${REMORA_VM_ACCEL:-auto}"
socket=$work/nbd.sock
nbd="nbd+unix:///?socket=$socket"
cd "$work" || exit 1

# --- the disk: a root with one program -----------------------------------------------------------------
make_root() {
  mkdir -p root/{bin,sbin,dev,proc} || return 1
  cp "$(command -v busybox)" root/bin/busybox || return 1
  cat >root/sbin/init <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox echo "boot-test: root is $(/bin/busybox sed -n 's/^\([^ ]*\) \/ ext4 .*/\1/p' /proc/mounts)"
/bin/busybox seq 1 2000 >/written && /bin/busybox sync && /bin/busybox echo 'boot-test: written'
/bin/busybox mount -o remount,ro / && /bin/busybox echo 'boot-test: read-only again'
/bin/busybox poweroff -f
INIT
  chmod 755 root/sbin/init
  truncate -s 16M disk
  mkfs.ext4 -q -d root disk
}

# --- the initramfs: what the root is mounted by ----------------------------------------------------------
make_initramfs() {
  mkdir -p first/{bin,dev,proc,sys,new,modules} || return 1
  cp root/bin/busybox first/bin/ || return 1
  local module file number=10
  for module in virtio_pci virtio_blk ext4; do
    modprobe -d "$VM_KERNEL_ROOT" -S "$VM_KERNEL_RELEASE" --show-depends "$module" || return 1
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >order
  while read -r file; do
    cp "$file" "first/modules/$number.ko" || return 1
    number=$((number + 1))
  done <order
  cat >first/init <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs devtmpfs /dev
exec </dev/null >/dev/console 2>&1
for module in /modules/*; do /bin/busybox insmod "$module"; done
tries=0
until [ -b /dev/vda ] || [ "$tries" = 50 ]; do tries=$((tries + 1)); /bin/busybox sleep 0.1; done
/bin/busybox mount -t ext4 /dev/vda /new || /bin/busybox poweroff -f
/bin/busybox mount --move /dev /new/dev
exec /bin/busybox switch_root /new /sbin/init
INIT
  chmod 755 first/init
  (cd first && find . | cpio -o -H newc --quiet -R 0:0) >initramfs
}

# boot SECONDS: one virtual machine, until it powers itself off.
boot() {
  local arguments VM_INITRAMFS=$work/initramfs
  vm_machine_arguments "$VM_ACCEL" 2 512M
  timeout -k 5 "$1" setpriv --pdeathsig KILL qemu-system-x86_64 "${arguments[@]}" \
    -append "$VM_KERNEL_ARGUMENTS" -serial "file:$work/console" \
    -drive "file=$nbd,format=raw,if=virtio,cache=none" </dev/null >"$work/out" 2>"$work/err"
}
told() { grep -qF -- "boot-test: $1" "$work/console"; }

is "a root file system" make_root
is "an initramfs" make_initramfs
start_server
nbdkit --foreground --unix "$socket" "$plugin" "$(uri cache)" >"$work/nbdkit.log" 2>&1 &
nbdkit=$!
pids+=("$nbdkit")
served() { nbdinfo --size "$nbd" >/dev/null 2>&1; }
is "nbdkit serves the region" eventually served
run 0 "the disk is copied into the region" nbdcopy disk "$nbd"
is "a virtual machine boots and ends" boot 180
is "its root is the region" told 'root is /dev/vda'
is "it wrote a file" told 'written'
is "and left its file system whole" told 'read-only again'
((failed == 0)) || tail -n 30 "$work/console" | sed 's/^/    console: /'
run 0 "the disk is copied back" nbdcopy "$nbd" disk.back
run 0 "e2fsck" e2fsck -f -n disk.back
debugfs -R 'cat /written' disk.back 2>/dev/null >written
is "the file has its bytes" same "$(sha256sum <written)" "$(seq 1 2000 | sha256sum)"
kill "$nbdkit"
is "nbdkit ends" eventually ended "$nbdkit"
stop_server
is "the server ends cleanly" same "$status" 0
finish
