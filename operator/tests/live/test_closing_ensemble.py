"""A real ensemble changes from plaintext to TLS with the properties of the operator, one member after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek.zk.kazoo_client import KazooZkClient
from odradek.zk.port import AuthenticationFailed, ConnectionLost, NoNode, ZkError, ZkSettings
from odradek_operator.crds.types import Cluster, ZooKeeper
from odradek_operator.kube.cluster.znode_owners import own_znodes
from odradek_operator.kube.cluster.zookeeper_session import ask_members, session_settings
from odradek_operator.objects import names
from odradek_operator.objects.ensemble_security import member_properties
from odradek_operator.objects.names import EnsembleLink
from odradek_operator.security.authorities import new_authority
from odradek_operator.security.leaves import LeafNames, LeafUsage, issue
from odradek_operator.security.material import keystore_pem

from .pod_members import Ensemble, Running, member

pytestmark = [pytest.mark.java, pytest.mark.slow]

SIZE = 3
CLUSTER = Cluster(name="demo", zookeeper=ZooKeeper(replicas=SIZE))
HOSTS = tuple(f"127.0.0.{number + 1}" for number in range(SIZE))


class Certificates:
    """The files that members and clients get, of one authority."""

    def __init__(self, folder: Path, name: str = "CA") -> None:
        self.folder = folder
        now = datetime.now(UTC)
        self._authority = new_authority(name, validity_days=2, now=now)
        folder.mkdir()
        (folder / names.CLUSTER_CA_FILE).write_text(self._authority.certificate_pem)
        (folder / names.ZOOKEEPER_KEYSTORE).write_bytes(self._pem(names.zookeeper_identity("demo"), HOSTS))

    def _pem(self, identity: str, hosts: tuple[str, ...] = ()) -> bytes:
        usage = LeafUsage.BROKER if hosts else LeafUsage.CLIENT
        who = LeafNames(identity, hosts, names.ORGANIZATION)
        leaf = issue(self._authority, who, usage, validity_days=2, now=datetime.now(UTC))
        return keystore_pem(leaf, self._authority.certificate)

    def identity(self, name: str) -> dict[str, bytes]:
        """Return the Secret of the operator with a certificate for this name."""
        return {
            names.OPERATOR_KEYSTORE: self._pem(name),
            names.CLUSTER_CA_FILE: self._authority.certificate_pem.encode(),
        }


@dataclass(frozen=True)
class Members:
    """An ensemble whose members restart with the properties of another link."""

    folder: Path
    certificates: Certificates
    ensemble: Ensemble
    tls_ports: list[int]
    running: dict[int, tuple[Running, AsyncExitStack]]

    def properties(self, link: EnsembleLink, number: int) -> dict[str, str]:
        """Return the operator's properties of a member with the files and ports of this test."""
        found = dict(member_properties(replace(CLUSTER, ensemble_link=link)))
        moved = {
            key: value.replace(names.CERTIFICATES_FOLDER, str(self.certificates.folder)) for key, value in found.items()
        }
        if "secureClientPort" in moved:
            moved |= {"secureClientPort": str(self.tls_ports[number]), "secureClientPortAddress": HOSTS[number]}
        return moved

    async def roll(self, link: EnsembleLink) -> None:
        """Restart one member after the other with the properties of a link."""
        for number in range(SIZE):
            if number in self.running:
                await self.running.pop(number)[1].aclose()
            stack = AsyncExitStack()
            context = member(
                self.folder / str(number),
                ordinal=number,
                ensemble=self.ensemble,
                state=names.FORMING,
                more=self.properties(link, number),
            )
            running = await asyncio.to_thread(context.__enter__)
            stack.push_async_callback(asyncio.to_thread, context.__exit__, None, None, None)
            self.running[number] = (running, stack)
            if len(self.running) == SIZE:
                await self.serve()

    async def serve(self) -> None:
        """Wait until all members serve."""
        for running, _ in self.running.values():
            await asyncio.to_thread(wait_until, running.is_serving, what="serving")

    def connect(self, *, tls: bool) -> str:
        """Return the connect string of all members."""
        if tls:
            return ",".join(f"{host}:{port}" for host, port in zip(HOSTS, self.tls_ports, strict=True))
        return ",".join(f"127.0.0.1:{running.client_port}" for running, _ in self.running.values())

    def settings(self, link: EnsembleLink, identity: Mapping[str, bytes] | None, **changes: object) -> ZkSettings:
        """Return the settings of the operator for a link."""
        found = session_settings(replace(CLUSTER, ensemble_link=link), identity)
        wanted = {
            "connect": self.connect(tls=link.connects_tls),
            "connection_timeout_ms": 30_000,
            "suspended_wait_ms": 30_000,
        }
        return replace(found, **{**wanted, **changes})  # type: ignore[arg-type]


@asynccontextmanager
async def session(settings: ZkSettings) -> AsyncIterator[KazooZkClient]:
    client = KazooZkClient(settings)
    try:
        await client.start()
        yield client
    finally:
        await client.close()


async def acl_of(client: KazooZkClient, path: str) -> set[tuple[int, str, str]]:
    acls, _ = await client._submit(path, lambda kazoo: kazoo.get_acls_async(path))
    return {(each.perms, each.id.scheme, each.id.id) for each in acls}


async def test_an_ensemble_is_closed_without_a_stop(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    members = Members(tmp_path, certificates, Ensemble.of(SIZE), free_ports(SIZE), {})
    operator = certificates.identity(names.operator_identity("demo"))
    broker = certificates.identity(names.broker_identity("demo"))
    try:
        await members.roll(EnsembleLink.PLAINTEXT)
        async with session(members.settings(EnsembleLink.PLAINTEXT, None)) as client:
            await client.create("/old/child", b"1", make_parents=True)
            await members.roll(EnsembleLink.BOTH)
        async with session(members.settings(EnsembleLink.CHANGED, broker)) as client:
            assert (await client.get("/old/child"))[0] == b"1"
            await members.roll(EnsembleLink.CHANGED)
            assert (await client.get("/old/child"))[0] == b"1"
            await members.roll(EnsembleLink.TLS)
            assert (await client.get("/old/child"))[0] == b"1"
        await closed(members, operator, broker)
        await refused(members, Certificates(tmp_path / "foreign", "other CA").identity(names.operator_identity("demo")))
    finally:
        for _, stack in members.running.values():
            await stack.aclose()


async def closed(members: Members, operator: Mapping[str, bytes], broker: Mapping[str, bytes]) -> None:
    """The operator gives all znodes to the brokers, which then use them; others of the cluster only read."""
    link = EnsembleLink.TLS
    mine = {(31, "x509", f"CN=demo-kafka,O={names.ORGANIZATION}"), (1, "world", "anyone")}
    async with session(members.settings(link, operator)) as client:
        await client.create("/new")
        assert await own_znodes(client) >= 4
        for path in ("/", "/old", "/old/child", "/new"):
            assert await acl_of(client, path) == mine
        await client.set("/old/child", b"2")
    async with session(members.settings(link, broker, owner=None)) as client:
        assert (await client.get("/old/child"))[0] == b"2"
        await client.create("/new/of-broker")
        assert await acl_of(client, "/new/of-broker") == mine
    member_identity = members.certificates.identity(names.zookeeper_identity("demo"))
    async with session(members.settings(link, member_identity)) as client:
        with pytest.raises(AuthenticationFailed):
            await client.set("/old/child", b"3")
        with pytest.raises(NoNode):
            await client.get("/missing")
    tls = members.settings(link, operator).tls
    for host, port in zip(HOSTS, members.tls_ports, strict=True):
        (mode,) = (await ask_members({0: host}, port=port, tls=tls)).modes.values()
        assert mode in ("leader", "follower")


async def refused(members: Members, foreign: Mapping[str, bytes]) -> None:
    """Neither plaintext from another address nor a certificate of another authority is accepted."""
    for running, _ in members.running.values():
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.9", running.client_port)
    with pytest.raises(ConnectionLost):
        async with session(members.settings(EnsembleLink.TLS, foreign, connection_timeout_ms=3_000)):
            pass
    with pytest.raises(ZkError, match="no certificate of the cluster"):
        members.settings(EnsembleLink.TLS, None)
