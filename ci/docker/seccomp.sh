#!/usr/bin/env bash
# Prints a seccomp profile with userfaultfd allowed: the one that is given, and that one call. The MR
# cache needs it (docs/seccomp.md); which profile an engine has by default is its own, so none is kept here.
#
# usage: ci/docker/seccomp.sh PROFILE.json >remora-seccomp.json
#   podman: /usr/share/containers/seccomp.json
#   Docker: profiles/seccomp/default.json of its source, of the version that `docker version` shows
set -euo pipefail

die() { printf 'seccomp: error: %s\n' "$*" >&2; exit 1; }
(($# == 1)) || die "usage: ci/docker/seccomp.sh PROFILE.json"
command -v jq >/dev/null || die "there is no jq: install it"
jq -e '.defaultAction and (.syscalls | type == "array")' "$1" >/dev/null ||
  die "$1 is no seccomp profile: it has no defaultAction and syscalls"
# A call named twice would be refused or allowed by chance: it goes from where it stands.
jq '.syscalls |= ([.[] | .names -= ["userfaultfd"] | select(.names | length > 0)]
    + [{names: ["userfaultfd"], action: "SCMP_ACT_ALLOW"}])' "$1"
