#!/usr/bin/env python3
"""Compiles the C++ of READMEs and of pages in docs/, so that it keeps up with the headers.

usage: ci/check_snippets.py FILE.md... [-- COMPILER FLAGS...]
       ci/check_snippets.py --self-test

Each block that begins with ```cpp becomes one source, which g++ checks as C++20 with all warnings as
errors. A block is a fragment of a program; what it takes for granted stands in a comment above it that
no reader sees, with a line `...` for the block itself:

    <!-- snippet
    void example(const remora::Region& region) {
    ...
    }
    -->
    ```cpp
    region.write_zeroes(remora::ByteOffset{0}, 4096).value();
    ```

Without a comment the block is a source of its own. Lines that begin with #include go to its beginning;
<remora/remora.h> is included before. The compiler's messages name the document and its lines.
"""

import os
import re
import subprocess
import sys
import tempfile

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-std=c++20"]


def snippets(text, name):
    """Of each block: the number of its first line, and the source that it is."""
    found, lines, context, at = [], text.split("\n"), None, 0
    while at < len(lines):
        line = lines[at]
        if line == "<!-- snippet":
            end = lines.index("-->", at)
            context, at = lines[at + 1:end], end + 1
            continue
        if line != "```cpp":
            if context is not None:
                raise ValueError(f"{name}:{at + 1}: a comment `snippet` stands right above a ```cpp")
            at += 1
            continue
        end = lines.index("```", at)
        found.append((at + 1, source(lines[at + 1:end], context, name, at + 2)))
        context, at = None, end + 1
    return found


def source(block, context, name, first_line):
    """The block within its context, in which `...` stands for it once."""
    context = ["..."] if context is None else context
    if context.count("...") != 1:
        raise ValueError(f"{name}:{first_line}: its context has not one line `...`")
    place = context.index("...")
    around = [line for line in context if line.startswith("#include")]
    # Blank where they stood, so that the lines below keep their numbers.
    body = ["" if line.startswith("#include") else line for line in block]
    includes = ["#include <remora/remora.h>"] + around
    includes += [line for line in block if line.startswith("#include")]
    before = [line for line in context[:place] if not line.startswith("#include")]
    after = [line for line in context[place + 1:] if not line.startswith("#include")]
    quoted = name.replace("\\", "/")
    return "\n".join(includes + before + [f'#line {first_line} "{quoted}"'] + body +
                     ['#line 1 "context"'] + after) + "\n"


def compiles(text, flags):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snippet.cc")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        done = subprocess.run(["g++", *WARNINGS, *flags, path], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            sys.stdout.write(done.stderr)
        return done.returncode == 0


def check(files, flags):
    wrong = count = 0
    for name in files:
        with open(name, encoding="utf-8") as read:
            blocks = snippets(read.read(), name)
        for line, text in blocks:
            count += 1
            if not compiles(text, flags):
                print(f"{name}:{line}: this C++ does not compile without warnings")
                wrong += 1
    print(f"{count} blocks of C++ in {len(files)} files, {wrong} of them wrong")
    return 1 if wrong or not count else 0


def self_test():
    text = "a\n```cpp\nint x;\n```\n<!-- snippet\n#include <array>\nvoid f() {\n...\n}\n-->\n" \
           "```cpp\n#include <span>\nint y;\n```\n```sh\nls\n```\n"
    first, second = snippets(text, "README.md")
    assert first[0] == 2 and "\nint x;\n" in first[1], first
    assert second[0] == 11 and re.search(
        r'<array>\n#include <span>\nvoid f\(\) \{\n#line 12 "README.md"\n\nint y;\n#line', second[1]), second
    for wrong in ("<!-- snippet\n...\n-->\ntext\n```cpp\n```\n", "<!-- snippet\nint x;\n-->\n```cpp\n```\n"):
        try:
            snippets(wrong, "README.md")
        except ValueError:
            continue
        raise AssertionError(wrong)
    print("ok - check_snippets: self-test")
    return 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments else 2
    split = arguments.index("--") if "--" in arguments else len(arguments)
    return check(arguments[:split], arguments[split + 1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
