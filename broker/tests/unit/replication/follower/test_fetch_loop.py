"""The fetch loop with a scripted leader: requests, appended records, and its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from odradek.replication.sessions import follower_session as leader_session
from odradek_testkit.fetching import BACKOFF_MS, TP0, TP1, Bench, Play, batch, running


def test_copies_batches_unchanged_and_adopts_the_leaders_offsets(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = [batch(0, b"a", b"b"), batch(2, b"c", epoch=2)]
        await bench.clock.sleep_ms(150)
        log = bench.partitions[TP0].log
        assert log.read(0, max_bytes=1 << 20).load() == b"".join(bench.leader.batches[TP0])
        assert (log.log_end_offset, log.high_watermark, log.latest_epoch) == (3, 3, 2)
        assert bench.changes == [TP0]
        assert bench.stats.replication_bytes_in == sum(map(len, bench.leader.batches[TP0]))
        bench.leader.starts[TP0] = 2
        await bench.clock.sleep_ms(250)
        assert log.log_start_offset == 2

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_a_batch_with_a_wrong_crc_is_counted(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = [batch(0, b"a")[:-1] + b"?"]
        await bench.clock.sleep_ms(150)
        assert bench.stats.of(TP0.topic).invalid_crc == 1
        assert bench.end(TP0) == 0

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_sends_only_changes(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = [batch(0, b"a")]
        await bench.clock.sleep_ms(350)
        first, second, third = bench.leader.requests[:3]
        assert (first.session_epoch, len(first.entries), first.replica_id) == (0, 2, 2)
        assert (second.session_id, second.session_epoch) == (9, 1)
        assert [(one.partition, one.fetch_offset, one.last_fetched_epoch) for one in second.entries] == [(0, 1, 1)]
        assert (third.session_epoch, third.entries) == (2, [])

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_what_one_request_cannot_add_is_added_at_once_by_the_next(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_session, "MOST_ADDED", 1)

    async def scenario(bench: Bench) -> None:
        bench.leader.batches[TP0] = bench.leader.batches[TP1] = [batch(0, b"a")]
        await bench.clock.sleep_ms(350)
        first, second, third = bench.leader.requests[:3]
        assert [(one.partition, one.fetch_offset) for one in first.entries] == [(0, 0)]
        assert [(one.partition, one.fetch_offset) for one in second.entries] == [(0, 1), (1, 0)]
        assert (first.max_wait_ms, second.max_wait_ms, third.max_wait_ms) == (0, 500, 500)
        assert (bench.end(TP0), bench.end(TP1)) == (1, 1)

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_partitions_come_and_go_while_it_runs(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.clock.sleep_ms(150)
        bench.follow(TP1)
        bench.fetcher.unfollow(TP0)
        bench.leader.batches[TP0] = bench.leader.batches[TP1] = [batch(0, b"a")]
        await bench.clock.sleep_ms(250)
        assert [one.partition for one in bench.leader.requests[2].forgotten] == [0]
        assert (bench.end(TP0), bench.end(TP1)) == (0, 1)

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_a_partition_that_waits_for_a_flush_leaves_the_fetches_and_returns(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        log = bench.partitions[TP0].log
        log.update_config(replace(log.config, flush_messages=1))
        bench.leader.batches[TP0] = [batch(0, b"a")]
        await bench.clock.sleep_ms(250)
        first, second, third = bench.leader.requests[:3]
        assert (len(first.entries), first.max_wait_ms) == (2, 500)
        assert ([gone.partition for gone in second.forgotten], second.max_wait_ms) == ([0], 10)
        assert (third.entries, third.forgotten, third.max_wait_ms) == ([], [], 10)
        bench.fetcher.flushed(TP0)
        await bench.clock.sleep_ms(100)
        assert [(one.partition, one.fetch_offset) for one in bench.leader.requests[3].entries] == [(0, 1)]
        assert bench.leader.requests[3].max_wait_ms == 500

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_if_all_partitions_wait_for_a_flush_the_loop_waits_for_it(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        log = bench.partitions[TP0].log
        log.update_config(replace(log.config, flush_messages=1))
        bench.leader.batches[TP0] = [batch(0, b"a")]
        await bench.clock.sleep_ms(5000)
        assert len(bench.leader.requests) == 1
        bench.fetcher.flushed(TP0)
        await bench.clock.sleep_ms(50)
        assert [(one.partition, one.fetch_offset) for one in bench.leader.requests[1].entries] == [(0, 1)]

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_what_comes_after_a_change_of_the_reign_is_dropped(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.gate.clear()
        bench.leader.batches[TP0] = bench.leader.batches[TP1] = [batch(0, b"a")]
        await bench.clock.sleep_ms(200)
        bench.reign(bench.partitions[TP0], 2)  # not yet followed again
        bench.leader.gate.set()
        await bench.clock.sleep_ms(10)
        assert (bench.end(TP0), bench.end(TP1)) == (0, 1)
        bench.leader.gate.clear()
        await bench.clock.sleep_ms(200)
        bench.follow(TP0)
        bench.leader.gate.set()
        await bench.clock.sleep_ms(10)
        assert bench.end(TP0) == 0  # requested in the old leader epoch
        await bench.clock.sleep_ms(250)
        assert bench.end(TP0) == 1
        forgets = next(one for one in bench.leader.requests if one.forgotten)
        assert ([gone.partition for gone in forgets.forgotten], forgets.max_wait_ms) == ([0], 0)
        assert bench.leader.requests[-1].session_epoch > 0

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_a_diverging_epoch_truncates_the_log(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        log = bench.partitions[TP0].log
        for offset in range(4):
            log.append_as_follower(memoryview(batch(offset, b"old", epoch=1)))
        bench.leader.batches[TP0] = [batch(offset, b"old", epoch=1) for offset in range(2)] + [
            batch(2, b"new", epoch=3)
        ]
        bench.leader.diverging[TP0] = (1, 2)
        await bench.clock.sleep_ms(150)
        assert log.log_end_offset == 2
        await bench.clock.sleep_ms(100)
        assert log.read(0, max_bytes=1 << 20).load() == b"".join(bench.leader.batches[TP0])

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


@pytest.mark.parametrize(("code", "session_id"), [(70, 0), (71, 9), (106, 9)])
def test_a_lost_session_is_begun_anew(play: Play, code: int, session_id: int) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.clock.sleep_ms(150)
        bench.leader.session_errors.append(code)
        await bench.clock.sleep_ms(200)
        full = bench.leader.requests[2]
        assert (full.session_id, full.session_epoch, len(full.entries)) == (session_id, 0, 2)
        assert bench.leader.connects == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0, TP1)
        await running(scenario)(bench)

    play(start)


def test_a_lost_connection_is_opened_again_after_a_delay(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.fail_fetches = 1
        bench.leader.batches[TP0] = [batch(0, b"a")]
        await bench.clock.sleep_ms(BACKOFF_MS)
        assert bench.leader.connects == 1
        await bench.clock.sleep_ms(300)
        assert bench.leader.connects == 2
        assert bench.leader.requests[1].session_epoch == 0
        assert bench.end(TP0) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


def test_an_unreachable_leader_is_tried_again(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.leader.refuse_connections = True
        bench.leader.batches[TP0] = [batch(0, b"a")]
        await bench.clock.sleep_ms(3 * BACKOFF_MS)
        bench.leader.refuse_connections = False
        await bench.clock.sleep_ms(BACKOFF_MS + 200)
        assert bench.end(TP0) == 1

    async def start(bench: Bench) -> None:
        bench.follow(TP0)
        await running(scenario)(bench)

    play(start)


@pytest.mark.parametrize("after_ms", [0, 0.5, 1.5, 50, 101.5, 150, 202, 210, 700, 1215])
def test_cancelled_anywhere_it_closes_its_connection(play: Play, after_ms: float) -> None:
    """While connecting, fetching, finding offsets, waiting with all partitions delayed, and waiting after a failure."""

    async def scenario(bench: Bench) -> None:
        bench.follow(TP0)
        bench.leader.batches[TP0] = [batch(0, b"a")]
        bench.partitions[TP0].log.append_as_follower(memoryview(batch(0, b"a")))
        bench.leader.errors[TP0] = 1
        task = asyncio.ensure_future(bench.fetcher.run())
        await bench.clock.sleep_ms(after_ms)
        bench.leader.fail_fetches = 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bench.leader.open == 0
        assert bench.fetcher.is_ended

    play(scenario)
