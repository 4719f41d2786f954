"""Requests about delegation tokens get the same answers from our broker as from Apache Kafka, with access rules."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek.base.system_ports import SystemClock
from odradek.network.channel import Channel
from odradek.network.channel_security import ChannelSecurity
from odradek.protocol.apis import API_TABLE, ApiKey
from odradek.protocol.codec import Message
from odradek.security.acls.model import AclOperation, AclPermission, AclRule, ResourcePattern, ResourceType
from odradek.security.acls.nodes import encode_rules, resource_path
from odradek.security.client_security import ClientSecurity
from odradek.security.principals import USER, Principal
from odradek.security.sasl.plain import LOGIN_MODULE
from odradek.security.sasl.scram import LOGIN_MODULE as SCRAM_MODULE
from odradek.testing.free_ports import free_ports
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.interop.apache import ApacheBroker, jars

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

VERSION: Final = "3.9.1"
USERS: Final = ("admin", "alice", "bob", "carol", "dave")
CREATE: Final = ApiKey.CREATE_DELEGATION_TOKEN
RENEW: Final = ApiKey.RENEW_DELEGATION_TOKEN
EXPIRE: Final = ApiKey.EXPIRE_DELEGATION_TOKEN
DESCRIBE: Final = ApiKey.DESCRIBE_DELEGATION_TOKEN
DAY_MS: Final = 86_400_000
RULES: Final = (
    ("carol", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob"),
    ("carol", AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice"),
    ("dave", AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "*"),
)
"""What users may do with tokens of others."""


def properties(between: int, clients: int, secret: str) -> dict[str, str]:
    users = " ".join(f'user_{name}="{name}"' for name in USERS)
    return {
        "listeners": f"BETWEEN://127.0.0.1:{between},CLIENTS://127.0.0.1:{clients}",
        "listener.security.protocol.map": "BETWEEN:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BETWEEN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": f"{LOGIN_MODULE} required {users};",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "offsets.topic.replication.factor": "1",
        **({"delegation.token.secret.key": secret} if secret else {}),
    }


class Side:
    """A broker of one kind, with its own ZooKeeper root, and what its answers named."""

    def __init__(self, broker: Any, between: int, clients: int) -> None:
        self.broker = broker
        self._ports = {True: clients, False: between}
        self.tokens: list[Any] = []
        """The created tokens, in order."""

    def ask(self, who: str | int, key: ApiKey, message: Message, version: int | None = None) -> Any:
        """Send a request as a user, as nobody (""), or with the token of a number."""
        version = API_TABLE[key].max_version if version is None else version

        async def main() -> Any:
            clock = SystemClock()
            settings = ClientSecurity.from_properties(self._login(who), clock) if who != "" else None
            security = (
                None if settings is None else ChannelSecurity(settings, clock=clock, run_blocking=asyncio.to_thread)
            )
            channel = await Channel.open("127.0.0.1", self._ports[who != ""], client_id="tester", security=security)
            try:
                await channel.negotiate()
                return await channel.ask(key, version, message)
            finally:
                await channel.close()

        return asyncio.run(main())

    def _login(self, who: str | int) -> dict[str, str]:
        if isinstance(who, str):
            mechanism, entry = "PLAIN", f'{LOGIN_MODULE} required username="{who}" password="{who}";'
        else:
            token = self.tokens[who]
            password = b64encode(token.hmac).decode()
            mechanism = "SCRAM-SHA-512"
            entry = f'{SCRAM_MODULE} required username="{token.token_id}" password="{password}" tokenauth="true";'
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": entry}

    def answer(self, who: str | int, key: ApiKey, arguments: dict[str, Any], version: int | None = None) -> Any:
        """Return the answer in a form in which those of two brokers can be compared."""
        message = dict(arguments)
        if key in (RENEW, EXPIRE):
            number = message.pop("token")
            message["hmac"] = b"none" if number is None else self.tokens[number].hmac
        found = self.ask(who, key, message, version)
        if key is CREATE and not found.error_code:
            self.tokens.append(found)
        return self._comparable(asdict(found))

    def _comparable(self, value: Any) -> Any:
        ids = {token.token_id: f"token {number}" for number, token in enumerate(self.tokens)}
        hmacs = {token.hmac: f"HMAC {number}" for number, token in enumerate(self.tokens)}
        starts = self.tokens[0].issue_timestamp_ms if self.tokens else 0
        if isinstance(value, dict):
            return {key: self._comparable(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return sorted((self._comparable(each) for each in value), key=repr)
        if isinstance(value, bytes):
            return hmacs.get(value, value)
        if isinstance(value, int) and value > 10**12:
            # Days since the first token: both brokers get the same requests within a few minutes.
            return f"{round((value - starts) / DAY_MS, 1)} days"
        return ids.get(value, value) if isinstance(value, str) else value


def write_rules(ensemble: str, root: str) -> None:
    """Write `RULES` before the broker starts."""
    client = KazooClient(hosts=ensemble)
    client.start()
    try:
        for user, operation, kind, name in RULES:
            rule = AclRule(Principal(USER, user), AclPermission.ALLOW, operation)
            client.create(root + resource_path(ResourcePattern(kind, name)), encode_rules([rule]), makepath=True)
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def kafka(pytestconfig: pytest.Config) -> Path:
    return jars(VERSION, Path(pytestconfig.rootpath) / ".interop")


@pytest.fixture(params=["a secret", ""], ids=["enabled", "disabled"])
def sides(
    request: pytest.FixtureRequest, kafka: Path, odradek_zookeeper: str, tmp_path: Path
) -> Iterator[tuple[Side, Side]]:
    roots = [f"/{uuid4().hex}" for _ in range(2)]
    for root in roots:
        write_rules(odradek_zookeeper, root)
    ports = free_ports(4)
    settings = [properties(*pair, request.param) for pair in (ports[:2], ports[2:])]
    java = ApacheBroker(
        kafka,
        tmp_path / "java",
        broker_id=1,
        zookeeper=f"{odradek_zookeeper}{roots[0]}",
        properties=settings[0],
        heap="384m",
        port=ports[0],
    )
    ours = OdradekBroker(
        tmp_path / "ours",
        zookeeper=f"{odradek_zookeeper}{roots[1]}",
        properties=settings[1],
        broker_id=1,
        port=ports[2],
    )
    both = Side(java, *ports[:2]), Side(ours, *ports[2:])
    try:
        for side in both:
            side.broker.start()
        yield both
    finally:
        for side in both:
            side.broker.stop(kill=True)


def creation(owner: str | None = None, *renewers: str, kind: str = "User", days: float = -1) -> dict[str, Any]:
    return {
        "owner_principal_type": None if owner is None else "User",
        "owner_principal_name": owner,
        "renewers": [{"principal_type": kind, "principal_name": name} for name in renewers],
        "max_lifetime_ms": int(days * DAY_MS),
    }


def owners(*names: str) -> dict[str, Any]:
    return {"owners": [{"principal_type": "User", "principal_name": name} for name in names]}


def renewal(token: int | None, days: float = -1) -> dict[str, Any]:
    return {"token": token, "renew_period_ms": int(days * DAY_MS)}


def expiry(token: int | None, days: float = -1) -> dict[str, Any]:
    return {"token": token, "expiry_time_period_ms": int(days * DAY_MS)}


EVERYONE: Final = {"owners": None}
STEPS: Final[tuple[tuple[Any, ...], ...]] = (
    ("alice", DESCRIBE, EVERYONE),
    ("alice", CREATE, creation(None, "bob")),
    ("bob", CREATE, creation(days=0.5)),
    ("bob", CREATE, creation("", "alice", days=30)),
    ("carol", CREATE, creation("bob", "alice", days=3)),
    ("carol", CREATE, creation("alice")),
    ("carol", CREATE, creation("alice", "x", kind="Group")),
    ("carol", CREATE, creation("carol", "x", kind="Group")),
    ("admin", CREATE, creation("alice")),
    ("", CREATE, creation("alice", "x", kind="Group")),
    ("", RENEW, renewal(None)),
    ("", EXPIRE, expiry(None)),
    ("", DESCRIBE, EVERYONE),
    (0, CREATE, creation()),
    (0, RENEW, renewal(0)),
    (0, EXPIRE, expiry(0)),
    (0, DESCRIBE, EVERYONE),
    *((name, DESCRIBE, EVERYONE) for name in USERS),
    *((name, DESCRIBE, owners("alice", "bob")) for name in USERS),
    *((name, DESCRIBE, owners("carol")) for name in USERS),
    *((name, DESCRIBE, owners()) for name in USERS),
    *(("bob", DESCRIBE, EVERYONE, version) for version in range(4)),
    *(("alice", CREATE, {**creation(), "owner_principal_name": None}, version) for version in range(3)),
    ("bob", RENEW, renewal(0)),
    ("bob", RENEW, renewal(0, 5)),
    ("bob", RENEW, renewal(0, 50)),
    *(("bob", RENEW, renewal(0, 2), version) for version in range(3)),
    ("carol", RENEW, renewal(3)),
    ("carol", EXPIRE, expiry(3)),
    ("alice", RENEW, renewal(3)),
    ("admin", RENEW, renewal(3)),
    ("admin", EXPIRE, expiry(3)),
    ("alice", RENEW, renewal(None)),
    ("alice", EXPIRE, expiry(None)),
    ("alice", EXPIRE, expiry(None, 1)),
    ("alice", EXPIRE, expiry(0, 0.5)),
    *(("alice", EXPIRE, expiry(0, 0.2), version) for version in range(3)),
    ("alice", EXPIRE, expiry(0)),
    ("alice", EXPIRE, expiry(0)),
    ("alice", RENEW, renewal(0)),
    ("bob", DESCRIBE, EVERYONE),
)


def test_all_answers_are_kafkas(sides: tuple[Side, Side], request: pytest.FixtureRequest) -> None:
    java, ours = sides
    is_enabled = "enabled]" in request.node.name
    for step in STEPS:
        who, _, arguments, *_ = step
        if not is_enabled and (isinstance(who, int) or arguments.get("token") is not None):
            continue
        assert ours.answer(*step) == java.answer(*step), step
    assert len(ours.tokens) == (8 if is_enabled else 0)
