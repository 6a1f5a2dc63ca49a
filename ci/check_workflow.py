#!/usr/bin/env python3
"""Checks .github/workflows/ci.yml against the repository, since nothing here can run it.

Structure (keys that GitHub knows), names (needs, outputs, steps, matrix), and what the steps call:
scripts, stages of ci/test.sh, groups of ci/setup.sh, stages of the Dockerfile, presets. Each `run`
goes through shellcheck. Prints `ok - ...` or `ci.yml: job: what` for each fault.

  --self-test  seeds faults and wants each of them found
  --list       the jobs, one line for each combination of their matrix
  --script JOB [N]  the `run` steps of a job's N-th combination as one script, to run by hand
"""

import argparse
import functools
import itertools
import json
import pathlib
import re
import subprocess
import sys

import yaml

import checks

ROOT = pathlib.Path(checks.ROOT)
WORKFLOW = ROOT / ".github/workflows/ci.yml"

TOP_KEYS = {"name", "run-name", "on", "permissions", "env", "defaults", "concurrency", "jobs"}
JOB_KEYS = {"name", "permissions", "needs", "if", "runs-on", "environment", "concurrency", "outputs",
            "env", "defaults", "steps", "timeout-minutes", "strategy", "continue-on-error",
            "container", "services"}
STEP_KEYS = {"id", "if", "name", "uses", "run", "working-directory", "shell", "with", "env",
             "continue-on-error", "timeout-minutes"}
CONTAINER_KEYS = {"image", "credentials", "env", "ports", "volumes", "options"}
STRATEGY_KEYS = {"matrix", "fail-fast", "max-parallel"}
CONTEXTS = {"github", "matrix", "strategy", "steps", "needs", "env", "runner", "secrets"}
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
REFERENCE = re.compile(r"\b([a-z]+)((?:\.[A-Za-z0-9_-]+)+)")
PROGRAM = re.compile(r"(?<![\w/.-])((?:ci|tests|apps|metrics)/[\w./-]+)")
MINUTES_MAX = 360  # what a hosted runner gives a job


def combinations(job):
    """Every combination of a job's matrix, as dictionaries of axes."""
    matrix = job.get("strategy", {}).get("matrix", {})
    axes = {key: value for key, value in matrix.items() if key not in ("include", "exclude")}
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def look_up(values, path):
    for name in path:
        if not isinstance(values, dict) or name not in values:
            return None
        values = values[name]
    return values


def filled(text, combination):
    """Text with the matrix's values put in; other expressions become a word."""
    def value(match):
        words = match.group(1).split(".")
        found = look_up(combination, words[1:]) if words[0] == "matrix" else None
        return "expression" if found is None else str(found)
    return EXPRESSION.sub(value, text)


def output_of(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


class Repository:
    """What the steps may call."""

    def __init__(self):
        self.stages = {line.split()[0] for line in output_of("ci/test.sh", "--list").splitlines()}
        dockerfile = (ROOT / "ci/docker/Dockerfile").read_text(encoding="utf-8")
        self.targets = set(re.findall(r"^FROM \S+ AS (\S+)", dockerfile, re.MULTILINE))
        presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
        self.presets = {preset["name"] for preset in presets["configurePresets"]}
        self.groups = {}

    def packages(self, group):
        if group not in self.groups:
            listed = output_of("ci/setup.sh", "--list", group)
            self.groups[group] = None if listed is None else set(listed.split())
        return self.groups[group]


def check_keys(where, given, known):
    for key in given:
        if key not in known:
            yield f"{where}: unknown key '{key}'"


def check_references(where, text, job, jobs, seen_steps):
    """Expressions name only what there is."""
    for expression in EXPRESSION.findall(text):
        yield from check_expression(where, expression, job, jobs, seen_steps)


def check_expression(where, expression, job, jobs, seen_steps):
    bare = re.sub(r"'[^']*'", "''", expression)
    for context, tail in REFERENCE.findall(bare):
        path = tail[1:].split(".")
        if context not in CONTEXTS:
            yield f"{where}: unknown context '{context}' in '{expression}'"
        elif context == "matrix":
            if any(look_up(c, path) is None for c in combinations(job)):
                yield f"{where}: matrix has no '{'.'.join(path)}'"
        elif context == "steps" and path[0] not in seen_steps:
            yield f"{where}: no step before it has the id '{path[0]}'"
        elif context == "needs":
            needs = job.get("needs", [])
            if path[0] not in ([needs] if isinstance(needs, str) else needs):
                yield f"{where}: '{path[0]}' is not among its needs"
            elif path[1] == "outputs" and path[2] not in jobs.get(path[0], {}).get("outputs", {}):
                yield f"{where}: {path[0]} has no output '{path[2]}'"


def check_calls(where, script, repository):
    """Scripts, stages, groups and targets that a step names."""
    for path in PROGRAM.findall(script):
        file = ROOT / path
        if not file.exists():
            yield f"{where}: {path} is not in the repository"
        elif path.endswith((".sh", ".py")) and not file.stat().st_mode & 0o100:
            yield f"{where}: {path} is not executable"
    for stages in re.findall(r"ci/test\.sh --only \"?([\w,-]+)", script):
        for stage in stages.split(","):
            if stage not in repository.stages:
                yield f"{where}: ci/test.sh has no stage '{stage}'"
    for groups in re.findall(r"ci/setup\.sh ([\w ]+)", script):
        for group in groups.split():
            if repository.packages(group) is None:
                yield f"{where}: ci/setup.sh has no group '{group}'"
    for target in re.findall(r"--target (\S+)", script):
        if target not in repository.targets:
            yield f"{where}: the Dockerfile has no stage '{target}'"
    for preset in re.findall(r"--preset (\S+)", script):
        if preset not in repository.presets:
            yield f"{where}: CMakePresets.json has no preset '{preset}'"


@functools.cache  # the combinations of a matrix mostly run the same, and so do seeded faults
def shellcheck(script):
    checked = subprocess.run(["shellcheck", "--shell=bash", "--format=gcc", "-"], input=script,
                             capture_output=True, text=True, check=False)
    return checked.stdout.splitlines()


def check_shell(where, script):
    for line in shellcheck(script):
        yield f"{where}: {line}"


def check_compiler(where, job, repository):
    """The compiler that CXX names is among the packages that the job installs."""
    for combination in combinations(job):
        compiler = filled(str(job.get("env", {}).get("CXX", "")), combination)
        if not compiler:
            continue
        scripts = " ".join(filled(step.get("run", ""), combination) for step in job["steps"])
        wanted = re.sub(r"\+\+(?=-)", "", compiler) if compiler.startswith("clang") else "g++"
        groups = " ".join(re.findall(r"ci/setup\.sh ([\w ]+)", scripts)).split()
        if not any(wanted in (repository.packages(group) or ()) for group in groups):
            yield f"{where}: nothing installs {wanted} for CXX={compiler}"


def check_steps(name, job, jobs, repository):
    seen = set()
    checked_out = False
    for number, step in enumerate(job.get("steps", []), 1):
        where = f"{name}: step {number}"
        yield from check_keys(where, step, STEP_KEYS)
        if ("uses" in step) == ("run" in step):
            yield f"{where}: needs either 'uses' or 'run'"
        if "uses" in step and not re.search(r"@(v\d+|[0-9a-f]{40})$", step["uses"]):
            yield f"{where}: '{step['uses']}' carries no version"
        if step.get("uses", "").startswith("actions/checkout@"):
            checked_out = True
        condition = step.get("if", "")
        yield from check_expression(where, EXPRESSION.sub(r"\1", str(condition)), job, jobs, seen)
        for text in (str(step.get(key, "")) for key in ("run", "with", "env", "name")):
            yield from check_references(where, text, job, jobs, seen)
        for combination in combinations(job) if "run" in step else ():
            script = filled(step["run"], combination)
            if PROGRAM.search(script) and not checked_out:
                yield f"{where}: runs what is not checked out yet"
            yield from check_calls(where, script, repository)
            yield from check_shell(where, script)
        if "id" in step:
            if step["id"] in seen:
                yield f"{where}: the id '{step['id']}' is there twice"
            seen.add(step["id"])
    for key, text in job.get("outputs", {}).items():
        yield from check_references(f"{name}: output {key}", text, job, jobs, seen)
        for step_id, output in re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", text):
            writer = next((s for s in job["steps"] if s.get("id") == step_id), {})
            if f"{output}=" not in writer.get("run", ""):
                yield f"{name}: output {key}: step '{step_id}' never writes '{output}='"


def check_job(name, job, jobs, repository):
    yield from check_keys(name, job, JOB_KEYS)
    if "runs-on" not in job:
        yield f"{name}: no runs-on"
    if not 0 < job.get("timeout-minutes", 0) <= MINUTES_MAX:
        yield f"{name}: timeout-minutes must be 1 to {MINUTES_MAX}"
    container = job.get("container", {})
    yield from check_keys(f"{name}: container", container, CONTAINER_KEYS)
    image = container.get("image", "pinned:1")
    if ":" not in image or image.endswith(":latest"):
        yield f"{name}: image '{image}' carries no version"
    yield from check_keys(f"{name}: strategy", job.get("strategy", {}), STRATEGY_KEYS)
    needs = job.get("needs", [])
    for need in [needs] if isinstance(needs, str) else needs:
        if need not in jobs:
            yield f"{name}: needs '{need}', which is no job"
        elif list(jobs).index(need) >= list(jobs).index(name):
            yield f"{name}: needs '{need}', which stands below it"
    condition = EXPRESSION.sub(r"\1", str(job.get("if", "")))
    yield from check_expression(name, condition, job, jobs, set())
    for text in (str(job.get("name", "")), str(job.get("env", ""))):
        yield from check_references(name, text, job, jobs, set())
    if not job.get("steps"):
        yield f"{name}: no steps"
    yield from check_compiler(name, job, repository)
    yield from check_steps(name, job, jobs, repository)


def check(text, repository):
    """Faults of a workflow, each once."""
    try:
        workflow = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [f"not YAML: {error}"]
    if True in workflow:  # YAML 1.1 reads the key `on` as a boolean
        workflow["on"] = workflow.pop(True)
    faults = [*check_keys("workflow", workflow, TOP_KEYS)]
    for key in ("name", "on", "permissions", "jobs"):
        if key not in workflow:
            faults.append(f"workflow: no '{key}'")
    jobs = workflow.get("jobs", {})
    for name, job in jobs.items():
        faults += check_job(name, job, jobs, repository)
    return list(dict.fromkeys(faults))


# What is replaced by what, and a part of the message that must come.
SEEDS = [
    ("jobs:\n", "jobz:\n", "unknown key 'jobz'"),
    ("    needs: docker\n", "    needs: dockre\n", "needs 'dockre', which is no job"),
    ("needs.docker.outputs.rxe", "needs.docker.outputs.rex", "has no output 'rex'"),
    ("steps.probe.outputs.rxe }}", "steps.prob.outputs.rxe }}", "has the id 'prob'"),
    ("id: probe", "id: probed", "has the id 'probe'"),
    ("matrix.compiler.packages }}", "matrix.compiler.package }}", "matrix has no 'compiler.package'"),
    ("stage: [dev]", "stage: [deb]", "no stage 'deb'"),
    ("packages: clang19", "packages: clang18", "no group 'clang18'"),
    ("{cxx: clang++-19, packages: clang19}", "{cxx: clang++-19, packages: build}",
     "nothing installs clang-19"),
    ("$(sudo ci/docker/rxe-up.sh)", "$(sudo ci/docker/rxe_up.sh)", "rxe_up.sh is not in"),
    ("--target runtime", "--target runtme", "no stage 'runtme'"),
    ("    timeout-minutes: 60\n", "", "timeout-minutes must be"),
    ("actions/checkout@v4", "actions/checkout", "carries no version"),
    ("            *) exit \"$status\" ;;\n", "", None),  # a change that is no fault
    ("exit \"$status\"", "exit $stat us", "SC"),
    ("          esac\n", "", "SC"),
    ("answer=no ;;", "answer=no", "SC"),
    ("echo \"rxe=$answer\"", "echo \"$answer\"", "never writes 'rxe='"),
    ("fail-fast: false", "fail_fast: false", "unknown key 'fail_fast'"),
    ("debian:bookworm-20250811-slim", "debian", "carries no version"),
    ("      - uses: actions/checkout@v4\n", "", "not checked out"),
]


def self_test(text, repository):
    missed = 0
    for old, new, wanted in SEEDS:
        name = f"workflow: a seeded fault is found: {old.strip()!r} -> {new.strip()!r}"
        if old not in text:
            missed += checks.verdict(False, f"{name} # ci.yml no longer has the text")
            continue
        faults = check(text.replace(old, new), repository)
        found = not faults if wanted is None else any(wanted in fault for fault in faults)
        missed += checks.verdict(found, name, f"got {faults[:3]}")
    return 1 if missed else 0


def print_script(text, name, number):
    job = yaml.safe_load(text)["jobs"][name]
    combination = combinations(job)[number]
    print("#!/usr/bin/env bash\nset -eo pipefail  # as the runner does")
    for key, value in job.get("env", {}).items():
        print(f"export {key}={filled(str(value), combination)!r}")
    for step in job["steps"]:
        print(f"# --- {step.get('name', step.get('uses', ''))}"
              + (f" (if {step['if']})" if "if" in step else ""))
        print(filled(step.get("run", f": {step.get('uses')}"), combination))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--script", nargs="+", metavar=("JOB", "N"))
    arguments = parser.parse_args()
    text = WORKFLOW.read_text(encoding="utf-8")
    if arguments.list:
        for name, job in yaml.safe_load(text)["jobs"].items():
            for number, combination in enumerate(combinations(job)):
                print(f"{name} {number}  {json.dumps(combination)}")
        return 0
    if arguments.script:
        return print_script(text, arguments.script[0], int((arguments.script + ["0"])[1]))
    repository = Repository()
    if arguments.self_test:
        return self_test(text, repository)
    faults = check(text, repository)
    for fault in faults:
        print(f"ci.yml: {fault}")
    if not faults:
        jobs = yaml.safe_load(text)["jobs"]
        print(f"ok - workflow: {len(jobs)} jobs,"
              f" {sum(len(combinations(job)) for job in jobs.values())} combinations")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
