#!/usr/bin/env bash
# Every subcommand of remora against a running server.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

start_server

# --- the command line itself --------------------------------------------------------------------
command_line() {
  run 0 "version" "$remora" version
  is "version is a number" has out '^remora [0-9]+\.[0-9]+\.[0-9]+$'
  run 0 "version as JSON" "$remora" version --json
  json "JSON has the version" '.version | test("^[0-9.]+$")'
  run 0 "help goes to stdout" "$remora" --help
  is "help lists commands" has out '^  bench '
  run 0 "help of a command" "$remora" put --help
  run 0 "server's version" "$bin/remora-server" --version
  run 2 "no command" "$remora"
  is "it shows the commands there are" has out '^  bench '
  says "and says what is missing" '^remora: .*remora --help'
  run 2 "no command, but an option" "$remora" --timeout 1s
  is "it shows them, too" has out '^  bench '
  run 2 "no command, for a script" "$remora" --json
  json "it gets one document" '.error | type == "object"'
  run 2 "a word that names no command" "$remora" frobnicate
  is "it is not answered with all of the help" same "$(cat "$work/out")" ""
  run 2 "unknown command" "$remora" frobnicate
  run 2 "unknown option" "$remora" ls "$(uri)" --frobnicate
  says "unknown option is named" '^remora: .*frobnicate'
  run 2 "mistyped option" "$remora" create "$(uri x)" --sise 1MiB
  says "it comes before what is missing, with the nearest one" \
    '^remora: unknown option --sise; did you mean --size\? .*remora create --help'
  run 2 "mistyped option that leaves its value to another" "$remora" create --sise=1MiB
  says "it is named without its value" 'unknown option --sise; did you mean --size'
  run 2 "mistyped global option" "$remora" --jsn ls "$(uri)"
  says "global options are suggested too" '--jsn; did you mean --json'
  run 2 "mistyped command" "$remora" creat "$(uri x)" --size 1MiB
  says "the nearest command" "unknown command 'creat'; did you mean 'create'"
  run 2 "mistyped command of a command" "$remora" config chek "$work/x.yaml"
  says "the nearest of its commands" "'chek'; did you mean 'check'\? 'remora config --help"
  run 2 "one argument too many" "$remora" put a b c
  says "it is named" "unexpected argument 'c'.*remora put --help"
  run 2 "mistyped option of the server" "$bin/remora-server" --conig x
  says "the server suggests, too" '^remora-server: unknown option --conig; did you mean --config'
  run 2 "what is missing" "$remora" create "$(uri x)"
  says "what is missing is named" '^remora: --size is required; .remora create --help'
  run 2 "usage error as JSON" "$remora" create "$(uri x)" --sise 1MiB --json
  json "its JSON is that of other errors" \
    '.error | .code == "usage" and .exit_code == 2 and (.message | test("--sise"))'
  run 2 "missing command as JSON" "$remora" --json
  json "its JSON" '.error.code == "usage"'
  run 2 "size with a wrong unit" "$remora" create "$(uri x)" --size 1GB
  says "wrong unit is explained" 'remora: --size: .*GiB'
  run 2 "negative size" "$remora" read "$(uri cache)" --offset -5 --length 1
  run 2 "URI of another scheme" "$remora" ls http://localhost
  says "URI is explained" 'remora://HOST'
  run 2 "URI without a region" "$remora" rm "$(uri)"
  run 2 "URI with a region for ls" "$remora" ls "$(uri cache)"
  run 2 "unknown transport" "$remora" ls "remora://$host:$port?transport=pigeon"
  says "transports are listed" 'URI transport: pigeon: .*rdma, shm, tcp or auto'
  run 2 "mistyped URI option" "$remora" ls "remora://$host:$port?trasport=shm"
  says "the option is named" 'URI option: trasport=shm: .*transport=shm'
  run 2 "one slash" "$remora" ls "remora:/$host/x"
  says "the scheme is explained" 'URI scheme: remora:/.*a URI is remora://HOST'
  run 2 "port out of range" "$remora" ls "remora://$host:99999/x"
  says "the port is explained" 'URI port: 99999: .*1 to 65535'
  run 2 "no region where one is wanted" "$remora" rm "remora://$host/?transport=shm"
  says "it shows where the region goes" "names no region; write 'remora://$host/REGION\?transport=shm'"
  run 2 "bad character" "$remora" rm "remora://$host/a b"
  says "the region is explained" 'URI region: a b: .*A-Z a-z 0-9'
}
# Over one transport is enough, and in an emulated guest every process costs.
[[ $transport == rdma ]] || command_line

# --- regions as things --------------------------------------------------------------------------
run 0 "ls" "$remora" ls "$(uri)"
is "ls shows the configured region" has out '^cache +16MiB +4KiB'
run 0 "ls as JSON" "$remora" ls "$(uri)" --json
json "ls JSON" '.regions | length == 1 and .[0].name == "cache" and .[0].size_bytes == 16777216'
json "ls JSON tells of the pool" '.server.pool_bytes == 67108864'
run 0 "create" "$remora" create "$(uri box)" --size 4MiB --block 64KiB "${mapped[@]}"
run 3 "create twice" "$remora" create "$(uri box)" --size 4MiB
says "create twice says so" 'box: already exists'
run 2 "create of a size that is no multiple" "$remora" create "$(uri odd)" --size 5KiB
run 2 "create with unknown rights" "$remora" create "$(uri odd)" --size 4KiB --rights read,fly
run 5 "create more than the pool has" "$remora" create "$(uri huge)" --size 1GiB
says "what to do about the pool" "pool has no room.*remora rm.*pool\.size"
run 3 "create with atomics of an unknown device" "$remora" create "$(uri odd)" --size 4KiB --atomics nosuch0
says "what an atomic domain is" 'nosuch0.*no device of that name.*auto, none, cpu'
run 0 "create without --shm" "$remora" create "$(uri remote)" --size 64KiB
if [[ $transport == shm ]]; then
  says "a region that no client can open is warned of" 'warning: no client can open remote'
else
  is "no warning where rdma is offered" test ! -s "$work/err"
fi
run 0 "rm" "$remora" rm "$(uri remote)"
run 0 "create with the atomic domain none" "$remora" create "$(uri bare)" --size 64KiB --atomics none \
  "${mapped[@]}"
run 3 "atomic where there are none" "$remora" add "$(uri bare)" --offset 0 1
says "what to do about atomics" 'created without atomics.*--atomics auto'
run 0 "rm again" "$remora" rm "$(uri bare)"
run 0 "create read-only" "$remora" create "$(uri readonly)" --size 64KiB --rights read "${mapped[@]}"
run 0 "create without atomics" "$remora" create "$(uri plain)" --size 64KiB --atomics none \
  --rights read,write "${mapped[@]}"
run 0 "stat" "$remora" stat "$(uri box)"
is "stat shows the size" has out '^size +4MiB \(4194304 bytes\)$'
run 0 "stat as JSON" "$remora" stat "$(uri box)" --json
json "stat JSON" '.block_bytes == 65536 and .rights == "read,write,atomic" and .open == 0'
run 0 "stat of the server" "$remora" stat "$(uri)" --json
json "stat of the server tells the transport" ".transport == \"$transport\""
json "and what it offers" ".transports == [\"$transport\"]"
run 3 "stat of an unknown region" "$remora" stat "$(uri nosuch)"
says "unknown region is named, with a remedy" "^remora: .*nosuch.*unknown region.*remora ls"
run 3 "an error as JSON" "$remora" stat "$(uri nosuch)" --json
json "error JSON" '.error.code == "unknown region" and .error.exit_code == 3'

# --- whole files --------------------------------------------------------------------------------
head -c 5000123 /dev/urandom >"$work/file"
sum=$(sha256sum <"$work/file" | cut -d' ' -f1)
run 0 "put" "$remora" put "$work/file" "$(uri cache)"
is "put prints bytes and SHA-256" has out "^sha256 $sum\$"
says "put says how to get these bytes back" '^remora: note: .*--length 5000123 '
run 0 "get" "$remora" get "$(uri cache)" "$work/copy" --length 5000123B
is "get gives the same bytes" cmp -s "$work/file" "$work/copy"
is "get --length has nothing to note" test ! -s "$work/err"
is "get prints the same SHA-256" has out "^sha256 $sum\$"
run 0 "put as JSON" "$remora" put "$work/file" "$(uri cache)" --offset 1MiB --json
json "put JSON" ".bytes == 5000123 and .sha256 == \"$sum\""
is "put from a pipe" eval "head -c 3000001 '$work/file' | '$remora' put - '$(uri cache)' --offset 7 >'$work/out'"
is "get to a pipe" eval "'$remora' get '$(uri cache)' - --offset 7 --length 3000001 2>'$work/err' |
  cmp -s - <(head -c 3000001 '$work/file')"
says "get - reports on stderr" '^sha256 '
run 2 "get - and --json" "$remora" get "$(uri cache)" - --json
run 0 "get all of it" "$remora" get "$(uri cache)" "$work/whole"
says "get all says that it is all" '^remora: note: .*all of the region'
is "get all has the region's size" same "$(stat -c %s "$work/whole")" 16777216
: >"$work/empty"
run 0 "put an empty file" "$remora" put "$work/empty" "$(uri cache)"
run 0 "get nothing" "$remora" get "$(uri cache)" "$work/nothing" --length 0
is "get nothing makes an empty file" same "$(stat -c %s "$work/nothing")" 0
chmod 640 "$work/copy"
ln -s copy "$work/link"
run 0 "get over an existing file, through a link" "$remora" get "$(uri cache)" "$work/link" --length 10
is "the link stays one" test -L "$work/link"
is "the mode stays" same "$(stat -c '%a %s' "$work/copy")" "640 10"
is "no temporary file stays" same "$(find "$work" -name '.*.??????' | wc -l)" 0

# --- a few bytes --------------------------------------------------------------------------------
run 0 "write --data" "$remora" write "$(uri box)" --offset 100 --data hello
run 0 "read" "$remora" read "$(uri box)" --offset 100 --length 5
is "read gives what was written" same "$(cat "$work/out")" hello
run 0 "read --hex" "$remora" read "$(uri box)" --offset 100 --length 20 --hex
is "hex dump" has out '^00000064: 6865 6c6c 6f00 0000 0000 0000 0000 0000  hello\.{11}$'
is "hex dump's last line is short" has out '^00000074: 0000 0000 +\.{4}$'
run 0 "read as JSON" "$remora" read "$(uri box)" --offset 100 --length 5 --json
json "read JSON" '.hex == "68656c6c6f"'
is "write from stdin" eval "printf 'abcdef' | '$remora' write '$(uri box)' --offset 4KiB --length 3"
run 0 "read it" "$remora" read "$(uri box)" --offset 4KiB --length 4
is "write --length takes no more" same "$(tr '\0' . <"$work/out")" abc.
run 2 "write with too little input" "$remora" write "$(uri box)" --offset 0 --length 10
run 2 "write with too little data" "$remora" write "$(uri box)" --offset 0 --length 10 --data abc
run 3 "write beyond the end" "$remora" write "$(uri box)" --offset 4194303 --data ab
says "range is explained" 'beyond the 4194304 bytes of region box'
run 3 "read beyond the end" "$remora" read "$(uri box)" --offset 4MiB --length 1
run 0 "read the last byte" "$remora" read "$(uri box)" --offset 4194303 --length 1
run 3 "write to a read-only region" "$remora" write "$(uri readonly)" --offset 0 --data x
says "what to do about rights" 'readonly: no right; .*remora stat'

# --- atomics ------------------------------------------------------------------------------------
run 0 "add" "$remora" add "$(uri box)" --offset 8 5
is "add prints the old value" same "$(cat "$work/out")" 0
run 0 "add a negative number" "$remora" add "$(uri box)" --offset 8 -1
is "add prints the old value again" same "$(cat "$work/out")" 5
run 0 "cas that swaps" "$remora" cas "$(uri box)" --offset 8 4 0xffffffffffffffff
is "cas prints the old value" same "$(cat "$work/out")" 4
run 1 "cas that does not swap" "$remora" cas "$(uri box)" --offset 8 4 7
is "cas prints what stands there" same "$(cat "$work/out")" 18446744073709551615
run 1 "cas as JSON" "$remora" cas "$(uri box)" --offset 8 4 7 --json
json "cas JSON" '.swapped == false and .old_hex == "0xffffffffffffffff"'
run 0 "add as JSON" "$remora" add "$(uri box)" --offset 8 1 --json
run 0 "add wraps" "$remora" add "$(uri box)" --offset 8 0
is "it wrapped" same "$(cat "$work/out")" 0
run 2 "add of a word that is no number" "$remora" add "$(uri box)" --offset 8 five
run 3 "misaligned atomic" "$remora" add "$(uri box)" --offset 4 1
says "what an atomic's offset must be" 'misaligned; .*multiple of 8'
run 3 "atomic beyond the end" "$remora" add "$(uri box)" --offset 4MiB 1
run 3 "atomic on a region without" "$remora" add "$(uri plain)" --offset 0 1

clients=()
for _ in 1 2 3 4; do
  (for _ in {1..5}; do "$remora" add "$(uri box)" --offset 16 3 >/dev/null || exit 1; done) &
  clients+=($!)
done
counted=yes
for pid in "${clients[@]}"; do wait "$pid" || counted=no; done
is "four clients add at once" same "$counted" yes
run 0 "their sum" "$remora" add "$(uri box)" --offset 16 0
is "no update was lost" same "$(cat "$work/out")" 60

# --- removal ------------------------------------------------------------------------------------
mkfifo "$work/silent"
exec 5<>"$work/silent"
printf start >&5
"$remora" put - "$(uri box)" <"$work/silent" >/dev/null 2>&1 &
holder=$!
pids+=("$holder")
opened() { [[ $("$remora" stat "$(uri box)" --json | jq .open) == 1 ]]; }
is "an open region is counted" eventually opened
run 3 "rm of an open region" "$remora" rm "$(uri box)"
says "it is busy" 'busy'
kill -TERM "$holder"
exec 5>&-
wait "$holder"
is "SIGTERM ends put" same $? 143
closed() { "$remora" rm "$(uri box)" >"$work/out" 2>"$work/err"; }
is "rm once it is closed" eventually closed
run 3 "rm again" "$remora" rm "$(uri box)"
run 0 "create anew" "$remora" create "$(uri box)" --size 4MiB "${mapped[@]}"
run 0 "read anew" "$remora" read "$(uri box)" --offset 100 --length 5 --json
json "what was there is gone" '.hex == "0000000000"'

exec 5<>"$work/silent"
printf start >&5
"$remora" put - "$(uri box)" <"$work/silent" >/dev/null 2>"$work/put.err" &
holder=$!
pids+=("$holder")
is "it is open again" eventually opened
if [[ ${#mapped[@]} -gt 0 ]]; then
  run 3 "resize of memory for shm" "$remora" resize "$(uri box)" --size 8MiB
else
  run 0 "resize" "$remora" resize "$(uri box)" --size 8MiB --json
  json "it has that size" '.size_bytes == 8388608'
fi
run 2 "resize to nothing" "$remora" resize "$(uri box)"
run 3 "resize of what is not there" "$remora" resize "$(uri nowhere)" --size 8MiB
run 2 "two kinds of removal" "$remora" rm "$(uri box)" --now --when-unused
run 0 "rm --now of an open region" "$remora" rm "$(uri box)" --now
run 3 "it is gone" "$remora" stat "$(uri box)"
kill -TERM "$holder"
exec 5>&-
wait "$holder"
is "its holder can be ended" same $? 143
run 0 "create with a ttl" "$remora" create "$(uri brief)" --size 1MiB --ttl 500ms "${mapped[@]}" --json
json "it is said" '.lifetime == "ttl" and .ttl_seconds == 0.5'
gone() { ! "$remora" stat "$(uri brief)" >"$work/out" 2>"$work/err"; }
is "it goes by itself" eventually gone

# --- sessions, drain, ping ------------------------------------------------------------------------
run 0 "ping" "$remora" ping "$(uri)" --count 3 --interval 1ms
is "three answers and their sum" same "$(grep -cE "^answer [123] over $transport: " "$work/out") $(grep -c '^3 answers: shortest ' "$work/out")" "3 1"
run 0 "ping as JSON" "$remora" ping "$(uri)" --count 2 --interval 1ms --json
json "times" '(.answers | length) == 2 and .shortest_seconds > 0 and .shortest_seconds <= .mean_seconds'
run 2 "ping of a region" "$remora" ping "$(uri cache)"
run 2 "ping of nothing" "$remora" ping "$(uri)" --count 0
run 4 "ping of a server that is not there" "$remora" ping "remora://127.0.0.1:1?transport=tcp"
exec 5<>"$work/silent"
printf start >&5
"$remora" --client holder put - "$(uri cache)" <"$work/silent" >/dev/null 2>"$work/put.err" 5>&- &
holder=$!
pids+=("$holder")
held() {
  "$remora" sessions "$(uri)" --json >"$work/out" 2>"$work/err" &&
    id=$(jq -er '.sessions[] | select(.client == "holder" and .open == 1) | .id' "$work/out")
}
is "sessions lists a client with what it has open" eventually held
json "its own session, too" '[.sessions[] | select(.own)] | length == 1'
run 0 "sessions as a table" "$remora" sessions "$(uri)"
is "with a heading" has out '^ID +CLIENT +KEY +TRANSPORT'
is "and the client" has out "^$id +holder +no +$transport "
run 0 "drain" "$remora" drain "$(uri)"
is "it says what is left" has out '^draining: [1-9][0-9]* other sessions, .* 1 open regions$'
run 3 "a drained server opens nothing" "$remora" read "$(uri cache)" --offset 0 --length 1
says "and says why" 'busy.*is being drained'
run 3 "nor creates" "$remora" create "$(uri late)" --size 1MiB "${mapped[@]}"
is "/readyz says so" bash -c "curl -sS --max-time 5 'http://$metrics/readyz' | grep drained"
run 4 "a wait for clients that stay" "$remora" drain "$(uri)" --wait 300ms
says "names what is left" 'left: [1-9][0-9]* other sessions'
run 2 "two wishes" "$remora" drain "$(uri)" --wait 1s --undo
run 2 "an ID that is none" "$remora" sessions "$(uri)" --end elephant
run 3 "a session that is not there" "$remora" sessions "$(uri)" --end 1
run 0 "the end of the session" "$remora" sessions "$(uri)" --end "$id" --json
json "which is named" ".ended == \"$id\""
run 0 "no other session is left" "$remora" drain "$(uri)" --wait 20s --json
json "it says so" '.draining and .sessions == 0 and .open == 0'
printf more >&5 || true
exec 5>&-
wait "$holder"
is "put fails without its session" test $? -ne 0
run 0 "the end of the drain" "$remora" drain "$(uri)" --undo
is "it says so, too" has out '^not draining: '
run 0 "regions are opened again" "$remora" read "$(uri cache)" --offset 0 --length 1

stop_server
is "the server ends cleanly" same "$status" 0
is "nothing is left" nothing_left
finish
