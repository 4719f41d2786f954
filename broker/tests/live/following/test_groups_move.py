"""A group moves from one real cluster to another, and continues there: no record is skipped, at most one batch is
read again.

The copies are made as the mirror makes them: batches without their gaps, in transactions, and the pairs are reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

import pytest

from odradek.base.types import ZERO_UUID, TopicPartition
from odradek.client.admin_kinds import ConsumerGroupState
from odradek.client.consumer.consumer import Consumer
from odradek.client.models import ConsumerRecord, NewTopic, OffsetAndMetadata
from odradek.client.producer.producer import Producer
from odradek.mirror.group_follower import GroupFollower
from odradek.mirror.mirror_config import HEARTBEATS_TOPIC
from odradek.mirror.mirror_plan import CopiedPartition
from odradek.mirror.mm2_records import Checkpoint, Heartbeat, checkpoints_topic, offset_syncs_topic
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.offset_translation import MAX_SLACK, OffsetRun
from odradek_testkit.clients.mirrored_pair import MirroredPair

ORDERS, COPY = TopicPartition("orders", 0), TopicPartition("east.orders", 0)
COPIED = CopiedPartition("east", "orders", 0, ZERO_UUID, "east.orders")
BATCH = 10
TEXT = "note of the application"


async def read(bootstrap: str, partition: TopicPartition, offset: int = 0) -> list[ConsumerRecord]:
    """Return the committed records from an offset to the end."""
    async with Consumer(bootstrap, isolation_level="read_committed", max_poll_records=10_000) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_end(partition)
        end = await consumer.position(partition)
        consumer.seek(partition, offset)
        found: list[ConsumerRecord] = []
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += records
        return found


def batches_of(records: Sequence[ConsumerRecord]) -> Iterable[Sequence[ConsumerRecord]]:
    """Return the batches in which the source has the records: each covers `BATCH` offsets."""
    numbers = sorted({record.offset // BATCH for record in records})
    return [[record for record in records if record.offset // BATCH == number] for number in numbers]


async def copy(pair: MirroredPair, syncs: OffsetSyncs, records: Sequence[ConsumerRecord], end: int) -> None:
    """Copy records in one transaction. `end` is the position in the source after them."""
    begin = records[0].offset
    settings = pair.config.target.settings(transactional_id="copier")
    difference = None
    async with Producer(settings) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            sent = [await producer.send(COPY.topic, record.value, key=record.key, partition=0) for record in records]
        places = [(await each).offset for each in sent]
        done = 0
        for batch in batches_of(records):
            first = max(begin, batch[0].offset // BATCH * BATCH)
            if places[done] - first != difference:
                difference = places[done] - first
                syncs.copied(COPIED, first, places[done])
            done += len(batch)
        syncs.copied(COPIED, end, places[-1] + 1)


@pytest.fixture
async def syncs(pair: MirroredPair) -> AsyncIterator[OffsetSyncs]:
    """The offset syncs of the copier."""
    async with OffsetSyncs(pair.config, pair.source, pair.target_client) as found:
        yield found


@pytest.fixture
async def follower(pair: MirroredPair) -> AsyncIterator[GroupFollower]:
    """A follower of the groups that has started."""
    found = new_follower(pair)
    await found.start()
    yield found
    await found.close()


def new_follower(pair: MirroredPair) -> GroupFollower:
    return GroupFollower(pair.config, pair.source, pair.source_client, pair.target_client)


async def create(pair: MirroredPair, **configs: str) -> None:
    """Create the topic and its copy."""
    given = tuple((name.replace("_", "."), value) for name, value in configs.items())
    await pair.in_source.create_topics([NewTopic(name="orders", partitions=1, configs=given)])
    await pair.in_target.create_topics([NewTopic(name="east.orders", partitions=1)])


async def produce(bootstrap: str, count: int, **settings: str) -> None:
    """Write records to the source, in batches of `BATCH`."""
    async with Producer(bootstrap, **settings) as producer:  # type: ignore[arg-type]
        for start in range(0, count, BATCH):
            sent = [
                await producer.send("orders", b"%d" % number, key=b"%d" % (number % 7), partition=0)
                for number in range(start, start + BATCH)
            ]
            await asyncio.gather(*sent)


async def check_translations(
    pair: MirroredPair, follower: GroupFollower, brokers: tuple[str, str], offsets: Iterable[int], back: int = BATCH
) -> None:
    """Check that a group with one of these offsets gets all records that follow, and at most `back` others."""
    source, target = brokers
    records = await read(source, ORDERS)
    for offset in offsets:
        group = f"group-{offset}"
        await pair.in_source.alter_group_offsets(group, {ORDERS: OffsetAndMetadata(offset, TEXT)})
    await follower.follow()
    for offset in offsets:
        group = f"group-{offset}"
        committed = (await pair.in_target.group_offsets(group))[COPY]
        assert committed.metadata == TEXT
        found = [record.value for record in await read(target, COPY, committed.offset)]
        wanted = [record.value for record in records if record.offset >= offset]
        assert found[len(found) - len(wanted) :] == wanted, f"records are skipped at {offset}"
        assert len(found) - len(wanted) <= back, f"too many records are read again at {offset}"


async def test_a_group_moves_and_continues(
    pair: MirroredPair, syncs: OffsetSyncs, follower: GroupFollower, brokers: tuple[str, str]
) -> None:
    source, target = brokers
    await create(pair)
    await produce(source, 200)
    for start in range(0, 200, 50):
        records = (await read(source, ORDERS, start))[:50]
        await copy(pair, syncs, records, start + 50)
        await syncs.flush()
    await check_translations(pair, follower, brokers, (0, 1, 49, 50, 51, 99, 120, 199, 200), back=0)

    settings = {"group_id": "mover", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with Consumer(source, "orders", **settings) as consumer:  # type: ignore[arg-type]
        seen = [await consumer.getone() for _ in range(123)]
        await consumer.commit()
    await follower.follow()
    async with Consumer(target, "east.orders", **settings) as consumer:  # type: ignore[arg-type]
        seen += [await consumer.getone() for _ in range(77)]
        await consumer.commit()
        assert [record.value for record in seen] == [b"%d" % number for number in range(200)]
        # The group is active in the target now, so the mirror leaves its offsets alone.
        await pair.in_source.alter_group_offsets("stays", {ORDERS: 200})
        await follower.follow()
        assert (await pair.in_target.group_offsets("mover"))[COPY].offset == seen[-1].offset + 1


async def test_transactions_of_the_source_leave_gaps(
    pair: MirroredPair, syncs: OffsetSyncs, follower: GroupFollower, brokers: tuple[str, str]
) -> None:
    source, _ = brokers
    await create(pair)
    async with Producer(source, transactional_id="writer") as producer:
        await producer.init_transactions()
        for number in range(30):
            producer.begin_transaction()
            for part in range(number % 4 + 1):
                await producer.send("orders", b"%d/%d" % (number, part), partition=0)
            await (producer.abort_transaction() if number % 5 == 4 else producer.commit_transaction())
    records = await read(source, ORDERS)
    half = len(records) // 2
    await copy(pair, syncs, records[:half], records[half].offset)
    await syncs.flush()
    end = records[-1].offset + 2
    await copy(pair, syncs, records[half:], end)
    await syncs.flush()
    await check_translations(pair, follower, brokers, range(end + 1))


async def test_compaction_of_the_source_leaves_gaps(
    pair: MirroredPair, syncs: OffsetSyncs, follower: GroupFollower, brokers: tuple[str, str]
) -> None:
    source, _ = brokers
    await create(pair, cleanup_policy="compact", segment_bytes="2000", min_cleanable_dirty_ratio="0.01")
    await produce(source, 300)
    while len(records := await read(source, ORDERS)) > 150:
        # The brokers compact closed segments several times a second.
        pass
    await copy(pair, syncs, records, 300)
    await syncs.flush()
    await check_translations(pair, follower, brokers, range(records[0].offset, 301, 3))


async def test_a_restarted_follower_continues(
    pair: MirroredPair, syncs: OffsetSyncs, follower: GroupFollower, brokers: tuple[str, str]
) -> None:
    source, target = brokers
    await create(pair)
    await produce(source, 20)
    await copy(pair, syncs, await read(source, ORDERS), 20)
    await syncs.flush()
    await pair.in_source.alter_group_offsets("g", {ORDERS: 15})
    await follower.follow()
    await follower.close()

    again = new_follower(pair)
    try:
        await again.start()
        known = Checkpoint("g", COPY, 15, 15)
        assert again.checkpoints == {"g": {COPY: known}}
        await again.follow()
        await pair.in_source.alter_group_offsets("g", {ORDERS: 18})
        await again.follow()
        stored = await read(target, TopicPartition(checkpoints_topic("east"), 0))
        assert [Checkpoint.decode(each.key, each.value) for each in stored] == [
            known,
            Checkpoint("g", COPY, 18, 18),
        ]
        assert (await pair.in_target.group_offsets("g"))[COPY].offset == 18
    finally:
        await again.close()


async def test_pairs_are_written_when_the_copier_loses_a_partition(
    pair: MirroredPair, syncs: OffsetSyncs, brokers: tuple[str, str]
) -> None:
    syncs.copied(COPIED, 0, 0)
    syncs.copied(COPIED, 5, 5)
    syncs.forget(COPIED)
    syncs.copied(COPIED, 10, 12)
    await syncs.close()
    stored = await read(brokers[1], TopicPartition(offset_syncs_topic("east"), 0))
    assert sorted(each.value for each in stored) == [bytes(16), (10).to_bytes(8) + (12).to_bytes(8)]


async def test_transactions_that_are_copied_at_once_are_translated_exactly(
    pair: MirroredPair, syncs: OffsetSyncs, follower: GroupFollower
) -> None:
    await create(pair)
    # 200 transactions of 50 records and a marker, as after a time in which the mirror did not run.
    for number in range(200):
        syncs.copied(COPIED, 51 * number, 50 * number)
    syncs.copied(COPIED, 51 * 200, 50 * 200)
    await syncs.flush()
    offsets = range(51, 51 * 200, 51 * 7)
    for offset in offsets:
        await pair.in_source.alter_group_offsets(f"group-{offset}", {ORDERS: offset})
    await follower.follow()
    for offset in offsets:
        committed = (await pair.in_target.group_offsets(f"group-{offset}"))[COPY]
        exact = offset // 51 * 50
        assert exact - MAX_SLACK <= committed.offset <= exact, offset


async def test_after_an_unknown_offset_a_new_run_begins(
    pair: MirroredPair, syncs: OffsetSyncs, follower: GroupFollower
) -> None:
    await create(pair)
    for part in ((0, 0), (50, 50), None, (100, 200), (150, 250)):
        if part is None:
            syncs.interrupt(COPIED)
        else:
            syncs.copied(COPIED, *part)
    assert [*syncs.unacknowledged(COPIED), syncs.growing(COPIED)] == [
        OffsetRun(0, 0, 50, 0, 50),
        OffsetRun(100, 200, 50, 0, 250),
    ]
    await syncs.flush()
    for offset in (40, 60, 120):
        await pair.in_source.alter_group_offsets(f"group-{offset}", {ORDERS: offset})
    await follower.follow()
    found = [(await pair.in_target.group_offsets(f"group-{offset}"))[COPY].offset for offset in (40, 60, 120)]
    assert found == [40, 50, 220]


async def test_the_runs_of_a_position_are_written_after_a_crash(
    pair: MirroredPair, follower: GroupFollower, brokers: tuple[str, str]
) -> None:
    await create(pair)
    await produce(brokers[0], 50)
    crashed = OffsetSyncs(pair.config, pair.source, pair.target_client)
    await copy(pair, crashed, await read(brokers[0], ORDERS), 50)
    runs = [*crashed.unacknowledged(COPIED), crashed.growing(COPIED)]
    # It was not started, so it writes nothing.
    await crashed.close()
    async with OffsetSyncs(pair.config, pair.source, pair.target_client) as syncs:
        syncs.resume(COPIED, runs)
        assert syncs.unacknowledged(COPIED) == runs
        await syncs.flush()
        assert syncs.unacknowledged(COPIED) == ()
        syncs.resume(COPIED, runs)
        await syncs.flush()
        await check_translations(pair, follower, brokers, range(0, 51, 5), back=0)


async def test_run_sends_heartbeats_and_follows(
    pair: MirroredPair, syncs: OffsetSyncs, brokers: tuple[str, str]
) -> None:
    await create(pair)
    await pair.in_source.alter_group_offsets("g", {ORDERS: 4})
    syncs.copied(COPIED, 0, 0)
    syncs.copied(COPIED, 4, 4)
    await syncs.flush()
    follower = new_follower(pair)
    running = asyncio.create_task(follower.run())
    while not await pair.in_target.group_offsets("g"):
        assert not running.done()
    described = (await pair.in_target.describe_groups(["g"]))["g"]
    assert described.state is ConsumerGroupState.EMPTY
    while not (beats := await read(brokers[1], TopicPartition(HEARTBEATS_TOPIC, 0))):
        assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    beat = Heartbeat.decode(beats[0].key, beats[0].value)
    assert (beat.source, beat.target) == ("east", "dc-mirror")
    assert beat.timestamp_ms <= beats[0].timestamp
