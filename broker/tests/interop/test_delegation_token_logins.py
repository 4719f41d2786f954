"""Delegation tokens of a cluster with a broker of Apache Kafka and one of ours, and Kafka's tool and clients."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pytest

from odradek.base.errors import AuthenticationError, DelegationTokenNotFoundError, DelegationTokenRequestNotAllowedError
from odradek.base.system_ports import SystemClock
from odradek.network.channel import Channel
from odradek.network.channel_security import ChannelSecurity
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.security.client_security import ClientSecurity
from odradek.security.sasl.plain import LOGIN_MODULE
from odradek.security.sasl.scram import LOGIN_MODULE as SCRAM_MODULE
from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import ApacheBroker, InteropError, jars, quick_start, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

VERSION: Final = "3.9.1"
SECRET: Final = "a secret of all brokers"
USERS: Final = {"alice": "a", "bob": "b"}
BITS: Final = (256, 512)
TOOL: Final = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS: Final = "org.apache.kafka.tools.TopicCommand"


def properties(between: int, clients: int) -> dict[str, str]:
    """Properties of a broker of either kind."""
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    return {
        "listeners": f"BETWEEN://127.0.0.1:{between},CLIENTS://127.0.0.1:{clients}",
        "listener.security.protocol.map": "BETWEEN:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BETWEEN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": f"{LOGIN_MODULE} required {users};",
        **{f"listener.name.clients.scram-sha-{bits}.sasl.jaas.config": f"{SCRAM_MODULE} required;" for bits in BITS},
        "delegation.token.secret.key": SECRET,
        "offsets.topic.replication.factor": "1",
    }


class Token(NamedTuple):
    """What a client needs to log in."""

    token_id: str
    hmac: bytes

    def login(self, mechanism: str) -> dict[str, str]:
        """Client properties."""
        return client(
            mechanism,
            f'{SCRAM_MODULE} required username="{self.token_id}" password="{b64encode(self.hmac).decode()}" '
            'tokenauth="true";',
        )


def client(mechanism: str, entry: str) -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": entry}


def user(name: str) -> dict[str, str]:
    return client("PLAIN", f'{LOGIN_MODULE} required username="{name}" password="{USERS[name]}";')


@pytest.fixture(scope="module")
def kafka(pytestconfig: pytest.Config) -> Path:
    return jars(VERSION, Path(pytestconfig.rootpath) / ".interop")


class Brokers:
    """One of each kind, in one cluster."""

    def __init__(self, kafka: Path, folder: Path, zookeeper: str) -> None:
        free = free_ports(4)
        self.clients: Final = {"java": free[1], "ours": free[3]}
        self.java: Final = ApacheBroker(
            kafka,
            folder / "java",
            broker_id=1,
            zookeeper=zookeeper,
            properties=properties(free[0], free[1]),
            heap="384m",
            port=free[0],
        )
        self.ours: Final = OdradekBroker(
            folder / "ours", zookeeper=zookeeper, properties=properties(free[2], free[3]), broker_id=2, port=free[2]
        )


@pytest.fixture
def brokers(kafka: Path, odradek_zookeeper: str, tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(kafka, tmp_path, f"{odradek_zookeeper}/{uuid4().hex}")
    yield brokers
    brokers.ours.stop(kill=True)
    brokers.java.stop(kill=True)


def ask(port: int, login: dict[str, str], key: ApiKey, message: Message) -> Any:
    """Return the answer of one broker. Raises `AuthenticationError` if it refuses the login."""

    async def main() -> Any:
        clock = SystemClock()
        settings = ClientSecurity.from_properties(login, clock)
        security = ChannelSecurity(settings, clock=clock, run_blocking=asyncio.to_thread)
        channel = await Channel.open("127.0.0.1", port, client_id="tester", security=security)
        try:
            await channel.negotiate()
            return await channel.ask(key, API_TABLE[key].max_version, message)
        finally:
            await channel.close()

    return asyncio.run(main())


def create(port: int, *renewers: str) -> Token:
    """Create a token of alice."""
    message: Message = {
        "owner_principal_type": None,
        "owner_principal_name": None,
        "renewers": [{"principal_type": "User", "principal_name": name} for name in renewers],
        "max_lifetime_ms": -1,
    }
    created = ask(port, user("alice"), ApiKey.CREATE_DELEGATION_TOKEN, message)
    assert created.error_code == 0
    return Token(created.token_id, created.hmac)


def described(port: int, who: str) -> list[Any]:
    answer = ask(port, user(who), ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None})
    assert answer.error_code == 0
    return sorted(answer.tokens, key=lambda token: str(token.token_id))


def renew(port: int, who: str, hmac: bytes, period_ms: int) -> tuple[int, int]:
    answer = ask(port, user(who), ApiKey.RENEW_DELEGATION_TOKEN, {"hmac": hmac, "renew_period_ms": period_ms})
    return answer.error_code, answer.expiry_timestamp_ms


def remove(port: int, who: str, hmac: bytes) -> int:
    answer = ask(port, user(who), ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": hmac, "expiry_time_period_ms": -1})
    return int(answer.error_code)


def accepts(port: int, login: dict[str, str]) -> bool:
    try:
        answer = ask(port, login, ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None})
    except AuthenticationError:
        return False
    assert answer.error_code == DelegationTokenRequestNotAllowedError.code, "it is known as a token's client"
    return True


def use_with_both(first: int, second: int) -> None:
    """Create a token with one broker, and use, renew and remove it with both."""
    token = create(first, "bob")
    for login in (token.login("SCRAM-SHA-256"), token.login("SCRAM-SHA-512")):
        assert accepts(first, login)
        wait_until(lambda login=login: accepts(second, login), what="the token at the second broker")
    assert not accepts(second, Token(token.token_id, b"another").login("SCRAM-SHA-256"))
    assert described(second, "bob") == described(first, "alice")
    code, expiry_ms = renew(second, "bob", token.hmac, 500_000_000)
    assert code == 0
    wait_until(lambda: [each.expiry_timestamp for each in described(first, "alice")] == [expiry_ms], what="the renewal")
    assert described(second, "bob") == described(first, "alice")
    assert remove(second, "bob", token.hmac) == 0
    wait_until(lambda: not accepts(first, login), what="the removal")
    assert not accepts(second, login)
    missing = DelegationTokenNotFoundError.code
    assert renew(first, "alice", token.hmac, -1) == (missing, -1)
    assert remove(second, "alice", token.hmac) == missing


def test_brokers_of_both_kinds_share_their_tokens(brokers: Brokers) -> None:
    brokers.java.start()
    brokers.ours.start()
    java, ours = brokers.clients["java"], brokers.clients["ours"]
    use_with_both(ours, java)
    use_with_both(java, ours)


def test_tokens_from_before_the_start_of_the_other_kind(brokers: Brokers) -> None:
    java, ours = brokers.clients["java"], brokers.clients["ours"]
    brokers.java.start()
    from_java = create(java)
    brokers.java.stop()
    brokers.ours.start()
    assert accepts(ours, from_java.login("SCRAM-SHA-512"))
    from_ours = create(ours)
    brokers.ours.stop()
    brokers.java.start()
    assert accepts(java, from_java.login("SCRAM-SHA-256"))
    assert accepts(java, from_ours.login("SCRAM-SHA-256"))


def test_the_tool_manages_tokens_and_javas_client_logs_in(brokers: Brokers, kafka: Path, tmp_path: Path) -> None:
    brokers.ours.start()
    bootstrap = f"127.0.0.1:{brokers.clients['ours']}"

    def run(main_class: str, login: dict[str, str], *arguments: str) -> str:
        config = tmp_path / f"{uuid4().hex}.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
        command = ["--bootstrap-server", bootstrap, "--command-config", str(config), *arguments]
        return run_tool(kafka, main_class, command, options=quick_start(kafka))

    life = ("--max-life-time-period", "-1")
    created = run(TOOL, user("alice"), "--create", *life, "--renewer-principal", "User:bob").splitlines()[-1].split()
    token_id, hmac, owner, requester, renewers = created[:5]
    assert (owner, requester, renewers) == ("User:alice", "User:alice", "[User:bob]")
    token = client(
        "SCRAM-SHA-512", f'{SCRAM_MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";'
    )
    run(TOPICS, token, "--create", "--topic", "made-with-a-token", "--partitions", "1")
    assert run(TOPICS, token, "--list").split() == ["made-with-a-token"]
    with pytest.raises(InteropError, match="Delegation Token requests are not allowed"):
        run(TOOL, token, "--create", *life)
    assert token_id in run(TOOL, user("bob"), "--describe", "--owner-principal", "User:alice")
    renewed = run(TOOL, user("bob"), "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation" in renewed
    expired = run(TOOL, user("alice"), "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in expired
    with pytest.raises(InteropError, match="SaslAuthenticationException: Authentication failed"):
        run(TOPICS, token, "--list")
    assert SECRET not in brokers.ours.log()
    assert hmac not in brokers.ours.log()
