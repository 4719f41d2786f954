"""The response to a failed request, for every API and supported version."""

from __future__ import annotations

import random

import pytest

from odradek.base.errors import InvalidRequestError, KafkaStorageError
from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.schema import StructSchema, schema_of
from odradek.server.failures import failure
from odradek_testkit.frames import random_request

DIRECT = {ApiKey.PRODUCE, ApiKey.FETCH}
"""APIs whose direct handlers build their failed responses."""


CASES = [
    pytest.param(api.key, version, id=f"{api.name}-{version}")
    for api in API_TABLE.values()
    for version in range(api.min_version, api.max_version + 1)
    if api.key not in DIRECT
]


def codes(schema: StructSchema, response: object) -> list[int]:
    """Yield every error code in a response, at any depth."""
    found: list[int] = []
    for field in schema.fields:
        value = getattr(response, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(value)
        elif field.struct is not None and field.is_array:
            for item in value or ():
                found += codes(field.struct, item)
    return found


@pytest.mark.parametrize(("api_key", "version"), CASES)
def test_failure_fits_the_response(api_key: ApiKey, version: int) -> None:
    api = API_TABLE[api_key]
    source = random.Random(version)
    error = InvalidRequestError("a field is invalid") if api_key is ApiKey.METADATA else KafkaStorageError("full")
    schema = schema_of(api.response_type, version)
    found: set[int] = set()
    for _ in range(20):
        frame = random_request(api, version, source)[4:]
        header, position = codec.decode_header(frame)
        request = codec.decode_request(header, frame, position)
        message = failure(api_key, version, request, error)
        assert message is not None
        encoded = codec.encode_response(api_key, version, 7, message)
        found |= set(codes(schema, codec.decode_response(api_key, version, encoded[4:])))
    assert found == {error.code}


def test_metadata_has_no_response_to_a_failure_of_the_broker() -> None:
    """A response without brokers would make clients forget the cluster."""
    assert failure(ApiKey.METADATA, 12, {}, KafkaStorageError("the disk is gone")) is None
