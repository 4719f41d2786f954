"""Virtual time is looked at before each jump, when everything of the instant has happened."""

from __future__ import annotations

import asyncio

import pytest

from odradek_testkit.loop import VirtualLoop, run_virtual


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def test_a_look_comes_before_each_jump_and_after_all_of_its_instant() -> None:
    async def main() -> None:
        loop = virtual_loop()
        begin_s, looks, done = loop.time(), list[tuple[float, int]](), list[str]()
        loop.before_jumps(lambda: looks.append((loop.time() - begin_s, len(done))))
        loop.call_later(1, lambda: loop.call_soon(lambda: loop.call_soon(done.append, "last of the instant")))
        loop.call_later(1, done.append, "first of the instant")
        await asyncio.sleep(3)
        assert looks == [(0.0, 0), (1.0, 2)]

    run_virtual(main())


def test_what_a_look_raises_ends_the_run() -> None:
    class BrokenError(Exception):
        pass

    def look() -> None:
        raise BrokenError

    async def main() -> None:
        loop = virtual_loop()
        loop.before_jumps(look)
        try:
            await asyncio.sleep(1)
        finally:
            loop.before_jumps(lambda: None)

    with pytest.raises(BrokenError):
        run_virtual(main())
