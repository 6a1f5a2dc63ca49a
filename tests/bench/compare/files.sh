# shellcheck shell=bash disable=SC2034,SC2154  # variables of compare.sh
# Whole files: `remora put` and `remora get` beside `remora bench` of the same transport, with pieces of
# the same size and as many queues. Sourced by compare.sh.
#
# The file lies in /dev/shm, so that no disk takes part.

files_server_port=10841

section_files() {
  local transport
  section_versions='' section_ms=1000
  files_mib=512
  if ((smoke)); then files_mib=32; fi
  need files_bench jq jq
  [[ -d /dev/shm && -w /dev/shm ]] || absent files_bench "there is no /dev/shm to put a file in"
  for transport in shm tcp; do
    files_transport=$transport
    files_serve
    files_rows
    stop_service files_server
    remove_files
  done
}

# files_ready: whether rows are measured at all.
files_ready() { ((!list)) && [[ -z ${driver_absent[files_bench]:-} ]]; }

files_rows() {
  local streams
  for streams in 1 2; do
    files_row "put --streams $streams, no checksum" "put none $streams" "write $streams" '>=0.9'
  done
  files_row "put, SHA-256 beside it" "put sha256 1" "write 1" -
  files_row "get into /dev/null, no checksum" "null none 1" "read 1" '>=0.9'
  files_row "get into /dev/null, SHA-256 beside it" "null sha256 1" "read 1" -
  for streams in 1 2; do
    files_row "get --streams $streams into a file, no checksum" "get none $streams" "read $streams" -
  done
}
# files_row NAME OUR_JOB THEIR_JOB GOAL
files_row() {
  row "$1, over $files_transport" "remora bench 256 KiB, depth 8" MB/s "$4" \
    files_remora "$2" files_bench "$3"
}

# files_serve: a server with one region of the size of the file, and the file.
files_serve() {
  files_ready || return 0
  local shm=off tcp=off mapped=false tries
  if [[ $files_transport == shm ]]; then shm=required mapped=true; else tcp=required; fi
  [[ -d $work/run ]] || mkdir -m 700 "$work/run"
  files_folder=$(mktemp -d /dev/shm/remora-files.XXXXXX)
  cat >"$work/files.yaml" <<YAML
listen: {address: 127.0.0.1, port: $files_server_port}
transports: {rdma: off, shm: $shm, tcp: $tcp}
pool: {size: ${files_mib}MiB, huge_pages: never}
regions:
  - {name: files, size: ${files_mib}MiB, shm: $mapped}
auth: none
YAML
  rm -f "$work/files.port"
  REMORA_RUNTIME_DIR=$work/run "$build/apps/remora-server" --config "$work/files.yaml" \
    --port-file "$work/files.port" >"$work/files_server.log" 2>&1 &
  service_pid[files_server]=$!
  for ((tries = 0; tries < 600; ++tries)); do
    [[ -s $work/files.port ]] && break
    sleep 0.1
  done
  head -c "$((files_mib * 1048576))" /dev/urandom >"$files_folder/source"
  files_command put "$files_folder/source" "$(files_uri)" >/dev/null # every page is touched
}

remove_files() {
  [[ -z ${files_folder:-} ]] || rm -rf "$files_folder"
  files_folder=''
}
files_uri() { printf 'remora://127.0.0.1:%s/files?transport=%s' "$files_server_port" "$files_transport"; }
files_command() { REMORA_RUNTIME_DIR=$work/run timeout 120 "$build/apps/remora" "$@"; }

# Whole transfers: job "put CHECKSUM STREAMS", "get ...", or "null ..." for a get into /dev/null.
measure_files_remora() {
  local op checksum streams rest
  read -r op checksum streams rest <<<"$1"
  local options=(--checksum "$checksum" --streams "$streams" --json)
  case $op in
    put) files_command put "$files_folder/source" "$(files_uri)" "${options[@]}" ;;
    get)
      rm -f "$files_folder/copy"
      files_command get "$(files_uri)" "$files_folder/copy" "${options[@]}"
      ;;
    null) files_command get "$(files_uri)" /dev/null "${options[@]}" ;;
  esac | jq -r '.bytes / .seconds / 1e6'
}
# The same transport, without files: job "read THREADS" or "write THREADS".
measure_files_bench() {
  local op threads rest
  read -r op threads rest <<<"$1"
  files_command bench "$(files_uri)" --op "$op" --size 256KiB --depth 8 --sequential --threads "$threads" \
    --lanes "$threads" --seconds "$(if ((smoke)); then echo 0.1; else echo 1; fi)" --warmup 0.1 --json |
    jq -r '.bytes_per_second / 1e6'
}
