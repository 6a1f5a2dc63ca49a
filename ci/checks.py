"""What the checks of this folder share: the files of the repository, findings, seeded faults.

A check is a function (root, paths) -> (findings, number of files read); a finding is a line
`file:line: what`. main() is the program around it: it prints the findings and one verdict, or runs
the self-test, which plants files with a known fault each and wants each fault found.
"""

import argparse
import os
import re
import subprocess
import tempfile
import typing

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))


class Seed(typing.NamedTuple):
    """A file with one fault: `expected` is a part of the finding. Without a fault: ""."""
    path: str
    text: str
    expected: str = ""
    lines: range = range(1, 1_000_000)  # in which the finding may stand


def tracked(root=ROOT, suffix=""):
    """The files that git knows, and new ones that it does not ignore."""
    # In a guest, root reads the tree of the user that started it, which git would refuse.
    listed = subprocess.run(["git", "-c", f"safe.directory={root}", "-C", root, "ls-files", "-z", "--cached",
                             "--others", "--exclude-standard"], check=True, capture_output=True)
    return [path for path in listed.stdout.decode().split("\0") if path and path.endswith(suffix)]


def read(root, path, may_be_binary=False):
    """The text of a file; None when it is deleted but not yet committed, or when it may be and is binary."""
    try:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        if may_be_binary:
            return None
        raise


def plant(root, files):
    """Writes the files of a dictionary of paths and texts."""
    for path, text in files.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)


def verdict(good, what, details=""):
    """Prints one line, and the details of a failure. The number of failures: 0 or 1."""
    print(f"{'ok' if good else 'not ok'} - {what}")
    if not good and details:
        print(details)
    return 0 if good else 1


def self_test(name, check, seeds, others=None):
    """Each seed alone in a folder, beside the files `others`. The number of seeds that failed."""
    failures = 0
    for seed in seeds:
        with tempfile.TemporaryDirectory() as root:
            files = {**(others or {}), seed.path: seed.text}
            plant(root, files)
            findings, _ = check(root, list(files))
        good = len(findings) == (1 if seed.expected else 0)
        if good and seed.expected:
            place = re.match(rf"{re.escape(seed.path)}:(\d+): ", findings[0])
            good = bool(place) and int(place[1]) in seed.lines and seed.expected in findings[0]
        shown = next((line for line in seed.text.split("\n")[1:] + [seed.text] if line), "")[:60]
        failures += verdict(good, f"{name}: {'caught' if seed.expected else 'clean'}: {seed.path}: "
                                  f"{seed.expected or shown}", "\n".join(findings))
    return failures


def parser(documentation):
    """The options that every check has."""
    made = argparse.ArgumentParser(description=documentation.split("\n", maxsplit=1)[0])
    made.add_argument("--self-test", action="store_true",
                      help="check that seeded faults are found, and that right files have no finding")
    made.add_argument("--root", default=ROOT)
    return made


def main(name, options, check, test, units=("files", "findings")):
    """The exit status of a check that parser() has read the options of."""
    if options.self_test:
        return 1 if test() else 0
    findings, count = check(options.root, tracked(options.root))
    for finding in findings:
        print(finding)
    if not count:
        print(f"no {units[0]} found")
    return verdict(count and not findings, f"{name}: {count} {units[0]}, {len(findings)} {units[1]}")
