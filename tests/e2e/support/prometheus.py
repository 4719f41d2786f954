"""A Prometheus on this machine that scrapes the pods of the cluster under test.

Builds scrape jobs from pods and PodMonitors, and answers queries. Used by the test of dashboards and rules. The program
comes from Debian's package. If it is missing, the package is unpacked, not installed, so that no service starts.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from support.values import Object
from support.waiting import eventually

_CALL_SECONDS: Final = 30.0
_INSTALL_SECONDS: Final = 600.0
SCRAPE_SECONDS: Final = 5
KUBELET_PORT: Final = 10250
_META: Final = "__meta_kubernetes"


class PrometheusError(Exception):
    """Prometheus is not available, or it rejected a query. The text is its message."""


def programs(folder: Path) -> dict[str, str]:
    """The paths of `prometheus` and `promtool`. If this machine lacks them, they are unpacked into `folder`."""
    names = ("prometheus", "promtool")
    if all(shutil.which(name) for name in names):
        return {name: str(shutil.which(name)) for name in names}
    _run(["apt-get", "download", "prometheus"], folder)
    (package,) = folder.glob("prometheus_*.deb")
    _run(["dpkg-deb", "--extract", str(package), str(folder)], folder)
    return {name: str(folder / "usr" / "bin" / name) for name in names}


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS)
    if done.returncode != 0:
        raise PrometheusError(f"{' '.join(command)}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def check_rules(promtool: str, rules: Path) -> str:
    """Check rules with promtool and return its output. Raise `PrometheusError` if it rejects them."""
    return _run([promtool, "check", "rules", str(rules)], rules.parent)


def relabelled(relabelings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The relabelling of a PodMonitor in the spelling of Prometheus."""
    spelled = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return [{spelled.get(key, key): value for key, value in rule.items()} for rule in relabelings]


def discovered(pods: Sequence[Object]) -> list[dict[str, Any]]:
    """The targets that Prometheus' own discovery of pods would find. Debian's Prometheus is built without it."""
    return [
        {"targets": [f"{pod['status']['podIP']}:{port['containerPort']}"], "labels": _meta_labels(pod, container, port)}
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
    ]


def _meta_labels(pod: Object, container: Object, port: Object) -> dict[str, str]:
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    own = {
        "name": metadata["name"],
        "node_name": spec["nodeName"],
        "host_ip": status["hostIP"],
        "container_name": container["name"],
        "container_port_name": port.get("name", ""),
        **{f"label_{_label(name)}": value for name, value in metadata.get("labels", {}).items()},
    }
    named = {f"{_META}_pod_{name}": value for name, value in own.items()}
    return {f"{_META}_namespace": metadata["namespace"], **named}


def scrape_job(monitor: Object, pods: Sequence[Object]) -> dict[str, Any]:
    """The scrape job that the Prometheus operator generates from a PodMonitor.

    It selects pods by labels and the port by name, and applies the PodMonitor's relabelling.
    """
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    chosen = [
        {"action": "keep", "source_labels": [f"{_META}_pod_label_{_label(key)}"], "regex": value}
        for key, value in monitor["spec"]["selector"]["matchLabels"].items()
    ]
    found = [
        {"action": "keep", "source_labels": [f"{_META}_pod_container_port_name"], "regex": endpoint["port"]},
        {"source_labels": [f"{_META}_namespace"], "target_label": "namespace"},
        {"source_labels": [f"{_META}_pod_container_name"], "target_label": "container"},
        {"source_labels": [f"{_META}_pod_name"], "target_label": "pod"},
    ]
    return {
        "job_name": monitor["metadata"]["name"],
        "metrics_path": endpoint["path"],
        "static_configs": discovered(pods),
        "relabel_configs": [*chosen, *found, *relabelled(endpoint["relabelings"])],
    }


def kubelet_jobs(addresses: Sequence[str], certificate: Path, key: Path) -> list[dict[str, Any]]:
    """Scrape jobs for the kubelets of these nodes and their cAdvisor, authenticated like the API server."""
    return [
        {
            "job_name": name,
            "scheme": "https",
            "metrics_path": path,
            "tls_config": {"cert_file": str(certificate), "key_file": str(key), "insecure_skip_verify": True},
            "static_configs": [{"targets": [f"{address}:{KUBELET_PORT}" for address in addresses]}],
        }
        for name, path in (("kubelet", "/metrics"), ("cadvisor", "/metrics/cadvisor"))
    ]


def _label(name: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A running Prometheus server."""

    url: str

    def query(self, text: str) -> list[dict[str, Any]]:
        """The series of an instant query. Raise `PrometheusError` if Prometheus rejects it."""
        found: list[dict[str, Any]] = self._ask("query", query=text)["result"]
        return found

    def targets(self) -> list[dict[str, Any]]:
        """The active targets with their health."""
        found: list[dict[str, Any]] = self._ask("targets", state="active")["activeTargets"]
        return found

    def rule_groups(self) -> list[dict[str, Any]]:
        """The rules with their last evaluation."""
        found: list[dict[str, Any]] = self._ask("rules")["groups"]
        return found

    def ready(self) -> bool:
        """Return whether the server is ready."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=_CALL_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _ask(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=_CALL_SECONDS) as answer:
                found: dict[str, Any] = json.load(answer)["data"]
                return found
        except urllib.error.HTTPError as error:
            raise PrometheusError(f"{parameters}: {error.read().decode(errors='replace')}") from error


@contextmanager
def scraping(program: str, folder: Path, jobs: Sequence[Mapping[str, Any]], rules: Path) -> Iterator[Prometheus]:
    """Run a Prometheus server for the duration of the block."""
    config = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"},
        "rule_files": [str(rules)],
        "scrape_configs": list(jobs),
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        made = Prometheus(url=f"http://127.0.0.1:{port}")
        eventually(lambda: process.poll() is not None or made.ready(), what="Prometheus")
        if process.poll() is not None:
            raise PrometheusError(log.read_text(encoding="utf-8", errors="replace"))
        yield made
    finally:
        process.terminate()
        process.wait()
