"""Every series of the broker has a source and shows its value."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from odradek.app.coordinator_observation import ObservedTransactions, observe_transactions
from odradek.app.observation import Observed, observe
from odradek.base.config import BrokerConfig
from odradek.base.ports import Clock
from odradek.base.types import TopicPartition
from odradek.cluster import ClusterImage
from odradek.controller.controller_runtime import ControllerRuntime
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.coordinator_runtime import CoordinatorRuntime
from odradek.coordinator.groups.consumer.cluster_topics import ClusterTopics
from odradek.coordinator.groups.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.group_shard import GroupShard
from odradek.coordinator.lag.lag_monitor import LagMonitor
from odradek.log.compaction.cleaner import LogCleaner
from odradek.metrics.collector import BrokerCollector
from odradek.metrics.load_times import LoadTimes
from odradek.metrics.quantiles import Quantiles
from odradek.metrics.series import SERIES
from odradek.network.connection_options import NetworkCounters
from odradek.network.listener import Listener
from odradek.network.request_memory import RequestMemory
from odradek.protocol.apis import ApiKey
from odradek.security.quotas.quota_model import DEFAULT, QuotaEntity, QuotaKind, QuotaTable
from odradek_testkit.disk import MemoryFiles
from odradek_testkit.groups import SETTINGS, MemoryPartition
from odradek_testkit.inline_ports import InlineWorkers
from odradek_testkit.loop import ManualClock, VirtualClock, run_virtual
from odradek_testkit.replicas import record_set
from odradek_testkit.server import MemoryServer

TRANSACTIONS = ObservedTransactions(
    load_times=LoadTimes(ManualClock()),
    unknown_destinations=lambda: 13,
    waiting_completions=lambda: 14,
    prepared=lambda: 16,
    oldest_prepared_ms=lambda: 17,
    verification_ms=Quantiles(),
    failed_verifications=lambda: 15,
)
COUNTS = SimpleNamespace(
    active_controllers=1,
    offline_partitions=2,
    preferred_replica_imbalance=3,
    topics=4,
    partitions=5,
    unclean_elections=6,
    topics_to_delete=7,
    active_brokers=8,
)


def test_every_series_has_its_source(tmp_path: Path) -> None:
    async def main() -> None:
        server = MemoryServer(tmp_path, VirtualClock())
        await server.start()
        collector = BrokerCollector()
        try:
            observe(collector, observed(server))
            observe_transactions(collector, TRANSACTIONS)
            quotas = {QuotaKind.PRODUCER_BYTE_RATE: 1.0, QuotaKind.REQUEST_PERCENTAGE: 50.0}
            server.quotas.table = QuotaTable({QuotaEntity(user=DEFAULT): quotas})
            await server.announce("t", {0: [1], 1: [2, 1]}, brokers=(1, 2))
            await produce(server)
            server.replicas.partition(TopicPartition("t", 0)).adding_replicas = (3,)
            metrics = list(collector.collect())
        finally:
            collector.close()
            await server.close()
        assert sorted(metric.name for metric in metrics) == sorted(
            name.removesuffix("_total") if metric_is_counter(name) else name for name in SERIES
        )
        read = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for metric in metrics
            for sample in metric.samples
        }
        assert expected(read) == EXPECTED

    run_virtual(main())


def metric_is_counter(name: str) -> bool:
    return name.endswith("_total")


def observed(server: MemoryServer) -> Observed:
    listener = SimpleNamespace(
        name="PLAINTEXT", counters=NetworkCounters(connections=8, connections_accepted=20, failed_authentications=3)
    )
    return Observed(
        clock=server.clock,
        replicas=server.replicas,
        logs=server.logs,
        cleaner=LogCleaner(server.logs, InlineWorkers(), MemoryFiles(), server.clock, BrokerConfig()),
        controller=cast(
            ControllerRuntime, SimpleNamespace(counts=lambda: COUNTS, state=2, broker_change_ms=Quantiles())
        ),
        groups=coordinator_without_groups(server.clock),
        group_load_times=LoadTimes(server.clock),
        lag=cast(LagMonitor, SimpleNamespace(measured=list, omitted=0)),
        transactions=ObservedTransactions(
            load_times=LoadTimes(server.clock),
            unknown_destinations=lambda: 13,
            waiting_completions=lambda: 14,
            prepared=lambda: 16,
            oldest_prepared_ms=lambda: 17,
            verification_ms=Quantiles(),
            failed_verifications=lambda: 15,
        ),
        max_transaction_ms=BrokerConfig().transaction_max_timeout_ms,
        listeners=[cast(Listener, listener)],
        request_memory=depleted_memory(server.clock),
        purgatories=[server.replicas.fetch_purgatory],
        topic_stats=server.topic_stats,
        request_stats=server.request_stats,
        broker_state=lambda: 3,
        waiting_requests=lambda: 12,
        session_counts=lambda: (9, 10, 11),
        zookeeper_latency=Quantiles(),
        throttle=server.throttle,
    )


def coordinator_without_groups(clock: Clock) -> GroupCoordinator:
    log = MemoryPartition()
    runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
        writer=log, reader=log, clock=clock, batch_limit_bytes=1 << 20
    )

    async def verify(topic_partition: TopicPartition, writer: TransactionalWriter) -> TransactionalWriter:
        return writer

    groups = GroupCoordinator(
        settings=SETTINGS,
        clock=clock,
        runtime=runtime,
        partition_count=lambda: 1,
        verify=verify,
        topics=ClusterTopics(ClusterImage),
    )
    events = groups.events
    events.commits, events.expirations, events.deletions, events.rebalances = 21, 22, 23, 24
    events.consumer_rebalances = 25
    return groups


def depleted_memory(clock: Clock) -> RequestMemory:
    """Reserve more than the limit."""
    memory = RequestMemory(100, clock)
    memory.reservation(lambda: None).covers(130)
    return memory


async def produce(server: MemoryServer) -> None:
    records = bytes(record_set(b"a", b"b"))
    topics = [{"name": TopicPartition("t", 0).topic, "partition_data": [{"index": 0, "records": records}]}]
    message = {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": topics}
    await server.ask(ApiKey.PRODUCE, 9, message)


QUOTA: Final = (("clientId", ""), ("resource", "Produce"), ("user", "ANONYMOUS"))
FIRST, SECOND = (("partition", "0"), ("topic", "t")), (("partition", "1"), ("topic", "t"))
EXPECTED: dict[tuple[str, Any], float] = {
    ("kafka_server_replicamanager_leadercount", ()): 1,
    ("kafka_server_replicamanager_partitioncount", ()): 2,
    ("kafka_server_replicamanager_produceridcount", ()): 0,
    ("kafka_server_replicamanager_partitionswithlatetransactionscount", ()): 0,
    ("kafka_coordinator_group_groupmetadatamanager_numgroups", ()): 0,
    ("kafka_server_group_coordinator_metrics_offset_commit_count", ()): 21,
    ("kafka_server_group_coordinator_metrics_offset_expiration_count", ()): 22,
    ("kafka_server_group_coordinator_metrics_group_count", (("protocol", "consumer"),)): 0,
    ("kafka_server_group_coordinator_metrics_consumer_group_count", (("state", "Reconciling"),)): 0,
    ("kafka_server_group_coordinator_metrics_offset_deletion_count", ()): 23,
    ("kafka_server_group_coordinator_metrics_group_completed_rebalance_count", ()): 24,
    ("kafka_server_group_coordinator_metrics_consumer_group_rebalance_count", ()): 25,
    ("kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance", ()): 0,
    ("kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize", ()): 13,
    ("kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize", ()): 14,
    ("odradek_transaction_coordinator_prepared", ()): 16,
    ("odradek_transaction_coordinator_oldest_prepared_ms", ()): 17,
    ("kafka_server_addpartitionstotxnmanager_verificationtimems_count", ()): 0,
    ("kafka_server_addpartitionstotxnmanager_verificationfailurerate_total", ()): 15,
    ("kafka_server_transaction_coordinator_metrics_partition_load_time_max", ()): 0,
    ("kafka_server_group_coordinator_metrics_partition_load_time_avg", ()): 0,
    ("kafka_cluster_partition_replicascount", FIRST): 1,
    ("kafka_cluster_partition_replicascount", SECOND): 0,
    ("kafka_cluster_partition_atminisr", FIRST): 1,
    ("kafka_cluster_partition_atminisr", SECOND): 0,
    ("kafka_log_log_logendoffset", FIRST): 2,
    ("kafka_log_log_logendoffset", SECOND): 0,
    ("kafka_log_log_numlogsegments", FIRST): 1,
    ("kafka_controller_kafkacontroller_activecontrollercount", ()): 1,
    ("kafka_server_replicamanager_reassigningpartitions", ()): 1,
    ("kafka_controller_kafkacontroller_globalpartitioncount", ()): 5,
    ("kafka_controller_kafkacontroller_topicstodeletecount", ()): 7,
    ("kafka_controller_kafkacontroller_activebrokercount", ()): 8,
    ("kafka_controller_controllerstats_uncleanleaderelections_total", ()): 6,
    ("kafka_server_kafkaserver_brokerstate", ()): 3,
    ("kafka_server_sessionexpirelistener_zookeeperexpires_total", ()): 9,
    ("kafka_server_sessionexpirelistener_zookeeperdisconnects_total", ()): 10,
    ("kafka_server_sessionexpirelistener_zookeepersyncconnects_total", ()): 11,
    ("kafka_network_requestchannel_requestqueuesize", ()): 12,
    ("kafka_server_quota_byte_rate", QUOTA): 11.3,
    ("kafka_server_quota_throttle_time", QUOTA): 111_000,
    ("kafka_server_quota_request_time", (("clientId", ""), ("resource", "Request"), ("user", "ANONYMOUS"))): 0,
    ("kafka_network_socketserver_memorypoolavailable", ()): -30,
    ("kafka_network_socketserver_memorypoolused", ()): 130,
    ("kafka_server_socket_server_metrics_memorypooldepletedtimetotal", ()): 0,
    ("kafka_controller_kafkacontroller_controllerstate", ()): 2,
    (
        "kafka_server_socket_server_metrics_connection_count",
        (("listener", "PLAINTEXT"), ("networkProcessor", "0")),
    ): 8,
    (
        "kafka_server_socket_server_metrics_connection_close_total",
        (("listener", "PLAINTEXT"), ("networkProcessor", "0")),
    ): 12,
    (
        "kafka_server_socket_server_metrics_failed_authentication_total",
        (("listener", "PLAINTEXT"), ("networkProcessor", "0")),
    ): 3,
    ("kafka_server_delayedoperationpurgatory_purgatorysize", (("delayedOperation", "Fetch"),)): 0,
    ("kafka_server_brokertopicmetrics_messagesin_total", (("topic", "t"),)): 2,
}


def expected(read: dict[tuple[str, Any], float]) -> dict[tuple[str, Any], float]:
    """The values that the test sets."""
    return {key: value for key, value in read.items() if key in EXPECTED}
