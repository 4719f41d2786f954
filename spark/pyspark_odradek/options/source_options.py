"""The options of `format("odradek")`, validated before anything runs.

Spark passes names in lower case. An invalid option raises a `ConfigError` with its documented name, its value and what
is allowed. Names, defaults and rules are those of Spark's own source for Kafka, so that a job only changes the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.base.errors import ConfigError
from odradek.base.types import TopicPartition
from odradek.client.settings import ClientSettings
from pyspark_odradek.offsets import EARLIEST, LATEST, parse_assignment, parse_json
from pyspark_odradek.options.client_options import source_client
from pyspark_odradek.options.option_values import OptionValues, duration_ms, size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The partitions to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression of Java, which is searched anywhere in the name of a topic."""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where reading starts or ends: exactly one attribute is set.

    `position` is `EARLIEST` or `LATEST`, which an offset may also be; timestamps are milliseconds. `option` is the name
    of the option.
    """

    option: str
    position: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a query."""

    subscription: Subscription
    start: Bound | None
    """None for the default of the type of query."""
    end: Bound | None
    latest_when_no_match: bool
    """If no record is as new as a starting timestamp: start at the latest offset, or raise an error."""
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    include_headers: bool
    poll_timeout_ms: int
    fetch_offset_tries: int
    fetch_offset_retry_ms: int
    progress_group: str | None
    """The consumer group to which the offsets of finished micro-batches are committed."""
    max_batch_bytes: int
    """Maximum size of keys, values and headers in an Arrow batch; a single larger record is a batch of its own."""
    max_task_memory: int
    """Maximum memory in bytes for what a task fetches, decompresses and builds."""
    push_filters: bool
    client: ClientSettings
    warnings: tuple[str, ...] = field(default=())

    def batch_warnings(self) -> list[str]:
        """Return a warning for each option that has an effect only in streams."""
        given = {
            "maxOffsetsPerTrigger": self.max_offsets_per_trigger,
            "minOffsetsPerTrigger": self.min_offsets_per_trigger,
        }
        return [f"{name} has no effect in a batch query" for name, value in given.items() if value is not None]

    def check_batch(self) -> None:
        """Raise `ConfigError` for options that only streams support, or if the start is after the end."""
        start, end = self.start, self.end
        if start is not None and (start.position == LATEST or LATEST in (start.offsets or {}).values()):
            raise ConfigError(f"{start.option}: a batch query cannot start at the latest offset (latest, -1)")
        if end is not None and (end.position == EARLIEST or EARLIEST in (end.offsets or {}).values()):
            raise ConfigError(f"{end.option}: a batch query cannot end at the earliest offset (earliest, -2)")
        if start is not None and end is not None:
            _check_order(start, end)

    def check_stream(self) -> None:
        """Raise `ConfigError` for options that only batch queries support."""
        if self.end is not None and self.end.option != _ENDING.timestamp:
            raise ConfigError(f"{self.end.option} is not allowed in a streaming query: it has no end")


@dataclass(frozen=True, slots=True)
class _BoundNames:
    offsets: str
    timestamp: str
    timestamps: str


_STARTING: Final = _BoundNames("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDING: Final = _BoundNames("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Parse the options of batch and streaming queries. Raises `ConfigError` for the first invalid one."""
    values = OptionValues(options)
    min_offsets = values.number("minOffsetsPerTrigger", low=0)
    max_offsets = values.number("maxOffsetsPerTrigger", low=1)
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise ConfigError(
            f"minOffsetsPerTrigger={min_offsets} is not allowed: it must not exceed maxOffsetsPerTrigger={max_offsets}"
        )
    client, warnings = source_client(values)
    return SourceOptions(
        subscription=_subscription(values),
        start=_bound(values, _STARTING),
        end=_bound(values, _ENDING),
        latest_when_no_match=values.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        fail_on_data_loss=values.flag("failOnDataLoss", True),
        min_partitions=values.number("minPartitions", low=1),
        max_records_per_partition=values.number("maxRecordsPerPartition", low=1),
        max_offsets_per_trigger=max_offsets,
        min_offsets_per_trigger=min_offsets,
        max_trigger_delay_ms=duration_ms(values, "maxTriggerDelay", default_ms=15 * 60_000),
        include_headers=values.flag("includeHeaders", False),
        poll_timeout_ms=values.number("kafkaConsumer.pollTimeoutMs", low=1) or 120_000,
        fetch_offset_tries=values.number("fetchOffset.numRetries", low=1) or 3,
        fetch_offset_retry_ms=_or(values.number("fetchOffset.retryIntervalMs", low=0), 1000),
        progress_group=progress_group(values),
        max_batch_bytes=size_bytes(values, "maxBatchBytes", default=4 << 20, low=1 << 10),
        max_task_memory=size_bytes(values, "maxTaskMemory", default=512 << 20, low=16 << 20),
        push_filters=values.flag("pushFilters", False),
        client=client,
        warnings=warnings,
    )


def progress_group(values: OptionValues, *, of_listener: bool = False) -> str | None:
    """Return the consumer group of `progressGroup`; None without the option, or with `false`.

    `true` stands for the name of the query, which only the listener knows; None is returned for it. Raises
    `ConfigError` for `true` in the source, and for an empty name.
    """
    text = values.text("progressGroup")
    if text is None or text.strip().lower() == "false":
        return None
    if text.strip().lower() == "true":
        if of_listener:
            return None
        raise ConfigError(
            "progressGroup='true' is not allowed in the source, which does not know the name of the query: give the id "
            "of a consumer group, or use QueryListener(progress=...)"
        )
    if not text.strip():
        raise ConfigError(f"progressGroup={text!r} is not allowed: it must be the id of a consumer group")
    return text.strip()


def _check_order(start: Bound, end: Bound) -> None:
    """Raise `ConfigError` unless offsets or timestamps of the same partitions are in order, where both are known."""
    for first, last in ((start.offsets, end.offsets), (start.timestamps_ms, end.timestamps_ms)):
        if first is None or last is None:
            continue
        if first.keys() != last.keys():
            raise ConfigError(
                f"[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET] {start.option} and {end.option} "
                "must name the same partitions"
            )
        for partition in sorted(first):
            if first[partition] > last[partition] >= 0:
                raise ConfigError(
                    f"[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] {start.option} is after {end.option} for "
                    f"{partition}: {first[partition]} > {last[partition]}"
                )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _subscription(values: OptionValues) -> Subscription:
    kinds: dict[str, Callable[[str], Subscription]] = {
        "subscribe": _topics,
        "subscribePattern": _pattern,
        "assign": lambda text: Subscription(partitions=parse_assignment("assign", text)),
    }
    given = values.present(*kinds)
    if len(given) != 1:
        raise ConfigError(
            f"exactly one of the options subscribe, subscribePattern and assign is needed; given: "
            f"{', '.join(given) or 'none'}"
        )
    return kinds[given[0]](values.text(given[0]) or "")


def _topics(text: str) -> Subscription:
    topics = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
    if not topics:
        raise ConfigError(f"subscribe={text!r} is not allowed: it must be a list of topics with commas between")
    return Subscription(topics=topics)


def _pattern(text: str) -> Subscription:
    if not text.strip():
        raise ConfigError(f"subscribePattern={text!r} is not allowed: it must be a regular expression")
    # Imports the tables of Java's character classes, which other subscriptions do not need.
    from odradek.client.java_regex.java_pattern import compile_pattern

    compile_pattern("subscribePattern", text)
    return Subscription(pattern=text)


def _bound(values: OptionValues, names: _BoundNames) -> Bound | None:
    """A single timestamp has precedence over timestamps by partition, and these over offsets."""
    timestamp_ms = values.number(names.timestamp, low=0)
    if timestamp_ms is not None:
        return Bound(option=names.timestamp, timestamp_ms=timestamp_ms)
    text = values.text(names.timestamps)
    if text is not None:
        return Bound(option=names.timestamps, timestamps_ms=parse_json(names.timestamps, text, lowest=0))
    text = values.text(names.offsets)
    if text is None:
        return None
    positions = {"earliest": EARLIEST, "latest": LATEST}
    position = positions.get(text.strip().lower())
    if position is not None:
        return Bound(option=names.offsets, position=position)
    return Bound(option=names.offsets, offsets=parse_json(names.offsets, text, lowest=EARLIEST))
