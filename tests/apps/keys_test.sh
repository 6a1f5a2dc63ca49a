#!/usr/bin/env bash
# A server with keys and the command: whose key opens what.
# shellcheck disable=SC2034,SC2119,SC2317  # arrays are named by "$client"; stop_server takes no signal here; eventually calls functions
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# --- keys -----------------------------------------------------------------------------------------
run 0 "key generate prints a key" "$remora" key generate
is "it has 64 hexadecimal digits" has out '^[0-9a-f]{64}$'
run 0 "key generate writes a file" "$remora" key generate "$work/alice.key"
is "which only its owner may read" same "$(stat -c %a "$work/alice.key")" 600
before=$(cat "$work/alice.key")
run 5 "a key that is there is not overwritten" "$remora" key generate "$work/alice.key"
says "it says so" 'is not overwritten'
is "and is as it was" same "$(cat "$work/alice.key")" "$before"
for name in bob old root other; do "$remora" key generate "$work/$name.key" >/dev/null; done
run 0 "key generate as JSON" "$remora" key generate "$work/json.key" --json
json "it names the file" ".file == \"$work/json.key\""
run 5 "a folder that is not there" "$remora" key generate "$work/no/where.key"

# --- the server's file ----------------------------------------------------------------------------
keyed_config() {
  small_config | sed -e 's/^auth: none/auth: keys/' \
    -e "s/shm: $shm}/shm: $shm, access: [{client: '*', rights: [read, write, atomic]}]}/"
  cat <<YAML
clients:
  - {name: alice, key_file: alice.key, previous_key_file: old.key, create: true, quota: 8MiB}
  - {name: bob, key_file: bob.key}
  - {name: root, key_file: root.key, admin: true}
limits: {handshake_timeout: 30s}
YAML
}
keyed_config >"$work/keyed.yaml"
run 0 "config check takes it" "$remora" config check "$work/keyed.yaml"
run 0 "config show hides the keys" "$remora" config show "$work/keyed.yaml"
is "it names the files" has out 'key_file: alice.key'
is "and no key" bash -c "! grep -qF '$before' '$work/out'"
chmod 644 "$work/bob.key"
run 7 "a key that others may read is refused" "$remora" config check "$work/keyed.yaml"
says "with its place and the remedy" "keyed.yaml:10:.*clients\[1\].key_file: 'bob.key': .*chmod 600"
run 7 "the server does not start with it" "$bin/remora-server" --config "$work/keyed.yaml"
chmod 600 "$work/bob.key"
sed "s/key_file: bob.key/key: $(cat "$work/bob.key")/" "$work/keyed.yaml" >"$work/inline.yaml"
chmod 644 "$work/inline.yaml"
chmod 711 "$work"
run 0 "a key in a file that every user may read is accepted" "$remora" config check "$work/inline.yaml"
says "and warned of, with the remedy" "^remora: warning: clients\[1\].key stands in .*inline.yaml.*chmod o-r"
run 0 "and in JSON" "$remora" config check "$work/inline.yaml" --json
json "as a list of warnings" '.ok and (.warnings | length) == 1'
run 0 "the server's --check" "$bin/remora-server" --config "$work/inline.yaml" --check
says "warns as well" 'warning: clients\[1\].key stands in'
chmod 700 "$work"
run 0 "a folder that others cannot enter keeps them out" "$remora" config check "$work/inline.yaml"
is "in silence" same "$(cat "$work/err")" ""
chmod 640 "$work/inline.yaml"
run 0 "a key that only its group may read is accepted" "$remora" config check "$work/inline.yaml"
is "in silence, too" same "$(cat "$work/err")" ""
start_server "$work/keyed.yaml"

# --- which clients are let in --------------------------------------------------------------------
as() { # as NAME [KEY]: options for a client
  printf -- '--client\n%s\n--key-file\n%s\n' "$1" "$work/${2:-$1}.key"
}
mapfile -t alice < <(as alice)
mapfile -t bob < <(as bob)
mapfile -t root < <(as root)
mapfile -t alice_old < <(as alice old)
mapfile -t alice_other < <(as alice other)
mapfile -t unknown < <(as unknown alice)
run 0 "the right key" "$remora" "${alice[@]}" ls "$(uri)"
run 0 "the previous key" "$remora" ls "$(uri)" "${alice_old[@]}"
run 0 "from the environment" env REMORA_CLIENT=bob REMORA_KEY_FILE="$work/bob.key" "$remora" ls "$(uri)"
for client in alice_other unknown; do
  declare -n options=$client
  run 3 "$client is refused" "$remora" "${options[@]}" ls "$(uri)"
  says "$client is told where and under which name, with the remedy" '[^ ]+:[0-9]+ over (rdma|shm|tcp), (as .* with|without) a key: connection refused.*authentication refused.*--key-file'
done
cp "$work/err" "$work/unknown.err"
run 3 "another client's key is refused" "$remora" --client alice --key-file "$work/bob.key" ls "$(uri)"
said() { sed "s/as '[a-z]*'/as NAME/" "$1"; } # the name that we gave tells us nothing
is "an unknown name is answered as a wrong key" same "$(said "$work/err")" "$(said "$work/unknown.err")"
run 3 "no key is refused" "$remora" ls "$(uri)"
run 3 "no key is refused, as JSON" "$remora" ls "$(uri)" --json
json "the reason can be read" '.error.reason == "authentication refused" and .error.exit_code == 3'
run 2 "a key without a name" "$remora" --key-file "$work/bob.key" ls "$(uri)"
says "asks whose it is" 'whose key'
chmod 644 "$work/other.key"
run 5 "a key that others may read" "$remora" --client bob --key-file "$work/other.key" ls "$(uri)"
says "is refused with the remedy" 'chmod 600'
run 5 "a key file that is not there" "$remora" --client bob --key-file "$work/none.key" ls "$(uri)"
is "refusals are logged with the name" grep -q "'unknown' over $transport .*is refused: no client of that name" "$work/server.log"
is "no key is in the log" bash -c "! grep -qF '$before' '$work/server.log'"
run 0 "refusals are counted" curl -fsS --max-time 5 "http://$metrics/metrics"
is "by reason" has out 'remora_server_sessions_refused_total\{.*reason="wrong_key"\} 2'

# --- what is whose --------------------------------------------------------------------------------
run 0 "alice creates" "$remora" "${alice[@]}" create "$(uri mine)" --size 4MiB "${mapped[@]}"
run 0 "alice writes and reads it" bash -c "echo hello | $remora ${alice[*]} put - '$(uri mine)' && $remora ${alice[*]} read '$(uri mine)' --offset 0 --length 5"
run 0 "stat names the owner" "$remora" "${alice[@]}" stat "$(uri mine)" --json
json "the owner" '.owner == "alice" and .access == []'
run 3 "bob does not see it" "$remora" "${bob[@]}" stat "$(uri mine)"
says "to him it is unknown" 'unknown region'
run 3 "bob does not open it" "$remora" "${bob[@]}" get "$(uri mine)" -
run 3 "bob does not remove it" "$remora" "${bob[@]}" rm "$(uri mine)"
run 0 "bob lists what he may use" "$remora" "${bob[@]}" ls "$(uri)" --json
json "only that" '[.regions[].name] == ["cache"]'
run 3 "bob may not create" "$remora" "${bob[@]}" create "$(uri his)" --size 4MiB "${mapped[@]}"
says "and reads where that stands" 'clients\[\].create'
run 0 "alice shares a region" "$remora" "${alice[@]}" create "$(uri shared)" --size 1MiB "${mapped[@]}" --allow bob=read
run 0 "bob reads it" "$remora" "${bob[@]}" get "$(uri shared)" "$work/shared"
run 3 "bob does not write it" bash -c "echo x | $remora ${bob[*]} put - '$(uri shared)'"
run 2 "--allow of nothing" "$remora" "${alice[@]}" create "$(uri x)" --size 1MiB --allow bob=own
says "says what is wanted" 'want NAME=RIGHTS'
run 3 "the quota is kept" "$remora" "${alice[@]}" create "$(uri big)" --size 4MiB "${mapped[@]}"
says "with what is left" 'quota.*alice'
run 0 "usage" "$remora" "${alice[@]}" usage "$(uri)" --json
json "own bytes and quota" '.client_bytes == 5242880 and .client_quota_bytes == 8388608'
timeout 120 "$remora" "${alice[@]}" bench "$(uri cache)" --seconds 60 >/dev/null 2>&1 &
bench=$!
pids+=("$bench")
named() { curl -fsS --max-time 5 "http://$metrics/status" >"$work/out" && jq -e \
  '[.sessions[] | select(.client == "alice" and .client_proven)] | length == 1' "$work/out" >/dev/null; }
is "/status names clients" eventually named
kill "$bench"
wait "$bench" || true

# --- SIGHUP: keys are changed and clients leave, and memory stays ----------------------------------
# reread NAME PATTERN: the file is read again, and the log has that line more often than before.
reread() {
  local name=$1 pattern=$2 before
  before=$(grep -cE -- "$pattern" "$work/server.log")
  kill -HUP "$server"
  logged() { (($(grep -cE -- "$pattern" "$work/server.log") > before)); }
  is "$name" eventually logged
}
run 0 "another key" "$remora" key generate "$work/new.key"
mapfile -t alice_new < <(as alice new)
run 3 "a new key belongs to no client yet" "$remora" "${alice_new[@]}" ls "$(uri)"
sed -i 's/key_file: alice.key, previous_key_file: old.key/key_file: new.key, previous_key_file: alice.key/' "$work/keyed.yaml"
reread "SIGHUP reads the file again" 'SIGHUP: .*keyed.yaml read again; clients: 3$'
is "and finds nothing that waits for a start" bash -c "! grep -q 'next start' '$work/server.log'"
run 0 "the new key" "$remora" "${alice_new[@]}" read "$(uri mine)" --offset 0 --length 5
is "finds what the old one wrote" has out hello
run 0 "the key before" "$remora" "${alice[@]}" ls "$(uri)"
run 3 "not the one before that" "$remora" "${alice_old[@]}" ls "$(uri)"
cp "$work/keyed.yaml" "$work/good.yaml"
echo 'pools: {}' >>"$work/keyed.yaml"
reread "a file with faults changes nothing" 'SIGHUP: .*keyed.yaml has faults; nothing was changed'
is "and they are logged with their place" grep -qE "keyed.yaml:[0-9]+:1: pools: " "$work/server.log"
run 0 "bob is still there" "$remora" "${bob[@]}" ls "$(uri)"
rm "$work/keyed.yaml"
reread "nor does one that is gone" 'SIGHUP: .*keyed.yaml has faults; nothing was changed'
sed -e '/name: bob/d' -e 's/size: 64MiB/size: 128MiB/' "$work/good.yaml" >"$work/keyed.yaml"
echo 'log: {level: warn}' >>"$work/keyed.yaml"
reread "what a start has to take is named" 'SIGHUP: .*only taken by the next start: pool.size$'
run 3 "bob has left" "$remora" "${bob[@]}" ls "$(uri)"
again=$(grep -c 'read again' "$work/server.log")
reread "log.level is taken: a warning comes" 'SIGHUP: .*only taken by the next start: pool.size$'
is "and nothing below" same "$(grep -c 'read again' "$work/server.log")" "$again"
sed -i 's/level: warn/level: debug/' "$work/keyed.yaml"
reread "and back, which is told" 'SIGHUP: .*keyed.yaml read again; clients: 2; log.level: debug$'
sed -i 's/handshake_timeout: 30s/handshake_timeout: 20s, sessions_max: 100, session_lease: 11s/' "$work/keyed.yaml"
reread "limits are taken and named" 'SIGHUP: .*read again; clients: 2; limits.sessions_max, limits.handshake_timeout$'
is "the one that the server keeps is named, too" grep -qE \
  'SIGHUP: .*only taken by the next start: pool.size, limits.session_lease$' "$work/server.log"
reread "a second time only that one is left" 'SIGHUP: .*keyed.yaml read again; clients: 2$'
for name in alice bob root new; do
  is "no key of $name's is in the log" bash -c "! grep -qF '$(cat "$work/$name.key")' '$work/server.log'"
done
run 3 "alice may not list the sessions" "$remora" "${alice_new[@]}" sessions "$(uri)"
says "and reads what that needs" 'clients\[\].admin'
run 3 "nor drain the server" "$remora" "${alice_new[@]}" drain "$(uri)"
run 0 "she may ping it" "$remora" "${alice_new[@]}" ping "$(uri)" --count 1
run 0 "root lists the sessions" "$remora" "${root[@]}" sessions "$(uri)" --json
json "proven by its key" '[.sessions[] | select(.own)] | length == 1 and .[0].client == "root" and .[0].client_proven'
run 0 "root removes alice's region" "$remora" "${root[@]}" rm "$(uri mine)"
stop_server
is "the server ends cleanly" same "$status" 0

# --- a server without keys ------------------------------------------------------------------------
start_server
run 3 "a client with a key does not trust it" "$remora" "${alice[@]}" ls "$(uri)"
run 0 "one without does" "$remora" --client alice ls "$(uri)"
stop_server
finish
