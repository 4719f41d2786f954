"""The stored inputs of fuzzing: a text file for each target, with an input in base64 in each line."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).resolve().parent / "corpus"


def read_corpus(name: str) -> list[bytes]:
    """Return the stored inputs of a target."""
    path = CORPUS / f"{name}.txt"
    return [b64decode(line) for line in path.read_text(encoding="ascii").split()] if path.exists() else []


def add_to_corpus(name: str, inputs: Iterable[bytes]) -> int:
    """Store further inputs of a target, in order. Returns how many were new."""
    known = set(read_corpus(name))
    every = known.union(inputs)
    lines = sorted(b64encode(data).decode() for data in every)
    (CORPUS / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return len(every) - len(known)
