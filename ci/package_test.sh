#!/usr/bin/env bash
# Installs, uses, upgrades, removes and purges the packages of ci/package.sh in a new Debian root; and, in
# the guest of ci/vm, under systemd. The root is removed afterwards.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
suite=bookworm

usage() {
  cat <<'USAGE'
usage: ci/package_test.sh [--packages FOLDER] [--from FOLDER] [--systemd] [--at FOLDER] [--keep]

  --packages  the packages to test (default: build/packages, which ci/package.sh fills)
  --from      packages of an earlier version, to upgrade from (default: the same ones with a lower version)
  --systemd   also under systemd, in the guest of ci/vm
  --at        where to make the roots (default: a new folder under $TMPDIR or /var/tmp; about 2 GB)
  --keep      do not remove them at the end

Needs root (sudo is tried), ci/setup.sh package, and this machine's apt sources.
USAGE
}

say() { printf 'package test: %s\n' "$*"; }
die() { printf 'package test: error: %s\n' "$*" >&2; exit 1; }

arguments=("$@")
packages=$root/build/packages from='' systemd=0 keep=0 place=''
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --packages) packages=${2:?--packages needs a folder}; shift ;;
    --from) from=${2:?--from needs a folder}; shift ;;
    --systemd) systemd=1 ;;
    --at) place=${2:?--at needs a folder}; shift ;;
    --keep) keep=1 ;;
    *) usage >&2; die "unknown option '$1'" ;;
  esac
  shift
done
compgen -G "$packages/*.deb" >/dev/null || die "$packages has no packages: run ci/package.sh"
if ((EUID != 0)); then
  command -v sudo >/dev/null || die "this needs root, to make a root file system and mount /proc in it"
  exec sudo -- "$root/ci/package_test.sh" "${arguments[@]}"
fi
for tool in mmdebstrap dpkg-deb ip; do
  command -v "$tool" >/dev/null || die "$tool is missing: run ci/setup.sh package"
done

# shellcheck source=debian_root.sh
. "$root/ci/debian_root.sh"
debian_root_house remora-packages "$place"
debian_root_sources "$suite" || die "no apt source of this machine offers $suite"

# make_root NAME PACKAGES: with what the tests need besides the packages, these in /debs.
make_root() {
  local folder=$house/$1 started=$SECONDS
  debian_root_make "$folder" "$suite" "$2"
  mkdir -p "$folder/debs/new" "$folder/debs/previous" "$folder/tests/apps"
  cp "$packages"/*.deb "$folder/debs/new/"
  rm -f "$folder"/debs/new/*-dbgsym_*.deb
  cp "$house"/previous/*.deb "$folder/debs/previous/"
  cp "$root"/ci/package_*.sh "$root/ci/package_load.py" "$folder/tests/"
  # The documents whose commands are run there, and what runs them.
  (cd "$root" && ci/check_commands.py --list | sed -n 's/:[0-9]*: package$//p' | sort -u |
    xargs cp --parents -t "$folder/tests" ci/*.sh ci/*.py ci/vm/run.sh config/examples/*.yaml)
  mkdir -p "$folder/tests/build"
  ln -s /debs/new "$folder/tests/build/packages"
  cp -r "$root/ci/debian" "$folder/tests/debian"
  cp -r "$root/apps/examples" "$folder/tests/apps/examples"
  say "a Debian root ($1) in $((SECONDS - started)) s"
}

# A version below that of the packages: what `~` stands before is lower.
make_previous() {
  local package name version
  mkdir -p "$house/previous"
  if [[ -n $from ]]; then
    cp "$from"/*.deb "$house/previous/"
    rm -f "$house"/previous/*-dbgsym_*.deb
    return
  fi
  for package in "$packages"/*.deb; do
    name=$(basename "$package")
    [[ $name == *-dbgsym_* ]] && continue
    version=$(dpkg-deb -f "$package" Version)
    rm -rf "$house/unpacked"
    dpkg-deb -R "$package" "$house/unpacked"
    sed -i "s/$version/$version~previous/g" "$house/unpacked/DEBIAN/control"
    dpkg-deb -Znone --root-owner-group -b "$house/unpacked" "$house/previous/$name" >/dev/null
  done
  rm -rf "$house/unpacked"
}

status=0
in_root() { debian_root_enter "$house/root" / /tests/package_in_root.sh "$1" || status=1; }

make_previous
make_root root procps,jq,curl,gcc,libc6-dev,pkg-config,libnbd-bin
in_root install
debian_root_isolated=1  # so that its ports are its own
in_root use
in_root upgrade
in_root remove
debian_root_isolated=0
in_root purge

if ((systemd)); then
  command -v systemd-nspawn >/dev/null || die "systemd-nspawn is missing: run ci/setup.sh package"
  make_root booted systemd,systemd-sysv,procps,iproute2
  # What the packages depend on is fetched here: the guest has no network.
  debian_root_enter "$house/booted" / /tests/package_in_systemd.sh prepare || status=1
  "$root/ci/vm/run.sh" --memory 4G --timeout 1500 -- "$root/ci/package_in_systemd.sh" boot "$house/booted" || status=1
fi
exit "$status"
