"""Apache Kafka's coordinator decodes our records of consumer groups, and encodes them into the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest
from click.testing import CliRunner

from odradek.base.types import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from odradek.cli.logs.command import log
from odradek.coordinator.coordinator_ports import KeyValue
from odradek.coordinator.groups.consumer.consumer_record_values import ConsumerRecordType
from odradek.coordinator.groups.consumer.consumer_records import changes
from odradek.coordinator.groups.consumer.consumer_values import NEW_GROUP
from odradek.records.v2.batch import BatchBuilder
from odradek_testkit.consumer_groups.consumer_states import random_state
from odradek_testkit.interop.apache import QUICK_START, compile_java, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

SOURCE: Final = Path(__file__).parents[1] / "java" / "GroupRecords.java"
PACKAGE: Final = "org.apache.kafka.coordinator.group"
SERDES: Final = {"3.9.1": f"{PACKAGE}.CoordinatorRecordSerde", "4.1.0": f"{PACKAGE}.GroupCoordinatorRecordSerde"}
DUMP_TOOL: Final = "kafka.tools.DumpLogSegments"
STATES: Final = 200


def records(random: Random, version: str) -> Iterator[KeyValue]:
    """Records of two states, one after the other. Kafka 3.9 does not know regular expressions yet."""
    before, after = random_state(random), random_state(random)
    for key, value in [*changes("grüppe", NEW_GROUP, before), *changes("grüppe", before, after)]:
        if version != "3.9.1" or int.from_bytes(key[:2], "big") != ConsumerRecordType.REGULAR_EXPRESSION:
            yield key, value


def test_kafka_encodes_the_same_bytes(kafka_jars: tuple[str, Path], tmp_path: Path) -> None:
    version, folder = kafka_jars
    random = Random(848)
    lines = [
        f"{key.hex()} {'-' if value is None else value.hex()}"
        for _ in range(STATES)
        for key, value in records(random, version)
    ]
    compile_java(folder, [SOURCE], tmp_path)

    answers = run_tool(
        folder, "GroupRecords", [SERDES[version]], stdin="\n".join(lines), options=QUICK_START, classes=tmp_path
    )

    assert answers.splitlines() == lines


def test_our_tool_shows_what_kafkas_shows(kafka_jars: tuple[str, Path], tmp_path: Path) -> None:
    version, folder = kafka_jars
    random = Random(4)
    builder = BatchBuilder(limit_bytes=1 << 20)
    for _ in range(20):
        for key, value in records(random, version):
            assert builder.append(key, value, timestamp_ms=0)
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(builder.build(producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH, base_sequence=NO_SEQUENCE))

    theirs = run_tool(folder, DUMP_TOOL, ["--offsets-decoder", "--files", str(segment)], options=QUICK_START)
    ours = CliRunner().invoke(log, ["dump", str(segment), "--deep-iteration", "--value-decoder", "offsets-topic"])

    assert ours.exit_code == 0, ours.stderr
    assert ours.stdout.splitlines() == theirs.splitlines()
