#!/usr/bin/env bash
# Makes a Soft-RoCE (rxe) device on this host, so that programs and containers can use verbs without
# RDMA hardware; takes it away again. Changes nothing that it does not undo.
set -euo pipefail

name=rxe0 netdev='' pair=remora0 peer=remora1 address=10.78.0.1/24

usage() {
  cat <<USAGE
usage: rxe-up.sh [--netdev DEV] [--name NAME] [--address A/LEN]
       rxe-up.sh --down [--name NAME]
       rxe-up.sh --check

  --netdev DEV     an interface that is up and has an address, such as eth0: other hosts reach the
                   device. Without it a pair of virtual interfaces ($pair, $peer) is made: this host only
  --address A/LEN  address of that pair (default $address)
  --name NAME      of the RDMA device (default $name)
  --down           removes the device and the pair; both need not be there
  --check          only says whether this kernel can; changes nothing

Prints REMORA_ADDRESS=... on the last line of standard output, for compose.rdma.yaml.
Exit status: 0 done; 1 failed, with everything undone; 2 usage; 3 the kernel has no rdma_rxe.
USAGE
}
say() { printf 'rxe-up: %s\n' "$*" >&2; }
die() { local status=$1; shift; printf 'rxe-up: error: %s\n' "$*" >&2; exit "$status"; }

mode=up
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --down) mode=down ;;
    --check) mode=check ;;
    --netdev | --name | --address)
      [[ ${2:-} ]] || { usage >&2; die 2 "$1 needs a value"; }
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    *) usage >&2; die 2 "unknown argument '$1'" ;;
  esac
  shift
done
[[ $address =~ ^[0-9.]+/[0-9]+$ ]] || die 2 "--address: '$address' is not an IPv4 address with a length, as 10.78.0.1/24"

no_rxe() {
  local release
  release=$(uname -r)
  printf 'rxe-up: error: kernel %s has no rdma_rxe (CONFIG_RDMA_RXE): %s\n' "$release" "$1" >&2
  cat >&2 <<HELP
rxe-up: Debian has it in linux-image-amd64, not in linux-image-cloud-amd64; Ubuntu in
rxe-up: linux-modules-extra-$release; kernels of containers and small virtual machines often leave it
rxe-up: out. Without it: ci/vm/run.sh runs commands in a guest that has it, compose.yaml is tcp.
HELP
  exit 3
}

# Whether the module is there or can be had, without loading it.
check_kernel() {
  if [[ -d /sys/module/rdma_rxe ]]; then return 0; fi
  command -v modprobe >/dev/null || no_rxe "it is not loaded, and there is no modprobe (package kmod)"
  local why
  why=$(modprobe --dry-run rdma_rxe 2>&1) || no_rxe "${why:-modprobe does not know it}"
}
check_tools() {
  local tool
  for tool in ip rdma; do
    command -v "$tool" >/dev/null || die 1 "there is no '$tool': install iproute2"
  done
  ((EUID == 0)) || die 1 "this needs root: sudo $0"
}
exists() { [[ -e /sys/class/infiniband/$name ]]; }

take_down() {
  local found=0
  if exists; then
    rdma link delete "$name" || die 1 "$name cannot be removed: is it Soft-RoCE? see 'rdma link'"
    say "$name removed"
    found=1
  fi
  # Only the pair that this script makes, known by both names.
  if ip link show "$pair" type veth >/dev/null 2>&1 && ip link show "$peer" type veth >/dev/null 2>&1; then
    ip link delete "$pair"
    say "$pair and $peer removed"
    found=1
  fi
  ((found)) || say "there is no $name and no $pair: nothing to remove"
}

# --- up -----------------------------------------------------------------------------------------
made_pair=0 made_device=0
# shellcheck disable=SC2317  # called by the trap
undo() {
  local status=$?
  ((status)) || return 0
  if ((made_device)); then rdma link delete "$name" 2>/dev/null || true; fi
  if ((made_pair)); then ip link delete "$pair" 2>/dev/null || true; fi
}

make_pair() {
  local other
  netdev=$pair
  ! ip link show "$pair" >/dev/null 2>&1 || die 1 "$pair is there already: rxe-up.sh --down removes it"
  other=$(ip -br -4 address show to "$address" | head -n 1 | xargs)
  [[ ! $other ]] || die 1 "$address overlaps with an address of this host ($other): give another --address"
  # MTU 9000: with 1500 the device's own is 1024.
  ip link add "$pair" mtu 9000 type veth peer name "$peer" mtu 9000 ||
    die 1 "a pair of virtual interfaces cannot be made (CONFIG_VETH?)"
  made_pair=1
  ip address add "$address" dev "$pair"
  ip link set "$peer" up
  ip link set "$pair" up
}

check_netdev() {
  ip link show "$netdev" >/dev/null 2>&1 || die 1 "there is no interface '$netdev': see 'ip -br address'"
  [[ $(ip -o -4 address show dev "$netdev") ]] || die 1 "$netdev has no IPv4 address"
  [[ $(ip -o link show dev "$netdev" up) ]] || die 1 "$netdev is down: ip link set $netdev up"
}

# RoCE's GIDs carry the interface's addresses: a device without one cannot be connected to.
gid_of() {
  local a b c d
  IFS=. read -r a b c d <<<"$1"
  printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "$a" "$b" "$c" "$d"
}

wait_active() {
  local ip=$1 gid tries
  gid=$(gid_of "$ip")
  for tries in {1..100}; do
    if grep -q ACTIVE "/sys/class/infiniband/$name/ports/1/state" 2>/dev/null &&
      grep -qsx "$gid" "/sys/class/infiniband/$name/ports/1/gids/"*; then
      return 0
    fi
    sleep 0.1
  done
  die 1 "$name is not active with a GID for $ip after $((tries / 10)) s: see 'rdma link' and 'dmesg'"
}

# Device nodes: made by devtmpfs; their modes by rdma-core's udev rules, where these are installed.
check_nodes() {
  local node uverbs
  for uverbs in /sys/class/infiniband_verbs/uverbs*; do
    [[ $(cat "$uverbs/ibdev" 2>/dev/null) != "$name" ]] || break
  done
  uverbs=/dev/infiniband/$(basename "$uverbs")
  for node in "$uverbs" /dev/infiniband/rdma_cm; do
    [[ -c $node ]] || die 1 "there is no $node: are ib_uverbs and rdma_ucm loaded, and is /dev a devtmpfs?"
    [[ $(stat -c %a "$node") == ?66 ]] ||
      say "note: only root and its group may use $node: install rdma-core, or chmod 0666 $node"
  done
  say "device nodes: $uverbs /dev/infiniband/rdma_cm"
}

bring_up() {
  local ip
  ! exists || die 1 "$name is there already: rxe-up.sh --down --name $name, or give another --name"
  trap undo EXIT
  modprobe -a rdma_rxe ib_uverbs rdma_ucm || no_rxe "the modules do not load"
  if [[ $netdev ]]; then check_netdev; else make_pair; fi
  rdma link add "$name" type rxe netdev "$netdev" || die 1 "$name cannot be made on $netdev: see 'dmesg'"
  made_device=1
  ip=$(ip -o -4 address show dev "$netdev" | sed -nE '1s/.* inet ([0-9.]+).*/\1/p')
  wait_active "$ip"
  check_nodes
  say "$name is active on $netdev; 'rxe-up.sh --down --name $name' removes it"
  echo "REMORA_ADDRESS=$ip"
}

case $mode in
  check) check_kernel; say "kernel $(uname -r) has rdma_rxe" ;;
  down) check_tools; take_down ;;
  up) check_kernel; check_tools; bring_up ;;
esac
