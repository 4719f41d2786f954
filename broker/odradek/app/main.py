"""The process around one broker: its properties, its log lines, its event loop and its signals.

`odradek broker server.properties` ends up here. SIGTERM and SIGINT stop the broker in order; a second one of them ends
the process at once. What cannot work is told in one sentence, without a stack trace, by the exit code 1.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import uvloop

from odradek.app.broker import Broker
from odradek.app.properties import parse_overrides, parse_properties
from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError, OdradekError

logger = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def run(properties_path: str, overrides: Iterable[str] = (), *, log_level: str = "INFO") -> int:
    """Run a broker until it is told to stop; the exit code of the process.

    `overrides` are `key=value` and win over the file.
    """
    logging.basicConfig(level=log_level, format=LOG_FORMAT, stream=sys.stderr)
    # kazoo tells each lost connection and each retry at WARNING; our own client says the same once.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    try:
        properties = load(properties_path, overrides)
        config, warnings = BrokerConfig.parse(properties)
    except OdradekError as error:
        logger.error("%s", error)
        return 1
    for warning in warnings:
        logger.warning("%s", warning)
    _allow_many_files()
    return uvloop.run(_serve(config, properties))


def _allow_many_files() -> None:
    """Each log and each connection holds a descriptor: use all that the system lets this process have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def load(properties_path: str, overrides: Iterable[str]) -> dict[str, str]:
    """The pairs of the file and the overrides. Raises `ConfigError` when the file cannot be read."""
    try:
        text = Path(properties_path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"the properties file {properties_path} cannot be read: {reason}") from error
    return {**parse_properties(text), **parse_overrides(overrides)}


async def _serve(config: BrokerConfig, properties: dict[str, str]) -> int:
    broker = Broker(config, properties)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_requested, stop)
    try:
        await broker.start()
    except OdradekError as error:
        logger.error("the broker cannot start: %s", error)
        return 1
    broker.failed.add_done_callback(lambda _: stop.set())
    await stop.wait()
    await broker.stop()
    if broker.failed.done():
        logger.error("the broker ended: %s", broker.failed.result())
        return 1
    return 0


def _stop_requested(stop: asyncio.Event) -> None:
    if stop.is_set():
        logger.warning("told to stop a second time: ending at once")
        os._exit(130)
    stop.set()
