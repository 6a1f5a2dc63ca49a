#!/usr/bin/env python3
"""Checks the documents: links, anchors, names of files, sizes.

Of every *.md that git knows: a relative link must lead to a file or folder of the repository, and its
anchor to a heading there. A text that is the name of a document, as [page.md](…), must be that of the
target. Documents of NAMING name files that exist: `engine/src/base/log` stands for a
.h and a .cc. In a table whose header is `file in `FOLDER/``, the last column names files of that folder.
A table with the columns `at most` and `case of PathCost` has the bounds of BOUNDED, each and no other.
LIMITS bounds the size of documents. Prints `file:line: what` for each fault.
"""

import fnmatch
import os
import posixpath
import re
import sys
import urllib.parse

import checks

# What a document may have: (files, words, lines, characters of a line). None: no bound. Each row that
# matches counts; * matches / too.
LIMITS = [
    ("README.md", None, 120, 400),
    ("engine/README.md", 1200, None, 400),
    ("engine/docs/*.md", None, None, 400),
    ("engine/c/*.md", 800, None, 400),
    ("engine/volume/README.md", 800, None, 400),
    (".github/CONTRIBUTING.md", None, None, 400),
    ("[acmtv]*/README.md", 800, None, 400),
    ("[acmtv]*/docs/*.md", None, None, 400),
    ("metrics/prometheus/RUNBOOK.md", None, None, 400),
]

# Documents whose names of files are checked.
NAMING = ("README.md", "*/README.md", "*/docs/*.md", ".github/CONTRIBUTING.md")
NAMED = re.compile(r"`((?:apps|ci|config|engine|metrics|tests|verbs|\.github)/[\w./-]*)`")
NAMED_IN = re.compile(r"^\|.*\| file in `([\w./-]+/)`[^|]*\|\s*$")

# The test whose bounds a document shows, one of its bounds, and the header of the document's table.
BOUNDED = "tests/unit/engine/path_cost_test.cc"
BOUND = re.compile(r'\bCost\{"\w+", "\w+", (\d+)\}')
BOUNDS_IN = re.compile(r"^\|[^|]*\| at most \| case of `PathCost` \|")

FENCE = re.compile(r"^\s*(```+|~~~+)")
INLINE_CODE = re.compile(r"(`+)(?:(?!\1).)+\1")
# [text](target "title"), also of an image; [name]: target; attributes of HTML.
LINKS = [
    re.compile(r"\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s]*)?)>?(?:\s+\"[^\"]*\")?\s*\)"),
    re.compile(r"^\s*\[[^\]]+\]:\s+<?([^\s<>]+)>?"),
    re.compile(r"\b(?:src|srcset|href)=\"([^\"]+)\""),
]
# A link whose text is the name of a document, and the document that it leads to.
TITLED = re.compile(r"\[(?:[\w.-]+/)*([\w.-]+\.md)\]\(\s*<?(?:[\w.-]+/)*([\w.-]+)")
OUTSIDE = re.compile(r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*:|//)")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")


def prose(text):
    """Each line with its number; lines of code blocks and of comments are left out."""
    fence, comment = None, False
    for number, line in enumerate(text.split("\n"), 1):
        if comment:
            comment = "-->" not in line
            continue
        mark = FENCE.match(line)
        if fence is not None:
            if mark and mark.group(1).startswith(fence):
                fence = None
            continue
        if mark:
            fence = mark.group(1)
            continue
        if line.lstrip().startswith("<!--"):
            comment = "-->" not in line
            continue
        yield number, line


def links(text):
    """(line, target) of each link."""
    for number, line in prose(text):
        line = INLINE_CODE.sub("``", line)
        for pattern in LINKS:
            for target in pattern.findall(line):
                yield number, target


def anchors(text):
    """The anchors that GitHub makes of the headings."""
    found, counts = set(), {}
    for _, line in prose(text):
        heading = HEADING.match(line)
        if not heading:
            continue
        name = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1))
        name = re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")
        count = counts.get(name, 0)
        counts[name] = count + 1
        found.add(f"{name}-{count}" if count else name)
    return found


def check_titles(text):
    for number, line in prose(text):
        for title, target in TITLED.findall(INLINE_CODE.sub("``", line)):
            if title != target:
                yield number, f"a link with the text {title} leads to {target}"


def check_links(path, text, files, folders, read):
    for number, target in links(text):
        if OUTSIDE.match(target):
            continue
        place, _, anchor = target.partition("#")
        place = urllib.parse.unquote(place)
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(path), place)) if place else path
        if wanted not in files and wanted not in folders:
            yield number, f"there is no {wanted}: {target}"
        elif anchor and wanted.endswith(".md") and anchor not in anchors(read(wanted)):
            yield number, f"{wanted} has no heading for #{anchor}"


def check_names(path, text, files, folders):
    if not any(fnmatch.fnmatchcase(path, pattern) for pattern in NAMING):
        return

    def exists(name):
        name = name.rstrip("/")
        return name in files or name in folders or (f"{name}.h" in files and f"{name}.cc" in files)

    folder = None
    for number, line in prose(text):
        header = NAMED_IN.match(line)
        if header:
            folder = header.group(1)
        elif not line.startswith("|"):
            folder = None
        if folder and not header:
            line, _, last = line.rstrip().rstrip("|").rpartition("|")
            names = [folder + name for name in re.findall(r"`([\w./-]+)`", last)]
        else:
            names = []
        names += NAMED.findall(line)
        for name in names:
            if "NAME" not in name and not exists(name):
                yield number, f"there is no {name}"


def check_bounds(text, read):
    start, shown = None, set()
    for number, line in prose(text):
        if BOUNDS_IN.match(line):
            start, shown = number, set()
        elif start is not None and line.startswith("|"):
            shown |= set(re.findall(r"\d+", line.split("|")[2]))
        elif start is not None:
            bounds = set(BOUND.findall(read(BOUNDED)))
            for wrong in sorted(shown - bounds):
                yield start, f"{wrong} is no bound of {BOUNDED}"
            for missing in sorted(bounds - shown):
                yield start, f"{missing}, a bound of {BOUNDED}, is missing"
            start = None


def check_size(path, text):
    lines = text.rstrip("\n").split("\n")
    for pattern, words_max, lines_max, characters_max in LIMITS:
        if not fnmatch.fnmatchcase(path, pattern):
            continue
        words = len(text.split())
        if words_max is not None and words > words_max:
            yield 1, f"{words} words, more than {words_max}"
        if lines_max is not None and len(lines) > lines_max:
            yield lines_max + 1, f"{len(lines)} lines, more than {lines_max}"
        for number, line in enumerate(lines, 1):
            if characters_max is not None and len(line) > characters_max:
                yield number, f"a line of {len(line)} characters, more than {characters_max}"


def check_tree(root, paths):
    files = {path for path in paths if os.path.exists(os.path.join(root, path))}
    folders = {"."}
    for path in files:
        while path := posixpath.dirname(path):
            folders.add(path)
    texts = {}

    def read(path):
        if path not in texts:
            texts[path] = checks.read(root, path) or ""
        return texts[path]

    faults, documents = [], sorted(path for path in files if path.endswith(".md"))
    for path in documents:
        text = read(path)
        found = [*check_links(path, text, files, folders, read), *check_names(path, text, files, folders),
                 *check_size(path, text), *check_titles(text), *check_bounds(text, read)]
        faults += [f"{path}:{number}: {what}" for number, what in sorted(found)]
    return faults, len(documents)


# Beside each seeded document: what its links lead to.
OTHERS = {
    "docs/page.md": "# A page\n\n## Two words\n\n## Two words\n\n## `Code`, and more: why?\n\n```sh\n# no heading\n```\n",
    "docs/picture.svg": "<svg/>\n",
    "engine/src/base/log.h": "",
    "engine/src/base/log.cc": "",
    "engine/src/base/clock.h": "",
    BOUNDED: 'Cost{"posted", "alone", 428}, Cost{"direct", "alone", 332}\n',
}
# What is wrong in a document, and a word of the message that must come; the fault stands in line 3.
SEEDED = [
    ("a.md", "[x](docs/missing.md)", "there is no docs/missing.md"),
    ("a.md", "[x](docs/page.md#three-words)", "has no heading for #three-words"),
    ("a.md", "[x](docs/page.md#no-heading)", "has no heading for #no-heading"),
    ("a.md", "[x](docs/page.md#two-words-2)", "has no heading for #two-words-2"),
    ("a.md", "[x](#nowhere)", "a.md has no heading for #nowhere"),
    ("a.md", "![x](docs/missing.svg)", "there is no docs/missing.svg"),
    ("a.md", "<img src=\"docs/missing.svg\">", "there is no docs/missing.svg"),
    ("a.md", "[x]: docs/missing.md", "there is no docs/missing.md"),
    ("docs/b.md", "[x](docs/page.md)", "there is no docs/docs/page.md"),
    ("docs/b.md", "[other.md](page.md#a-page)", "the text other.md leads to page.md"),
    ("docs/b.md", "[x](../../page.md)", "there is no ../page.md"),
    ("README.md", "`engine/src/support/log`", "there is no engine/src/support/log"),
    ("engine/docs/c.md", "`engine/src/base/clock`", "there is no engine/src/base/clock"),
    ("engine/docs/c.md", "| … | file in `engine/src/` |\n|---|---|\n| does `this` | `base/log`, `base/gone.h` |",
     "there is no engine/src/base/gone.h"),
    ("README.md", "x" * 401, "a line of 401 characters"),
    ("engine/docs/c.md", "x" * 401, "a line of 401 characters"),
    ("a.md", "| operation | at most | case of `PathCost` |\n|---|---|---|\n| read | 428 | 1 |", "332, a bound of"),
    ("a.md", "| of | at most | case of `PathCost` |\n|---|---|---|\n| read | 428, 332, 398 | 1 |", "398 is no bound"),
]
SIZES = [
    ("README.md", "a line\n" * 121, "121 lines, more than 120"),
    ("engine/README.md", "two words\n" * 601, "1202 words, more than 1200"),
]
# What looks like a fault and is none.
CLEAN = [
    ("a.md", "[x](docs/page.md) [x](docs/page.md#two-words-1) [x](docs/) [x](docs/page.md#code-and-more-why)"),
    ("a.md", "[x](https://example.com/docs/missing.md) [x](mailto:someone@example.com) [x](#title)"),
    ("a.md", "`[x](docs/missing.md)` and ``v[0](docs/missing.md)``"),
    ("a.md", "```md\n[x](docs/missing.md)\n```"),
    ("a.md", "<!-- [x](docs/missing.md)\n[x](docs/missing.md)\n-->"),
    ("a.md", "![x](docs/picture.svg \"a title\") <source srcset=\"docs/picture.svg\">"),
    ("engine/docs/c.md", "`engine/src/base/log`, `engine/src/base/`, `engine/src/base/clock.h`, `engine/src/NAME/`"),
    ("engine/docs/c.md", "| … | file in `engine/src/` |\n|---|---|\n| does `this` | `base/log`, `base/clock.h` |"),
    ("docs/b.md", "`engine/src/support/log`"),
    ("a.md", "| of | at most | case of `PathCost` |\n|---|---|---|\n| read | 428 | 1 |\n| shm | 332 | 2 |"),
    ("a.md", "| wait | at most |\n|---|---|\n| for a lane | 200 ms |"),
    ("docs/b.md", "[x](page.md#a-page) [x](../docs/picture.svg)"),
    ("a.md", "[page.md](docs/page.md#a-page) [docs/page.md](docs/page.md) `[other.md](docs/page.md)`"),
    ("README.md", "x" * 400),
    ("README.md", "a line\n" * 118),
    ("other.md", "x" * 401),
]


def self_test():
    seeds = [checks.Seed(path, f"# Title\n\n{text}\n", expected, range(3, 6))
             for path, text, expected in SEEDED]
    seeds += [checks.Seed(path, text, expected) for path, text, expected in SIZES]
    seeds += [checks.Seed(path, f"# Title\n\n{text}\n") for path, text in CLEAN]
    return checks.self_test("docs", check_tree, seeds, OTHERS)


if __name__ == "__main__":
    sys.exit(checks.main("docs", checks.parser(__doc__).parse_args(), check_tree, self_test,
                         ("documents", "faults")))
