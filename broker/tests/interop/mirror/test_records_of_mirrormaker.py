"""Records and translations beside the classes of MirrorMaker 2."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from odradek.base.types import TopicPartition
from odradek.mirror.mirror_plan import EXCLUDED_CONFIGS
from odradek.mirror.mm2_records import Checkpoint, Heartbeat, OffsetSync
from odradek.mirror.offset_translation import OffsetRun, OffsetRuns
from odradek_testkit.interop.apache import QUICK_START, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.java]

SYNC = OffsetSync(TopicPartition("orders", 2_000_000_000), 2**62, 5)
CHECKPOINT = Checkpoint("billing-ß", TopicPartition("east.orders", 3), 100, 90, "é€")
HEARTBEAT = Heartbeat("east", "dc-mirror", 1_700_000_000_000)


def ask(mirrormaker: Path, programs: Path, lines: Iterable[str]) -> list[str]:
    """Return the lines that MirrorMaker 2's classes answer."""
    program = "org.apache.kafka.connect.mirror.MirrorRecords"
    options = [*QUICK_START, "-Dfile.encoding=UTF-8", "-ea"]
    text = "".join(f"{line}\n" for line in lines)
    return run_tool(mirrormaker, program, [], stdin=text, options=options, classes=programs).splitlines()


def test_records_have_the_same_bytes(mirrormaker: Path, programs: Path) -> None:
    records = (SYNC, CHECKPOINT, HEARTBEAT)
    found = ask(
        mirrormaker,
        programs,
        [
            f"sync {SYNC.partition.topic} {SYNC.partition.partition} {SYNC.source_offset} {SYNC.target_offset}",
            f"checkpoint {CHECKPOINT.group} east.orders 3 100 90 {CHECKPOINT.metadata}",
            f"heartbeat {HEARTBEAT.source} {HEARTBEAT.target} {HEARTBEAT.timestamp_ms}",
            f"decode {CHECKPOINT.key().hex()} {CHECKPOINT.value().hex()}",
            "default",
        ],
    )
    assert found[:3] == [f"{record.key().hex()} {record.value().hex()}" for record in records]
    assert "consumerGroupId=billing-ß, topicPartition=east.orders-3, upstreamOffset=100" in found[3]
    assert {name.replace("\\", "").strip() for name in found[4].split(",")} == EXCLUDED_CONFIGS
    sync_key, sync_value = map(bytes.fromhex, found[0].split())
    assert OffsetSync.decode(sync_key, sync_value) == SYNC


def test_syncs_of_mirrormaker_are_translated_at_least_as_exactly(mirrormaker: Path, programs: Path) -> None:
    source = random.Random(21)
    runs, lines, syncs = OffsetRuns(), [], []
    upstream = downstream = 0
    for _ in range(3_000):
        syncs.append((upstream, downstream))
        lines.append(f"store {upstream} {downstream}")
        runs.add(OffsetRun.from_record(upstream, downstream, None))
        step = source.choice((1, 2, 10, 1_000))
        upstream += step
        downstream += source.randint(1, step)
    offsets = [source.randrange(upstream + 100) for _ in range(2_000)]
    found = ask(mirrormaker, programs, [*lines, *(f"translate {offset}" for offset in offsets)])
    near = [each[0] for each in syncs[-3:]]
    for offset, theirs in zip(offsets, map(int, found), strict=True):
        ours = runs.translate(offset)
        exact = next(place for at, place in reversed(syncs) if at <= offset)
        is_between = (offset, exact) not in syncs
        assert ours is not None
        assert ours <= exact + is_between and theirs <= exact + is_between
        if offset >= near[0]:
            assert ours == theirs
