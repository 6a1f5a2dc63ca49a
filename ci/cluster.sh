#!/usr/bin/env bash
# Starts one etcd and three memory servers on loopback, makes a striped volume and a mirror over them,
# stores a file in both and reads it back, grows the striped one, kills a server, rebuilds the mirror,
# adds a server, moves copies there, kills another one, and ends everything. Under a minute.
set -euo pipefail

# shellcheck source=ci/local_programs.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/local_programs.sh"

usage() {
  cat <<'USAGE'
usage: ci/cluster.sh --bin BUILD_TREE [--file-store] [FILE]

  --bin         build tree or folder that holds remora-server and remora, built with volumes: not build/quickstart
  --file-store  a file in place of etcd
  FILE          what is stored (default: the C++ compiler proper, some 30 MiB)
USAGE
}

die() {
  printf 'cluster: error: %s\n' "$*" >&2
  if [[ ${work:-} ]]; then tail -n 20 "$work"/*.log >&2 || true; fi
  exit 1
}

bin='' file='' file_store=0
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --bin) bin=${2:?--bin needs a folder}; shift ;;
    --file-store) file_store=1 ;;
    -*) usage >&2; die "unknown option '$1'" ;;
    *) [[ -z $file ]] || die "one FILE only"; file=$1 ;;
  esac
  shift
done
[[ $bin ]] || { usage >&2; die "--bin is needed"; }
if ((!file_store)); then
  command -v etcd >/dev/null || die "etcd is missing: run ci/setup.sh cluster, or give --file-store"
fi
command -v jq >/dev/null || die "jq is missing: run ci/setup.sh build"

server=$(find_program remora-server)
remora=$(find_program remora)

[[ $file ]] || file=$(file_to_store large)
[[ -f $file && -r $file ]] || die "cannot read '$file'"
size=$(stat -Lc %s "$file")

make_work cluster

# Runs a command until it succeeds, for 20 s.
await() {
  local what=$1 tries
  shift
  for ((tries = 0; tries < 200; ++tries)); do
    if "$@" >"$work/await.log" 2>&1; then return; fi
    sleep 0.1
  done
  die "$what: $(cat "$work/await.log")"
}

if ((file_store)); then
  store="file: $work/cluster.json"
  cluster=remora+file://$work/cluster.json
else
  port=$(free_port 23790)
  peer=$(free_port $((port + 1)))
  step "starting etcd on 127.0.0.1:$port"
  etcd --name one --data-dir "$work/etcd" --log-level error \
    --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
    --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
    --initial-cluster "one=http://127.0.0.1:$peer" >"$work/etcd.log" 2>&1 &
  program_pids+=($!)
  store="name: lab, etcd: \"http://127.0.0.1:$port\""
  cluster=remora+etcd://127.0.0.1:$port/lab
  await "etcd does not answer" "$remora" cluster status "$cluster"
fi

pool=$((size * 2 / 1048576 + 96))
start_server() {
  local name=$1
  cat >"$work/$name.yaml" <<YAML
listen: {address: 127.0.0.1, port: 0}
pool: {size: ${pool}MiB}
cluster: {server: $name, failure_domain: rack-$name, $store}
YAML
  REMORA_RUNTIME_DIR=$work "$server" --config "$work/$name.yaml" >"$work/$name.log" 2>&1 &
  program_pids+=($!)
  pid_of[$name]=$!
}
declare -A pid_of
kill_server() {
  kill -KILL "${pid_of[$1]}"
  wait "${pid_of[$1]}" 2>/dev/null || true
}
has_server() { "$remora" cluster status "$cluster" --json | jq -e "any(.servers[]; .name == \"$1\")"; }
# Reads the file back from the mirror.
same_on_mirror() {
  "$remora" get --length "$size" "$cluster/disk" "$work/copy" >/dev/null
  cmp "$file" "$work/copy" || die "the bytes of the mirror differ $1"
}
# The mirror has all its copies, and they are on exactly these servers.
mirror_servers() {
  "$remora" volume stat "$cluster/disk" --json >"$work/stat.json"
  jq -e 'all(.group_states[]; .state == "ok")' "$work/stat.json" >/dev/null ||
    die "the mirror is not whole: $(cat "$work/stat.json")"
  [[ $(jq -r '[.members[].server] | unique | join(" ")' "$work/stat.json") == "$*" ]] ||
    die "the mirror is not on $*: $(cat "$work/stat.json")"
}
registered() { "$remora" cluster status "$cluster" --json | jq -e ".servers | length == $1"; }

step "starting three servers of $pool MiB each"
for name in s1 s2 s3; do start_server "$name"; done
await "the servers are not registered" registered 3
"$remora" cluster status "$cluster" | sed 's/^/    /'

step "creating a volume over them"
"$remora" volume create "$cluster/scratch" --size "$((size / 1048576 + 1))MiB" --group 4MiB
step "storing $file ($((size / 1024)) KiB)"
"$remora" put "$file" "$cluster/scratch"
step "reading it back"
"$remora" get --length "$size" "$cluster/scratch" "$work/copy"
cmp "$file" "$work/copy" || die "the bytes differ"
used=$("$remora" volume stat "$cluster/scratch" --json | jq '[.members[].server] | unique | length')
((used == 3)) || die "the volume is on $used servers"
step "the same bytes, from three servers"

step "growing the volume"
"$remora" volume resize "$cluster/scratch" --size "$((size / 1048576 + 33))MiB"
"$remora" get --length "$size" "$cluster/scratch" "$work/copy" >/dev/null
cmp "$file" "$work/copy" || die "the bytes differ after the growth"

step "creating a mirror, and storing the same file"
"$remora" volume create "$cluster/disk" --size "$((size / 1048576 + 1))MiB" --group 8MiB --kind mirror:2
"$remora" put "$file" "$cluster/disk"

step "a server that is killed is named"
kill_server s3
if "$remora" get --length "$size" "$cluster/scratch" "$work/lost" --timeout 3s 2>"$work/lost.log"; then
  die "a third of the volume is gone, and get did not notice"
fi
grep -q 's3' "$work/lost.log" || die "the message does not name the server: $(cat "$work/lost.log")"
sed 's/^/    /' "$work/lost.log"

step "the mirror is repaired on the servers that are left"
"$remora" volume repair "$cluster/disk"
same_on_mirror "after the loss of a server"
mirror_servers s1 s2

step "a new server gets copies"
start_server s4
await "the new server is not registered" has_server s4
"$remora" volume rebalance "$cluster/disk"
mirror_servers s1 s2 s4

step "another server is killed"
kill_server s1
"$remora" volume repair "$cluster/disk"
same_on_mirror "after the loss of a second server"
mirror_servers s2 s4
step "the same bytes, from the copies"
"$remora" volume rm "$cluster/disk"
step "removing the volume, without the part that is gone"
"$remora" volume rm "$cluster/scratch" --forget-unreachable
"$remora" volume ls "$cluster" --json | jq -e '.volumes == []' >/dev/null || die "the volume is still there"
step "all is well"
