"""Apache Kafka 3.9.1 and our broker get the same Produce requests. Their responses and their logs must be the same.

There are topics with different settings, and valid and invalid record sets of every format and codec. A table has the
intended differences with their reasons, and the test checks these, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.compression import Codec
from odradek.records.v2.batch import LOG_APPEND_TIME_FLAG, TRANSACTIONAL_FLAG, ControlType
from odradek.records.v2.transactions import marker_batch
from odradek.records.v2.varint import encode_varint
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.appends import (
    Answer,
    Target,
    answer_to,
    batch_around,
    batch_of,
    message_set,
    produce,
    record,
    record_body,
    refit,
    with_attributes,
    wrapper,
)
from odradek_testkit.interop.apache import ApacheBroker, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

VERSION: Final = "3.9.1"
NOW_MS: Final = int(time.time() * 1000)
HOUR_MS: Final = 3_600_000
LATER_MS: Final = NOW_MS + 50
PROPERTIES: Final = {
    # The last version that honours message.format.version.
    "inter.broker.protocol.version": "2.8",
    "log.message.format.version": "2.8",
    "offsets.topic.replication.factor": "1",
    "auto.create.topics.enable": "false",
    # Records with any timestamp are in the first segment, which the test reads.
    "log.roll.ms": str((1 << 63) - 1),
}
PACKED: Final = {"compression.type": "gzip"}
PLAIN: Final = {"compression.type": "uncompressed"}
FORMAT_0: Final = {"message.format.version": "0.9.0"}
FORMAT_1: Final = {"message.format.version": "0.10.2"}
APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime"}
COMPACT: Final = {"cleanup.policy": "compact"}
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "as-it-comes": {},
    "gzip": PACKED,
    "plain": PLAIN,
    "lz4": {"compression.type": "lz4"},
    "snappy": {"compression.type": "snappy"},
    "zstd": {"compression.type": "zstd"},
    "compact": COMPACT,
    "append-time": APPEND_TIME,
    "not-before": {"message.timestamp.before.max.ms": str(HOUR_MS)},
    "not-after": {"message.timestamp.after.max.ms": str(HOUR_MS)},
    "format-1": FORMAT_1,
    "format-1-gzip": {**FORMAT_1, **PACKED},
    "format-1-plain": {**FORMAT_1, **PLAIN},
    "format-1-append-time": {**FORMAT_1, **APPEND_TIME},
    "format-1-compact": {**FORMAT_1, **COMPACT},
    "format-0": FORMAT_0,
    "format-0-gzip": {**FORMAT_0, **PACKED},
    "small": {"max.message.bytes": "2000"},
    "small-plain": {"max.message.bytes": "2000", **PLAIN},
}
RECENT: Final = "as-it-comes gzip plain lz4 snappy zstd compact append-time not-before not-after small"
PACKING: Final = "as-it-comes gzip plain lz4"
OLD_PLAIN: Final = "format-1 format-1-plain format-0"
OLD: Final = f"{OLD_PLAIN} format-1-gzip format-1-append-time format-1-compact format-0-gzip"
OLD_CODECS: Final = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


class Case(NamedTuple):
    """A record set, and the topics to which it is sent."""

    name: str
    topics: str
    raw: Callable[[], bytes]
    version: int = 9
    """Version of the Produce request."""

    def __str__(self) -> str:
        return self.name


def batch(*values: bytes, **options: Any) -> Callable[[], bytes]:
    """A function that builds a batch with the current time."""
    return lambda: batch_of(*values, **{"now_ms": NOW_MS} | options)


def messages(*values: bytes, **options: Any) -> Callable[[], bytes]:
    """A function that builds a message set with the current time."""
    return lambda: message_set(*values, **{"now_ms": NOW_MS} | options)


def lying(made: Callable[[], bytes], **fields: int) -> Callable[[], bytes]:
    """A batch with changed header fields and a correct CRC."""
    return lambda: refit(made(), **fields)


def wrapping(inner: Callable[[], bytes], offset: int, *, timestamp_ms: int = NOW_MS + 1) -> Callable[[], bytes]:
    """A wrapper message of format 1, whose content may be invalid."""
    return lambda: wrapper(inner(), offset=offset, now_ms=timestamp_ms)


def joined(*parts: Callable[[], bytes] | bytes) -> Callable[[], bytes]:
    """The concatenation of record sets."""
    return lambda: b"".join(part if isinstance(part, bytes) else part() for part in parts)


def cut(made: Callable[[], bytes], end: int) -> Callable[[], bytes]:
    """The first bytes of a record set."""
    return lambda: made()[:end]


def spoilt(made: Callable[[], bytes]) -> Callable[[], bytes]:
    """A record set with a changed last byte, so that the CRC is wrong."""
    return lambda: made()[:-1] + b"\x01"


def around(*bodies: bytes, codec: Codec = Codec.NONE, count: int | None = None) -> Callable[[], bytes]:
    """A batch with these bytes as records."""
    return lambda: batch_around(b"".join(bodies), len(bodies) if count is None else count, now_ms=NOW_MS, codec=codec)


def marker() -> bytes:
    """A transaction marker."""
    return marker_batch(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS)


ONE = messages(b"one")
TWO = messages(b"one", b"two", codec=Codec.GZIP)
APART = joined(messages(b"first", now_ms=-(1 << 63)), messages(b"last", now_ms=1 << 62))
LARGE: Final = bytes(5000)
TIMED: Final = batch(b"v", step_ms=0)
FLAGGED: Final = lying(TIMED, attributes=LOG_APPEND_TIME_FLAG)

SOUND: Final = [
    *(Case(f"{codec.name} batch", RECENT, batch(codec=codec)) for codec in Codec),
    *(
        Case(f"{codec.name} batch with headers", PACKING, batch(codec=codec, headers=[("h", b"1"), ("n", None)]))
        for codec in Codec
    ),
    *(
        Case(
            f"{codec.name} batch of a producer",
            "as-it-comes gzip plain",
            batch(codec=codec, producer_id=1000 + codec, producer_epoch=0, base_sequence=0),
        )
        for codec in Codec
    ),
    *(Case(f"{codec.name} batch into old formats", OLD, batch(codec=codec)) for codec in OLD_CODECS),
    Case("batch by Produce 2", f"as-it-comes gzip {OLD}", batch(), 2),
    *(
        Case(f"{codec.name} messages of format {magic}", f"{RECENT} {OLD}", messages(magic=magic, codec=codec), 2)
        for codec in OLD_CODECS
        for magic in (0, 1)
    ),
    Case("wrapper that counts from 5", f"as-it-comes {OLD}", wrapping(messages(begin=5), 6), 2),
    Case("wrapper with gaps", f"as-it-comes {OLD}", wrapping(messages(step=2), 2), 2),
    Case("wrapper of zeros", f"as-it-comes {OLD}", wrapping(messages(step=0), 0), 2),
    Case("wrapper at 0", f"as-it-comes {OLD}", wrapping(messages(), 0), 2),
    Case("wrapper of another time", f"as-it-comes {OLD}", wrapping(messages(), 1, timestamp_ms=NOW_MS + 77), 2),
    Case("false newest time", "as-it-comes append-time gzip", lying(batch(), max_timestamp=5)),
    Case("false newest time, packed", "as-it-comes append-time", lying(batch(codec=Codec.LZ4), max_timestamp=5)),
    Case("delete horizon", "as-it-comes", lying(batch(), attributes=0x40)),
    Case("no time", f"as-it-comes not-before not-after {OLD}", batch(b"v", now_ms=-1)),
    Case("producer id below -1", "as-it-comes", lying(batch(), producer_id=-2)),
]
"""Record sets that are accepted by every topic."""

RULES: Final = [
    Case("no key", "compact as-it-comes", batch(key=None)),
    Case("no key, packed", "compact", batch(key=None, codec=Codec.GZIP)),
    Case("no key among others", "compact", around(record(record_body(0)), record(record_body(1, key=None)))),
    Case("messages without key", "compact format-1-compact", messages(key=None), 2),
    Case("wrapped without key", "compact format-1-compact", messages(key=None, codec=Codec.GZIP), 2),
    Case("of 1970", "not-before not-after as-it-comes", batch(b"v", now_ms=1)),
    Case("of 1970, packed", "not-before", batch(now_ms=1, codec=Codec.LZ4)),
    Case("from the future", "not-before not-after", batch(b"v", now_ms=NOW_MS + 10 * HOUR_MS)),
    Case("messages of 1970", "not-before", messages(now_ms=1), 2),
    Case("before 1970", "as-it-comes compact append-time not-before", batch(b"v", now_ms=-5)),
    Case("messages before 1970", "not-before", messages(b"v", now_ms=-5), 2),
    Case("large", "small small-plain as-it-comes", batch(LARGE)),
    Case("large when unpacked", "small small-plain", batch(LARGE, codec=Codec.GZIP)),
    Case("large message", "small", messages(b"v", LARGE), 2),
    Case("large message when unpacked", "small small-plain", messages(LARGE, codec=Codec.GZIP), 2),
    Case("producer into old formats", OLD_PLAIN, batch(producer_id=7, producer_epoch=0, base_sequence=0)),
    Case("control", "as-it-comes", marker),
    Case("transaction without producer", "as-it-comes", lying(batch(), attributes=TRANSACTIONAL_FLAG)),
    Case(
        "transaction without transactional id",
        "as-it-comes",
        lying(batch(producer_id=9, producer_epoch=0, base_sequence=0), attributes=TRANSACTIONAL_FLAG),
    ),
    Case("epoch below -1", "as-it-comes", batch(producer_id=31, producer_epoch=-2, base_sequence=0)),
    Case("log-append time", "append-time", FLAGGED),
    Case("log-append time without a time", "as-it-comes", lying(FLAGGED, base_timestamp=-1, max_timestamp=-1)),
    Case("messages of log-append time", "append-time format-1-append-time", messages(append_time_ms=NOW_MS), 2),
]
"""Record sets that some topics reject."""

LENIENT: Final = [
    Case("log-append time in create time", f"as-it-comes gzip {OLD_PLAIN}", FLAGGED),
    Case(
        "messages of log-append time in create time",
        f"as-it-comes gzip {OLD_PLAIN}",
        messages(append_time_ms=NOW_MS),
        2,
    ),
    Case(
        "wrapper of log-append time in create time",
        f"as-it-comes gzip {OLD_PLAIN}",
        messages(append_time_ms=NOW_MS, codec=Codec.GZIP),
        2,
    ),
    Case("producer without epoch", "as-it-comes", batch(producer_id=30, base_sequence=0)),
    *(
        Case(f"batch and {size} bytes of another", "as-it-comes gzip format-1", joined(batch(), cut(batch(), size)))
        for size in (1, 11, 12, 16, 17, 60, 61, 100)
    ),
    *(
        Case(f"message and {size} bytes of another", "as-it-comes gzip format-1", joined(ONE, cut(ONE, size)), 2)
        for size in (1, 11, 12, 16, 17, 25, 26)
    ),
    Case("wrapper and a piece", "as-it-comes plain format-1 format-0", joined(TWO, cut(TWO, 30)), 2),
    Case("batch and a piece by Produce 2", "as-it-comes", joined(batch(), cut(batch(), 30)), 2),
]
"""Record sets that clients should not send but that are accepted."""

BROKEN: Final = [
    Case("nothing", "as-it-comes", lambda: b""),
    Case("piece of a header", "as-it-comes", cut(batch(), 60)),
    Case("cut short", "as-it-comes", lambda: batch()()[:-1]),
    Case("negative count", "as-it-comes", lying(batch(), record_count=-1)),
    Case("negative delta", "as-it-comes", lying(batch(), last_offset_delta=-1)),
    Case("negative count, wrong CRC", "as-it-comes", spoilt(lying(batch(), record_count=-1))),
    Case("length of 0", "as-it-comes", lambda: batch()()[:8] + bytes(4) + batch()()[12:]),
    Case("format 3", "as-it-comes", lambda: batch()()[:16] + b"\x03" + batch()()[17:]),
    Case("zeros behind", "as-it-comes", joined(batch(), bytes(12))),
    Case("noise behind", "as-it-comes", joined(batch(), b"\x7f" * 20)),
    Case("two batches", "as-it-comes", joined(batch(), batch())),
    Case("batch and messages", "as-it-comes", joined(batch(), messages())),
    Case("messages by Produce 3", "as-it-comes", messages(), 3),
    Case("wrong CRC", "as-it-comes", spoilt(batch())),
    Case("base offset", "as-it-comes", batch(base_offset=1)),
    Case("count above delta", "as-it-comes", lying(batch(), record_count=3)),
    Case("count below delta", "as-it-comes", lying(batch(), record_count=1)),
    Case("more records than claimed", PACKING, lying(batch(), record_count=1, last_offset_delta=0)),
    Case("fewer records than claimed", PACKING, lying(batch(), record_count=3, last_offset_delta=2)),
    Case(
        "more records than claimed, packed",
        PACKING,
        lying(batch(codec=Codec.GZIP), record_count=1, last_offset_delta=0),
    ),
    Case(
        "fewer records than claimed, packed",
        PACKING,
        lying(batch(codec=Codec.GZIP), record_count=3, last_offset_delta=2),
    ),
    Case("no record", "as-it-comes", lying(batch(), record_count=0)),
    Case("producer without sequence", "as-it-comes", batch(producer_id=3, producer_epoch=0)),
    Case("early zstd", "as-it-comes gzip", batch(codec=Codec.ZSTD), 6),
    Case("second message with a wrong CRC", "as-it-comes format-1", joined(ONE, spoilt(ONE)), 2),
    Case("messages of two formats", "as-it-comes format-1", joined(ONE, messages(magic=0)), 2),
    Case("message and batch", "as-it-comes format-1", joined(ONE, batch()), 2),
    Case("two wrappers", "as-it-comes format-1", joined(TWO, TWO), 2),
    Case("wrapper and message", "as-it-comes format-1", joined(TWO, ONE), 2),
    Case("message and wrapper", "as-it-comes format-1", joined(ONE, TWO), 2),
    Case("message with a wrong CRC", "as-it-comes format-1", spoilt(ONE), 2),
    Case("message of size 0", "as-it-comes format-1", lambda: ONE()[:8] + bytes(4) + ONE()[12:], 2),
    Case("message in zstd", "as-it-comes format-1", lambda: with_attributes(ONE(), Codec.ZSTD), 2),
    Case("wrapper in a wrapper", "as-it-comes format-1", wrapping(messages(codec=Codec.GZIP), 1), 2),
    Case("empty wrapper", "as-it-comes format-1", wrapping(lambda: b"", 0), 2),
    Case("wrapped message with a wrong CRC", "as-it-comes format-1", wrapping(spoilt(ONE), 0), 2),
    Case("wrapped message of another format", "as-it-comes format-1", wrapping(messages(b"a", magic=0), 0), 2),
    Case("wrapper below its last", "as-it-comes format-1", wrapping(messages(b"a", b"b", b"c"), 1), 2),
]
"""Record sets that every topic rejects."""

BAD_RECORDS: Final = {
    "length 0": b"\x00",
    "negative length": b"\x01" + record_body(1),
    "length without end": b"\xff" * 11,
    "length beyond the batch": encode_varint(1 << 40),
    "too high offset delta": record(record_body(2)),
    "too low offset delta": record(record_body(0)),
    "negative offset delta": record(record_body(-2)),
    "length too small": record(record_body(1), longer=-3),
    "length too large": record(record_body(1) + b"\x00", longer=-1),
    "key length -2": record(record_body(1, key=None).replace(b"\x02\x01", b"\x02\x03", 1)),
    "value length -2": record(b"\x00\x00\x02\x02k\x03\x00"),
    "key beyond the record": record(record_body(1).replace(b"\x02\x02k", b"\x02\xfe\x7fk")),
    "header count too high": record(record_body(1, headers=encode_varint(100))),
    "negative header count": record(record_body(1, headers=encode_varint(-1))),
    "header without a name": record(record_body(1, headers=b"\x02\x01\x02v")),
    "header beyond the record": record(record_body(1, headers=b"\x02\x02n\x10v")),
    "header value length -2": record(record_body(1, headers=b"\x02\x02n\x03")),
    "bytes behind the headers": record(record_body(1, headers=b"\x00\x00")),
}
"""Invalid second records."""


class Deviation(NamedTuple):
    """Intended differences, with their reasons."""

    case: Case
    theirs: int
    ours: int
    why: str

    def __str__(self) -> str:
        return self.case.name


def bad_record(name: str, codec: Codec, topics: str = "as-it-comes") -> Case:
    """A batch whose second record is invalid in the named way."""
    raw = around(record(record_body(0)), BAD_RECORDS[name], codec=codec)
    return Case(f"{name}, {codec.name}", topics, raw)


OK, UNKNOWN, CORRUPT, FORMAT, COMPRESSION, INVALID = 0, -1, 2, 43, 76, 87

UNEXPECTED: Final = (
    "Kafka fails with an unexpected exception, after which clients retry until a timeout. Ours returns the reason."
)
UNREADABLE: Final = (
    "Kafka accepts records that consumers cannot read, so that they cannot read the partition any further."
)
MISNUMBERED: Final = (
    "Kafka stores the wrong offsets (compressed records fail with an unexpected exception). If offsets repeat or end"
    " early, consumers lose records. No client is known to send such offsets."
)
NULL: Final = (
    "Kafka accepts any negative length as null. No client writes another one than -1, and other readers reject it."
)
HEADER_ONLY: Final = (
    "Kafka only counts the records and does not check that their fields fill the record or are within it. The result"
    " for consumers is undefined."
)
EARLY: Final = (
    "Kafka accepts timestamps before 1970 in records that it stores unchanged, and fails with an unexpected exception"
    " if it has to rewrite them. Ours accepts them also then."
)
EMPTY: Final = (
    "Kafka acknowledges a set of which it stores nothing, at offset -1. A producer must learn that its records were"
    " lost. A set with a complete message and a part of another is accepted."
)

DEVIATIONS: Final = [
    Deviation(Case("codec 5", "as-it-comes", lying(batch(), attributes=5)), UNKNOWN, COMPRESSION, UNEXPECTED),
    Deviation(
        Case("message of codec 5", "as-it-comes", lambda: with_attributes(ONE(), 5), 2),
        UNKNOWN,
        COMPRESSION,
        UNEXPECTED,
    ),
    Deviation(
        Case("zstd into old formats", "format-1 format-0", batch(codec=Codec.ZSTD)), UNKNOWN, COMPRESSION, UNEXPECTED
    ),
    Deviation(Case("headers into old formats", OLD_PLAIN, batch(headers=[("h", b"1")])), UNKNOWN, FORMAT, UNEXPECTED),
    Deviation(
        Case("said to be packed", "as-it-comes gzip", lying(batch(), attributes=int(Codec.LZ4))),
        UNKNOWN,
        INVALID,
        UNEXPECTED,
    ),
    Deviation(bad_record("length without end", Codec.NONE), UNKNOWN, INVALID, UNEXPECTED),
    Deviation(bad_record("length beyond the batch", Codec.NONE), UNKNOWN, INVALID, UNEXPECTED),
    *(
        Deviation(bad_record(f"{name} offset delta", codec), theirs, INVALID, MISNUMBERED)
        for name in ("too high", "too low", "negative")
        for codec, theirs in ((Codec.NONE, OK), (Codec.GZIP, UNKNOWN))
    ),
    *(
        Deviation(bad_record(f"{name} length -2", codec), OK, INVALID, NULL)
        for name in ("key", "value", "header value")
        for codec in (Codec.NONE, Codec.GZIP)
    ),
    Deviation(bad_record("negative length", Codec.GZIP), OK, INVALID, UNREADABLE),
    Deviation(bad_record("length too small", Codec.GZIP), OK, INVALID, HEADER_ONLY),
    Deviation(Case("nothing by Produce 2", "as-it-comes", lambda: b"", 2), OK, INVALID, EMPTY),
    Deviation(Case("piece of a message", "as-it-comes", cut(ONE, 20), 2), OK, INVALID, EMPTY),
    Deviation(Case("message cut short", "as-it-comes", lambda: ONE()[:-1], 2), OK, INVALID, EMPTY),
    Deviation(
        Case("message at -5", "as-it-comes format-1", messages(begin=-5), 2),
        OK,
        CORRUPT,
        "Kafka does not check offsets of produced messages. No client is known to write another one than 0, -1 or a"
        " counter, and our reader of old formats treats an offset below -1 as corrupt.",
    ),
    *(
        Deviation(Case(f"{name} before 1970", topics, raw, version), UNKNOWN, OK, EARLY)
        for name, topics, raw, version in (
            ("batch", f"gzip {OLD}", batch(b"v", now_ms=-5), 9),
            ("message", "as-it-comes gzip format-0 format-1-gzip", messages(b"v", now_ms=-5), 2),
            ("wrapper", "as-it-comes format-0 format-1-plain", messages(b"v", now_ms=-5, codec=Codec.GZIP), 2),
            ("messages long", "as-it-comes format-0", APART, 2),
        )
    ),
    Deviation(
        Case("wrapper of zeros", "as-it-comes format-1", wrapping(lambda: bytes(40), 0), 2),
        CORRUPT,
        INVALID,
        "The CRC of the wrapper is correct, so its content was written like this. A retry, as clients do after Kafka's"
        " error code, cannot succeed.",
    ),
]  # fmt: skip

AGREED_BAD: Final = [
    bad_record(name, codec)
    for name in BAD_RECORDS
    for codec in (Codec.NONE, Codec.GZIP)
    if f"{name}, {codec.name}" not in map(str, DEVIATIONS)
]

PASSED_ON: Final = [
    Case("batch", "as-it-comes gzip format-1", lying(batch(), attributes=LOG_APPEND_TIME_FLAG, max_timestamp=LATER_MS)),
    Case(
        "wrapper",
        "as-it-comes gzip format-1",
        lambda: wrapper(messages()(), offset=1, now_ms=LATER_MS, is_append_time=True),
        2,
    ),
]
"""Message sets that were fetched from a topic with log-append time, so that the times of records are older."""


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[tuple[Target, Target]]:
    """A broker of Apache Kafka and one of ours with the same ZooKeeper server, each with all topics."""
    directory = tmp_path_factory.mktemp("append")
    cluster = RunningCluster(directory / "ours", brokers=1, config=PROPERTIES)
    cluster.start()
    try:
        folder = jars(VERSION, Path(pytestconfig.rootpath) / ".interop")
        kafka = ApacheBroker(
            folder,
            directory / "theirs",
            broker_id=1,
            zookeeper=f"{cluster.zookeeper}/theirs",
            properties={**PROPERTIES, "log.cleaner.enable": "false"},
            heap="384m",
        )
        kafka.start()
        try:
            _, port = cluster.address(0)
            create_topics(kafka.port)
            create_topics(port)
            (ours,) = {path.parent for path in cluster.directory.rglob("as-it-comes-0")}
            yield Target(kafka.port, directory / "theirs" / "data"), Target(port, ours)
        finally:
            kafka.stop(kill=True)
    finally:
        cluster.close()


def create_topics(port: int) -> None:
    """Create all topics, and wait until each has a leader."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    # A client that got metadata without a controller requests it again only after minutes.
    wait_until(lambda: admin.list_topics(timeout=10).controller_id >= 0, what="a controller")
    made = admin.create_topics([NewTopic(name, 1, 1, config=dict(config)) for name, config in TOPICS.items()])
    for future in made.values():
        future.result(60)

    def all_led() -> bool:
        found = admin.list_topics(timeout=10).topics
        return all(name in found and found[name].partitions[0].leader >= 0 for name in TOPICS)

    wait_until(all_led, what="leaders of all topics")


@pytest.mark.parametrize("case", [*SOUND, *LENIENT], ids=str)
def test_both_keep_the_same(targets: tuple[Target, Target], case: Case) -> None:
    answers = compared(targets, case)
    assert any(answer.records for answer in answers)


@pytest.mark.parametrize("case", [*RULES, *BROKEN, *AGREED_BAD], ids=str)
def test_both_refuse_the_same(targets: tuple[Target, Target], case: Case) -> None:
    answers = compared(targets, case)
    assert any(answer.code for answer in answers)


def compared(targets: tuple[Target, Target], case: Case) -> list[Answer]:
    """The responses of both brokers by topic."""
    answers = []
    for topic in case.topics.split():
        theirs, ours = (answer_to(target, topic, case.raw(), case.version) for target in targets)
        if not (theirs.faulty and ours.faulty):
            # Kafka names the records that violate a rule. Ours also names corrupt ones.
            theirs, ours = theirs._replace(faulty=()), ours._replace(faulty=())
        assert ours == theirs, topic
        answers.append(ours)
    return answers


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=str)
def test_deviation(targets: tuple[Target, Target], deviation: Deviation) -> None:
    case = deviation.case
    for topic in case.topics.split():
        theirs, ours = (produce(target.port, topic, case.raw(), case.version).error_code for target in targets)
        assert (theirs, ours) == (deviation.theirs, deviation.ours), topic


@pytest.mark.parametrize("case", PASSED_ON, ids=str)
def test_deviation_of_times_that_are_passed_on(targets: tuple[Target, Target], case: Case) -> None:
    """Kafka forgets the claim of log-append time and keeps the entry's time as the newest, which then no record has; in
    records that it rewrites it is the time of all. Ours gives each record its own time back, and the entry the newest
    of them, in every topic: an entry's newest time has to be true, as it is what searches and retention go by."""
    for topic in case.topics.split():
        theirs, ours = (answer_to(target, topic, case.raw(), case.version) for target in targets)
        assert {header.max_timestamp for header in theirs.headers} == {LATER_MS}
        assert max(header.max_timestamp for header in ours.headers) == NOW_MS + 1
        assert [each.timestamp for each in ours.records] == [NOW_MS, NOW_MS + 1]
        kept_as_it_came = [header.magic for header in theirs.headers] == [case.raw()[16]] and topic != "gzip"
        assert (theirs.records == ours.records) is kept_as_it_came
        assert [each.value for each in theirs.records] == [each.value for each in ours.records]


def test_a_producer_without_an_epoch_can_send_any_sequence(targets: tuple[Target, Target]) -> None:
    sequences = (0, 2, 2, 9, 0, 9)
    made = [batch_of(now_ms=NOW_MS, producer_id=77, base_sequence=sequence) for sequence in sequences]
    # For a duplicate batch, Kafka returns the producer's time as log-append time in every topic. Ours does not.
    theirs, ours = (
        [answer_to(target, "as-it-comes", raw, 9)._replace(is_timed=False) for raw in made] for target in targets
    )
    assert ours == theirs
    assert [bool(answer.records) for answer in ours] == [True, True, False, True, False, False]
