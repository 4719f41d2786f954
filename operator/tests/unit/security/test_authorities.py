"""Certificate authorities and what they sign, with OpenSSL as the judge."""

from __future__ import annotations

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from odradek_operator.security.authorities import (
    AuthorityError,
    CertificateAuthority,
    issuers_of,
    new_authority,
    pem_of,
    read_authority,
    renewed,
)
from odradek_operator.security.leaves import Leaf, LeafNames, LeafUsage, issue, reason_to_replace
from odradek_operator_testkit.company import company_authority

NOW = datetime.now(UTC)
BROKER = LeafNames("demo-kafka-0", ("localhost", "demo-kafka-0.demo.svc", "127.0.0.1"))
WHERE = "Secret shop/company-ca"


def authority(name: str = "demo cluster", now: datetime = NOW, days: int = 365) -> CertificateAuthority:
    return new_authority(name, validity_days=days, now=now)


def broker(of: CertificateAuthority, now: datetime = NOW, days: int = 30) -> Leaf:
    return issue(of, BROKER, LeafUsage.BROKER, validity_days=days, now=now)


def context(side: int, leaf: Leaf | None, trusted: list[x509.Certificate], folder: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if side else ssl.PROTOCOL_TLS_CLIENT)
    if leaf is not None:
        file = folder / f"{leaf.certificate.serial_number}.pem"
        file.write_text(leaf.key_pem + leaf.certificate_pem)
        made.load_cert_chain(file)
    made.load_verify_locations(cadata=pem_of(trusted))
    made.verify_mode = ssl.CERT_REQUIRED
    made.check_hostname = not side
    return made


def connect(
    folder: Path, server: Leaf, client: Leaf, of_server: list[x509.Certificate], of_client: list[x509.Certificate]
) -> str:
    """Connect with TLS and certificates of both sides. Return the name that the server sees. Raises `ssl.SSLError`.

    `of_server` and `of_client`: whom they trust."""
    near, far = socket.socketpair()
    seen: list[str] = []

    def accept() -> None:
        try:
            with context(1, server, of_server, folder).wrap_socket(far, server_side=True) as secured:
                secured.recv(1)
                peer = secured.getpeercert() or {}
                seen.extend(value for names in peer["subject"] for key, value in names if key == "commonName")
                secured.send(b"x")
        except OSError:
            far.close()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        with context(0, client, of_client, folder).wrap_socket(near, server_hostname="localhost") as secured:
            secured.send(b"x")
            if not secured.recv(1):
                raise ssl.SSLError("the server has closed the connection")
    except ConnectionError as error:
        # The server may close before the client has read its alert.
        raise ssl.SSLError("the server has closed the connection") from error
    finally:
        near.close()
        thread.join()
    return seen[0]


def test_openssl_accepts_both_sides(tmp_path: Path) -> None:
    cluster, clients = authority(), authority("demo clients")
    user = issue(clients, LeafNames("alice"), LeafUsage.CLIENT, validity_days=30, now=NOW)
    assert connect(tmp_path, broker(cluster), user, [clients.certificate], [cluster.certificate]) == "alice"
    with pytest.raises(ssl.SSLError):
        connect(tmp_path, broker(cluster), user, [cluster.certificate], [cluster.certificate])
    with pytest.raises(ssl.SSLError):
        connect(tmp_path, user, user, [clients.certificate], [clients.certificate])


def test_a_renewed_authority_and_the_old_one_accept_each_other(tmp_path: Path) -> None:
    old = authority()
    new = renewed(old, validity_days=730, now=NOW)
    assert new.certificate.serial_number != old.certificate.serial_number
    for leaf in (broker(old), broker(new)):
        for trusted in (old, new):
            assert connect(tmp_path, leaf, broker(old), [trusted.certificate], [trusted.certificate]) == BROKER.name
            assert reason_to_replace(leaf.certificate, BROKER, [trusted.certificate], NOW) is None


def test_openssl_accepts_certificates_of_a_company(tmp_path: Path) -> None:
    """Its authority has another identifier of its key than those of the operator, as that of cert-manager has."""
    root = company_authority("root", now=NOW)
    given = company_authority("kafka", now=NOW, above=root)
    leaf, trusted = broker(given), [given.certificate, root.certificate]
    assert connect(tmp_path, leaf, leaf, trusted, trusted) == BROKER.name
    assert reason_to_replace(leaf.certificate, BROKER, [given.certificate], NOW) is None


def test_a_certificate_with_another_identifier_of_the_key_is_replaced(tmp_path: Path) -> None:
    given = company_authority("kafka", now=NOW)
    other = renewed(given, validity_days=30, now=NOW)
    leaf = broker(other)
    assert other.key_identifier != given.key_identifier
    with pytest.raises(ssl.SSLError):
        connect(tmp_path, leaf, leaf, [given.certificate], [given.certificate])
    assert reason_to_replace(leaf.certificate, BROKER, [given.certificate], NOW) is not None


def test_every_step_of_a_rotation_is_accepted(tmp_path: Path) -> None:
    """Pods take a step at different times, so each step has to fit the one before it, on both sides."""
    old, new = authority(), authority()
    both = [old.certificate, new.certificate]
    steps = [
        (broker(old), [old.certificate]),
        (broker(old), both),
        (broker(new), both),
        (broker(new), [new.certificate]),
    ]
    for before, after in pairwise(steps):
        for (server, of_server), (client, of_client) in ((before, after), (after, before)):
            assert connect(tmp_path, server, client, of_server, of_client) == BROKER.name
    with pytest.raises(ssl.SSLError):
        connect(tmp_path, steps[0][0], steps[3][0], steps[0][1], steps[3][1])


def test_an_authority_is_read_from_its_files() -> None:
    made = authority()
    read = read_authority(made.certificate_pem.encode(), made.key_pem.encode(), where=WHERE, now=NOW)
    assert read.certificate == made.certificate
    assert "key" not in repr(read)


def encrypted(of: CertificateAuthority) -> str:
    return of.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")).decode()


def test_authorities_that_cannot_be_used() -> None:
    made, other = authority(), authority()
    leaf = broker(made)
    foreign = ed25519.Ed25519PrivateKey.generate()
    foreign_pem = foreign.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    expired = authority(now=NOW - timedelta(days=400))
    for certificate, key, message in (
        ("nothing", made.key_pem, "has no valid certificate"),
        (made.certificate_pem, "nothing", "has no private key"),
        (made.certificate_pem, encrypted(made), "or an encrypted one"),
        (made.certificate_pem, other.key_pem, "is not the key of the certificate"),
        (made.certificate_pem, foreign_pem, "must be one of RSA"),
        (leaf.certificate_pem, leaf.key_pem, "must not sign others"),
        (expired.certificate_pem, expired.key_pem, "expired on"),
    ):
        with pytest.raises(AuthorityError, match=message) as caught:
            read_authority(certificate.encode(), key.encode(), where=WHERE, now=NOW)
        assert str(caught.value).startswith(WHERE)
        assert "PRIVATE" not in str(caught.value)


def test_the_issuers_of_an_authority_are_found_up_to_the_root() -> None:
    root = company_authority("root", now=NOW)
    middle = company_authority("middle", now=NOW, above=root)
    low = company_authority("low", now=NOW, above=middle)
    other = company_authority("root", now=NOW)
    above, others = [middle.certificate, root.certificate], [other.certificate, low.certificate]
    assert issuers_of(low.certificate, [*others, *reversed(above)]) == tuple(above)
    assert issuers_of(low.certificate, [*above, *above]) == tuple(above)
    assert issuers_of(low.certificate, [*others, root.certificate]) == ()
    assert issuers_of(root.certificate, [*others, *above]) == ()


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_names_have_a_length(name: str) -> None:
    with pytest.raises(AuthorityError, match="1 to 64"):
        authority(name)


# Leaves


def test_a_certificate_is_replaced_when_it_does_not_fit() -> None:
    made, other = authority(), authority()
    leaf, trusted = broker(made).certificate, [made.certificate]
    assert reason_to_replace(leaf, BROKER, trusted, NOW) is None
    assert reason_to_replace(leaf, LeafNames(BROKER.name, ("localhost",)), trusted, NOW) is None, "more names are fine"
    more = LeafNames(BROKER.name, (*BROKER.hosts, "198.51.100.7"))
    assert reason_to_replace(leaf, more, trusted, NOW) == "It lacks the names 198.51.100.7."
    assert "not CN=other" in str(reason_to_replace(leaf, LeafNames("other"), trusted, NOW))
    assert "No trusted authority" in str(reason_to_replace(leaf, BROKER, [other.certificate], NOW))
    assert reason_to_replace(leaf, BROKER, trusted, NOW + timedelta(days=19)) is None
    assert "It expires on" in str(reason_to_replace(leaf, BROKER, trusted, NOW + timedelta(days=21)))


def test_a_certificate_ends_with_its_issuer() -> None:
    short = authority(days=10)
    assert broker(short, days=30).certificate.not_valid_after_utc == short.certificate.not_valid_after_utc


def test_java_clients_get_one_file() -> None:
    made = authority("demo clients")
    leaf = issue(made, LeafNames("alice"), LeafUsage.CLIENT, validity_days=30, now=NOW)
    read = load_pkcs12(leaf.pkcs12(made.certificate, "geheim"), b"geheim")
    assert read.cert is not None
    assert read.cert.certificate == leaf.certificate
    assert [each.certificate for each in read.additional_certs] == [made.certificate]
    assert "geheim" not in repr(leaf)
