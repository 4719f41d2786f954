"""Alerts on brokers: availability, replication, disks and load. Pure.

Names match those of common Kafka alerts, so that existing routes of Alertmanager apply. `docs/runbook.md` has a section
for each alert; a test checks this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.alerts import BROKER, WHICH, Alert, AlertGroup, Severity
from odradek_operator.dashboards.queries import CLUSTER

_CLAIM: Final = "{{ $labels.namespace }}/{{ $labels.persistentvolumeclaim }}"

_AVAILABILITY: Final = AlertGroup(
    name="odradek.availability",
    alerts=(
        Alert(
            name="OfflinePartitions",
            severity=Severity.CRITICAL,
            query=f"{queries.OFFLINE_PARTITIONS} > 0",
            duration="1m",
            summary=f"{WHICH}: {{{{ $value }}}} partitions have no leader",
            description="They cannot be written or read until a broker with an in-sync replica returns.",
        ),
        Alert(
            name="UnderMinIsrPartitionCount",
            severity=Severity.CRITICAL,
            query=f"{queries.UNDER_MIN_ISR} > 0",
            duration="2m",
            summary=f"{WHICH}: {{{{ $value }}}} partitions reject writes with acks=all",
            description="Fewer replicas are in sync than min.insync.replicas requires.",
        ),
        Alert(
            name="AbnormalControllerState",
            severity=Severity.CRITICAL,
            query=f"{queries.CONTROLLERS} != 1",
            duration="1m",
            summary=f"{WHICH}: {{{{ $value }}}} controllers instead of one",
            description="Without a controller, no leader is elected, and topics and ISRs cannot change.",
        ),
        Alert(
            name="UncleanLeaderElection",
            severity=Severity.CRITICAL,
            query=f"sum by ({CLUSTER}) "
            "(increase(kafka_controller_controllerstats_uncleanleaderelections_total{SCOPE}[15m])) > 0",
            duration="0m",
            summary=f"{WHICH}: a leader was elected from outside the ISR",
            description="Acknowledged records may be lost. This only happens if unclean.leader.election.enable is set.",
        ),
        Alert(
            name="HangingTransactions",
            severity=Severity.CRITICAL,
            # A leader does not know which transactions are prepared; these have an alert of their own.
            query=f"({queries.LATE_TRANSACTIONS} > 0) unless on ({queries.CLUSTER}) "
            f"({queries.PREPARED_MS} > {queries.LATE_AFTER_MS})",
            duration="2m",
            summary=f"{BROKER} leads partitions with a transaction that does not end",
            description="{{ $value }} partitions are affected. Their consumers with isolation.level=read_committed get "
            "no newer records.",
        ),
        Alert(
            name="PreparedTransactionsWait",
            severity=Severity.WARNING,
            query=f"{queries.PREPARED_MS} / 1000 > 900",
            duration="5m",
            summary="{{ $labels.namespace }}/{{ $labels.strimzi_io_cluster }}: a prepared transaction is not ended",
            description="It began {{ $value | humanizeDuration }} ago. Consumers with isolation.level=read_committed "
            "get no newer records of its partitions until it is committed or aborted.",
        ),
        Alert(
            name="BrokerDown",
            severity=Severity.WARNING,
            query=f'up{{SCOPE, strimzi_io_kind="Kafka", {queries.OF_BROKERS}}} == 0',
            duration="3m",
            summary=f"{BROKER} does not answer",
            description="The container exists, but its metrics endpoint does not respond. Other brokers lead its "
            "partitions.",
        ),
        Alert(
            name="BrokersMissing",
            severity=Severity.WARNING,
            query="odradek_pods_ready{OPERATED} < odradek_pods_wanted{OPERATED}",
            duration="10m",
            summary="{{ $labels.cluster_namespace }}/{{ $labels.strimzi_io_cluster }}: pods of {{ $labels.component }} "
            "are missing or not ready",
            description="Only {{ $value }} are ready. Another failure may make partitions unavailable.",
        ),
        Alert(
            name="ContainerRestarts",
            severity=Severity.WARNING,
            query='changes(process_start_time_seconds{SCOPE, container=~"kafka(-[0-9]+)?|zookeeper"}[1h]) > 2',
            duration="0m",
            summary=f"{BROKER} restarts repeatedly",
            description="Its process restarted {{ $value | humanize }} times within an hour.",
        ),
    ),
)

_REPLICATION: Final = AlertGroup(
    name="odradek.replication",
    alerts=(
        Alert(
            name="UnderReplicatedPartitions",
            severity=Severity.WARNING,
            query=f"{queries.UNDER_REPLICATED} > 0",
            duration="10m",
            summary=f"{WHICH}: {{{{ $value }}}} partitions have replicas that are out of sync",
            description="This has lasted longer than a restart takes. Another failure may stop writes.",
        ),
        Alert(
            name="UnderReplicatedPartition",
            severity=Severity.INFO,
            query=f"sum by ({CLUSTER}, topic) (kafka_topic_partition_under_replicated_partition{{SCOPE}}) > 0",
            duration="15m",
            summary=f"{WHICH}: topic {{{{ $labels.topic }}}} has {{{{ $value }}}} under-replicated partitions",
            description="This alert lists the topics that UnderReplicatedPartitions is about.",
        ),
        Alert(
            name="IsrFlapping",
            severity=Severity.WARNING,
            query=f"sum by ({CLUSTER}) (rate(kafka_server_replicamanager_isrshrinks_total{{SCOPE}}[10m])) > 0.1",
            duration="20m",
            summary=f"{WHICH}: ISRs shrink repeatedly",
            description="ISRs shrink {{ $value | humanize }} times per second: a follower, its disk or its network is "
            "overloaded.",
        ),
        Alert(
            name="ReassignmentStuck",
            severity=Severity.WARNING,
            query=f"sum by ({CLUSTER}) (min_over_time(kafka_server_replicamanager_reassigningpartitions"
            "{SCOPE}[1h])) > 0",
            duration="6h",
            summary=f"{WHICH}: partitions have been reassigned for seven hours",
            description="{{ $value }} partitions are affected. The throttle is too low for the incoming data, or a "
            "broker is down.",
        ),
        Alert(
            name="LeadersNotPreferred",
            severity=Severity.INFO,
            query=f"max by ({CLUSTER}) (kafka_controller_kafkacontroller_preferredreplicaimbalancecount{{SCOPE}}) > "
            f"0.2 * max by ({CLUSTER}) (kafka_controller_kafkacontroller_globalpartitioncount{{SCOPE}})",
            duration="1h",
            summary=f"{WHICH}: more than a fifth of the partitions are not led by their preferred leader",
            description="{{ $value }} partitions are affected. The load of the brokers is uneven.",
        ),
        Alert(
            name="TopicDeletionStuck",
            severity=Severity.INFO,
            query=f"max by ({CLUSTER}) (kafka_controller_kafkacontroller_topicstodeletecount{{SCOPE}}) > 0",
            duration="30m",
            summary=f"{WHICH}: {{{{ $value }}}} topics marked for deletion still exist",
            description="A broker with replicas of these topics is down, or a partition is being reassigned.",
        ),
    ),
)

_DISKS: Final = AlertGroup(
    name="odradek.disks",
    alerts=(
        Alert(
            name="OfflineLogDirectoryCount",
            severity=Severity.CRITICAL,
            query=f"{queries.OFFLINE_DIRECTORIES} > 0",
            duration="1m",
            summary=f"{BROKER} has taken a log directory offline",
            description="Its file system returned an I/O error. The replicas in it are offline until the disk is "
            "replaced.",
        ),
        Alert(
            name="LogDirectoryRefusesWrites",
            severity=Severity.CRITICAL,
            query="odradek_log_directory_writes_refused{SCOPE} == 1",
            duration="1m",
            summary=f"{BROKER} rejects writes to {{{{ $labels.directory }}}}: its disk is almost full",
            description="Less than log.dir.min.free.bytes is free. Partitions with leaders in this directory cannot "
            "be written.",
        ),
        Alert(
            name="KafkaRunningOutOfSpace",
            severity=Severity.WARNING,
            query=f"{queries.CLAIM_FREE} < 0.15",
            duration="10m",
            summary=f"{_CLAIM} is almost full",
            description="{{ $value | humanizePercentage }} of the volume is free.",
        ),
        Alert(
            name="KafkaFullWithinADay",
            severity=Severity.WARNING,
            query="predict_linear(kubelet_volume_stats_available_bytes{CLAIMS}[6h], 86400) < 0 and "
            f"{queries.CLAIM_FREE} < 0.5",
            duration="1h",
            summary=f"{_CLAIM} will be full within a day",
            description="This is an extrapolation of the last six hours.",
        ),
        Alert(
            name="LogCleanerFailing",
            severity=Severity.WARNING,
            query=f"sum by ({CLUSTER}, {queries.BY_BROKER}) "
            "(kafka_log_logcleanermanager_uncleanable_partitions_count{SCOPE}) > 0 or "
            f"sum by ({CLUSTER}, {queries.BY_BROKER}) (kafka_log_logcleaner_deadthreadcount{{SCOPE}}) > 0",
            duration="15m",
            summary=f"{BROKER} does not compact its logs",
            description="Compacted topics, such as __consumer_offsets, grow without limit.",
        ),
    ),
)

_LOAD: Final = AlertGroup(
    name="odradek.load",
    alerts=(
        Alert(
            name="BrokerSaturated",
            severity=Severity.WARNING,
            query=f"{queries.LOOP_IDLE} < 0.1",
            duration="15m",
            summary=f"{BROKER} is busy almost all the time",
            description="Its event loop is idle {{ $value | humanizePercentage }} of the time: requests are queued.",
        ),
        Alert(
            name="ProduceSlow",
            severity=Severity.WARNING,
            query='kafka_network_requestmetrics_totaltimems{SCOPE, request="Produce", quantile="0.99"} > 1000',
            duration="15m",
            summary=f"{BROKER}: producers wait for more than a second",
            description="The 99th percentile of produce requests is {{ $value | humanize }} ms.",
        ),
        Alert(
            name="ProduceFailing",
            severity=Severity.WARNING,
            query=f"sum by ({CLUSTER}) "
            '(rate(kafka_server_brokertopicmetrics_failedproducerequests_total{SCOPE, topic=""}[5m])) > 0.05 * '
            f"sum by ({CLUSTER}) "
            '(rate(kafka_server_brokertopicmetrics_totalproducerequests_total{SCOPE, topic=""}[5m]))',
            duration="10m",
            summary=f"{WHICH}: more than 5 % of produce requests fail",
            description="{{ $value | humanize }} requests per second fail.",
        ),
        Alert(
            name="FewFileDescriptors",
            severity=Severity.WARNING,
            query=f"process_open_fds{{SCOPE, {queries.OF_BROKERS}}} / "
            f"process_max_fds{{SCOPE, {queries.OF_BROKERS}}} > 0.8",
            duration="10m",
            summary=f"{BROKER} uses {{{{ $value | humanizePercentage }}}} of its file descriptors",
            description="At the limit it can neither open segments nor accept connections.",
        ),
    ),
)

GROUPS: Final[Sequence[AlertGroup]] = (_AVAILABILITY, _REPLICATION, _DISKS, _LOAD)
