from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from odradek.base.errors import ConfigError
from odradek.zk.port import TlsSettings
from odradek.zk.security_tls import client_context, explain, openssl_cipher


def test_the_context_demands_a_trusted_certificate_for_the_right_name() -> None:
    context = client_context(TlsSettings(protocols=("TLSv1.3", "TLSv1.2")))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def test_the_host_name_check_can_be_disabled_but_not_the_certificate_check() -> None:
    context = client_context(TlsSettings(verify_host_name=False))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_2


def test_java_names_of_suites_choose_them() -> None:
    suites = ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384")
    context = client_context(TlsSettings(cipher_suites=suites))
    offered = {each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"}
    assert offered == {"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"}


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_suites(java: str, openssl: str) -> None:
    assert openssl_cipher(java) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(openssl)


def test_a_suite_that_openssl_does_not_know_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cipher\.suites.*NO-SUCH"):
        client_context(TlsSettings(cipher_suites=("ECDHE-RSA-AES128-GCM-SHA256", "NO-SUCH")))


@pytest.mark.parametrize("store", ["truststore", "keystore"])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, store: str) -> None:
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for path, reason in ((missing, "No such file"), (garbage, "PEM")):
        with pytest.raises(ConfigError, match=rf"zookeeper\.ssl\.{store}\.location={path} .*{reason}"):
            client_context(TlsSettings(**{f"{store}_location": str(path)}))


def test_revocation_needs_lists() -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.crl\.enable"):
        client_context(TlsSettings(check_revocation=True))


def test_errors_of_the_system_are_reported() -> None:
    assert explain(ConnectionRefusedError(111, "Connection refused")) == "Connection refused"
    assert explain(TimeoutError("timed out")) == "timed out"
    assert explain(ValueError("other")) == "other"
