# shellcheck shell=bash
# Starting and ending guests. Sourced.
# shellcheck disable=SC2034,SC2154  # vm_run, vm_events and VM_* are run.sh's; `arguments` is the caller's

# Nothing random, nothing that waits for hardware, no mitigations: a guest runs code of its host only.
# A kernel bug ends the guest (oops=panic, panic=-1 with -no-reboot) instead of leaving it half alive.
# tsc=reliable: else TCG guests take HPET, and every clock_gettime() costs a system call and an exit.
readonly VM_KERNEL_ARGUMENTS="console=ttyS0 loglevel=5 panic=-1 oops=panic nokaslr mitigations=off \
tsc=reliable no_timer_check random.trust_cpu=on apparmor=0 audit=0 init_on_alloc=0 nowatchdog \
rcupdate.rcu_cpu_stall_suppress=1 8250.nr_uarts=1"

# vm_machine_arguments ACCEL CPUS MEMORY: sets the caller's array `arguments`.
vm_machine_arguments() {
  local accel=tcg,thread=multi processor=max cpus_max=$2
  if [[ $1 == kvm ]]; then accel=kvm processor=host; fi
  # Where there can be only one processor, QEMU before 8.1 leaves the guest's memory barriers out, and
  # those order it with the thread of its devices, too: a virtio doorbell is lost, the link is mute.
  if ((cpus_max < 2)); then cpus_max=2; fi
  arguments=(-nodefaults -no-user-config -display none -monitor none -no-reboot
    -accel "$accel" -cpu "$processor" -smp "cpus=$2,maxcpus=$cpus_max" -m "$3"
    -kernel "$(vm_qemu_escape "$VM_KERNEL_IMAGE")" -initrd "$VM_INITRAMFS")
}

# vm_export ID PATH TAG [OPTIONS]: adds a 9p folder to the caller's array `arguments`.
vm_export() {
  local path
  path=$(vm_qemu_escape "$2")
  arguments+=(-fsdev "local,id=$1,path=$path,security_model=none,multidevs=remap${4:+,$4}"
    -device "virtio-9p-pci,fsdev=$1,mount_tag=$3")
}

# Copies a guest's output stream, in two guests with the guest's number before each line.
vm_forward_output() {
  trap '' INT TERM HUP # the runner ends this by ending QEMU
  local copy=(cat)
  if ((VM_GUESTS == 2)); then copy=(env LC_ALL=C sed -u "s/^/[$1] /"); fi
  if ! "${copy[@]}"; then printf '%s closed\n' "$1" >&"$vm_events"; fi
}

# Turns a guest's control port into events "GUEST WORD…"; the last one is "gone".
vm_forward_control() {
  trap '' INT TERM HUP
  local line
  while IFS= read -r line; do printf '%s %s\n' "$1" "$line" >&"$vm_events"; done
  printf '%s gone\n' "$1" >&"$vm_events"
}

# vm_start_guest NUMBER: its process id goes to vm_qemu[NUMBER], those of its helpers to vm_helpers.
vm_start_guest() {
  local guest=$1 arguments out err control index
  vm_machine_arguments "$VM_ACCEL" "$VM_CPUS" "$VM_MEMORY"
  exec {out}> >(vm_forward_output "$guest")
  vm_helpers+=("$!")
  exec {err}> >(exec {out}>&- && vm_forward_output "$guest" >&2)
  vm_helpers+=("$!")
  exec {control}> >(exec {out}>&- {err}>&- && vm_forward_control "$guest")
  vm_helpers+=("$!")

  arguments+=(-append "$VM_KERNEL_ARGUMENTS remora.guest=$guest"
    -serial "file:console.$guest"
    -device virtio-serial-pci
    -chardev "file,id=out,path=/dev/fd/$out"
    -device "virtserialport,chardev=out,name=out"
    -chardev "file,id=err,path=/dev/fd/$err"
    -device "virtserialport,chardev=err,name=err"
    -chardev "file,id=control,path=/dev/fd/$control"
    -device "virtserialport,chardev=control,name=control")
  vm_export root / hostroot readonly=on
  vm_export ctl ctl ctl
  for index in "${!VM_SHARES[@]}"; do
    vm_export "share$index" "${VM_SHARES[index]}" "share$index"
  done
  if ((VM_GUESTS == 2)); then
    local server=on
    if ((guest == 1)); then server=off; fi
    arguments+=(-netdev "stream,id=link,server=$server,addr.type=unix,addr.path=link"
      -device "virtio-net-pci,netdev=link,mac=52:54:00:4d:00:0$guest,romfile=")
  fi

  # In the run's folder, so that paths are short (a socket's may have 107 bytes). Out of reach of the
  # terminal's Ctrl-C, which the runner handles; killed by the kernel when this shell ends, however.
  (cd "$vm_run" && ulimit -n "$(ulimit -Hn)" && exec setsid setpriv --pdeathsig KILL qemu-system-x86_64 "${arguments[@]}" \
    </dev/null >"qemu.$guest" 2>&1) &
  vm_qemu[guest]=$!
  exec {out}>&- {err}>&- {control}>&-

  if ((VM_GUESTS == 2 && guest == 0)); then
    # The other's QEMU connects to this one's socket.
    local tries
    for ((tries = 0; tries < 200; tries++)); do
      if [[ -S $vm_run/link ]] || ! kill -0 "${vm_qemu[0]}" 2>/dev/null; then break; fi
      sleep 0.05
    done
  fi
}

# Ends every guest and waits for its last output.
vm_stop_guests() {
  local pid
  for pid in "${vm_qemu[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  for pid in "${vm_qemu[@]}"; do wait "$pid" 2>/dev/null || true; done
  for pid in "${vm_helpers[@]}"; do wait "$pid" 2>/dev/null || true; done
  vm_qemu=() vm_helpers=()
}

# vm_show_console GUEST [only-after-start]: the console's last lines, if there are any; of a panic
# what led to it.
vm_show_console() {
  local file=$vm_run/console.$1 lines filter=(grep -v 'remora-vm: command starts')
  [[ -s $file ]] || return 0
  if [[ ${2:-} == only-after-start ]]; then
    filter=(sed '1,/remora-vm: command starts/d')
  elif grep -q 'Kernel panic' "$file"; then
    filter=(grep -B20 -A8 -m1 'Kernel panic')
  fi
  lines=$("${filter[@]}" "$file" | tr -d '\r' | tail -n 30) || true
  [[ -n $lines ]] || return 0
  vm_say "console of guest $1, last lines:"
  printf '%s\n' "$lines" | sed "s/^/vm: console $1| /" >&2
}
