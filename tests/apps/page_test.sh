#!/usr/bin/env bash
# The page of the metrics endpoints, of a server and of a client under load, in a headless Chromium.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

here=$(dirname "${BASH_SOURCE[0]}")
if ! command -v "${REMORA_CHROMIUM:-chromium}" >/dev/null; then
  echo "no chromium: ci/setup.sh test installs it"
  exit 77
fi

# The page also shows a registration: the server is alone in a cluster.
small_config >"$work/server.yaml"
cp "$work/server.yaml" "$work/registered.yaml"
echo "cluster: {server: s1, file: \"$work/cluster.json\"}" >>"$work/registered.yaml"
start_server "$work/registered.yaml"
run 0 "a second region" "$remora" create "$(uri journal)" --size 1MiB
"$remora" ls --json "$(uri)" >"$work/regions.json"
# Behind other tests: the page shows any rate above zero, and this load takes all that it is given.
nice -n 10 "$remora" bench "$(uri cache)" --op read:70,write:30 --size 4KiB --depth 8 --seconds 600 --json \
  --metrics "$client_metrics" >"$work/bench.json" 2>"$work/err" &
bench=$!
pids+=("$bench")
says_address() { has err "metrics at http://$client_metrics/metrics"; }
is "bench says where its metrics are" eventually says_address

# Another server, which is killed and started again under the page, or asks for credentials.
other=${metrics%:*}:9473
sed -e "s/port: $port/port: $((port - 12000))/" -e "s/$metrics/$other/" "$work/server.yaml" >"$work/other.yaml"
sed -e 's/^metrics: {/&token: open-sesame, /' "$work/other.yaml" >"$work/token.yaml"
sed -e 's/^metrics: {/&user: sre, password: night shift, /' "$work/other.yaml" >"$work/password.yaml"

timeout 280 python3 "$here/page_check.py" --folder "$work" --server "$metrics" --client "$client_metrics" \
  --regions "$work/regions.json" --program "$bin/remora-server" --other "$other" "$@" | tee "$work/checks"
status=${PIPESTATUS[0]}
passed=$((passed + $(grep -c '^ok' "$work/checks"))) failed=$((failed + $(grep -c '^not ok' "$work/checks")))
: >"$work/out"
if ((status != 0)); then
  is "the checks of the page end well" false
  tail -n 5 "$work/browser.log" "$work/other.log" 2>/dev/null | sed 's/^/    /'
fi

kill -INT "$bench"
wait "$bench"
is "bench reports and ends as asked" same $? 130
stop_server
is "the server stops" same "$status" 0
finish
