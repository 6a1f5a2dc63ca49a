#!/usr/bin/python3
"""A volume in Python: fills it by coroutines, reads it back in a queue, counts.

usage: volume.py remora+etcd://HOST/CLUSTER/VOLUME
       volume.py remora+file:///PATH/NAME.json/VOLUME
"""

import asyncio
import sys

import remora

PAGE = 4096


def page_of(index):
    return index.to_bytes(8, "little") * (PAGE // 8)


async def fill(volume, pages):
    async with volume.async_queue(depth=64) as queue:  # on all servers at once
        await asyncio.gather(*(queue.write(n * PAGE, page_of(n)) for n in range(1, pages)))


def check(volume, pages):
    right = 0
    with volume.queue(depth=64) as queue:
        next_page = 1
        while next_page < pages or len(queue):
            while next_page < pages and not queue.full:
                queue.read_into(bytearray(PAGE), next_page * PAGE, tag=next_page)
                next_page += 1
            for completion in queue.wait(1):
                completion.result()  # raises the error of that read
                right += completion.buffer == page_of(completion.tag)
    return right


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with remora.open_volume(sys.argv[1]) as volume:
        pages = min(volume.size // PAGE, 1024)
        run = volume.fetch_add(0, 1) + 1  # page 0 has the counter
        asyncio.run(fill(volume, pages))
        print(f"{check(volume, pages)} pages are as written, on "
              f"{len(volume.groups)} groups; this is run {run}")


if __name__ == "__main__":
    main()
