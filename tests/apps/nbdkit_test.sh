#!/usr/bin/env bash
# The plugin of nbdkit, driven by programs that speak NBD: what it offers, what they write and read,
# wrong parameters, and servers that stop for a while, go, or come back with new memory.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

plugin=${REMORA_NBDKIT_PLUGIN:?the file nbdkit-remora-plugin.so}
PATH=/usr/bin:$PATH:/usr/sbin:/sbin  # nbdsh needs the python3 that Debian has libnbd for
for tool in nbdkit nbdinfo nbdcopy nbdsh qemu-img qemu-io mkfs.ext4 debugfs fio; do
  command -v "$tool" >/dev/null || { echo "there is no $tool: ci/setup.sh nbd"; exit 77; }
done
socket=$work/nbd.sock
nbd="nbd+unix:///?socket=$socket"
cd "$work" || exit 1

# start_nbdkit PARAMETER...: in the foreground of a process of its own; its pid in $nbdkit.
start_nbdkit() {
  rm -f "$socket"
  nbdkit --foreground --unix "$socket" "$plugin" "$@" >"$work/nbdkit.log" 2>&1 &
  nbdkit=$!
  pids+=("$nbdkit")
  served() { ended "$nbdkit" || nbdinfo --size "$nbd" >/dev/null 2>&1; }
  eventually served
  if ended "$nbdkit"; then
    echo "not ok - nbdkit did not start"
    sed 's/^/    nbdkit: /' "$work/nbdkit.log"
    exit 1
  fi
}
stop_nbdkit() {
  local ended_with=0
  kill "$nbdkit"
  eventually ended "$nbdkit" || { kill -KILL "$nbdkit"; echo "    nbdkit did not end"; }
  { wait "$nbdkit"; } 2>/dev/null || ended_with=$?
  same "$ended_with" 0
}
logged() { grep -qE -- "$1" "$work/nbdkit.log"; }
# python STATUS NAME: the script on standard input, in nbdsh, connected as `h`.
python() {
  local script
  script=$(cat)
  run "$1" "$2" nbdsh --uri "$nbd" --command "$script"
}
hash_of_region() { "$remora" get "$(uri cache)" - 2>/dev/null | sha256sum; }

# --- wrong parameters -------------------------------------------------------------------------------
# bad NAME PATTERN PARAMETER...: nbdkit ends at once, and says why.
bad() {
  run 1 "$1" nbdkit --foreground --unix "$work/bad.sock" "$plugin" "${@:3}"
  says "$1: it says so" "$2"
}
parameters() {
  local silent="remora://$host:1/cache?transport=$transport"
  bad "no URI" 'uri=remora://HOST/REGION is missing'
  bad "a URI of another kind" 'ftp' ftp://example/x
  bad "an unknown parameter" "unknown parameter 'colour'" "$silent" colour=red
  bad "no requests in flight" 'depth=0: has to be 1 to 65536' "$silent" depth=0
  bad "a depth that is no number" 'depth=many: has to be 1 to 65536' "$silent" depth=many
  bad "too many lanes" 'lanes=9: has to be 1 to 8' "$silent" lanes=9
  bad "a duration without unit" 'deadline=10: is not a duration such as' "$silent" deadline=10
  bad "a deadline that is too long" 'deadline=2h: has to be 1ms to 1h' "$silent" deadline=2h
  bad "a negative duration" 'reconnect-for=-1s: is not a duration' "$silent" reconnect-for=-1s
  bad "a flag that is none" 'maybe' "$silent" readonly=maybe
  bad "a key that is not there" 'nosuch\.key' "$silent" key-file=nosuch.key
  bad "a name that is too long" 'client_name' "$silent" "client=$(printf 'x%.0s' {1..65})"
  bad "no server" 'refused|not found' "$silent"
  if [[ -n ${REMORA_OLDER_LIBRARY:-} ]]; then
    run 1 "an older library" env "LD_PRELOAD=$REMORA_OLDER_LIBRARY" \
      nbdkit --foreground --unix "$work/bad.sock" "$plugin" "$silent"
    says "an older library: it says so" 'libremora\.so\.0 is older'
  fi
  run 0 "nbdkit prints the plugin's version" nbdkit --dump-plugin "$plugin"
  is "it is the library's" has out '^remora_version=[0-9]'
}
# Once is enough, and in an emulated guest every process costs.
[[ $transport == rdma ]] || parameters

start_server
bad "an unknown region" 'nosuch.*unknown region' "$(uri nosuch)"
bad "a claim of a region" 'are for mirrors' "$(uri cache)" steal=true
run 0 "a region that may be read alone" "$remora" create "$(uri frozen)" --size 1MiB --rights read "${mapped[@]}"
bad "and is opened for writing" 'readonly=true asks' "$(uri frozen)"
start_nbdkit "$(uri frozen)" readonly=true
run 0 "it opens with readonly=true" nbdinfo --json --no-content "$nbd"
json "and cannot be written" '.exports[0].is_read_only'
is "nbdkit ends" stop_nbdkit

# --- what it offers ---------------------------------------------------------------------------------
start_nbdkit "$(uri cache)"
run 0 "nbdinfo" nbdinfo --json --no-content "$nbd"
json "size, flags and blocks" '.exports[0] | .["export-size"] == 16777216 and .can_multi_conn and
  .can_flush and .can_fua and .can_zero and .can_cache and (.is_read_only | not) and
  .block_size_minimum == 1 and .block_size_preferred == 4096'
json "region and transport" ".exports[0].description | test(\"cache; $transport\")"
if [[ $transport == rdma ]]; then fast=false; else fast=true; fi
json "fast zeroes where none travel" ".exports[0] | .can_fast_zero == $fast and .can_trim == $fast"

# --- bytes there and back -----------------------------------------------------------------------------
head -c 16777216 /dev/urandom >random
run 0 "nbdcopy of a file" nbdcopy random "$nbd"
is "the region has its bytes" same "$(hash_of_region)" "$(sha256sum <random)"
run 0 "nbdcopy into a file" nbdcopy "$nbd" copy
is "it has the same bytes" cmp random copy

truncate -s 16M disk
mkfs.ext4 -q disk
printf 'a line\n' >line
debugfs -w -R 'write line line' disk >debugfs.out 2>&1
run 0 "qemu-img convert of a file system" qemu-img convert -n -f raw -O raw disk "$nbd"
run 0 "qemu-img compare" qemu-img compare -f raw -F raw disk "$nbd"
run 0 "nbdcopy of the file system" nbdcopy "$nbd" disk.back
run 0 "e2fsck" e2fsck -f -n disk.back
is "its file is there" same "$(debugfs -R 'cat line' disk.back 2>/dev/null)" "a line"

run 0 "qemu-io patterns" qemu-io -f raw -c 'write -P 0xab 4096 12288' -c 'read -P 0xab 4096 12288' \
  -c 'write -z 8192 4096' -c 'read -P 0 8192 4096' -c 'read -P 0xab 12288 4096' \
  -c 'write -P 0x11 100513 1021' -c 'read -P 0x11 100513 1021' -c 'discard 4096 4096' \
  -c 'write -P 0x22 1048576 3145728' -c 'read -P 0x22 1048576 3145728' -c 'flush' "$nbd"
is "they are as written" eval '! has out "verification failed"'
for direction in read write; do
  if [[ $direction == write ]]; then option=(-w); else option=(); fi
  run 0 "qemu-img bench, $direction" qemu-img bench -f raw -t none -c 256 -d 32 -s 4096 "${option[@]}" "$nbd"
  is "it completes" has out '^Run completed in'
done

if [[ $transport == rdma ]]; then verified=256k; else verified=8m; fi  # an emulated guest is slow
for depth in 1 32; do
  run 0 "fio verifies what it has written at depth $depth" fio --name=verify --ioengine=nbd \
    "--uri=$nbd" --rw=randwrite --bs=4k --size="$verified" --iodepth="$depth" --verify=crc32c \
    --verify_fatal=1 --verify_state_save=0 --thread --randrepeat=0
done

python 0 "nbdsh: two connections, flush, FUA, many requests in flight" <<'PYTHON'
other = nbd.NBD()
other.connect_uri(h.get_uri())
h.pwrite(b"first" * 100, 4096)
h.flush()
assert other.pread(500, 4096) == b"first" * 100
other.pwrite(b"second", 5, nbd.CMD_FLAG_FUA)
assert h.pread(6, 5) == b"second"
h.zero(10, 4096)
h.cache(4096, 0)
assert h.pread(15, 4096) == bytes(10) + b"first"
blocks = [nbd.Buffer.from_bytearray(bytearray([i]) * 4096) for i in range(1, 200)]
cookies = [h.aio_pwrite(block, 65536 + i * 4096) for i, block in enumerate(blocks)]
for cookie in cookies:
    while not h.aio_command_completed(cookie):
        h.poll(-1)
for i in range(len(blocks)):
    assert other.pread(4096, 65536 + i * 4096) == bytes([i + 1]) * 4096
PYTHON
is "nbdkit ends" stop_nbdkit
opened() { [[ $("$remora" stat "$(uri cache)" --json | jq .open) == "$1" ]]; }
is "and has closed the region" eventually opened 0

# --- in the background, and with a command --------------------------------------------------------------
run 0 "nbdkit with a command" nbdkit --unix - "$plugin" "$(uri cache)" --run "nbdinfo --size \"\$uri\""
is "it is served" has out '^16777216$'
run 0 "nbdkit in the background" nbdkit --unix "$work/back.sock" --pidfile "$work/pid" "$plugin" "$(uri cache)"
is "it has a process" eventually test -s "$work/pid"
back=$(<"$work/pid")
pids+=("$back")
# A process of init's, which may not collect it.
over() { [[ ! -d /proc/$1 ]] || grep -q '^State:.Z' "/proc/$1/status"; }
run 0 "which serves" nbdinfo --size "nbd+unix:///?socket=$work/back.sock"
kill "$back"
is "and ends" eventually over "$back"

# --- a server that stands still -------------------------------------------------------------------------
# Over shm the server takes no part in a request.
if [[ $transport == tcp ]]; then
  start_nbdkit "$(uri cache)" deadline=500ms reconnect-for=60s
  python 0 "bytes from before" <<<'h.pwrite(b"kept", 16384)'
  kill -STOP "$server"
  timeout 60 nbdsh --uri "$nbd" --command 'h.pwrite(b"late", 8192)' >"$work/late" 2>&1 &
  writer=$!
  pids+=("$writer")
  is "the log says that the server does not answer" eventually logged 'interrupted: '
  run 0 "another client asks for a write, and goes" nbdsh --uri "$nbd" --command '
import os
h.aio_pwrite(b"gone", 16384)
while h.aio_is_processing(): h.poll(100)
os._exit(0)'
  is "nbdkit notices that it has gone" eventually logged 'aborting sleep'
  kill -CONT "$server"
  is "the write is done when the server goes on" wait "$writer"
  run 0 "its bytes" "$remora" read "$(uri cache)" --offset 8192 --length 4
  is "are in the region" has out '^late$'
  is "the log says that it is back" eventually logged 'connected again, with the same memory'
  run 0 "the bytes of the client that has gone" "$remora" read "$(uri cache)" --offset 16384 --length 4
  is "were not written" has out '^kept$'
  is "nbdkit ends" stop_nbdkit
fi

# --- a region that goes, and a server that goes ---------------------------------------------------------
# fails ERRNO: a request fails with it, over a new connection.
fails() {
  timeout 60 nbdsh --uri "$nbd" --command "
import errno
try:
    h.pread(512, 0)
except nbd.Error as error:
    raise SystemExit(0 if error.errnum == errno.$1 else str(error))
raise SystemExit('it was read')" >"$work/out" 2>"$work/err"
}
run 0 "a region that will be removed" "$remora" create "$(uri brief)" --size 1MiB "${mapped[@]}"
start_nbdkit "$(uri brief)"
python 0 "it is served" <<<'h.pwrite(b"brief", 0)'
run 0 "it is removed, with its grants" "$remora" rm "$(uri brief)" --now
is "a read of a region that was removed fails" fails EIO
is "and the next one" fails EIO
is "the log says why" logged 'access refused'
is "nbdkit ends" stop_nbdkit

run 0 "a region that will become smaller" "$remora" create "$(uri shrunk)" --size 8MiB "${mapped[@]}"
start_nbdkit "$(uri shrunk)"
python 0 "it is served to its end" <<<'h.pwrite(b"last", h.get_size() - 4)'
if [[ $transport == shm ]]; then
  run 3 "memory for shm keeps its size" "$remora" resize "$(uri shrunk)" --size 4MiB
  python 0 "and is served as before" <<<'assert h.pread(4, h.get_size() - 4) == b"last"'
else
  run 0 "it becomes smaller" "$remora" resize "$(uri shrunk)" --size 4MiB
  is "a read of what is left of it fails" fails EIO
  is "and the next one" fails EIO
  is "the log says why" logged 'access refused'
  is "nbdkit ends" stop_nbdkit
  start_nbdkit "$(uri shrunk)"
  run 0 "nbdinfo of a new nbdkit" nbdinfo --size "$nbd"
  is "it serves what is left" has out '^4194304$'
fi
is "nbdkit ends" stop_nbdkit

start_nbdkit "$(uri cache)" reconnect-for=20s
stop_server KILL
start_server "$work/server.yaml"
is "new memory is told" eventually logged 'has new memory'
is "a read fails" fails EIO
is "and the next one" fails EIO
is "the log says it once" same "$(grep -c 'has new memory' "$work/nbdkit.log")" 1
is "and has no line for each read" eval '! logged " read: "'
is "nbdkit ends" stop_nbdkit

start_nbdkit "$(uri cache)" reconnect-for=1s
python 0 "the new memory is served by a new nbdkit" <<<'h.pread(512, 0)'
stop_server KILL
is "a server that does not come back is told" eventually logged ': lost: '
is "requests fail" fails ESHUTDOWN
is "nbdkit ends" stop_nbdkit

# --- a key ----------------------------------------------------------------------------------------------
"$remora" key generate "$work/disk.key" >/dev/null
"$remora" key generate "$work/other.key" >/dev/null
{
  small_config | sed -e 's/^auth: none/auth: keys/' \
    -e "s/shm: $shm}/shm: $shm, access: [{client: disk, rights: [read, write]}]}/"
  echo 'clients: [{name: disk, key_file: disk.key}]'
} >"$work/keyed.yaml"
start_server "$work/keyed.yaml"
bad "no key" 'authentication refused' "$(uri cache)" client=disk
bad "another key" 'authentication refused' "$(uri cache)" client=disk key-file=other.key
start_nbdkit "$(uri cache)" client=disk key-file=disk.key
run 0 "the client's key, by a relative name" nbdinfo --size "$nbd"
is "nbdkit ends" stop_nbdkit

stop_server
is "the server ends cleanly" same "$status" 0

# --- a volume over two servers --------------------------------------------------------------------------
if [[ $transport == tcp ]]; then
  cluster=remora+file://$work/cluster.json
  for name in s1 s2; do
    cat >"$work/$name.yaml" <<YAML
listen: {address: 127.0.0.1, port: 0}
pool: {size: 16MiB, piece: 4MiB, huge_pages: never}
cluster: {server: $name, file: $work/cluster.json}
YAML
    start_server "$work/$name.yaml"
    eval "$name=$server"
  done
  both() { "$remora" cluster status "$cluster" --json 2>/dev/null | jq -e '[.servers[].name] == ["s1", "s2"]' >/dev/null; }
  is "both servers are registered" eventually both
  bad "a volume that is not there" 'remora volume ls' "$cluster/disk"
  bad "a cluster without a volume" 'PATH/NAME.json' "$cluster"
  run 0 "a volume" "$remora" volume create "$cluster/disk" --size 8MiB --group 4MiB --stripe 64KiB --width 2
  start_nbdkit "$cluster/disk" reconnect-for=1s
  run 0 "nbdinfo of the volume" nbdinfo --json --no-content "$nbd"
  json "its size and flags" '.exports[0] | .["export-size"] == 8388608 and .can_multi_conn and .can_flush and
    .can_trim and .can_fast_zero and .block_size_preferred == 4096 and (.description | test("volume disk"))'
  head -c 8388608 random >half
  run 0 "nbdcopy into the volume" nbdcopy half "$nbd"
  run 0 "nbdcopy of the volume" nbdcopy "$nbd" copy
  is "it has the same bytes" cmp half copy
  run 0 "get of the volume" "$remora" get --length 8388608 "$cluster/disk" got
  is "the command sees them, too" cmp half got
  run 0 "qemu-io patterns across stripe units" qemu-io -f raw -c 'write -P 0xab 60000 12288' \
    -c 'read -P 0xab 60000 12288' -c 'write -z 65536 4096' -c 'read -P 0 65536 4096' \
    -c 'discard 0 1048576' -c 'read -P 0 0 1048576' -c 'flush' "$nbd"
  is "they are as written" eval '! has out "verification failed"'
  run 0 "fio verifies the volume" fio --name=verify --ioengine=nbd "--uri=$nbd" --rw=randwrite --bs=4k \
    --size=4m --iodepth=32 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --thread --randrepeat=0
  # shellcheck disable=SC2154  # the loop above sets it
  server=$s2
  stop_server KILL
  is "a server that does not come back is told" eventually logged ': lost: '
  is "requests fail, also to the other one" fails ESHUTDOWN
  is "nbdkit ends" stop_nbdkit
  bad "the volume cannot be opened again" 'member s2' "$cluster/disk"
  # shellcheck disable=SC2154
  server=$s1
  stop_server
  is "the other server ends cleanly" same "$status" 0
fi
finish
