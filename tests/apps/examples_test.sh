#!/usr/bin/env bash
# The examples of apps/examples: they run, and say what they should.
# shellcheck disable=SC2317,SC2119  # functions are called by eventually and is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ $transport == shm ]]; then
  lines=$(wc -l <"$(dirname "${BASH_SOURCE[0]}")/../../apps/examples/c_client.c")
  is "the client in C has less than 60 lines" test "$lines" -lt 60
  mkfifo "$work/stdin"
  "$bin/embedded_server" "$port" <"$work/stdin" >"$work/server.out" 2>"$work/err" &
  server=$!
  pids+=("$server")
  exec 3>"$work/stdin"
  is "embedded server starts" eventually grep -q "remora://localhost:$port/queue" "$work/server.out"
  queue=remora://localhost:$port/queue
  run 0 "synchronous" "$bin/synchronous" "$queue"
  is "it reads what it wrote" has out 'read what was written'
  is "the server's handler is told of the write" \
    eventually grep -q '^4096 bytes at 28672, tag 7$' "$work/server.out"
  is "it swaps" has out '^swapped$'
  run 0 "synchronous, again" "$bin/synchronous" "$queue"
  is "it counts" has out 'the counter stood at 1'
  is "it does not swap twice" has out 'another client was first'
  run 0 "the message of the server" "$remora" read "$queue" --offset 64 --length 21
  is "a client sees what the server's view wrote" has out 'hello from the server'
  run 0 "embedded client" "$bin/embedded_client" "$queue"
  is "it reads ten thousand blocks over shm" has out '^10000 reads over shm'
  echo >&3
  exec 3>&-
  is "embedded server ends" eventually ended "$server"
  is "the server's view sees what clients counted" grep -q 'clients counted to 2' "$work/server.out"
fi

if [[ $transport == tcp ]]; then
  run 0 "fault injection" "$bin/fault_injection"
  is "each append is there once, whatever was lost" has out '^200 appends, 200 records, each once$'
  is "lanes were lost" has out '^[1-9][0-9]* lanes lost, [1-9][0-9]* operations uncertain, and [1-9][0-9]* had landed$'
  run 0 "fault injection, again" "$bin/fault_injection" 1
  cp "$work/out" "$work/first.out"
  run 0 "fault injection, with the same seed" "$bin/fault_injection" 1
  is "the same seed meets the same faults" cmp "$work/first.out" "$work/out"
  run 0 "fault injection, with another seed" "$bin/fault_injection" 2
  is "another seed meets others" eval "! cmp -s '$work/first.out' '$work/out'"
fi

start_server
run 0 "synchronous" "$bin/synchronous" "$(uri cache)"
run 0 "a client in C" "$bin/c_client" "$(uri cache)"
is "it reads a thousand pages, its own among them" has out '^1000 reads, [1-9][0-9]* of our page'
shm=()
if [[ $transport == shm ]]; then shm=(--shm); fi
rounds=200
if [[ $transport == rdma ]]; then rounds=100; fi # each of the 100 keys is put once
run 0 "a region to copy into" "$remora" create "$(uri copied)" --size 16MiB "${shm[@]}"
run 0 "coroutines" "$bin/coroutines" "$(uri cache)" "$(uri copied)"
is "they copy every block" has out "blocks copied over $transport"
run 0 "what was copied" cmp <("$remora" get "$(uri cache)" - 2>/dev/null) <("$remora" get "$(uri copied)" - 2>/dev/null)
run 0 "pipelines" "$bin/pipelines" "$(uri cache)" "$(uri copied)"
is "they copy every block and look at it" has out "blocks copied over $transport, and they are the same"
run 1 "coroutines with a missing region" "$bin/coroutines" "$(uri cache)" "$(uri nowhere)"
run 0 "event loop" "$bin/event_loop" "$(uri copied)" 0.5
is "it ends in order" has out "^ended in order"
run 0 "callbacks" "$bin/callbacks" "$(uri copied)"
is "they read every block" has out "^[1-9][0-9]* of [0-9]* blocks hold something, read over $transport"
run 0 "the copy is removed" "$remora" rm "$(uri copied)"
run 0 "a region for a cache" "$remora" create "$(uri kv)" --size 8MiB --block 2KiB "${shm[@]}"
workers=()
for worker in one two three four; do
  "$bin/kv_cache" "$(uri kv)" work "$worker" "$rounds" >"$work/kv.$worker" 2>&1 &
  workers+=("$!")
  pids+=("$!")
done
for worker in "${workers[@]}"; do is "a worker of the cache ends" wait "$worker"; done
cat "$work"/kv.* >"$work/out"
is "four workers see whole values, none older than before" \
  same "$(grep -cE "^$rounds puts, [1-9][0-9]* values found, 0 wrong\$" "$work/out")" 4
mapfile -t keys < <(seq -f 'key%g' 0 99)
run 0 "a get of all keys" "$bin/kv_cache" "$(uri kv)" get "${keys[@]}"
is "each key that was put is there, once" \
  same "$(cut -d: -f1 "$work/out" | sort)" "$(printf '%s\n' "${keys[@]}" | sort)"
run 0 "a put" "$bin/kv_cache" "$(uri kv)" put colour blue
run 0 "another value" "$bin/kv_cache" "$(uri kv)" put colour green
run 0 "a get" "$bin/kv_cache" "$(uri kv)" get colour shape
is "it has the last value, and no key that was never put" same "$(cat "$work/out")" "colour: green"
run 1 "a value longer than a block" "$bin/kv_cache" "$(uri kv)" put colour "$(printf '%2048s' x)"
run 0 "the cache is removed" "$remora" rm "$(uri kv)"
# Neither is paused for so long that it would lose the lock.
"$bin/lock" "$(uri cache)" 50 0 20000 >"$work/lock.out" 2>"$work/err" &
other=$!
pids+=("$other")
run 0 "a lock" "$bin/lock" "$(uri cache)" 50 0 20000
is "the other holder ends" wait "$other"
is "no count under the lock is lost" grep -q '^counted to 100, token 100$' "$work/out" "$work/lock.out"
# Longer than the next one takes to start and to wait for the ttl.
pause_ms=8000
if [[ $transport == rdma ]]; then pause_ms=15000; fi
"$bin/lock" "$(uri cache)" 1 "$pause_ms" >"$work/lock.out" 2>"$work/err" &
other=$!
pids+=("$other")
is "a holder that pauses has the lock" eventually eval \
  "[[ \$('$remora' read '$(uri cache)' --offset 256 --length 3 | tr -d '\\0' | wc -c) != 0 ]]"
run 0 "the next takes it" "$bin/lock" "$(uri cache)" 1
is "it counts on" has out '^counted to 101, token 102$'
wait "$other"
is "the paused one is refused" same $? 3
is "and told why" grep -q 'fenced by a newer grant' "$work/lock.out"
mkfifo "$work/line"
"$bin/embedded_client" "$(uri cache)" "$client_metrics" <"$work/line" >"$work/client.out" 2>"$work/err" &
client=$!
pids+=("$client")
exec 4>"$work/line"
is "embedded client serves its metrics" eventually grep -q "http://$client_metrics/metrics" "$work/client.out"
curl -fsS --max-time 10 "http://$client_metrics/metrics" >"$work/out"
is "promtool accepts them" eval "promtool check metrics <'$work/out' >'$work/err' 2>&1"
is "ten thousand reads are counted" has out '^remora_client_operations_total[{].*op="read".* 10000$'
echo >&4
exec 4>&-
wait "$client"
is "embedded client ends" same $? 0
run 1 "an example with a wrong URI" "$bin/synchronous" "remora://$host:1/cache?transport=$transport"
"$bin/event_loop" "$(uri cache)" 3600 >"$work/loop.out" 2>"$work/err" &
loop=$!
pids+=("$loop")
is "an event loop counts" eventually grep -q '^counting$' "$work/loop.out"
stop_server
start_server "$work/server.yaml"
is "it opens the region again and is told of new memory" \
  eventually grep -q '^its memory is new: zeros$' "$work/loop.out"
kill "$loop"
wait "$loop"
stop_server
is "nothing is left" nothing_left
finish
