"""Byte rates over windows, and the throttled replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.types import TopicPartition
from odradek.cluster import MetadataCache
from odradek.replication.partition_table import PartitionTable
from odradek.replication.quota import ReplicationQuota, ReplicationQuotas, WindowedRate, is_listed
from odradek_testkit.loop import ManualClock

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_rate_counts_from_its_oldest_window() -> None:
    rate = WindowedRate(3, 1000.0)
    assert rate.rate(0.0) == 0.0
    rate.record(500, 0.0)
    assert rate.rate(1.0) == 500.0  # always over at least one window
    rate.record(500, 999.0)
    assert rate.rate(2000.0) == 500.0
    rate.record(3000, 2500.0)
    assert rate.rate(2500.0) == 4000 / 2.5


def test_old_windows_are_forgotten() -> None:
    rate = WindowedRate(3, 1000.0)
    rate.record(900, 0.0)
    rate.record(100, 1500.0)
    assert rate.rate(2999.0) == pytest.approx(1000 / 2.999)
    assert rate.rate(3000.0) == pytest.approx(100 / 1.5)
    assert rate.rate(4500.0) == 0.0


def test_only_what_is_throttled_counts_and_the_limit_may_change() -> None:
    now = [0.0]
    quota = ReplicationQuota(WindowedRate(2, 1000.0), lambda: now[0], limit=100, is_throttled=lambda one: one == TP)
    verdicts = []
    quota.note(OTHER, 1_000_000)
    quota.note(TP, 100)
    assert quota.byte_rate == 100.0
    for limit in (100, 99, 50):
        quota.limit = limit
        verdicts.append(quota.is_exceeded)
    for now[0] in (1999.0, 2000.0):
        verdicts.append(quota.is_exceeded)
    assert verdicts == [False, True, True, True, False]


def test_settings_give_the_rates_and_change_them() -> None:
    properties = {"broker.id": "1", "zookeeper.connect": "localhost:2181"}
    config, _ = BrokerConfig.parse({**properties, "leader.replication.throttled.rate": "5"})
    quotas = ReplicationQuotas(PartitionTable(MetadataCache()), ManualClock(), config)
    assert (quotas.leader.limit, quotas.follower.limit) == (5, 2**63 - 1)
    assert not quotas.leader.is_throttled(TP)  # not hosted here
    quotas.configure(replace(config, leader_replication_throttled_rate=6, follower_replication_throttled_rate=7))
    assert (quotas.leader.limit, quotas.follower.limit) == (6, 7)


@pytest.mark.parametrize(
    ("entries", "listed"),
    [
        ((), False),
        (("*",), True),
        (("0:7",), True),
        (("1:7", "0:8"), False),
        (("1:7", "0:7"), True),
        (("10:7",), False),
    ],
)
def test_who_is_listed(entries: tuple[str, ...], listed: bool) -> None:
    assert is_listed(entries, 0, 7) is listed
