"""compile_zips.py FOLDER: puts byte code into the archives of Python modules that Spark sets before all other paths.

Spark's workers import PySpark from `python/lib/pyspark.zip`, which holds sources only: each worker of each task would
compile them anew. Runs in the image's build stage, with the Python that the image has.
"""

from __future__ import annotations

import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path


def compile_zip(archive: Path) -> int:
    """Write the archive anew, with a `.pyc` beside each module; how many there are."""
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        with zipfile.ZipFile(archive) as given:
            given.extractall(room, [name for name in given.namelist() if "tests" not in name.split("/")])
        sources = sorted(room.rglob("*.py"))
        for source in sources:
            # Not looked at again: times within an archive are too coarse to compare.
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(
                str(source),
                cfile=f"{source}c",
                dfile=str(source.relative_to(room)),
                invalidation_mode=mode,
                doraise=True,
            )
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
            for path in sorted(room.rglob("*")):
                made.write(path, path.relative_to(room))
    return len(sources)


if __name__ == "__main__":
    for found in sorted(Path(sys.argv[1]).glob("*.zip")):
        compile_zip(found)
