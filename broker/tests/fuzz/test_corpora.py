"""Every stored input, and each valid one with damages, is refused with the right error, and takes little memory."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from odradek_testkit.frames import damaged
from odradek_testkit.fuzz_targets import TARGETS

from .corpus_files import CORPUS, read_corpus

DAMAGED = 30
"""Damaged inputs of each valid one. `make fuzz` searches for longer."""
MEMORY_BYTES = 8 << 20
"""An input of a few kilobytes must not take more, whatever lengths it claims."""

target = pytest.mark.parametrize("name", TARGETS)


@target
def test_stored_inputs(name: str) -> None:
    found = read_corpus(name)
    assert found, f"make fuzz ONLY={name} KEEP=1 stores inputs"
    for data in found:
        TARGETS[name].run(data)


@target
def test_damaged_inputs(name: str) -> None:
    source = random.Random(name)
    target = TARGETS[name]
    seeds = list(target.seeds())
    for seed in seeds:
        target.run(seed)
    for seed in source.sample(seeds, min(len(seeds), 60)):
        for _ in range(DAMAGED):
            target.run(damaged(seed, source))


@target
def test_memory_is_bounded(name: str) -> None:
    target = TARGETS[name]
    inputs = read_corpus(name)
    for data in inputs:
        target.run(data)  # what is made once does not count
    tracemalloc.start()
    try:
        for data in inputs:
            target.run(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_BYTES


def test_every_file_belongs_to_a_target() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == set(TARGETS)
