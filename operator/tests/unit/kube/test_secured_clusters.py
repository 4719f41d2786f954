"""Clusters with TLS: their Secrets, and the change of a running cluster, one roll after the other."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from cryptography import x509

from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.objects import names
from odradek_operator.objects.names import BrokerLink
from odradek_operator.security.authorities import is_signed_by, new_authority
from odradek_operator_testkit.company import company_authority
from odradek_operator_testkit.deaths import killed_or, play_deaths, replaced
from odradek_operator_testkit.surroundings import Operator, World, cluster_body, condition, scenario, until
from odradek_testkit.loop import run_virtual

PLAIN = {"name": "plain", "port": 9092, "type": "internal"}
SECURE = {"name": "secure", "port": 9093, "type": "internal", "tls": True, "authentication": {"type": "scram-sha-512"}}
MUTUAL = {"name": "mutual", "port": 9094, "type": "internal", "tls": True, "authentication": {"type": "tls"}}
PODS = ["demo-kafka-0", "demo-kafka-1", "demo-kafka-2"]
SECRETS = [
    names.cluster_ca("demo"),
    names.cluster_ca_cert("demo"),
    names.clients_ca("demo"),
    names.clients_ca_cert("demo"),
    names.kafka_certs("demo"),
    names.operator_certs("demo"),
]


def play(steps: Callable[[World, Operator], Awaitable[None]], **options: Any) -> None:
    run_virtual(scenario(steps, **options)())


def cluster(*listeners: Object, **spec: Any) -> Object:
    body = cluster_body(listeners=list(listeners), **spec)
    body["spec"]["brokers"]["replicas"] = 3
    return body


def files(world: World, secret: str) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in world.get(Kind.SECRET, secret)["data"].items()}


def link_of(template: Object) -> str:
    variables = template["spec"]["containers"][0]["env"]
    return next((str(one["value"]) for one in variables if one["name"] == "BROKER_LINK"), BrokerLink.PLAINTEXT.value)


def properties(world: World) -> str:
    text: str = world.get(Kind.CONFIG_MAP, names.kafka_config("demo"))["data"][names.BROKER_PROPERTIES]
    return text


def test_a_new_cluster_has_tls_from_the_start() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(SECURE, MUTUAL))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")

        assert not world.deleted_pods, "nothing had to restart"
        assert all(link_of(world.get(Kind.POD, pod)) == "tls" for pod in PODS)
        found = files(world, names.kafka_certs("demo"))
        assert set(found) == {"cluster-ca.crt", "clients-ca.crt", *(f"broker-{number}.pem" for number in range(3))}
        certificate = x509.load_pem_x509_certificates(found["broker-1.pem"])[0]
        assert certificate.subject.rfc4514_string() == "CN=demo-kafka,O=odradek.dev"
        named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = named.get_values_for_type(x509.DNSName)
        assert {"demo-kafka-1.demo-kafka-brokers.shop.svc", "demo-kafka-bootstrap.shop.svc"} <= set(hosts)
        text = properties(world)
        assert "listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512\n" in text
        assert "super.users=User:CN=demo-kafka,O=odradek.dev;User:CN=demo-operator,O=odradek.dev\n" in text
        assert "PRIVATE KEY" not in str(world.get(Kind.CLUSTER, "demo")) + text

    play(steps)


def test_a_running_cluster_changes_in_three_rolls_and_serves_the_listener_afterwards() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(PLAIN))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        assert all(world.find(Kind.SECRET, secret) is None for secret in SECRETS)
        before = properties(world)
        seen: list[set[str]] = []

        def watch() -> bool:
            pods = [body for pod in PODS if (body := world.find(Kind.POD, pod)) is not None]
            links = {link_of(pod) for pod in pods}
            if not seen or seen[-1] != links:
                seen.append(links)
            return world.ready(Kind.CLUSTER, "demo")

        world.change(Kind.CLUSTER, "demo", {"spec": {"listeners": [PLAIN, SECURE]}})
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo"))[1] == "ChangingToTls", "the status says so")
        await until(watch, "it is ready again")
        order = [link.value for link in BrokerLink]
        assert all(len(links) <= 2 for links in seen), seen
        positions = [sorted(order.index(link) for link in links) for links in seen if links]
        assert all(found[-1] - found[0] <= 1 for found in positions), "neighbours only: each accepts the other"
        assert positions[-1] == [3]
        assert world.deleted_pods.count("demo-kafka-0") == 3
        assert "super.users=" in properties(world)
        assert "User:ANONYMOUS" in properties(world), "clients of the open listener keep their rights"

        world.change(Kind.CLUSTER, "demo", {"spec": {"listeners": [SECURE]}})
        await until(lambda: "User:ANONYMOUS" not in properties(world), "the cluster is closed")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready again")
        assert properties(world) != before

    play(steps)


def test_brokers_get_the_keys_of_the_api_server_for_tokens_of_pods() -> None:
    pods = {**SECURE, "name": "pods", "port": 9095, "authentication": {"type": "serviceaccount"}}
    secret, key = names.kafka_certs("demo"), "service-account-keys.json"

    async def steps(world: World, operator: Operator) -> None:
        keys, world.api.token_keys = world.api.token_keys, None
        world.api.put(cluster(SECURE))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready: it needs no keys")
        assert key not in files(world, secret)

        world.change(Kind.CLUSTER, "demo", {"spec": {"listeners": [SECURE, pods]}})
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo"))[1] == "TokenKeysRefused", "the status says so")
        assert "system:service-account-issuer-discovery" in str(world.get(Kind.CLUSTER, "demo")["status"])
        world.api.token_keys = keys
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        assert json.loads(files(world, secret)[key]) == {"keys": keys}

        world.api.token_keys = [{"kty": "RSA", "kid": "two"}]
        await until(lambda: b"two" in files(world, secret)[key], "new keys follow")
        world.change(Kind.CLUSTER, "demo", {"spec": {"listeners": [SECURE]}})
        await until(lambda: key not in files(world, secret), "they go with the listener")

    play(steps)


def test_an_operator_that_was_killed_continues() -> None:
    """At each write: the next operator makes no second authority, and goes on with the change."""

    async def steps(world: World, operator: Operator) -> None:
        def is_ready() -> bool:
            return world.ready(Kind.CLUSTER, "demo")

        world.api.put(cluster(SECURE))
        await killed_or(operator, is_ready)
        made = world.find(Kind.SECRET, names.cluster_ca("demo"))
        await replaced(world, operator, is_ready)
        assert made is None or world.get(Kind.SECRET, names.cluster_ca("demo"))["data"] == made["data"]
        assert all(link_of(world.get(Kind.POD, pod)) == "tls" for pod in PODS)

    play_deaths(steps, lives=0, stride=3)


def accept_each_other(world: World) -> None:
    """Each broker trusts the certificate of every other one, with the files that they have read."""
    for mine in world.mounted.values():
        trusted = x509.load_pem_x509_certificates(mine["cluster-ca.crt"])
        for broker, theirs in world.mounted.items():
            (leaf, *_) = x509.load_pem_x509_certificates(theirs[f"broker-{broker}.pem"])
            assert any(is_signed_by(leaf, authority) for authority in trusted), broker


def test_an_authority_is_replaced_step_by_step_while_brokers_read_their_files_one_after_the_other() -> None:
    secret, authority, trust = names.kafka_certs("demo"), names.cluster_ca("demo"), names.cluster_ca_cert("demo")

    def trusted(world: World) -> list[x509.Certificate]:
        return x509.load_pem_x509_certificates(files(world, trust)["ca.crt"])

    def warnings(world: World) -> str:
        return " ".join(world.get(Kind.CLUSTER, "demo")["status"].get("warnings", []))

    def is_waiting_for(world: World, broker: int, waiting: str) -> bool:
        return waiting in warnings(world) and f"broker {broker}" in warnings(world)

    async def all_read(world: World, waiting: str) -> None:
        """Let the brokers read the files one after the other; the replacement waits for the last one."""
        for broker in (2, 0, 1):
            await until(lambda broker=broker: is_waiting_for(world, broker, waiting), "it waits")
            world.read_secrets(broker)
            accept_each_other(world)

    async def steps(world: World, operator: Operator) -> None:
        world.mounts_follow = False
        wanted = cluster(SECURE, certificateAuthorities={"cluster": {"graceHours": 0}})
        world.api.put(wanted)
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        world.read_secrets(0, 1, 2)
        (old,), leaves = trusted(world), files(world, secret)
        deleted = list(world.deleted_pods)

        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {"odradek.dev/replace-cluster-ca": "1"}}})
        await until(lambda: len(trusted(world)) == 2, "both are trusted")
        assert files(world, secret)["broker-0.pem"] == leaves["broker-0.pem"], "the old one signs"
        await all_read(world, "must trust the new authority")
        await until(lambda: files(world, secret)["broker-0.pem"] != leaves["broker-0.pem"], "the new one signs")
        assert old in trusted(world)
        await all_read(world, "must use its certificate")
        await until(lambda: len(trusted(world)) == 1, "the old one is not trusted any more")
        world.read_secrets(0, 1, 2)
        accept_each_other(world)
        assert trusted(world) != [old]
        assert set(files(world, authority)) == {"ca.crt", "ca.key", "changed", "replaced"}
        await until(lambda: "authority" not in warnings(world), "nothing waits")
        assert world.deleted_pods == deleted, "no broker restarted"

    play(steps)


def test_users_get_certificates_of_the_new_authority_before_the_old_one_goes() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(SECURE, MUTUAL, certificateAuthorities={"clients": {"graceHours": 0}}))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        spec = {"cluster": "demo", "authentication": {"type": "tls"}}
        metadata = {"name": "alice", "namespace": "shop"}
        world.api.put({"apiVersion": "odradek.dev/v1", "kind": "User", "metadata": metadata, "spec": spec})
        await until(lambda: world.ready(Kind.USER, "alice"), "the user is ready")
        before = files(world, "alice")["user.crt"]
        valid = []

        def is_replaced() -> bool:
            certificates = x509.load_pem_x509_certificates(files(world, names.kafka_certs("demo"))["clients-ca.crt"])
            (leaf, *_) = x509.load_pem_x509_certificates(files(world, "alice")["user.crt"])
            valid.append(any(is_signed_by(leaf, authority) for authority in certificates))
            return len(certificates) == 1 and files(world, "alice")["user.crt"] != before

        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {"odradek.dev/replace-clients-ca": "1"}}})
        await until(is_replaced, "the authority and the certificate are new")
        assert all(valid)

    play(steps)


def test_a_request_to_replace_a_given_authority_is_answered() -> None:
    async def steps(world: World, operator: Operator) -> None:
        now = datetime.now(UTC)
        given = new_authority("company", validity_days=30, now=now)
        data = {"ca.crt": given.certificate_pem.encode(), "ca.key": given.key_pem.encode()}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        metadata = {"name": "company", "namespace": "shop"}
        world.api.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})
        body = cluster(SECURE, certificateAuthorities={"cluster": {"secretName": "company"}})
        body["metadata"]["annotations"] = {"odradek.dev/replace-cluster-ca": "1"}
        world.api.put(body)
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        status = str(world.get(Kind.CLUSTER, "demo")["status"])
        assert "the operator did not make the cluster authority in Secret company" in status

    play(steps)


def test_cert_manager_issues_an_authority() -> None:
    """The test plays cert-manager: it stores the authority in the Secret that the Certificate names, in the form that
    `tests/e2e/test_cert_manager.py` finds with the real one."""
    certificate = names.clients_ca("demo")

    async def steps(world: World, operator: Operator) -> None:
        issuer = {"name": "company", "kind": "ClusterIssuer"}
        source = {"issuerRef": issuer, "validityDays": 30}
        world.api.put(cluster(SECURE, MUTUAL, certificateAuthorities={"clients": source}))
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo"))[1] == "AuthorityUnusable", "it waits")
        assert "see the Certificate demo-clients-ca" in str(world.get(Kind.CLUSTER, "demo")["status"]["conditions"])
        wanted = world.get(Kind.CERTIFICATE, certificate)["spec"]
        assert wanted["isCA"]
        assert wanted["issuerRef"] == {**issuer, "group": "cert-manager.io"}
        assert (wanted["duration"], wanted["renewBefore"]) == ("720h", "360h")
        assert wanted["privateKey"]["rotationPolicy"] == "Never"

        company = company_authority("company", now=datetime.now(UTC))
        made = company_authority("kafka", now=datetime.now(UTC), above=company)
        data = {"tls.crt": made.certificate_pem, "tls.key": made.key_pem, "ca.crt": company.certificate_pem}
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        metadata = {"name": wanted["secretName"], "namespace": "shop"}
        world.api.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        assert files(world, names.kafka_certs("demo"))["clients-ca.crt"] == made.certificate_pem.encode()
        assert world.find(Kind.SECRET, names.clients_ca("demo")) is None, "the operator made none"
        spec = {"cluster": "demo", "authentication": {"type": "tls"}}
        about = {"name": "alice", "namespace": "shop"}
        world.api.put({"apiVersion": "odradek.dev/v1", "kind": "User", "metadata": about, "spec": spec})
        await until(lambda: world.ready(Kind.USER, "alice"), "the user is ready")
        (leaf, *_) = x509.load_pem_x509_certificates(files(world, "alice")["user.crt"])
        assert is_signed_by(leaf, made.certificate)

        world.change(Kind.CLUSTER, "demo", {"spec": {"certificateAuthorities": {"clients": {"issuerRef": None}}}})
        await until(lambda: world.find(Kind.CERTIFICATE, certificate) is None, "it is not needed any more")

    play(steps)


def test_a_secret_of_others_is_not_changed() -> None:
    async def steps(world: World, operator: Operator) -> None:
        theirs = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": names.kafka_certs("demo"), "namespace": "shop"},
            "data": {"a": "Yg=="},
        }
        world.api.put(theirs)
        world.api.put(cluster(SECURE))
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo"))[1] == "ForeignObject", "the status says so")
        assert world.get(Kind.SECRET, names.kafka_certs("demo"))["data"] == theirs["data"]
        assert world.find(Kind.SECRET, names.cluster_ca("demo")) is None

        world.delete(Kind.SECRET, names.kafka_certs("demo"))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")

    play(steps)


def test_what_is_lost_is_made_again_and_the_rest_stays() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(SECURE))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        authority = files(world, names.cluster_ca("demo"))

        world.delete(Kind.SECRET, names.kafka_certs("demo"))
        await until(lambda: world.find(Kind.SECRET, names.kafka_certs("demo")) is not None, "it is back")
        assert files(world, names.cluster_ca("demo")) == authority
        versions = [world.get(Kind.SECRET, secret)["metadata"]["resourceVersion"] for secret in SECRETS]
        world.change(Kind.CLUSTER, "demo", {"spec": {"brokers": {"config": {"min.insync.replicas": 2}}}})
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready again")
        assert [world.get(Kind.SECRET, one)["metadata"]["resourceVersion"] for one in SECRETS] == versions

    play(steps)


def test_a_missing_authority_is_named_in_the_status() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(SECURE, certificateAuthorities={"cluster": {"secretName": "company"}}))
        await until(lambda: condition(world.get(Kind.CLUSTER, "demo"))[1] == "AuthorityUnusable", "the status says so")
        assert "Secret shop/company does not exist" in str(world.get(Kind.CLUSTER, "demo")["status"]["conditions"])

    play(steps)
