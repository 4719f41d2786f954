"""`make faults`: injects random faults into a cluster under load for half an hour, measures and verifies.

    .venv/bin/python broker/tests/faults/run.py --help

The package `ordeal` in this directory does the work. docs/availability.md has the results.
"""

from __future__ import annotations

from ordeal.command import main

if __name__ == "__main__":
    main()
