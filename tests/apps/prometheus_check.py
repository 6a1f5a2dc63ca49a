#!/usr/bin/env python3
"""Checks the dashboard, the rules and the alerts of metrics/ against each other and a Prometheus.

    files      the catalogue in metrics/docs/catalogue.md, the code, rules, dashboard, runbook: same series
    self-test  faults seeded into copies of these files are caught
    queries    every query parses, and returns data where it can, from a Prometheus under load
    alerts     alerts that are to be pending or firing

Prints what is wrong, one thing a line; exit status 1 when there is something.
"""

import argparse
import json
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from prometheus_files import PART_OF_HISTOGRAM, Faults, check_files, load, queries_of, self_test

# Panels and rules without data over tcp and shm, and why. Their series stand in the catalogue.
NO_DATA = {
    "MR cache hits": "registrations are kept over rdma only",
    "MR cache registrations": "registrations are kept over rdma only",
    "MR cache pinned": "registrations are kept over rdma only",
    "MR cache failures": "registrations are kept over rdma only",
    "Poller CPU": "remora bench has no callback queue",
    "Groups of open volumes": "the clients of this test open no volume",
    "Open volumes": "the clients of this test open no volume",
    "Metadata revision": "the clients of this test open no volume",
    "Groups of mirrors": "the clients of this test open no mirror",
    "Bytes to resync": "the clients of this test open no mirror",
    "Bytes copied": "the clients of this test open no mirror",
    "Degraded groups": "the clients of this test open no mirror",
    "Claimed mirrors": "the clients of this test open no mirror",
    "Claims and their ends": "the clients of this test open no mirror",
    "Members removed, and fences": "the clients of this test open no mirror",
    "Confirmations": "the clients of this test open no mirror",
    "Doubtful operations": "the clients of this test open no mirror",
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
                          r"|client_inline_work_requests_total|client_volumes|client_volume_\w+"
                          r"|client_mirror_\w+"
                          r"|nic_\w+|server_registrations|server_windows"
                          r"|server_registered_bytes|client_rail_lanes"
                          r"|server_rdma_rejected_connections_total"
                          r"|server_rdma_device_(serving|losses_total))$")


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
