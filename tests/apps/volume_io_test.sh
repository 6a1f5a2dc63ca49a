#!/usr/bin/env bash
# What takes a region takes a volume over three servers: put and get with their options, read, write, cas,
# add, bench, stat.
# shellcheck disable=SC2317,SC2119,SC2016  # functions are called by is and run; jq has variables
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

export REMORA_STATE_DIR=$work/state
store=$work/cluster.json
cluster=remora+file://$store
disk=$cluster/disk
box=$cluster/box
servers=()
for name in s1 s2 s3; do
  cat >"$work/$name.yaml" <<YAML
listen: {address: 127.0.0.1, port: 0}
pool: {size: 64MiB, piece: 4MiB, huge_pages: never}
cluster: {server: $name, file: $store, failure_domain: rack-$name}
YAML
  start_server "$work/$name.yaml"
  mv "$work/server.log" "$work/$name.log"
  servers+=("$server")
done
registered() { "$remora" cluster status "$cluster" --json 2>/dev/null | jq -e ".servers | length == $1" >/dev/null; }
is "three servers are registered" eventually registered 3
run 0 "create" "$remora" volume create "$disk" --size 48MiB
run 0 "create another one" "$remora" volume create "$box" --size 48MiB --stripe 64KiB

files=$work/files
mkdir "$files"
cd "$files" || exit 1
mebi=1048576
checkpoint=$((16 * mebi)) # what --resume goes on from is a multiple of it
size=$((40 * mebi + 123))
head -c "$size" /dev/urandom >source
sum=$(sha256sum <source | cut -d' ' -f1)
# volume_is URI FILE: the volume begins with its bytes.
volume_is() { cmp -s "$2" <("$remora" get "$1" - --length "$(stat -c %s "$2")" 2>/dev/null); }
journals() { find "$REMORA_STATE_DIR" -type f 2>/dev/null; }
nothing_kept() { same "$(journals)" "" && same "$(find "$files" -name '*.remora-part' -o -name '.*' -type f)" ""; }

# --- sizes and streams ------------------------------------------------------------------------------
for length in 0 1 4097 262145 1048577 5000123; do
  head -c "$length" source >part
  for streams in 1 3; do
    # A file of 0 bytes may be one whose size the kernel does not tell: it is read to its end.
    used=$((length == 0 ? 1 : streams))
    run 0 "put of $length bytes, $streams streams" "$remora" put part "$box" --offset 1048571 --streams "$streams" --json
    json "its checksum is that of sha256sum" ".bytes == $length and .streams == $used and .resumed_bytes == 0 and
      .transport == \"tcp\" and .verified == false and .sha256 == \"$(sha256sum <part | cut -d' ' -f1)\""
    run 0 "get of $length bytes, $streams streams" "$remora" get "$box" copy --offset 1048571 --length "$length" \
      --streams "$streams"
    is "the same bytes" cmp part copy
  done
done
for streams in 1 2 8; do
  run 0 "put, $streams streams" "$remora" put source "$disk" --streams "$streams"
  is "its checksum" has out "^sha256 $sum\$"
  says "the rest is told" "the volume is larger; 'get' with --length $size fetches these bytes alone"
  run 0 "get, $streams streams" "$remora" get "$disk" copy --length "$size" --streams "$streams" --json
  json "its checksum" ".streams == $streams and .sha256 == \"$sum\""
  is "the same bytes" cmp source copy
done
is "put from a pipe" eval "cat source | '$remora' put - '$disk' --streams 4 --json >'$work/out' 2>'$work/err'"
json "a pipe is one stream" ".streams == 1 and .bytes == $size and .sha256 == \"$sum\""
is "get into a pipe" eval "'$remora' get '$disk' - --length $size --streams 4 2>'$work/err' | cmp -s - source"
run 0 "put with another checksum" "$remora" put source "$disk" --checksum blake2b
is "it is that of b2sum" has out "^blake2b $(b2sum <source | cut -d' ' -f1)\$"
run 0 "get without a checksum" "$remora" get "$disk" copy --length "$size" --checksum none
is "the same bytes" cmp source copy

# --- sparse files -----------------------------------------------------------------------------------
allocated() { echo $(($(stat -c %b "$1") * 512)); }
truncate -s 24M sparse
head -c $mebi source | dd of=sparse conv=notrunc status=none
printf x | dd of=sparse bs=1 seek=$((10 * mebi)) conv=notrunc status=none
if (($(allocated sparse) > 8 * mebi)); then
  echo "# sparse files are not tried: this file system has no holes"
else
  for streams in 1 2; do
    run 0 "the volume is full" "$remora" put source "$disk"
    run 0 "put of a sparse file, $streams streams" "$remora" put sparse "$disk" --streams "$streams" --verify --json
    json "holes are sent as zeroes" ".bytes == 25165824 and .hole_bytes > 20000000 and .verified == true and
      .sha256 == \"$(sha256sum <sparse | cut -d' ' -f1)\""
    is "the volume has its zeroes" volume_is "$disk" sparse
    run 0 "get of it" "$remora" get "$disk" copy --length 24MiB --streams "$streams" --json
    json "zeroes become holes" '.hole_bytes > 20000000'
    is "the same bytes" cmp sparse copy
  done
  run 0 "get --dense" "$remora" get "$disk" copy --length 24MiB --dense --json
  json "it has no holes" '.hole_bytes == 0'
fi

# --- --verify ---------------------------------------------------------------------------------------
run 0 "put --verify" "$remora" put source "$disk" --verify
is "it says so" has out "^verified $size bytes\$"
run 0 "get --verify" "$remora" get "$disk" copy --length "$size" --verify --streams 2 --json
json "it says so" '.verified == true'
is "put --verify from a pipe" eval "cat source | '$remora' put - '$disk' --verify --json >'$work/out' 2>'$work/err'"
json "it says so" ".verified == true and .sha256 == \"$sum\""

# --- --resume ---------------------------------------------------------------------------------------
# interrupted STEP COMMAND...: the command is killed at the step (signal_at.h).
interrupted() {
  local step=$1 code=0
  shift
  "$probe" signal "$step" "$(kill -l KILL)" "$@" >"$work/out" 2>"$work/err" || code=$?
  same "$code" 137
}
# Each piece is a read of 256 KiB. The loader of the program makes some of the 120 reads: by the others
# 16 MiB are transferred, and no 32.
put_killed() { interrupted pread:120 "$remora" put source "$disk" --resume --streams 1; }
run 0 "put --resume that is not interrupted" "$remora" put source "$disk" --resume --json
json "begins at the first byte" ".resumed_bytes == 0 and .sha256 == \"$sum\""
is "nothing is kept" nothing_kept
is "the volume has other bytes" eval "head -c 48MiB /dev/zero | '$remora' put - '$disk' >/dev/null 2>&1"
is "put is killed" put_killed
is "it has kept a journal" same "$(journals | wc -l)" 1
run 0 "put goes on" "$remora" put source "$disk" --resume --json
json "from where it was" ".resumed_bytes == $checkpoint and .bytes == $size and .sha256 == \"$sum\""
is "the volume has the file" volume_is "$disk" source
is "nothing is kept" nothing_kept
is "put is killed" put_killed
run 0 "put to another volume" "$remora" put source "$box" --resume --json
json "is another transfer" '.resumed_bytes == 0'
run 0 "the volume grows" "$remora" volume resize "$disk" --size 60MiB
run 0 "put goes on after that" "$remora" put source "$disk" --resume --json
json "no address has moved" ".resumed_bytes == $checkpoint"
is "the volume has the file" volume_is "$disk" source
is "put is killed" put_killed
run 0 "the volume is removed" "$remora" volume rm "$disk" --now
run 0 "and made again" "$remora" volume create "$disk" --size 48MiB
run 0 "put begins anew" "$remora" put source "$disk" --resume --json
json "at the first byte" ".resumed_bytes == 0 and .sha256 == \"$sum\""
says "why" 'the volume was removed and created again since'
rm -f copy
is "get is killed" interrupted pwrite:120 "$remora" get "$disk" copy --length "$size" --resume --streams 1
is "no file appears" test ! -e copy
run 0 "get goes on" "$remora" get "$disk" copy --length "$size" --resume --json
json "from where it was" ".resumed_bytes == $checkpoint and .sha256 == \"$sum\""
is "the same bytes" cmp source copy
is "nothing is kept" nothing_kept
run 2 "--resume of standard input" "$remora" put - "$disk" --resume
says "why" 'resume needs a regular file: standard input'

# --- read, write, cas, add --------------------------------------------------------------------------
run 0 "write over the end of a stripe unit" "$remora" write "$disk" --offset 1048573 --data stripes
run 0 "read" "$remora" read "$disk" --offset 1048573 --length 7
is "those bytes" same "$(cat "$work/out")" stripes
is "write of standard input" eval "head -c 3000000 source | '$remora' write '$box' --offset 77"
is "read of it" eval "'$remora' read '$box' --offset 77 --length 3000000 | cmp -s - <(head -c 3000000 source)"
is "write of zeroes" eval "head -c 8 /dev/zero | '$remora' write '$disk' --offset 8MiB"
run 0 "add" "$remora" add "$disk" --offset 8MiB 41
run 0 "cas" "$remora" cas "$disk" --offset 8MiB 41 42 --json
json "it is swapped" '.old == 41 and .swapped'
run 1 "cas of another value" "$remora" cas "$disk" --offset 8MiB 41 43

# --- what does not fit ------------------------------------------------------------------------------
run 3 "a file that is too large" "$remora" put source "$disk" --offset 20MiB
says "what there is" "$size bytes do not fit into the .* bytes of volume disk from offset .*; nothing was written"
run 3 "an offset that is too large" "$remora" put source "$disk" --offset 1GiB
says "what there is" 'beyond the end of volume disk, which has 50331648 bytes'
run 3 "a length that is too large" "$remora" get "$disk" copy --length 1GiB
says "what there is" 'more than the 50331648 bytes of volume disk'
is "a stream that is too long" eval "head -c 50MiB /dev/zero | '$remora' put - '$disk' 2>'$work/err'; same \$? 3"
says "what there is" 'there is more than the 50331648 bytes of volume disk from offset 0 can hold'
for command in "put source" "bench" "read --offset 0 --length 1"; do
  # shellcheck disable=SC2086  # words
  run 2 "$command with a cluster" "$remora" $command "$cluster"
  says "what is missing" "names no volume; write '[^/]*//$store/VOLUME'"
done
run 3 "get of a volume that is not there" "$remora" get "$cluster/none" copy
says "what lists them" "remora volume ls"
run 3 "bench of a volume that is not there" "$remora" bench "$cluster/none"

# --- bench ------------------------------------------------------------------------------------------
# bench NAME OPTIONS...: a short run that succeeds, as JSON.
bench() {
  local name=$1
  shift
  run 0 "$name" "$remora" bench "$disk" --seconds 0.3 --warmup 0.05 --json "$@"
}
agrees='def sane: .operations > 0 and .errors == {} and .operations_per_second > 0 and .bytes > 0 and
    .latency_ns.p50 > 0 and .latency_ns.p50 <= .latency_ns.p99 and .latency_ns.p99 <= .latency_ns.max;
  def agrees: sane and .cpu_ns_per_operation > 0 and ([.by_op[] | sane] | all) and
    ([.by_op[].operations] | add) == .operations and ([.by_op[].bytes] | add) == .bytes;'
for op in read write cas add; do
  bench "bench $op" --op "$op" --threads 2 --depth 8
  json "bench $op measures" "$agrees agrees and (.results | length) == 1 and .op == \"$op\" and
    .transport == \"tcp\" and .lanes == 1 and .depth == 8 and .threads == 2"
done
bench "blocks over several stripe units" --op read:1,write:1 --size 3MiB --depth 4 --sequential --batch 2
json "all bytes are counted" "$agrees agrees and .bytes == .operations * 3145728"
bench "several lanes" --lanes 2 --threads 2
json "so many" "$agrees agrees and .lanes == 2"
bench "a sweep" --op read:1,write:1 --size 64B,4KiB --depth 1,4
json "each size at each depth" "$agrees [.results[] | [.size_bytes, .depth]] ==
  [[64, 1], [64, 4], [4096, 1], [4096, 4]] and ([.results[] | agrees] | all)"
is "a word is zero" eval "head -c 8 /dev/zero | '$remora' write '$disk' --offset 3MiB"
bench "additions to one word" --op add --offset 3MiB --length 8
counted=$(jq .operations "$work/out")
run 0 "the word" "$remora" add "$disk" --offset 3MiB 0
is "each of them took effect" test "$(cat "$work/out")" -ge "$counted"
run 0 "a table" "$remora" bench "$disk" --seconds 0.2 --warmup 0 --seed 7
is "the conditions" has out '^random read over tcp, 1 thread, 0.2 s, spin 50us, seed 7$'
run 3 "blocks larger than the volume" "$remora" bench "$disk" --size 64MiB --seconds 0.1
says "before anything is measured" 'do not fit into volume disk of 50331648 bytes'
run 2 "more in flight than a volume has room for" "$remora" bench "$disk" --depth 65536 --size 8B --seconds 0.1
run 0 "bench with metrics" "$remora" bench "$disk" --seconds 0.1 --metrics "$client_metrics"
says "they are served" "metrics at http://$client_metrics/metrics"

# --- stat -------------------------------------------------------------------------------------------
run 0 "stat" "$remora" stat "$disk" --json
json "the volume, its groups and servers" '.name == "disk" and .kind == "striped" and .size_bytes == 50331648 and
  .groups == 3 and .groups_lost == 0 and (.members | length) == 3 and ([.servers[].groups] | add) == 3 and
  ([.servers[] | .state == "ok" and .pool_bytes == 67108864 and .pool_free_bytes < .pool_bytes and
    .failure_domain == "rack-" + .name and (.addresses | length) == 1] | all) and
  .cluster_free_bytes >= ([.servers[].pool_free_bytes] | add)'
cp "$work/out" "$work/stat"
run 0 "volume stat" "$remora" volume stat "$disk" --json
json "says the same of the members" ".members == $(jq -c .members "$work/stat")"
run 0 "stat for people" "$remora" stat "$disk"
is "the volume" has out '^volume disk: 48MiB striped over 3 groups'
is "its servers" has out '^s2 +rack-s2 +1 +[0-9.]+ MiB +[0-9.]+ [KM]iB +ok$'
is "the end" has out '^3 groups, all can be read; .* free on 3 servers$'
run 0 "stat of the cluster" "$remora" stat "$cluster" --json
json "its servers and volumes" '(.servers | length) == 3 and .volumes == 2'
run 3 "stat of a volume that is not there" "$remora" stat "$cluster/none"
run 2 "stat of a URI that is none" "$remora" stat "remora+file://cluster.json/disk"
says "the forms are named" 'remora\+file://'

# --- without a server -------------------------------------------------------------------------------
server=${servers[2]}
stop_server
is "two servers are registered" eventually registered 2
run 0 "stat without the third" "$remora" stat "$disk" --json
json "it is missed" '.groups_lost == 1 and (.servers[] | select(.name == "s3") | .state == "not registered" and
  (has("pool_bytes") | not)) and ([.servers[] | select(.name != "s3") | .state == "ok"] | all)'
run 0 "stat for people" "$remora" stat "$disk"
is "it says so" has out '^s3 +- +1 +- +- +not registered$'
is "and what that means" has out '^3 groups, 1 cannot be read; .* free on 2 servers$'
run 4 "bench without the third" "$remora" bench "$disk" --seconds 0.1
says "the member is named" 'disk, group [0-9], member s3'
run 4 "put without the third" "$remora" put source "$disk"
says "the file and the member are named" 'put source: .*disk, group [0-9], member s3'

cd / || exit 1
for server in "${servers[@]:0:2}"; do
  stop_server
  is "the server ends cleanly" same "$status" 0
done
finish
