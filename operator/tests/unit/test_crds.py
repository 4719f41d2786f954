"""Cluster and Topic resources: defaults, every field, every complaint."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_operator.crds import (
    Cluster,
    Deletion,
    Listener,
    ListenerType,
    Resources,
    Topic,
    Volume,
    read_resources,
    same_spec,
)
from odradek_operator.documents import LocatedMapping, parse_documents
from odradek_operator.errors import ResourceError

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"

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
        storage: {volumes: [{id: 0, size: 100Gi, storageClass: local-ssd}, {id: 1, size: 10}]}
        rack: {topologyKey: zone, names: [east, west]}
        resources: {limits: {cpu: 2, memory: 2Gi}, requests: {cpu: 500m}}
        config: {min.insync.replicas: 2, auto.create.topics.enable: false, log.cleaner.min.cleanable.ratio: 0.25}
      listeners:
      - {name: plain, port: 9092}
      - {name: tls, port: 9093, type: internal, tls: true, authentication: {type: scram-sha-512}}
      - {name: external, port: 9094, type: nodeport, tls: true, authentication: {type: tls}}
      zookeeper: {connect: "zk-0:2181/kafka"}
    """
    document = f"apiVersion: odradek.dev/v1\nkind: Cluster\nmetadata: {{name: demo, generation: 7}}\nspec:{text}"
    found = read(document).clusters["demo"]
    assert found.generation == 7
    assert found.version == "0.2.0"
    assert found.brokers.replicas == 5
    assert found.brokers.volumes == (
        Volume(id=0, size="100Gi", storage_class="local-ssd"),
        Volume(id=1, size="10"),
    )
    assert found.brokers.rack_topology_key == "zone"
    assert found.brokers.rack_names == ("east", "west")
    assert found.brokers.config == {
        "min.insync.replicas": "2",
        "auto.create.topics.enable": "false",
        "log.cleaner.min.cleanable.ratio": "0.25",
    }
    assert found.listeners == (
        Listener(name="plain", port=9092),
        Listener(name="tls", port=9093, tls=True, authentication="scram-sha-512"),
        Listener(name="external", port=9094, type=ListenerType.NODE_PORT, tls=True, authentication="tls"),
    )
    assert found.zookeeper.connect == "zk-0:2181/kafka"


def test_every_field_of_a_topic() -> None:
    spec = "{cluster: demo, partitions: 12, replicas: 2, config: {retention.ms: 60000}, deletion: Delete}"
    assert read(CLUSTER, topic(spec)).topics["orders"] == Topic(
        name="orders",
        cluster="demo",
        partitions=12,
        replicas=2,
        config={"retention.ms": "60000"},
        deletion=Deletion.DELETE,
    )


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("{brokers: {replicas: none}}", "spec.brokers.replicas: must be a whole number from 1 to 1000, found 'none'."),
        ("{brokers: {replicas: 0}}", "spec.brokers.replicas: must be a whole number from 1 to 1000, found 0."),
        ("{brokers: {replicas: true}}", "spec.brokers.replicas: must be a whole number from 1 to 1000, found True."),
        ("{brokers: 3}", "spec.brokers: must be a mapping, found 3."),
        ("{brokers: {replica: 3}}", "spec.brokers.replica: is not a field here (did you mean replicas?)"),
        ("{brokers: {config: [a]}}", "spec.brokers.config: must be a mapping, found a list."),
        ("{brokers: {config: {a: {b: c}}}}", "spec.brokers.config.a: must be text, a number, true or false, found a m"),
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
            "{brokers: {storage: {volumes: [{id: 1, size: 1}, {id: 1, size: 1}]}}}",
            "spec.brokers.storage.volumes[1].id: must be different from the other volumes' ids, found 1.",
        ),
        ("{brokers: {storage: {volumes: [x]}}}", "spec.brokers.storage.volumes: entry 0 must be a mapping, found 'x'."),
        ("{brokers: {rack: {}}}", "spec.brokers.rack.topologyKey: must be text that is not empty, and it is missing."),
        ("{brokers: {rack: {names: east}}}", "spec.brokers.rack.names: must be a list of text that is not empty"),
        ("{brokers: {rack: {names: [1]}}}", "spec.brokers.rack.names: must be a list of text that is not empty"),
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
            "spec.listeners[0].authentication.type: must be tls, scram-sha-256 or scram-sha-512, found 'plain'.",
        ),
        ("{zookeeper: {replicas: 2}}", "spec.zookeeper.replicas: must be odd"),
        ("{zookeeper: {connect: 'a:1', replicas: 3}}", "spec.zookeeper.connect: names an ensemble that is there"),
    ],
)
def test_what_is_wrong_with_a_cluster(spec: str, complaint: str) -> None:
    found = complaints(cluster(spec))
    assert len(found) == 1
    assert found[0].startswith(complaint)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("{}", "spec.cluster: must be lower-case letters"),
        ("{cluster: dema}", "spec.cluster: there is no Cluster dema (did you mean demo?)."),
        ("{cluster: demo, partitions: 0}", "spec.partitions: must be a whole number from 1 to 100000, found 0."),
        ("{cluster: demo, partitions: '3'}", "spec.partitions: must be a whole number from 1 to 100000, found '3'."),
        ("{cluster: demo, replicas: 4}", "spec.replicas: must be at most 3, the number of brokers of Cluster demo"),
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
def test_what_is_wrong_with_a_topic(spec: str, complaint: str) -> None:
    found = complaints(CLUSTER, topic(spec))
    assert len(found) == 1
    assert found[0].startswith(complaint)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{kind: Topic, metadata: {name: a}, spec: {cluster: demo}}", "apiVersion: must be odradek.dev/v1, and it is"),
        (
            "{apiVersion: odradek.dev/v2, kind: Topic, metadata: {name: a}, spec: {cluster: demo}}",
            "apiVersion: must be odradek.dev/v1, found 'odradek.dev/v2'.",
        ),
        (
            "{apiVersion: odradek.dev/v1, kind: Topik, metadata: {name: a}, spec: {}}",
            "kind: must be Cluster or Topic, found 'Topik'.",
        ),
        (
            "{apiVersion: odradek.dev/v1, kind: User, metadata: {name: a}, spec: {}}",
            "kind: User resources come with a later version",
        ),
        (
            "{apiVersion: odradek.dev/v1, kind: Topic, spec: {cluster: demo}}",
            "metadata: must be a mapping with a name, and it is missing.",
        ),
        (topic("{cluster: demo}", "A_b"), "metadata.name: must be lower-case letters"),
        (topic("{cluster: demo}", "a" * 250), "metadata.name: must be at most 249 characters long"),
        ("{apiVersion: odradek.dev/v1, kind: Topic, metadata: {name: a}}", "spec: must be a mapping, and it is miss"),
        (CLUSTER, "metadata.name: this Cluster is described twice, also in f.yaml."),
    ],
)
def test_what_is_wrong_with_a_document(document: str, complaint: str) -> None:
    found = complaints(CLUSTER, document)
    assert len(found) == 1
    assert found[0].startswith(complaint)


def test_every_problem_is_told_with_file_line_and_resource() -> None:
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


def test_what_has_no_effect_is_noticed_and_no_error() -> None:
    resources = read(
        cluster("{brokers: {config: {log.segmnt.bytes: 100}}}"), "{apiVersion: v1, kind: ConfigMap, data: {}}"
    )
    assert list(resources.clusters) == ["demo"]
    first, second = resources.notices
    assert first.startswith("Cluster demo: log.segmnt.bytes is not a setting")
    assert "did you mean log.segment.bytes?" in first
    assert second.startswith("f.yaml:3: a resource of v1 is none of ours")


def test_status_and_unknown_metadata_are_left_to_kubernetes() -> None:
    read(
        "{apiVersion: odradek.dev/v1, kind: Cluster, metadata: {name: demo, labels: {a: b}, uid: x}, spec: {}, "
        "status: {anything: goes}}"
    )


def test_resources_differ_by_specification_and_not_by_generation() -> None:
    one = Topic(name="t", cluster="c", partitions=1, generation=1)
    assert same_spec(one, Topic(name="t", cluster="c", partitions=1, generation=9))
    assert not same_spec(one, Topic(name="t", cluster="c", partitions=2, generation=1))


def test_the_examples_are_right() -> None:
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
        st.sampled_from(["cluster", "partitions", "replicas", "config", "deletion", "other"]),
        values | st.dictionaries(st.text(max_size=5), values, max_size=2),
    )
)
def test_nothing_in_a_specification_is_more_than_a_problem(spec: dict[str, object]) -> None:
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
