#!/usr/bin/env bash
# Series of the server and of `remora bench`: well formed, and in agreement with what was done.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

start_server
# value FILE SERIES-PATTERN: the sum of the matching lines.
value() { awk -v pattern="$2" '$0 ~ pattern { sum += $NF; found = 1 } END { if (found) printf "%d", sum }' "$1"; }
scrape() { curl -fsS --max-time 10 "http://$1/metrics" >"$2"; }
lint() { promtool check metrics <"$1" >"$work/out" 2>&1; }

run 0 "create" "$remora" create "$(uri one)" --size 1MiB "${mapped[@]}"
is "the server is scraped" scrape "$metrics" "$work/server.prom"
is "promtool accepts the server's series" lint "$work/server.prom"
is "two regions" same "$(value "$work/server.prom" '^remora_server_regions')" 2
is "pool bytes" same "$(value "$work/server.prom" '^remora_server_pool_bytes[{]state="used"')" 17825792
is "build information" grep -q '^remora_build_info{version="' "$work/server.prom"

# Each add counts one word up by one, so memory knows how many there were.
run 0 "create a counter" "$remora" create "$(uri counter)" --size 4KiB "${mapped[@]}"
"$remora" bench "$(uri counter)" --op add --length 8 --seconds 0.5 --threads 2 --json \
  --metrics "$client_metrics" --linger 60 >"$work/bench.json" 2>"$work/err" &
bench=$!
pids+=("$bench")
says_address() { has err "metrics at http://$client_metrics/metrics"; }
is "bench says where its metrics are" eventually says_address
is "bench is scraped while it runs" eventually scrape "$client_metrics" "$work/running.prom"
reported() { [[ -s $work/bench.json ]]; }
is "bench reports, then lingers" eventually reported
scrape "$client_metrics" "$work/bench.prom"
is "promtool accepts the client's series" lint "$work/bench.prom"
counted=$(value "$work/bench.prom" '^remora_client_operations_total[{].*op="add"')
run 0 "the counter" "$remora" add "$(uri counter)" --offset 0 0
is "the series agree with the memory" same "$counted" "$(cat "$work/out")"
kill -TERM "$bench"
wait "$bench"
is "SIGTERM ends the lingering" same $? 143
stop_server
finish
