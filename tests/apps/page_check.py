#!/usr/bin/env python3
"""Checks the page of metrics endpoints in a headless Chromium, as page_test.sh starts it.

Prints `ok - NAME` or `not ok - NAME` for each check; ends with 1 when one failed.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error

import browser
from page_peers import Gate, Server, fetch

HERE = os.path.dirname(os.path.abspath(__file__))
failures = 0


def check(name, good, found=""):
    global failures
    if good:
        print(f"ok - {name}", flush=True)
    else:
        failures += 1
        print(f"not ok - {name}: {found}", flush=True)


def equal(name, found, wanted):
    check(name, found == wanted, f"{found!r}, not {wanted!r}")


@contextlib.contextmanager
def part(name):
    """A part that breaks is one failure, and the next one goes on."""
    try:
        yield
    except (browser.BrowserError, OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
        check(name, False, f"{type(error).__name__}: {error}")


def scrape(address):
    """{'name{labels}': value} of /metrics."""
    lines = [line for line in fetch(f"http://{address}/metrics").splitlines() if line and line[0] != "#"]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def total(values, pattern):
    return sum(value for name, value in values.items() if re.match(pattern, name))


def number(text):
    return float(text.replace(",", ""))


class Shown(browser.Page):
    """A page of ours, with the questions of page_script.js."""

    def start(self, url):
        self.open(url)
        self.wait("document.readyState === 'complete' && document.getElementById('ready')", 30)
        with open(os.path.join(HERE, "page_script.js"), encoding="utf-8") as file:
            self.run(file.read())

    def load(self, url):
        self.start(url)
        self.wait("document.querySelectorAll('.panel canvas').length > 0", 30)

    def ask(self, call):
        return self.run(f"check.{call}")

    def fresh(self, since_ms):
        """Waits for a sample taken after that time."""
        self.wait(f"check.sampled() > {since_ms}", 30)


def healthy(page, name):
    faults = page.faults()
    check(f"{name}: no console error, exception or failed request", not faults, "; ".join(faults[:5]))


def asks_only(page, address, name):
    page.faults()
    others = [url for url in page.requested if not url.startswith((f"http://{address}/", "data:"))]
    check(f"{name}: asks no other server", page.requested and not others, others[:3])


def moves(page, name, panel, figure):
    """New samples arrive, and are drawn."""
    page.wait(f"check.inked('{panel}') > 0", 30)
    first = page.ask("sampled()")
    page.wait(f"check.sampled() > {first}", 30)
    check(f"{name}: new samples arrive", True)
    page.wait(f"parseFloat(check.figure('{figure}')) > 0", 30)
    check(f"{name}: {figure} is above zero under load", True)
    page.wait(f"check.inked('{panel}') > 500", 30)
    check(f"{name}: the chart of {panel} is drawn", True)


def agrees(page, address, name, counters, gauges):
    """Between two scrapes around it: counters (panel, line, pattern); gauges that stand still."""
    page.ask("open()")
    before = scrape(address)
    page.fresh(int(time.time() * 1000))
    shown = {panel: page.ask(f"values('{panel}')") for panel, _, _ in counters + gauges}
    after = scrape(address)
    for panel, line, pattern in counters:
        value = number(shown[panel][line]["since start"])
        low, high = total(before, pattern), total(after, pattern)
        check(f"{name}: {panel}, {line} is what /metrics says", 0 < low <= value <= high,
              f"{low} <= {value} <= {high}")
    for panel, line, pattern in gauges:
        value = number(shown[panel][line]["now"])
        equal(f"{name}: {panel}, {line} is what /metrics says", value, total(after, pattern))


def readable(page, name):
    for theme in ("light", "dark"):
        page.prefer(prefers_color_scheme=theme)
        page.wait(f"document.documentElement.dataset.theme === '{theme}'", 10)
        time.sleep(0.3)
        found = page.ask("pale()")
        check(f"{name}, {theme}: every text has a contrast of 4.5",
              found["seen"] > 50 and not found["pale"], found)


def fits(page, name):
    for width, columns in ((380, 1), (1280, 3), (3840, 4)):
        page.size(width, 1000, mobile=width < 500)
        time.sleep(0.5)
        equal(f"{name}, {width} px: nothing beside the page", page.ask("overflow()"), 0)
        page.wait("check.wide() === 0")
        check(f"{name}, {width} px: charts follow their boxes", True)
        equal(f"{name}, {width} px: {columns} columns", page.ask("columns()"), columns)
    page.size(1280, 900)


def keyboard(page, name):
    page.run("document.activeElement.blur(), scrollTo(0, 0)")
    wanted, unseen = page.ask("controls()"), False
    for _ in range(2 * wanted + 20):
        page.key("Tab")
        reached = page.ask("reached()")
        unseen = unseen or reached is None
        if reached is not None and reached >= page.ask("controls()"):
            break
    missed = page.ask("missed()")
    check(f"{name}: Tab reaches all {wanted} controls", wanted > 20 and not missed, missed[:5])
    check(f"{name}: the focus is always to be seen", not unseen)
    page.run("document.activeElement.blur()")
    page.key("2")
    check(f"{name}: 2 is the window of 15 min", page.run(
        "document.querySelector('[data-window=\"900\"]').getAttribute('aria-pressed')") == "true")
    page.key("?")
    check(f"{name}: ? opens the help", page.run("document.getElementById('about').open"))
    page.key("Escape")
    check(f"{name}: Escape closes it", not page.run("document.getElementById('about').open"))
    page.run("document.querySelector('.panel .box:not([hidden])').focus()")
    page.key("ArrowLeft")
    check(f"{name}: an arrow key reads a chart", re.search(r" at \d\d:\d\d:\d\d: ", page.ask("text('said')")),
          page.ask("text('said')"))
    cursors = page.run("[...document.querySelectorAll('.cursor:not([hidden])')].length")
    check(f"{name}: the cursor is on all charts in view", cursors > 1, cursors)
    page.key("Escape")
    page.run("document.activeElement.blur()")
    page.key("p")
    check(f"{name}: P pauses", "Paused at" in page.ask("text('sampled')"))
    page.key("n")
    check(f"{name}: N goes on", "Paused" not in page.ask("text('sampled')"))


def theme_is_kept(page, url, name):
    page.prefer(prefers_color_scheme="light")
    page.key("t")  # auto -> light
    page.key("t")  # light -> dark
    page.load(url)
    equal(f"{name}: a chosen theme outlives a reload", page.ask("theme()"), "dark")
    page.key("t")  # dark -> auto
    equal(f"{name}: auto follows the system again", page.ask("theme()"), "light")


def zooms(page, panel, name):
    x, y, width, height = page.ask(f"place('{panel}')")
    at = [x + width * 0.5, y + height * 0.5]
    page.mouse("mouseMoved", *at)
    page.mouse("mousePressed", *at, button="left", buttons=1, clickCount=1)
    for step in range(1, 9):
        page.mouse("mouseMoved", at[0] + step * width * 0.04, at[1], button="left", buttons=1)
    page.mouse("mouseReleased", at[0] + width * 0.32, at[1], button="left", clickCount=1)
    check(f"{name}: dragging over a chart zooms", page.run("!document.getElementById('live').hidden"))
    page.run("document.getElementById('live').click()")
    check(f"{name}: and comes back", page.run("document.getElementById('live').hidden"))


def of_server(pages, options):
    address = options.server
    with part("server page"):
        page = Shown(pages)
        page.load(f"http://{address}/")
        page.wait("check.text('ready') === 'ready'")
        equal("server: says what it is", page.ask("text('title')"), "Remora server")
        moves(page, "server", "served", "operations")
        agrees(page, address, "server",
               [("served", "read", r'remora_server_tcp_operations_total\{op="read"'),
                ("served", "write", r'remora_server_tcp_operations_total\{op="write"'),
                ("served-bytes", "read", r'remora_server_tcp_bytes_total\{op="read"')],
               [("pool", "used", r'remora_server_pool_bytes\{state="used"'),
                ("pool", "free", r'remora_server_pool_bytes\{state="free"'),
                ("regions", "regions", r"remora_server_regions( |$)"),
                ("sessions", "tcp", r'remora_server_sessions\{transport="tcp"'),
                ("registered", "registered", r"remora_server_cluster_registered( |$)")])
        equal("server: its registration is a figure", page.ask("figure('cluster')"), "registered")
        with open(options.regions, encoding="utf-8") as file:
            regions = json.load(file)["regions"]
        names = sorted(region["name"] for region in regions)
        rows = page.ask("rows('regions')")
        equal("server: the regions are those of remora ls", sorted(row[0] for row in rows), names)
        status = json.loads(fetch(f"http://{address}/status"))
        sessions = page.ask("rows('sessions')")
        told = sorted([one["id"], one["peer"], one["transport"]] for one in status["sessions"])
        check("server: there is a session", told)
        equal("server: the sessions are those of /status", sorted(row[:3] for row in sessions), told)
        check("server: a session over tcp has rates", re.search(r"^[\d.]+ .*B/s$", sessions[0][-2]), sessions)
        readable(page, "server")
        fits(page, "server")
        keyboard(page, "server")
        zooms(page, "served", "server")
        theme_is_kept(page, f"http://{address}/", "server")
        healthy(page, "server")
        asks_only(page, address, "server")
        page.close()


def of_client(pages, options):
    address = options.client
    with part("client page"):
        page = Shown(pages)
        page.load(f"http://{address}/")
        page.wait("check.text('ready') === 'ready'")
        equal("client: says what it is", page.ask("text('title')"), "Remora client")
        moves(page, "client", "operations", "operations")
        p99 = page.ask("figure('p99')")
        check("client: latency has a p99", re.match(r"[\d.]+ (ns|µs|ms|s)$", p99 or ""), p99)
        ok = r'remora_client_operations_total\{op="%s",status="ok"'
        agrees(page, address, "client",
               [("operations", "read", ok % "read"), ("operations", "write", ok % "write"),
                ("latency-read-tcp", "p50", r'remora_client_operation_latency_seconds_count\{op="read"'),
                ("bytes", "read", r"remora_client_read_bytes_total"),
                ("bytes", "written", r"remora_client_written_bytes_total")],
               [("cq", "capacity", r"remora_client_cq_capacity"), ("lanes", "tcp", r"remora_client_lanes\{")])
        status = json.loads(fetch(f"http://{address}/status"))
        sessions = page.ask("rows('sessions')")
        check("client: the sessions are those of /status",
              [row[0] for row in sessions] == [one["server"] for one in status["sessions"]] and sessions,
              (sessions, status["sessions"]))
        check("client: a session over one device has no rails", page.ask("hidden('table-rails')"))
        readable(page, "client")
        fits(page, "client")
        healthy(page, "client")
        asks_only(page, address, "client")
        page.close()
        gate = Gate(address, with_rails)
        page = Shown(pages)
        page.load(f"http://{gate.address}/")
        page.wait("check.rows('rails').length > 0")
        server = status["sessions"][0]["server"]
        equal("client: each rail has its row", page.ask("rows('rails')"),
              [[server, "mlx5_0", "mlx5_4", "10.1.0.1", "100", "2"],
               [server, "mlx5_1", "mlx5_5", "10.1.0.2", "25", "1"]])
        healthy(page, "client with rails")
        page.close()
        gate.close()


def with_rails(status):
    """As the client of a session over two devices says it: this test has no device."""
    status["sessions"][0]["rails"] = [
        {"device": "mlx5_0", "server_device": "mlx5_4", "address": "10.1.0.1", "gigabits_per_s": 100.0,
         "lanes": 2},
        {"device": "mlx5_1", "server_device": "mlx5_5", "address": "10.1.0.2", "gigabits_per_s": 25.0,
         "lanes": 1}]
    return status


HOSTILE = "<img src=x onerror=document.title='hacked'><script>document.title='hacked'</script>"


def hostile(status):
    """Everything that a peer may have had a say in, and a shape that is not promised."""
    status["ready"], status["reasons"] = False, [HOSTILE]
    status["version"] = HOSTILE
    status["listening"] = [HOSTILE]
    status["regions"] = [{"name": HOSTILE, "size_bytes": None}, {"name": "x" * 300}, {}, None, 7]
    status["sessions"] = [{"id": 1, "peer": HOSTILE, "transport": HOSTILE, "operations": {"read": None}}]
    status["transports"] = [{"name": HOSTILE, "offered": False, "reason": HOSTILE}]
    status["devices"] = "none"
    status["unheard_of"] = {"deep": [HOSTILE]}
    return status


def of_hostile(pages, options):
    gate = Gate(options.server, hostile)
    with part("hostile text"):
        page = Shown(pages)
        page.load(f"http://{gate.address}/")
        page.wait("!check.hidden('reasons')")
        check("hostile text: why it is not ready is told", HOSTILE in page.ask("text('reasons')"))
        check("hostile text: the state is told", page.ask("text('ready')") == "not ready")
        rows = page.ask("rows('regions')")
        check("hostile text: names are shown as they are", HOSTILE in [row[0] for row in rows], rows)
        check("hostile text: none of it became an element", page.run(
            "document.querySelectorAll('main img, header img, .banner img, main script').length") == 0)
        check("hostile text: nothing of it was run", "hacked" not in page.run("document.title"))
        page.size(380, 900, mobile=True)
        equal("hostile text: nothing beside the page at 380 px", page.ask("overflow()"), 0)
        readable(page, "not ready")
        healthy(page, "hostile text")
        page.close()
        gate.change = lambda _: {"kind": "process"}
        page = Shown(pages)
        page.load(f"http://{gate.address}/")
        check("a process of no kind has a page too", page.ask("text('title')") == "Remora metrics")
        healthy(page, "a process of no kind")
        page.close()
        gate.change, gate.history = lambda status: status, False
        page = Shown(pages)
        page.start(f"http://{gate.address}/")
        page.wait("check.rows('regions').length > 0")
        check("without a history: the tables are there, and why charts are not",
              "keeps no history" in page.ask("text('panels')"), page.ask("text('panels')"))
        check("without a history: no banner", page.ask("hidden('lost')"))
        page.close()
    gate.close()


TOKEN = "open-sesame"


def of_token(pages, options):
    server = Server(options, "token.yaml")
    with part("token"):
        server.start()
        page = Shown(pages)
        page.start(f"http://{server.address}/")
        page.wait("!check.hidden('token')")
        check("token: the page asks for it", True)
        check("token: nothing is called wrong before one was given", page.ask("hidden('token-error')"))
        check("token: the field has the focus", page.run("document.activeElement.id") == "token-value")
        page.type("wrong")
        page.key("Enter")
        page.wait("!check.hidden('token-error')")
        check("token: a wrong one is refused in words", "refused" in page.ask("text('token-error')"))
        page.type(TOKEN)
        page.key("Enter")
        page.wait("document.querySelectorAll('.panel canvas').length > 0")
        check("token: the right one shows the page", page.ask("hidden('token')"))
        page.load(f"http://{server.address}/")
        check("token: it is kept for the tab", page.ask("hidden('token')"))
        check("token: and for nothing longer",
              not page.run(f"Object.values(localStorage).concat(document.cookie).join().includes('{TOKEN}')"))
        faults = [fault for fault in page.faults() if "401" not in fault]
        check("token: nothing else went wrong", not faults, faults)
        page.close()
    server.close()


def of_password(pages, options):
    server = Server(options, "password.yaml")
    with part("password"):
        server.start()
        try:
            refused = fetch(f"http://{server.address}/status")
        except urllib.error.HTTPError as error:
            refused = error.code
        check("password: without it nothing is told", refused == 401, refused)
        page = Shown(pages)
        page.sign_in("sre", "night shift", "*/status", "*/history*")
        page.load(f"http://{server.address}/")
        page.wait("check.text('ready') === 'ready'")
        check("password: the browser's own question is enough", page.ask("hidden('token')"))
        page.fresh(page.ask("sampled()"))
        check("password: and new samples arrive", True)
        page.close()
    server.close()


def of_hidden(pages, options):
    """A hidden tab. Headless tabs are never hidden, so the page is told that it is."""
    with part("hidden tab"):
        page = Shown(pages)
        page.load(f"http://{options.server}/")
        page.run("globalThis.asked = [], globalThis.fetched = fetch, globalThis.fetch = (url, ...rest) => "
                 "(asked.push(String(url)), fetched(url, ...rest)), true")
        page.wait("asked.length >= 4", 30)
        asked = [url for url in page.run("asked") if url.startswith("history")]
        check("in sight: it asks each period, for what is new",
              len(asked) > 1 and not any(url.endswith("since=0") for url in asked), asked)
        page.run("Object.defineProperty(document, 'hidden', {value: true, configurable: true}) && true")
        seen, quiet = -1, 0  # until the questions that were due have been asked
        for _ in range(60):
            count = page.run("asked.length")
            quiet, seen = (quiet + 1 if count == seen else 0), count
            if quiet == 5:
                break
            time.sleep(1)
        page.run("asked.length = 0")
        time.sleep(8)
        check("hidden tab: it asks less", page.run("asked.length") == 0, page.run("asked"))
        before, gap = page.ask("sampled()"), int(time.time() * 1000)
        page.run("delete document.hidden && document.dispatchEvent(new Event('visibilitychange'))")
        page.wait(f"check.sampled() > {before} && check.sampled() > {gap} - 3000", 20)
        check("hidden tab: seen again, it catches up at once",
              page.run("asked[0].startsWith('history?since=')"))
        healthy(page, "hidden tab")
        page.close()


def of_loss(pages, options):
    server = Server(options, "other.yaml")
    with part("a lost connection"):
        server.start()
        page = Shown(pages)
        page.load(f"http://{server.address}/")
        page.wait("check.text('ready') === 'ready'")
        check("lost: no banner before", page.ask("hidden('lost')"))
        healthy(page, "lost, before")
        was = page.ask("sampled()")
        server.end(signal.SIGKILL)
        page.wait("!check.hidden('lost')", 30)
        check("lost: a banner says since when", re.match(r"No answer since \d+ s ", page.ask("text('lost')")),
              page.ask("text('lost')"))
        opacity = page.run("getComputedStyle(document.getElementById('main')).opacity")
        check("lost: values are greyed", float(opacity) < 1, opacity)
        check("lost: the state and the title say it", page.ask("text('ready')") == "no answer"
              and page.run("document.title").startswith("no answer"), page.run("document.title"))
        shot = page.ask("pale()")  # the banner itself has to be read
        check("lost: the banner has a contrast of 4.5",
              not [one for one in shot["pale"] if one[1].startswith("No answer")], shot["pale"])
        server.start()
        page.wait("check.hidden('lost')", 40)
        # The answer to /readyz may come later than the first sample.
        page.wait("check.text('ready') === 'ready'", 30)
        check("lost: it recovers alone", True)
        page.wait("!check.hidden('notice')", 20)
        notice = page.ask("text('notice')")
        check("lost: a restart is told", "started again" in notice, notice)
        page.fresh(was)
        kept = int(re.search(r"(\d+) kept", page.ask("text('sampled')")).group(1))
        check("lost: what was before is gone", kept <= 10, page.ask("text('sampled')"))
        page.faults()  # refused connections are expected meanwhile
        page.fresh(page.ask("sampled()"))
        healthy(page, "lost, after")
        page.close()
    server.close()


PARTS = {"server": of_server, "client": of_client, "token": of_token, "password": of_password,
         "hidden": of_hidden, "hostile": of_hostile, "loss": of_loss}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True,
                        help="where the browser keeps its files; other.yaml, token.yaml and "
                        "password.yaml are configurations of the other server")
    parser.add_argument("--server", required=True,
                        help="address:port of a server's endpoint, under load over tcp")
    parser.add_argument("--client", required=True,
                        help="address:port of the loading process's endpoint")
    parser.add_argument("--regions", required=True, help="file with the answer of remora ls --json")
    parser.add_argument("--program", required=True, help="remora-server")
    parser.add_argument("--other", required=True, help="address:port of the other server's endpoint")
    parser.add_argument("--only", choices=PARTS, action="append")
    options = parser.parse_args()
    pages = browser.Browser(options.folder)
    try:
        for name in options.only or PARTS:
            PARTS[name](pages, options)
    finally:
        pages.close()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
