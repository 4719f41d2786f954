"""The configuration file of a mirror: its clusters, what it copies, names and limits.

`mirror_command` reads the file, and all parts of the mirror get the values. Invariant: a `MirrorConfig` is valid;
every error names the path of the field, such as `sources[0].topics.include[1]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import yaml

from odradek.base.errors import ConfigError
from odradek.client.config_files import read_config_file
from odradek.client.settings import ClientSettings, parse_address

GROUP_PREFIX: Final = "odradek-mirror-"
"""Consumer groups and topics with this prefix belong to mirrors."""
HEARTBEATS_TOPIC: Final = "heartbeats"

_MIRROR_NAME: Final = re.compile(r"[a-z0-9-]+")
_SOURCE_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]*")
_NEVER_COPIED: Final = re.compile(
    r"__.*|mm2-.*|odradek-mirror-.*|(.*\.)?heartbeats|.*\.checkpoints\.internal|mm2-offset-syncs\..*\.internal"
)
"""Internal topics of the brokers, and topics in which mirrors keep their state."""
_MAX_REPLICATION_FACTOR: Final = 32_767

Read = Callable[[str], Mapping[str, str]]
"""Reads a file of client properties."""


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Chooses names by regular expressions, each of which must match the whole name."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def matches(self, name: str) -> bool:
        """Whether an expression of `include` matches the name and none of `exclude` does."""
        return any(re.fullmatch(each, name) for each in self.include) and not any(
            re.fullmatch(each, name) for each in self.exclude
        )


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """How to connect to a cluster."""

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka client properties. They may contain passwords, so `repr` does not show them."""

    def settings(self, **keywords: object) -> ClientSettings:
        """Return the settings of a client for this cluster. `keywords` are attributes of `ClientSettings`, and override
        the properties. Raises `ConfigError` for an invalid value.
        """
        found, _ = ClientSettings.parse({**self.properties, "bootstrap.servers": self.bootstrap_servers})
        return found.replace(**keywords) if keywords else found


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """One source cluster, and what is copied from it."""

    name: str
    """The alias of the cluster, as in MirrorMaker 2."""
    address: ClusterAddress
    topics: NameFilter
    prefix: str
    groups: NameFilter = NameFilter()
    starting_offsets: str = "earliest"
    """Where a partition without a position starts: `earliest` or `latest`."""
    max_bytes_per_second: int | None = None
    on_data_loss: str = "fail"
    """What happens if records were deleted before they were copied: `fail` or `skip`."""
    configurations: bool = True
    acls: bool = False
    partitions: bool = True

    def target_topic(self, topic: str) -> str:
        """Return the name of a topic of this source in the target."""
        return self.prefix + topic

    def copies(self, topic: str) -> bool:
        """Whether the topic is to be copied. Internal topics and those of mirrors never are."""
        return _NEVER_COPIED.fullmatch(topic) is None and self.topics.matches(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """The whole configuration. Times are in seconds."""

    name: str
    target: ClusterAddress
    sources: tuple[SourceConfig, ...]
    refresh_seconds: float = 30
    groups_seconds: float = 10
    replication_factor: int | None = None
    """Of topics that the mirror creates. None means the default of the target's brokers."""
    internal_replication_factor: int = 3
    """Of the mirror's own topics. If there are fewer brokers, their number is used."""

    @property
    def group(self) -> str:
        """The consumer group in the target that distributes the partitions and has the positions."""
        return GROUP_PREFIX + self.name

    def source(self, name: str) -> SourceConfig:
        """Return the source with this name. Raises `KeyError` if there is none."""
        for source in self.sources:
            if source.name == name:
                return source
        raise KeyError(name)

    @classmethod
    def parse(cls, text: str, where: str, *, read_file: Read | None = None) -> Self:
        """Return the configuration in a YAML or JSON text. `where` names the text in errors.

        `read_file` reads a file of client properties; by default, as `--command-config` does. Raises `ConfigError`,
        which names the path of the field.
        """
        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"{where} is not valid YAML: {error}") from error
        fields = _Fields(document, "", where)
        config = cls(
            name=fields.text("name", _MIRROR_NAME, "lower-case letters, digits and hyphens"),
            target=_address(fields.fields("target"), read_file, closed=True),
            sources=tuple(_source(each, read_file) for each in fields.each("sources")),
            refresh_seconds=fields.number("refreshSeconds", 30),
            groups_seconds=fields.number("groupsSeconds", 10),
            replication_factor=fields.integer("replicationFactor", None, high=_MAX_REPLICATION_FACTOR),
            internal_replication_factor=fields.integer("internalReplicationFactor", 3, high=_MAX_REPLICATION_FACTOR)
            or 3,
        )
        fields.end()
        _check_unique(config.sources, where)
        return config


class _Fields:
    """The fields of one mapping of the document. Each is taken once, and `end` refuses those that remain."""

    def __init__(self, value: object, path: str, where: str) -> None:
        self._path = path
        self._where = where
        if not isinstance(value, dict):
            raise self.error("", "must be a mapping of names to values")
        self._values: dict[str, Any] = {str(key): item for key, item in value.items()}

    def path(self, name: str) -> str:
        return ".".join(part for part in (self._path, name) if part)

    def error(self, name: str, problem: str) -> ConfigError:
        path = self.path(name)
        return ConfigError(f"{self._where}: {path} {problem}" if path else f"{self._where} {problem}")

    def end(self) -> None:
        if self._values:
            raise self.error(next(iter(self._values)), "is not a field of a mirror: see docs/mirror.md")

    def take(self, name: str, default: object = None) -> Any:
        value = self._values.pop(name, None)
        return default if value is None else value

    def text(self, name: str, pattern: re.Pattern[str], allowed: str, default: str | None = None) -> str:
        value = self.take(name, default)
        if value is None:
            raise self.error(name, "is missing")
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            raise self.error(name, f"is {value!r}: it must consist of {allowed}")
        return value

    def choice(self, name: str, default: str, *others: str) -> str:
        value = self.take(name, default)
        if value not in (default, *others):
            raise self.error(name, f"is {value!r}: it must be {' or '.join((default, *others))}")
        return str(value)

    def boolean(self, name: str, default: bool) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"is {value!r}: it must be true or false")
        return value

    def integer(self, name: str, default: int | None, *, high: int = 2**63 - 1) -> int | None:
        value = self.take(name, default)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high):
            raise self.error(name, f"is {value!r}: it must be an integer from 1 to {high}")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 86_400:
            raise self.error(name, f"is {value!r}: it must be a number of seconds above 0 and up to 86400")
        return float(value)

    def fields(self, name: str, default: object = None) -> _Fields:
        value = self.take(name, default)
        if value is None:
            raise self.error(name, "is missing")
        return _Fields(value, self.path(name), self._where)

    def each(self, name: str) -> Sequence[_Fields]:
        values = self.take(name)
        if not isinstance(values, list) or not values:
            raise self.error(name, "must be a list with at least one source")
        return [_Fields(value, f"{self.path(name)}[{index}]", self._where) for index, value in enumerate(values)]

    def expressions(self, name: str) -> tuple[str, ...]:
        values = self.take(name, [])
        if not isinstance(values, list):
            raise self.error(name, "must be a list of regular expressions")
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise self.error(f"{name}[{index}]", f"is {value!r}: it must be a regular expression")
            try:
                re.compile(value)
            except re.error as error:
                raise self.error(f"{name}[{index}]", f"is {value!r}, no valid regular expression: {error}") from error
        return tuple(values)

    def filter(self, name: str, *, required: bool) -> NameFilter:
        inner = self.fields(name, None if required else {})
        found = NameFilter(inner.expressions("include"), inner.expressions("exclude"))
        inner.end()
        if required and not found.include:
            raise inner.error("include", "is empty: nothing would be copied")
        return found

    def properties(self, name: str) -> dict[str, str]:
        values = self.take(name, {})
        if not isinstance(values, dict):
            raise self.error(name, "must be a mapping of client properties to values")
        for key, value in values.items():
            if isinstance(value, (dict, list)) or value is None:
                raise self.error(f"{name}.{key}", "must be text, a number, or true or false")
        return {str(key): _as_property(value) for key, value in values.items()}


def _as_property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _address(fields: _Fields, read_file: Read | None, *, closed: bool = False) -> ClusterAddress:
    servers = fields.take("bootstrapServers")
    if not isinstance(servers, str) or not servers:
        raise fields.error("bootstrapServers", "is missing: it must be a list of host:port")
    path = fields.take("configFile")
    if path is not None and not isinstance(path, str):
        raise fields.error("configFile", f"is {path!r}: it must be the path of a file")
    properties: dict[str, str] = {}
    if path is not None:
        name = fields.path("configFile")
        properties.update(read_config_file(path, option=name) if read_file is None else read_file(path))
    properties.update(fields.properties("properties"))
    if closed:
        fields.end()
    address = ClusterAddress(servers, properties)
    try:
        for each in servers.split(","):
            parse_address(each.strip())
    except ConfigError as error:
        raise fields.error("bootstrapServers", f"is not valid: {error}") from error
    try:
        address.settings()
    except ConfigError as error:
        raise fields.error("properties", f"is not valid: {error}") from error
    return address


def _source(fields: _Fields, read_file: Read | None) -> SourceConfig:
    name = fields.text("name", _SOURCE_NAME, "letters, digits, underscores and hyphens")
    source = SourceConfig(
        name=name,
        address=_address(fields, read_file),
        topics=fields.filter("topics", required=True),
        prefix=fields.text("prefix", _PREFIX, "letters, digits, dots, underscores and hyphens", f"{name}."),
        groups=fields.filter("groups", required=False),
        starting_offsets=fields.choice("startingOffsets", "earliest", "latest"),
        max_bytes_per_second=fields.integer("maxBytesPerSecond", None),
        on_data_loss=fields.choice("onDataLoss", "fail", "skip"),
        configurations=fields.boolean("configurations", True),
        acls=fields.boolean("acls", False),
        partitions=fields.boolean("partitions", True),
    )
    fields.end()
    return source


def _check_unique(sources: Sequence[SourceConfig], where: str) -> None:
    seen: set[str] = set()
    for index, source in enumerate(sources):
        if source.name in seen:
            raise ConfigError(f"{where}: sources[{index}].name is {source.name!r}: an earlier source has that name")
        seen.add(source.name)
