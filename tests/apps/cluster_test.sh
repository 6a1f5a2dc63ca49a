#!/usr/bin/env bash
# Servers that register themselves in a cluster, and the commands for it: an etcd that comes late and
# goes, two servers of one name, wrong arguments.
# shellcheck disable=SC2034,SC2119,SC2317  # $server is lib.sh's; eventually calls functions
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

store=$work/cluster.json
cluster=remora+file://$store

# cluster_config KEYS [PORT]
cluster_config() {
  cat <<YAML
listen: {address: 127.0.0.1, port: ${2:-0}}
pool: {size: 16MiB, piece: 4MiB, huge_pages: never}
cluster: {$1}
YAML
}
registered() { "$remora" cluster status "${2:-$cluster}" --json 2>/dev/null | jq -e "[.servers[].name] == $1" >/dev/null; }

# --- arguments ------------------------------------------------------------------------------------
run 2 "a URI of another kind" "$remora" cluster status remora://localhost
says "the forms are named" 'remora\+etcd://HOST.*remora\+file://'
run 2 "a volume where a cluster is wanted" "$remora" cluster status "$cluster/disk"
says "it is named" "names a volume.*write '[^/]*//$store'"
run 2 "a cluster where a volume is wanted" "$remora" volume stat "$cluster"
says "it is named" "names no volume.*$store/VOLUME"
for kind in mirror mirror: mirror:1 mirror:9 mirror:2x raid; do
  run 2 "the kind $kind" "$remora" volume create "$cluster/disk" --size 1MiB --kind "$kind"
  says "the kinds are named" 'want striped, or mirror:2 to mirror:8'
done
run 4 "an etcd that is not there" "$remora" cluster status "remora+etcd://127.0.0.1:$port/lab" --timeout 2s
says "what to look for" 'check that etcd runs'
run 0 "a store that is empty" "$remora" cluster status "$cluster"
is "has no servers" has out '^0 servers'
run 3 "a volume that is not there" "$remora" volume stat "$cluster/disk"
says "it says what lists them" 'remora volume ls'
run 3 "no server, no room" "$remora" volume create "$cluster/disk" --size 1MiB
says "it says so" 'no server is registered'

# --- a server registers itself ----------------------------------------------------------------------
cluster_config "server: s1, file: $store" >"$work/s1.yaml"
start_server "$work/s1.yaml"
first=$server first_log=$work/s1.log
mv "$work/server.log" "$first_log"
is "the server is registered" eventually registered '["s1"]'
forget_server() (
  exec 9>"$store.lock"
  flock 9
  jq 'del(.entries[.entries | keys[] | select(endswith("/servers/s1"))])' "$store" >"$work/edited" &&
    mv "$work/edited" "$store"
)
is "its record is removed by hand" forget_server
is "the server puts it there again" eventually registered '["s1"]'
run 0 "create" "$remora" volume create "$cluster/disk" --size 2MiB --json
json "it is a record" '.name == "disk" and .state == "ready" and .groups == 1'
run 3 "a second one of that name" "$remora" volume create "$cluster/disk" --size 2MiB
says "it is there already" 'exists'
run 3 "a mirror on one server" "$remora" volume create "$cluster/two" --size 1MiB --kind mirror:2
says "what is missing" 'it needs 2 failure domains, and there are 1'
run 3 "a repair of what is not there" "$remora" volume repair "$cluster/two"
run 0 "a repair of a striped volume" "$remora" volume repair "$cluster/disk" --json
json "it is whole" '.left == [] and .groups == 1'
run 3 "a move of a striped volume" "$remora" volume rebalance "$cluster/disk"
says "why not" 'has one copy of each byte'
run 3 "a claim of a striped volume" "$remora" volume claim "$cluster/disk"
says "why not" 'a striped volume needs no claim'
run 3 "a loss that is none" "$remora" volume accept-loss "$cluster/disk"
run 3 "a drain of no server" "$remora" cluster drain "$cluster" s7
says "what lists them" 'remora cluster status'
run 3 "a drain with a striped volume" "$remora" cluster drain "$cluster" s1
is "it is named" has out 'not done: volume disk has 1 member on s1'
run 0 "cluster status" "$remora" cluster status "$cluster"
is "the server is draining" has out 'draining'
run 3 "no room on a draining server" "$remora" volume create "$cluster/more" --size 1MiB
run 0 "the end of the drain" "$remora" cluster drain "$cluster" s1 --undo
run 3 "more than there is" "$remora" volume create "$cluster/big" --size 64MiB --group 1MiB
says "what is missing" 's1: .* free in whole groups, .* missing'
head -c 1500000 /dev/urandom >"$work/in"
run 0 "put" "$remora" put "$work/in" "$cluster/disk"
run 0 "get" "$remora" get --length 1500000 "$cluster/disk" "$work/back"
is "the bytes are the same" cmp "$work/in" "$work/back"
run 0 "get from the middle to standard output" "$remora" get --offset 1000000 --length 1000 "$cluster/disk" -
is "those bytes" cmp <(tail -c +1000001 "$work/in" | head -c 1000) "$work/out"
run 3 "more than the volume has" "$remora" put "$work/in" "$cluster/disk" --offset 1MiB
run 0 "resize" "$remora" volume resize "$cluster/disk" --size 5MiB
run 0 "get after it" "$remora" get --length 1500000 "$cluster/disk" "$work/back"
is "the bytes are still the same" cmp "$work/in" "$work/back"
run 0 "a volume for the example in C" "$remora" volume create "$cluster/c" --size 1MiB
run 0 "the example in C" "$bin/c_volume" "$cluster/c"
run 0 "and again" "$bin/c_volume" "$cluster/c"
is "it reads what it has written, and counts" has out '^256 of 256 pages are right, in 1 groups; this is run 2$'
run 1 "a volume that is not there, in C" "$bin/c_volume" "$cluster/nosuch"
says "the library says what lists them" 'remora volume ls'
run 0 "it is removed" "$remora" volume rm "$cluster/c"
run 0 "export" bash -c "'$remora' volume export '$cluster/disk' >'$work/disk.json'"
run 3 "import of what is there" "$remora" volume import "$cluster" "$work/disk.json"
run 0 "ls" "$remora" volume ls "$cluster"
is "it is listed" has out '^disk .*striped'

# --- a second server of its name --------------------------------------------------------------------
start_server "$work/s1.yaml"
second=$server second_log=$work/server.log
taken() { grep -q 'another server is registered as s1' "$second_log"; }
# It waits for the end of a lease and a beat, 13 s, and a busy machine has its own time.
is "the second one says that the name is taken" eval 'eventually taken || eventually taken'
is "the first one stays registered" registered '["s1"]'
run 0 "the second one serves" "$remora" ls "remora://127.0.0.1:$(cat "$work/port")?transport=tcp"
server=$first
stop_server
is "the first one ends in peace" same "$status" 0
is "then the second one takes the name" eventually registered '["s1"]'
run 0 "the volume is lost with the memory" "$remora" volume stat "$cluster/disk"
is "stat says so" has out 'lost: other memory'
run 3 "get says so, too" "$remora" get --length 1 "$cluster/disk" -
says "with the server's name" 's1'
run 3 "the records are not imported again" "$remora" volume import "$cluster" "$work/disk.json"
run 0 "rm" "$remora" volume rm "$cluster/disk"
run 3 "nor are they of use now" "$remora" volume import "$cluster" "$work/disk.json"
says "since the memory is another" 'has been restarted since'
server=$second
stop_server
is "no server is registered" eventually registered '[]'

# --- an etcd that comes late, goes and returns ------------------------------------------------------
if ! command -v etcd >/dev/null; then
  echo "# etcd is not installed: ci/setup.sh cluster"
  finish
fi
peer=$((port + 1))
etcd_url=http://127.0.0.1:$port peer_url=http://127.0.0.1:$peer
cluster=remora+etcd://127.0.0.1:$port/lab
start_etcd() {
  etcd --name one --data-dir "$work/etcd" --log-level error --listen-client-urls "$etcd_url" \
    --advertise-client-urls "$etcd_url" --listen-peer-urls "$peer_url" \
    --initial-advertise-peer-urls "$peer_url" --initial-cluster "one=$peer_url" "$@" >"$work/etcd.log" 2>&1 &
  etcd=$!
  pids+=("$etcd")
}
cluster_config "server: s1, name: lab, etcd: \"$etcd_url\", failure_domain: rack1" >"$work/late.yaml"
echo "metrics: {address: \"$metrics\"}" >>"$work/late.yaml"
start_server "$work/late.yaml"
# series PATTERN: the server exports it.
series() { curl -fs --max-time 5 "http://$metrics/metrics" | grep -Eq "^$1\$"; }
unreachable() { (($(grep -c 'cluster.unreachable\|the store of the cluster:' "$work/server.log") == 1)); }
is "a server without etcd says so" eventually unreachable
run 0 "and serves" "$remora" ls "remora://127.0.0.1:$(cat "$work/port")?transport=tcp"
is "its series say that it is not registered" eventually series 'remora_server_cluster_registered 0'
is "and that the store cannot be reached" eventually series \
  'remora_cluster_store_errors_total\{.*reason="unreachable".*\} [1-9].*'
is "which is counted as a failed registration" eventually series \
  'remora_server_cluster_errors_total\{reason="store"\} [1-9].*'
start_etcd
is "it registers itself later" eventually registered '["s1"]'
is "its series say so, too" eventually series 'remora_server_cluster_registered 1'
is "the calls to etcd have a latency" eventually series \
  'remora_cluster_store_latency_seconds_count\{.*op="lease".*\} [1-9].*'
is "in its failure domain" bash -c "'$remora' cluster status '$cluster' --json | jq -e '.servers[0].failure_domain == \"rack1\"' >/dev/null"
run 0 "create over etcd" "$remora" volume create "$cluster/disk" --size 2MiB
run 0 "the example in C loads libcurl" "$bin/c_volume" "$cluster/disk"
is "it reads what it has written" has out '^512 of 512 pages are right'
{ kill -KILL "$etcd" && wait "$etcd"; } 2>/dev/null
run 0 "without etcd the server serves" "$remora" ls "remora://127.0.0.1:$(cat "$work/port")?transport=tcp"
start_etcd
is "it is registered again" eventually registered '["s1"]'
run 0 "the volume is there" "$remora" volume stat "$cluster/disk"
run 0 "and is removed" "$remora" volume rm "$cluster/disk"
stop_server
is "the server ends in peace" same "$status" 0
is "its record is gone at once" registered '[]'

# --- an etcd with users, and one with TLS -----------------------------------------------------------
# member_of KEYS: a server of that etcd, with these keys of `cluster` besides.
member_of() {
  cluster_config "server: s1, name: lab, $1" >"$work/member.yaml"
  start_server "$work/member.yaml"
}
control() { ETCDCTL_API=3 etcdctl --endpoints="$etcd_url" "$@" >"$work/control" 2>&1; }
is "etcd has a user" eval 'control user add root:secret && control user grant-role root root && control auth enable'
member_of "etcd: \"$etcd_url\""
is "a server without a user says what to write" eventually grep -q 'cluster.password_file' "$work/server.log"
stop_server
(umask 077 && echo secret >"$work/password")
run 5 "cluster status without a user" "$remora" cluster status "$cluster"
says "what names it" 'REMORA_ETCD_USER'
member_of "etcd: \"$etcd_url\", user: root, password_file: $work/password, advertise: \"192.0.2.7:7471\""
export REMORA_ETCD_USER=root REMORA_ETCD_PASSWORD_FILE=$work/password
is "a server with one registers itself" eventually registered '["s1"]'
run 0 "cluster status" "$remora" cluster status "$cluster" --json
json "at the address that it advertises" '.servers[0].addresses == ["192.0.2.7:7471"]'
stop_server
unset REMORA_ETCD_USER REMORA_ETCD_PASSWORD_FILE
{ kill -KILL "$etcd" && wait "$etcd"; } 2>/dev/null

if ! command -v openssl >/dev/null; then
  echo "# openssl is not installed: ci/setup.sh cluster"
  finish
fi
request=(openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
for name in ca other; do
  run 0 "a signer: $name" "${request[@]}" -x509 -days 2 -subj "/CN=$name" -keyout "$work/$name.key" -out "$work/$name.pem"
done
echo 'subjectAltName=IP:127.0.0.1' >"$work/extension"
for name in server client; do
  run 0 "a request: $name" "${request[@]}" -subj "/CN=$name" -keyout "$work/$name.key" -out "$work/$name.csr"
  run 0 "a certificate: $name" openssl x509 -req -in "$work/$name.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" \
    -CAcreateserial -days 2 -extfile "$work/extension" -out "$work/$name.pem"
done
rm -rf "$work/etcd"
etcd_url=https://127.0.0.1:$port cluster="remora+etcd://127.0.0.1:$port/lab?tls=on"
start_etcd --cert-file="$work/server.pem" --key-file="$work/server.key" --client-cert-auth \
  --trusted-ca-file="$work/ca.pem"
own="tls_certificate_file: $work/client.pem, tls_key_file: $work/client.key"
export REMORA_ETCD_CERTIFICATE_FILE=$work/client.pem REMORA_ETCD_KEY_FILE=$work/client.key
export REMORA_ETCD_CA_FILE=$work/ca.pem
is "etcd answers over TLS" eventually registered '[]'
member_of "etcd: \"$etcd_url\", tls_ca_file: $work/other.pem, $own"
is "a server with another signer says what to look at" eventually grep -q 'cluster.tls_' "$work/server.log"
run 0 "and serves" "$remora" ls "remora://127.0.0.1:$(cat "$work/port")?transport=tcp"
is "it is not registered" registered '[]'
stop_server
member_of "etcd: \"$etcd_url\", tls_ca_file: $work/ca.pem, $own"
is "a server with its certificate registers itself" eventually registered '["s1"]'
stop_server
is "it ends in peace" same "$status" 0
{ kill -KILL "$etcd" && wait "$etcd"; } 2>/dev/null
finish
