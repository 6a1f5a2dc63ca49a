#!/usr/bin/env python3
"""A load on a region by the package python3-remora that verifies what it reads, while the server is
upgraded, downgraded, killed. Writes blocks with numbers that rise, reads them, counts in a word.

usage: package_load.py SERVER_URI REGION STOP_FILE

Ends when STOP_FILE appears, and prints a line of JSON. Exit status: 0, or 1: an acknowledged write was
lost, or something was read that nothing had written.
"""

import json
import os
import random
import struct
import sys
import time

import remora
from remora import errors

BLOCKS = 64
BLOCK = 4096
WITHIN_S = 120.0


class Load:
    def __init__(self, region):
        self.region = region
        # What a block may have: several numbers after writes whose effect is not known.
        self.allowed = [{0} for _ in range(BLOCKS)]
        self.number = 0
        self.counted, self.unknown = 0, 0
        self.done, self.uncertain, self.silence = 0, 0, 0.0
        self.violations = []

    def wrong(self, text):
        self.violations.append(text)

    def run(self, call, *arguments):
        """The result, or None where the effect is not known; waits until nothing can still take effect."""
        began = time.monotonic()
        try:
            return call(*arguments, deadline=WITHIN_S)
        except (errors.IndeterminateError, errors.ConnectionLostError) as error:
            self.uncertain += 1
            if not isinstance(error, errors.IndeterminateError):
                time.sleep(0.1)
            self.region.settled(WITHIN_S)
            return None
        finally:
            self.done += 1
            self.silence = max(self.silence, time.monotonic() - began)

    def write(self, block):
        self.number += 1
        stamp = struct.pack("<QQ", self.number, block)
        if self.run(self.region.write, (1 + block) * BLOCK, stamp * (BLOCK // len(stamp))) is None:
            self.allowed[block].add(self.number)
        else:
            self.allowed[block] = {self.number}

    def read(self, block):
        data = self.run(self.region.read, (1 + block) * BLOCK, BLOCK)
        if data is None:
            return
        number, owner = struct.unpack_from("<QQ", data)
        if data != data[:16] * (BLOCK // 16) or (number and owner != block):
            self.wrong(f"block {block} is torn")
        elif number not in self.allowed[block]:
            self.wrong(f"block {block} has {number}, not one of {sorted(self.allowed[block])}")
        else:
            self.allowed[block] = {number}

    def count(self):
        old = self.run(self.region.fetch_add, 0, 1)
        if old is None:
            self.unknown += 1
        elif not self.counted <= old <= self.counted + self.unknown:
            self.wrong(f"the counter was {old}, not {self.counted} to {self.counted + self.unknown}")
        else:
            self.counted, self.unknown = old + 1, 0


def main():
    uri, name, stop = sys.argv[1:]
    with remora.connect(uri, reconnect_for=WITHIN_S) as client:
        load = Load(client.open_region(name))
        print("under way", file=sys.stderr, flush=True)
        try:
            while not os.path.exists(stop) and len(load.violations) < 10:
                block = random.randrange(BLOCKS)
                random.choice((load.write, load.read, lambda _: load.count()))(block)
            for block in range(BLOCKS):
                load.read(block)
        except errors.Error as error:
            load.wrong(f"{type(error).__name__}: {error}")
        print(json.dumps({"operations": load.done, "uncertain": load.uncertain,
                          "longest_silence_s": round(load.silence, 2),
                          "violations": load.violations}))
    return 1 if load.violations else 0


if __name__ == "__main__":
    sys.exit(main())
