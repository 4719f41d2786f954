"""Responses of brokers, in every version."""

from __future__ import annotations

from uuid import UUID

from odradek.base.types import TopicPartition
from odradek.controller.broker_requests.old_versions import leader_and_isr_errors, stop_replica_errors
from odradek.protocol.apis import ApiKey
from odradek.protocol.codec import decode_response, encode_response

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_leader_and_isr_by_id_and_by_name() -> None:
    known, unknown = UUID(int=1), UUID(int=2)
    message = {
        "error_code": 0,
        "partition_errors": [{"topic_name": "t", "partition_index": 0, "error_code": 56}],
        "topics": [
            {"topic_id": known, "partition_errors": [{"partition_index": 0, "error_code": 56}]},
            {"topic_id": unknown, "partition_errors": [{"partition_index": 0, "error_code": 0}]},
        ],
    }
    for version in (4, 5, 7):
        frame = encode_response(ApiKey.LEADER_AND_ISR, version, 1, message)[4:]
        response = decode_response(ApiKey.LEADER_AND_ISR, version, frame)
        assert leader_and_isr_errors(response, {known: "t"}) == {T0: 56}


def test_stop_replica_errors_of_partitions_and_of_the_whole() -> None:
    for whole, expected in ((0, {T0: 56, T1: 0}), (77, {T0: 77, T1: 77})):
        message = {
            "error_code": whole,
            "partition_errors": [{"topic_name": "t", "partition_index": 0, "error_code": 56}],
        }
        frame = encode_response(ApiKey.STOP_REPLICA, 4, 1, message)[4:]
        assert stop_replica_errors(decode_response(ApiKey.STOP_REPLICA, 4, frame), [T0, T1]) == expected
