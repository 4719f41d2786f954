"""The last words of a process in a container, where Kubernetes looks for them.

https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""The kubelet makes the file in each container, and shows its text in the pod's status. Elsewhere there is none."""
MAX_CHARACTERS: Final = 1_000
"""The kubelet shows 4,096 bytes at most."""


def report_termination(sentence: str, path: Path = TERMINATION_LOG) -> None:
    """Say why this process ends; where the file is missing, nothing is done."""
    try:
        if path.exists():
            path.write_text(sentence[:MAX_CHARACTERS], encoding="utf-8")
    except OSError as error:
        logger.warning("%s cannot be written: %s", path, error.strerror)
