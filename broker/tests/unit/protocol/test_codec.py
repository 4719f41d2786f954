"""Headers, messages of all versions, and fields of newer peers."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.base.errors import MalformedFrameError, UnsupportedVersionError
from odradek.base.types import ZERO_UUID
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import (
    RequestHeader,
    decode_header,
    decode_request,
    decode_response,
    decode_response_header,
    decode_struct,
    elements_encoder,
    encode_request,
    encode_request_header,
    encode_response,
    encode_response_header,
    encode_struct,
)
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from odradek.protocol.messages.membership import HeartbeatResponse

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}


@pytest.mark.parametrize(
    ("raw", "expected", "position"),
    [
        ("000c0000 00000007 0002 6d65", (ApiKey.HEARTBEAT, 0, 7, "me"), 12),
        ("000c0000 00000007 ffff", (ApiKey.HEARTBEAT, 0, 7, None), 10),
        ("000c0000 ffffffff 0000", (ApiKey.HEARTBEAT, 0, -1, ""), 10),
        ("000c0004 00000007 0002 6d65 00", (ApiKey.HEARTBEAT, 4, 7, "me"), 13),
        ("000c0004 00000007 0002 6d65 01 05 02 aabb", (ApiKey.HEARTBEAT, 4, 7, "me"), 17),
        ("00070000 00000007", (ApiKey.CONTROLLED_SHUTDOWN, 0, 7, None), 8),
        ("00070000 00000007 00000003", (ApiKey.CONTROLLED_SHUTDOWN, 0, 7, None), 8),
        ("00070001 00000007 0002 6d65", (ApiKey.CONTROLLED_SHUTDOWN, 1, 7, "me"), 12),
        ("00120063 00000007 0002 6d65 00", (ApiKey.API_VERSIONS, 99, 7, "me"), 13),
    ],
)
def test_request_headers(raw: str, expected: tuple[object, ...], position: int) -> None:
    frame = bytes.fromhex(raw)

    assert decode_header(memoryview(frame)) == (expected, position)
    assert decode_header(frame) == (expected, position)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ("", MalformedFrameError),
        ("000c0000 000000", MalformedFrameError),
        ("000c0000 00000007", MalformedFrameError),
        ("000c0000 00000007 0003 6d65", MalformedFrameError),
        ("000c0000 00000007 fffe", MalformedFrameError),
        ("000c0000 00000007 0001 ff", MalformedFrameError),
        ("000c0004 00000007 0002 6d65", MalformedFrameError),
        ("000c0004 00000007 0002 6d65 01 05 09 aabb", MalformedFrameError),
        ("7fff0000 00000007 0002 6d65", UnsupportedVersionError),
        ("ffff0000 00000007 0002 6d65", UnsupportedVersionError),
        ("000c0005 00000007 0002 6d65 00", UnsupportedVersionError),
        ("000cffff 00000007 0002 6d65", UnsupportedVersionError),
    ],
)
def test_bad_request_headers(raw: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_header(memoryview(bytes.fromhex(raw)))


def test_the_header_of_a_body_in_pieces_is_that_of_a_whole_frame() -> None:
    for version in (0, 4):
        whole = encode_request(ApiKey.HEARTBEAT, version, 9, "me", HEARTBEAT)
        _, position = decode_header(whole[4:])
        body = whole[4 + position :]
        assert encode_request_header(ApiKey.HEARTBEAT, version, 9, "me", body_bytes=len(body)) + body == whole
        answer = encode_response(ApiKey.HEARTBEAT, version, 9, {"error_code": 0})
        correlation_id, position = decode_response_header(ApiKey.HEARTBEAT, version, answer[4:])
        body = answer[4 + position :]
        assert correlation_id == 9
        assert encode_response_header(ApiKey.HEARTBEAT, version, 9, len(body)) + body == answer


def test_controlled_shutdown_0_has_no_client_id() -> None:
    frame = encode_request(ApiKey.CONTROLLED_SHUTDOWN, 0, 9, "me", {"broker_id": 3, "broker_epoch": 5})

    assert frame.hex() == "0000000c" + "00070000" + "00000009" + "00000003"


def test_one_message_serves_every_version() -> None:
    topic = {"error_code": 0, "name": "t", "topic_id": UUID(int=5), "is_internal": True, "partitions": []}
    message = {"brokers": [], "cluster_id": "c", "controller_id": 1, "topics": [topic], "throttle_time_ms": 7}
    row = API_TABLE[ApiKey.METADATA]
    for version in range(row.min_version, row.max_version + 1):
        entity = decode_response(row.key, version, encode_response(row.key, version, 1, message)[4:])
        assert entity.topics[0].name == "t"
        assert entity.topics[0].topic_id == (UUID(int=5) if version >= 10 else ZERO_UUID)
        assert entity.throttle_time_ms == (7 if version >= 3 else 0)


METADATA_VERSIONS = range(API_TABLE[ApiKey.METADATA].min_version, API_TABLE[ApiKey.METADATA].max_version + 1)


def _metadata_topics() -> list[dict[str, object]]:
    """Two topics; the first has more replica lists than the cache stores, and one that is too long for it."""
    rows = [
        {
            "error_code": 0,
            "partition_index": number,
            "leader_id": number,
            "leader_epoch": 3,
            "replica_nodes": tuple(range(20)) if number == 5 else (number, number + 1),
            "isr_nodes": [number],
            "offline_replicas": (),
        }
        for number in range(700)
    ]
    return [
        {"error_code": 0, "name": "a", "topic_id": UUID(int=5), "is_internal": False, "partitions": rows},
        {"error_code": 3, "name": "b", "topic_id": UUID(int=6), "is_internal": False, "partitions": []},
    ]


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_elements_that_were_encoded_before_stand_for_an_array(version: int) -> None:
    topics = _metadata_topics()
    message = {"brokers": [], "cluster_id": "c", "controller_id": 1}
    expected = encode_response(ApiKey.METADATA, version, 1, {**message, "topics": topics})
    encode_topics = elements_encoder(ApiKey.METADATA, version, ("topics",))
    encode_partitions = elements_encoder(ApiKey.METADATA, version, ("topics", "partitions"))
    assert encode_response(ApiKey.METADATA, version, 1, {**message, "topics": encode_topics(topics)}) == expected
    nested = [{**topic, "partitions": encode_partitions(topic["partitions"])} for topic in topics]  # type: ignore[arg-type]
    assert encode_response(ApiKey.METADATA, version, 1, {**message, "topics": encode_topics(nested)}) == expected
    decoded = decode_response(ApiKey.METADATA, version, expected[4:])
    assert [row.replica_nodes for row in decoded.topics[0].partitions] == [
        row["replica_nodes"]
        for row in topics[0]["partitions"]  # type: ignore[attr-defined]
    ]


def test_an_element_that_does_not_fit_is_a_bug() -> None:
    with pytest.raises(ValueError, match="leader"):
        elements_encoder(ApiKey.METADATA, 1, ("topics",))([{"error_code": 0, "name": "t", "leader": 1}])


def test_names_that_no_version_has_are_a_bug() -> None:
    for message in ({"error_code": 0, "eror": 1}, {"eror": 1}):
        with pytest.raises(ValueError, match="eror"):
            encode_response(ApiKey.HEARTBEAT, 0, 1, message)
    topic = {"error_code": 0, "name": "t", "partitions": [], "leader": 1}
    with pytest.raises(ValueError, match="leader"):
        encode_response(ApiKey.METADATA, 1, 1, {"brokers": [], "topics": [topic]})


def test_missing_fields_take_the_schemas_default_or_are_a_bug() -> None:
    assert encode_response(ApiKey.HEARTBEAT, 1, 1, {"error_code": 3}).endswith(bytes.fromhex("00000000 0003"))
    with pytest.raises(ValueError, match="error_code"):
        encode_response(ApiKey.HEARTBEAT, 1, 1, {})
    with pytest.raises(ValueError, match="topics"):
        encode_response(ApiKey.METADATA, 1, 1, {"brokers": []})


@pytest.mark.parametrize(
    "message",
    [
        {"error_code": 40_000},
        {"error_code": "none"},
        {"error_code": None},
    ],
)
def test_values_that_do_not_fit_are_a_bug(message: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_response(ApiKey.HEARTBEAT, 0, 1, message)


@pytest.mark.parametrize("version", [0, 12])
def test_null_where_the_schema_has_none_is_a_bug(version: int) -> None:
    with pytest.raises(ValueError, match="null"):
        encode_response(ApiKey.METADATA, version, 1, {"brokers": None, "topics": []})
    broker = {"node_id": 1, "host": None, "port": 1}
    with pytest.raises(ValueError, match="null"):
        encode_response(ApiKey.METADATA, version, 1, {"brokers": [broker], "topics": []})


def test_error_codes_are_numbers() -> None:
    frame = encode_response(ApiKey.HEARTBEAT, 0, 1, {"error_code": 32_000})

    assert decode_response(HeartbeatResponse, 0, frame[4:]).error_code == 32_000


def test_tagged_fields_of_newer_peers_are_skipped() -> None:
    known = encode_request(ApiKey.HEARTBEAT, 4, 1, "me", HEARTBEAT)[4:]
    assert known.endswith(b"\x00")
    header, position = decode_header(known)
    newer = known[:-1] + bytes.fromhex("02 07 01 aa ac02 03 bbccdd")

    assert decode_request(header, newer, position) == decode_request(header, known, position)


@pytest.mark.parametrize(
    "section",
    ["02 07 00 07 00", "02 08 00 07 00", "01 07 05 aa", "7f"],
    ids=["the same tag twice", "tags out of order", "too long", "too many"],
)
def test_bad_sections_of_tagged_fields(section: str) -> None:
    versions = {"error_code": 0, "api_keys": [], "throttle_time_ms": 0}
    frame = encode_response(ApiKey.API_VERSIONS, 3, 1, versions)[4:]
    assert frame.endswith(b"\x00")

    with pytest.raises(MalformedFrameError):
        decode_response(ApiKey.API_VERSIONS, 3, frame[:-1] + bytes.fromhex(section))


def test_a_known_tagged_field_must_match_its_length() -> None:
    """finalized_features_epoch, tag 1, is eight bytes."""
    frame = encode_response(ApiKey.API_VERSIONS, 3, 1, {"error_code": 0, "api_keys": []})[4:-1]
    epoch = bytes(7) + b"\x05"

    decoded = decode_response(ApiKey.API_VERSIONS, 3, frame + bytes.fromhex("01 01 08") + epoch)
    assert decoded.finalized_features_epoch == 5
    for wrong in (bytes.fromhex("01 01 07") + epoch, bytes.fromhex("01 01 09") + epoch + b"\x00"):
        with pytest.raises(MalformedFrameError):
            decode_response(ApiKey.API_VERSIONS, 3, frame + wrong)


def test_bytes_after_the_last_field_of_a_request_are_ignored() -> None:
    """librdkafka 2.16 asks for the metadata of all topics in this way."""
    frame = bytes.fromhex("0003 000c 00000003 0007 72646b61666b61 00 00 00 00 00 010000")
    header, position = decode_header(frame)
    request = decode_request(header, frame, position)

    assert request.topics is None
    assert request == decode_request(header, frame[:-3], position)


def test_bytes_after_the_last_field_of_a_response_are_refused() -> None:
    frame = encode_response(ApiKey.HEARTBEAT, 0, 1, {"error_code": 0})[4:]

    with pytest.raises(MalformedFrameError, match="1 bytes follow"):
        decode_response(ApiKey.HEARTBEAT, 0, frame + b"\x00")


def test_a_newer_api_versions_request_is_not_decoded() -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, 99, 1, "me")
    with pytest.raises(UnsupportedVersionError):
        decode_request(header, b"", 0)


def test_a_request_owns_its_memory() -> None:
    frame = bytearray(encode_request(ApiKey.HEARTBEAT, 0, 1, "me", HEARTBEAT)[4:])
    header, position = decode_header(memoryview(frame))
    entity = decode_request(header, memoryview(frame), position)
    frame[:] = bytes(len(frame))

    assert (entity.group_id, entity.member_id) == ("g", "m")


def test_endless_retention_is_accepted() -> None:
    """Java's Long.MAX_VALUE."""
    message = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time_ms": 2**63 - 1,
        "topics": [],
    }
    frame = encode_request(ApiKey.OFFSET_COMMIT, 2, 1, None, message)[4:]
    header, position = decode_header(frame)

    assert decode_request(header, frame, position).retention_time_ms == 2**63 - 1


def test_messages_outside_any_api_have_the_same_codec() -> None:
    message = {"assigned_partitions": [{"topic": "t", "partitions": [1, 2]}], "user_data": None}
    raw = encode_struct(ConsumerProtocolAssignment, 1, message)
    entity = decode_struct(ConsumerProtocolAssignment, 1, raw)

    assert (entity.assigned_partitions[0].topic, entity.assigned_partitions[0].partitions) == ("t", (1, 2))
    assert decode_struct(ConsumerProtocolAssignment, 1, b"xx" + raw, 2) == entity
    with pytest.raises(ValueError, match="version"):
        encode_struct(ConsumerProtocolAssignment, 1, message | {"version": 1})
