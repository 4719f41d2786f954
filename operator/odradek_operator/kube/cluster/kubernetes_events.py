"""Writes Kubernetes Events: what the operator did to a resource and why, and what a resource waits for.

A failure to write an Event is only logged, because Events are informational.
"""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from datetime import UTC, datetime
from enum import Enum
from typing import Final
from uuid import uuid4

from odradek_operator.kube.api.api_client import KubernetesClient, KubernetesError
from odradek_operator.kube.api.object_kinds import Kind, Object
from odradek_operator.objects.names import FIELD_MANAGER

logger = logging.getLogger(__name__)

REMEMBERED: Final = 1_000
"""Number of messages that are remembered, so that they are not repeated."""
MAX_NOTE: Final = 1_000
"""Maximum characters of a message; the API server accepts 1,024."""


class EventType(Enum):
    """The type of an Event: a planned action, or a problem."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Events:
    """Writes the Events of an operator."""

    def __init__(self, client: KubernetesClient, *, instance: str) -> None:
        """`instance`: the name of the operator's pod."""
        self._client = client
        self._instance = instance
        self._written: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def through(self, client: KubernetesClient) -> Events:
        """Return the same writer with another client."""
        other = copy.copy(self)
        other._client = client
        return other

    async def write(self, about: Object, reason: str, message: str, event_type: EventType = EventType.NORMAL) -> None:
        """Write an Event about something that happened now."""
        metadata = about["metadata"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = metadata["name"]
        body: Object = {
            "apiVersion": Kind.EVENT.api_version,
            "kind": Kind.EVENT.word,
            "metadata": {"name": f"{name[:200]}.{uuid4().hex[:16]}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": name,
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "reason": reason,
            "message": message[:MAX_NOTE],
            "type": event_type.value,
            "source": {"component": FIELD_MANAGER, "host": self._instance},
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        logger.info("%s %s/%s: %s: %s", about["kind"], metadata["namespace"], name, reason, message)
        try:
            await self._client.create(body)
        except KubernetesError as error:
            logger.warning("cannot write an Event: %s", error)

    async def write_once(
        self, about: Object, reason: str, message: str, event_type: EventType = EventType.NORMAL
    ) -> None:
        """Write an Event about a lasting state, once."""
        key = (about["metadata"]["uid"], reason, message)
        known = key in self._written
        self._written[key] = None
        self._written.move_to_end(key)
        while len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        if not known:
            await self.write(about, reason, message, event_type)
