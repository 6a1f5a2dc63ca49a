#!/usr/bin/env bash
# A mirror between two hosts, over rdma: one copy in guest 0; the other copy, etcd and the load in guest 1.
# A writer that stood still goes on after the other host has claimed the mirror; a host whose answers are
# lost; a host that is gone. The load verifies all that it has written.
#
#   ci/vm/run.sh --guests 2 -- tests/fault/two_guests_mirror.sh build/dev [--only PATTERN]
#
# Guest 0 is killed at the end. Prints GoogleTest's verdicts. Exit status 1: a test failed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=link_faults.sh
. "$here/link_faults.sh"

if (($# == 0)) || [[ $1 == -h || $1 == --help ]]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit $(($# == 0 ? 2 : 0))
fi
[[ ${REMORA_VM_GUESTS:-} == 2 ]] || link_die "run it by ci/vm/run.sh --guests 2"
link_arguments "$@"
PATH=/usr/bin:$PATH:/usr/sbin:/sbin # nbdsh needs the python3 that Debian has libnbd for
remora=$tree/apps/remora plugin=$tree/apps/nbdkit/nbdkit-remora-plugin.so
transport=rdma test_suite=MirrorHostsTest
metrics=http://127.0.0.1:9471
etcd=http://10.77.0.2:2379
cluster=remora+etcd://10.77.0.2:2379/lab disk=$cluster/disk
nbd="nbd+unix:///?socket=$work/nbd.sock"
groups=2 group_mib=8 data_offset=8192 # the header and one block of the bitmap are in front of the bytes
patience=3000                         # of one guest for the other; the runner's --timeout comes first

# What is missing is missing in both guests.
for program in etcd nbdkit nbdinfo nbdsh "$remora" "$plugin"; do
  command -v "$program" >"$work/null" || [[ -f $program ]] || {
    echo "there is no $program: ci/setup.sh nbd cluster, and build it"
    echo "[  SKIPPED ] $test_suite.all/$transport (0 ms)"
    exit 0
  }
done

# --- servers --------------------------------------------------------------------------------------
# start_member NAME [METRICS]: its process id in `server`.
start_member() {
  {
    echo "listen: {address: $REMORA_VM_ADDRESS, port: 0}"
    echo 'transports: {rdma: required, shm: off, tcp: off}'
    echo 'pool: {size: 64MiB, piece: 4MiB, huge_pages: never}'
    echo 'auth: none'
    echo 'limits: {drain_timeout: 0s}'
    echo "cluster: {server: $1, name: lab, etcd: \"$etcd\", failure_domain: rack-$1}"
    if [[ ${2:-} ]]; then echo "metrics: {address: \"$2\"}"; fi
  } >"$work/$1.yaml"
  "$server_program" --config "$work/$1.yaml" >"$work/$1.log" 2>&1 &
  server=$!
}
end_member() {
  local status=0
  kill -TERM "$1"
  wait "$1" || status=$?
  ((status == 0)) || wrong "$2 ended with status $status: $(tail -n 5 "$work/$2.log")"
}
etcd_answers() { if "$remora" cluster status "$cluster" >"$work/null" 2>&1; then echo yes; fi; }
registered() {
  "$remora" cluster status "$cluster" --json 2>"$work/null" | jq -r '[.servers[].name] | join(" ")'
}
# begin_count, as_before: what the server of this host holds, when nothing uses it (I8).
begin_count() {
  await 60 0 sessions || link_die "the server keeps sessions of clients that have gone: $found"
  idle=$(server_holds_settled "$server" "$metrics")
}
as_before() { await 60 0 sessions && await 60 "$idle" server_holds "$server" "$metrics"; }

# --- the disk -------------------------------------------------------------------------------------
serves() { if nbdinfo --size "$nbd" >"$work/null" 2>&1; then echo yes; fi; }
logged() { if grep -q "$1" "$work/nbdkit.log"; then echo yes; fi; }
# serve_disk: nbdkit claims the mirror; its process id in `nbdkit`.
serve_disk() {
  rm -f "$work/nbd.sock"
  nbdkit --foreground --unix "$work/nbd.sock" "$plugin" "$disk" repair=false deadline=60s \
    >"$work/nbdkit.log" 2>&1 &
  nbdkit=$!
  await 180 yes serves || wrong "nbdkit does not serve: $(tail -n 3 "$work/nbdkit.log")"
}
end_disk() {
  local status=0
  kill -TERM "$nbdkit" 2>"$work/null" || true
  wait "$nbdkit" || status=$?
  ((status == 0)) || wrong "nbdkit ended with status $status: $(tail -n 3 "$work/nbdkit.log")"
}

# Fills the disk's first bytes with a number, reads them back, and goes on with the next number.
load_program=$(
  cat <<'PYTHON'
import os
PART, PARTS = 65536, 64
def end(cookies):
    for cookie in cookies:
        while not h.aio_command_completed(cookie):
            h.poll(-1)
number = 0
while not os.path.exists("enough"):
    number += 1
    wanted = bytes([number % 255 + 1]) * PART
    block = nbd.Buffer.from_bytearray(bytearray(wanted))
    end([h.aio_pwrite(block, part * PART) for part in range(PARTS)])
    found = [nbd.Buffer(PART) for _ in range(PARTS)]
    end([h.aio_pread(each, part * PART) for part, each in enumerate(found)])
    for part, each in enumerate(found):
        assert bytes(each.to_bytearray()) == wanted, f"pass {number}: part {part} has other bytes"
    with open("passes.new", "w") as file:
        file.write(str(number))
    os.rename("passes.new", "passes")
PYTHON
)
passes() { cat "$work/passes" 2>"$work/null" || echo 0; }
# more_passes COUNT: waits until the load has made so many more.
more_passes() {
  local wanted=$(($(passes) + $1)) until=$((EPOCHSECONDS + 300))
  while (($(passes) < wanted)); do
    if ! kill -0 "$load_pid" 2>"$work/null" || ((EPOCHSECONDS >= until)); then
      wrong "the load does not go on: $(tail -n 3 "$work/load.log")"
      return 0
    fi
    sleep 0.2
  done
}
begin_load() {
  rm -f "$work/passes" "$work/enough"
  serve_disk
  (cd "$work" && exec nbdsh --uri "$nbd" --command "$load_program") >"$work/load.log" 2>&1 &
  load_pid=$!
  more_passes 2
}
end_load() {
  local status=0
  : >"$work/enough"
  wait "$load_pid" || status=$?
  ((status == 0)) || wrong "the load ended with status $status: $(tail -n 3 "$work/load.log")"
  end_disk
}

# run COMMAND...: that command of remora succeeds.
run() {
  timeout 300 "$remora" "$@" --timeout 60s >"$work/run.log" 2>&1 ||
    wrong "$* ended with status $?: $(tail -n 3 "$work/run.log")"
}
create_disk() {
  run volume create "$disk" --size "$((groups * group_mib))MiB" --group "${group_mib}MiB" \
    --kind mirror:2
}
is_whole() {
  "$remora" volume stat "$disk" --json 2>"$work/null" |
    jq -r 'if all(.group_states[]; .state == "ok") then "yes" else "no" end'
}
# A line for each copy: its group, and the checksum of its bytes.
copies() {
  local group region address
  "$remora" volume stat "$disk" --json >"$work/stat.json" || return 0
  jq -r '.members[] | "\(.group) \(.region) \(.addresses[0])"' "$work/stat.json" >"$work/members"
  while read -r group region address; do
    rm -f "$work/member"
    "$remora" get --offset "$data_offset" --length "${group_mib}MiB" \
      "remora://$address/$region?transport=rdma" "$work/member" >"$work/get.log" 2>&1 </dev/null ||
      echo "$group $region cannot be read: $(tail -n 1 "$work/get.log")"
    echo "$group $(sha256sum <"$work/member")"
  done <"$work/members"
}
# expect_equal_copies: two of each group, with the same bytes.
expect_equal_copies() {
  local all
  all=$(copies)
  [[ $(wc -l <<<"$all") == $((2 * groups)) ]] || wrong "there are other copies than two of each group: $all"
  [[ $(sort -u <<<"$all" | wc -l) == "$groups" ]] || wrong "copies differ: $all"
}
# A server that could not be reached keeps regions of before until it has noticed that their clients are gone.
repair() {
  local until=$((EPOCHSECONDS + 180))
  until timeout 300 "$remora" volume repair "$disk" --timeout 60s >"$work/run.log" 2>&1; do
    if ((EPOCHSECONDS >= until)); then
      wrong "there is no end of the repair: $(cat "$work/run.log")"
      return 0
    fi
    sleep 1
  done
  [[ $(is_whole) == yes ]] || wrong "the mirror is not whole: $(cat "$work/run.log")"
  expect_equal_copies
}
# remove_disk NAME: and no server that is left holds anything of it.
remove_disk() {
  run volume rm "$disk"
  as_before || wrong "I8: the server of guest 1 held $idle and now holds $found"
  [[ $1 != gone ]] || return 0
  vm-signal "calm.$1"
  vm-wait "counted.$1" "$patience"
  if vm-wait "more.$1" 0 2>"$work/null"; then wrong "I8: the server of guest 0 holds more than before"; fi
}

# --- the tests ------------------------------------------------------------------------------------
begin_test() {
  test_name=$1 broken=0 test_began=$(milliseconds)
  echo "[ RUN      ] $test_suite.$test_name/$transport"
  create_disk
}
end_test() {
  local verdict='[       OK ]'
  remove_disk "$test_name"
  if ((broken)); then verdict='[  FAILED  ]' failures=$((failures + 1)); fi
  echo "$verdict $test_suite.$test_name/$transport ($(($(milliseconds) - test_began)) ms)"
}

# Guest 0 has the claim, and stops in the middle of its writes. Its late ones are refused by the NICs.
late_write_test() {
  local taken
  begin_test late-write
  vm-signal begin.late-write
  vm-wait stopped "$patience"
  run volume release "$disk"
  run put "$work/random" "$disk" --verify
  taken=$(copies)
  vm-signal taken
  vm-wait refused "$patience"
  if vm-wait accepted 0 2>"$work/null"; then wrong "guest 0 has written after the claim of guest 1"; fi
  [[ $(copies) == "$taken" ]] || wrong "a late write has changed bytes"
  run get "$disk" "$work/back"
  cmp "$work/random" "$work/back" || wrong "the disk has other bytes"
  expect_equal_copies
  end_test
}

# What guest 0 sends is lost: its NIC carries out what it gets, and no answer comes.
one_way_test() {
  begin_test one-way
  begin_load
  vm-signal begin.one-way
  vm-wait cut "$patience"
  await 120 yes logged 'goes on without copies' || wrong "the copy of guest 0 was not removed"
  more_passes 2
  vm-signal mend.one-way
  vm-wait mended "$patience"
  more_passes 1
  end_load
  await 120 's1 s2' registered || wrong "registered are '$found'"
  repair
  end_test
}

# Guest 0 is gone as by a power cut.
gone_test() {
  local third
  begin_test gone
  begin_load
  vm-signal begin.gone
  await 120 yes logged 'goes on without copies' || wrong "the copy of guest 0 was not removed"
  more_passes 3
  end_load
  await 120 s2 registered || wrong "registered are '$found'"
  [[ $(is_whole) == no ]] || wrong "the host was not gone"
  third=$server
  start_member s3
  read -r server third <<<"$third $server"
  await 120 's2 s3' registered || wrong "registered are '$found'"
  repair
  end_test
  end_member "$third" s3
}

# end_late_load: waits until a write has failed, or two passes have been written, of which one began after the stop.
end_late_load() {
  local wanted=$(($(passes) + 2))
  while kill -0 "$load_pid" 2>"$work/null" && (($(passes) < wanted)); do sleep 0.2; done
  : >"$work/enough"
}

# What guest 0 does for each of them.
serve_tests() {
  local name status
  for name in late-write one-way gone; do
    chosen "$name" || continue
    vm-wait "begin.$name" "$patience"
    case $name in
      late-write)
        begin_load
        kill -STOP "$nbdkit" || broken=1  # the other guest waits
        vm-signal stopped
        vm-wait taken "$patience"
        kill -CONT "$nbdkit" || broken=1
        end_late_load
        status=0
        wait "$load_pid" || status=$?
        if ((status == 0 || broken)) || [[ $(logged 'another client has claimed the mirror') != yes ]]; then
          cat "$work/load.log" "$work/nbdkit.log"
          vm-signal accepted
        fi
        kill -TERM "$nbdkit" 2>"$work/null" || true
        wait "$nbdkit" || true
        vm-signal refused
        ;;
      one-way)
        vm-link drop out
        vm-signal cut
        vm-wait mend.one-way "$patience"
        vm-link pass
        vm-signal mended
        ;;
      gone) vm-kill ;;
    esac
    vm-wait "calm.$name" "$patience"
    as_before || {
      echo "I8: the server held $idle and now holds $found"
      vm-signal "more.$name"
    }
    vm-signal "counted.$name"
  done
  vm-wait over "$patience"
  kill -TERM "$server"
  wait "$server"
}

broken=0
if [[ $REMORA_VM_GUEST == 0 ]]; then
  vm-wait etcd 300
  start_member s1 127.0.0.1:9471
  vm-wait warm 600
  begin_count
  vm-signal counted
  serve_tests
  exit 0
fi

etcd --name one --data-dir "$work/etcd" --log-level error --listen-client-urls "$etcd" \
  --advertise-client-urls "$etcd" --listen-peer-urls http://127.0.0.1:2380 \
  --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster one=http://127.0.0.1:2380 \
  >"$work/etcd.log" 2>&1 &
etcd_pid=$!
await 120 yes etcd_answers || link_die "etcd does not answer: $(tail -n 3 "$work/etcd.log")"
vm-signal etcd
start_member s2 127.0.0.1:9471
second=$server
await 120 's1 s2' registered || link_die "registered are '$found'"
head -c "$((groups * group_mib))M" /dev/urandom >"$work/random"
# What servers make once and keep is made before they are counted.
create_disk
run put "$work/random" "$disk"
run volume rm "$disk"
((!broken)) || link_die "the mirror does not work at all"
begin_count
vm-signal warm
vm-wait counted 300
if chosen late-write; then late_write_test; fi
if chosen one-way; then one_way_test; fi
if chosen gone; then gone_test; fi
vm-signal over
end_member "$second" s2
kill -TERM "$etcd_pid"
wait "$etcd_pid" || true
((!broken)) || failures=$((failures + 1))
((failures == 0))
