"""The last answers of the API server for a broker's pod, saved on the broker's data volumes.

`pod/broker` saves the parts of nodes and Services that a start needs, in a small file in the root of each volume, next
to the log directory. A broker that restarts while the API server is not available uses them.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from odradek_operator.pod.addresses import Json
from odradek_operator.pod.identity import BrokerPod

logger = logging.getLogger(__name__)

FILE: Final = "kubernetes-addresses.json"
"""Name of the file of the broker in slot 0. Those of other brokers of the pod have the suffix of their slot."""
_VERSION: Final = 1
_NODE_PARTS: Final = {"metadata": ("name", "labels"), "status": ("addresses",)}
_SERVICE_PARTS: Final = {"metadata": ("name",), "spec": ("ports",), "status": ("loadBalancer",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The last answers for one pod."""

    node: Json | None = None
    """The node that the pod ran on."""
    services: Mapping[str, Json] = field(default_factory=dict)
    """Services by name."""
    saved: str = ""
    """When they were saved, for people."""

    @property
    def node_name(self) -> str:
        """Name of the node; empty if none is known."""
        metadata = (self.node or {}).get("metadata")
        return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""

    def updated(self, node: Json | None, services: Mapping[str, Json]) -> Remembered:
        """Return a copy with newer answers; other objects stay."""
        return Remembered(
            node=self.node if node is None else _reduced(node, _NODE_PARTS),
            services={**self.services, **{name: _reduced(one, _SERVICE_PARTS) for name, one in services.items()}},
            saved=self.saved,
        )


def load(folders: Sequence[Path], pod: BrokerPod) -> Remembered:
    """Return the answers for this pod from the first volume with a readable file; empty if there is none."""
    for folder in folders:
        path = folder / _file(pod)
        try:
            value: object = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be read and is not used: %s", path, error)
            continue
        found = _parsed(value, pod)
        if found is not None:
            return found
        logger.warning("%s is for another pod than %s/%s and is not used", path, pod.namespace, pod.name)
    return Remembered()


def save(folders: Sequence[Path], pod: BrokerPod, values: Remembered) -> None:
    """Save the answers on every volume. A failure is only logged: the broker reports bad disks."""
    document = {
        "version": _VERSION,
        "pod": _identity(pod),
        "saved": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "node": values.node,
        "services": values.services,
    }
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    for folder in folders:
        try:
            _replace(folder / _file(pod), text)
        except OSError as error:
            logger.warning("%s cannot be written: %s", folder / _file(pod), error.strerror)


def _file(pod: BrokerPod) -> str:
    return FILE if pod.slot == 0 else f"{Path(FILE).stem}-{pod.slot}{Path(FILE).suffix}"


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically."""
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _parsed(value: object, pod: BrokerPod) -> Remembered | None:
    if not isinstance(value, dict) or value.get("version") != _VERSION or value.get("pod") != _identity(pod):
        return None
    node, services = value.get("node"), value.get("services")
    if not isinstance(services, dict) or not isinstance(node, dict | None):
        return None
    known = {str(name): one for name, one in services.items() if isinstance(one, dict)}
    return Remembered(node=node, services=known, saved=str(value.get("saved", "")))


def _identity(pod: BrokerPod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _reduced(body: Json, parts: Mapping[str, Sequence[str]]) -> Json:
    found: dict[str, dict[str, object]] = {}
    for part, keys in parts.items():
        whole = body.get(part)
        if isinstance(whole, Mapping):
            found[part] = {key: whole[key] for key in keys if key in whole}
    return found
