"""Entities and filters of the quota APIs (KIP-546): what requests name, and the quotas that a filter selects.

Errors are those of Kafka. A name of None is the default, as on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from odradek.base.errors import InvalidRequestError, UnsupportedVersionError
from odradek.security.quotas.quota_model import DEFAULT, QuotaEntity, QuotaKind, QuotaName, QuotaTable

USER_TYPE: Final = "user"
CLIENT_ID_TYPE: Final = "client-id"
IP_TYPE: Final = "ip"


class QuotaMatch(IntEnum):
    """How a component of a filter is compared; the numbers of the protocol."""

    EXACT = 0
    """The entity has this name."""
    DEFAULT = 1
    """The entity has the default."""
    SPECIFIED = 2
    """The entity has any name or the default."""


class QuotaAny(Enum):
    """Any name of a type, or its default."""

    ANY = "any"


ANY: Final = QuotaAny.ANY
_Wanted = QuotaName | QuotaAny | None
"""What an entity must have; None: the filter has no component for this type."""


class QuotaFilter(NamedTuple):
    """Selects entities. If it is strict, they have no type for which the filter has no component."""

    user: _Wanted = None
    client_id: _Wanted = None
    ip: _Wanted = None
    is_strict: bool = False

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether the filter selects an entity."""
        pairs = ((self.user, entity.user), (self.client_id, entity.client_id), (self.ip, entity.ip))
        return all(_matches(wanted, name, is_strict=self.is_strict) for wanted, name in pairs)

    def select(self, table: QuotaTable) -> dict[QuotaEntity, Mapping[QuotaKind, float]]:
        """Return the entities that have quotas and that the filter selects."""
        return {entity: quotas for entity, quotas in table.entities.items() if quotas and self.matches(entity)}


def parse_filter(components: Iterable[tuple[str, int, str | None]], *, is_strict: bool) -> QuotaFilter:
    """Return the filter of a request: type, kind of match, and name of each component.

    Raises `InvalidRequestError` and `UnsupportedVersionError`.
    """
    wanted: dict[str, _Wanted] = {}
    for kind, match, name in components:
        if not kind:
            raise InvalidRequestError("A component of the filter has an empty entity type.")
        if kind not in (USER_TYPE, CLIENT_ID_TYPE, IP_TYPE):
            raise UnsupportedVersionError(f"The entity type {kind!r:.200} is not supported: use user, client-id or ip.")
        if kind in wanted:
            raise InvalidRequestError(f"The filter has two components of the entity type {kind}.")
        wanted[kind] = _wanted(match, name)
    if IP_TYPE in wanted and len(wanted) > 1:
        raise InvalidRequestError("A filter for ip must not have components for user or client-id.")
    return QuotaFilter(wanted.get(USER_TYPE), wanted.get(CLIENT_ID_TYPE), wanted.get(IP_TYPE), is_strict)


def parse_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of a request: type and name of each part. Raises `InvalidRequestError`.

    As in Kafka, the last part of a type counts.
    """
    names: dict[str, QuotaName] = {}
    for kind, name in parts:
        if kind not in (USER_TYPE, CLIENT_ID_TYPE, IP_TYPE):
            raise InvalidRequestError(f"Unknown entity type {kind!r:.200}: use user, client-id or ip.")
        if name == "":
            raise InvalidRequestError(f"The name of the {kind} is empty; null is the default.")
        names[kind] = DEFAULT if name is None else name
    if not names:
        raise InvalidRequestError("The entity is empty: it needs a user, a client-id or an ip.")
    if IP_TYPE in names and len(names) > 1:
        raise InvalidRequestError("An entity with an ip must not have a user or a client-id.")
    return QuotaEntity(names.get(USER_TYPE), names.get(CLIENT_ID_TYPE), names.get(IP_TYPE))


def entity_parts(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    """Return type and name of each part of an entity, as in responses."""
    pairs = ((USER_TYPE, entity.user), (CLIENT_ID_TYPE, entity.client_id), (IP_TYPE, entity.ip))
    return [(kind, name if isinstance(name, str) else None) for kind, name in pairs if name is not None]


def _wanted(match: int, name: str | None) -> _Wanted:
    match match:
        case QuotaMatch.EXACT if name is not None:
            return name
        case QuotaMatch.DEFAULT:
            return DEFAULT
        case QuotaMatch.SPECIFIED:
            return ANY
    raise InvalidRequestError(
        f"The kind of match {match} is invalid: use 0 with a name, 1 for the default or 2 for any."
    )


def _matches(wanted: _Wanted, name: QuotaName | None, *, is_strict: bool) -> bool:
    if wanted is None:
        return name is None or not is_strict
    return name is not None if wanted is ANY else name == wanted
