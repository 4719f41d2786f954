"""Odradek beside Apache Kafka 3.9.1, in turn on this machine, with the same clients: `make bench`.

    .venv/bin/python broker/tests/bench/compare.py --help

The package `comparison` beside this file does the work; docs/design/0006-benchmarks.md says how and why.
"""

from __future__ import annotations

from comparison.command import main

if __name__ == "__main__":
    main()
