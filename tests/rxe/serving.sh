#!/usr/bin/env bash
# A server over rdma that cannot serve says so, and its clients learn why; so do processes in a network
# namespace that has no RDMA device.
#
#   ci/vm/run.sh -- tests/rxe/serving.sh build/dev
set -euo pipefail

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
  sed -n '2,5s/^# \{0,1\}//p' "$0"
  exit $(($# == 0 ? 2 : 0))
fi
[[ -n ${REMORA_VM_GUEST:-} ]] || { echo "serving: run it by ci/vm/run.sh" >&2; exit 2; }
programs=$1/apps status=0
uri="remora://$REMORA_VM_ADDRESS/r?transport=rdma"
# The limit on locked memory holds for users without CAP_IPC_LOCK.
user=(setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=-all --bounding-set=-all --)

wrong() {
  echo "wrong: $*" >&2
  status=1
}
# says WHAT FILE TEXT
says() { grep -F -- "$3" "$2" >/dev/null || { wrong "$1 does not say '$3':"; cat "$2" >&2; }; }
ready() { curl -s -o /tmp/readyz -w '%{http_code}' http://127.0.0.1:9471/readyz || true; }
# soon COMMAND...: within 30 s.
soon() {
  for ((i = 0; i < 300; ++i)); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  return 1
}
is_ready() { [[ $(ready) == "$1" ]]; }

cat >/tmp/server.yaml <<YAML
listen: {address: $REMORA_VM_ADDRESS, port: 7471}
transports: {rdma: required, rdma_protection: registrations, shm: off, tcp: off}
pool: {size: 16MiB, huge_pages: never}
regions: [{name: r, size: 4MiB}]
auth: none
metrics: {address: "127.0.0.1:9471"}
YAML
chmod 644 /tmp/server.yaml

echo "a server without locked memory does not start"
started=0
timeout 60 prlimit --memlock=65536:65536 "${user[@]}" "$programs/remora-server" --config /tmp/server.yaml \
  2>/tmp/refused || started=$?
((started == 5)) || wrong "it ended with status $started"
says "the server" /tmp/refused "the limit is 65536"
says "the server" /tmp/refused "ulimit -l"

echo "with auto it leaves rdma out"
sed 's/rdma: required/rdma: auto/; s/tcp: off/tcp: auto/' /tmp/server.yaml >/tmp/auto.yaml
prlimit --memlock=65536:65536 "${user[@]}" "$programs/remora-server" --config /tmp/auto.yaml 2>/tmp/auto.log &
server=$!
soon is_ready 200 || wrong "it does not get ready"
says "the log" /tmp/auto.log "rdma is not offered"
says "the log" /tmp/auto.log "the limit is 65536"
kill -TERM "$server"
wait "$server" || wrong "it ended with status $?"

echo "a server that has lost its locked memory is not ready until it has it again"
"${user[@]}" "$programs/remora-server" --config /tmp/server.yaml 2>/tmp/server.log &
server=$!
soon is_ready 200 || wrong "it does not get ready"
# 8 bytes for each of 4,096 pages.
soon grep -qF "a client that opens all of the pool takes about 32KiB of a device's translations" /tmp/server.log ||
  wrong "the log does not estimate the translations"
"$programs/remora" stat "$uri" >/dev/null || wrong "it does not serve"
prlimit --pid "$server" --memlock=65536
if "$programs/remora" stat "$uri" 2>/tmp/refused; then wrong "a client was let in"; fi
says "the client" /tmp/refused "the limit is 65536"
says "the client" /tmp/refused "ulimit -l"
cat /tmp/refused
is_ready 503 || wrong "/readyz says ready"
says "/readyz" /tmp/readyz "no new client can be served"
prlimit --pid "$server" --memlock=unlimited
soon is_ready 200 || wrong "it is not ready again"
"$programs/remora" stat "$uri" >/dev/null || wrong "it does not serve again"

echo "a client without locked memory names the amounts"
if prlimit --memlock=3145728:3145728 "${user[@]}" "$programs/remora" write "$uri" --offset 0 --data x 2>/tmp/refused; then
  echo "3 MiB are enough for it"
else
  says "the client" /tmp/refused "asked "
  cat /tmp/refused
fi
kill -TERM "$server"
wait "$server" || wrong "it ended with status $?"

echo "another network namespace is named, with the command that gives it a device"
# The kernel changes the mode only while there is no other namespace.
soon rdma system set netns exclusive || { echo "this kernel does not change the mode"; exit 1; }
ip netns add other
if ip netns exec other "$programs/remora" stat "$uri" 2>/tmp/refused; then wrong "it found a device"; fi
cat /tmp/refused
says "the client" /tmp/refused "rdma dev set DEVICE netns"
says "the client" /tmp/refused "net:["
ip netns exec other ip link set lo up
sed "s/address: $REMORA_VM_ADDRESS/address: 127.0.0.1/" /tmp/server.yaml >/tmp/other.yaml
started=0
ip netns exec other timeout 60 "$programs/remora-server" --config /tmp/other.yaml 2>/tmp/refused || started=$?
((started == 3)) || wrong "the server ended with status $started"
cat /tmp/refused
says "the server" /tmp/refused "rdma dev set DEVICE netns"
ip netns del other
soon rdma system set netns shared || wrong "the mode stays exclusive"
exit "$status"
