"""Remembers which topics had a resource, to notice resources that are removed while the cluster does not run.

On Kubernetes, a finalizer does this; here it is a file in the data folder. It stores the cluster and the last
`deletion` policy of each topic.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from odradek_operator.crds import Deletion, Topic
from odradek_operator.embedded.child import system_error
from odradek_operator.errors import EmbeddedError


class Ledger:
    """The topics that had a resource; every change is written to the file."""

    def __init__(self, path: Path) -> None:
        """Read the file if it exists. Raises `EmbeddedError` if it is invalid."""
        self._path = path
        self._topics = _load(path)

    def removed(self, topics: Mapping[str, Topic]) -> dict[str, Topic]:
        """Return the topics that had a resource and have none now."""
        return {name: topic for name, topic in self._topics.items() if name not in topics}

    def note(self, topics: Mapping[str, Topic]) -> None:
        """Remember these topics. Removed ones are remembered until `forget`."""
        self._store({**self._topics, **topics})

    def forget(self, names: Iterable[str]) -> None:
        """Forget topics whose removal was handled."""
        gone = set(names)
        self._store({name: topic for name, topic in self._topics.items() if name not in gone})

    def _store(self, topics: dict[str, Topic]) -> None:
        before, self._topics = _entries(self._topics), topics
        if _entries(topics) == before:
            return
        text = json.dumps({"topics": _entries(topics)}, indent=1, sort_keys=True)
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, self._path)
        except OSError as error:
            raise EmbeddedError(system_error(f"{self._path} cannot be written", error)) from error


def _entries(topics: Mapping[str, Topic]) -> dict[str, dict[str, str]]:
    return {name: {"cluster": topic.cluster, "deletion": topic.deletion.value} for name, topic in topics.items()}


def _load(path: Path) -> dict[str, Topic]:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): Topic(name=str(name), cluster=str(entry["cluster"]), deletion=Deletion(entry["deletion"]))
            for name, entry in content["topics"].items()
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise EmbeddedError(system_error(f"{path} cannot be read", error)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EmbeddedError(
            f"{path} is damaged ({error}): remove it. Topics whose resource was removed while nothing ran then stay."
        ) from error
