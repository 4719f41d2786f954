"""Users in rounds of the operator: Secrets, credentials, rules, quotas, statuses, and what a deletion leaves."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from cryptography import x509

from odradek.security.acls.nodes import decode_rules
from odradek.security.sasl.credentials import SHA_512, ScramCredential, credential_from_salted, salted_password
from odradek.zk import layout
from odradek.zk.port import ConnectionLost
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator_testkit.surroundings import NAMESPACE, Operator, World, cluster_body, condition, scenario, until
from odradek_testkit.loop import run_virtual

SECURE = {"name": "secure", "port": 9093, "type": "internal", "tls": True, "authentication": {"type": "scram-sha-512"}}
MUTUAL = {"name": "mutual", "port": 9094, "type": "internal", "tls": True, "authentication": {"type": "tls"}}
SCRAM = {"type": "scram-sha-512"}
READ = {"resource": {"type": "topic", "name": "orders"}, "operations": ["Read"]}
ORDERS = "/kafka-acl/Topic/orders"
ALICE = "/config/users/alice"


def play(steps: Callable[[World, Operator], Awaitable[None]], **options: Any) -> None:
    async def with_cluster(world: World, operator: Operator) -> None:
        body = cluster_body(listeners=[SECURE, MUTUAL])
        body["spec"]["brokers"]["replicas"] = 1
        world.api.put(body)
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "the cluster is ready")
        await steps(world, operator)

    run_virtual(scenario(with_cluster, **options)())


def user_body(name: str = "alice", **spec: Any) -> Object:
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "User",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"cluster": "demo", **spec},
    }


def files(world: World, secret: str) -> dict[str, str]:
    return {
        key: base64.b64decode(value).decode("latin-1") for key, value in world.get(Kind.SECRET, secret)["data"].items()
    }


def rules(world: World, path: str = ORDERS) -> set[str]:
    """The rules of a pattern, as text."""
    node = world.tree.nodes.get(path)
    found = frozenset() if node is None else decode_rules(path, node.data)
    return {f"{rule.permission.name} {rule.principal} {rule.operation.name}" for rule in found}


def settings(world: World, path: str = ALICE) -> dict[str, str]:
    return layout.decode_config(path, world.tree.node(path).data) if path in world.tree.nodes else {}


def knows(world: World, password: str) -> bool:
    """Whether the credential of alice is that of a password."""
    text = settings(world).get(SHA_512.name)
    if text is None:
        return False
    found = ScramCredential.from_text(SHA_512, text)
    salted = salted_password(SHA_512, password, found.salt, found.iterations)
    return credential_from_salted(SHA_512, salted, found.salt, found.iterations) == found


def status(world: World, name: str = "alice") -> Object:
    found: Object = world.get(Kind.USER, name).get("status") or {}
    return found


def test_a_user_gets_a_password_rights_and_quotas() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(user_body(authentication=SCRAM, acls=[READ], quotas={"producerByteRate": 1_000}))
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready")
        found = files(world, "alice")
        assert set(found) == {"password", "ca.crt", "client.properties"}
        assert len(found["password"]) == 32
        assert "security.protocol=SASL_SSL\n" in found["client.properties"]
        assert "bootstrap.servers=demo-kafka-bootstrap.shop.svc:9093\n" in found["client.properties"]
        assert knows(world, found["password"])
        assert settings(world)["producer_byte_rate"] == "1000"
        assert rules(world) == {"ALLOW User:alice READ"}
        assert (status(world)["username"], status(world)["secret"]) == ("alice", "alice")
        assert found["password"] not in json.dumps(
            [world.get(Kind.USER, "alice"), world.tree.node(ALICE).data.decode()]
        )
        owner = world.get(Kind.SECRET, "alice")["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"]) == ("User", world.get(Kind.USER, "alice")["metadata"]["uid"])

    play(steps)


def test_a_user_gets_a_certificate() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(user_body(authentication={"type": "tls"}, acls=[READ]))
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready")
        found = files(world, "alice")
        assert set(found) == {"user.crt", "user.key", "user.p12", "user.password", "ca.crt", "client.properties"}
        certificate = x509.load_pem_x509_certificates(found["user.crt"].encode())[0]
        assert certificate.subject.rfc4514_string() == "CN=alice"
        assert rules(world) == {"ALLOW User:CN=alice READ"}
        assert "ssl.keystore.key=-----BEGIN PRIVATE KEY-----\\u000a" in found["client.properties"]

    play(steps)


def test_a_new_password_on_request() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(user_body(authentication=SCRAM))
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready")
        before = files(world, "alice")["password"]
        world.change(Kind.USER, "alice", {"metadata": {"annotations": {"odradek.dev/new-password": "1"}}})
        await until(lambda: files(world, "alice")["password"] != before, "another password")
        await until(lambda: knows(world, files(world, "alice")["password"]), "brokers know it")
        now = files(world, "alice")["password"]
        world.change(Kind.USER, "alice", {"spec": {"quotas": {"requestPercentage": 50}}})
        await until(lambda: settings(world).get("request_percentage") == "50.0", "a later change")
        assert files(world, "alice")["password"] == now

    play(steps)


def test_a_password_of_a_secret() -> None:
    source = {"valueFrom": {"secretKeyRef": {"name": "mine", "key": "alice"}}}

    def secret(content: bytes | None) -> Object:
        data = {} if content is None else {"alice": base64.b64encode(content).decode()}
        metadata = {"name": "mine", "namespace": NAMESPACE}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}

    def reason(world: World) -> str:
        return condition(world.get(Kind.USER, "alice"))[1]

    async def steps(world: World, operator: Operator) -> None:
        world.api.put(user_body(authentication={**SCRAM, "password": source}, acls=[READ]))
        await until(lambda: reason(world) == "NoPassword", "it is missing")
        assert "Secret shop/mine with the password does not exist" in str(status(world))
        assert rules(world) == set(), "nothing is made without a login"
        for content, expected in ((None, "NoPassword"), (b"\xff", "PasswordUnusable"), (b"a\0b", "PasswordUnusable")):
            if world.find(Kind.SECRET, "mine") is not None:
                world.delete(Kind.SECRET, "mine")
            world.api.put(secret(content))
            await until(lambda expected=expected: reason(world) == expected, f"{content!r}")
        world.delete(Kind.SECRET, "mine")
        world.api.put(secret(b"hunter 2\n"))
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready")
        assert files(world, "alice")["password"] == "hunter 2"
        assert knows(world, "hunter 2")
        world.change(Kind.SECRET, "mine", {"data": {"alice": base64.b64encode(b"other").decode()}})
        await until(lambda: knows(world, "other"), "a change is followed")
        assert files(world, "alice")["password"] == "other"
        world.change(Kind.USER, "alice", {"spec": {"authentication": {"password": None}}})
        world.change(Kind.USER, "alice", {"metadata": {"annotations": {"odradek.dev/new-password": "1"}}})
        await until(lambda: len(files(world, "alice")["password"]) == 32, "the operator makes one")
        assert world.get(Kind.SECRET, "mine")["data"]["alice"] == base64.b64encode(b"other").decode()

    play(steps)


def test_a_request_for_a_new_password_that_is_given_is_refused_with_a_warning() -> None:
    source = {"valueFrom": {"secretKeyRef": {"name": "mine", "key": "alice"}}}

    def ask(world: World, value: str | None) -> None:
        world.change(Kind.USER, "alice", {"metadata": {"annotations": {"odradek.dev/new-password": value}}})

    def warnings(world: World) -> list[str]:
        found: list[str] = status(world).get("warnings") or []
        return found

    async def steps(world: World, operator: Operator) -> None:
        data = {"alice": base64.b64encode(b"given").decode()}
        metadata = {"name": "mine", "namespace": NAMESPACE}
        world.api.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
        world.api.put(user_body(authentication={**SCRAM, "password": source}))
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready")
        assert warnings(world) == []
        ask(world, "1")
        await until(lambda: warnings(world), "there is a warning")
        (warning,) = warnings(world)
        assert "odradek.dev/new-password has no effect" in warning
        assert "entry alice of Secret shop/mine" in warning
        assert world.ready(Kind.USER, "alice")
        assert files(world, "alice")["password"] == "given"
        ask(world, None)
        await until(lambda: not warnings(world), "the warning ends with the request")
        ask(world, "2")
        await until(lambda: warnings(world), "there is a warning again")
        world.change(Kind.USER, "alice", {"spec": {"authentication": {"password": None}}})
        await until(lambda: knows(world, files(world, "alice")["password"]) and not warnings(world), "it is made")
        assert len(files(world, "alice")["password"]) == 32

    play(steps)


def test_a_request_that_was_granted_is_no_reason_for_a_warning_later() -> None:
    source = {"valueFrom": {"secretKeyRef": {"name": "mine", "key": "alice"}}}

    async def steps(world: World, operator: Operator) -> None:
        body = user_body(authentication=SCRAM)
        body["metadata"]["annotations"] = {"odradek.dev/new-password": "1"}
        world.api.put(body)
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready")
        data = {"alice": base64.b64encode(b"given").decode()}
        metadata = {"name": "mine", "namespace": NAMESPACE}
        world.api.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
        world.change(Kind.USER, "alice", {"spec": {"authentication": {"password": source}}})
        await until(lambda: knows(world, "given") and world.ready(Kind.USER, "alice"), "it has the given password")
        assert "warnings" not in status(world)

    play(steps)


def test_a_deletion_takes_rights_password_and_quotas_but_not_those_of_others() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(user_body(authentication=SCRAM, acls=[READ], quotas={"producerByteRate": 1}))
        world.api.put(user_body("bob", authentication=SCRAM, acls=[READ]))
        await until(lambda: world.ready(Kind.USER, "alice", "bob"), "they are ready")
        world.delete(Kind.USER, "alice")
        await until(lambda: world.find(Kind.USER, "alice") is None, "it is gone")
        assert rules(world) == {"ALLOW User:bob READ"}
        assert settings(world) == {}
        assert "/odradek/users/alice" not in world.tree.nodes

    play(steps)


def test_rights_go_even_if_the_finalizer_was_removed_by_hand() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(user_body(authentication=SCRAM, acls=[READ]))
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready")
        operator.deaf = True
        world.change(Kind.USER, "alice", {"metadata": {"finalizers": None}})
        world.delete(Kind.USER, "alice")
        assert world.find(Kind.USER, "alice") is None
        operator.deaf = False
        await until(lambda: not rules(world) and not settings(world), "the rights are gone after the resync")

    play(steps)


def test_changes_by_others_are_corrected_and_their_own_stay() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(user_body(authentication=SCRAM, acls=[READ]))
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready")
        others = layout.encode_config({"consumer_byte_rate": "5"})
        world.tree.nodes[ALICE] = replace(world.tree.nodes[ALICE], data=others)
        await until(lambda: knows(world, files(world, "alice")["password"]), "the password is known again")
        assert settings(world)["consumer_byte_rate"] == "5"

    play(steps)


def test_a_secret_of_somebody_else_is_not_touched() -> None:
    async def steps(world: World, operator: Operator) -> None:
        theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "alice", "namespace": NAMESPACE}}
        world.api.put({**theirs, "data": {"password": "bXkgb3du"}})
        world.api.put(user_body(authentication=SCRAM))
        await until(lambda: condition(world.get(Kind.USER, "alice")) == ("False", "ForeignObject"), "it is refused")
        assert world.get(Kind.SECRET, "alice")["data"] == {"password": "bXkgb3du"}
        assert settings(world) == {}

    play(steps)


def test_two_users_with_one_identity() -> None:
    async def steps(world: World, operator: Operator) -> None:
        account = {"type": "serviceaccount", "serviceAccount": {"name": "spark"}}
        world.api.put(user_body("first", authentication=account, acls=[READ]))
        await until(lambda: world.ready(Kind.USER, "first"), "it is ready")
        assert "The access rules and the quotas are as specified." in str(status(world, "first"))
        warnings = status(world, "first")["warnings"]
        assert warnings == [
            "No listener of Cluster demo has authentication of type serviceaccount, so this user cannot log in."
        ]
        world.api.put(user_body("a-second", authentication=account))
        await until(lambda: condition(world.get(Kind.USER, "a-second")) == ("False", "DuplicateUser"), "it is refused")
        assert rules(world) == {"ALLOW User:system:serviceaccount:shop:spark READ"}
        world.delete(Kind.USER, "first")
        await until(lambda: world.ready(Kind.USER, "a-second"), "the other one has the identity")
        assert rules(world) == set()

    play(steps)


def test_another_type_of_login_is_another_identity() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(user_body(authentication=SCRAM, acls=[READ]))
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready")
        world.change(Kind.USER, "alice", {"spec": {"authentication": {"type": "tls"}}})
        await until(lambda: rules(world) == {"ALLOW User:CN=alice READ"}, "the rights have moved")
        assert settings(world) == {}

    play(steps)


def test_a_paused_user_and_one_without_a_cluster() -> None:
    async def steps(world: World, operator: Operator) -> None:
        body = user_body(authentication=SCRAM)
        body["metadata"]["annotations"] = {"odradek.dev/paused": "true"}
        world.api.put(body)
        lonely = user_body("bob", authentication=SCRAM)
        lonely["spec"]["cluster"] = "other"
        world.api.put(lonely)
        await until(lambda: condition(world.get(Kind.USER, "alice")) == ("Unknown", "Paused"), "it is paused")
        await until(lambda: condition(world.get(Kind.USER, "bob")) == ("False", "NoCluster"), "it has no cluster")
        assert world.find(Kind.SECRET, "alice") is None

    play(steps)


def test_a_failure_of_zookeeper_is_reported_and_passes() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(user_body(authentication=SCRAM))
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready")
        await operator.lose_zookeeper(ConnectionLost("the network is gone"))
        unreachable = ("Unknown", "ZooKeeperUnreachable")
        await until(lambda: condition(world.get(Kind.USER, "alice")) == unreachable, "it is reported")
        operator.zookeeper_trouble = None
        await until(lambda: world.ready(Kind.USER, "alice"), "it is ready again", seconds=60)

    play(steps)
