"""Contexts of the module `ssl` for listeners and clients, and their renewal when the files change.

As in Java, every certificate in a truststore is a trust anchor, also one that is not self-signed.

`SSLContext` loads a private key from a file only. On Linux that is a file in memory (`memfd_create`), so that the
decrypted key never reaches a disk. Elsewhere it is a file with mode 0600 in a private directory, removed at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.base.errors import ConfigError
from odradek.base.ports import Clock, RunBlocking
from odradek.security.tls.ciphers import apply_choice, choose
from odradek.security.tls.stores import PemKeyText, PemTrustText, StoreFile
from odradek.security.tls.tls_settings import ClientAuth, TlsSettings

if TYPE_CHECKING:
    from odradek.security.tls.material import KeyMaterial, TrustMaterial

log = logging.getLogger(__name__)

CHECK_INTERVAL_MS: Final = 1_000
"""Files are checked at most once in this time."""

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_CLIENT_AUTH: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedCertificates:
    """SHA-256 fingerprints of certificates, in hexadecimal digits."""

    chain: tuple[str, ...] = ()
    """The own certificate and those of its issuers; empty without a keystore."""
    trusted: tuple[str, ...] = ()
    """The certificates that those of the other side are verified with; empty if it needs none, or for those of the
    system."""


class TlsContext(ssl.SSLContext):
    """A context that tells which certificates it has, which `ssl.SSLContext` does not."""

    certificates: UsedCertificates = UsedCertificates()


def server_context(settings: TlsSettings) -> TlsContext:
    """Return the context of a listener. Reads the files. Raises `ConfigError`.

    If clients are asked for certificates, TLS 1.3 sessions cannot be resumed, because OpenSSL would not verify the
    certificate again. With TLS 1.2 it may be up to two hours old, unless the context has been renewed since.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    if settings.keystore is None:
        raise ConfigError(
            f"a listener with TLS needs a private key: set {settings.prefix}keystore.location, or "
            f"{settings.prefix}keystore.key and {settings.prefix}keystore.certificate.chain"
        )
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.client_auth is not ClientAuth.NONE:
        context.num_tickets = 0
        _load_trust(context, settings)
    return context


def client_context(settings: TlsSettings) -> TlsContext:
    """Return the context of a client. Reads the files. Raises `ConfigError`."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.verify_host_name
    _load_trust(context, settings)
    return context


def _context(protocol: int, settings: TlsSettings) -> TlsContext:
    context = TlsContext(protocol)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    prefix = settings.prefix
    apply_choice(context, choose(settings.protocols, settings.cipher_suites, prefix), prefix)
    if settings.keystore is not None:
        material = _key_material(settings.keystore)
        _load_key(context, material, settings.keystore.setting)
        context.certificates = UsedCertificates(chain=_fingerprints(material.chain))
    return context


def _key_material(source: StoreFile | PemKeyText) -> KeyMaterial:
    # Imports `cryptography`, which connections without TLS do not need.
    from odradek.security.tls.keystores import read_keystore

    return read_keystore(source)


def _trust_material(source: StoreFile | PemTrustText) -> TrustMaterial:
    from odradek.security.tls.keystores import read_truststore

    return read_truststore(source)


def _fingerprints(pem: bytes) -> tuple[str, ...]:
    return tuple(sha256(ssl.PEM_cert_to_DER_cert(block.decode())).hexdigest() for block in _CERTIFICATE.findall(pem))


def _load_key(context: ssl.SSLContext, material: KeyMaterial, setting: str) -> None:
    with _private_file(material.key + material.chain) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{setting}: OpenSSL does not accept the key or its certificates: {_reason(error)}"
            ) from None


def _load_trust(context: TlsContext, settings: TlsSettings) -> None:
    if settings.truststore is None:
        context.load_default_certs()
        revocation_lists = b""
    else:
        material = _trust_material(settings.truststore)
        revocation_lists = material.revocation_lists
        context.load_verify_locations(cadata=material.certificates.decode())
        context.certificates = replace(context.certificates, trusted=_fingerprints(material.certificates))
    if settings.check_revocation:
        if not revocation_lists:
            raise ConfigError(
                f"{settings.prefix}crl.enable=true requires the revocation lists of all authorities in the file of "
                f"{settings.prefix}truststore.location, in PEM format: lists are not downloaded"
            )
        with _private_file(revocation_lists) as path:
            try:
                context.load_verify_locations(path)
            except ssl.SSLError as error:
                raise ConfigError(f"{settings.prefix}truststore.location: {_reason(error)}") from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file that only this process can read."""
    if sys.platform == "linux" and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("tls")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "tls.pem")
            path.touch(mode=0o600)
            path.write_bytes(content)
            yield str(path)


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


class ReloadingContext:
    """A context that follows its files. Existing connections keep the one that they have.

    `current` is for each connection: the listener accepts the socket, applies its limits, and passes the context to the
    transport. The event loop reads no disk: every `CHECK_INTERVAL_MS`, the next connection starts a check on a thread
    and waits for it, so a renewed certificate is used by the next handshake. Connections that arrive meanwhile do not
    wait, so a disk that does not answer stops one connection only, until its deadline.

    A check compares modification time, change time, size and inode, and reads the files only if they differ. A new
    context is built completely before it replaces the old one. If a new file cannot be used, the old context stays, the
    reason is logged once, and the next check tries again.

    Measured with two files: a check without a change costs one connection 50 microseconds each second, and without a
    due check `current` takes 0.6. `stat` on the event loop would take 6, but without bound on a network disk, and a new
    context 4 ms (PEM) to 11 ms (PKCS#12, which derives its key by 10,000 iterations).
    """

    def __init__(
        self,
        settings: TlsSettings,
        build: Callable[[TlsSettings], TlsContext],
        *,
        clock: Clock,
        run_blocking: RunBlocking,
    ) -> None:
        """Read the files. `build` is `server_context` or `client_context`. Raises `ConfigError`."""
        self._settings = settings
        self._build = build
        self._clock = clock
        self._run_blocking = run_blocking
        self._signature = _signature(settings)
        self._context = build(settings)
        self._next_check_ms = clock.monotonic_ms() + CHECK_INTERVAL_MS
        self._check: asyncio.Future[None] | None = None
        self._complaint = ""

    async def used(self) -> UsedCertificates:
        """Return the certificates of the next connection. It may wait as `current`."""
        return (await self._latest()).certificates

    async def current(self) -> ssl.SSLContext:
        """Return the context for the next connection. If the call is cancelled, a check goes on."""
        return await self._latest()

    async def _latest(self) -> TlsContext:
        if self._settings.files and self._is_due():
            self._check = asyncio.ensure_future(self._run_blocking(self._reload))
            await asyncio.shield(self._check)
        return self._context

    def _is_due(self) -> bool:
        if self._check is not None and not self._check.done():
            return False
        now = self._clock.monotonic_ms()
        if now < self._next_check_ms:
            return False
        self._next_check_ms = now + CHECK_INTERVAL_MS
        return True

    def _reload(self) -> None:
        """Replace the context if a file has changed. Runs on a thread, one at a time."""
        signature = _signature(self._settings)
        if signature == self._signature:
            return
        names = ", ".join(self._settings.files)
        try:
            context = self._build(self._settings)
        except (ConfigError, OSError) as error:
            if str(error) != self._complaint:
                log.warning("a changed TLS file cannot be used; connections use the previous one: %s", error)
                self._complaint = str(error)
            return
        self._context, self._signature, self._complaint = context, signature, ""
        log.info("new connections use the changed TLS files: %s", names)


def _signature(settings: TlsSettings) -> tuple[tuple[int, ...], ...]:
    """Return what changes with the files. A missing file has an empty tuple."""
    found: list[tuple[int, ...]] = []
    for path in settings.files:
        status: tuple[int, ...] = ()
        with suppress(OSError, ValueError):
            each = os.stat(path)
            status = (each.st_mtime_ns, each.st_ctime_ns, each.st_size, each.st_dev, each.st_ino)
        found.append(status)
    return tuple(found)
