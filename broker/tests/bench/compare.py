"""Compares Odradek with Apache Kafka 3.9.1 on this machine, with the same clients: `make bench`.

    .venv/bin/python broker/tests/bench/compare.py --help

The package `comparison` has the implementation; docs/design/0006-benchmarks.md describes it.
"""

from __future__ import annotations

from comparison.command import main

if __name__ == "__main__":
    main()
