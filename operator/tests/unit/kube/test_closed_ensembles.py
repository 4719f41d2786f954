"""Clusters with TLS and an ensemble of their own: only brokers, operator and exporter connect to it."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from cryptography import x509

from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.objects import names
from odradek_operator.objects.names import EnsembleLink
from odradek_operator.security.authorities import new_authority
from odradek_operator_testkit.deaths import killed_or, play_deaths, replaced
from odradek_operator_testkit.surroundings import Operator, World, cluster_body, scenario, until
from odradek_testkit.loop import run_virtual

PLAIN = {"name": "plain", "port": 9092, "type": "internal"}
SECURE = {"name": "secure", "port": 9093, "type": "internal", "tls": True, "authentication": {"type": "scram-sha-512"}}
BROKERS = ["demo-kafka-0", "demo-kafka-1"]
MEMBER = "demo-zookeeper-0"
ORDER = [link.value for link in EnsembleLink]
TLS_CONNECT = "demo-zookeeper-0.demo-zookeeper-nodes.shop.svc:2182"


def play(steps: Callable[[World, Operator], Awaitable[None]], **options: Any) -> None:
    run_virtual(scenario(steps, **options)())


def cluster(*listeners: Object, **spec: Any) -> Object:
    body = cluster_body(listeners=list(listeners), **{"zookeeper": {"replicas": 1}, **spec})
    body["spec"]["brokers"]["replicas"] = len(BROKERS)
    return body


def files(world: World, secret: str) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in world.get(Kind.SECRET, secret)["data"].items()}


def variable(pod: Object, name: str) -> str | None:
    env = pod["spec"]["containers"][0]["env"]
    return next((str(one["value"]) for one in env if one["name"] == name), None)


def text_of(world: World, config: str, key: str) -> str:
    text: str = world.get(Kind.CONFIG_MAP, config)["data"][key]
    return text


def recorded(world: World) -> str | None:
    link: str | None = world.get(Kind.CONFIG_MAP, names.record("demo"))["data"].get("ensembleLink")
    return link


def test_the_ensemble_of_a_new_cluster_is_closed() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(SECURE))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")

        assert not world.deleted_pods, "nothing had to restart"
        member = text_of(world, names.zookeeper_config("demo"), names.ZOOKEEPER_PROPERTIES)
        assert "clientPortAddress=127.0.0.1\n" in member
        assert "portUnification=false\n" in member
        assert "X509AuthenticationProvider.superUser=CN=demo-operator,O=odradek.dev\n" in member
        broker = text_of(world, names.kafka_config("demo"), names.BROKER_PROPERTIES)
        assert f"zookeeper.connect={TLS_CONNECT}\n" in broker
        assert "zookeeper.set.acl=true\n" in broker
        (port,) = {one["port"] for one in world.get(Kind.SERVICE, "demo-zookeeper-client")["spec"]["ports"]}
        assert port == 2182
        policy = world.get(Kind.NETWORK_POLICY, "demo-zookeeper")["spec"]["ingress"]
        assert {one["port"] for rule in policy for one in rule["ports"]} == {2182, 2888, 3888, 9404}

        (settings,) = {one.connect: one for one in operator.zookeeper_settings}.values()
        assert settings.connect == TLS_CONNECT
        assert settings.tls is not None
        assert settings.owner == ("x509", "CN=demo-kafka,O=odradek.dev")
        assert "PRIVATE KEY" not in repr(settings)
        assert world.tree.nodes["/"].aversion == 1
        assert recorded(world) == "owned"
        (leaf, *_) = x509.load_pem_x509_certificates(files(world, names.zookeeper_certs("demo"))["zookeeper.pem"])
        hosts = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert f"{MEMBER}.demo-zookeeper-nodes.shop.svc" in hosts.get_values_for_type(x509.DNSName)

    play(steps)


def test_a_running_cluster_is_closed_in_steps_in_which_members_accept_what_brokers_use() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(PLAIN))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        assert world.find(Kind.SECRET, names.zookeeper_certs("demo")) is None
        assert recorded(world) is None
        seen: list[str] = []

        def watch() -> bool:
            member = world.find(Kind.POD, MEMBER)
            if member is not None:
                link = EnsembleLink(variable(member, names.ENSEMBLE_LINK) or "plaintext")
                if not seen or seen[-1] != link.value:
                    seen.append(link.value)
                settings = operator.zookeeper_settings[-1]
                assert link.accepts_plain if settings.tls is None else link.accepts_tls
            return world.ready(Kind.CLUSTER, "demo")

        world.change(Kind.CLUSTER, "demo", {"spec": {"listeners": [PLAIN, SECURE]}})
        await until(lambda: not world.ready(Kind.CLUSTER, "demo"), "it changes")
        await until(watch, "it is ready again")
        assert seen == ORDER[:4]
        assert recorded(world) == "owned"
        # The brokers change to TLS among themselves in the same rolls.
        assert [world.deleted_pods.count(pod) for pod in (MEMBER, *BROKERS)] == [3, 3, 3]
        assert world.tree.nodes["/brokers/ids"].aversion == 1

    play(steps)


def test_an_operator_that_was_killed_goes_on_closing() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(PLAIN))
        await killed_or(operator, lambda: world.ready(Kind.CLUSTER, "demo"))
        world.change(Kind.CLUSTER, "demo", {"spec": {"listeners": [SECURE]}})
        await replaced(world, operator, lambda: recorded(world) == "owned" and world.ready(Kind.CLUSTER, "demo"))

    play_deaths(steps, lives=40, stride=23)


def test_the_authority_of_users_is_replaced_beside_a_given_one_of_the_cluster() -> None:
    async def steps(world: World, operator: Operator) -> None:
        given = new_authority("company", validity_days=30, now=datetime.now(UTC))
        data = {"ca.crt": given.certificate_pem, "ca.key": given.key_pem}
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        metadata = {"name": "company", "namespace": "shop"}
        world.api.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})
        sources = {"cluster": {"secretName": "company"}, "clients": {"graceHours": 0}}
        world.api.put(cluster(SECURE, certificateAuthorities=sources))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        before = files(world, names.clients_ca("demo"))["ca.crt"]
        deleted = list(world.deleted_pods)

        def is_replaced() -> bool:
            found = files(world, names.clients_ca("demo"))
            return found["ca.crt"] != before and set(found) == {"ca.crt", "ca.key", "changed", "replaced"}

        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {"odradek.dev/replace-clients-ca": "1"}}})
        await until(is_replaced, "the authority is new")
        assert world.deleted_pods == deleted, "the ensemble does not trust users"

    play(steps)


def test_members_restart_with_each_step_of_a_replaced_authority() -> None:
    async def steps(world: World, operator: Operator) -> None:
        world.api.put(cluster(SECURE, certificateAuthorities={"cluster": {"graceHours": 0}}))
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready")
        before = files(world, names.zookeeper_certs("demo"))
        trusted: list[int] = []

        def is_replaced() -> bool:
            found = files(world, names.zookeeper_certs("demo"))
            count = len(x509.load_pem_x509_certificates(found["cluster-ca.crt"]))
            if not trusted or trusted[-1] != count:
                trusted.append(count)
            return count == 1 and found["zookeeper.pem"] != before["zookeeper.pem"]

        world.change(Kind.CLUSTER, "demo", {"metadata": {"annotations": {"odradek.dev/replace-cluster-ca": "1"}}})
        await until(is_replaced, "the authority is new")
        await until(lambda: world.deleted_pods.count(MEMBER) == 3, "the member used each step")
        await until(lambda: world.ready(Kind.CLUSTER, "demo"), "it is ready again")
        assert trusted == [1, 2, 1]
        assert not set(world.deleted_pods) & set(BROKERS), "brokers follow their files"

    play(steps)
