"""The content of a cluster's Secrets: complete, stable, and renewed in time.."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from odradek_operator.crds.types import (
    CertificateAuthorities,
    CertificateAuthoritySource,
    Cluster,
    MaintenanceWindow,
    ZooKeeper,
)
from odradek_operator.objects import names
from odradek_operator.security.authorities import AuthorityError, new_authority, pem_of
from odradek_operator.security.material import (
    CA_PASSWORD,
    CA_TRUSTSTORE,
    ReplacementState,
    cluster_files,
    new_password,
    secrets_of,
)
from odradek_operator.security.stored_authority import CA_CERTIFICATE, CA_KEY, TLS_CERTIFICATE, TLS_KEY
from odradek_operator_testkit.company import company_authority

NOW = datetime.now(UTC)
CLUSTER = Cluster(name="demo", namespace="shop")
HOSTS = {0: ("kafka-0.shop.svc", "192.0.2.1"), 1: ("kafka-1.shop.svc",)}
KAFKA = names.kafka_certs("demo")


def made(
    stored: Mapping[str, Mapping[str, bytes]] | None = None,
    *,
    cluster: Cluster = CLUSTER,
    hosts: Mapping[int, tuple[str, ...]] = HOSTS,
    now: datetime = NOW,
) -> dict[str, dict[str, bytes]]:
    return dict(cluster_files(cluster, hosts, stored or {}, now=now).secrets)


def leaf(files: Mapping[str, Mapping[str, bytes]], broker: int) -> x509.Certificate:
    return x509.load_pem_x509_certificates(files[KAFKA][names.broker_keystore(broker)])[0]


def test_everything_is_made_and_then_stays() -> None:
    first = made()
    assert set(first) == secrets_of(CLUSTER)
    assert made(first) == first
    assert made(first, now=NOW + timedelta(days=200)) == first


def test_only_what_has_changed_is_made_again() -> None:
    first = made()
    second = made(first, hosts={**HOSTS, 1: ("kafka-1.shop.svc", "new.example"), 2: ("kafka-2.shop.svc",)})
    assert leaf(second, 0) == leaf(first, 0)
    assert leaf(second, 1) != leaf(first, 1)
    assert leaf(second, 2).subject.rfc4514_string() == "CN=demo-kafka,O=odradek.dev"
    assert {secret for secret in first if first[secret] != second[secret]} == {KAFKA}


def test_certificates_and_authorities_are_renewed_before_their_end() -> None:
    first = made()
    later = made(first, now=NOW + timedelta(days=300))
    assert leaf(later, 0) != leaf(first, 0)
    assert later[names.cluster_ca("demo")] == first[names.cluster_ca("demo")]

    much_later = made(later, now=NOW + timedelta(days=1_825 - 89))
    authority = names.cluster_ca("demo")
    assert much_later[authority][CA_CERTIFICATE] != first[authority][CA_CERTIFICATE]
    assert much_later[authority][CA_KEY] == first[authority][CA_KEY]
    leaf(later, 0).verify_directly_issued_by(x509.load_pem_x509_certificate(much_later[authority][CA_CERTIFICATE]))
    expired = made(later, now=NOW + timedelta(days=3_000))
    assert expired[authority][CA_KEY] == first[authority][CA_KEY], "an operator that was away for years goes on"


def test_a_short_validity_is_renewed_at_its_half() -> None:
    sources = CertificateAuthorities(cluster=CertificateAuthoritySource(validity_days=10))
    cluster = dataclasses.replace(CLUSTER, certificate_authorities=sources)
    first = made(cluster=cluster)
    assert made(first, cluster=cluster) == first
    assert made(first, cluster=cluster, now=NOW + timedelta(days=6)) != first


@pytest.mark.parametrize("content", [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----"])
def test_a_damaged_certificate_is_replaced(content: bytes) -> None:
    first = made()
    damaged = {**first, KAFKA: {**first[KAFKA], names.broker_keystore(0): content}}
    assert leaf(made(damaged), 0) != leaf(first, 0)
    assert leaf(made(damaged), 1) == leaf(first, 1)


def test_a_certificate_with_the_key_of_another_is_replaced() -> None:
    first = made()
    key = first[KAFKA]["broker-1.pem"].partition(b"-----BEGIN CERTIFICATE")[0]
    certificate = b"-----BEGIN CERTIFICATE" + first[KAFKA]["broker-0.pem"].partition(b"-----BEGIN CERTIFICATE")[2]
    assert leaf(made({**first, KAFKA: {**first[KAFKA], "broker-0.pem": key + certificate}}), 0) != leaf(first, 0)


def test_a_damaged_authority_is_an_error_and_never_replaced() -> None:
    first, authority = made(), names.cluster_ca("demo")
    for damaged in ({**first[authority], CA_KEY: b"nothing"}, {CA_CERTIFICATE: first[authority][CA_CERTIFICATE]}, {}):
        with pytest.raises(AuthorityError, match="Secret shop/demo-cluster-ca") as raised:
            made({**first, authority: damaged})
        assert "PRIVATE" not in str(raised.value)


def test_a_given_authority_is_used_and_left_alone() -> None:
    given = new_authority("company", validity_days=30, now=NOW)
    sources = CertificateAuthorities(clients=CertificateAuthoritySource(secret_name="company"))
    cluster = dataclasses.replace(CLUSTER, certificate_authorities=sources)
    with pytest.raises(AuthorityError, match="Secret shop/company does not exist"):
        made(cluster=cluster)
    stored = {"company": {CA_CERTIFICATE: given.certificate_pem.encode(), CA_KEY: given.key_pem.encode()}}
    files = made(stored, cluster=cluster)
    assert "company" not in files
    assert names.clients_ca("demo") not in files
    assert files[KAFKA][names.CLIENTS_CA_FILE] == given.certificate_pem.encode()
    with pytest.raises(AuthorityError, match="expired"):
        made(stored, cluster=cluster, now=NOW + timedelta(days=31))
    with pytest.raises(AuthorityError, match="has neither"):
        made({"company": {CA_CERTIFICATE: b"1", "tls.key": b"2"}}, cluster=cluster)


@pytest.mark.parametrize("form", ["ca.crt", "tls.crt", "tls.crt without issuer"])
def test_the_issuers_of_a_given_authority_are_known_to_clients_and_not_accepted_as_logins(form: str) -> None:
    """A company's root signs the certificates of others, too. None of them may log in as a broker or a user."""
    root = company_authority("root", now=NOW)
    middle = company_authority("middle", now=NOW, above=root)
    given = company_authority("kafka", now=NOW, above=middle)
    former = company_authority("former kafka", now=NOW)
    own, above = [given.certificate, former.certificate], [middle.certificate, root.certificate]
    key = given.key_pem.encode()
    if form == "ca.crt":
        stored = {CA_CERTIFICATE: pem_of([*own, *above]).encode(), CA_KEY: key}
    else:
        issuer = b"" if form.endswith("issuer") else pem_of(above[1:]).encode()
        stored = {TLS_CERTIFICATE: pem_of([*own, *above[:1]]).encode(), TLS_KEY: key, CA_CERTIFICATE: issuer}
        above = above[: 1 if form.endswith("issuer") else 2]
    source = CertificateAuthoritySource(secret_name="company")
    sources = CertificateAuthorities(cluster=source, clients=source)
    files = made({"company": stored}, cluster=dataclasses.replace(CLUSTER, certificate_authorities=sources))
    accepted, known = pem_of(own).encode(), pem_of([*own, *above]).encode()
    assert files[KAFKA][names.CLUSTER_CA_FILE] == files[KAFKA][names.CLIENTS_CA_FILE] == accepted
    assert files[names.operator_certs("demo")][names.CLUSTER_CA_FILE] == accepted
    assert files[names.zookeeper_certs("demo")][names.CLUSTER_CA_FILE] == accepted
    assert files[names.clients_ca_cert("demo")][CA_CERTIFICATE] == accepted
    trust = files[names.cluster_ca_cert("demo")]
    assert trust[CA_CERTIFICATE] == known
    store = load_pkcs12(trust[CA_TRUSTSTORE], trust[CA_PASSWORD])
    assert pem_of(each.certificate for each in store.additional_certs).encode() == known


def test_a_damaged_issuer_of_a_given_authority_is_an_error() -> None:
    given = company_authority("kafka", now=NOW)
    files = {TLS_CERTIFICATE: given.certificate_pem, TLS_KEY: given.key_pem, CA_CERTIFICATE: "x"}
    stored = {"company": {key: text.encode() for key, text in files.items()}}
    sources = CertificateAuthorities(cluster=CertificateAuthoritySource(secret_name="company"))
    with pytest.raises(AuthorityError, match=r"Secret shop/company: ca\.crt has no valid certificate"):
        made(stored, cluster=dataclasses.replace(CLUSTER, certificate_authorities=sources))


def test_clients_can_read_what_they_trust(tmp_path: Path) -> None:
    files = made()
    trust = files[names.cluster_ca_cert("demo")]
    assert trust[CA_CERTIFICATE] == files[names.cluster_ca("demo")][CA_CERTIFICATE]
    assert CA_KEY not in trust
    store = load_pkcs12(trust[CA_TRUSTSTORE], trust[CA_PASSWORD])
    assert [each.certificate.subject.rfc4514_string() for each in store.additional_certs] == ["CN=demo cluster CA"]
    keystore = tmp_path / "operator.pem"
    keystore.write_bytes(files[names.operator_certs("demo")][names.OPERATOR_KEYSTORE])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(keystore)
    context.load_verify_locations(cadata=trust[CA_CERTIFICATE].decode())


def test_passwords_are_random_and_need_no_quotes() -> None:
    found = {new_password() for _ in range(100)}
    assert len(found) == 100
    assert all(len(password) == 32 and password.isalnum() for password in found)


MEMBERS = names.zookeeper_certs("demo")
SATURDAY_NIGHT = MaintenanceWindow(days=("Sat",), start="23:00", minutes=120)


def with_windows(*windows: MaintenanceWindow) -> Cluster:
    return dataclasses.replace(CLUSTER, maintenance_windows=windows)


def next_day(weekday: int, hour: int, *, after: timedelta) -> datetime:
    """A time on a day of the week, Monday is 0, at least `after` from now on."""
    found = (NOW + after).replace(hour=hour, minute=30)
    return found + timedelta(days=(weekday - found.weekday()) % 7)


def test_certificates_of_members_that_get_old_are_renewed_in_a_window() -> None:
    first, cluster = made(), with_windows(SATURDAY_NIGHT)
    old = timedelta(days=260)
    outside, inside = next_day(4, 12, after=old), next_day(6, 0, after=old)
    assert made(first, now=outside)[MEMBERS] != first[MEMBERS], "without windows at any time"
    waiting = made(first, cluster=cluster, now=outside)
    assert waiting[MEMBERS] == first[MEMBERS]
    assert waiting[KAFKA] != first[KAFKA], "brokers need no restart"
    assert made(first, cluster=cluster, now=inside)[MEMBERS] != first[MEMBERS]
    urgent = next_day(4, 12, after=timedelta(days=340))
    assert made(first, cluster=cluster, now=urgent)[MEMBERS] != first[MEMBERS]


def test_a_renewed_authority_reaches_members_in_a_window_and_a_new_one_at_once() -> None:
    cluster = with_windows(SATURDAY_NIGHT)
    soon = CertificateAuthoritySource(certificate_days=3_000, renewal_days=1_000)
    cluster = dataclasses.replace(cluster, certificate_authorities=CertificateAuthorities(cluster=soon))
    first, outside = made(cluster=cluster), next_day(4, 12, after=timedelta(days=1_100))
    renewed = made(first, cluster=cluster, now=outside)
    assert renewed[names.cluster_ca("demo")] != first[names.cluster_ca("demo")]
    assert renewed[MEMBERS] == first[MEMBERS], "what the authority has signed stays valid"
    assert made(renewed, cluster=cluster, now=next_day(6, 0, after=timedelta(days=1_100)))[MEMBERS] != first[MEMBERS]

    wish = ReplacementState(request="1", pods=())
    replaced = cluster_files(cluster, HOSTS, first, of_cluster=wish, now=next_day(4, 12, after=timedelta())).secrets
    assert replaced[MEMBERS] != first[MEMBERS]


def test_a_cluster_in_an_existing_ensemble_has_no_members() -> None:
    elsewhere = dataclasses.replace(CLUSTER, zookeeper=ZooKeeper(connect="zk:2181"))
    assert MEMBERS not in made(cluster=elsewhere)
    assert MEMBERS not in secrets_of(elsewhere)
