#!/usr/bin/env bash
# Completion: what the program says may follow, the scripts of bash, fish and zsh, and Tab in each shell.
# shellcheck disable=SC2317,SC2119  # functions are called by is
# shellcheck source=tests/apps/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scripts=$(cd "$tests/../../apps/completion" && pwd)
cluster=remora+file://$work/cluster.json
cat >"$work/member.yaml" <<YAML
listen: {address: 127.0.0.1, port: 0}
pool: {size: 16MiB, piece: 4MiB, huge_pages: never}
cluster: {server: s1, file: $work/cluster.json}
YAML
start_server "$work/member.yaml"
start_server
server_uri=remora://$host:$port
registered() { "$remora" cluster status "$cluster" --json 2>/dev/null | jq -e '.servers | length == 1' >/dev/null; }
is "the server is registered" eventually registered
for name in disk scratch; do run 0 "a volume" "$remora" volume create "$cluster/$name" --size 1MiB; done

# candidates WORD...: the first column, in $work/out.
candidates() { "$remora" __complete "$@" 2>"$work/err" | cut -f 1 >"$work/out"; }
# offers NAME LINES WORD...: exactly these candidates, in any order.
offers() {
  local name=$1 wanted=$2
  shift 2
  candidates "$@"
  is "$name" same "$(sort "$work/out")" "$(printf '%s' "$wanted" | sort)"
}

# --- the program ----------------------------------------------------------------------------------
commands=$("$remora" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
offers "every command" "$commands" ""
offers "a command by its beginning" $'ls' l
offers "commands of a command" $'check\ninit\nschema\nshow' config ""
candidates create --
for option in --size --block --atomics --rights --allow --ttl --shm --help --json --timeout --client; do
  is "create has $option" has out "^$option\$"
done
offers "an option by its beginning" "--when-unused" rm --w
offers "the words of a value" $'auto\nnone\ncpu' create --atomics ""
offers "the words of another value" $'sha256\nsha512' put --checksum sha
offers "an option of get alone" --dense get --d
offers "a value is no command" "" --client l
offers "files for a value" ":files" --key-file ""
offers "files for an argument" ":files" put ""
offers "a URI behind the file" $'remora+etcd://\nremora+file://\nremora://' put file ""
offers "a URI where no volume is wanted" "remora://" rm ""
offers "the URIs of clusters" $'remora+etcd://\nremora+file://' cluster status ""
offers "nothing behind the last argument" "" ls "$server_uri" ""
offers "transports" "$server_uri/cache?transport=tcp" --timeout 30s stat "$server_uri/cache?transport=t"
offers "regions of the server" "$server_uri/cache" --timeout 30s stat "$server_uri/"
offers "regions behind options" "$server_uri/cache" --timeout 30s bench --seconds 1 --json "$server_uri/c"
offers "no region of another name" "" --timeout 30s stat "$server_uri/x"
offers "no region where a server is wanted" "" ls "$server_uri/"
for command in stat bench "volume stat"; do
  # shellcheck disable=SC2086  # words
  offers "volumes of the cluster: $command" "$cluster/disk"$'\n'"$cluster/scratch" $command "$cluster/"
done
offers "a volume by its beginning" "$cluster/disk" get "$cluster/d"
offers "no volume where a cluster is wanted" "" cluster status "$cluster/"
offers "nothing of a cluster that is not there" "" stat "remora+etcd://127.0.0.1:1/lab/"
offers "nothing of a server that is not there" "" stat "remora://127.0.0.1:1/"
run 0 "no word at all" "$remora" __complete
is "help does not show it" same "$("$remora" --help | grep -c __complete)" 0

# --- bash -----------------------------------------------------------------------------------------
# in_bash LINE: what bash would put in place of the last word, as Readline divides it.
in_bash() {
  PATH=$bin:$PATH COMP_LINE=$1 breaks=$' \t\n"\'><=;|&(:' bash -c '
    source "$0"
    COMP_POINT=${#COMP_LINE} COMP_WORDBREAKS=$breaks
    _remora remora "" ""
    printf "%s\n" "${COMPREPLY[@]}"' "$scripts/remora.bash" | sort
}
is "bash: a command" same "$(in_bash "remora cre")" create
is "bash: an option" same "$(in_bash "remora rm --n")" --now
is "bash: behind the ':' of a URI" same "$(in_bash "remora stat remora:")" //
is "bash: a region" same "$(in_bash "remora --timeout 30s stat $server_uri/c")" "$port/cache"
is "bash: a volume" same "$(in_bash "remora --timeout 30s stat $cluster/d")" "${cluster#*:}/disk"
is "bash: files" same "$(cd "$work" && in_bash "remora put server.y")" server.yaml
is "bash: the server's options" same "$(PATH=$bin:$PATH bash -c 'source "$0"
  _remora_server remora-server --po remora-server; printf "%s\n" "${COMPREPLY[@]}"' "$scripts/remora.bash")" --port-file

# --- fish and zsh ---------------------------------------------------------------------------------
if command -v fish >/dev/null; then
  in_fish() { PATH=$bin:$PATH HOME=$work fish --no-config -c "source $scripts/remora.fish; complete -C '$1'" | cut -f 1; }
  is "fish: a command" same "$(in_fish "remora cre")" create
  is "fish: a region" same "$(in_fish "remora --timeout 30s stat $server_uri/c")" "$server_uri/cache"
  is "fish: a volume" same "$(in_fish "remora --timeout 30s stat $cluster/d")" "$cluster/disk"
  is "fish: the server's options" same "$(in_fish "remora-server --po")" --port-file
fi
# What the scripts say of remora-server is what it takes.
server_options=$("$bin/remora-server" --help | sed -nE 's/^  (-h,)?(--[a-z-]+).*/\2/p' | sort)
is "fish: all options of the server" same "$(sed -n 's/^complete -c remora-server .*-l \([a-z-]*\).*/--\1/p' "$scripts/remora.fish" | sort)" "$server_options"
is "zsh: all options of the server" same "$(sed -n '/_arguments/,/return/p' "$scripts/_remora" | grep -oE -- '--[a-z]+[a-z-]*' | sort)" "$server_options"

# --- Tab ------------------------------------------------------------------------------------------
run 0 "a second region" "$remora" create "$server_uri/cached" --size 64KiB
run 0 "and one of another name" "$remora" create "$server_uri/other" --size 64KiB
touch "$work/some file.bin"
# A line for each of these, and what Tab makes of it: the same in all shells.
typed=(
  "remora cre" "remora rm --whe" "remora create --atomics c" "remora stat remora:"
  "remora --timeout 30s stat $server_uri/o" "remora --timeout 30s bench --seconds 1 $server_uri/o" "remora --timeout 30s stat $server_uri/c"
  "remora --timeout 30s stat $server_uri/x" "remora stat remora://127.0.0.1:1/"
  "remora --timeout 30s stat $cluster/d" "remora --timeout 30s bench --seconds 1 $cluster/s" "remora rm remora+f" "remora get remora+f"
  "remora put some" "remora --timeout 30s put some\\ file.bin $server_uri/o" "remora --timeout 30s put 'some file.bin' $server_uri/o"
  "remora-server --warm"
)
wanted=(
  "remora create " "remora rm --when-unused " "remora create --atomics cpu " "remora stat remora://"
  "remora --timeout 30s stat $server_uri/other " "remora --timeout 30s bench --seconds 1 $server_uri/other " "remora --timeout 30s stat $server_uri/cache"
  "remora --timeout 30s stat $server_uri/x" "remora stat remora://127.0.0.1:1/"
  "remora --timeout 30s stat $cluster/disk " "remora --timeout 30s bench --seconds 1 $cluster/scratch " "remora rm remora+f" "remora get remora+file://"
  "remora put some\\ file.bin " "remora --timeout 30s put some\\ file.bin $server_uri/other "
  "remora --timeout 30s put 'some file.bin' $server_uri/other " "remora-server --warm-fd"
)
for shell in bash zsh fish; do
  if ! command -v "$shell" >/dev/null; then
    echo "ok - $shell: Tab # SKIP $shell is not installed (ci/setup.sh test)"
    continue
  fi
  (cd "$work" && PATH=$bin:$PATH python3 "$tests/tab_completion.py" "$shell" "$scripts" "${typed[@]}") \
    >"$work/out" 2>"$work/err"
  is "$shell answers" same "$?" 0
  mapfile -t got <"$work/out"
  for i in "${!typed[@]}"; do
    # A value follows --warm-fd: zsh puts the `=` there, the others a space.
    [[ ${typed[i]} == *--warm ]] && got[i]=${got[i]/%[ =]|/|}
    is "$shell: ${typed[i]}<Tab>" same "${got[i]:-}" "${wanted[i]}|"
  done
done

stop_server
finish
