"""Settings of the clients: Kafka's producer, consumer and admin properties in one frozen dataclass."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from odradek.base.errors import ConfigError
from odradek.base.setting_definitions import (
    Setting,
    SettingType,
    boolean,
    check_values,
    choice,
    integer,
    long,
    settings_of,
    text,
    words,
)
from odradek.base.system_ports import SystemClock
from odradek.client.security_fields import SecurityFields

NO_ACKS: Final = 0
ALL_ACKS: Final = -1

_PREFIX: Final = "kafka."
_WITHOUT_EFFECT: Final[Mapping[str, tuple[str, ...]]] = {
    "classic": ("group.remote.assignor",),
    "consumer": ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"),
}
"""Settings that have no effect with a group protocol: the brokers have the timeouts of the new one (KIP-848)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(SecurityFields):
    """The settings of a producer, consumer or admin client. Create them with `of` or `parse`.

    Names, defaults and units are those of the clients of Apache Kafka 3.9, with `_` instead of `.`. Times (`_ms`) are
    in milliseconds and sizes in bytes. Only the default of `allow_auto_create_topics` differs: it is off, so that a
    misspelled name does not create a topic. `repr` shows no secret. Raises `ConfigError` for an invalid value.
    """

    bootstrap_servers: tuple[str, ...] = words(
        (), "Addresses (host:port) of some brokers, in any order. Clients find the others"
    )
    client_id: str = text("odradek", "Name of this client in the brokers' logs and quotas")
    client_rack: str = text("", "Rack of this client. Leaders choose a replica in it for reads")

    request_timeout_ms: int = integer(30_000, "Timeout of a request in ms. Its connection is then closed", low=1)
    default_api_timeout_ms: int = integer(60_000, "Timeout of an admin or consumer call with its retries, in ms", low=1)
    socket_connection_setup_timeout_ms: int = integer(10_000, "Timeout for opening a connection, in ms", low=1)
    metadata_max_age_ms: int = integer(300_000, "Age at which the metadata is refreshed, in ms", low=1)
    retry_backoff_ms: int = integer(100, "Pause before the first retry, in ms. It doubles with each retry", low=0)
    retry_backoff_max_ms: int = integer(1_000, "Maximum pause between retries, in ms", low=0)
    reconnect_backoff_ms: int = integer(50, "Pause after a failed connection, in ms. It doubles each time", low=0)
    reconnect_backoff_max_ms: int = integer(1_000, "Maximum pause between connection attempts, in ms", low=0)
    allow_auto_create_topics: bool = boolean(False, "Whether a request for an unknown topic may create it")

    acks: str = choice(
        "all", "Replicas that must have a batch first: in-sync ones, leader, none", ("all", "-1", "0", "1")
    )
    enable_idempotence: bool | None = boolean(None, "Whether retries never duplicate records. Default: if acks is all")  # type: ignore[arg-type]
    linger_ms: int = integer(0, "Time that a batch waits for more records, in ms")
    batch_size: int = integer(16_384, "Bytes before compression at which a batch is sent without waiting", low=1)
    buffer_memory: int = long(33_554_432, "Bytes of unacknowledged records above which send waits", low=1)
    compression_type: str = choice(
        "none", "Codec that compresses the batches", ("none", "gzip", "snappy", "lz4", "zstd")
    )
    delivery_timeout_ms: int = integer(120_000, "Time until a record is acknowledged or fails, in ms", low=1)
    max_block_ms: int = long(60_000, "Maximum time that send waits for metadata and buffer memory, in ms", low=0)
    max_in_flight_requests_per_connection: int = integer(
        5, "Maximum number of produce requests in flight per broker", low=1
    )
    max_request_size: int = integer(1_048_576, "Maximum size of a produce request and of a record, in bytes", low=1)
    retries: int = integer(2**31 - 1, "Maximum number of retries of a batch. The delivery timeout limits them too")
    transactional_id: str | None = text(
        None, "Id of a producer with transactions, the same after each restart. It implies idempotence (KIP-98)"
    )
    transaction_timeout_ms: int = integer(
        60_000, "Time after which the coordinator aborts an open transaction, in ms", low=1
    )

    group_id: str | None = text(None, "Id of the consumer group. Subscriptions and commits need one")
    group_instance_id: str | None = text(None, "Id of a static member, which can restart without a rebalance (KIP-345)")
    auto_offset_reset: str = choice(
        "latest", "Where to start without a valid offset; none raises an error", ("earliest", "latest", "none")
    )
    enable_auto_commit: bool = boolean(True, "Whether positions are committed automatically")
    auto_commit_interval_ms: int = integer(5_000, "Time between automatic commits, in ms")
    isolation_level: str = choice(
        "read_uncommitted",
        "Whether records of open and aborted transactions are returned",
        ("read_uncommitted", "read_committed"),
    )
    fetch_min_bytes: int = integer(1, "Minimum size of a fetch response, in bytes")
    fetch_max_wait_ms: int = integer(500, "Maximum time that a broker waits for that size, in ms")
    fetch_max_bytes: int = integer(
        52_428_800, "Maximum size of a fetch response, in bytes. A first batch may exceed it", low=1
    )
    max_partition_fetch_bytes: int = integer(
        1_048_576, "Maximum size for each partition, in bytes. A first batch may exceed it", low=1
    )
    max_poll_records: int = integer(500, "Maximum number of records that getmany returns", low=1)
    max_poll_interval_ms: int = integer(
        300_000, "Time without a call of getmany after which the member leaves, in ms", low=1
    )
    session_timeout_ms: int = integer(45_000, "Time without a heartbeat after which a member is removed, in ms", low=1)
    heartbeat_interval_ms: int = integer(3_000, "Time between heartbeats, in ms", low=1)
    group_protocol: str = choice(
        "classic", "Group protocol. With consumer, brokers assign the partitions (KIP-848)", ("classic", "consumer")
    )
    group_remote_assignor: str | None = text(
        None, "Assignor of the broker, with group.protocol=consumer. Default: the broker's choice"
    )
    partition_assignment_strategy: tuple[str, ...] = words(
        ("range",),
        "Assignors in the order of preference. The group chooses one that all members have",
        choices=("range", "roundrobin", "sticky", "cooperative-sticky"),
    )
    exclude_internal_topics: bool = boolean(
        True, "Whether a pattern never matches internal topics, such as __consumer_offsets"
    )
    check_crcs: bool = boolean(True, "Whether to verify the checksum of each batch")

    def __post_init__(self) -> None:
        """Validate each value, then the rules between values."""
        check_values(self, CLIENT_SETTINGS)
        for address in self.bootstrap_servers:
            parse_address(address)
        self.security(SystemClock())
        self._check_idempotence()
        changed = {name for name, setting in CLIENT_SETTINGS.items() if self._value(setting) != setting.default}
        self._check_group_protocol(changed)
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                f"delivery.timeout.ms={self.delivery_timeout_ms} is not allowed: it must be at least "
                f"linger.ms + request.timeout.ms, {self.linger_ms + self.request_timeout_ms}"
            )

    def _check_idempotence(self) -> None:
        reason = "enable.idempotence=true"
        if self.transactional_id is not None:
            reason = "transactional.id"
            if not self.transactional_id:
                raise ConfigError("transactional.id= is not allowed: it must not be empty")
            if self.enable_idempotence is False:
                raise ConfigError("enable.idempotence=false is not allowed with transactional.id: it must be true")
        elif not self.enable_idempotence:
            return
        if self.required_acks != ALL_ACKS:
            raise ConfigError(f"acks={self.acks} is not allowed with {reason}: it must be all")
        if self.max_in_flight_requests_per_connection > 5:
            # A broker recognizes duplicates only among the last five batches of a producer.
            raise ConfigError(
                f"max.in.flight.requests.per.connection={self.max_in_flight_requests_per_connection} is not allowed "
                f"with {reason}: it must be at most 5"
            )

    def _value(self, setting: Setting) -> Any:
        return getattr(self, setting.attribute)

    def _check_group_protocol(self, names: Collection[str]) -> None:
        """Raise `ConfigError` if one of the settings with these names has no effect, as the Java client does."""
        for name in _WITHOUT_EFFECT[self.group_protocol]:
            if name in names:
                setting = CLIENT_SETTINGS[name]
                raise ConfigError(
                    f"{name}={setting.render(self._value(setting))} is not allowed with"
                    f" group.protocol={self.group_protocol}: it must not be set"
                )

    @classmethod
    def of(cls, bootstrap_servers: str, **settings: Any) -> Self:
        """Return settings for a comma-separated list of `host:port`. `settings` are attributes of this class.

        Raises `ConfigError` for an invalid value, and `TypeError` for an unknown name.
        """
        found = cls(bootstrap_servers=_addresses(bootstrap_servers), **_attributes(settings))
        found._check_group_protocol({each.name for each in CLIENT_SETTINGS.values() if settings.get(each.attribute)})
        return found

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> tuple[Self, list[str]]:
        """Parse properties with Kafka's names. Return the settings, and a warning for each unknown property.

        A name can start with `kafka.`, contain `_` instead of `.`, and have any case. Raises `ConfigError` for an
        invalid value.
        """
        values: dict[str, Any] = {}
        warnings = []
        for key, value in properties.items():
            name = canonical_name(key)
            setting = CLIENT_SETTINGS.get(name)
            if setting is None:
                warnings.append(f"{key} has no effect: it is not a setting of this client")
            else:
                values[setting.attribute] = setting.parse(str(value))
        found = cls(**values)
        found._check_group_protocol({each.name for each in CLIENT_SETTINGS.values() if each.attribute in values})
        return found, warnings

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some settings changed. Raises `ConfigError` for an invalid value, and `TypeError` for an
        unknown name.
        """
        return dataclasses.replace(self, **_attributes(changes))

    @property
    def required_acks(self) -> int:
        """The number for `acks` in a Produce request: -1, 0 or 1."""
        return ALL_ACKS if self.acks == "all" else int(self.acks)

    @property
    def idempotent(self) -> bool:
        """Whether the producer is idempotent. A transactional one always is."""
        if self.enable_idempotence is not None:
            return self.enable_idempotence
        return self.required_acks == ALL_ACKS and self.max_in_flight_requests_per_connection <= 5

    @property
    def read_committed(self) -> bool:
        """Whether only committed records are returned."""
        return self.isolation_level == "read_committed"

    def bootstrap_addresses(self) -> list[tuple[str, int]]:
        """Return host and port of each bootstrap server. Raises `ConfigError` if there is none."""
        if not self.bootstrap_servers:
            raise ConfigError("bootstrap.servers is missing: it must be a list of host:port")
        return [parse_address(address) for address in self.bootstrap_servers]


CLIENT_SETTINGS: Final[Mapping[str, Setting]] = settings_of(ClientSettings)
"""All settings by Kafka's name."""


def _describe(setting: Setting) -> str:
    default = setting.render(setting.default)
    values = f" Values: {', '.join(setting.choices)}." if setting.choices else ""
    suffix = f" Default: {default}." if default else ""
    return f"    {setting.attribute}: {setting.documentation}.{values}{suffix}"


# help() shows the docstring of a class, but not the metadata of its fields.
ClientSettings.__doc__ = "\n".join([ClientSettings.__doc__ or "", *map(_describe, CLIENT_SETTINGS.values())])


def as_settings(settings: ClientSettings | str | None = None, **keywords: Any) -> ClientSettings:
    """Return settings for the arguments of a client: settings or a bootstrap list, and single settings that override
    them.

    Without `settings`, `bootstrap_servers` must be among the keywords. A value can be text, as in a properties file.
    Raises `ConfigError` for an invalid value, and `TypeError` for an unknown name.
    """
    if isinstance(settings, ClientSettings):
        return settings.replace(**keywords) if keywords else settings
    if settings is not None:
        if "bootstrap_servers" in keywords:
            raise ConfigError(f"bootstrap.servers is set twice: the first argument, {settings!r}, is that list already")
        keywords["bootstrap_servers"] = settings
    return ClientSettings(**_attributes(keywords))


def _attributes(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes of `ClientSettings`. Raises `TypeError` for an unknown name."""
    found = {}
    for name, value in keywords.items():
        setting = CLIENT_SETTINGS.get(name.replace("_", "."))
        if setting is None:
            close = difflib.get_close_matches(name, [each.attribute for each in CLIENT_SETTINGS.values()], n=1)
            suggestion = f": did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"{name!r} is not a setting of the clients{suggestion}")
        found[setting.attribute] = _value(setting, value)
    return found


def _value(setting: Setting, value: object) -> object:
    if setting.attribute == "bootstrap_servers" and isinstance(value, str):
        return _addresses(value)
    if isinstance(value, str) and setting.kind not in (SettingType.STRING, SettingType.PASSWORD):
        return setting.parse(value)
    if isinstance(value, list):
        return tuple(value)
    # acks can be a number, as in other clients.
    return str(value) if setting.attribute == "acks" else value


def canonical_name(name: str) -> str:
    """Return the name of a property in the form of `CLIENT_SETTINGS`."""
    return name.strip().lower().replace("_", ".").removeprefix(_PREFIX)


def parse_address(address: str) -> tuple[str, int]:
    """Split `host:port` or `[IPv6 address]:port`. Raises `ConfigError` if it is neither."""
    host, separator, port = address.rpartition(":")
    if separator and host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536:
        return host.removeprefix("[").removesuffix("]"), int(port)
    raise ConfigError(f"bootstrap.servers={address!r} is not allowed: it must be a list of host:port")


def _addresses(text_value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text_value.split(",") if part.strip())
