#!/usr/bin/env bash
# Prints the Debian packages of the libraries that programs are linked with, one a line, sorted.
# So an image has what its programs need, whatever they begin or cease to need.
#
# usage: ci/docker/needs.sh PROGRAM...
set -euo pipefail

die() { printf 'needs: error: %s\n' "$*" >&2; exit 1; }
(($#)) || die "usage: ci/docker/needs.sh PROGRAM..."

for program in "$@"; do
  listing=$(ldd "$program") || die "$program: not a dynamically linked program"
  if grep 'not found' <<<"$listing" >&2; then die "$program: a library is missing on this machine"; fi
  # `name => path (address)`, and the loader as `path (address)`; the vDSO has no path.
  sed -nE 's/^.* => (\/[^ ]+) \(.*/\1/p; s/^[[:space:]]*(\/[^ ]+) \(.*/\1/p' <<<"$listing"
done | sort -u | while read -r library; do
  # dpkg knows a file by the path it was packaged with: with /usr in front of /lib, or without.
  real=$(readlink -f "$library")
  owner=$(dpkg-query -S "$library" "$real" "${real#/usr}" 2>/dev/null | head -n 1 || true)
  [[ $owner ]] || die "$library belongs to no package"
  printf '%s\n' "${owner%%:*}"
done | sort -u
