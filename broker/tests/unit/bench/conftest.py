"""Adds the benchmark's folder to `sys.path`, because the benchmark is a script that is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"

if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))
