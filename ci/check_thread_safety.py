#!/usr/bin/env python3
"""Checks that clang refuses a wrong use of <remora/mutex.h>, and accepts a right one.

A source of seeded faults is compiled with the flags that a build tree of clang has for every module of the
library (--build, the preset asan-ubsan), or read by clang-tidy as the sources of the programs are (--tidy,
the preset tidy). A module that lacks the flags is a failure. The faults share a source, each in a namespace
of its own, since a compiler reads the headers for longer than the faults.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

import checks

MODULES = ("verbs", "config", "metrics", "engine")  # <remora/mutex.h> itself is read with each

INCLUDE = "#include <remora/mutex.h>\n"
CLASS = """\
class Account {
 public:
  int take(int amount);
  int wait();

 private:
  int spend(int amount) REMORA_REQUIRES(mutex_) { return left_ -= amount; }

  remora::detail::Mutex mutex_;
  remora::detail::Condition changed_;
  int left_ REMORA_GUARDED_BY(mutex_) = 0;
};

"""
WAIT = "int Account::wait() {\n  remora::detail::MutexLock lock{mutex_};\n" \
       "  changed_.wait(lock, [this] { %sreturn left_ > 0; });\n  return left_;\n}\n"
TAKE = "int Account::take(int amount) {\n%s}\n"
LOCK = "  const remora::detail::MutexLock lock{mutex_};\n"

RIGHT_USE = TAKE % (LOCK + "  return spend(amount);\n") + WAIT % "mutex_.assert_held(); "
# What is wrong, the source behind CLASS, and what the message says.
FAULTS = [
    ("a write without the lock", TAKE % "  left_ -= amount;\n  return amount;\n",
     "writing variable 'left_' requires holding mutex 'mutex_'"),
    ("a read without the lock", TAKE % "  return left_ + amount;\n",
     "reading variable 'left_' requires holding mutex 'mutex_'"),
    ("a call without the lock", TAKE % "  return spend(amount);\n",
     "calling function 'spend' requires holding mutex 'mutex_'"),
    ("a read after the lock", TAKE % ("  {\n  " + LOCK + "    spend(amount);\n  }\n  return left_;\n"),
     "reading variable 'left_' requires holding mutex 'mutex_'"),
    ("a lock that stays", TAKE % "  mutex_.lock();\n  return spend(amount);\n",
     "mutex 'mutex_' is still held at the end of function"),
    ("a lock taken twice", TAKE % (LOCK + "  const remora::detail::MutexLock again{mutex_};\n"
                                   "  return spend(amount);\n"),
     "acquiring mutex 'mutex_' that is already held"),
    ("a predicate that does not say that the lock is held", WAIT % "",
     "reading variable 'left_' requires holding mutex 'mutex_'"),
]


def command_of(build, folder):
    """The words that compile the first source of `folder` in that tree, without source and output."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    inside = re.compile(rf"(^|/){folder}/CMakeFiles/remora_{folder}\.dir/")
    for entry in entries:
        if not inside.search(entry["command"]):
            continue
        words = shlex.split(entry["command"])
        compiler = next(i for i, word in enumerate(words) if "clang++" in os.path.basename(word))
        words = words[compiler:]
        for option in ("-o", "-c"):
            del words[words.index(option):words.index(option) + 2]
        return words, entry["directory"]
    return None, None


def compiled(build, folder):
    """(name, what runs on a source) for each module, or None for a module that the tree does not have."""
    words, directory = command_of(build, folder)
    if words is None:
        return None

    def run(source):
        ran = subprocess.run(words + ["-fsyntax-only", source], cwd=directory, capture_output=True,
                             text=True)
        return ran.returncode, ran.stdout + ran.stderr

    return run


def tidied(root, program):
    def run(source):
        ran = subprocess.run(
            [program, "--quiet", f"--config-file={root}/.clang-tidy", source, "--", "-std=c++20",
             f"-I{root}/verbs/result/include"], capture_output=True, text=True)
        return ran.returncode, ran.stdout + ran.stderr

    return run


def seeded():
    """A source with every fault, and the numbers of the first and the last line of each."""
    text, places = INCLUDE, []
    for number, (_, fault, _) in enumerate(FAULTS):
        first = text.count("\n") + 1
        text += f"namespace fault_{number} {{\n{CLASS}{fault}}}\n"
        places.append((first, text.count("\n")))
    return text, places


def found_at(said, first, last, message):
    """Whether a message of the compiler about one of these lines says so."""
    lines = [line for line in said.split("\n") if message in line]
    places = [re.match(r".*seeded\.cc:(\d+):", line) for line in lines]
    return any(place and first <= int(place[1]) <= last for place in places)


def check(name, run):
    failures = 0
    text, places = seeded()
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "seeded.cc")
        checks.plant(folder, {"seeded.cc": INCLUDE + CLASS + RIGHT_USE})
        status, said = run(source)
        failures += checks.verdict(status == 0, f"thread safety: {name}: accepted: a right use",
                                   f"exit status {status}\n{said}")
        checks.plant(folder, {"seeded.cc": text})
        status, said = run(source)
        for (what, _, message), (first, last) in zip(FAULTS, places):
            good = status != 0 and found_at(said, first, last, message)
            failures += checks.verdict(good, f"thread safety: {name}: refused: {what}",
                                       f"lines {first} to {last}, exit status {status}\n{said}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", help="a tree that clang builds, such as build/asan-ubsan")
    parser.add_argument("--tidy", action="store_true", help="also ask clang-tidy")
    parser.add_argument("--clang-tidy", default="clang-tidy-14")
    options = parser.parse_args()
    if not options.build and not options.tidy:
        parser.error("nothing to check: --build or --tidy")
    failures = 0
    for folder in MODULES if options.build else ():
        run = compiled(os.path.join(checks.ROOT, options.build), folder)
        if run is None:
            failures += checks.verdict(
                False, f"thread safety: {folder}: no source of it in {options.build}")
        else:
            failures += check(folder, run)
    if options.tidy:
        failures += check("clang-tidy", tidied(checks.ROOT, options.clang_tidy))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
