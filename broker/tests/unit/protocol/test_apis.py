"""Compares the API table with kio's schemas and with Apache Kafka 3.9."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest

from odradek.base.errors import UnsupportedVersionError
from odradek.protocol.apis import API_TABLE, NEVER_FLEXIBLE, Api, ApiKey, api, knows_private_apis
from odradek.protocol.codec import encode_request, encode_response
from odradek.protocol.fields import Versions
from odradek.protocol.schema import schema_of

KAFKA_3_9 = {
    "Produce": (11, 9),
    "Fetch": (17, 12),
    "ListOffsets": (9, 6),
    "Metadata": (12, 9),
    "LeaderAndIsr": (7, 4),
    "StopReplica": (4, 2),
    "UpdateMetadata": (8, 6),
    "ControlledShutdown": (3, 3),
    "OffsetCommit": (9, 8),
    "OffsetFetch": (9, 6),
    "FindCoordinator": (6, 3),
    "JoinGroup": (9, 6),
    "Heartbeat": (4, 4),
    "LeaveGroup": (5, 4),
    "SyncGroup": (5, 4),
    "DescribeGroups": (5, 5),
    "ListGroups": (5, 3),
    "SaslHandshake": (1, NEVER_FLEXIBLE),
    "SaslAuthenticate": (2, 2),
    "ApiVersions": (4, 3),
    "CreateTopics": (7, 5),
    "DeleteTopics": (6, 4),
    "DeleteRecords": (2, 2),
    "InitProducerId": (5, 2),
    "OffsetForLeaderEpoch": (4, 4),
    "DescribeConfigs": (4, 4),
    "AlterReplicaLogDirs": (2, 2),
    "DescribeLogDirs": (4, 2),
    "CreatePartitions": (3, 2),
    "DeleteGroups": (2, 2),
    "IncrementalAlterConfigs": (1, 1),
    "AlterConfigs": (2, 2),
    "ElectLeaders": (2, 2),
    "AlterPartitionReassignments": (0, 0),
    "ListPartitionReassignments": (0, 0),
    "OffsetDelete": (0, NEVER_FLEXIBLE),
    "UpdateFeatures": (1, 0),
    "AlterPartition": (3, 0),
    "DescribeCluster": (1, 0),
    "DescribeProducers": (0, 0),
    "DescribeAcls": (3, 2),
    "CreateAcls": (3, 2),
    "DeleteAcls": (3, 2),
    "CreateDelegationToken": (3, 2),
    "RenewDelegationToken": (2, 2),
    "ExpireDelegationToken": (2, 2),
    "DescribeDelegationToken": (3, 2),
    "DescribeClientQuotas": (1, 1),
    "AlterClientQuotas": (1, 1),
    "DescribeUserScramCredentials": (0, 0),
    "AlterUserScramCredentials": (0, 0),
    "AllocateProducerIds": (0, 0),
    "AddPartitionsToTxn": (5, 3),
    "AddOffsetsToTxn": (4, 3),
    "EndTxn": (4, 3),
    "WriteTxnMarkers": (1, 1),
    "TxnOffsetCommit": (4, 3),
    "DescribeTransactions": (0, 0),
    "ListTransactions": (1, 0),
}
"""Highest stable and first flexible version of a ZooKeeper-mode broker, from its `ApiKeys`; the lowest is always 0."""
KAFKA_4_1 = {
    "ConsumerGroupHeartbeat": (1, 0),
    "ConsumerGroupDescribe": (1, 0),
    "Produce": (12, 9),
    "EndTxn": (5, 3),
    "TxnOffsetCommit": (5, 3),
}
"""The same for the requests that a broker of Kafka 3.9 serves only with KRaft, and for those with versions for
transaction version 2, which no earlier release has (KIP-890). Produce 13 identifies topics by id, for KRaft."""

rows = pytest.mark.parametrize("row", API_TABLE.values(), ids=lambda row: row.name)


@pytest.mark.parametrize("row", [row for row in API_TABLE.values() if not row.private], ids=lambda row: row.name)
def test_versions_are_those_of_kafka(row: Api) -> None:
    assert (row.min_version, row.max_version, row.flexible_since) == (0, *(KAFKA_3_9 | KAFKA_4_1)[row.name])


@rows
def test_message_classes_agree_with_the_row(row: Api) -> None:
    for message_type in (row.request_type, row.response_type):
        assert message_type.API_KEY is row.key
        for version in range(row.min_version, row.max_version + 1):
            assert version in Versions(message_type.VERSIONS)
            assert schema_of(message_type, version).flexible == row.is_flexible(version)


@rows
def test_headers_agree_with_kios(row: Api) -> None:
    for version in range(row.min_version, row.max_version + 1):
        name = f"kio.schema.{row.key.name.lower()}"
        if find_spec(name) is None or find_spec(f"{name}.v{version}") is None:
            continue
        for direction, ours in (
            ("request", row.request_header_version(version)),
            ("response", row.response_header_version(version)),
        ):
            kios = getattr(import_module(f"{name}.v{version}.{direction}"), row.name + direction.capitalize())
            assert kios.__header_schema__.__version__ == ours


def test_headers_with_a_form_of_their_own() -> None:
    assert API_TABLE[ApiKey.CONTROLLED_SHUTDOWN].request_header_version(0) == 0
    assert API_TABLE[ApiKey.CONTROLLED_SHUTDOWN].request_header_version(1) == 1
    assert [API_TABLE[ApiKey.API_VERSIONS].response_header_version(version) for version in range(5)] == [0] * 5
    assert API_TABLE[ApiKey.API_VERSIONS].request_header_version(3) == 2


@rows
def test_versions_outside_the_range_are_refused(row: Api) -> None:
    for version in (row.min_version - 1, row.max_version + 1):
        assert not row.serves(version)
        with pytest.raises(UnsupportedVersionError):
            row.check(version)
        with pytest.raises(UnsupportedVersionError):
            encode_response(row.key, version, 1, {})
        with pytest.raises(UnsupportedVersionError):
            encode_request(row.key, version, 1, None, {})


def test_rows_are_found_by_number() -> None:
    assert api(18) is API_TABLE[ApiKey.API_VERSIONS]
    for key in (-1, ApiKey.ENVELOPE, 9_999):
        with pytest.raises(UnsupportedVersionError):
            api(key)


def test_private_keys_are_out_of_the_way_of_kafkas() -> None:
    assert all((row.key >= 20_000) == row.private for row in API_TABLE.values())
    assert not any(knows_private_apis(name) for name in ("", "apache-kafka-java", "librdkafka", "Odradek"))
    assert knows_private_apis("odradek")


def test_flags() -> None:
    assert [row.name for row in API_TABLE.values() if row.pipelined] == ["Produce"]
    assert [row.name for row in API_TABLE.values() if row.internal] == [
        "LeaderAndIsr",
        "StopReplica",
        "UpdateMetadata",
        "ControlledShutdown",
        "AlterPartition",
        "AllocateProducerIds",
    ]
    assert [row.name for row in API_TABLE.values() if row.private] == ["PrepareTxn"]
    exempt = {row.name for row in API_TABLE.values() if row.is_exempt_from_quotas and not row.internal}
    assert exempt == {"WriteTxnMarkers"}, "administrators send it, too, so it is served on all listeners"
