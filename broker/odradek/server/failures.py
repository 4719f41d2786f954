"""Builds the response of each API to a request that failed as a whole, and maps internal errors to protocol errors.

Most responses have one error code. Others have one for each item of the request, so the response is built from the
request. Only `server/dispatch` calls `failure`. Handlers whose responses have an error for each item also use
`wire_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from odradek.base.errors import (
    ConfigError,
    InvalidConfigError,
    KafkaStorageError,
    OdradekError,
    PeerError,
    PolicyViolationError,
    ProtocolError,
    RequestTimedOutError,
    StorageError,
    UnknownServerError,
)
from odradek.base.types import ZERO_UUID
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import ApiMessage, Message
from odradek.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
from odradek.protocol.messages.cluster import MetadataRequest
from odradek.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from odradek.protocol.messages.fetch import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from odradek.protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest
from odradek.protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.messages.produce import DescribeProducersRequest
from odradek.protocol.messages.quotas import AlterClientQuotasRequest
from odradek.protocol.messages.replicas import ElectLeadersRequest
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from odradek.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from odradek.protocol.schema import REQUIRED, FieldSchema, schema_of
from odradek.zk.port import ConnectionLost, SessionExpired, TooLarge

_Fields = Mapping[str, object]
_Request = TypeVar("_Request", bound=ApiMessage)


def wire_error(error: OdradekError) -> ProtocolError:
    """Return the protocol error for an internal error that is not a bug.

    If ZooKeeper does not answer, it is unknown whether a request took effect, so the client gets REQUEST_TIMED_OUT and
    tries again. Errors that have no protocol error become `UnknownServerError`.
    """
    if isinstance(error, ProtocolError):
        return error
    if isinstance(error, StorageError):
        return KafkaStorageError("A log directory of the broker failed.")
    if isinstance(error, ConfigError):
        return InvalidConfigError(str(error))
    if isinstance(error, TooLarge):
        return PolicyViolationError(str(error))
    if isinstance(error, ConnectionLost | SessionExpired):
        return RequestTimedOutError("ZooKeeper did not answer in time: try again.")
    return UnknownServerError(str(error))


def failure(api_key: ApiKey, version: int, request: object, error: ProtocolError) -> Message | None:
    """Return the response to a request that failed as a whole; None if the API has no response for that.

    `request` is an object of the API's request class.
    """
    build = _PER_ITEM.get(api_key)
    if build is not None:
        return build(request, error)
    schema = schema_of(API_TABLE[api_key].response_type, version)
    if not any(item.name == "error_code" for item in schema.fields):
        return None
    return {**{item.name: _empty(item) for item in schema.fields if item.default is REQUIRED}, "error_code": error.code}


def _empty(item: FieldSchema) -> object:
    """Return a value, for a failed response, of a required field without a default."""
    if item.is_array:
        return ()
    return {"string": "", "bytes": b""}.get(item.kind, 0)


def _topics(topics: Iterable[tuple[str, Iterable[int]]], error: ProtocolError, **fields: object) -> Message:
    """Return an error for each partition of each topic. `fields` are the other fields of a partition in the
    response."""
    return {
        "throttle_time_ms": 0,
        "topics": [
            {
                "name": name,
                "partitions": [{"partition_index": number, "error_code": error.code, **fields} for number in numbers],
            }
            for name, numbers in topics
        ],
    }


def _item(error: ProtocolError, **fields: object) -> dict[str, object]:
    return {**fields, "error_code": error.code, "error_message": str(error)}


def _metadata(request: MetadataRequest, error: ProtocolError) -> Message | None:
    """Return no response if the broker or the cluster failed: one without brokers would make clients forget the brokers
    that they know, so the connection is closed."""
    if not isinstance(error, PeerError):
        return None
    topics: list[Message] = [
        {"name": topic.name or "", "topic_id": topic.topic_id, "error_code": error.code, "partitions": []}
        for topic in request.topics or ()
    ]
    return {"throttle_time_ms": 0, "brokers": [], "topics": topics}


def _create_topics(request: CreateTopicsRequest, error: ProtocolError) -> Message:
    topics = [_item(error, name=topic.name, topic_id=ZERO_UUID, configs=[]) for topic in request.topics]
    return {"throttle_time_ms": 0, "topics": topics}


def _delete_topics(request: DeleteTopicsRequest, error: ProtocolError) -> Message:
    responses = [_item(error, name=topic.name, topic_id=topic.topic_id) for topic in request.topics]
    responses += [_item(error, name=name, topic_id=ZERO_UUID) for name in request.topic_names]
    return {"throttle_time_ms": 0, "responses": responses}


def _create_partitions(request: CreatePartitionsRequest, error: ProtocolError) -> Message:
    return {"throttle_time_ms": 0, "results": [_item(error, name=topic.name) for topic in request.topics]}


def _describe_configs(request: DescribeConfigsRequest, error: ProtocolError) -> Message:
    results = [
        _item(error, resource_type=item.resource_type, resource_name=item.resource_name, configs=[])
        for item in request.resources
    ]
    return {"throttle_time_ms": 0, "results": results}


def _alter_configs(request: AlterConfigsRequest | IncrementalAlterConfigsRequest, error: ProtocolError) -> Message:
    responses = [
        _item(error, resource_type=item.resource_type, resource_name=item.resource_name) for item in request.resources
    ]
    return {"throttle_time_ms": 0, "responses": responses}


def _list_offsets(request: ListOffsetsRequest, error: ProtocolError) -> Message:
    topics = ((topic.name, (item.partition_index for item in topic.partitions)) for topic in request.topics)
    return _topics(topics, error)


def _epochs(request: OffsetForLeaderEpochRequest, error: ProtocolError) -> Message:
    topics = [
        {
            "topic": topic.topic,
            "partitions": [{"partition": item.partition, "error_code": error.code} for item in topic.partitions],
        }
        for topic in request.topics
    ]
    return {"throttle_time_ms": 0, "topics": topics}


def _offset_commit(request: OffsetCommitRequest | TxnOffsetCommitRequest, error: ProtocolError) -> Message:
    topics = ((topic.name, (item.partition_index for item in topic.partitions)) for topic in request.topics)
    return _topics(topics, error)


def _describe_groups(request: DescribeGroupsRequest, error: ProtocolError) -> Message:
    groups = [
        {
            "group_id": group,
            "error_code": error.code,
            "group_state": "",
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
        for group in request.groups
    ]
    return {"throttle_time_ms": 0, "groups": groups}


def _describe_consumer_groups(request: ConsumerGroupDescribeRequest, error: ProtocolError) -> Message:
    nothing: _Fields = {
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }
    return {"throttle_time_ms": 0, "groups": [_item(error, group_id=group, **nothing) for group in request.group_ids]}


def _consumer_group_heartbeat(_request: object, error: ProtocolError) -> Message:
    numbers = dict.fromkeys(("throttle_time_ms", "member_epoch", "heartbeat_interval_ms"), 0)
    return _item(error, member_id=None, assignment=None, **numbers)


def _delete_groups(request: DeleteGroupsRequest, error: ProtocolError) -> Message:
    return {
        "throttle_time_ms": 0,
        "results": [{"group_id": group, "error_code": error.code} for group in request.groups_names],
    }


def _offset_fetch(request: OffsetFetchRequest, error: ProtocolError) -> Message:
    # Depending on its version, a request has one group or a list. The encoder omits the other form.
    topics = ((topic.name, topic.partition_indexes) for topic in request.topics or ())
    groups = [{"group_id": group.group_id, "topics": (), "error_code": error.code} for group in request.groups]
    single = _topics(topics, error, committed_offset=-1, metadata="")
    return {**single, "error_code": error.code, "groups": groups}


def _find_coordinator(request: FindCoordinatorRequest, error: ProtocolError) -> Message:
    nowhere: _Fields = {"node_id": -1, "host": "", "port": -1, "error_code": error.code, "error_message": str(error)}
    coordinators = [{"key": key, **nowhere} for key in request.coordinator_keys]
    return {"throttle_time_ms": 0, **nowhere, "coordinators": coordinators}


def _describe_log_dirs(request: DescribeLogDirsRequest, error: ProtocolError) -> Message:
    # Before version 3, only a directory has an error code.
    result = {"error_code": error.code, "log_dir": "", "topics": ()}
    return {"throttle_time_ms": 0, "error_code": error.code, "results": [result]}


def _alter_log_dirs(request: AlterReplicaLogDirsRequest, error: ProtocolError) -> Message:
    numbers: dict[str, dict[int, None]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            numbers.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    results = [
        {
            "topic_name": name,
            "partitions": [{"partition_index": number, "error_code": error.code} for number in partitions],
        }
        for name, partitions in numbers.items()
    ]
    return {"throttle_time_ms": 0, "results": results}


def _delete_records(request: DeleteRecordsRequest, error: ProtocolError) -> Message:
    topics = ((topic.name, (item.partition_index for item in topic.partitions)) for topic in request.topics)
    return _topics(topics, error, low_watermark=-1)


def _describe_producers(request: DescribeProducersRequest, error: ProtocolError) -> Message:
    topics = ((topic.name, topic.partition_indexes) for topic in request.topics)
    return _topics(topics, error, error_message=str(error), active_producers=())


def _add_partitions_to_txn(request: AddPartitionsToTxnRequest, error: ProtocolError) -> Message:
    # Up to version 3 only partitions have an error code, from version 4 on only the whole response needs one.
    results = [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": number, "partition_error_code": error.code} for number in topic.partitions
            ],
        }
        for topic in request.v3_and_below_topics
    ]
    return {
        "throttle_time_ms": 0,
        "error_code": error.code,
        "results_by_transaction": (),
        "results_by_topic_v3_and_below": results,
    }


def _write_txn_markers(request: WriteTxnMarkersRequest, error: ProtocolError) -> Message:
    markers: list[Message] = []
    for marker in request.markers:
        topics = ((topic.name, topic.partition_indexes) for topic in marker.topics)
        markers.append({"producer_id": marker.producer_id, "topics": _topics(topics, error)["topics"]})
    return {"markers": markers}


def _describe_transactions(request: DescribeTransactionsRequest, error: ProtocolError) -> Message:
    numbers = ("transaction_timeout_ms", "transaction_start_time_ms", "producer_id", "producer_epoch")
    nothing: _Fields = {"transaction_state": "", **dict.fromkeys(numbers, 0), "topics": ()}
    states = [
        {"error_code": error.code, "transactional_id": transactional_id, **nothing}
        for transactional_id in request.transactional_ids
    ]
    return {"throttle_time_ms": 0, "transaction_states": states}


def _elect_leaders(request: ElectLeadersRequest, error: ProtocolError) -> Message:
    # Version 0 has no error code for the whole response; clients of later versions check both.
    results = [
        {
            "topic": topic.topic,
            "partition_result": [_item(error, partition_id=number) for number in topic.partitions],
        }
        for topic in request.topic_partitions or ()
    ]
    return {"throttle_time_ms": 0, "error_code": error.code, "replica_election_results": results}


def _create_acls(request: CreateAclsRequest, error: ProtocolError) -> Message:
    return {"throttle_time_ms": 0, "results": [_item(error) for _ in request.creations]}


def _delete_acls(request: DeleteAclsRequest, error: ProtocolError) -> Message:
    return {"throttle_time_ms": 0, "filter_results": [_item(error, matching_acls=()) for _ in request.filters]}


def _alter_client_quotas(request: AlterClientQuotasRequest, error: ProtocolError) -> Message:
    entries = [
        _item(
            error, entity=[{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity]
        )
        for entry in request.entries
    ]
    return {"throttle_time_ms": 0, "entries": entries}


def _create_token(_request: object, error: ProtocolError) -> Message:
    nobody = dict.fromkeys(("principal_type", "principal_name"), "")
    requester = {f"token_requester_{name}": "" for name in nobody}
    times = dict.fromkeys(("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), -1)
    token = {**nobody, **requester, **times, "token_id": "", "hmac": b""}
    return {"throttle_time_ms": 0, "error_code": error.code, **token}


def _expiry_of_token(_request: object, error: ProtocolError) -> Message:
    return {"throttle_time_ms": 0, "error_code": error.code, "expiry_timestamp_ms": -1}


def _alter_scram_credentials(request: AlterUserScramCredentialsRequest, error: ProtocolError) -> Message:
    users = dict.fromkeys([*(item.name for item in request.deletions), *(item.name for item in request.upsertions)])
    return {"throttle_time_ms": 0, "results": [_item(error, user=user) for user in users]}


def _whole_with_message(name: str, nothing: object = ()) -> Callable[[object, ProtocolError], Message]:
    def build(_request: object, error: ProtocolError) -> Message:
        return {"throttle_time_ms": 0, "error_code": error.code, "error_message": str(error), name: nothing}

    return build


_Build = Callable[[Any, ProtocolError], Message | None]


def _of(
    request_type: type[_Request], build: Callable[[_Request, ProtocolError], Message | None]
) -> tuple[ApiKey, _Build]:
    return request_type.API_KEY, build


_PER_ITEM: Final[Mapping[ApiKey, _Build]] = dict(
    [
        _of(MetadataRequest, _metadata),
        _of(CreateTopicsRequest, _create_topics),
        _of(DeleteTopicsRequest, _delete_topics),
        _of(CreatePartitionsRequest, _create_partitions),
        _of(DescribeConfigsRequest, _describe_configs),
        _of(AlterConfigsRequest, _alter_configs),
        _of(IncrementalAlterConfigsRequest, _alter_configs),
        _of(ListOffsetsRequest, _list_offsets),
        _of(OffsetForLeaderEpochRequest, _epochs),
        _of(OffsetCommitRequest, _offset_commit),
        _of(OffsetFetchRequest, _offset_fetch),
        _of(AddPartitionsToTxnRequest, _add_partitions_to_txn),
        _of(WriteTxnMarkersRequest, _write_txn_markers),
        _of(TxnOffsetCommitRequest, _offset_commit),
        _of(DescribeTransactionsRequest, _describe_transactions),
        _of(FindCoordinatorRequest, _find_coordinator),
        _of(AlterReplicaLogDirsRequest, _alter_log_dirs),
        _of(DeleteRecordsRequest, _delete_records),
        _of(DescribeProducersRequest, _describe_producers),
        _of(DescribeLogDirsRequest, _describe_log_dirs),
        _of(DescribeGroupsRequest, _describe_groups),
        _of(DeleteGroupsRequest, _delete_groups),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, _consumer_group_heartbeat),
        _of(ConsumerGroupDescribeRequest, _describe_consumer_groups),
        _of(ElectLeadersRequest, _elect_leaders),
        _of(CreateAclsRequest, _create_acls),
        _of(DeleteAclsRequest, _delete_acls),
        _of(AlterClientQuotasRequest, _alter_client_quotas),
        _of(AlterUserScramCredentialsRequest, _alter_scram_credentials),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, _whole_with_message("results")),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, _whole_with_message("entries", None)),
        (ApiKey.CREATE_DELEGATION_TOKEN, _create_token),
        (ApiKey.RENEW_DELEGATION_TOKEN, _expiry_of_token),
        (ApiKey.EXPIRE_DELEGATION_TOKEN, _expiry_of_token),
        (ApiKey.DESCRIBE_ACLS, _whole_with_message("resources")),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, _whole_with_message("responses")),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, _whole_with_message("topics")),
        (ApiKey.UPDATE_FEATURES, _whole_with_message("results")),
    ]
)
