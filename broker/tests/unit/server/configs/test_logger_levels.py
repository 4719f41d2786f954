"""Levels of loggers, with Kafka's names."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from uuid import uuid4

import pytest

from odradek.base.errors import InvalidConfigError, InvalidRequestError, ProtocolError
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequestAlterableConfig
from odradek.server.configs.logger_levels import LEVELS, alter_levels, level_name, logger_entries

SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger for the test, in a package that has no logger."""
    logger = logging.getLogger(f"package-{uuid4().hex}.part")
    yield logger
    for name in (logger.name, logger.name.partition(".")[0]):
        logging.getLogger(name).setLevel(logging.NOTSET)


def alter(*operations: tuple[str, int, str | None], validate_only: bool = False) -> None:
    entries = [
        IncrementalAlterConfigsRequestAlterableConfig(name=name, config_operation=kind, value=value)
        for name, kind, value in operations
    ]
    alter_levels(entries, validate_only=validate_only)


def level_of(name: str) -> object:
    return {entry["name"]: entry["value"] for entry in logger_entries()}[name]


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_holds_until_it_is_deleted(logger: logging.Logger, level: str) -> None:
    above = level_of("root")
    assert level_of(logger.name) == above
    alter((logger.name, SET, level), validate_only=True)
    assert logger.level == logging.NOTSET
    alter((logger.name, SET, level))
    assert (level_of(logger.name), logger.level) == (level, LEVELS[level])
    alter((logger.name, DELETE, None))
    assert level_of(logger.name) == above


def test_a_package_is_a_logger_too(logger: logging.Logger) -> None:
    package = logger.name.partition(".")[0]
    alter((package, SET, "FATAL"))
    assert level_of(package) == level_of(logger.name) == "FATAL"


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (("no such logger", SET, "INFO"), InvalidConfigError),
        (("no such logger", DELETE, None), InvalidConfigError),
        (("", SET, "WARNING"), InvalidConfigError),
        (("", APPEND, "INFO"), InvalidRequestError),
        (("", SUBTRACT, "INFO"), InvalidRequestError),
        (("root", DELETE, None), InvalidRequestError),
    ],
)
def test_a_refused_request_changes_nothing(
    logger: logging.Logger, operation: tuple[str, int, str | None], error: type[ProtocolError]
) -> None:
    name, kind, value = operation
    with pytest.raises(error):
        alter((logger.name, SET, "ERROR"), (name or logger.name, kind, value))
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(("level", "name"), [(0, "TRACE"), (1, "TRACE"), (9, "TRACE"), (25, "INFO"), (99, "FATAL")])
def test_levels_between_two(level: int, name: str) -> None:
    assert level_name(level) == name
