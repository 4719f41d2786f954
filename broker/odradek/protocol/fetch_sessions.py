"""Incremental fetch sessions (KIP-227): the numbering that both sides share, and the state of the side that fetches.

Consumers and followers have one `FetchSessionHandler` for each leader. `replication/sessions/fetch_session` is the
leader's side. A session begins with a full request, of epoch 0; the leader answers with an id for it, or with 0 if it
keeps no session. Each further request contains the id, the next epoch, the partitions that are new or changed, and
those to remove. After an error or a lost response a full request begins a new session; it contains the id of the old
one, which the leader then closes.

    state         request     success, id 0    success, id n    error FETCH_SESSION_ID_NOT_FOUND    other error, or none
    full          id/0        full             incremental      full, id 0                          full, same id
    incremental   id/epoch    full             incremental      full, id 0                          full, same id
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from odradek.base.errors import FetchSessionIdNotFoundError

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
"""Epoch of a request that ends its session, or that belongs to none."""
EPOCH_MAX: Final = 2**31 - 1

Key = TypeVar("Key", bound=Hashable)
Entry = TypeVar("Entry")


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request; epoch 0 is used only for the first one."""
    if epoch < INITIAL_EPOCH:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


class SessionRequest(NamedTuple, Generic[Key, Entry]):
    """The session's part of a Fetch request."""

    session_id: int
    epoch: int
    changed: dict[Key, Entry]
    """Partitions to add or change; all of them in a full request."""
    forgotten: dict[Key, Entry]
    """Partitions to remove, as they were requested last."""


class FetchSessionHandler(Generic[Key, Entry]):
    """The session with one leader, from the side that fetches. `Entry` is what is requested of one partition.

    Invariant: `requested` is what the leader remembers, or the next request is a full one. The caller reports the
    outcome of each request with `answered` or `failed` before it asks for the next one.
    """

    __slots__ = ("_epoch", "_requested", "_session_id")

    def __init__(self) -> None:
        """Start without a session."""
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._requested: dict[Key, Entry] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request is a full one."""
        return self._epoch == INITIAL_EPOCH

    def next_request(self, wanted: dict[Key, Entry]) -> SessionRequest[Key, Entry]:
        """Return the session's part of a request for exactly the partitions `wanted`, which must not change later."""
        requested, self._requested = self._requested, wanted
        if self._epoch == INITIAL_EPOCH:
            return SessionRequest(self._session_id, INITIAL_EPOCH, wanted, {})
        changed = {key: entry for key, entry in wanted.items() if requested.get(key) != entry}
        forgotten = {key: entry for key, entry in requested.items() if key not in wanted}
        return SessionRequest(self._session_id, self._epoch, changed, forgotten)

    def answered(self, error_code: int, session_id: int) -> None:
        """Continue the session, begin a new one, or continue without one, as the response says."""
        if error_code == FetchSessionIdNotFoundError.code or (not error_code and session_id == NO_SESSION):
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif error_code:
            self._epoch = INITIAL_EPOCH
        else:
            self._session_id, self._epoch = session_id, next_epoch(self._epoch)

    def failed(self) -> None:
        """Make the next request a full one: there was no response, or the leader's session is out of date."""
        self._epoch = INITIAL_EPOCH
