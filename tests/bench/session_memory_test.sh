#!/usr/bin/env bash
# A server gives back the memory of sessions that have ended: after 400 of them it has at most 1.3 of what
# it had before. Environment: that of tests/apps/lib.sh, and BENCH_SESSIONS, the program that opens them.
# shellcheck disable=SC2119  # functions of lib.sh
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../apps/lib.sh"

start_server
status=0
timeout 240 "${BENCH_SESSIONS:?the program bench_sessions}" --uri "$(uri cache)" --pid "$server" \
  --sessions 400 --within 130 >"$work/out" 2>"$work/err" || status=$?
cat "$work/out"
is "400 sessions leave at most 1.3 of the memory before them" same "$status" 0
stop_server
is "the server ends" same "$status" 0
finish
