"""Reports why a process in a container ended, so that Kubernetes shows it in the status of the pod.

https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""The kubelet creates the file in each container and shows its content in the status of the pod."""
MAX_CHARACTERS: Final = 1_000
"""The kubelet shows at most 4,096 bytes."""


def report_termination(sentence: str, path: Path = TERMINATION_LOG) -> None:
    """Write why this process ends. Does nothing outside a container, where the file does not exist."""
    try:
        if path.exists():
            path.write_text(sentence[:MAX_CHARACTERS], encoding="utf-8")
    except OSError as error:
        logger.warning("%s cannot be written: %s", path, error.strerror)
