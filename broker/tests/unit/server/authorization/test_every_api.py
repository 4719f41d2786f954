"""Every API and version with a client that may do nothing, and with one that may do everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.base.errors import ProtocolError
from odradek.base.types import ZERO_UUID
from odradek.cluster import ClusterImage
from odradek.protocol import codec
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.schema import FieldSchema, StructSchema, schema_of
from odradek.security.acls.model import AclOperation, ResourceType
from odradek.security.principals import Identity, Principal
from odradek.server.authorization.authorizer import all_operations
from odradek.server.authorization.guards import FAILURES, guarded, unguarded
from odradek.server.authorization.required import GUARDS, REQUIRED
from odradek.server.dispatch import RequestContext, error_codes
from odradek.server.failures import failure

SECRET = "secret"
TOPIC_ID = UUID(int=7)
IMAGE = ClusterImage(topic_names={TOPIC_ID: SECRET})
FILTERING = {ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.LIST_TRANSACTIONS}
"""APIs that leave out what the client may not see."""
FIRST_GUARDED = {ApiKey.CREATE_DELEGATION_TOKEN: 3}
"""Before, a client creates tokens only for itself."""
CODES = {error.code for error in FAILURES.values()}
VERSIONS = [
    pytest.param(api.key, version, id=f"{api.name}-{version}")
    for api in API_TABLE.values()
    if GUARDS[api.key] is not unguarded
    for version in range(FIRST_GUARDED.get(api.key, api.min_version), api.max_version + 1)
]


class Verdicts:
    """An authorizer that allows everything or nothing."""

    def __init__(self, *, allow: bool) -> None:
        self.allow = allow
        self.asked: set[tuple[AclOperation, ResourceType]] = set()

    @property
    def generation(self) -> object:
        return None

    def denied(
        self,
        identity: Identity,
        operation: AclOperation,
        kind: ResourceType,
        names: Iterable[str],
        request: str,
        *,
        is_logged: bool = True,
    ) -> frozenset[str]:
        self.asked.add((operation, kind))
        return frozenset() if self.allow else frozenset(names)

    def allows_any(self, identity: Identity, operation: AclOperation, kind: ResourceType, request: str) -> bool:
        self.asked.add((operation, kind))
        return self.allow

    def operations(self, identity: Identity, kind: ResourceType, name: str) -> int:
        return all_operations(kind) if self.allow else 0


def sample(schema: StructSchema) -> dict[str, object]:
    """Return a message with one item in each array, and with the secret in each text."""
    return {item.name: value(item) for item in schema.fields}


def value(item: FieldSchema) -> object:
    one: object
    if item.struct is not None:
        one = sample(item.struct)
    elif item.name == "resource_type":
        one = 2
    else:
        one = {"string": SECRET, "bytes": b"", "records": b"", "uuid": TOPIC_ID, "bool": False}.get(item.kind, 0)
    return [one] if item.is_array else one


def request_of(key: ApiKey, version: int) -> Any:
    message = sample(schema_of(API_TABLE[key].request_type, version))
    if key is ApiKey.DELETE_TOPICS and version >= 6:
        message["topics"] = [{"name": SECRET, "topic_id": ZERO_UUID}, {"name": None, "topic_id": TOPIC_ID}]
    frame = codec.encode_request(key, version, 5, "tester", message)[4:]
    header, position = codec.decode_header(frame)
    return codec.decode_request(header, frame, position)


def response_of(key: ApiKey, version: int, *, empty: bool) -> Message:
    api = API_TABLE[key]
    # Handlers answer with the fields of all versions; guards that filter read them.
    schema = schema_of(api.response_type, api.max_version if key in FILTERING else version)
    return {item.name: () if item.is_array and empty else value(item) for item in schema.fields}


async def served(key: ApiKey, version: int, request: Any, verdicts: Verdicts) -> tuple[list[Any], Any]:
    """Return the requests that the handler got, and the answer as the client decodes it."""
    got: list[Any] = []

    async def handler(context: RequestContext, request: Any) -> Message:
        got.append(request)
        return response_of(key, version, empty=not verdicts.allow and key not in FILTERING)

    handlers = guarded({key: handler}, GUARDS, verdicts, lambda: IMAGE)
    identity = Identity(Principal("User", "tester"), "10.0.0.1", "SECURE", "SASL_SSL", "PLAIN")
    context = RequestContext(
        api_key=key,
        api_version=version,
        client_id=None,
        client_host="10.0.0.1",
        listener="PLAINTEXT",
        identity=identity,
    )
    answer: Message | None
    try:
        answer = await handlers[key](context, request)
    except ProtocolError as error:
        answer = failure(key, version, request, error)
    assert answer is not None
    return got, codec.decode_response(key, version, codec.encode_response(key, version, 5, answer)[4:])


def as_mapping(decoded: Any) -> Any:
    if isinstance(decoded, tuple):
        return [as_mapping(each) for each in decoded]
    if hasattr(decoded, "__dataclass_fields__"):
        return {name: as_mapping(getattr(decoded, name)) for name in decoded.__dataclass_fields__}
    return decoded


def test_every_api_has_a_row() -> None:
    assert REQUIRED.keys() == API_TABLE.keys()


def test_an_api_without_a_guard_is_a_mistake() -> None:
    async def handler(context: RequestContext, request: Any) -> Message:
        raise AssertionError("it is never called")

    with pytest.raises(ValueError, match="no guards"):
        guarded({ApiKey.HEARTBEAT: handler}, {}, Verdicts(allow=True), ClusterImage)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
async def test_a_client_without_rights_changes_nothing_and_learns_nothing(key: ApiKey, version: int) -> None:
    verdicts = Verdicts(allow=False)
    got, answer = await served(key, version, request_of(key, version), verdicts)
    assert key in FILTERING or SECRET not in repr(got)
    content = as_mapping(answer)
    if key in FILTERING:
        content.pop("unknown_state_filters", None)  # The client named them.
        assert SECRET not in repr(content)
    else:
        assert isinstance(content, Mapping)
        assert CODES & {*error_codes(content, 4)}, content
    if key is ApiKey.DELETE_TOPICS and version >= 6:
        assert [(row.name, row.topic_id) for row in answer.responses] == [(SECRET, ZERO_UUID), (None, TOPIC_ID)]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
async def test_a_client_with_all_rights_gets_what_the_handler_answers(key: ApiKey, version: int) -> None:
    verdicts = Verdicts(allow=True)
    request = request_of(key, version)
    got, answer = await served(key, version, request, verdicts)
    assert got == [request]
    expected = codec.encode_response(key, version, 5, response_of(key, version, empty=False))
    plain = as_mapping(codec.decode_response(key, version, expected[4:]))
    if key is ApiKey.DESCRIBE_GROUPS:
        wanted = all_operations(ResourceType.GROUP)
        if request.include_authorized_operations:
            plain["groups"][0]["authorized_operations"] = wanted
    assert as_mapping(answer) == plain


@pytest.mark.parametrize(("key", "version"), VERSIONS)
async def test_the_rights_in_the_table_are_those_that_are_checked(key: ApiKey, version: int) -> None:
    verdicts = Verdicts(allow=True)
    await served(key, version, request_of(key, version), verdicts)
    if len(REQUIRED[key].rights) == 1 and not REQUIRED[key].note:
        assert verdicts.asked == {*REQUIRED[key].rights}
    else:
        assert verdicts.asked


def test_the_guide_shows_the_table(request: pytest.FixtureRequest) -> None:
    guide = (Path(request.config.rootpath) / "docs/security.md").read_text(encoding="utf-8")
    rows = [f"| {API_TABLE[key].name} | {required.text} |" for key, required in REQUIRED.items()]
    assert "\n".join(["| --- | --- |", *rows, ""]) in guide
