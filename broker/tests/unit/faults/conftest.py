"""Adds the fault run's folder to `sys.path`, because the fault run is a script that is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

FAULTS = Path(__file__).resolve().parents[2] / "faults"

if str(FAULTS) not in sys.path:
    sys.path.append(str(FAULTS))
