"""Handlers of DescribeClientQuotas and AlterClientQuotas (KIP-546), as those of Kafka with ZooKeeper.

Quotas are read from memory and changed in ZooKeeper. An answer to a change comes when this broker has it; the others
get the notification. Each entity of a change has a result, and a failed one does not affect the others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from odradek.base.errors import NONE, ConfigError, InvalidRequestError, OdradekError
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasRequestOpData,
    DescribeClientQuotasRequest,
)
from odradek.security.addresses import normal_address
from odradek.security.quotas.quota_filters import entity_parts, parse_entity, parse_filter
from odradek.security.quotas.quota_model import (
    QuotaEntity,
    QuotaKind,
    QuotaTable,
    entity_path,
    format_quota,
)
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.failures import wire_error
from odradek.znode import LayoutError

logger = logging.getLogger(__name__)

Changes = Mapping[QuotaKind, float | None]
"""The new value of each kind; None removes it."""


class QuotaStore(Protocol):
    """The quotas of the cluster: `zk/quotas`."""

    table: QuotaTable

    async def change(self, entity: QuotaEntity, values: Changes) -> None:
        """Set and remove quotas of an entity."""
        ...


class QuotaHandlers:
    """Handlers that show and change quotas."""

    def __init__(self, quotas: QuotaStore) -> None:
        """The quotas follow ZooKeeper."""
        self._quotas: Final = quotas

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(DescribeClientQuotasRequest, self.describe_client_quotas),
                route(AlterClientQuotasRequest, self.alter_client_quotas),
            ]
        )

    async def describe_client_quotas(self, context: RequestContext, request: DescribeClientQuotasRequest) -> Message:
        """Handle DescribeClientQuotas: return the quotas that a filter selects."""
        components = ((item.entity_type, item.match_type, item.match) for item in request.components)
        wanted = parse_filter(components, is_strict=request.strict)
        return {
            "throttle_time_ms": 0,
            "error_code": NONE,
            "error_message": None,
            "entries": [
                {
                    "entity": _parts(entity_parts(entity)),
                    "values": [{"key": kind.value, "value": value} for kind, value in quotas.items()],
                }
                for entity, quotas in wanted.select(self._quotas.table).items()
            ],
        }

    async def alter_client_quotas(self, context: RequestContext, request: AlterClientQuotasRequest) -> Message:
        """Handle AlterClientQuotas: change the quotas of each entity, in the order of the request."""
        entries: list[Message] = []
        for entry in request.entries:
            error = await self._alter(entry, validate_only=request.validate_only)
            named = [(part.entity_type, part.entity_name) for part in entry.entity]
            entries.append(
                {
                    "error_code": NONE if error is None else wire_error(error).code,
                    "error_message": None if error is None else str(wire_error(error)),
                    "entity": _parts(named),
                }
            )
        return {"throttle_time_ms": 0, "entries": entries}

    async def _alter(self, entry: AlterClientQuotasRequestEntryData, *, validate_only: bool) -> OdradekError | None:
        try:
            entity = parse_entity((part.entity_type, part.entity_name) for part in entry.entity)
            changes = _changes(entity, entry.ops)
            if not validate_only:
                await self._quotas.change(entity, changes)
        except OdradekError as error:
            logger.info("the quotas of an entity were not changed: %s", error)
            return error
        return None


def _changes(entity: QuotaEntity, operations: Sequence[AlterClientQuotasRequestOpData]) -> Changes:
    """Return the changes of an entity; of several for one kind, the last one counts. Raises `InvalidRequestError`."""
    try:
        entity_path(entity)
    except LayoutError as error:
        raise InvalidRequestError(str(error)) from error
    if isinstance(entity.ip, str):
        _check_address(entity.ip)
    changes: dict[QuotaKind, float | None] = {}
    for operation in operations:
        kind = next((each for each in entity.kinds if each == operation.key), None)
        if kind is None:
            known = ", ".join(sorted(entity.kinds))
            raise InvalidRequestError(f"Invalid configuration key {operation.key!r:.200}: use one of {known}.")
        changes[kind] = None if operation.remove else operation.value
        try:
            if not operation.remove:
                format_quota(kind, operation.value)
        except ConfigError as error:
            raise InvalidRequestError(str(error)) from error
    return changes


def _check_address(text: str) -> None:
    """Raise `InvalidRequestError` unless this is an IP address. Kafka also resolves host names, once."""
    try:
        normal_address(text)
    except ValueError as error:
        raise InvalidRequestError(f"{text!r:.200} is not an IP address: host names are not supported.") from error


def _parts(parts: Sequence[tuple[str, str | None]]) -> list[Message]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in parts]
