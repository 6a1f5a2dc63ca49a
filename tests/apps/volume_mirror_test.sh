#!/usr/bin/env bash
# A mirror over servers that are drained, killed and lost: the commands for it, and the bytes.
# shellcheck disable=SC2317,SC2119,SC2016  # functions are called by is and run; jq has variables
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Deadlines that a busy machine keeps, too.
printf '#!/bin/sh\ncase " $* " in *" --timeout "*) exec "%s" "$@" ;; esac\nexec "%s" --timeout 60s "$@"\n' \
  "$remora" "$remora" >"$work/remora"
chmod +x "$work/remora"
remora=$work/remora
store=$work/cluster.json
cluster=remora+file://$store
disk=$cluster/disk
declare -A pid_of
start_member() {
  cat >"$work/$1.yaml" <<YAML
listen: {address: 127.0.0.1, port: 0}
pool: {size: 64MiB, piece: 4MiB, huge_pages: never}
cluster: {server: $1, file: $store, failure_domain: rack-$1}
YAML
  start_server "$work/$1.yaml"
  mv "$work/server.log" "$work/$1.log"
  pid_of[$1]=$server
}
kill_member() { { kill -KILL "${pid_of[$1]}" && wait "${pid_of[$1]}"; } 2>/dev/null; }
registered() { "$remora" cluster status "$cluster" --json 2>/dev/null | jq -e "[.servers[].name] == $1" >/dev/null; }
# The servers of the volume, and the states of its groups.
members_on() { jq -e "([.members[].server] | unique) == $1 and all(.group_states[]; .state == \"ok\")" "$work/out" >/dev/null; }
size=12582912
head -c "$size" /dev/urandom >"$work/in"
bytes_are_there() {
  run 0 "get" "$remora" get --length "$size" "$disk" "$work/back"
  is "the bytes are there" cmp "$work/in" "$work/back"
}
on_terminal() {
  SHELL=/bin/bash timeout 60 script -qec "$(printf '%q ' "$@") >$(printf '%q' "$work/out")" \
    "$work/typescript" </dev/null >/dev/null && tr '\r' '\n' <"$work/typescript" >"$work/err"
}
# draws NAME LABEL TOTAL COMMAND...: it ends with 0, its output in $work/out, and draws its progress where
# stderr is a terminal. With this bandwidth, one group after the other, it lasts longer than a line takes.
draws() {
  local name=$1 label=$2 total=$3
  shift 3
  set -- "$@" --bandwidth 16MiB --parallel 1
  if ! command -v script >/dev/null; then
    run 0 "$name" "$@"
    return
  fi
  is "$name" on_terminal "$@"
  says "its progress" "$label  [0-9.]+ [KM]iB of $total MiB  \[#*\.*\]  [0-9]+%  [0-9.]+ MB/s"
}

for name in s1 s2 s3; do start_member "$name"; done
is "three servers are registered" eventually registered '["s1","s2","s3"]'

# --- creation ---------------------------------------------------------------------------------------
run 3 "more copies than servers" "$remora" volume create "$disk" --size 12MiB --kind mirror:4
says "what is missing" 'it needs 4 failure domains, and there are 3'
run 0 "create" "$remora" volume create "$disk" --size 12MiB --group 4MiB --kind mirror:2 --json
json "its record" '.kind == "mirror" and .copies == 2 and .writer_epoch == 0'
run 0 "ls" "$remora" volume ls "$cluster"
is "the kind has the copies" has out '^disk .*mirror:2'
run 0 "bench" "$remora" bench "$disk" --op read:1,write:1 --size 4KiB --depth 32 --seconds 0.3 --warmup 0 --json
json "it measures" '(.results | length) == 1 and .results[0].depth == 32'
run 2 "more in flight than a mirror has room for" "$remora" bench "$disk" --depth 1025 --seconds 0.1
says "the limit" '1024'
run 0 "put, two streams" "$remora" put "$work/in" "$disk" --streams 2 --verify
run 0 "stat" "$remora" volume stat "$disk"
is "the writer has released it" has out '^writer: none'
is "a group has a primary" has out '^0 +ok +primary'
bytes_are_there

# --- claims -----------------------------------------------------------------------------------------
"$remora" volume claim "$disk" --json >"$work/claim.json" 2>"$work/claim.err" &
claim=$!
pids+=("$claim")
is "the claim is held" eventually test -s "$work/claim.json"
run 3 "a second writer" "$remora" put "$work/in" "$disk"
says "what to do" 'volume release'
run 3 "a repair" "$remora" volume repair "$disk"
says "what to do" '--steal'
run 3 "a growth" "$remora" volume resize "$disk" --size 16MiB
says "the writer is named" 'has the claim'
bytes_are_there
kill -INT "$claim"
is "an interrupt ends it" eventually ended "$claim"
run 0 "stat" "$remora" volume stat "$disk" --json
json "no writer is left" '.writer == ""'
run 0 "put again" "$remora" put "$work/in" "$disk"
"$remora" volume claim "$disk" --json >"$work/next.json" 2>"$work/next.err" &
claim=$!
pids+=("$claim")
is "a claim is held again" eventually test -s "$work/next.json"
run 0 "the release of another program's claim" "$remora" volume release "$disk" --json
json "the volume is named" '.released == "disk"'
is "that program ends" eventually ended "$claim"
{ wait "$claim"; } 2>/dev/null
is "with an error" test $? -ne 0
is "which says why" grep -q 'another client has taken the claim' "$work/next.err"

# --- drain ------------------------------------------------------------------------------------------
draws "drain" "draining s1" '[0-9.]+' "$remora" cluster drain "$cluster" s1 --json
json "all is done" '.left == [] and .members_moved > 0'
run 0 "stat after it" "$remora" volume stat "$disk" --json
is "the copies are elsewhere" members_on '["s2","s3"]'
bytes_are_there
run 3 "a third copy on a server that is drained" "$remora" volume add-copy "$disk"
says "nothing has the room" 'no server has the room'
run 0 "the end of the drain" "$remora" cluster drain "$cluster" s1 --undo
draws "rebalance" "rebalance disk" '[0-9.]+' "$remora" volume rebalance "$disk" --json
json "copies have moved to the empty server" '.left == [] and .members_moved > 0'
bytes_are_there
draws "a third copy" "add-copy disk" '12\.0' "$remora" volume add-copy "$disk"
run 0 "stat after it" "$remora" volume stat "$disk" --json
is "it is on all servers" members_on '["s1","s2","s3"]'

# --- losses -----------------------------------------------------------------------------------------
kill_member s2
is "s2 is not registered" eventually registered '["s1","s3"]'
run 0 "stat" "$remora" volume stat "$disk"
is "the groups are degraded" has out 'groups degraded: .remora volume repair'
run 3 "a repair without room for three copies" "$remora" volume repair "$disk"
is "it says so" has out '^not done: .*outside the failure domains'
bytes_are_there
start_member s4
is "a new server is registered" eventually registered '["s1","s3","s4"]'
run 2 "a repair of no group at once" "$remora" volume repair "$disk" --parallel 0
draws "repair" "repair disk" '12\.0' "$remora" volume repair "$disk" --json
json "all is done" '.left == [] and .members_added == 3'
run 0 "stat after it" "$remora" volume stat "$disk" --json
is "it is whole" members_on '["s1","s3","s4"]'
kill_member s1
run 3 "a repair after the second loss" "$remora" volume repair "$disk"
bytes_are_there
run 0 "export" bash -c "'$remora' volume export '$disk' >'$work/disk.json'"
for name in s3 s4; do kill_member "$name"; done
is "no server is left" eventually registered '[]'
run 4 "a loss that is not sure" "$remora" volume accept-loss "$disk" --timeout 3s
says "what to do" 'forget-unreachable'
for name in s3 s4 s1; do start_member "$name"; done
is "they are back, with other memory" eventually registered '["s1","s3","s4"]'
run 0 "stat" "$remora" volume stat "$disk"
is "the groups are lost" has out 'groups lost: .remora volume accept-loss'
run 0 "accept-loss" "$remora" volume accept-loss "$disk"
is "each group is named" has out '^group 2 is zeros'
run 0 "repair" "$remora" volume repair "$disk"
run 0 "get" "$remora" get --length 4096 "$disk" "$work/zeros"
is "it is zeros" cmp -n 4096 "$work/zeros" /dev/zero
run 0 "put" "$remora" put "$work/in" "$disk"
bytes_are_there
run 0 "rm" "$remora" volume rm "$disk"
run 0 "ls after it" "$remora" volume ls "$cluster" --json
json "it is empty" '.volumes == []'

for name in s1 s3 s4; do
  server=${pid_of[$name]}
  stop_server
  is "$name ends cleanly" same "$status" 0
done

# --- servers with keys: which client creates and reads, also after a repair -----------------------------------
store=$work/keyed.json
cluster=remora+file://$store
disk=$cluster/disk
for name in manager reader; do run 0 "the key of $name" "$remora" key generate "$work/$name.key"; done
manager=(env REMORA_CLIENT=manager "REMORA_KEY_FILE=$work/manager.key" "$remora")
reader=(env REMORA_CLIENT=reader "REMORA_KEY_FILE=$work/reader.key" "$remora")
start_keyed() {
  cat >"$work/$1.yaml" <<YAML
listen: {address: 127.0.0.1, port: 0}
pool: {size: 32MiB, piece: 4MiB, huge_pages: never}
cluster: {server: $1, file: $store}
auth: keys
clients:
  - {name: manager, key_file: manager.key, create: true}
  - {name: reader, key_file: reader.key}
YAML
  start_server "$work/$1.yaml"
  pid_of[$1]=$server
}
# read_back NAME: the reader gets them.
read_back() {
  rm -f "$work/back"
  run 0 "$1" "${reader[@]}" get --length 4194304 "$disk" "$work/back"
  is "it has the bytes" cmp -n 4194304 "$work/in" "$work/back"
}
start_keyed k1
start_keyed k2
is "both are registered" eventually registered '["k1","k2"]'
run 3 "a client that may not create" "${reader[@]}" volume create "$disk" --size 4MiB --group 4MiB --kind mirror:2
run 0 "nothing is half made" "$remora" volume ls "$cluster" --json
json "there is no volume" '.volumes == []'
run 0 "the manager" "${manager[@]}" volume create "$disk" --size 4MiB --group 4MiB --kind mirror:2 --allow reader=read
head -c 4194304 "$work/in" >"$work/part"
run 0 "its put" "${manager[@]}" put "$work/part" "$disk"
read_back "the reader"
is "which may not write" eval '! "${reader[@]}" put "$work/part" "$disk" >"$work/out" 2>"$work/err"'
kill_member k2
start_keyed k3
is "the dead one is gone, and another one is there" eventually registered '["k1","k3"]'
run 0 "the manager repairs" "${manager[@]}" volume repair "$disk" --json
json "all is done" '.left == [] and .members_added == .groups'
read_back "the reader, after the repair"
kill_member k1
is "only the copy that was made is left" eventually registered '["k3"]'
run 0 "the manager claims it" "${manager[@]}" volume release "$disk"
read_back "the reader, from the new copy"
server=${pid_of[k3]}
stop_server
is "k3 ends cleanly" same "$status" 0
finish
