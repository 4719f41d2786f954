"""Delegation tokens of a real broker process with real ZooKeeper, with the command line and the client library."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from odradek.security.sasl.plain import LOGIN_MODULE
from odradek.security.sasl.scram import LOGIN_MODULE as SCRAM_MODULE
from odradek.testing.free_ports import free_ports
from odradek.testing.waiting import wait_until
from odradek_testkit.broker_process import OdradekBroker

pytestmark = pytest.mark.java

CHECK_MS: Final = 500


class Cluster:
    """A broker with the users alice and bob. It removes expired tokens soon."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self._folder = folder
        between, self.port = free_ports(2)
        properties = {
            "listeners": f"BETWEEN://127.0.0.1:{between},CLIENTS://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "BETWEEN:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "BETWEEN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.clients.plain.sasl.jaas.config": f'{LOGIN_MODULE} required user_alice="a" user_bob="b";',
            "delegation.token.secret.key": "secret of the brokers",
            "delegation.token.expiry.check.interval.ms": str(CHECK_MS),
        }
        self.zookeeper = zookeeper
        self.plaintext = f"127.0.0.1:{between}"
        self.broker = OdradekBroker(folder / "broker", zookeeper=zookeeper, properties=properties, port=between)

    def user(self, name: str) -> str:
        return self._file("PLAIN", f'{LOGIN_MODULE} required username="{name}" password="{name[0]}";')

    def token(self, token: dict[str, Any]) -> str:
        name, secret = token["token_id"], token["hmac"]
        entry = f'{SCRAM_MODULE} required username="{name}" password="{secret}" tokenauth="true";'
        return self._file("SCRAM-SHA-512", entry)

    def _file(self, mechanism: str, entry: str) -> str:
        path = self._folder / f"{uuid4().hex}.properties"
        lines = [
            "security.protocol=SASL_PLAINTEXT",
            f"sasl.mechanism={mechanism}",
            f"sasl.jaas.config={entry}",
            f"bootstrap.servers=127.0.0.1:{self.port}",
        ]
        path.write_text("\n".join(lines))
        return str(path)

    def run(self, config: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of `odradek` with a file of client properties."""
        command = [sys.executable, "-m", "odradek.cli.main", *arguments, "--command-config", config]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)

    def done(self, config: str, *arguments: str, stdin: str = "") -> Any:
        """Return the JSON that a successful command prints."""
        result = self.run(config, *arguments, "-o", "json", stdin=stdin)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def stored(self) -> list[str]:
        """Return the ids of the tokens in ZooKeeper."""
        client = KazooClient(hosts=self.zookeeper)
        client.start()
        try:
            return list(client.get_children("/delegation_token/tokens"))
        finally:
            client.stop()
            client.close()


@pytest.fixture(scope="module")
def cluster(odradek_zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("tokens"), f"{odradek_zookeeper}/{uuid4().hex}")
    cluster.broker.start()
    yield cluster
    cluster.broker.stop()


def test_a_token_from_the_command_line(cluster: Cluster) -> None:
    alice, bob = cluster.user("alice"), cluster.user("bob")
    created = cluster.done(alice, "token", "create", "--renewer", "User:bob")
    assert (created["owner"], created["requester"], created["renewers"]) == ("User:alice", "User:alice", ["User:bob"])
    with_token = cluster.token(created)
    assert cluster.done(with_token, "topic", "list") == []
    refused = cluster.run(with_token, "token", "create")
    assert refused.returncode == 1
    assert "Log in with a user" in refused.stderr
    renewed = cluster.done(bob, "token", "renew", "-", "--period-ms", "3600000", stdin=created["hmac"])
    assert created["issue_timestamp"] < renewed["expiry_timestamp"] < created["expiry_timestamp"]
    (listed,) = cluster.done(bob, "token", "list", "--owner", "User:alice")
    assert created["hmac"] not in json.dumps(listed)
    (shown,) = cluster.done(bob, "token", "list", "--show-hmac")
    assert shown == {**created, **renewed}
    table = cluster.run(alice, "token", "list")
    assert created["token_id"] in table.stdout
    assert created["hmac"] not in table.stdout
    removed = cluster.run(alice, "token", "expire", created["hmac"])
    assert removed.stdout == "The token was removed.\n"
    assert cluster.run(with_token, "topic", "list").returncode == 1
    missing = cluster.run(alice, "token", "renew", created["hmac"])
    assert missing.returncode == 1
    assert "`odradek token list` shows the tokens." in missing.stderr


def test_a_token_that_nobody_renews_is_refused_and_removed(cluster: Cluster) -> None:
    created = cluster.done(cluster.user("alice"), "token", "create")
    config = cluster.token(created)
    assert cluster.run(config, "topic", "list").returncode == 0
    assert created["token_id"] in cluster.stored()
    cluster.done(cluster.user("alice"), "token", "renew", created["hmac"], "--period-ms", "1")
    wait_until(lambda: cluster.run(config, "topic", "list").returncode == 1, what="the expiry")
    wait_until(lambda: created["token_id"] not in cluster.stored(), what="the removal")
    assert created["hmac"] not in cluster.broker.log()


def test_tokens_need_a_login(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "odradek.cli.main", "token", "create", "-b", cluster.plaintext]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Log in with a user, on a listener with SASL or client certificates." in result.stderr
