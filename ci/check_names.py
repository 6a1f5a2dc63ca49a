#!/usr/bin/env python3
"""Checks that names lead to what they name: files, and threads.

- A header of one class has its name: `LaneWaiters` is in `lane_waiters.h`. The folder may stand for the
  first word: `TcpLane` is in `tcp/lane.h`. Structs and functions beside the class do not count.
- Where that has been reached, a header has one class, and those that derive from it.
- A source without a header of its name begins with the name of a class that it defines functions of:
  `queued_lane_driver_requests.cc`. Or its name is that of such a function, or of a class in it.
- A file that a comment names exists.
- Each thread has a name of its own, which fits into the kernel's 15 characters; engine/docs/threads.md
  lists it, and lists no other names.

Prints `file:line: what` for each fault.
"""

import posixpath
import re
import sys

import checks

ROOMS = ("apps/", "config/", "engine/", "metrics/", "verbs/")
COMMENTED = (*ROOMS, "tests/")
THREADS = "engine/docs/threads.md"
THREAD_NAME_MAX = 15  # characters that pthread_setname_np(3) takes
# Here a header has one class, and those that derive from it.
ONE_CLASS = ("apps/", "config/src/", "engine/src/", "metrics/src/")

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# Code of a namespace begins its lines: clang-format sees to it.
TYPE = re.compile(r"^(class|struct) (?:(?:[A-Z_]+(?:\([^)]*\))?|\[\[\w+\]\]|alignas\([^)]*\)) )*(\w+)\b(?!::)[^;{]*\{",
                  re.MULTILINE)
MEMBER = re.compile(r"^(?:[A-Za-z_][^\n=;()]*?[\s&*>])?([A-Z]\w*)(?:<[^>]*>)?::(?:[A-Z]\w*::)*~?(\w+)\(",
                    re.MULTILINE)
THREAD = re.compile(r'\b(?:start_thread|ServiceThread::start|EventLoop::start)\(\s*"([^"]*)"')
LISTED = re.compile(r"`(remora-[\w-]+)`")
FILE = re.compile(r"(?<![\w<>/.*-])((?:[\w-]+/)*[a-z]\w*\.(?:h|cc))\b(?!\.\w)")


def without(pattern, text):
    """The same lines, what the pattern finds blanked."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group(0)), text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def snake(name):
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def stem_and_folder(path):
    folder, file = posixpath.split(path)
    return posixpath.splitext(file)[0], posixpath.basename(folder)


def check_one_class(code):
    names = set()
    for found in TYPE.finditer(code):
        if found.group(1) != "class":
            continue
        bases = set(re.findall(r"\w+", found.group(0).partition(":")[2]))
        if names and not names & bases:
            yield (line_of(code, found.start()),
                   f"the second class of this header, {found.group(2)}, belongs in a file {snake(found.group(2))}")
        names.add(found.group(2))


def check_header(path, code):
    types = [(found.group(1), found.group(2), found.start()) for found in TYPE.finditer(code)]
    classes = {name for kind, name, _ in types if kind == "class"}
    if path.startswith(ONE_CLASS):
        yield from check_one_class(code)
    if len(classes) != 1:
        return
    stem, folder = stem_and_folder(path)
    names = {re.sub(r"^basic_", "", snake(name)) for _, name, _ in types}
    if not names & {stem, f"{folder}_{stem}"}:
        name = classes.pop()
        at = next(at for kind, _, at in types if kind == "class")
        yield line_of(code, at), f"the class {name} belongs in a file {snake(name)}"


def check_source(path, code):
    stem, folder = stem_and_folder(path)
    members = [(found.group(1), found.group(2), found.start()) for found in MEMBER.finditer(code)]
    inside = {found.group(2) for found in re.finditer(r"\b(class|struct) (\w+)[^;{()]*\{", code)}
    members = [member for member in members if member[0] not in inside]
    own = {snake(name) for name in inside} | {function for _, function, _ in members}
    if len(members) < 2 or stem in own:
        return
    # QueueCore is what a Queue holds: either name will do.
    names = {re.sub(r"_core$", "", snake(name)) for name, _, _ in members}
    if not any(begun.startswith(name) for name in names for begun in (stem, f"{folder}_{stem}")):
        name, _, at = members[0]
        yield line_of(code, at), (f"functions of {name} belong in a file whose name begins with "
                                  f"{re.sub('_core$', '', snake(name))}")


def check_comments(text, files, folders):
    code = without(re.compile(r'"(?:\\.|[^"\\\n])*"'), text)
    for comment in COMMENT.finditer(code):
        for found in FILE.finditer(comment.group(0)):
            name = found.group(1)
            first, _, rest = name.partition("/")
            if rest and first not in folders:  # of another project
                continue
            if posixpath.basename(name) not in files and not name.endswith(".pb.h"):
                yield line_of(text, comment.start() + found.start()), f"there is no {name}"


def check_threads(started, listed):
    """`started`: (path, line, name); `listed`: names of the document by line."""
    faults, first = [], {}
    for path, line, name in sorted(started):
        if name in first:
            faults.append(f"{path}:{line}: a second thread is named {name}: see {first[name]}")
            continue
        first[name] = f"{path}:{line}"
        if len(name) > THREAD_NAME_MAX:
            faults.append(f"{path}:{line}: {name} is longer than {THREAD_NAME_MAX} characters")
        elif listed and name not in {each for _, each in listed}:
            faults.append(f"{path}:{line}: {THREADS} does not list {name}")
    for line, name in listed:
        if name not in first:
            faults.append(f"{THREADS}:{line}: no thread is named {name}")
    return faults


def listed_threads(text):
    """Of the first column of the tables."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("|"):
            for name in LISTED.findall(line.split("|")[1]):
                yield number, name


def check_tree(root, paths):
    faults, started, checked = [], [], 0
    listed = list(listed_threads(checks.read(root, THREADS) or ""))
    files = {posixpath.basename(path) for path in paths}
    folders = {part for path in paths for part in posixpath.dirname(path).split("/")}
    with_header = {posixpath.basename(path)[:-2] for path in paths if path.endswith(".h")}
    for path in sorted(paths):
        if not path.startswith(COMMENTED) or not path.endswith((".h", ".cc", ".c")):
            continue
        text = checks.read(root, path)
        if text is None:
            continue
        checked += 1
        found = list(check_comments(text, files, folders))
        if path.startswith(ROOMS):
            code = without(COMMENT_OR_STRING, text)
            if path.endswith(".h"):
                found += check_header(path, code)
            elif path.endswith(".cc") and stem_and_folder(path)[0] not in with_header:
                found += check_source(path, code)
            uncommented = without(COMMENT, text)
            started += [(path, line_of(uncommented, each.start()), each.group(1))
                        for each in THREAD.finditer(uncommented)]
        faults += [f"{path}:{line}: {what}" for line, what in sorted(found)]
    return faults + check_threads(started, listed), checked


# Beside each seeded file.
OTHERS = {
    THREADS: "# Threads\n\n| name | … |\n|---|---|\n| `remora-a`, 2 of them | … |\n",
    "engine/src/base/first.cc": 'auto thread = start_thread("remora-a", run);\n',
    "engine/src/client/queue_core.h": "class QueueCore {\n};\n",
}
# What is wrong in a file, in line 2 or below, and a word of the message that must come.
SEEDED = [
    ("engine/src/a/cache.h", "class DeviceCache {\n};\nstd::shared_ptr<DeviceCache> make();",
     "belongs in a file device_cache"),
    ("verbs/src/cm_devices.h", "class CmDevice {\n};", "belongs in a file cm_device"),
    ("engine/src/base/log_sink.h", "struct Line {\n};\nclass SinkQueue final\n    : public Base {\n};",
     "belongs in a file sink_queue"),
    ("engine/src/transport/first.h", "class First {\n};\nclass Second {\n};", "belongs in a file second"),
    ("engine/src/a/b.h", "class REMORA_CAPABILITY(\"mutex\") Lock {\n};", "belongs in a file lock"),
    ("engine/src/client/a.cc", "bool LaneDriver::end() noexcept {\n}\nLaneDriver::Call* LaneDriver::call() {\n}",
     "begins with lane_driver"),
    ("engine/src/client/end.cc", "void Lane::move(int a) {\n}\nvoid Lane::stop() {\n}", "begins with lane"),
    ("engine/src/a.cc", "// In tcp_wire.h.", "there is no tcp_wire.h"),
    ("tests/unit/engine/a.cc", "/// See base/gone.h.", "there is no base/gone.h"),
    ("engine/src/client/a.cc", 'start_thread("remora-a", run);', "named remora-a: see"),
    ("engine/src/a.cc", 'auto loop = EventLoop::start("remora-b", run);', "does not list remora-b"),
    ("apps/server/a.cc", 'ServiceThread::start(\n    "remora-sixteen-c", run);', "longer than 15 characters"),
    (THREADS, "| `remora-a` | … |\n| `remora-c` | … |", "no thread is named remora-c"),
]
# What looks like a fault and is none.
CLEAN = [
    ("engine/src/a/lane_waiters.h",
     "class Other;\nclass LaneWaiters {\n  class Inner {\n  };\n};\nstruct More {\n};"),
    ("engine/src/transport/tcp/lane.h", "class TcpLane final : public Lane {\n};"),
    ("engine/src/a/limit.h", "template <typename Clock>\nclass BasicLimit {\n};\nusing Limit = BasicLimit<Clock>;"),
    ("engine/src/a/grant.h", "struct Grant {\n};\nclass GrantHandle {\n};"),
    ("verbs/src/both.h", "class One {\n};\nclass Two {\n};"),
    ("engine/src/transport/first.h", "class First {\n};\nclass First::Inner {\n};\nclass Second;"),
    ("engine/src/transport/base.h", "class Base {\n};\nclass Derived : public Base {\n};\nstruct More {\n};"),
    ("engine/src/a/functions.h", "enum class Kind { kOne };\nstruct Some {\n};\nvoid run();"),
    ("engine/src/client/queue_group.cc", "void Queue::a() {\n}\nvoid QueueCore::b() {\n}"),
    ("engine/src/client/groups.cc", "class Groups {\n};\nvoid Queue::a() {\n}\nvoid Queue::b() {\n}"),
    ("engine/src/client/scrape.cc", "void Registry::scrape() {\n}\nvoid Registry::help() {\n}"),
    ("engine/src/client/queue_core.cc", "void Other::a() {\n}\nvoid Other::b() {\n}"),
    ("engine/src/a.cc", "// See queue_core.h, linux/fs.h, a.pb.h.\nconst char* kText = \"// gone.h\";"),
    ("engine/src/b.cc", '// start_thread("remora-a", run);'),
    ("tests/unit/engine/a.cc", 'start_thread("remora-a", run);'),
]


def self_test():
    seeds = [checks.Seed(path, f"\n{text}\n", expected, range(2, 6)) for path, text, expected in SEEDED]
    seeds += [checks.Seed(path, f"\n{text}\n") for path, text in CLEAN]
    return checks.self_test("names", check_tree, seeds, OTHERS)


if __name__ == "__main__":
    sys.exit(checks.main("names", checks.parser(__doc__).parse_args(), check_tree, self_test,
                         ("files", "faults")))
