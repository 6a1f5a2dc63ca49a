#!/usr/bin/env bash
# Each finding of `remora doctor` that needs a device, made in the guest and mended again: no module, no
# permission, small memlock, link down, link-local GID only, another namespace, port dropped by nftables.
#
#   ci/vm/run.sh -- tests/rxe/doctor.sh build/dev
# shellcheck disable=SC2317  # functions are called by soon
set -euo pipefail

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
  sed -n '2,5s/^# \{0,1\}//p' "$0"
  exit $(($# == 0 ? 2 : 0))
fi
[[ -n ${REMORA_VM_GUEST:-} ]] || { echo "doctor: run it by ci/vm/run.sh" >&2; exit 2; }
PATH=$PATH:/usr/sbin:/sbin
remora=$1/apps/remora status=0
found=/tmp/doctor.out
port=/sys/class/infiniband/$REMORA_VM_DEVICE/ports/1
user=(setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=-all --bounding-set=-all --)

wrong() {
  echo "wrong: $*" >&2
  cat "$found" >&2
  status=1
}
# doctor CODE WHAT COMMAND...: what it prints in $found.
doctor() {
  local code=$1 what=$2 ended=0
  shift 2
  echo "$what"
  timeout 60 "$@" >"$found" 2>&1 || ended=$?
  ((ended == code)) || wrong "$what: it ended with status $ended, not $code"
}
# says TEXT: in one of its lines.
says() { grep -F -- "$1" "$found" >/dev/null || wrong "it does not say '$1'"; }
# soon COMMAND...: within 30 s.
soon() {
  local i
  for ((i = 0; i < 300; ++i)); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  return 1
}
is_in_state() { grep -F "$1" "$port/state" >/dev/null; }
# usable_gid yes|no: whether the port has one that is made from an IPv4 address.
usable_gid() {
  local has=no
  if grep -i ':ffff:' "$port"/gids/* >/dev/null 2>&1; then has=yes; fi
  [[ $has == "$1" ]]
}

doctor 0 "a device that works" "$remora" doctor
says "green       device: $REMORA_VM_DEVICE is a software device"
says "green       port: $REMORA_VM_DEVICE port 1 is ACTIVE"
says "green       gid: $REMORA_VM_DEVICE port 1 uses gid "
says ": taken"
says "left: link-local, reaches one segment only"

chmod 600 /dev/infiniband/uverbs0
doctor 3 "no permission" "${user[@]}" "$remora" doctor
says "red         node.uverbs: /dev/infiniband/uverbs0 has owner 0, group 0, mode 0600; this user (1000) cannot open it: Permission denied"
says 'SUBSYSTEM=="infiniband_verbs", MODE="0666"'
says "as root, it also checks whether the firewall lets"
chmod 666 /dev/infiniband/uverbs0

doctor 3 "small memlock" prlimit --memlock=65536:65536 "${user[@]}" "$remora" doctor
says "red         memlock: locked memory: soft limit 64KiB, hard limit 64KiB; a client with one session pins 2624KiB"
says "LimitMEMLOCK=infinity"

ip link set "$REMORA_VM_NETDEV" down
soon is_in_state DOWN || wrong "the port does not go down"
doctor 3 "link down" "$remora" doctor
says "red         port: $REMORA_VM_DEVICE port 1 is DOWN"
ip link set "$REMORA_VM_NETDEV" up
soon is_in_state ACTIVE || wrong "the port does not come up"

ip -4 address flush dev "$REMORA_VM_NETDEV"
soon usable_gid no || wrong "the GID of the address stays"
doctor 3 "link-local GID only" "$remora" doctor
says "red         gid: $REMORA_VM_DEVICE port 1 has link-local GIDs only"
says "sudo ip address add ADDRESS/PREFIX dev "
ip address add "$REMORA_VM_ADDRESS/24" dev "$REMORA_VM_NETDEV"
soon usable_gid yes || wrong "the GID of the address does not return"

modprobe -r rdma_ucm
doctor 3 "no module" "$remora" doctor
says "red         module.rdma_ucm: module rdma_ucm is not loaded"
says "sudo modprobe rdma_ucm && echo rdma_ucm"
says "red         node.rdma_cm: /dev/infiniband/rdma_cm is not there"
modprobe rdma_ucm
soon test -e /dev/infiniband/rdma_cm || wrong "the node does not return"
chmod 666 /dev/infiniband/rdma_cm

# The kernel changes the mode only while there is no other namespace.
soon rdma system set netns exclusive || { echo "this kernel does not change the mode"; exit 1; }
ip netns add other
doctor 0 "another network namespace" ip netns exec other "$remora" doctor
says "rdma-namespaces: each RDMA device belongs to one network namespace (exclusive mode), and this one has none"
says "sudo rdma dev set DEVICE netns NAME"
ip netns del other
soon rdma system set netns shared || wrong "the mode stays exclusive"

if command -v nft >/dev/null; then
  modprobe nf_tables
  nft add table inet filter
  nft add chain inet filter input '{ type filter hook input priority filter; policy drop; }'
  doctor 0 "port dropped by nftables" "$remora" doctor
  says "yellow      firewall: nftables drops what no rule accepts, and no rule names TCP port 7471 or UDP port 4791 (RoCE v2)"
  nft delete table inet filter
else
  echo "# nftables is not installed (ci/setup.sh vm): the unit tests have rules of their own"
fi
exit "$status"
