"""The codes and names of Kafka's protocol in the results of the admin client.

The members of the numbers are also `int`, those of the names also `str`, so they can be compared with the values of the
protocol. A value that this version does not know becomes `UNKNOWN`.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ConfigResourceType(IntEnum):
    """What has a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16

    @classmethod
    def _missing_(cls, value: object) -> ConfigResourceType:
        return cls.UNKNOWN


class ConfigSource(IntEnum):
    """Where the value of a property comes from."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    """Dynamic, of one broker."""
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    """Dynamic, the default of all brokers."""
    STATIC_BROKER_CONFIG = 4
    """The broker's properties file."""
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigType(IntEnum):
    """The type of a property (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def _missing_(cls, value: object) -> ConfigType:
        return cls.UNKNOWN


class ConfigOperation(IntEnum):
    """What a change does with a property (KIP-339)."""

    SET = 0
    DELETE = 1
    """Remove the value, so that the default applies."""
    APPEND = 2
    """Add elements to a list."""
    SUBTRACT = 3
    """Remove elements from a list."""


class ConsumerGroupState(StrEnum):
    """The state of a group."""

    UNKNOWN = "Unknown"
    """Also if the broker is too old to return it."""
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"

    @classmethod
    def _missing_(cls, value: object) -> ConsumerGroupState:
        return cls.UNKNOWN


class TransactionalIdState(StrEnum):
    """The state of a transactional id and its current or last transaction."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    PREPARED = "Prepared"
    """Ongoing without a timeout, until it is committed or aborted by producer id and epoch. Brokers report Ongoing."""

    @classmethod
    def _missing_(cls, value: object) -> TransactionalIdState:
        return cls.UNKNOWN
