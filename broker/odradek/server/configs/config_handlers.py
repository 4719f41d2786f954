"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs: read and change settings of topics, brokers and loggers.

Overrides are stored in ZooKeeper: `server/configs/config_store` reads and writes those of topics,
`server/configs/broker_configs` those of brokers. Logger levels (`server/configs/logger_levels`) are kept in memory. As
in Kafka's ZooKeeper mode, any broker handles requests for topics and for the defaults of all brokers. Requests for one
broker must be sent to it. This module validates the requests.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import Final, TypeVar, cast

from odradek.base.config import TopicConfig, broker_setting, topic_setting
from odradek.base.errors import (
    NONE,
    InvalidConfigError,
    InvalidRequestError,
    OdradekError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from odradek.base.setting_definitions import Setting, SettingType
from odradek.base.topic_rules import check_topic_name
from odradek.cluster import MetadataCache
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from odradek.server.configs.broker_configs import BrokerSettings
from odradek.server.configs.config_entries import Entry, broker_entries, default_entries, topic_entries
from odradek.server.configs.config_store import ConfigStore
from odradek.server.configs.logger_levels import alter_levels, logger_entries
from odradek.server.dispatch import Handler, RequestContext, route
from odradek.server.failures import wire_error
from odradek.zk.layout import DEFAULT_ENTITY

logger = logging.getLogger(__name__)

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
"""Resource types (org.apache.kafka.common.config.ConfigResource.Type)."""

Values = Mapping[str, str]

_AnyResource = AlterConfigsRequestResource | IncrementalAlterConfigsRequestAlterConfigsResource
_Resource = TypeVar("_Resource", AlterConfigsRequestResource, IncrementalAlterConfigsRequestAlterConfigsResource)


class Operation(IntEnum):
    """Operation of IncrementalAlterConfigs on a key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigHandlers:
    """Handlers for the settings of topics, of this broker and of all brokers."""

    def __init__(self, *, settings: BrokerSettings, view: MetadataCache, store: ConfigStore) -> None:
        """`settings` has the settings of this broker, `store` those of topics."""
        self._settings = settings
        self._view = view
        self._store = store

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return dict(
            [
                route(DescribeConfigsRequest, self.describe_configs),
                route(AlterConfigsRequest, self.alter_configs),
                route(IncrementalAlterConfigsRequest, self.incremental_alter_configs),
            ]
        )

    # Reading

    async def describe_configs(self, context: RequestContext, request: DescribeConfigsRequest) -> Message:
        """Handle DescribeConfigs: return effective values, sources and descriptions (KIP-133, KIP-226, KIP-569)."""
        synonyms, explain = request.include_synonyms, request.include_documentation
        topics = {resource.resource_name for resource in request.resources if resource.resource_type == TOPIC}
        await self._store.load_unread(topics & self._view.image.topics.keys())
        results = []
        for resource in request.resources:
            error_code, error_message, entries = NONE, None, []
            try:
                keys = resource.configuration_keys
                entries = [
                    entry if synonyms else {**entry, "synonyms": []}
                    for entry in self._describe(resource, explain=explain)
                    if keys is None or not keys or entry["name"] in keys
                ]
            except ProtocolError as error:
                error_code, error_message = error.code, str(error)
            results.append(
                {
                    "error_code": error_code,
                    "error_message": error_message,
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                    "configs": entries,
                }
            )
        return {"throttle_time_ms": 0, "results": results}

    def _describe(self, resource: DescribeConfigsRequestResource, *, explain: bool) -> list[Entry]:
        name = resource.resource_name
        if resource.resource_type == TOPIC:
            return self._describe_topic(name, explain=explain)
        if resource.resource_type == BROKER:
            if not name:
                return default_entries(self._settings, explain=explain)
            self._check_broker(name)
            return broker_entries(self._settings, explain=explain)
        if resource.resource_type == BROKER_LOGGER:
            self._check_broker(name)
            return logger_entries()
        raise _no_such_type(resource.resource_type)

    def _describe_topic(self, topic: str, *, explain: bool) -> list[Entry]:
        check_topic_name(topic)
        self._check_topic(topic)
        return topic_entries(
            self._settings, self._store.overrides(topic), self._store.topic_config(topic), explain=explain
        )

    def _check_topic(self, topic: str) -> None:
        if topic not in self._view.image.topics:
            raise UnknownTopicOrPartitionError(f"Topic {topic} does not exist.")

    def _check_broker(self, name: str) -> None:
        if name != self._settings.name:
            raise InvalidRequestError(
                f"Send requests for the settings of broker {name!r} to it; this is broker {self._settings.name}."
            )

    # Changing

    async def incremental_alter_configs(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> Message:
        """Handle IncrementalAlterConfigs: set and delete settings, append to and subtract from lists (KIP-339)."""
        return await self._alter_each(request.resources, partial(self._alter, validate_only=request.validate_only))

    async def alter_configs(self, context: RequestContext, request: AlterConfigsRequest) -> Message:
        """Handle AlterConfigs: replace all settings of topics and brokers (KIP-133)."""
        return await self._alter_each(request.resources, partial(self._replace, validate_only=request.validate_only))

    async def _alter_each(
        self, resources: Iterable[_Resource], alter: Callable[[_Resource], Awaitable[None]]
    ) -> Message:
        counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
        responses = []
        for resource in resources:
            error_code, error_message = NONE, None
            try:
                if counts[resource.resource_type, resource.resource_name] > 1:
                    raise InvalidRequestError("A resource is named more than once in the request.")
                _check_names(resource)
                await alter(resource)
            except OdradekError as caught:
                error = wire_error(caught)
                logger.info(
                    "a request to change settings of %s was rejected: %s",
                    resource.resource_name or "all brokers",
                    caught,
                )
                error_code, error_message = error.code, str(error)
            responses.append(
                {
                    "error_code": error_code,
                    "error_message": error_message,
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                }
            )
        return {"throttle_time_ms": 0, "responses": responses}

    async def _alter(
        self, resource: IncrementalAlterConfigsRequestAlterConfigsResource, *, validate_only: bool
    ) -> None:
        for entry in resource.configs:
            if entry.config_operation != Operation.DELETE:
                _value_of(entry)
        if resource.resource_type == BROKER_LOGGER:
            self._check_broker(resource.resource_name)
            alter_levels(resource.configs, validate_only=validate_only)
            return
        find = _topic_setting if resource.resource_type == TOPIC else broker_setting

        def change(values: Values, in_force: object) -> Values:
            return altered(values, resource.configs, in_force, find)

        await self._change(resource, change, validate_only=validate_only)

    async def _replace(self, resource: AlterConfigsRequestResource, *, validate_only: bool) -> None:
        wanted: dict[str, str] = {}
        for entry in resource.configs:
            if entry.value is None:
                raise InvalidRequestError(f"{entry.name} has no value.")
            wanted[entry.name] = entry.value
        await self._change(resource, lambda values, in_force: wanted, validate_only=validate_only)

    async def _change(
        self, resource: _AnyResource, change: Callable[[Values, object], Values], *, validate_only: bool
    ) -> None:
        """Change the settings of a topic or broker. Only the changed settings are validated: other tools may have
        written settings that this broker does not know."""
        names = [entry.name for entry in resource.configs]
        if resource.resource_type == TOPIC:
            await self._change_topic(resource.resource_name, change, names, validate_only=validate_only)
        elif resource.resource_type == BROKER:
            await self._change_broker(resource.resource_name, change, names, validate_only=validate_only)
        else:
            raise _no_such_type(resource.resource_type)

    async def _change_topic(
        self, topic: str, change: Callable[[Values, object], Values], names: list[str], *, validate_only: bool
    ) -> None:
        if not topic:
            raise InvalidRequestError(
                "Give the name of a topic: the defaults for all topics are settings of the brokers."
            )
        self._check_topic(topic)
        await self._store.load_unread([topic])

        def checked(values: Values) -> Values:
            changed = change(values, self._store.topic_config(topic))
            TopicConfig.of(self._settings.config, {name: changed[name] for name in names if name in changed})
            return changed

        if validate_only:
            checked(self._store.overrides(topic))
        else:
            await self._store.change(topic, checked)

    async def _change_broker(
        self, name: str, change: Callable[[Values, object], Values], names: list[str], *, validate_only: bool
    ) -> None:
        settings = self._settings
        if name:
            self._check_broker(name)
        entity = name or DEFAULT_ENTITY

        def checked(values: Values) -> Values:
            changed = change(values, settings.config)
            settings.check(entity, changed, [name for name in names if name in changed])
            return changed

        changed = checked(settings.own if name else settings.defaults)
        await settings.try_out(settings.check(entity, changed, ()))
        if not validate_only:
            await settings.change(entity, checked)


def _check_names(resource: _AnyResource) -> None:
    names = [entry.name for entry in resource.configs]
    if len(set(names)) != len(names):
        raise InvalidRequestError(f"A setting of {resource.resource_name!r} is named more than once in the request.")


def _no_such_type(resource_type: int) -> ProtocolError:
    return InvalidRequestError(
        f"Resource type {resource_type} is not supported: it must be 2 (topic), 4 (broker) or 8 (broker logger)."
    )


def _topic_setting(name: str) -> Setting | None:
    return topic_setting(name)


def _value_of(entry: IncrementalAlterConfigsRequestAlterableConfig) -> str:
    if entry.value is None:
        raise InvalidRequestError(f"{entry.name} has no value: give one, or delete the setting.")
    return entry.value


def altered(
    values: Values,
    operations: Iterable[IncrementalAlterConfigsRequestAlterableConfig],
    in_force: object,
    find: Callable[[str], Setting | None],
) -> dict[str, str]:
    """Return the values after the operations. `in_force` has the effective settings, to which APPEND and SUBTRACT
    apply.

    `find` returns the declaration of a setting, or None for an undeclared setting that may be set. Raises the errors of
    `find`, `InvalidConfigError` for an operation that the setting does not support, and `InvalidRequestError` for an
    unknown operation.
    """
    changed = dict(values)
    for entry in operations:
        if entry.config_operation == Operation.DELETE:
            changed.pop(entry.name, None)
            continue
        setting = find(entry.name)
        if entry.config_operation == Operation.SET:
            changed[entry.name] = _value_of(entry)
        elif entry.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            if setting is None or setting.kind is not SettingType.LIST:
                raise InvalidConfigError(f"{entry.name} is not a list: it can only be set or deleted.")
            present = [part for part in changed.get(entry.name, "").split(",") if part]
            if entry.name not in changed:
                present = list(_in_force(in_force, setting))
            changed[entry.name] = ",".join(_combined(present, _value_of(entry).split(","), entry.config_operation))
        else:
            raise InvalidRequestError(f"Operation {entry.config_operation} does not exist: it must be between 0 and 3.")
    return changed


def _in_force(settings: object, setting: Setting) -> Iterable[str]:
    """Return the effective list, or the default for a setting without an effect here."""
    return getattr(settings, setting.attribute, None) or cast(tuple[str, ...], setting.default or ())


def _combined(present: list[str], parts: list[str], operation: int) -> list[str]:
    if operation == Operation.SUBTRACT:
        return [part for part in present if part not in parts]
    return present + [part for part in parts if part not in present]
