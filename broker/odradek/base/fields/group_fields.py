"""The settings of groups, committed offsets and transactions, as fields. `broker_fields` has the other settings.

Names, defaults and bounds are Kafka's. The settings of consumer groups (KIP-848) have the defaults of Apache Kafka 4.1,
where consumer groups are enabled by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.base.errors import ConfigError
from odradek.base.fields.observation_fields import ObservationFields
from odradek.base.setting_definitions import INT32_MAX, Update, boolean, choice, integer, long, short, words

MEBIBYTE: Final = 1 << 20
CLASSIC_PROTOCOL: Final = "classic"
CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol of consumer groups (KIP-848)."""

MIGRATION_POLICIES: Final = ("disabled", "upgrade", "downgrade", "bidirectional")
"""The directions in which groups with members may change their kind (KIP-848)."""

_JAVA_ASSIGNORS: Final[Mapping[str, str]] = {
    f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name for name in ("uniform", "range")
}
"""Names of assignors by their class in Kafka, with which Kafka 3.9 configures them."""
_ASSIGNORS: Final = (*_JAVA_ASSIGNORS.values(), *_JAVA_ASSIGNORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFields(ObservationFields):
    """Settings of groups and transactions."""

    # Groups
    offsets_topic_num_partitions: int = integer(50, "Number of partitions of __consumer_offsets.", low=1)
    offsets_topic_replication_factor: int = short(3, "Replication factor of __consumer_offsets.", low=1)
    offsets_topic_segment_bytes: int = integer(100 * MEBIBYTE, "Segment size of __consumer_offsets.", low=1)
    offsets_retention_minutes: int = integer(10_080, "Time that the offsets of an empty group are kept.", low=1)
    offsets_retention_check_interval_ms: int = long(600_000, "Interval between checks for expired offsets.", low=1)
    offsets_load_buffer_size: int = integer(5 * MEBIBYTE, "Read buffer for loading an offsets partition.", low=1)
    offsets_commit_timeout_ms: int = integer(5000, "Timeout for the replication of an offset commit.", low=1)
    offset_metadata_max_bytes: int = integer(4096, "Maximum size of the metadata of an offset commit.")
    group_min_session_timeout_ms: int = integer(6000, "Minimum session timeout of a member.")
    group_max_session_timeout_ms: int = integer(1_800_000, "Maximum session timeout of a member.")
    group_initial_rebalance_delay_ms: int = integer(3000, "Delay of the first rebalance of a new group.")
    group_max_size: int = integer(INT32_MAX, "Maximum number of members of a group.", low=1)

    # Consumer groups
    group_coordinator_rebalance_protocols: tuple[str, ...] = words(
        (CLASSIC_PROTOCOL, CONSUMER_PROTOCOL),
        "Enabled protocols of groups; classic must be one of them.",
        choices=(CLASSIC_PROTOCOL, CONSUMER_PROTOCOL),
    )
    group_consumer_session_timeout_ms: int = integer(45_000, "Session timeout of members of consumer groups.", low=1)
    group_consumer_min_session_timeout_ms: int = integer(45_000, "Minimum of the session timeout.", low=1)
    group_consumer_max_session_timeout_ms: int = integer(60_000, "Maximum of the session timeout.", low=1)
    group_consumer_heartbeat_interval_ms: int = integer(5000, "Heartbeat interval of their members.", low=1)
    group_consumer_min_heartbeat_interval_ms: int = integer(5000, "Minimum of the heartbeat interval.", low=1)
    group_consumer_max_heartbeat_interval_ms: int = integer(15_000, "Maximum of the heartbeat interval.", low=1)
    group_consumer_max_size: int = integer(INT32_MAX, "Maximum number of members of a consumer group.", low=1)
    group_consumer_assignors: tuple[str, ...] = words(
        ("uniform", "range"),
        "Assignors of consumer groups, as names or as Kafka's class names. The first one is the default.",
        choices=_ASSIGNORS,
    )
    group_consumer_migration_policy: str = choice(
        MIGRATION_POLICIES[-1],
        "Which groups with members change their kind: classic groups that a member of the consumer protocol joins "
        "(upgrade), consumer groups that the last one leaves (downgrade), both (bidirectional) or none (disabled).",
        choices=MIGRATION_POLICIES,
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        600_000, "Interval after which the topics of a regular expression are looked up again.", low=10_000
    )

    # Transactions
    transaction_max_timeout_ms: int = integer(900_000, "Largest transaction timeout of a producer.", low=1)
    transactional_id_expiration_ms: int = integer(604_800_000, "Idle time after which an id is removed.", low=1)
    transaction_state_log_num_partitions: int = integer(50, "Number of partitions of __transaction_state.", low=1)
    transaction_state_log_replication_factor: int = short(3, "Replication factor of __transaction_state.", low=1)
    transaction_state_log_min_isr: int = integer(2, "min.insync.replicas of __transaction_state.", low=1)
    transaction_state_log_segment_bytes: int = integer(100 * MEBIBYTE, "Segment size of __transaction_state.", low=1)
    transaction_state_log_load_buffer_size: int = integer(5 * MEBIBYTE, "Read buffer for loading it.", low=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "Interval between searches for transactions that have timed out.", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000, "Interval between searches for expired transactional ids.", low=1
    )
    transaction_version: int = integer(
        0,
        "Level of the feature transaction.version that the controller finalizes when all brokers support it (KIP-890). "
        "0: only UpdateFeatures finalizes one.",
        low=0,
        high=2,
    )
    prepared_transactions_enable: bool = boolean(True, "Allow prepared transactions, which have no timeout (KIP-939).")
    transaction_partition_verification_enable: bool = boolean(
        True, "Ask the coordinator before the first write of a transaction (KIP-890).", dynamic=Update.CLUSTER_WIDE
    )

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        """Names of the assignors of consumer groups, the default first."""
        return tuple(dict.fromkeys(_JAVA_ASSIGNORS.get(name, name) for name in self.group_consumer_assignors))

    @property
    def allows_group_upgrades(self) -> bool:
        """Whether a classic group becomes a consumer group when a member of the consumer protocol joins it."""
        return self.group_consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def allows_group_downgrades(self) -> bool:
        """Whether a consumer group becomes a classic group when its last member of the consumer protocol leaves."""
        return self.group_consumer_migration_policy in ("downgrade", "bidirectional")

    def check_groups(self) -> None:
        """Raise `ConfigError` for settings of groups that contradict each other."""
        if CLASSIC_PROTOCOL not in self.group_coordinator_rebalance_protocols:
            raise ConfigError("group.coordinator.rebalance.protocols must include classic, which cannot be disabled")
        if not self.group_consumer_assignors:
            raise ConfigError("group.consumer.assignors is empty: it must name at least one assignor")
        for low, high in self._ordered():
            (low_name, low_ms), (high_name, high_ms) = low, high
            if low_ms > high_ms:
                raise ConfigError(
                    f"{low_name}={low_ms} is not allowed: it must be less than or equal to {high_name}={high_ms}"
                )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms={self.group_consumer_heartbeat_interval_ms} is not allowed: it "
                f"must be less than group.consumer.session.timeout.ms={self.group_consumer_session_timeout_ms}"
            )

    def _ordered(self) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
        """Yield settings of which the first may not exceed the second."""
        for name in ("session.timeout.ms", "heartbeat.interval.ms"):
            keys = [f"group.consumer.{bound}{name}" for bound in ("min.", "", "max.")]
            low, present, high = ((key, int(getattr(self, key.replace(".", "_")))) for key in keys)
            yield from ((low, high), (low, present), (present, high))
