#!/usr/bin/env python3
"""Which tests a change can affect, by what Ninja knows of the build.

usage: ci/affected.py [--build TREE] BASE      (the tree is built; default: build/dev)

Prints the names of the CTest tests to run, one a line, native ones first behind "native" and those that
need a device behind "rxe"; what it went by goes to stderr. A test is affected when

- its program, or a program of the folder that its environment names, is linked from something that
  includes a changed file (`ninja -t inputs`, `ninja -t deps`), or
- its script, or another script or datum of that script's folder, has changed.

A changed file that Ninja does not know and no test's folder has (a script of ci/, a CMakeLists.txt) is
told of: if it steers the build, everything is affected. Documents (*.md) affect nothing.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def lines_of(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"affected: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.splitlines()


def changed_files(base):
    names = lines_of("git", "diff", "--name-only", base, "--")
    names += lines_of("git", "ls-files", "--others", "--exclude-standard")
    return {str(ROOT / name) for name in names}


class Ninja:
    """The build graph: what each program is made of."""

    def __init__(self, tree):
        self.tree = tree
        self.read = {}  # object -> files that its compilation read
        current = None
        for line in lines_of("ninja", "-C", str(tree), "-t", "deps"):
            if line.startswith(" "):
                self.read[current].add(os.path.normpath(tree / line.strip()))
            elif found := re.match(r"(\S+): #deps", line):
                current = found[1]
                self.read[current] = set()
        self.known = {}

    def files_of(self, program):
        """Every file below the root that the program is made of."""
        if program not in self.known:
            target = os.path.relpath(program, self.tree)
            files = set()
            for name in lines_of("ninja", "-C", str(self.tree), "-t", "inputs", target):
                if name.startswith("ninja: "):
                    continue
                files.add(os.path.normpath(self.tree / name))
                files |= self.read.get(name, set())
            self.known[program] = {name for name in files if name.startswith(str(ROOT) + os.sep)}
        return self.known[program]


def programs_in(path, tree):
    """Programs that a command's word or an environment variable's value names: itself, or in a folder."""
    path = pathlib.Path(path)
    if not str(path).startswith(str(tree)) or not path.exists():
        return []
    if path.is_dir():
        return [str(file) for file in path.iterdir() if file.is_file() and os.access(file, os.X_OK)]
    return [str(path)] if os.access(path, os.X_OK) else []


def words_of(test):
    """The words of its command and the values of its environment."""
    words = list(test.get("command", []))
    for entry in test.get("properties", []):
        if entry["name"] == "ENVIRONMENT":
            words += [text.partition("=")[2] for text in entry["value"]]
    return words


def labels_of(test):
    return next((entry["value"] for entry in test.get("properties", []) if entry["name"] == "LABELS"), [])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build/dev")
    parser.add_argument("base", metavar="BASE")
    arguments = parser.parse_args()
    tree = (ROOT / arguments.build).resolve()
    if not (tree / "build.ninja").is_file():
        sys.exit(f"affected: {tree} is not a tree that Ninja builds: cmake --preset dev")

    changed = changed_files(arguments.base)
    ninja = Ninja(tree)
    tests = json.loads("\n".join(lines_of("ctest", "--test-dir", str(tree), "--show-only=json-v1")))["tests"]
    affected, explained, scripts = [], set(), set()
    for test in tests:
        files = set()
        for word in words_of(test):
            for program in programs_in(word, tree):
                files |= ninja.files_of(program)
            if word.startswith(str(ROOT) + os.sep) and not word.startswith(str(tree)):
                folder = os.path.dirname(word)  # a script: with all that stands beside it
                if os.path.isfile(word):
                    scripts.add(folder)
                    files |= {name for name in changed if os.path.dirname(name) == folder}
        hit = files & changed
        explained |= hit
        if hit:
            affected.append(test)

    unknown = sorted(os.path.relpath(name, ROOT) for name in changed - explained
                     if not name.endswith(".md"))
    steering = [name for name in unknown
                if name.endswith((".cmake", "CMakeLists.txt", "CMakePresets.json", ".cmake.in"))]
    if steering:
        affected = tests
        print(f"affected: {', '.join(steering)} steers the build: every test is run", file=sys.stderr)
    others = [name for name in unknown if name not in steering]
    if others:
        print("affected: no CTest test depends on " + ", ".join(others), file=sys.stderr)
    print(f"affected: {len(affected)} of {len(tests)} tests, by {len(changed)} changed files since "
          f"{arguments.base}", file=sys.stderr)
    for group in ("native", "rxe"):
        print(group)
        for test in affected:
            labels = labels_of(test)
            device = any(label.startswith("rxe") for label in labels)
            if device == (group == "rxe") and "rxe-long" not in labels and "long" not in labels:
                print("  " + test["name"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
