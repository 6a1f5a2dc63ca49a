#!/usr/bin/env bash
# Runs an image of Remora with what RDMA needs and nothing else: the device nodes, the host's
# network, unlimited locked memory. A normal user in the container, no capabilities, files read-only.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: ci/docker/run.sh [OPTION...] IMAGE [ARGUMENT...]

  OPTION      one of `docker run` (podman's are the same), as --detach or --name=server; an option
              and its value are one word
  --engine=E  docker or podman (default: REMORA_CONTAINER_ENGINE, else docker, else podman)
  --print     print the command instead of running it

REMORA_ADDRESS in the environment, the address of the RDMA interface, is given to the test image.

Exit status: the container's; 3 when this host has no RDMA device; 125 as `docker run`.
USAGE
}
die() { printf 'run: error: %s\n' "$2" >&2; exit "$1"; }

engine=${REMORA_CONTAINER_ENGINE:-} print=0 options=()
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --engine=*) engine=${1#*=} ;;
    --print) print=1 ;;
    -*) options+=("$1") ;;
    *) break ;;
  esac
  shift
done
(($#)) || { usage >&2; exit 125; }
if [[ ! $engine ]]; then
  for engine in docker podman ''; do
    [[ $engine ]] && command -v "$engine" >/dev/null && break
  done
fi
[[ $engine ]] || die 125 "neither docker nor podman is installed"

# uverbsN is how verbs reach a device, rdma_cm how connections are made; umad and issm are not used.
devices=()
for node in /dev/infiniband/uverbs* /dev/infiniband/rdma_cm; do
  [[ -e $node ]] || die 3 "there is no $node: as root, ci/docker/rxe-up.sh makes a Soft-RoCE device; \
without one use compose.yaml, which is tcp"
  devices+=(--device "$node")
done

# The suites want to know the address of the device, as rxe-up.sh prints it.
address=${REMORA_ADDRESS:-${REMORA_VM_ADDRESS:-}}
if [[ $address ]]; then options+=(--env "REMORA_VM_ADDRESS=$address"); fi

# Host network: an RDMA device belongs to the host's network namespace, and so do its addresses.
command=("$engine" run --rm --network host "${devices[@]}" --ulimit memlock=-1:-1 --cap-drop ALL
  --security-opt no-new-privileges --read-only --tmpfs /tmp "${options[@]}" "$@")
if ((print)); then
  printf '%q ' "${command[@]}"
  echo
  exit 0
fi
exec "${command[@]}"
