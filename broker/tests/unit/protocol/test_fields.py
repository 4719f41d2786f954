"""Declarations of the wire format in message classes, and the schemas of versions."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import ClassVar

import pytest

from odradek.base.types import ZERO_UUID
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import decode_struct, encode_struct
from odradek.protocol.fields import Versions, wire
from odradek.protocol.messages.internal import ControlledShutdownRequest, LeaderAndIsrRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest
from odradek.protocol.schema import schema_of


@pytest.mark.parametrize(
    ("text", "versions"), [("0+", [0, 1, 2, 3, 4]), ("1-3", [1, 2, 3]), ("2", [2]), ("none", []), ("3+", [3, 4])]
)
def test_ranges_of_versions(text: str, versions: list[int]) -> None:
    assert [version for version in range(5) if version in Versions(text)] == versions


def test_messages_are_frozen_values_with_the_defaults_of_the_definition() -> None:
    request = ControlledShutdownRequest(broker_id=1)

    assert request == ControlledShutdownRequest(broker_id=1, broker_epoch=-1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.broker_id = 2  # type: ignore[misc]
    empty = API_TABLE[ApiKey.METADATA].response_type()
    assert (empty.topics, empty.cluster_id, empty.controller_id, empty.throttle_time_ms) == ((), None, -1, 0)


def test_messages_are_values_of_their_type() -> None:
    request = LeaderAndIsrRequest(controller_id=1, live_leaders=())

    assert dataclasses.replace(request, controller_id=2) == LeaderAndIsrRequest(controller_id=2)
    assert request != ControlledShutdownRequest() and request != LeaderAndIsrRequest(controller_id=2)
    assert len({request, LeaderAndIsrRequest(controller_id=1), LeaderAndIsrRequest(controller_id=2)}) == 2
    for other in (copy.copy(request), copy.deepcopy(request), pickle.loads(pickle.dumps(request))):
        assert other == request
    with pytest.raises(dataclasses.FrozenInstanceError):
        del request.controller_id
    with pytest.raises(TypeError, match="LeaderAndIsrRequest has no field broker, leader"):
        LeaderAndIsrRequest(controller_id=1, leader=2, broker=3)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        object.__setattr__(request, "leader", 2)


def test_a_message_does_not_show_its_secrets() -> None:
    shown = repr(SaslAuthenticateRequest(auth_bytes=b"secret"))

    assert shown == "SaslAuthenticateRequest()"
    assert repr(ControlledShutdownRequest(broker_id=1)) == "ControlledShutdownRequest(broker_id=1, broker_epoch=-1)"


def test_fields_follow_the_version() -> None:
    names = [[field.name for field in schema_of(LeaderAndIsrRequest, version).fields] for version in (1, 2, 7)]

    assert names == [
        ["controller_id", "controller_epoch", "ungrouped_partition_states", "live_leaders"],
        ["controller_id", "controller_epoch", "broker_epoch", "topic_states", "live_leaders"],
        [
            "controller_id",
            "is_kraft_controller",
            "controller_epoch",
            "broker_epoch",
            "type",
            "topic_states",
            "live_leaders",
        ],
    ]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A message of several versions."""

    VERSIONS: ClassVar = "0-2"
    FLEXIBLE: ClassVar = "2+"

    number: int = wire("int32", "0+")
    text: str | None = wire("string", "1+", nullable="2+", default="none")
    ids: tuple[object, ...] = wire("uuid", "1+", array=True)
    tagged: int = wire("int16", "2+", tag=0, tagged="2+", default=7)


def test_a_field_that_the_version_lacks_is_omitted_and_has_its_default() -> None:
    message = {"number": 5, "text": "t", "ids": [ZERO_UUID], "tagged": 8}

    assert [len(encode_struct(Sample, version, message)) for version in (0, 1, 2)] == [4, 4 + 3 + 20, 4 + 2 + 17 + 5]
    read = [decode_struct(Sample, version, encode_struct(Sample, version, message)) for version in (0, 1, 2)]
    assert read == [
        Sample(number=5),
        Sample(number=5, text="t", ids=(ZERO_UUID,)),
        Sample(number=5, text="t", ids=(ZERO_UUID,), tagged=8),
    ]


def test_fields_that_a_message_lacks() -> None:
    assert decode_struct(Sample, 2, encode_struct(Sample, 2, {"number": 5})) == Sample(number=5)
    with pytest.raises(ValueError, match="Sample requires the field number"):
        encode_struct(Sample, 0, {})
    with pytest.raises(ValueError, match="no version of Sample has the field more"):
        encode_struct(Sample, 0, {"number": 1, "more": 2})
    with pytest.raises(ValueError, match="null"):
        encode_struct(Sample, 1, {"number": 1, "text": None})
