"""Values of the threshold, and sockets that refuse it. `test_tls_listener` has the tests with real sockets."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.network.wake_threshold import LEAST_BYTES, MOST_BYTES, SLACK_BYTES, WakeThreshold, threshold_of


class Options:
    """A socket that records its thresholds, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.set: list[int] = []
        self.error = error

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.set.append(value)
        if self.error is not None:
            raise self.error


class Transport:
    """A transport with this information."""

    def __init__(self, **extra: object) -> None:
        self.extra = extra

    def get_extra_info(self, name: str) -> Any:
        return self.extra.get(name)


def wanted(missing_bytes: int) -> int:
    options = Options()
    WakeThreshold(options).want(missing_bytes)
    return options.set[0] if options.set else 1


@pytest.mark.parametrize(
    ("missing_bytes", "threshold"),
    [
        (-5, 1),
        (0, 1),
        (SLACK_BYTES, 1),
        (SLACK_BYTES + LEAST_BYTES - 1, 1),
        (SLACK_BYTES + LEAST_BYTES, LEAST_BYTES),
        (SLACK_BYTES + MOST_BYTES - 1, MOST_BYTES - 1),
        (SLACK_BYTES + MOST_BYTES, MOST_BYTES),
        (2**31 + 3, MOST_BYTES),
    ],
)
def test_the_threshold_follows_what_is_missing(missing_bytes: int, threshold: int) -> None:
    assert wanted(missing_bytes) == threshold


@given(st.integers(-(2**31), 2**31 + 3) | st.integers(0, 2 * MOST_BYTES))
def test_the_threshold_is_never_above_what_must_still_arrive(missing_bytes: int) -> None:
    incomplete_record = (16 << 10) + 256 + 5

    assert 1 <= wanted(missing_bytes) <= min(MOST_BYTES, max(1, missing_bytes - incomplete_record))


def test_the_option_is_set_only_if_it_changes() -> None:
    options = Options()
    threshold = WakeThreshold(options)
    for missing_bytes in (0, 9, 1 << 20, 1 << 19, 50 << 10, 50 << 10, 9, 0):
        threshold.want(missing_bytes)
    assert options.set == [MOST_BYTES, (50 << 10) - SLACK_BYTES, 1]


def test_a_threshold_is_lifted_once() -> None:
    options = Options()
    threshold = WakeThreshold(options)
    assert not threshold.lift()
    threshold.want(1 << 20)
    assert threshold.lift()
    assert not threshold.lift()
    threshold.want(1 << 20)
    assert options.set == [MOST_BYTES, 1, MOST_BYTES]


@pytest.mark.parametrize("error", [OSError(errno.ENOPROTOOPT, "no"), ValueError("negative file descriptor")])
def test_a_socket_that_refuses_is_not_asked_again(error: Exception) -> None:
    options = Options(error)
    threshold = WakeThreshold(options)
    for _ in range(3):
        threshold.want(1 << 20)
        assert not threshold.lift()
    assert options.set == [MOST_BYTES]


def test_a_socket_that_was_closed_meanwhile_is_not_asked_again() -> None:
    options = Options()
    threshold = WakeThreshold(options)
    threshold.want(1 << 20)
    options.error = OSError(errno.EBADF, "closed")
    assert threshold.lift()
    threshold.want(1 << 20)
    assert not threshold.lift()
    assert options.set == [MOST_BYTES, 1]


def test_only_a_transport_with_tls_and_a_socket_has_a_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    encrypted: Any = Transport(ssl_object=object(), socket=Options())
    for other in (Transport(), Transport(socket=Options()), Transport(ssl_object=object())):
        plain: Any = other
        assert threshold_of(plain) is None
    monkeypatch.setattr("sys.platform", "linux")
    assert threshold_of(encrypted) is not None
    monkeypatch.setattr("sys.platform", "darwin")
    assert threshold_of(encrypted) is None
