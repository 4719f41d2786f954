"""Puts the fault run's package on the path: it is no part of the product, and runs as a script."""

from __future__ import annotations

import sys
from pathlib import Path

FAULTS = Path(__file__).resolve().parents[2] / "faults"

if str(FAULTS) not in sys.path:
    sys.path.append(str(FAULTS))
