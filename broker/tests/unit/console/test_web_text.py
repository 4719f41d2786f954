"""Texts of the pages, and paths after a login."""

from __future__ import annotations

import pytest

from odradek.base.errors import (
    ConfigError,
    GroupIdNotFoundError,
    NetworkError,
    OdradekError,
    StorageError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
)
from odradek.console.web_guard import status_of
from odradek.console.web_pages import duration_text, local_path, size_text, time_text


@pytest.mark.parametrize("text", ["/", "/topics?q=a%20b", "/group?id=//x"])
def test_a_login_leads_to_a_page_of_the_console(text: str) -> None:
    assert local_path(text) == text


@pytest.mark.parametrize(
    "text", ["", "//other.example/", "/\\other.example", "https://other.example", "/a\r\nSet-Cookie: x", "topics"]
)
def test_a_login_leads_nowhere_else(text: str) -> None:
    assert local_path(text) == "/"


def test_numbers_for_people() -> None:
    assert [size_text(size) for size in (None, 0, 1023, 1536, 5 << 30, 3 << 40)] == [
        "–", "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "3.0 TiB"
    ]  # fmt: skip
    assert [duration_text(time) for time in (None, 0, 900, 61_000, 3_600_000, 90_000_000)] == [
        "–", "0 ms", "900 ms", "1 min 1 s", "1 h 0 min", "1 d 1 h"
    ]  # fmt: skip
    assert [time_text(time) for time in (-1, 1500, 2**62)] == ["–", "1970-01-01T00:00:01.500Z", str(2**62)]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TopicAuthorizationFailedError(), 403),
        (GroupIdNotFoundError(), 404),
        (NetworkError(), 503),
        (ConfigError(), 400),
        (TopicAlreadyExistsError(), 400),
        (StorageError(""), 500),
        (OdradekError(), 500),
    ],
)
def test_errors_have_a_status(error: OdradekError, status: int) -> None:
    assert status_of(error) == status
