# shellcheck shell=bash
# shellcheck disable=SC2154  # what link_faults.sh and its caller set
# Lanes that break with 64 requests in flight, between two guests. Sourced by two_guests_faults.sh,
# behind link_faults.sh.

# A name, and the options of fault_flight: the side that breaks the lane, the seeded fault.
lane_errors='lane-error-client --end client
lane-error-server --end server
lane-error-raw-client --end raw-client
lane-error-raw-server --end raw-server
lane-error-lie-passes --end client --lie lets-pass
lane-error-lie-late --end raw-client --lie writes-late
lane-error-lie-twice --end raw-client --lie counts-wrong'

lane_errors_chosen() {
  local name
  while read -r name _; do
    if chosen "$name"; then return 0; fi
  done <<<"$lane_errors"
  return 1
}

# Servers of their own, with metrics that the other guest reads: one whose lease no round outlasts,
# one whose lease is soon over, for `--end server`.
start_lane_error_servers() {
  start_lane_error_server 7472 9472 10s
  start_lane_error_server 7473 9473 3s
}

# start_lane_error_server PORT METRICS_PORT LEASE
start_lane_error_server() {
  local name try config=$work/lane_errors.$1
  {
    echo "listen: { address: $server_address, port: $1 }"
    echo 'transports: { rdma: required, shm: off, tcp: off }'
    echo 'pool: { size: 32MiB, piece: 1MiB }'
    echo 'auth: none'
    echo "limits: { session_lease: $3, session_keep: 20s, drain_timeout: 0s }"
    echo "metrics: { address: \"$server_address:$2\" }"
    echo 'regions:'
    while read -r name _; do echo "  - { name: $name, size: 2MiB, block: 4KiB }"; done <<<"$lane_errors"
  } >"$config.yaml"
  "$server_program" --config "$config.yaml" >"$config.log" 2>&1 &
  for ((try = 0; try < 300; ++try)); do
    if curl -sf --max-time 2 -o "$work/ready" "http://$server_address:$2/readyz"; then return 0; fi
    sleep 0.1
  done
  cat "$config.log" >&2
  link_die "the server of the lane errors did not get ready"
}

# lane_error_ends METRICS_PORT REASON: how many sessions that server has ended so.
lane_error_ends() {
  curl -sf --max-time 5 "http://$server_address:$1/metrics" |
    awk -v wanted="reason=\"$2\"" '
      index($0, "remora_server_sessions_ended_total") == 1 && index($0, wanted) { sum += $NF }
      END { print sum + 0 }'
}

# lane_error_test NAME ARGUMENT...
lane_error_test() {
  local name=$1 times=$lane_rounds status=0 lapsed protocol lie=no port=7472 metrics=9472
  shift
  [[ $* != *--lie* ]] || lie=yes times=1
  [[ $* != '--end server' ]] || port=7473 metrics=9473
  test_name=$name broken=0
  test_began=$(milliseconds)
  echo "[ RUN      ] LaneErrorTest.$name/rdma"
  lapsed=$(lane_error_ends $metrics lapsed) protocol=$(lane_error_ends $metrics protocol)
  "$flight" "$@" --rounds "$times" --stop-ms 4500 --seed "$seed" --hold 'vm-link drop' --release 'vm-link pass' \
    --uri "remora://$server_address:$port/$name?transport=rdma" >"$work/flight" 2>&1 || status=$?
  vm-link pass
  cat "$work/flight"
  if [[ $lie == yes ]]; then
    ((status == 1)) || wrong "fault_flight did not find what was seeded (status $status)"
  else
    ((status == 0)) || wrong "fault_flight ended with status $status (1: a promise was broken)"
  fi
  lapsed=$(($(lane_error_ends $metrics lapsed) - lapsed))
  protocol=$(($(lane_error_ends $metrics protocol) - protocol))
  case $name in
    *-server)
      # It was the server that ended them.
      (((lapsed + protocol) >= times)) || wrong "the server ended $lapsed and $protocol sessions"
      ;;
  esac
  lane_error_verdict
}

lane_error_verdict() {
  local verdict='[       OK ]'
  expect_host_as_before
  tests=$((tests + 1))
  if ((broken)); then
    verdict='[  FAILED  ]' failures=$((failures + 1))
  fi
  echo "$verdict LaneErrorTest.$test_name/rdma ($(($(milliseconds) - test_began)) ms)"
}

lane_error_tests() {
  local name arguments
  while read -r name arguments; do
    # shellcheck disable=SC2086  # words
    if chosen "$name"; then lane_error_test "$name" $arguments; fi
  done <<<"$lane_errors"
}
