#!/usr/bin/env python3
"""Checks the dashboard, the rules and the alerts of metrics/ against each other and a Prometheus.

    files      the catalogue in metrics/docs/catalogue.md, the code, rules, dashboard, runbook: same series
    self-test  faults seeded into copies of these files are caught
    queries    every query parses, and returns data where it can, from a Prometheus under load
    alerts     alerts that are to be pending or firing

Prints what is wrong, one thing a line; exit status 1 when there is something.
"""

import argparse
import glob
import json
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

# Panels and rules without data over tcp and shm, and why. Their series stand in the catalogue.
NO_DATA = {
    "MR cache hits": "registrations are kept over rdma only",
    "MR cache registrations": "registrations are kept over rdma only",
    "MR cache pinned": "registrations are kept over rdma only",
    "MR cache failures": "registrations are kept over rdma only",
    "Poller CPU": "remora bench has no callback queue",
    "Inline work requests": "requests carry bytes inline over rdma only",
    "Lost and late packets": "there is no RDMA device",
    "Congestion marks": "there is no RDMA device",
    "Device throughput": "there is no RDMA device",
    "Device counters": "there is no RDMA device",
    "instance_device:remora_nic_retransmissions:rate5m": "there is no RDMA device",
    "instance_device:remora_nic_congestion_marks:rate5m": "there is no RDMA device",
    "instance_device_direction:remora_nic_bytes:rate1m": "there is no RDMA device",
    "instance_device:remora_client_mr_cache:hit_ratio_rate5m":
        "registrations are kept over rdma only",
}
# Series that neither a server nor `remora bench` over tcp and shm exports.
NOT_EXPORTED = re.compile(r"^remora_(client_mr_cache_\w+|client_poller_cpu_seconds_total"
                          r"|client_inline_work_requests_total|nic_\w+|server_registrations|server_windows"
                          r"|server_rdma_rejected_connections_total)$")
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
SERIES_IN_TEXT = re.compile(r"\b(?:remora_(?:client|server|nic|build)|process)_[a-z0-9_]+")
SERIES_IN_CODE = re.compile(r'"((?:remora_(?:client|server|nic|build|log)|process)_[a-z0-9_]+)"')
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
            if path not in readers_of(source):
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


# --- a running Prometheus -------------------------------------------------------------------------

class Prometheus:
    def __init__(self, address):
        self.base = f"http://{address}/api/v1/"

    def get(self, path, **parameters):
        """(data, None) or (None, what Prometheus says is wrong)."""
        url = self.base + path + "?" + urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)["data"], None
        except urllib.error.HTTPError as error:
            try:
                return None, json.load(error).get("error", str(error))
            except ValueError:
                return None, str(error)
        except (OSError, ValueError) as error:
            return None, str(error)

    def values(self, expression):
        """(how many series have a value, None) or (None, error)."""
        data, error = self.get("query", query=expression)
        if error:
            return None, error
        return sum(result["value"][1] != "NaN" for result in data["result"]), None


def as_query(expression):
    """What Grafana sends for a panel's query with every variable at its default."""
    for macro, value in (("$__rate_interval", "20s"), ("$__interval", "5s"), ("$__range", "1m"),
                         ("$instance", ".*"), ("$transport", ".*")):
        expression = expression.replace(macro, value)
    return expression


def scraped(address):
    """{name: (type, {labels})} of an endpoint."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    series = {name: (kind, set()) for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)}
    for name, labels in re.findall(r"^([a-z]\w*)(?:\{([^}]*)\})? ", text, re.M):
        short = PART_OF_HISTOGRAM.sub("", name)
        known = series[name if name in series else short]
        known[1].update(set(re.findall(r'(\w+)="', labels)) - {"le"})
    return series


def check_endpoints(addresses, catalogue, faults):
    seen = set()
    for address in addresses:
        for name, (kind, labels) in scraped(address).items():
            seen.add(name)
            if name not in catalogue:
                faults.add(f"{address} exports {name}, which is not in the catalogue")
            elif catalogue[name][:2] != (kind, labels):
                faults.add(f"{address} exports {name} as {kind} with {sorted(labels)}; the catalogue "
                           f"has {catalogue[name][0]} with {sorted(catalogue[name][1])}")
    for name in set(catalogue) - seen:
        if not NOT_EXPORTED.match(name):
            faults.add(f"{name}: in the catalogue, and no process exports it")
    for name in seen:
        if NOT_EXPORTED.match(name):
            faults.add(f"{name}: exported after all; take it out of NOT_EXPORTED")


def rules_that_ran(prometheus, deadline, faults):
    """Rules as Prometheus read them, after each was evaluated once."""
    while True:
        data, error = prometheus.get("rules")
        rules = [] if error else [rule for group in data["groups"] for rule in group["rules"]]
        waiting = [rule["name"] for rule in rules if rule["health"] == "unknown"]
        if rules and not waiting:
            break
        if time.monotonic() > deadline:
            faults.add(f"rules were not evaluated: {error or waiting or 'there are none'}")
            break
        time.sleep(0.5)
    for rule in rules:
        if rule["health"] != "ok":
            faults.add(f"rule {rule['name']}: {rule.get('lastError') or rule['health']}")
    return rules


def check_queries(options, faults):
    deadline = time.monotonic() + options.seconds
    catalogue, dashboard = load(options)
    prometheus = Prometheus(options.prometheus)
    rules = rules_that_ran(prometheus, deadline, faults)
    for rule in rules:  # an alert's expression has no data when all is well, but parses
        if rule["type"] == "alerting":
            error = prometheus.values(rule["query"])[1]
            if error:
                faults.add(f"alert {rule['name']}: {error}")
    for note in dashboard["annotations"]["list"]:
        error = prometheus.values(as_query(note["expr"]))[1] if "expr" in note else None
        if error:
            faults.add(f"annotation {note['name']}: {error}")

    wanted = [(f"panel {title}", title, as_query(query)) for title, query in queries_of(dashboard)]
    wanted += [(f"rule {rule['name']}", rule["name"], rule["name"]) for rule in rules
               if rule["type"] == "recording"]
    empty = [(where, query) for where, name, query in wanted if name not in NO_DATA]
    while empty:  # a rate wants two scrapes
        left = []
        for where, query in empty:
            count, error = prometheus.values(query)
            if error:
                faults.add(f"{where}: {error}: {query}")
            elif not count:
                left.append((where, query))
        empty = left
        if not empty or time.monotonic() > deadline:
            break
        time.sleep(1)
    for where, query in empty:
        faults.add(f"{where}: no data: {query}")
    for where, name, query in wanted:
        if name in NO_DATA:
            count, error = prometheus.values(query)
            if error or count:
                faults.add(f"{where}: {error or 'has data after all; take it out of NO_DATA'}: {query}")
            else:
                faults.say(f"{where}: no data here: {NO_DATA[name]}")
    for name in set(NO_DATA) - {name for _, name, _ in wanted}:
        faults.add(f"NO_DATA names {name}, which is neither a panel nor a rule")

    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        if not asked:
            faults.add(f"variable {variable['name']}: not understood: {variable['query']['query']}")
            continue
        values, error = prometheus.get(f"label/{asked[2]}/values", **{"match[]": asked[1]})
        if error or not values:
            faults.add(f"variable {variable['name']}: {error or 'no values'}")
    check_endpoints(options.endpoint, catalogue, faults)
    for alert in (prometheus.get("alerts")[0] or {"alerts": []})["alerts"]:
        if alert["state"] == "firing":
            faults.add(f"an alert fires though all is well: {alert['annotations']['description']}")
    faults.say(f"{len(wanted)} queries, {sum(rule['type'] == 'alerting' for rule in rules)} alerts")


def check_states(options, faults):
    deadline = time.monotonic() + options.seconds
    prometheus = Prometheus(options.prometheus)
    expected = dict(pair.split("=", 1) for pair in options.expect)
    while True:
        data, error = prometheus.get("rules", type="alert")
        states = {} if error else {rule["name"]: rule["state"] for group in data["groups"]
                                   for rule in group["rules"]}
        wrong = {name: states.get(name, error) for name, state in expected.items()
                 if states.get(name) != state}
        if not wrong or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    for name, state in wrong.items():
        faults.add(f"alert {name} is {state}, not {expected[name]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["files", "self-test", "queries", "alerts"])
    parser.add_argument("--source", default=os.path.join(os.path.dirname(__file__), "../.."))
    parser.add_argument("--prometheus", metavar="ADDRESS:PORT")
    parser.add_argument("--seconds", type=float, default=20, help="how long to wait for data")
    parser.add_argument("--endpoint", action="append", default=[], metavar="ADDRESS:PORT",
                        help="scrape this too, and compare it with the catalogue")
    parser.add_argument("--expect", action="append", default=[], metavar="ALERT=STATE")
    options = parser.parse_args()
    faults = Faults()
    checks = {"files": check_files, "self-test": self_test, "queries": check_queries,
              "alerts": check_states}
    checks[options.what](options, faults)
    return 1 if faults.texts else 0


if __name__ == "__main__":
    sys.exit(main())
