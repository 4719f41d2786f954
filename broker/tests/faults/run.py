"""A cluster under load, hurt at random for half an hour, measured and verified: `make faults`.

    .venv/bin/python broker/tests/faults/run.py --help

The package `ordeal` beside this file does the work; docs/availability.md shows what it found.
"""

from __future__ import annotations

from ordeal.command import main

if __name__ == "__main__":
    main()
