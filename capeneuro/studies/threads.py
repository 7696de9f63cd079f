"""How many threads linear algebra has: the last digits of its results depend on it."""

import importlib
import sys
from contextlib import AbstractContextManager

from threadpoolctl import ThreadpoolController, threadpool_limits

# SciPy has a library of its own, which loads with this, and which no limit of before
# would reach.
LAST_TO_LOAD = "scipy.linalg"
# Found by the number of modules at that time: a new module may bring a new library.
_libraries: dict[int, ThreadpoolController] = {}


def limit_threads(n: int) -> threadpool_limits:
    """Limit linear algebra to n threads.

    Returns
    -------
    threadpool_limits
        For a ``with`` statement, after which the limit ends; else it stays.
    """
    importlib.import_module(LAST_TO_LOAD)
    return threadpool_limits(n)


def one_thread() -> AbstractContextManager[object]:
    """Limit linear algebra to one thread, for one of many people.

    Libraries are looked for once: to find them takes longer than a row of a table.
    """
    importlib.import_module(LAST_TO_LOAD)
    n_modules = len(sys.modules)
    if n_modules not in _libraries:
        _libraries.clear()
        _libraries[n_modules] = ThreadpoolController()
    return _libraries[n_modules].limit(limits=1)
