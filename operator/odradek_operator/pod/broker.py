"""`odradek-pod broker`: finds out what only the pod can know, writes the properties, and becomes the broker.

Enters: the mounted properties, the environment, the API server. Leaves: the broker in this process's place, so that
signals reach it directly: SIGTERM hands its partitions over before it ends. Everything that is decided is in
`addresses` and `properties`; here is the reading, the waiting and the exec.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, Protocol

from odradek_operator.pod.addresses import Address, Json, Waiting, advertised, rack, service_name
from odradek_operator.pod.api import read_patiently
from odradek_operator.pod.errors import PodError
from odradek_operator.pod.identity import NODE_PORT, BrokerPod, PodListener
from odradek_operator.pod.properties import final_properties, supervised

logger = logging.getLogger(__name__)

ADDRESS_PAUSE_SECONDS: Final = 2.0
"""Between two looks for an address that a load balancer has not given yet. How long that may take, the start-up probe
of the pod says."""

REMINDER_SECONDS: Final = 60.0
"""After so long it is told again for what the pod waits."""

_HELD_BACK: Final = (signal.SIGTERM, signal.SIGINT)


class Api(Protocol):
    """What of the API server is read."""

    def node(self, name: str) -> Json:
        """A node; `ApiError`."""
        ...

    def service(self, namespace: str, name: str) -> Json:
        """A Service; `ApiError`."""
        ...


def broker_properties(
    text: str, pod: BrokerPod, make_api: Callable[[], Api], *, pause: Callable[[float], None] = time.sleep
) -> str:
    """The broker's final properties. Waits for addresses; `make_api` is called only when something has to be read."""
    if not pod.reads_node and all(service_name(pod, listener) is None for listener in pod.listeners):
        return final_properties(text, pod, [_own(pod, listener) for listener in pod.listeners], None)
    api = make_api()
    node = read_patiently(f"node {pod.node}", lambda: api.node(pod.node), pause=pause) if pod.reads_node else None
    found_rack = rack(node, pod.rack_key) if node is not None and pod.rack_key is not None else None
    found = [_wait_for_address(api, pod, listener, node, pause) for listener in pod.listeners]
    return final_properties(text, pod, found, found_rack)


def _own(pod: BrokerPod, listener: PodListener) -> Address:
    address = advertised(pod, listener, None, None)
    assert isinstance(address, Address)
    return address


def _wait_for_address(
    api: Api, pod: BrokerPod, listener: PodListener, node: Json | None, pause: Callable[[float], None]
) -> Address:
    name = service_name(pod, listener)
    if name is None:
        return _own(pod, listener)
    waited = 0.0
    while True:
        service = read_patiently(f"Service {name}", lambda: api.service(pod.namespace, name), pause=pause)
        address = advertised(pod, listener, node if listener.type == NODE_PORT else None, service)
        if not isinstance(address, Waiting):
            return address
        if waited % REMINDER_SECONDS == 0:
            logger.warning("listener %s waits: %s", listener.name, address.reason)
        pause(ADDRESS_PAUSE_SECONDS)
        waited += ADDRESS_PAUSE_SECONDS


def read_text(path: Path) -> str:
    """A mounted file. Raises `PodError`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PodError(f"The file {path} cannot be read: {reason}.") from error


def read_secrets(folder: Path) -> dict[str, str]:
    """The properties of all mounted Secrets: each file is named by its property. Raises `PodError`.

    Of a property in several Secrets the last one in the order of the resource counts. Kubernetes keeps the files of a
    Secret behind links that begin with two dots, which are no entries.
    """
    found: dict[str, str] = {}
    mounted = sorted((path for path in folder.iterdir()), key=lambda path: int(path.name)) if folder.is_dir() else []
    for secret in mounted:
        for entry in sorted(secret.iterdir()):
            if not entry.name.startswith(".."):
                found[entry.name] = read_text(entry).rstrip("\r\n")
    return found


def write_properties(path: Path, text: str) -> None:
    """Write the final properties, readable by the broker alone. Raises `PodError`."""
    try:
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PodError(f"{path} cannot be written: {error.strerror}; /tmp must be writable.") from error


def end_on_signals() -> None:
    """Let SIGTERM and SIGINT end this process. The first process of a container ignores what it has no handler for."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in _HELD_BACK:
        signal.signal(number, end)


def become_broker(properties: Path, text: str, environment: Mapping[str, str]) -> NoReturn:
    """Exec `odradek broker`.

    Signals are held back over the exec: before the new program has its handlers they would be lost, and the kubelet
    would wait for the whole grace period. The broker's parent process lets them in; without one nobody would.
    """
    command = str(Path(sys.executable).with_name("odradek"))
    if supervised(text):
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        os.execve(command, [command, "broker", str(properties)], dict(environment))
    except OSError as error:
        raise PodError(f"{command} cannot be run: {error.strerror}.") from error
