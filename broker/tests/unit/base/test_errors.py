"""The error classes: one for each code, with retriability and cause."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from odradek.base import errors


def test_every_code_is_one_of_the_protocol() -> None:
    known = {int(code.value) if isinstance(code.value, int) else code.value[0] for code in ErrorCode}
    assert set(errors.BY_CODE) <= known


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_retriability_is_the_protocols(code: int) -> None:
    assert errors.BY_CODE[code].retriable == ErrorCode(code).retriable


def test_error_for() -> None:
    error = errors.error_for(6, "moved")
    assert isinstance(error, errors.NotLeaderOrFollowerError)
    assert isinstance(error, errors.StateError)
    assert str(error) == "moved"


def test_unknown_code_keeps_its_number() -> None:
    error = errors.error_for(9999, "strange")
    assert type(error) is errors.UnknownServerError
    assert "9999" in str(error)


def test_zero_is_no_error() -> None:
    with pytest.raises(ValueError, match="success"):
        errors.error_for(0, "")
