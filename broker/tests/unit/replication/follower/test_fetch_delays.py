"""Errors of the leader and of the local log delay or stop one partition of a fetch loop, and only that one."""

from __future__ import annotations

import logging

import pytest

from odradek.base.errors import StorageError
from odradek_testkit.fetching import BACKOFF_MS, TP0, TP1, Bench, Play, batch, running


@pytest.mark.parametrize("code", [3, 6, 75, 100])
def test_a_leader_without_its_role_is_retried_soon_and_then_less_often(play: Play, code: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.errors[TP0] = code
        await bench.clock.sleep_ms(10 * BACKOFF_MS)
        asked = len(bench.leader.requests)
        assert 10 < asked < 17, "delays of 20, 40, ... 640 ms, then of a second, and 100 ms for each answer"
        bench.leader.errors.clear()
        await bench.clock.sleep_ms(BACKOFF_MS + 200)
        bench.leader.errors[TP0] = code
        before = len(bench.leader.requests)
        await bench.clock.sleep_ms(400)
        assert len(bench.leader.requests) >= before + 2, "it was leader in between: the delays are short again"

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_what_rests_for_a_moment_does_not_wait_for_news_of_the_others(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.errors[TP0] = 6
        await bench.clock.sleep_ms(150)
        waits = [request.max_wait_ms for request in bench.leader.requests]
        assert waits == [500, 20]

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_a_refusal_is_logged_once_and_when_it_ends(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    def warnings() -> list[object]:
        lines = [one for one in caplog.records if one.name == "odradek.replication.follower.fetch_loop"]
        return [one.args for one in lines if one.levelno >= logging.INFO]

    async def scenario(bench: Bench) -> None:
        bench.leader.errors = {TP0: 75, TP1: 75}
        await bench.clock.sleep_ms(5 * BACKOFF_MS)
        assert len(bench.leader.requests) > 5
        assert warnings() == [(1, 75, 2)]
        bench.leader.errors.clear()
        await bench.clock.sleep_ms(BACKOFF_MS + 200)
        assert warnings() == [(1, 75, 2), (1, 75)]
        bench.leader.errors[TP0] = 75
        await bench.clock.sleep_ms(150)
        bench.fetcher.unfollow(TP0)
        await bench.clock.sleep_ms(200)
        assert warnings()[2:] == [(1, 75, 1), (1, 75)]

    async def start(bench: Bench) -> None:
        caplog.set_level(logging.DEBUG)
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


@pytest.mark.parametrize("code", [9, 56, 103])
def test_an_error_delays_that_partition_alone(play: Play, code: int) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.errors[TP0] = code
        bench.leader.batches[TP0] = bench.leader.batches[TP1] = [batch(0, b"a")]
        await bench.clock.sleep_ms(150)
        bench.leader.errors.clear()
        await bench.clock.sleep_ms(BACKOFF_MS - 200)
        assert (bench.end(TP0), bench.end(TP1)) == (0, 1)
        await bench.clock.sleep_ms(400)
        assert bench.end(TP0) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_a_fenced_epoch_waits_for_the_next_leader_epoch(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.errors[TP0] = 74
        await bench.clock.sleep_ms(10 * BACKOFF_MS)
        assert len(bench.leader.requests) == 1
        bench.leader.errors.clear()
        bench.leader.batches[TP0] = [batch(0, b"a")]
        bench.reign(bench.partitions[TP0], 2)
        bench.follow(TP0)
        await bench.clock.sleep_ms(150)
        assert bench.end(TP0) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_a_corrupt_batch_delays_only_its_partition_and_is_fetched_again(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        broken = bytearray(batch(0, b"value"))
        broken[-1] ^= 1
        bench.leader.batches[TP0], bench.leader.batches[TP1] = [bytes(broken)], [batch(0, b"a")]
        await bench.clock.sleep_ms(150)
        assert (bench.end(TP0), bench.end(TP1)) == (0, 1)
        bench.leader.batches[TP0] = [batch(0, b"value")]
        await bench.clock.sleep_ms(BACKOFF_MS + 200)
        assert bench.end(TP0) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_a_failed_log_goes_offline_and_other_logs_continue(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = bench.leader.batches[TP1] = [batch(0, b"a")]
        bench.partitions[TP0].log.take_offline(StorageError("disk gone"))
        await bench.clock.sleep_ms(150)
        assert bench.offline == [TP0]
        assert bench.end(TP1) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


@pytest.mark.parametrize(("start_offset", "length", "expected"), [(5, 1, (5, 6)), (0, 1, (0, 1))])
def test_out_of_range_finds_the_leaders_offsets(
    play: Play, start_offset: int, length: int, expected: tuple[int, int]
) -> None:
    async def scenario(bench: Bench) -> None:
        log = bench.partitions[TP0].log
        for offset in range(3):
            log.append_as_follower(memoryview(batch(offset, b"old", epoch=1)))
        bench.leader.batches[TP0] = [batch(start_offset, *[b"x"] * length)]
        bench.leader.starts[TP0] = start_offset
        bench.leader.errors[TP0] = 1
        await bench.clock.sleep_ms(150)
        bench.leader.errors.clear()
        await bench.clock.sleep_ms(200)
        assert (log.log_start_offset, log.log_end_offset) == expected

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_an_inexplicable_out_of_range_does_not_spin(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = [batch(0, b"a")]
        bench.partitions[TP0].log.append_as_follower(memoryview(batch(0, b"a")))
        bench.leader.errors[TP0] = 1
        await bench.clock.sleep_ms(5 * BACKOFF_MS)
        assert len(bench.leader.requests) <= 6

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)
