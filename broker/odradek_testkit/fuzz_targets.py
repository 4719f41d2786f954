"""What fuzzing feeds with bytes: every parser that a client reaches, before and after it has authenticated.

A target raises nothing for any input: the errors with which a parser refuses bytes are part of its contract, and every
other exception is a defect. `broker/tests/fuzz/fuzz.py` searches for such inputs, and `test_corpora.py` runs those that
are stored.
"""

from __future__ import annotations

import json
import random
import ssl
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

import jwt
from crc32c import crc32c

from odradek.base.errors import MalformedFrameError, PeerError, UnsupportedVersionError
from odradek.compression import Codec
from odradek.log.producers.stamping import stamp_offsets
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import decode_header, decode_request, decode_response
from odradek.protocol.hotpath import decode_fetch, decode_fetch_response, decode_produce, decode_produce_response
from odradek.records.admission import prepare
from odradek.records.checks.validate import AppendRules
from odradek.records.formats import MAGIC_AT, iterate_entries, iterate_records
from odradek.records.legacy.writing import encode_set
from odradek.records.v2 import batch
from odradek.records.v2.batch import BatchBuilder
from odradek.security.sasl.bearer_tokens import BearerSettings, TokenVerifier
from odradek.security.sasl.credentials import SHA_256, ScramCredential, derive
from odradek.security.sasl.key_sets import KeySetError, VerificationKeys, parse_key_set
from odradek.security.sasl.mechanism import SaslError, ServerExchange
from odradek.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer, TokenError
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import Decoys, ScramServer
from odradek.security.tls.contexts import server_context
from odradek.security.tls.der import DerError
from odradek.security.tls.names import certificate_name
from odradek.security.tls.stores import PemKeyText, PemTrustText
from odradek.security.tls.tls_settings import ClientAuth, TlsSettings
from odradek_testkit.frames import every_api, random_request
from odradek_testkit.security.certificates import Authority, key_pem, pem
from odradek_testkit.security.issuers import Issuer, claims, key_set

NOW_MS: Final = 1_700_000_000_000
RECORDS_LIMIT: Final = 1 << 20
_DECOYS: Final = Decoys()


@dataclass(frozen=True, slots=True)
class FuzzTarget:
    """A parser, and valid inputs to begin with."""

    run: Callable[[bytes], None]
    """Raises nothing."""
    seeds: Callable[[], Iterator[bytes]]


# Requests and responses


def requests(data: bytes) -> None:
    """A frame without its length: each decoder that may get it."""
    frame = memoryview(data)
    with suppress(MalformedFrameError, UnsupportedVersionError):
        header, position = decode_header(frame)
        with suppress(MalformedFrameError, UnsupportedVersionError):
            decode_request(header, frame, position)
        if header.api_key is ApiKey.PRODUCE:
            decode_produce(header.api_version, frame, position)
        elif header.api_key is ApiKey.FETCH:
            decode_fetch(header.api_version, frame, position)


def _frames() -> Iterator[bytes]:
    source = random.Random(1)
    for api, version in every_api(source):
        yield random_request(api, version, source)[4:]


_ROWS: Final = {min(row.key, 255): row for row in API_TABLE.values()}
"""The APIs by the first byte of an input: their key, 255 for the private one."""


def responses(data: bytes) -> None:
    """API, version and a response without its length, as the client library gets it."""
    if len(data) < 2 or data[0] not in _ROWS:
        return
    row, frame = _ROWS[data[0]], memoryview(data)[2:]
    version = min(max(data[1], row.min_version), row.max_version)
    with suppress(MalformedFrameError, UnsupportedVersionError):
        decode_response(row.key, version, frame)
    with suppress(MalformedFrameError, UnsupportedVersionError):
        if row.key is ApiKey.PRODUCE:
            decode_produce_response(version, frame)
        elif row.key is ApiKey.FETCH:
            decode_fetch_response(version, frame)


def _responses() -> Iterator[bytes]:
    for number, row in _ROWS.items():
        for version in range(row.min_version, row.max_version + 1):
            yield bytes((number, version)) + bytes(40)


# Records


def records(data: bytes) -> None:
    """Rules in the first byte, then a record set, whose CRC is corrected: what a broker accepts can be read."""
    if not data:
        return
    choice, raw = data[0], bytearray(data[1:])
    if len(raw) > MAGIC_AT:
        refit_crc(raw, raw[MAGIC_AT])
    rules = AppendRules(
        RECORDS_LIMIT,
        NOW_MS,
        any_format=bool(choice & 1),
        compacted=bool(choice & 2),
        magic=(choice >> 2) % 3,
        codec=None if choice & 128 else Codec((choice >> 4) % 5),
        decompressed_limit_bytes=RECORDS_LIMIT,
    )
    try:
        prepared = prepare(memoryview(raw), rules, 10)
    except PeerError:
        return
    kept = memoryview(bytearray(prepared.records))
    end, _ = stamp_offsets(kept, prepared.headers, 10, 5)
    found = [
        record.offset
        for position, header in iterate_entries(kept)
        for record in iterate_records(kept, position, header, limit=RECORDS_LIMIT)
    ]
    assert found == list(range(10, end)), "the offsets of accepted records have no gap"


def refit_crc(raw: bytearray, magic: int) -> None:
    """Set the correct CRC of the first entry, if it is still one. Otherwise nearly every change would be refused for
    its CRC."""
    size = 12 + int.from_bytes(raw[8:12], "big", signed=True)
    if magic == batch.MAGIC and batch.HEADER_SIZE <= size <= len(raw):
        raw[17:21] = crc32c(raw[21:size]).to_bytes(4, "big")
    elif magic < batch.MAGIC and 26 <= size <= len(raw):
        raw[12:16] = zlib.crc32(raw[16:size]).to_bytes(4, "big")


def _record_sets() -> Iterator[bytes]:
    rows = [(NOW_MS + number, b"k%d" % number, b"v" * number) for number in range(5)]
    for magic in (0, 1):
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            for target in range(3):
                content = [(number, *row) for number, row in enumerate(rows)]
                yield bytes((0x81 | target << 2,)) + bytes(encode_set(content, magic=magic, codec=codec))
    for codec in Codec:
        builder = BatchBuilder(codec=codec, limit_bytes=RECORDS_LIMIT)
        for timestamp_ms, key, value in rows:
            builder.append(key, value, timestamp_ms=timestamp_ms, headers=[("name", key)])
        built = bytes(builder.build())
        for rules in (0x88, 0x81, 0x08, 0x4A):
            yield bytes((rules,)) + built


# Logins


def sasl(data: bytes) -> None:
    """The mechanism in the first byte, then messages, each with its length in two bytes."""
    if not data:
        return
    exchange = _EXCHANGES[data[0] % len(_EXCHANGES)]()
    position = 1
    while position + 2 <= len(data):
        size = int.from_bytes(data[position : position + 2], "big")
        message = data[position + 2 : position + 2 + size]
        position += 2 + size
        with suppress(SaslError):
            exchange.step(message)
    assert not exchange.is_complete or exchange.authorization_id


_PASSWORD: Final = "the-password"


@cache
def _credential() -> ScramCredential:
    return derive(_PASSWORD, SHA_256, iterations=4096)


def _scram() -> ServerExchange:
    return ScramServer(
        SHA_256, find_user=lambda _: _credential(), find_token=lambda _: None, decoys=_DECOYS, nonce="nonce"
    )


@cache
def _verifier() -> TokenVerifier:
    keys = VerificationKeys("file:///keys", lambda: key_set(_issuer().jwk()))
    keys.refresh()
    return TokenVerifier(BearerSettings(jwks_url="file:///keys"), keys)


@cache
def _issuer() -> Issuer:
    return Issuer()


_EXCHANGES: Final[tuple[Callable[[], ServerExchange], ...]] = (
    lambda: PlainServer(lambda user, password: (user, password) == ("alice", _PASSWORD)),
    _scram,
    lambda: OAuthBearerServer(_verifier()),
)


def _message(mechanism: int, *messages: bytes) -> bytes:
    return bytes((mechanism,)) + b"".join(len(each).to_bytes(2, "big") + each for each in messages)


def _logins() -> Iterator[bytes]:
    yield _message(0, b"\0alice\0" + _PASSWORD.encode())
    yield _message(1, b"n,,n=alice,r=client", b"c=biws,r=clientnonce,p=AAAA")
    yield _message(2, OAuthBearerClient(_issuer().token()).start(), b"\x01")


def tokens(data: bytes) -> None:
    """The text of a bearer token, or the claims of one, which are signed."""
    text = data.decode("latin-1")
    if data.startswith(b"{"):
        text = jwt.api_jws.encode(data, _issuer().key, algorithm="RS256", headers={"kid": _issuer().key_id})
    try:
        token = _verifier()(text)
    except TokenError:
        return
    assert token.principal_name


def _tokens() -> Iterator[bytes]:
    yield _issuer().token().encode()
    yield json.dumps(claims(aud=["a", "b"])).encode()
    yield json.dumps(claims(scope="a b", iat=1.5)).encode()


def key_sets(data: bytes) -> None:
    """A JSON Web Key Set, as an issuer sends it."""
    with suppress(KeySetError):
        parse_key_set(data)


def _key_sets() -> Iterator[bytes]:
    yield key_set(_issuer().jwk())


# TLS


@cache
def _server() -> ssl.SSLContext:
    root = Authority.root()
    broker = root.issue("broker")
    return server_context(
        TlsSettings(
            keystore=PemKeyText(setting="key", key=key_pem(broker.key), chain=broker.chain_pem),
            truststore=PemTrustText(setting="trust", certificates=pem(root.certificate)),
            client_auth=ClientAuth.REQUIRED,
        )
    )


def handshakes(data: bytes) -> None:
    """What a client sends on a listener with TLS."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = _server().wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(data)
    incoming.write_eof()
    with suppress(ssl.SSLError):
        connection.do_handshake()
        raise AssertionError("a handshake without the client's certificate was completed")


def _hellos() -> Iterator[bytes]:
    yield client_hello(ssl.TLSVersion.TLSv1_2)
    yield client_hello(ssl.TLSVersion.TLSv1_3)


def client_hello(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes:
    """Return the first message of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="broker")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def certificates(data: bytes) -> None:
    """The certificate of a client, whose subject becomes its name."""
    with suppress(DerError):
        certificate_name(data)


def _certificates() -> Iterator[bytes]:
    issued = Authority.root().issue("client", hosts=())
    yield ssl.PEM_cert_to_DER_cert(issued.chain_pem)


TARGETS: Final[dict[str, FuzzTarget]] = {
    "requests": FuzzTarget(requests, _frames),
    "responses": FuzzTarget(responses, _responses),
    "records": FuzzTarget(records, _record_sets),
    "sasl": FuzzTarget(sasl, _logins),
    "tokens": FuzzTarget(tokens, _tokens),
    "key-sets": FuzzTarget(key_sets, _key_sets),
    "handshakes": FuzzTarget(handshakes, _hellos),
    "certificates": FuzzTarget(certificates, _certificates),
}
