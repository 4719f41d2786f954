"""Tables and JSON of `odradek cluster`."""

from __future__ import annotations

from odradek.base.types import TopicPartition
from odradek.cli import render_cluster
from odradek.client.administration.feature_admin import FeatureMetadata, VersionRange
from odradek.client.models import (
    BrokerDescription,
    ClusterDescription,
    LogDirDescription,
    PartitionDescription,
    ReplicaSize,
    TopicDescription,
)

CLUSTER = ClusterDescription(
    cluster_id="c1",
    controller_id=2,
    brokers=tuple(BrokerDescription(node_id=n, host=f"h{n}", port=9092, rack="r" if n == 1 else None) for n in (1, 2)),
)


def topic(*partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> TopicDescription:
    return TopicDescription(
        name="t",
        partitions=tuple(
            PartitionDescription(partition=number, leader=leader, leader_epoch=0, replicas=replicas, isr=isr)
            for number, (leader, replicas, isr) in enumerate(partitions)
        ),
    )


def test_the_brokers_and_the_controller() -> None:
    table = render_cluster.broker_list(CLUSTER)
    assert table.title == "Cluster c1"
    assert table.rows == (("1", "h1:9092", "r", ""), ("2", "h2:9092", "", "controller"))
    assert render_cluster.cluster_value(CLUSTER)["controller"] == 2


def test_a_healthy_cluster() -> None:
    found = render_cluster.health_of(CLUSTER, [topic((1, (1, 2), (1, 2)), (2, (1, 2), (2, 1)))])
    assert found.is_healthy
    assert found.not_preferred == (TopicPartition("t", 1),)
    table = render_cluster.health_table(found)
    assert (table.title, table.marked) == ("The cluster is healthy.", frozenset())
    assert render_cluster.health_value(found)["healthy"] is True


def test_what_is_wrong_is_marked() -> None:
    partitions = [(-1, (1,), ()), *[(1, (1, 2), (1,))] * 25]
    found = render_cluster.health_of(CLUSTER, [topic(*partitions)])
    assert not found.is_healthy
    table = render_cluster.health_table(found)
    assert table.marked == {4, 5}
    assert table.rows[4] == ("without leader", "1", "t-0")
    assert table.rows[5][2].endswith("t-20 and 5 more")
    value = render_cluster.health_value(found)
    assert value["withoutLeader"] == [{"topic": "t", "partition": 0}]
    no_controller = ClusterDescription(cluster_id="c1", controller_id=-1, brokers=())
    assert render_cluster.health_table(render_cluster.health_of(no_controller, [])).marked == {1}


def test_log_directories() -> None:
    replicas = {
        TopicPartition("t", 0): ReplicaSize(size_bytes=3 << 20),
        TopicPartition("t", 1): ReplicaSize(size_bytes=0),
    }
    found = {
        1: [
            LogDirDescription(path="/a", replicas=replicas, total_bytes=5 << 30, usable_bytes=1 << 30),
            LogDirDescription(path="/b", error_code=56),
        ]
    }
    table = render_cluster.log_dir_table(found)
    assert table.rows[0] == ("1", "/a", "online", "2", "3.0 MiB", "1.0 GiB", "5.0 GiB")
    assert table.rows[1] == ("1", "/b", "offline (error 56)", "0", "0 B", "unknown", "unknown")
    assert table.marked == {1}
    (first, _) = render_cluster.log_dir_values(found)
    assert first["replicas"][0] == {  # type: ignore[index]
        "topic": "t",
        "partition": 0,
        "sizeBytes": 3 << 20,
        "offsetLag": 0,
        "future": False,
    }


def test_the_loads_of_brokers_include_those_that_are_not_alive() -> None:
    partition = TopicPartition("t", 0)
    directories = {
        1: [
            LogDirDescription(
                path="/a",
                error_code=0,
                replicas={partition: ReplicaSize(size_bytes=2048, offset_lag=0, future=False)},
                total_bytes=-1,
                usable_bytes=-1,
            ),
            LogDirDescription(path="/b", error_code=56, replicas={}, total_bytes=-1, usable_bytes=-1),
        ]
    }
    loads = render_cluster.broker_loads(CLUSTER, [topic((1, (1, 3), (1,)), (2, (2, 1), (1, 2)))], directories)
    assert [(load.broker, load.leaders, load.replicas, load.not_in_sync) for load in loads] == [
        (1, 1, 2, 0),
        (2, 1, 1, 0),
        (3, 0, 1, 1),
    ]
    table = render_cluster.broker_load_table(loads)
    assert table.rows == (
        ("1", "h1:9092", "r", "", "alive, 1 directories offline", "1", "2", "0", "2.0 KiB"),
        ("2", "h2:9092", "", "controller", "alive", "1", "1", "0", "unknown"),
        ("3", "", "", "", "not alive", "0", "1", "1", "unknown"),
    )
    assert table.marked == {0, 2}
    assert render_cluster.broker_load_value(loads[2])["alive"] is False


def test_finalized_and_supported_features() -> None:
    found = FeatureMetadata(
        finalized={"kraft.version": VersionRange(1, 1)},
        finalized_epoch=7,
        supported={"kraft.version": VersionRange(0, 1), "group.version": VersionRange(0, 1)},
    )
    table = render_cluster.features_table(found)
    assert table.title == "Epoch of the finalized features: 7"
    assert table.rows == (("group.version", "-", "0-1"), ("kraft.version", "1", "0-1"))
    assert render_cluster.features_value(found)["finalized"] == {"kraft.version": {"min": 1, "max": 1}}
    none = render_cluster.features_table(FeatureMetadata(finalized={}, finalized_epoch=None, supported={}))
    assert (none.title, none.rows) == ("Epoch of the finalized features: unknown", ())
