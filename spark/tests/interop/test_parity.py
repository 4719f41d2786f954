"""Spark's own source for Kafka and ours do the same: rows, offsets, micro-batches, tasks and refusals.

Each scenario runs with both sources on the same topics, of an Apache Kafka broker and of one of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from parity_data import NATIVE, OURS, START_MS, Queries, filled, ordered
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek.client.blocking.client import BlockingClient

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]


def at(seconds: int) -> str:
    """A timestamp between two records."""
    return str(START_MS + 1000 * seconds - 500)


@pytest.fixture(scope="module")
def both(spark: SparkSession, bootstrap: str, client: BlockingClient) -> Iterator[tuple[Queries, Queries]]:
    """Spark's own source and ours, with all topics."""
    with filled(client, bootstrap):
        yield Queries(spark, NATIVE, bootstrap), Queries(spark, OURS, bootstrap)


PLAIN = {"subscribe": "plain"}
COMMITTED = {"kafka.isolation.level": "read_committed"}
BATCHES: dict[str, Mapping[str, str]] = {
    "all": PLAIN,
    "several topics": {"subscribe": " plain , headers,"},
    "assign": {"assign": '{"plain":[1,0],"headers":[0]}'},
    "assign a partition that does not exist": {"assign": '{"plain":[1,9]}'},
    "a pattern that is not anchored": {"subscribePattern": "lik"},
    "a pattern with Java's syntax": {"subscribePattern": r"^(?<x>\p{Alpha}++)-[\w&&[^a]]\z"},
    "a pattern that matches nothing": {"subscribePattern": "nothing-is-called-so"},
    "offsets": {
        **PLAIN,
        "startingOffsets": '{"plain":{"0":50,"1":-2,"2":-2}}',
        "endingOffsets": '{"plain":{"0":150,"1":-1,"2":0}}',
    },
    "the same start and end": {
        **PLAIN,
        "startingOffsets": '{"plain":{"0":50,"1":3,"2":0}}',
        "endingOffsets": '{"plain":{"0":50,"1":3,"2":0}}',
    },
    "earliest and latest": {**PLAIN, "startingOffsets": "earliest", "endingOffsets": "latest"},
    "a start before the first record": {"subscribe": "trimmed"},
    "lost records are skipped": {
        "subscribe": "trimmed",
        "startingOffsets": '{"trimmed":{"0":3}}',
        "failOnDataLoss": "false",
    },
    "timestamp": {"subscribe": "alike-a", "startingTimestamp": at(2), "endingTimestamp": at(4)},
    "timestamp before all": {"subscribe": "alike-a", "startingTimestamp": "0"},
    "timestamp after all, strategy latest": {
        **PLAIN,
        "startingTimestamp": at(100),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "timestamps by partition": {
        "subscribe": "alike-a",
        "startingOffsetsByTimestamp": json.dumps({"alike-a": {"0": int(at(2)), "1": int(at(4))}}),
        "endingOffsetsByTimestamp": json.dumps({"alike-a": {"0": int(at(4)), "1": int(at(99))}}),
    },
    "a timestamp has precedence over offsets": {
        "subscribe": "alike-b",
        "startingTimestamp": at(3),
        "startingOffsetsByTimestamp": '{"alike-b":{"0":0}}',
        "startingOffsets": "latest",
    },
    "minPartitions": {**PLAIN, "minPartitions": "7"},
    "minPartitions below the number of partitions": {**PLAIN, "minPartitions": "2"},
    "maxRecordsPerPartition": {**PLAIN, "maxRecordsPerPartition": "33"},
    "start timestamp after end timestamp": {"subscribe": "alike-b", "startingTimestamp": "9", "endingTimestamp": "8"},
    "a start after the last record, in splits": {
        "subscribe": "beyond",
        "startingOffsets": '{"beyond":{"0":50}}',
        "minPartitions": "4",
    },
    "both kinds of splits": {**PLAIN, "maxRecordsPerPartition": "33", "minPartitions": "12"},
    "limits of streams": {**PLAIN, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2"},
    "codecs": {"subscribe": "codecs"},
    "headers": {"subscribe": "headers", "includeHeaders": "true"},
    "compacted gaps": {"subscribe": "compacted"},
    "compacted gaps and splits": {"subscribe": "compacted", "minPartitions": "5"},
    "transactions, uncommitted": {"subscribe": "transactions"},
    "transactions, committed": {"subscribe": "transactions", **COMMITTED},
    "transactions, committed, in splits": {"subscribe": "transactions", **COMMITTED, "minPartitions": "6"},
    "kafka.group.id": {**PLAIN, "kafka.group.id": "group-of-$SERVERS"},
    "names in another case": {"SUBSCRIBE": "alike-b", "StartingOffsets": "EARLIEST", "includeheaders": "TRUE"},
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_has_the_same_rows_and_tasks(both: tuple[Queries, Queries], name: str) -> None:
    native, ours = (queries.batch(BATCHES[name]) for queries in both)
    assert ours.schema == native.schema
    assert ordered(ours) == ordered(native)
    if name == "maxRecordsPerPartition":
        # Spark's own source ignores it in a batch without minPartitions, although its guide says otherwise.
        assert (native.rdd.getNumPartitions(), ours.rdd.getNumPartitions()) == (3, 8)
        return
    # Spark adds a task to an empty plan of a Python source.
    assert ours.rdd.getNumPartitions() == max(1, native.rdd.getNumPartitions())


STREAMS: dict[str, Mapping[str, str]] = {
    "earliest": {**PLAIN, "startingOffsets": "earliest"},
    "latest": PLAIN,
    "offsets and a limit": {
        "subscribe": "plain,alike-a",
        "startingOffsets": '{"plain":{"0":13,"1":-2,"2":-1},"alike-a":{"0":2,"1":-1}}',
        "maxOffsetsPerTrigger": "60",
    },
    "timestamp": {"subscribePattern": "^alike", "startingTimestamp": at(3), "maxOffsetsPerTrigger": "4"},
    "lost records are skipped": {
        "subscribe": "trimmed",
        "startingOffsets": '{"trimmed":{"0":3}}',
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "5",
    },
    "a start after the end": {
        "subscribe": "beyond",
        "startingOffsets": '{"beyond":{"0":50}}',
        "failOnDataLoss": "false",
    },
    "committed transactions": {"subscribe": "transactions", "startingOffsets": "earliest", **COMMITTED},
    "compacted gaps and splits": {
        "subscribe": "compacted",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "50",
        "minPartitions": "3",
    },
    "an ending timestamp": {"subscribe": "alike-b", "startingOffsets": "earliest", "endingTimestamp": at(3)},
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_has_the_same_micro_batches(both: tuple[Queries, Queries], name: str, tmp_path: Path) -> None:
    native, ours = (
        queries.stream(STREAMS[name], tmp_path / source) for queries, source in zip(both, (NATIVE, OURS), strict=True)
    )
    assert ours.batches == native.batches
    assert ours.ends == native.ends
    assert ours.latest == native.latest


OPTIONS: dict[str, Mapping[str, str]] = {
    "no topics": {},
    "two kinds of topics": {**PLAIN, "subscribePattern": "plain"},
    "an empty list": {"subscribe": " , "},
    "a blank pattern": {"subscribePattern": "  "},
    "a wrong pattern": {"subscribePattern": "("},
    "assign without braces": {"assign": "plain"},
    "assign with wrong JSON": {"assign": "{plain"},
    "no servers": {**PLAIN, "kafka.bootstrap.servers": ""},
    "starting offsets": {**PLAIN, "startingOffsets": "newest"},
    "a starting timestamp": {**PLAIN, "startingTimestamp": "yesterday"},
    "strategy": {**PLAIN, "startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "earliest"},
    "failOnDataLoss": {**PLAIN, "failOnDataLoss": "perhaps"},
    "minPartitions": {**PLAIN, "minPartitions": "0"},
    "maxRecordsPerPartition": {**PLAIN, "maxRecordsPerPartition": "-1"},
    "a minimum above the maximum": {**PLAIN, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
    "auto.offset.reset": {**PLAIN, "kafka.auto.offset.reset": "earliest"},
    "key.deserializer": {**PLAIN, "kafka.key.deserializer": "x"},
    "value.deserializer": {**PLAIN, "kafka.value.deserializer": "x"},
    "enable.auto.commit": {**PLAIN, "kafka.enable.auto.commit": "true"},
    "interceptor.classes": {**PLAIN, "kafka.interceptor.classes": "x"},
}
BATCH_MISTAKES: dict[str, Mapping[str, str]] = {
    "an unknown topic": {"subscribe": "unknown", "kafka.default.api.timeout.ms": "2000"},
    "an assigned unknown topic": {"assign": '{"unknown":[0]}', "kafka.default.api.timeout.ms": "2000"},
    "starting offsets of other partitions": {**PLAIN, "startingOffsets": '{"plain":{"0":1}}'},
    "starting offsets of other topics": {"subscribe": "alike-b", "startingOffsets": '{"alike-b":{"0":1},"x":{"0":1}}'},
    "starting timestamps of other partitions": {**PLAIN, "startingOffsetsByTimestamp": '{"plain":{"0":1}}'},
    "no record is so new": {"subscribe": "alike-b", "startingTimestamp": at(99)},
    # Without a broker, Spark's own source only finds out after minutes that there is none.
    "isolation.level": {**PLAIN, "kafka.isolation.level": "strict"},
    "start latest": {**PLAIN, "startingOffsets": "latest"},
    "start -1": {"subscribe": "alike-b", "startingOffsets": '{"alike-b":{"0":-1}}'},
    "end earliest": {**PLAIN, "endingOffsets": "earliest"},
    "end -2": {"subscribe": "alike-b", "endingOffsets": '{"alike-b":{"0":-2}}'},
    "ending offsets of other partitions": {**PLAIN, "endingOffsets": '{"plain":{"0":1}}'},
    "different partitions": {
        **PLAIN,
        "startingOffsets": '{"plain":{"0":1,"1":1,"2":0}}',
        "endingOffsets": '{"plain":{"0":1,"1":1}}',
    },
    "start after end": {
        "subscribe": "alike-b",
        "startingOffsets": '{"alike-b":{"0":4}}',
        "endingOffsets": '{"alike-b":{"0":3}}',
    },
    "start timestamps after end timestamps": {
        "subscribe": "alike-b",
        "startingOffsetsByTimestamp": '{"alike-b":{"0":9}}',
        "endingOffsetsByTimestamp": '{"alike-b":{"0":8}}',
    },
    "start offset after end timestamp": {
        "subscribe": "alike-b",
        "startingOffsets": '{"alike-b":{"0":6}}',
        "endingTimestamp": at(2),
    },
    "start after the last record": {"subscribe": "beyond", "startingOffsets": '{"beyond":{"0":50}}'},
    "records that are gone": {"subscribe": "trimmed", "startingOffsets": '{"trimmed":{"0":3}}'},
}
STREAM_MISTAKES: dict[str, Mapping[str, str]] = {
    "ending offsets": {**PLAIN, "endingOffsets": "latest"},
    "ending timestamps": {**PLAIN, "endingOffsetsByTimestamp": '{"plain":{"0":1}}'},
    "a minimum above the maximum": {**PLAIN, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
    "starting offsets of other partitions": {**PLAIN, "startingOffsets": '{"plain":{"0":1}}'},
    "start after the last record": {"subscribe": "beyond", "startingOffsets": '{"beyond":{"0":50}}'},
    "records that are gone": {"subscribe": "trimmed", "startingOffsets": '{"trimmed":{"0":3}}'},
}
ERROR_CLASS = re.compile(r"\b[A-Z]{2,}(?:_[A-Z]+){2,}(?:\.[A-Z]+(?:_[A-Z]+)+)?\b")


def refusal(work: object) -> str:
    """Run a query that must fail, and return its error."""
    assert callable(work)
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        work()
    return str(caught.value)


def check(native: str, ours: str) -> None:
    """The error classes of Spark's own source are in our message, too."""
    known = {name for found in ERROR_CLASS.findall(native) for name in found.split(".")}
    known = {name for name in known if "KAFKA" in name or "OFFSET" in name or "PARTITIONS" in name}
    assert all(name in ours for name in known), (known, ours)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_options_are_refused_without_a_broker(spark: SparkSession, name: str) -> None:
    both = (Queries(spark, source, "127.0.0.1:1") for source in (NATIVE, OURS))
    native, ours = (refusal(lambda queries=queries: queries.batch(OPTIONS[name]).collect()) for queries in both)
    check(native, ours)


@pytest.mark.parametrize("name", BATCH_MISTAKES)
def test_a_batch_refuses_the_same(both: tuple[Queries, Queries], name: str) -> None:
    options = BATCH_MISTAKES[name]
    native, ours = (refusal(lambda queries=queries: queries.batch(options).collect()) for queries in both)
    check(native, ours)


@pytest.mark.parametrize("name", STREAM_MISTAKES)
def test_a_stream_refuses_the_same(both: tuple[Queries, Queries], name: str, tmp_path: Path) -> None:
    native, ours = (
        refusal(lambda queries=queries, source=source: queries.stream(STREAM_MISTAKES[name], tmp_path / source))
        for queries, source in zip(both, (NATIVE, OURS), strict=True)
    )
    check(native, ours)
