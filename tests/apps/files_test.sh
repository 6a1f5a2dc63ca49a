#!/usr/bin/env bash
# Local files of put, get, read and write: files that change while they are read, outputs that
# cannot be written, signals in the middle, and a standard output that is closed.
# shellcheck disable=SC2317,SC2119  # functions are called by is and run
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

start_server
files=$work/files
mkdir "$files"
cd "$files" || exit 1
nothing_hidden() { same "$(find "$files" -name '.*' -type f -print -delete)" ""; }

# --- put ------------------------------------------------------------------------------------------
# A file of sysfs says 4096 bytes and ends before: as one that becomes shorter while it is read.
short=/sys/kernel/mm/transparent_hugepage/enabled
if [[ -r $short && $(stat -c %s "$short") == 4096 ]]; then
  has_bytes=$(wc -c <"$short")
  run 5 "put of a file that ends before its size" "$remora" put "$short" "$(uri cache)"
  says "both sizes are told" "4096 bytes by its size.* $has_bytes bytes .*$((4096 - has_bytes)) bytes as they were before"
  is "write of one" eval "'$remora' write '$(uri cache)' --offset 0 <'$short' >'$work/out' 2>'$work/err'; same \$? 5"
  says "both sizes are told" "standard input: .*4096 bytes by its size.* $has_bytes bytes"
fi
run 0 "put of a file whose size says nothing" "$remora" put /proc/self/status "$(uri cache)"
is "and no warning" eval "! grep -q warning '$work/err'"
run 2 "put of an empty name" "$remora" put "" "$(uri cache)"
says "the argument is named" 'FILE is empty'

# --- get: what is refused before anything is fetched ----------------------------------------------
run 2 "get into an empty name" "$remora" get "$(uri cache)" ""
says "and nothing is fetched" 'FILE is empty; nothing was fetched'
run 2 "a key of an empty name is not printed" "$remora" key generate ""
is "no key appears" test ! -s "$work/out"
ln -s gone dangling
run 5 "get onto a symbolic link without a target" "$remora" get "$(uri cache)" dangling
says "it is named, with what to do" 'symbolic link without a target.*remove it.*dangling'
is "the link is as it was" same "$(readlink dangling)" gone
is "no target appears" test ! -e gone
run 5 "get into a name that is too long" "$remora" get "$(uri cache)" "$(printf 'x%.0s' {1..300})"
says "it fails where it is opened" 'open file'
run 5 "get into a folder that is not there" "$remora" get "$(uri cache)" nosuch/
is "nothing appears" same "$(ls -A)" dangling

# --- get: what is kept ----------------------------------------------------------------------------
echo old >kept
chmod 640 kept
ln -s kept link
[[ $(id -u) == 0 ]] && chown 12345:23456 kept
before=$(stat -c '%u:%g %a' kept)
run 0 "get onto a file through a symbolic link" "$remora" get "$(uri cache)" link --length 4096
is "owner, group and mode are kept" same "$(stat -c '%u:%g %a' kept)" "$before"
is "it has the bytes" same "$(stat -c %s kept)" 4096
is "the link is one" same "$(readlink link)" kept
run 0 "get into a new file" bash -c "umask 027; '$remora' get '$(uri cache)' new --length 4096"
is "by the mask" same "$(stat -c %a new)" 640
if [[ $(id -u) == 0 ]] && command -v setpriv >/dev/null && [[ $transport == tcp ]]; then
  mkdir -m 777 shared && chmod 777 shared "$files" "$work" && echo theirs >shared/file && chmod 666 shared/file
  run 5 "get onto another user's file, whose owner cannot be kept" setpriv --reuid=65534 --regid=65534 \
    --clear-groups "$remora" get "$(uri cache)" shared/file
  says "why" 'another user.s.*shared/file'
  is "it is as it was" same "$(stat -c %u shared/file) $(<shared/file)" "0 theirs"
  rm -rf shared
fi
is "nothing is left" nothing_hidden

# --- get: signals in the middle -------------------------------------------------------------------
is "get beyond the limit on file sizes" eval \
  "(ulimit -f 1024; '$remora' get '$(uri cache)' big >'$work/out' 2>'$work/err'); same \$? 5"
says "it says so" 'big: .*File too large'
is "no file appears" test ! -e big
is "nothing is left" nothing_hidden
# LeakSanitizer, which stops all threads at the end, is left out: a signal may come just then.
for signal in HUP QUIT PIPE TERM INT; do
  for delay in 0.01 0.02 0.03 0.04 0.06 0.08 0.1 0.15; do
    status=0
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 timeout -k 20 -s "$signal" "$delay" \
      "$remora" get "$(uri cache)" "at.$delay" >/dev/null 2>"$work/err" || status=$?
    if ((status == 137)); then is "SIG$signal after $delay s ends a get" false; fi
  done
  is "nothing is left by SIG$signal" nothing_hidden
done
stalled() {  # a full pipe whose reader does not read; the first signal has to do
  mkfifo pipe
  # shellcheck disable=SC2217  # it holds the pipe open
  sleep 30 <pipe &
  local reader=$!
  "$remora" get "$(uri cache)" - >pipe 2>"$work/err" &
  local getter=$!
  pids+=("$reader" "$getter")
  sleep 1
  kill -TERM "$getter"
  eventually ended "$getter"
  local found=$?
  kill "$reader"
  rm pipe
  return "$found"
}
is "one SIGTERM ends a get into a pipe that is full" stalled
is "get into a pipe whose reader ends" eval \
  "'$remora' get '$(uri cache)' - 2>'$work/err' | head -c 10 >/dev/null; same \${PIPESTATUS[0]} 141"
is "it says nothing" test ! -s "$work/err"

# --- standard output is closed --------------------------------------------------------------------
small_config >"$work/good.yaml"
echo text >source
while read -r line; do
  eval "words=($line)"
  # shellcheck disable=SC2016  # eval expands them
  is "with standard output closed: ${line%%remora://*}" eval \
    '"$remora" "${words[@]}" >&- 2>"$work/err" </dev/null; same $? 5'
  says "it says so" 'standard output: '
done <<LINES
--help
--version
version
version --json
ls $(uri)
ls $(uri) --json
stat $(uri cache)
create $(uri "closed\$RANDOM") --size 4KiB
usage $(uri)
put source $(uri cache)
get $(uri cache) -
get $(uri cache) target --length 16
read $(uri cache) --offset 0 --length 16
read $(uri cache) --offset 0 --length 16 --hex
read $(uri cache) --offset 0 --length 16 --json
write $(uri cache) --offset 0 --data x --json
add $(uri cache) --offset 64 1
bench $(uri cache) --seconds 0.1 --warmup 0
config check $work/good.yaml
config show $work/good.yaml
key generate
top --once $metrics
top --json $metrics
LINES
is "what prints nothing succeeds" eval \
  "'$remora' write '$(uri cache)' --offset 0 --data x >&- 2>'$work/err' </dev/null; same \$? 0"
is "standard input closed: put -" eval "'$remora' put - '$(uri cache)' >'$work/out' 2>'$work/err' <&-; same \$? 5"
says "it says so" 'standard input.*Bad file descriptor'
is "all three closed" eval "'$remora' put source '$(uri cache)' <&- >&- 2>&-; same \$? 5"

# --- names that would move a cursor ---------------------------------------------------------------
odd=$'odd\x1b[2J\nname'
raw() { grep -q $'\x1b' "$work/out" "$work/err"; }
escaped() { has err 'odd\\x1b\[2J\\nname' || has out 'odd\\x1b\[2J\\nname'; }
odd_name() {
  local code=$1
  shift
  run "$code" "a name with control characters: $1 $2" "$@"
  is "it is printed escaped" escaped
  is "and not as it is" eval "! raw"
}
odd_name 5 "$remora" put "$odd" "$(uri cache)"
odd_name 5 "$remora" get "$(uri cache)" "nosuch/$odd"
odd_name 7 "$remora" config check "$odd"
odd_name 2 "$remora" "$odd"
odd_name 2 "$remora" ls "$(uri)" "--$odd"
odd_name 7 "$bin/remora-server" --config "$odd"
cp "$work/good.yaml" "$odd"
odd_name 0 "$remora" config check "$odd"
odd_name 0 "$remora" config show "$odd"
odd_name 0 "$bin/remora-server" --check --config "$odd"
printf 'pool: {size: 3}\n' >"$odd"
odd_name 7 "$remora" config check "$odd"
odd_name 0 "$remora" key generate "key$odd"

cd / || exit 1
stop_server
is "the server ends cleanly" same "$status" 0
finish
