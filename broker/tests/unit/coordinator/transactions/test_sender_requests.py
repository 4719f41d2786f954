"""Messages of the senders, and the meaning of error codes."""

from __future__ import annotations

import pytest

from odradek.base.errors import BY_CODE, ClusterAuthorizationFailedError, ProducerFencedError
from odradek.base.types import TopicPartition
from odradek.coordinator.coordinator_ports import TransactionalWriter
from odradek.coordinator.transactions.sender_requests import (
    MarkerVerdict,
    WantedVerification,
    marker_codes,
    marker_verdict,
    markers_message,
    producer_code,
    verification_codes,
    verification_message,
)
from odradek.coordinator.transactions.transaction_values import TransactionMarker
from odradek.protocol.codec import decode_struct, encode_struct
from odradek.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize("version", [0, 1])
def test_markers(version: int) -> None:
    marker = TransactionMarker(7, 3, True, 9, (A0, B0, A1))
    message = markers_message([marker, marker._replace(producer_id=8, is_commit=False, partitions=(B0,))])
    encoded = encode_struct(WriteTxnMarkersRequest, version, message)
    first, second = decode_struct(WriteTxnMarkersRequest, version, encoded).markers
    assert (first.producer_id, first.producer_epoch, first.transaction_result, first.coordinator_epoch) == (
        7,
        3,
        True,
        9,
    )
    assert [(topic.name, topic.partition_indexes) for topic in first.topics] == [("a", (0, 1)), ("b", (0,))]
    assert (second.producer_id, second.transaction_result) == (8, False)


def test_the_codes_of_markers() -> None:
    topics = [{"name": "a", "partitions": [{"partition_index": number, "error_code": number} for number in (0, 1)]}]
    message = {"markers": [{"producer_id": 7, "topics": topics}, {"producer_id": 8, "topics": []}]}
    response = decode_struct(WriteTxnMarkersResponse, 1, encode_struct(WriteTxnMarkersResponse, 1, message))
    assert marker_codes(response) == {7: {A0: 0, A1: 1}, 8: {}}


def test_the_verdict_on_every_code() -> None:
    verdicts = {code: marker_verdict(code) for code in (0, *BY_CODE)}
    found = {verdict: sorted(code for code in verdicts if verdicts[code] is verdict) for verdict in MarkerVerdict}
    assert found[MarkerVerdict.WRITTEN] == [0, 35, 43]
    assert found[MarkerVerdict.FENCED] == [47, 52]
    assert found[MarkerVerdict.RETRY] == [3, 6, 7, 13, 14, 15, 16, 19, 20, 56]


@pytest.mark.parametrize("version", [4, 5])
def test_verifications(version: int) -> None:
    message = verification_message([WantedVerification(TransactionalWriter("id", 7, 3), (A0, B0, A1))])
    encoded = encode_struct(AddPartitionsToTxnRequest, version, message)
    (wanted,) = decode_struct(AddPartitionsToTxnRequest, version, encoded).transactions
    assert (wanted.transactional_id, wanted.producer_id, wanted.producer_epoch) == ("id", 7, 3)
    assert wanted.verify_only
    assert [(topic.name, topic.partitions) for topic in wanted.topics] == [("a", (0, 1)), ("b", (0,))]


def test_the_codes_of_verifications() -> None:
    results = [{"partition_index": number, "partition_error_code": code} for number, code in ((0, 0), (1, 90))]
    topics = [{"name": "a", "results_by_partition": results}]
    transactions = [{"transactional_id": "id", "topic_results": topics}]
    message = {"throttle_time_ms": 0, "error_code": 0, "results_by_transaction": transactions}
    response = decode_struct(AddPartitionsToTxnResponse, 4, encode_struct(AddPartitionsToTxnResponse, 4, message))
    assert verification_codes(response) == {"id": {A0: 0, A1: 47}}


def test_producers_get_only_codes_that_they_expect() -> None:
    changed = {code: producer_code(code) for code in (0, *BY_CODE) if producer_code(code) != code}
    assert changed == {ProducerFencedError.code: 47, ClusterAuthorizationFailedError.code: 48}
