"""Produce and Fetch without message objects: the public names of the `hotpath_*` modules in one place."""

from __future__ import annotations

from odradek.protocol.hotpath_fetch import (
    FetchedPartition,
    FetchEntry,
    FetchRequest,
    FetchResponse,
    ForgottenPartition,
)
from odradek.protocol.hotpath_fetch_request import decode_fetch, encode_fetch_request
from odradek.protocol.hotpath_fetch_response import decode_fetch_response, encode_fetch_response
from odradek.protocol.hotpath_produce import (
    ProducedPartition,
    ProduceRequest,
    ProduceResponse,
    RecordError,
    decode_produce,
    decode_produce_response,
    encode_only_result,
    encode_produce_request,
    encode_produce_response,
)

__all__ = [
    "FetchEntry",
    "FetchRequest",
    "FetchResponse",
    "FetchedPartition",
    "ForgottenPartition",
    "ProduceRequest",
    "ProduceResponse",
    "ProducedPartition",
    "RecordError",
    "decode_fetch",
    "decode_fetch_response",
    "decode_produce",
    "decode_produce_response",
    "encode_fetch_request",
    "encode_fetch_response",
    "encode_only_result",
    "encode_produce_request",
    "encode_produce_response",
]
