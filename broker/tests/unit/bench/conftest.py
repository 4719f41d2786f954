"""Puts the benchmark's package on the path: it is no part of the product, and runs as a script."""

from __future__ import annotations

import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"

if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))
