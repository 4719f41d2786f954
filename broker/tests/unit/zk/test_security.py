from __future__ import annotations

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError
from odradek.security.tls.stores import StoreFile
from odradek.security.tls.tls_settings import TlsSettings
from odradek.zk.port import ZkSettings
from odradek.zk.security import NETTY_SOCKET, zookeeper_settings

BROKER = {"broker.id": "1", "zookeeper.connect": "zk:2181/kafka"}
TLS = {"zookeeper.ssl.client.enable": "true", "zookeeper.clientCnxnSocket": NETTY_SOCKET}
JAAS = 'org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="s;e c\\"ret";'


def settings(properties: dict[str, str]) -> ZkSettings:
    config, warnings = BrokerConfig.parse({**BROKER, **properties})
    assert warnings == []
    return zookeeper_settings(config)


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(properties)
    return str(caught.value)


def test_without_any_of_these_properties_the_connection_is_plain_and_anonymous() -> None:
    assert settings({}) == ZkSettings(
        connect="zk:2181/kafka", session_timeout_ms=18_000, connection_timeout_ms=18_000, max_in_flight=10
    )


def test_timeouts_and_limits_become_settings() -> None:
    found = settings({"zookeeper.session.timeout.ms": "7000", "zookeeper.max.in.flight.requests": "3"})
    assert (found.session_timeout_ms, found.connection_timeout_ms, found.max_in_flight) == (7000, 7000, 3)
    assert settings({"zookeeper.connection.timeout.ms": "9"}).connection_timeout_ms == 9


class TestTls:
    def test_defaults_are_kafkas(self) -> None:
        assert settings(TLS).tls == TlsSettings(prefix="zookeeper.ssl.", protocols=("TLSv1.2",))

    def test_all_tls_properties_become_settings(self) -> None:
        found = settings(
            {
                **TLS,
                "zookeeper.ssl.keystore.location": "/keys/broker.p12",
                "zookeeper.ssl.keystore.password": "secret",
                "zookeeper.ssl.truststore.location": "/keys/ca.crt",
                "zookeeper.ssl.truststore.type": "pem",
                "zookeeper.ssl.truststore.password": "also secret",
                "zookeeper.ssl.endpoint.identification.algorithm": "",
                "zookeeper.ssl.enabled.protocols": "TLSv1.2",
                "zookeeper.ssl.protocol": "TLSv1.3",
                "zookeeper.ssl.cipher.suites": "A,B",
                "zookeeper.ssl.crl.enable": "true",
            }
        )
        assert found.tls == TlsSettings(
            prefix="zookeeper.ssl.",
            keystore=StoreFile(setting="zookeeper.ssl.keystore", location="/keys/broker.p12", password="secret"),
            truststore=StoreFile(
                setting="zookeeper.ssl.truststore", location="/keys/ca.crt", kind="pem", password="also secret"
            ),
            verify_host_name=False,
            protocols=("TLSv1.2",),
            cipher_suites=("A", "B"),
            check_revocation=True,
        )
        assert "secret" not in repr(found)

    def test_without_a_list_the_one_protocol_holds(self) -> None:
        tls = settings({**TLS, "zookeeper.ssl.protocol": "TLSv1.3"}).tls
        assert tls is not None
        assert tls.protocols == ("TLSv1.3",)

    @pytest.mark.parametrize(
        ("properties", "words"),
        [
            ({"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"}, [NETTY_SOCKET]),
            ({"zookeeper.ssl.ocsp.enable": "true"}, ["zookeeper.ssl.ocsp.enable=true is not supported"]),
            ({"zookeeper.ssl.protocol": "TLSv1.1"}, ["'TLSv1.1'", "TLSv1.2"]),
            ({"zookeeper.ssl.enabled.protocols": "TLSv1.2,SSLv3"}, ["'SSLv3'"]),
            ({"zookeeper.ssl.cipher.suites": "A", "zookeeper.ssl.protocol": "TLSv1.3"}, ["cipher.suites", "TLSv1.3"]),
            ({"zookeeper.ssl.endpoint.identification.algorithm": "LDAPS"}, ["'LDAPS'", "HTTPS or empty"]),
            (
                {"zookeeper.ssl.keystore.location": "a.bcfks", "zookeeper.ssl.keystore.type": "BCFKS"},
                ["zookeeper.ssl.keystore.type=BCFKS is not supported", "JKS, PKCS12 or PEM"],
            ),
        ],
    )
    def test_unsupported_settings_are_refused_with_advice(self, properties: dict[str, str], words: list[str]) -> None:
        text = refusal({**TLS, **properties})
        assert [word for word in words if word not in text] == []

    def test_a_missing_netty_class_is_reported(self) -> None:
        assert NETTY_SOCKET in refusal({"zookeeper.ssl.client.enable": "true"})


class TestIdentity:
    def test_a_jaas_entry_gives_user_and_password(self) -> None:
        assert settings({"zookeeper.sasl.jaas.config": JAAS}).sasl == ("kafka", 's;e c"ret')

    def test_sasl_can_be_switched_off(self) -> None:
        assert settings({"zookeeper.sasl.jaas.config": JAAS, "zookeeper.sasl.client": "false"}).sasl is None

    def test_the_digest_scheme_takes_a_password_with_colons(self) -> None:
        assert settings({"zookeeper.auth.digest": "kafka:a:b"}).digest == ("kafka", "a:b")

    @pytest.mark.parametrize(
        ("entry", "word"),
        [
            ("nonsense", "is not valid"),
            (JAAS.removesuffix(";"), "is not valid"),
            (JAAS + JAAS, "is not valid"),
            (JAAS.replace(' username="kafka"', ""), "has no username or no password"),
            (
                "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;",
                "the only supported SASL mechanism is DIGEST-MD5",
            ),
            ("org.apache.zookeeper.server.auth.DigestLoginModule required;", "has no username or no password"),
        ],
    )
    def test_other_entries_are_refused_and_never_shown(self, entry: str, word: str) -> None:
        text = refusal({"zookeeper.sasl.jaas.config": entry})
        assert word in text
        assert "s;e c" not in text

    def test_a_digest_without_password_is_refused_and_never_shown(self) -> None:
        assert "onlyauser" not in refusal({"zookeeper.auth.digest": "onlyauser"})

    @pytest.mark.parametrize(
        "identity",
        [
            {"zookeeper.sasl.jaas.config": JAAS},
            {"zookeeper.auth.digest": "a:b"},
            {**TLS, "zookeeper.ssl.keystore.location": "broker.pem"},
        ],
    )
    def test_access_lists_need_an_identity(self, identity: dict[str, str]) -> None:
        assert settings({"zookeeper.set.acl": "true", **identity}).set_acl
        assert "requires an identity" in refusal({"zookeeper.set.acl": "true"})
        assert "requires an identity" in refusal({"zookeeper.set.acl": "true", **TLS})
