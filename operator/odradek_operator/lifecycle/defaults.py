"""The dynamic properties of all brokers against `/config/brokers/<default>`. Pure.

Enters: a Cluster, the properties that it lists, the ids of its brokers, and a `Snapshot`. Leaves: a step, or nothing.
Called by `cluster_plan`.

`/odradek/brokers` records which keys the Cluster lists. A key that it lists no longer is removed. What happens to
the keys of others depends on whose ensemble it is:

- *Shared* (`zookeeper.connect`): they are never touched.
- *The cluster's own*: what others set goes back, except what was there when the record was made.

Everywhere the keys of `throttle` stay while a reassignment of ours holds them, and so do the rates when the resource
does not list them, since people set those for reassignments of their own. Values that mean the same stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from odradek.base.config import BROKER_SETTINGS
from odradek.base.errors import ConfigError
from odradek.zk.layout import DEFAULT_ENTITY
from odradek.zk.ownership import BrokersOwnership, ManagedBrokers
from odradek_operator.crds import Cluster
from odradek_operator.lifecycle.steps import RecordBrokers, SetBrokerDefaults
from odradek_operator.lifecycle.throttle import MARK, RATES
from odradek_operator.topics.zookeeper_state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the record says about this cluster."""

    shared: bool
    """Whether the ensemble is not the cluster's own."""
    ownership: BrokersOwnership | None
    """None: nothing yet."""
    others: Mapping[str, BrokersOwnership]
    """What it says about other clusters of the ensemble."""
    version: int | None

    def stays(self, key: str) -> bool:
        """Whether a key that the resource does not list stays."""
        if self.shared:
            return self.ownership is None or key not in self.ownership.owned
        return self.ownership is None or key in self.ownership.preserved

    def next(self, wanted: Collection[str], present: Collection[str], ids: frozenset[int]) -> BrokersOwnership:
        """What is to be recorded about this cluster."""
        if self.shared:
            return BrokersOwnership(owned=frozenset(wanted), ids=ids)
        preserved = frozenset(present) - {MARK, *RATES} if self.ownership is None else self.ownership.preserved
        return BrokersOwnership(owned=frozenset(wanted), preserved=preserved - frozenset(wanted))


def decide(
    cluster: Cluster, snapshot: Snapshot, wanted: Mapping[str, str], *, ids: frozenset[int] = frozenset()
) -> SetBrokerDefaults | RecordBrokers | None:
    """What to write, None where nothing differs. `ids`: those of the cluster's brokers, to be recorded."""
    observed = snapshot.broker_configs.get(DEFAULT_ENTITY)
    if observed is None and snapshot.damaged:
        return None  # They may be there and not be understood; the status says so.
    present = {} if observed is None else observed.values
    version = None if observed is None else observed.version
    known = _known(cluster, snapshot)
    config, changes = _merged(wanted, present, known)
    ownership = known.next(wanted, present, ids)
    record = ManagedBrokers(clusters={**known.others, cluster.uid: ownership})
    if changes:
        return SetBrokerDefaults(
            config=config, version=version, record=record, record_version=known.version, reason="; ".join(changes)
        )
    nothing_ours = known.shared and known.ownership is None and ownership == BrokersOwnership()
    if nothing_ours or ownership == known.ownership:
        return None
    return RecordBrokers(
        record=record, record_version=known.version, config_version=version, reason=_recorded(ownership, known)
    )


def _known(cluster: Cluster, snapshot: Snapshot) -> _Known:
    found = snapshot.brokers_record
    clusters = {} if found is None or found.record is None else dict(found.record.clusters)
    ownership = clusters.pop(cluster.uid, None)
    shared = cluster.zookeeper.connect is not None
    return _Known(
        shared=shared,
        ownership=ownership,
        # A cluster with its own ensemble is alone there: others are former Clusters of its name.
        others=clusters if shared else {},
        version=None if found is None else found.version,
    )


def _merged(wanted: Mapping[str, str], present: Mapping[str, str], known: _Known) -> tuple[dict[str, str], list[str]]:
    """The whole configuration as it should be, and what is different then, in sentences."""
    config = dict(wanted)
    for key in (MARK, *RATES):
        if key in present and (MARK in present or key not in wanted):
            config[key] = present[key]
        elif MARK in present:
            config.pop(key, None)
    changes = []
    for key in sorted({*config, *present}):
        if key not in config and known.stays(key):
            config[key] = present[key]
        elif key not in config:
            changes.append(f"{key} is removed (was {_shown(key, present[key])})")
        elif key not in present:
            changes.append(f"{key} becomes {_shown(key, config[key])}")
        elif _same(key, config[key], present[key]):
            config[key] = present[key]
        else:
            changes.append(f"{key} becomes {_shown(key, config[key])} (was {_shown(key, present[key])})")
    return config, changes


def _recorded(ownership: BrokersOwnership, known: _Known) -> str:
    """What the record says from now on. Names of keys only: values may be secrets."""
    said = f"the resource sets {', '.join(sorted(ownership.owned)) or 'no dynamic properties of brokers'}"
    if known.shared:
        ids = f", and its broker ids are {', '.join(map(str, sorted(ownership.ids)))}" if ownership.ids else ""
        return f"{said}{ids}; properties that others set stay"
    kept = f"; properties that others set stay: {', '.join(sorted(ownership.preserved))}" if ownership.preserved else ""
    return f"{said}{kept}"


def _same(key: str, left: str, right: str) -> bool:
    setting = BROKER_SETTINGS.get(key)
    if left == right or setting is None:
        return left == right
    try:
        return setting.parse(left) == setting.parse(right)
    except ConfigError:
        return False  # What is there is nonsense, so it is not what is wanted.


def _shown(key: str, value: str) -> str:
    """A value as people may read it in Events; what is not known to be harmless may be a secret."""
    setting = BROKER_SETTINGS.get(key)
    return value if setting is not None and not setting.sensitive else "a value that is not shown"
