#!/usr/bin/env bash
# Builds the Debian packages of ci/debian/ from what is committed, into build/packages.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
maintainer="Remora maintainers <maintainers@remora.invalid>"

usage() {
  cat <<'USAGE'
usage: ci/package.sh [--twice] [--ccache] [--output FOLDER] [--no-lintian]

Builds the packages of the commit HEAD (default folder: build/packages), and runs lintian on them.

  --twice       build once more at another path, without ccache, and compare every byte
  --ccache      use this machine's ccache for the first build
  --output      where to put them
  --no-lintian  do not check them

ci/setup.sh package installs what it needs; ci/package_test.sh installs the packages in a new Debian root.
USAGE
}

say() { printf 'package: %s\n' "$*"; }
die() { printf 'package: error: %s\n' "$*" >&2; exit 1; }

twice=0 lint=1 use_ccache=0 output=$root/build/packages
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --twice) twice=1 ;;
    --ccache) use_ccache=1 ;;
    --no-lintian) lint=0 ;;
    --output) output=${2:?--output needs a folder}; shift ;;
    *) usage >&2; die "unknown option '$1'" ;;
  esac
  shift
done

for tool in dpkg-buildpackage dh scdoc; do
  command -v "$tool" >/dev/null || die "$tool is missing: run ci/setup.sh build package"
done
git -C "$root" diff --quiet HEAD -- || say "note: changes that are not committed are not packed"

# A version that rises with each commit and is below that of the release: 0.1.0~git20261126150000.abcdef12.
base=$(sed -nE 's/^project\(remora VERSION ([0-9.]+) .*/\1/p' "$root/CMakeLists.txt")
[[ -n $base ]] || die "CMakeLists.txt has no version"
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct HEAD)
export SOURCE_DATE_EPOCH
if [[ $(git -C "$root" tag --points-at HEAD) == *"v$base"* ]]; then
  version=$base
else
  version=$base~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$(git -C "$root" rev-parse --short=8 HEAD)
fi

house=$(mktemp -d "${TMPDIR:-/var/tmp}/remora-package.XXXXXX")
trap 'rm -rf "$house"' EXIT
trap 'exit 130' INT TERM HUP


# make_tree FOLDER: the committed tree with debian/ and its changelog.
make_tree() {
  local tree=$1
  mkdir -p "$tree"
  git -C "$root" archive HEAD | tar -x -C "$tree"
  cp -r "$tree/ci/debian" "$tree/debian"
  printf 'remora (%s) unstable; urgency=medium\n\n  * CHANGELOG.md says what has changed.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" >"$tree/debian/changelog"
}

# build_in FOLDER: the packages end up in FOLDER.
build_in() {
  local began=$SECONDS
  make_tree "$1/remora"
  say "building $version in $1"
  (cd "$1/remora" && env -u CXX -u CC -u CXXFLAGS -u CFLAGS -u LDFLAGS LC_ALL=C.UTF-8 \
    DEB_BUILD_OPTIONS="parallel=$(nproc)" dpkg-buildpackage -us -uc -b) >"$1.log" 2>&1 || {
    tail -n 40 "$1.log" >&2
    die "dpkg-buildpackage failed"
  }
  say "built in $((SECONDS - began)) s"
}

mkdir -p "$house/first" "$output"
if ((use_ccache)); then
  CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ccache} REMORA_PACKAGE_CCACHE=1 build_in "$house/first"
else
  build_in "$house/first"
fi
rm -f "$output"/*.deb "$output"/*.changes "$output"/*.buildinfo
cp "$house"/first/*.deb "$house"/first/*.changes "$house"/first/*.buildinfo "$output/"
cp "$house/first.log" "$output/build.log"
for package in "$output"/*.deb; do echo "ok - package: $(basename "$package")"; done

status=0
if ((twice)); then
  mkdir -p "$house/the/second/place"
  build_in "$house/the/second/place"
  for package in "$house"/first/*.deb; do
    name=$(basename "$package")
    if cmp -s "$package" "$house/the/second/place/$name"; then
      echo "ok - package: $name, built twice, is the same"
    else
      echo "not ok - package: $name, built twice, differs (diffoscope shows where)"
      cp "$house/the/second/place/$name" "$output/${name%.deb}.second"
      status=1
    fi
  done
fi
if ((lint)); then
  command -v lintian >/dev/null || die "lintian is missing: run ci/setup.sh package, or use --no-lintian"
  if lintian --fail-on error,warning --display-info "$output"/*.changes; then
    echo "ok - package: lintian"
  else
    echo "not ok - package: lintian"
    status=1
  fi
fi
exit "$status"
