#!/usr/bin/env bash
# Faults of the link between a server and a load over tcp, in two network namespaces of one guest:
# loss, duplication, reordering, corruption, partitions, a link that goes down.
#
#   ci/vm/run.sh -- tests/fault/netns_faults.sh build/dev [--only PATTERN]
#
# Prints a line a fault and GoogleTest's verdicts. Exit status 1: a test failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=link_faults.sh
. "$here/link_faults.sh"

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0"
  link_help
  exit $(($# == 0 ? 2 : 0))
fi
[[ ${REMORA_VM_GUESTS:-} ]] || link_die "run it by ci/vm/run.sh: netem and vm-link are in the guest"
link_arguments "$@"

# shellcheck disable=SC2034  # link_faults.sh
transport=tcp server_address=10.78.0.1 mixes=('')
server_prefix=(ip netns exec server env REMORA_VM_NETDEV=veth-server)
client_prefix=(ip netns exec client env REMORA_VM_NETDEV=veth-client)

ip netns add server
ip netns add client
ip link add veth-server netns server mtu 1500 type veth peer name veth-client netns client mtu 1500
ip -n server address add 10.78.0.1/24 dev veth-server
ip -n client address add 10.78.0.2/24 dev veth-client
for name in server client; do
  ip -n "$name" link set lo up
  ip -n "$name" link set "veth-$name" up
done

link_here() { "${client_prefix[@]}" vm-link "$@"; }

link_both() {
  passed_at_server=$(link_passed "${server_prefix[@]}")
  repairs_at_server=${repairs_now:-0}
  repairs_now=$(repairs "${server_prefix[@]}")
  shift
  "${server_prefix[@]}" vm-link "$@"
  link_here "$@"
}

# repairs PREFIX...: segments sent again, out of order, received twice, with a wrong checksum.
repairs() {
  "$@" nstat -asz TcpRetransSegs TcpExtTCPOFOQueue TcpExtTCPDSACKOldSent TcpInCsumErrors |
    awk '!/^#/ { sum += $2 } END { print sum + 0 }'
}

count_repairs() { repairs "${client_prefix[@]}"; }

server_impaired() { ((passed_at_server >= operations)); }

server_repaired() { ((repairs_now > repairs_at_server)); }

start_server "${server_prefix[@]}"
link_tests
nothing_left "${server_prefix[@]}"
kill -TERM "$server"
wait "$server" || { echo "the server did not end well"; failures=$((failures + 1)); }
echo "$((tests - failures)) of $tests tests passed"
((failures == 0))
