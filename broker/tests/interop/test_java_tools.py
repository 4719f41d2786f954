"""The unmodified command-line tools of Apache Kafka 3.9.1 and 4.1.0 work with this broker."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import confluent_kafka
import pytest

from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import InteropError, Tools, jars, java_command, quick_start

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
REPLICA_VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
END_TO_END_LATENCY = "org.apache.kafka.tools.EndToEndLatency"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
OLD_CONSOLE_PRODUCER, CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer", "org.apache.kafka.tools.ConsoleProducer"
OLD_API_VERSIONS, API_VERSIONS = (
    "kafka.admin.BrokerApiVersionsCommand",
    "org.apache.kafka.tools.BrokerApiVersionsCommand",
)

NEEDED_APIS = (
    "Produce Fetch ListOffsets Metadata OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup "
    "SyncGroup DescribeGroups ListGroups ApiVersions CreateTopics DeleteTopics InitProducerId DescribeConfigs "
    "DescribeLogDirs CreatePartitions DeleteGroups IncrementalAlterConfigs DescribeCluster"
).split()


def produce(tools: Tools, topic: str, lines: list[str], *options: str) -> None:
    """Run ConsoleProducer. A line is `key:value`."""
    reader = ["--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:", *options]
    producer = tools.named(OLD_CONSOLE_PRODUCER, CONSOLE_PRODUCER)
    tools.run(producer, *reader, stdin="".join(f"{line}\n" for line in lines))


def consume(tools: Tools, topic: str, count: int, *options: str) -> list[str]:
    """Run ConsoleConsumer from the beginning. A line is `key:value`."""
    limits = ["--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000"]
    shown = ["--property", "print.key=true", "--property", "key.separator=:"]
    return tools.run(CONSOLE_CONSUMER, "--topic", topic, *limits, *shown, *options).splitlines()


def table(printed: str, group: str) -> list[dict[str, str]]:
    """Return the rows of a group in the output of ConsumerGroupCommand, by column."""
    heading = next(line for line in printed.splitlines() if line.startswith("GROUP ")).replace(
        "COORDINATOR (ID)", "COORDINATOR ID"
    )
    rows = [line.split() for line in printed.splitlines() if line.startswith(f"{group} ")]
    return [dict(zip(heading.split(), row, strict=False)) for row in rows]


def test_topic_command(tools: Tools) -> None:
    name = f"java-{uuid4().hex[:8]}"
    shape = ["--partitions", "3", "--replication-factor", "3", "--config", "retention.ms=3600000"]
    assert "Created topic" in tools.run(TOPICS, "--create", "--topic", name, *shape)
    assert name in tools.run(TOPICS, "--list").split()
    with pytest.raises(InteropError, match="exists"):
        tools.run(TOPICS, "--create", "--topic", name)
    described = tools.run(TOPICS, "--describe", "--topic", name)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 3\s+Configs: .*retention\.ms=3600000", described)
    assert {int(leader) for leader in re.findall(r"Leader: (\d+)", described)} == {0, 1, 2}
    replicas = re.findall(r"Replicas: ([\d,]+)\s+Isr: ([\d,]+)", described)
    assert [set(every.split(",")) for every, _ in replicas] == [{"0", "1", "2"}] * 3
    assert [set(in_sync.split(",")) for _, in_sync in replicas] == [{"0", "1", "2"}] * 3
    assert f"Topic: {name}\t" in tools.run(TOPICS, "--describe", "--topics-with-overrides")
    for unhealthy in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert name not in tools.run(TOPICS, "--describe", unhealthy)
    tools.run(TOPICS, "--alter", "--topic", name, "--partitions", "5")
    assert tools.run(TOPICS, "--describe", "--topic", name).count("Leader: ") == 5
    tools.run(TOPICS, "--delete", "--topic", name)
    wait_until(lambda: name not in tools.run(TOPICS, "--list").split(), what=f"the end of topic {name}")


def test_console_tools_and_groups(tools: Tools, topic: str, group: str) -> None:
    lines = [f"k{number % 7}:value {number}" for number in range(100)]
    produce(tools, topic, lines)
    rack = "client.rack=somewhere"
    read = consume(tools, topic, 100, "--group", group, "--consumer-property", rack)
    for key in {line.split(":")[0] for line in lines}:
        assert [line for line in read if line.startswith(f"{key}:")] == [
            line for line in lines if line.startswith(f"{key}:")
        ]

    assert group in tools.run(GROUPS, "--list").split()
    rows = table(tools.run(GROUPS, "--describe", "--group", group), group)
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == 100
    assert {row["LAG"] for row in rows} == {"0"}
    reset = ["--reset-offsets", "--to-earliest", "--execute", "--topic", topic]
    tools.run(GROUPS, *reset, "--group", group)
    rows = table(tools.run(GROUPS, "--describe", "--group", group), group)
    assert {row["CURRENT-OFFSET"] for row in rows} == {"0"}
    assert sum(int(row["LAG"]) for row in rows) == 100
    assert "successful" in tools.run(GROUPS, "--delete", "--group", group)
    assert group not in tools.run(GROUPS, "--list").split()


def test_group_with_a_member(tools: Tools, topic: str, group: str) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": tools.bootstrap, "group.id": group, "group.instance.id": "one", "client.id": "me"}
    )
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 3, what="the assignment")
        (state,) = table(tools.run(GROUPS, "--describe", "--group", group, "--state"), group)
        assert (state["STATE"], state["#MEMBERS"], state["ASSIGNMENT-STRATEGY"]) == ("Stable", "1", "range")
        (member,) = table(tools.run(GROUPS, "--describe", "--group", group, "--members", "--verbose"), group)
        assert (member["GROUP-INSTANCE-ID"], member["CLIENT-ID"], member["#PARTITIONS"]) == ("one", "me", "3")
        assert re.search(r"0, ?1, ?2", member[tools.named("ASSIGNMENT", "CURRENT-ASSIGNMENT")])
        assert "GroupNotEmptyException" in tools.run(GROUPS, "--delete", "--group", group)
    finally:
        consumer.close()


def test_offsets_are_deleted_unless_members_consume_the_topic(tools: Tools, topic: str, group: str) -> None:
    fill(tools, topic, 5)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": tools.bootstrap, "group.id": group, "enable.auto.commit": "false"}
    )

    def delete(partitions: str) -> dict[str, str]:
        """Return the output of the tool for each partition. `partitions` is the topic, or `topic:0,1`."""
        printed = tools.run(GROUPS, "--delete-offsets", "--group", group, "--topic", partitions)
        return dict(re.findall(rf"{topic} +(\d+) +(?:Error: :?org\.apache\.kafka\.common\.errors\.)?(\w+)", printed))

    def committed() -> dict[str, str]:
        rows = table(tools.run(GROUPS, "--describe", "--group", group), group)
        return {row["PARTITION"]: row["CURRENT-OFFSET"] for row in rows if row["CURRENT-OFFSET"] != "-"}

    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 3, what="the assignment")
        consumer.commit(
            offsets=[confluent_kafka.TopicPartition(topic, number, 5) for number in range(3)], asynchronous=False
        )
        refused = "GroupSubscribedToTopicException"
        assert delete(topic) == {"0": refused, "1": refused, "2": refused}
        assert committed() == {"0": "5", "1": "5", "2": "5"}
    finally:
        consumer.close()
    wait_until(lambda: "Empty" in tools.run(GROUPS, "--describe", "--group", group, "--state"), what="an empty group")
    unknown = "UnknownTopicOrPartitionException"
    assert delete(f"{topic}:0,2,7") == {"0": "Successful", "2": "Successful", "7": unknown}
    assert committed() == {"1": "5"}
    assert delete(topic) == {"0": "Successful", "1": "Successful", "2": "Successful"}
    assert group not in tools.run(GROUPS, "--list").split()


def test_every_replica_describes_the_producers_of_a_partition(tools: Tools, topic: str) -> None:
    settings = {"bootstrap.servers": tools.bootstrap, "enable.idempotence": "true"}
    producer = confluent_kafka.Producer(settings)
    for number in range(5):
        producer.produce(topic, f"value {number}", partition=0, timestamp=1_700_000_000_000 + number)
    assert producer.flush(60) == 0

    def described(*options: str) -> list[list[str]]:
        printed = tools.run(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0", *options)
        heading, *rows = [line.split() for line in printed.splitlines()]
        assert heading == [
            "ProducerId",
            "ProducerEpoch",
            "LatestCoordinatorEpoch",
            "LastSequence",
            "LastTimestamp",
            "CurrentTransactionStartOffset",
        ]
        return rows

    (of_leader,) = described()
    assert int(of_leader[0]) >= 0
    assert of_leader[1:] == ["0", "-1", "4", "1700000000004", "None"]
    for broker in range(3):
        assert described("--broker-id", f"{broker}") == [of_leader]


def test_performance_tools(tools: Tools, topic: str) -> None:
    size = ["--topic", topic, "--num-records", "50000", "--record-size", "100", "--throughput", "-1"]
    properties = ["--producer-props", f"bootstrap.servers={tools.bootstrap}", "acks=all", "compression.type=lz4"]
    assert "50000 records sent" in tools.run_plain(PRODUCER_PERFORMANCE, *size, *properties)
    read = tools.run(CONSUMER_PERFORMANCE, "--topic", topic, "--messages", "50000", "--timeout", "60000")
    counts = [line.split(",")[4].strip() for line in read.splitlines() if line.startswith("20")]
    assert sum(map(int, counts)) == 50_000
    ends = re.findall(rf"^{topic}:\d:(\d+)$", tools.run(OFFSETS, "--topic", topic), re.MULTILINE)
    assert len(ends) == 3
    assert sum(map(int, ends)) == 50_000
    starts = tools.run(OFFSETS, "--topic", topic, "--time", "earliest").split()
    assert sorted(starts) == [f"{topic}:{number}:0" for number in range(3)]


def test_latency_tool(tools: Tools, topic: str) -> None:
    output = tools.run_plain(END_TO_END_LATENCY, tools.bootstrap, topic, "50", "all", "100")
    assert re.search(r"Percentiles: 50th = \d+", output)


def test_every_codec(tools: Tools, topic: str) -> None:
    codecs = ("gzip", "snappy", "lz4", "zstd")
    lines = {codec: [f"{codec}:{codec} {number} " + "x" * 50 for number in range(50)] for codec in codecs}
    for codec in codecs:
        produce(tools, topic, lines[codec], "--compression-codec", codec)
    read = consume(tools, topic, 200, "--isolation-level", "read_committed")
    assert {codec: [line for line in read if line.startswith(codec)] for codec in codecs} == lines


def test_verifiable_clients(tools: Tools, topic: str, group: str) -> None:
    sent = tools.run(VERIFIABLE_PRODUCER, "--topic", topic, "--max-messages", "500", "--acks", "-1")
    assert json.loads(sent.splitlines()[-1])["acked"] == 500
    static = ["--group-instance-id", "one", "--reset-policy", "earliest", "--max-messages", "500"]
    strategy = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    read = tools.run(
        VERIFIABLE_CONSUMER, "--topic", topic, "--group-id", group, *static, "--assignment-strategy", strategy
    )
    events = [json.loads(line) for line in read.splitlines()]
    assigned = [event["partitions"] for event in events if event["name"] == "partitions_assigned"]
    assert [len(partitions) for partitions in assigned] == [3]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 500
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert events[-1]["name"] == "shutdown_complete"


def test_config_command_on_a_topic(tools: Tools, topic: str) -> None:
    entity = ["--entity-type", "topics", "--entity-name", topic]

    def overrides() -> dict[str, str]:
        output = tools.run(CONFIGS, "--describe", *entity)
        return dict(
            re.findall(r"^  ([a-z.]+)=(\S*) sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG", output, re.MULTILINE)
        )

    assert overrides() == {}
    tools.run(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=5000000,cleanup.policy=[compact,delete]")
    expected = {"retention.ms": "5000000", "cleanup.policy": "compact,delete"}
    wait_until(lambda: overrides() == expected, what="the new settings")
    for wrong in ("retention.ms=soon", "no.such.setting=1"):
        with pytest.raises(InteropError, match="InvalidConfigurationException"):
            tools.run(CONFIGS, "--alter", *entity, "--add-config", wrong)
    tools.run(CONFIGS, "--alter", *entity, "--delete-config", "cleanup.policy")
    wait_until(lambda: overrides() == {"retention.ms": "5000000"}, what="the end of one setting")
    in_force = tools.run(CONFIGS, "--describe", "--all", *entity)
    assert "  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}" in in_force


def test_config_command_on_brokers(tools: Tools) -> None:
    output = tools.run(CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    assert "  broker.id=1 sensitive=false synonyms={STATIC_BROKER_CONFIG:broker.id=1" in output
    output = tools.run(CONFIGS, "--describe", "--entity-type", "brokers")
    assert [line for line in output.splitlines() if "=" in line] == []
    assert {f"Dynamic configs for broker {number} are:" for number in range(3)} <= set(output.splitlines())
    assert "Default configs for brokers in the cluster are:" in output


def test_log_dirs_command(tools: Tools, topic: str) -> None:
    produce(tools, topic, [f"k{number}:value" for number in range(30)])
    output = tools.run(LOG_DIRS, "--describe", "--topic-list", topic)
    brokers = json.loads(output.splitlines()[-1])["brokers"]
    assert sorted(broker["broker"] for broker in brokers) == [0, 1, 2]
    directories = [directory for broker in brokers for directory in broker["logDirs"]]
    assert [directory["error"] for directory in directories] == [None] * 3
    sizes = [{entry["partition"]: entry["size"] for entry in directory["partitions"]} for directory in directories]
    assert sizes == [sizes[0]] * 3
    assert sorted(sizes[0]) == [f"{topic}-{number}" for number in range(3)]
    assert sum(sizes[0].values()) > 30 * len("value")
    output = tools.run(LOG_DIRS, "--describe", "--topic-list", topic, "--broker-list", "1")
    assert json.loads(output.splitlines()[-1])["brokers"] == [broker for broker in brokers if broker["broker"] == 1]


def fill(tools: Tools, topic: str, count: int) -> None:
    """Send this number of records to each of the three partitions, in several batches."""
    producer = confluent_kafka.Producer({"bootstrap.servers": tools.bootstrap, "batch.num.messages": 3})
    for number in range(count):
        for partition in range(3):
            producer.produce(topic, f"value {number}", f"{partition}", partition=partition)
    assert producer.flush(60) == 0


def offsets(tools: Tools, topic: str, time: str) -> list[int]:
    """Return the output of GetOffsetShell for the three partitions."""
    output = dict(
        re.findall(rf"^{topic}:(\d):(\d+)$", tools.run(OFFSETS, "--topic", topic, "--time", time), re.MULTILINE)
    )
    return [int(output[f"{partition}"]) for partition in range(3)]


def test_delete_records_command(tools: Tools, topic: str, tmp_path: Path) -> None:
    wanted = tmp_path / "offsets.json"

    def delete(before: list[tuple[int, int]]) -> str:
        partitions = [{"topic": topic, "partition": number, "offset": offset} for number, offset in before]
        wanted.write_text(json.dumps({"version": 1, "partitions": partitions}), encoding="utf-8")
        return tools.run(DELETE_RECORDS, "--offset-json-file", str(wanted))

    fill(tools, topic, 10)
    output = delete([(0, 4), (1, -1)])
    assert sorted(re.findall(r"^partition: (\S+)\tlow_watermark: (\d+)$", output, re.MULTILINE)) == [
        (f"{topic}-0", "4"),
        (f"{topic}-1", "10"),
    ]
    assert offsets(tools, topic, "earliest") == [4, 10, 0]
    assert offsets(tools, topic, "latest") == [10, 10, 10]
    left = [f"0:value {number}" for number in range(4, 10)] + [f"2:value {number}" for number in range(10)]
    assert sorted(consume(tools, topic, len(left))) == left
    output = delete([(2, 11), (0, 2)])
    assert re.search(rf"^partition: {topic}-2\terror: .*OffsetOutOfRangeException", output, re.MULTILINE)
    assert re.search(rf"^partition: {topic}-0\tlow_watermark: 4$", output, re.MULTILINE), (
        "the low watermark never decreases"
    )
    assert offsets(tools, topic, "earliest") == [4, 10, 0]
    with pytest.raises(InteropError, match="duplicate topic partitions"):
        delete([(0, 5), (0, 6)])


@pytest.fixture
def tools_of_3_9(request: pytest.FixtureRequest, odradek_cluster: RunningCluster) -> Tools:
    """For the tool that always uses its newest version of Fetch, even if brokers do not support it: 18 in Kafka 4.1."""
    version = "3.9.1"
    return Tools(version, jars(version, Path(request.config.rootpath) / ".interop"), odradek_cluster.bootstrap)


@contextmanager
def reports(tools: Tools, *arguments: str) -> Iterator[Iterator[str]]:
    """The output lines of a tool that does not end."""
    command = java_command(tools.folder, REPLICA_VERIFICATION, heap="256m", options=quick_start(tools.folder))
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        with process.stdout:
            yield process.stdout
    finally:
        process.kill()
        process.wait()


def test_replica_verification_tool(tools_of_3_9: Tools, topic: str) -> None:
    tools = tools_of_3_9
    fill(tools, topic, 100)
    where = ["--broker-list", tools.bootstrap, "--topics-include", topic]
    printed: list[str] = []
    with reports(tools, *where, "--time", "-2", "--report-interval-ms", "50") as lines:
        # A partition has no lag if every replica returned the same batches up to the high watermark.
        for line in lines:
            printed.append(line)
            if "max lag is 0 " in line:
                break
    assert "verification process is started" in printed[0]
    assert re.search(rf": max lag is 0 for partition {topic}-\d at offset 100 among 3 partitions$", printed[-1].strip())
    assert [line for line in printed if "match" in line] == []


def test_broker_api_versions_command(tools: Tools) -> None:
    output = tools.run(tools.named(OLD_API_VERSIONS, API_VERSIONS))
    brokers = re.findall(r"^\S+ \(id: (\d) .*?\) -> \((.*?)^\)", output, re.MULTILINE | re.DOTALL)
    assert sorted(number for number, _ in brokers) == ["0", "1", "2"]
    for _, apis in brokers:
        usable = re.findall(r"^\t(\w+)\(\d+\): [^\n]*\[usable: \d+\]", apis, re.MULTILINE)
        assert set(NEEDED_APIS) <= set(usable)


def test_cluster_tool(tools: Tools) -> None:
    assert re.fullmatch(
        r"Cluster ID: [\w-]{22}", tools.run_plain(CLUSTER, "cluster-id", "--bootstrap-server", tools.bootstrap).strip()
    )
