"""The end of a throttle: what is removed from topics and brokers, also while a broker is not alive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import pytest

from odradek.base.types import TopicPartition
from odradek.cli.reassign.cluster_moves import lift_throttle
from odradek.cli.reassign.move_progress import MoveProgress, WatchedMoves
from odradek.cli.reassign.throttles import LISTS, RATES
from odradek.cli.reassign.watch_command import _bar
from odradek.client.admin_kinds import ConfigResourceType, ConfigSource
from odradek.client.models import BrokerDescription, ClusterDescription, ConfigChange, ConfigEntry, ConfigResource


class FakeAdmin:
    """A cluster in which broker 1 is alive and broker 2 is not."""

    def __init__(self, followers: str) -> None:
        self._followers = followers
        self.changed: list[dict[str, list[str]]] = []

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        return ["orders"]

    async def describe_cluster(self) -> ClusterDescription:
        broker = BrokerDescription(node_id=1, host="h", port=1, rack=None)
        return ClusterDescription(cluster_id="c", controller_id=1, brokers=(broker,))

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, keys: Iterable[str]
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
        for resource in resources:
            if resource.resource_type is ConfigResourceType.TOPIC:
                entry = ConfigEntry(name=LISTS[1], value=self._followers, source=ConfigSource.TOPIC_CONFIG)
            else:
                entry = ConfigEntry(name=RATES[1], value="9", source=ConfigSource.DYNAMIC_BROKER_CONFIG)
            found[resource] = {entry.name: entry}
        return found

    async def incremental_alter_configs(self, changes: Mapping[ConfigResource, Sequence[ConfigChange]]) -> None:
        self.changed.append({resource.name: [each.name for each in change] for resource, change in changes.items()})


def test_rates_are_removed_before_the_lists_that_name_their_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin("0:1,1:2")
    assert asyncio.run(lift_throttle(admin)) is True  # type: ignore[arg-type]  # the part of a client that it needs
    assert admin.changed == [{"1": [RATES[1]]}, {"orders": [LISTS[1]]}]
    warning = capsys.readouterr().err
    assert "broker 2 is not alive, so its throttle was not removed" in warning
    assert "odradek config remove --broker 2 leader.replication.throttled.rate" in warning


def test_without_a_throttle_nothing_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin("*")
    assert asyncio.run(lift_throttle(admin)) is False  # type: ignore[arg-type]  # the part of a client that it needs
    assert admin.changed == []
    assert capsys.readouterr().err == ""


def test_the_bar_shows_the_progress(capsys: pytest.CaptureFixture[str]) -> None:
    watched = WatchedMoves()
    name = TopicPartition("orders", 0)
    with _bar() as show_progress:
        show_progress(watched)
        move = MoveProgress(partition=name, replicas=(), adding=(), removing=(), copied_bytes=1, total_bytes=3)
        watched.update([move])
        show_progress(watched)
        watched.update([])
        show_progress(watched)
    assert "1 of 1 partitions moved, 3 B of 3 B copied" in capsys.readouterr().out
    assert watched.is_done
