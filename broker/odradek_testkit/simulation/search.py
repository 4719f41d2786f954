"""Plays many seeds in several processes, with a time limit for each.

The command and the test in `broker/tests/sim` use it. Invariant: a seed that hangs or kills its process also gives an
`Outcome`.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from types import FrameType
from typing import Final

from odradek_testkit.simulation.play import Outcome, Standstill, play

STANDSTILL_S: Final = 90.0
"""CPU time after which a run counts as hanging: fifty times that of a normal run."""
SEEDS_PER_PROCESS: Final = 50
"""Number of runs after which a process is replaced: fragmented memory makes later runs slower."""


def play_guarded(seed: int) -> Outcome:
    """Play one seed without logging, with the time limit. Call it only in the main thread of a process."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    before = signal.signal(signal.SIGVTALRM, _end)
    signal.setitimer(signal.ITIMER_VIRTUAL, STANDSTILL_S)
    try:
        return play(seed)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        logging.disable(disabled)


def _end(number: int, frame: FrameType | None) -> None:
    raise Standstill


def play_many(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    """Play the seeds, which may be infinite, and yield outcomes as they complete. Close the iterator to stop.

    SIGINT does not reach the runs: the process that calls this decides when to stop.
    """
    coming = iter(seeds)
    pool = ProcessPoolExecutor(
        processes,
        mp_context=get_context("spawn"),
        max_tasks_per_child=SEEDS_PER_PROCESS,
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        running = {pool.submit(play_guarded, seed): seed for seed in islice(coming, 2 * processes)}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield _outcome(future, running.pop(future))
                running.update({pool.submit(play_guarded, seed): seed for seed in islice(coming, 1)})
    finally:
        pool.shutdown(cancel_futures=True)


def _outcome(future: Future[Outcome], seed: int) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise RuntimeError(f"seed {seed}, or one that ran at the same time, killed its process") from error
