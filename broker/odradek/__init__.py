"""Odradek: a Kafka-compatible broker, its client library and its command line.

The names in `__all__` are the public interface for Python programs. Each is imported when it is first used, because
the broker and the command line start faster without the client library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from odradek.base import VERSION

if TYPE_CHECKING:
    from odradek.base.errors import (
        AuthenticationError,
        ClusterAuthorizationFailedError,
        ConcurrentTransactionsError,
        ConfigError,
        CorruptMessageError,
        DelegationTokenAuthDisabledError,
        DelegationTokenAuthorizationFailedError,
        DelegationTokenExpiredError,
        DelegationTokenNotFoundError,
        DelegationTokenOwnerMismatchError,
        DelegationTokenRequestNotAllowedError,
        ElectionNotNeededError,
        FencedInstanceIdError,
        GroupAuthorizationFailedError,
        GroupIdNotFoundError,
        GroupMaxSizeReachedError,
        GroupSubscribedToTopicError,
        IllegalGenerationError,
        InvalidConfigError,
        InvalidPartitionsError,
        InvalidProducerEpochError,
        InvalidProducerIdMappingError,
        InvalidRecordError,
        InvalidRegularExpressionError,
        InvalidReplicaAssignmentError,
        InvalidReplicationFactorError,
        InvalidTopicError,
        InvalidTransactionStateError,
        InvalidTransactionTimeoutError,
        LogDirNotFoundError,
        LogTruncationError,
        MessageTooLargeError,
        NetworkError,
        NonEmptyGroupError,
        NoReassignmentInProgressError,
        NotEnoughReplicasError,
        NotLeaderOrFollowerError,
        OdradekError,
        OffsetMetadataTooLargeError,
        OffsetOutOfRangeError,
        OutOfOrderSequenceError,
        PolicyViolationError,
        ProducerFencedError,
        ProtocolError,
        RebalanceInProgressError,
        RequestTimedOutError,
        ResourceNotFoundError,
        SaslAuthenticationFailedError,
        SecurityDisabledError,
        ThrottlingQuotaExceededError,
        TopicAlreadyExistsError,
        TopicAuthorizationFailedError,
        TransactionAbortableError,
        TransactionalIdAuthorizationFailedError,
        TransactionalIdNotFoundError,
        TransactionCoordinatorFencedError,
        UnacceptableCredentialError,
        UnknownMemberIdError,
        UnknownTopicOrPartitionError,
        UnsupportedVersionError,
    )
    from odradek.base.types import TopicPartition
    from odradek.client.admin import Admin
    from odradek.client.admin_kinds import (
        ConfigOperation,
        ConfigResourceType,
        ConfigSource,
        ConfigType,
        ConsumerGroupState,
        TransactionalIdState,
    )
    from odradek.client.administration.access_requests import ScramPassword
    from odradek.client.administration.feature_admin import (
        FeatureLevel,
        FeatureMetadata,
        FeatureUpgrade,
        VersionRange,
    )
    from odradek.client.administration.partition_admin import ElectionType
    from odradek.client.blocking.blocking_admin import BlockingAdmin
    from odradek.client.blocking.blocking_consumer import BlockingConsumer
    from odradek.client.blocking.blocking_producer import BlockingProducer
    from odradek.client.blocking.client import BlockingClient
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.consumer.fetched import iterate_records
    from odradek.client.consumer.rebalance_events import RebalanceListener
    from odradek.client.extensions.interceptors import ConsumerInterceptor, ProducerInterceptor, ProducerRecord
    from odradek.client.extensions.serializers import (
        BytesDeserializer,
        BytesSerializer,
        Deserializer,
        DoubleDeserializer,
        DoubleSerializer,
        FloatDeserializer,
        FloatSerializer,
        IntegerDeserializer,
        IntegerSerializer,
        JsonDeserializer,
        JsonSerializer,
        LongDeserializer,
        LongSerializer,
        RecordDeserializationError,
        SerializationError,
        Serializer,
        StringDeserializer,
        StringSerializer,
    )
    from odradek.client.keywords import ClientKeywords, ConsumerKeywords, ProducerKeywords
    from odradek.client.models import (
        AbortedTransaction,
        BatchMetadata,
        BrokerDescription,
        ClusterDescription,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ConfigSynonym,
        ConsumerGroupDescription,
        ConsumerGroupMember,
        ConsumerRecord,
        DelegationTokenDescription,
        GroupDescription,
        GroupLag,
        GroupListing,
        GroupMetadata,
        HangingTransaction,
        ListedOffset,
        ListedTransaction,
        LogDirDescription,
        MemberDescription,
        NewTopic,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionDescription,
        PartitionReassignment,
        PreparedTransaction,
        ProducerDescription,
        RawFetch,
        RecordMetadata,
        ReplicaSize,
        SendResult,
        SubscriptionPattern,
        TopicDescription,
        TransactionDescription,
    )
    from odradek.client.offsets import GroupMembership
    from odradek.client.producer.producer import Producer
    from odradek.client.settings import ClientSettings
    from odradek.client.telemetry.prometheus_collector import ClientCollector
    from odradek.records.v2.batch import TimestampType
    from odradek.records.v2.encode import EncodedRecords, HeaderStrings, RecordColumns, encode_records
    from odradek.records.v2.encode_fields import ByteStrings
    from odradek.records.v2.record import Record
    from odradek.security.acls.model import (
        AclBinding,
        AclFilter,
        AclOperation,
        AclPermission,
        AclRule,
        PatternType,
        ResourcePattern,
        ResourceType,
    )
    from odradek.security.principals import Principal
    from odradek.security.quotas.quota_filters import QuotaFilter
    from odradek.security.quotas.quota_model import QuotaEntity, QuotaKind


__version__ = VERSION

__all__ = [
    "AbortedTransaction",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclRule",
    "Admin",
    "AuthenticationError",
    "BatchMetadata",
    "BlockingAdmin",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingProducer",
    "BrokerDescription",
    "ByteStrings",
    "BytesDeserializer",
    "BytesSerializer",
    "ClientCollector",
    "ClientKeywords",
    "ClientSettings",
    "ClusterAuthorizationFailedError",
    "ClusterDescription",
    "ConcurrentTransactionsError",
    "ConfigChange",
    "ConfigEntry",
    "ConfigError",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Consumer",
    "ConsumerGroupDescription",
    "ConsumerGroupMember",
    "ConsumerGroupState",
    "ConsumerInterceptor",
    "ConsumerKeywords",
    "ConsumerRecord",
    "CorruptMessageError",
    "DelegationTokenAuthDisabledError",
    "DelegationTokenAuthorizationFailedError",
    "DelegationTokenDescription",
    "DelegationTokenExpiredError",
    "DelegationTokenNotFoundError",
    "DelegationTokenOwnerMismatchError",
    "DelegationTokenRequestNotAllowedError",
    "Deserializer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "ElectionNotNeededError",
    "ElectionType",
    "EncodedRecords",
    "FeatureLevel",
    "FeatureMetadata",
    "FeatureUpgrade",
    "FencedInstanceIdError",
    "FloatDeserializer",
    "FloatSerializer",
    "GroupAuthorizationFailedError",
    "GroupDescription",
    "GroupIdNotFoundError",
    "GroupLag",
    "GroupListing",
    "GroupMaxSizeReachedError",
    "GroupMembership",
    "GroupMetadata",
    "GroupSubscribedToTopicError",
    "HangingTransaction",
    "HeaderStrings",
    "IllegalGenerationError",
    "IntegerDeserializer",
    "IntegerSerializer",
    "InvalidConfigError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidRecordError",
    "InvalidRegularExpressionError",
    "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
    "InvalidTransactionTimeoutError",
    "JsonDeserializer",
    "JsonSerializer",
    "ListedOffset",
    "ListedTransaction",
    "LogDirDescription",
    "LogDirNotFoundError",
    "LogTruncationError",
    "LongDeserializer",
    "LongSerializer",
    "MemberDescription",
    "MessageTooLargeError",
    "NetworkError",
    "NewTopic",
    "NoReassignmentInProgressError",
    "NonEmptyGroupError",
    "NotEnoughReplicasError",
    "NotLeaderOrFollowerError",
    "OdradekError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PartitionDescription",
    "PartitionReassignment",
    "PatternType",
    "PolicyViolationError",
    "PreparedTransaction",
    "Principal",
    "Producer",
    "ProducerDescription",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerKeywords",
    "ProducerRecord",
    "ProtocolError",
    "QuotaEntity",
    "QuotaFilter",
    "QuotaKind",
    "RawFetch",
    "RebalanceInProgressError",
    "RebalanceListener",
    "Record",
    "RecordColumns",
    "RecordDeserializationError",
    "RecordMetadata",
    "ReplicaSize",
    "RequestTimedOutError",
    "ResourceNotFoundError",
    "ResourcePattern",
    "ResourceType",
    "SaslAuthenticationFailedError",
    "ScramPassword",
    "SecurityDisabledError",
    "SendResult",
    "SerializationError",
    "Serializer",
    "StringDeserializer",
    "StringSerializer",
    "SubscriptionPattern",
    "ThrottlingQuotaExceededError",
    "TimestampType",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TopicDescription",
    "TopicPartition",
    "TransactionAbortableError",
    "TransactionCoordinatorFencedError",
    "TransactionDescription",
    "TransactionalIdAuthorizationFailedError",
    "TransactionalIdNotFoundError",
    "TransactionalIdState",
    "UnacceptableCredentialError",
    "UnknownMemberIdError",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
    "VersionRange",
    "__version__",
    "encode_records",
    "iterate_records",
]

_NAMES = {
    "client.administration.feature_admin": "FeatureLevel FeatureMetadata FeatureUpgrade VersionRange",
    "client.administration.partition_admin": "ElectionType",
    "client.consumer.rebalance_events": "RebalanceListener",
    "base.errors": """
        AuthenticationError ClusterAuthorizationFailedError ConcurrentTransactionsError ConfigError
        CorruptMessageError DelegationTokenAuthDisabledError DelegationTokenAuthorizationFailedError
        DelegationTokenExpiredError DelegationTokenNotFoundError DelegationTokenOwnerMismatchError
        DelegationTokenRequestNotAllowedError ElectionNotNeededError FencedInstanceIdError
        GroupAuthorizationFailedError GroupIdNotFoundError GroupMaxSizeReachedError
        GroupSubscribedToTopicError IllegalGenerationError InvalidConfigError InvalidPartitionsError
        InvalidProducerEpochError InvalidProducerIdMappingError InvalidRecordError
        InvalidRegularExpressionError InvalidReplicaAssignmentError InvalidReplicationFactorError
        InvalidTopicError InvalidTransactionStateError InvalidTransactionTimeoutError LogDirNotFoundError
        LogTruncationError MessageTooLargeError NetworkError NoReassignmentInProgressError
        NonEmptyGroupError NotEnoughReplicasError NotLeaderOrFollowerError OdradekError
        OffsetMetadataTooLargeError OffsetOutOfRangeError OutOfOrderSequenceError PolicyViolationError
        ProducerFencedError ProtocolError RebalanceInProgressError RequestTimedOutError
        ResourceNotFoundError SaslAuthenticationFailedError SecurityDisabledError
        ThrottlingQuotaExceededError TopicAlreadyExistsError TopicAuthorizationFailedError
        TransactionAbortableError TransactionCoordinatorFencedError TransactionalIdAuthorizationFailedError
        TransactionalIdNotFoundError UnacceptableCredentialError UnknownMemberIdError
        UnknownTopicOrPartitionError UnsupportedVersionError
    """,
    "base.types": "TopicPartition",
    "client.administration.access_requests": "ScramPassword",
    "client.admin": "Admin",
    "client.admin_kinds": """
        ConfigOperation ConfigResourceType ConfigSource ConfigType ConsumerGroupState TransactionalIdState
    """,
    "client.blocking.blocking_admin": "BlockingAdmin",
    "client.blocking.blocking_consumer": "BlockingConsumer",
    "client.blocking.blocking_producer": "BlockingProducer",
    "client.blocking.client": "BlockingClient",
    "client.consumer.consumer": "Consumer",
    "client.consumer.fetched": "iterate_records",
    "client.extensions.interceptors": "ConsumerInterceptor ProducerInterceptor ProducerRecord",
    "client.extensions.serializers": """
        BytesDeserializer BytesSerializer Deserializer DoubleDeserializer DoubleSerializer FloatDeserializer
        FloatSerializer IntegerDeserializer IntegerSerializer JsonDeserializer JsonSerializer LongDeserializer
        LongSerializer RecordDeserializationError SerializationError Serializer StringDeserializer
        StringSerializer
    """,
    "client.keywords": "ClientKeywords ConsumerKeywords ProducerKeywords",
    "client.models": """
        AbortedTransaction BatchMetadata BrokerDescription ClusterDescription ConfigChange ConfigEntry
        ConfigResource ConfigSynonym ConsumerGroupDescription ConsumerGroupMember ConsumerRecord
        DelegationTokenDescription GroupDescription GroupLag GroupListing GroupMetadata HangingTransaction
        ListedOffset ListedTransaction LogDirDescription MemberDescription NewTopic OffsetAndMetadata
        OffsetAndTimestamp PartitionDescription PartitionReassignment PreparedTransaction
        ProducerDescription RawFetch RecordMetadata ReplicaSize SendResult SubscriptionPattern
        TopicDescription TransactionDescription
    """,
    "client.offsets": "GroupMembership",
    "client.producer.producer": "Producer",
    "client.settings": "ClientSettings",
    "client.telemetry.prometheus_collector": "ClientCollector",
    "records.v2.batch": "TimestampType",
    "records.v2.encode": "EncodedRecords HeaderStrings RecordColumns encode_records",
    "records.v2.encode_fields": "ByteStrings",
    "records.v2.record": "Record",
    "security.acls.model": """
        AclBinding AclFilter AclOperation AclPermission AclRule PatternType ResourcePattern ResourceType
    """,
    "security.principals": "Principal",
    "security.quotas.quota_filters": "QuotaFilter",
    "security.quotas.quota_model": "QuotaEntity QuotaKind",
}
"""The public names of each module."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*globals(), *__all__])
