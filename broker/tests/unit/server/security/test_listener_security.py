"""Security settings of listeners: their order of precedence, mistakes, and the identities of client certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError
from odradek.base.types import Endpoint
from odradek.network.connection import Connection
from odradek.security.principals import ANONYMOUS, Identity, Principal
from odradek.security.tls.names import PrincipalRules
from odradek.server.security.listener_properties import ListenerProperties
from odradek.server.security.listener_security import SecurityMaker, begin_with_certificate
from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.security.certificates import Authority, pem

ROOT = Authority.root("root")
ALICE = ROOT.issue("alice", hosts=())


def test_a_listeners_own_value_precedes_the_common_one() -> None:
    properties = ListenerProperties(
        {
            "connections.max.reauth.ms": "1",
            "listener.name.outer.connections.max.reauth.ms": "2",
            "listener.name.outer.plain.connections.max.reauth.ms": "3",
            "listener.name.outer.max.connections": "7",
        },
        "OUTER",
    )
    setting = "connections.max.reauth.ms"
    assert properties.number(setting, "PLAIN") == 3
    assert properties.number(setting, "SCRAM-SHA-256") == properties.number(setting) == 2
    assert properties.name(setting, "PLAIN") == "listener.name.outer.plain.connections.max.reauth.ms"
    assert (properties.override("max.connections"), properties.override("max.connection.creation.rate")) == (7, None)
    assert properties.merged("PLAIN")[setting] == "3"
    inner = ListenerProperties({setting: "1"}, "INNER")
    assert (inner.number(setting, "PLAIN"), inner.name(setting, "PLAIN")) == (1, setting)
    assert ListenerProperties({}, "INNER").number(setting) == 0


def test_a_bad_value_names_the_property_under_which_it_is_set() -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.x\.max\.connections"):
        BrokerConfig.parse(
            {
                "broker.id": "1",
                "zookeeper.connect": "zk",
                "listeners": "X://:1",
                "listener.security.protocol.map": "X:PLAINTEXT",
                "listener.name.x.max.connections": "many",
            }
        )


def test_a_setting_of_no_listener_is_reported() -> None:
    _, warnings = BrokerConfig.parse(
        {"broker.id": "1", "zookeeper.connect": "zk", "listener.name.outer.max.connections": "1"}
    )
    assert warnings == ["listener.name.outer.max.connections has no effect: listeners has no OUTER"]


def maker(properties: dict[str, str]) -> SecurityMaker:
    async def run_blocking(function: Callable[[], Any]) -> Any:
        return function()

    return SecurityMaker(properties, VirtualClock(), run_blocking)


async def test_a_plaintext_listener_has_no_security() -> None:
    security = maker({})(Endpoint("L", "", 1, "PLAINTEXT"))
    assert (security.protocol, security.contexts) == ("PLAINTEXT", None)


async def test_a_listener_with_tls_needs_a_key() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
        maker({})(Endpoint("L", "", 1, "SSL"))


async def test_a_listener_has_its_own_key_and_time(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_text(ROOT.issue("broker").pem)
    properties = {
        "listener.name.l.ssl.keystore.type": "PEM",
        "listener.name.l.ssl.keystore.location": str(path),
        "listener.name.l.connection.handshake.timeout.ms": "77",
    }
    security = maker(properties)(Endpoint("L", "", 1, "SSL"))
    assert (security.protocol, security.handshake_timeout_ms) == ("SSL", 77)
    assert security.contexts is not None
    with pytest.raises(ConfigError):
        maker(properties)(Endpoint("OTHER", "", 1, "SSL"))


async def test_mapping_rules_are_checked_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_text(ROOT.issue("broker").pem)
    properties = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
    with pytest.raises(ConfigError, match="not valid"):
        maker({**properties, "ssl.principal.mapping.rules": "RULE:("})(Endpoint("L", "", 1, "SSL"))


class CertifiedTransport:
    """A transport whose client has a certificate, or none."""

    def __init__(self, certificate: bytes | None) -> None:
        self.certificate = certificate
        self.is_aborted = False

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("::ffff:192.0.2.7", 1), "ssl_object": self}.get(name)

    def getpeercert(self, *, binary_form: bool) -> bytes | None:
        assert binary_form
        return self.certificate

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is written."""

    def abort(self) -> None:
        self.is_aborted = True


def begun(certificate: bytes | None, rules: str = "DEFAULT") -> tuple[Connection, CertifiedTransport]:
    transport = CertifiedTransport(certificate)
    begin = begin_with_certificate(PrincipalRules.parse(rules))
    connection = Connection(lambda _request: None, VirtualClock(), listener="L", begin=begin)
    connection.connection_made(cast(Any, transport))
    return connection, transport


def der() -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem(ALICE.certificate))


@pytest.mark.parametrize(
    ("has_certificate", "rules", "principal"),
    [
        (True, "DEFAULT", Principal("User", "CN=alice")),
        (True, "RULE:^CN=(.*)$/$1/U", Principal("User", "ALICE")),
        (False, "DEFAULT", ANONYMOUS),
    ],
)
def test_the_identity_is_that_of_the_certificate(has_certificate: bool, rules: str, principal: Principal) -> None:
    async def scenario() -> None:
        connection, _ = begun(der() if has_certificate else None, rules)
        assert connection.identity == Identity(principal, "192.0.2.7", "L", "SSL")
        assert connection.counters.authentications == 1

    run_virtual(scenario())


@pytest.mark.parametrize(("certificate", "rules"), [(der(), "RULE:^CN=bob$/bob/"), (b"\x30\x03\x02\x01", "DEFAULT")])
def test_a_certificate_without_a_name_ends_the_connection(certificate: bytes, rules: str) -> None:
    async def scenario() -> None:
        connection, transport = begun(certificate, rules)
        assert connection.identity is None
        assert transport.is_aborted
        assert (connection.counters.authentications, connection.counters.failed_authentications) == (0, 1)

    run_virtual(scenario())
