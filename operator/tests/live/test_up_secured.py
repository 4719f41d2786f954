"""`odradek up` with the resources of a secured cluster: its listeners, its certificates, and its users."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .up_process import DEADLINE_SECONDS, Up, is_ready, rows

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = {"kind": "Topic", "metadata": {"name": "orders"}, "spec": {"cluster": "demo", "partitions": 2, "replicas": 1}}
RULES = [
    {"resource": {"type": "topic", "name": "orders"}, "operations": ["Read", "Write"]},
    {"resource": {"type": "group", "name": "*"}, "operations": ["Read"]},
]


def cluster(*listeners: dict[str, Any]) -> dict[str, Any]:
    spec = {"brokers": {"replicas": 2}, "listeners": list(listeners)}
    return {"kind": "Cluster", "metadata": {"name": "demo"}, "spec": spec}


def listener(name: str, port: int, login: str) -> dict[str, Any]:
    return {"name": name, "port": port, "type": "internal", "tls": True, "authentication": {"type": login}}


def user(name: str, login: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    spec = {"cluster": "demo", "authentication": {"type": login}, "acls": rules}
    return {"kind": "User", "metadata": {"name": name}, "spec": spec}


def write(folder: Path, *resources: dict[str, Any]) -> None:
    """Replace the manifests. JSON is YAML."""
    folder.mkdir(exist_ok=True)
    documents = [json.dumps({"apiVersion": "odradek.dev/v1", **resource}) for resource in resources]
    draft = folder / "all.draft"
    draft.write_text("\n---\n".join(documents))
    draft.replace(folder / "all.yaml")


def odradek(folder: Path, name: str, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line with the login of a user, and nothing else."""
    config = folder / "data" / "secrets" / name / "client.properties"
    command = [sys.executable, "-m", "odradek.cli.main", *arguments, "--command-config", str(config)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


def is_about(subject: str, status: str = "True") -> Any:
    return lambda event: event.get("subject") == subject and event.get("status", "True") == status


def test_the_same_resources_work_as_on_kubernetes(tmp_path: Path) -> None:
    scram, mutual, *_ = rows()
    first = listener("scram", scram, "scram-sha-512")
    both = cluster(first, listener("mutual", mutual, "tls"))
    alice, bob = user("alice", "scram-sha-512", RULES), user("bob", "tls", RULES)
    manifests = tmp_path / "manifests"
    write(manifests, cluster(first), TOPIC, alice)
    up = Up(tmp_path)
    try:
        up.until(is_ready)
        told = {event["subject"]: event["message"] for event in up.events}
        addresses = f"127.0.0.1:{scram},127.0.0.1:{scram + 1}"
        assert told["listener scram"].startswith(f"{addresses} SASL_SSL; clients trust ")
        assert "without a login" in told["security"]
        if "user alice" not in told:
            up.until(is_about("user alice"))
        secrets = tmp_path / "data" / "secrets"
        for path in secrets.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path

        produced = odradek(tmp_path, "alice", "produce", "-b", addresses, "orders", stdin="one\ntwo\n")
        assert produced.returncode == 0, produced.stderr
        reading = ("consume", "-b", addresses, "orders", "--from-beginning", "--until-end")
        assert sorted(odradek(tmp_path, "alice", *reading).stdout.split()) == ["one", "two"]

        # A second secured listener takes a restart of each broker, one after the other.
        write(manifests, both, TOPIC, alice, bob)
        up.until(lambda event: event.get("reason") == "RolledOut")
        if not any(is_about("user bob")(event) for event in up.events):
            up.until(is_about("user bob"))
        with_certificate = odradek(tmp_path, "bob", *reading[:2], f"127.0.0.1:{mutual}", *reading[3:])
        assert sorted(with_certificate.stdout.split()) == ["one", "two"], with_certificate.stderr

        # Without its resource, a user has no rights, and its files are gone.
        kept = (secrets / "alice" / "client.properties").read_bytes()
        write(manifests, both, TOPIC, bob)
        up.until(lambda event: event.get("subject") == "user alice" and event.get("action") == "RemoveUser")
        assert not (secrets / "alice").exists()
        (secrets / "alice").mkdir()
        (secrets / "alice" / "client.properties").write_bytes(kept)
        refused = odradek(tmp_path, "alice", *reading)
        assert refused.returncode != 0
        assert "authentication" in refused.stderr.lower()
    finally:
        up.process.terminate()
        code, errors = up.end()
    assert code == 0, errors
