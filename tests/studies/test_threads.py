"""Results do not depend on the number of threads."""

import os
import subprocess
import sys


def test_a_limit_of_threads_reaches_libraries_that_load_later():
    code = """
from threadpoolctl import threadpool_info, threadpool_limits
from capeneuro.studies.threads import limit_threads
with {limit}(1):
    import scipy.linalg
    print(max(library["num_threads"] for library in threadpool_info()))
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    n_threads = [
        subprocess.check_output(
            [sys.executable, "-c", code.format(limit=limit)], env=environment, text=True
        ).strip()
        for limit in ("limit_threads", "threadpool_limits")
    ]
    # The second is the planted error: on one processor nothing shows it.
    assert n_threads == ["1", str(min(2, os.cpu_count()))]
