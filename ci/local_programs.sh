# Sourced by cluster.sh and quickstart-run.sh: programs that run on this machine for as long as the script
# does. The script has die(), and `bin`, the folder of --bin.
# shellcheck shell=bash

started_ms=$(date +%s%3N)
# step TEXT: with the time since the start.
step() {
  local elapsed=$(($(date +%s%3N) - started_ms))
  printf '[%3d.%d s] %s\n' $((elapsed / 1000)) $((elapsed % 1000 / 100)) "$*"
}

# find_program NAME: its path, in the build tree, in a prefix, or in a folder.
find_program() {
  local found
  for found in "${bin:?}/apps/$1" "$bin/bin/$1" "$bin/$1"; do
    if [[ -f $found && -x $found ]]; then
      printf '%s\n' "$found"
      return
    fi
  done
  die "no $1 under $bin: build it first (ci/quickstart.sh does)"
}

# file_to_store large|small: the C++ compiler proper, some 30 MiB, which every machine has that has built
# this; without it, and if small, the C library of this shell.
file_to_store() {
  local file=''
  if [[ $1 == large ]]; then file=$(g++ -print-prog-name=cc1plus 2>/dev/null || true); fi
  [[ -f $file ]] || file=$(ldd "$BASH" | awk '/libc\.so/ { print $3 }')
  printf '%s\n' "$file"
}

# free_port FIRST: the first port from there on that nothing listens on. Read from the kernel, no tool needed.
free_port() {
  local port=$1 taken
  taken=$(awk '$4 == "0A" { sub(/.*:/, "", $2); print $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null)
  while grep -qix "$(printf '%04X' "$port")" <<<"$taken"; do
    port=$((port + 1))
  done
  printf '%s\n' "$port"
}

# make_work NAME: the folder `work`, which goes at the end of the script, after the programs in
# program_pids have ended: by SIGTERM, after five seconds by SIGKILL.
make_work() {
  program_pids=()
  work=$(mktemp -d "${TMPDIR:-/tmp}/remora-$1.XXXXXX")
  trap end_programs EXIT
  trap 'exit 130' INT TERM HUP
}
end_programs() {
  local pid
  for pid in "${program_pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${program_pids[@]}"; do
    for _ in {1..50}; do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
