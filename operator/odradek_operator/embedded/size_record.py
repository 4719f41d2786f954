"""The file in the data folder that records how many brokers the cluster has, and how many in each group.

On Kubernetes, the ConfigMap `CLUSTER-members` has the same entries. The file is written before brokers are added and
after they were removed, so a crash in between leaves a number that is too large: those brokers are empty, and they are
removed again.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from odradek_operator.embedded.child import system_error
from odradek_operator.errors import EmbeddedError
from odradek_operator.lifecycle.cluster_record import read_record, record_data, recorded_per_pod
from odradek_operator.lifecycle.observed_cluster import Record

FILE_NAME: Final = "members.json"


class SizeRecord:
    """The record of one cluster."""

    def __init__(self, folder: Path) -> None:
        """Read the file in the data folder if it exists. Raises `EmbeddedError` if it is invalid."""
        self._path = folder / FILE_NAME
        self.record = _load(self._path)

    def set_brokers(self, groups: int, per_pod: int = 1) -> None:
        """Record the number of groups, and of brokers in each. Raises `EmbeddedError` if the file cannot be written."""
        record = replace(self.record, brokers=groups, per_pod=recorded_per_pod(per_pod), first_id=0)
        if (record.brokers, record.per_pod) == (self.record.brokers, self.record.per_pod):
            return
        data = {key: value for key, value in record_data(record).items() if value is not None}
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_text(json.dumps(data, indent=1, sort_keys=True), encoding="utf-8")
            os.replace(temporary, self._path)
        except OSError as error:
            raise EmbeddedError(system_error(f"{self._path} cannot be written", error)) from error
        self.record = record


def _load(path: Path) -> Record:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Record()
    except OSError as error:
        raise EmbeddedError(system_error(f"{path} cannot be read", error)) from error
    except ValueError as error:
        raise EmbeddedError(_damaged(path, str(error))) from error
    if not isinstance(content, dict):
        raise EmbeddedError(_damaged(path, "it is not a JSON object"))
    return read_record(content)


def _damaged(path: Path, why: str) -> str:
    return f"{path} is damaged ({why}): remove it. Brokers that are being drained are then found by their replicas."
