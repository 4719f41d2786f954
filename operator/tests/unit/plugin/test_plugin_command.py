"""The commands of `kubectl odradek`, with an API server on the loopback interface."""

from __future__ import annotations

import asyncio
import base64
import json
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek_operator.kube.api.object_kinds import Object
from odradek_operator.objects import names
from odradek_operator.plugin.plugin_command import main
from odradek_operator_testkit.mirrors import NAME as MIRROR
from odradek_operator_testkit.mirrors import mirror_body
from odradek_operator_testkit.server import ApiServer, serving
from odradek_operator_testkit.surroundings import NAMESPACE, cluster_body, topic_body

PROPERTIES = b"bootstrap.servers=demo:9093\n"


class Plugin:
    """Runs the commands with the kubeconfig of a server."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self._path = folder / "kubeconfig"
        self._path.write_text(server.kubeconfig())

    async def run(self, *arguments: str, code: int = 0, namespace: str | None = NAMESPACE) -> str:
        where = ["--kubeconfig", str(self._path), *(["-n", namespace] if namespace else [])]
        # The command has an event loop of its own, and the server answers on this one.
        result = await asyncio.to_thread(CliRunner().invoke, main, [*arguments, *where])
        assert result.exit_code == code, result.output
        return result.output


@pytest.fixture
async def plugin(tmp_path: Path) -> AsyncIterator[Plugin]:
    async with serving() as server:
        yield Plugin(server, tmp_path)


def with_status(body: Object, ready: str, **status: object) -> Object:
    condition = {"type": "Ready", "status": ready, "reason": "BecauseOf", "message": "It is so."}
    return {**body, "status": {"conditions": [condition], **status}}


def user(name: str, *, secret: str | None = None, **spec: object) -> Object:
    body = {
        "apiVersion": "odradek.dev/v1",
        "kind": "User",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"cluster": "demo", **spec},
    }
    return with_status(body, "True", **({} if secret is None else {"secret": secret}))


@pytest.mark.parametrize("name", ["restart", "watch", "credentials", "status"])
def test_the_help_of_every_command_has_an_example(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert f"  kubectl odradek {name} " in result.output


async def test_the_status_of_all_kinds_is_one_table(plugin: Plugin) -> None:
    put = plugin.server.api.put
    assert await plugin.run("status") == "There are no resources.\n"
    put(with_status(cluster_body(), "False", brokersReady="2/3", version="0.1.0"))
    put(with_status(topic_body("orders"), "True", partitions=6, replicas=3, size="1.5Gi"))
    put(topic_body("new"))
    put(user("clerk", secret="clerk"))
    put(with_status(mirror_body(NAMESPACE), "True", phase="Running", podsReady="2/2", lagRecords=7))
    lines = (await plugin.run("status")).splitlines()
    assert lines[0].split() == ["NAMESPACE", "KIND", "NAME", "CLUSTER", "READY", "DETAILS", "REASON"]
    assert [line.split()[1:3] for line in lines[1:]] == [
        ["Cluster", "demo"],
        ["Topic", "new"],
        ["Topic", "orders"],
        ["User", "clerk"],
        ["Mirror", MIRROR],
    ]
    assert "2/3 brokers, version 0.1.0" in lines[1]
    assert lines[1].endswith(" BecauseOf: It is so.")
    assert "The operator has not written a status yet." in lines[2]
    assert lines[3].endswith("True      6 partitions, 3 replicas, 1.5Gi")
    assert lines[4].endswith("Secret clerk")
    assert lines[5].endswith("Running, 2/2 pods, lag 7")
    rows = json.loads(await plugin.run("status", "-A", "-o", "json", namespace=None))
    assert [(row["name"], row["cluster"], row["ready"]) for row in rows] == [
        ("demo", "demo", "False"),
        ("new", "demo", "Unknown"),
        ("orders", "demo", "True"),
        ("clerk", "demo", "True"),
        (MIRROR, "demo", "True"),
    ]
    assert await plugin.run("status", namespace=None) == "There are no resources.\n"


async def test_credentials_are_printed_or_written(plugin: Plugin, tmp_path: Path) -> None:
    put = plugin.server.api.put
    put(user("clerk", secret="clerk", authentication={"type": "scram-sha-512"}))
    data = {names.CLIENT_CONFIG_FILE: PROPERTIES, "password": b"secret"}
    put(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "clerk", "namespace": NAMESPACE},
            "data": {name: base64.b64encode(content).decode() for name, content in data.items()},
        }
    )
    assert await plugin.run("credentials", "clerk") == PROPERTIES.decode()
    assert await plugin.run("credentials", "clerk", "--file", "password") == "secret"
    assert "has no file x: it has client.properties, password" in await plugin.run(
        "credentials", "clerk", "--file", "x", code=1
    )
    folder = tmp_path / "login"
    written = await plugin.run("credentials", "clerk", "-d", str(folder))
    assert written.split() == [str(folder / "client.properties"), str(folder / "password")]
    assert (folder / "client.properties").read_bytes() == PROPERTIES
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "password")] == [0o700, 0o600]
    assert "already exists: use --overwrite" in await plugin.run("credentials", "clerk", "-d", str(folder), code=1)
    (folder / "password").chmod(0o644)
    await plugin.run("credentials", "clerk", "-d", str(folder), "--overwrite")
    assert (folder / "password").stat().st_mode & 0o777 == 0o600


async def test_users_without_a_login(plugin: Plugin) -> None:
    plugin.server.api.put(user("known"))
    plugin.server.api.put(user("new", authentication={"type": "tls"}))
    assert "There is no User x in namespace shop" in await plugin.run("credentials", "x", code=1)
    assert "User known has no authentication" in await plugin.run("credentials", "known", code=1)
    assert "User new has no Secret" in await plugin.run("credentials", "new", code=1)


async def test_restarts_are_requested_and_watched(plugin: Plugin) -> None:
    api = plugin.server.api
    api.put(cluster_body())
    api.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "demo-kafka-0",
                "namespace": NAMESPACE,
                "labels": names.pod_labels("demo", names.Component.KAFKA),
                "annotations": {names.RESTART_HASH: "current"},
            },
            "spec": {"containers": []},
        }
    )
    asked = await plugin.run("restart", "demo-kafka-0")
    assert asked == "The operator was asked to restart demo-kafka-0.\n"
    (patch,) = [write.body for write in api.writes if write.method == "PATCH"]
    assert patch["metadata"]["annotations"][names.RESTART_HASH].startswith("requested-")
    assert "was not done after 0.1 s" in await plugin.run("watch", "demo", "--timeout", "0.1", code=1)
    assert "There is no Cluster other" in await plugin.run("watch", "other", code=1)


async def test_a_missing_context_or_file_is_an_error(plugin: Plugin, tmp_path: Path) -> None:
    assert "see --kubeconfig, KUBECONFIG and --context" in await plugin.run("status", "--context", "other", code=1)
    missing = ["status", "--kubeconfig", str(tmp_path / "none")]
    result = await asyncio.to_thread(CliRunner().invoke, main, missing)
    assert (result.exit_code, "see --kubeconfig" in result.output) == (1, True)


@pytest.mark.parametrize("name", ["restart", "watch", "credentials", "status"])
def test_the_arguments_of_the_examples_are_valid(name: str) -> None:
    command = main.commands[name]
    lines = [line.strip() for line in (command.help or "").splitlines() if line.strip().startswith("kubectl odradek")]
    assert lines
    for line in lines:
        words = shlex.split(line.partition(">")[0])
        assert words[2] == name
        command.make_context(name, words[3:])
