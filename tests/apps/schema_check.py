#!/usr/bin/env python3
"""Compares the JSON Schema of the server's file with the parser.

usage: tests/apps/schema_check.py --bin FOLDER [--config FOLDER]

The schema is a schema; it takes each example of config/examples; and what it refuses `remora config check`
refuses, too. Prints `ok - NAME` and `not ok - NAME`. Exit status 77: python3-jsonschema or python3-yaml is
not installed.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import jsonschema
    import yaml
except ImportError as error:
    print(f"{error}: ci/setup.sh man")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
START = "pool: {size: 64MiB}\n"
# (name, text, whether the schema takes it, whether the parser takes it)
CASES = [
    ("the smallest file", START, True, True),
    ("a number as size", "pool: {size: 67108864}", True, True),
    ("words that YAML 1.1 takes for something else", START + "log: {level: off}\ntransports: {shm: off}", True, True),
    ("a word of digits", START + "rdma: {mtu: 1024, pkey: 0x8001}", True, True),
    ("a list of devices", START + "transports: {rdma_device: [mlx5_0, mlx5_1]}", True, True),
    ("a region with a name of digits", START + "regions: [{name: 7, size: 1MiB}]", True, True),
    ("no pool", "listen: {port: 7471}", False, False),
    ("no size", "pool: {piece: 4MiB}", False, False),
    ("an unknown key", START + "listen: {adress: 127.0.0.1}", False, False),
    ("an unknown unit", "pool: {size: 64MB}", False, False),
    ("a leading zero", "pool: {size: 064MiB}", False, False),
    ("a duration without a unit", START + "limits: {drain_timeout: 5}", False, False),
    ("a number beyond its range", START + "listen: {port: 65536}", False, False),
    ("an unknown word", "pool: {size: 64MiB, huge_pages: always}", False, False),
    ("text for a boolean", "pool: {size: 64MiB, populate: maybe}", False, False),
    ("a word in place of a list", START + "regions: [{name: a, size: 1MiB, rights: read}]", False, False),
    ("a right that does not exist", START + "regions: [{name: a, size: 1MiB, rights: [fly]}]", False, False),
    ("a right twice", START + "regions: [{name: a, size: 1MiB, rights: [read, read]}]", False, False),
    ("a list that may not be empty", START + "clients: []", False, False),
    ("a secret in two places", START + "metrics: {address: '127.0.0.1:9471', token: t, token_file: f}", False, False),
    ("a map in place of a value", START + "auth: {keys: true}", False, False),
    # What only the parser knows.
    ("a size beyond its range", "pool: {size: 1KiB}", True, False),
    ("a rule between keys", START + "listen: {address: 0.0.0.0}", True, False),
]


class Core(yaml.SafeLoader):
    """YAML 1.2: true and false are booleans, and no other word is."""


Core.yaml_implicit_resolvers = {}
for TAG, PATTERN, FIRST in (
        ("bool", r"true|false", "tf"), ("null", r"null|~|", "n~"),
        ("int", r"0x[0-9a-fA-F]+|0|[1-9][0-9]*", "0123456789")):
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{TAG}", re.compile(f"^(?:{PATTERN})$"), list(FIRST) + [""])


def verdict(name, fault):
    print(f"{'not ok' if fault else 'ok'} - schema: {name}")
    if fault:
        print(f"    {fault}")
    return bool(fault)


def refusal(validator, text):
    """The first fault that the schema finds, or an empty text."""
    for error in validator.iter_errors(yaml.load(text, Loader=Core)):
        return f"{error.json_path}: {error.message}"
    return ""


def parser_refuses(remora, text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        done = subprocess.run([remora, "config", "check", file.name], capture_output=True, text=True,
                              check=False, timeout=60)
    if done.returncode not in (0, 7):
        raise RuntimeError(f"remora config check: status {done.returncode}: {done.stderr}")
    return done.returncode == 7


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--config", default=ROOT / "config", type=pathlib.Path)
    options = parser.parse_args()
    remora = os.path.join(options.bin, "remora")
    text = (options.config / "docs/server.schema.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    printed = subprocess.run([remora, "config", "schema"], capture_output=True, text=True, check=True, timeout=60)
    bad = verdict("'remora config schema' prints the file",
                  "" if printed.stdout == text else "another text than config/docs/server.schema.json")
    for path in sorted((options.config / "examples").glob("*.yaml")):
        bad |= verdict(f"takes {path.name}", refusal(validator, path.read_text(encoding="utf-8")))
    for name, document, by_schema, by_parser in CASES:
        found = refusal(validator, document)
        fault = ""
        if bool(found) == by_schema:
            fault = f"the schema says: {found or 'good'}"
        elif parser_refuses(remora, document) == by_parser:
            fault = "remora config check says the opposite"
        bad |= verdict(name, fault)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
