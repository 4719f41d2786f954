"""The client's side of incremental fetch sessions (KIP-227): only what changed is sent.

In: for each leader the partitions that are to be fetched now, and its answers. Out: what to put into the next request.
Called by `fetcher`, one session for each leader.

Theory of operation. A session begins with a full request (epoch 0); the broker may give it an id, or 0 for none. Each
further request carries the id and the next epoch, the partitions that are new or whose position changed, and those to
forget. Any error, or a lost answer, ends in a full request again: the broker closes the old session when the request
names it.

    state      request    answer ok, id 0    answer ok, id n    error FETCH_SESSION_ID_NOT_FOUND     other error or none
    FULL       id/0       FULL               INCREMENTAL        FULL, id 0                           FULL, same id
    INCREMENTAL id/epoch  FULL               INCREMENTAL        FULL, id 0                           FULL, same id
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.base.errors import FetchSessionIdNotFoundError
from odradek.base.types import TopicPartition

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
"""Also the epoch of a request outside any session."""

_INT32_MAX: Final = 2**31 - 1


class PartitionRequest(NamedTuple):
    """What is wanted of one partition."""

    fetch_offset: int
    leader_epoch: int
    max_bytes: int


class SessionRequest(NamedTuple):
    """Session fields of a fetch request, and the partitions to name in it."""

    session_id: int
    session_epoch: int
    partitions: Mapping[TopicPartition, PartitionRequest]
    forgotten: tuple[TopicPartition, ...]


class FetchSession:
    """One leader's session."""

    def __init__(self) -> None:
        """No session yet."""
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._sent: dict[TopicPartition, PartitionRequest] = {}

    def next_request(self, requested: Mapping[TopicPartition, PartitionRequest]) -> SessionRequest:
        """What to send for these partitions; the caller must tell how it ended before it asks again."""
        if self._epoch == INITIAL_EPOCH:
            self._sent = dict(requested)
            return SessionRequest(self._session_id, INITIAL_EPOCH, self._sent, ())
        sent = self._sent
        changed = {partition: request for partition, request in requested.items() if sent.get(partition) != request}
        forgotten = tuple(partition for partition in sent if partition not in requested)
        self._sent = dict(requested)
        return SessionRequest(self._session_id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """The request succeeded; `session_id` is that of the answer."""
        if session_id == NO_SESSION:
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
            return
        self._session_id = session_id
        # The epoch wraps to 1: 0 would begin a new session.
        self._epoch = 1 if self._epoch in (INITIAL_EPOCH, _INT32_MAX) else self._epoch + 1

    def failed(self, error_code: int) -> None:
        """The request failed with a code of its own, or (-1) no answer came: begin anew."""
        if error_code == FetchSessionIdNotFoundError.code:
            self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    @property
    def session_id(self) -> int:
        """The broker's id of this session, 0 without one."""
        return self._session_id
