"""Listeners with TLS and SASL of a real broker process: kcat, openssl, and clients that do not authenticate."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek.security.sasl.credentials import SHA_256, SHA_512, derive
from odradek.security.sasl.plain import LOGIN_MODULE
from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek.zk.layout import ConfigChangeNotification, encode_config
from odradek_testkit.broker_process import OdradekBroker
from odradek_testkit.security.certificates import Authority, Issued, key_pem, pem

pytestmark = pytest.mark.java

SECONDS = 60
PASSWORD = "a password = ;"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
LINES = b"".join(b"value %d\n" % number for number in range(1000))


class Secured:
    """A broker with a listener of each security protocol, and what clients need."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.folder = folder
        root = Authority.root("root")
        self.authorities = self._write("root.pem", pem(root.certificate))
        self.alice = self._identity(root.issue("alice", hosts=()), "alice")
        self._identity(root.issue("broker"), "broker")
        between, *free = free_ports(5)
        self.ports = dict(zip(("SSL", "MUTUAL", "SASL", "BOTH"), free, strict=True))
        protocols = {
            "SSL": "SSL",
            "MUTUAL": "SSL",
            "SASL": "SASL_PLAINTEXT",
            "BOTH": "SASL_SSL",
            "BETWEEN": "PLAINTEXT",
        }
        users = f'{LOGIN_MODULE} required user_alice="{PASSWORD}" user_bob="b";'
        addresses = {**self.ports, "BETWEEN": between}
        properties = {
            "listeners": ",".join(f"{name}://localhost:{port}" for name, port in addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in addresses),
            "inter.broker.listener.name": "BETWEEN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{folder}/broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{folder}/root.pem",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl.plain.sasl.jaas.config": users,
            "listener.name.both.plain.sasl.jaas.config": users,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/U",
        }
        self.broker = OdradekBroker(folder / "broker", zookeeper=zookeeper, properties=properties, port=between)

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def _identity(self, issued: Issued, name: str) -> Path:
        return self._write(f"{name}.pem", key_pem(issued.key) + issued.chain_pem)

    def address(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    def tls(self) -> list[str]:
        return ["-X", "security.protocol=ssl", "-X", f"ssl.ca.location={self.authorities}"]

    def login(self, mechanism: str, user: str = "alice", password: str = PASSWORD, *, tls: bool = False) -> list[str]:
        options = {"security.protocol": "sasl_ssl" if tls else "sasl_plaintext", "sasl.mechanism": mechanism}
        if tls:
            options["ssl.ca.location"] = str(self.authorities)
        options |= {"sasl.username": user, "sasl.password": password}
        return [each for name, value in options.items() for each in ("-X", f"{name}={value}")]

    def certificate(self) -> list[str]:
        return ["-X", f"ssl.certificate.location={self.alice}", "-X", f"ssl.key.location={self.alice}"]


def add_user(zookeeper: str, name: str, password: str) -> None:
    """Write the credentials of a user as `kafka-configs.sh` does."""
    values = {each.name: derive(password, each).to_text() for each in (SHA_256, SHA_512)}
    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        client.ensure_path("/config/users")
        client.create(f"/config/users/{name}", encode_config(values))
        client.create(
            "/config/changes/config_change_",
            ConfigChangeNotification(entity_path=f"users/{name}").encode(),
            sequence=True,
            makepath=True,
        )
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def secured(odradek_zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    root = f"{odradek_zookeeper}/{uuid4().hex}"
    secured = Secured(tmp_path_factory.mktemp("secured"), root)
    secured.broker.start()
    add_user(root, "alice", PASSWORD)
    yield secured
    secured.broker.stop()


def run(command: list[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    program = shutil.which(command[0])
    assert program is not None, f"{command[0]} is needed"
    return subprocess.run([program, *command[1:]], input=stdin, capture_output=True, check=False, timeout=2 * SECONDS)


def kcat(address: str, *arguments: str, stdin: bytes = b"") -> bytes:
    result = run(["kcat", "-b", address, "-q", *arguments], stdin)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def check_round_trip(address: str, options: list[str]) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    kcat(address, "-P", "-t", topic, "-X", "acks=all", *options, stdin=LINES)
    assert kcat(address, "-C", "-t", topic, "-e", "-o", "beginning", *options) == LINES


def test_kcat_with_tls(secured: Secured) -> None:
    check_round_trip(secured.address("SSL"), secured.tls())


def test_kcat_with_a_client_certificate(secured: Secured) -> None:
    check_round_trip(secured.address("MUTUAL"), secured.tls() + secured.certificate())


def test_a_client_without_the_required_certificate_is_refused(secured: Secured) -> None:
    result = run(["kcat", "-b", secured.address("MUTUAL"), "-L", "-m", "3", *secured.tls()])
    assert result.returncode != 0


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_verifies_the_broker(secured: Secured, version: str) -> None:
    command = ["openssl", "s_client", "-connect", secured.address("SSL"), version, "-verify_return_error"]
    result = run([*command, "-verify_hostname", "localhost", "-CAfile", str(secured.authorities)])
    assert b"Verify return code: 0 (ok)" in result.stdout, result.stderr.decode()


def test_openssl_cannot_use_old_versions(secured: Secured) -> None:
    command = ["openssl", "s_client", "-connect", secured.address("SSL"), "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]
    assert run(command).returncode != 0


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat_with_sasl(secured: Secured, mechanism: str, tls: bool) -> None:
    address, options = secured.address("BOTH" if tls else "SASL"), secured.login(mechanism, tls=tls)
    wait_until(lambda: lists(address, options), what="the notification of the user")
    check_round_trip(address, options)


def lists(address: str, options: list[str]) -> bool:
    """Whether a client gets metadata."""
    return run(["kcat", "-b", address, "-L", "-m", "3", *options]).returncode == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD)])
def test_a_wrong_user_or_password_is_refused_without_a_secret_in_the_log(
    secured: Secured, mechanism: str, user: str, password: str
) -> None:
    options = secured.login(mechanism, user, password)
    result = run(["kcat", "-b", secured.address("SASL"), "-L", "-m", "3", *options])
    assert result.returncode != 0
    assert b"invalid credentials" in result.stderr
    log = secured.broker.log()
    assert "authentication failed" in log
    assert PASSWORD not in log


def test_a_mechanism_that_is_not_enabled_is_refused(secured: Secured) -> None:
    options = ["-X", "security.protocol=sasl_plaintext", "-X", "sasl.mechanism=OAUTHBEARER"]
    options += ["-X", "enable.sasl.oauthbearer.unsecure.jwt=true", "-X", "sasl.oauthbearer.config=principal=alice"]
    result = run(["kcat", "-b", secured.address("SASL"), "-L", "-m", "3", *options])
    assert result.returncode != 0
    assert b"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" in result.stderr


def test_a_client_without_sasl_is_refused(secured: Secured) -> None:
    assert not lists(secured.address("SASL"), [])
    assert not lists(secured.address("BOTH"), secured.tls())
