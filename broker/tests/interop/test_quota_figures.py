"""Rates, token buckets and names in znodes against Kafka's classes, in random histories."""

from __future__ import annotations

import subprocess
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

import pytest

from odradek.security.quotas.quota_model import sanitized
from odradek.security.quotas.rates import Rate, TokenBucket
from odradek_testkit.interop.apache import QUICK_START, compile_java, java_command

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

SOURCE: Final = Path(__file__).with_name("java") / "QuotaFigures.java"
START_MS: Final = 1_700_000_000_000
"""Kafka's buckets fill from 1970 on, so they are full at the time of a history."""
HISTORIES: Final = 300

Step = tuple[int, int | None]
"""Time, and the amount that is recorded then; None: the figure is read."""


def history(random: Random, *, largest_pause_ms: int) -> list[Step]:
    """Return steps, half of which read."""
    now, steps = START_MS, list[Step]()
    for _ in range(random.randrange(40)):
        now += random.randrange(largest_pause_ms)
        steps.append((now, random.choice([None, random.randrange(10_000)])))
    return [*steps, (now, None)]


def text(steps: Sequence[Step]) -> str:
    return " ".join(str(time) if amount is None else f"{time}:{amount}" for time, amount in steps)


@pytest.fixture(scope="module")
def classes(kafka_jars: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The jars, and the folder with the compiled program."""
    _, folder = kafka_jars
    target = tmp_path_factory.mktemp("classes")
    compile_java(folder, [SOURCE], target)
    return folder, target


def ask_java(classes: tuple[Path, Path], lines: Sequence[str]) -> list[str]:
    command = java_command(classes[0], "QuotaFigures", heap="96m", options=QUICK_START)
    command[command.index("-cp") + 1] += f":{classes[1]}"
    result = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True, timeout=120
    )
    answers = result.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


def test_rates_are_those_of_kafka(classes: tuple[Path, Path]) -> None:
    random = Random(20)
    plays = [
        (random.choice([1, 2, 11]), history(random, largest_pause_ms=random.choice([300, 3000, 20_000])))
        for _ in range(HISTORIES)
    ]
    answers = ask_java(classes, [f"rate {count} 1000 {text(steps)}" for count, steps in plays])
    for (count, steps), answer in zip(plays, answers, strict=True):
        rate, figures = Rate(count, 1000), []
        for time, amount in steps:
            if amount is None:
                figures.append((rate.rate(time), rate.measured(time)[1]))
            else:
                rate.record(amount, time)
        pairs = [each.split("/") for each in answer.split(" ")]
        assert figures == [(pytest.approx(float(value), rel=1e-9), int(window)) for value, window in pairs], (
            f"{count} windows: {text(steps)}"
        )


def test_token_buckets_are_those_of_kafka(classes: tuple[Path, Path]) -> None:
    random = Random(599)
    plays = [
        (random.choice([1, 11]), random.choice([0.5, 10.0, 500.0]), history(random, largest_pause_ms=3000))
        for _ in range(HISTORIES)
    ]
    answers = ask_java(classes, [f"bucket {count} 1000 {quota} {text(steps)}" for count, quota, steps in plays])
    for (count, quota, steps), answer in zip(plays, answers, strict=True):
        bucket, figures = TokenBucket(count, 1000), []
        for time, amount in steps:
            if amount is None:
                figures.append(bucket.tokens(quota, time))
            else:
                bucket.take(amount, quota, time)
        assert figures == pytest.approx([float(each) for each in answer.split(" ")], rel=1e-9, abs=1e-6)


def test_names_in_znodes_are_those_of_kafka(classes: tuple[Path, Path]) -> None:
    ascii_names = [f"a{chr(code)}b" for code in range(1, 128)]
    names = [*ascii_names, "CN=alice,O=x y", "<default>", "ä€😀", "a%20b+c", "*"]
    answers = ask_java(classes, [f"name {b64encode(name.encode()).decode()}" for name in names])
    assert [sanitized(name) for name in names] == answers
