"""Typed broker and topic settings: Kafka's names, defaults, units and bounds (https://kafka.apache.org/39/documentation/#configuration).

It parses the text of a properties file, of `--override` options and of `/config` znodes into frozen dataclasses.
`app/broker` parses once at start; when a dynamic setting changes, the server replaces the whole object.
A key without an effect gives a warning, because configurations contain keys of Kafka and of other versions. An invalid
value raises `ConfigError`, and so does a setting that is not supported and must not be ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from odradek.base.errors import ConfigError
from odradek.base.fields.broker_fields import CODEC_NAMES, HOUR_MS, PROTOCOLS, BrokerFields
from odradek.base.fields.group_fields import MEBIBYTE
from odradek.base.setting_definitions import (
    INT64_MAX,
    Setting,
    Update,
    boolean,
    choice,
    integer,
    long,
    real,
    replicas,
    settings_of,
    text,
    words,
)
from odradek.base.settings_catalogue import (
    IDLE_TOPIC_SETTINGS,
    check_allowed,
    check_allowed_for_topic,
    idle_broker_setting,
    listener_of,
    without_listener,
)
from odradek.base.types import Endpoint

NEWEST_RELEASE: Final = (3, 9)
NEWEST_FORMAT: Final = "3.0"
NEWEST_FORMAT_ONLY: Final = (3, 0)
"""From this inter-broker protocol on, only the newest record format is written (KIP-724)."""


SECURITY_PREFIXES: Final = ("ssl.", "sasl.")
"""Beginnings of settings that Kafka changes at run time for single listeners only, and this broker with a restart. The
broker notices new content of the files that they name."""


class Effect(Enum):
    """Whether a setting has an effect."""

    ACTIVE = "active"
    """The broker applies it."""
    IDLE = "idle"
    """Apache Kafka 3.9 has it; here it is stored and described, but has no effect."""
    UNKNOWN = "unknown"
    """Neither Apache Kafka 3.9 nor this broker has it; possibly a misspelling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(BrokerFields):
    """Settings of one broker, validated together, and the values derived from several of them."""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        """Settings from properties, and a warning for each key that has no effect.

        Raises `ConfigError` for the first bad or unsupported value, or a contradiction.
        """
        values: dict[str, Any] = {}
        of_listeners: dict[str, str] = {}
        warnings = []
        for key, value in properties.items():
            setting = BROKER_SETTINGS.get(key)
            if setting is not None:
                values[setting.attribute] = setting.parse(value)
                continue
            check_allowed(key, value)
            if broker_effect(key) is Effect.ACTIVE:
                of_listeners[key] = value
            else:
                warnings.append(_idle_warning(key, value))
        if "log.dir" in properties:
            values.setdefault("log_dirs", BROKER_SETTINGS["log.dirs"].parse(properties["log.dir"]))
        config = cls(**values)
        config._check()
        return config, warnings + config._check_of_listeners(of_listeners)

    def _check_of_listeners(self, values: Mapping[str, str]) -> list[str]:
        """Check settings of one listener; return a warning for each of another listener. Raises `ConfigError`."""
        names = {endpoint.listener.lower() for endpoint in self.listener_endpoints()}
        for key, value in values.items():
            if (setting := broker_setting(key)) is not None:
                setting.parse(value)
        return [
            f"{key} has no effect: listeners has no {listener_of(key).upper()}"
            for key in values
            if listener_of(key) not in names
        ]

    def with_dynamic(self, values: Mapping[str, str]) -> BrokerConfig:
        """Return these settings with dynamic values from `/config/brokers` applied (KIP-226).

        Raises `ConfigError` for an invalid value, and for a setting that has no effect here or needs a restart.
        Listener settings are validated together, so settings that change together must be passed together.
        """
        changed: dict[str, Any] = {}
        for key, value in values.items():
            setting = BROKER_SETTINGS.get(key)
            if setting is None:
                check_allowed(key, value)
                raise ConfigError(_idle_warning(key, value))
            if setting.dynamic is Update.READ_ONLY or key.startswith(SECURITY_PREFIXES):
                raise ConfigError(f"{key} cannot be changed while the broker runs")
            changed[setting.attribute] = setting.parse(value)
        config = replace(self, **changed)
        config._check()
        if config.inter_broker_listener != self.inter_broker_listener:
            raise ConfigError(
                f"listeners must keep {self.inter_broker_listener}, which brokers use among themselves, and keep it "
                "first unless inter.broker.listener.name is set: it cannot be replaced while the broker runs"
            )
        if config.inter_broker_endpoint.security_protocol != self.inter_broker_endpoint.security_protocol:
            raise ConfigError(
                f"listener.security.protocol.map must keep the protocol of {self.inter_broker_listener}, which brokers "
                "use among themselves: it cannot be changed while the broker runs"
            )
        return config

    def _check(self) -> None:
        if not self.zookeeper_connect:
            raise ConfigError("zookeeper.connect is missing: it must name the ensemble as host:port,host:port/chroot")
        if self.broker_id < 0:
            raise ConfigError("broker.id is missing: it must be a whole number from 0, unique in the cluster")
        if not self.log_dirs:
            raise ConfigError("log.dirs is empty: it must name at least one directory")
        parse_release("inter.broker.protocol.version", self.inter_broker_protocol_version)
        parse_release("log.message.format.version", self.log_message_format_version)
        if self.compression_gzip_level == 0:
            raise ConfigError("compression.gzip.level=0 is not allowed: it must be -1 or from 1 to 9")
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise ConfigError(
                f"queued.max.request.bytes={self.queued_max_request_bytes} is not allowed: it must be larger than or "
                f"equal to socket.request.max.bytes={self.socket_request_max_bytes}, or -1 for no limit"
            )
        if self.connection_failed_authentication_delay_ms >= self.connections_max_idle_ms > 0:
            raise ConfigError(
                f"connection.failed.authentication.delay.ms={self.connection_failed_authentication_delay_ms} is not "
                f"allowed: it must be less than connections.max.idle.ms={self.connections_max_idle_ms}"
            )
        self.check_groups()
        self._check_listeners()

    def _check_listeners(self) -> None:
        if self.control_plane_listener_name is not None:
            raise ConfigError("control.plane.listener.name is not supported: remove it, requests share one listener")
        endpoints = self.listener_endpoints()
        names = {endpoint.listener for endpoint in endpoints}
        bound = {(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port}
        if len(names) != len(endpoints) or len(bound) != sum(endpoint.port > 0 for endpoint in endpoints):
            raise ConfigError(
                f"listeners={','.join(self.listeners)!r} is not allowed: names and addresses must be unique"
            )
        self._check_inter_broker_listener(names)
        for name in self.inter_broker_request_listeners:
            if name not in names:
                raise ConfigError(f"inter.broker.request.listeners names {name!r}, which is missing in listeners")
        for endpoint in self.advertised_endpoints():
            if endpoint.listener not in names:
                raise ConfigError(f"advertised.listeners names {endpoint.listener!r}, which is missing in listeners")
            if endpoint.host == "0.0.0.0":
                raise ConfigError("advertised.listeners must name an address that clients can reach, not 0.0.0.0")
        if self.inter_broker_listener not in {endpoint.listener for endpoint in self.advertised_endpoints()}:
            raise ConfigError(
                f"advertised.listeners must name {self.inter_broker_listener}, which brokers use among themselves"
            )

    def _check_inter_broker_listener(self, names: set[str]) -> None:
        if self.inter_broker_listener_name and self.security_inter_broker_protocol:
            raise ConfigError(
                "inter.broker.listener.name and security.inter.broker.protocol are set: only one of them is possible"
            )
        if self.inter_broker_listener not in names:
            key = "inter.broker.listener.name" if self.inter_broker_listener_name else "security.inter.broker.protocol"
            raise ConfigError(f"{key}={self.inter_broker_listener!r} is not among listeners: {sorted(names)}")

    def listener_endpoints(self) -> tuple[Endpoint, ...]:
        """Addresses to listen on. An empty host means all addresses."""
        return tuple(_parse_endpoint("listeners", item, self._protocols) for item in self.listeners)

    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """Addresses that clients connect to; by default `listeners`."""
        if not self.advertised_listeners:
            return self.listener_endpoints()
        return tuple(
            _parse_endpoint("advertised.listeners", item, self._protocols) for item in self.advertised_listeners
        )

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener for connections between brokers."""
        named = self.inter_broker_listener_name or self.security_inter_broker_protocol
        return named or self.listener_endpoints()[0].listener

    @property
    def inter_broker_endpoint(self) -> Endpoint:
        """The listener for connections between brokers."""
        return next(each for each in self.listener_endpoints() if each.listener == self.inter_broker_listener)

    @property
    def _protocols(self) -> Mapping[str, str]:
        return dict(_parse_pair(entry) for entry in self.listener_security_protocol_map)

    @property
    def roll_ms(self) -> int:
        """Age at which a segment rolls, from the setting with the finest unit."""
        return self.log_roll_hours * HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def roll_jitter_ms(self) -> int:
        """Maximum random reduction of `roll_ms`."""
        return self.log_roll_jitter_hours * HOUR_MS if self.log_roll_jitter_ms is None else self.log_roll_jitter_ms

    @property
    def retention_ms(self) -> int:
        """Age at which segments are deleted, from the setting with the finest unit; -1 = never."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return -1 if self.log_retention_minutes < 0 else self.log_retention_minutes * 60_000
        return -1 if self.log_retention_hours < 0 else self.log_retention_hours * HOUR_MS

    @property
    def message_format(self) -> str:
        """Release whose record format topics use by default; the newest from protocol 3.0 on."""
        protocol = parse_release("inter.broker.protocol.version", self.inter_broker_protocol_version)
        return self.log_message_format_version if protocol < NEWEST_FORMAT_ONLY else NEWEST_FORMAT

    @property
    def flush_interval_ms(self) -> int:
        """Time after which a log is flushed."""
        return (
            self.log_flush_scheduler_interval_ms if self.log_flush_interval_ms is None else self.log_flush_interval_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective settings of one topic: its overrides and the broker's defaults."""

    cleanup_policy: tuple[str, ...] = words(
        ("delete",),
        "Policy for old segments: delete, compact or both.",
        choices=("compact", "delete"),
        broker="log_cleanup_policy",
    )
    compression_gzip_level: int = integer(
        -1, "Compression level of gzip; -1 = its default.", low=-1, high=9, broker="compression_gzip_level"
    )
    compression_lz4_level: int = integer(9, "Compression level of lz4.", low=1, high=17, broker="compression_lz4_level")
    compression_type: str = choice("producer", "Compression in the log.", CODEC_NAMES, broker="compression_type")
    compression_zstd_level: int = integer(
        3, "Compression level of zstd.", low=-131_072, high=22, broker="compression_zstd_level"
    )
    delete_retention_ms: int = long(
        86_400_000, "Time that tombstones are kept.", broker="log_cleaner_delete_retention_ms"
    )
    file_delete_delay_ms: int = long(
        60_000, "Time from renaming a file to .deleted until its deletion.", broker="log_segment_delete_delay_ms"
    )
    flush_messages: int = long(
        INT64_MAX, "Number of records after which the log is flushed.", low=1, broker="log_flush_interval_messages"
    )
    flush_ms: int = long(INT64_MAX, "Time after which the log is flushed.", broker="flush_interval_ms")
    follower_replication_throttled_replicas: tuple[str, ...] = replicas(
        "Replicas (partition:broker or *) whose fetches the follower throttles to the rate of its broker."
    )
    index_interval_bytes: int = integer(
        4096, "Bytes between two entries of an index.", broker="log_index_interval_bytes"
    )
    leader_replication_throttled_replicas: tuple[str, ...] = replicas(
        "Replicas (partition:broker or *) whose fetches the leader throttles to the rate of its broker."
    )
    max_compaction_lag_ms: int = long(
        INT64_MAX,
        "Maximum time until a record is eligible for compaction.",
        low=1,
        broker="log_cleaner_max_compaction_lag_ms",
    )
    max_message_bytes: int = integer(MEBIBYTE + 12, "Maximum size of a record batch.", broker="message_max_bytes")
    message_downconversion_enable: bool = boolean(
        True, "Convert records to the format that old consumers support.", broker="log_message_downconversion_enable"
    )
    message_format_version: str = text(
        NEWEST_FORMAT, "Release that determines the record format.", broker="message_format"
    )
    message_timestamp_after_max_ms: int = long(
        INT64_MAX,
        "Maximum time by which a timestamp may be after the broker's clock.",
        broker="log_message_timestamp_after_max_ms",
    )
    message_timestamp_before_max_ms: int = long(
        INT64_MAX,
        "Maximum time by which a timestamp may be before the broker's clock.",
        broker="log_message_timestamp_before_max_ms",
    )
    message_timestamp_difference_max_ms: int = long(
        INT64_MAX,
        "Maximum difference of a timestamp from the broker's clock.",
        broker="log_message_timestamp_difference_max_ms",
    )
    message_timestamp_type: str = choice(
        "CreateTime",
        "Source of record timestamps.",
        ("CreateTime", "LogAppendTime"),
        broker="log_message_timestamp_type",
    )
    min_cleanable_dirty_ratio: float = real(
        0.5, "Minimum dirty ratio for the log to be compacted.", high=1.0, broker="log_cleaner_min_cleanable_ratio"
    )
    min_compaction_lag_ms: int = long(
        0, "Minimum time before a record may be compacted.", broker="log_cleaner_min_compaction_lag_ms"
    )
    min_insync_replicas: int = integer(
        1, "Minimum number of in-sync replicas for acks=all.", low=1, broker="min_insync_replicas"
    )
    preallocate: bool = boolean(False, "Preallocate new segments in full size.", broker="log_preallocate")
    retention_bytes: int = long(
        -1,
        "Size of a partition above which the oldest segments are deleted; -1 = no limit.",
        low=-1,
        broker="log_retention_bytes",
    )
    retention_ms: int = long(
        604_800_000, "Age at which segments are deleted; -1 = never.", low=-1, broker="retention_ms"
    )
    segment_bytes: int = integer(1 << 30, "Size at which a segment rolls.", low=14, broker="log_segment_bytes")
    segment_index_bytes: int = integer(
        10 * MEBIBYTE, "Maximum size of a segment's index.", low=4, broker="log_index_size_max_bytes"
    )
    segment_jitter_ms: int = long(0, "Maximum random reduction of segment.ms.", broker="roll_jitter_ms")
    segment_ms: int = long(604_800_000, "Age at which a segment rolls.", low=1, broker="roll_ms")
    unclean_leader_election_enable: bool = boolean(
        False,
        "Allow a replica outside the ISR to become leader, which loses records.",
        broker="unclean_leader_election_enable",
    )

    @classmethod
    def of(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the effective settings of a topic. Raises `ConfigError` for an unknown key or an invalid value."""
        values: dict[str, Any] = {
            setting.attribute: getattr(broker, setting.broker) for setting in TOPIC_SETTINGS.values() if setting.broker
        }
        for key, value in overrides.items():
            setting = topic_setting(key)
            parsed = setting.parse(value)
            check_allowed_for_topic(key, value)
            if key in TOPIC_SETTINGS:
                values[setting.attribute] = parsed
        parse_release("message.format.version", values["message_format_version"])
        if values["compression_gzip_level"] == 0:
            raise ConfigError("compression.gzip.level=0 is not allowed: it must be -1 or from 1 to 9")
        protocol = parse_release("inter.broker.protocol.version", broker.inter_broker_protocol_version)
        if protocol >= NEWEST_FORMAT_ONLY:
            values["message_format_version"] = NEWEST_FORMAT
        return cls(**values)

    @property
    def magic(self) -> int:
        """The record format of the log: 0 up to release 0.9, 1 for 0.10, 2 from 0.11 on (KIP-31, KIP-98)."""
        release = parse_release("message.format.version", self.message_format_version)
        return 0 if release < (0, 10) else 1 if release < (0, 11) else 2

    @property
    def timestamp_before_max_ms(self) -> int:
        """How far a create time may be in the past; the older setting applies while the newer has its default."""
        before = self.message_timestamp_before_max_ms
        return self.message_timestamp_difference_max_ms if before == INT64_MAX else before

    @property
    def timestamp_after_max_ms(self) -> int:
        """How far a create time may lie in the future; see `timestamp_before_max_ms`."""
        after = self.message_timestamp_after_max_ms
        return self.message_timestamp_difference_max_ms if after == INT64_MAX else after

    @property
    def compression_level(self) -> int | None:
        """The level of `compression.type`; None for the default of the codec."""
        match self.compression_type:
            case "gzip":
                return None if self.compression_gzip_level < 0 else self.compression_gzip_level
            case "lz4":
                return self.compression_lz4_level
            case "zstd":
                return self.compression_zstd_level
        return None

    @property
    def compacted(self) -> bool:
        """Whether the log is compacted, so that every record needs a key."""
        return "compact" in self.cleanup_policy


def parse_release(key: str, value: str) -> tuple[int, int]:
    """Return the first two numbers of a release (`2.7`, `0.10.2`, `3.9-IV0`). Raises `ConfigError`."""
    parts = value.partition("-")[0].split(".")
    numbers = [int(part) for part in parts if part.isascii() and part.isdecimal()]
    if len(parts) < 2 or len(numbers) != len(parts):
        raise ConfigError(
            f"{key}={value!r} is not allowed: it must be a release of Apache Kafka, such as 2.7 or 3.9-IV0"
        )
    if not (0, 8) <= (numbers[0], numbers[1]) <= NEWEST_RELEASE:
        raise ConfigError(f"{key}={value!r} is not allowed: it must be from 0.8 to 3.9")
    return numbers[0], numbers[1]


def topic_setting(key: str) -> Setting:
    """Return the declaration of a topic setting, with or without an effect. Raises `ConfigError` for an unknown key."""
    setting = TOPIC_SETTINGS.get(key) or IDLE_TOPIC_SETTINGS.get(key)
    if setting is None:
        raise ConfigError(f"{key} is not a setting of a topic: it must be one of {', '.join(TOPIC_SETTINGS)}")
    return setting


def broker_setting(key: str) -> Setting | None:
    """Return the declaration of a broker setting, with or without an effect; None for an unknown key.

    A setting of one listener (`listener.name.NAME.SETTING`) has the type of the setting.
    """
    if key in BROKER_SETTINGS:
        return BROKER_SETTINGS[key]
    setting = idle_broker_setting(key) or BROKER_SETTINGS.get(without_listener(key))
    return setting if setting is None or setting.name == key else replace(setting, name=key)


def broker_effect(key: str) -> Effect:
    """Return the effect of a broker setting. `check_allowed` checks whether its value is rejected."""
    if key in BROKER_SETTINGS:
        return Effect.ACTIVE
    of_listener = BROKER_SETTINGS.get(without_listener(key))
    if of_listener is not None and of_listener.of_listener:
        return Effect.ACTIVE
    return Effect.UNKNOWN if broker_setting(key) is None else Effect.IDLE


def topic_effect(key: str) -> Effect:
    """Return the effect of a topic setting. `check_allowed_for_topic` checks whether its value is rejected."""
    if key in TOPIC_SETTINGS:
        return Effect.ACTIVE
    return Effect.IDLE if key in IDLE_TOPIC_SETTINGS else Effect.UNKNOWN


def _parse_endpoint(key: str, item: str, protocols: Mapping[str, str]) -> Endpoint:
    """Parse one `NAME://host:port` of the setting `key`; an empty host means all addresses.

    `protocols`: security protocols by listener name, in capitals. Raises `ConfigError` with the allowed values.
    """
    name, separator, address = item.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{key} has {item!r}: each entry must be NAME://host:port")
    protocol = protocols.get(name.upper())
    if protocol is None:
        raise ConfigError(
            f"{key} has {item!r}: listener.security.protocol.map must have {name.upper()}:PROTOCOL, where PROTOCOL is "
            f"one of {', '.join(PROTOCOLS)}"
        )
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"listener.security.protocol.map has {name.upper()}:{protocol}: it must be one of {', '.join(PROTOCOLS)}"
        )
    return Endpoint(name.upper(), host.strip("[]"), int(port), protocol)


def _parse_pair(entry: str) -> tuple[str, str]:
    """Parse `NAME:PROTOCOL` into a pair in capitals."""
    name, _, protocol = entry.partition(":")
    return name.strip().upper(), protocol.strip().upper()


def _idle_warning(key: str, value: str) -> str:
    """Return why a setting has no effect. Raises `ConfigError` if the value does not have Kafka's type."""
    setting = broker_setting(key)
    if setting is None:
        return f"{key} is not a setting of this broker or of Apache Kafka 3.9; it has no effect"
    setting.parse(value)
    return f"{key} is a setting of Apache Kafka that has no effect on this broker"


BROKER_SETTINGS: Final[Mapping[str, Setting]] = settings_of(BrokerConfig)
TOPIC_SETTINGS: Final[Mapping[str, Setting]] = settings_of(TopicConfig)
