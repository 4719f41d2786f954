"""Dynamic defaults of the brokers: those of the resource, those that others set, and an active throttle."""

from __future__ import annotations

import pytest

from odradek.zk.ownership import BrokersOwnership, ManagedBrokers
from odradek_operator.crds import Cluster, ZooKeeper
from odradek_operator.lifecycle import defaults
from odradek_operator.lifecycle.steps import RecordBrokers, SetBrokerDefaults
from odradek_operator.lifecycle.throttle import MARK, RATES
from odradek_operator.topics.zookeeper_state import ObservedBrokersRecord, ObservedConfig, Snapshot

OWN = Cluster(name="demo", uid="uid")
SHARED = Cluster(name="demo", uid="uid", zookeeper=ZooKeeper(connect="zk:2181"))
OTHER = BrokersOwnership(owned=frozenset({"log.segment.bytes"}), ids=frozenset({7}))
RATE = RATES[0]


def seen(**present: str) -> Snapshot:
    values = {key.replace("_", "."): value for key, value in present.items()}
    return snapshot(values, BrokersOwnership())


def snapshot(values: dict[str, str] | None, ownership: BrokersOwnership | None, **others: BrokersOwnership) -> Snapshot:
    """Return a snapshot with these defaults, and a record with entries of this cluster and of others, if any."""
    clusters = others | ({} if ownership is None else {"uid": ownership})
    record = ObservedBrokersRecord(record=ManagedBrokers(clusters=clusters), version=2)
    return Snapshot(
        broker_configs={} if values is None else {"<default>": ObservedConfig(values=values, version=4)},
        brokers_record=record if clusters else None,
    )


def after(before: Snapshot, step: SetBrokerDefaults | RecordBrokers) -> Snapshot:
    """Return the snapshot after the step is carried out."""
    config = step.config if isinstance(step, SetBrokerDefaults) else None
    values = before.broker_configs["<default>"].values if config is None else config
    return Snapshot(
        broker_configs={"<default>": ObservedConfig(values=values, version=5)},
        brokers_record=ObservedBrokersRecord(record=step.record, version=3),
    )


def names(*keys: str) -> frozenset[str]:
    return frozenset(keys)


@pytest.mark.parametrize(
    ("present", "wanted", "config", "reason"),
    [
        ({}, {}, None, ""),
        ({"log_retention_ms": "7"}, {"log.retention.ms": "7"}, None, ""),
        ({"log_retention_ms": "7"}, {"log.retention.ms": " 07"}, None, ""),
        ({}, {"log.retention.ms": "7"}, {"log.retention.ms": "7"}, "log.retention.ms is set to 7"),
        (
            {"log_retention_ms": "8"},
            {"log.retention.ms": "7"},
            {"log.retention.ms": "7"},
            "log.retention.ms changes from 8 to 7",
        ),
        ({"log_retention_ms": "nonsense"}, {"log.retention.ms": "7"}, {"log.retention.ms": "7"}, "from nonsense to"),
        ({"a_plugin": "1"}, {}, {}, "a.plugin is removed (was a hidden value)"),
        # A throttle that a user set stays. A throttle in the resource is written.
        ({RATE: "5"}, {}, None, ""),
        ({RATE: "5"}, {RATE: "6"}, {RATE: "6"}, f"{RATE} changes from 5 to 6"),
        # While the throttle of a reassignment is active, the operator neither removes nor overwrites it.
        ({RATE: "5", MARK: "resize"}, {}, None, ""),
        ({RATE: "5", MARK: "resize"}, {RATE: "6"}, None, ""),
        ({MARK: "resize"}, {RATE: "6"}, None, ""),
    ],
)
def test_what_is_written(
    present: dict[str, str], wanted: dict[str, str], config: dict[str, str] | None, reason: str
) -> None:
    before = snapshot(seen(**present).broker_configs["<default>"].values, BrokersOwnership(owned=frozenset(wanted)))
    step = defaults.decide(OWN, before, wanted)
    if config is None:
        assert step is None
        return
    assert isinstance(step, SetBrokerDefaults)
    assert (step.config, step.version, step.record_version) == (config, 4, 2)
    assert reason in step.reason
    assert defaults.decide(OWN, after(before, step), wanted) is None


def test_the_first_ones() -> None:
    step = defaults.decide(OWN, Snapshot(), {"log.retention.ms": "7"})
    assert isinstance(step, SetBrokerDefaults)
    assert (step.version, step.record_version) == (None, None)
    assert step.record.clusters == {"uid": BrokersOwnership(owned=names("log.retention.ms"))}


def test_a_znode_that_cannot_be_understood_is_left() -> None:
    damaged = Snapshot(damaged=("A znode cannot be understood.",))
    assert defaults.decide(OWN, damaged, {"log.retention.ms": "7"}) is None


def test_secrets_are_not_told() -> None:
    before = seen(ssl_keystore_password="geheim")
    step = defaults.decide(OWN, before, {})
    assert isinstance(step, SetBrokerDefaults)
    assert "geheim" not in step.reason
    kept = defaults.decide(SHARED, before, {"log.retention.ms": "7"})
    assert isinstance(kept, SetBrokerDefaults)
    assert kept.config["ssl.keystore.password"] == "geheim"
    assert "geheim" not in repr(kept)


@pytest.mark.parametrize("ownership", [None, BrokersOwnership()])
def test_in_a_shared_ensemble_keys_of_others_are_never_touched(ownership: BrokersOwnership | None) -> None:
    theirs = {"ssl.keystore.password": "geheim", "log.cleaner.threads": "3"}
    before = snapshot(theirs, ownership)
    assert defaults.decide(SHARED, before, {}) is None
    step = defaults.decide(SHARED, before, {"log.retention.ms": "7"})
    assert isinstance(step, SetBrokerDefaults)
    assert step.config == theirs | {"log.retention.ms": "7"}
    assert step.record.clusters == {"uid": BrokersOwnership(owned=names("log.retention.ms"))}
    assert defaults.decide(SHARED, after(before, step), {"log.retention.ms": "7"}) is None
    removed = defaults.decide(SHARED, after(before, step), {})
    assert isinstance(removed, SetBrokerDefaults)
    assert removed.config == theirs, "what was ours is removed, and nothing else"
    assert removed.record.clusters == {"uid": BrokersOwnership()}


def test_in_a_shared_ensemble_a_listed_key_that_others_change_goes_back() -> None:
    before = snapshot({"log.retention.ms": "9", "other": "1"}, BrokersOwnership(owned=names("log.retention.ms")))
    step = defaults.decide(SHARED, before, {"log.retention.ms": "7"})
    assert isinstance(step, SetBrokerDefaults)
    assert step.config == {"log.retention.ms": "7", "other": "1"}


def test_what_the_record_says_about_other_clusters_stays() -> None:
    before = snapshot({"log.segment.bytes": "9"}, None, other=OTHER)
    step = defaults.decide(SHARED, before, {"log.retention.ms": "7"})
    assert isinstance(step, SetBrokerDefaults)
    assert step.config == {"log.segment.bytes": "9", "log.retention.ms": "7"}
    assert step.record.clusters == {"other": OTHER, "uid": BrokersOwnership(owned=names("log.retention.ms"))}
    # In the cluster's own ensemble, the entry belongs to a former Cluster of the same name.
    alone = defaults.decide(OWN, before, {})
    assert isinstance(alone, RecordBrokers)
    assert alone.record.clusters == {"uid": BrokersOwnership(preserved=names("log.segment.bytes"))}


def test_an_upgrade_removes_nothing_and_what_others_set_later_goes_back() -> None:
    first = snapshot({"log.retention.ms": "7", "a.plugin": "1", RATE: "5"}, None)
    step = defaults.decide(OWN, first, {"log.retention.ms": "7"})
    assert isinstance(step, RecordBrokers)
    assert (step.config_version, step.record_version) == (4, None)
    ownership = BrokersOwnership(owned=names("log.retention.ms"), preserved=names("a.plugin"))
    assert step.record.clusters == {"uid": ownership}
    assert step.reason == "the resource sets log.retention.ms; properties set by others stay: a.plugin"
    assert defaults.decide(OWN, after(first, step), {"log.retention.ms": "7"}) is None
    later = snapshot({"log.retention.ms": "7", "a.plugin": "1", "b.plugin": "1"}, ownership)
    removed = defaults.decide(OWN, later, {"log.retention.ms": "7"})
    assert isinstance(removed, SetBrokerDefaults)
    assert removed.config == {"log.retention.ms": "7", "a.plugin": "1"}


def test_values_that_are_there_already_become_ours() -> None:
    before = snapshot({"log.retention.ms": "07", "other": "1"}, None)
    step = defaults.decide(SHARED, before, {"log.retention.ms": "7"})
    assert isinstance(step, RecordBrokers)
    removed = defaults.decide(SHARED, after(before, step), {})
    assert isinstance(removed, SetBrokerDefaults)
    assert removed.config == {"other": "1"}


def test_a_record_that_cannot_be_understood_is_replaced_and_removes_nothing() -> None:
    before = Snapshot(
        broker_configs={"<default>": ObservedConfig(values={"a.plugin": "1"}, version=4)},
        brokers_record=ObservedBrokersRecord(record=None, version=9),
        damaged=("A znode cannot be understood.",),
    )
    step = defaults.decide(OWN, before, {})
    assert isinstance(step, RecordBrokers)
    assert (step.config_version, step.record_version) == (4, 9)
    assert step.record.clusters == {"uid": BrokersOwnership(preserved=names("a.plugin"))}
    assert defaults.decide(SHARED, before, {}) is None


def test_ids_of_brokers_are_recorded_in_a_shared_ensemble() -> None:
    step = defaults.decide(SHARED, Snapshot(), {}, ids=frozenset({1, 0}))
    assert isinstance(step, RecordBrokers)
    assert step.record.clusters == {"uid": BrokersOwnership(ids=frozenset({0, 1}))}
    assert "its broker ids are 0, 1" in step.reason
    settled = Snapshot(brokers_record=ObservedBrokersRecord(record=step.record, version=0))
    assert defaults.decide(SHARED, settled, {}, ids=frozenset({0, 1})) is None
    assert defaults.decide(OWN, settled, {}, ids=frozenset({0, 1})) is not None, "its own ensemble needs none"


def test_settings_of_others_can_be_kept_in_an_own_ensemble() -> None:
    before = snapshot({"log.segment.bytes": "9"}, None)
    assert defaults.decide(OWN, before, {}, keep_others=True) is None
    step = defaults.decide(OWN, before, {"log.retention.ms": "7"}, keep_others=True)
    assert isinstance(step, SetBrokerDefaults)
    assert step.config == {"log.segment.bytes": "9", "log.retention.ms": "7"}
    removed = defaults.decide(OWN, after(before, step), {}, keep_others=True)
    assert isinstance(removed, SetBrokerDefaults)
    assert removed.config == {"log.segment.bytes": "9"}
