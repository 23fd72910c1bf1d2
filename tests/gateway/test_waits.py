"""Waits: bounded, and ended at the shutdown or when their client leaves."""

from __future__ import annotations

import asyncio

import pytest
from support.waiting import until

from robots_guard.gateway.waits import Abandoned, NoRoomToWait, ShuttingDown, Waits


@pytest.fixture
async def pending():
    """Three coroutines, and the futures they wait for."""
    futures = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def wait(number):
        return await futures[number]

    return [wait(number) for number in range(3)], futures


async def test_only_the_waits_of_the_client_that_leaves_are_ended(pending):
    coroutines, futures = pending
    waits = Waits()
    tasks = [
        asyncio.ensure_future(waits.run(each, "10.0.0.1", owner))
        for each, owner in zip(
            coroutines, (["stays"], ["leaves"], ["other", "leaves"]), strict=True
        )
    ]
    await until(lambda: len(waits) == 3)

    waits.abandon("leaves")
    ends = await asyncio.gather(*tasks[1:], return_exceptions=True)
    futures[0].set_result("its turn")

    assert [type(each) for each in ends] == [Abandoned, Abandoned]
    assert await tasks[0] == "its turn"
    assert len(waits) == 0
    assert [each.cancelled() for each in futures] == [False, True, True]


async def test_a_task_whose_wait_was_ended_goes_on(pending):
    (coroutine, *others), _ = pending
    for each in others:
        each.close()
    waits = Waits()

    async def hook():
        with pytest.raises(Abandoned):
            await waits.run(coroutine, "10.0.0.1", ["leaves"])
        await asyncio.sleep(0)
        return "the hook ended"

    task = asyncio.ensure_future(hook())
    await until(lambda: len(waits))
    waits.abandon("leaves")
    waits.abandon("leaves")
    waits.end()

    assert await task == "the hook ended"


async def test_the_shutdown_ends_all_waits_and_no_other_may_begin(pending):
    (first, second, third), _ = pending
    third.close()
    waits = Waits()
    task = asyncio.ensure_future(waits.run(first, "10.0.0.1"))
    await until(lambda: len(waits))

    waits.end()

    with pytest.raises(ShuttingDown):
        await task
    with pytest.raises(ShuttingDown):
        await waits.run(second, "10.0.0.1")


async def test_the_number_of_waits_is_bounded(pending):
    (first, second, third), futures = pending
    waits = Waits(1)
    task = asyncio.ensure_future(waits.run(first, "10.0.0.1"))
    await until(lambda: len(waits))

    with pytest.raises(NoRoomToWait):
        await waits.run(second, "10.0.0.1")
    futures[0].set_result(1)
    assert await task == 1
    futures[2].set_result(3)
    assert await waits.run(third, "10.0.0.1") == 3


async def test_a_wait_raises_the_errors_of_what_it_waits_for():
    waits = Waits()

    async def fails():
        await asyncio.sleep(0)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        await waits.run(fails(), "10.0.0.1")
    assert len(waits) == 0


async def test_a_cancelled_task_is_cancelled(pending):
    (coroutine, *others), futures = pending
    for each in others:
        each.close()
    waits = Waits()
    task = asyncio.ensure_future(waits.run(coroutine, "10.0.0.1"))
    await until(lambda: len(waits))

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert futures[0].cancelled()
    assert len(waits) == 0


async def test_a_client_gets_as_many_places_as_remain_for_others():
    waits, ends = Waits(8), asyncio.get_running_loop().create_future()
    tasks: list[asyncio.Task[None]] = []

    async def fill(client):
        while waits.has_room(client):
            tasks.append(asyncio.ensure_future(waits.run(asyncio.shield(ends), client)))
            await until(lambda: len(waits) == len(tasks))

    for client, places in (("10.0.0.1", 4), ("10.0.0.2", 6), ("10.0.0.3", 7), ("10.0.0.4", 8)):
        await fill(client)
        assert len(waits) == places

    assert not waits.has_room("10.0.0.5")
    ends.set_result(None)
    await asyncio.gather(*tasks)
    assert len(waits) == 0
    assert waits.has_room("10.0.0.1")
