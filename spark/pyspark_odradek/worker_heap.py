"""Python's garbage collector in a Spark worker.

The source and the sink call it in their tasks. PySpark runs a full collection after each task, and the next task of the
worker waits for it. With the modules of PySpark, pyarrow and this package, it takes about 50 ms; without them, almost
nothing.
"""

from __future__ import annotations

import gc

from pyspark import TaskContext


def freeze_modules() -> None:
    """In the first task of a worker, exclude the objects that exist from later garbage collections. They are mainly
    modules, which live as long as the process. Elsewhere, nothing happens."""
    if TaskContext.get() is None or gc.get_freeze_count():
        return
    # Frozen garbage would never be freed.
    gc.collect()
    gc.freeze()
