# shellcheck shell=bash
# shellcheck disable=SC2034  # uri is read by the tests
# Sourced by the tests of the packages: a server on a port of its own, which ends with the test.
set -euo pipefail

work=${AUTOPKGTEST_TMP:-$(mktemp -d)}
export REMORA_RUNTIME_DIR=$work/run
mkdir -p "$REMORA_RUNTIME_DIR"
chmod 700 "$REMORA_RUNTIME_DIR"
server=0
cleanup() { if ((server)); then kill "$server" && wait "$server"; fi; }
trap cleanup EXIT

# start_server: of 64 MiB with a region `demo`; sets `uri`.
start_server() {
  cat >"$work/server.yaml" <<'YAML'
listen: {address: 127.0.0.1, port: 0}
pool: {size: 64MiB, huge_pages: never}
regions: [{name: demo, size: 16MiB}]
auth: none
YAML
  remora-server --config "$work/server.yaml" --port-file "$work/port" &
  server=$!
  local tries
  for ((tries = 0; tries < 300; ++tries)); do
    [[ -s $work/port ]] && break
    sleep 0.1
  done
  uri=remora://127.0.0.1:$(cat "$work/port")
}
