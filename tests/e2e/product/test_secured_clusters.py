"""Tests clusters with TLS and logins: one from a manifest, and one that was open and changes under load."""

from __future__ import annotations

import base64
import copy
import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from odradek_operator.security.authorities import read_authority
from odradek_operator.security.leaves import LeafNames, LeafUsage, issue
from support.clients import consume_all, produce_all
from support.figures import tell
from support.guide import GUIDE
from support.kubectl import KubectlError
from support.kubernetes import idle_pod
from support.load import running
from support.product import CLUSTER, USER, Demo, small_cluster
from support.waiting import eventually

RECORDS: Final = [str(number) for number in range(200)]
PASSWORD: Final = "a password of alice"
PARTITIONS: Final = 3
_KCAT: Final = re.compile(r"^kcat -L -b BOOTSTRAP .*?[^\\]$", re.MULTILINE | re.DOTALL)
"""The command in the guide, with its continued line."""
_CALL_SECONDS: Final = 30.0
_BROKER_LOGIN: Final = """\
security.protocol=SSL
ssl.keystore.type=PEM
ssl.keystore.location=/etc/odradek-certificates/broker-0.pem
ssl.truststore.type=PEM
ssl.truststore.location=/etc/odradek-certificates/cluster-ca.crt
"""


_ASK_ENSEMBLE: Final = """\
import json, socket, ssl, sys
from kazoo.client import KazooClient
member, keystore, authority = sys.argv[1], sys.argv[2], "/etc/odradek-certificates/cluster-ca.crt"
def tried(action):
    try:
        return action() or "no answer"
    except OSError as error:
        return type(error).__name__
def without_certificate():
    context = ssl.create_default_context(cafile=authority)
    with socket.create_connection((member, 2182), 10) as plain:
        with context.wrap_socket(plain, server_hostname=member) as connection:
            connection.sendall(b"srvr")
            return connection.recv(100).decode()
client = KazooClient(f"{member}:2182", use_ssl=True, certfile=keystore, keyfile=keystore, ca=authority)
client.start(60)
owners = {}
def look(path):
    acls = client.get_acls(path)[0]
    owners[path] = [(each.perms, each.id.scheme, each.id.id) for each in acls]
    for name in client.get_children(path):
        if (path, name) != ("/", "zookeeper"):
            look(f"{path.rstrip('/')}/{name}")
look("/")
client.stop()
plain = tried(lambda: socket.create_connection((member, 2181), 10))
print(json.dumps({"plain": str(plain), "anonymous": tried(without_certificate), "owners": owners}))
"""
"""Python for a broker's pod: who can use a member of the ensemble, and the ACL of each znode."""


def secret(cluster: Demo, name: str) -> dict[str, bytes]:
    """The decoded data of a Secret of the cluster."""
    data = cluster.kubectl.require("secret", f"{cluster.name}-{name}")["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def as_broker(cluster: Demo, *arguments: str, stdin: str | None = None) -> str:
    """Run `odradek` in the pod of broker 0 with the broker's certificate, which is that of a super user."""
    pod, config = f"{cluster.name}-kafka-0", "/tmp/broker.properties"
    cluster.kubectl.execute(pod, "sh", "-c", f"cat > {config}", container="kafka", stdin=_BROKER_LOGIN)
    bootstrap = f"{pod}.{cluster.name}-kafka-brokers.{cluster.kubectl.namespace}.svc:9090"
    return cluster.command(*arguments, "-b", bootstrap, "--command-config", config, stdin=stdin)


def alice(cluster: Demo) -> dict[str, str]:
    """librdkafka's properties for the user alice, with a password."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": secret(cluster, "cluster-ca-cert")["ca.crt"].decode(),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }


def bob(cluster: Demo) -> dict[str, str]:
    """librdkafka's properties for the user CN=bob, with a certificate of the authority of users."""
    found = secret(cluster, "clients-ca")
    now = datetime.now(UTC)
    authority = read_authority(found["ca.crt"], found["ca.key"], where="clients-ca", now=now)
    leaf = issue(authority, LeafNames("bob"), LeafUsage.CLIENT, validity_days=1, now=now)
    return {
        "security.protocol": "SSL",
        "ssl.ca.pem": secret(cluster, "cluster-ca-cert")["ca.crt"].decode(),
        "ssl.certificate.pem": leaf.certificate_pem,
        "ssl.key.pem": leaf.key_pem,
    }


def is_ensemble_closed(cluster: Demo) -> bool:
    """Check that only brokers and operator can use the ensemble, and only they can change a znode."""
    pod, member = f"{cluster.name}-kafka-0", f"{cluster.name}-zookeeper-0.{cluster.name}-zookeeper-nodes"
    host = f"{member}.{cluster.kubectl.namespace}.svc"
    keystore = "/etc/odradek-certificates/broker-0.pem"
    said = cluster.kubectl.execute(pod, "python3", "-c", _ASK_ENSEMBLE, host, keystore, container="kafka")
    found = json.loads(said)
    assert found["plain"] == "ConnectionRefusedError"
    assert found["anonymous"] in ("no answer", "SSLError", "ConnectionResetError"), found["anonymous"]
    brokers = [31, "x509", f"CN={cluster.name}-kafka,O=odradek.dev"]
    assert [path for path, owners in found["owners"].items() if owners[0] != brokers] == ["/consumers"]
    assert found["owners"]["/config/users"] == [brokers], "nobody else reads it"
    return "/brokers/ids/0" in found["owners"]


def make_topic(cluster: Demo, name: str, replicas: int) -> None:
    topic = {
        "apiVersion": "odradek.dev/v1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {"cluster": cluster.name, "partitions": PARTITIONS, "replicas": replicas},
    }
    cluster.kubectl.apply(topic)
    cluster.await_topic(name)


def topics_of(bootstrap: str, login: Mapping[str, str]) -> set[str]:
    """The topics that a user sees."""
    return set(AdminClient({"bootstrap.servers": bootstrap, **login}).list_topics(timeout=_CALL_SECONDS).topics)


def refused(bootstrap: str, login: Mapping[str, str]) -> KafkaError:
    """The error with which a client that cannot log in fails."""
    errors: list[KafkaError] = []
    admin = AdminClient({"bootstrap.servers": bootstrap, "error_cb": errors.append, **login})

    def tried() -> list[KafkaError]:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1.0)
        admin.poll(0)  # serves the callback
        return errors

    return eventually(tried, what="an error")[0]


def logs_in(bootstrap: str, login: Mapping[str, str]) -> bool:
    """Whether a new client is accepted."""
    try:
        topics_of(bootstrap, login)
    except KafkaException:
        return False
    return True


@pytest.fixture(scope="module")
def secured(demo: Demo) -> Iterator[Demo]:
    """A new cluster from the example's manifest, with a topic and the user alice."""
    made = replace(demo, name="secured")
    made.kubectl.apply(small_cluster(demo, made.name, [], brokers=1))
    try:
        made.await_ready()
        make_topic(made, "letters", 1)
        as_broker(made, "user", "add", "alice", "--password-file", "-", stdin=f"{PASSWORD}\n")
        yield made
    finally:
        made.kubectl.run("delete", USER, "--all")  # the operator removes their finalizers
        made.kubectl.delete(CLUSTER, made.name)


def test_a_user_with_a_password_may_do_what_the_rules_allow(secured: Demo) -> None:
    bootstrap, login = secured.bootstrap("outside"), alice(secured)
    assert topics_of(bootstrap, login) == set(), "a user without rights sees no topic"

    rights = ("--allow-principal", "User:alice", "--producer", "--consumer", "--topic", "letters", "--group", "*")
    as_broker(secured, "acl", "add", *rights)
    eventually(lambda: topics_of(bootstrap, login), lambda found: found == {"letters"}, what="the right")
    produce_all(bootstrap, "letters", RECORDS, login)
    assert sorted(consume_all(bootstrap, "letters", len(RECORDS), login)) == sorted(RECORDS)


def test_a_user_with_a_certificate_is_known_by_its_name(secured: Demo) -> None:
    bootstrap, login = secured.bootstrap("mutual"), bob(secured)
    assert topics_of(bootstrap, login) == set()
    as_broker(
        secured, "acl", "add", "--allow-principal", "User:CN=bob", "--operation", "Describe", "--topic", "letters"
    )
    eventually(lambda: topics_of(bootstrap, login), lambda found: found == {"letters"}, what="the right")


def test_logins_that_are_refused(secured: Demo) -> None:
    outside, mutual = secured.bootstrap("outside"), secured.bootstrap("mutual")
    wrong = {**alice(secured), "sasl.password": "another password"}
    assert refused(outside, wrong).code() == KafkaError._AUTHENTICATION
    certificate = {key: value for key, value in bob(secured).items() if key == "ssl.ca.pem"}
    assert refused(mutual, {"security.protocol": "SSL", **certificate}).code() in (
        KafkaError._SSL,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
    )
    assert refused(outside, {}).code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def user(cluster: Demo, name: str, login: str, *operations: str) -> dict[str, Any]:
    """A User with a right for the topic `parcels` and all groups."""
    rules = [
        {"resource": {"type": "topic", "name": "parcels"}, "operations": list(operations)},
        {"resource": {"type": "group", "name": "*"}, "operations": ["Read"]},
    ]
    return {
        "apiVersion": "odradek.dev/v1",
        "kind": "User",
        "metadata": {"name": name},
        "spec": {"cluster": cluster.name, "authentication": {"type": login}, "acls": rules},
    }


def files_of(cluster: Demo, name: str) -> dict[str, bytes]:
    """The decoded data of the Secret of a ready User."""

    def is_ready() -> bool:
        status = cluster.kubectl.require(USER, name).get("status", {})
        return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))

    eventually(is_ready, what=f"User {name} is ready")
    data = cluster.kubectl.require("secret", name)["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def with_password(name: str, files: Mapping[str, bytes]) -> dict[str, str]:
    """librdkafka's properties from the Secret of a user with a password."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": files["ca.crt"].decode(),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": name,
        "sasl.password": files["password"].decode(),
    }


def kcat_topics(bootstrap: str, name: str, files: Mapping[str, bytes], folder: Path) -> str:
    """What kcat lists with the files of a user's Secret, by the command of docs/kubernetes.md."""
    for key in ("password", "ca.crt"):
        (folder / key).write_bytes(files[key])
    (command,) = _KCAT.findall(GUIDE.read_text(encoding="utf-8"))
    command = command.replace("BOOTSTRAP", bootstrap).replace("sasl.username=clerk", f"sasl.username={name}")
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


_SPARK: Final = """\
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = {"configFile": sys.argv[1], "kafka.bootstrap.servers": sys.argv[2], "subscribe": sys.argv[3]}
print("rows:", spark.read.format("odradek").options(**options).load().count())
"""


def spark_count(bootstrap: str, topic: str, files: Mapping[str, bytes], folder: Path) -> int:
    """How many records a Spark job counts with the `client.properties` of a user's Secret."""
    (folder / "client.properties").write_bytes(files["client.properties"])
    arguments = [sys.executable, "-c", _SPARK, str(folder / "client.properties"), bootstrap, topic]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
    }
    done = subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.partition("rows:")[2])


def test_a_user_resource_makes_a_login_with_rights_and_takes_both_away(secured: Demo, tmp_path: Path) -> None:
    bootstrap = secured.bootstrap("outside")
    make_topic(secured, "parcels", 1)
    secured.kubectl.apply(user(secured, "carol", "scram-sha-512", "Read", "Write"))
    files = files_of(secured, "carol")
    login = with_password("carol", files)
    eventually(lambda: topics_of(bootstrap, login), lambda found: found == {"parcels"}, what="the right")
    produce_all(bootstrap, "parcels", RECORDS, login)
    assert sorted(consume_all(bootstrap, "parcels", len(RECORDS), login)) == sorted(RECORDS)

    assert "parcels" in kcat_topics(bootstrap, "carol", files, tmp_path)
    assert spark_count(bootstrap, "parcels", files, tmp_path) == len(RECORDS)

    pod, config = f"{secured.name}-kafka-0", "/tmp/carol.properties"
    text = files["client.properties"].decode()
    secured.kubectl.execute(pod, "sh", "-c", f"cat > {config}", container="kafka", stdin=text)
    address = f"{pod}.{secured.name}-kafka-brokers.{secured.kubectl.namespace}.svc:9203"
    assert "parcels" in secured.command("topic", "list", "-b", address, "--command-config", config)

    secured.kubectl.patch(USER, "carol", {"metadata": {"annotations": {"odradek.dev/new-password": "1"}}})
    newer = eventually(
        lambda: files_of(secured, "carol"), lambda found: found["password"] != files["password"], what="a new password"
    )
    eventually(
        lambda: topics_of(bootstrap, with_password("carol", newer)), lambda found: bool(found), what="the new login"
    )
    assert refused(bootstrap, login).code() == KafkaError._AUTHENTICATION
    secured.kubectl.delete(USER, "carol")
    # The brokers learn from ZooKeeper that the login is gone.
    eventually(lambda: not logs_in(bootstrap, with_password("carol", newer)), what="no login")
    assert refused(bootstrap, with_password("carol", newer)).code() == KafkaError._AUTHENTICATION
    assert "carol" not in as_broker(secured, "acl", "list")


def test_a_user_resource_with_a_certificate(secured: Demo) -> None:
    bootstrap = secured.bootstrap("mutual")
    make_topic(secured, "parcels", 1)
    secured.kubectl.apply(user(secured, "dave", "tls", "Describe"))
    files = files_of(secured, "dave")
    login = {
        "security.protocol": "SSL",
        "ssl.ca.pem": files["ca.crt"].decode(),
        "ssl.certificate.pem": files["user.crt"].decode(),
        "ssl.key.pem": files["user.key"].decode(),
    }
    eventually(lambda: topics_of(bootstrap, login), lambda found: found == {"parcels"}, what="the right")
    secured.kubectl.delete(USER, "dave")
    # The certificate is valid until it expires. The brokers learn from ZooKeeper that its rights are gone.
    eventually(lambda: topics_of(bootstrap, login), lambda found: found == set(), what="no right")


_POD_LOGIN: Final = """\
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location=/var/run/kafka/ca.crt
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.token.endpoint.url=file:///var/run/kafka/{token}
"""


def courier(cluster: Demo) -> list[dict[str, Any]]:
    """A ServiceAccount, its User, and a pod with a token for the cluster and one for another audience."""
    image = cluster.kubectl.require("pod", f"{cluster.name}-kafka-0")["spec"]["containers"][0]["image"]
    login = {"type": "serviceaccount", "serviceAccount": {"name": "courier"}}
    described = user(cluster, "courier", "serviceaccount", "Describe")
    described["spec"]["authentication"] = login
    audiences = {"token": f"{cluster.kubectl.namespace}.{cluster.name}", "other": "another"}
    tokens = [{"serviceAccountToken": {"path": path, "audience": name}} for path, name in audiences.items()]
    authority = {"secret": {"name": f"{cluster.name}-cluster-ca-cert", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    mounts = {"/var/run/kafka": {"projected": {"sources": [*tokens, authority]}}}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "courier"}},
        described,
        idle_pod("courier", image, mounts=mounts, serviceAccountName="courier"),
    ]


def test_a_pod_logs_in_with_the_token_of_its_service_account(secured: Demo) -> None:
    make_topic(secured, "parcels", 1)
    kubectl = secured.kubectl
    kubectl.apply(*courier(secured))
    eventually(
        lambda: kubectl.require("pod", "courier")["status"]["phase"], lambda phase: phase == "Running", what="the pod"
    )

    def topics(token: str) -> str:
        config = f"/tmp/{token}.properties"
        kubectl.execute("courier", "sh", "-c", f"cat > {config}", stdin=_POD_LOGIN.format(token=token))
        address = f"{secured.name}-kafka-bootstrap.{kubectl.namespace}.svc:9223"
        return kubectl.execute("courier", "odradek", "topic", "list", "-b", address, "--command-config", config)

    eventually(lambda: topics("token"), lambda found: "parcels" in found, what="the right")
    with pytest.raises(KubectlError, match="refused the client"):
        topics("other")
    kubectl.delete(USER, "courier")
    eventually(lambda: topics("token"), lambda found: "parcels" not in found, what="a known user without rights")
    kubectl.delete("pod", "courier")


def test_the_ensemble_of_a_new_cluster_is_closed(secured: Demo) -> None:
    assert is_ensemble_closed(secured)


def test_the_exporter_reads_sizes_with_the_certificate_of_the_operator(secured: Demo) -> None:
    produced = lambda: secured.topic("letters")["status"].get("size", "0")  # noqa: E731
    eventually(produced, lambda size: not size.startswith("0"), what="the size of the topic")


def test_a_renewed_certificate_is_served_without_a_restart(secured: Demo) -> None:
    """The Secret loses the broker's certificate, so the operator makes another; the broker follows its file."""
    bootstrap, login = secured.bootstrap("outside"), alice(secured)
    host, _, port = bootstrap.partition(":")
    pods, before = secured.pods("kafka"), ssl.get_server_certificate((host, int(port)))
    secured.kubectl.patch("secret", "secured-kafka-certs", {"data": {"broker-0.pem": None}})
    # The operator reads Secrets every five minutes, and when the resource changes.
    secured.kubectl.patch(CLUSTER, secured.name, {"spec": {"certificateAuthorities": {"cluster": {"graceHours": 1}}}})
    now = eventually(
        lambda: (topics_of(bootstrap, login), ssl.get_server_certificate((host, int(port)))),
        lambda found: found[1] != before,
        what="another certificate",
        seconds=300,
    )
    assert now[0] == {"letters"}
    assert [pod.uid for pod in secured.pods("kafka")] == [pod.uid for pod in pods]


def replace_authority(cluster: Demo, folder: Path) -> None:
    """Replace the authority of the brokers under load of clients that trust the old and the new one."""
    make_topic(cluster, "replaced", 3)
    rights = ("--allow-principal", "User:alice", "--producer", "--consumer", "--topic", "replaced", "--group", "*")
    as_broker(cluster, "acl", "add", *rights)
    trusted = lambda: secret(cluster, "cluster-ca-cert")["ca.crt"].count(b"BEGIN CERTIFICATE")  # noqa: E731
    before, pods = secret(cluster, "cluster-ca-cert")["ca.crt"], {pod.uid for pod in cluster.pods("kafka")}
    source = {"spec": {"certificateAuthorities": {"cluster": {"graceHours": 0}}}}
    cluster.kubectl.patch(CLUSTER, cluster.name, source)
    annotation = {"metadata": {"annotations": {"odradek.dev/replace-cluster-ca": "1"}}}
    cluster.kubectl.patch(CLUSTER, cluster.name, annotation)
    eventually(trusted, lambda count: count == 2, what="the old and the new authority")
    with running(
        cluster.bootstrap("secure"), "replaced", partitions=PARTITIONS, folder=folder, login=alice(cluster)
    ) as load:
        load.await_more()
        eventually(trusted, lambda count: count == 1, what="the new authority only", seconds=600)
        assert {pod.uid for pod in cluster.pods("kafka")} == pods, "no broker restarted for it"
        # A restarted broker connects to all others, with the files that there are now.
        cluster.kubectl.delete("pod", f"{cluster.name}-kafka-1")
        cluster.await_ready(seconds=600)
        load.await_more()
        outcome = load.finish()
    assert outcome.verdict.good, str(outcome.verdict)
    tell(f"an authority replaced under load: pause {outcome.longest_produce_pause:.1f} s")
    assert secret(cluster, "cluster-ca-cert")["ca.crt"] != before
    assert topics_of(cluster.bootstrap("secure"), alice(cluster)) == {"moving", "replaced"}
    outdated = {**alice(cluster), "ssl.ca.pem": before.decode()}
    error = refused(cluster.bootstrap("secure"), outdated)
    assert error.code() in (KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def test_an_open_cluster_is_closed_under_load_and_its_authority_replaced(demo: Demo, tmp_path: Path) -> None:
    """Three rolls, and no record is lost or refused. Clients move to the new listener before the old one goes."""
    closing = replace(demo, name="closing")
    listeners: list[dict[str, Any]] = [{"name": "plain", "port": 9092, "type": "nodeport", "insecure": True}]
    secure = {"name": "secure", "port": 9093, "type": "nodeport", "tls": True}
    secure["authentication"] = {"type": "scram-sha-512"}
    wanted = small_cluster(demo, closing.name, listeners, brokers=3)
    wanted["spec"]["zookeeper"]["replicas"] = 3
    closing.kubectl.apply(wanted)
    try:
        closing.await_ready(seconds=600)
        make_topic(closing, "moving", 3)
        with running(closing.bootstrap("plain"), "moving", partitions=PARTITIONS, folder=tmp_path) as load:
            load.await_more()
            changed = copy.deepcopy(wanted)
            changed["spec"]["listeners"] = [*listeners, secure]
            closing.kubectl.apply(changed)
            closing.await_ready(seconds=600)
            as_broker(closing, "user", "add", "alice", "--password-file", "-", stdin=f"{PASSWORD}\n")
            rights = ("--allow-principal", "User:alice", "--consumer", "--topic", "moving", "--group", "*")
            as_broker(closing, "acl", "add", *rights)
            load.await_more()
            outcome = load.finish()
        assert outcome.verdict.good, str(outcome.verdict)
        tell(f"an open cluster changed to TLS under load: pause {outcome.longest_produce_pause:.1f} s")
        bootstrap = eventually(lambda: closing.bootstrap("secure"), what="an address of the new listener")
        assert topics_of(bootstrap, alice(closing)) == {"moving"}

        changed["spec"]["listeners"] = [secure]
        closing.kubectl.apply(changed)
        closing.await_ready(seconds=600)
        assert closing.bootstrap("plain") == ""
        assert topics_of(bootstrap, alice(closing)) == {"moving"}
        assert is_ensemble_closed(closing)
        replace_authority(closing, tmp_path)
        assert is_ensemble_closed(closing)
    finally:
        closing.kubectl.delete(CLUSTER, closing.name)
