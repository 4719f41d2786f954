"""Listeners with TLS and SASL of a real broker process: kcat, openssl, and clients that do not authenticate."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from uuid import uuid4

import pytest

from odradek.testing.waiting import wait_until
from odradek_testkit.security.secured_broker import MECHANISMS, PASSWORD, SecuredBroker, add_user

pytestmark = pytest.mark.java

SECONDS = 60
LINES = b"".join(b"value %d\n" % number for number in range(1000))


@pytest.fixture(scope="module")
def secured(odradek_zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    root = f"{odradek_zookeeper}/{uuid4().hex}"
    secured = SecuredBroker(tmp_path_factory.mktemp("secured"), root)
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


def test_kcat_with_tls(secured: SecuredBroker) -> None:
    check_round_trip(secured.address("SSL"), secured.tls())


def test_kcat_with_a_client_certificate(secured: SecuredBroker) -> None:
    check_round_trip(secured.address("MUTUAL"), secured.tls() + secured.certificate())


def test_a_client_without_the_required_certificate_is_refused(secured: SecuredBroker) -> None:
    result = run(["kcat", "-b", secured.address("MUTUAL"), "-L", "-m", "3", *secured.tls()])
    assert result.returncode != 0


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_verifies_the_broker(secured: SecuredBroker, version: str) -> None:
    command = ["openssl", "s_client", "-connect", secured.address("SSL"), version, "-verify_return_error"]
    result = run([*command, "-verify_hostname", "localhost", "-CAfile", str(secured.authorities)])
    assert b"Verify return code: 0 (ok)" in result.stdout, result.stderr.decode()


def test_openssl_cannot_use_old_versions(secured: SecuredBroker) -> None:
    command = ["openssl", "s_client", "-connect", secured.address("SSL"), "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]
    assert run(command).returncode != 0


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat_with_sasl(secured: SecuredBroker, mechanism: str, tls: bool) -> None:
    address, options = secured.address("BOTH" if tls else "SASL"), secured.login(mechanism, tls=tls)
    wait_until(lambda: lists(address, options), what="the notification of the user")
    check_round_trip(address, options)


def lists(address: str, options: list[str]) -> bool:
    """Whether a client gets metadata."""
    return run(["kcat", "-b", address, "-L", "-m", "3", *options]).returncode == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD)])
def test_a_wrong_user_or_password_is_refused_without_a_secret_in_the_log(
    secured: SecuredBroker, mechanism: str, user: str, password: str
) -> None:
    options = secured.login(mechanism, user, password)
    result = run(["kcat", "-b", secured.address("SASL"), "-L", "-m", "3", *options])
    assert result.returncode != 0
    assert b"invalid credentials" in result.stderr
    log = secured.broker.log()
    assert "authentication failed" in log
    assert PASSWORD not in log


def test_a_mechanism_that_is_not_enabled_is_refused(secured: SecuredBroker) -> None:
    options = ["-X", "security.protocol=sasl_plaintext", "-X", "sasl.mechanism=OAUTHBEARER"]
    options += ["-X", "enable.sasl.oauthbearer.unsecure.jwt=true", "-X", "sasl.oauthbearer.config=principal=alice"]
    result = run(["kcat", "-b", secured.address("SASL"), "-L", "-m", "3", *options])
    assert result.returncode != 0
    assert b"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" in result.stderr


def test_a_client_without_sasl_is_refused(secured: SecuredBroker) -> None:
    assert not lists(secured.address("SASL"), [])
    assert not lists(secured.address("BOTH"), secured.tls())
