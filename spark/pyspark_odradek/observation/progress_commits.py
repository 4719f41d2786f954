"""Commits the progress of streaming queries to consumer groups, so that tools for consumer lag show it.

The stream reader and the query listener hand over the offsets of finished micro-batches. A thread commits them like a
consumer without a group membership: `OffsetCommit` without a generation, which a group with members refuses. Spark
itself never reads them; offsets for restarts are in the checkpoint. Invariant: nothing here fails or stops a query.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from odradek.base.errors import OdradekError, ProtocolError, UnknownMemberIdError
from odradek.base.types import TopicPartition
from odradek.client.models import OffsetAndMetadata
from odradek.client.settings import ClientSettings
from pyspark_odradek.options.client_options import source_client, with_config_file
from pyspark_odradek.options.option_values import OptionValues
from pyspark_odradek.options.source_options import progress_group
from pyspark_odradek.shared_client import shared_client

log = logging.getLogger(__name__)

WAIT_SECONDS: Final = 1.0
"""How long a trigger of the source waits for a commit, once: a slow coordinator delays no further trigger."""


class GroupOffsets(Protocol):
    """The method of the admin client that commits."""

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], /
    ) -> Mapping[TopicPartition, ProtocolError | None]:
        """Set the offsets of a group without members."""
        ...


def _shared_admin(settings: ClientSettings) -> GroupOffsets:
    return shared_client(settings).admin


@dataclass(frozen=True, slots=True)
class _Commit:
    offsets: Mapping[TopicPartition, int]
    metadata: str


class ProgressCommits:
    """Commits offsets in the background. Of several micro-batches that wait, only the newest is committed."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        group: str | None = None,
        connect: Callable[[ClientSettings], GroupOffsets] = _shared_admin,
    ) -> None:
        """`group`: a consumer group, or None for the one that is named after each query. Connects at first use."""
        self._settings = settings
        self._group = group
        self._connect = connect
        self._forget()

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ProgressCommits:
        """Return commits for the options of a source: its `kafka.` options or `configFile`, and `progressGroup`.

        Without `progressGroup`, or with `true`, the group is named after each query. Raises `ConfigError` if an option
        is invalid.
        """
        values = OptionValues(with_config_file(options))
        settings, _ = source_client(values)
        return cls(settings, group=progress_group(values, of_listener=True))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the thread and what waits: each process has its own."""
        return {"_settings": self._settings, "_group": self._group, "_connect": self._connect}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the settings."""
        self.__dict__.update(state)
        self._forget()

    def _forget(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, _Commit] = {}
        self._committing = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._last: dict[str, Mapping[TopicPartition, int]] = {}
        self._last_error: dict[str, str] = {}

    def finished(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        query: str | None = None,
        query_id: str | None = None,
        batch_id: int | None = None,
        wait_seconds: float = 0,
    ) -> None:
        """Commit the next offsets to read after a finished micro-batch, unless they are committed already.

        The metadata are JSON with those of `query` (its name), `id` and `batch` that are known. Waits up to
        `wait_seconds` for the result, but not while an earlier commit is still in progress.
        """
        group = self._group or query
        if not offsets or not group:
            return
        known = {"query": query or group, "id": query_id, "batch": batch_id}
        metadata = json.dumps({name: value for name, value in known.items() if value is not None})
        with self._changed:
            if self._closed or self._last.get(group) == offsets:
                return
            self._last[group] = dict(offsets)
            may_wait = not self._committing
            self._waiting[group] = _Commit(offsets, metadata)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="progress-commits", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            if wait_seconds and may_wait:
                self._changed.wait_for(self._idle, wait_seconds)

    def _idle(self) -> bool:
        return not self._waiting and not self._committing

    def close(self) -> None:
        """Commit what waits, and end the thread. Later calls of `finished` do nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._committing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                group, commit = self._waiting.popitem()
                self._committing = True
            self._commit(group, commit)

    def _commit(self, group: str, commit: _Commit) -> None:
        positions: dict[TopicPartition, OffsetAndMetadata | int] = {
            partition: OffsetAndMetadata(offset, commit.metadata) for partition, offset in commit.offsets.items()
        }
        try:
            errors = self._connect(self._settings).alter_group_offsets(group, positions)
        except UnknownMemberIdError:
            self._failed(group, "the group has active members; choose a group of its own for the query")
        except (OdradekError, OSError) as error:
            self._failed(group, str(error))
        else:
            failed = {partition: error for partition, error in errors.items() if error is not None}
            if failed:
                self._failed(group, "; ".join(f"{partition}: {error}" for partition, error in sorted(failed.items())))
            else:
                self._last_error.pop(group, None)

    def _failed(self, group: str, text: str) -> None:
        """Log a failure; the same one only once, until a commit succeeds. The next micro-batch tries again."""
        if self._last_error.get(group) != text:
            log.warning("the progress of the query could not be committed to consumer group %s: %s", group, text)
        self._last_error[group] = text
        with self._changed:
            self._last.pop(group, None)
