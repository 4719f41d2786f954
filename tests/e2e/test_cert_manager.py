"""Tests that cert-manager issues the authorities of a cluster as the operator expects it.

The tests use a real API server and the controllers of cert-manager, without nodes. A unit test of the operator, in
which cert-manager is played (`test_cert_manager_issues_an_authority`), relies on what they find.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from kube import api_only, binaries
from odradek_operator.crds import Cluster, read_object
from odradek_operator.crds.schema import definitions
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.objects import names
from odradek_operator.objects.certificate_objects import certificate_objects
from odradek_operator.security.authorities import CertificateAuthority, read_authority
from odradek_operator.security.leaves import LeafNames, LeafUsage, issue
from odradek_operator.security.material import cluster_files
from odradek_operator.security.stored_authority import given_authority
from support.kubectl import Kubectl
from support.product import CLUSTER, example
from support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_full, pytest.mark.timeout(1800)]

NAMESPACE: Final = "default"
COMPANY: Final[list[Object]] = [
    {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "itself"}, "spec": {"selfSigned": {}}},
    {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": "company-root"},
        "spec": {
            "isCA": True,
            "commonName": "the company",
            "secretName": "company-root",
            "issuerRef": {"name": "itself", "kind": "Issuer"},
        },
    },
    {
        "apiVersion": "cert-manager.io/v1",
        "kind": "ClusterIssuer",
        "metadata": {"name": "company"},
        "spec": {"ca": {"secretName": "company-root"}},
    },
]
"""The root of a company, and the issuer that signs with it."""


@pytest.fixture(scope="module")
def kubectl(say: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl for an API server on which cert-manager works for the issuer `company`."""
    programs, cert_manager = binaries.ensure(say), binaries.ensure_cert_manager(say)
    folder = tmp_path_factory.mktemp("cert-manager")
    with ExitStack() as stack:
        serving = api_only.serving(programs, programs / "kube-apiserver", folder)
        kubeconfig = stack.enter_context(serving)
        made = Kubectl(program=str(programs / "kubectl"), kubeconfig=kubeconfig, namespace=NAMESPACE)
        made.run("apply", "--server-side", "--filename", str(binaries.cert_manager_definitions()))
        made.apply(*definitions().values())
        made.run("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        api_only.start(stack, folder, [cert_manager, f"--kubeconfig={kubeconfig}"])
        made.apply(*COMPANY)
        yield made


@pytest.fixture(scope="module")
def secured(kubectl: Kubectl) -> Cluster:
    """The cluster of the example, with both authorities from the issuer. The operator does not run."""
    body = example("secured/cluster.yaml")
    source = {"issuerRef": {"name": "company", "kind": "ClusterIssuer"}, "validityDays": 365}
    body["metadata"]["namespace"] = NAMESPACE
    body["spec"]["certificateAuthorities"] = {"cluster": source, "clients": source}
    kubectl.apply(body)
    found = read_object({**kubectl.require(CLUSTER, "secured"), "kind": body["kind"]})
    assert isinstance(found, Cluster)
    return found


Files = dict[str, bytes]


def files_of(kubectl: Kubectl, name: str) -> Files:
    """The decoded data of a Secret, when it has been issued."""

    def issued() -> dict[str, str]:
        data: dict[str, str] = (kubectl.get("secret", name) or {}).get("data", {})
        return data if data.get("tls.crt") else {}

    return {key: base64.b64decode(value) for key, value in eventually(issued, what=f"the Secret {name}").items()}


@pytest.fixture(scope="module")
def stored(kubectl: Kubectl, secured: Cluster) -> dict[str, Files]:
    """The Secrets that cert-manager makes for the Certificates of the operator."""
    wanted = certificate_objects(secured)
    kubectl.apply(*wanted)
    found = [body["spec"]["secretName"] for body in wanted]
    assert found == [names.issued_ca(names.cluster_ca("secured")), names.issued_ca(names.clients_ca("secured"))]
    return {name: files_of(kubectl, name) for name in found}


def authority_of(files: Files) -> CertificateAuthority:
    """The authority in a Secret, as the operator reads it."""
    given = given_authority(files)
    assert given is not None
    return read_authority(*given, where="the Secret", now=datetime.now(UTC))


def accepts(trusted: bytes, certificates: bytes, folder: Path) -> bool:
    """Whether a client that uses OpenSSL with its defaults accepts the certificates of a broker."""
    for name, content in (("trusted.pem", trusted), ("broker.pem", certificates)):
        (folder / name).write_bytes(content)
    command = ["openssl", "verify", "-purpose", "sslserver", "-CAfile", "trusted.pem", "-untrusted", "broker.pem"]
    done = subprocess.run([*command, "broker.pem"], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode == 0


def test_the_secret_has_the_form_that_the_operator_reads(stored: dict[str, Files], kubectl: Kubectl) -> None:
    root = files_of(kubectl, "company-root")
    for name, files in stored.items():
        assert kubectl.require("secret", name)["type"] == "kubernetes.io/tls"
        assert files.keys() == {"tls.crt", "tls.key", "ca.crt"}
        assert files["ca.crt"] == root["tls.crt"]
        certificate = authority_of(files).certificate
        certificate.verify_directly_issued_by(authority_of(root).certificate)
        assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 365


def test_clients_accept_brokers_and_the_root_gives_no_login(
    secured: Cluster, stored: dict[str, Files], kubectl: Kubectl, tmp_path: Path
) -> None:
    files = cluster_files(secured, {0: ("localhost",)}, stored, now=datetime.now(UTC)).secrets
    of_brokers = files[names.kafka_certs("secured")]
    known = files[names.cluster_ca_cert("secured")]["ca.crt"]
    certificates = of_brokers[names.broker_keystore(0)]
    assert accepts(known, certificates, tmp_path)
    assert not accepts(of_brokers[names.CLUSTER_CA_FILE], certificates, tmp_path), "it does not know the root"
    root = authority_of(files_of(kubectl, "company-root")).certificate
    for file in (names.CLUSTER_CA_FILE, names.CLIENTS_CA_FILE):
        assert root not in x509.load_pem_x509_certificates(of_brokers[file])


def test_a_renewal_keeps_the_key(secured: Cluster, stored: dict[str, Files], kubectl: Kubectl, tmp_path: Path) -> None:
    """So the certificates of brokers that the former certificate has signed stay valid."""
    name, secret = names.cluster_ca("secured"), names.issued_ca(names.cluster_ca("secured"))
    before = stored[secret]
    former, now = authority_of(before), datetime.now(UTC)
    leaf = issue(former, LeafNames("broker", ("localhost",)), LeafUsage.BROKER, validity_days=1, now=now)

    # What `cmctl renew` does.
    renewal = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test"}
    status: dict[str, Any] = kubectl.require(Kind.CERTIFICATE.word, name)["status"]
    conditions = [*(one for one in status["conditions"] if one["type"] != "Issuing"), renewal]
    change = json.dumps({"status": {"conditions": conditions}})
    kubectl.run("patch", Kind.CERTIFICATE.word, name, "--subresource=status", "--type=merge", "--patch", change)
    after = eventually(
        lambda: files_of(kubectl, secret), lambda files: files["tls.crt"] != before["tls.crt"], what="the renewal"
    )
    assert authority_of(after).certificate.public_key() == former.certificate.public_key()
    files = cluster_files(secured, {0: ("localhost",)}, {**stored, secret: after}, now=now).secrets
    assert accepts(files[names.cluster_ca_cert("secured")]["ca.crt"], leaf.certificate_pem.encode(), tmp_path)
