#!/usr/bin/env bash
# What metrics/prometheus and metrics/grafana ship, against a real Prometheus that scrapes a real
# server and real clients under load: every query of every panel, variable, rule and alert.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source_folder=${REMORA_SOURCE:-$here/../..}
shipped=$source_folder/metrics/prometheus
for tool in prometheus promtool python3 curl; do
  command -v "$tool" >/dev/null || { echo "no $tool: run ci/setup.sh test"; exit 77; }
done

# --- what needs no process ------------------------------------------------------------------------
run 0 "promtool accepts the configuration and its rules" promtool check config "$shipped/prometheus.yml"
check() { python3 "$here/prometheus_check.py" "$@" --source "$source_folder"; }
is "seeded faults are caught" check self-test
is "catalogue, code, rules, dashboard and runbook agree" check files

# --- a server, a client over tcp, one over shm, and Prometheus ------------------------------------
loopback=${metrics%:*}
tcp_metrics=$loopback:9472 shm_metrics=$loopback:9473 prometheus=$loopback:9090
cat >"$work/both.yaml" <<YAML
listen: {address: "$host", port: $port}
transports: {rdma: off, shm: required, tcp: required}
pool: {size: 32MiB, piece: 4MiB, huge_pages: never}
regions:
  - {name: cache, size: 8MiB, shm: true}
auth: none
metrics: {address: "$metrics"}
cluster: {server: s1, file: "$work/cluster.json"}
YAML
start_server "$work/both.yaml"

# load TRANSPORT ADDRESS: a client in the background, behind other tests, that shows its series until
# it is killed, also when its operations have failed.
load() {
  nice -n 10 "$remora" --timeout 5s bench "remora://$host:$port/cache?transport=$1" --depth 8 \
    --op read,write,cas,add --seconds 600 --metrics "$2" --linger 60 >"$work/bench.$1" 2>&1 </dev/null &
  pids+=($!)
}
load tcp "$tcp_metrics"
load shm "$shm_metrics"

# The shipped files, with other targets and a scrape each second.
mkdir "$work/prometheus"
cp "$shipped"/*.yml "$work/prometheus"
sed -i -e "s/127.0.0.1:9471/$metrics/" -e "s/\"127.0.0.1:9472\"/\"$tcp_metrics\", \"$shm_metrics\"/" \
  -e 's/^\(  scrape_interval:\|  scrape_timeout:\|  evaluation_interval:\) *[0-9]*s/\1 1s/' \
  "$work/prometheus/prometheus.yml"
adapted() {
  same "$(grep -cE '^  [a-z_]+: 1s' "$work/prometheus/prometheus.yml")" 3 &&
    grep -qF "\"$metrics\"" "$work/prometheus/prometheus.yml" &&
    grep -qF "\"$shm_metrics\"" "$work/prometheus/prometheus.yml"
}
is "the configuration takes this test's addresses" adapted
prometheus --config.file="$work/prometheus/prometheus.yml" --storage.tsdb.path="$work/tsdb" \
  --web.listen-address="$prometheus" --log.level=warn >"$work/prometheus.log" 2>&1 </dev/null &
prometheus_pid=$!
pids+=("$prometheus_pid")
prometheus_ready() {
  ended "$prometheus_pid" || curl -fs --max-time 2 "http://$prometheus/-/ready" >/dev/null
}
eventually prometheus_ready
if ended "$prometheus_pid"; then
  sed 's/^/    prometheus: /' "$work/prometheus.log"
  not_ok "Prometheus starts"
  finish
fi
ok "Prometheus starts"

# Control requests, good and bad, as long as the check needs some to count.
control() {
  local i
  for ((i = 0; i < 100; ++i)); do
    "$remora" create "remora://$host:$port/made?transport=tcp" --size 64KiB
    "$remora" ls "remora://$host:$port?transport=tcp"
    "$remora" rm "remora://$host:$port/made?transport=tcp"
    "$remora" rm "remora://$host:$port/missing?transport=tcp"
    sleep 1
  done >/dev/null 2>&1 </dev/null
}
control &
control_pid=$!
pids+=("$control_pid")

is "every query has its data" check queries --prometheus "$prometheus" --seconds 60 \
  --endpoint "$metrics" --endpoint "$tcp_metrics" --endpoint "$shm_metrics"
{ kill "$control_pid" && wait "$control_pid"; } 2>/dev/null

# --- the same alerts, when the server is gone -----------------------------------------------------
stop_server KILL
is "alerts tell of a server that was killed" check alerts --prometheus "$prometheus" --seconds 45 \
  --expect RemoraServerDown=pending --expect RemoraLanesBroken=firing --expect RemoraOperationsLost=firing
finish
