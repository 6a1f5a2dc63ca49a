#!/usr/bin/env python3
"""Checks that texts name their actors, and that terms which were replaced do not come back.

Read are comments, string literals and names of C++ and JavaScript, and documents and configuration
files as a whole; of CHANGELOG.md the part that is not released. Prints `file:line: "word": what to
write instead`. ci/words-allowed.txt has the phrases in which such a word is right.
"""

import os
import re
import sys

import checks

ACTOR = "name it: the client, the server, the session, the caller, the application, ..."
NOT_ONE = "say what there is none of: \"no client\", \"no thread\", ..."
# The word, in lower case, with its forms; and what to write instead.
WORDS = [
    ("who whom whoever whomever somebody someone anybody anyone everybody everyone", ACTOR),
    ("nobody nobodys", NOT_ONE),
    ("zombie zombies", "orphaned mapping, orphaned bytes"),
    ("stranger strangers", "rejected connection, other clients, peer that does not authenticate"),
    ("door doors", "listener"),
    ("desk desks", "tracker, coordinator, registry"),
    ("fate fates", "state, state transition, outcome"),
    ("news", "event, handler_dispatcher"),
    ("heed heeds heeded heeding", "follow, wait for, regard"),
    ("bury buries buried burial burials", "destroy, destroy_lanes"),
    ("lend lends lent lending lender lenders", "offer, grant, acquire_lease"),
    ("greet greets greeted greeting greetings", "handshake"),
    ("hurry hurries hurried", "expedite_stop"),
    ("sleeper sleepers", "LaneWaiters, waiting thread"),
    ("dice", "FaultSampler"),
    ("watcher watchers", "EventNotifier, observer"),
]
# Several words in a row, or joined by `_`, `-` or a change of case.
PHRASES = [
    ("half open", "pending handshake"),
    ("take back", "release, release_lease"),
    ("break off", "move_to_error, close"),
    ("session life", "reconnector"),
    ("memory line", "allocation_queue"),
    ("over lanes", "striped_transfer"),
    ("posted plan", "queued_lane_driver_requests"),
    ("posted end", "queued_lane_driver_completions"),
    ("posted driver", "queued_lane_driver"),
    ("direct driver", "mapped_memory_driver"),
    ("nic series", "device_metrics"),
    ("log limit", "log_rate_limiter"),
]
# Names in code.
CONSTANTS = [(re.compile(r"^k?(?:[A-Z]\w*)?Most$"), "max, as in kMaxSessions")]
# Names in code of the product.
NAMES = [
    (re.compile(r"^(?:[A-Z]\w*Most_|(?!.*\bat_)(?:\w+_)?(?<!at_)most_?)$"), "max, as in max_sessions_"),
    (re.compile(r"^hear_?$"), "touch"),
    (re.compile(r"^alone_?$"), "detached"),
]

SCOPE = ("engine", "verbs", "config", "metrics", "apps", "ci", "tests", "README.md", "CHANGELOG.md",
         ".github/CONTRIBUTING.md")
ALLOWED = "ci/words-allowed.txt"
THIS = "ci/check_words.py"
CODE = (".h", ".cc", ".proto", ".js", ".css")
WHOLE = (".sh", ".py", ".md", ".yml", ".yaml", ".json", ".html", ".txt", ".cmake", ".in", ".scd")
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`", re.DOTALL)
WORD = re.compile(r"[A-Za-z]+")
NAME = re.compile(r"[A-Za-z_]\w*")
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

ADVICE = {word: advice for words, advice in WORDS for word in words.split()}
PHRASE = {phrase: (re.compile(rf"(?<![A-Za-z]){phrase.replace(' ', '[-_ ]?')}(?!(?-i:[a-z]))",
                             re.IGNORECASE), advice)
          for phrase, advice in PHRASES}


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def without_texts(path, text):
    """The code, with blanks for comments and literals."""
    code, end = [], 0
    for token in TOKEN.finditer(text):
        found = token.group(0)
        # A quote inside a number (1'000) opens no literal; a CSS url is none either.
        if found[0] == "'" and path.endswith((".h", ".cc")) and len(found) > 4:
            continue
        code += [text[end:token.start()], blank(found)]
        end = token.end()
    code.append(text[end:])
    return "".join(code)


def unreleased(text):
    """The entries of the changelog's first section; the lines of the others are empty."""
    lines = text.split("\n")
    heads = [number for number, line in enumerate(lines) if line.startswith("## ")]
    if len(heads) < 2:
        return text
    return "\n".join(line if number < heads[1] else "" for number, line in enumerate(lines))


def without_allowed(text, allowed):
    for phrase in allowed:
        text = phrase.sub(lambda found: blank(found.group(0)), text)
    return text


def findings_in(text):
    for word in WORD.finditer(text):
        for part in HUMP.split(word.group(0)):
            advice = ADVICE.get(part.lower())
            if advice:
                yield word.start(), part, advice
    for pattern, advice in PHRASE.values():
        for found in pattern.finditer(text):
            yield found.start(), re.sub(r"\s+", " ", found.group(0)), advice


def check_text(path, text, allowed):
    """(line, word, advice), in the order of the lines."""
    if os.path.basename(path) == "CHANGELOG.md":
        text = unreleased(text)
    text = without_allowed(text, allowed)
    found = list(findings_in(text))
    if path.endswith(CODE):
        code = without_texts(path, text)
        names = CONSTANTS if path.startswith("tests/") else CONSTANTS + NAMES
        for name in NAME.finditer(code):
            found += [(name.start(), name.group(0), advice) for pattern, advice in names
                      if pattern.match(name.group(0))]
    return sorted({(text.count("\n", 0, at) + 1, word, advice) for at, word, advice in found})


def is_in(path, folders):
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def read_allowed(root):
    """Each line a phrase; `#` begins a comment line that says why the word is right there."""
    phrases = []
    for line in (checks.read(root, ALLOWED) or "").split("\n"):
        line = line.strip()
        if line and not line.startswith("#"):
            words = [re.escape(word) for word in line.split()]
            # A comment may break the line within the phrase.
            phrases.append(re.compile(r"(?:\s|//+|\*|#)+".join(words)))
    return phrases


def check_tree(root, paths, scope=SCOPE):
    """(violations, files read)"""
    allowed = read_allowed(root)
    violations, checked = [], 0
    for path in sorted(paths):
        script = "." not in os.path.basename(path)
        if not (script or path.endswith(CODE + WHOLE)) or not is_in(path, scope):
            continue
        if path in (THIS, ALLOWED) or "/corpus/" in path:
            continue
        text = checks.read(root, path, may_be_binary=True)
        if text is None:
            continue
        if script and not text.startswith("#!"):
            continue
        checked += 1
        for line, word, advice in check_text(path, text, allowed):
            violations.append(f"{path}:{line}: \"{word}\": {advice}")
    return violations, checked


# A file each: its text from line 2 on, and the word that must be found there.
SEEDED = [
    ("verbs/src/a.cc", "// Who closes it waits.", "Who"),
    ("verbs/src/b.cc", "/* nobody\n   reads it */", "nobody"),
    ("config/src/a.cc", 'const char* kText = "for whoever asks";', "whoever"),
    ("config/src/b.cc", 'const char* kText = R"(said to somebody)";', "somebody"),
    ("metrics/page/a.js", "const text = 'someone is late';", "someone"),
    ("metrics/page/b.js", "const text = `anybody is late`;", "anybody"),
    ("metrics/prometheus/a.yml", "summary: no stranger has come", "stranger"),
    ("engine/src/base/a.h", "struct Zombies {};", "Zombies"),
    ("engine/src/base/b.h", "int half_open_max = 0;", "half_open"),
    ("engine/src/base/c.h", "int half = 0;  // half-open ones", "half-open"),
    ("engine/src/base/d.h", "constexpr int kSessionsMost = 3;", "kSessionsMost"),
    ("engine/src/base/g.h", "int most_ = 0;", "most_"),
    ("engine/src/base/h.h", "constexpr int kMost = 3;", "kMost"),
    ("tests/unit/engine/a_test.cc", "constexpr int kMost = 3;", "kMost"),
    ("tests/fuzz/a.cc", "enum class Key { kOther, kNobodys };", "Nobodys"),
    ("engine/src/base/e.h", "void lend_memory();", "lend"),
    ("engine/include/remora/a.h", "bool greeted() const;", "greeted"),
    ("engine/include/remora/b.h", "/// The fate of a session.", "fate"),
    ("apps/cli/a.cc", 'app.add_flag("--hurry", "Do not wait");', "hurry"),
    ("apps/cli/b.cc", "session.hear(now);", "hear"),
    ("metrics/README.md", "Says who uses it.", "who"),
    ("ci/a.sh", "echo 'nobody listens'", "nobody"),
    ("CHANGELOG.md", "## Unreleased\n- Says who uses it.\n## 0.1\n- Says who used it.", "who"),
]
# What looks like a finding and is none.
CLEAN = [
    ("verbs/src/c.cc", "// The whole of it, most of the time, alone.\nvoid took_at_most();"),
    ("verbs/src/d.cc", "constexpr int kPagesMax = 1'000, kOther = 2'000;"),
    ("config/src/c.cc", 'const char* kText = "doorbell and silent";'),
    ("engine/src/base/f.h", "/// A half-open TCP connection (RFC 9293)."),
    ("CHANGELOG.md", "## Unreleased\n- One.\n## 0.1\n- Says who used it."),
    ("tests/fuzz/corpus/yaml/a.yml", "# who"),
    ("verbs/src/e.png", "who"),
]
SEEDED_ALLOWED = "# What RFC 9293 calls so.\nhalf-open TCP connection (RFC 9293)\n"


def self_test():
    seeds = []
    for path, text, word in SEEDED:
        line = 3 if path == "CHANGELOG.md" else 2
        seeds.append(checks.Seed(path, f"\n{text}\n", f'"{word}": ', range(line, line + 1)))
    seeds += [checks.Seed(path, f"\n{text}\n") for path, text in CLEAN]
    return checks.self_test("words", check_tree, seeds, {ALLOWED: SEEDED_ALLOWED})


def main():
    parser = checks.parser(__doc__)
    parser.add_argument("folders", nargs="*", help="read these only")
    options = parser.parse_args()
    scope = options.folders or SCOPE
    return checks.main("words", options, lambda root, paths: check_tree(root, paths, scope), self_test)


if __name__ == "__main__":
    sys.exit(main())
