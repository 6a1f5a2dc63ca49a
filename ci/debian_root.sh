# Sourced by fresh.sh, package_test.sh and docker/test.sh: how mmdebstrap makes a root that can install
# what this machine can, and how a command runs in it. They have say() and die().
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

# debian_root_house NAME [PLACE]: sets `house`, a new folder for roots in PLACE (or $TMPDIR, or /var/tmp),
# which is removed when the script ends, unless `keep` is 1.
debian_root_house() {
  local base=${2:-${TMPDIR:-/var/tmp}}
  mkdir -p "$base"
  house=$(mktemp -d "$base/$1.XXXXXX")
  chmod 755 "$house"  # apt in the root works as another user
  trap debian_root_cleanup EXIT
  trap 'exit 130' INT TERM HUP
}
# shellcheck disable=SC2317,SC2154  # called by the trap; the script sets keep
debian_root_cleanup() {
  # Nothing is mounted here outside the namespace of debian_root_enter: removing is safe.
  if ((keep)); then
    say "kept: $house"
  else
    rm -rf --one-file-system "$house"
  fi
}

# debian_root_make ROOT SUITE PACKAGES: by the sources of debian_root_sources; fails with the end of the
# log, ROOT.log. The root finds hosts as this machine does.
debian_root_make() {
  local file
  mmdebstrap --quiet --variant=minbase --include="$3" "${debian_options[@]}" "$2" "$1" \
    "${debian_sources[@]}" >"$1.log" 2>&1 || {
    tail -n 20 "$1.log" >&2
    die "mmdebstrap failed"
  }
  for file in /etc/resolv.conf /etc/hosts; do
    if [[ -e $file ]]; then cp -L "$file" "$1$file"; fi
  done
}

# debian_root_enter ROOT FOLDER COMMAND...: in namespaces of its own: the mounts and every process in it
# end with it, whatever happens. With debian_root_isolated=1 it has no network but lo.
debian_root_enter() {
  local more=()
  if [[ ${debian_root_isolated:-0} == 1 ]]; then more=(--net); fi
  export debian_root_isolated
  # shellcheck disable=SC2016  # expanded by the inner shell
  unshare --mount --pid "${more[@]}" --fork --kill-child --propagation private -- bash -euc '
    house=$1 folder=$2
    shift 2
    if [[ ${debian_root_isolated:-0} == 1 ]]; then ip link set lo up; fi
    mount -t proc proc "$house/proc"
    mount --rbind /dev "$house/dev"
    mount --rbind /sys "$house/sys"
    mount -t tmpfs tmpfs "$house/run"
    exec chroot "$house" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      HOME=/root LC_ALL=C.UTF-8 TERM="${TERM:-dumb}" \
      ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
      bash -c "cd \"\$1\" && shift && exec \"\$@\"" bash "$folder" "$@"
  ' enter "$@"
}
