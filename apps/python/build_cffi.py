#!/usr/bin/python3
"""Makes the C source of the extension module remora._remora from the headers of the C API.

usage: build_cffi.py --headers FOLDER --emit FILE.c
       build_cffi.py --headers FOLDER --print
       build_cffi.py --headers FOLDER --check SYMBOLS

FOLDER holds remora/remora_c.h (engine/c/include). --emit writes the source that CMake compiles. --print
shows the declarations that cffi is given. --check compares them with the exported functions of
engine/c/abi/symbols.txt: nothing is declared by hand, so both have to agree.

The declarations are those of the headers, without comments, conditions and attributes. The compiler then
checks each struct, constant and function against the headers themselves (cffi's API mode).
"""

import argparse
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
MAIN_HEADER = "remora/remora_c.h"
# Functions of these files of src/, which the extension module brings itself.
OWN_FILES = ["wait.h", "places.h", "repair.h", "events.h"]
OWN_DECLARATIONS = """
int remora_py_wait(remora_queue* queue, int descriptor, uint64_t spin_ns, uint64_t slice_ns,
                   remora_completion* completions, size_t capacity, size_t* count,
                   remora_error* error);
typedef struct remora_py_repair {
  int stop;
  uint64_t done_bytes;
  uint64_t all_bytes;
} remora_py_repair;
void remora_py_watch_repair(remora_py_repair* repair, remora_volume_repair_options* options);
void remora_py_stop_repair(remora_py_repair* repair);
uint64_t remora_py_repaired(const remora_py_repair* repair);
uint64_t remora_py_to_repair(const remora_py_repair* repair);
typedef struct remora_py_event {
  uint32_t group;
  int32_t change;
  int32_t code;
  int32_t reason;
  char server[72];
} remora_py_event;
uint64_t remora_py_watch_events(remora_volume_options* options);
size_t remora_py_take_events(uint64_t volume, remora_py_event* events, size_t capacity);
void remora_py_forget_events(void);
void remora_py_end_engine(remora_engine** place);
void remora_py_end_session(remora_session** place);
void remora_py_end_region(remora_region** place);
void remora_py_end_region_list(remora_region_list** place);
void remora_py_end_session_list(remora_session_list** place);
void remora_py_end_queue(remora_queue** place);
void remora_py_end_volume(remora_volume** place);
void remora_py_end_text(char** place);
"""


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def included(text):
    """The headers of Remora that a header includes, in order."""
    return re.findall(r"^\s*#\s*include\s*<(remora/[\w./]+)>", text, re.MULTILINE)


def in_order(folder, name, seen):
    """The headers from the one that needs no other to `name`."""
    if name in seen:
        return
    text = without_comments((folder / name).read_text(encoding="utf-8"))
    seen[name] = None  # in progress: it includes no header that includes it
    for other in included(text):
        yield from in_order(folder, other, seen)
    seen[name] = text
    yield name, text


def for_c(text):
    """The lines that a C compiler reads: of `#ifdef __cplusplus` the other branch."""
    kept, branches = [], []
    for line in text.split("\n"):
        directive = re.match(r"\s*#\s*(\w+)\s*(.*?)\s*$", line)
        word, rest = directive.groups() if directive else ("", "")
        if word in ("ifdef", "ifndef", "if"):
            if (word, rest) != ("ifdef", "__cplusplus"):
                raise ValueError(f"a condition that is not known here: {line}")
            branches.append(False)
        elif word == "else":
            branches[-1] = not branches[-1]
        elif word == "endif":
            branches.pop()
        elif all(branches):
            kept.append(line)
    return "\n".join(kept)


def constants(text):
    """`#define NAME number` as cffi takes it: the compiler has the value."""
    return [f"#define {name} ..." for name in
            re.findall(r"^\s*#\s*define\s+(REMORA_\w+)\s+\d+\s*$", text, re.MULTILINE)]


def declarations(folder):
    """The text for ffi.cdef()."""
    parts = []
    for _, text in in_order(pathlib.Path(folder), MAIN_HEADER, {}):
        text = for_c(text)
        parts += constants(text)
        text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
        parts.append(re.sub(r"\bREMORA_C_(EXPORT|NOEXCEPT)\b", "", text))
    return re.sub(r"\n\s*\n+", "\n", "\n".join(parts))


def functions(text):
    """The names of the functions that are declared; a pointer to a function has none."""
    return set(re.findall(r"\b(remora_\w+)\s*\(", text))


def ffi_of(folder):
    import cffi  # only where it is needed: --print and --check work without

    ffi = cffi.FFI()
    ffi.cdef(declarations(folder) + OWN_DECLARATIONS)
    own = "\n".join((HERE / "src" / name).read_text(encoding="utf-8") for name in OWN_FILES)
    ffi.set_source("remora._remora", f"#include <{MAIN_HEADER}>\n{own}")
    return ffi


def check(folder, symbols):
    """Prints functions that the headers declare and the library does not export, and the reverse."""
    declared = functions(declarations(folder))
    exported = {word for line in pathlib.Path(symbols).read_text(encoding="utf-8").splitlines()
                for word in re.findall(r"\bremora_\w+", line.partition("#")[0])}
    for name in sorted(declared - exported):
        print(f"{name}: declared in the headers, not exported")
    for name in sorted(exported - declared):
        print(f"{name}: exported, not found in the headers")
    return 0 if declared and declared == exported else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--headers", required=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--emit", metavar="FILE.c")
    what.add_argument("--print", action="store_true")
    what.add_argument("--check", metavar="SYMBOLS")
    arguments = parser.parse_args()
    if arguments.print:
        print(declarations(arguments.headers))
    elif arguments.check:
        return check(arguments.headers, arguments.check)
    else:
        ffi_of(arguments.headers).emit_c_code(arguments.emit)
        pathlib.Path(arguments.emit).touch()  # cffi leaves a file alone that would be the same
    return 0


if __name__ == "__main__":
    sys.exit(main())
