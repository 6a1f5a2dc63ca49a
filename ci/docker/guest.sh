#!/usr/bin/env bash
# Started by test.sh in the guest that has an rxe device: runs the images there by podman, as a
# normal user, and prints a line for each thing proved. Run by hand:
#   ci/vm/run.sh --memory 6G --share "$PWD/build/docker" -- "$PWD/ci/docker/guest.sh" "$PWD/build/docker" [STEP...]
# (steps: rights conformance userfaultfd server rxe_up commands)
# shellcheck disable=SC2317  # functions called by their names
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
house=${1:?usage: guest.sh FOLDER_OF_TEST_SH [STEP...]}
server=localhost/remora:local suites=localhost/remora-test:local
# No console of the guest's own for a container, and no service manager to keep control groups.
work=/run/remora-docker
mkdir -p "$work"
export REMORA_CONTAINER_ENGINE=podman CONTAINERS_CONF=$work/containers.conf
export CONTAINERS_STORAGE_CONF=$work/storage.conf
cat >"$CONTAINERS_CONF" <<'CONF'
[containers]
cgroups = "disabled"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
CONF
# Images are read where test.sh has made them; only what containers write is in the guest's memory.
cat >"$CONTAINERS_STORAGE_CONF" <<CONF
[storage]
driver = "overlay"
graphroot = "$work/store"
runroot = "$work/run"
[storage.options]
additionalimagestores = ["$house/store"]
CONF

status=0
ok() { printf 'ok - docker: %s\n' "$*"; }
not_ok() { printf 'not ok - docker: %s # %s\n' "$1" "$2"; status=1; }
# check NAME WANTED FOUND
check() {
  if [[ $3 == "$2" ]]; then ok "$1"; else not_ok "$1" "wanted '$2', found '$3'"; fi
}
# Without a service manager podman cannot make the timer of a health check, and complains of it:
# only the server is started with one, and asked by `podman healthcheck run`.
run() { "$here/run.sh" --no-healthcheck "$@"; }
run_server() { "$here/run.sh" --detach "$@" >/dev/null 2>>"$work/podman.log"; }
inside() { podman exec "$@"; }

# What a container of run.sh may do and see.
prove_rights() {
  local found
  found=$(run --entrypoint=bash "$server" -c 'id -u; ls /dev/infiniband; ulimit -l;
    sed -n "s/^CapEff:[[:space:]]*//p; s/^NoNewPrivs:[[:space:]]*//p; s/^Seccomp:[[:space:]]*//p" /proc/self/status;
    touch /usr/x 2>/dev/null && echo writable' | tr '\n' ' ' || true)
  # CapEff, NoNewPrivs, Seccomp (2: a filter) in the kernel's order.
  check "a container is user 7471 with two device nodes, locked memory, no capabilities, a seccomp filter" \
    "7471 rdma_cm uverbs0 unlimited 0000000000000000 1 2 " "$found"
  found=0
  podman run --rm --network host "$suites" rdma conformance >"$work/no-device.log" 2>&1 || found=$?
  check "without device nodes the suite over rdma fails rather than skips" 1 "$found"
}

# The whole conformance suite, under the engine's default seccomp profile.
prove_conformance() { run "$suites" rdma || status=1; }

# What the default profile does to userfaultfd, and what is so with a profile that lets it through.
# The suite's own case compares the engine's gauge with what the kernel answers.
prove_userfaultfd() {
  local cases=--gtest_filter='*/ForeignMemoryTest.*/rdma' profile=$work/profile.json found
  userfaultfd_of() {
    run "$@" "$suites" userfaultfd 2>&1 | tail -n 1 || true
  }
  check "the default seccomp profile refuses userfaultfd" "userfaultfd: Operation not permitted" "$(userfaultfd_of)"
  found=0
  run --env=REMORA_TEST_TRANSPORT=rdma "$suites" conformance "$cases" \
    >"$work/default.log" 2>&1 || found=$?
  sed 's/^/  /' "$work/default.log"
  check "then nothing is kept, the engine's gauge says so, and transfers are right" "0 0" \
    "$found $(grep -cE '^\[ +(SKIPPED|FAILED)| 0 tests' "$work/default.log" || true)"

  "$here/seccomp.sh" /usr/share/containers/seccomp.json >"$profile"
  check "seccomp.sh's profile allows it" "userfaultfd: allowed" "$(userfaultfd_of "--security-opt=seccomp=$profile")"
  found=0
  run "--security-opt=seccomp=$profile" --env=REMORA_TEST_TRANSPORT=rdma "$suites" \
    conformance "$cases" >"$work/allowed.log" 2>&1 || found=$?
  sed 's/^/  /' "$work/allowed.log"
  check "then registrations are kept, and the gauge says so" "0 0" \
    "$found $(grep -cE '^\[ +(SKIPPED|FAILED)| 0 tests' "$work/allowed.log" || true)"
}

# The server of the image, its health, a load from a second container, its metrics, its end.
prove_server() {
  local found deadline log=$work/server.log
  run_server --name=server "$server"
  found=starting
  for ((deadline = SECONDS + 60; SECONDS < deadline; )); do
    if podman healthcheck run server >"$work/health.log" 2>&1; then
      found=healthy
      break
    fi
    sleep 0.5
  done
  inside server remora-healthcheck 2>&1 | sed 's/^/  /' || true
  podman logs server 2>&1 | sed 's/^/  /'
  check "the server's health check becomes healthy" healthy "$found"
  found=0
  run --entrypoint=remora "$server" bench "remora://$REMORA_VM_ADDRESS/demo?transport=rdma" \
    --op=read:70,write:30 --size=4KiB --depth=8 --seconds=2 --json >"$work/bench.json" || found=$?
  check "a load from a second container over rdma" "0 rdma {}" \
    "$found $(jq -r '.transport, (.results[0].errors | tostring)' "$work/bench.json" | xargs)"
  jq -c '.results[0] | {operations_per_second, latency_ns}' "$work/bench.json" | sed 's/^/  /'
  found=$(inside server bash -c 'exec 3<>/dev/tcp/127.0.0.1/9471
    printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; grep -c "^remora_server_sessions_total{transport=\"rdma\"} [1-9]" <&3' || true)
  check "its metrics know the session" 1 "$found"
  found=0
  inside server remora-healthcheck 127.0.0.1:9 >/dev/null 2>&1 || found=$?
  check "the health check fails where no process listens" 1 "$found"
  podman logs --follow server >"$log" 2>&1 &
  podman stop --time 20 server >/dev/null 2>>"$work/podman.log"
  wait $! || true
  tail -n 2 "$log" | sed 's/^/  /'
  check "SIGTERM ends the server in order" 1 "$(grep -c ' info: stopped$' "$log" || true)"
}

# rxe-up.sh on a host that has the module: this guest, without the device that it came with.
prove_rxe_up() {
  local found deadline
  rdma link delete rxe0
  found=0
  run "$suites" rdma >/dev/null 2>"$work/none.log" || found=$?
  check "run.sh says where a device comes from when there is none" "3 1" \
    "$found $(grep -c 'rxe-up.sh' "$work/none.log")"
  found=$("$here/rxe-up.sh" | tail -n 1 || true)
  check "rxe-up.sh makes a device on a pair of its own" "REMORA_ADDRESS=10.78.0.1" "$found"
  found=0
  run_server --name=server2 "$server"
  for ((deadline = SECONDS + 60; SECONDS < deadline; )); do
    if run --entrypoint=remora "$server" ls 'remora://10.78.0.1?transport=rdma' >"$work/ls.log" 2>&1; then
      break
    fi
    sleep 0.5
  done
  sed 's/^/  /' "$work/ls.log"
  check "a server is reached over it" 1 "$(grep -c demo "$work/ls.log")"
  podman stop --time 10 server2 >/dev/null 2>>"$work/podman.log"
  found=0
  "$here/rxe-up.sh" >/dev/null 2>&1 || found=$?
  check "a second rxe-up.sh refuses and leaves the first one's device" "1 ACTIVE" \
    "$found $(sed 's/.*: //' /sys/class/infiniband/rxe0/ports/1/state)"
  "$here/rxe-up.sh" --down
  found="$(rdma link | wc -l) $(ip -br link | grep -c '^remora' || true)"
  check "rxe-up.sh --down leaves neither device nor interfaces" "0 0" "$found"
  found=0
  "$here/rxe-up.sh" --netdev nosuch0 >/dev/null 2>&1 || found=$?
  check "rxe-up.sh refuses an interface that is not there, and undoes" "1 0" "$found $(rdma link | wc -l)"
  found=$("$here/rxe-up.sh" --netdev "$REMORA_VM_NETDEV" | tail -n 1 || true)
  check "rxe-up.sh --netdev makes a device on a given interface" "REMORA_ADDRESS=$REMORA_VM_ADDRESS" "$found"
}

# The commands of the documents, as a reader types them: compose.yaml with all but Grafana, over tcp and
# over a device that they make themselves; images without Compose; the seccomp profile.
prove_commands() {
  printf '127.0.0.1 server load etcd s1 s2 s3\n' >>/etc/hosts  # what compose's network answers
  mkdir -p "$work/bin"
  ln -sf "$here/docker_by_podman.py" "$work/bin/docker"
  "$here/rxe-up.sh" --down
  PATH=$work/bin:$PATH REMORA_GRAFANA=none "$here/../check_commands.py" --where docker || status=1
}

steps=("${@:2}")
((${#steps[@]})) || steps=(rights conformance userfaultfd server rxe_up commands)
podman images
started=$EPOCHSECONDS
for step in "${steps[@]}"; do
  echo "--- $step ($((EPOCHSECONDS - started)) s)"
  "prove_$step"
done
echo "--- all ($((EPOCHSECONDS - started)) s)"
exit "$status"
