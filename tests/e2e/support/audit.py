"""Counts requests to the API server from its audit log.

The last line of the log may be incomplete, because it is being written. Tests that limit the number of the operator's
writes use this module.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that was answered. `at` is in seconds since the epoch; `resource` is `pods` or `pods/status`."""

    user: str
    agent: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    at: float

    @property
    def writes(self) -> bool:
        """Return whether the request may have changed something."""
        return self.verb in WRITES


def parse(lines: Iterable[str]) -> Iterator[Request]:
    """Yield the complete requests. A line without a line end is still being written."""
    for line in lines:
        if not line.endswith("\n"):
            return
        event = json.loads(line)
        if event.get("stage") != "ResponseComplete":
            continue
        target = event.get("objectRef", {})
        parts = (target.get("resource", ""), target.get("subresource", ""))
        yield Request(
            user=event["user"].get("username", ""),
            agent=event.get("userAgent", ""),
            verb=event["verb"],
            resource="/".join(part for part in parts if part),
            namespace=target.get("namespace", ""),
            name=target.get("name", ""),
            code=event.get("responseStatus", {}).get("code", 0),
            at=datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp(),
        )


class AuditLog:
    """Requests to the API server since a mark. Creating the object sets the first mark."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._offset = 0
        self.mark()

    def mark(self) -> None:
        """Set the mark: ignore everything before now."""
        self._offset = self._path.stat().st_size

    def requests(self, accept: Callable[[Request], bool] = lambda _: True) -> list[Request]:
        """The requests since the mark that `accept` returns true for."""
        with self._path.open(encoding="utf-8") as file:
            file.seek(self._offset)
            return [request for request in parse(file) if accept(request)]

    def writes(self, user: str) -> Counter[tuple[str, str]]:
        """Count the writes of a user or of its user agents, by verb and resource. A part of the name suffices."""
        found = self.requests(lambda request: request.writes and (user in request.user or user in request.agent))
        return Counter((request.verb, request.resource) for request in found)
