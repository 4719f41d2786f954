"""Writes dashboards and alert rules as files of the chart: `python -m odradek_operator.dashboards.generate_dashboards`.

Called by `make crds`. A test compares the files with what would be written, so that nobody forgets it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from odradek_operator.dashboards.files import files

CHART: Final = Path("charts/odradek")
"""From the project's root."""


def main(chart: Path = CHART) -> None:
    """Write every file below `chart`; folders are made where they are missing."""
    for path, text in files().items():
        target = chart / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
