"""Client quotas as Kafka defines them: kinds, entities, their znodes, and which quota applies to a client.

An entity is a user, a client id, a user with a client id, or an IP address. Each of them may be the default instead of
a name (KIP-546). A `QuotaTable` has the quotas of all entities; it never changes, so that a reader sees one state.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote_plus

from odradek.base.errors import ConfigError
from odradek.security.addresses import normal_address
from odradek.znode import LayoutError, is_node_name, url_encoded


class QuotaKind(StrEnum):
    """What a quota limits. The values are Kafka's names in znodes and requests."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    """Bytes per second that a broker receives in Produce requests."""
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    """Bytes per second that a broker sends in Fetch responses."""
    REQUEST_PERCENTAGE = "request_percentage"
    """Percentage of the time of one thread (KIP-124)."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Partitions per second that are created or deleted (KIP-599)."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    """Connections per second that a broker accepts from an IP address (KIP-612)."""


class QuotaDefault(Enum):
    """Takes the place of a name in the quota of all entities of a type that have none."""

    DEFAULT = "<default>"

    def __repr__(self) -> str:
        return self.value


DEFAULT: Final = QuotaDefault.DEFAULT
QuotaName = str | QuotaDefault

USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"

_IP_KINDS: Final = frozenset({QuotaKind.CONNECTION_CREATION_RATE})
_CLIENT_KINDS: Final = frozenset(QuotaKind) - _IP_KINDS
_WHOLE: Final = {
    QuotaKind.PRODUCER_BYTE_RATE: (-(1 << 63), (1 << 63) - 1),
    QuotaKind.CONSUMER_BYTE_RATE: (-(1 << 63), (1 << 63) - 1),
    QuotaKind.CONNECTION_CREATION_RATE: (0, (1 << 31) - 1),
}
"""The kinds whose values are whole numbers, and Kafka's bounds of them."""
_TOLERANCE: Final = 1e-6
_WHOLE_NUMBER: Final = re.compile("[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


class QuotaEntity(NamedTuple):
    """Whom a quota applies to. `ip` excludes the other two; at least one of the three is not None."""

    user: QuotaName | None = None
    client_id: QuotaName | None = None
    ip: QuotaName | None = None

    @property
    def kinds(self) -> frozenset[QuotaKind]:
        """The kinds of quotas that the entity can have."""
        return _CLIENT_KINDS if self.ip is None else _IP_KINDS


def sanitized(name: QuotaName) -> str:
    """Return a name as it is in znodes: URL-encoded as by Kafka's `Sanitizer`."""
    if isinstance(name, QuotaDefault):
        return name.value
    return url_encoded(name)


def desanitized(text: str) -> QuotaName:
    """Return the name of a user or client in a znode. As in Kafka, a plus sign is a space."""
    return DEFAULT if text == DEFAULT.value else unquote_plus(text)


def entity_path(entity: QuotaEntity) -> str:
    """Return the path of an entity below `/config`: `users/U`, `clients/C`, `users/U/clients/C` or `ips/IP`.

    Raises `LayoutError` if ZooKeeper allows no such znode, and `ValueError` if the entity is invalid.
    """
    names: tuple[str, ...]
    match entity:
        case QuotaEntity(None, None, str() | QuotaDefault() as address):
            # Kafka does not encode addresses.
            names = (IPS, address if isinstance(address, str) else address.value)
        case QuotaEntity(None, str() | QuotaDefault() as client_id, None):
            names = (CLIENTS, sanitized(client_id))
        case QuotaEntity(str() | QuotaDefault() as user, None, None):
            names = (USERS, sanitized(user))
        case QuotaEntity(str() | QuotaDefault() as user, str() | QuotaDefault() as client_id, None):
            names = (USERS, sanitized(user), CLIENTS, sanitized(client_id))
        case _:
            raise ValueError(f"not a user, a client id, both, or an address: {entity}")
    path = "/".join(names)
    if not all(map(is_node_name, names)):
        raise LayoutError(f"/config/{path}", "ZooKeeper allows no znode with this name")
    return path


def parse_entity_path(path: str) -> QuotaEntity:
    """Return the entity whose quotas are at `/config/PATH`. Raises `LayoutError`."""
    match path.split("/"):
        case ["users", user] if user:
            return QuotaEntity(user=desanitized(user))
        case ["clients", client_id] if client_id:
            return QuotaEntity(client_id=desanitized(client_id))
        case ["users", user, "clients", client_id] if user and client_id:
            return QuotaEntity(user=desanitized(user), client_id=desanitized(client_id))
        case ["ips", address] if address:
            return QuotaEntity(ip=DEFAULT if address == DEFAULT.value else address)
    raise LayoutError(f"/config/{path}", "expected users/U, clients/C, users/U/clients/C or ips/IP")


def parse_quota(kind: QuotaKind, text: str) -> float:
    """Return the value of a quota in a znode. Raises `ConfigError`.

    Byte rates are whole numbers of 64 bits, connection rates are between 0 and 2**31 - 1, others are any finite number.
    """
    text = text.strip()
    bounds = _WHOLE.get(kind)
    if bounds is None:
        value = float(text) if _NUMBER.fullmatch(text) else math.inf
        if not math.isfinite(value):
            raise ConfigError(f"{kind} must be a finite number, found {text!r:.200}")
        return value
    low, high = bounds
    if not (_WHOLE_NUMBER.fullmatch(text) and low <= int(text) <= high):
        raise ConfigError(f"{kind} must be a whole number from {low} to {high}, found {text!r:.200}")
    return float(int(text))


def format_quota(kind: QuotaKind, value: float) -> str:
    """Return a value as Kafka writes it into a znode. Raises `ConfigError` if the kind does not have such values.

    As in Kafka, a value that is within a millionth of a whole number counts as that number.
    """
    if kind in _WHOLE:
        whole = round(value) if math.isfinite(value) else None
        if whole is None or abs(whole - value) > _TOLERANCE:
            raise ConfigError(f"{kind} must be a whole number, found {value}")
        text = str(whole)
    else:
        text = repr(float(value))
    parse_quota(kind, text)
    return text


class QuotaLimit(NamedTuple):
    """The quota that applies to a client. Clients with the same user and client id here share it."""

    user: str
    """Name of the user; empty if the quota is for all users of a client id."""
    client_id: str
    """The client id; empty if the quota is for all clients of a user."""
    value: float


class QuotaSource(Protocol):
    """Has the current quotas."""

    @property
    def table(self) -> QuotaTable:
        """The quotas now. A change of the quotas replaces it."""
        ...


class QuotaTable:
    """The quotas of all entities at one time. It is its own `QuotaSource`, whose quotas never change."""

    __slots__ = ("_by_kind", "_quotas", "limits_clients", "limits_consumers", "limits_request_time")

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[QuotaKind, float]] | None = None) -> None:
        """Take the quotas of each entity. Kinds that the entity cannot have are ignored."""
        self._quotas: Final = {
            entity: {kind: value for kind, value in values.items() if kind in entity.kinds}
            for entity, values in (quotas or {}).items()
        }
        self._by_kind: Final[dict[QuotaKind, dict[QuotaEntity, float]]] = {}
        for entity, values in self._quotas.items():
            key = entity._replace(ip=_comparable(entity.ip))
            for kind, value in values.items():
                self._by_kind.setdefault(kind, {})[key] = value
        self.limits_clients: Final = not _CLIENT_KINDS.isdisjoint(self._by_kind)
        """Whether there is a quota of any kind except connection rates. If not, no request has to be charged."""
        # Attributes, because each request reads them, and the hash of an enum takes longer than all of that.
        self.limits_consumers: Final = QuotaKind.CONSUMER_BYTE_RATE in self._by_kind
        """Whether there is a quota of Fetch responses."""
        self.limits_request_time: Final = QuotaKind.REQUEST_PERCENTAGE in self._by_kind
        """Whether there is a quota of request time."""

    def __repr__(self) -> str:
        return f"QuotaTable({len(self._quotas)} entities)"

    @property
    def entities(self) -> Mapping[QuotaEntity, Mapping[QuotaKind, float]]:
        """The quotas of each entity, as they were given."""
        return self._quotas

    @property
    def table(self) -> QuotaTable:
        """This table."""
        return self

    def is_limited(self, kind: QuotaKind) -> bool:
        """Whether there is a quota of this kind. If not, nothing has to be measured."""
        return kind in self._by_kind

    def client_limit(self, kind: QuotaKind, user: str, client_id: str) -> QuotaLimit | None:
        """Return the quota of a client, or None.

        The order is Kafka's: user and client id, user, default user with client id, default user, client id; among
        those with a client id, its name comes before the default. Quotas of a client id do not apply to clients that
        have none (""). A quota of default users is one for each user, and the same is true for client ids.

        It takes up to eight lookups, so callers keep the result as long as they keep the table.
        """
        quotas = self._by_kind.get(kind)
        if quotas is None:
            return None
        ids: tuple[QuotaName, ...] = (client_id, DEFAULT) if client_id else ()
        for name in (user, DEFAULT) if user else ():
            for each in ids:
                value = quotas.get(QuotaEntity(user=name, client_id=each))
                if value is not None:
                    return QuotaLimit(user, client_id, value)
            value = quotas.get(QuotaEntity(user=name))
            if value is not None:
                return QuotaLimit(user, "", value)
        for each in ids:
            value = quotas.get(QuotaEntity(client_id=each))
            if value is not None:
                return QuotaLimit("", client_id, value)
        return None

    def address_limit(self, address: str) -> float | None:
        """Return the connections per second that an address may create, or None.

        `address` has the form of `normal_address`.
        """
        quotas = self._by_kind.get(QuotaKind.CONNECTION_CREATION_RATE)
        if quotas is None:
            return None
        value = quotas.get(QuotaEntity(ip=address))
        return value if value is not None else quotas.get(QuotaEntity(ip=DEFAULT))

    def with_entities(self, quotas: Mapping[QuotaEntity, Mapping[QuotaKind, float]]) -> QuotaTable:
        """Return the table after the quotas of some entities were replaced. An entity without quotas is removed."""
        merged = {**self._quotas, **quotas}
        return QuotaTable({entity: values for entity, values in merged.items() if values})

    def without(self, entities: Iterable[QuotaEntity]) -> QuotaTable:
        """Return the table without some entities."""
        return self.with_entities({entity: {} for entity in entities})


def _comparable(address: QuotaName | None) -> QuotaName | None:
    """Return an address as `normal_address` does. Kafka's users may have written it in Java's form, or a host name."""
    if not isinstance(address, str):
        return address
    try:
        return normal_address(address)
    except ValueError:
        return address
