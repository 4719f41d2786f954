"""DescribeConfigs and IncrementalAlterConfigs: settings of topics and brokers, read and changed.

A topic's overrides live in ZooKeeper; `server/config_store` reads and writes them, this module checks what clients ask
and explains what is in force and where it comes from. Broker settings are read here and changed in `server.properties`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from odradek.base.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, TopicConfig, topic_setting
from odradek.base.errors import (
    NONE,
    InvalidConfigError,
    InvalidRequestError,
    OdradekError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from odradek.base.settings import Kind, Setting
from odradek.base.topics import check_topic_name
from odradek.cluster import ClusterView
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import Message
from odradek.server.config_store import ConfigStore
from odradek.server.dispatch import Handler, RequestContext
from odradek.server.failures import wire_error
from odradek.server.fields import field

logger = logging.getLogger(__name__)

TOPIC: Final = 2
BROKER: Final = 4
"""Resource types (org.apache.kafka.common.config.ConfigResource.Type)."""


BROKER_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "flush_interval_ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "retention_ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "roll_ms": ("log.roll.ms", "log.roll.hours"),
    "roll_jitter_ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
}
"""Broker settings behind an attribute that several of them decide; the first that is given counts."""


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
        self._given = dict(properties)
        if "log.dir" in properties:
            self._given.setdefault("log.dirs", properties["log.dir"])
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
        check_topic_name(topic)
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
        sources = [] if override is None else [_synonym(setting, override, Source.DYNAMIC_TOPIC)]
        return sources + self._broker_sources(BROKER_NAMES.get(setting.broker, [setting.broker.replace("_", ".")]))

    def _broker_sources(self, names: Iterable[str]) -> list[dict[str, object]]:
        """What server.properties gives under these names, then their defaults."""
        settings = [BROKER_SETTINGS[name] for name in names]
        given = [
            _synonym(setting, self._given[setting.name], Source.STATIC_BROKER)
            for setting in settings
            if setting.name in self._given
        ]
        defaults = [
            _synonym(setting, setting.render(setting.default), Source.DEFAULT)
            for setting in settings
            if setting.default is not None
        ]
        return given + defaults

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
            sources = self._broker_sources([setting.name])
            entries.append(_entry(setting, value, sources, explain=explain, read_only=True))
        return entries

    async def incremental_alter_configs(self, context: RequestContext, request: Any) -> Message:
        """Set, delete, append to and subtract from a topic's overrides (KIP-339)."""
        counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
        responses = []
        for resource in request.resources:
            error_code, error_message = NONE, None
            try:
                if counts[resource.resource_type, resource.resource_name] > 1:
                    raise InvalidRequestError("Each resource may be named only once in a request.")
                await self._alter(resource, validate_only=request.validate_only)
            except OdradekError as caught:
                error = wire_error(caught)
                logger.info("settings of %s are not changed: %s", resource.resource_name, caught)
                error_code, error_message = error.code, str(error)
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
            # Others may have written settings that this broker does not know: they stay, and are no obstacle.
            TopicConfig.of(self._config, {name: changed[name] for name in names if name in changed})
            return changed

        if validate_only:
            change(self._store.overrides(topic))
        else:
            await self._store.change(topic, change)


def altered(overrides: Mapping[str, str], operations: Any, in_force: TopicConfig) -> dict[str, str]:
    """The overrides after the operations. `in_force` gives the list that APPEND and SUBTRACT begin with.

    Raises `ConfigError` for an unknown key (one may be deleted), `InvalidConfigError` for an operation that does not
    fit the key, `InvalidRequestError` for one that there is not or that lacks its value.
    """
    changed = dict(overrides)
    for entry in operations:
        if entry.config_operation == Operation.DELETE:
            changed.pop(entry.name, None)
            continue
        if entry.value is None:
            raise InvalidRequestError(f"{entry.name} has no value: give one, or delete the key.")
        setting = topic_setting(entry.name)
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


def _synonym(setting: Setting, value: str | None, source: Source) -> dict[str, object]:
    return {"name": setting.name, "value": None if setting.sensitive else value, "source": int(source)}


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
