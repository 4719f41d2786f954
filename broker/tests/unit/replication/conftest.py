"""A fixture with one broker for scenarios of its replicas."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.replicas import MemoryBroker, MemoryCluster


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., None]:
    """Runs a scenario on the started broker 1, which has no roles yet."""

    def run(
        scenario: Callable[[MemoryBroker, VirtualClock], Coroutine[Any, Any, None]],
        settings: dict[str, str] | None = None,
    ) -> None:
        async def main() -> None:
            clock = VirtualClock()
            topic_settings = {"min.insync.replicas": "2", "max.message.bytes": "5000"}
            cluster = MemoryCluster(tmp_path, clock, settings=settings, topic_settings=topic_settings)
            try:
                await scenario(await cluster.start_broker(1), clock)
            finally:
                await cluster.close()

        run_virtual(main())

    return run
