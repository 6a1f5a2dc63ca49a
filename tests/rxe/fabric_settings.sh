#!/usr/bin/env bash
# Settings of the fabric between two hosts: the server in guest 0, its clients in guest 1.
#
#   ci/vm/run.sh --guests 2 -- tests/rxe/fabric_settings.sh build/dev
#
# The traffic class and the path MTU are seen on the wire; a server with a smaller MTU says so to its
# clients; an outage of 3 s under load breaks no lane.
set -euo pipefail

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0"
  exit $(($# == 0 ? 2 : 0))
fi
[[ ${REMORA_VM_GUESTS:-} == 2 ]] || { echo "fabric_settings: run it by ci/vm/run.sh --guests 2" >&2; exit 2; }
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
programs=$1/apps status=0
limit=300

wrong() {
  echo "wrong: $*" >&2
  status=1
}

# serve NUMBER SETTINGS: a server in the background, with its metrics at port 9471.
serve() {
  cat >"/tmp/$1.yaml" <<YAML
listen: {address: $REMORA_VM_ADDRESS, port: 7471}
transports: {rdma: required, shm: off, tcp: off}
rdma: {$2}
pool: {size: 64MiB, huge_pages: never}
regions: [{name: r, size: 16MiB}]
auth: none
metrics: {address: "127.0.0.1:9471"}
YAML
  "$programs/remora-server" --config "/tmp/$1.yaml" 2>"/tmp/$1.log" &
  server=$!
  for ((i = 0; i < 300; ++i)); do
    if [[ $(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9471/readyz || true) == 200 ]]; then break; fi
    kill -0 "$server" || { cat "/tmp/$1.log"; exit 1; }
    sleep 0.1
  done
  vm-signal "listening.$1"
}

# end_server NUMBER: when the client is done.
end_server() {
  vm-wait "done.$1" "$limit"
  kill -TERM "$server"
  wait "$server" || wrong "the server ended with status $?"
}

# load OPTIONS SECONDS: 4 KiB reads and writes of the region, with these settings in the URI.
load() {
  "$programs/remora" bench "remora://$REMORA_VM_PEER_ADDRESS/r?transport=rdma$1" --op read:50,write:50 \
    --size 4KiB --depth 16 --seconds "$2" --json
}

# seen FILE DIRECTION: the traffic classes of that direction, and the longest packet.
classes() { awk -v direction="$2" '$1 == direction {print $2}' "$1" | sort -un | tr '\n' ' '; }
longest() { awk '$3 > most {most = $3} END {print most + 0}' "$1"; }

# capture_load OPTIONS SECONDS: that load, which has traffic class 106; its packets go to /tmp/packets.
capture_load() {
  "$here/roce_packets.py" "$REMORA_VM_NETDEV" "$limit" >/tmp/packets &
  local capture=$!
  until grep watching /tmp/packets >/dev/null; do sleep 0.1; done
  load "$1" "$2" >/tmp/bench || wrong "the load failed"
  kill -TERM "$capture"
  wait "$capture"
  cat /tmp/packets
  [[ $(classes /tmp/packets sent) == "106 " ]] || wrong "the client's packets have another class"
}

if [[ $REMORA_VM_GUEST == 0 ]]; then
  serve 1 ""
  end_server 1
  serve 2 "traffic_class: 40, mtu: 1024"
  grep -F 'traffic_class=40, mtu=1024' /tmp/2.log || wrong "the log does not say what is set"
  curl -s http://127.0.0.1:9471/status >/tmp/status
  grep -F '"traffic_class":40' /tmp/status >/dev/null || wrong "/status does not say what is set"
  end_server 2
  serve 3 ""
  vm-wait done.3 "$limit"
  curl -s http://127.0.0.1:9471/metrics >/tmp/metrics
  cat /tmp/3.log
  grep '^remora_server_sessions' /tmp/metrics | grep -v ' 0$' || true
  for name in 'sessions_ended_total{reason="lost"}' 'sessions_ended_total{reason="lapsed"}' sessions_resumed_total; do
    value=$(awk -v name="remora_server_$name" '$1 == name {print $2}' /tmp/metrics)
    [[ $value == 0 ]] || wrong "after the outage $name is '$value'"
  done
  end_server 3
  exit "$status"
fi

vm-wait listening.1 "$limit"
capture_load "&traffic_class=106&mtu=1024" 2
[[ $(classes /tmp/packets received) == "106 " ]] || wrong "the server's packets have another class"
# Headers and checksum of a packet with 1,024 bytes.
(($(longest /tmp/packets) >= 1024 && $(longest /tmp/packets) < 1100)) || wrong "the path MTU is another one"
vm-signal done.1

vm-wait listening.2 "$limit"
# Without an MTU of its own this client would send as much as the port can carry.
if "$programs/remora" stat "remora://$REMORA_VM_PEER_ADDRESS/r?transport=rdma&mtu=2048" 2>/tmp/refused; then
  wrong "a client with a larger MTU was let in"
fi
cat /tmp/refused
grep -F 'the client needs mtu=1024' /tmp/refused >/dev/null || wrong "the refusal does not say why"
capture_load "&mtu=1024&traffic_class=106" 1
[[ $(classes /tmp/packets received) == "40 " ]] || wrong "the server's own class does not hold"
vm-signal done.2

vm-wait listening.3 "$limit"
load "" 9 >/tmp/bench &
loaded=$!
sent() { cat "/sys/class/net/$REMORA_VM_NETDEV/statistics/tx_packets"; }
before=$(sent)
until (($(sent) > before + 2000)); do sleep 0.1; done
vm-link drop both
sleep 3
vm-link pass
wait "$loaded" || wrong "the load did not survive the outage"
vm-signal done.3
exit "$status"
