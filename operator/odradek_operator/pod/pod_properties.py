"""The final properties of a broker: those of its cluster, followed by those that only its pod knows. Pure.

The mounted text stays unchanged and the pod's lines are appended: if a key occurs twice, the last value counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from odradek_operator.errors import PodError
from odradek_operator.objects import names, slots
from odradek_operator.objects.properties_file import render
from odradek_operator.pod.addresses import Address, internal_address
from odradek_operator.pod.identity import BrokerPod

_LINE: Final = re.compile(r"^\s*([^#!\s=:\\][^\s=:\\]*)\s*[=:]\s*(.*?)\s*$", re.MULTILINE)
_UNSAFE: Final = re.compile(r"[\\\r\n]")


def value_of(text: str, key: str) -> str | None:
    """Return the last value of a key in a file written by the operator, without continuation lines and escapes."""
    found = [match[2] for match in _LINE.finditer(text) if match[1] == key]
    return found[-1] if found else None


def with_secrets(text: str, secrets: Mapping[str, str]) -> str:
    """Return the mounted text, followed by the properties in the Secrets."""
    if not secrets:
        return text
    return f"{text.rstrip()}\n\n{render(secrets, header='Secrets of spec.brokers.configFrom')}"


def final_properties(text: str, pod: BrokerPod, found: Sequence[Address], rack: str | None) -> str:
    """Return the mounted text and the pod's lines. `found` has an address per listener of the pod, in order."""
    own = own_properties(pod, found, rack)
    if pod.slot:
        directories = (value_of(text, "log.dirs") or "").split(",")
        own["log.dirs"] = ",".join(slots.suffixed(directory.strip(), pod.slot) for directory in directories)
    if value_of(text, "zookeeper.ssl.client.enable") == "true":
        own["zookeeper.ssl.keystore.location"] = keystore_location(pod)
    lines = "".join(f"{key}={value}\n" for key, value in own.items())
    return f"{text.rstrip()}\n\n# Determined by the pod {pod.name} at start\n{lines}"


def own_properties(pod: BrokerPod, found: Sequence[Address], rack: str | None) -> dict[str, str]:
    """Return the settings that differ between brokers. Raises `PodError` for a rack that properties cannot contain.

    Kafka's listener names are in capitals.
    """
    plain, secure = names.REPLICATION_LISTENER.upper(), names.SECURE_REPLICATION_LISTENER.upper()
    client_names = [listener.name.upper() for listener in pod.listeners]
    bases = {plain: names.REPLICATION_PORT} if pod.link.listens_plain else {}
    bases |= {secure: names.SECURE_REPLICATION_PORT} if pod.link.listens_tls else {}
    protocols = {name: "SSL" if name == secure else "PLAINTEXT" for name in bases}
    protocols |= {name: listener.protocol for name, listener in zip(client_names, pod.listeners, strict=True)}
    between = slots_of(pod, bases)
    ports = between | slots_of(
        pod, {name: listener.port for name, listener in zip(client_names, pod.listeners, strict=True)}
    )
    addresses = {name: internal_address(pod, port) for name, port in between.items()}
    addresses |= dict(zip(client_names, found, strict=True))
    used = secure if pod.link.connects_tls else plain
    others = [name for name in between if name != used]
    own = {
        "broker.id": str(pod.broker_id),
        "listeners": ",".join(f"{name}://0.0.0.0:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://{_joined(address)}" for name, address in addresses.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": used,
        "metrics.host": "0.0.0.0",
        "metrics.port": str(slots.port(names.METRICS_PORT, pod.slot)),
        "broker.machine": pod.node,
    }
    if others:
        own["inter.broker.request.listeners"] = ",".join(others)
    if pod.link.listens_tls:
        own["ssl.keystore.location"] = keystore_location(pod)
    if rack is not None:
        if _UNSAFE.search(rack):
            raise PodError(f"The rack {rack!r} has characters that are not allowed in properties.")
        own["broker.rack"] = rack
    return own


def keystore_location(pod: BrokerPod) -> str:
    """Return the path of the key and the certificate of the broker."""
    return f"{names.CERTIFICATES_FOLDER}/{names.broker_keystore(pod.broker_id)}"


def slots_of(pod: BrokerPod, bases: Mapping[str, int]) -> dict[str, int]:
    """Return the ports of the broker's slot by name of the listener. `bases`: those of slot 0."""
    return {name: slots.port(base, pod.slot) for name, base in bases.items()}


def supervised(text: str) -> bool:
    """Whether the broker runs under a parent process, as it does by default."""
    return (value_of(text, "process.supervision.enable") or "true").lower() != "false"


def _joined(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{host}:{address.port}"
