"""Java's clients with TLS and SASL: console tools of two versions, and re-authentication (KIP-368)."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.testing.waiting import wait_until
from odradek_testkit.interop.apache import InteropError, quick_start, run_tool
from odradek_testkit.security.secured_broker import MECHANISMS, PASSWORD, REAUTH_MS, SecuredBroker, add_user

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

CONSOLE_PRODUCER: Final = {"3.9.1": "kafka.tools.ConsoleProducer", "4.1.0": "org.apache.kafka.tools.ConsoleProducer"}
CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PERFORMANCE: Final = "org.apache.kafka.tools.ProducerPerformance"
WAYS: Final = [("MUTUAL", ""), *((listener, mechanism) for listener in ("SASL", "BOTH") for mechanism in MECHANISMS)]


@pytest.fixture(scope="module")
def secured(odradek_zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    root = f"{odradek_zookeeper}/{uuid4().hex}"
    secured = SecuredBroker(tmp_path_factory.mktemp("secured"), root)
    secured.broker.start()
    add_user(root, "alice", PASSWORD)
    yield secured
    secured.broker.stop()


def write(path: Path, properties: dict[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(path)


def run(folder: Path, main_class: str, arguments: list[str], stdin: str = "") -> str:
    return run_tool(folder, main_class, arguments, stdin=stdin, options=quick_start(folder))


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_the_console_tools_of_java(
    secured: SecuredBroker, kafka_jars: tuple[str, Path], tmp_path: Path, listener: str, mechanism: str
) -> None:
    version, folder = kafka_jars
    config = write(tmp_path / "client.properties", secured.java_properties(listener, mechanism))
    to = ["--bootstrap-server", secured.address(listener), "--topic", f"t-{uuid4().hex[:8]}"]
    lines = "".join(f"value {number}\n" for number in range(100))
    run(folder, CONSOLE_PRODUCER[version], [*to, "--producer.config", config], stdin=lines)
    read = ["--consumer.config", config, "--from-beginning", "--max-messages", "100", "--timeout-ms", "60000"]
    assert run(folder, CONSOLE_CONSUMER, [*to, *read]) == lines


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_an_authentication_error(
    secured: SecuredBroker, kafka_jars: tuple[str, Path], tmp_path: Path, mechanism: str
) -> None:
    _, folder = kafka_jars
    properties = secured.java_properties("SASL", mechanism)
    properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace(PASSWORD, "wrong")
    config = write(tmp_path / "client.properties", properties)
    with pytest.raises(InteropError, match="SaslAuthenticationException: Authentication failed"):
        arguments = ["--bootstrap-server", secured.address("SASL"), "--command-config", config, "--list"]
        run(folder, "org.apache.kafka.tools.TopicCommand", arguments)


def total(secured: SecuredBroker, name: str) -> float:
    """Return a total of the listener AGAIN."""
    with urllib.request.urlopen(f"http://127.0.0.1:{secured.metrics_port}/metrics", timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found = [
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == f"kafka_server_socket_server_metrics_{name}" and sample.labels["listener"] == "AGAIN"
    ]
    return sum(found)


def test_a_java_producer_authenticates_again(
    secured: SecuredBroker, kafka_jars: tuple[str, Path], tmp_path: Path
) -> None:
    _, folder = kafka_jars
    properties = {**secured.java_properties("AGAIN", "PLAIN"), "bootstrap.servers": secured.address("AGAIN")}
    config = write(tmp_path / "client.properties", properties)
    before = total(secured, "successful_reauthentication_total")
    count = 4 * REAUTH_MS // 100
    arguments = ["--topic", f"t-{uuid4().hex[:8]}", "--num-records", str(count), "--record-size", "10"]
    output = run(folder, PERFORMANCE, [*arguments, "--throughput", "10", "--producer.config", config])
    assert f"{count} records sent" in output
    wait_until(lambda: total(secured, "successful_reauthentication_total") > before, what="a re-authentication")
    assert total(secured, "expired_connections_killed_count") == 0
