"""Implements `odradek broker server.properties`: properties, logging, supervision, event loop and signals.

The started process reads the properties and becomes the parent (`app/supervisor`); the broker is its child. The parent
stays small and does not import the modules of the broker. The first SIGTERM or SIGINT stops the broker in order; the
second ends the process at once. If the broker cannot start, it prints one message without a stack trace and exits with
code 1.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import platform
import resource
import signal
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.app.supervisor import BEAT_INTERVAL_MS, Credentials, Lifeline, Supervision, supervise
from odradek.base import VERSION
from odradek.base.build_form import build_form
from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError, OdradekError
from odradek.base.setting_definitions import parse_properties
from odradek.base.system_ports import report_termination
from odradek.zk.port import ZkError, ZkSettings
from odradek.zk.security import zookeeper_settings

if TYPE_CHECKING:
    from odradek.app.system import SessionClient

logger = logging.getLogger(__name__)

SESSION_END_TIMEOUT_MS: Final = 5_000.0
"""Timeout, in milliseconds, for ending the session of a dead broker."""

GARBAGE_THRESHOLDS: Final = (10_000, 10, 10)
"""Thresholds of the garbage collector. In a failover of 5,000 partitions, Python's default of 700 objects costs a
twelfth of the CPU time, and these a twenty-fifth. A young collection blocks the event loop for at most 3 ms. Larger
thresholds would keep reference cycles and their buffers in memory for too long.
"""

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def run(properties_path: str, overrides: Iterable[str] = (), *, log_level: str = "INFO") -> int:
    """Run a broker until it is stopped. Returns the exit code of the process.

    `overrides` (`key=value`) override the file.
    """
    logging.basicConfig(level=log_level, format=LOG_FORMAT, stream=sys.stderr)
    # kazoo logs each lost connection and each retry at WARNING; `zk/kazoo_client` logs them once.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    logger.info("odradek %s starts: %s core, Python %s", VERSION, build_form(), platform.python_version())
    try:
        properties = load(properties_path, overrides)
        config, warnings = BrokerConfig.parse(properties)
        zookeeper = zookeeper_settings(config)
    except OdradekError as error:
        logger.error("%s", error)
        report_termination(f"The broker cannot start: {error}")
        return 1
    for warning in warnings:
        logger.warning("%s", warning)
    if not config.process_supervision_enable:
        return _run_broker(config, properties, None)
    supervision = Supervision(
        hang_timeout_ms=config.process_hang_timeout_ms, end_session=partial(_end_session, zookeeper)
    )
    return supervise(partial(_run_broker, config, properties), supervision)


def _end_session(zookeeper: ZkSettings, credentials: Credentials) -> None:
    """End the session of the dead broker, so that its partitions get other leaders at once."""
    from odradek.zk.session import end_session

    try:
        end_session(zookeeper, credentials, timeout_ms=SESSION_END_TIMEOUT_MS)
    except ZkError as error:
        logger.warning(
            "the ZooKeeper session of the dead broker could not be ended; it expires after its timeout: %s", error
        )
    else:
        logger.info("the broker died: its ZooKeeper session 0x%x was ended", credentials[0] & 0xFFFFFFFFFFFFFFFF)


def _run_broker(config: BrokerConfig, properties: dict[str, str], lifeline: Lifeline | None) -> int:
    import uvloop

    _allow_many_files()
    # The broker does not use numpy's linear algebra, whose library would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    raise_gc_thresholds()
    return uvloop.run(_serve(config, properties, lifeline))


def _allow_many_files() -> None:
    """Raise the limit of open files to its maximum: each log and each connection needs descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def load(properties_path: str, overrides: Iterable[str]) -> dict[str, str]:
    """Return the properties of the file and the overrides. Raises `ConfigError` if the file cannot be read."""
    try:
        text = Path(properties_path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"the properties file {properties_path} cannot be read: {reason}") from error
    return {**parse_properties(text), **parse_overrides(overrides)}


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Return the properties in `key=value` arguments. Raises `ConfigError` if there is no `=`."""
    pairs = {}
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--override {override!r} is not of the form key=value")
        pairs[key.strip()] = value.strip()
    return pairs


async def _serve(config: BrokerConfig, properties: dict[str, str], lifeline: Lifeline | None) -> int:
    from odradek.app.broker import Broker
    from odradek.app.system import system

    try:
        broker = Broker(config, properties, system())
    except ConfigError as error:
        return _cannot_start(error)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_requested, stop)
    beating = None if lifeline is None else loop.create_task(send_heartbeats(broker.zookeeper, lifeline))
    try:
        await broker.start()
        freeze_gc()
        broker.failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
        await broker.stop()
    except OdradekError as error:
        return _cannot_start(error)
    finally:
        if beating is not None:
            beating.cancel()
    if lifeline is not None:
        lifeline.beat(None)  # the session has ended
    if broker.failed.done():
        logger.error("the broker stopped because of a failure: %s", broker.failed.result())
        report_termination(f"The broker stopped because of a failure: {broker.failed.result()}")
        return 1
    return 0


def _cannot_start(error: OdradekError) -> int:
    logger.error("the broker cannot start: %s", error)
    report_termination(f"The broker cannot start: {error}")
    return 1


def raise_gc_thresholds() -> None:
    """Raise the thresholds of the garbage collector. This saves a twentieth of the time to import the broker."""
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def freeze_gc() -> None:
    """Freeze all current objects, so that garbage collection no longer traverses them.

    A full collection over 5,000 logs and all modules takes 150 ms, in which no request is answered; without the frozen
    objects it takes almost nothing. Collect once before, because frozen garbage would never be freed. A frozen log that
    is deleted is still freed, because it is not part of a cycle. This is not done in `Broker`, because it affects the
    whole process.
    """
    gc.collect()
    gc.freeze()


async def send_heartbeats(zookeeper: SessionClient, lifeline: Lifeline) -> None:
    """Send a heartbeat to the parent at each interval, and immediately when a session begins.

    The broker creates its first ephemeral znode within milliseconds of a new session. The parent can end the session
    after a crash only if it knows the session by then.
    """
    zookeeper.on_session(lambda _: lifeline.beat(zookeeper.credentials))
    while True:
        lifeline.beat(zookeeper.credentials)
        await asyncio.sleep(BEAT_INTERVAL_MS / 1000)


def _stop_requested(stop: asyncio.Event) -> None:
    if stop.is_set():
        logger.warning("a second signal to stop arrived: the process ends at once")
        os._exit(130)
    stop.set()
