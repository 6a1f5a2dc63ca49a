#!/usr/bin/env python3
"""Writes the manual pages of the C API from the comments of its headers, one page a header.

usage: engine/c/man/make_pages.py           writes engine/c/man/*.3
       engine/c/man/make_pages.py --check   fails where a page is not what its header says
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include" / "remora"
DATE = "2026-11-26"  # of the pages: fixed, so that they are built again as they are
# A page, its header, and the line of its NAME.
PAGES = [
    ("libremora", "remora_c.h", "the client and the memory server of Remora, for C"),
    ("remora_error", "c/error.h", "codes, reasons and errors of Remora"),
    ("remora_engine", "c/engine.h", "the client: engine, options, session events, log"),
    ("remora_session", "c/session.h", "control requests to a Remora server"),
    ("remora_region", "c/region.h", "remote memory and synchronous operations on it"),
    ("remora_memory", "c/memory.h", "slots, registered memory and pieces for operations"),
    ("remora_queue", "c/queue.h", "queues of operations on remote memory"),
    ("remora_volume", "c/volume.h", "remote memory of several servers as one address space"),
    ("remora_server", "c/server.h", "the embedded memory server and views of its regions"),
    ("remora_administration", "c/administration.h", "sessions and drain of a Remora server"),
]


def declarations(text):
    """(comment, code) of each declaration; the first comment alone is the header's own."""
    found, comment, code = [], [], []
    for line in text.split("\n"):
        if re.match(r"// NOLINT", line):
            continue
        if code or not re.match(r"///|#|$|extern|}$", line):
            code.append(line)
            if line.rstrip().endswith(";") and "\n".join(code).count("{") == "\n".join(code).count("}"):
                found.append(("\n".join(comment), "\n".join(code)))
                comment, code = [], []
        elif line.startswith("///"):
            comment.append(line[3:].removeprefix(" "))
        elif comment:
            found.append(("\n".join(comment), ""))
            comment = []
            if line.startswith("#define"):
                found[-1] = (found[-1][0], line)
    return found


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def prose(comment):
    """Paragraphs; four spaces begin a line of code."""
    lines = []
    for line in comment.split("\n"):
        if not line:
            lines.append(".PP")
        elif line.startswith("    "):
            lines += [".EX", escaped(line), ".EE"]
        else:
            bold = re.sub(r"\*\*(.+?)\*\*", r"\\fB\1\\fR", escaped(line))
            lines.append(re.sub(r"`(.+?)`", r"\\fI\1\\fR", bold))
    return "\n".join(lines).replace(".EE\n.EX\n", "")


def plain(code):
    code = code.replace("REMORA_C_EXPORT ", "").replace(" REMORA_C_NOEXCEPT", "")
    return re.sub(r"\n\s+REMORA_C_NOEXCEPT", "", code)


def function_of(code):
    found = re.match(r"REMORA_C_EXPORT [\w ]+?[ *]+(remora_\w+)\(", code)
    return found.group(1) if found else None


def title_of(code):
    found = re.match(r"(?:typedef )?(?:struct|enum) (\w+)", code) or re.match(r"#define (\w+)", code)
    found = found or re.match(r"typedef void \(\*(\w+)\)", code)
    return found.group(1) if found else code


def page(name, header, about):
    parts = declarations((INCLUDE / header).read_text(encoding="utf-8"))
    functions = [function_of(code) for _, code in parts if function_of(code)]
    names = ", ".join([name] + functions)
    lines = [f'.\\" Made by engine/c/man/make_pages.py from remora/{header}.',
             f'.TH {name} 3 "{DATE}" Remora "Remora for C"', ".SH NAME", f"{names} \\- {about}",
             ".SH LIBRARY", "libremora.so.0 (\\fIpkg\\-config \\-\\-cflags \\-\\-libs remora\\-c\\fR)",
             ".SH SYNOPSIS", ".nf", "#include <remora/remora_c.h>"]
    for _, code in parts:
        if function_of(code):
            lines += ["", escaped(re.sub(r"\s+", " ", plain(code)))]
    lines += [".fi", ".SH DESCRIPTION", prose(parts[0][0])]
    shared = ""  # functions that follow each other may have one comment
    for comment, code in parts[1:]:
        if not code:
            shared = comment or shared
            continue
        title = function_of(code)
        lines += [f".SS {title}()" if title else f".SS {title_of(code)}"]
        text = comment or (shared if title else "")
        if comment:
            shared = comment
        if comment:
            lines += [prose(comment)]
        elif text:
            lines += ["Described with the functions above."]
        if not title:
            lines += [".PP"] * bool(text) + [".EX", escaped(plain(code)), ".EE"]
    others = [other for other, _, _ in PAGES if other != name]
    lines += [".SH SEE ALSO", ",\n".join(f".BR {other} (3)" for other in others).replace(",\n", " ,\n")]
    return "\n".join(lines) + "\n"


def main(arguments):
    wrong = 0
    for name, header, about in PAGES:
        path, text = HERE / f"{name}.3", page(name, header, about)
        if arguments == ["--check"]:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                print(f"{path.relative_to(HERE.parent.parent.parent)} is not what its header says: "
                      "run engine/c/man/make_pages.py")
                wrong += 1
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__.strip())
        sys.exit(2)
    sys.exit(main(sys.argv[1:]))
