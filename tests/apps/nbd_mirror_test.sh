#!/usr/bin/env bash
# A mirror as a block device: its claim, a file system that is written while one of its two servers is
# killed, copies that are made anew, and another client that takes the claim.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

plugin=${REMORA_NBDKIT_PLUGIN:?the file nbdkit-remora-plugin.so}
PATH=/usr/bin:$PATH:/usr/sbin:/sbin  # nbdsh needs the python3 that Debian has libnbd for
for tool in nbdkit nbdinfo nbdcopy nbdsh mkfs.ext4 e2fsck debugfs; do
  command -v "$tool" >/dev/null || { echo "there is no $tool: ci/setup.sh nbd"; exit 77; }
done
socket=$work/nbd.sock
nbd="nbd+unix:///?socket=$socket"
cluster=remora+file://$work/cluster.json
disk=$cluster/disk
cd "$work" || exit 1

declare -A pid_of
start_member() {
  cat >"$work/$1.yaml" <<YAML
listen: {address: 127.0.0.1, port: 0}
transports: {rdma: off, shm: off, tcp: required}
pool: {size: 32MiB, piece: 4MiB, huge_pages: never}
cluster: {server: $1, file: $work/cluster.json}
YAML
  start_server "$work/$1.yaml"
  pid_of[$1]=$server
}
start_member s1
start_member s2
both() { "$remora" cluster status "$cluster" --json 2>/dev/null | jq -e '[.servers[].name] == ["s1", "s2"]' >/dev/null; }
is "both servers are registered" eventually both
run 0 "a mirror" "$remora" volume create "$disk" --size 16MiB --group 8MiB --width 2 --kind mirror:2

# start_nbdkit PARAMETER...: in the foreground of a process of its own; its pid in $nbdkit.
start_nbdkit() {
  rm -f "$socket"
  nbdkit --foreground --unix "$socket" "$plugin" "$disk" "$@" >"$work/nbdkit.log" 2>&1 &
  nbdkit=$!
  pids+=("$nbdkit")
  served() { ended "$nbdkit" || nbdinfo --size "$nbd" >/dev/null 2>&1; }
  eventually served
  ended "$nbdkit" || return 0
  echo "not ok - nbdkit did not start"
  sed 's/^/    nbdkit: /' "$work/nbdkit.log"
  exit 1
}
stop_nbdkit() {
  local ended_with=0
  kill "$nbdkit"
  eventually ended "$nbdkit" || { kill -KILL "$nbdkit"; echo "    nbdkit did not end"; }
  { wait "$nbdkit"; } 2>/dev/null || ended_with=$?
  same "$ended_with" 0
}
logged() { grep -qE -- "$1" "$work/nbdkit.log"; }
times_logged() { grep -cE -- "$1" "$work/nbdkit.log"; }
# Up to 40 s: a dead server stays registered for ten, and nbdkit tries it again for ten.
patiently() { eventually "$@" || eventually "$@"; }
# bad NAME PATTERN PARAMETER...: nbdkit ends at once, and says why.
bad() {
  run 1 "$1" nbdkit --foreground --unix "$work/bad.sock" "$plugin" "$disk" "${@:3}"
  says "$1: it says so" "$2"
}
# claim_it OPTION...: another client has the claim from then on; its pid in $claim.
claim_it() {
  rm -f "$work/claim.json"
  "$remora" volume claim "$disk" --json "$@" >"$work/claim.json" 2>"$work/claim.err" &
  claim=$!
  pids+=("$claim")
  eventually test -s "$work/claim.json"
}
end_claim() {
  kill -INT "$claim"
  eventually ended "$claim"
}
writer_is() { [[ $("$remora" volume stat "$disk" --json | jq -r .writer) == "$1" ]]; }

# --- the claim --------------------------------------------------------------------------------------
bad "a reader with a claim" 'readonly=true claims nothing' readonly=true steal=true
bad "an exclusive reader" 'readonly=true claims nothing' readonly=true exclusive=yes
bad "a reader that repairs" 'readonly=true claims nothing' readonly=true repair-bandwidth=1M
bad "a limit of nothing" 'repair-bandwidth= is the limit of repair=true' repair=false repair-bandwidth=1M
bad "no bandwidth" 'repair-bandwidth=0: has to be at least 1' repair-bandwidth=0
is "another client has the claim" claim_it
bad "a claim that is held" "$(jq -r .writer "$work/claim.json").*steal=true takes the claim, readonly=true needs none"
start_nbdkit readonly=true
run 0 "it opens with readonly=true" nbdinfo --json "$nbd"
json "and cannot be written, by any number of connections" \
  '.exports[0] | .is_read_only and .can_multi_conn and (.description | test("mirror disk; 2 copies"))'
is "the claim stays" writer_is "$(jq -r .writer "$work/claim.json")"
is "nbdkit ends" stop_nbdkit
is "the other client ends" end_claim

# --- a file system, and a server that is killed -----------------------------------------------------
truncate -s 16M image
mkfs.ext4 -q image
printf 'a line\n' >line
debugfs -w -R 'write line line' image >debugfs.out 2>&1
start_nbdkit exclusive=true repair=false
bad "a second nbdkit" 'steal=true takes the claim'
run 0 "nbdinfo" nbdinfo --json --no-content "$nbd"
json "size and flags" '.exports[0] | .["export-size"] == 16777216 and .can_multi_conn and
  .can_flush and .can_fua and (.is_read_only | not) and .block_size_preferred == 4096'
json "over tcp no zeroes travel" '.exports[0] | .can_trim and .can_fast_zero'
# Writes are in flight when the server ends, and come after it.
script=$(cat <<'PYTHON'
import os
image = open("image", "rb").read()
PART = 64 * 1024
def write(parts):
    cookies = [h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(image[n * PART:(n + 1) * PART])),
                            n * PART) for n in parts]
    for cookie in cookies:
        while not h.aio_command_completed(cookie):
            h.poll(-1)
parts = range(len(image) // PART)
write(parts)
open("written", "w").close()
while not os.path.exists("killed"):
    write(parts)
write(parts)
h.flush()
PYTHON
)
timeout 120 nbdsh --uri "$nbd" --command "$script" >"$work/write.out" 2>&1 &
writer=$!
pids+=("$writer")
written() { [[ -e written ]] || ended "$writer"; }
is "the file system is written" eventually written
{ kill -KILL "${pid_of[s2]}" && wait "${pid_of[s2]}"; } 2>/dev/null
touch killed
is "and again without a server" wait "$writer"
is "the log says that copies are gone" logged 'the mirror goes on without copies: .* on s2: '
is "once" same "$(grep -c 'goes on without copies' "$work/nbdkit.log")" 1
is "and no request has failed" eval '! logged "every request fails"'
run 0 "nbdcopy of the file system" nbdcopy "$nbd" copy
is "it has the same bytes" cmp image copy
run 0 "e2fsck" e2fsck -f -n copy
is "its file is there" same "$(debugfs -R 'cat line' copy 2>/dev/null)" "a line"
is "nbdkit ends without s2" stop_nbdkit

# --- copies that are made anew ----------------------------------------------------------------------
start_nbdkit exclusive=true repair-bandwidth=64M
degraded='disk: claimed, but copies are missing, in 2 of its 2 groups'
is "the log says that copies are missing at the start" eventually logged "$degraded"
is "once" same "$(times_logged "$degraded")" 1
is "and that no server has room" patiently logged 'disk: copies are missing, and are made as .*: no server has'
start_member s3
is "copies are made on a server that comes" patiently logged 'disk: all its copies are there again: 2 made, 16 MiB'
is "the log says when they began" same "$(times_logged 'disk: missing copies are made anew')" 1
is "and once what was in the way" same "$(times_logged 'disk: copies are missing, and are made')" 1
run 0 "stat" "$remora" volume stat "$disk" --json
json "each group has its copies" 'all(.group_states[]; .state == "ok") and
  ([.members[].server] | sort == ["s1", "s1", "s3", "s3"])'
run 0 "nbdcopy beside new copies" nbdcopy "$nbd" beside
is "it has the same bytes" cmp image beside

# --- a writer that is replaced ----------------------------------------------------------------------
# fails ERRNO...: a request fails with one of them, over a new connection.
fails() {
  timeout 60 nbdsh --uri "$nbd" --command "
import errno
try:
    h.$1(512 if '$1' == 'pread' else bytes(512), 0)
except nbd.Error as error:
    raise SystemExit(0 if errno.errorcode[error.errnum] in '${*:2}'.split() else str(error))
raise SystemExit('it was carried out')" >"$work/out" 2>"$work/err"
}
is "another client takes the claim" claim_it --steal
is "a write fails" fails pwrite EIO ESHUTDOWN
is "the log says why" eventually logged 'another client has claimed the mirror disk'
is "and a read" fails pread ESHUTDOWN
is "and a write for ever" fails pwrite ESHUTDOWN
is "the log says it once" same "$(grep -c 'another client has claimed the mirror' "$work/nbdkit.log")" 1
is "nbdkit ends" stop_nbdkit
is "the claim is that of the other client" writer_is "$(jq -r .writer "$work/claim.json")"
start_nbdkit steal=true
is "the other client ends" eventually ended "$claim"
run 0 "nbdcopy with the claim of the other client" nbdcopy "$nbd" again
is "it has the same bytes" cmp image again
is "nbdkit ends" stop_nbdkit
is "it has released the mirror" writer_is ""

server=${pid_of[s1]}
stop_server
is "the other server ends cleanly" same "$status" 0
finish
