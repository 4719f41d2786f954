"""`odradek-pod broker`: finds the addresses and rack of the pod, writes the properties, and executes the broker.

The broker replaces this process, so that it gets signals directly: on SIGTERM it moves its leaders away before it ends.
The decisions are in `addresses` and `pod_properties`; this module reads, waits and executes. The objects it has read
are saved on the data volumes (`remembered`), so that a broker can restart while the API server is not available.
"""

from __future__ import annotations

import json
import logging
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, Protocol

from odradek_operator.errors import PodError
from odradek_operator.pod.addresses import Address, AddressPending, Json, advertised, rack, service_name
from odradek_operator.pod.api_reader import ApiReadError, read_patiently, read_within
from odradek_operator.pod.identity import NODE_PORT, BrokerPod, PodListener
from odradek_operator.pod.odradek_command import become_odradek
from odradek_operator.pod.pod_properties import final_properties, supervised, value_of
from odradek_operator.pod.remembered import Remembered, load, save

logger = logging.getLogger(__name__)

ADDRESS_PAUSE_SECONDS: Final = 2.0
"""Pause between two checks for an address that a load balancer has not assigned yet. The start-up probe of the pod
limits the total time."""

API_SECONDS: Final = 20.0
"""How long to try the API server before the last known answer is used."""

REMINDER_SECONDS: Final = 60.0
"""Interval between log messages that say what the pod waits for."""

_HELD_BACK: Final = (signal.SIGTERM, signal.SIGINT)


class Api(Protocol):
    """The requests to the API server that a start may send."""

    def node(self, name: str) -> Json:
        """Return a node. Raises `ApiReadError`."""
        ...

    def service(self, namespace: str, name: str) -> Json:
        """Return a Service. Raises `ApiReadError`."""
        ...


def broker_properties(
    text: str,
    pod: BrokerPod,
    make_api: Callable[[], Api],
    *,
    remembers: bool = True,
    api_seconds: float = API_SECONDS,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Return the final properties of the broker. Waits for addresses; `make_api` is only called if objects are needed.

    If the API server does not answer within `api_seconds`, its last answers are used, which are on the data volumes.
    With `remembers`, answers are saved there, but only once all addresses are known.
    """
    if not pod.reads_node and all(service_name(pod, listener) is None for listener in pod.listeners):
        return final_properties(text, pod, [_own(pod, listener) for listener in pod.listeners], None)
    folders = volume_roots(text)
    before = load(folders, pod)
    answers = _Answers(make_api(), pod, before, seconds=api_seconds, pause=pause, clock=clock)
    node = answers.node() if pod.reads_node else None
    found_rack = rack(node, pod.rack_key) if node is not None and pod.rack_key is not None else None
    found = [_wait_for_address(answers, pod, listener, node, pause) for listener in pod.listeners]
    properties = final_properties(text, pod, found, found_rack)
    after = before.updated(answers.fresh_node, answers.fresh_services)
    if remembers and after != before:
        save(folders, pod, after)
    return properties


def volume_roots(text: str) -> list[Path]:
    """The root directories of the broker's volumes: the operator puts each log directory one level below."""
    directories = (value_of(text, "log.dirs") or "").split(",")
    return [Path(directory.strip()).parent for directory in directories if directory.strip()]


class _Answers:
    """Reads objects from the API server, or from its saved answers if it is not available."""

    def __init__(
        self,
        api: Api,
        pod: BrokerPod,
        known: Remembered,
        *,
        seconds: float,
        pause: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self.fresh_node: Json | None = None
        self.fresh_services: dict[str, Json] = {}
        self._api, self._pod, self._known = api, pod, known
        self._pause, self._clock = pause, clock
        self._until = clock() + seconds

    def node(self) -> Json:
        """Return the pod's node. Rack and address of another node would be wrong, so its saved answer is not used."""
        name, known = self._pod.node, self._known
        same = known.node if known.node_name == name else None
        if known.node is not None and same is None:
            logger.info(
                "the saved rack and address are those of node %s, but this pod runs on %s", known.node_name, name
            )
        fresh = self._fresh(f"node {name}", lambda: self._api.node(name), same)
        if fresh is not None:
            self.fresh_node = fresh
            return fresh
        assert same is not None
        return same

    def service(self, name: str) -> Json:
        """Return one of the broker's Services."""
        last = self._known.services.get(name)
        fresh = self._fresh(f"Service {name}", lambda: self._api.service(self._pod.namespace, name), last)
        if fresh is not None:
            self.fresh_services[name] = fresh
            return fresh
        self.fresh_services.pop(name, None)
        assert last is not None
        return last

    def _fresh(self, what: str, read: Callable[[], Json], last: Json | None) -> Json | None:
        """Return the current object; None if `last` must be used. Raises `PodError` if there is neither."""
        if last is None:
            return read_patiently(what, read, pause=self._pause, clock=self._clock)
        try:
            return read_within(self._until - self._clock(), what, read, pause=self._pause, clock=self._clock)
        except ApiReadError as error:
            saved, shown = self._known.saved, json.dumps(last, sort_keys=True)
            logger.warning(
                "reading %s from the API server failed: %s; starting with its last answer, saved at %s: %s",
                *(what, error, saved, shown),
            )
            return None


def _own(pod: BrokerPod, listener: PodListener) -> Address:
    address = advertised(pod, listener, None, None)
    assert isinstance(address, Address)
    return address


def _wait_for_address(
    answers: _Answers, pod: BrokerPod, listener: PodListener, node: Json | None, pause: Callable[[float], None]
) -> Address:
    name = service_name(pod, listener)
    if name is None:
        return _own(pod, listener)
    waited = 0.0
    while True:
        service = answers.service(name)
        address = advertised(pod, listener, node if listener.type == NODE_PORT else None, service)
        if not isinstance(address, AddressPending):
            return address
        if waited % REMINDER_SECONDS == 0:
            logger.warning("listener %s waits: %s", listener.name, address.reason)
        pause(ADDRESS_PAUSE_SECONDS)
        waited += ADDRESS_PAUSE_SECONDS


def read_text(path: Path) -> str:
    """Read a mounted file. Raises `PodError`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PodError(f"The file {path} cannot be read: {reason}.") from error


def read_secrets(folder: Path) -> dict[str, str]:
    """Read the properties of all mounted Secrets: the name of each file is a property. Raises `PodError`.

    If several Secrets have a property, the last one in the order of the resource counts. Kubernetes stores the files of
    a Secret behind links whose names begin with two dots; these are ignored.
    """
    found: dict[str, str] = {}
    mounted = sorted((path for path in folder.iterdir()), key=lambda path: int(path.name)) if folder.is_dir() else []
    for secret in mounted:
        for entry in sorted(secret.iterdir()):
            if not entry.name.startswith(".."):
                found[entry.name] = read_text(entry).rstrip("\r\n")
    return found


def write_properties(path: Path, text: str) -> None:
    """Write the final properties, readable only by the broker. Raises `PodError`."""
    try:
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PodError(f"{path} cannot be written: {error.strerror}. /tmp must be writable.") from error


def end_on_signals() -> None:
    """Let SIGTERM and SIGINT end this process: the first process of a container ignores signals without a handler."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in _HELD_BACK:
        signal.signal(number, end)


def become_broker(properties: Path, text: str, environment: Mapping[str, str]) -> NoReturn:
    """Execute `odradek broker`.

    Signals are blocked during the exec: they would be lost before the new program has handlers, and the kubelet would
    wait for the whole grace period. The broker's parent process unblocks them; without a parent process they are not
    blocked.
    """
    if supervised(text):
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    become_odradek(["broker", str(properties)], environment)
