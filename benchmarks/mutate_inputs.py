"""Change good inputs at random, and see that each is read right or refused well.

    python -m benchmarks.mutate_inputs --each 40 [--only confounds] [--seed 0]

A site's runs, its table of people and its recordings are written, changed in one thing
(a name, a header, a byte, a cell, a line of YAML) and read as a study reads them. Each
change says what is meant then: the same features, those of other people, or a refusal.
An outcome is `right`, `refused` (one line with a remedy), `no remedy`, `traceback` or
`silently wrong`. Printed are the numbers of each kind of change, and every outcome that
is not right or refused; with ``--show N`` also N drawn at random, to be read by hand.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.site_changes import CHANGES, Change
from benchmarks.site_inputs import READERS, Features, write_inputs
from capeneuro.config.errors import ConfigError

# A refusal helps if it says what to do.
REMEDY = re.compile(
    r"; |check|choose|copy|exclude|fetch|give|indent|mend|move|name|put|remove|rename"
    r"|say|set|take|use|write|must|did you mean",
    re.IGNORECASE,
)


# --- outcomes ------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What became of one changed input."""

    change: Change
    seed: int
    verdict: str
    line: str


def outcome(change: Change, seed: int, source: Path, good: Features) -> Outcome:
    """Change a copy of good inputs once, and judge what is read of it."""
    rng = np.random.default_rng([seed, len(change.name)])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "site")
        shutil.copytree(source, work)
        os.chdir(work)
        meant = change.make(rng)
        try:
            features = READERS[change.reader]()
        except ConfigError as error:
            line = str(error)
            verdict = "refused" if REMEDY.search(line) else "no remedy"
        except Exception as error:  # whatever a stranger's file makes a library raise
            verdict, line = "traceback", f"{type(error).__name__}: {error}"
        else:
            expected = None if meant is None else meant(good)
            is_right = expected is not None and _equal(features, expected)
            verdict, line = "right" if is_right else "silently wrong", f"{[*features]}"
        finally:
            os.chdir(source)
    return Outcome(change, seed, verdict, line.replace(folder, ""))


def _equal(one: Features, other: Features) -> bool:
    return one.keys() == other.keys() and all(
        x.shape == other[name].shape and np.allclose(x, other[name], atol=1e-4)
        for name, x in one.items()
    )


def main() -> None:
    """Try each change so many times, and count what became of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=40)
    parser.add_argument("--only", default="", help="part of a change's name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        os.chdir(folder)
        good = {name: read() for name, read in READERS.items()}
        for change in CHANGES:
            if options.only not in f"{change.reader} {change.name}":
                continue
            own = [
                outcome(change, options.seed + k, Path(folder), good[change.reader])
                for k in range(options.each)
            ]
            outcomes += own
            counts = Counter(each.verdict for each in own)
            numbers = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
            print(f"{change.reader:6} {change.name:28} {numbers}", flush=True)
        os.chdir("/")
    wrong = [each for each in outcomes if each.verdict not in ("right", "refused")]
    drawn = np.random.default_rng(options.seed).permutation(len(outcomes))
    for each in [*wrong, *(outcomes[i] for i in drawn[: options.show])]:
        print(f"{each.verdict}: {each.change.name} {each.seed}: {each.line}")
    print(Counter(each.verdict for each in outcomes))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
