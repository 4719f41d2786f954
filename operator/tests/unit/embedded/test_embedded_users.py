"""The Secrets and users of an embedded cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from odradek.security.acls.model import ResourcePattern, ResourceType
from odradek.security.acls.nodes import decode_rules, resource_path
from odradek.testing.memory_zk import MemoryZk
from odradek_operator.crds import Cluster, User, read_resources
from odradek_operator.crds.documents import parse_documents
from odradek_operator.crds.types import CertificateAuthorities, CertificateAuthoritySource, Listener
from odradek_operator.embedded.embedded_users import EmbeddedUsers
from odradek_operator.embedded.secret_files import SecretFiles
from odradek_operator.errors import EmbeddedError
from odradek_operator.objects import names

ADDRESSES = {"scram": "127.0.0.1:9193"}
DOCUMENTS = """\
apiVersion: odradek.dev/v1
kind: Cluster
metadata: {name: demo}
spec:
  listeners: [{name: scram, port: 9193, tls: true, authentication: {type: scram-sha-512}}]
---
apiVersion: odradek.dev/v1
kind: User
metadata: {name: alice}
spec:
  cluster: demo
  authentication: {type: scram-sha-512}
  acls: [{resource: {type: topic, name: orders}, operations: [Read]}]
---
apiVersion: odradek.dev/v1
kind: User
metadata: {name: given}
spec:
  cluster: demo
  authentication: {type: scram-sha-512, password: {valueFrom: {secretKeyRef: {name: mine, key: word}}}}
---
apiVersion: odradek.dev/v1
kind: User
metadata: {name: courier}
spec: {cluster: demo, authentication: {type: serviceaccount, serviceAccount: {name: courier}}}
"""


class Stage:
    """A cluster with its Secrets, and a ZooKeeper in memory."""

    def __init__(self, folder: Path) -> None:
        found = read_resources(parse_documents(DOCUMENTS, "all.yaml"))
        self.cluster: Cluster = found.clusters["demo"]
        self.users = dict(found.users)
        self.secrets = SecretFiles(folder / "secrets")
        self.zk = MemoryZk()

    async def settle(self, *users: User) -> dict[str, tuple[str, str]]:
        """Return reason and message of each user, of a process that has just started."""
        wanted = {user.name: user for user in users}
        conditions = await EmbeddedUsers(self.secrets).settle(self.zk, self.cluster, wanted, ADDRESSES)
        return {name: (condition.reason, condition.message) for name, condition in conditions.items()}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    made.secrets.settle(made.cluster, [0, 1])
    return made


async def test_a_user_gets_files_and_rights_and_keeps_them(stage: Stage) -> None:
    alice = stage.users["alice"]
    path = resource_path(ResourcePattern(ResourceType.TOPIC, "orders"))
    reason, message = (await stage.settle(alice))["alice"]
    assert reason == "Reconciled"
    assert message.endswith("/secrets/alice/client.properties")
    files = stage.secrets.read("alice")
    assert b"bootstrap.servers=127.0.0.1:9193" in files[names.CLIENT_CONFIG_FILE]
    assert len(decode_rules(path, (await stage.zk.get(path))[0])) == 1
    await stage.settle(alice)
    assert stage.secrets.read("alice") == files

    assert await stage.settle() == {}
    assert stage.secrets.read("alice") == {}
    rules = await stage.zk.get_or_none(path)
    assert rules is None or not decode_rules(path, rules[0])


async def test_a_given_password_is_used_or_explained(stage: Stage) -> None:
    given = stage.users["given"]
    path = stage.secrets.folder / "mine" / "word"
    reason, message = (await stage.settle(given))["given"]
    assert (reason, message) == ("UserUnusable", f"{path} with the password does not exist: create it.")
    path.parent.mkdir()
    for content, expected in ((b"\x00", "UserUnusable"), (b"", "UserUnusable"), (b"a long word\n", "Reconciled")):
        path.write_bytes(content)
        assert (await stage.settle(given))["given"][0] == expected
    assert stage.secrets.read("given")["password"] == b"a long word"
    assert path.read_bytes() == b"a long word\n"


async def test_what_belongs_to_others_is_not_changed(stage: Stage) -> None:
    folder = stage.secrets.folder / "alice"
    folder.mkdir()
    (folder / "notes").write_text("mine")
    of_cluster = replace(stage.users["alice"], name=names.clients_ca("demo"))
    before = stage.secrets.read(of_cluster.name)
    found = await stage.settle(stage.users["alice"], of_cluster)
    assert {reason for reason, _ in found.values()} == {"UserUnusable"}
    assert all("is not of this user" in message for _, message in found.values())
    assert (folder / "notes").read_text() == "mine"
    assert stage.secrets.read(of_cluster.name) == before


async def test_users_that_cannot_log_in_are_explained(stage: Stage) -> None:
    found = await stage.settle(stage.users["courier"], replace(stage.users["alice"], paused=True))
    assert found["courier"] == ("NoServiceAccounts", "There are no ServiceAccounts outside of Kubernetes.")
    assert found["alice"][0] == "Paused"
    stage.cluster = replace(stage.cluster, listeners=(Listener(name="tls", port=9193, tls=True),))
    assert "so it cannot log in" in (await stage.settle(stage.users["alice"]))["alice"][1]


async def test_a_user_of_another_cluster_in_the_same_zookeeper_is_left_alone(stage: Stage) -> None:
    await stage.settle(stage.users["alice"])
    stage.cluster = replace(stage.cluster, namespace="elsewhere")
    assert await stage.settle() == {}
    other = replace(stage.users["alice"], namespace="elsewhere")
    reason, message = (await stage.settle(other))["alice"]
    assert reason == "UserUnusable"
    assert "belongs to a User of Cluster default/demo" in message


def test_certificates_stay_and_new_brokers_get_theirs(stage: Stage) -> None:
    before = stage.secrets.read(names.kafka_certs("demo"))
    again = SecretFiles(stage.secrets.folder)
    again.settle(stage.cluster, [0, 1, 2])
    after = again.read(names.kafka_certs("demo"))
    assert set(after) - set(before) == {"broker-2.pem"}
    assert {key: after[key] for key in before} == before
    assert not again.read(names.zookeeper_certs("demo")), "the ensemble has no TLS here"


def test_a_given_authority_is_a_folder(stage: Stage) -> None:
    given = CertificateAuthorities(clients=CertificateAuthoritySource(secret_name="company"))
    with pytest.raises(EmbeddedError, match=r"company does not exist.*Here, Secrets are folders in"):
        stage.secrets.settle(replace(stage.cluster, certificate_authorities=given), [0])


def test_a_large_file_is_no_secret(stage: Stage) -> None:
    (stage.secrets.folder / "mine").mkdir()
    (stage.secrets.folder / "mine" / "big").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(EmbeddedError, match="is larger than 1 MiB"):
        stage.secrets.read("mine")
