"""A server in memory and in virtual time for each test."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek_testkit.loop import VirtualClock, run_virtual
from odradek_testkit.server import MemoryServer


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., None]:
    """Runs a scenario on one started server; the options are those of `MemoryServer`."""

    def run(scenario: Callable[[MemoryServer], Coroutine[Any, Any, None]], **options: Any) -> None:
        async def main() -> None:
            server = MemoryServer(tmp_path, VirtualClock(), **options)
            await server.start()
            try:
                await scenario(server)
            finally:
                await server.close()

        run_virtual(main())

    return run
