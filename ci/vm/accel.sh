# shellcheck shell=bash
# KVM or TCG? /dev/kvm that opens proves nothing (nested guests hang), so a guest is booted. Sourced.

readonly VM_PROBE_SECONDS=15

# vm_choose_accel auto|kvm|tcg: sets VM_ACCEL.
vm_choose_accel() {
  VM_ACCEL=$1
  [[ $VM_ACCEL == auto ]] || return 0
  if [[ ! -e /dev/kvm ]]; then
    VM_ACCEL=tcg
    vm_verbose "tcg: there is no /dev/kvm"
    return 0
  fi
  if [[ ! -r /dev/kvm || ! -w /dev/kvm ]]; then
    VM_ACCEL=tcg
    vm_verbose "tcg: /dev/kvm is not accessible (is $(id -un) in the group kvm?)"
    return 0
  fi
  # The answer holds for this host kernel, processor, QEMU and guest kernel.
  local key
  key="$(uname -r) $VM_KERNEL_RELEASE $(qemu-system-x86_64 --version | head -n1)"
  key+=" $(sed -n '/^model name/{s/.*: //p;q}' /proc/cpuinfo)"
  local known=
  if [[ -r $VM_CACHE/accel ]]; then
    known=$(awk -F'\t' -v key="$key" '$2 == key {print $1; exit}' "$VM_CACHE/accel")
  fi
  if [[ -n $known ]]; then
    VM_ACCEL=$known
    return 0
  fi
  vm_say "trying KVM (once, at most $VM_PROBE_SECONDS s; the answer is kept in $VM_CACHE/accel)"
  if vm_probe_kvm; then VM_ACCEL=kvm; else VM_ACCEL=tcg; fi
  vm_say "KVM $([[ $VM_ACCEL == kvm ]] && echo works || echo 'does not boot a guest here: TCG is used')"
  printf '%s\t%s\n' "$VM_ACCEL" "$key" >"$VM_CACHE/accel.new"
  mv "$VM_CACHE/accel.new" "$VM_CACHE/accel"
}

# True when a guest gets to user space and powers itself off in time.
vm_probe_kvm() {
  local log
  log=$(mktemp "$VM_CACHE/fetch.XXXXXX")
  local arguments
  vm_machine_arguments kvm 1 512M
  setpriv --pdeathsig KILL timeout -k 2 "$VM_PROBE_SECONDS" \
    setpriv --pdeathsig KILL qemu-system-x86_64 "${arguments[@]}" \
    -serial "file:$(vm_qemu_escape "$log")" -append "$VM_KERNEL_ARGUMENTS remora.probe" \
    </dev/null >/dev/null 2>&1 || true
  local works=1
  if grep -q 'remora-vm: probe ok' "$log"; then works=0; fi
  rm -f "$log"
  return "$works"
}
