"""Reading Cluster and Topic resources: defaults, every field, and every error."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.crds import (
    Cluster,
    ComputeResources,
    Deletion,
    Drift,
    Listener,
    ListenerAuthentication,
    ListenerType,
    Metadata,
    Monitoring,
    NetworkAccess,
    PodTemplate,
    Rebalance,
    Resources,
    Topic,
    Volume,
    ZooKeeper,
    cluster_named,
    notices_of,
    read_metadata,
    read_object,
    read_resources,
    same_spec,
)
from odradek_operator.crds.documents import LocatedMapping, parse_documents
from odradek_operator.crds.fields import quantity_value
from odradek_operator.crds.problems import ResourceError

EXAMPLES = Path(__file__).parents[4] / "manifests" / "examples"

CLUSTER = "{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: demo}, spec: {brokers: {replicas: 3}}}"


def read(*documents: str) -> Resources:
    return read_resources(parse_documents("\n---\n".join(documents), "f.yaml"))


def topic(spec: str, name: str = "orders") -> str:
    return f"{{apiVersion: odradek.dev/v1, kind: Topic, metadata: {{name: {name}}}, spec: {spec}}}"


def cluster(spec: str) -> str:
    return f"{{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {{name: demo}}, spec: {spec}}}"


def complaints(*documents: str) -> list[str]:
    with pytest.raises(ResourceError) as raised:
        read(*documents)
    return [f"{problem.path}: {problem.message}" for problem in raised.value.problems]


def test_defaults() -> None:
    resources = read(cluster("{}"), topic("{cluster: demo}"))
    assert resources.clusters == {"demo": Cluster(name="demo")}
    assert resources.topics == {"orders": Topic(name="orders", cluster="demo")}
    assert resources.clusters["demo"].brokers.replicas == 3
    assert resources.topics["orders"].deletion is Deletion.PROTECT
    assert resources.notices == ()


@pytest.mark.parametrize(("brokers", "given_replicas", "replicas"), [(1, None, 1), (5, None, 3), (5, 2, 2)])
def test_replicas_that_are_not_given_follow_the_brokers(
    brokers: int, given_replicas: int | None, replicas: int
) -> None:
    assert Topic(name="t", cluster="c", replicas=given_replicas).replicas_on(brokers) == replicas


def test_every_field_of_a_cluster() -> None:
    text = """
      version: "0.2.0"
      brokers:
        replicas: 5
        storage:
          volumes: [{id: 0, size: 100Gi, storageClass: local-ssd}, {id: 1, size: 10000000}]
          deleteClaims: true
          releaseLostAfterSeconds: 0
        rack: {topologyKey: zone, names: [east, west]}
        resources: {limits: {cpu: 2, memory: 2Gi}, requests: {cpu: 500m}}
        config: {min.insync.replicas: 2, auto.create.topics.enable: false, log.cleaner.min.cleanable.ratio: 0.25}
        configFrom: [{secretRef: {name: passwords}}]
        image: registry/broker:1
        rebalance: {partitions: 3, throttle: 20Mi}
        template:
          labels: {team: data}
          annotations: {note: "1"}
          nodeSelector: {disk: ssd}
          affinity: {podAntiAffinity: {some: [{deep: 1}]}}
          tolerations: [{key: kafka, operator: Exists}]
          priorityClassName: high
          imagePullSecrets: [{name: pull}]
          terminationGracePeriodSeconds: 90
      listeners:
      - {name: plain, port: 9092}
      - {name: lb, port: 9095, type: loadbalancer, insecure: true}
      - {name: tls, port: 9093, type: internal, tls: true, authentication: {type: scram-sha-512}}
      - {name: external, port: 9094, type: nodeport, tls: true, authentication: {type: tls}}
      zookeeper: {connect: "zk-0:2181/kafka"}
      monitoring:
        podMonitors: true
        rules: true
        dashboards: true
        exporter: {enabled: false, resources: {limits: {cpu: 1}}}
      networkPolicies: false
      networkAccess: {metrics: [{podSelector: {}}], replication: []}
    """
    metadata = "{name: demo, generation: 7, namespace: kafka, uid: u-1, annotations: {odradek.dev/paused: 'true'}}"
    found = read(f"apiVersion: odradek.dev/v1\nkind: Cluster\nmetadata: {metadata}\nspec:{text}").clusters["demo"]
    assert (found.generation, found.namespace, found.uid, found.paused) == (7, "kafka", "u-1", True)
    assert found.version == "0.2.0"
    assert found.brokers.replicas == 5
    assert found.brokers.volumes == (
        Volume(id=0, size="100Gi", storage_class="local-ssd"),
        Volume(id=1, size="10000000"),
    )
    assert (found.brokers.delete_claims, found.brokers.release_lost_after_seconds) == (True, 0)
    assert found.brokers.image == "registry/broker:1"
    assert found.brokers.resources == ComputeResources(limits={"cpu": "2", "memory": "2Gi"}, requests={"cpu": "500m"})
    assert found.brokers.rebalance == Rebalance(partitions=3, throttle_bytes_per_second=20 << 20)
    assert found.brokers.template == PodTemplate(
        labels={"team": "data"},
        annotations={"note": "1"},
        node_selector={"disk": "ssd"},
        affinity={"podAntiAffinity": {"some": [{"deep": 1}]}},
        tolerations=({"key": "kafka", "operator": "Exists"},),
        priority_class_name="high",
        image_pull_secrets=("pull",),
        termination_grace_period_seconds=90,
    )
    assert found.brokers.config_secrets == ("passwords",)
    assert found.network_access == NetworkAccess(metrics=({"podSelector": {}},), replication=())
    assert found.brokers.rack_topology_key == "zone"
    assert found.brokers.rack_names == ("east", "west")
    assert found.brokers.config == {
        "min.insync.replicas": "2",
        "auto.create.topics.enable": "false",
        "log.cleaner.min.cleanable.ratio": "0.25",
    }
    assert found.listeners == (
        Listener(name="plain", port=9092),
        Listener(name="lb", port=9095, type=ListenerType.LOAD_BALANCER, insecure=True),
        Listener(name="tls", port=9093, tls=True, authentication=ListenerAuthentication(type="scram-sha-512")),
        Listener(
            name="external",
            port=9094,
            type=ListenerType.NODE_PORT,
            tls=True,
            authentication=ListenerAuthentication(type="tls"),
        ),
    )
    assert found.zookeeper == ZooKeeper(connect="zk-0:2181/kafka")
    assert found.monitoring == Monitoring(
        pod_monitors=True,
        rules=True,
        dashboards=True,
        exporter=False,
        exporter_resources=ComputeResources(limits={"cpu": "1"}),
    )
    assert found.network_policies is False


def test_every_field_of_an_ensemble() -> None:
    text = """{
      replicas: 5, storage: {size: 10Gi, storageClass: fast, deleteClaims: true}, image: registry/zookeeper:1,
      resources: {requests: {memory: 1Gi}}, template: {priorityClassName: high}, config: {tickTime: 1000}
    }"""
    assert read(cluster(f"{{zookeeper: {text}}}")).clusters["demo"].zookeeper == ZooKeeper(
        replicas=5,
        size="10Gi",
        storage_class="fast",
        delete_claims=True,
        image="registry/zookeeper:1",
        resources=ComputeResources(requests={"memory": "1Gi"}),
        template=PodTemplate(priority_class_name="high"),
        config={"tickTime": "1000"},
    )


def test_every_field_of_a_topic() -> None:
    spec = "{cluster: demo, partitions: 12, replicas: 2, config: {retention.ms: 60000}, deletion: Delete, drift: Adopt}"
    assert read(CLUSTER, topic(spec)).topics["orders"] == Topic(
        name="orders",
        cluster="demo",
        partitions=12,
        replicas=2,
        config={"retention.ms": "60000"},
        deletion=Deletion.DELETE,
        drift=Drift.ADOPT,
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{brokers: {replicas: none}}", "spec.brokers.replicas: must be a whole number from 1 to 1000, found 'none'."),
        ("{brokers: {replicas: 0}}", "spec.brokers.replicas: must be a whole number from 1 to 1000, found 0."),
        ("{brokers: {replicas: true}}", "spec.brokers.replicas: must be a whole number from 1 to 1000, found True."),
        ("{brokers: 3}", "spec.brokers: must be a mapping, found 3."),
        ("{brokers: {replica: 3}}", "spec.brokers.replica: is not a field here (did you mean replicas?)"),
        ("{brokers: {config: [a]}}", "spec.brokers.config: must be a mapping, found a list."),
        (
            "{brokers: {config: {a: {b: c}}}}",
            "spec.brokers.config[a]: must be text, a number, true or false, found a m",
        ),
        ("{brokers: {config: {broker.id: 1}}}", "spec.brokers.config[broker.id]: is set by the operator"),
        (
            "{brokers: {config: {min.insync.replicas: 0}}}",
            "spec.brokers.config[min.insync.replicas]: min.insync.replicas='0' is not allowed: it must be a whole",
        ),
        (
            "{brokers: {storage: {volumes: [{id: 0, size: much}]}}}",
            "spec.brokers.storage.volumes[0].size: must be a quantity such as 100Gi, 2 or 500m, found 'much'.",
        ),
        (
            "{brokers: {storage: {volumes: [{id: 0, size: 100}]}}}",
            "spec.brokers.storage.volumes[0].size: must be at least 1Mi, with its unit, such as 100Gi, found 100.",
        ),
        (
            "{zookeeper: {storage: {size: 10}}}",
            "spec.zookeeper.storage.size: must be at least 1Mi, with its unit, such as 100Gi, found 10.",
        ),
        (
            "{brokers: {storage: {volumes: [{id: 1, size: 1Gi}, {id: 1, size: 1Gi}]}}}",
            "spec.brokers.storage.volumes[1].id: must be different from the other volumes' ids, found 1.",
        ),
        ("{brokers: {storage: {volumes: [x]}}}", "spec.brokers.storage.volumes[0]: must be a mapping, found 'x'."),
        ("{brokers: {rack: {}}}", "spec.brokers.rack.topologyKey: must be text that is not empty, and it is missing."),
        ("{brokers: {rack: {names: east}}}", "spec.brokers.rack.names: must be a list, found 'east'."),
        ("{brokers: {rack: {names: [1]}}}", "spec.brokers.rack.names[0]: must be text that is not empty, found 1."),
        ("{brokers: {resources: {limits: {gpu: 1}}}}", "spec.brokers.resources.limits.gpu: is not a field here"),
        (
            "{listeners: [{name: a, port: 0}]}",
            "spec.listeners[0].port: must be a whole number from 1 to 65535, found 0",
        ),
        ("{listeners: [{name: A-b, port: 1}]}", "spec.listeners[0].name: must be up to 25 lower-case letters"),
        (
            "{listeners: [{name: a, port: 1, type: x}]}",
            "spec.listeners[0].type: must be internal, nodeport or loadbalancer",
        ),
        ("{listeners: [{name: a, port: 1, tls: on-ish}]}", "spec.listeners[0].tls: must be true or false, found 'on-i"),
        (
            "{listeners: [{name: a, port: 1}, {name: b, port: 1}]}",
            "spec.listeners[1].port: must be different from the other listeners', found 1.",
        ),
        (
            "{listeners: [{name: a, port: 1, authentication: {type: tls}}]}",
            "spec.listeners[0].authentication: type tls needs certificates",
        ),
        (
            "{listeners: [{name: a, port: 1, authentication: {type: plain}}]}",
            "spec.listeners[0].authentication.type: must be tls, scram-sha-256, scram-sha-512, oauth or",
        ),
        (
            "{listeners: [{name: a, port: 1, authentication: {type: serviceaccount}}]}",
            "spec.listeners[0].authentication: type serviceaccount sends tokens: set tls: true",
        ),
        (
            "{listeners: [{name: a, port: 1, tls: true, authentication: {type: oauth, issuer: x}}]}",
            "spec.listeners[0].authentication.jwksUrl: must be set for type oauth, and it is missing.",
        ),
        (
            "{listeners: [{name: a, port: 1, authentication: {type: scram-sha-512, audience: x}}]}",
            "spec.listeners[0].authentication.audience: has a meaning for type oauth only: remove it.",
        ),
        (
            "{listeners: [{name: a, port: 1, tls: true, authentication: {type: oauth, issuer: x, jwksUrl: y}}]}",
            "spec.listeners[0].authentication.jwksUrl: must be an address that begins with https:// or http://",
        ),
        (
            '{maintenanceWindows: [{days: [Sat], start: "24:00"}]}',
            "spec.maintenanceWindows[0].start: must be a time of the day from 00:00 to 23:59",
        ),
        (
            "{listeners: [{name: a, port: 9091}]}",
            "spec.listeners[0].port: must be another than 9091 and 9404, which br",
        ),
        (
            "{listeners: [{name: a, port: 9404}]}",
            "spec.listeners[0].port: must be another than 9091 and 9404, which br",
        ),
        ("{listeners: [{name: replication, port: 1}]}", "spec.listeners[0].name: must be another than replication, by"),
        (
            "{brokers: {template: {labels: {a: 1}}}}",
            "spec.brokers.template.labels[a]: must be text: put it in quotes, found 1.",
        ),
        ("{brokers: {template: {affinity: 1}}}", "spec.brokers.template.affinity: must be a mapping, found 1."),
        (
            "{brokers: {template: {label: {}}}}",
            "spec.brokers.template.label: is not a field here (did you mean labels?)",
        ),
        (
            "{brokers: {template: {imagePullSecrets: [a]}}}",
            "spec.brokers.template.imagePullSecrets[0]: must be a mapping",
        ),
        ("{brokers: {rebalance: {throttle: fast}}}", "spec.brokers.rebalance.throttle: must be a quantity such as"),
        (
            "{brokers: {rebalance: {throttle: 100m}}}",
            "spec.brokers.rebalance.throttle: must be at least 1, found '100m'",
        ),
        (
            "{brokers: {storage: {releaseLostAfterSeconds: -1}}}",
            "spec.brokers.storage.releaseLostAfterSeconds: must be",
        ),
        ("{zookeeper: {config: {dataDir: /d}}}", "spec.zookeeper.config[dataDir]: is set by the operator: remove it."),
        ("{zookeeper: {config: {server.1: a}}}", "spec.zookeeper.config[server.1]: is set by the operator: remove it."),
        ("{monitoring: {exporter: {enable: true}}}", "spec.monitoring.exporter.enable: is not a field here"),
        ("{networkPolicies: sometimes}", "spec.networkPolicies: must be true or false, found 'sometimes'."),
        ("{zookeeper: {replicas: 2}}", "spec.zookeeper.replicas: must be odd"),
        (
            "{zookeeper: {connect: 'a:1', replicas: 3}}",
            "spec.zookeeper.connect: names an existing ensemble: remove replicas.",
        ),
    ],
)
def test_what_is_wrong_with_a_cluster(spec: str, message: str) -> None:
    found = complaints(cluster(spec))
    assert len(found) == 1
    assert found[0].startswith(message)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{}", "spec.cluster: must be lower-case letters"),
        ("{cluster: dema}", "spec.cluster: there is no Cluster dema (did you mean demo?)."),
        ("{cluster: demo, partitions: 0}", "spec.partitions: must be a whole number from 1 to 100000, found 0."),
        ("{cluster: demo, partitions: '3'}", "spec.partitions: must be a whole number from 1 to 100000, found '3'."),
        ("{cluster: demo, replicas: 4}", "spec.replicas: must be at most 3, the number of brokers of Cluster demo"),
        ("{cluster: demo, drift: Ignore}", "spec.drift: must be Revert or Adopt, found 'Ignore'."),
        ("{cluster: demo, deletion: delete}", "spec.deletion: must be Protect or Delete, found 'delete'."),
        ("{cluster: demo, partition: 3}", "spec.partition: is not a field here (did you mean partitions?)"),
        (
            "{cluster: demo, config: {retention.mss: 1}}",
            "spec.config[retention.mss]: is not a setting of a topic (did you mean retention.ms?).",
        ),
        (
            "{cluster: demo, config: {cleanup.policy: shred}}",
            "spec.config[cleanup.policy]: cleanup.policy='shred' is not allowed: it must be one of compact, delete.",
        ),
    ],
)
def test_what_is_wrong_with_a_topic(spec: str, message: str) -> None:
    found = complaints(CLUSTER, topic(spec))
    assert len(found) == 1
    assert found[0].startswith(message)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{kind: Topic, metadata: {name: a}, spec: {cluster: demo}}", "apiVersion: must be odradek.dev/v1, and it is"),
        (
            "{apiVersion: odradek.dev/v2, kind: Topic, metadata: {name: a}, spec: {cluster: demo}}",
            "apiVersion: must be odradek.dev/v1, found 'odradek.dev/v2'.",
        ),
        (
            "{apiVersion: odradek.dev/v1, kind: Topik, metadata: {name: a}, spec: {}}",
            "kind: must be Cluster, Topic, User, Pipeline or Mirror, found 'Topik'.",
        ),
        (
            "{apiVersion: odradek.dev/v1, kind: User, metadata: {name: a}, spec: {}}",
            "spec.cluster: must be lower-case letters",
        ),
        (
            "{apiVersion: odradek.dev/v1, kind: Topic, spec: {cluster: demo}}",
            "metadata: must be a mapping with a name, and it is missing.",
        ),
        (topic("{cluster: demo}", "A_b"), "metadata.name: must be lower-case letters"),
        (topic("{cluster: demo}", "a" * 250), "metadata.name: must be at most 249 characters long"),
        ("{apiVersion: odradek.dev/v1, kind: Topic, metadata: {name: a}}", "spec: must be a mapping, and it is miss"),
        (
            "{apiVersion: odradek.dev/v1, kind: Topic, metadata: {name: a}, spec: 3}",
            "spec: must be a mapping, found 3.",
        ),
        (
            "{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: a.b}, spec: {}}",
            "metadata.name: must be lower-case letters, digits and '-', at most 40",
        ),
        (CLUSTER, "metadata.name: this Cluster occurs twice, also in f.yaml."),
    ],
)
def test_what_is_wrong_with_a_document(document: str, message: str) -> None:
    found = complaints(CLUSTER, document)
    assert len(found) == 1
    assert found[0].startswith(message)


def test_every_problem_has_its_file_line_and_resource() -> None:
    text = "\n".join(
        [
            "apiVersion: odradek.dev/v1",
            "kind: Cluster",
            "metadata: {name: demo}",
            "spec:",
            "  brokers:",
            "    replicas: many",
            "    confg: {}",
            "---",
            "apiVersion: odradek.dev/v1",
            "kind: Topic",
            "metadata:",
            "  name: orders",
            "spec:",
            "  cluster: other",
            "  partitions: 0",
        ]
    )
    with pytest.raises(ResourceError) as raised:
        read_resources(parse_documents(text, "m.yaml"))
    assert [line.split(": ")[:3] for line in str(raised.value).splitlines()] == [
        ["m.yaml:6", "Cluster demo", "spec.brokers.replicas"],
        ["m.yaml:7", "Cluster demo", "spec.brokers.confg"],
        ["m.yaml:14", "Topic orders", "spec.cluster"],
        ["m.yaml:15", "Topic orders", "spec.partitions"],
    ]


def test_a_misspelled_property_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ResourceError, match=r"messag.max.bytes\]: is not a setting .*did you mean message.max.b"):
        read(cluster("{brokers: {config: {messag.max.bytes: 100}}}"))


def test_a_setting_that_brokers_would_not_start_with_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"create\.topic\.policy\.class\.name=x is not supported"):
        read_object(as_object(cluster("{brokers: {config: {create.topic.policy.class.name: x}}}")))


def test_parts_without_effect_are_notices_and_not_errors() -> None:
    resources = read(
        cluster("{brokers: {config: {background.threads: 100}}}"), "{apiVersion: v1, kind: ConfigMap, data: {}}"
    )
    assert list(resources.clusters) == ["demo"]
    first, second = resources.notices
    assert first == "Cluster demo: background.threads is a setting of Apache Kafka that has no effect here."
    assert second == "f.yaml:3: ignored, because v1 is not an API version of Odradek."


def test_status_and_unknown_metadata_are_left_to_kubernetes() -> None:
    read(
        "{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: demo, labels: {a: b}, uid: x}, spec: {}, "
        "status: {anything: goes}}"
    )


def as_object(document: str) -> Any:
    """Return a document as an object of the API server: without lines, with metadata that the operator does not use."""
    content = yaml.safe_load(document)
    content["metadata"] |= {
        "generation": 4,
        "namespace": "kafka",
        "uid": "u-1",
        "resourceVersion": "17",
        "finalizers": ["odradek.dev/topic"],
        "managedFields": [{"manager": "kubectl"}],
        "ownerReferences": [{"kind": "Cluster"}],
    }
    return content | {"status": {"conditions": []}}


def test_an_object_of_kubernetes_is_read_like_a_document() -> None:
    assert read_object(as_object(topic("{cluster: demo, config: {retention.ms: 1}}"))) == Topic(
        name="orders", cluster="demo", namespace="kafka", uid="u-1", generation=4, config={"retention.ms": "1"}
    )
    found = read_object(as_object(cluster("{brokers: {config: {log.segmnt.bytes: 1}}}")))
    assert isinstance(found, Cluster)
    assert (found.namespace, found.uid, found.generation, found.paused) == ("kafka", "u-1", 4, False)
    (notice,) = notices_of(found)
    assert "did you mean log.segment.bytes?" in notice


def test_an_object_is_paused_by_its_annotation_alone() -> None:
    content = as_object(cluster("{}"))
    for value, paused in (("true", True), ("no", False)):
        content["metadata"]["annotations"] = {"odradek.dev/paused": value}
        found = read_object(content)
        assert (found.paused, read_metadata(content).paused) == (paused, paused)


def test_problems_of_an_object_have_neither_file_nor_line() -> None:
    with pytest.raises(ResourceError) as raised:
        read_object(as_object(topic("{partitions: 0, cluster: demo, config: {retention.ms: x}}")))
    first, second = str(raised.value).splitlines()
    assert first == "spec.partitions: must be a whole number from 1 to 100000, found 0."
    assert second.startswith("spec.config[retention.ms]: retention.ms='x' is not allowed")


def test_the_brokers_of_a_secured_cluster_keep_a_port_and_a_name() -> None:
    def spec(name: str, port: int, per_pod: int = 1) -> str:
        secured = "{name: s, port: 9093, tls: true, authentication: {type: tls}}"
        return f"{{brokers: {{perPod: {per_pod}}}, listeners: [{secured}, {{name: {name}, port: {port}}}]}}"

    assert len(read(cluster(spec("p", 9090))).clusters["demo"].listeners) == 2, "an embedded cluster has no such port"
    assert isinstance(read_object(as_object(cluster(spec("p", 8090)))), Cluster)
    for refused, path in (
        (spec("p", 9090), "listeners[1].port"),
        (spec("p", 8090, per_pod=2), "listeners[1].port"),
        (spec("replicationtls", 9092), "listeners[1].name"),
    ):
        with pytest.raises(ResourceError, match=re.escape(path)):
            read_object(as_object(cluster(refused)))


def test_names_of_external_listeners_are_short_enough_for_their_services() -> None:
    content = as_object(cluster("{listeners: [{name: abcdefghij, port: 9094, type: nodeport}]}"))
    content["metadata"]["name"] = "c" * 36
    read_object(content)
    content["metadata"]["name"] = "c" * 37
    with pytest.raises(ResourceError, match="must be at most 9 characters long, since its Services"):
        read_object(content)


def test_the_cluster_and_metadata_of_an_invalid_object_are_read() -> None:
    content = as_object(topic("{cluster: demo, partitions: none}"))
    assert cluster_named(content) == "demo"
    assert read_metadata(content) == Metadata(name="orders", namespace="kafka", uid="u-1", generation=4)
    assert [cluster_named(broken) for broken in ({}, {"spec": 1}, {"spec": {"cluster": 3}})] == [None, None, None]
    assert read_metadata({"metadata": "none"}) == Metadata()


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("0.5", "0.5"), ("500m", "0.5"), ("2k", 2000), ("1.5Ki", 1536), ("3Gi", 3 << 30), ("1E", 10**18)],
)
def test_quantities(text: str, value: int | str) -> None:
    assert quantity_value(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "1Bi", "-1", "Gi", "1e3"])
def test_text_that_is_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity_value(text)


def test_resources_differ_by_specification_and_not_by_generation() -> None:
    one = Topic(name="t", cluster="c", partitions=1, generation=1)
    assert same_spec(one, Topic(name="t", cluster="c", partitions=1, generation=9))
    assert not same_spec(one, Topic(name="t", cluster="c", partitions=2, generation=1))


def test_the_examples_are_valid() -> None:
    documents = [
        document
        for path in sorted(EXAMPLES.glob("*.yaml"))
        for document in parse_documents(path.read_text(encoding="utf-8"), path.name)
    ]
    resources = read_resources(documents)
    departures = resources.topics_of("demo")["departures"]
    assert (departures.partitions, departures.replicas) == (12, 3)
    assert resources.clusters["demo"].brokers.replicas == 3
    assert resources.clusters["demo"].brokers.config == {"min.insync.replicas": "2"}
    assert resources.notices == ()


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=4)


@given(
    st.dictionaries(
        st.sampled_from(["cluster", "partitions", "replicas", "config", "deletion", "drift", "other"]),
        values | st.dictionaries(st.text(max_size=5), values, max_size=2),
    )
)
def test_any_specification_is_read_or_has_problems(spec: dict[str, object]) -> None:
    content = LocatedMapping(1)
    content.update(apiVersion="odradek.dev/v1", kind="Topic", metadata=_located({"name": "t"}), spec=_located(spec))
    (demo,) = parse_documents(CLUSTER, "f")
    try:
        topics = read_resources([demo, demo._replace(content=content)]).topics
    except ResourceError as error:
        assert all(problem.path.startswith("spec") for problem in error.problems)
    else:
        assert topics["t"].cluster == "demo"


def _located(value: dict[str, object]) -> LocatedMapping:
    found = LocatedMapping(1)
    found.update({key: _located(item) if isinstance(item, dict) else item for key, item in value.items()})
    return found
