"""Checks the dashboard, the rules and the alerts of metrics/ against each other and the code, by their text.

check_files() compares the catalogue in metrics/docs/catalogue.md, the code, rules, dashboard and runbook;
self_test() seeds faults into copies of these files. prometheus_check.py is the program.
"""

import argparse
import glob
import json
import os
import re
import shutil
import tempfile

# What Prometheus itself adds.
SYNTHETIC = {"up": {"job", "instance"}, "ALERTS": {"job", "instance", "alertname", "alertstate"}}
EVERYWHERE = {"job", "instance"}
TRANSPORTS = {"rdma", "shm", "tcp"}
KEYWORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan", "by", "without", "on", "ignoring",
            "group_left", "group_right"}
# Okabe and Ito's colours, which colour-blind readers can tell apart, and grey.
PALETTE = {"#0072B2", "#E69F00", "#D55E00", "#009E73", "#56B4E9", "#CC79A7", "#F0E442", "#999999"}

STRING = re.compile(r'"(?:\\.|[^"\\])*"' + r"|'(?:\\.|[^'\\])*'")
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)?\s*\{([^{}]*)\}")
SERIES_IN_TEXT = re.compile(r"\b(?:remora_(?:client|server|cluster|nic|build)|process)_[a-z0-9_]+")
SERIES_IN_CODE = re.compile(r'"((?:remora_(?:client|server|cluster|nic|build|log)|process)_[a-z0-9_]+)"')
PART_OF_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


# A fault in one file below the root, by what stands there and what is put in its place, and words of
# the message that must come.
CATALOGUE, RULES = "metrics/docs/catalogue.md", "metrics/prometheus/remora.rules.yml"
ALERTS, RUNBOOK = "metrics/prometheus/remora.alerts.yml", "metrics/prometheus/RUNBOOK.md"
TESTS, DASHBOARD = "metrics/prometheus/tests/", "metrics/grafana/remora.json"
FIGURES, TOP = "metrics/page/figures.js", "apps/cli/top_view.cc"
SEEDED = [
    (RULES, 'kind="signaled"', 'kind="signalled"', 'no kind="signalled"'),
    (RULES, "np_cnp_sent", "np_cnp_send", 'no counter="np_cnp_send"'),
    (CATALOGUE, "`remora_nic_events_total`", "`remora_nic_event_total`", "not declared in the code"),
    (RULES, "remora_client_read_bytes_total", "remora_client_bytes_read_total", "not in the catalogue"),
    (RULES, "instance:process_open_fds:ratio", "instance:process_fds:ratio", "not in the catalogue"),
    (ALERTS, 'errno="ENOMEM"', 'errno="ENOMEN"', 'no errno="ENOMEN"'),
    (ALERTS, 'cause="evicted"', 'reason="evicted"', "no label reason"),
    (ALERTS, "#remoramrcacheoff", "#remoramrcache", "its runbook_url is not"),
    (ALERTS, "severity: info", "urgency: info", "no severity"),
    (RUNBOOK, "## RemoraMrCacheOff", "## RemoraMrCache", "an alert without a section"),
    (RUNBOOK, "remora_server_regions", "remora_server_region", "not in the catalogue"),
    (CATALOGUE, "| `remora_server_grants` |", "| grants |", "declared in the code"),
    (CATALOGUE, "`remora_client_mr_cache_kept`", "`remora_client_mr_cache_held`", "not declared in the code"),
    (DASHBOARD, "remora_server_grants", "remora_server_grant", "not in the catalogue"),
    (FIGURES, "remora_client_cq_capacity", "remora_client_cq_size", "not in the catalogue"),
    (TOP, "remora_client_lanes", "remora_client_lane", "not in the catalogue"),
    (DASHBOARD, "status!=", "state!=", "no label state"),
    (DASHBOARD, "#0072B2", "#00FF00", "not of the palette"),
    (DASHBOARD, '"unit": "ops"', '"unit": ""', "no unit"),
    (DASHBOARD, '"x": 3', '"x": 2', "overlaps"),
    (TESTS + "client_test.yml", "alertname: RemoraMrCacheOff\n        exp_alerts: []",
     "alertname: RemoraMrCacheOff\n        exp_alerts:", "want both"),
    (TESTS + "rules_test.yml", "instance:process_open_fds:ratio", "x", "no test"),
    (ALERTS, 'timed_out|unreachable|denied', 'timed_out|unreached|denied', 'no reason="unreached"'),
    (RUNBOOK, "remora_cluster_store_errors_total", "remora_cluster_stores_errors_total",
     "not in the catalogue"),
]


class Faults:
    def __init__(self, quiet=False):
        self.quiet, self.texts = quiet, []

    def add(self, text):
        self.texts.append(text)
        self.say(text)

    def say(self, text):
        if not self.quiet:
            print(f"    {text}")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# --- the catalogue --------------------------------------------------------------------------------

def catalogue_of(text):
    """{name: (type, {labels}, words of the labels' cell)} of the tables; rows of one name add up."""
    catalogue = {}
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `") or len(cells) < 5:
            continue
        names = re.findall(r"`([^`]+)`", cells[0])
        base = ""
        for name in names:
            base = base if name.startswith("…") else name
            full = base + name[1:] if name.startswith("…") else name
            _, labels, words = catalogue.get(full, (cells[1], set(), set()))
            catalogue[full] = (cells[1], labels | set(re.findall(r"`(\w+)`", cells[2])),
                               words | set(re.findall(r"\w+", cells[2])))
    return catalogue


def base_name(name, catalogue):
    """The catalogue's name of a series: without the end that a part of a histogram has."""
    short = PART_OF_HISTOGRAM.sub("", name)
    return short if catalogue.get(short, ("",))[0] == "histogram" else name


# --- PromQL, as far as names go -------------------------------------------------------------------

def names_of(expression):
    """Names of series in an expression."""
    text = re.sub(r"#[^\n]*", "", STRING.sub('""', expression))
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)", " ", text)
    text = re.sub(r"\{[^{}]*\}|\[[^\]]*\]", " ", text)
    found = re.finditer(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)\s*(\(?)", text)
    return {match[1] for match in found if not match[2] and match[1].lower() not in KEYWORDS}


def matchers_of(expression):
    """(series, label, values) of every matcher; values are None where they are a pattern."""
    for selector in SELECTOR.finditer(expression):
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', selector[2]):
            words = value.split("|") if operator.endswith("~") else [value]
            plain = all(re.fullmatch(r"[\w.+]+|", word) for word in words)
            yield selector[1] or "", label, words if plain else None


def check_expression(where, expression, catalogue, recorded, faults):
    names = names_of(expression)
    if not names:
        faults.add(f"{where}: names no series: {expression}")
    for name in names:
        if name not in SYNTHETIC and name not in recorded and base_name(name, catalogue) not in catalogue:
            faults.add(f"{where}: {name} is not in the catalogue, metrics/docs/catalogue.md")
    for name, label, values in matchers_of(expression):
        _, labels, words = catalogue.get(base_name(name, catalogue), ("", set(), set()))
        if name in SYNTHETIC:
            labels = SYNTHETIC[name]
        elif name in recorded:
            labels = recorded[name]
        elif label == "le" and name.endswith("_bucket"):
            continue
        if label not in labels | EVERYWHERE:
            faults.add(f"{where}: {name or expression} has no label {label}")
        elif name in catalogue and label in labels and values is not None:
            for value in set(values) - words - TRANSPORTS:
                faults.add(f"{where}: the catalogue has no {label}=\"{value}\" for {name}")


# --- the files ------------------------------------------------------------------------------------

def rules_of(path):
    """[(kind, name, expression)] of a rule file, read by its lines: Debian's Python has no YAML."""
    rules, indent = [], None
    for line in read(path).split("\n"):
        begin = re.match(r"\s+- (record|alert): (\S+)$", line)
        expression = re.match(r"(\s+)expr: (.*)$", line)
        if begin:
            rules.append([begin[1], begin[2], ""])
            indent = None
        elif expression:
            indent = len(expression[1])
            rules[-1][2] = "" if expression[2] == "|" else expression[2]
        elif indent is not None and line.strip() and len(line) - len(line.lstrip()) > indent:
            rules[-1][2] += line.strip() + " "
        else:
            indent = None
    return rules


def panels_of(dashboard):
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def level_of(name):
    """Labels of a recorded series, which its name begins with; device, op, ... joined by `_`."""
    return set(name.split(":", 1)[0].split("_")) | EVERYWHERE


def check_rules(folder, catalogue, faults):
    recorded = {}
    rules = rules_of(os.path.join(folder, "remora.rules.yml"))
    alerts = rules_of(os.path.join(folder, "remora.alerts.yml"))
    for kind, name, _ in rules:
        if kind != "record" or ":" not in name:
            faults.add(f"remora.rules.yml: {name} is no recording rule with a level")
        recorded[name] = level_of(name)
    for _, name, expression in rules + alerts:
        check_expression(name, expression, catalogue, recorded, faults)
    texts = [read(path) for path in sorted(glob.glob(os.path.join(folder, "tests", "*.yml")))]
    tests = "\n".join(texts)
    for name in recorded:
        if name not in tests:
            faults.add(f"{name}: no test in metrics/prometheus/tests")
    return recorded, [name for _, name, _ in alerts], tests


def check_alerts(folder, alerts, tests, catalogue, faults):
    text, runbook = read(folder, "remora.alerts.yml"), read(folder, "RUNBOOK.md")
    sections = set(re.findall(r"^## (\w+)$", runbook, re.MULTILINE))
    for name in alerts:
        block = text.split(f"- alert: {name}\n", 1)[1].split("- alert: ", 1)[0]
        for part in ("severity: ", "summary: ", "description: "):
            if part not in block:
                faults.add(f"{name}: no {part.strip(': ')}")
        if f"runbook_url: metrics/prometheus/RUNBOOK.md#{name.lower()}\n" not in block:
            faults.add(f"{name}: its runbook_url is not RUNBOOK.md#{name.lower()}")
        states = re.findall(rf"alertname: {name}\n\s+exp_alerts:( \[\])?\n", tests)
        if "" not in states or " []" not in states:
            faults.add(f"{name}: its tests want both: firing and not firing")
    for name in set(alerts) ^ sections:
        faults.add(f"{name}: an alert without a section in RUNBOOK.md, or the reverse")
    for name in set(SERIES_IN_TEXT.findall(runbook)):
        if base_name(name, catalogue) not in catalogue:
            faults.add(f"RUNBOOK.md: {name} is not in the catalogue")


def queries_of(dashboard):
    """(title, query) of every target of every panel."""
    for panel in panels_of(dashboard):
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def check_dashboard(dashboard, catalogue, recorded, faults):
    ids, titles, taken = set(), set(), set()
    for panel in panels_of(dashboard):
        title = panel["title"]
        if panel["id"] in ids or title in titles:
            faults.add(f"panel {title}: its id or title is taken")
        ids.add(panel["id"])
        titles.add(title)
        box = panel["gridPos"]
        cells = {(x, y) for x in range(box["x"], box["x"] + box["w"])
                 for y in range(box["y"], box["y"] + box["h"])}
        if cells & taken or box["x"] + box["w"] > 24:
            faults.add(f"panel {title}: overlaps another, or is wider than the page")
        taken |= cells
        if panel["type"] == "row":
            continue
        if not panel.get("description") or not panel.get("targets"):
            faults.add(f"panel {title}: no description, or no query")
        if not panel["fieldConfig"]["defaults"].get("unit"):
            faults.add(f"panel {title}: no unit")
        for colour in set(re.findall(r"#[0-9A-Fa-f]{6}", json.dumps(panel))) - PALETTE:
            faults.add(f"panel {title}: {colour} is not of the palette")
    for title, query in queries_of(dashboard):
        check_expression(f"panel {title}", query, catalogue, recorded, faults)
    for note in dashboard["annotations"]["list"]:
        if "expr" in note:
            check_expression(f"annotation {note['name']}", note["expr"], catalogue, recorded, faults)


def readers_of(source):
    """The live page and remora top, which ask the history for series by name."""
    return (glob.glob(os.path.join(source, "metrics", "page", "*.js")) +
            glob.glob(os.path.join(source, "apps", "cli", "top*.cc")))


def check_readers(source, catalogue, faults):
    """One that is not there would show nothing."""
    names = set()
    for path in readers_of(source):
        for name in SERIES_IN_TEXT.findall(read(path)):
            names.add(name)
            if name not in catalogue:
                faults.add(f"{os.path.basename(path)}: {name} is not in the catalogue")
    if len(names) < 20:
        faults.add(f"only {len(names)} series found in metrics/page and remora top")
    return names


def check_code(source, catalogue, faults):
    """Names in the code, so that series which need rdma cannot drift either."""
    declared = set()
    for room in ("engine", "metrics", "apps"):
        for path in glob.glob(os.path.join(source, room, "**", "*.cc"), recursive=True):
            # Functions of the C API begin like series.
            in_c_api = path.startswith(os.path.join(source, "engine", "c", ""))
            if path not in readers_of(source) and not in_c_api:
                declared |= set(SERIES_IN_CODE.findall(read(path)))
    documented = {name for name in catalogue if not name.endswith("_high_water")}
    for name in declared - documented:
        faults.add(f"{name}: declared in the code, not in the catalogue")
    for name in documented - declared:
        faults.add(f"{name}: in the catalogue, not declared in the code")
    for name in set(catalogue) - documented:
        if name[:-len("_high_water")] not in documented:
            faults.add(f"{name}: the high-water mark of nothing")


def load(options):
    catalogue = catalogue_of(read(options.source, "metrics", "docs", "catalogue.md"))
    dashboard = json.loads(read(options.source, "metrics", "grafana", "remora.json"))
    return catalogue, dashboard


def check_files(options, faults):
    catalogue, dashboard = load(options)
    if len(catalogue) < 20:
        faults.add(f"only {len(catalogue)} series read from metrics/docs/catalogue.md")
    folder = os.path.join(options.source, "metrics", "prometheus")
    check_code(options.source, catalogue, faults)
    recorded, alerts, tests = check_rules(folder, catalogue, faults)
    check_alerts(folder, alerts, tests, catalogue, faults)
    check_dashboard(dashboard, catalogue, recorded, faults)
    shown = check_readers(options.source, catalogue, faults)
    queries = list(queries_of(dashboard))
    faults.say(f"{len(catalogue)} series, {len(recorded)} recording rules, {len(alerts)} alerts, "
               f"{len(queries)} queries of panels, {len(shown)} series on the page and in top")


def self_test(options, faults):
    with tempfile.TemporaryDirectory() as root:
        for room in ("metrics", "engine", "apps"):
            shutil.copytree(os.path.join(options.source, room), os.path.join(root, room))
        for name, old, new, expected in SEEDED:
            path = os.path.join(root, name)
            text = read(path)
            write(path, text.replace(old, new))
            caught = Faults(quiet=True)
            check_files(argparse.Namespace(source=root), caught)
            if old not in text or not any(expected in fault for fault in caught.texts):
                faults.add(f"not caught: {name}: {new} for {old}: {caught.texts}")
            write(path, text)
    faults.say(f"{len(SEEDED)} seeded faults")
