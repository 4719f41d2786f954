"""TLS, authentication and ACLs, on a real server that requires a client certificate and offers SASL."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek.base.errors import ConfigError
from odradek.security.tls.stores import StoreFile
from odradek.security.tls.tls_settings import TlsSettings
from odradek.testing.free_ports import free_ports
from odradek.zk import layout
from odradek.zk.kazoo_client import (
    AuthenticationFailed,
    ConnectionLost,
    Create,
    Delete,
    KazooZkClient,
    SessionEvent,
    SessionState,
    SetData,
    ZkSettings,
)
from odradek.zk.port import ZkError
from odradek.zk.registration import prepare
from odradek.zk.session import Handler, end_session
from odradek_operator.embedded.zookeeper_process import ZooKeeperServer

pytestmark = pytest.mark.java

USER = ("kafka", "geheim \u00e4")
PATIENCE_MS = 3_000
"""Time after which an attempt to connect fails."""

CONFIG = """\
secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
ssl.clientAuth=need
ssl.enabledProtocols=TLSv1.2,TLSv1.3
ssl.keyStore.location={keys}/server.pem
ssl.keyStore.type=PEM
ssl.trustStore.location={keys}/ca.pem
ssl.trustStore.type=PEM
"""
JAAS = 'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_{}="{}"; }};\n'


class SecureServer(ZooKeeperServer):
    """A server with a second port, for TLS."""

    def __init__(self, directory: Path, keys: Path) -> None:
        port, self.secure_port = free_ports(2)
        super().__init__(directory, port, synchronous=False)
        self._keys = keys

    def _command(self) -> list[str]:
        java, *rest = super()._command()
        with (self.directory / "zoo.cfg").open("a", encoding="utf-8") as config:
            config.write(CONFIG.format(port=self.secure_port, keys=self._keys))
        jaas = self.directory / "jaas.conf"
        jaas.write_text(JAAS.format(*USER), encoding="utf-8")
        return [java, f"-Djava.security.auth.login.config={jaas}", *rest]


@dataclass(frozen=True)
class Secured:
    """A running server, and the folder with its keys and certificates."""

    server: SecureServer
    keys: Path

    def by_tls(self, host: str = "localhost", **changes: Any) -> ZkSettings:
        """Return settings with a client certificate."""
        tls = TlsSettings(
            prefix="zookeeper.ssl.",
            keystore=self.keystore(),
            truststore=self.truststore(),
            protocols=("TLSv1.2",),
        )
        return ZkSettings(
            connect=f"{host}:{self.server.secure_port}/{uuid4().hex}",
            session_timeout_ms=20_000,
            connection_timeout_ms=20_000,
            tls=replace(tls, **changes),
        )

    def keystore(self, name: str = "broker.pem", password: str | None = "opens it") -> StoreFile:
        return StoreFile(setting="zookeeper.ssl.keystore", location=str(self.keys / name), password=password)

    def truststore(self, name: str = "ca.pem", password: str | None = None) -> StoreFile:
        return StoreFile(setting="zookeeper.ssl.truststore", location=str(self.keys / name), password=password)

    def plain(self, **options: Any) -> ZkSettings:
        """Return settings for the port without TLS."""
        return ZkSettings(connect=f"{self.server.connect}/{uuid4().hex}", session_timeout_ms=20_000, **options)


def openssl(folder: Path, command: str) -> None:
    subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True, timeout=60)


def make_keys(folder: Path) -> None:
    """Create a CA, a server certificate for localhost, a client certificate with a password, and another CA."""
    for name in ("ca", "foreign"):
        openssl(folder, f"req -x509 -newkey rsa:2048 -noenc -keyout {name}.key -out {name}.pem -subj /CN={name}")
    (folder / "password").write_text("opens it\n" * 2)  # openssl takes the second line for its output
    (folder / "server.ext").write_text("subjectAltName=DNS:localhost\n")
    (folder / "broker.ext").write_text("extendedKeyUsage=clientAuth\n")
    for name, protection in (("server", "-noenc"), ("broker", "-passout file:password")):
        openssl(folder, f"req -newkey rsa:2048 {protection} -keyout {name}.key -out {name}.csr -subj /CN={name}")
        signing = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
        openssl(folder, f"x509 -req -in {name}.csr {signing} -extfile {name}.ext -out {name}.crt")
        (folder / f"{name}.pem").write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text())
    make_java_stores(folder)


def make_java_stores(folder: Path) -> None:
    """Create the stores of the client as PKCS#12 and JKS."""
    protection = "-passin file:password -passout file:password"
    openssl(folder, f"pkcs12 -export -in broker.pem -out broker.p12 {protection}")
    for command in (
        "-importkeystore -srckeystore broker.p12 -srcstoretype PKCS12 -srcstorepass:file password "
        "-destkeystore broker.jks -deststoretype JKS -deststorepass:file password",
        "-importcert -noprompt -file ca.pem -keystore ca.p12 -storetype PKCS12 -storepass:file password",
        "-importcert -noprompt -file ca.pem -keystore ca.jks -storetype JKS -storepass:file password",
    ):
        subprocess.run(["keytool", *command.split()], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    keys = tmp_path_factory.mktemp("keys")
    make_keys(keys)
    server = SecureServer(tmp_path_factory.mktemp("secured"), keys)
    server.start()
    try:
        server.wait_until_ready()
        yield Secured(server, keys)
    finally:
        server.stop()


Connect = Callable[[ZkSettings], Awaitable[KazooZkClient]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[KazooZkClient] = []

    async def start(settings: ZkSettings) -> KazooZkClient:
        client = KazooZkClient(settings)
        clients.append(client)
        await client.start()
        return client

    yield start
    for client in clients:
        await client.close()


async def refused(settings: ZkSettings) -> ZkError:
    """Return the error of a failed start, and check that it left no task or connection."""
    client = KazooZkClient(settings)
    with pytest.raises(ZkError) as caught:
        await client.start()
    assert client.state is SessionState.CLOSED
    return caught.value


async def acl_of(client: KazooZkClient, path: str) -> set[tuple[int, str, str]]:
    """Return the ACL of a znode as the client's session sees it."""
    acls, _ = await client._submit(path, lambda kazoo: kazoo.get_acls_async(client._absolute(path)))
    return {(each.perms, each.id.scheme, each.id.id) for each in acls}


class Events:
    """Collects session events."""

    def __init__(self, client: KazooZkClient) -> None:
        self.seen: asyncio.Queue[SessionEvent] = asyncio.Queue()
        client.on_session(self.seen.put_nowait)

    async def until(self, event: SessionEvent) -> list[SessionEvent]:
        before = []
        while (each := await self.seen.get()) is not event:
            before.append(each)
        return before


def drop_connection(client: KazooZkClient) -> None:
    kazoo = client._kazoo
    assert kazoo is not None
    kazoo._connection._socket.shutdown(2)


class TestTls:
    @pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
    async def test_a_client_works_as_without_tls(self, secured: Secured, connect: Connect, protocol: str) -> None:
        client = await connect(secured.by_tls(protocols=(protocol,)))
        assert client._kazoo is not None
        assert client._kazoo._connection._socket.version() == protocol
        outcomes = await client.multi_many([[Create(f"/n{number}", bytes(2_000))] for number in range(200)])
        assert outcomes == [[f"/n{number}"] for number in range(200)]
        found = await client.get_many(f"/n{number}" for number in range(201))
        assert [each is None or len(each[0]) for each in found.values()] == [*[2_000] * 200, True]
        events = Events(client)
        drop_connection(client)
        assert await events.until(SessionEvent.RESUMED) == [SessionEvent.SUSPENDED]
        assert len(await client.children("/")) == 200

    async def test_what_tls_has_decrypted_already_is_not_waited_for(self, secured: Secured) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(secured.keys / "server.pem")
        trusting = ssl.create_default_context(cafile=secured.keys / "ca.pem")
        ours, theirs = socket.socketpair()
        accepting = asyncio.create_task(asyncio.to_thread(context.wrap_socket, theirs, server_side=True))
        client = await asyncio.to_thread(trusting.wrap_socket, ours, server_hostname="localhost")
        with client, await accepting as server:
            server.sendall(b"two answers")
            assert client.recv(4) == b"two "
            assert Handler(None, 1.0).select([client], [], [], 20.0) == ([client], [], [])
            assert client.recv(20) == b"answers"

    @pytest.mark.parametrize("kind", ["p12", "jks"])
    async def test_stores_may_be_javas(self, secured: Secured, connect: Connect, kind: str) -> None:
        stores = secured.keystore(f"broker.{kind}"), secured.truststore(f"ca.{kind}", "opens it")
        client = await connect(replace(secured.by_tls(keystore=stores[0], truststore=stores[1]), set_acl=True))
        await client.create("/mine")
        assert await acl_of(client, "/mine") == {(31, "x509", "CN=broker"), (1, "world", "anyone")}

    async def test_a_foreign_authority_is_refused(self, secured: Secured) -> None:
        settings = secured.by_tls(truststore=secured.truststore("foreign.pem"))
        error = await refused(replace(settings, connection_timeout_ms=PATIENCE_MS))
        assert isinstance(error, ConnectionLost)
        assert "certificate was rejected" in str(error)
        assert "zookeeper.ssl.truststore.location" in str(error)

    async def test_the_host_name_is_checked_unless_disabled(self, secured: Secured, connect: Connect) -> None:
        error = await refused(replace(secured.by_tls("127.0.0.1"), connection_timeout_ms=PATIENCE_MS))
        assert "127.0.0.1" in str(error)
        assert "zookeeper.ssl.endpoint.identification.algorithm" in str(error)
        client = await connect(secured.by_tls("127.0.0.1", verify_host_name=False))
        assert await client.children("/") == []

    @pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
    async def test_a_missing_client_certificate_is_reported(self, secured: Secured, protocol: str) -> None:
        settings = secured.by_tls(keystore=None, protocols=(protocol,))
        error = await refused(replace(settings, connection_timeout_ms=PATIENCE_MS))
        assert "zookeeper.ssl.keystore.location" in str(error)

    async def test_a_port_without_tls_is_reported(self, secured: Secured) -> None:
        settings = replace(secured.by_tls(), connect=secured.server.connect, connection_timeout_ms=PATIENCE_MS)
        assert "check that this is its port for TLS" in str(await refused(settings))

    async def test_a_wrong_key_password_fails_the_start_at_once(self, secured: Secured) -> None:
        client = KazooZkClient(secured.by_tls(keystore=secured.keystore(password=None)))
        with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.keystore\.location=.*key is encrypted"):
            await client.start()

    async def test_a_revoked_certificate_is_refused(self, secured: Secured, connect: Connect) -> None:
        keys = secured.keys
        (keys / "ca.cnf").write_text("[ca]\ndefault_ca=x\n[x]\ndatabase=index.txt\ndefault_md=sha256\n")
        (keys / "index.txt").write_text("")
        making = "ca -config ca.cnf -keyfile ca.key -cert ca.pem"

        def list_of_revoked() -> str:
            openssl(keys, f"{making} -gencrl -crldays 2 -out crl.pem")
            (keys / "with-list.pem").write_text((keys / "ca.pem").read_text() + (keys / "crl.pem").read_text())
            return "with-list.pem"

        settings = secured.by_tls(truststore=secured.truststore(list_of_revoked()), check_revocation=True)
        assert await (await connect(settings)).children("/") == []
        openssl(keys, f"{making} -revoke server.crt")
        list_of_revoked()
        assert "revoked" in str(await refused(replace(settings, connection_timeout_ms=PATIENCE_MS)))

    async def test_the_certificate_is_an_identity(self, secured: Secured, connect: Connect) -> None:
        client = await connect(replace(secured.by_tls(), set_acl=True))
        await client.create("/mine")
        assert await acl_of(client, "/mine") == {(31, "x509", "CN=broker"), (1, "world", "anyone")}

    async def test_znodes_are_given_to_another_identity(self, secured: Secured, connect: Connect) -> None:
        """The operator creates znodes that belong to brokers, and gives brokers those that have no ACLs yet."""
        settings = secured.by_tls()
        open_client = await connect(settings)
        await open_client.create("/theirs/old", make_parents=True)
        giving = await connect(replace(settings, set_acl=True, owner=("x509", "CN=other")))
        await giving.create("/theirs/new")
        await giving.reset_acls(["/theirs", "/theirs/old", "/missing"])
        for path in ("/theirs", "/theirs/old", "/theirs/new"):
            assert await acl_of(giving, path) == {(31, "x509", "CN=other"), (1, "world", "anyone")}
        for client in (open_client, giving):
            with pytest.raises(AuthenticationFailed, match="the ACL of the znode"):
                await client.create("/theirs/more")

    async def test_the_session_of_a_dead_broker_is_ended(self, secured: Secured, connect: Connect) -> None:
        settings = secured.by_tls()
        client, other = await connect(settings), await connect(settings)
        await client.create("/here", ephemeral=True)
        assert client.credentials is not None
        events = Events(client)
        await asyncio.to_thread(end_session, settings, client.credentials, timeout_ms=10_000)
        assert await other.exists("/here") is None
        await events.until(SessionEvent.EXPIRED)
        with pytest.raises(ZkError, match=r"certificate was rejected"):
            foreign = replace(settings, tls=TlsSettings(truststore=secured.truststore("foreign.pem")))
            await asyncio.to_thread(end_session, foreign, (1, bytes(16)), timeout_ms=PATIENCE_MS)


class TestSasl:
    async def test_the_user_is_known_again_after_each_connection_and_session(
        self, secured: Secured, connect: Connect
    ) -> None:
        settings = secured.plain(sasl=USER, set_acl=True)
        client = await connect(settings)
        mine = {(31, "sasl", "kafka"), (1, "world", "anyone")}
        await client.create("/first")
        assert await acl_of(client, "/first") == mine
        events = Events(client)
        drop_connection(client)
        await events.until(SessionEvent.RESUMED)
        await client.set("/first", b"still mine")
        assert client.credentials is not None
        await asyncio.to_thread(end_session, settings, client.credentials, timeout_ms=10_000)
        await events.until(SessionEvent.ESTABLISHED)
        await client.create("/second", ephemeral=True)
        assert await acl_of(client, "/second") == mine

    async def test_a_wrong_password_fails_the_start_at_once(self, secured: Secured) -> None:
        error = await refused(secured.plain(sasl=("kafka", "wrong")))
        assert isinstance(error, AuthenticationFailed)
        assert "zookeeper.sasl.jaas.config" in str(error)

    async def test_an_ensemble_without_sasl_ends_the_start_at_once(self, odradek_zookeeper: str) -> None:
        error = await refused(ZkSettings(connect=odradek_zookeeper, sasl=USER))
        assert isinstance(error, AuthenticationFailed)
        assert "SASL" in str(error)

    async def test_a_later_refusal_is_retried(self, secured: Secured, connect: Connect) -> None:
        client = await connect(secured.plain(sasl=USER))
        events = Events(client)
        kazoo = client._kazoo
        assert kazoo is not None
        connection = kazoo._connection
        connection._login = ("kafka", "wrong")
        failing = asyncio.Event()
        loop = asyncio.get_running_loop()
        submit = connection._submit

        def watched(*args: Any) -> None:
            if kazoo.failure:
                loop.call_soon_threadsafe(failing.set)
            submit(*args)

        connection._submit = watched
        drop_connection(client)
        await events.until(SessionEvent.SUSPENDED)
        await failing.wait()
        assert client.state is SessionState.SUSPENDED
        connection._login = USER
        assert SessionEvent.CLOSED not in await events.until(SessionEvent.RESUMED)
        assert await client.exists("/") is not None


class TestAccessLists:
    async def test_the_tree_is_open_to_readers_but_for_secrets(self, secured: Secured, connect: Connect) -> None:
        settings = secured.plain(sasl=USER, set_acl=True)
        broker = await connect(settings)
        await prepare(broker)
        await broker.multi([Create("/controller", b"1", ephemeral=True), Create("/config/users/alice", b"{}")])
        other_client = await connect(replace(settings, sasl=None, set_acl=False))
        assert (await other_client.get("/controller"))[0] == b"1"
        assert "alice" in await broker.children("/config/users")
        with pytest.raises(AuthenticationFailed, match=r"^/config/users: .*zookeeper\.sasl\.jaas\.config"):
            await other_client.children("/config/users")
        for path in ("/config/users", "/config/brokers", "/config/users/alice"):
            with pytest.raises(AuthenticationFailed) as caught:
                await other_client.get_many([path])
            assert caught.value.path == path
        with pytest.raises(AuthenticationFailed, match=r"^/brokers/ids/1: "):
            await other_client.create("/brokers/ids/1")
        with pytest.raises(AuthenticationFailed, match=r"^/controller: "):
            await other_client.multi([SetData("/controller", b"2")])
        with pytest.raises(AuthenticationFailed):
            await other_client.multi([Delete(layout.broker_path(1))])
        assert (await other_client.create("/consumers/group", b"")).path == "/consumers/group"

    async def test_a_chroot_belongs_to_the_identity_that_made_it(self, secured: Secured, connect: Connect) -> None:
        settings = secured.plain(digest=("kafka", "pass:word"), set_acl=True)
        first = await connect(replace(settings, connect=settings.connect + "/deep"))
        (_, scheme, identity), world = sorted(await acl_of(first, "/"), reverse=True)
        assert (scheme, identity.partition(":")[0], world) == ("digest", "kafka", (1, "world", "anyone"))
        second = await connect(replace(settings, connect=settings.connect + "/deep"))
        await second.create("/mine")
        await first.set("/mine", b"ours")
        other_client = await connect(replace(settings, connect=settings.connect + "/deep", digest=None, set_acl=False))
        with pytest.raises(AuthenticationFailed, match=r"^/theirs: "):
            await other_client.create("/theirs")
        error = await refused(replace(settings, connect=settings.connect + "/other", digest=("kafka", "wrong")))
        assert isinstance(error, AuthenticationFailed)
        assert error.path.endswith("/other")

    async def test_lists_without_an_identity_are_refused(self, secured: Secured) -> None:
        error = await refused(secured.plain(set_acl=True))
        assert isinstance(error, AuthenticationFailed)
        assert "zookeeper.set.acl" in str(error)

    async def test_without_the_setting_znodes_are_open(self, secured: Secured, connect: Connect) -> None:
        client = await connect(secured.plain(sasl=USER))
        await client.multi([Create("/config"), Create("/config/users")])
        assert await acl_of(client, "/config/users") == {(31, "world", "anyone")}
        raw = KazooClient(hosts=client._settings.connect)
        await asyncio.to_thread(raw.start)
        await asyncio.to_thread(raw.set, "/config/users", b"x")
        await asyncio.to_thread(raw.stop)
        await asyncio.to_thread(raw.close)
