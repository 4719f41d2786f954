"""Searches for inputs that break a parser, guided by the coverage of the parsers (atheris, libFuzzer). Linux only.

Usage: `make fuzz MINUTES=10 ONLY=requests`. Each target runs in a separate process, one after the other. Inputs that
reach further are kept in `.fuzz/` for the next run; with KEEP=1, the shortest are added to
`broker/tests/fuzz/corpus/`. An input that breaks a parser is always added, so that the tests find it, and the command
fails.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from corpus_files import CORPUS, add_to_corpus, read_corpus

KEPT: Final = Path(".fuzz")
MAX_INPUT: Final = 4_096
MAX_STORED: Final = 256
"""Maximum bytes of an input that KEEP adds."""
MOST_STORED: Final = 150
"""Maximum number of stored inputs of a target after KEEP."""
INPUT_SECONDS: Final = 10
"""An input that takes longer is a hang."""
MEMORY_MB: Final = 1_024
PACKAGES: Final = ("odradek.protocol", "odradek.records", "odradek.security", "odradek.compression", "odradek.log")


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.0, help="for all targets together (default: 8)")
    parser.add_argument("--only", action="append", default=[], help="a target; may be repeated (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="of the random choices (default: 1)")
    parser.add_argument("--keep", action="store_true", help="add a small selection of inputs to the stored ones")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args()
    if arguments.child is not None:
        return _child(arguments.child, rest)

    from odradek_testkit.fuzz_targets import TARGETS

    if unknown := sorted(set(arguments.only) - TARGETS.keys()):
        parser.error(f"there is no target {unknown[0]}: choose from {', '.join(TARGETS)}")
    names = arguments.only or list(TARGETS)
    seconds = int(max(1, arguments.minutes * 60 / len(names)))
    broken = []
    for name in names:
        print(f"{name}: {seconds} s", flush=True)  # noqa: T201
        if not _search(name, [*TARGETS[name].seeds(), *read_corpus(name)], seconds=seconds, seed=arguments.seed):
            broken.append(name)
        elif arguments.keep:
            _keep(name)
    print(f"Broken: {', '.join(broken) or 'none'}.")  # noqa: T201
    return 1 if broken else 0


def _search(name: str, seeds: list[bytes], *, seconds: int, seed: int) -> bool:
    """Search for inputs that break a target. Returns whether there is none."""
    found = KEPT / f"{name}-found"
    _fill(KEPT / name, seeds)
    shutil.rmtree(found, ignore_errors=True)
    found.mkdir()
    options = {
        "max_total_time": seconds,
        "max_len": MAX_INPUT,
        "timeout": INPUT_SECONDS,
        "rss_limit_mb": MEMORY_MB,
        "seed": seed,
        "artifact_prefix": f"{found}/",
    }
    command = [sys.executable, __file__, "--child", name, str(KEPT / name)]
    command += [f"-{key}={value}" for key, value in options.items()]
    is_good = subprocess.run(command, check=False).returncode == 0
    inputs = [path.read_bytes() for path in found.iterdir()]
    add_to_corpus(name, inputs)
    for data in inputs:
        print(f"An input that breaks {name}, stored in {CORPUS}: {data!r}")  # noqa: T201
    return is_good


def _keep(name: str) -> None:
    """Store the shortest inputs that reached further than all before them."""
    found = [path.read_bytes() for path in (KEPT / name).iterdir()]
    short = sorted({data for data in found if len(data) <= MAX_STORED}, key=lambda data: (len(data), data))
    room = max(0, MOST_STORED - len(read_corpus(name)))
    print(f"{name}: {add_to_corpus(name, short[:room])} inputs added")  # noqa: T201


def _fill(folder: Path, inputs: list[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def _child(name: str, arguments: list[str]) -> int:
    import atheris

    with atheris.instrument_imports(include=list(PACKAGES)):
        from odradek_testkit.fuzz_targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name].run)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
