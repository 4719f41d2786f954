"""`make torture`: hundreds of long random runs, then kills of processes for the given time.

Prints its progress, or the failed seed and how to reproduce it.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
import traceback
from random import Random

import click

from odradek_testkit.torture.killing import KillLoop
from odradek_testkit.torture.runs import play


@click.command()
@click.option("--runs", default=200, show_default=True, help="Number of random runs on the memory disk.")
@click.option("--minutes", default=2.0, show_default=True, help="Minutes of kills on the real disk.")
@click.option("--seed", default=0, show_default=True, help="Seed of the first run; the others follow.")
def main(*, runs: int, minutes: float, seed: int) -> None:
    """Run crash tests of the log."""
    # The log warns of the faults that are injected.
    logging.disable(logging.CRITICAL)
    failed = [each for each in range(seed, seed + runs) if not _run(each, seed, runs)]
    if minutes > 0 and not _kill(minutes, seed):
        failed.append(seed)
    sys.exit(bool(failed))


def _run(seed: int, first: int, runs: int) -> bool:
    try:
        report = play(seed)
    except Exception:  # noqa: BLE001 - any error is a failure of the seed, which is reported
        click.echo(f"\nseed {seed} failed; reproduce it: make torture RUNS=1 MINUTES=0 SEED={seed}")
        click.echo(traceback.format_exc())
        return False
    done = f"run {seed - first + 1} of {runs}, seed {seed}: {report.steps} operations, {report.cuts} power cuts"
    click.echo(f"\r{done}, {report.kills} kills, {report.recoveries} recoveries ", nl=seed - first + 1 == runs)
    return True


def _kill(minutes: float, seed: int) -> bool:
    chance, end = Random(seed), time.monotonic() + minutes * 60
    kills = 0
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="odradek-torture-") as directory:
            loop = KillLoop(directory, chance)
            # Use a new directory after some kills; otherwise most of the time goes into reading the existing logs.
            while loop.kills < 20 and time.monotonic() < end:
                try:
                    loop.once()
                except Exception:  # noqa: BLE001 - any error is a failure of the seed, which is reported
                    click.echo(f"\nkill {kills + 1} failed; try a similar run: make torture RUNS=0 SEED={seed}")
                    click.echo(traceback.format_exc())
                    return False
                kills += 1
                click.echo(f"\r{kills} processes killed ", nl=False)
    click.echo()
    return True


if __name__ == "__main__":
    main()
