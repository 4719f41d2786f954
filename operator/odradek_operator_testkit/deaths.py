"""Operators that are killed before one of their writes, and the operators that continue after them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from odradek_operator_testkit.surroundings import Operator, World, scenario, until
from odradek_testkit.loop import run_virtual


async def killed_or(operator: Operator, condition: Callable[[], object]) -> None:
    """Wait until the operator is killed or a condition is true."""
    await until(lambda: operator.killed.is_set() or condition(), "the operator is killed or has finished")


async def replaced(world: World, operator: Operator, done: Callable[[], object]) -> None:
    """Wait until the operator is done. If it was killed, another one continues, and must be done."""
    await killed_or(operator, done)
    if operator.killed.is_set():
        async with Operator(world).working():
            await until(done, "the next operator has finished")


def play_deaths(steps: Callable[[World, Operator], Awaitable[None]], *, lives: int, stride: int) -> None:
    """Run `steps` in one new world after the other, until their operator is not killed any more.

    The first operator is killed before the write with number `lives`, each other one `stride` writes later.
    """
    while True:
        killed: list[bool] = []

        async def run(world: World, operator: Operator, killed: list[bool] = killed) -> None:
            await steps(world, operator)
            killed.append(operator.killed.is_set())

        run_virtual(scenario(run, lives=lives)())
        if killed == [False]:
            return
        lives += stride
