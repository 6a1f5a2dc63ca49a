#!/usr/bin/env bash
# The packages under systemd: three steps, each called at another place.
#
# usage: package_in_systemd.sh prepare      in the root: installs what the packages depend on, and the test unit
#        package_in_systemd.sh boot ROOT    in the guest of ci/vm: boots the root by systemd-nspawn
#        package_in_systemd.sh test         in the booted root, by that unit
# shellcheck disable=SC2317  # the steps are called by their names
set -uo pipefail
# shellcheck source=package_checks.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/package_checks.sh"
check_prefix='systemd: '
property() { systemctl show --property "$1" --value remora-server; }

step_prepare() {
  local names
  { apt-get -q update && apt-get -q -y install --no-install-recommends /debs/previous/*.deb; } >/tmp/prepare.log 2>&1 || {
    tail -n 20 /tmp/prepare.log
    return 1
  }
  # The packages alone go; what they depend on stays, for an installation without a network.
  mapfile -t names < <(packages | awk '$2 == "ii" { print $1 }')
  dpkg --purge "${names[@]}" >>/tmp/prepare.log 2>&1 || return 1
  cat >/etc/systemd/system/package-test.service <<'UNIT'
[Unit]
Description=The packages of Remora under systemd
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/sh -c '/tests/package_in_systemd.sh test >/tests/result 2>&1; echo $? >/tests/status'
ExecStopPost=/bin/systemctl --no-block poweroff
TimeoutStartSec=1200

[Install]
WantedBy=default.target
UNIT
  systemctl enable package-test.service
}

step_boot() {
  local root=$1 device binds=() status
  for device in /dev/infiniband/uverbs0 /dev/infiniband/rdma_cm; do
    if [[ -e $device ]]; then binds+=("--bind=$device"); fi
  done
  rm -f "$root/tests/status"
  # --keep-unit and --register=no: the guest has no systemd of its own to ask.
  timeout 1300 systemd-nspawn --quiet --directory="$root" --boot --register=no --keep-unit --console=pipe \
    "${binds[@]}" </dev/null >/tmp/nspawn.log 2>&1
  status=$(cat "$root/tests/status" 2>/dev/null)
  if [[ -z $status ]]; then
    tail -n 40 /tmp/nspawn.log
    echo "not ok - systemd: the root booted"
    return 1
  fi
  cat "$root/tests/result"
  return "$status"
}

# The memory stays (pool.warm_restart) while a load verifies: over both directions between the two
# versions, a process that is killed, and one that stands still until the watchdog ends it.
restarted() { test "$(property MainPID)" != "$warm_before" && test "$(property MainPID)" != 0; }
# warm_step NAME COMMAND...: the command, after which another process serves.
warm_step() {
  local name=$1 tries
  shift
  warm_before=$(property MainPID)
  is "$name" "$@"
  for ((tries = 0; tries < 600; ++tries)); do
    if restarted && systemctl -q is-active remora-server; then break; fi
    sleep 0.1
  done
  is "$name: another process serves" restarted
  sleep 2 # the load goes on with it
  is "$name: the load goes on" kill -0 "$load"
}
install_and_restart() { dpkg -i --force-confold "$@" && systemctl restart remora-server; }
test_warm() {
  local status=0 began override=/etc/systemd/system/remora-server.service.d
  sed -i 's/^pool:$/pool:\n  warm_restart: true/' /etc/remora/server.yaml
  mkdir -p "$override"
  printf '[Service]\nWatchdogSec=6s\n' >"$override/watchdog.conf"
  is "warm restart is configured" remora config check /etc/remora/server.yaml
  is "the unit is read again" systemctl daemon-reload
  is "it is restarted with that" systemctl restart remora-server
  is "a region for the load" remora create remora://localhost/load --size 1MiB --atomics cpu
  rm -f /tmp/load.stop
  began=$(date +%s)
  python3 /tests/package_load.py 'remora://localhost?transport=tcp' load /tmp/load.stop >/tmp/load.out 2>/tmp/load.err &
  load=$!
  is "the load is under way" timeout 60 sh -c 'until grep -q "under way" /tmp/load.err; do sleep 0.1; done'
  warm_step "to the previous version" install_and_restart /debs/previous/*.deb
  warm_step "killed" kill -KILL "$(property MainPID)"
  warm_step "to the new version" install_and_restart /debs/new/*.deb
  warm_step "stands still: the watchdog ends it" kill -STOP "$(property MainPID)"
  warm_step "restarted" systemctl restart remora-server
  touch /tmp/load.stop
  wait "$load" || status=$?
  echo "  load: $(cat /tmp/load.out)"
  if ((status != 0)); then sed 's/^/    /' /tmp/load.err; fi
  is "nothing acknowledged was lost" same "$status" 0
  is "the memory was never new" sh -c "! journalctl -u remora-server --since @$began | grep -q 'IS LOST'"
  rm -r "$override"
  systemctl daemon-reload
}

# They enable the service, and make a key: both go, as an administrator would undo them.
run_documents() {
  local files status=0
  mapfile -t files < <(cd /tests && find . -name '*.md' | sort)
  ((${#files[@]})) && /tests/ci/check_commands.py --where package "${files[@]/#.//tests}" || status=1
  systemctl disable remora-server
  rm -f /etc/remora/keys/backup.key
  return "$status"
}

step_test() {
  local began=$SECONDS before
  is "the packages are installed" dpkg -i /debs/previous/*.deb
  is "the service was not started by that" same "$(systemctl is-active remora-server)" inactive
  is "it is not enabled" same "$(systemctl is-enabled remora-server)" disabled
  is "it starts as it is installed" systemctl start remora-server
  is "a region is created" remora create remora://localhost/first --size 1MiB
  echo "  from nothing to a served region: $((SECONDS - began)) s"
  is "under a minute" test $((SECONDS - began)) -lt 60
  before=$(property MainPID)
  is "it runs as its user" same "$(stat -c %U "/proc/$before")" remora
  is "the folder of keys is its group's" same "$(stat -c '%U:%G %a' /etc/remora/keys)" "root:remora 750"
  is "it is ready" same "$(property StatusText)" "serving 256MiB"
  is "it reloads" systemctl reload remora-server
  is "and says so" timeout 20 sh -c 'until journalctl -u remora-server | grep -q "read again"; do sleep 0.2; done'
  echo "  $(systemd-analyze security --no-pager remora-server | tail -n 1)"
  echo "# changed by the administrator" >>/etc/remora/server.yaml
  is "the new version is installed" dpkg -i /debs/new/*.deb
  is "the service still runs" same "$(property MainPID)" "$before"
  is "and has its region" remora stat remora://localhost/first
  is "it can be restarted" systemctl restart remora-server
  is "by the new version" test "$(property MainPID)" != "$before"
  test_warm
  is "it stops" systemctl stop remora-server
  is "without a failure" same "$(property Result)" success
  is "it starts again" systemctl start remora-server
  is "the commands of the documents" run_documents
  is "its package is removed" dpkg --remove remora-server
  is "which has stopped it" same "$(pgrep -c -x remora-server)" 0
  is "and is purged" dpkg --purge remora-server
  is "with its file" test ! -e /etc/remora
}

case "${1:-}" in
  prepare | test) "step_$1" || failed=1 ;;
  boot) step_boot "$2" || failed=1 ;;
  *) echo "usage: $0 prepare|boot ROOT|test" >&2; exit 2 ;;
esac
exit "$failed"
