"""A lock between the event loop and the threads of a log directory, which hold it during calls on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from odradek.base.errors import StorageError

LONGEST_WAIT_S: Final = 10.0
"""Seconds for which the event loop waits for a thread; less than `process.hang.timeout.ms`."""


@contextmanager
def hold_on_loop(lock: Lock, what: str) -> Iterator[None]:
    """Hold a lock on the event loop.

    `what`: what a thread does while it holds the lock, such as "the write of a checkpoint". Raises `StorageError` if a
    thread holds it for longer than `LONGEST_WAIT_S`.
    """
    if not lock.acquire(timeout=LONGEST_WAIT_S):
        raise StorageError(f"the disk has not completed {what} for {LONGEST_WAIT_S:.0f} s")
    try:
        yield
    finally:
        lock.release()
