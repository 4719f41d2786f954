from __future__ import annotations

import ssl
from typing import Any

import pytest

from odradek.base.errors import ConfigError
from odradek.security.tls.ciphers import choose, openssl_cipher
from odradek.security.tls.stores import PemKeyText, PemTrustText, StoreFile
from odradek.security.tls.tls_settings import ClientAuth, TlsSettings

NEWER = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
OLDER = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


def settings(properties: dict[str, str], **options: Any) -> TlsSettings:
    return TlsSettings.from_properties({f"ssl.{name}": value for name, value in properties.items()}, **options)


def test_defaults_are_kafkas() -> None:
    assert settings({}) == TlsSettings()
    assert settings({}, listener="A").prefix == "listener.name.a.ssl."
    assert (settings({}).protocols, settings({}).verify_host_name) == (("TLSv1.2", "TLSv1.3"), True)


def test_stores_in_files() -> None:
    found = settings(
        {
            "keystore.location": "/k",
            "keystore.password": "SECRET",
            "key.password": "SECRET",
            "keystore.type": "PKCS12",
            "truststore.location": "/t",
            "truststore.password": "SECRET",
        }
    )
    assert found.keystore == StoreFile(
        setting="ssl.keystore", location="/k", kind="PKCS12", password="SECRET", key_password="SECRET"
    )
    assert found.truststore == StoreFile(setting="ssl.truststore", location="/t", kind="JKS", password="SECRET")
    assert found.files == ("/k", "/t")
    assert "SECRET" not in repr(found)


def test_stores_as_text() -> None:
    found = settings(
        {
            "keystore.type": "PEM",
            "keystore.key": "KEY",
            "keystore.certificate.chain": "CHAIN",
            "key.password": "SECRET",
            "truststore.type": "PEM",
            "truststore.certificates": "CERTIFICATES",
        }
    )
    assert found.keystore == PemKeyText(setting="ssl.keystore", key="KEY", chain="CHAIN", key_password="SECRET")
    assert found.truststore == PemTrustText(setting="ssl.truststore", certificates="CERTIFICATES")
    assert found.files == ()
    assert "KEY" not in repr(found)
    assert "SECRET" not in repr(found)


def test_listeners_override_single_properties() -> None:
    properties = {
        "ssl.keystore.location": "/common",
        "ssl.keystore.password": "common",
        "listener.name.out.ssl.keystore.location": "/out",
        "listener.name.out.ssl.client.auth": "required",
        "listener.name.out.ssl.endpoint.identification.algorithm": "",
    }
    found = TlsSettings.from_properties(properties, listener="OUT")
    assert found.keystore == StoreFile(
        setting="listener.name.out.ssl.keystore", location="/out", kind="JKS", password="common"
    )
    assert (found.client_auth, found.verify_host_name) == (ClientAuth.REQUIRED, False)
    other = TlsSettings.from_properties(properties, listener="IN")
    assert other.keystore == StoreFile(setting="ssl.keystore", location="/common", kind="JKS", password="common")
    assert (other.client_auth, other.verify_host_name) == (ClientAuth.NONE, True)


def test_client_auth_of_sasl_listeners_needs_the_prefix() -> None:
    common = {"ssl.client.auth": "required"}
    assert TlsSettings.from_properties(common, listener="A").client_auth is ClientAuth.REQUIRED
    assert TlsSettings.from_properties(common, listener="A", uses_sasl=True).client_auth is ClientAuth.NONE
    own = {"listener.name.a.ssl.client.auth": "requested"}
    assert TlsSettings.from_properties(own, listener="A", uses_sasl=True).client_auth is ClientAuth.REQUESTED


def test_enabled_protocols_precede_the_protocol() -> None:
    found = settings({"protocol": "TLSv1.2", "enabled.protocols": "TLSv1.3, TLSv1.2"})
    assert found.protocols == ("TLSv1.3", "TLSv1.2")


@pytest.mark.parametrize(
    ("protocol", "protocols"),
    [("TLSv1.2", ("TLSv1.2",)), ("TLSv1.3", ("TLSv1.2", "TLSv1.3")), ("TLS", ("TLSv1.2", "TLSv1.3"))],
)
def test_without_a_list_the_protocol_is_the_highest(protocol: str, protocols: tuple[str, ...]) -> None:
    assert settings({"protocol": protocol, "enabled.protocols": ""}).protocols == protocols


def test_defaults_for_the_jvm_are_accepted() -> None:
    assert settings(
        {
            "keymanager.algorithm": "SunX509",
            "trustmanager.algorithm": "PKIX",
            "engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
            "provider": "",
            "secure.random.implementation": "",
        }
    )


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"provider": "BCJSSE"}, ["ssl.provider=BCJSSE is not supported"]),
        ({"engine.factory.class": "x.Y"}, ["ssl.engine.factory.class=x.Y", "DefaultSslEngineFactory"]),
        ({"keymanager.algorithm": "X"}, ["ssl.keymanager.algorithm=X", "PKIX"]),
        ({"trustmanager.algorithm": "X"}, ["ssl.trustmanager.algorithm=X", "only PKIX"]),
        ({"secure.random.implementation": "NativePRNG"}, ["ssl.secure.random.implementation"]),
        ({"protocol": "SSL"}, ["ssl.protocol=SSL is not supported"]),
        ({"enabled.protocols": "TLSv1.2,TLSv1"}, ["ssl.enabled.protocols has TLSv1, which is not supported"]),
        ({"client.auth": "want"}, ["ssl.client.auth=want", "none, requested or required"]),
        ({"endpoint.identification.algorithm": "LDAPS"}, ["LDAPS", "https or empty"]),
        ({"keystore.password": "SECRET"}, ["ssl.keystore.password is set, but ssl.keystore.location is not"]),
        ({"truststore.password": "SECRET"}, ["ssl.truststore.password is set, but ssl.truststore.location"]),
        (
            {"keystore.type": "PEM", "keystore.location": "/k", "keystore.password": "SECRET"},
            ["ssl.keystore.password is not possible", "ssl.key.password decrypts"],
        ),
        (
            {"truststore.type": "PEM", "truststore.location": "/k", "truststore.password": "SECRET"},
            ["ssl.truststore.password is not possible", "a PEM file has none"],
        ),
        ({"keystore.key": "SECRET", "keystore.type": "PEM"}, ["need each other"]),
        ({"keystore.certificate.chain": "x", "keystore.type": "PEM"}, ["need each other"]),
        ({"keystore.key": "SECRET", "keystore.certificate.chain": "x"}, ["requires ssl.keystore.type=PEM"]),
        (
            {
                "keystore.key": "SECRET",
                "keystore.certificate.chain": "x",
                "keystore.type": "PEM",
                "keystore.location": "/",
            },
            ["ssl.keystore.key and ssl.keystore.location are set"],
        ),
        ({"truststore.certificates": "x"}, ["requires ssl.truststore.type=PEM"]),
        (
            {"truststore.certificates": "x", "truststore.type": "PEM", "truststore.password": "SECRET"},
            ["ssl.truststore.certificates and ssl.truststore.password are set"],
        ),
        ({"cipher.suites": OLDER, "enabled.protocols": "TLSv1.3"}, ["ssl.cipher.suites has no suite of TLSv1.3"]),
        ({"cipher.suites": NEWER[1]}, ["ssl.cipher.suites", f"add {NEWER[0]}, {NEWER[2]}"]),
    ],
)
def test_what_cannot_be_honoured_is_refused(properties: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(properties)
    text = str(caught.value)
    assert [word for word in words if word not in text] == []
    assert "SECRET" not in text


class TestSuites:
    def test_a_version_without_a_suite_is_not_used(self) -> None:
        both = ("TLSv1.3", "TLSv1.2")
        older, newer = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
        assert choose(both, (), "ssl.") == (older, newer, ())
        assert choose(both, (OLDER,), "ssl.") == (older, older, ("ECDHE-RSA-AES128-GCM-SHA256",))
        assert choose(both, NEWER, "ssl.") == (newer, newer, ())
        assert choose(both, (*NEWER, OLDER), "ssl.") == (older, newer, ("ECDHE-RSA-AES128-GCM-SHA256",))

    def test_some_suites_of_tls_1_3_are_no_problem_if_it_is_not_enabled(self) -> None:
        assert choose(("TLSv1.2",), (NEWER[0], OLDER), "ssl.").maximum is ssl.TLSVersion.TLSv1_2

    def test_the_signalling_suite_of_java_is_ignored(self) -> None:
        assert choose(("TLSv1.2",), ("TLS_EMPTY_RENEGOTIATION_INFO_SCSV", OLDER), "").suites == (openssl_cipher(OLDER),)

    @pytest.mark.parametrize(
        ("java", "openssl"),
        [
            ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
            ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
            ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
            ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ],
    )
    def test_names(self, java: str, openssl: str) -> None:
        assert openssl_cipher(java) == openssl
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(openssl)
