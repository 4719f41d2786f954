"""Converts the broker's properties into the settings of the connection to ZooKeeper: TLS, identities, ACLs.

A `ConfigError` says what to change. `app/broker_process` and `app/broker` use this module, because both must have the
same settings. No files are read. Names and defaults are Kafka's, except `zookeeper.sasl.jaas.config`, which Kafka's
brokers read from a JAAS file, and `zookeeper.auth.digest`, which they do not have.
"""

from __future__ import annotations

from typing import Final

from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError
from odradek.security.sasl.jaas import parse_jaas
from odradek.security.tls.ciphers import VERSIONS, choose
from odradek.security.tls.stores import STORE_KINDS, StoreFile
from odradek.security.tls.tls_settings import TlsSettings
from odradek.zk.port import ZkSettings
from odradek.zk.security_tls import PREFIX

NETTY_SOCKET: Final = "org.apache.zookeeper.ClientCnxnSocketNetty"
"""The Java class for TLS. It is accepted in the properties, so that Kafka's brokers can use the same file."""

_DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"


def zookeeper_settings(config: BrokerConfig) -> ZkSettings:
    """Return the settings of a session. Raises `ConfigError`."""
    tls = _tls(config) if config.zookeeper_ssl_client_enable else None
    sasl = _sasl(config) if config.zookeeper_sasl_client else None
    digest = _digest(config.zookeeper_auth_digest)
    has_identity = sasl is not None or digest is not None or (tls is not None and tls.keystore is not None)
    if config.zookeeper_set_acl and not has_identity:
        raise ConfigError(
            "zookeeper.set.acl=true requires an identity for the ACLs: set zookeeper.sasl.jaas.config, "
            "zookeeper.ssl.keystore.location with zookeeper.ssl.client.enable=true, or zookeeper.auth.digest"
        )
    connection_timeout_ms = config.zookeeper_connection_timeout_ms
    return ZkSettings(
        connect=config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=connection_timeout_ms or config.zookeeper_session_timeout_ms,
        max_request_bytes=config.zookeeper_jute_maxbuffer,
        max_in_flight=config.zookeeper_max_in_flight_requests,
        digest=digest,
        sasl=sasl,
        tls=tls,
        set_acl=config.zookeeper_set_acl,
    )


def _tls(config: BrokerConfig) -> TlsSettings:
    if config.zookeeper_clientCnxnSocket != NETTY_SOCKET:
        raise ConfigError(f"zookeeper.ssl.client.enable=true requires zookeeper.clientCnxnSocket={NETTY_SOCKET}")
    if config.zookeeper_ssl_ocsp_enable:
        raise ConfigError(
            "zookeeper.ssl.ocsp.enable=true is not supported: set it to false, or use zookeeper.ssl.crl.enable with "
            "the revocation lists in the truststore"
        )
    protocols = config.zookeeper_ssl_enabled_protocols or (config.zookeeper_ssl_protocol,)
    for name in protocols:
        if name not in VERSIONS:
            raise ConfigError(f"zookeeper.ssl.protocol {name!r} is not supported: it must be TLSv1.2 or TLSv1.3")
    suites = config.zookeeper_ssl_cipher_suites
    choose(protocols, suites, PREFIX)
    identification = config.zookeeper_ssl_endpoint_identification_algorithm
    if identification.upper() not in ("HTTPS", ""):
        raise ConfigError(
            f"zookeeper.ssl.endpoint.identification.algorithm={identification!r} is not supported: "
            "it must be HTTPS or empty"
        )
    return TlsSettings(
        prefix=PREFIX,
        keystore=_store(
            "keystore",
            config.zookeeper_ssl_keystore_location,
            config.zookeeper_ssl_keystore_type,
            config.zookeeper_ssl_keystore_password,
        ),
        truststore=_store(
            "truststore",
            config.zookeeper_ssl_truststore_location,
            config.zookeeper_ssl_truststore_type,
            config.zookeeper_ssl_truststore_password,
        ),
        verify_host_name=bool(identification),
        protocols=protocols,
        cipher_suites=suites,
        check_revocation=config.zookeeper_ssl_crl_enable,
    )


def _store(store: str, location: str | None, kind: str | None, password: str | None) -> StoreFile | None:
    """Return the file of a store. In ZooKeeper its suffix determines the type if none is set; here its content does."""
    if not location:
        return None
    if kind and kind.upper() not in STORE_KINDS:
        raise ConfigError(f"{PREFIX}{store}.type={kind} is not supported: it must be JKS, PKCS12 or PEM")
    return StoreFile(setting=f"{PREFIX}{store}", location=location, kind=kind or None, password=password or None)


def _sasl(config: BrokerConfig) -> tuple[str, str] | None:
    """Return user and password of a JAAS entry; None if there is no entry. Errors do not show the entry, because it has
    a password."""
    if not config.zookeeper_sasl_jaas_config:
        return None
    entry = parse_jaas("zookeeper.sasl.jaas.config", config.zookeeper_sasl_jaas_config)
    wanted = f'`{_DIGEST_MODULE} required username="..." password="...";`'
    if entry.login_module != _DIGEST_MODULE:
        raise ConfigError(
            f"zookeeper.sasl.jaas.config has the unsupported module {entry.login_module}: the only supported SASL "
            f"mechanism is DIGEST-MD5, as {wanted}. Consider a TLS client certificate instead"
        )
    if not entry.options.get("username") or "password" not in entry.options:
        raise ConfigError(f"zookeeper.sasl.jaas.config has no username or no password: it must be {wanted}")
    return entry.options["username"], entry.options["password"]


def _digest(credentials: str | None) -> tuple[str, str] | None:
    if not credentials:
        return None
    user, colon, password = credentials.partition(":")
    if not user or not colon:
        raise ConfigError("zookeeper.auth.digest is not valid: it must be user:password")
    return user, password
