"""Checks, after the brokers have stopped, that all replicas have the same bytes and that their files are valid.

Takes the log directories by broker, and returns violations. Segments of replicas may begin at different offsets,
because followers get several batches at once, so the concatenated bytes of all segments are compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from odradek.cli.logs.findings import Severity
from odradek.cli.logs.verify import verify

_CHUNK_BYTES: Final = 1 << 20


def differences(volumes: Mapping[int, Path], topic: str, partitions: int) -> list[str]:
    """Return a violation for each partition whose replicas differ. Every log must begin at offset 0."""
    wrong = []
    for number in range(partitions):
        logs = {broker: _digest(volume / f"{topic}-{number}") for broker, volume in volumes.items()}
        if len(set(logs.values())) > 1:
            sizes = ", ".join(
                f"broker {broker} has {size} bytes, {digest[:12]}" for broker, (size, digest) in logs.items()
            )
            wrong.append(f"the replicas of partition {number} differ: {sizes}")
    return wrong


def _digest(directory: Path) -> tuple[int, str]:
    size, found = 0, hashlib.sha256()
    for path in sorted(directory.glob("*.log")):
        with path.open("rb") as segment:
            while chunk := segment.read(_CHUNK_BYTES):
                size += len(chunk)
                found.update(chunk)
    return size, found.hexdigest()


def damages(volumes: Mapping[int, Path]) -> list[str]:
    """Return the errors of `odradek log verify`."""
    report = verify(list(volumes.values()), deep=False, jobs=None, progress=lambda done, total: None)
    return [
        f"{finding.path}: {finding.check}: {finding.text}"
        for finding in report.findings
        if finding.severity is Severity.ERROR
    ]
