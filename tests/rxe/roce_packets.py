#!/usr/bin/env python3
"""Counts the RoCE v2 packets of an interface by what their headers say: no tcpdump is needed.

    roce_packets.py INTERFACE SECONDS

One line each: DIRECTION TRAFFIC_CLASS LONGEST_PAYLOAD COUNT, of packets over IPv4 to queue pairs other
than 1 (that one is the connection manager's). SIGTERM ends it early. Needs CAP_NET_RAW.
"""

import collections
import signal
import socket
import struct
import sys
import time

ETH_P_IP = 0x0800
ETH_P_ALL = 3
ROCE_PORT = 4791
SENT = 4  # PACKET_OUTGOING
UDP = 17
BTH_BYTES = 12


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    interface, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    wire.bind((interface, 0))
    wire.settimeout(0.1)
    counts = collections.Counter()
    longest = collections.Counter()
    told = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    print("watching", flush=True)
    while not told and time.monotonic() < end:
        try:
            packet, (_, _, kind, _, _) = wire.recvfrom(65536)
        except TimeoutError:
            continue
        if len(packet) < 14 + 20 + 8 + BTH_BYTES or struct.unpack("!H", packet[12:14])[0] != ETH_P_IP:
            continue
        ip = packet[14:]
        udp = ip[(ip[0] & 15) * 4:]
        if ip[9] != UDP or len(udp) < 8 + BTH_BYTES or struct.unpack("!H", udp[2:4])[0] != ROCE_PORT:
            continue
        base = udp[8:]
        if int.from_bytes(base[5:8], "big") == 1:
            continue
        key = ("sent" if kind == SENT else "received", ip[1])
        counts[key] += 1
        longest[key] = max(longest[key], len(base))
    for (direction, traffic_class), count in sorted(counts.items()):
        print(direction, traffic_class, longest[(direction, traffic_class)], count)


if __name__ == "__main__":
    main()
