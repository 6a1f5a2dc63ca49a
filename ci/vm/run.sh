#!/usr/bin/env bash
# Runs a command in a throw-away guest that has a Soft-RoCE (rxe) device. See README.md.
# shellcheck source-path=SCRIPTDIR
# shellcheck disable=SC2317  # functions called through vm_locked and trap
set -euo pipefail

VM_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=common.sh
. "$VM_HERE/common.sh"
# shellcheck source=kernel.sh
. "$VM_HERE/kernel.sh"
# shellcheck source=qemu.sh
. "$VM_HERE/qemu.sh"
# shellcheck source=accel.sh
. "$VM_HERE/accel.sh"

usage() {
  cat <<'END'
usage: ci/vm/run.sh [OPTION…] -- COMMAND [ARGUMENT…]
       ci/vm/run.sh [OPTION…] --prepare

Boots a throw-away QEMU guest on Debian's kernel with an active rxe device, runs COMMAND from this
machine's tree in it, streams its output and returns its exit status.

  --guests N        1 (default), or 2 on a private link; COMMAND runs in both
  --memory SIZE     memory of each guest, as 512M or 4G (default 4G; 2G with two guests)
  --cpus N          processors of each guest (default 2; 1 with two guests)
  --timeout S       seconds that COMMAND may take (default 600)
  --share DIR       DIR is writable in the guest, at the same path; may be repeated
  --modules "A B"   kernel modules to load as well
  --accel NAME      auto (default), kvm or tcg
  --kernel DIR      an unpacked linux-image package instead of Debian's current kernel
  --prepare         only fetch the kernel, build the initramfs and try KVM
  --verbose         say what happens, and show the guests' console at the end
  --help            this text

Exit status: COMMAND's own; 122 the guest did not get up, 123 the guest died (kernel panic),
124 COMMAND took too long, 125 the runner could not do its work.
Environment: REMORA_VM_ACCEL, REMORA_VM_BOOT_TIMEOUT (180), REMORA_VM_CACHE, REMORA_VM_GRACE (10).
END
}

bad_usage() {
  vm_say "error: $*"
  vm_say "see $0 --help"
  exit "$VM_EXIT_RUNNER"
}

# parse_arguments ARGUMENT…: sets the VM_* options and `command`.
parse_arguments() {
  VM_GUESTS=1 VM_MEMORY='' VM_CPUS='' VM_TIMEOUT=600 VM_SHARES=() VM_MODULES='' VM_KERNEL=''
  VM_ACCEL_WANTED=${REMORA_VM_ACCEL:-auto} VM_PREPARE=0 command=()
  VM_BOOT_TIMEOUT=${REMORA_VM_BOOT_TIMEOUT:-180} VM_GRACE=${REMORA_VM_GRACE:-10}
  while (($#)); do
    case $1 in
      --guests | --memory | --cpus | --timeout | --share | --modules | --accel | --kernel)
        (($# >= 2)) || bad_usage "$1 needs a value"
        take_value "$1" "$2"
        shift 2
        ;;
      --*=*)
        take_value "${1%%=*}" "${1#*=}"
        shift
        ;;
      --prepare) VM_PREPARE=1 && shift ;;
      --verbose) VM_VERBOSE=1 && shift ;;
      -h | --help)
        usage
        exit 0
        ;;
      --)
        shift
        command=("$@")
        break
        ;;
      -*) bad_usage "unknown option $1" ;;
      *) bad_usage "COMMAND comes after '--' (found '$1')" ;;
    esac
  done
  ((VM_PREPARE || ${#command[@]})) || bad_usage "there is no COMMAND"
  check_values
}

take_value() {
  case $1 in
    --guests) VM_GUESTS=$2 ;;
    --memory) VM_MEMORY=$2 ;;
    --cpus) VM_CPUS=$2 ;;
    --timeout) VM_TIMEOUT=$2 ;;
    --modules) VM_MODULES=$2 ;;
    --accel) VM_ACCEL_WANTED=$2 ;;
    --kernel) VM_KERNEL=$2 ;;
    --share)
      [[ -d $2 && -w $2 ]] || bad_usage "--share $2: not a folder that can be written"
      VM_SHARES+=("$(realpath "$2")")
      ;;
    *) bad_usage "unknown option $1" ;;
  esac
}

check_values() {
  [[ $VM_GUESTS == [12] ]] || bad_usage "--guests $VM_GUESTS: 1 or 2"
  if ((VM_GUESTS == 2)); then
    VM_MEMORY=${VM_MEMORY:-2G} VM_CPUS=${VM_CPUS:-1}
  else
    VM_MEMORY=${VM_MEMORY:-4G} VM_CPUS=${VM_CPUS:-2}
  fi
  [[ $VM_MEMORY =~ ^[1-9][0-9]{0,6}[MG]$ ]] || bad_usage "--memory $VM_MEMORY: a size as 512M or 4G"
  [[ $VM_CPUS =~ ^[1-9][0-9]{0,2}$ ]] || bad_usage "--cpus $VM_CPUS: a number"
  [[ $VM_TIMEOUT =~ ^[1-9][0-9]{0,5}$ ]] || bad_usage "--timeout $VM_TIMEOUT: seconds, at least 1"
  [[ $VM_BOOT_TIMEOUT =~ ^[1-9][0-9]{0,5}$ ]] || bad_usage "REMORA_VM_BOOT_TIMEOUT=$VM_BOOT_TIMEOUT: seconds"
  [[ $VM_GRACE =~ ^[0-9]{1,6}$ ]] || bad_usage "REMORA_VM_GRACE=$VM_GRACE: seconds"
  [[ $VM_MODULES =~ ^[A-Za-z0-9_\ -]*$ ]] || bad_usage "--modules '$VM_MODULES': names separated by spaces"
  [[ $VM_ACCEL_WANTED =~ ^(auto|kvm|tcg)$ ]] || bad_usage "accelerator '$VM_ACCEL_WANTED': auto, kvm or tcg"
  if [[ $VM_ACCEL_WANTED == kvm ]]; then
    [[ -r /dev/kvm && -w /dev/kvm ]] || bad_usage "--accel kvm: /dev/kvm is not there or not accessible"
  fi
  [[ -z $VM_KERNEL || -d $VM_KERNEL ]] || bad_usage "--kernel $VM_KERNEL: not a folder"
}

# A folder for this run, and away with those whose run was killed.
make_run_folder() {
  local folder lock
  for folder in "$VM_CACHE"/run/*/; do
    [[ -e $folder/lock ]] || continue
    if (flock -n 9 || exit 1) 9<"$folder/lock"; then rm -rf "$folder"; fi
  done
  # Made under the cache's lock, so that no other run takes it for a dead one's before it is locked.
  vm_run=$(mktemp -d "$VM_CACHE/run/XXXXXX")
  exec {lock}>"$vm_run/lock"
  flock "$lock"
}

# What the guests read: plan, shares, command, and the programs that run there.
write_control_folder() {
  mkdir -m 0755 "$vm_run/ctl"
  mkdir -m 0777 "$vm_run/ctl/signals"
  chmod 0777 "$vm_run/ctl/signals"
  cp "$VM_HERE"/guest/{session,vm-kill,vm-link,vm-signal,vm-wait} "$vm_run/ctl/"
  # One stream when both would end in the same place: so the order of lines is kept.
  local merged=0 index name
  if [[ /proc/self/fd/1 -ef /proc/self/fd/2 ]]; then merged=1; fi
  {
    printf 'VM_GUESTS=%s\nVM_MERGED=%s\nVM_UMASK=%s\n' "$VM_GUESTS" "$merged" "$(umask)"
    printf 'VM_MODULES=%s\n' "$(vm_quote "$VM_MODULES")"
    printf 'VM_RELEASE=%s\n' "$(vm_quote "$VM_KERNEL_RELEASE")"
    printf 'VM_MODULES_FOLDER=%s\n' "$(vm_quote "$VM_KERNEL_ROOT/lib/modules/$VM_KERNEL_RELEASE")"
    printf 'VM_CWD=%s\n' "$(vm_quote "$PWD")"
  } >"$vm_run/ctl/plan"
  for index in "${!VM_SHARES[@]}"; do
    printf 'share%s %s\n' "$index" "${VM_SHARES[index]}"
  done >"$vm_run/ctl/shares"

  # `env -i` gives COMMAND the host's environment, but what points to the host's own session or /tmp.
  {
    printf 'cd %s || { echo "vm: the guest does not see the folder" >&2; exit 125; }\n' "$(vm_quote "$PWD")"
    printf 'exec env -i'
    while IFS= read -r -d '' name; do
      case ${name%%=*} in
        REMORA_VM_* | REMORA_REQUIRE_DEVICE | PATH | PWD | OLDPWD | SHLVL | _ | TMPDIR | TMP | TEMP) ;;
        XDG_RUNTIME_DIR | XDG_SESSION_* | DBUS_* | SSH_* | DISPLAY | WAYLAND_DISPLAY | XAUTHORITY) ;;
        NOTIFY_SOCKET | LISTEN_* | JOURNAL_STREAM | INVOCATION_ID | MAKEFLAGS | MFLAGS | BASH_FUNC_*) ;;
        *) printf ' %s' "$(vm_quote "$name")" ;;
      esac
    done < <(env -0)
    printf ' PATH=%s' "$(vm_quote "/run/remora-vm/bin:$PATH")"
    printf ' REMORA_REQUIRE_DEVICE=1'
    for name in DEVICE NETDEV GUEST GUESTS ADDRESS; do
      # shellcheck disable=SC2016  # expanded in the guest
      printf ' REMORA_VM_%s="$REMORA_VM_%s"' "$name" "$name"
    done
    # shellcheck disable=SC2016
    printf ' ${REMORA_VM_PEER_ADDRESS:+REMORA_VM_PEER_ADDRESS="$REMORA_VM_PEER_ADDRESS"}'
    for name in "${command[@]}"; do printf ' %s' "$(vm_quote "$name")"; done
    printf '\n'
  } >"$vm_run/ctl/command"
}

clean_up() {
  local status=$?
  trap - EXIT
  trap '' INT TERM HUP
  vm_stop_guests
  if [[ -n $vm_run ]]; then rm -rf "$vm_run"; fi
  exit "$status"
}

# Reports a guest that ended or failed by itself, and exits.
guest_lost() {
  local guest=$1 console=$vm_run/console.$1
  vm_stop_guests
  if [[ ! -s $console && -s $vm_run/qemu.$guest ]]; then
    sed 's/^/vm: /' "$vm_run/qemu.$guest" >&2
    vm_die "QEMU could not start guest $guest"
  fi
  local status=$VM_EXIT_GUEST_DIED
  if [[ ${state[guest]} == boot ]]; then status=$VM_EXIT_NOT_BOOTED; fi
  if grep -q 'Out of memory and no killable' "$console"; then
    vm_say "error: guest $guest ran out of memory ($VM_MEMORY; see --memory) and panicked"
  elif grep -q 'Kernel panic' "$console"; then
    vm_say "error: the kernel of guest $guest panicked"
  else
    vm_say "error: guest $guest ended before COMMAND did"
    sed 's/^/vm: /' "$vm_run/qemu.$guest" >&2
  fi
  vm_show_console "$guest"
  exit "$status"
}

# Follows the guests until each has told COMMAND's status; sets `result`.
follow_guests() {
  local began=$EPOCHSECONDS deadline limit=boot running=$VM_GUESTS guest event rest left
  deadline=$((began + VM_BOOT_TIMEOUT))
  result=0
  while ((running)); do
    left=$((deadline - EPOCHSECONDS))
    if ((left <= 0)) || ! read -r -t "$left" -u "$vm_events" guest event rest; then
      ((deadline - EPOCHSECONDS <= 0)) || continue
      limit_reached "$limit" || return 0
    fi
    case $event in
      up)
        vm_verbose "guest $guest is up after $((EPOCHSECONDS - began)) s" \
          "($VM_ACCEL, Linux $VM_KERNEL_RELEASE)"
        ;;
      start)
        state[guest]=run
        if [[ $limit == boot ]]; then limit=command deadline=$((EPOCHSECONDS + VM_TIMEOUT)); fi
        ;;
      status)
        state[guest]=ended
        running=$((running - 1))
        vm_verbose "guest $guest: exit status $rest"
        report_status "$guest" "$rest"
        if ((result == 0 && rest != 0)); then
          result=$rest
          if ((running && EPOCHSECONDS + VM_GRACE < deadline)); then
            limit=grace deadline=$((EPOCHSECONDS + VM_GRACE))
          fi
        fi
        ;;
      fault)
        vm_stop_guests
        vm_say "error: guest $guest could not be set up: $rest"
        vm_show_console "$guest"
        exit "$VM_EXIT_NOT_BOOTED"
        ;;
      gone)
        [[ ${state[guest]} != ended ]] || continue
        [[ -e $vm_run/ctl/signals/.killed$guest ]] || guest_lost "$guest"
        state[guest]=ended
        running=$((running - 1))
        vm_say "guest $guest was killed by vm-kill, as COMMAND wanted"
        ;;
      closed) exit 141 ;; # the reader of our output has gone: as SIGPIPE
    esac
  done
}

# A deadline has passed. Returns 1, with `result` kept, when it was only the grace after a failure.
limit_reached() {
  local guest
  vm_stop_guests
  case $1 in
    boot)
      vm_say "error: the guest was not up after $VM_BOOT_TIMEOUT s" \
        "(REMORA_VM_BOOT_TIMEOUT; accelerator $VM_ACCEL)"
      ;;
    command) vm_say "error: COMMAND was ended after $VM_TIMEOUT s (--timeout)" ;;
    grace)
      vm_say "the other guest's COMMAND was ended $VM_GRACE s after the first one's failure"
      return 1
      ;;
  esac
  for guest in "${!state[@]}"; do
    if [[ ${state[guest]} != ended ]]; then
      vm_show_console "$guest" "$([[ $1 == boot ]] || echo only-after-start)"
    fi
  done
  if [[ $1 == boot ]]; then exit "$VM_EXIT_NOT_BOOTED"; fi
  exit "$VM_EXIT_TIMEOUT"
}

# COMMAND's failure is its own; what the kernel said meanwhile is told.
report_status() {
  (($2)) || return 0
  if grep -q 'Out of memory: Killed process' "$vm_run/console.$1"; then
    vm_say "error: guest $1 ran out of memory ($VM_MEMORY; see --memory), the kernel killed a process"
  fi
  if ! ((VM_VERBOSE)); then vm_show_console "$1" only-after-start; fi
}

main() {
  parse_arguments "$@"
  vm_check_tools
  vm_cache_folder
  vm_locked vm_prepare_kernel "$VM_KERNEL"
  vm_locked vm_choose_accel "$VM_ACCEL_WANTED"
  if ((VM_PREPARE)); then
    vm_say "ready: Linux $VM_KERNEL_RELEASE, $VM_ACCEL, in $VM_CACHE"
    exit 0
  fi

  vm_run='' vm_qemu=() vm_helpers=() state=()
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
  vm_locked make_run_folder
  write_control_folder
  # Both ends stay open here, so neither side ever blocks on opening or sees an end of file.
  mkfifo "$vm_run/events"
  exec {vm_events}<>"$vm_run/events"

  local guest
  for ((guest = 0; guest < VM_GUESTS; guest++)); do
    state[guest]=boot
    vm_start_guest "$guest"
  done
  follow_guests
  vm_stop_guests
  if ((VM_VERBOSE)); then
    for ((guest = 0; guest < VM_GUESTS; guest++)); do vm_show_console "$guest"; done
  fi
  exit "$result"
}

main "$@"
