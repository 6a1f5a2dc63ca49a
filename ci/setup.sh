#!/usr/bin/env bash
# Installs the Debian packages that Remora needs, and only those that are missing.
# This file is the one list of them. It runs on Debian 12 with nothing but a shell.
set -euo pipefail

# Compiler, libraries, and what ci/quickstart.sh uses to show its results.
build_packages=(
  g++ cmake ninja-build ccache pkg-config git ca-certificates
  libibverbs-dev librdmacm-dev
  libyaml-cpp-dev
  prometheus-cpp-dev
  libcpp-httplib-dev libssl-dev zlib1g-dev libbrotli-dev
  libexpected-dev libspdlog-dev libcli11-dev nlohmann-json3-dev
  libprotobuf-dev protobuf-compiler
  libtbb-dev libhwloc-dev libcurl4-openssl-dev
  libjs-dygraphs
  curl jq
)
# What the test suites and the Python package are compiled with.
suite_packages=(libgtest-dev libgmock-dev libbenchmark-dev python3-cffi python3-dev)
# The store of clusters, which tests start themselves, and what makes its certificates.
cluster_packages=(etcd-server etcd-client openssl)
# clang, with the run-time libraries of its sanitizers and libFuzzer: the other compilers of
# .github/workflows/ci.yml; clang 14 builds the presets asan-ubsan, tsan
# and fuzz, LLD links the first two, and LLVM names functions in their reports.
clang14_packages=(clang-14 libclang-rt-14-dev lld-14 llvm-14)
clang19_packages=(clang-19 libclang-rt-19-dev)
# What apps/nbdkit is built with, and programs that speak NBD, which drive it.
nbd_packages=(
  nbdkit nbdkit-plugin-dev libnbd-bin python3-libnbd nbd-client qemu-utils e2fsprogs fio
)
# The manual pages, their checks, and a validator for the JSON Schema of the server's file. Without them
# the pages are left out, and tests skip.
man_packages=(scdoc man-db mandoc python3-jsonschema python3-yaml)
# Those, formatters, linters. `prometheus` is here as a program: promtool, and a server that tests
# start themselves; `chromium` looks at the page of metrics endpoints; Tab is pressed in `zsh` and `fish`.
test_packages=(
  "${suite_packages[@]}"
  "${clang14_packages[@]}"
  "${nbd_packages[@]}"
  "${man_packages[@]}"
  "${cluster_packages[@]}"
  clang-format-14 clang-tidy-14 shellcheck python3 python3-yaml
  python3-pytest python3-numpy python3-wheel mypy
  python3-protobuf python3-grpcio  # beside which the wheel of apps/python is loaded
  prometheus valgrind iproute2 procps tmux faketime
  abigail-tools
  chromium fonts-dejavu-core
  zsh fish
)
# A guest with Soft-RoCE. The guest's kernel is fetched by ci/vm, not installed.
vm_packages=(
  qemu-system-x86 busybox-static kmod cpio xz-utils util-linux iproute2
  rdma-core rdmacm-utils ibverbs-utils perftest
  nftables
)
# What ci/package.sh and ci/package_test.sh need besides build, fresh and vm: tools of Debian packages, and
# what their parts in C and Python are built with.
package_packages=(
  dpkg-dev debhelper dh-python lintian scdoc
  nbdkit-plugin-dev python3-cffi python3-dev
  systemd-container iproute2
)
# A Debian root to prove that everything works from nothing (ci/fresh.sh).
fresh_packages=(mmdebstrap)
# Images built and run without a daemon or a registry (ci/docker/test.sh), and the commands of its documents.
docker_packages=(mmdebstrap buildah podman crun docker-compose prometheus ccache curl jq git python3 python3-yaml)
# What a container needs to run remora-server and remora, which come with their libraries.
runtime_packages=(ibverbs-providers)
# What tests/bench/compare.sh compares with; nothing else needs it.
bench_packages=(
  libucx-dev ucx-utils libfabric-dev
  memcached redis-server python3-redis nbdkit nbdkit-plugin-dev libnbd-bin fio qemu-utils nvme-cli
  jq iproute2 util-linux
)
# Packages that bring a daemon which is wanted as a program only, with what starts it at boot.
declare -A daemon_units=(
  [prometheus]="multi-user.target.wants/prometheus.service"
  [etcd-server]="multi-user.target.wants/etcd.service etcd2.service"
  [memcached]="multi-user.target.wants/memcached.service"
  [redis-server]="multi-user.target.wants/redis-server.service redis.service"
  [podman]="sockets.target.wants/podman.socket timers.target.wants/podman-auto-update.timer default.target.wants/podman.service default.target.wants/podman-auto-update.service default.target.wants/podman-restart.service"
  [nvme-cli]="default.target.wants/nvmefc-boot-connections.service default.target.wants/nvmf-autoconnect.service"
)

usage() {
  cat <<'USAGE'
usage: ci/setup.sh [--list] [GROUP...]

Installs what is missing of the groups (default: build).
  build   compiler, libraries, ccache
  test    test frameworks, clang, clang-format, clang-tidy, shellcheck, prometheus, chromium, nbdkit
  vm      QEMU and the RDMA user-space tools
  fresh   mmdebstrap
  bench   what tests/bench/compare.sh compares with
  suites  of test, what the test suites and the Python package are compiled with
  nbd     of test, what apps/nbdkit is built with, and programs that speak NBD
  cluster of test, etcd, in which clusters keep their records
  man     of test, the manual pages, and what checks them and the schema of the configuration
  clang14, clang19  the compilers that .github/workflows/ci.yml uses besides g++
  package what ci/package.sh needs besides build, and ci/package_test.sh besides fresh and vm
  docker  buildah, podman and what else ci/docker/test.sh needs besides vm
  runtime what a container that runs Remora needs besides its libraries
  all     build, test and vm

  --list  print the packages of the groups, one a line, and install nothing
USAGE
}

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

packages_of() {
  case "$1" in
    build) printf '%s\n' "${build_packages[@]}" ;;
    test) printf '%s\n' "${test_packages[@]}" ;;
    vm) printf '%s\n' "${vm_packages[@]}" ;;
    man) printf '%s\n' "${man_packages[@]}" ;;
    package) printf '%s\n' "${package_packages[@]}" ;;
    fresh) printf '%s\n' "${fresh_packages[@]}" ;;
    bench) printf '%s\n' "${bench_packages[@]}" ;;
    suites) printf '%s\n' "${suite_packages[@]}" ;;
    nbd) printf '%s\n' "${nbd_packages[@]}" ;;
    cluster) printf '%s\n' "${cluster_packages[@]}" ;;
    clang14) printf '%s\n' "${clang14_packages[@]}" ;;
    clang19) printf '%s\n' "${clang19_packages[@]}" ;;
    docker) printf '%s\n' "${docker_packages[@]}" ;;
    runtime) printf '%s\n' "${runtime_packages[@]}" ;;
    all) printf '%s\n' "${build_packages[@]}" "${test_packages[@]}" "${vm_packages[@]}" ;;
    *) die "unknown group '$1' (see --help)" ;;
  esac
}

# Prints those of the arguments that dpkg does not know as installed.
missing_of() {
  local package status
  declare -A installed=()
  while read -r package status; do
    [[ $status == installed ]] && installed["${package%%:*}"]=1
  done < <(dpkg-query -W -f='${binary:Package} ${db:Status-Status}\n' 2>/dev/null)
  for package in "$@"; do
    [[ -n ${installed[$package]:-} ]] || printf '%s\n' "$package"
  done
}

# Runs a command as root with its output in a log, a sign of life every ten seconds.
run_quietly() {
  local title=$1 started=$SECONDS status=0 shown=0 child
  shift
  say "$title"
  "${as_root[@]}" "$@" >>"$log" 2>&1 </dev/null &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    sleep 1
    if ((SECONDS - started >= shown + 10)); then
      shown=$((SECONDS - started))
      say "  ... ${shown} s, $(grep -c '^Get:' "$log" || true) fetched," \
        "$(grep -c '^Unpacking' "$log" || true) unpacked, $(grep -c '^Setting up' "$log" || true) set up"
    fi
  done
  wait "$child" || status=$?
  return "$status"
}

fail_with_log() {
  tail -n 20 "$log" >&2
  die "$1"
}

groups=()
list_only=0
for argument in "$@"; do
  case "$argument" in
    -h | --help) usage; exit 0 ;;
    --list) list_only=1 ;;
    -*) usage >&2; die "unknown option '$argument'" ;;
    *) groups+=("$argument") ;;
  esac
done
((${#groups[@]})) || groups=(build)

wanted=()
for group in "${groups[@]}"; do
  list=$(packages_of "$group")  # a separate step, so that an unknown group ends the script
  mapfile -t -O "${#wanted[@]}" wanted <<<"$list"
done
mapfile -t wanted < <(printf '%s\n' "${wanted[@]}" | sort -u)
if ((list_only)); then
  printf '%s\n' "${wanted[@]}"
  exit 0
fi

for tool in dpkg-query apt-get; do
  command -v "$tool" >/dev/null || die "$tool is missing (not Debian?); install by other means: ${wanted[*]}"
done
mapfile -t missing < <(missing_of "${wanted[@]}")
if ((${#missing[@]} == 0)); then
  say "${groups[*]}: all ${#wanted[@]} packages are installed"
  exit 0
fi

as_root=(env)
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    die "${#missing[@]} packages are missing; as root, run: apt-get install --no-install-recommends ${missing[*]}"
  as_root=(sudo env)
  sudo true || die "sudo was refused; as root, run: apt-get install --no-install-recommends ${missing[*]}"
fi
as_root+=(DEBIAN_FRONTEND=noninteractive LC_ALL=C)

log=$(mktemp "${TMPDIR:-/tmp}/remora-setup.XXXXXX.log")
policy=/usr/sbin/policy-rc.d
policy_is_ours=0
cleanup() {
  if ((policy_is_ours)); then "${as_root[@]}" rm -f "$policy"; fi
  rm -f "$log"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "${groups[*]}: ${#missing[@]} of ${#wanted[@]} packages to install: ${missing[*]}"

# These daemons are neither started now (policy-rc.d answers "no", see invoke-rc.d(8)) nor at the
# next boot, unless they had been set up before.
unwanted_units=()
for package in "${missing[@]}"; do
  read -ra units <<<"${daemon_units[$package]:-}"
  unwanted_units+=("${units[@]}")
done
if ((${#unwanted_units[@]})) && [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
  policy_is_ours=1
fi

updated=0
update() {
  updated=1
  run_quietly "apt-get update" apt-get -q update || fail_with_log "apt-get update failed (sources, network?)"
}
install() {
  run_quietly "apt-get install" apt-get -q -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 \
    install --no-install-recommends "${missing[@]}"
}

compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || update
if ! install; then
  ((updated)) && fail_with_log "apt-get install failed"
  update  # the lists were older than what the archive still has
  install || fail_with_log "apt-get install failed"
fi
for unit in "${unwanted_units[@]}"; do  # what `systemctl disable` does, which may not be there
  "${as_root[@]}" rm -f "/etc/systemd/system/$unit"
done

mapfile -t missing < <(missing_of "${wanted[@]}")
((${#missing[@]} == 0)) || die "still missing after the installation: ${missing[*]}"
say "done in ${SECONDS} s"
