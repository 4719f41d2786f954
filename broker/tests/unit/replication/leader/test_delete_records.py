"""DeleteRecords on real logs: refusals, and the wait for the followers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from odradek.base.types import TopicPartition
from odradek.cluster import AnnouncedBroker, ClusterImage
from odradek.replication.leader.delete_records import DeletedRecords
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryBroker, MemoryCluster

TP, INTERNAL, ELSEWHERE = TopicPartition("t", 0), TopicPartition("__consumer_offsets", 0), TopicPartition("other", 0)
TIMEOUT_MS = 10_000

Scenario = Callable[[MemoryCluster, VirtualClock], Coroutine[Any, Any, None]]
Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario on brokers that replicate `TP`, led by the first; each knows that all are alive."""

    def run(scenario: Scenario, *, brokers: Iterable[int] = (1,), **topic_settings: str) -> None:
        async def main() -> None:
            clock = VirtualClock()
            settings = {name.replace("_", "."): value for name, value in topic_settings.items()}
            cluster = MemoryCluster(
                tmp_path, clock, settings={"replica.lag.time.max.ms": "1000000"}, topic_settings=settings
            )
            try:
                for broker_id in brokers:
                    announce(await cluster.start_broker(broker_id), brokers)
                cluster.create(TP, brokers)
                await scenario(cluster, clock)
            finally:
                cluster.heal()
                await cluster.close()

        run_virtual(main())

    return run


def announce(broker: MemoryBroker, alive: Iterable[int]) -> None:
    """Set the live brokers in a broker's metadata."""
    broker.view.image = ClusterImage().updated(
        controller_id=1, brokers=[AnnouncedBroker(broker_id=each, endpoints=()) for each in alive], partitions=()
    )


class Answers(list[dict[TopicPartition, DeletedRecords]]):
    """Collects answers; at most one for each request."""

    @property
    def only(self) -> DeletedRecords:
        ((result,),) = [list(answer.values()) for answer in self]
        return result


def delete(broker: MemoryBroker, offset: int, tp: TopicPartition = TP) -> Answers:
    answers = Answers()
    broker.replicas.deletion.delete({tp: offset}, TIMEOUT_MS, answers.append)
    return answers


async def fill(cluster: MemoryCluster, count: int = 10) -> MemoryBroker:
    leader = cluster.brokers[1]
    for number in range(count):
        assert (await leader.append(TP, b"record %d" % number)).error_code == 0
    return leader


@pytest.mark.parametrize(
    ("offset", "code", "low_watermark"),
    [(4, 0, 4), (0, 0, 0), (10, 0, 10), (-1, 0, 10), (11, 1, -1), (-2, 1, -1), (2**62, 1, -1)],
)
def test_offsets(play: Play, offset: int, code: int, low_watermark: int) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = await fill(cluster)
        assert delete(leader, offset).only == (code, low_watermark)
        assert leader.partition(TP).log.log_start_offset == max(low_watermark, 0)

    play(scenario)


def test_an_offset_below_the_log_start_is_reached_already(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = await fill(cluster)
        delete(leader, 6)
        assert delete(leader, 3).only == (0, 6)

    play(scenario)


@pytest.mark.parametrize(("policy", "code"), [("delete", 0), ("compact,delete", 0), ("compact", 44)])
def test_a_topic_that_is_only_compacted_keeps_its_records(play: Play, policy: str, code: int) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        assert delete(cluster.brokers[1], 0).only.error_code == code

    play(scenario, cleanup_policy=policy)


@pytest.mark.parametrize(("tp", "code"), [(INTERNAL, 17), (ELSEWHERE, 3)])
def test_what_is_not_here_to_be_deleted(play: Play, tp: TopicPartition, code: int) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        assert delete(cluster.brokers[1], 0, tp).only == (code, -1)

    play(scenario)


def test_a_follower_refuses(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        await fill(cluster)
        assert delete(cluster.brokers[2], 3).only == (6, -1)

    play(scenario, brokers=(1, 2))


def test_the_answer_waits_until_every_follower_begins_there(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = await fill(cluster)
        cluster.cut(3)
        answers = delete(leader, 7)
        assert leader.partition(TP).log.log_start_offset == 7
        await clock.sleep_ms(3000)
        assert cluster.brokers[2].partition(TP).log.log_start_offset == 7
        assert not answers
        assert leader.replicas.deletion.purgatory.watched == 1
        cluster.heal()
        await clock.sleep_ms(3000)
        assert answers.only == (0, 7)
        assert {broker.partition(TP).log.log_start_offset for broker in cluster.brokers.values()} == {7}

    play(scenario, brokers=(1, 2, 3))


def test_time_runs_out_with_the_low_watermark_of_the_begin(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = await fill(cluster)
        cluster.cut(2)
        answers = delete(leader, 7)
        await clock.sleep_ms(TIMEOUT_MS - 1)
        assert not answers
        await clock.sleep_ms(2)
        assert answers.only == (7, 0)
        assert leader.partition(TP).log.log_start_offset == 7

    play(scenario, brokers=(1, 2))


def test_a_dead_follower_is_not_waited_for(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = await fill(cluster)
        cluster.cut(2)
        answers = delete(leader, 7)
        announce(leader, [1])
        assert not answers
        leader.replicas.recheck(TP)
        assert answers.only == (0, 7)

    play(scenario, brokers=(1, 2))


def test_the_loss_of_leadership_ends_the_wait(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = await fill(cluster)
        cluster.cut(2)
        answers = delete(leader, 7)
        cluster.elect(TP, 2, (1, 2), inform=(1, 2))
        assert answers.only == (6, -1)

    play(scenario, brokers=(1, 2))


def test_a_stop_ends_the_wait(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = await fill(cluster)
        cluster.cut(2)
        answers = delete(leader, 7)
        await leader.close()
        assert answers.only.error_code == 7

    play(scenario, brokers=(1, 2))


def test_several_partitions_answer_together(play: Play) -> None:
    async def scenario(cluster: MemoryCluster, clock: VirtualClock) -> None:
        leader = await fill(cluster)
        answers = Answers()
        cluster.cut(2)
        leader.replicas.deletion.delete({TP: 5, ELSEWHERE: 1}, TIMEOUT_MS, answers.append)
        assert not answers
        cluster.heal()
        await clock.sleep_ms(5000)
        assert list(answers) == [{TP: DeletedRecords(0, 5), ELSEWHERE: DeletedRecords(3)}]

    play(scenario, brokers=(1, 2))


def test_a_replica_that_moves_counts_with_both_logs(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock()
        cluster = MemoryCluster(tmp_path, clock, disks=2)
        leader = await cluster.start_broker(1)
        cluster.create(TP, [1])
        await fill(cluster)
        (target,) = set(leader.config.log_dirs) - {leader.logs.directory_of(TP)}
        leader.logs.create_future(TP, target)
        answers = delete(leader, 7)
        await clock.sleep_ms(100)
        assert not answers
        leader.replicas.mover.start(leader.partition(TP))
        await clock.sleep_ms(100)
        assert answers.only == (0, 7)
        await cluster.close()

    run_virtual(main())
