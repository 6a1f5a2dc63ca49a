#!/usr/bin/env bash
# Installs Remora from a build tree, moves the prefix, and builds the programs of this folder against
# it as an outside project would: by find_package and by pkg-config. Prints one ok line a proof.
# shellcheck disable=SC2317  # the functions are called through prove
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: ci/consumer/run.sh BUILD_TREE WORK_FOLDER

  BUILD_TREE   a configured and built tree of Remora, such as build/dev
  WORK_FOLDER  is emptied; the prefix and the outside builds go there
USAGE
}

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  usage
  exit 0
fi
if (($# != 2)); then
  usage >&2
  exit 2
fi
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
tree=$(realpath -- "$1")
[[ -f $tree/CMakeCache.txt ]] || { echo "consumer: $1 is not a build tree" >&2; exit 2; }
rm -rf -- "$2"
mkdir -p -- "$2"
work=$(realpath -- "$2")
failed=0

# prove TITLE COMMAND...: one ok or not ok line; its output is indented, so as not to be counted.
prove() {
  local title=$1
  shift
  if "$@" 2>&1 | sed 's/^/  /'; then
    echo "ok - consumer: $title"
  else
    echo "not ok - consumer: $title"
    failed=1
  fi
}

for component in development programs; do
  cmake --install "$tree" --prefix "$work/first" --component "$component" >>"$work/install.log" || {
    cat "$work/install.log"
    exit 1
  }
done
# The unit names the folder of its prefix: that is what it is for, and it cannot be moved.
unit=$work/first/lib/systemd/system/remora-server.service
started=$(sed -nE 's|^ExecStart=([^ ]+) .*|\1|p' "$unit")
prefix=$work/prefix
mv "$work/first" "$prefix"  # an installed tree can be moved

# beside COMMAND...: proofs beside others, as many at once as there are processors.
begun=0 at_once=$(nproc)
beside() {
  local log
  log=$outside/proof.$begun
  begun=$((begun + 1))
  while (($(jobs -rp | wc -l) >= at_once)); do wait -n || true; done
  (
    failed=0
    "$@"
    echo "$failed" >"$log.failed"
  ) >"$log" 2>&1 &
}
prove_beside() { beside prove "$@"; }
# Waits for them and prints their lines, in their order.
all_proven() {
  local number
  wait
  for ((number = 0; number < begun; ++number)); do
    cat "$outside/proof.$number"
    [[ $(cat "$outside/proof.$number.failed" 2>/dev/null) == 0 ]] || failed=1
  done
  begun=0
}

# Outside the tree, so that nothing can be found by accident.
outside=$(mktemp -d "${TMPDIR:-/tmp}/remora-consumer.XXXXXX")
trap 'rm -rf "$outside"' EXIT
cp "$here"/*.cc "$here"/*.c "$here/CMakeLists.txt" "$here/control.proto" "$outside/"

names_no_tree() {
  local found
  found=$(grep -rlF --include='*.cmake' --include='*.pc' -e "$root" -e "$work/first" "$prefix" || true)
  if [[ $found ]]; then
    printf 'names a folder of this build: %s\n' "$found"
    return 1
  fi
}
prove "installed files name no folder of the build" names_no_tree
prove "the systemd unit starts the program of the prefix" \
  test "$started" == "$work/first/bin/remora-server"
documents=$prefix/share/doc/remora
for file in README.md CHANGELOG.md {verbs,config,metrics,engine,engine/c,apps}/README.md engine/docs/guarantees.md; do
  prove "$file is installed" test -s "$documents/$file"
done
for folder in {verbs,config,metrics,engine,apps}/docs; do
  [[ ! -d $root/$folder ]] ||
    prove "the pages of $folder are installed" diff -r "$root/$folder" "$documents/$folder"
done
prove "the examples of configuration are installed" test -s "$prefix/share/remora/config/server.yaml"
for file in bash-completion/completions/remora{,-server} zsh/site-functions/_remora \
  fish/vendor_completions.d/remora{,-server}.fish; do
  prove "completion is installed: $file" test -e "$prefix/share/$file"
done
prove "the license is installed" test -s "$prefix/share/doc/remora/LICENSE"
prove "and what of others is in the libraries" grep -q dygraphs "$prefix/share/doc/remora/NOTICE"

config=$(find "$prefix" -name remora-config.cmake -print -quit)
[[ $config ]] || { echo "not ok - consumer: remora-config.cmake is not installed"; exit 1; }
packages=$(dirname -- "$(find "$prefix" -name remora.pc -print -quit)")
read -r -a components < <(sed -nE 's/^set\(remora_COMPONENTS (.*)\)$/\1/p' "$config" | tr ';' ' ')
((${#components[@]})) || { echo "not ok - consumer: the package has no components"; exit 1; }

by_find_package() {
  local component=$1 folder=$outside/cmake-$1 package
  shift
  local without=()
  for package in "$@"; do
    without+=("-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON")
  done
  cmake -G Ninja -S "$outside" -B "$folder" -DCOMPONENT="$component" -DCMAKE_PREFIX_PATH="$prefix" \
    -Wno-dev "${without[@]}" >"$folder.log" 2>&1 || { cat "$folder.log"; return 1; }
  cmake --build "$folder" >"$folder.log" 2>&1 || { cat "$folder.log"; return 1; }
  timeout 60 "$folder/use_$component"
}

# With what by_find_package has compiled: the flags find each header, and the libraries. They define nothing,
# which is a proof below, so that to compile it again would make the same of it.
by_pkg_config() {
  local component=$1 package=$2 program=$outside/pc-$1 flags
  local object=$outside/cmake-$1/CMakeFiles/use_$1.dir/$1.cc.o
  flags=$(PKG_CONFIG_PATH=$packages pkg-config --cflags --libs "$package") || return 1
  # shellcheck disable=SC2086  # flags are words
  g++ -std=c++20 -E "$outside/$component.cc" -o "$program.ii" $flags || return 1
  # shellcheck disable=SC2086
  g++ "$object" -o "$program" $flags || return 1
  timeout 60 "$program"
}

# by_both COMPONENT PACKAGE ABSENT...: two proofs, the second of which needs the first one's object.
by_both() {
  local component=$1 package=$2
  shift 2
  prove "find_package(remora COMPONENTS $component)${*:+ without $*}" by_find_package "$component" "$@"
  prove "pkg-config $package" by_pkg_config "$component" "$package"
}

# by_compiler COMPILER: the program in C, which finds its library where it is installed.
by_compiler() {
  local compiler=$1 program=$outside/pc-c-$1 flags
  flags=$(PKG_CONFIG_PATH=$packages pkg-config --cflags --libs remora-c) || return 1
  # shellcheck disable=SC2086  # flags are words
  "$compiler" -std=c99 -Wall -Wextra -pedantic -Werror "$outside/c.c" -o "$program" $flags || return 1
  LD_LIBRARY_PATH=$(dirname -- "$packages") timeout 60 "$program"
}

# What each component must do without.
declare -A unneeded=(
  [result]="yaml-cpp prometheus-cpp Protobuf spdlog TBB PkgConfig"
  [verbs]="yaml-cpp prometheus-cpp Protobuf TBB"
  [config]="prometheus-cpp Protobuf TBB PkgConfig"
  [metrics]="yaml-cpp Protobuf TBB"
  [engine]=""
  [volume]=""
  [c]="tl-expected yaml-cpp prometheus-cpp Protobuf spdlog TBB OpenSSL PkgConfig"
)
for component in "${components[@]}"; do
  if [[ $component == c ]]; then
    read -r -a absent <<<"${unneeded[c]}"
    prove_beside "find_package(remora COMPONENTS c) without ${absent[*]}" by_find_package c "${absent[@]}"
    for compiler in gcc clang-14; do
      prove_beside "pkg-config remora-c, $compiler" by_compiler "$compiler"
    done
    continue
  fi
  if [[ ! -f $outside/$component.cc ]]; then
    prove_beside "a program for component $component" false
    continue
  fi
  package=remora-$component
  if [[ $component == engine ]]; then package=remora; fi
  read -r -a absent <<<"${unneeded[$component]:-}"
  beside by_both "$component" "$package" "${absent[@]}"
done

# Only what a program is to find: flags that change what it compiles are its own.
defines_nothing() {
  local flags
  flags=$(PKG_CONFIG_PATH=$packages pkg-config --cflags remora remora-verbs) || return 1
  echo "$flags"
  ! grep -qE -- '(^| )-(D|U|f|m|O|std)' <<<"$flags"
}
prove_beside "pkg-config --cflags defines nothing" defines_nothing

# Each in one compiler run, without code: they are built as programs of ours elsewhere.
examples_compile() {
  local flags example warnings='-Wall -Wextra -Werror'
  flags=$(PKG_CONFIG_PATH=$packages pkg-config --cflags remora remora-verbs) || return 1
  for example in "$prefix"/share/remora/examples/*.cc; do
    # shellcheck disable=SC2086  # flags are words
    g++ -std=c++20 -fsyntax-only $warnings $flags "$example" || return 1
  done
  gcc -std=c99 -fsyntax-only -Wall -Wextra -pedantic -Werror -I"$prefix/include" \
    "$prefix"/share/remora/examples/*.c
}
prove_beside "the installed examples compile without warnings" examples_compile

snippets_compile() {
  local flags
  flags=$(PKG_CONFIG_PATH=$packages pkg-config --cflags remora remora-verbs) || return 1
  # shellcheck disable=SC2086  # flags are words
  "$root/ci/check_snippets.py" "$documents"/README.md "$documents"/*/README.md "$documents"/*/docs/*.md -- $flags
}
prove_beside "the C++ of the installed documents compiles without warnings" snippets_compile

# A program that cannot catch anything: value() of an error says which one, and ends it by abort().
without_exceptions() {
  local program=$outside/no_exceptions flags status=0
  flags=$(PKG_CONFIG_PATH=$packages pkg-config --cflags --libs remora remora-verbs) || return 1
  # shellcheck disable=SC2086  # flags are words
  g++ -std=c++20 -O1 -fno-exceptions "$program.cc" -o "$program" $flags || return 1
  (ulimit -c 0 && exec timeout 60 "$program") >"$program.out" 2>"$program.err" || status=$?
  cat "$program.out" "$program.err"
  ((status == 134)) || { echo "it ended with $status, not 134 (SIGABRT)"; return 1; }
  [[ $(<"$program.out") == opened ]] || return 1
  grep -q '^remora: value() of an error: .*invalid argument' "$program.err"
}
prove_beside "a program without exceptions is built, and ends with the error's text" without_exceptions

# An application's own control.proto stays its own.
own_protocol() {
  local program=$outside/own_protocol flags
  flags=$(PKG_CONFIG_PATH=$packages pkg-config --cflags --libs remora protobuf) || return 1
  protoc --cpp_out "$outside" -I "$outside" "$outside/control.proto" || return 1
  # shellcheck disable=SC2086  # flags are words
  g++ -std=c++20 -O1 "$program.cc" "$outside/control.pb.cc" -I "$outside" -o "$program" $flags || return 1
  timeout 60 "$program"
}
prove_beside "an application with a control.proto of its own" own_protocol

# Two plugins with a whole copy each.
two_plugins() {
  local flags copy
  flags=$(PKG_CONFIG_PATH=$packages pkg-config --cflags --libs remora) || return 1
  # shellcheck disable=SC2086  # flags are words
  g++ -std=c++20 -O1 -fPIC -shared "$outside/plugin.cc" -o "$outside/first.so" $flags || return 1
  cp "$outside/first.so" "$outside/second.so"
  g++ -std=c++20 -O1 "$outside/plugins.cc" -o "$outside/plugins" || return 1
  timeout 60 "$outside/plugins" "$outside/first.so" "$outside/second.so" || return 1
  for copy in first second; do
    ! nm -DC --defined-only "$outside/$copy.so" | grep -E ' [TDB] remora::' || return 1
  done
}
prove_beside "two plugins, each with a copy of its own, and none exports it" two_plugins

# says_language HEADER: another -std is one line of ours, and the compiler's that it ends there.
says_language() {
  local flags said=$outside/language-${1//\//-}.log
  flags=$(PKG_CONFIG_PATH=$packages pkg-config --cflags remora remora-verbs) || return 1
  # shellcheck disable=SC2086  # flags are words
  ! g++ -std=c++17 -fsyntax-only -x c++ $flags - <<<"#include <$1>" 2>"$said" || return 1
  [[ $(grep -c 'error: #error "Remora needs C++20: ' "$said") == 1 ]] &&
    (($(grep -c 'error: ' "$said") <= 2)) && return 0
  head -n 20 "$said"
  return 1
}
for header in remora/remora.h remora/verbs/verbs.h remora/result.h; do
  prove_beside "C++17 and <$header>: one line says what Remora needs" says_language "$header"
done

refuses() {
  local folder
  folder=$(mktemp -d "$outside/refuse.XXXXXX")
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\nfind_package(remora %s)\n' \
    "$1" >"$folder/CMakeLists.txt"
  ! cmake -G Ninja -S "$folder" -B "$folder/b" -DCMAKE_PREFIX_PATH="$prefix" >"$folder/log" 2>&1 || return 1
  grep -qF "$2" "$folder/log" || { cat "$folder/log"; return 1; }
}
prove_beside "an unknown component is refused by name" refuses "REQUIRED COMPONENTS remote" "'remote'"
prove_beside "another major version is refused" refuses "1.0 REQUIRED" "1.0"
all_proven
exit "$failed"
