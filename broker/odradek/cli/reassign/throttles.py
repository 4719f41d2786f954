"""The replication throttle of a reassignment: how it is set and removed. Pure.

As with kafka-reassign-partitions, the rates are dynamic settings of each broker, and the throttled replicas are
settings of the topics (KIP-73). The lists of the topics also record which brokers got rates, so that no file is needed
to remove the throttle. A topic whose list is `*` was throttled by somebody else and is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.base.types import TopicPartition
from odradek.client.admin_kinds import ConfigOperation, ConfigSource
from odradek.client.models import ConfigChange, ConfigEntry, ConfigResource

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
ALL_REPLICAS: Final = "*"

Changes = dict[ConfigResource, list[ConfigChange]]
Configs = Mapping[ConfigResource, Mapping[str, ConfigEntry]]


def throttle(
    current: Mapping[TopicPartition, Sequence[int]],
    targets: Mapping[TopicPartition, Sequence[int]],
    configs: Configs,
    *,
    rate: int,
) -> Changes:
    """Return the changes that limit the copying of a reassignment to `rate` bytes per second and broker.

    `configs` has the lists of the topics. Replicas that are in the lists already stay there.
    """
    lists: dict[str, tuple[list[str], list[str]]] = {}
    brokers: set[int] = set()
    for name, target in sorted(targets.items()):
        added = [broker for broker in target if broker not in current[name]]
        if added:
            leaders, followers = lists.setdefault(name.topic, ([], []))
            leaders += [f"{name.partition}:{broker}" for broker in current[name]]
            followers += [f"{name.partition}:{broker}" for broker in added]
            brokers |= {*current[name], *added}
    changes: Changes = {}
    for topic, both in lists.items():
        resource = ConfigResource.topic(topic)
        found = []
        for key, new in zip(LISTS, both, strict=True):
            value = _list(configs, resource, key)
            if value != ALL_REPLICAS:
                found.append(ConfigChange(name=key, value=",".join(dict.fromkeys([*_entries(value), *new]))))
        if found:
            changes[resource] = found
    for broker in sorted(brokers):
        changes[ConfigResource.broker(broker)] = [ConfigChange(name=key, value=str(rate)) for key in RATES]
    return changes


def throttled_brokers(configs: Configs) -> set[int]:
    """Return the brokers whose replicas are in the lists of topics."""
    return {
        int(entry.partition(":")[2])
        for resource in configs
        for key in LISTS
        if (value := _list(configs, resource, key)) != ALL_REPLICAS
        for entry in _entries(value)
    }


def lifted(topics: Configs, brokers: Configs) -> Changes:
    """Return the changes that remove the lists of topics, and the rates of `brokers`."""
    changes: Changes = {}
    for resource in topics:
        keys = [key for key in LISTS if _list(topics, resource, key) not in ("", ALL_REPLICAS)]
        if keys:
            changes[resource] = _deletions(keys)
    for resource, entries in brokers.items():
        keys = [key for key in RATES if key in entries and entries[key].source == ConfigSource.DYNAMIC_BROKER_CONFIG]
        if keys:
            changes[resource] = _deletions(keys)
    return changes


def _deletions(keys: Iterable[str]) -> list[ConfigChange]:
    return [ConfigChange(name=key, value=None, operation=ConfigOperation.DELETE) for key in keys]


def _list(configs: Configs, resource: ConfigResource, key: str) -> str:
    entry = configs.get(resource, {}).get(key)
    return (entry.value or "") if entry is not None and entry.source == ConfigSource.TOPIC_CONFIG else ""


def _entries(value: str) -> list[str]:
    return [each.strip() for each in value.split(",") if each.strip()]
