"""Merge patches (RFC 7386) and server-side apply. Pure.

Server-side apply sets the fields of the applied configuration. It removes fields that the same manager applied before
and no longer specifies. Lists whose entries have keys are merged by key. Conflicts between managers are only detected
in mappings. `metadata.managedFields` is not implemented.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

Json = Any
"""A JSON value."""


class _Missing(Enum):
    VALUE = 0


_MISSING: Final = _Missing.VALUE
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
"""The keys that identify the entries of a list, by the name of the list's field. Other lists are atomic."""
_SETS: Final = frozenset({"finalizers"})
_METADATA_LISTS: Final = frozenset({"ownerReferences", "finalizers"})


def merge(value: Json, patch: Json) -> Json:
    """Return a value with a merge patch applied."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(value) if isinstance(value, Mapping) else {}
    for key, new in patch.items():
        if new is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), new)
    return merged


def apply(live: Json, config: Json, before: Json, others: Sequence[Json], *, custom: bool) -> Json:
    """Return an object with a configuration applied.

    `before`: the previous configuration of the same manager. `others`: those of other managers. In a `custom` object,
    all lists except those in the metadata are atomic.
    """
    at = _At("", custom)
    return _lay_over(_retract(live, before, config, others, at), config, at)


def conflict(live: Json, config: Json, before: Json, path: str = "") -> str | None:
    """Return the first field that another manager has set to a different value; None if there is none."""
    if not (isinstance(live, Mapping) and isinstance(config, Mapping)):
        return path if isinstance(live, str | int) and live not in (config, before) else None
    known = before if isinstance(before, Mapping) else {}
    for key, value in config.items():
        if key in live and (found := conflict(live[key], value, known.get(key), f"{path}.{key}")):
            return found
    return None


def agreeing(config: Json, live: Json) -> Json:
    """Return the part of a configuration that an object still has, without fields that others have changed since."""
    kept = _agreeing(config, live, _At("", custom=False))
    return {} if kept is _MISSING else kept


def _agreeing(config: Json, live: Json, at: _At) -> Json | _Missing:
    if isinstance(config, Mapping) and isinstance(live, Mapping):
        kept = {key: _agreeing(value, live[key], at.field(key)) for key, value in config.items() if key in live}
        return {key: value for key, value in kept.items() if value is not _MISSING}
    if at.name in _SETS and isinstance(live, list):
        return [item for item in config if item in live]
    if keyed := at.keyed(config):
        present = at.keyed(live) or {}
        both = [_agreeing(item, present[key], at.field("")) for key, item in keyed.items() if key in present]
        return [item for item in both if item is not _MISSING]
    return config if config == live else _MISSING


@dataclass(frozen=True, slots=True)
class _At:
    """A position in an object."""

    name: str
    """The name of the field."""
    custom: bool

    def field(self, name: str) -> _At:
        return _At(name, self.custom)

    def key_fields(self, items: Json) -> tuple[str, ...]:
        """Return the keys that identify the entries of a list; empty for an atomic list."""
        if not isinstance(items, list) or not items or not all(isinstance(item, Mapping) for item in items):
            return ()
        if self.custom and self.name not in _METADATA_LISTS:
            return ()
        if self.name == "ports" and "containerPort" in items[0]:
            return ("containerPort", "protocol")
        if self.name == "ports" and ("targetPort" in items[0] or "name" in items[0]):
            return ("port", "protocol")
        return _KEYS.get(self.name, ())

    def keyed(self, items: Json) -> dict[tuple[Json, ...], Json] | None:
        """Return the entries of a list by their keys; None for an atomic list."""
        fields = self.key_fields(items)
        return {tuple(item.get(field, "") for field in fields): item for item in items} if fields else None


def _lay_over(live: Json, config: Json, at: _At) -> Json:
    if isinstance(config, Mapping):
        merged = dict(live) if isinstance(live, Mapping) else {}
        for key, value in config.items():
            if value is not None:
                merged[key] = _lay_over(merged.get(key), value, at.field(key))
        return merged
    if at.name in _SETS:
        return [*(live or []), *(item for item in config if item not in (live or []))]
    wanted = at.keyed(config)
    if wanted is None:
        return config
    present = at.keyed(live) or {}
    new = {key: _lay_over(present.get(key), item, at.field("")) for key, item in wanted.items()}
    return [*(new.get(key, item) for key, item in present.items()), *(new[key] for key in new if key not in present)]


def _retract(live: Json, before: Json, after: Json, others: Sequence[Json], at: _At) -> Json:
    """Return the value without the fields that `before` has and `after` does not."""
    if isinstance(live, Mapping) and isinstance(before, Mapping):
        rest = dict(live)
        for key in before.keys() & live.keys():
            there = [other[key] for other in others if isinstance(other, Mapping) and key in other]
            if isinstance(after, Mapping) and key in after:
                rest[key] = _retract(live[key], before[key], after[key], there, at.field(key))
            else:
                _set_or_drop(rest, key, _subtract(live[key], before[key], there, at.field(key)))
        return rest
    if at.name in _SETS and isinstance(before, list):
        return [item for item in live if item not in before or item in after or _any_has(others, item)]
    return _retract_items(live, before, after, others, at)


def _retract_items(live: Json, before: Json, after: Json, others: Sequence[Json], at: _At) -> Json:
    """Retract items of a list whose entries have keys. Other values are returned unchanged."""
    olds, present = at.keyed(before), at.keyed(live)
    if olds is None or present is None:
        return live
    afters, theirs = at.keyed(after) or {}, [at.keyed(other) or {} for other in others]
    kept = []
    for key, item in present.items():
        rest: Json | _Missing = item
        there = [their[key] for their in theirs if key in their]
        if key in olds and key in afters:
            rest = _retract(item, olds[key], afters[key], there, at.field(""))
        elif key in olds:
            rest = _subtract(item, olds[key], there, at.field(""))
        if rest is not _MISSING:
            # The key of an entry is kept while the entry has other fields.
            kept.append({name: item[name] for name in at.key_fields(live) if name in item} | rest)
    return kept


def _subtract(live: Json, old: Json, others: Sequence[Json], at: _At) -> Json | _Missing:
    """Return the value without the values in `old`, except for those in `others`; `_MISSING` if nothing is left."""
    if isinstance(live, Mapping) and isinstance(old, Mapping):
        rest = dict(live)
        for key in old.keys() & live.keys():
            there = [other[key] for other in others if isinstance(other, Mapping) and key in other]
            _set_or_drop(rest, key, _subtract(live[key], old[key], there, at.field(key)))
        return rest or _MISSING
    if at.keyed(live) is not None and at.keyed(old) is not None:
        return _retract(live, old, [], others, at) or _MISSING
    if at.name in _SETS:
        return [item for item in live if item not in old or _any_has(others, item)] or _MISSING
    return live if others else _MISSING


def _set_or_drop(target: dict[str, Json], key: str, value: Json | _Missing) -> None:
    if value is _MISSING:
        del target[key]
    else:
        target[key] = value


def _any_has(others: Iterable[Json], item: Json) -> bool:
    return any(item in other for other in others)
