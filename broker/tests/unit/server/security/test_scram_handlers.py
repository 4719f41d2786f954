"""DescribeUserScramCredentials and AlterUserScramCredentials."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

from odradek.base.errors import (
    NONE,
    DuplicateResourceError,
    InvalidConfigError,
    InvalidRequestError,
    RequestTimedOutError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequestScramCredentialUpsertion
from odradek.security.sasl.credentials import SHA_256, SHA_512, credential_from_salted
from odradek.server.failures import failure
from odradek.zk import layout
from odradek.zk.port import ConnectionLost
from odradek_testkit.server import MemoryServer

Play = Callable[..., None]
UNACCEPTABLE: Final = UnacceptableCredentialError.code
MISSING: Final = ResourceNotFoundError.code
DUPLICATE: Final = DuplicateResourceError.code
SALT: Final = b"salt of alice"
SALTED: Final = bytes(range(32))


def upsertion(name: str = "alice", mechanism: int = SHA_256.number, **changes: object) -> Message:
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": 4096,
        "salt": SALT,
        "salted_password": SALTED,
        **changes,
    }


def deletion(name: str = "alice", mechanism: int = SHA_256.number) -> Message:
    return {"name": name, "mechanism": mechanism}


async def alter(
    server: MemoryServer, *, delete: Iterable[Message] = (), upsert: Iterable[Message] = ()
) -> dict[str, int]:
    """Return the error code of each user."""
    message: Message = {"deletions": list(delete), "upsertions": list(upsert)}
    answer = await server.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, message)
    assert all((row.error_message is None) == (row.error_code == NONE) for row in answer.results)
    codes = {row.user: row.error_code for row in answer.results}
    assert len(codes) == len(answer.results), "each user has one result"
    return codes


async def described(server: MemoryServer, *users: str) -> dict[str, Any]:
    """Return the error code, or the iterations by mechanism, of each user."""
    message: Message = {"users": [{"name": name} for name in users] or None}
    answer = await server.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, message)
    assert answer.error_code == NONE
    assert all(not row.credential_infos or not row.error_code for row in answer.results)
    return {
        row.user: row.error_code or {info.mechanism: info.iterations for info in row.credential_infos}
        for row in answer.results
    }


async def stored(server: MemoryServer, user: str) -> dict[str, str]:
    path = f"/config/users/{user}"
    return layout.decode_config(path, (await server.zk.get(path))[0])


def test_credentials_are_set_described_and_deleted(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        both = [upsertion(), upsertion(mechanism=SHA_512.number, iterations=8192), upsertion("bob smith")]
        assert await alter(server, upsert=both) == {"alice": NONE, "bob smith": NONE}
        assert await described(server) == {"alice": {1: 4096, 2: 8192}, "bob smith": {1: 4096}}
        assert await described(server, "bob smith") == {"bob smith": {1: 4096}}
        values = await stored(server, "alice")
        assert values["SCRAM-SHA-256"] == credential_from_salted(SHA_256, SALTED, SALT, 4096).to_text()
        assert await stored(server, "bob%20smith")
        assert await alter(server, delete=[deletion()]) == {"alice": NONE}
        assert await described(server, "alice") == {"alice": {2: 8192}}

    play(scenario)


def test_quotas_of_a_user_stay(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        data = layout.encode_config({"producer_byte_rate": "1000"})
        await server.zk.create("/config/users/alice", data, make_parents=True)
        await alter(server, upsert=[upsertion()])
        assert (await stored(server, "alice")).keys() == {"producer_byte_rate", "SCRAM-SHA-256"}
        await alter(server, delete=[deletion()])
        assert await stored(server, "alice") == {"producer_byte_rate": "1000"}

    play(scenario)


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (upsertion(""), UNACCEPTABLE),
        (upsertion(iterations=4095), UNACCEPTABLE),
        (upsertion(iterations=16385), UNACCEPTABLE),
        (upsertion(salt=b""), UNACCEPTABLE),
        (upsertion(salt=bytes(1025)), UNACCEPTABLE),
        (upsertion(".."), UNACCEPTABLE),
        (upsertion(mechanism=0), UnsupportedSaslMechanismError.code),
        (upsertion(mechanism=3), UnsupportedSaslMechanismError.code),
    ],
)
def test_changes_that_are_not_allowed_affect_no_other_user(play: Play, item: Message, code: int) -> None:
    async def scenario(server: MemoryServer) -> None:
        name = str(item["name"])
        assert await alter(server, upsert=[item, upsertion("carol")]) == {name: code, "carol": NONE}
        assert await described(server) == {"carol": {1: 4096}}

    play(scenario)


def test_a_user_is_changed_as_a_whole(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        assert await alter(server, delete=[deletion(), deletion("", 1)]) == {"alice": MISSING, "": UNACCEPTABLE}
        partly = await alter(server, delete=[deletion()], upsert=[upsertion(mechanism=SHA_512.number)])
        assert partly == {"alice": MISSING}
        assert await alter(server, upsert=[upsertion(), upsertion()]) == {"alice": DUPLICATE}
        assert await alter(server, delete=[deletion()], upsert=[upsertion()]) == {"alice": DUPLICATE}
        illegal = upsertion(mechanism=SHA_512.number, iterations=1)
        assert await alter(server, upsert=[upsertion(), upsertion(), illegal]) == {"alice": UNACCEPTABLE}
        assert await described(server) == {}

    play(scenario)


def test_users_that_cannot_be_described(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await alter(server, upsert=[upsertion()])
        found = await described(server, "alice", "bob", "carol", "bob", "", "..")
        assert found == {"alice": {1: 4096}, "bob": DUPLICATE, "carol": MISSING, "": MISSING, "..": MISSING}
        data = layout.encode_config({"SCRAM-SHA-256": "salt=secret"})
        await server.zk.create("/config/users/dave", data, make_parents=True)
        await server.zk.create("/config/users/erin", b"no JSON", make_parents=True)
        wrong = InvalidConfigError.code
        assert await described(server) == {"alice": {1: 4096}, "dave": wrong, "erin": wrong}

    play(scenario)


def test_a_znode_that_cannot_be_decoded_is_not_overwritten(play: Play) -> None:
    async def scenario(server: MemoryServer) -> None:
        await server.zk.create("/config/users/alice", b"no JSON", make_parents=True)
        codes = await alter(server, upsert=[upsertion()])
        assert codes["alice"] != NONE
        assert (await server.zk.get("/config/users/alice"))[0] == b"no JSON"

    play(scenario)


def test_a_failure_of_zookeeper_is_that_of_its_user(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: MemoryServer) -> None:
        async def lost(*_: object) -> None:
            raise ConnectionLost("gone")

        monkeypatch.setattr(server.zk, "multi", lost)
        assert await alter(server, upsert=[upsertion()]) == {"alice": RequestTimedOutError.code}

    play(scenario)


def test_a_request_that_fails_as_a_whole_has_a_result_for_each_user() -> None:
    request = API_TABLE[ApiKey.ALTER_USER_SCRAM_CREDENTIALS].request_type(deletions=(), upsertions=())
    answer = failure(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request, InvalidRequestError("no"))
    assert answer == {"throttle_time_ms": 0, "results": []}


def test_requests_do_not_show_secrets() -> None:
    item = AlterUserScramCredentialsRequestScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=SALT, salted_password=SALTED
    )
    assert "alice" in repr(item)
    assert repr(SALT) not in repr(item)
    assert repr(SALTED) not in repr(item)
