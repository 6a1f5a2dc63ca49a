#!/usr/bin/env bash
# Prints a source in C++ that has a function for each function of protobuf, oneTBB and spdlog that a
# library needs from others. All of them end the process with the status 3.
set -euo pipefail

if (($# != 1)) || [[ ! -f $1 ]]; then
  echo "usage: tests/coexistence/stand_ins.sh LIBRARY" >&2
  exit 2
fi
names=$(readelf --dyn-syms --wide "$1" |
  awk '$7 == "UND" && $4 == "FUNC" && $8 ~ /^_ZNK?(6google8protobuf|6spdlog|3tbb)/ { print $8 }')
count=$(wc -l <<<"$names")
if ((count < 50)); then
  echo "stand_ins: $1 needs $count such functions only" >&2
  exit 1
fi
cat <<'SOURCE'
#include <unistd.h>

extern "C" void stand_in();
extern "C" void stand_in() {
  static const char text[] = "a stand-in was called\n";
  (void)!write(STDOUT_FILENO, text, sizeof text - 1);
  _exit(3);
}
SOURCE
while read -r name; do
  printf 'asm(".globl %s\\n.type %s, @function\\n.set %s, stand_in\\n");\n' "$name" "$name" "$name"
done <<<"$names"
