"""DescribeConfigs and IncrementalAlterConfigs: settings of topics and brokers, read and changed.

A topic's overrides live in ZooKeeper; `server/config_store` reads and writes them, this module checks what clients ask
and explains what is in force and where it comes from. Broker settings are read here and changed in `server.properties`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from odradek.base.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, TopicConfig, topic_setting
from odradek.base.errors import (
    NONE,
    ConfigError,
    InvalidConfigError,
    InvalidRequestError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from odradek.base.settings import Kind, Setting
from odradek.cluster import ClusterView
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.server.config_store import ConfigStore
from odradek.server.dispatch import Handler, RequestContext
from odradek.server.fields import field

TOPIC: Final = 2
BROKER: Final = 4
"""Resource types (org.apache.kafka.common.config.ConfigResource.Type)."""


class Source(IntEnum):
    """Where a value in force comes from."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to a key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigHandlers:
    """Handlers for the settings of topics and of this broker."""

    def __init__(
        self, *, config: BrokerConfig, properties: Mapping[str, str], view: ClusterView, store: ConfigStore
    ) -> None:
        """`properties` is what server.properties says, to tell given values from defaults."""
        self._config = config
        self._given = frozenset(properties)
        self._view = view
        self._store = store

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """The handlers by API."""
        return {
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
        }

    async def describe_configs(self, context: RequestContext, request: Any) -> Message:
        """Values in force, where they come from, and what they mean (KIP-133, KIP-226, KIP-569)."""
        synonyms, explain = field(request, "include_synonyms", False), field(request, "include_documentation", False)
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
        return {"throttle_time": 0, "results": results}

    def _describe(self, resource: Any, *, explain: bool) -> list[dict[str, object]]:
        if resource.resource_type == TOPIC:
            return self._describe_topic(resource.resource_name, explain=explain)
        if resource.resource_type == BROKER:
            return self._describe_broker(resource.resource_name, explain=explain)
        raise InvalidRequestError(
            f"Resource type {resource.resource_type} has no settings here: 2 (topic) and 4 (broker) do."
        )

    def _describe_topic(self, topic: str, *, explain: bool) -> list[dict[str, object]]:
        if topic not in self._view.image.topics:
            raise UnknownTopicOrPartitionError(f"There is no topic {topic}.")
        overrides = self._store.overrides(topic)
        in_force = self._store.topic_config(topic)
        entries = []
        for setting in TOPIC_SETTINGS.values():
            value = setting.render(getattr(in_force, setting.attribute))
            sources = self._topic_sources(setting, overrides.get(setting.name))
            entries.append(_entry(setting, value, sources, explain=explain, read_only=False))
        return entries

    def _topic_sources(self, setting: Setting, override: str | None) -> list[dict[str, object]]:
        sources = [] if override is None else [_synonym(setting.name, override, Source.DYNAMIC_TOPIC)]
        broker = BROKER_SETTINGS.get(setting.broker.replace("_", "."))
        if broker is not None:
            value = broker.render(getattr(self._config, broker.attribute))
            source = Source.STATIC_BROKER if broker.name in self._given else Source.DEFAULT
            sources.append(_synonym(broker.name, value, source))
        return sources

    def _describe_broker(self, name: str, *, explain: bool) -> list[dict[str, object]]:
        if not name:
            return []  # the defaults of all brokers (KIP-226), which only dynamic settings could give: there are none
        if name != str(self._config.broker_id):
            raise InvalidRequestError(
                f"Settings of broker {name!r} are told by that broker; this is broker {self._config.broker_id}."
            )
        entries = []
        for setting in BROKER_SETTINGS.values():
            value = setting.render(getattr(self._config, setting.attribute))
            source = Source.STATIC_BROKER if setting.name in self._given else Source.DEFAULT
            sources = [_synonym(setting.name, value, source)]
            entries.append(_entry(setting, value, sources, explain=explain, read_only=True))
        return entries

    async def incremental_alter_configs(self, context: RequestContext, request: Any) -> Message:
        """Set, delete, append to and subtract from a topic's overrides (KIP-339)."""
        responses = []
        for resource in request.resources:
            error_code, error_message = NONE, None
            try:
                await self._alter(resource, validate_only=request.validate_only)
            except ProtocolError as error:
                error_code, error_message = error.code, str(error)
            except ConfigError as error:
                error_code, error_message = InvalidConfigError.code, str(error)
            responses.append(
                {
                    "error_code": error_code,
                    "error_message": error_message,
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                }
            )
        return {"throttle_time": 0, "responses": responses}

    async def _alter(self, resource: Any, *, validate_only: bool) -> None:
        if resource.resource_type != TOPIC:
            raise InvalidRequestError(
                "Only a topic's settings (resource type 2) can be changed while brokers run; "
                "a broker's stand in its server.properties."
            )
        topic = resource.resource_name
        if topic not in self._view.image.topics:
            raise UnknownTopicOrPartitionError(f"There is no topic {topic}.")
        names = [entry.name for entry in resource.configs]
        if len(set(names)) != len(names):
            raise InvalidRequestError(f"A setting of topic {topic} is named twice in one request.")

        def change(overrides: Mapping[str, str]) -> Mapping[str, str]:
            changed = altered(overrides, resource.configs, self._store.topic_config(topic))
            TopicConfig.of(self._config, changed)
            return changed

        if validate_only:
            change(self._store.overrides(topic))
        else:
            await self._store.change(topic, change)


def altered(overrides: Mapping[str, str], operations: Any, in_force: TopicConfig) -> dict[str, str]:
    """The overrides after the operations. `in_force` gives the list that APPEND and SUBTRACT begin with.

    Raises `ConfigError` for an unknown key and `InvalidConfigError` for an operation that does not fit the key.
    """
    changed = dict(overrides)
    for entry in operations:
        setting = topic_setting(entry.name)
        if entry.config_operation == Operation.DELETE:
            changed.pop(entry.name, None)
            continue
        if entry.value is None:
            raise InvalidConfigError(f"{entry.name} has no value: give one, or delete the key.")
        if entry.config_operation == Operation.SET:
            changed[entry.name] = entry.value
        elif entry.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            if setting.kind is not Kind.LIST:
                raise InvalidConfigError(f"{entry.name} is not a list: it can be set or deleted only.")
            present = [part for part in changed.get(entry.name, "").split(",") if part]
            if entry.name not in changed:
                present = list(getattr(in_force, setting.attribute))
            changed[entry.name] = ",".join(_combined(present, entry.value.split(","), entry.config_operation))
        else:
            raise InvalidRequestError(f"Operation {entry.config_operation} is none of 0 to 3.")
    return changed


def _combined(present: list[str], parts: list[str], operation: int) -> list[str]:
    if operation == Operation.SUBTRACT:
        return [part for part in present if part not in parts]
    return present + [part for part in parts if part not in present]


def _synonym(name: str, value: str | None, source: Source) -> dict[str, object]:
    return {"name": name, "value": value, "source": int(source)}


def _entry(
    setting: Setting, value: str | None, sources: list[dict[str, object]], *, explain: bool, read_only: bool
) -> dict[str, object]:
    source = sources[0]["source"] if sources else int(Source.DEFAULT)
    return {
        "name": setting.name,
        "value": None if setting.sensitive else value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": setting.sensitive,
        "synonyms": sources,
        "config_type": setting.kind.value,
        "documentation": setting.documentation if explain else None,
    }
