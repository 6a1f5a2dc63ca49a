# Sourced by fresh.sh and docker/test.sh: how mmdebstrap makes a root that can install what this
# machine can.
# shellcheck shell=bash

# debian_root_sources SUITE: sets debian_sources (apt's files of this machine that offer SUITE; only
# those of Debian itself, not what else the machine may have) and debian_options (--aptopt=...).
# Fails where there is none.
# shellcheck disable=SC2034  # read by its callers
debian_root_sources() {
  local suite=$1 file line
  debian_sources=() debian_options=()
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    if [[ -s $file ]] && grep -qE "(^|[[:space:]])$suite([[:space:]]|\$)" "$file" &&
      grep -qiE 'debian' "$file"; then
      debian_sources+=("$file")
    fi
  done
  while read -r line; do
    debian_options+=("--aptopt=$line")
  done < <(apt-config dump 2>/dev/null |
    grep -E '^Acquire::(http|https|ftp|Check|Retries|AllowInsecure)[^ ]* "[^"]+";$' || true)
  ((${#debian_sources[@]}))
}
