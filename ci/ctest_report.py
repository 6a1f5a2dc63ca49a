#!/usr/bin/env python3
"""Prints a CTest JUnit file as one line a test: ok, not ok, or ok # SKIP with its reason.

Below it, indented, how long it took ("took: SECONDS NAME") and what it has told of faults
("fault: ...")."""

import re
import sys
import xml.etree.ElementTree as xml


def skip_reason(case):
    """The text that GTEST_SKIP() << ... printed."""
    if case.get("status") == "disabled":
        return "disabled"
    output = case.findtext("system-out") or ""
    found = re.search(r": Skipped\n(.*?)\n?\[  SKIPPED \]", output, re.DOTALL)
    text = found.group(1) if found else ""
    return " ".join(text.split()) or "no reason given"


def first_fault(case):
    """": WHAT" of the first check that failed, so that a summary alone says where to look."""
    output = case.findtext("system-out") or ""
    found = (re.search(r"^\s*not ok\b(?: \d+)?(?: -)? (.*)", output, re.MULTILINE)
             or re.search(r"^(\S.*: Failure\n(?:.+\n?){1,4})", output, re.MULTILINE)
             or re.search(r"^.*(ERROR: \w+Sanitizer.*|runtime error: .*)", output, re.MULTILINE)
             or re.search(r"(\S.*)\s*\Z", output))
    return ": " + " ".join(found.group(1).split())[:300] if found else ""


def fault_lines(case):
    """What tests/fault tells of each fault that was tried: rounds, operations, how they ended."""
    output = case.findtext("system-out") or ""
    return [line for line in re.findall(r"^fault: .*", output, re.MULTILINE)
            if " rounds=0 " not in line]


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("usage: ci/ctest_report.py JUNIT_FILE", file=sys.stderr)
        return 2
    try:
        cases = xml.parse(sys.argv[1]).getroot().findall("testcase")
    except (OSError, xml.ParseError) as error:
        print(f"not ok - ctest left no report # {error}")
        return 1
    failed = 0
    for case in cases:
        name, status = case.get("name"), case.get("status")
        if status == "run":
            print(f"ok - {name}")
        elif status == "disabled" or (status == "notrun" and case.find("skipped") is not None
                                      and "SKIP" in case.find("skipped").get("message", "")):
            print(f"ok - {name} # SKIP {skip_reason(case)}")
        else:
            failed += 1
            print(f"not ok - {name} # {status}{first_fault(case)}")
        print(f"  took: {float(case.get('time') or 0):.3f} {name}")
        for line in fault_lines(case):
            print(f"  {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
