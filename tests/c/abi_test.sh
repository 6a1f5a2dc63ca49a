#!/usr/bin/env bash
# libremora.so.0 exports what it did, with the same types: its symbols are those of
# engine/c/abi/symbols.txt and of the Debian package, and abidiff finds no difference to
# engine/c/abi/libremora.abi.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: tests/c/abi_test.sh symbols|types LIBRARY
       tests/c/abi_test.sh --update LIBRARY

  symbols   compares the exported symbols with symbols.txt, and these with ci/debian/libremora0.symbols
  types     compares functions and types, and shows that changes of both would be found; exit status 77
            where LIBRARY has no debug information or abidiff is not installed (ci/setup.sh test)
  --update  writes both files from LIBRARY, of build/dev: after a function or a field was added. A change
            that abidiff calls incompatible needs another SOVERSION and another name in libremora.map
USAGE
}

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$root/engine/c/abi
if (($# != 2)) || [[ ! -f $2 ]]; then
  usage >&2
  exit 2
fi
library=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# NAME@@VERSION, a line each.
symbols() {
  nm -D --defined-only "$library" | sed -nE 's/^[0-9a-f]+ [^A] //p' | LC_ALL=C sort
}

# seeded NAME SED_EXPRESSION: abidiff finds that change.
seeded() {
  sed -E "$2" "$folder/libremora.abi" >"$work/seeded.abi"
  if cmp -s "$folder/libremora.abi" "$work/seeded.abi"; then
    echo "$1: the change was not made: its expression no longer fits libremora.abi"
    exit 1
  fi
  if abidiff --no-show-locs "$folder/libremora.abi" "$work/seeded.abi" >"$work/seeded.txt"; then
    echo "$1: abidiff does not find it"
    exit 1
  fi
}

# The interface as XML, without paths of this machine.
types() {
  abidw --exported-interfaces-only --suppressions "$folder/opaque.abignore" \
    --headers-dir "$root/engine/c/include" --drop-private-types --no-corpus-path \
    --no-comp-dir-path --no-show-locs --no-elf-needed --out-file "$1" "$library"
}

case $1 in
  symbols)
    # A volume in etcd loads it: engine/c/src/libcurl.cc.
    if readelf -d "$library" | grep -q 'NEEDED.*libcurl'; then
      echo "$library needs libcurl"
      exit 1
    fi
    symbols >"$work/symbols.txt"
    diff "$folder/symbols.txt" "$work/symbols.txt" || {
      echo "exported symbols differ (<: $folder/symbols.txt, >: $library)"
      exit 1
    }
    # A missing line there fails the build of the package, which runs with --full only.
    packaged=$root/ci/debian/libremora0.symbols
    sed -nE 's/^ (remora_[^@ ]+)@([^ ]+) .*/\1@@\2/p' "$packaged" | LC_ALL=C sort >"$work/packaged.txt"
    diff "$folder/symbols.txt" "$work/packaged.txt" || {
      echo "$packaged differs (<: $folder/symbols.txt, >: that file): a line is \`NAME@REMORA_0 VERSION\`"
      exit 1
    }
    ;;
  types)
    if ! command -v abidiff >/dev/null; then
      echo "abidiff is not installed: ci/setup.sh test"
      exit 77
    fi
    readelf -S --wide "$library" >"$work/sections.txt"
    if ! grep -q '\.debug_info' "$work/sections.txt"; then
      echo "$library has no debug information"
      exit 77
    fi
    types "$work/now.abi"
    abidiff --no-show-locs "$folder/libremora.abi" "$work/now.abi" || {
      echo "the C API differs from engine/c/abi/libremora.abi; see tests/c/abi_test.sh --help"
      exit 1
    }
    seeded "a parameter less" "/<function-decl name='remora_queue_wait' /,/<\\/function-decl>/ {
      /<parameter .* name='at_least'/d }"
    seeded "a member elsewhere" "/<class-decl name='remora_completion' /,/<\\/class-decl>/ {
      s/layout-offset-in-bits='64'/layout-offset-in-bits='96'/ }"
    ;;
  --update)
    mkdir -p "$folder"
    symbols >"$folder/symbols.txt"
    types "$folder/libremora.abi"
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac
