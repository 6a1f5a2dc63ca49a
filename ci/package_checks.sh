# Sourced by package_in_root.sh and package_in_systemd.sh, beside which it lies: their checks.
# shellcheck shell=bash
# shellcheck disable=SC2034  # read by the scripts that source this
export DEBIAN_FRONTEND=noninteractive

failed=0 check_prefix=''
# is NAME COMMAND...: the command succeeds; its output is shown if it does not.
is() {
  local name=$check_prefix$1
  shift
  if "$@" >/tmp/out 2>&1; then
    echo "ok - $name"
  else
    failed=1
    echo "not ok - $name: $*"
    sed 's/^/    /' /tmp/out | tail -n 20
  fi
}
same() { [[ $1 == "$2" ]] || { echo "'$1' is not '$2'"; return 1; }; }
packages() { dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' '*remora*' 2>/dev/null; }
