#!/usr/bin/env bash
# Run by ci/package_test.sh in a Debian root: installs, uses, upgrades, removes and purges the packages.
# Prints `ok - NAME` and `not ok - NAME`.
#
# usage: package_in_root.sh install|use|upgrade|remove|purge
# In the root: /debs/previous and /debs/new have the packages, /tests those of ci/debian/tests.
# shellcheck disable=SC2317  # the steps are called by their names
set -uo pipefail
# shellcheck source=package_checks.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/package_checks.sh"
absent() { [[ ! -e $1 ]]; }
names() { mapfile -t names < <(packages | awk '$2 ~ /^(ii|rc)/ { print $1 }'); }

# Files and folders that the packages could leave.
leftovers() {
  find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /debs -o -path /tests \
    -o -path /var/cache/apt -o -path /var/lib/apt -o -path /var/log \) -prune -o -name '*remora*' -print
}

start_the_service() {  # as the unit does, where there is no systemd
  mkdir -p /run/remora
  chown remora:remora /run/remora
  runuser -u remora -- env REMORA_RUNTIME_DIR=/run/remora remora-server --config /etc/remora/server.yaml \
    --port-file /run/remora/port >/tmp/server.log 2>&1 &
  local tries
  for ((tries = 0; tries < 300; ++tries)); do
    [[ -s /run/remora/port ]] && return 0
    sleep 0.1
  done
  cat /tmp/server.log
  return 1
}

step_install() {
  is "the lists of packages are fetched" apt-get -q update
  is "the previous version is installed" apt-get -q -y install --no-install-recommends /debs/previous/*.deb
  is "user remora" getent passwd remora
  is "its shell lets it log in nowhere" same "$(getent passwd remora | cut -d : -f 7)" /usr/sbin/nologin
  is "the file of the server is good" remora config check /etc/remora/server.yaml
  is "the folder of keys is there" test -d /etc/remora/keys
  is "manual pages" test -e /usr/share/man/man5/remora.yaml.5.gz
  is "bash completes both programs" test -e /usr/share/bash-completion/completions/remora -a \
    -e /usr/share/bash-completion/completions/remora-server
  is "zsh completes both programs" grep -qx '#compdef remora remora-server' /usr/share/zsh/vendor-completions/_remora
  is "fish completes both programs" test -e /usr/share/fish/vendor_completions.d/remora.fish -a \
    -e /usr/share/fish/vendor_completions.d/remora-server.fish
  is "the unit" test -e /lib/systemd/system/remora-server.service
  is "the unit starts the installed program" grep -q '^ExecStart=/usr/bin/remora-server ' /lib/systemd/system/remora-server.service
}

step_use() {
  local test
  is "the server starts as it is installed" start_the_service
  is "a region is created" remora create remora://localhost/first --size 1MiB
  is "and removed" remora rm remora://localhost/first
  for test in /tests/debian/tests/*; do
    [[ -x $test ]] || continue
    case $(basename "$test") in
      c-program) command -v gcc >/dev/null || { echo "ok - c-program # SKIP gcc is not installed"; continue; } ;;
      python) dpkg-query -W python3-remora >/dev/null 2>&1 || continue ;;
      nbdkit) dpkg-query -W nbdkit-plugin-remora >/dev/null 2>&1 || continue ;;
    esac
    is "autopkgtest: $(basename "$test")" env AUTOPKGTEST_TMP="$(mktemp -d)" "$test"
  done
}

step_upgrade() {
  local before
  echo "# changed by the administrator" >>/etc/remora/server.yaml
  is "a server runs" start_the_service
  before=$(pgrep -x remora-server)
  is "it has a region" remora create remora://localhost/kept --size 1MiB
  is "the new version is installed over the previous one" dpkg -i /debs/new/*.deb
  is "the server still runs" same "$(pgrep -x remora-server)" "$before"
  is "and has its region" remora stat remora://localhost/kept
  is "the administrator's file is kept" grep -q '^# changed by the administrator' /etc/remora/server.yaml
  is "every package is installed" same "$(packages | grep -vc ' ii')" 0
}

step_remove() {
  names
  is "the packages are removed" apt-get -q -y remove "${names[@]}"
  is "the programs are gone" absent /usr/bin/remora-server
  is "the administrator's file stays" test -e /etc/remora/server.yaml
}

step_purge() {
  names
  is "the packages are purged" apt-get -q -y purge "${names[@]}"
  names
  is "dpkg knows none of them" same "${#names[@]}" 0
  is "no file is left" same "$(leftovers)" ""
}

case "${1:-}" in
  install | use | upgrade | remove | purge) "step_$1" ;;
  *) echo "usage: $0 install|use|upgrade|remove|purge" >&2; exit 2 ;;
esac
exit "$failed"
