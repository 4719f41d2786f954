"""Levels of this process's loggers, described and changed with the names in Kafka's tools (KIP-412).

`server/configs/config_handlers` passes the operations on a BROKER_LOGGER resource. As in Kafka, a change lasts until
the process ends. Invariant: a rejected request changes no level.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from odradek.base.errors import InvalidConfigError, InvalidRequestError
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequestAlterableConfig
from odradek.server.configs.broker_configs import Source

ROOT: Final = "root"
LEVELS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
"""Kafka's levels as Python's numbers; Python has none below DEBUG."""

SET: Final = 0
DELETE: Final = 1


def logger_entries() -> list[dict[str, object]]:
    """Return all loggers, including those of packages, with their effective levels."""
    return [
        {
            "name": name,
            "value": level_name(logging.getLogger(_own_name(name)).getEffectiveLevel()),
            "read_only": False,
            "config_source": int(Source.DYNAMIC_BROKER_LOGGER),
            "is_default": False,
            "is_sensitive": False,
            "synonyms": [],
            "config_type": 0,
            "documentation": None,
        }
        for name in _names()
    ]


def level_name(level: int) -> str:
    """Return Kafka's name of a level. A level between two of them has the name of the lower one."""
    return max((number, name) for name, number in LEVELS.items() if number <= max(level, LEVELS["TRACE"]))[1]


def alter_levels(operations: Iterable[IncrementalAlterConfigsRequestAlterableConfig], *, validate_only: bool) -> None:
    """Set levels, or delete them. A logger without a level has the level of its parent.

    Raises `InvalidRequestError` for an unsupported operation or resource, `InvalidConfigError` for an unknown logger or
    level.
    """
    known, wanted = set(_names()), []
    for entry in operations:
        if entry.config_operation not in (SET, DELETE):
            raise InvalidRequestError(f"The level of logger {entry.name} can only be set or deleted.")
        if entry.name not in known:
            raise InvalidConfigError(f"Logger {entry.name} does not exist.")
        if entry.config_operation == DELETE:
            if entry.name == ROOT:
                raise InvalidRequestError("The level of the root logger cannot be deleted.")
            wanted.append((entry.name, logging.NOTSET))
            continue
        level = LEVELS.get(entry.value or "")
        if level is None:
            raise InvalidConfigError(
                f"{entry.value!r} is not a level for logger {entry.name}: it must be one of {', '.join(LEVELS)}"
            )
        wanted.append((entry.name, level))
    if not validate_only:
        for name, level in wanted:
            logging.getLogger(_own_name(name)).setLevel(level)


def _names() -> list[str]:
    return [ROOT, *sorted(logging.root.manager.loggerDict)]


def _own_name(name: str) -> str | None:
    return None if name == ROOT else name
