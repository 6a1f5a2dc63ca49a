#!/usr/bin/env bash
# What may happen to remora-server while it starts: signals, a service manager that does not read.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$probe" notify "$work/notify.sock" >"$work/notified" &
pids+=($!)
eventually test -S "$work/notify.sock"
notified() { grep -qE "$1" "$work/notified"; }
logged() { grep -qE "$1" "$work/server.log"; }

# start_with_signal STEP SIGNAL CONFIG: as start_server; the server gets the signal at the step. Its
# pid in $server, the status of the server becomes that of $tracer.
start_with_signal() {
  rm -f "$work/port" "$work/pid"
  NOTIFY_SOCKET=$work/notify.sock "$probe" signal "$1" "$2" "$bin/remora-server" \
    --config "$3" --port-file "$work/port" >"$work/pid" 2>"$work/server.log" &
  tracer=$!
  pids+=("$tracer")
  eventually test -s "$work/pid"
  server=$(<"$work/pid")
  pids+=("$server")
}
await_end() {
  status=0
  eventually ended "$tracer" || { kill -KILL "$server"; echo "    the server did not end"; }
  { wait "$tracer"; } 2>/dev/null || status=$?
}

# --- a signal to stop while the pool is populated ---------------------------------------------------
small_config | sed 's/size: 64MiB/size: 256MiB/' >"$work/large.yaml"
for signal in TERM INT; do
  start_with_signal populate:2 "$(kill -l $signal)" "$work/large.yaml"
  await_end
  is "SIG$signal while the pool is populated ends it with 0" same "$status" 0
  is "SIG$signal: the log says how far it was" logged \
    "SIG$signal: stopped while starting, with (64|128)MiB of 256MiB populated"
  is "SIG$signal: no port file, no socket is left" nothing_left
done
is "progress is told to the service manager" eventually notified '^STATUS=populating the pool: 0MiB of 256MiB, 0%$'
is "with a request for more time" notified '^EXTEND_TIMEOUT_USEC=60000000$'
is "and that it stops" eventually notified '^STOPPING=1$'
is "it was never ready" eval '! notified READY=1'

# --- a signal at once -------------------------------------------------------------------------------
small_config >"$work/server.yaml"
start_with_signal "$work/server.yaml" "$(kill -l HUP)" "$work/server.yaml"
is "SIGHUP before the configuration is read does not end it" eventually test -s "$work/port"
is "the file is read again when it has started" eventually logged 'SIGHUP: .*read again'
kill -TERM "$server"
await_end
is "it ends as usual" same "$status" 0

# --- a service manager that reads nothing -----------------------------------------------------------
"$probe" full "$work/full.sock" &
pids+=($!)
eventually test -S "$work/full.sock"
NOTIFY_SOCKET=$work/full.sock start_server
ok "a full NOTIFY_SOCKET does not keep it from starting"
is "the log says what was not told" eventually logged 'warning: cannot notify .*full\.sock of READY=1: Resource'
run 0 "it serves" "$remora" ls "$(uri)"
stop_server
is "nor from stopping" same "$status" 0
is "nothing is left" nothing_left

# --- a memory limit ---------------------------------------------------------------------------------
# make_group: a control group of this test's, in $group, with a limit of 255 MiB.
make_group() {
  for group in "/sys/fs/cgroup/memory/remora-test.$$" "/sys/fs/cgroup/remora-test.$$"; do
    mkdir "$group" 2>/dev/null || continue
    { echo $((255 << 20)) >"$group/memory.limit_in_bytes" || echo $((255 << 20)) >"$group/memory.max"; } \
      2>/dev/null && return 0
    rmdir "$group"
  done
  return 1
}
# in_group COMMAND...: within it. A program, since `run` has timeout start it.
cat >"$work/in_group" <<'SH'
#!/bin/sh
echo $$ >"$GROUP/cgroup.procs" && exec "$@"
SH
chmod +x "$work/in_group"
if make_group; then
  export GROUP=$group
  trap 'cleanup; rmdir "$group" 2>/dev/null' EXIT
  run 5 "a pool larger than the memory limit" "$work/in_group" "$bin/remora-server" --config "$work/large.yaml"
  says "the file, both numbers and what to do" \
    "pool larger than the memory limit: $group/memory\\..*\\(asked 268435456, allowed [0-9]+\\).*MemoryMax="
  run 0 "config check in that group" "$work/in_group" "$remora" config check "$work/large.yaml"
  says "config check warns" "warning: pool\\.size is 268435456 bytes.*$group/memory\\."
  run 0 "config check elsewhere" "$remora" config check "$work/large.yaml"
else
  echo "# no control group can be made here"
fi
finish
