"""What pods of Pipelines and Mirrors say about themselves. Pure.

Pods are written by users and kubelets too, so every field may be missing or of another type.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

MAX_ERROR: Final = 1_024
"""Longest error of a pod in a status, in characters."""
_STARTS: Final = (None, "ContainerCreating", "PodInitializing")
"""Reasons of a container that waits as every container does when its pod starts."""


def url_host(text: Any) -> str | None:
    """Return the IP address of a pod as in a URL; None if the text is none."""
    try:
        address = ip_address(str(text))
    except ValueError:
        return None
    return f"[{address}]" if address.version == 6 else str(address)


def container_status(status: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """Return the status of a container in that of its pod; empty if there is none."""
    for found in status.get("containerStatuses") or []:
        if isinstance(found, Mapping) and found.get("name") == container:
            return found
    return {}


def why_not_started(status: Mapping[str, Any], container: str) -> str:
    """Return why a container has not started, such as an image that cannot be pulled; empty if nothing is known."""
    waiting = (container_status(status, container).get("state") or {}).get("waiting") or {}
    if waiting.get("reason") not in _STARTS:
        return clean_text(f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": "))
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return clean_text(condition.get("message"))
    return ""


def clean_text(text: Any) -> str:
    """Return the text of a pod for a status: in one line, without control characters, and not too long."""
    if not isinstance(text, str):
        return ""
    if text.isprintable() and " " not in text and len(text) <= MAX_ERROR:
        return text  # Names of thousands of topics are such texts.
    # A text may be very long. What is cut off need not be cleaned.
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[: 4 * MAX_ERROR]).split())
    return line if len(line) <= MAX_ERROR else line[: MAX_ERROR - 1] + "…"
