"""Java's `keytool` reads the stores that the operator makes for Java clients."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from odradek_operator.crds.types import CertificateAuthorities, CertificateAuthoritySource, Cluster
from odradek_operator.objects import names
from odradek_operator.security.authorities import pem_of
from odradek_operator.security.leaves import LeafNames, LeafUsage, issue
from odradek_operator.security.material import CA_PASSWORD, CA_TRUSTSTORE, cluster_files, new_password
from odradek_operator.security.stored_authority import CA_CERTIFICATE, CA_KEY
from odradek_operator_testkit.company import company_authority

pytestmark = pytest.mark.java


def entries(store: Path, password: str) -> list[str]:
    """The kinds of the entries of a store, as Java sees them."""
    command = ["keytool", "-J-Duser.language=en", "-list", "-keystore", str(store), "-storepass", password]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return sorted(word for line in done.stdout.splitlines() for word in line.split(", ") if word.endswith("Entry"))


def test_the_truststore_has_every_authority_up_to_the_root(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    root = company_authority("root", now=now)
    given = company_authority("kafka", now=now, above=root)
    certificates = pem_of([given.certificate, root.certificate]).encode()
    stored = {"company": {CA_CERTIFICATE: certificates, CA_KEY: given.key_pem.encode()}}
    sources = CertificateAuthorities(cluster=CertificateAuthoritySource(secret_name="company"))
    cluster = Cluster(name="demo", namespace="shop", certificate_authorities=sources)
    trust = cluster_files(cluster, {}, stored, now=now).secrets[names.cluster_ca_cert("demo")]
    (tmp_path / CA_TRUSTSTORE).write_bytes(trust[CA_TRUSTSTORE])
    assert entries(tmp_path / CA_TRUSTSTORE, trust[CA_PASSWORD].decode()) == ["trustedCertEntry"] * 2


def test_the_keystore_of_a_user_has_the_key(tmp_path: Path) -> None:
    now, password = datetime.now(UTC), new_password()
    authority = company_authority("users", now=now)
    leaf = issue(authority, LeafNames("alice"), LeafUsage.CLIENT, validity_days=1, now=now)
    (tmp_path / "user.p12").write_bytes(leaf.pkcs12(authority.certificate, password))
    assert entries(tmp_path / "user.p12", password) == ["PrivateKeyEntry"]
