"""The processes around one broker: its properties, its log lines, its parent, its event loop and its signals.

`odradek broker server.properties` ends up here. The process that was started reads the properties and becomes the
parent (`app/supervisor`); the broker is its child. The parent stays small: it imports nothing of the broker. SIGTERM
and SIGINT stop the broker in order; a second one of them ends the process at once. What cannot work is told in one
sentence, without a stack trace, by the exit code 1.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.app.properties import parse_overrides, parse_properties
from odradek.app.supervisor import BEAT_INTERVAL_MS, Credentials, Lifeline, Supervision, supervise
from odradek.base.config import BrokerConfig
from odradek.base.errors import ConfigError, OdradekError
from odradek.base.termination import report_termination
from odradek.zk.port import ZkError, ZkSettings
from odradek.zk.security import zookeeper_settings

if TYPE_CHECKING:
    from odradek.app.broker import Broker

logger = logging.getLogger(__name__)

FAREWELL_TIMEOUT_MS: Final = 5_000.0
"""How long ZooKeeper is tried when a dead broker's session is to be ended."""

GARBAGE_THRESHOLDS: Final = (10_000, 10, 10)
"""Python's own begin with 700 objects, and a failover of 5,000 partitions spent a twelfth of its CPU time on looking
for garbage; with these a twenty-fifth, and the passes over what is young hold the loop for at most 3 ms. Larger ones
would leave cycles, and the buffers that hang on them, for too long.
"""

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
    """The broker is dead: what it had in ZooKeeper goes now, so that its partitions get other leaders at once."""
    from odradek.zk.farewell import end_session

    try:
        end_session(zookeeper, credentials, timeout_ms=FAREWELL_TIMEOUT_MS)
    except ZkError as error:
        logger.warning("the dead broker's ZooKeeper session ends by its own time-out: %s", error)
    else:
        logger.info("the broker is dead; its ZooKeeper session 0x%x was ended", credentials[0] & 0xFFFFFFFFFFFFFFFF)


def _run_broker(config: BrokerConfig, properties: dict[str, str], lifeline: Lifeline | None) -> int:
    import uvloop

    _allow_many_files()
    # numpy's linear algebra, which nothing here needs, would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    look_for_garbage_less_often()
    return uvloop.run(_serve(config, properties, lifeline))


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


async def _serve(config: BrokerConfig, properties: dict[str, str], lifeline: Lifeline | None) -> int:
    from odradek.app.broker import Broker
    from odradek.app.system import system

    broker = Broker(config, properties, system())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_requested, stop)
    beating = None if lifeline is None else loop.create_task(_beat(broker, lifeline))
    try:
        await broker.start()
        settle_garbage_collection()
        broker.failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
        await broker.stop()
    except OdradekError as error:
        logger.error("the broker cannot start: %s", error)
        report_termination(f"The broker cannot start: {error}")
        return 1
    finally:
        if beating is not None:
            beating.cancel()
    if lifeline is not None:
        lifeline.beat(None)  # it ended its session itself
    if broker.failed.done():
        logger.error("the broker ended: %s", broker.failed.result())
        report_termination(f"The broker ended: {broker.failed.result()}")
        return 1
    return 0


def look_for_garbage_less_often() -> None:
    """Before the broker's modules are imported: to look among them meanwhile would take a twentieth of that time."""
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def settle_garbage_collection() -> None:
    """What the process has by now stays: look no more for garbage among it.

    A pass over 5,000 logs and all modules takes 150 ms in which nobody is answered; without what is frozen, next to
    nothing. The one pass here is the last of that kind: what is garbage by now would be kept for ever. A frozen log
    that is deleted still goes, as there is no cycle in it. Here and not in `Broker`, as it is a setting of the process.
    """
    gc.collect()
    gc.freeze()


async def _beat(broker: Broker, lifeline: Lifeline) -> None:
    while True:
        lifeline.beat(broker.zookeeper_credentials)
        await asyncio.sleep(BEAT_INTERVAL_MS / 1000)


def _stop_requested(stop: asyncio.Event) -> None:
    if stop.is_set():
        logger.warning("told to stop a second time: ending at once")
        os._exit(130)
    stop.set()
