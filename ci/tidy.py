#!/usr/bin/env python3
"""Runs clang-tidy-14 over our own sources, and remembers what was clean.

A translation unit is checked again only when its text, a header it includes, its compile command,
.clang-tidy or clang-tidy itself has changed. Generated sources are left out, since git does not
know them. The memory is a file for each clean unit under build/.tidy-cache; delete it freely.

Units of one target are read several at a time, as one source that includes them, since most of the
time goes into library headers; those that do not fit together, in halves.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time

import checks

ROOMS = "verbs|engine|config|metrics|apps|tests"


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Contents:
    """Digests of files: ours by content, the system's by size and time."""

    def __init__(self, root):
        self.root, self.known, self.lock = root + os.sep, {}, threading.Lock()

    def of(self, path):
        with self.lock:
            if path in self.known:
                return self.known[path]
        try:
            if path.startswith(self.root):
                with open(path, "rb") as file:
                    value = digest(file.read())
            else:
                status = os.stat(path)
                value = f"{status.st_size}:{status.st_mtime_ns}"
        except OSError:
            value = "absent"
        with self.lock:
            self.known[path] = value
        return value


def dependencies(entry):
    """Every file the unit reads, as the compiler lists them."""
    command, skip = [], False
    for word in shlex.split(entry["command"]):
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif word not in ("-c", "-MD", "-MMD"):
            command.append(word)
    listed = subprocess.run(command + ["-M"], cwd=entry["directory"], capture_output=True, text=True)
    if listed.returncode != 0:
        return None
    words = listed.stdout.replace("\\\n", " ").split(":", 1)[1].split()
    return sorted({os.path.normpath(os.path.join(entry["directory"], word)) for word in words})


class Tidy:
    def __init__(self, options, root):
        self.options, self.root = options, root
        self.contents = Contents(root)
        version = subprocess.run([options.clang_tidy, "--version"], check=True, capture_output=True)
        with open(os.path.join(root, ".clang-tidy"), "rb") as file:
            self.base = digest(version.stdout + file.read())
        os.makedirs(options.cache, exist_ok=True)

    def key(self, entry):
        return digest((self.base + entry["command"] + entry["file"]).encode())

    def is_clean(self, entry):
        try:
            with open(os.path.join(self.options.cache, self.key(entry)), encoding="utf-8") as file:
                seen = json.load(file)
        except (OSError, ValueError):
            return False
        return all(self.contents.of(path) == value for path, value in seen.items())

    def remember(self, batch, files):
        """That all of `batch` is clean: each for its own text and every header of the batch."""
        if not files:
            return  # its dependencies are not known
        others = {entry["file"] for entry in batch}
        for entry in batch:
            self.remember_one(entry, [name for name in files
                                      if name not in others or name == entry["file"]])

    def remember_one(self, entry, files):
        path = os.path.join(self.options.cache, self.key(entry))
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({name: self.contents.of(name) for name in files}, file)
        os.replace(path + ".new", path)

    def run(self, database, source, *more):
        """(clean, text) of clang-tidy on one source of a folder with compile_commands.json."""
        ran = subprocess.run(
            [self.options.clang_tidy, "-p", database, "--quiet",
             f"--config-file={self.root}/.clang-tidy",
             "--extra-arg=-Wno-unknown-warning-option",  # the commands are GCC's
             f"--header-filter=^{re.escape(self.root)}/({ROOMS})/.*\\.(h|cc)$", *more, source],
            capture_output=True, text=True)
        noise = re.compile(r"^\d+ warnings? (generated|treated)|^Suppressed|^Use -header-filter")
        errors = "\n".join(line for line in ran.stderr.splitlines() if not noise.match(line))
        return ran.returncode == 0, (ran.stdout + errors).strip()

    def check(self, batch):
        """[(entry, clean, text)] for units with the same compile command."""
        if len(batch) > 1:
            return self.check_together(batch)
        with tempfile.TemporaryDirectory() as folder:
            database_of(folder, batch[0])
            clean, text = self.run(folder, batch[0]["file"])
        if clean:
            self.remember(batch, dependencies(batch[0]) or [])
        return [(batch[0], clean, text)]

    def check_together(self, batch):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "together.cc")
            with open(source, "w", encoding="utf-8") as file:
                file.writelines(f'#include "{entry["file"]}"\n' for entry in batch)
            first = batch[0]
            all_of_them = dict(first, command=first["command"].replace(first["file"], source),
                               file=source)
            database_of(folder, all_of_them)
            clean, text = self.run(folder, source, "--checks=-bugprone-suspicious-include")
            if clean:
                self.remember(batch, [name for name in dependencies(all_of_them) or []
                                      if name != source])
        if clean:
            return [(entry, True, "") for entry in batch]
        if "clang-diagnostic" in text:  # such as two helpers of one name: they cannot share a unit
            half = len(batch) // 2
            return self.check(batch[:half]) + self.check(batch[half:])
        blamed = set(re.findall(r"^(/[^:\n]+):\d+:\d+: (?:error|warning):", text, re.MULTILINE))
        known = blamed <= {entry["file"] for entry in batch} and blamed
        results = []
        for entry in batch:  # a finding in a header belongs to all units; its text is shown once
            guilty = entry["file"] in blamed or not known
            results.append((entry, not guilty, text if guilty else ""))
            text = "" if guilty else text
        return results


def database_of(folder, entry):
    """Writes the compile_commands.json of one unit."""
    with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump([entry], file)


def batches_of(units, size):
    """Units of one target and compile command, so that they can be read as one."""
    groups = {}
    for unit in units:
        flags = re.sub(r"(\.dir/)\S+ -c \S+", r"\1", unit["command"])
        groups.setdefault(flags, []).append(unit)
    batches = []
    for group in groups.values():
        count = -(-len(group) // size)
        batches += [group[start::count] for start in range(count)]
    return sorted(batches, key=len, reverse=True)


def changed_units(root, units, revision):
    """Of `units`, the sources that differ from `revision`, and for each header that does the source of its
    name or, without one, the first two that include it: a finding in a header shows in any of them."""
    listed = subprocess.run(["git", "-C", root, "diff", "--name-only", "-z", revision, "--"],
                            capture_output=True)
    if listed.returncode != 0:
        sys.exit(f"tidy: --changed-since {revision}: {listed.stderr.decode().strip()}")
    untracked = subprocess.run(["git", "-C", root, "ls-files", "-z", "--others", "--exclude-standard"],
                               check=True, capture_output=True)
    names = set((listed.stdout + untracked.stdout).decode().split("\0"))
    if ".clang-tidy" in names:
        return units
    by_file = {unit["file"]: unit for unit in units}
    wanted = {file for file in by_file if os.path.relpath(file, root) in names}
    for name in names:
        if not name.endswith(".h"):
            continue
        stem = os.path.splitext(os.path.basename(name))[0]
        of_its_name = [file for file in by_file
                       if os.path.splitext(os.path.basename(file))[0] == stem]
        if not of_its_name:
            include = re.compile(rf'#include ["<][^">]*\b{re.escape(stem)}\.h[">]')
            for file in by_file:
                with open(file, encoding="utf-8") as source:
                    if include.search(source.read()):
                        of_its_name.append(file)
                if len(of_its_name) == 2:
                    break
        wanted.update(of_its_name)
    return [by_file[file] for file in sorted(wanted)]


def our_units(root, build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:  # an option of GCC alone
        entry["command"] = entry["command"].replace(" -fno-tree-loop-distribution", "")
    ours = {os.path.join(root, name) for name in checks.tracked(root)}
    units = {}
    for entry in entries:  # a source in two targets is checked once
        if entry["file"] in ours:
            units.setdefault(entry["file"], entry)
    return sorted(units.values(), key=lambda entry: entry["file"])


def main():
    root = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(root, "build/tidy"),
                        help="build tree with compile_commands.json (default: build/tidy)")
    parser.add_argument("--cache", default=os.path.join(root, "build/.tidy-cache"))
    parser.add_argument("--clang-tidy", default="clang-tidy-14")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--together", type=int, default=24, metavar="N",
                        help="read up to N units as one (default: 24)")
    parser.add_argument("--changed-since", metavar="REV",
                        help="check only sources that differ from REV, and one for each header that does")
    parser.add_argument("paths", nargs="*", help="check only sources under these (default: all)")
    options = parser.parse_args()

    units = our_units(root, options.build)
    if options.paths:
        wanted = [os.path.realpath(path) for path in options.paths]
        units = [unit for unit in units
                 if any(unit["file"] == path or unit["file"].startswith(path + os.sep)
                        for path in wanted)]
    if not units:
        print("not ok - tidy: no sources in compile_commands.json")
        return 1
    if options.changed_since:
        units = changed_units(root, units, options.changed_since)
    tidy = Tidy(options, root)
    started, failed, done = time.monotonic(), 0, 0
    todo = [unit for unit in units if not tidy.is_clean(unit)]
    remembered = len(units) - len(todo)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(tidy.check, batch) for batch in batches_of(todo, options.together)]
        for future in concurrent.futures.as_completed(running):
            for entry, clean, text in future.result():
                done += 1
                failed += not clean
                if text:
                    print(text)
                name = os.path.relpath(entry["file"], root)
                print(f"[{done}/{len(todo)}, {time.monotonic() - started:.0f} s] {name}: "
                      f"{'clean' if clean else 'FINDINGS'}", flush=True)
    print(f"{'not ok' if failed else 'ok'} - tidy: {len(units)} units, {failed} with findings, "
          f"{remembered} unchanged since they were clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
