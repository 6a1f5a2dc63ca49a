#!/usr/bin/env bash
# put and get of large files: sparse files, several streams, checksums, --resume after an interruption,
# --verify, full disks.
# shellcheck disable=SC2317,SC2119  # functions are called by is and run
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

disk=$work/disk
trap 'umount "$disk" 2>/dev/null; cleanup' EXIT
export REMORA_STATE_DIR=$work/state
small_config | sed -e 's/pool: {size: 64MiB/pool: {size: 192MiB/' -e 's/cache, size: 16MiB/cache, size: 64MiB/' \
  >"$work/transfer.yaml"
start_server "$work/transfer.yaml"
files=$work/files
mkdir "$files"
cd "$files" || exit 1

mebi=1048576
checkpoint=$((16 * mebi)) # what --resume goes on from is a multiple of it
size=$((28 * mebi + 123)) # 113 pieces of 256 KiB
head -c "$size" /dev/urandom >source
sum=$(sha256sum <source | cut -d' ' -f1)
# region_is FILE: the region begins with its bytes.
region_is() { cmp -s "$1" <("$remora" get "$(uri cache)" - --length "$(stat -c %s "$1")" 2>/dev/null); }
journals() { find "$REMORA_STATE_DIR" -type f 2>/dev/null; }
nothing_kept() { same "$(journals)" "" && same "$(find "$files" -name '*.remora-part' -o -name '.*' -type f)" ""; }

# --- sizes ------------------------------------------------------------------------------------------
sizes=(0 1 4095 4096 4097 262143 262144 262145 2097152 2097153 5000123)
[[ $transport == rdma ]] && sizes=(0 1 262145 5000123)
for length in "${sizes[@]}"; do
  head -c "$length" source >part
  for streams in 1 3; do
    # A file of 0 bytes may be one whose size the kernel does not tell: it is read to its end.
    used=$((length == 0 ? 1 : streams))
    run 0 "put of $length bytes, $streams streams" "$remora" put part "$(uri cache)" --offset 5 --streams "$streams" --json
    json "its checksum is that of sha256sum" ".bytes == $length and .streams == $used and .resumed_bytes == 0 and
      .verified == false and .checksum == \"sha256\" and .sha256 == \"$(sha256sum <part | cut -d' ' -f1)\""
    run 0 "get of $length bytes, $streams streams" "$remora" get "$(uri cache)" copy --offset 5 --length "$length" \
      --streams "$streams"
    is "the same bytes" cmp part copy
  done
done
rm part copy

# --- streams ----------------------------------------------------------------------------------------
for streams in 1 2 8; do
  run 0 "put, $streams streams" "$remora" put source "$(uri cache)" --streams "$streams"
  is "its checksum" has out "^sha256 $sum\$"
  run 0 "get, $streams streams" "$remora" get "$(uri cache)" copy --length "$size" --streams "$streams"
  is "its checksum" has out "^sha256 $sum\$"
  is "the same bytes" cmp source copy
done
is "put from a pipe" eval "cat source | '$remora' put - '$(uri cache)' --streams 4 --json >'$work/out' 2>'$work/err'"
json "a pipe is one stream" ".streams == 1 and .bytes == $size and .sha256 == \"$sum\""
is "get into a pipe" eval "'$remora' get '$(uri cache)' - --length $size --streams 4 2>'$work/err' | cmp -s - source"
run 0 "get into a device" "$remora" get "$(uri cache)" /dev/null --length "$size" --json
json "a device is one stream" ".streams == 1 and .sha256 == \"$sum\""
for streams in 0 9 x; do run 2 "--streams $streams is refused" "$remora" put source "$(uri cache)" --streams "$streams"; done

# --- checksums --------------------------------------------------------------------------------------
while read -r algorithm command; do
  wanted=$("$command" <source | cut -d' ' -f1)
  run 0 "put with $algorithm" "$remora" put source "$(uri cache)" --checksum "$algorithm"
  is "it is that of $command" has out "^$algorithm $wanted\$"
  run 0 "get with $algorithm" "$remora" get "$(uri cache)" copy --length "$size" --checksum "$algorithm" --json
  json "it is the same" ".checksum == \"$algorithm\" and .$algorithm == \"$wanted\" and (has(\"none\") | not)"
done <<'LINES'
sha256 sha256sum
sha512 sha512sum
blake2b b2sum
LINES
run 0 "put without a checksum" "$remora" put source "$(uri cache)" --checksum none
is "it prints none" eval "! grep -qE '^(sha256|none)' '$work/out'"
is "the bytes are there" region_is source
run 2 "an unknown checksum" "$remora" put source "$(uri cache)" --checksum md5
says "the known ones are named" "'md5' is no checksum; expected sha256, sha512, blake2b or none"

# --- sparse files -----------------------------------------------------------------------------------
allocated() { echo $(($(stat -c %b "$1") * 512)); }
truncate -s 24M sparse
head -c $mebi source | dd of=sparse conv=notrunc status=none
printf x | dd of=sparse bs=1 seek=$((10 * mebi)) conv=notrunc status=none
head -c 100000 source | dd of=sparse bs=4096 seek=$((15 * mebi / 4096)) conv=notrunc status=none
if (($(allocated sparse) > 8 * mebi)); then
  echo "# sparse files are not tried: this file system has no holes"
else
  for streams in 1 2; do
    run 0 "the region is full" "$remora" put source "$(uri cache)"
    run 0 "put of a sparse file, $streams streams" "$remora" put sparse "$(uri cache)" --streams "$streams" --json
    json "holes are sent as zeroes" ".bytes == 25165824 and .hole_bytes > 20000000 and
      .sha256 == \"$(sha256sum <sparse | cut -d' ' -f1)\""
    is "the region has its zeroes" region_is sparse
    run 0 "get of it" "$remora" get "$(uri cache)" copy --length 24MiB --streams "$streams" --json
    json "zeroes become holes" '.hole_bytes > 20000000'
    is "the same bytes" cmp sparse copy
    is "it takes no more room" test "$(allocated copy)" -le $(($(allocated sparse) + 65536))
  done
  run 0 "get --dense" "$remora" get "$(uri cache)" copy --length 24MiB --dense --json
  json "it has no holes" '.hole_bytes == 0'
  is "it takes all room" test "$(allocated copy)" -ge $((24 * mebi))
  is "a sparse file as standard input" eval "'$remora' put - '$(uri cache)' --json <sparse >'$work/out' 2>'$work/err'"
  json "it is sparse there, too" '.hole_bytes > 20000000'
  is "standard input is read to its end" eval "{ '$remora' put - '$(uri cache)' >/dev/null 2>&1 && cat; } <sparse | cmp -s - /dev/null"
  is "get into a pipe has every byte" eval "'$remora' get '$(uri cache)' - --length 24MiB 2>/dev/null | cmp -s - sparse"
  truncate -s 0 hollow && truncate -s 9M hollow
  run 0 "put of a file that is one hole" "$remora" put hollow "$(uri cache)" --offset 7MiB --json
  json "all of it" '.hole_bytes == 9437184'
  run 0 "get of it" "$remora" get "$(uri cache)" copy --offset 7MiB --length 9MiB
  is "the same bytes" cmp hollow copy
fi

# --- --resume: what it asks for -----------------------------------------------------------------------
run 2 "--resume of standard input" "$remora" put - "$(uri cache)" --resume
says "why" 'resume needs a regular file: standard input'
run 2 "--resume to standard output" "$remora" get "$(uri cache)" - --resume
run 2 "--resume to a device" "$remora" get "$(uri cache)" /dev/null --resume
says "why" 'resume needs a regular file: /dev/null'
run 2 "--resume without a checksum" "$remora" put source "$(uri cache)" --resume --checksum none
says "what to do" 'leave out --checksum none'
run 5 "--resume without a folder" env -u HOME -u XDG_STATE_HOME -u REMORA_STATE_DIR "$remora" put source "$(uri cache)" --resume
says "what is missing" 'neither REMORA_STATE_DIR nor XDG_STATE_HOME nor HOME is set'
run 5 "--resume with a folder that cannot be" env REMORA_STATE_DIR=/proc/self/nosuch "$remora" put source "$(uri cache)" --resume
says "what to do" 'REMORA_STATE_DIR names the folder'
: >empty
run 0 "put --resume of an empty file" "$remora" put empty "$(uri cache)" --resume --json
json "it has stored nothing, and says so" '.bytes == 0 and .resumed_bytes == 0'
run 0 "put --resume that is not interrupted" "$remora" put source "$(uri cache)" --resume --json
json "begins at the first byte" ".resumed_bytes == 0 and .sha256 == \"$sum\""
is "nothing is kept" nothing_kept
run 0 "get --resume that is not interrupted" "$remora" get "$(uri cache)" copy --length "$size" --resume --json
json "begins at the first byte" ".resumed_bytes == 0 and .sha256 == \"$sum\""
is "nothing is kept" nothing_kept

# --- put --resume -------------------------------------------------------------------------------------
run 0 "a region that can be made again" "$remora" create "$(uri box)" --size 48MiB "${mapped[@]}"
# interrupted SIGNAL STEP COMMAND...: the command gets the signal at the step (signal_at.h).
interrupted() {
  local signal=$1 step=$2 code=0
  shift 2
  "$probe" signal "$step" "$(kill -l "$signal")" "$@" >"$work/out" 2>"$work/err" || code=$?
  same "$code" $((128 + $(kill -l "$signal")))
}
# Each piece is a read of 256 KiB. The loader of the program makes some of the 102 reads (of one that uses many
# libraries up to 20): by the others 16 MiB are transferred, and not all.
put_killed() { interrupted "${1:-KILL}" pread:102 "$remora" put source "$(uri box)" --resume --streams 1; }
resumed() {
  run 0 "$1" "$remora" put source "$(uri box)" --resume --json
  json "$1: from where it was" ".resumed_bytes == $checkpoint and .bytes == $size and .sha256 == \"$sum\""
}
anew() {
  run 0 "$1" "$remora" put source "$(uri box)" --resume --json
  json "$1: from the first byte" ".resumed_bytes == 0 and .bytes == $size and .sha256 == \"$(sha256sum <source | cut -d' ' -f1)\""
  is "$1: nothing is kept" nothing_kept
}
box_is_source() { cmp -s source <("$remora" get "$(uri box)" - --length "$size" 2>/dev/null); }

is "put is killed" put_killed
is "it has kept a journal" same "$(journals | wc -l)" 1
resumed "put goes on after kill -9"
is "the region has the file" box_is_source
is "nothing is kept" nothing_kept

is "put gets SIGTERM" put_killed TERM
says "it says from where the next one goes on" "goes on from byte $checkpoint .state in $REMORA_STATE_DIR/.*journal"
resumed "put goes on after SIGTERM"

is "put is killed early" interrupted KILL pread:40 "$remora" put source "$(uri box)" --resume --streams 1
anew "put that was killed before its first checkpoint"
is "put gets SIGTERM early" interrupted TERM pread:40 "$remora" put source "$(uri box)" --resume --streams 1
says "it says so" 'the same command begins at the first byte'
is "nothing is kept" nothing_kept

is "put is killed" put_killed
journal=$(journals)
printf '{"done":33554432,"dig' >>"$journal"
resumed "put goes on where the last line of the journal is torn"
is "put is killed" put_killed
echo 'no journal' >"$(journals)"
anew "put with a journal that is none"
is "put is killed" put_killed
sed -i 's/"digest":"./"digest":"x/' "$(journals)"
anew "put with a journal of other bytes"
says "why" 'begins at the first byte: the first 16777216 bytes of the file are not those'

is "put is killed" put_killed
touch -r source stamp
printf x | dd of=source bs=1 seek=1000 conv=notrunc status=none
touch -r stamp source
anew "put of a file that has changed, with its old time"
says "why" 'note: put source: --resume begins at the first byte: the file has changed since'
is "the region has the new file" box_is_source
sum=$(sha256sum <source | cut -d' ' -f1)

is "put is killed" put_killed
run 0 "the region is removed" "$remora" rm "$(uri box)" --now
run 0 "and made again" "$remora" create "$(uri box)" --size 48MiB "${mapped[@]}"
anew "put into a region that was made again"
says "why" 'the region was removed and created again since'
is "the region has the file" box_is_source

is "put is killed" put_killed
run 0 "put with another checksum" "$remora" put source "$(uri box)" --resume --checksum sha512 --json
json "begins at the first byte" '.resumed_bytes == 0'
says "why" 'checksum is another one'

is "put is killed" put_killed
journal=$(journals)
run 3 "put while another process has the same under way" flock "$journal" "$remora" put source "$(uri box)" --resume
says "why" 'another process has the same transfer under way'
run 0 "put of the same file to another offset" "$remora" put source "$(uri box)" --resume --offset 1MiB --json
json "is another transfer" '.resumed_bytes == 0'
is "the journal of the first one stays" same "$(journals)" "$journal"
rm "$journal"

if [[ $transport != rdma ]]; then
  is "put is killed" put_killed
  stop_server KILL
  start_server "$work/transfer.yaml"
  run 0 "the region of a new server" "$remora" create "$(uri box)" --size 48MiB "${mapped[@]}"
  anew "put to a server that was started again"
  says "why" 'the server has new memory since'
fi

# --- get --resume -------------------------------------------------------------------------------------
run 0 "put" "$remora" put source "$(uri cache)"
get_killed() {
  rm -f copy
  interrupted "${1:-KILL}" pwrite:102 "$remora" get "$(uri cache)" copy --length "$size" --resume --streams 1
}
# get_again NAME BYTES: a get that goes on from there, and has the bytes that the region has.
get_again() {
  run 0 "$1" "$remora" get "$(uri cache)" copy --length "$size" --resume --json
  json "$1: from byte $2" ".resumed_bytes == $2 and .bytes == $size"
  is "$1: the same bytes" cmp copy <("$remora" get "$(uri cache)" - --length "$size" 2>/dev/null)
  is "$1: nothing is kept" nothing_kept
}
is "get is killed" get_killed
is "no file appears" test ! -e copy
is "the partial one stays" test -s copy.remora-part
get_again "get goes on after kill -9" "$checkpoint"
is "it has the file's bytes" cmp source copy
is "get gets SIGTERM" get_killed TERM
says "it says from where the next one goes on" "first $checkpoint bytes are in $files/copy.remora-part|first $checkpoint bytes are in copy.remora-part"
get_again "get goes on after SIGTERM" "$checkpoint"

is "get is killed" get_killed
printf y | dd of=copy.remora-part bs=1 seek=1000 conv=notrunc status=none
get_again "get whose partial file has changed" 0
says "why" 'begins at the first byte: the first 16777216 bytes of the file are not those'
is "get is killed" get_killed
rm copy.remora-part
get_again "get whose partial file is gone" 0
is "get is killed" get_killed
truncate -s 1M hollow # zeroes are not written: of 113 writes 109 are left
run 0 "the region becomes empty behind the checkpoint" "$remora" put hollow "$(uri cache)" --offset 20MiB
get_again "get of a region that has zeroes by now" "$checkpoint"
is "get is killed" get_killed
run 0 "get of another length" "$remora" get "$(uri cache)" copy --length 30MiB --resume --json
json "begins at the first byte" '.resumed_bytes == 0 and .bytes == 31457280'
says "why" 'the length is another one'
echo old >copy
chmod 640 copy
run 0 "get --resume onto a file" "$remora" get "$(uri cache)" copy --length 1MiB --resume
is "its mode stays" same "$(stat -c '%a %s' copy)" "640 $mebi"
ln copy copy.remora-part
run 5 "a partial file with another name" "$remora" get "$(uri cache)" copy --length 1MiB --resume
says "what to do" 'not one that an earlier get has left; remove it'
rm copy.remora-part

# --- full disks -----------------------------------------------------------------------------------------
run 0 "put" "$remora" put source "$(uri cache)"
is "get --resume beyond the limit on file sizes" eval \
  "(ulimit -f 1024; '$remora' get '$(uri cache)' big --resume >'$work/out' 2>'$work/err'); same \$? 5"
says "it says so" 'big: .*File too large'
is "nothing is kept" nothing_kept
mkdir "$disk"
if [[ $(id -u) == 0 ]] && mount -t tmpfs -o size=8m tmpfs "$disk" 2>/dev/null; then
  run 5 "get onto a full disk" "$remora" get "$(uri cache)" "$disk/copy" --length "$size"
  says "it says so" 'disk/copy: .*No space left on device'
  is "nothing is left" same "$(ls -A "$disk")" ""
  mount -o remount,size=24m "$disk"
  run 5 "get --resume onto a full disk" "$remora" get "$(uri cache)" "$disk/copy" --length "$size" --resume --streams 1
  says "it says so, and from where it goes on" "No space left on device.*first $checkpoint bytes are in .*disk/copy.remora-part"
  mount -o remount,size=64m "$disk"
  run 0 "there is room now" "$remora" get "$(uri cache)" "$disk/copy" --length "$size" --resume --json
  json "it goes on" ".resumed_bytes == $checkpoint and .sha256 == \"$sum\""
  is "the same bytes" cmp source "$disk/copy"
  is "nothing is kept" same "$(ls -A "$disk")" copy
  umount "$disk"
else
  echo "# a full disk is not tried: no tmpfs can be mounted here"
fi

# --- --verify -------------------------------------------------------------------------------------------
for streams in 1 2; do
  run 0 "put --verify, $streams streams" "$remora" put source "$(uri cache)" --verify --streams "$streams"
  is "it says so" has out "^verified $size bytes\$"
  run 0 "get --verify, $streams streams" "$remora" get "$(uri cache)" copy --length "$size" --verify --streams "$streams" --json
  json "it says so" '.verified == true'
done
is "put --verify from a pipe" eval "cat source | '$remora' put - '$(uri cache)' --verify --json >'$work/out' 2>'$work/err'"
json "it says so" ".verified == true and .sha256 == \"$sum\""
is "get --verify into a pipe" eval "'$remora' get '$(uri cache)' - --length $size --verify 2>'$work/err' | cmp -s - source"
says "it says so" "^verified $size bytes"
run 0 "--verify without a checksum" "$remora" put source "$(uri cache)" --verify --checksum none
is "--verify of a pipe without a checksum" eval ": | '$remora' put - '$(uri cache)' --verify --checksum none 2>'$work/err'; same \$? 2"
run 2 "--verify of a device without a checksum" "$remora" get "$(uri cache)" /dev/null --verify --checksum none

# changed_meanwhile STEP COMMAND...: the command stands still at the step while a byte of the region
# changes that it has not compared yet. Its status in $code.
place=$((22 * mebi))
changed_meanwhile() {
  local step=$1 tracer pid
  shift
  code=0
  rm -f "$work/pid"
  "$probe" signal "$step" "$(kill -l STOP)" "$@" >"$work/pid" 2>"$work/err" &
  tracer=$!
  pids+=("$tracer")
  eventually test -s "$work/pid" || return 1
  pid=$(head -n 1 "$work/pid")
  pids+=("$pid")
  stopped() { grep -q '^State:.T' "/proc/$pid/status" && grep -q '^TracerPid:.0$' "/proc/$pid/status"; }
  eventually stopped || return 1
  printf '\0' | "$remora" write "$(uri cache)" --offset "$place" || return 1
  kill -CONT "$pid"
  wait "$tracer" || code=$?
}
# The byte that changes is no zero before.
printf x | dd of=source bs=1 seek="$place" conv=notrunc status=none
# 113 reads for the file, and some of the loader; those behind are of the comparison.
is "a byte changes during put --verify" changed_meanwhile pread:132 \
  "$remora" --timeout 60s put source "$(uri cache)" --verify --streams 1
is "it ends with 8" same "$code" 8
says "it names the byte" "put source: verify: byte $place of the file is 0x78, byte $place of region cache is 0x00; another client"
is "put --verify --json" changed_meanwhile pread:132 "$remora" --timeout 60s put source "$(uri cache)" --verify --streams 1 --json
is "the document has the code" eval "tail -n +2 '$work/pid' | jq -e '.error.code == \"different\" and .error.exit_code == 8' >/dev/null"
run 0 "put" "$remora" put source "$(uri cache)"
rm -f copy
is "a byte changes during get --verify" changed_meanwhile pread:40 \
  "$remora" --timeout 60s get "$(uri cache)" copy --length "$size" --verify --streams 1
is "it ends with 8" same "$code" 8
says "it names the byte" "get copy: verify: byte $place of the file is 0x78, byte $place of region cache is 0x00; .*the file was not made"
is "no file appears" test ! -e copy
is "nothing is kept" nothing_kept

cd / || exit 1
stop_server
is "the server ends cleanly" same "$status" 0
is "nothing is left" nothing_left
finish
