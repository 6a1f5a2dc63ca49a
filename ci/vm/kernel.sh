# shellcheck shell=bash
# The guest's kernel and initramfs: fetched, unpacked and built once, in the cache folder. Sourced.

# What init inserts, in this order, with everything these depend on.
readonly VM_BASE_MODULES=(virtio_pci virtio_console virtio_net 9pnet_virtio 9p overlay
  rdma_rxe ib_uverbs rdma_ucm ib_umad veth)

# vm_prepare_kernel [DIR]: sets VM_KERNEL_ROOT (an unpacked linux-image package), VM_KERNEL_RELEASE,
# VM_KERNEL_IMAGE and VM_INITRAMFS. DIR is such a folder of the user's own; without it, Debian's.
vm_prepare_kernel() {
  rm -rf "$VM_CACHE"/fetch.* # of a run that was killed; the lock is ours
  VM_KERNEL_ROOT=${1:-$VM_CACHE/current}
  if [[ -z ${1:-} && ! -e $VM_CACHE/current ]]; then vm_fetch_kernel; fi
  VM_KERNEL_ROOT=$(realpath "$VM_KERNEL_ROOT")

  local images=("$VM_KERNEL_ROOT"/boot/vmlinuz-*)
  [[ ${#images[@]} == 1 && -r ${images[0]} ]] ||
    vm_die "$VM_KERNEL_ROOT: no single boot/vmlinuz-* in it (dpkg -x of one linux-image package is expected)"
  VM_KERNEL_RELEASE=${images[0]##*/vmlinuz-}
  [[ -d $VM_KERNEL_ROOT/lib/modules/$VM_KERNEL_RELEASE ]] ||
    vm_die "$VM_KERNEL_ROOT: no lib/modules/$VM_KERNEL_RELEASE in it"
  if [[ ! -e $VM_KERNEL_ROOT/lib/modules/$VM_KERNEL_RELEASE/modules.dep ]]; then
    depmod -b "$VM_KERNEL_ROOT" "$VM_KERNEL_RELEASE" || vm_die "depmod failed in $VM_KERNEL_ROOT"
  fi
  vm_unpack_image "${images[0]}"
  vm_build_initramfs
}

# Fetches the kernel that linux-image-amd64 stands for. Nothing is installed.
vm_fetch_kernel() {
  command -v apt-get >/dev/null || vm_die "apt-get is needed to fetch a kernel; else give --kernel DIR"
  local hint="is this Debian, and was 'apt-get update' run? Else give --kernel DIR"
  local package
  package=$(apt-cache depends linux-image-amd64 2>/dev/null |
    awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9].*-amd64$/ {print $2; exit}') || true
  [[ -n $package ]] || vm_die "apt knows no kernel behind linux-image-amd64 ($hint)"

  vm_say "fetching $package into $VM_CACHE (once, about 70 MB; nothing is installed)"
  local work
  work=$(mktemp -d "$VM_CACHE/fetch.XXXXXX")
  if ! (cd "$work" && apt-get -q download "$package" >apt.log 2>&1); then
    sed 's/^/vm: apt-get: /' "$work/apt.log" >&2
    rm -rf "$work"
    vm_die "apt-get download $package failed ($hint)"
  fi
  mkdir "$work/root"
  if ! dpkg-deb -x "$work"/"$package"_*.deb "$work/root"; then
    rm -rf "$work"
    vm_die "cannot unpack $package: is the disk of $VM_CACHE full?"
  fi
  # A guest has no display, sound or radio; this halves the 400 MB.
  rm -rf "$work"/root/usr "$work"/root/lib/modules/*/kernel/{sound,drivers/{gpu,media}} \
    "$work"/root/lib/modules/*/kernel/drivers/net/wireless
  local release
  release=$(basename "$work"/root/boot/vmlinuz-*)
  depmod -b "$work/root" "${release#vmlinuz-}"

  # Complete or absent: the rename is what makes it visible.
  local target=linux-${release#vmlinuz-}
  rm -rf "${VM_CACHE:?}/$target"
  mv -T "$work/root" "$VM_CACHE/$target"
  ln -s "$target" "$work/current"
  mv -T "$work/current" "$VM_CACHE/current"
  rm -rf "$work"
}

# vm_unpack_image VMLINUZ: sets VM_KERNEL_IMAGE. QEMU starts an unpacked kernel directly (PVH); under
# TCG that saves the five seconds which the kernel takes to decompress itself.
vm_unpack_image() {
  local sum
  sum=$(sha256sum "$1")
  VM_KERNEL_IMAGE=$VM_CACHE/vmlinux-$VM_KERNEL_RELEASE-${sum:0:12}
  [[ ! -e $VM_KERNEL_IMAGE ]] || return 0
  local work
  work=$(mktemp "$VM_CACHE/fetch.XXXXXX")
  if vm_try_unpack "$1" "$work" $'\xFD7zXZ\\x00' 'xz -dc --single-stream' ||
    vm_try_unpack "$1" "$work" $'\\x28\\xB5\\x2F\\xFD' 'zstd -dcq'; then
    mv "$work" "$VM_KERNEL_IMAGE"
  else
    rm -f "$work"
    VM_KERNEL_IMAGE=$1
  fi
}

# vm_try_unpack VMLINUZ OUT MAGIC UNPACKER: the payload starts at MAGIC, what follows it is ignored.
vm_try_unpack() {
  local offset
  offset=$(LC_ALL=C grep -obUaP -m1 "$3" "$1" | head -n1 | cut -d: -f1) || true
  [[ -n $offset ]] || return 1
  # The unpacker complains of the bytes after the payload; whether it worked, the ELF header tells.
  # shellcheck disable=SC2086  # UNPACKER is a command with options
  tail -c "+$((offset + 1))" "$1" | $4 >"$2" 2>/dev/null || true
  [[ $(head -c4 "$2" | od -An -c | tr -d ' ') == 177ELF ]]
}

# Sets VM_INITRAMFS: busybox, guest/init and the base modules. Its name holds what it was made from.
vm_build_initramfs() {
  local busybox sum
  busybox=$(command -v busybox)
  sum=$({
    cat "$VM_HERE/guest/init" "$busybox"
    printf '%s\n' "$VM_KERNEL_ROOT" "${VM_BASE_MODULES[@]}"
  } | sha256sum)
  VM_INITRAMFS=$VM_CACHE/initramfs-$VM_KERNEL_RELEASE-${sum:0:12}
  [[ ! -e $VM_INITRAMFS ]] || return 0

  local work module file
  work=$(mktemp -d "$VM_CACHE/fetch.XXXXXX")
  mkdir -p "$work"/root/{bin,dev,proc,sys,host,over,ctl,new,modules}
  cp "$busybox" "$work/root/bin/busybox"
  cp "$VM_HERE/guest/init" "$work/root/init"
  chmod 0755 "$work/root/init"
  for module in "${VM_BASE_MODULES[@]}"; do
    modprobe -d "$VM_KERNEL_ROOT" -S "$VM_KERNEL_RELEASE" --show-depends "$module" ||
      vm_die "the kernel $VM_KERNEL_RELEASE has no module $module"
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$work/order"
  while read -r file; do
    cp "$file" "$work/root/modules/"
    basename "$file" >>"$work/root/modules/order"
  done <"$work/order"
  # Not compressed: under TCG the guest would spend more time than the disk.
  (cd "$work/root" && find . | cpio -o -H newc --quiet -R 0:0) >"$work/cpio"
  mv "$work/cpio" "$VM_INITRAMFS"
  rm -rf "$work"
  # Those of earlier versions of init, once they are a week old.
  find "$VM_CACHE" -maxdepth 1 -name 'initramfs-*' -mtime +7 ! -path "$VM_INITRAMFS" -delete
}
