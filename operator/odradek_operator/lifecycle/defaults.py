"""Compares the dynamic broker properties of a Cluster with `/config/brokers/<default>`. Pure.

`cluster_plan` passes a Cluster, its dynamic properties, its broker ids and a `Snapshot`, and gets a step or nothing.

`/odradek/brokers` records the keys that the Cluster sets. A key that it no longer sets is removed. Keys that others set
are handled as follows:

- In a shared ensemble (`zookeeper.connect`) they are never changed.
- In the cluster's own ensemble they are removed, except those that existed when the record was created.

The keys of `throttle` are kept while the operator's reassignment uses them. Throttle rates that the resource does not
set are kept, too, because people set them for their own reassignments. Values that mean the same are not rewritten.
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
    """What `/odradek/brokers` records about this cluster."""

    shared: bool
    """Whether keys of others are never changed, because other clusters may use the ensemble."""
    ownership: BrokersOwnership | None
    """The record, None if there is none yet."""
    others: Mapping[str, BrokersOwnership]
    """The records of other clusters in the ensemble."""
    version: int | None

    def stays(self, key: str) -> bool:
        """Whether a key that the resource does not set is kept."""
        if self.shared:
            return self.ownership is None or key not in self.ownership.owned
        return self.ownership is None or key in self.ownership.preserved

    def next(self, wanted: Collection[str], present: Collection[str], ids: frozenset[int]) -> BrokersOwnership:
        """Return the next record of this cluster."""
        if self.shared:
            return BrokersOwnership(owned=frozenset(wanted), ids=ids)
        preserved = frozenset(present) - {MARK, *RATES} if self.ownership is None else self.ownership.preserved
        return BrokersOwnership(owned=frozenset(wanted), preserved=preserved - frozenset(wanted))


def decide(
    cluster: Cluster,
    snapshot: Snapshot,
    wanted: Mapping[str, str],
    *,
    ids: frozenset[int] = frozenset(),
    keep_others: bool = False,
) -> SetBrokerDefaults | RecordBrokers | None:
    """Return the step that writes the properties, None if nothing differs.

    `ids`: the broker ids to record. With `keep_others`, keys that others set are never changed, as in a shared
    ensemble.
    """
    observed = snapshot.broker_configs.get(DEFAULT_ENTITY)
    if observed is None and snapshot.damaged:
        return None  # They may exist but be invalid; the status reports it.
    present = {} if observed is None else observed.values
    version = None if observed is None else observed.version
    known = _known(cluster, snapshot, shared=keep_others or cluster.zookeeper.connect is not None)
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


def _known(cluster: Cluster, snapshot: Snapshot, *, shared: bool) -> _Known:
    found = snapshot.brokers_record
    clusters = {} if found is None or found.record is None else dict(found.record.clusters)
    ownership = clusters.pop(cluster.uid, None)
    return _Known(
        shared=shared,
        ownership=ownership,
        # Only this cluster uses its own ensemble: other records are of earlier Clusters with this name.
        others=clusters if shared else {},
        version=None if found is None else found.version,
    )


def _merged(wanted: Mapping[str, str], present: Mapping[str, str], known: _Known) -> tuple[dict[str, str], list[str]]:
    """Return the complete configuration to write, and a description of each change."""
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
            changes.append(f"{key} is set to {_shown(key, config[key])}")
        elif _same(key, config[key], present[key]):
            config[key] = present[key]
        else:
            changes.append(f"{key} changes from {_shown(key, present[key])} to {_shown(key, config[key])}")
    return config, changes


def _recorded(ownership: BrokersOwnership, known: _Known) -> str:
    """Describe the new record. It has only the names of keys, because values may be secrets."""
    said = f"the resource sets {', '.join(sorted(ownership.owned)) or 'no dynamic properties of brokers'}"
    if known.shared:
        ids = f", and its broker ids are {', '.join(map(str, sorted(ownership.ids)))}" if ownership.ids else ""
        return f"{said}{ids}; properties set by others stay"
    kept = f"; properties set by others stay: {', '.join(sorted(ownership.preserved))}" if ownership.preserved else ""
    return f"{said}{kept}"


def _same(key: str, left: str, right: str) -> bool:
    setting = BROKER_SETTINGS.get(key)
    if left == right or setting is None:
        return left == right
    try:
        return setting.parse(left) == setting.parse(right)
    except ConfigError:
        return False  # The present value is invalid, so it differs.


def _shown(key: str, value: str) -> str:
    """Return a value for Events. A value that may be a secret is not shown."""
    setting = BROKER_SETTINGS.get(key)
    return value if setting is not None and not setting.sensitive else "a hidden value"
