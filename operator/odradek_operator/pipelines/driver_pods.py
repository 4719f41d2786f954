"""The drivers of a Pipeline as values, from their pods and from the status. Pure.

Pods are written by users and kubelets too, so every field may be missing or of another type.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from odradek_operator.objects.pod_facts import clean_text, container_status, url_host, why_not_started
from odradek_operator.pipelines import pipeline_names as names

EPOCH_YEAR: Final = 1970


class DriverPhase(Enum):
    """How far a driver is."""

    STARTING = "Starting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def has_ended(self) -> bool:
        """Whether its process has ended."""
        return self in (DriverPhase.SUCCEEDED, DriverPhase.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    """A driver whose pod exists."""

    name: str
    uid: str
    number: int
    specification: str
    run: str
    attempt: int
    phase: DriverPhase
    is_leaving: bool
    """Whether the pod is being deleted."""
    address: str | None
    created_at: datetime
    started_at: datetime
    ended_at: datetime | None
    error: str
    """Why it has failed, or why it does not start; empty if nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedDriver:
    """The last driver that has ended. The status remembers it when its pod is gone."""

    driver: str
    number: int
    specification: str
    run: str
    attempt: int
    succeeded: bool
    started_at: datetime
    ended_at: datetime
    error: str = ""

    @classmethod
    def of(cls, pod: DriverPod) -> EndedDriver:
        """Return the end of a driver whose pod has ended."""
        assert pod.ended_at is not None, "it has ended"
        return cls(
            driver=pod.name,
            number=pod.number,
            specification=pod.specification,
            run=pod.run,
            attempt=pod.attempt,
            succeeded=pod.phase is DriverPhase.SUCCEEDED,
            started_at=pod.started_at,
            ended_at=pod.ended_at,
            error=pod.error,
        )

    @classmethod
    def read(cls, document: Any) -> EndedDriver | None:
        """Read `lastRun` of a status; None if there is none, or others have changed it."""
        if not isinstance(document, Mapping):
            return None
        started, ended = parse_time(document.get("startedAt")), parse_time(document.get("endedAt"))
        number, attempt = document.get("number"), document.get("attempt")
        if started is None or ended is None or not isinstance(number, int) or not isinstance(attempt, int):
            return None
        if not 0 <= number <= names.MAX_DRIVERS:
            return None
        return cls(
            driver=str(document.get("driver", "")),
            number=number,
            specification=str(document.get("specification", "")),
            run=str(document.get("run", "")),
            attempt=max(1, attempt),
            succeeded=document.get("result") == DriverPhase.SUCCEEDED.value,
            started_at=started,
            ended_at=ended,
            error=str(document.get("error", "")),
        )

    def document(self) -> dict[str, Any]:
        """Return `lastRun` of a status."""
        found = {
            "driver": self.driver,
            "number": self.number,
            "result": (DriverPhase.SUCCEEDED if self.succeeded else DriverPhase.FAILED).value,
            "run": self.run,
            "specification": self.specification,
            "attempt": self.attempt,
            "startedAt": time_text(self.started_at),
            "endedAt": time_text(self.ended_at),
            "error": self.error,
        }
        return {key: value for key, value in found.items() if value != ""}


def parse_time(text: Any) -> datetime | None:
    """Return a time of Kubernetes, in UTC; None if the text is none, or is before 1970."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        found = found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return found if found.year >= EPOCH_YEAR else None


def time_text(time: datetime) -> str:
    """Return a time as Kubernetes writes it, in whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def driver_pods(bodies: Iterable[Mapping[str, Any]], uid: str) -> tuple[DriverPod, ...]:
    """Return the drivers of the Pipeline with this uid, by number. Other pods are ignored."""
    found = [pod for body in bodies if _owner(body) == uid and (pod := _driver_pod(body)) is not None]
    return tuple(sorted(found, key=lambda pod: pod.number))


def former_pods(bodies: Iterable[Mapping[str, Any]], uid: str) -> list[str]:
    """Return the names of drivers of an earlier Pipeline of this name that may still run."""
    return [
        str(body["metadata"]["name"])
        for body in bodies
        if _owner(body) not in (None, uid) and (pod := _driver_pod(body)) is not None and not pod.phase.has_ended
    ]


def executors_of(bodies: Iterable[Mapping[str, Any]], drivers: Container[str]) -> list[tuple[str, str]]:
    """Return name and uid of the executors of drivers with these uids, except those that are being deleted."""
    found = []
    for body in bodies:
        metadata = body["metadata"]
        is_executor = (metadata.get("labels") or {}).get(names.ROLE_LABEL) == names.EXECUTOR
        owners = [owner.get("uid") for owner in metadata.get("ownerReferences") or []]
        if is_executor and "deletionTimestamp" not in metadata and any(owner in drivers for owner in owners):
            found.append((str(metadata["name"]), str(metadata["uid"])))
    return found


def _owner(body: Mapping[str, Any]) -> str | None:
    for owner in body["metadata"].get("ownerReferences") or []:
        if owner.get("controller") and owner.get("kind") == "Pipeline":
            return str(owner.get("uid"))
    return None


def _driver_pod(body: Mapping[str, Any]) -> DriverPod | None:
    metadata = body["metadata"]
    name, labels = str(metadata["name"]), metadata.get("labels") or {}
    number = name.rpartition("-")[2]
    if labels.get(names.ROLE_LABEL) != names.DRIVER or not (number.isascii() and number.isdigit()):
        return None
    notes, status = metadata.get("annotations") or {}, body.get("status") or {}
    container = container_status(status, names.DRIVER)
    ended = _terminated(container)
    phase = _phase(status, ended)
    created = parse_time(metadata.get("creationTimestamp")) or datetime.fromtimestamp(0, UTC)
    started = parse_time(status.get("startTime")) or created
    return DriverPod(
        name=name,
        uid=str(metadata["uid"]),
        number=int(number),
        specification=str(notes.get(names.SPECIFICATION, "")),
        run=str(notes.get(names.RUN, "")),
        attempt=_attempt(notes.get(names.ATTEMPT)),
        phase=phase,
        is_leaving="deletionTimestamp" in metadata,
        address=url_host(status.get("podIP")),
        created_at=created,
        started_at=started,
        ended_at=(parse_time(ended.get("finishedAt")) or started) if phase.has_ended else None,
        error=_error(phase, status, ended),
    )


def _attempt(text: Any) -> int:
    return max(1, int(text)) if isinstance(text, str) and text.isascii() and text.isdigit() else 1


def _terminated(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return (container.get("state") or {}).get("terminated") or {}


def _phase(status: Mapping[str, Any], ended: Mapping[str, Any]) -> DriverPhase:
    match status.get("phase"):
        case "Succeeded":
            return DriverPhase.SUCCEEDED
        case "Failed":
            return DriverPhase.FAILED
        case "Running" if not ended:
            return DriverPhase.RUNNING
    if ended:
        return DriverPhase.SUCCEEDED if ended.get("exitCode") == 0 else DriverPhase.FAILED
    return DriverPhase.STARTING


def _error(phase: DriverPhase, status: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    if phase is DriverPhase.FAILED:
        if ended.get("reason") == "OOMKilled":
            return "The driver needed more memory than it has: raise spec.driver.memory."
        message = ended.get("message") or status.get("message") or status.get("reason")
        code = ended.get("exitCode")
        return clean_text(message) or ("The driver failed." if code is None else f"The driver ended with code {code}.")
    if phase is DriverPhase.STARTING:
        return why_not_started(status, names.DRIVER)
    return ""
