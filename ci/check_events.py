#!/usr/bin/env python3
"""Checks that the events of the log and their document are the same.

- Each `log::info` and `log::warn` of the library, and each `log_info`, `log_warn` and `log_error` of
  remora-server, names its event in a literal; remora-server logs by no other functions.
- engine/docs/log-events.md lists each event once, with the levels and the fields that the code has.
- No field has the name of what each JSON line begins with.

Prints `file:line: what` for each fault.
"""

import re
import sys

import checks

DOCUMENT = "engine/docs/log-events.md"
LIBRARY = "engine/"
DAEMON = "apps/server/"
# Where the functions themselves are.
FUNCTIONS = ("engine/src/base/log.h", "engine/src/base/log_event.h", "apps/server/log.h", "apps/server/log.cc")
TAKEN = {"time", "level", "event", "text"}
WORD = {"info": "info", "warn": "warning", "error": "error"}

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
STRING = r'"((?:\\.|[^"\\\n])*)"'
OF_LIBRARY = re.compile(r"\blog::(info|warn)\(\s*")
EVENT_OF_LIBRARY = re.compile(rf"\{{\s*{STRING}(?:,\s*{STRING})?\s*\}}")
OF_DAEMON = re.compile(r"(?<![\w.:])log_(info|warn|error)\(\s*")
EVENT_OF_DAEMON = re.compile(rf"{STRING}\s*[,)]")
# {"name", value} in the braces behind the text.
FIELD_OF_DAEMON = re.compile(r'\{\s*"([a-z0-9_]+)",')
# A line that is made by hand: .event = "log.lines_lost", behind its level.
BY_HAND = re.compile(r'\.event = "([a-z0-9_.]+)"')
LEVEL_BY_HAND = re.compile(r"\.level = LogLevel::k(Info|Warning|Error)\b")
NAMED_BY_HAND = re.compile(r'\.name = "([a-z0-9_]+)"')
SPDLOG = re.compile(r"\bspdlog::(?:trace|debug|info|warn|error|critical|log)\(")
ROW = re.compile(r"^\|\s*`([\w.]+)`\s*\|([^|]*)\|([^|]*)\|[^|]*\|[^|]*\|\s*$")


def without_comments(text):
    """The same lines, comments blanked."""
    pattern = re.compile(rf"{STRING}|{COMMENT.pattern}", re.DOTALL)
    return pattern.sub(lambda found: found.group(0) if found.group(0).startswith('"')
                       else re.sub(r"[^\n]", " ", found.group(0)), text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def call_at(text, at):
    """The text of a call whose `(` is before `at`, up to its `)`."""
    depth, string = 1, False
    for place in range(at, len(text)):
        mark = text[place]
        if string:
            string = mark != '"' or text[place - 1] == "\\"
        elif mark == '"':
            string = True
        elif mark in "({":
            depth += 1
        elif mark in ")}":
            depth -= 1
            if depth == 0:
                return text[at:place]
    return text[at:]


def fields_of(names):
    """Of the literal that a call of the library has: `session:x peer - reason`."""
    return {name.removesuffix(":x") for name in names.split() if name != "-"}


def events_of_library(text):
    """(line, level, event or None, fields) of each call."""
    for found in OF_LIBRARY.finditer(text):
        named = EVENT_OF_LIBRARY.match(text, found.end())
        yield (line_of(text, found.start()), WORD[found.group(1)], named and named.group(1),
               fields_of(named.group(2) or "") if named else set())


def events_of_daemon(text):
    for found in OF_DAEMON.finditer(text):
        call = call_at(text, found.end())
        named = EVENT_OF_DAEMON.match(call + ")")
        yield (line_of(text, found.start()), WORD[found.group(1)], named and named.group(1),
               set(FIELD_OF_DAEMON.findall(call)))


def events_by_hand(text):
    for found in BY_HAND.finditer(text):
        if found.group(1) == "detail":
            continue
        levels = LEVEL_BY_HAND.findall(text, 0, found.start())
        begin = text.rfind("\n\n", 0, found.start())
        yield (line_of(text, found.start()), levels[-1].lower() if levels else "", found.group(1),
               set(NAMED_BY_HAND.findall(text, max(begin, 0), found.start())))


def events_of(path, text):
    code = without_comments(text)
    if path.startswith((LIBRARY, DAEMON)):
        yield from events_by_hand(code)
    if path in FUNCTIONS:
        return
    if path.startswith(LIBRARY):
        yield from events_of_library(code)
    if path.startswith(DAEMON):
        yield from events_of_daemon(code)
        for found in SPDLOG.finditer(code):
            yield line_of(code, found.start()), "", None, set()


def listed_events(text):
    """(line, event, levels, fields) of each row of the document's tables of events."""
    for number, line in enumerate(text.split("\n"), 1):
        found = ROW.match(line)
        if found and "." in found.group(1):
            yield (number, found.group(1), {word.strip() for word in found.group(2).split(",")},
                   set(re.findall(r"`(\w+)`", found.group(3))))


def differences(name, code, listed):
    """What the row of an event does not say as the code does."""
    for what, in_code, in_row in (("level", code[1], listed[1]), ("field", code[2], listed[2])):
        for each in sorted(in_code - in_row):
            yield f"{name}: the row lacks the {what} {each} of {code[0]}"
        for each in sorted(in_row - in_code):
            yield f"{name}: no call has the {what} {each}"


def check_tree(root, paths):
    faults, events, calls = [], {}, 0
    for path in sorted(paths):
        if not path.startswith((LIBRARY, DAEMON)) or not path.endswith((".h", ".cc")):
            continue
        text = checks.read(root, path)
        if text is None:
            continue
        for line, level, name, fields in sorted(events_of(path, text), key=lambda each: each[0]):
            calls += 1
            if not name:
                faults.append(f"{path}:{line}: a line of the log without the name of an event")
                continue
            for taken in sorted(fields & TAKEN):
                faults.append(f"{path}:{line}: {name}: each line has a {taken} already")
            known = events.setdefault(name, (f"{path}:{line}", set(), set()))
            known[1].add(level)
            known[2].update(fields - TAKEN)
    rows = {}
    for line, name, levels, fields in listed_events(checks.read(root, DOCUMENT) or ""):
        if name in rows:
            faults.append(f"{DOCUMENT}:{line}: a second row for {name}")
            continue
        rows[name] = (line, levels, fields)
        if name not in events:
            faults.append(f"{DOCUMENT}:{line}: no call has the event {name}")
            continue
        faults += [f"{DOCUMENT}:{line}: {what}" for what in differences(name, events[name], rows[name])]
    faults += [f"{place}: {DOCUMENT} does not list {name}"
               for name, (place, _, _) in sorted(events.items()) if name not in rows]
    return faults, calls


ROWS = "| `a.one` | info, warning | `session`, `peer` | One. | |\n"
# Beside each seeded file.
OTHERS = {
    DOCUMENT: f"# Events\n\n{ROWS}",
    "engine/src/server/one.cc": 'log::info({"a.one", "session:x - peer"}, "{:x}{}{}", a, b, c);\n'
                                'log::warn(\n    {"a.one"}, "text");\n',
}
# What is wrong in a file, in line 2 or below, and a part of the message that must come.
SEEDED = [
    ("engine/src/a.cc", 'log::warn({"a.two"}, "text");', "does not list a.two"),
    ("engine/src/a.cc", 'log::warn("text");', "without the name"),
    ("engine/src/a.cc", 'log::info(kEvent, "text");', "without the name"),
    ("engine/src/a.cc", 'log::info({"a.one", "text"}, "{}", a);', "each line has a text"),
    ("apps/server/a.cc", 'spdlog::warn("text");', "without the name"),
    ("apps/server/a.cc", 'log_error(event, "text");', "without the name"),
    ("apps/server/a.cc", 'log_warn("a.two", "text");', "does not list a.two"),
    ("engine/src/a.cc", 'sink({.level = LogLevel::kInfo, .event = "a.two"});', "does not list a.two"),
    (DOCUMENT, ROWS + "| `a.two` | info | | Two. | |", "no call has the event a.two"),
    (DOCUMENT, ROWS + ROWS.rstrip(), "a second row for a.one"),
    (DOCUMENT, "| `a.one` | info | `session`, `peer` | One. | |", "lacks the level warning"),
    (DOCUMENT, "| `a.one` | error, info, warning | `session`, `peer` | One. | |", "no call has the level error"),
    (DOCUMENT, "| `a.one` | info, warning | `session` | One. | |", "lacks the field peer"),
    (DOCUMENT, "| `a.one` | info, warning | `session`, `peer`, `x` | One. | |", "no call has the field x"),
]
# What looks like a fault and is none.
CLEAN = [
    ("engine/src/a.cc", '// log::warn("text");\nconst char* kText = "log::debug";\nlog::debug("text {}", a);'),
    ("engine/src/a.cc", 'log::warn({"a.one", "peer"},\n          "a {} (b)", first(a));'),
    ("apps/server/a.cc", 'log_info("a.one", "a)" + text, {{"peer", name}, {"session", id(1), false}});'),
    ("apps/server/log.cc", "void log_info(std::string_view event) {\n}"),
    ("apps/cli/a.cc", 'spdlog::warn("text");'),
    ("tests/unit/a.cc", 'log::warn({"test.line"}, "text");'),
]


def self_test():
    seeds = [checks.Seed(path, f"\n{text}\n", expected, range(2, 6)) for path, text, expected in SEEDED]
    seeds += [checks.Seed(path, f"\n{text}\n") for path, text in CLEAN]
    return checks.self_test("events", check_tree, seeds, OTHERS)


if __name__ == "__main__":
    sys.exit(checks.main("events", checks.parser(__doc__).parse_args(), check_tree, self_test,
                         ("calls", "faults")))
