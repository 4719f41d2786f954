"""Tests the tools for people on a real cluster: the console of the chart, and the plugin of kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from support.figures import tell
from support.product import CLUSTER, EXAMPLES, USER, Demo, Release, is_settled, small_cluster
from support.waiting import eventually, scaled

pytestmark = pytest.mark.e2e_full

CONSOLE: Final = "odradek-operator-console"
SECURED: Final = "tools"
LOGIN: Final = "clerk"
ROLL_SECONDS: Final = 600.0
_GET: Final = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())"
"""Python for a broker's pod: prints what an address answers."""


@pytest.fixture(scope="module")
def console(operator_release: Release, demo: Demo) -> Iterator[str]:
    """The address of a console for the example cluster."""
    address = f"demo-kafka-bootstrap.{demo.kubectl.namespace}.svc:9092"
    operator_release.install(console={"enabled": True, "bootstrapServers": address})
    yield f"http://{CONSOLE}.{operator_release.kubectl.namespace}.svc"
    operator_release.install()


@pytest.fixture(scope="module")
def secured(demo: Demo) -> Iterator[Demo]:
    """A cluster with logins and one broker, and a User of it."""
    made = replace(demo, name=SECURED)
    made.kubectl.apply(small_cluster(demo, SECURED, [], brokers=1))
    user = yaml.safe_load((EXAMPLES / "secured" / "user.yaml").read_text(encoding="utf-8"))
    user["metadata"]["name"], user["spec"]["cluster"] = LOGIN, SECURED
    try:
        made.await_ready()
        made.kubectl.apply(user)
        eventually(lambda: made.kubectl.require(USER, LOGIN), is_settled, what="readiness of the user")
        yield made
    finally:
        made.kubectl.delete(USER, LOGIN)  # The operator removes its finalizer.
        made.kubectl.delete(CLUSTER, SECURED)


def plugin(demo: Demo, *arguments: str) -> str:
    """Run `kubectl odradek` as users do: kubectl finds the plugin in PATH, and the context has the namespace."""
    kubectl = demo.kubectl
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [kubectl.program, "odradek", *arguments, "--kubeconfig", str(kubectl.kubeconfig)],
        env=environment, capture_output=True, text=True, check=False, timeout=scaled(ROLL_SECONDS),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(demo: Demo, address: str) -> Any:
    """What an address answers inside the cluster, as JSON."""
    return json.loads(demo.kubectl.execute("demo-kafka-0", "python3", "-c", _GET, address, container="kafka"))


def test_the_console_of_the_chart_shows_the_cluster(demo: Demo, console: str) -> None:
    topics = ask(demo, f"{console}/api/topics")

    assert "departures" in json.dumps(topics)
    brokers = json.dumps(ask(demo, f"{console}/api/brokers"))
    assert all(f"demo-kafka-{ordinal}." in brokers for ordinal in range(3))


def test_the_plugin_shows_all_resources(demo: Demo) -> None:
    rows = json.loads(plugin(demo, "status", "-n", demo.kubectl.namespace, "--output", "json"))

    found = {(row["kind"], row["name"]) for row in rows}
    assert {("Cluster", "demo"), ("Topic", "departures")} <= found
    assert "demo" in plugin(demo, "status", "-A")


def test_the_plugin_restarts_a_broker_and_waits_for_it(demo: Demo) -> None:
    before = {pod.name: pod.uid for pod in demo.pods("kafka")}

    output = plugin(demo, "restart", "demo-kafka-1", "--watch", "-n", demo.kubectl.namespace)

    tell("kubectl odradek restart:\n" + output)
    pods = demo.pods("kafka")
    after = {pod.name: pod.uid for pod in pods}
    assert [name for name in before if before[name] != after[name]] == ["demo-kafka-1"]
    assert all(pod.ready for pod in pods), "the command has waited"


def test_the_plugin_writes_the_files_of_a_login(secured: Demo, tmp_path: Path) -> None:
    folder = tmp_path / LOGIN

    plugin(secured, "credentials", LOGIN, "--directory", str(folder), "-n", secured.kubectl.namespace)

    properties = (folder / "client.properties").read_text(encoding="utf-8")
    printed = plugin(secured, "credentials", LOGIN, "-n", secured.kubectl.namespace)
    assert printed == properties
    assert "security.protocol=SASL_SSL" in properties
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir()), "readable only by the user"
