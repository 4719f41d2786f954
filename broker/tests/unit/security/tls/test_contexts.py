"""Handshakes over loopback, and the renewal of contexts."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from odradek.base.errors import ConfigError
from odradek.base.system_ports import SystemClock
from odradek.security.tls import contexts
from odradek.security.tls.contexts import (
    CHECK_INTERVAL_MS,
    ReloadingContext,
    UsedCertificates,
    client_context,
    server_context,
)
from odradek.security.tls.stores import PemKeyText, PemTrustText, StoreFile
from odradek.security.tls.tls_settings import ClientAuth, TlsSettings
from odradek_testkit.security.certificates import Authority, Issued, key_pem, pem, rsa_key

T = TypeVar("T")
ROOT, FOREIGN = Authority.root("root"), Authority.root("foreign")
MIDDLE = ROOT.intermediate("middle")
BROKER, CLIENT = MIDDLE.issue("broker"), MIDDLE.issue("client", hosts=())
VERSIONS = pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])


def identity(issued: Issued) -> PemKeyText:
    return PemKeyText(setting="ssl.keystore", key=key_pem(issued.key), chain=issued.chain_pem)


def trust(*authorities: Issued) -> PemTrustText:
    return PemTrustText(setting="ssl.truststore", certificates=pem(*(each.certificate for each in authorities)))


def server(issued: Issued = BROKER, **changes: Any) -> ssl.SSLContext:
    return server_context(TlsSettings(keystore=identity(issued), truststore=trust(ROOT), **changes))


def client(issued: Issued | None = None, *, trusted: Issued = ROOT, **changes: Any) -> ssl.SSLContext:
    keystore = None if issued is None else identity(issued)
    return client_context(TlsSettings(keystore=keystore, truststore=trust(trusted), **changes))


@dataclass
class Pair:
    """Both ends of a connection on which a byte has gone in each direction."""

    client: ssl.SSLSocket
    server: ssl.SSLSocket

    def ping(self) -> None:
        self.client.sendall(b"c")
        assert self.server.recv(1) == b"c"
        self.server.sendall(b"s")
        assert self.client.recv(1) == b"s"


@pytest.fixture
def connect() -> Iterator[Callable[..., Pair]]:
    """Connect both contexts. Raises the error of the server if it has one, else that of the client."""
    sockets: list[socket.socket] = []

    def run(
        server_side: ssl.SSLContext, client_side: ssl.SSLContext, host: str = "localhost", session: Any = None
    ) -> Pair:
        accepted: list[Any] = []
        with socket.create_server(("127.0.0.1", 0)) as listening:
            ours = socket.create_connection(listening.getsockname(), 30)
            theirs, _ = listening.accept()
        theirs.settimeout(30)
        sockets.extend((ours, theirs))

        def accept() -> None:
            try:
                accepted.append(server_side.wrap_socket(theirs, server_side=True))
                sockets.append(accepted[0])
            except OSError as error:
                accepted.append(error)
                with suppress(OSError):
                    theirs.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=accept)
        thread.start()
        failure: OSError | None = None
        try:
            wrapped = client_side.wrap_socket(ours, server_hostname=host, session=session)
            sockets.append(wrapped)
        except OSError as error:
            failure = error
            ours.close()
        thread.join()
        (end,) = accepted
        if isinstance(end, OSError):
            raise failure if isinstance(failure, ssl.SSLCertVerificationError) else end
        if failure is not None:
            raise failure
        pair = Pair(wrapped, end)
        pair.ping()
        return pair

    yield run
    for each in sockets:
        each.close()


Connect = Callable[..., Pair]


class TestHandshakes:
    @VERSIONS
    def test_the_version_is_the_one_that_is_enabled(self, connect: Connect, version: str) -> None:
        assert connect(server(), client(protocols=(version,))).server.version() == version
        assert connect(server(protocols=(version,)), client()).client.version() == version

    def test_without_a_common_version_there_is_no_connection(self, connect: Connect) -> None:
        with pytest.raises(ssl.SSLError):
            connect(server(protocols=("TLSv1.3",)), client(protocols=("TLSv1.2",)))

    @VERSIONS
    @pytest.mark.parametrize("client_auth", list(ClientAuth))
    @pytest.mark.parametrize("has_certificate", [True, False])
    def test_certificates_of_clients(
        self, connect: Connect, version: str, client_auth: ClientAuth, has_certificate: bool
    ) -> None:
        sides = server(client_auth=client_auth), client(CLIENT if has_certificate else None, protocols=(version,))
        if client_auth is ClientAuth.REQUIRED and not has_certificate:
            with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
                connect(*sides)
            return
        certificate = connect(*sides).server.getpeercert(binary_form=True)
        assert (certificate is not None) == (has_certificate and client_auth is not ClientAuth.NONE)

    @VERSIONS
    @pytest.mark.parametrize("client_auth", [ClientAuth.REQUESTED, ClientAuth.REQUIRED])
    @pytest.mark.parametrize("issued", [FOREIGN.issue("client"), ROOT.issue("client", valid_days=-1)])
    def test_clients_that_are_not_trusted_are_refused(
        self, connect: Connect, version: str, client_auth: ClientAuth, issued: Issued
    ) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(server(client_auth=client_auth), client(issued, protocols=(version,)))

    @VERSIONS
    @pytest.mark.parametrize(
        ("issued", "host", "reason"),
        [
            (FOREIGN.issue("broker"), "localhost", "unable to get local issuer"),
            (ROOT.issue("broker", valid_days=-1), "localhost", "expired"),
            (BROKER, "other.example", "Hostname mismatch"),
            (BROKER, "127.0.0.1", "IP address mismatch"),
        ],
    )
    def test_servers_that_are_not_trusted_are_refused(
        self, connect: Connect, version: str, issued: Issued, host: str, reason: str
    ) -> None:
        with pytest.raises(ssl.SSLCertVerificationError, match=reason):
            connect(server(issued), client(protocols=(version,)), host)

    def test_the_host_name_check_can_be_disabled_but_not_the_certificate_check(self, connect: Connect) -> None:
        assert connect(server(), client(verify_host_name=False), "other.example")
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(server(FOREIGN.issue("broker")), client(verify_host_name=False))

    def test_addresses_in_certificates_count(self, connect: Connect) -> None:
        assert connect(server(ROOT.issue("broker", hosts=["127.0.0.1"])), client(), "127.0.0.1")

    def test_every_trusted_certificate_is_an_anchor(self, connect: Connect) -> None:
        """Java trusts an authority whose issuer it does not know, and a single certificate."""
        assert connect(server(), client(trusted=MIDDLE))
        assert connect(server(), client(trusted=BROKER))

    def test_suites_are_limited(self, connect: Connect) -> None:
        suites = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)
        pair = connect(server(cipher_suites=suites), client())
        assert pair.server.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)

    @VERSIONS
    def test_rsa(self, connect: Connect, version: str) -> None:
        assert connect(server(ROOT.issue("broker", key=rsa_key())), client(protocols=(version,)))

    def test_sessions_of_clients_with_certificates_are_not_resumed(self, connect: Connect) -> None:
        """A resumed session would skip the check of the certificate."""
        listener, side = server(client_auth=ClientAuth.REQUIRED), client(CLIENT)
        pair = connect(listener, side)
        assert not pair.client.session.has_ticket


class TestErrors:
    def test_a_listener_needs_a_key(self) -> None:
        with pytest.raises(ConfigError, match=r"set listener\.name\.a\.ssl\.keystore\.location"):
            server_context(TlsSettings(prefix="listener.name.a.ssl."))

    def test_unknown_suites_are_named(self) -> None:
        with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites: OpenSSL does not support .* NO-SUCH"):
            client(cipher_suites=("ECDHE-RSA-AES128-GCM-SHA256", "NO-SUCH"))

    def test_revocation_needs_lists(self) -> None:
        with pytest.raises(ConfigError, match=r"ssl\.crl\.enable"):
            client(check_revocation=True)

    def test_a_key_that_openssl_does_not_accept_is_reported(self) -> None:
        weak = ROOT.issue("broker", key=rsa_key(1024))
        with pytest.raises(ConfigError, match=r"ssl\.keystore: OpenSSL does not accept .*too small"):
            server(weak)

    def test_without_a_truststore_the_authorities_of_the_system_count(self) -> None:
        assert client_context(TlsSettings()).verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_keys_are_loaded_from_a_private_file(
    connect: Connect, platform: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with contexts._private_file(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
        if platform == "darwin":
            assert Path(path).stat().st_mode & 0o777 == 0o600
            assert Path(path).parent.stat().st_mode & 0o777 == 0o700
    assert not Path(path).exists()
    assert connect(server(), client())
    assert list(tmp_path.iterdir()) == []


class Later(SystemClock):
    """The system's clock, set forward."""

    ahead_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.ahead_ms


class Threads:
    """Runs functions on threads, and counts them. `gate` holds them."""

    def __init__(self) -> None:
        self.count = 0
        self.started = asyncio.Event()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]:
        self.count += 1
        self.started.set()

        def run() -> T:
            assert self.gate.wait(30)
            return function()

        return asyncio.get_running_loop().run_in_executor(None, run)


class Followed:
    """A context whose files the test changes."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.key, self.trust = folder / "key.pem", folder / "trust.pem"
        self.clock, self.threads = Later(), Threads()
        self.write(self.key, BROKER.pem)
        self.write(self.trust, pem(ROOT.certificate))
        self.settings = TlsSettings(
            keystore=StoreFile(setting="ssl.keystore", location=str(self.key), password="x"),
            truststore=StoreFile(setting="ssl.truststore", location=str(self.trust)),
            client_auth=ClientAuth.REQUESTED,
        )
        self.settings = replace(self.settings, **changes)
        self.context = ReloadingContext(self.settings, server_context, clock=self.clock, run_blocking=self.threads)

    def write(self, path: Path, content: str | bytes) -> None:
        new = path.with_suffix(".new")
        new.write_bytes(content.encode() if isinstance(content, str) else content)
        new.rename(path)

    async def later(self) -> ssl.SSLContext:
        """Return the context after the time between checks."""
        self.clock.ahead_ms += CHECK_INTERVAL_MS
        return await self.context.current()


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


class TestReloading:
    @VERSIONS
    async def test_renewed_certificates_are_used_and_open_connections_continue(
        self, followed: Followed, connect: Connect, version: str
    ) -> None:
        side = client(CLIENT, protocols=(version,))
        first = await asyncio.to_thread(connect, await followed.context.current(), side)
        renewed = ROOT.issue("renewed")
        followed.write(followed.key, renewed.pem)
        second = await asyncio.to_thread(connect, await followed.later(), side)
        certificates = [each.client.getpeercert(binary_form=True) for each in (first, second)]
        assert certificates[0] != certificates[1]
        first.ping()
        second.ping()

    async def test_it_tells_which_certificates_the_next_connection_uses(self, followed: Followed) -> None:
        def fingerprints(*issued: Issued) -> tuple[str, ...]:
            return tuple(each.certificate.fingerprint(SHA256()).hex() for each in issued)

        assert await followed.context.used() == UsedCertificates(
            chain=fingerprints(BROKER, MIDDLE), trusted=fingerprints(ROOT)
        )
        renewed = ROOT.issue("renewed")
        followed.write(followed.key, renewed.pem)
        followed.write(followed.trust, pem(ROOT.certificate, FOREIGN.certificate))
        followed.clock.ahead_ms += CHECK_INTERVAL_MS
        assert await followed.context.used() == UsedCertificates(
            chain=fingerprints(renewed), trusted=fingerprints(ROOT, FOREIGN)
        ), "also if no connection has used them yet"
        assert client_context(TlsSettings()).certificates == UsedCertificates()

    async def test_a_changed_truststore_applies_to_new_connections(self, followed: Followed, connect: Connect) -> None:
        side = client(CLIENT)
        first = await asyncio.to_thread(connect, await followed.context.current(), side)
        followed.write(followed.trust, pem(FOREIGN.certificate))
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(connect, await followed.later(), side)
        first.ping()

    async def test_a_session_is_not_resumed_after_a_change(self, followed: Followed, connect: Connect) -> None:
        """TLS 1.2 resumes sessions without a check of the certificate, but only within one context."""
        side = client(CLIENT, protocols=("TLSv1.2",))
        session = (await asyncio.to_thread(connect, await followed.context.current(), side)).client.session
        again = await asyncio.to_thread(connect, await followed.later(), side, "localhost", session)
        assert again.server.session_reused
        followed.write(followed.trust, pem(FOREIGN.certificate))
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(connect, await followed.later(), side, "localhost", session)

    async def test_other_kinds_may_replace_a_file(self, followed: Followed) -> None:
        old = await followed.context.current()
        encryption = BestAvailableEncryption(b"x")
        file = pkcs12.serialize_key_and_certificates(None, CLIENT.key, CLIENT.certificate, None, encryption)
        followed.write(followed.key, file)
        assert await followed.later() is not old

    async def test_files_are_checked_once_a_second_at_most_and_not_on_the_loop(self, followed: Followed) -> None:
        old = await followed.context.current()
        followed.write(followed.key, ROOT.issue("renewed").pem)
        assert [await followed.context.current() for _ in range(100)] == [old] * 100
        assert followed.threads.count == 0
        assert await followed.later() is not old
        new = await followed.context.current()
        assert followed.threads.count == 1
        assert await followed.later() is new
        assert followed.threads.count == 2

    async def test_a_broken_file_keeps_the_old_context_and_is_logged_once(
        self, followed: Followed, caplog: pytest.LogCaptureFixture
    ) -> None:
        old = await followed.context.current()
        with caplog.at_level(logging.INFO, contexts.__name__):
            followed.write(followed.key, "broken")
            assert [await followed.later() for _ in range(3)] == [old] * 3
            followed.key.unlink()
            assert [await followed.later() for _ in range(3)] == [old] * 3
            assert len(caplog.records) == 2
            followed.write(followed.key, BROKER.pem)
            assert await followed.later() is not old
        assert [each.levelno for each in caplog.records] == [logging.WARNING, logging.WARNING, logging.INFO]
        assert str(followed.key) in caplog.text
        followed.write(followed.key, "broken")
        caplog.clear()
        await followed.later()
        assert len(caplog.records) == 1

    async def test_a_disk_that_does_not_answer_stops_one_connection_only(self, followed: Followed) -> None:
        old = await followed.context.current()
        followed.write(followed.key, ROOT.issue("renewed").pem)
        followed.threads.gate.clear()
        waiting = asyncio.create_task(followed.later())
        await followed.threads.started.wait()
        assert [await followed.later() for _ in range(3)] == [old] * 3
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await followed.later() is old
        assert followed.threads.count == 1
        followed.threads.gate.set()
        assert followed.context._check is not None
        await followed.context._check
        assert followed.threads.count == 1
        assert await followed.context.current() is not old

    async def test_stores_as_text_are_never_checked(self, tmp_path: Path) -> None:
        followed = Followed(tmp_path, keystore=identity(BROKER), truststore=trust(ROOT))
        assert await followed.later() is await followed.later()
        assert followed.threads.count == 0

    def test_invalid_files_fail_the_start(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="No such file"):
            Followed(tmp_path, keystore=StoreFile(setting="ssl.keystore", location=os.fspath(tmp_path / "none")))
