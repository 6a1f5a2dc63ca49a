#!/usr/bin/env python3
"""Prints a CTest JUnit file as one line a test: ok, not ok, or ok # SKIP with its reason.

usage: ci/ctest_report.py JUNIT_FILE [FOLDER]
       ci/ctest_report.py --self-test

Below it, indented, how long it took ("took: SECONDS NAME") and what it has told of faults
("fault: ..."). FOLDER is what ci/suites.py has written, and JUNIT_FILE tells of a run of it: of a group
each case has its line, read from what GoogleTest printed. FOLDER/again.txt then names the cases that are
to be run by themselves, since their process had ended or failed before them."""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree as xml


def skip_reason(output):
    """The text that GTEST_SKIP() << ... printed."""
    found = re.search(r": Skipped\n(.*?)\n?\[  SKIPPED \]", output, re.DOTALL)
    text = found.group(1) if found else ""
    return " ".join(text.split()) or "no reason given"


def first_fault(output):
    """": WHAT" of the first check that failed, so that a summary alone says where to look."""
    found = (re.search(r"^\s*not ok\b(?: \d+)?(?: -)? (.*)", output, re.MULTILINE)
             or re.search(r"^(\S.*: Failure\n(?:.+\n?){1,4})", output, re.MULTILINE)
             or re.search(r"^.*(ERROR: \w+Sanitizer.*|runtime error: .*)", output, re.MULTILINE)
             or re.search(r"(\S.*)\s*\Z", output))
    return ": " + " ".join(found.group(1).split())[:300] if found else ""


def fault_lines(output):
    """What tests/fault tells of each fault that was tried: rounds, operations, how they ended."""
    return [line for line in re.findall(r"^fault: .*", output, re.MULTILINE)
            if " rounds=0 " not in line]


def say(name, verdict, detail, seconds, output):
    """A test's lines; returns whether it has failed. Verdict: ok, skipped or failed."""
    if verdict == "failed":
        print(f"not ok - {name} # {detail}")
    else:
        print(f"ok - {name}" + (f" # SKIP {detail}" if verdict == "skipped" else ""))
    print(f"  took: {seconds:.3f} {name}")
    for line in fault_lines(output):
        print(f"  {line}")
    return verdict == "failed"


def report_test(case):
    """Of a test that CTest ran by itself. Returns how many have failed."""
    status, output = case.get("status"), case.findtext("system-out") or ""
    skipped = case.find("skipped")
    if status == "run":
        verdict, detail = "ok", ""
    elif status == "disabled":
        verdict, detail = "skipped", "disabled"
    elif status == "notrun" and skipped is not None and "SKIP" in skipped.get("message", ""):
        verdict, detail = "skipped", skip_reason(output)
    else:
        verdict, detail = "failed", f"{status}{first_fault(output)}"
    return say(case.get("name"), verdict, detail, float(case.get("time") or 0), output)


def found_in(output, known):
    """What a case, or a whole suite (S.*/P), has printed, its verdict for GoogleTest, "" if the process ended in it,
    and its milliseconds; None if it has not begun."""
    suite, whole, _ = known.partition(".*/")
    if whole:
        begin = re.search(rf"\[-+\] \d+ tests? from {re.escape(suite)}$", output, re.MULTILINE)
        end = begin and re.compile(rf"\[-+\] \d+ tests? from {re.escape(suite)} \((\d+) ms total\)$",
                                   re.MULTILINE).search(output, begin.end())
    else:
        begin = re.search(rf"\[ RUN      \] {re.escape(known)}$", output, re.MULTILINE)
        end = begin and re.compile(
            rf"\[ +(OK|FAILED|SKIPPED) +\] {re.escape(known)}(?:, where .*)? \((\d+) ms\)",
            re.MULTILINE).search(output, begin.end())
    if not begin:
        return None
    text = output[begin.end():end.start() if end else len(output)]
    if not end:
        return text, "", 0
    if not whole:
        return text, end[1], int(end[2])
    return text, "FAILED" if f"[  FAILED  ] {suite}." in text else "OK", int(end[1])


def report_group(case, members):
    """Of cases or suites in one process. Returns (how many have failed, the names of those to be run again)."""
    output, well = case.findtext("system-out") or "", case.get("status") == "run"
    failed, again, ended = 0, [], []
    for known, name in members.items():
        found = found_in(output, known)
        if found is None or (failed and found[1] == "FAILED"):
            again.append(name)
            continue
        text, told, milliseconds = found
        if not told:
            failed += say(name, "failed", f"the process ended in it{first_fault(text)}", 0, text)
            continue
        verdict = {"OK": "ok", "SKIPPED": "skipped", "FAILED": "failed"}[told]
        detail = {"ok": "", "skipped": skip_reason(f"{text}[  SKIPPED ]"),
                  "failed": f"fail{first_fault(text)}"}[verdict]
        ended.append((name, verdict, detail, milliseconds / 1000, text))
        failed += verdict == "failed"
    if not failed and (again or not well):
        # No case is to blame, as when memory is found lost at the end: alone they may tell more.
        how = "the process failed after a case" if not well else "the process ended before its last case"
        print(f"not ok - {case.get('name')} # {how}{first_fault(output)}")
        return 1, list(members.values())
    for each in ended:
        say(*each)
    return failed, again


def report(junit, folder):
    try:
        cases = xml.parse(junit).getroot().findall("testcase")
    except (OSError, xml.ParseError) as error:
        print(f"not ok - ctest left no report # {error}")
        return 1
    groups = json.loads((folder / "groups.json").read_text(encoding="utf-8")) if folder else {}
    failed, again = 0, []
    for case in cases:
        if case.get("name") in groups:
            broken, names = report_group(case, groups[case.get("name")])
            failed += broken
            again += names
        else:
            failed += report_test(case)
    if folder:
        (folder / "again.txt").write_text("".join(f"{name}\n" for name in again), encoding="utf-8")
    return 1 if failed else 0


def self_test():
    """Whether each way in which a group can end is told as it was."""
    import contextlib
    import io
    members = {"S.a": "a", "S.b": "b", "S.c": "c"}

    def ran(case, verdict="OK", text=""):
        return f"[ RUN      ] S.{case}\n{text}[{verdict:>9} ] S.{case} (7 ms)\n" if verdict else (
            f"[ RUN      ] S.{case}\n{text}")

    def suite(name, verdict="OK", text="", ends=True):
        begin = f"[----------] 2 tests from I/{name}\n[ RUN      ] I/{name}.x/p\n{text}"
        return begin + (f"[{verdict:>9} ] I/{name}.x/p (7 ms)\n[----------] 2 tests from I/{name} (9 ms total)\n\n"
                        if ends else "")

    suites = {"I/A.*/p": "A", "I/AB.*/p": "AB"}
    failure = "x.cc:1: Failure\nwrong\n"
    tries = [
        ("suites pass", "run", suite("AB") + suite("A"), ["ok - A", "ok - AB"], []),
        ("a suite fails", "fail", suite("A", "FAILED ", failure) + suite("AB"),
         ["ok - AB", "not ok - A # fail: x.cc:1: Failure wrong [ FAILED ] I/A.x/p (7 ms)"], []),
        ("the process dies in a suite", "fail", suite("A", text="bye\n", ends=False),
         ["not ok - A # the process ended in it: bye"], ["AB"]),
        ("all pass", "run", ran("a") + "output without an end" + ran("b") + ran("c"),
         ["ok - a", "ok - b", "ok - c"], []),
        ("one is skipped", "run", ran("a") + ran("b", "SKIPPED", "x.cc:1: Skipped\nwhy\n") + ran("c"),
         ["ok - a", "ok - b # SKIP why", "ok - c"], []),
        ("one fails, the next does not", "fail", ran("a", "FAILED", failure) + ran("b") + ran("c"),
         ["ok - b", "ok - c", "not ok - a # fail: x.cc:1: Failure wrong"], []),
        ("two fail: the second may be due to the first", "fail",
         ran("a", "FAILED", failure) + ran("b") + ran("c", "FAILED", failure),
         ["ok - b", "not ok - a # fail: x.cc:1: Failure wrong"], ["c"]),
        ("the process dies", "fail", ran("a") + ran("b", "", "ERROR: AddressSanitizer: x\n"),
         ["ok - a", "not ok - b # the process ended in it: ERROR: AddressSanitizer: x"], ["c"]),
        ("the process ends well, but too early", "run", ran("a") + ran("b", "", "bye\n"),
         ["ok - a", "not ok - b # the process ended in it: bye"], ["c"]),
        ("it ends between two", "run", ran("a") + ran("b") + "bye\n",
         ["not ok - S # the process ended before its last case: bye"], ["a", "b", "c"]),
        ("it fails at its end", "fail", ran("a") + ran("b") + ran("c") + "ERROR: LeakSanitizer: x\n",
         ["not ok - S # the process failed after a case: ERROR: LeakSanitizer: x"], ["a", "b", "c"]),
        ("it does not begin", "fail", "cannot execute\n",
         ["not ok - S # the process failed after a case: cannot execute"], ["a", "b", "c"]),
    ]
    bad = 0
    for what, status, output, wanted, wanted_again in tries:
        case = xml.Element("testcase", name="S", status=status, time="1")
        xml.SubElement(case, "system-out").text = output
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            failed, again = report_group(case, suites if "I/" in output else members)
        lines = [line for line in printed.getvalue().splitlines() if not line.startswith(" ")]
        good = (sorted(lines) == sorted(wanted) and again == wanted_again
                and failed == sum(line.startswith("not ok") for line in lines))
        bad += not good
        print(f"{'ok' if good else 'not ok'} - report: {what}" + ("" if good else f" # {lines} {again}"))
    return 1 if bad else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    return report(sys.argv[1], pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else None)


if __name__ == "__main__":
    sys.exit(main())
