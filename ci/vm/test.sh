#!/usr/bin/env bash
# Proves ci/vm/run.sh. One line a check; the last line is "N passed, N failed".
# usage: ci/vm/test.sh [quick|faults|all]    quick: one guest, two guests; all (default): both parts
# shellcheck disable=SC2016,SC2034  # conditions are evaluated by `eval`, some programs by the guest
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
run=$here/run.sh
part=${1:-all}
case $part in
  quick | faults | all) ;;
  *)
    echo "usage: $0 [quick|faults|all]" >&2
    exit 2
    ;;
esac

work=$(mktemp -d "${TMPDIR:-/tmp}/vm-test.XXXXXX")
runner=
clean_up() {
  if [[ -n $runner ]]; then kill -KILL "$runner" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

passed=0 failed=0
# check NAME WHY COMMAND…: WHY is printed when COMMAND fails.
check() {
  local name=$1 why=$2
  shift 2
  if "$@" >/dev/null 2>&1; then
    passed=$((passed + 1))
    echo "ok - $name"
  else
    failed=$((failed + 1))
    echo "not ok - $name: $why"
  fi
}

# run_guest OPTIONS… -- COMMAND…: leaves its exit status in `status`, its output in $work/{out,err}.
run_guest() {
  status=0
  "$run" "$@" >"$work/out" 2>"$work/err" || status=$?
}

# start_guest …: the same in the background; its process id goes to `runner`.
start_guest() {
  : >"$work/out" # else the last run's output could be taken for this one's
  # A background process would ignore SIGINT.
  env --default-signal=INT "$run" "$@" >"$work/out" 2>"$work/err" &
  runner=$!
}

wait_guest() {
  status=0
  wait "$runner" 2>/dev/null || status=$?
  runner=
}

# wait_for SECONDS COMMAND…
wait_for() {
  local deadline=$((EPOCHSECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((EPOCHSECONDS < deadline)) || return 1
    sleep 0.1
  done
}

# The QEMU processes of a runner; and whether one of them is gone.
qemus_of() { pgrep -P "$1" -f qemu-system; }
is_gone() { [[ ! -e /proc/$1 || $(sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$1/status") == Z ]]; }

said() { tail -n 3 "$work/err" | tr '\n' ' '; }

usage_checks() {
  # refused NAME PATTERN ARGUMENT…: exit status 125 and a message
  refused() {
    local name=$1 pattern=$2
    shift 2
    run_guest "$@"
    check "refuses $name" "status $status, said: $(said)" eval '((status == 125)) && grep -q -e "$pattern" "$work/err"'
  }
  refused "an unknown option" "unknown option --frob" --frob -- true
  refused "a missing COMMAND" "no COMMAND" --guests 2
  refused "a COMMAND without --" "after '--'" true
  refused "an option without a value" "--memory needs a value" --memory
  refused "a bad size" "--memory 4X" --memory 4X -- true
  refused "three guests" "--guests 3" --guests 3 -- true
  refused "a --share that is not there" "--share /nowhere" --share /nowhere -- true

  # Everything on PATH but QEMU.
  mkdir "$work/path"
  local folder
  for folder in /usr/bin /bin /usr/sbin /sbin; do
    find "$folder/" -maxdepth 1 ! -name 'qemu-*' -type f,l -exec ln -sft "$work/path" {} +
  done
  sed 's|^  PATH=\$PATH:/usr/sbin:/sbin$||' "$here/common.sh" >"$work/common.sh"
  cp "$here"/{run,kernel,qemu,accel}.sh "$work/"
  status=0
  PATH=$work/path "$work/run.sh" -- true >"$work/out" 2>"$work/err" || status=$?
  check "names the package of a missing tool" "status $status, said: $(said)" \
    eval '((status == 125)) && grep -q "package qemu-system-x86" "$work/err"'
  if command -v shellcheck >/dev/null; then
    check "shellcheck finds nothing" "run it to see" \
      shellcheck -x "$here"/*.sh "$here"/guest/*
  fi
}

# What happens in the one guest: many results from one boot, each in a file of the shared folder.
cat >"$work/one.sh" <<'END'
share=$1
cd "$share"
printf '%s\n' "$2" >argument
printf '%s\n' "$VM_TEST_VALUE" >value
uname -r >release
ibv_devinfo -d rxe0 >devinfo 2>&1
ulimit -l >memlock
stat -c %a /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm | sort -u >modes
cat /sys/class/net/lo/operstate /sys/class/net/veth0/mtu >net
modprobe -n -v sch_netem >/dev/null 2>&1 && grep -c '^sch_netem' /proc/modules >modules
findmnt -n -o FSTYPE /tmp >tmp
echo x >/etc/vm-test-was-here && echo x >/tmp/file && echo written >overlay
echo again >/dev/stderr
setpriv --reuid=1000 --regid=1000 --clear-groups sh -c '
  echo normal user >/dev/stderr; exec 2>&1; ibv_devinfo -d rxe0; vm-signal by-user' >user
vm-wait by-user 5 && echo yes >signal
vm-wait never 1 2>/dev/null || echo "status $?" >never

rping -s -a "$REMORA_VM_ADDRESS" -C 5 >rping.server 2>&1 &
tries=0
until rping -c -a "$REMORA_VM_ADDRESS" -C 5 -v >rping 2>&1; do
  tries=$((tries + 1)) && [ "$tries" -lt 20 ] || break
  sleep 0.3
done
ib_write_bw -d rxe0 -x 1 -F -s 65536 -n 200 >bandwidth.server 2>&1 &
tries=0 # port 18515, listening
until grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do
  tries=$((tries + 1)) && [ "$tries" -lt 100 ] || break
  sleep 0.1
done
ib_write_bw -d rxe0 -x 1 -F -s 65536 -n 200 "$REMORA_VM_ADDRESS" >bandwidth 2>&1

cat binary
sleep 1000 &
exit 37
END

one_guest() {
  local share=$work/share value began=$EPOCHSECONDS
  value=$(printf 'two\nlines, "quoted" %s  $HOME' "'too'")
  mkdir -p "$share"
  head -c 3000000 /dev/urandom >"$share/binary"
  # The current directory is in /tmp, which is fresh in the guest.
  status=0
  (cd "$work" && VM_TEST_VALUE=$value "$run" --share "$share" --modules sch_netem --timeout 200 -- \
    bash one.sh "$share" 'an  argument with $HOME and '\''quotes') >"$work/out" 2>"$work/err" || status=$?
  echo "# one guest took $((EPOCHSECONDS - began)) s"

  check "returns COMMAND's exit status" "status $status instead of 37, said: $(said)" test "$status" = 37
  check "output is binary-safe, 3 MB" "$(wc -c <"$work/out") bytes" cmp "$share/binary" "$work/out"
  check "stderr stays apart, and can be opened again" "said: $(said)" grep -qx again "$work/err"
  check "ibv_devinfo: PORT_ACTIVE, MTU 4096" "$(grep -E 'state|active' "$share/devinfo" | tr -s '\t\n' ' ')" \
    eval 'grep -q PORT_ACTIVE "$share/devinfo" && grep -q "active_mtu:.*4096" "$share/devinfo"'
  check "a normal user reaches the device and vm-signal" "$(tail -n2 "$share/user")" \
    eval 'grep -q PORT_ACTIVE "$share/user" && grep -qx "normal user" "$work/err" && test -e "$share/signal"'
  check "device nodes have mode 666" "$(cat "$share/modes")" test "$(cat "$share/modes")" = 666
  check "memlock is unlimited" "$(cat "$share/memlock")" grep -qx unlimited "$share/memlock"
  check "rping, client and server" "$(tail -n2 "$share/rping")" test "$(grep -c 'ping data' "$share/rping")" = 5
  check "ib_write_bw" "$(tail -n3 "$share/bandwidth")" grep -Eq '^ *65536 +200 ' "$share/bandwidth"
  check "arguments and environment arrive unchanged" "$(cat "$share/argument" "$share/value")" \
    eval 'test "$(cat "$share/value")" = "$value" && grep -qx "an  argument with .HOME and .quotes" "$share/argument"'
  check "--modules loads a module" "sch_netem is absent" grep -q 1 "$share/modules"
  check "/tmp is fresh, the tree is writable but not the host's" "$(cat "$share/tmp")" \
    eval 'test -e "$share/overlay" && ! test -e /etc/vm-test-was-here && grep -q tmpfs "$share/tmp"'
  check "vm-wait fails without a signal" "$(cat "$share/never")" grep -qx 'status 1' "$share/never"
}

two_guests() {
  local began=$EPOCHSECONDS
  REMORA_VM_GRACE=1 run_guest --guests 2 --timeout 100 -- bash -c '
    echo "guest $REMORA_VM_GUEST of $REMORA_VM_GUESTS at $REMORA_VM_ADDRESS, peer $REMORA_VM_PEER_ADDRESS"
    if [ "$REMORA_VM_GUEST" = 0 ]; then
      rping -s -a "$REMORA_VM_ADDRESS" -C 5 &
      vm-signal listening
      wait
      vm-signal served
      sleep 1000
    fi
    vm-wait listening
    for try in 1 2 3 4 5; do
      rping -c -a "$REMORA_VM_PEER_ADDRESS" -C 5 -v && break
      sleep 1
    done
    vm-wait served
    reaches() { /run/remora-vm/busybox ping -c 3 -i 0.2 -W 1 -q "$REMORA_VM_PEER_ADDRESS" >/dev/null 2>&1; }
    link() {
      vm-link $1 || exit 6
      if reaches; then echo "link $1: passes"; else echo "link $1: nothing"; fi
    }
    link pass
    for cut in "drop in" "drop out" "drop both" "netem loss 100%"; do link "$cut"; link pass; done
    link down
    link up
    vm-link netem delay 300ms && vm-link show | grep -c "netem.*delay 300ms" && vm-link pass
    vm-link show | grep -c netem
    vm-link sideways 2>/dev/null || echo "link sideways: $?"
    exit 5'
  echo "# two guests took $((EPOCHSECONDS - began)) s"
  check "each guest is told which one it is" "$(grep guest "$work/out")" \
    eval 'grep -qx "\[0\] guest 0 of 2 at 10.77.0.1, peer 10.77.0.2" "$work/out" &&
          grep -qx "\[1\] guest 1 of 2 at 10.77.0.2, peer 10.77.0.1" "$work/out"'
  check "rping between two guests" "$(tail -n2 "$work/out")" \
    test "$(grep -c '^\[1\] ping data' "$work/out")" = 5
  printf 'link %s\n' 'pass: passes' 'drop in: nothing' 'pass: passes' 'drop out: nothing' 'pass: passes' \
    'drop both: nothing' 'pass: passes' 'netem loss 100%: nothing' 'pass: passes' 'down: nothing' \
    'up: passes' 'sideways: 2' >"$work/wanted"
  check "vm-link drops, impairs, cuts and mends the link" "$(sed -n 's/^\[1\] link //p' "$work/out" | tr '\n' ',')" \
    eval 'sed -n "s/^\[1\] \(link .*\)/\1/p" "$work/out" | cmp - "$work/wanted"'
  check "vm-link shows what is set" "$(grep -x '\[1\] [01]' "$work/out" | tr '\n' ' ')" \
    eval 'grep -qx "\[1\] 1" "$work/out" && grep -qx "\[1\] 0" "$work/out"'
  check "the first non-zero status of two, the other guest ended" "status $status, said: $(said)" \
    eval '((status == 5)) && grep -q "ended 1 s after" "$work/err"'
}

faults() {
  local qemu
  run_guest --timeout 2 -- sh -c 'echo begun; sleep 1000'
  check "a time-out ends COMMAND with 124" "status $status, said: $(said)" \
    eval '((status == 124)) && grep -q begun "$work/out" && grep -q "ended after 2 s" "$work/err"'

  start_guest -- sh -c 'echo begun; sleep 1000'
  wait_for 100 grep -q begun "$work/out" || true
  check "output arrives while COMMAND runs" "said: $(said)" grep -q begun "$work/out"
  qemu=$(qemus_of "$runner" || true)
  kill -KILL "$runner" || true
  wait_guest
  check "SIGKILL of run.sh leaves no QEMU" "process '$qemu'" eval '[[ -n $qemu ]] && wait_for 5 is_gone "$qemu"'

  local signal
  for signal in INT:130 TERM:143; do
    start_guest -- true
    wait_for 30 qemus_of "$runner" || true
    qemu=$(qemus_of "$runner" || true)
    kill "-${signal%:*}" "$runner" || true
    wait_guest
    check "SIG${signal%:*} ends it with ${signal#*:}, no QEMU is left" "status $status, process '$qemu'" \
      eval '[[ -n $qemu ]] && is_gone "$qemu" && ((status == ${signal#*:}))'
  done

  REMORA_VM_BOOT_TIMEOUT=1 run_guest -- true
  check "a guest that does not get up: 122" "status $status, said: $(said)" \
    eval '((status == 122)) && grep -q "not up after 1 s" "$work/err"'

  run_guest -- sh -c 'echo c >/proc/sysrq-trigger; sleep 100'
  check "a kernel panic: 123 and the console" "status $status, said: $(said)" \
    eval '((status == 123)) && grep -q "guest 0 panicked" "$work/err" &&
          grep -q "console 0| .*Kernel panic" "$work/err"'

  run_guest --guests 2 --timeout 60 -- bash -c '
    if [ "$REMORA_VM_GUEST" = 0 ]; then vm-wait kill; vm-kill; fi
    reaches() { /run/remora-vm/busybox ping -c 1 -W 1 -q "$REMORA_VM_PEER_ADDRESS" >/dev/null 2>&1; }
    until reaches; do sleep 0.2; done
    echo together
    vm-signal kill
    while reaches; do sleep 0.2; done
    echo alone'
  check "vm-kill ends a guest, the other goes on, status 0" "status $status, said: $(said)" \
    eval '((status == 0)) && grep -q "guest 0 was killed by vm-kill" "$work/err" &&
          grep -qx "\[1\] together" "$work/out" && grep -qx "\[1\] alone" "$work/out"'

  run_guest --memory 512M -- tail /dev/zero
  check "out of memory is said" "status $status, said: $(said)" \
    eval '((status == 137)) && grep -q "ran out of memory" "$work/err"'

  # The reader has gone.
  { "$run" -- yes 2>"$work/err" || echo $? >"$work/status"; } | head -n 1 >"$work/out"
  check "a closed output ends it" "said: $(said)" grep -qx 141 "$work/status"
}

began=$EPOCHSECONDS
if [[ $part != faults ]]; then
  usage_checks
  "$run" --prepare
  one_guest
  two_guests
fi
if [[ $part != quick ]]; then faults; fi
echo "# took $((EPOCHSECONDS - began)) s"
echo "$passed passed, $failed failed"
((failed == 0))
