"""Python's garbage collector in the processes that Spark reuses: workers, and those that plan queries.

PySpark runs a full collection after each task and each plan, and the next one waits for it. With the modules of
PySpark, pyarrow and this package, it takes about 50 ms; without them, almost nothing.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_DAEMON: Final = "pyspark.daemon"
"""The module that Spark runs in these processes."""
_CALLS: Final = 2
"""The second task finds the modules that the first one imported while it ran."""

_calls = 0


def freeze_modules() -> None:
    """In the first two calls in a process of Spark, exclude the objects that exist from later garbage collections. They
    are mainly modules, which live as long as the process. Elsewhere, nothing happens."""
    global _calls
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is None or main.name != _DAEMON or _calls == _CALLS:
        return
    _calls += 1
    # Frozen garbage would never be freed.
    gc.collect()
    gc.freeze()
