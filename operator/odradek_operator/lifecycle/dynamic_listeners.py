"""Decides which brokers change their listeners while they run, and which have to restart for it. Pure.

A broker opens and closes listeners by its dynamic settings in `/config/brokers/ID`. A change of a listener's address,
or of the first listener, which brokers use among themselves, requires a restart.

Settings of listeners in ZooKeeper override the broker's file. The operator marks its own, to distinguish them from
those of other tools, which are kept unless the resource changes the listeners. If a broker was started with the current
listeners in its file, it needs no settings in ZooKeeper, and marked ones are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek_operator.lifecycle.steps import SetBrokerListeners
from odradek_operator.topics.zookeeper_state import ObservedConfig, Snapshot

KEYS: Final = ("listeners", "advertised.listeners", "listener.security.protocol.map")
MARK: Final = "odradek.listeners"
"""Key in `/config/brokers/ID` that shows that the operator set the listeners. Brokers ignore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerListeners:
    """The settings of a running broker's listeners, by their `KEYS`."""

    broker: int
    started: Mapping[str, str]
    """The settings in the file with which its process was started."""
    wanted: Mapping[str, str]


def needs_restart(one: BrokerListeners, snapshot: Snapshot) -> bool:
    """Whether the broker must restart to get the wanted listeners."""
    values = _values(snapshot, one.broker)
    if one.wanted == one.started and MARK not in values:
        return False
    present, wanted = addresses({**one.started, **values}), addresses(one.wanted)
    first = next(iter(present), ""), next(iter(wanted), "")
    return first[0] != first[1] or any(present[name] != wanted[name] for name in present.keys() & wanted.keys())


def decide(brokers: Iterable[BrokerListeners], snapshot: Snapshot) -> tuple[SetBrokerListeners, ...]:
    """Return a step for each broker whose listeners change while it runs."""
    steps = (_step(one, snapshot) for one in brokers if not needs_restart(one, snapshot))
    return tuple(step for step in steps if step is not None)


def removed(broker: int, snapshot: Snapshot) -> SetBrokerListeners | None:
    """Return the step that removes marked settings before a broker starts with its file; None if there are none."""
    values = _values(snapshot, broker)
    if MARK not in values:
        return None
    return _set(broker, snapshot, _without_listeners(values), "its file has its listeners")


def added(one: BrokerListeners, snapshot: Snapshot) -> dict[str, str]:
    """Return the addresses of the listeners that the broker has to open, by name."""
    present = addresses({**one.started, **_values(snapshot, one.broker)})
    return {name: address for name, address in addresses(one.wanted).items() if name not in present}


def addresses(properties: Mapping[str, str]) -> dict[str, str]:
    """Return `host:port` of each listener by name, in order."""
    entries = (entry.strip().partition("://") for entry in properties["listeners"].split(","))
    return {name: address for name, _, address in entries}


def _step(one: BrokerListeners, snapshot: Snapshot) -> SetBrokerListeners | None:
    values = _values(snapshot, one.broker)
    if one.wanted != one.started:
        wanted = {**_without_listeners(values), **one.wanted, MARK: "true"}
    elif MARK in values:
        wanted = _without_listeners(values)
    else:
        return None
    if wanted == values:
        return None
    before, after = addresses({**one.started, **values}), addresses(one.wanted)
    changes = [f"listener {name} opens on {after[name]}" for name in after if name not in before]
    changes += [f"listener {name} closes" for name in before if name not in after]
    return _set(one.broker, snapshot, wanted, "; ".join(changes) or "its listeners are set again")


def _without_listeners(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key not in (*KEYS, MARK)}


def _set(broker: int, snapshot: Snapshot, config: Mapping[str, str], reason: str) -> SetBrokerListeners:
    entry = _entry(snapshot, broker)
    return SetBrokerListeners(
        broker=broker, config=config, version=None if entry is None else entry.version, reason=reason
    )


def _entry(snapshot: Snapshot, broker: int) -> ObservedConfig | None:
    return snapshot.broker_configs.get(str(broker))


def _values(snapshot: Snapshot, broker: int) -> Mapping[str, str]:
    entry = _entry(snapshot, broker)
    return {} if entry is None else entry.values
