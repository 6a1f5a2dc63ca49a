# shellcheck shell=bash
# Messages, exit codes, tool checks and the cache folder. Sourced by run.sh and test.sh.

# Exit codes of the runner itself; README.md documents them. COMMAND's own status passes through.
# shellcheck disable=SC2034  # used by the files that source this one
readonly VM_EXIT_NOT_BOOTED=122 VM_EXIT_GUEST_DIED=123 VM_EXIT_TIMEOUT=124 VM_EXIT_RUNNER=125

VM_VERBOSE=${VM_VERBOSE:-0}

vm_say() { printf 'vm: %s\n' "$*" >&2; }

vm_verbose() {
  if ((VM_VERBOSE)); then vm_say "$*"; fi
}

# Ends the runner: something outside COMMAND is wrong.
vm_die() {
  vm_say "error: $*"
  exit "$VM_EXIT_RUNNER"
}

# vm_need TOOL PACKAGE: every tool that is missing is named together with its Debian package.
vm_missing_tools=()
vm_need() {
  command -v "$1" >/dev/null 2>&1 || vm_missing_tools+=("$1 (package $2)")
}

vm_check_tools() {
  # Administrators' tools are often not on a normal user's PATH.
  PATH=$PATH:/usr/sbin:/sbin
  vm_need qemu-system-x86_64 qemu-system-x86
  vm_need busybox busybox-static
  vm_need modprobe kmod
  vm_need depmod kmod
  vm_need cpio cpio
  vm_need dpkg-deb dpkg
  vm_need xz xz-utils
  vm_need setpriv util-linux
  vm_need flock util-linux
  vm_need ip iproute2
  vm_need rdma iproute2
  if ((${#vm_missing_tools[@]})); then
    local list
    printf -v list '%s, ' "${vm_missing_tools[@]}"
    vm_die "missing tools: ${list%, }; install them with: apt-get install" \
      "$(printf '%s\n' "${vm_missing_tools[@]}" | sed 's/.*(package \(.*\))/\1/' | sort -u | paste -sd' ')"
  fi
  [[ $(uname -m) == x86_64 ]] || vm_die "only x86_64 hosts are supported, this is $(uname -m)"
  [[ ! -e $(ldd "$(command -v busybox)" 2>/dev/null | awk '/=> \//{print $3; exit}') ]] ||
    vm_die "busybox is dynamically linked; install the package busybox-static"
}

# Sets VM_CACHE to an existing, writable folder.
vm_cache_folder() {
  VM_CACHE=${REMORA_VM_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/remora-vm}
  mkdir -p "$VM_CACHE/run" || vm_die "cannot create the cache folder $VM_CACHE (set REMORA_VM_CACHE)"
  [[ -w $VM_CACHE ]] || vm_die "the cache folder $VM_CACHE is not writable (set REMORA_VM_CACHE)"
  VM_CACHE=$(realpath "$VM_CACHE")
}

# vm_locked FUNCTION: runs it while no other run.sh changes the cache.
vm_locked() {
  local lock
  exec {lock}>"$VM_CACHE/lock"
  if ! flock -w 3 "$lock"; then
    vm_say "waiting for another run that prepares $VM_CACHE"
    flock -w 900 "$lock" || vm_die "the lock $VM_CACHE/lock was held for 15 minutes"
  fi
  "$@"
  exec {lock}>&-
}

# A QEMU option value in which commas must be doubled.
vm_qemu_escape() { printf '%s' "${1//,/,,}"; }

# One word for a POSIX shell.
vm_quote() {
  local quote="'\\''"
  printf "'%s'" "${1//\'/$quote}"
}
