"""Steps written to an in-memory ZooKeeper: the content, the conditions of each transaction, and the reverse steps."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest

from odradek.base.types import TopicPartition
from odradek.testing.memory_zk import MemoryZk
from odradek.zk import layout
from odradek.zk.layout import ReplicaAssignment, TopicAssignment
from odradek.zk.ownership import MANAGED_BROKERS, ROOT, BrokersOwnership, ManagedBrokers
from odradek_operator.lifecycle.steps import (
    LiftThrottle,
    MoveReplicas,
    RecordBrokers,
    SetBrokerDefaults,
    SetBrokerListeners,
    ZooKeeperStep,
)
from odradek_operator.topics.zookeeper_writer import OutdatedError, carry_out_step

DEFAULTS = "/config/brokers/<default>"
RATES = {"leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "1000"}
LISTS = {"leader.replication.throttled.replicas": "0:1", "follower.replication.throttled.replicas": "0:2"}
MOVE = MoveReplicas(
    targets={TopicPartition("b", 0): (2,), TopicPartition("a", 0): (1, 2)},
    versions={"a": 0, "b": 0},
    throttle_bytes_per_second=1000,
    broker_defaults=RATES,
    topic_configs={"a": LISTS},
    reason="broker 1 is drained",
)
LIFT = LiftThrottle(broker_defaults=tuple(RATES), topics={"a": tuple(LISTS)}, reason="no replica is moving")
OURS = ManagedBrokers(clusters={"uid": BrokersOwnership(owned=frozenset({"log.retention.ms"}))})
SET = SetBrokerDefaults(
    config={"log.retention.ms": "8"},
    version=0,
    record=OURS,
    record_version=None,
    reason="log.retention.ms changes from 7 to 8",
)
RECORD = RecordBrokers(record=OURS, record_version=None, config_version=0, reason="the resource sets log.retention.ms")


async def cluster() -> MemoryZk:
    """Create a cluster with a controller epoch of version 0, two topics, one override, and a default of brokers."""
    zk = MemoryZk()
    for path in layout.PERSISTENT_PATHS:
        await zk.ensure_path(path)
    await zk.create(layout.CONTROLLER_EPOCH, b"5")
    await zk.ensure_path("/admin")
    for name in ("a", "b"):
        topic = TopicAssignment(topic=name, partitions={0: ReplicaAssignment(replicas=(1,))})
        await zk.create(topic.path, topic.encode())
    await zk.create("/config/topics/a", layout.encode_config({"retention.ms": "1"}))
    await zk.create(DEFAULTS, layout.encode_config({"log.retention.ms": "7"}))
    return zk


async def config(zk: MemoryZk, path: str) -> dict[str, str]:
    return layout.decode_config(path, (await zk.get(path))[0])


async def notices(zk: MemoryZk) -> list[str]:
    """Return the entities of the change notifications for brokers, in order."""
    messages = []
    for name in await zk.children(layout.CONFIG_CHANGES):
        path = f"{layout.CONFIG_CHANGES}/{name}"
        messages.append(layout.ConfigChangeNotification.decode(path, (await zk.get(path))[0]).entity_path)
    return messages


async def test_a_portion_is_asked_for_together_with_its_throttle() -> None:
    zk = await cluster()
    before = zk.tree.last_zxid
    await carry_out_step(zk, MOVE, epoch_version=0)
    assert zk.tree.last_zxid == before + 1, "one transaction"
    written: Any = json.loads((await zk.get("/admin/reassign_partitions"))[0])
    assert written == {
        "version": 1,
        "partitions": [
            {"topic": "a", "partition": 0, "replicas": [1, 2]},
            {"topic": "b", "partition": 0, "replicas": [2]},
        ],
    }
    assert await config(zk, DEFAULTS) == {"log.retention.ms": "7"} | RATES
    assert await config(zk, "/config/topics/a") == {"retention.ms": "1"} | LISTS
    assert await notices(zk) == ["brokers/<default>", "topics/a"]


async def test_configurations_that_are_not_there_are_made() -> None:
    zk = await cluster()
    await zk.delete(DEFAULTS)
    await zk.delete("/config/topics/a")
    await carry_out_step(zk, MOVE, epoch_version=0)
    assert await config(zk, DEFAULTS) == RATES
    assert await config(zk, "/config/topics/a") == LISTS


async def test_a_throttle_that_stands_already_is_not_told_again() -> None:
    zk = await cluster()
    await carry_out_step(zk, MOVE, epoch_version=0)
    await zk.delete(layout.REASSIGN_PARTITIONS)
    await carry_out_step(zk, MOVE, epoch_version=0)
    assert await notices(zk) == ["brokers/<default>", "topics/a"]


async def test_lifting_undoes_a_throttle_and_nothing_else() -> None:
    zk = await cluster()
    await carry_out_step(zk, MOVE, epoch_version=0)
    await carry_out_step(zk, LIFT, epoch_version=0)
    assert await config(zk, DEFAULTS) == {"log.retention.ms": "7"}
    assert await config(zk, "/config/topics/a") == {"retention.ms": "1"}
    assert await notices(zk) == ["brokers/<default>", "topics/a", "topics/a", "brokers/<default>"]
    before = zk.tree.last_zxid
    await carry_out_step(zk, LIFT, epoch_version=0)
    assert zk.tree.last_zxid == before, "nothing was left to lift"


async def test_a_throttle_of_many_topics_is_lifted_in_bounded_transactions_and_its_mark_last() -> None:
    zk = await cluster()
    names = [f"topic-{number:04d}" for number in range(450)]
    for name in names:
        await zk.create(f"/config/topics/{name}", layout.encode_config(LISTS))
    await zk.set(DEFAULTS, layout.encode_config(RATES))
    before = zk.tree.last_zxid
    step = LiftThrottle(broker_defaults=tuple(RATES), topics=dict.fromkeys(names, tuple(LISTS)), reason="done")
    await carry_out_step(zk, step, epoch_version=0)
    assert zk.tree.last_zxid == before + 4
    assert [await config(zk, f"/config/topics/{name}") for name in names] == [{}] * 450
    assert (await notices(zk))[-1] == "brokers/<default>"
    assert len(await notices(zk)) == 451


async def test_defaults_of_all_brokers_are_replaced_and_told() -> None:
    zk = await cluster()
    await zk.ensure_path(ROOT)
    before = zk.tree.last_zxid
    await carry_out_step(zk, SET, epoch_version=0)
    assert zk.tree.last_zxid == before + 1, "one transaction, the record with it"
    assert await config(zk, DEFAULTS) == {"log.retention.ms": "8"}
    assert await notices(zk) == ["brokers/<default>"]
    assert ManagedBrokers.decode((await zk.get(MANAGED_BROKERS))[0]) == OURS


async def test_listeners_of_one_broker_are_replaced_and_only_that_broker_is_notified() -> None:
    zk = await cluster()
    step = SetBrokerListeners(broker=1, config={"listeners": "A://h:1"}, version=None, reason="listener A opens")
    await carry_out_step(zk, step, epoch_version=0)
    assert await config(zk, "/config/brokers/1") == {"listeners": "A://h:1"}
    assert await notices(zk) == ["brokers/1"]
    with pytest.raises(OutdatedError):
        await carry_out_step(zk, step, epoch_version=0)
    await carry_out_step(zk, dataclasses.replace(step, config={}, version=0), epoch_version=0)
    assert await config(zk, "/config/brokers/1") == {}


async def test_what_is_recorded_depends_on_the_defaults_that_were_read() -> None:
    zk = await cluster()
    await carry_out_step(zk, RECORD, epoch_version=0)
    assert ManagedBrokers.decode((await zk.get(MANAGED_BROKERS))[0]) == OURS
    assert await notices(zk) == []
    with pytest.raises(OutdatedError):
        await carry_out_step(zk, RECORD, epoch_version=0)
    again = replace(RECORD, record_version=0)
    await carry_out_step(zk, again, epoch_version=0)
    await zk.set(DEFAULTS, layout.encode_config({}))
    with pytest.raises(OutdatedError):
        await carry_out_step(zk, replace(again, record_version=1), epoch_version=0)


async def test_the_first_defaults_are_made() -> None:
    zk = await cluster()
    await zk.delete(DEFAULTS)
    first = replace(SET, version=None)
    await carry_out_step(zk, first, epoch_version=0)
    assert await config(zk, DEFAULTS) == {"log.retention.ms": "8"}
    with pytest.raises(OutdatedError):
        await carry_out_step(zk, first, epoch_version=0)


@pytest.mark.parametrize("step", [MOVE, LIFT, SET, RECORD])
async def test_no_step_outlives_the_controller_it_was_decided_under(step: ZooKeeperStep) -> None:
    zk = await cluster()
    await zk.set("/config/topics/a", layout.encode_config(LISTS))
    await zk.ensure_path(ROOT)
    before = dict(zk.tree.nodes)
    with pytest.raises(OutdatedError):
        await carry_out_step(zk, step, epoch_version=1)
    assert zk.tree.nodes == before


async def test_a_move_whose_topic_changed_is_not_asked_for() -> None:
    zk = await cluster()
    data, _ = await zk.get("/brokers/topics/b")
    await zk.set("/brokers/topics/b", data)
    before = dict(zk.tree.nodes)
    with pytest.raises(OutdatedError):
        await carry_out_step(zk, MOVE, epoch_version=0)
    assert zk.tree.nodes == before


async def test_a_move_is_never_asked_for_beside_another_one() -> None:
    zk = await cluster()
    await zk.create(layout.REASSIGN_PARTITIONS, layout.encode_reassignment({}))
    before = dict(zk.tree.nodes)
    with pytest.raises(OutdatedError):
        await carry_out_step(zk, MOVE, epoch_version=0)
    assert zk.tree.nodes == before


class Interfering(MemoryZk):
    """A client for which a configuration changes between its reads and its writes."""

    async def get_many(self, paths: Any) -> Any:
        """Read, then change the configuration."""
        found = await super().get_many(paths)
        await self.set(DEFAULTS, layout.encode_config({"log.retention.ms": "9"}))
        return found


async def test_what_others_set_meanwhile_is_not_overwritten() -> None:
    zk = await cluster()
    interfering = Interfering(zk.tree)
    with pytest.raises(OutdatedError):
        await carry_out_step(interfering, MOVE, epoch_version=0)
    assert await config(zk, DEFAULTS) == {"log.retention.ms": "9"}
    assert await zk.get_or_none(layout.REASSIGN_PARTITIONS) is None
