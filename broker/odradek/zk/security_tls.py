"""TLS to ZooKeeper: the context of a connection, and explanations of failures.

`zk/session` creates an `SSLContext` from `TlsSettings` for each connection, so that renewed certificates are used
without a restart. As in Java, every certificate in the truststore is a trust anchor.
"""

from __future__ import annotations

import ssl
from typing import Final

from odradek.base.errors import ConfigError
from odradek.zk.port import TlsSettings

PREFIX: Final = "zookeeper.ssl."

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """Create the context from the files. Raises a `ConfigError` that names the setting if a file or a name is
    invalid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify_host_name
    versions = [_VERSIONS[name] for name in tls.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _load_trust(context, tls)
    if tls.keystore_location is not None:
        _load_identity(context, tls.keystore_location, tls.keystore_password or "")
    if tls.cipher_suites:
        names = [openssl_cipher(name) for name in tls.cipher_suites]
        for name in (*names, ":".join(names)):
            try:
                context.set_ciphers(name)
            except ssl.SSLError:
                raise ConfigError(
                    f"{PREFIX}cipher.suites: OpenSSL does not support the TLS 1.2 cipher suite {name}"
                ) from None
    return context


def _load_trust(context: ssl.SSLContext, tls: TlsSettings) -> None:
    location = tls.truststore_location
    if location is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(location)
        except OSError as error:
            raise ConfigError(
                f"{PREFIX}truststore.location={location} cannot be read: {_system_reason(error)}; "
                "it must contain certificates in PEM format"
            ) from error
    if tls.check_revocation:
        if not context.cert_store_stats()["crl"]:
            raise ConfigError(
                f"{PREFIX}crl.enable=true requires the revocation lists of all authorities in the file of "
                f"{PREFIX}truststore.location, in PEM format: lists are not downloaded"
            )
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN


def _load_identity(context: ssl.SSLContext, location: str, password: str) -> None:
    try:
        # Always pass a password, even an empty one. Without it, OpenSSL would prompt for it on the terminal.
        context.load_cert_chain(location, password=password)
    except OSError as error:
        raise ConfigError(
            f"{PREFIX}keystore.location={location} cannot be read: {_system_reason(error)}; it must contain a private "
            f"key that {PREFIX}keystore.password decrypts, and its certificates, in PEM format"
        ) from error


def openssl_cipher(name: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 cipher suite with a Java name. Other names are returned unchanged.

    >>> openssl_cipher("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    'ECDHE-RSA-AES128-GCM-SHA256'
    """
    exchange, found, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return name
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return (cipher if exchange == "RSA" else f"{exchange}_{cipher}").replace("_", "-")


def explain(error: BaseException) -> str:
    """Return why a connection failed, as the end of a message."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate was rejected ({error.verify_message.rstrip('.')}): see {PREFIX}truststore.location "
            f"and, for the host name, {PREFIX}endpoint.identification.algorithm"
        )
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
            return f"it rejects the client certificate or requires one ({reason}): see {PREFIX}keystore.location"
        if "protocol version" in reason:
            return f"it does not support the enabled TLS versions ({reason}): see {PREFIX}enabled.protocols"
        return f"the TLS handshake failed ({reason}): check that this is its port for TLS"
    return _system_reason(error) if isinstance(error, OSError) else str(error)


def _system_reason(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else error.strerror or str(error)
