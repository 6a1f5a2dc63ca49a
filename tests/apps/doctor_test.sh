#!/usr/bin/env bash
# remora doctor: this machine, a server's file, and the path to a server.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# ended_with CODES NAME COMMAND...: as run, with one of several statuses: what this machine has (a
# device, a firewall) is not the test's.
ended_with() {
  local codes=$1 name=$2
  status=0
  shift 2
  timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
  if [[ " $codes " == *" $status "* ]]; then ok "$name"; else not_ok "$name: status $status: $*"; fi
}

# mended: each red or yellow finding of the last run, as JSON, has a command.
mended() {
  json "what is wrong has a command" \
    '[.findings[] | select(.colour == "red" or .colour == "yellow") | .command != ""] | all'
}

# lacks TEXT FILE: it has no such text.
lacks() { [[ -s $2 ]] && ! grep -qF -- "$1" "$2"; }

# --- the command line -------------------------------------------------------------------------------
run 0 "help" "$remora" doctor --help
is "help has the options" has out '--anonymous'
run 2 "a URI of another scheme" "$remora" doctor http://localhost
says "the URI is explained" 'remora://HOST'
run 2 "an empty URI" "$remora" doctor ''
run 2 "JSON and a report on one stream" "$remora" doctor --json --report -
says "both are named" '^remora: --json and --report -'

# --- this machine -----------------------------------------------------------------------------------
ended_with "0 3" "this machine" "$remora" doctor
is "the kernel is told" has out '^green +kernel: Linux [0-9]'
is "locked memory is told" has out 'memlock: locked memory: soft limit '
is "the colours are counted" has out '^[0-9]+ green'
is "nothing is complained of" same "$(cat "$work/err")" ""
ended_with "0 3" "as JSON" "$remora" doctor --json
json "each finding has its parts" \
  '[.findings[] | has("id") and has("colour") and has("found") and has("why") and has("command")] | all'
json "the colours are known" \
  '[.findings[].colour | IN("green", "not checked", "yellow", "red")] | all'
json "the worst colour is that of the findings" \
  '.colour == (if any(.findings[]; .colour == "red") then "red"
    elif any(.findings[]; .colour == "yellow") then "yellow" else "green" end)'
json "what is wrong has its reason" \
  '[.findings[] | select(.colour == "red" or .colour == "yellow") | .why != ""] | all'
mended
if [[ ! -e /sys/class/infiniband ]]; then
  json "without a device it says so" 'any(.findings[]; .id == "device" and .colour == "yellow")'
  ended_with "1 3" "a warning is an error with --strict" "$remora" doctor --strict
  ended_with "0 3" "as JSON again" "$remora" doctor --json
fi
ended_with "0 3 77" "as JSON, with a seccomp filter" "$probe" refuse-userfaultfd "$remora" doctor --json
if ((status == 77)); then
  echo "# no seccomp filters here"
else
  json "a filter that refuses userfaultfd is told" 'any(.findings[]; .id == "userfaultfd" and
    .colour == "yellow" and (.found | test("Operation not permitted; a seccomp filter is active$")) and
    .command == "start the container with a seccomp profile that allows userfaultfd")'
  mended
fi
ended_with "0 3" "as JSON again" "$remora" doctor --json
if ((EUID != 0)); then
  json "it says what root would add" '.root_adds | length > 0'
fi

# --- a file -----------------------------------------------------------------------------------------
small_config >"$work/good.yaml"
ended_with "0 3" "a good file" "$remora" doctor --config "$work/good.yaml" --json
json "it has no faults" 'any(.findings[]; .id == "config" and .colour == "green")'
json "its port is free" 'any(.findings[]; .id == "config.listen" and .colour == "green")'
json "what it takes is told" 'any(.findings[]; .id == "config.memory" and (.found | test("64MiB")))'
if [[ $transport != rdma ]]; then
  json "nothing of it is red" 'all(.findings[] | select(.id | startswith("config")); .colour != "red")'
fi
cat >"$work/bad.yaml" <<'YAML'
listen: {port: 99999}
pol: 3
YAML
run 3 "a file with faults" "$remora" doctor --config "$work/bad.yaml"
is "they are counted" has out '^red +config: .*bad\.yaml: [0-9]+ faults$'
is "each has its place" has out 'bad\.yaml:1:16: .*99999'
is "what mends them" has out 'do:  remora config check '
run 3 "a file that is not there" "$remora" doctor --config "$work/nosuch.yaml"
is "it is named" has out 'nosuch\.yaml'
if [[ $transport != rdma && ! -e /sys/class/infiniband ]]; then
  small_config | sed "s/rdma: off/rdma: required/" >"$work/needs.yaml"
  run 3 "a file that requires rdma, on a machine without" \
    "$remora" doctor --config "$work/needs.yaml"
  is "the device is missing" has out '^red +device: the kernel has no RDMA device'
fi
small_config | sed 's/huge_pages: never/huge_pages: require/; s/size: 64MiB/size: 64GiB/' >"$work/huge.yaml"
run 3 "a file that requires huge pages, as JSON" "$remora" doctor --config "$work/huge.yaml" --json
mended
run 0 "a key" "$remora" key generate "$work/inline.key"
{
  small_config | sed 's/^auth: none/auth: keys/'
  echo "clients: [{name: a, key: \"$(cat "$work/inline.key")\"}]"
} >"$work/secret.yaml"
chmod 644 "$work/secret.yaml"
chmod 711 "$work"
ended_with "0 3" "a file with a secret, as JSON" "$remora" doctor --config "$work/secret.yaml" --json
chmod 700 "$work"
json "it is told, with the command" "any(.findings[]; .id == \"config.secret\" and
  .colour == \"yellow\" and .command == \"chmod o-r $work/secret.yaml\")"
is "the secret is not" lacks "$(cat "$work/inline.key")" "$work/out"
mended
run 3 "a file that requires huge pages that are not there" "$remora" doctor --config "$work/huge.yaml"
is "the setting is told" has out 'do:  sudo sysctl vm\.nr_hugepages=[0-9]+'

# --- a server that runs -----------------------------------------------------------------------------
start_server "$work/good.yaml"
ended_with "0 3" "a path to a server" "$remora" doctor "$(uri)" --json
json "the name is told" 'any(.findings[]; .id == "path.name" and .colour == "green")'
json "the handshake is done" \
  "any(.findings[]; .id == \"path.$transport.handshake\" and .colour == \"green\")"
json "a write, a read and a compare-and-swap worked" \
  "any(.findings[]; .id == \"path.$transport.operation\" and .colour == \"green\" and
    (.found | test(\"compare-and-swap worked\")))"
json "latency and rate are told" \
  "any(.findings[]; .id == \"path.$transport.speed\" and (.found | test(\"median.* at .*B/s\")))"
json "no other transport was tried" \
  "all(.findings[] | select(.id | test(\"^path.(shm|tcp|rdma)\")); .id | startswith(\"path.$transport\"))"
run 0 "the regions of the server" "$remora" ls "$(uri)" --json
is "nothing of the doctor is left there" lacks remora-doctor "$work/out"
if [[ $transport == tcp ]]; then
  ended_with "0 3" "a file whose server runs" "$remora" doctor --config "$work/good.yaml" --json
  json "its port is in use" \
    'any(.findings[]; .id == "config.listen" and .colour == "yellow" and (.found | test("in use")))'
  ended_with "0 3" "every transport" "$remora" doctor "remora://$host:$port" --json
  json "one works, the others are no fault" \
    'any(.findings[]; .id == "path.tcp.operation") and
      all(.findings[] | select(.id | startswith("path")); .colour != "red")'
fi

# --- a report ---------------------------------------------------------------------------------------
ended_with "0 3" "a report" "$remora" doctor "$(uri)" --config "$work/good.yaml" --report "$work/report"
for part in findings devices configuration system; do
  is "it has its $part" grep -q "^== $part" "$work/report"
done
is "the findings are printed, too" has out 'kernel: '
cat >"$work/other.yaml" <<YAML
listen: {address: "192.0.2.99", port: 7471}
pool: {size: 64MiB, huge_pages: never}
auth: none
YAML
ended_with "0 3" "a report without addresses" \
  "$remora" doctor --config "$work/other.yaml" --anonymous --report "$work/report"
is "no address is in it" lacks 192.0.2.99 "$work/report"
is "nor in what is printed" lacks 192.0.2.99 "$work/out"
is "but its name is" grep -q 'address-[0-9]' "$work/report"
ended_with "5" "a report that cannot be written" "$remora" doctor --report "$work/nosuch/report"

# --- a client that may not create regions -----------------------------------------------------------
stop_server
run 0 "a key" "$remora" key generate "$work/reader.key"
{
  small_config | sed 's/^auth: none/auth: keys/'
  echo "clients: [{name: reader, key_file: \"$work/reader.key\"}]"
} >"$work/keys.yaml"
start_server "$work/keys.yaml"
ended_with "0 3" "a client that may not create regions" \
  "$remora" doctor "$(uri cache)" --client reader --key-file "$work/reader.key" --json
json "it is told, and only reads are tried" \
  "any(.findings[]; .id == \"path.$transport.rights\" and .colour == \"not checked\" and
    (.found | test(\"only reads are tried, in cache\")))"
json "a read worked" \
  "any(.findings[]; .id == \"path.$transport.operation\" and (.found | test(\"a read worked\")))"
run 3 "a client without a key, as JSON" "$remora" doctor "$(uri)" --json
mended
run 3 "a client without a key" "$remora" doctor "$(uri)"
is "it breaks at the key" has out "^red +path\\.$transport\\.key: .*at the step 'key', on the side of the server"

# --- a server that does not run ---------------------------------------------------------------------
stop_server
run 3 "a path to a dead port, as JSON" "$remora" doctor "$(uri)" --timeout 3s --json
mended
run 3 "a path to a dead port" "$remora" doctor "$(uri)" --timeout 3s
is "the step and the side are told" has out \
  "^red +path\\.$transport\\.[a-z]+: $transport breaks at the step '[a-z]+', on the side of "
if [[ $transport == tcp ]]; then
  is "it is the server's" has out "at the step 'connect', on the side of the server"
fi
run 3 "a name that is not there, as JSON" "$remora" doctor remora://nosuch.invalid --json
mended
run 3 "a name that is not there" "$remora" doctor remora://nosuch.invalid
is "it breaks at the name" has out '^red +path\.name: nosuch\.invalid has no address'
finish
