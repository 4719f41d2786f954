"""The throttle of a reassignment: which settings it sets, and which it removes."""

from __future__ import annotations

from odradek.base.types import TopicPartition
from odradek.cli.reassign.throttles import LISTS, RATES, lifted, throttle, throttled_brokers
from odradek.client.admin_kinds import ConfigOperation, ConfigSource
from odradek.client.models import ConfigEntry, ConfigResource

ORDERS, BILLS = ConfigResource.topic("orders"), ConfigResource.topic("bills")


def entries(source: ConfigSource = ConfigSource.TOPIC_CONFIG, **values: str) -> dict[str, ConfigEntry]:
    return {
        name.replace("_", "."): ConfigEntry(name=name.replace("_", "."), value=value, source=source)
        for name, value in values.items()
    }


def lists(leaders: str, followers: str) -> dict[str, ConfigEntry]:
    return entries(leader_replication_throttled_replicas=leaders, follower_replication_throttled_replicas=followers)


def test_old_replicas_are_throttled_as_leaders_and_new_ones_as_followers() -> None:
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)
    changes = throttle({zero: (1, 2), one: (2, 1)}, {zero: (1, 3), one: (1, 2)}, {}, rate=1000)
    assert {change.name: change.value for change in changes[ORDERS]} == {LISTS[0]: "0:1,0:2", LISTS[1]: "0:3"}
    brokers = [ConfigResource.broker(number) for number in (1, 2, 3)]
    assert list(changes) == [ORDERS, *brokers]
    for broker in brokers:
        assert {change.name: change.value for change in changes[broker]} == dict.fromkeys(RATES, "1000")


def test_replicas_that_are_throttled_already_stay_so() -> None:
    zero = TopicPartition("orders", 0)
    configs = {ORDERS: lists("0:1,5:1", "*")}
    changes = throttle({zero: (1,)}, {zero: (2,)}, configs, rate=1)
    assert {change.name: change.value for change in changes[ORDERS]} == {LISTS[0]: "0:1,5:1"}


def test_the_lists_name_the_brokers_whose_rates_are_removed() -> None:
    topics = {ORDERS: lists("0:1,0:2", "0:3"), BILLS: lists("*", "*")}
    assert throttled_brokers(topics) == {1, 2, 3}
    default = entries(ConfigSource.DEFAULT_CONFIG, leader_replication_throttled_rate="9")
    of_all = entries(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, follower_replication_throttled_rate="9")
    own = entries(ConfigSource.DYNAMIC_BROKER_CONFIG, leader_replication_throttled_rate="9")
    brokers = {ConfigResource.broker(1): default | of_all, ConfigResource.broker(2): own}
    changes = lifted(topics, brokers)
    assert {resource: [change.name for change in each] for resource, each in changes.items()} == {
        ORDERS: list(LISTS),
        ConfigResource.broker(2): [RATES[0]],
    }
    assert {change.operation for each in changes.values() for change in each} == {ConfigOperation.DELETE}


def test_without_lists_nothing_is_removed() -> None:
    inherited = entries(ConfigSource.DEFAULT_CONFIG, leader_replication_throttled_replicas="0:1")
    assert throttled_brokers({ORDERS: inherited, BILLS: {}}) == set()
    assert lifted({ORDERS: inherited, BILLS: {}}, {}) == {}
