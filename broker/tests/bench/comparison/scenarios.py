"""The catalog of the scenarios that `make bench` runs, in the order of the document, and their selection by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from comparison.curves import CURVES
from comparison.declarations import USAGE, USAGE_PER_RECORD, Scenario, Theme
from comparison.figures import OURS, THEIRS
from comparison.spark_scenarios import SPARK_SCENARIOS, SPARK_THEMES
from comparison.workloads.compacting import Compact
from comparison.workloads.consuming import Consume, ConsumeBehind, ProduceOld, Reader
from comparison.workloads.controlling import AskAllMetadata, ControllerFailover, CreateTopics
from comparison.workloads.coordinating import GroupHeartbeats, LargeGroup, LoadOffsets, Transactions
from comparison.workloads.mirroring import Mirror
from comparison.workloads.producing import EndToEnd, Idle, Produce, ProduceBusy
from comparison.workloads.spark_writing import SparkWrite
from comparison.workloads.starting import Start

GIBIBYTE: Final = 1 << 30
SINGLE_RECORD_US: Final = 8.0
"""The goal for the CPU of the broker per request with one record, in microseconds."""

THEMES: Final = (
    Theme(
        name="produce",
        title="Producing",
        text="`ProducerPerformance` of Apache Kafka 3.9.1 at full speed, without compression; 6 partitions, "
        "`linger.ms=5` and `batch.size=131072` unless the scenario says otherwise.",
        metrics=("records_per_s", "p99_ms", *USAGE_PER_RECORD),
    ),
    Theme(
        name="connections",
        title="Many connections",
        text="A client of this project, one process with one epoll, opens 200 connections and keeps 5 produce requests "
        "of one 100-byte record in flight on each, `acks=1`: each response releases the next request. The client sends "
        "encoded requests and checks responses in bulk; its own CPU per request is in the table.",
        metrics=("requests_per_s", "p99_ms", *USAGE_PER_RECORD, "client_us"),
    ),
    Theme(
        name="consume",
        title="Consuming",
        text="`ConsumerPerformance` of Apache Kafka 3.9.1 and librdkafka (through `confluent-kafka`, which hands each "
        "record to Python) read a topic of 6 partitions from its beginning: from memory, and from disk, where the log "
        "is evicted from the page cache before each run.",
        metrics=("records_per_s", "megabytes_per_s", *USAGE),
    ),
    Theme(
        name="tls",
        title="TLS",
        text="As above, with TLS 1.3: `ProducerPerformance`, and both consumers from memory.",
        metrics=("records_per_s", "megabytes_per_s", *USAGE),
    ),
    Theme(
        name="behind",
        title="Consumers in different segments",
        text="One partition in segments of 16 MiB, with batches of 40 records. A client of this project reads it with "
        "two consumers, one at the beginning and one in the middle of the log. Each has one connection and fetches "
        "16 KiB at a time, in turn with the other.",
        metrics=("requests_per_s", "records_per_s", "megabytes_per_s", *USAGE),
    ),
    Theme(
        name="latency",
        title="Latency at a fixed rate",
        text="`ProducerPerformance` with `linger.ms=0` at a rate that both systems sustain; `EndToEndLatency` sends "
        "one record at a time and waits until it is consumed (it reports whole milliseconds).",
        metrics=("p99_ms", "p50_ms", "p999_ms", *USAGE),
    ),
    Theme(
        name="spark-sink",
        title="Writing from Spark",
        text="A Spark application (`local[2]`, 2 GiB) appends rows with an 8-byte key and a value to a topic of 6 "
        'partitions, with the default options of each connector: `format("odradek")`, and Spark\'s own '
        '`format("kafka")` 4.2.0 with the Java client 3.9.2 in the columns of Apache Kafka. Both write to one broker '
        "of Odradek. A first write of a quarter of the rows warms up; the start of Spark is not measured.",
        metrics=("rows_per_s", "megabytes_per_s", "spark_us", *USAGE_PER_RECORD),
    ),
    Theme(
        name="mirror",
        title="Mirroring to another cluster",
        text="A topic of 6 partitions, in batches of about 130 KB, is copied from one cluster of Apache Kafka 3.9.1 to "
        "another, each with one broker: by one process of `odradek mirror`, and in the columns of Apache Kafka by one "
        "of MirrorMaker 2 in dedicated mode with `tasks.max=2`. Other options are the defaults, so `odradek mirror` "
        "copies each record exactly once, in transactions. MirrorMaker 2 copies at least once by default. In the "
        "scenario *exactly once*, it has `exactly.once.source.support=enabled` and one transaction a second "
        "(`transaction.boundary=interval`); by default, each poll of up to 500 records is a transaction. The first "
        "half of the records warms up. Measured is the second half: from the time at which consumers with "
        "`read_committed` can read the first half in the copy, until they can read the last record.",
        metrics=("mirrored_per_s", "mirrored_mb_per_s", "mirror_us", "mirror_mb"),
    ),
    Theme(
        name="transactions",
        title="Transactions",
        text="Four producers of librdkafka, each in a thread of one process, commit transactions of 100 records of 100 "
        "B over 10 partitions, one after the other. The latency is that of the commit, from the call to its return; it "
        "includes the sending of records.",
        metrics=("transactions_per_s", "p99_ms", "p50_ms", *USAGE_PER_RECORD),
    ),
    Theme(
        name="groups",
        title="Consumer groups",
        text="A client of this project speaks for the members, which use the classic protocol. Heartbeats: each member "
        "sends one every 3 s. Rebalance: one member joins again, heartbeats tell the others, and all join and get "
        "their assignment. Loading: a broker starts with a million committed offsets in the 12 partitions of "
        "`__consumer_offsets`; the time is that from its first Metadata response until every group gets its offsets, "
        "and from the start of its process.",
        metrics=("heartbeats_per_s", "rebalance_s", "load_s", "loaded_s", "p99_ms", *USAGE_PER_RECORD),
    ),
    Theme(
        name="start",
        title="Starting",
        text="The time from the start of the process to the first acknowledged produce request, to the first Metadata "
        "response, and until every partition of the topic has a leader. CPU and memory are those of the start.",
        metrics=("start_s", "leaders_s", "metadata_s", "cpu_s", "rss_max_mb"),
    ),
    Theme(
        name="control",
        title="The control plane",
        text="Topics of 1,000 partitions. Failover: three brokers, SIGKILL to the controller's process. Measured from "
        "then until each remaining broker names a live leader for every partition, in total and by phase, and until 20 "
        "of the partitions with a new leader have acknowledged a record (`acks=all`). Odradek's parent process closes "
        "the ZooKeeper session of a crashed broker; Apache Kafka waits for `zookeeper.session.timeout.ms`, 18 s by "
        "default. Metadata: 20 sequential requests for all topics after a change.",
        metrics=(
            "leaders_s",
            "detected_s",
            "elected_s",
            "propagated_s",
            "acknowledged_s",
            "p50_ms",
            "p99_ms",
            "first_ms",
            *USAGE,
        ),
    ),
    Theme(
        name="compaction",
        title="Compaction",
        text="One partition in segments of 100 MiB, written with random keys, is switched to `cleanup.policy=compact` "
        "with one cleaner thread or process and the default dedupe buffer, while a client produces and consumes "
        "1,000 records/s × 1000 B of another topic. The rate is dirty bytes per second, from the switch until the "
        "cleaner's checkpoint covers the log. The p99 latencies of that client are measured before and during "
        "compaction, and beside a process of the cleaner's low priority that only spins: the last one shows what the "
        "machine adds when two cores are busy.",
        metrics=(
            "megabytes_per_s",
            "produce_before_p99_ms",
            "produce_spinning_p99_ms",
            "produce_during_p99_ms",
            "consume_before_p99_ms",
            "consume_spinning_p99_ms",
            "consume_during_p99_ms",
            "kept_share",
            *USAGE,
        ),
    ),
    Theme(
        name="conversion",
        title="Conversion of record formats",
        text="A client of this project uses the requests of Kafka 0.10: Fetch 3 from a topic of format 2, which the "
        "broker converts down, and Produce 2 with message sets of format 1, which it converts up. Records of 200 B.",
        metrics=("records_per_s", *USAGE),
    ),
    Theme(
        name="memory",
        title="Idle brokers",
        text="A broker without requests for 10 s; CPU seconds of that time.",
        metrics=("rss_after_mb", "cpu_s"),
    ),
    *SPARK_THEMES,
)


def _throughput() -> list[Scenario]:
    found = []
    for brokers, seconds in ((1, 20.0), (3, 40.0)):
        for record_bytes, records in ((100, 2_000_000), (1000, 500_000)):
            for acks in ("1", "all"):
                noun = "replica" if brokers == 1 else "replicas"
                work = Produce(
                    records=records // (1 if brokers == 1 else 2),
                    record_bytes=record_bytes,
                    acks=acks,
                    replicas=brokers,
                )
                found.append(
                    Scenario(
                        name=f"produce-{record_bytes}b-{brokers}r-{acks}",
                        theme="produce",
                        title=f"{record_bytes} B, {brokers} {noun}, acks={acks}",
                        workload=work,
                        seconds=seconds,
                        brokers=brokers,
                    )
                )
    return found


def _latency() -> list[Scenario]:
    found = []
    for brokers, acks in ((1, "1"), (3, "all")):
        for rate in (1_000, 5_000):
            noun = "replica" if brokers == 1 else "replicas"
            found.append(
                Scenario(
                    name=f"latency-{rate}-{brokers}r",
                    theme="latency",
                    title=f"{rate:,} records/s × 1000 B, {brokers} {noun}, acks={acks}",
                    workload=Produce(
                        records=15 * rate, record_bytes=1000, acks=acks, replicas=brokers, linger_ms=0, rate=rate
                    ),
                    seconds=40,
                    brokers=brokers,
                )
            )
    return found


def _consume() -> list[Scenario]:
    # Runs of several seconds: in runs of one second, the ratio of the same broker varies from 0.6 to 1.3.
    small = {"records": 12_000_000, "record_bytes": 100, "batch_records": 500}
    large = {"records": 3_000_000, "record_bytes": 1000, "batch_records": 100}
    found = []
    for reader, title in ((Reader.JAVA, "Java"), (Reader.LIBRDKAFKA, "librdkafka")):
        for cold in (False, True):
            for sizes in (small, large):
                place = "cold" if cold else "warm"
                found.append(
                    Scenario(
                        name=f"consume-{reader.value}-{place}-{sizes['record_bytes']}b",
                        theme="consume",
                        title=f"{title}, {sizes['record_bytes']} B, from {'disk' if cold else 'memory'}",
                        workload=Consume(reader=reader, cold=cold, **sizes),
                        seconds=20,
                        prepare_seconds=40,
                    )
                )
    return found


def _tls() -> list[Scenario]:
    found = [
        Scenario(
            name="tls-produce-1000b",
            theme="tls",
            title="producing, 1000 B, 1 replica, acks=1",
            workload=Produce(records=2_000_000, record_bytes=1000),
            seconds=15,
            tls=True,
        )
    ]
    for reader, title in ((Reader.JAVA, "Java"), (Reader.LIBRDKAFKA, "librdkafka")):
        found.append(
            Scenario(
                name=f"tls-consume-{reader.value}-1000b",
                theme="tls",
                title=f"consuming, {title}, 1000 B",
                workload=Consume(reader=reader, records=3_000_000, record_bytes=1000, batch_records=100),
                seconds=15,
                prepare_seconds=60,
                tls=True,
            )
        )
    return found


def _spark_sink() -> list[Scenario]:
    return [
        Scenario(
            name=f"spark-sink-{record_bytes}",
            theme="spark-sink",
            title=f"{record_bytes} B",
            workload=SparkWrite(records=records, record_bytes=record_bytes),
            seconds=60,
            warm_ups=0,
            same_broker=OURS,
        )
        for record_bytes, records in ((100, 4_000_000), (1000, 1_000_000))
    ]


def _mirror() -> list[Scenario]:
    small = Mirror(records=4_000_000, record_bytes=100, batch_records=1_200)
    large = Mirror(records=600_000, record_bytes=1000, batch_records=130)
    rows = (
        ("mirror-100b", "100 B", small),
        ("mirror-1000b", "1000 B", large),
        ("mirror-exactly-once", "100 B, exactly once", replace(small, records=2_000_000, exactly_once=True)),
    )
    return [
        Scenario(
            name=name,
            theme="mirror",
            title=title,
            workload=workload,
            seconds=80,
            prepare_seconds=30,
            same_broker=THEIRS,
        )
        for name, title, workload in rows
    ]


CATALOGUE: Final = (
    *_throughput(),
    Scenario(
        name="produce-single",
        theme="produce",
        title="100 B, one record per batch (`batch.size=1`), 1 replica, acks=1",
        workload=Produce(records=300_000, record_bytes=100, batch_bytes=1, linger_ms=0, buffer_bytes=4 << 20),
        seconds=50,
        limits={"cpu_us": SINGLE_RECORD_US},
    ),
    Scenario(
        name="produce-1000-partitions",
        theme="produce",
        title="100 B, 1,000 partitions round robin, 1 replica, acks=1",
        workload=Produce(records=200_000, record_bytes=100, partitions=1000, every_partition=True),
        seconds=90,
    ),
    Scenario(
        name="produce-1000-idle",
        theme="produce",
        title="100 B, with 1,000 idle connections, 1 replica, acks=1",
        workload=Produce(records=2_000_000, record_bytes=100, idle_connections=1000),
        seconds=20,
        prepare_seconds=5,
    ),
    Scenario(
        name="busy-200",
        theme="connections",
        title="200 busy connections",
        workload=ProduceBusy(requests=400_000, connections=200, window=5, record_bytes=100),
        seconds=30,
        limits={"cpu_us": SINGLE_RECORD_US},
    ),
    *_consume(),
    Scenario(
        name="consume-two-behind",
        theme="behind",
        title="two consumers, 100 B, from memory",
        workload=ConsumeBehind(
            records=3_000_000, record_bytes=100, batch_records=40, fetch_bytes=16 << 10, least_records=640_000
        ),
        seconds=10,
        prepare_seconds=20,
        properties={"log.segment.bytes": str(16 << 20)},
    ),
    *_tls(),
    *_latency(),
    Scenario(
        name="end-to-end",
        theme="latency",
        title="one record at a time to a consumer, 100 B, 1 replica, acks=1",
        workload=EndToEnd(records=5_000, record_bytes=100, acks="1"),
        seconds=25,
    ),
    *_spark_sink(),
    *_mirror(),
    Scenario(
        name="transactions",
        theme="transactions",
        title="100 records of 100 B, 10 partitions, 1 replica",
        workload=Transactions(producers=4, transactions=1_000, records=100, record_bytes=100, partitions=10),
        seconds=30,
        properties={"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"},
    ),
    Scenario(
        name="group-heartbeats",
        theme="groups",
        title="heartbeats of 10,000 groups of 3 members",
        workload=GroupHeartbeats(groups=10_000, members=3, interval_s=3.0, seconds=15.0, connections=300),
        seconds=32,
        prepare_seconds=40,
        properties={"group.initial.rebalance.delay.ms": "100"},
        limits={"cpu_s": 3.0},
    ),
    Scenario(
        name="group-500",
        theme="groups",
        title="rebalance of a group of 500 members",
        workload=LargeGroup(members=500, partitions=1_000),
        seconds=20,
        prepare_seconds=10,
        properties={"group.initial.rebalance.delay.ms": "1000"},
        limits={"rebalance_s": 3.0},
    ),
    Scenario(
        name="group-load",
        theme="groups",
        title="load of 1,000,000 committed offsets",
        workload=LoadOffsets(groups=1_000, partitions=1_000),
        seconds=40,
        prepare_seconds=60,
        warm_ups=0,
        limits={"load_s": 10.0},
    ),
    Scenario(
        name="start-clean",
        theme="start",
        title="after a controlled shutdown, 5 GiB in 1,000 partitions",
        workload=Start(log_bytes=5 * GIBIBYTE, partitions=1000, crash=False),
        seconds=45,
        prepare_seconds=90,
        warm_ups=0,
    ),
    Scenario(
        name="start-crash",
        theme="start",
        title="after SIGKILL, 5 GiB of unflushed records in 6 partitions",
        workload=Start(log_bytes=5 * GIBIBYTE, partitions=6, crash=True),
        seconds=60,
        prepare_seconds=90,
        warm_ups=0,
    ),
    Scenario(
        name="controller-failover",
        theme="control",
        title="the controller is killed, 5,000 partitions, 3 replicas",
        workload=ControllerFailover(partitions=5_000, replicas=3),
        seconds=150,
        prepare_seconds=120,
        brokers=3,
        warm_ups=0,
        properties={"zookeeper.session.timeout.ms": "18000", "auto.leader.rebalance.enable": "false"},
        limits={"leaders_s": 5.0},
    ),
    Scenario(
        name="metadata-10000",
        theme="control",
        title="all metadata, 10,000 partitions",
        workload=AskAllMetadata(partitions=10_000),
        seconds=5,
        prepare_seconds=60,
        limits={"p99_ms": 100.0},
    ),
    Scenario(
        name="create-5000",
        theme="control",
        title="create 5,000 partitions, 3 brokers, 1 replica",
        workload=CreateTopics(partitions=5_000),
        seconds=30,
        prepare_seconds=61,
        brokers=3,
        warm_ups=0,
    ),
    Scenario(
        name="compact",
        theme="compaction",
        title="2 GiB of 200-byte records, 10 million keys",
        workload=Compact(log_bytes=2 * GIBIBYTE, keys=10_000_000, baseline_seconds=20),
        seconds=240,
        warm_ups=0,
    ),
    Scenario(
        name="convert-down",
        theme="conversion",
        title="fetched in format 1 from format 2",
        workload=Consume(reader=Reader.OLD, records=3_000_000, record_bytes=200, batch_records=500),
        seconds=30,
        prepare_seconds=20,
    ),
    Scenario(
        name="convert-up",
        theme="conversion",
        title="produced in format 1, stored in format 2",
        workload=ProduceOld(records=1_000_000, record_bytes=200, records_per_request=500),
        seconds=30,
    ),
    Scenario(
        name="idle",
        theme="memory",
        title="just started",
        workload=Idle(seconds=10),
        seconds=20,
        warm_ups=0,
    ),
    Scenario(
        name="idle-1000",
        theme="memory",
        title="with 1,000 partitions and 1,000 connections",
        workload=Idle(seconds=10, partitions=1000, connections=1000),
        seconds=20,
        prepare_seconds=30,
        warm_ups=0,
    ),
    *SPARK_SCENARIOS,
)


CURVE_SCENARIOS: Final = tuple(scenario for curve in CURVES for scenario in curve.scenarios)
"""The points of the cost curves, which run only if they are named."""


def chosen(names: Sequence[str]) -> list[Scenario]:
    """Return the scenarios whose names begin with one of `names`, in the order of the document.

    For no names, return the catalog without the cost curves. Raises `ValueError` for a name without a scenario.
    """
    if not names:
        return list(CATALOGUE)
    known = (*CATALOGUE, *CURVE_SCENARIOS)
    for name in names:
        if not any(scenario.name.startswith(name) for scenario in known):
            raise ValueError(f"there is no scenario {name}: see --list")
    exact = {scenario.name for scenario in known}
    return [
        scenario
        for scenario in known
        if any(scenario.name == name if name in exact else scenario.name.startswith(name) for name in names)
    ]
