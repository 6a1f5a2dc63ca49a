#!/usr/bin/env bash
# Asks what compose.yaml has started whether it works: Prometheus scrapes the server and the load,
# operations are counted, Grafana has the dashboard. Waits up to 90 s, since scrapes are 15 s apart.
#
# usage: ci/docker/compose-check.sh
# Environment: REMORA_PROMETHEUS, REMORA_GRAFANA: where they are; REMORA_GRAFANA=none leaves Grafana out.
# shellcheck disable=SC2317  # functions called by `expect`
set -euo pipefail

prometheus=${REMORA_PROMETHEUS:-http://127.0.0.1:9090} grafana=${REMORA_GRAFANA:-http://127.0.0.1:3000}
deadline=$((SECONDS + 90))
status=0

# The value of a query, or nothing.
query() {
  curl -fsS --max-time 5 --get --data-urlencode "query=$1" "$prometheus/api/v1/query" 2>/dev/null |
    jq -r '.data.result[0].value[1] // empty' || true
}
# expect NAME COMMAND...: until the command succeeds.
expect() {
  local name=$1
  shift
  until "$@"; do
    if ((SECONDS >= deadline)); then
      echo "not ok - compose: $name # not so after 90 s"
      status=1
      return 0
    fi
    sleep 2
  done
  echo "ok - compose: $name"
}
positive() { [[ $(query "$1") =~ ^[0-9.e+]*[1-9] ]]; }
has_dashboard() {
  [[ $(curl -fsS --max-time 5 "$grafana/api/dashboards/uid/remora" 2>/dev/null |
    jq -r '.dashboard.uid // empty' || true) == remora ]]
}

for tool in curl jq; do
  command -v "$tool" >/dev/null || { echo "compose-check: error: there is no $tool" >&2; exit 1; }
done
expect "Prometheus scrapes the server" positive 'up{job="remora-server"}'
expect "Prometheus scrapes the load" positive 'up{job="remora-client"}'
expect "operations are counted" positive 'sum(remora_client_operations_total{status="ok"})'
expect "rules are evaluated" positive 'sum(instance_op_transport:remora_client_operations:rate1m)'
if [[ $grafana != none ]]; then expect "Grafana has the dashboard" has_dashboard; fi
exit "$status"
