"""compile_zips.py FOLDER: adds byte code to the zip files of Python modules in a folder.

Spark's Python workers import PySpark from `python/lib/pyspark.zip`, which only has sources, so every worker would
compile them again. This script runs in the build stage, with the Python version of the image.
"""

from __future__ import annotations

import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path


def compile_zip(archive: Path) -> int:
    """Replace the archive with one that has a `.pyc` file next to each module. Return the number of modules."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with zipfile.ZipFile(archive) as given:
            given.extractall(root, [name for name in given.namelist() if "tests" not in name.split("/")])
        sources = sorted(root.rglob("*.py"))
        for source in sources:
            # Python does not compare byte code with sources: times in a zip file are too coarse for that.
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(
                str(source),
                cfile=f"{source}c",
                dfile=str(source.relative_to(root)),
                invalidation_mode=mode,
                doraise=True,
            )
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
            for path in sorted(root.rglob("*")):
                made.write(path, path.relative_to(root))
    return len(sources)


if __name__ == "__main__":
    for found in sorted(Path(sys.argv[1]).glob("*.zip")):
        compile_zip(found)
