#!/usr/bin/env bash
# Builds the images without a registry and proves them: what is in them here, how they run in the
# guest that has an rxe device. Prints lines that ci/test.sh counts.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
suite=bookworm
image_limit=$((120 * 1000 * 1000))

usage() {
  cat <<'USAGE'
usage: ci/docker/test.sh [--only STEP,...] [--clean]

  --only    some of the steps, in this order: lint images contents guest
  --clean   forget the base and the images of earlier runs first (build/docker)

The base image is a Debian root that mmdebstrap makes, the Dockerfile is built by buildah, and podman
runs the images in the guest of ci/vm. Needs root (sudo is tried) and this machine's apt sources.
USAGE
}
say() { printf 'docker: %s\n' "$*"; }
die() { printf 'docker: error: %s\n' "$*" >&2; exit 1; }
ok() { printf 'ok - docker: %s\n' "$*"; }
not_ok() { printf 'not ok - docker: %s # %s\n' "$1" "$2"; status=1; }

arguments=("$@")
steps=lint,images,contents,guest clean=0
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --only) steps=${2:?--only needs a list of steps}; shift ;;
    --clean) clean=1 ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
  shift
done
for step in ${steps//,/ }; do
  [[ ,lint,images,contents,guest, == *,$step,* ]] || die "no step '$step' (lint images contents guest)"
done
if ((EUID != 0)); then
  command -v sudo >/dev/null || die "this needs root, to make a root file system and images"
  exec sudo -- "$here/test.sh" "${arguments[@]}"
fi
"$root/ci/setup.sh" docker vm

house=$root/build/docker
mkdir -p "$house"
exec 9>"$house/.lock"
flock -n 9 || die "another ci/docker/test.sh runs in this tree"

# A store of images of our own, apart from what the machine's user has.
export STORAGE_DRIVER=overlay
engine=(--root "$house/store" --runroot "$house/run")
base_image=localhost/remora-base:12
declare -A image=([runtime]=localhost/remora:local [test]=localhost/remora-test:local
  [etcd]=localhost/remora-etcd:local)
# The store's own mount, and what an interrupted build has left, would keep the folder from going.
unmount_store() {
  grep -oE " $house/(store|run)/[^ ]+" /proc/mounts | sort -r | xargs -r -n 1 umount || true
}
trap unmount_store EXIT
trap 'exit 130' INT TERM HUP
forget_images() {
  unmount_store
  rm -rf --one-file-system "$house/store" "$house/run" "$house/base.tar"
}
if ((clean)); then forget_images; fi

status=0
# --- lint: what needs no image ------------------------------------------------------------------

# What compose makes of its files and their profile, in compose.resolved; prometheus.yml beside its rules,
# as mounted.
resolve() {
  local files=() file
  for file in "$@"; do files+=(-f "$here/$file"); done
  REMORA_ADDRESS=192.0.2.1 docker-compose "${files[@]}" --profile cluster config >"$house/compose.resolved" 2>"$house/compose.log"
}
mount_rules() {
  rm -rf "$house/prometheus"
  mkdir -p "$house/prometheus/remora"
  cp "$here/prometheus.yml" "$house/prometheus/"
  cp "$root"/metrics/prometheus/remora.*.yml "$house/prometheus/remora/"
}

step_lint() {
  mount_rules
  if promtool check config "$house/prometheus/prometheus.yml" >"$house/promtool.log" 2>&1 &&
    grep -q '2 rule files found' "$house/promtool.log"; then
    ok "prometheus.yml and its two rule files are accepted by promtool"
  else
    cat "$house/promtool.log"
    not_ok "prometheus.yml" "promtool refuses it, or does not find two rule files"
  fi
  lint_compose compose.yaml compose.rdma.yaml
  lint_compose compose.yaml
}

lint_compose() {
  if ! resolve "$@"; then
    cat "$house/compose.log"
    not_ok "$*" "docker-compose refuses it"
  elif "$here/check_compose.py" "$house/compose.resolved"; then
    ok "$*: read by docker-compose, images pinned, mounted files there, names agree"
  else
    not_ok "$*" "see above"
  fi
}

# --- images: the base by mmdebstrap, the rest by the Dockerfile -----------------------------------

# What debian:bookworm-slim is: a minimal root without manuals and translations, /usr merged.
make_base() {
  if podman "${engine[@]}" image exists "$base_image"; then
    say "the base of an earlier run is used (--clean makes a new one)"
    return 0
  fi
  if [[ ! -s $house/base.tar ]]; then
    # shellcheck source=../debian_root.sh
    . "$root/ci/debian_root.sh"
    debian_root_sources "$suite" || die "no apt source of this machine offers $suite"
    say "a Debian root, from ${debian_sources[*]}"
    local options=("${debian_options[@]}") pattern
    for pattern in 'exclude=/usr/share/man/*' 'exclude=/usr/share/doc/*' \
      'include=/usr/share/doc/*/copyright' 'exclude=/usr/share/locale/*' \
      'include=/usr/share/locale/locale.alias'; do
      options+=("--dpkgopt=path-$pattern")
    done
    mmdebstrap --quiet --variant=minbase --include=usr-is-merged \
      --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr "${options[@]}" "$suite" \
      "$house/base.part.tar" "${debian_sources[@]}" >"$house/mmdebstrap.log" 2>&1 || {
      tail -n 20 "$house/mmdebstrap.log"
      die "mmdebstrap failed"
    }
    mv "$house/base.part.tar" "$house/base.tar"
  fi
  podman "${engine[@]}" import --quiet "$house/base.tar" "$base_image" >/dev/null
}

step_images() {
  local target started=$SECONDS cache
  make_base
  # The machine's own compiler cache: objects are the same, since package and paths are.
  cache=$(ccache --get-config cache_dir)
  mkdir -p "$cache"
  for target in runtime test etcd; do
    say "building $target"
    if ! buildah "${engine[@]}" bud --layers --format docker --isolation chroot --network host \
      --ignorefile "$here/Dockerfile.dockerignore" --file "$here/Dockerfile" --target "$target" \
      --build-arg "BASE=$base_image" --build-arg CCACHE_DIR=/ccache --volume "$cache:/ccache" \
      --build-arg "JOBS=$(nproc)" --tag "${image[$target]}" "$root" >"$house/$target.log" 2>&1; then
      tail -n 40 "$house/$target.log" | cut -c 1-300
      not_ok "the Dockerfile builds $target" "see build/docker/$target.log"
      return 0
    fi
    ok "the Dockerfile builds $target ($((SECONDS - started)) s)"
    started=$SECONDS
  done
}

# --- contents: what is in the images ----------------------------------------------------------------

inspect() { podman "${engine[@]}" image inspect --format "$2" "${image[$1]}"; }

step_contents() {
  local size base mounted found
  size=$(inspect runtime '{{.Size}}')
  base=$(podman "${engine[@]}" image inspect --format '{{.Size}}' "$base_image")
  say "runtime: $((size / 1000000)) MB, of which the base $((base / 1000000)) MB;" \
    "test: $(($(inspect test '{{.Size}}') / 1000000)) MB; etcd: $(($(inspect etcd '{{.Size}}') / 1000000)) MB"
  if ((size < image_limit)); then
    ok "the runtime image is smaller than $((image_limit / 1000000)) MB"
  else
    not_ok "the runtime image is smaller than $((image_limit / 1000000)) MB" "$size bytes"
  fi
  found=$(inspect runtime '{{.Config.User}} {{.Config.Healthcheck.Test}} {{.Config.Entrypoint}}')
  if [[ $found == "remora [CMD remora-healthcheck] [remora-server]" ]]; then
    ok "the runtime image has a normal user, a health check, the server as its program"
  else
    not_ok "configuration of the runtime image" "found $found"
  fi

  mounted=$(podman "${engine[@]}" image mount "${image[runtime]}")
  contents_of "$mounted"
  podman "${engine[@]}" image unmount "${image[runtime]}" >/dev/null
}

# The programs start in a chroot, the server's file is right, and nothing that builds is there.
contents_of() {
  local found
  if found=$(chroot "$1" /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin bash -c '
    set -e
    remora version
    remora config check /etc/remora/server.yaml
    remora-server --config /etc/remora/server.yaml --check
    ls /usr/lib/*/libibverbs/*.so /etc/libibverbs.d/* >/dev/null' 2>&1); then
    ok "programs, their libraries, verbs providers and the configuration of the image are whole"
  else
    not_ok "the contents of the runtime image" "$found"
  fi
  found=$(for name in g++ cc ld cmake git curl python3; do
    if [[ -e $1/usr/bin/$name ]]; then echo "$name"; fi
  done | xargs)
  if [[ $found ]]; then not_ok "nothing that builds is in the runtime image" "found $found"; else
    ok "nothing that builds is in the runtime image"; fi
}

# --- guest: how they run ----------------------------------------------------------------------------

step_guest() {
  # The folder is given to the guest as it is: an overlay on top of an overlay would hide what a
  # layer has removed.
  "$root/ci/vm/run.sh" --memory 6G --timeout 3600 --share "$house" -- \
    "$here/guest.sh" "$house" || status=1
}

wants() { [[ ,$steps, == *,$1,* ]]; }
if wants lint; then step_lint; fi
if wants images; then step_images; fi
if wants contents; then step_contents; fi
if wants guest; then step_guest; fi
exit "$status"
