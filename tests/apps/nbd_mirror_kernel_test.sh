#!/usr/bin/env bash
# ext4 on a mirror, through the kernel's NBD client and the plugin of nbdkit, in a guest: fio verifies
# while each of the two servers is killed in its turn, and the file system stays whole.
# shellcheck disable=SC2317,SC2119,SC2016  # functions are called by eventually and is; jq has variables
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

plugin=${REMORA_NBDKIT_PLUGIN:?the file nbdkit-remora-plugin.so}
PATH=$PATH:/usr/sbin:/sbin
[[ -n ${REMORA_VM_GUEST:-} ]] || { echo "it mounts a file system: run it by ci/vm/run.sh"; exit 77; }
for tool in nbdkit nbd-client mkfs.ext4 e2fsck fio jq; do
  command -v "$tool" >/dev/null || { echo "there is no $tool: ci/setup.sh nbd"; exit 77; }
done
for module in nbd ext4; do
  modprobe "$module" || { echo "not ok - the guest's kernel has no $module"; exit 1; }
done
socket=$work/nbd.sock device=/dev/nbd0 mounted=$work/mounted
mkdir "$mounted"
cd "$work" || exit 1
end_all() {
  umount -l "$mounted" 2>/dev/null
  nbd-client -d "$device" >/dev/null 2>&1
  cleanup
}
trap end_all EXIT

# --- the cluster: a real etcd where it is installed ---------------------------------------------------
if command -v etcd >/dev/null; then
  peer=$((port + 1)) url=http://127.0.0.1:$port
  etcd --name one --data-dir "$work/etcd" --log-level error --listen-client-urls "$url" \
    --advertise-client-urls "$url" --listen-peer-urls "http://127.0.0.1:$peer" \
    --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
    --initial-cluster "one=http://127.0.0.1:$peer" >"$work/etcd.log" 2>&1 &
  pids+=($!)
  store="name: lab, etcd: \"$url\"" cluster=remora+etcd://127.0.0.1:$port/lab
else
  store="file: $work/cluster.json" cluster=remora+file://$work/cluster.json
fi
disk=$cluster/disk
group_mib=8 data_offset=8192  # the header and one block of the bitmap are in front of the bytes
declare -A pid_of
start_member() {
  local rdma=off tcp=required
  [[ $transport == rdma ]] && rdma=required tcp=off
  cat >"$work/$1.yaml" <<YAML
listen: {address: "$host", port: 0}
transports: {rdma: $rdma, shm: off, tcp: $tcp}
pool: {size: 64MiB, piece: 4MiB, huge_pages: never}
auth: none
cluster: {server: $1, $store, failure_domain: rack-$1}
YAML
  start_server "$work/$1.yaml"
  pid_of[$1]=$server
}
kill_member() { { kill -KILL "${pid_of[$1]}" && wait "${pid_of[$1]}"; } 2>/dev/null; }
registered() { "$remora" cluster status "$cluster" --json 2>/dev/null | jq -e "[.servers[].name] == $1" >/dev/null; }

# --- the device ---------------------------------------------------------------------------------------
attach() {
  rm -f "$socket"
  nbdkit --foreground --unix "$socket" "$plugin" "$disk" "$@" repair=false deadline=60s >"$work/nbdkit.log" 2>&1 &
  nbdkit=$!
  pids+=("$nbdkit")
  is "nbdkit has claimed the mirror" eventually test -S "$socket"
  run 0 "nbd-client" nbd-client -unix "$socket" "$device" -nonetlink -block-size 4096
}
detach() {
  run 0 "nbd-client -d" nbd-client -d "$device"
  kill "$nbdkit"
  is "nbdkit ends" eventually ended "$nbdkit"
}
# In an emulator a load takes minutes.
ends_at_last() {
  local tries
  for ((tries = 0; tries < 3000; ++tries)); do
    ended "$1" && return 0
    sleep 0.1
  done
  return 1
}
# verify_without SERVER: fio writes and verifies; the server is killed when fio is at work.
verify_without() {
  fio --name=file --directory="$mounted" --rw=randwrite --bs=4k --size=1m --ioengine=psync --direct=1 \
    --fsync=16 --loops=6 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randrepeat=0 \
    >"$work/fio.$1.out" 2>&1 &
  local fio=$! status=0
  pids+=("$fio")
  written() { [[ $(stat -c %b "$mounted/file.0.0" 2>/dev/null || echo 0) -gt 64 ]]; }
  is "fio writes" eventually written
  is "fio is at work when $1 is killed" kill -0 "$fio"
  kill_member "$1"
  is "fio ends" ends_at_last "$fio"
  { wait "$fio"; } 2>/dev/null || status=$?
  is "fio verified each byte without $1" same "$status" 0
  ((status == 0)) || sed 's/^/    fio: /' "$work/fio.$1.out" | tail -n 20
  rm -f "$mounted/file.0.0"
}
# The file's bytes, from the device.
file_is_there() {
  sync
  echo 3 >/proc/sys/vm/drop_caches
  is "$1" cmp random "$mounted/random"
}
is_whole() {
  run 0 "stat" "$remora" volume stat "$disk" --json
  json "each group has its copies" 'all(.group_states[]; .state == "ok")'
}
# The bytes of both members of each group are the same.
members_are_equal() {
  local groups group count server region address
  run 0 "stat" "$remora" volume stat "$disk" --json
  cp "$work/out" "$work/stat.json"
  groups=$(jq '[.members[].group] | unique | length' "$work/stat.json")
  for ((group = 0; group < groups; ++group)); do
    rm -f member.*
    while read -r server region address; do
      run 0 "group $group of $server" "$remora" get --offset "$data_offset" --length "${group_mib}MiB" \
        "remora://$address/$region?transport=$transport" "$work/member.$server"
    done < <(jq -r --argjson group "$group" \
      '.members[] | select(.group == $group) | "\(.server) \(.region) \(.addresses[0])"' "$work/stat.json")
    count=$(find . -maxdepth 1 -name 'member.*' | wc -l)
    is "group $group has two members" same "$count" 2
    is "they are equal" same "$(sha256sum member.* | cut -d' ' -f1 | sort -u | wc -l)" 1
  done
}

start_member s1
start_member s2
is "two servers are registered" eventually registered '["s1","s2"]'
run 0 "create" "$remora" volume create "$disk" --size "$((2 * group_mib))MiB" --group "${group_mib}MiB" \
  --kind mirror:2
attach exclusive=true
run 0 "mkfs.ext4" mkfs.ext4 -q "$device"
run 0 "mount" mount -t ext4 "$device" "$mounted"
head -c 3145728 /dev/urandom >random
run 0 "a file is copied" cp random "$mounted/random"
verify_without s1
file_is_there "the file has its bytes without s1"
run 0 "umount" umount "$mounted"
run 0 "e2fsck" e2fsck -f -n "$device"
detach

is "the record of the dead s1 is gone" eventually registered '["s2"]'
start_member s1
is "s1 is registered again, with other memory" eventually registered '["s1","s2"]'
run 0 "repair" "$remora" volume repair "$disk"
is_whole
members_are_equal

# The copies that were made carry the file system on.
attach
run 0 "mount once more" mount -t ext4 "$device" "$mounted"
file_is_there "the file has its bytes after the rebuild"
verify_without s2
file_is_there "the file has its bytes without s2"
run 0 "umount of it" umount "$mounted"
run 0 "e2fsck of it" e2fsck -f -n "$device"
detach
is "the record of the dead s2 is gone" eventually registered '["s1"]'
start_member s2
is "s2 is registered again, with other memory" eventually registered '["s1","s2"]'
run 0 "the last repair" "$remora" volume repair "$disk"
is_whole
members_are_equal
run 0 "rm" "$remora" volume rm "$disk"
for name in s1 s2; do
  server=${pid_of[$name]}
  stop_server
  is "$name ends cleanly" same "$status" 0
done
finish
