"""Records are deleted, leaders elected and replicas moved by the admin client, with real brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek import (
    BlockingClient,
    ElectionNotNeededError,
    ElectionType,
    InvalidReplicaAssignmentError,
    LogDirNotFoundError,
    NewTopic,
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    TopicPartition,
)
from odradek.testing.plugin import ClusterFactory
from odradek.testing.running_cluster import RunningCluster
from odradek.testing.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster(odradek_cluster_factory: ClusterFactory) -> RunningCluster:
    return odradek_cluster_factory(brokers=2, volumes=2)


@pytest.fixture
def client(cluster: RunningCluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.bootstrap) as made:
        first, second = cluster.broker_ids
        made.admin.create_topics([NewTopic(name="t", assignments=((first, second), (second, first)))])
        yield made


def test_partitions_are_managed(cluster: RunningCluster, client: BlockingClient) -> None:
    admin, (first, second) = client.admin, cluster.broker_ids
    with client.producer() as producer:
        for number in range(20):
            producer.send("t", b"%d" % number, partition=number % 2)

    assert admin.delete_records({T0: 3, T1: -1}) == {T0: 3, T1: 10}
    assert client.earliest_offsets([T0, T1]) == {T0: 3, T1: 10}
    with pytest.raises(OffsetOutOfRangeError, match="t-0 before offset 11"):
        admin.delete_records({T0: 11})

    assert isinstance(admin.elect_leaders([T0])[T0], ElectionNotNeededError)
    assert admin.elect_leaders() == {}
    cluster.stop_broker(first)
    wait_until(lambda: leader_of(client, 0) == second, what="another leader")
    cluster.start_broker(first)
    wait_until(lambda: len(admin.describe_topics(["t"])["t"].partitions[0].isr) == 2, what="both replicas in sync")
    assert admin.elect_leaders([T0], election=ElectionType.PREFERRED) == {T0: None}
    wait_until(lambda: leader_of(client, 0) == first, what="the preferred leader")

    admin.alter_partition_reassignments({T0: [second]})
    wait_until(lambda: not admin.list_partition_reassignments(), what="the end of the reassignment")
    wait_until(lambda: admin.describe_topics(["t"])["t"].partitions[0].replicas == (second,), what="one replica")
    with pytest.raises(NoReassignmentInProgressError):
        admin.alter_partition_reassignments({T0: None})
    with pytest.raises(InvalidReplicaAssignmentError, match="t-0 cannot be reassigned"):
        admin.alter_partition_reassignments({T0: [77]})
    assert admin.list_partition_reassignments([T0]) == {}
    admin.alter_partition_reassignments({})

    def directory() -> str:
        (found,) = (
            each.path
            for each in admin.describe_log_dirs([second])[second]
            if T1 in each.replicas and not each.replicas[T1].future
        )
        return found

    before = directory()
    (target,) = (each.path for each in admin.describe_log_dirs([second])[second] if each.path != before)
    assert admin.alter_replica_log_dirs({(second, T1): target}) == {(second, T1): None}
    wait_until(lambda: directory() == target, what="the replica in the other directory")
    errors = admin.alter_replica_log_dirs({(second, T1): "/nowhere"})
    assert isinstance(errors[second, T1], LogDirNotFoundError)


def leader_of(client: BlockingClient, partition: int) -> int:
    return client.admin.describe_topics(["t"])["t"].partitions[partition].leader
