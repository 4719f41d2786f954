"""Alerts on brokers: what is lost, what is about to be, and what gets short. Pure.

Names are those that existing alert routes know where there are such. Each alert has a section of its name in
`docs/runbook.md`: a test holds both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from odradek_operator.dashboards import queries
from odradek_operator.dashboards.alerts import POD, WHICH, Alert, AlertGroup, Severity
from odradek_operator.dashboards.queries import CLUSTER

_CLAIM: Final = "{{ $labels.namespace }}/{{ $labels.persistentvolumeclaim }}"

_AVAILABILITY: Final = AlertGroup(
    name="odradek.availability",
    alerts=(
        Alert(
            name="OfflinePartitions",
            severity=Severity.CRITICAL,
            query=f"{queries.OFFLINE_PARTITIONS} > 0",
            lasting="1m",
            summary=f"{WHICH}: {{{{ $value }}}} partitions have no leader",
            description="They can neither be written nor read until one of their in-sync replicas is back.",
        ),
        Alert(
            name="UnderMinIsrPartitionCount",
            severity=Severity.CRITICAL,
            query=f"{queries.UNDER_MIN_ISR} > 0",
            lasting="2m",
            summary=f"{WHICH}: {{{{ $value }}}} partitions refuse writes with acks=all",
            description="Fewer replicas are in sync than min.insync.replicas demands.",
        ),
        Alert(
            name="AbnormalControllerState",
            severity=Severity.CRITICAL,
            query=f"{queries.CONTROLLERS} != 1",
            lasting="1m",
            summary=f"{WHICH}: {{{{ $value }}}} controllers instead of one",
            description="Without a controller no leader is elected, and topics and in-sync sets cannot change.",
        ),
        Alert(
            name="UncleanLeaderElection",
            severity=Severity.CRITICAL,
            query=f"sum by ({CLUSTER}) "
            "(increase(kafka_controller_controllerstats_uncleanleaderelections_total{SCOPE}[15m])) > 0",
            lasting="0m",
            summary=f"{WHICH}: a leader was chosen from outside the in-sync set",
            description="Records that had been acknowledged may be lost. It happens only where it was allowed.",
        ),
        Alert(
            name="BrokerDown",
            severity=Severity.WARNING,
            query='up{SCOPE, strimzi_io_kind="Kafka", container="kafka"} == 0',
            lasting="3m",
            summary=f"{POD} does not answer",
            description="The pod is there and its metrics are not. Its partitions are led by others meanwhile.",
        ),
        Alert(
            name="BrokersMissing",
            severity=Severity.WARNING,
            query="odradek_pods_ready{OPERATED} < odradek_pods_wanted{OPERATED}",
            lasting="10m",
            summary="{{ $labels.cluster_namespace }}/{{ $labels.strimzi_io_cluster }}: pods of {{ $labels.component }} "
            "are missing or not ready",
            description="Only {{ $value }} are ready. The next loss may cost availability.",
        ),
        Alert(
            name="ContainerRestarts",
            severity=Severity.WARNING,
            query='changes(process_start_time_seconds{SCOPE, container=~"kafka|zookeeper"}[1h]) > 2',
            lasting="0m",
            summary="{{ $labels.namespace }}/{{ $labels.kubernetes_pod_name }} starts again and again",
            description="Its process began anew {{ $value | humanize }} times within an hour.",
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
            lasting="10m",
            summary=f"{WHICH}: {{{{ $value }}}} partitions lack an in-sync replica",
            description="For longer than a restart takes. Another loss may stop writes.",
        ),
        Alert(
            name="UnderReplicatedPartition",
            severity=Severity.INFO,
            query=f"sum by ({CLUSTER}, topic) (kafka_topic_partition_under_replicated_partition{{SCOPE}}) > 0",
            lasting="15m",
            summary=f"{WHICH}: topic {{{{ $labels.topic }}}} has {{{{ $value }}}} under-replicated partitions",
            description="Says which topics UnderReplicatedPartitions is about.",
        ),
        Alert(
            name="IsrFlapping",
            severity=Severity.WARNING,
            query=f"sum by ({CLUSTER}) (rate(kafka_server_replicamanager_isrshrinks_total{{SCOPE}}[10m])) > 0.1",
            lasting="20m",
            summary=f"{WHICH}: in-sync sets shrink again and again",
            description="{{ $value | humanize }} times a second: a follower, its disk or its network is at its limit.",
        ),
        Alert(
            name="ReassignmentStuck",
            severity=Severity.WARNING,
            query=f"sum by ({CLUSTER}) (min_over_time(kafka_server_replicamanager_reassigningpartitions"
            "{SCOPE}[1h])) > 0",
            lasting="6h",
            summary=f"{WHICH}: replicas have been on the move for seven hours",
            description="{{ $value }} partitions: the throttle is too low for what comes in, or a broker is away.",
        ),
        Alert(
            name="LeadersNotPreferred",
            severity=Severity.INFO,
            query=f"max by ({CLUSTER}) (kafka_controller_kafkacontroller_preferredreplicaimbalancecount{{SCOPE}}) > "
            f"0.2 * max by ({CLUSTER}) (kafka_controller_kafkacontroller_globalpartitioncount{{SCOPE}})",
            lasting="1h",
            summary=f"{WHICH}: a fifth of the partitions is not led by the preferred broker",
            description="{{ $value }} partitions: some brokers do the work of others.",
        ),
        Alert(
            name="TopicDeletionStuck",
            severity=Severity.INFO,
            query=f"max by ({CLUSTER}) (kafka_controller_kafkacontroller_topicstodeletecount{{SCOPE}}) > 0",
            lasting="30m",
            summary=f"{WHICH}: {{{{ $value }}}} topics are to be deleted and are still there",
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
            lasting="1m",
            summary=f"{POD} has given up a log directory",
            description="Its file system failed with an I/O error. The replicas in it are gone until it is replaced.",
        ),
        Alert(
            name="LogDirectoryRefusesWrites",
            severity=Severity.CRITICAL,
            query="odradek_log_directory_writes_refused{SCOPE} == 1",
            lasting="1m",
            summary=f"{POD} refuses writes to {{{{ $labels.directory }}}}: its disk is all but full",
            description="It keeps log.dir.min.free.bytes free. Partitions led there cannot be written.",
        ),
        Alert(
            name="KafkaRunningOutOfSpace",
            severity=Severity.WARNING,
            query=f"{queries.CLAIM_FREE} < 0.15",
            lasting="10m",
            summary=f"{_CLAIM} is nearly full",
            description="{{ $value | humanizePercentage }} of it are free.",
        ),
        Alert(
            name="KafkaFullWithinADay",
            severity=Severity.WARNING,
            query="predict_linear(kubelet_volume_stats_available_bytes{CLAIMS}[6h], 86400) < 0 and "
            f"{queries.CLAIM_FREE} < 0.5",
            lasting="1h",
            summary=f"{_CLAIM} will be full within a day",
            description="At the pace of the last six hours.",
        ),
        Alert(
            name="LogCleanerFailing",
            severity=Severity.WARNING,
            query=f"sum by ({CLUSTER}, kubernetes_pod_name) "
            "(kafka_log_logcleanermanager_uncleanable_partitions_count{SCOPE}) > 0 or "
            f"sum by ({CLUSTER}, kubernetes_pod_name) (kafka_log_logcleaner_deadthreadcount{{SCOPE}}) > 0",
            lasting="15m",
            summary=f"{POD} does not compact its logs",
            description="Compacted topics, __consumer_offsets among them, grow without bound.",
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
            lasting="15m",
            summary=f"{POD} is busy nearly all the time",
            description="Its event loop is idle for {{ $value | humanizePercentage }} of the time: requests queue up.",
        ),
        Alert(
            name="ProduceSlow",
            severity=Severity.WARNING,
            query='kafka_network_requestmetrics_totaltimems{SCOPE, request="Produce", quantile="0.99"} > 1000',
            lasting="15m",
            summary=f"{POD}: producers wait for more than a second",
            description="One of a hundred produce requests takes {{ $value | humanize }} ms.",
        ),
        Alert(
            name="ProduceFailing",
            severity=Severity.WARNING,
            query=f"sum by ({CLUSTER}) "
            '(rate(kafka_server_brokertopicmetrics_failedproducerequests_total{SCOPE, topic=""}[5m])) > 0.05 * '
            f"sum by ({CLUSTER}) "
            '(rate(kafka_server_brokertopicmetrics_totalproducerequests_total{SCOPE, topic=""}[5m]))',
            lasting="10m",
            summary=f"{WHICH}: one of twenty attempts to produce fails",
            description="{{ $value | humanize }} a second end in an error.",
        ),
        Alert(
            name="FewFileDescriptors",
            severity=Severity.WARNING,
            query='process_open_fds{SCOPE, container="kafka"} / process_max_fds{SCOPE, container="kafka"} > 0.8',
            lasting="10m",
            summary=f"{POD} uses {{{{ $value | humanizePercentage }}}} of its file descriptors",
            description="Without any left it can neither open segments nor take connections.",
        ),
    ),
)

GROUPS: Final[Sequence[AlertGroup]] = (_AVAILABILITY, _REPLICATION, _DISKS, _LOAD)
