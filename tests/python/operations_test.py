"""Blocking operations, queues and coroutines: what is written is read."""

import array
import asyncio
import gc
import itertools
import random
import sys
import threading
import time
import weakref

import pytest
import remora
from conftest import WAIT_S, create, reads_need_the_server


def test_bytes_round_trip(region):
    assert region.write(4096, b"hello") == 5
    assert region.read(4096, 5) == b"hello"
    assert region.read(4095, 7) == b"\0hello\0"


def test_every_kind_of_buffer(region):
    words = array.array("Q", range(1000))
    region.write(0, words)
    back = array.array("Q", bytes(8000))
    assert region.read_into(back) == 8000
    assert back == words
    whole = bytearray(100)
    region.read_into(memoryview(whole)[10:20], 8)
    assert whole == bytes(10) + words.tobytes()[8:18] + bytes(80)
    region.write(1, memoryview(b"abcdef")[2:4])
    assert region.read(0, 4) == b"\0cd\0"


def test_a_buffer_is_free_after_the_call(region):
    buffer = bytearray(10)
    region.read_into(buffer)
    buffer.append(0)
    region.write(0, buffer)
    buffer.append(0)


def test_numpy_round_trip(region):
    numpy = pytest.importorskip("numpy")
    made = numpy.random.default_rng(1).integers(0, 2**63, size=(64, 512), dtype=numpy.int64)
    region.write(0, made)
    back = numpy.empty_like(made)
    assert region.read_into(back) == made.nbytes
    assert numpy.array_equal(made, back)
    region.read_into(back[3], made[5].nbytes)
    assert numpy.array_equal(back[3], made[1])
    with pytest.raises((ValueError, BufferError)):
        region.read_into(back[:, ::2])


def test_more_than_one_operation_of_a_call(client):
    size = 24 << 20
    region = create(client, "long", size)
    content = random.Random(1).randbytes(1 << 20) * 24
    region.write(0, content)
    assert region.read(0, size) == content
    assert region.read(7, size - 9) == content[7:-2]
    with pytest.raises(remora.OutOfRangeError):
        region.read(4096, size)


def test_many_pairs_in_one_call(region):
    values = [bytes([number % 251]) * (number % 100 + 1) for number in range(2000)]
    assert region.write_many(zip(itertools.count(0, 128), values)) == sum(map(len, values))
    whole = bytearray(2000 * 100)
    parts = [memoryview(whole)[number * 100:][:len(value)] for number, value in enumerate(values)]
    asked = [(number * 128, part) for number, part in enumerate(parts)]
    assert region.read_many_into(asked) == sum(map(len, values))
    assert parts == values
    words = array.array("Q", bytes(16))
    assert region.read_many_into(((128, words), (0, words)), deadline=5.0) == 32
    assert region.read_many_into([]) == 0 and region.write_many(()) == 0
    assert {ring.depth for ring in region._idle} == {4}  # not the queue of 2,048 places
    del asked, parts
    whole.append(0)


def test_calls_with_as_many_pairs_share_a_queue(region):
    buffers = [bytearray(8) for _ in range(33)]
    for count in (33, 1, 20, 33):
        region.read_many_into(enumerate(buffers[:count]))
    region.read(0, 8)
    assert [ring.depth for ring in region._idle] == [64]
    buffers[0].append(0)


def test_a_deep_queue_that_ends_late_is_not_kept(region):
    late = region._check_out(0, 2000)
    region._unfinished.append(late)
    region.read(0, 1)
    assert late.closed and not region._unfinished
    assert [ring.depth for ring in region._idle] == [4]


def test_many_pairs_are_one_operation_of_a_queue(region):
    with region.queue(depth=64) as queue:
        blocks = [bytes([number]) * 16 for number in range(40)]
        queue.write_many(enumerate_by(16, blocks), tag="write")
        assert len(queue) == 1 and not queue.full
        with pytest.raises(remora.WouldBlockError, match="25 pairs .* 24 of 64 left"):
            queue.write_many(enumerate_by(16, blocks[:25]))
        queue.write_many(enumerate_by(16, blocks[:24]))
        assert queue.full
        with pytest.raises(remora.WouldBlockError):
            queue.fetch_add(1024, 1)
        assert all(each.ok for each in queue.wait(2)) and len(queue) == 0
        buffers = [bytearray(16) for _ in blocks]
        ticket = queue.read_many_into(enumerate_by(16, buffers), tag="read")
        queue.fetch_add(1024, 1)
        ended = {each.tag: each for each in queue}
        assert set(ended) == {"read", None} and ended["read"].ticket == ticket
        assert ended["read"].buffer == blocks and not queue.full
        queue.cancel(queue.read_many_into([(0, bytearray(1)), (1, bytearray(1))]))
        assert isinstance(queue.wait()[0].error, remora.CancelledError)


def enumerate_by(step, buffers, start=0):
    """Pairs of the buffers, `step` bytes apart."""
    return zip(itertools.count(start, step), buffers)


def test_zeroes_and_flush(region):
    region.write(0, b"x" * 10000)
    region.write_zeroes(100, 5000)
    region.flush()
    assert region.read(0, 10000) == b"x" * 100 + bytes(5000) + b"x" * 4900


def test_atomics(region):
    assert region.fetch_add(64, 5) == 0
    assert region.fetch_add(64, -1) == 5
    assert region.compare_swap(64, 4, 2**64 - 1) == 4
    assert region.compare_swap(64, 4, 0) == 2**64 - 1
    assert region.fetch_add(64, 1) == 2**64 - 1
    assert region.fetch_add(64, 0) == 0


def test_threads_share_a_region(region):
    def add():
        for _ in range(50):
            region.fetch_add(0, 1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert region.fetch_add(0, 0) == 200


@reads_need_the_server
def test_other_threads_run_during_a_wait(own_server):
    """A call that held the GIL would keep this thread from letting the server go on, and time out."""
    with remora.connect(own_server.uri) as client:
        region = create(client, "waiting")
        own_server.pause()
        read = []
        reader = threading.Thread(target=lambda: read.append(region.read(0, 4, deadline=60)))
        try:
            reader.start()
            reader.join(0.3)
            assert reader.is_alive() and not read
        finally:
            own_server.go_on()
        reader.join()
        assert read == [bytes(4)]


def test_deadlines_have_queues_of_their_own(region):
    for deadline in (None, 5.0, 7.0, 5.0, float("inf")):
        assert region.read(0, 1, deadline=deadline) == b"\0"
    for deadline in range(1, 30):
        region.fetch_add(0, 1, deadline=deadline)
    assert len(region._idle) <= 8


def test_a_deadline_of_zero_is_the_shortest(region):
    """None is the default, and 0 what a program passes whose time is over."""
    for deadline, taken in ((None, 0), (0, 1_000_000), (0.0, 1_000_000), (1e-12, 1_000_000),
                            (0.5, 500_000_000)):
        with region.queue(deadline=deadline) as queue:
            assert queue._ring.deadline_ns == taken
    with pytest.raises(remora.InvalidArgumentError):
        region.queue(deadline=-1e-9)


@reads_need_the_server
def test_a_read_with_a_deadline_of_zero_ends_soon(own_server):
    with remora.connect(own_server.uri, deadline=3600) as client:
        region = create(client, "late")
        own_server.pause()
        try:
            with region.queue(deadline=0) as queue:
                queue.read_into(bytearray(4))
                queue.submit()
                at = queue.next_deadline()
                assert at is None or at < time.monotonic() + 60
                assert isinstance(queue.wait()[0].error, remora.TimedOutError)
        finally:
            own_server.go_on()


def test_iteration_over_completions(region):
    with region.queue(depth=16) as queue:
        left = iter(range(16, 200))
        for number in range(16):
            queue.write(number * 512, bytes([number]) * 512, tag=number)
        assert queue.full and len(queue) == 16
        ended = []
        for completion in queue:
            assert completion.ok and completion.result() == 0
            ended.append(completion.tag)
            following = next(left, None)
            if following is not None:
                queue.write(following * 512, bytes([following]) * 512, tag=following)
        assert sorted(ended) == list(range(200)) and len(queue) == 0
        assert queue.next_deadline() is None
    for number in range(200):
        assert region.read(number * 512, 512) == bytes([number]) * 512


def test_a_loop_that_is_left_loses_no_completion(region):
    with region.queue(depth=16) as queue:
        for number in range(16):
            queue.fetch_add(0, 1, tag=number)
        seen = []
        for left in (15, 14):
            for completion in queue:
                seen.append(completion.tag)
                break
            assert len(queue) == left
        with pytest.raises(KeyboardInterrupt):
            for completion in queue:
                seen.append(completion.tag)
                raise KeyboardInterrupt
        seen += [completion.tag for completion in queue.wait(13)]
        assert sorted(seen) == list(range(16)) and len(queue) == 0


@pytest.mark.parametrize("ending", ["wait", "progress", "iterate"])
def test_each_completion_arrives_once_wherever_a_handler_raises(region, ending):
    """The profiler's function is called where a signal handler may raise, and raises in its stead."""
    calls = 64  # more than there are up to the return

    def take(queue):
        if ending == "wait":
            return queue.wait(4)
        if ending == "progress":
            return queue.progress()
        return [completion for completion in itertools.islice(iter(queue), 1)]

    for at in range(calls):
        with region.queue(depth=4) as queue:
            for number in range(4):
                queue.fetch_add(0, 1, tag=number)
            queue.submit()
            seen = []
            count = 0

            def interrupt(frame, event, _):
                nonlocal count
                if event == "c_return" and frame.f_code.co_filename.endswith("_ring.py"):
                    count += 1
                    if count == at + 1:
                        sys.setprofile(None)
                        raise KeyboardInterrupt

            sys.setprofile(interrupt)
            try:
                seen += take(queue)
            except KeyboardInterrupt:
                pass
            finally:
                sys.setprofile(None)
            seen += queue.wait(4)
            assert sorted(each.tag for each in seen) == list(range(4)), at
            assert len(queue) == 0


def test_completions_carry_buffer_value_and_error(region):
    with region.queue(depth=8) as queue:
        buffer = bytearray(16)
        queue.read_into(buffer, 0, tag="read")
        queue.fetch_add(8, 3, tag="add")
        queue.compare_swap(16, 0, 1, tag="swap")
        queue.write_zeroes(32, 8, tag="zeroes")
        queue.flush(tag="flush")
        queue.read_into(buffer, region.size, tag="outside")
        ended = {each.tag: each for each in queue.wait(6)}
        assert len(ended) == 6
        assert ended["read"].buffer is buffer
        assert ended["add"].old_value == 0 and ended["swap"].result() == 0
        assert ended["zeroes"].buffer is None and ended["flush"].ok
        outside = ended["outside"]
        assert not outside.ok and outside.error.offset == region.size
        with pytest.raises(remora.OutOfRangeError):
            outside.result()


def test_only_atomics_have_a_value(region):
    with region.queue(depth=1) as queue:
        for take, value in ((lambda: queue.fetch_add(0, 5), 0), (lambda: queue.fetch_add(0, 5), 5),
                            (lambda: queue.read_into(bytearray(8)), 0),
                            (lambda: queue.compare_swap(0, 10, 11), 10), (lambda: queue.flush(), 0),
                            (lambda: queue.write_zeroes(0, 8), 0)):
            take()
            (ended,) = queue.wait()
            assert ended.result() == ended.old_value == value


def test_barrier_orders(region):
    with region.queue(depth=8) as queue:
        for number in range(3):
            queue.write(0, bytes([number]) * 8, tag="write")
            queue.barrier()
            queue.read_into(bytearray(8), 0, tag=number)
            queue.barrier()
        read = {each.tag: each.buffer for each in queue if each.tag != "write"}
    assert read == {number: bytes([number]) * 8 for number in range(3)}


def test_cancel_before_submit(region):
    with region.queue(depth=4) as queue:
        ticket = queue.write(0, b"never")
        queue.cancel(ticket)
        ended, = queue.wait()
        assert isinstance(ended.error, remora.CancelledError)
        with pytest.raises(remora.NotFoundError):
            queue.cancel(ticket)
    assert region.read(0, 5) == bytes(5)


def test_select_another_region(client, region):
    other = create(client, "other")
    with region.queue(depth=4) as queue:
        queue.write(0, b"one")
        queue.select(other)
        queue.write(0, b"two")
        assert all(each.ok for each in queue.wait(2))
    assert region.read(0, 3) == b"one" and other.read(0, 3) == b"two"


def test_a_dropped_queue_waits_and_releases(region):
    content = bytes(range(256)) * 256
    region.write(0, content)
    buffers = [bytearray(len(content)) for _ in range(8)]
    queue = region.queue(depth=8)
    for buffer in buffers:
        queue.read_into(buffer)
    queue.submit()
    gone = weakref.ref(queue)
    del queue
    gc.collect()
    assert gone() is None
    for buffer in buffers:
        assert buffer == content
        buffer.append(0)


def test_the_queue_holds_buffers_that_nothing_else_does(region):
    numpy = pytest.importorskip("numpy")
    with region.queue(depth=32) as queue:
        for number in range(32):
            queue.write(number * 4096, numpy.full(4096, number, dtype=numpy.uint8))
        gc.collect()
        assert all(each.ok for each in queue)
    for number in range(32):
        assert region.read(number * 4096, 4096) == bytes([number]) * 4096


def test_sixty_four_tasks(region):
    async def task(queue, number):
        block = bytes([number]) * 4096
        for _ in range(4):
            await queue.write(number * 4096, block)
            assert await queue.read(number * 4096, 4096) == block
            await queue.fetch_add(64 * 4096, 1)
        return number

    async def run():
        async with region.async_queue(depth=16) as queue:
            done = await asyncio.gather(*(task(queue, number) for number in range(64)))
            assert done == list(range(64)) and len(queue) == 0
            assert await queue.compare_swap(64 * 4096, 256, 0) == 256
            await queue.write_zeroes(0, 4096)
            await queue.flush()
            assert await queue.read(0, 4097) == bytes(4096) + b"\1"

    threads = threading.active_count()
    asyncio.run(run())
    assert threading.active_count() == threads


def test_a_long_read_of_a_coroutine(client):
    size = 20 << 20
    region = create(client, "async-long", size)
    content = random.Random(2).randbytes(1 << 20) * 20
    region.write(0, content)

    async def run():
        async with region.async_queue() as queue:
            buffer = bytearray(size - 3)
            assert await queue.read_into(buffer, 3) == size - 3
            assert buffer == content[3:]

    asyncio.run(run())


def test_tasks_with_many_pairs_share_the_places_of_a_queue(region):
    async def task(queue, number):
        blocks = [bytes([number, index]) * 8 for index in range(number + 1)]
        at = number * 1024
        assert await queue.write_many(enumerate_by(16, blocks, at)) == 16 * len(blocks)
        assert await queue.fetch_add(32 * 1024, 1) >= 0
        buffers = [bytearray(16) for _ in blocks]
        await queue.read_many_into(enumerate_by(16, buffers, at))
        assert buffers == blocks

    async def run():
        async with region.async_queue(depth=16) as queue:
            await asyncio.wait_for(asyncio.gather(*(task(queue, n) for n in range(16))), WAIT_S)
            assert await queue.fetch_add(32 * 1024, 0) == 16
            assert await queue.write_many([]) == 0
            with pytest.raises(remora.WouldBlockError, match="17 pairs"):
                await queue.write_many(enumerate_by(16, [b"x"] * 17))
            good = bytearray(4)
            with pytest.raises(remora.OutOfRangeError) as caught:
                await queue.read_many_into([(0, good), (region.size, bytearray(1))])
            assert set(caught.value.failed_pairs) == {1} and good == bytes(4)
            # All places are free again, and a task that gives up takes none with it.
            waiting = asyncio.create_task(queue.write_many(enumerate_by(16, [b"y"] * 16)))
            also = asyncio.create_task(queue.write_many(enumerate_by(16, [b"z"] * 16)))
            await asyncio.sleep(0)
            also.cancel()
            assert await waiting == 16
            assert await queue.write_many(enumerate_by(16, [b"w"] * 16)) == 16
            assert isinstance((await asyncio.gather(also, return_exceptions=True))[0],
                              asyncio.CancelledError)
        tasks = []
        queue = region.async_queue(depth=4)
        for _ in range(6):
            tasks.append(asyncio.create_task(queue.write_many(enumerate_by(16, [b"v"] * 3))))
        await asyncio.sleep(0)
        queue.close()
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT_S)
        assert all(each == 3 or isinstance(each, remora.ClosedError) for each in ended)
        assert isinstance(ended[-1], remora.ClosedError)

    asyncio.run(run())


def test_errors_and_cancellation_of_tasks(region):
    async def run():
        async with region.async_queue(depth=2) as queue:
            with pytest.raises(remora.OutOfRangeError):
                await queue.read(region.size, 1)
            with pytest.raises(remora.MisalignedError):
                await queue.fetch_add(1, 1)
            tasks = [asyncio.create_task(queue.read(0, 4096)) for _ in range(50)]
            await asyncio.sleep(0)
            for each in tasks[::2]:
                each.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(each == bytes(4096) for each in ended[1::2])
            assert await queue.read(0, 4) == bytes(4)
        with pytest.raises(remora.ClosedError):
            await queue.read(0, 4)

    asyncio.run(run())


@pytest.mark.parametrize("taken", [True, False])
def test_a_task_that_a_handler_interrupts(region, taken):
    """KeyboardInterrupt when the queue has taken an operation, or before: it has its place as long as
    it is in the queue, not longer."""
    async def run():
        queue = region.async_queue(depth=1)
        take = queue._ring.take

        def interrupted(*arguments, **options):
            if taken:
                take(*arguments, **options)
            raise KeyboardInterrupt

        queue._ring.take = interrupted
        with pytest.raises(KeyboardInterrupt):
            await queue.write(0, b"last")
        queue._ring.take = take
        if taken:
            assert len(queue) == 1
            await asyncio.wait_for(queue.aclose(), 60)
        else:
            blocks = asyncio.gather(*(queue.read(0, 4) for _ in range(8)))
            assert await asyncio.wait_for(blocks, 60) == [bytes(4)] * 8
            await queue.aclose()

    asyncio.run(run())
    assert region.read(0, 4) == (b"last" if taken else bytes(4))


def test_tasks_go_on_after_a_handler_has_interrupted_one(region):
    async def run():
        async with region.async_queue(depth=1) as queue:
            take = queue._ring.take

            def interrupted(*arguments, **options):
                take(*arguments, **options)
                raise KeyboardInterrupt

            queue._ring.take = interrupted
            with pytest.raises(KeyboardInterrupt):
                await queue.write(0, b"last")
            queue._ring.take = take
            blocks = asyncio.gather(*(queue.read(0, 4) for _ in range(8)))
            assert await asyncio.wait_for(blocks, 60) == [b"last"] * 8

    asyncio.run(run())


def test_close_ends_the_wait_of_tasks(region):
    async def run():
        queue = region.async_queue(depth=2)
        tasks = [asyncio.create_task(queue.read(0, 4)) for _ in range(20)]
        await asyncio.sleep(0)
        queue.close()
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert all(isinstance(each, remora.ClosedError) for each in ended[2:])
        await queue.aclose()

    asyncio.run(run())


def test_an_async_queue_that_is_left_open(region):
    async def run():
        queue = region.async_queue()
        await queue.write(0, b"left")

    asyncio.run(run())
    gc.collect()
    assert region.read(0, 4) == b"left"


def test_control_requests(client):
    name = create(client, "listed", 1 << 16).name
    info = client.stat(name)
    assert (info.name, info.size, info.block_size) == (name, 1 << 16, 4096)
    assert name in [each.name for each in client.regions()]
    client.remove_region(name, remora.Removal.NOW)
    assert name not in [each.name for each in client.regions()]
    assert client.transport in client.server.transports
    assert client.connected and client.transport.name.lower() in str(client.status()).lower()
    assert "remora_client_" in client.metrics()


def session_of(client, name):
    found, = (each for each in client.sessions() if each.client_name == name)
    return found


def test_administration(own_server):
    with remora.connect(own_server.uri, client_name="admin") as admin, \
            remora.connect(own_server.uri, client_name="other") as other:
        assert 0 < admin.ping() < 60
        region = create(other, "administered")
        listed = session_of(admin, "other")
        assert (listed.transport, listed.open_regions) == (other.transport, 1)
        assert listed.peer and listed.age >= 0
        assert not (listed.own or listed.lost or listed.client_proven)
        own = session_of(admin, "admin")
        assert own.own and [each.id for each in admin.sessions()] == sorted([own.id, listed.id])

        assert not admin.drain_state().draining
        state = admin.drain()
        assert state.draining and state.remaining > 0
        assert (state.sessions, state.lost_sessions, state.open_regions) == (1, 0, 1)
        with pytest.raises(remora.BusyError) as refused:
            other.open_region(region.name)
        assert refused.value.reason == remora.Reason.DRAINING
        region.write(0, b"open")
        assert admin.end_drain() == remora.DrainState(False, 0.0, 1, 0, 1)
        other.open_region(region.name).close()

        for wrong in (0, own.id ^ 1):
            with pytest.raises(remora.NotFoundError):
                admin.end_session(wrong)
        with pytest.raises(remora.InvalidArgumentError):
            admin.end_session(own.id)
        with pytest.raises(OverflowError):
            admin.end_session(-1)
        admin.end_session(listed.id)
        assert [each.client_name for each in admin.sessions()] == ["admin"]
        until = time.monotonic() + WAIT_S
        while other.connected:  # over shm the client can write until it has learned of the end
            assert time.monotonic() < until
            time.sleep(0.01)
        with pytest.raises(remora.Error):
            region.write(0, b"gone")
    with pytest.raises(remora.ClosedError):
        admin.ping()


def test_region_properties(region):
    assert (region.size, region.rights) == (1 << 20, remora.Rights.ALL)
    assert region.connected and region.transport_reason
    assert region.info.name == region.name
    again, same = region.reopen()
    assert same and again.read(0, 1) == b"\0"
