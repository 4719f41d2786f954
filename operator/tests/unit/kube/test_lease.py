"""A Lease has at most one holder at a time, also during failures of the API server and of holders."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from odradek_operator.kube.api.object_kinds import Kind, Object, Reference
from odradek_operator.kube.lease import RETRY_SECONDS, Lease, Timing
from odradek_operator_testkit.api import KubernetesApi
from odradek_operator_testkit.client import MemoryClient
from odradek_testkit.loop import run_virtual

DURATION_SECONDS = Timing().duration
MARGIN_SECONDS = Timing().margin
RENEW_SECONDS = Timing().renew
WHICH = Reference(kind=Kind.LEASE, namespace="odradek", name="operator")


def lease(api: KubernetesApi, identity: str) -> Lease:
    return Lease(MemoryClient(api), WHICH, identity)


async def held(client: MemoryClient) -> Object:
    found = await client.get(Kind.LEASE, "odradek", "operator")
    assert found is not None
    return found["spec"]


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_the_second_waits_until_the_first_releases_the_lease() -> None:
    async def run() -> None:
        api, now = KubernetesApi(), asyncio.get_running_loop().time
        first, second = lease(api, "a"), lease(api, "b")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(20 * DURATION_SECONDS)
        assert not waiting.done() and not keeping.done()
        await stop(keeping)
        released = now()
        await first.release()
        await waiting
        assert now() - released <= RETRY_SECONDS
        spec = await held(MemoryClient(api))
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 2)

    run_virtual(run())


def test_a_dead_holder_is_replaced_after_the_duration() -> None:
    async def run() -> None:
        api, now = KubernetesApi(), asyncio.get_running_loop().time
        await lease(api, "a").acquire()
        began = now()
        await lease(api, "b").acquire()
        # The candidate measures the time on its own clock since it first saw this version. It ignores the times of "a".
        assert DURATION_SECONDS < now() - began <= DURATION_SECONDS + 2 * RETRY_SECONDS

    run_virtual(run())


def test_a_holder_that_restarts_under_its_name_does_not_wait() -> None:
    async def run() -> None:
        api, now = KubernetesApi(), asyncio.get_running_loop().time
        await lease(api, "a").acquire()
        began = now()
        await lease(api, "a").acquire()
        assert now() == began

    run_virtual(run())


def test_two_that_start_at_once_leave_one_holder() -> None:
    async def run() -> None:
        api = KubernetesApi()
        tasks = [asyncio.create_task(lease(api, name).acquire()) for name in "abc"]
        await asyncio.sleep(RETRY_SECONDS)
        assert sum(task.done() for task in tasks) == 1
        for task in tasks:
            await stop(task)

    run_virtual(run())


def test_a_holder_whose_lease_another_acquired_stops() -> None:
    async def run() -> None:
        api, now = KubernetesApi(), asyncio.get_running_loop().time
        client, mine = MemoryClient(api), lease(api, "a")
        await mine.acquire()
        body = await client.get(Kind.LEASE, "odradek", "operator")
        assert body is not None
        await client.replace(body | {"spec": body["spec"] | {"holderIdentity": "thief"}})
        began = now()
        await mine.keep()
        assert now() - began <= RENEW_SECONDS + 1
        await mine.release()
        assert (await held(client))["holderIdentity"] == "thief"

    run_virtual(run())


def test_a_holder_that_cannot_renew_stops_before_another_may_start() -> None:
    async def run(fault: str, value: object) -> None:
        api, now = KubernetesApi(), asyncio.get_running_loop().time
        mine = lease(api, "a")
        await mine.acquire()
        began = now()
        other = lease(api, "b")
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await other.acquire()
        setattr(api.faults, fault, value)
        assert DURATION_SECONDS - MARGIN_SECONDS - 1 < mine.remaining() <= DURATION_SECONDS - MARGIN_SECONDS
        await mine.keep()
        assert DURATION_SECONDS - MARGIN_SECONDS <= now() - began < DURATION_SECONDS
        assert mine.remaining() <= 0

    for fault, value in (("refuses", True), ("status", 500), ("delay_seconds", 60.0)):
        run_virtual(run(fault, value))


def test_a_short_outage_is_survived() -> None:
    async def run() -> None:
        api = KubernetesApi()
        mine = lease(api, "a")
        await mine.acquire()
        keeping = asyncio.create_task(mine.keep())
        for _ in range(5):
            api.faults.refuses = True
            await asyncio.sleep(DURATION_SECONDS / 3)
            api.faults.refuses = False
            await asyncio.sleep(DURATION_SECONDS / 2)
        assert not keeping.done()
        await stop(keeping)

    run_virtual(run())


def test_acquiring_waits_while_the_api_server_does_not_answer() -> None:
    async def run() -> None:
        api = KubernetesApi()
        api.faults.refuses = True
        waiting = asyncio.create_task(lease(api, "a").acquire())
        await asyncio.sleep(100)
        assert not waiting.done()
        api.faults.refuses = False
        await waiting

    run_virtual(run())


def test_a_renewal_is_one_request() -> None:
    async def run() -> None:
        api = KubernetesApi()
        mine = lease(api, "a")
        await mine.acquire()
        keeping = asyncio.create_task(mine.keep())
        api.writes.clear()
        # At this point, a renewal that reads the Lease fails.
        api.faults.concerns = lambda asked: not asked.is_write
        api.faults.status = 500
        await asyncio.sleep(10 * DURATION_SECONDS)
        assert not keeping.done()
        assert len(api.writes) == 10 * DURATION_SECONDS / RENEW_SECONDS - 0.5
        await stop(keeping)

    run_virtual(run())


def test_the_right_to_act_counts_from_before_the_renewal_was_sent() -> None:
    async def run() -> None:
        api = KubernetesApi()
        mine = lease(api, "a")
        api.faults.delay_seconds = 2.0
        await mine.acquire()
        assert mine.remaining() <= DURATION_SECONDS - MARGIN_SECONDS - 4.0, "a read and a write, two seconds each"

    run_virtual(run())


def test_a_lease_in_a_deleted_namespace_cannot_be_held() -> None:
    async def run() -> None:
        api = KubernetesApi()
        api.faults.status = 404
        mine = lease(api, "a")
        waiting = asyncio.create_task(mine.acquire())
        await asyncio.sleep(DURATION_SECONDS)
        assert mine.closing and mine.remaining() <= 0 and not waiting.done()
        assert mine.obstacle == "does not exist or is being deleted"
        api.faults.status = 0
        await waiting
        assert not mine.closing and mine.remaining() > 0
        keeping = asyncio.create_task(mine.keep())
        api.store.delete(api.place(Kind.LEASE.path("odradek")).key("operator"), {})
        api.faults.status = 404
        await keeping
        assert mine.closing and mine.remaining() <= 0

    run_virtual(run())


def test_a_deleted_lease_is_acquired_again() -> None:
    async def run() -> None:
        api = KubernetesApi()
        mine = lease(api, "a")
        await mine.acquire()
        keeping = asyncio.create_task(mine.keep())
        api.store.delete(api.place(Kind.LEASE.path("odradek")).key("operator"), {})
        await asyncio.sleep(DURATION_SECONDS)
        assert not keeping.done()
        assert (await held(MemoryClient(api)))["holderIdentity"] == "a"
        await stop(keeping)

    run_virtual(run())
