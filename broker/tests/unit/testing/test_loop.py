"""Hooks of the virtual loop run before each jump of the time, after all callbacks that are due at the same time."""

from __future__ import annotations

import asyncio

import pytest

from odradek_testkit.loop import VirtualLoop, run_virtual


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def test_a_hook_runs_before_each_jump_and_after_all_callbacks_of_the_instant() -> None:
    async def main() -> None:
        loop = virtual_loop()
        begin_s, hook_calls, done = loop.time(), list[tuple[float, int]](), list[str]()
        loop.before_jumps(lambda: hook_calls.append((loop.time() - begin_s, len(done))))
        loop.call_later(1, lambda: loop.call_soon(lambda: loop.call_soon(done.append, "last of the instant")))
        loop.call_later(1, done.append, "first of the instant")
        await asyncio.sleep(3)
        assert hook_calls == [(0.0, 0), (1.0, 2)]

    run_virtual(main())


def test_an_exception_of_a_hook_ends_the_run() -> None:
    class BrokenError(Exception):
        pass

    def hook() -> None:
        raise BrokenError

    async def main() -> None:
        loop = virtual_loop()
        loop.before_jumps(hook)
        try:
            await asyncio.sleep(1)
        finally:
            loop.before_jumps(lambda: None)

    with pytest.raises(BrokenError):
        run_virtual(main())
