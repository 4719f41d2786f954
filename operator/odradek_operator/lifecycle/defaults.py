"""The dynamic properties of all brokers against `/config/brokers/<default>`. Pure.

Enters: what the resource wants of them and a `Snapshot`. Leaves: a step, or nothing. Called by `plan`. The resource is
the whole truth: what others set there goes back, values that mean the same stay as they are. Two exceptions: the keys
of `throttle` while a reassignment of ours holds them, and the rates when the resource does not name them, since people
set those for reassignments of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.base.config import BROKER_SETTINGS
from odradek.base.errors import ConfigError
from odradek.zk.layout import DEFAULT_ENTITY
from odradek_operator.lifecycle.steps import SetBrokerDefaults
from odradek_operator.lifecycle.throttle import MARK, RATES
from odradek_operator.observed import Snapshot


def decide(snapshot: Snapshot, wanted: Mapping[str, str]) -> SetBrokerDefaults | None:
    """What to write, None where nothing differs."""
    observed = snapshot.broker_configs.get(DEFAULT_ENTITY)
    if observed is None and snapshot.damaged:
        return None  # They may be there and not be understood; a person is told of it.
    present = {} if observed is None else observed.values
    config = dict(wanted)
    for key in (MARK, *RATES):
        if key in present and (MARK in present or key not in wanted):
            config[key] = present[key]
        elif MARK in present:
            config.pop(key, None)
    changes = []
    for key in sorted({*config, *present}):
        if key not in config:
            changes.append(f"{key} goes (was {_shown(key, present[key])})")
        elif key not in present:
            changes.append(f"{key} becomes {_shown(key, config[key])}")
        elif _same(key, config[key], present[key]):
            config[key] = present[key]
        else:
            changes.append(f"{key} becomes {_shown(key, config[key])} (was {_shown(key, present[key])})")
    if not changes:
        return None
    return SetBrokerDefaults(
        config=config, version=None if observed is None else observed.version, reason="; ".join(changes)
    )


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
