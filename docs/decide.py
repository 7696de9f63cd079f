"""Table of docs/decide.md: people that each kind of study needs, by its promise.

    python docs/decide.py [KIND...]       # --write puts the table into the page

Each cell is what `capeneuro plan` says of a study as `capeneuro init` writes it: the
least number of people of which noise is foretold not to drown the result. Of a contrast
an effect is then foretold to be seen, of people who vary normally, and of heavy-tailed
ones.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

from capeneuro import cli
from capeneuro.config import load
from capeneuro.config.study import StudyConfig
from capeneuro.studies import registry
from capeneuro.studies.contrast import HEAVY_TAILED
from capeneuro.studies.forecasts import Counts

PAGE = Path(__file__).with_suffix(".md")
MARKS = "<!-- made by docs/decide.py -->\n", "<!-- end -->"
EPSILONS = (0.5, 1, 2, 4, 8)
N_SITES, N_VOLUMES, MOST = 3, 200, 10**6
# Question, kind, size in words, number of features or outcomes, and the most noise: of
# a contrast the effect that is seen, in deviations.
QUESTIONS = (
    ("Do patients differ in one score?", "contrast", "effect of 0.2", 1, 0.2),
    ("Do patients differ in one score?", "contrast", "effect of 0.5", 1, 0.5),
    ("In one of 10 regions?", "contrast", "effect of 0.2", 10, 0.2),
    ("In one of 10 regions?", "contrast", "effect of 0.5", 10, 0.5),
    ("In one of 28 connections?", "contrast", "effect of 0.2", 28, 0.2),
    ("In one of 28 connections?", "contrast", "effect of 0.5", 28, 0.5),
    ("What foretells a score?", "regression", "5 features", 5, 1.0),
    ("What foretells a score?", "regression", "20 features", 20, 1.0),
    ("By which patterns do people differ?", "patterns", "20 features", 20, 1.0),
    ("Which networks are there?", "components", "100 features", 100, 1.0),
    ("Which networks are there?", "components", "400 features", 400, 1.0),
    ("What do images and EEG share?", "fusion", "20 features a view", 20, 1.0),
    ("Which class is a person of?", "network", "100 features", 100, 1.0),
    ("Of which parts is a mixture?", "tensors", "10 features", 10, 1.0),
)


def noise_of(
    study: StudyConfig, names: list[str], counts: Counts, assumed: str
) -> float:
    """Noise over what the result can bear, of a row of `plan`; empty: as planned."""
    forecast = registry.of(study).forecast(names, counts)
    if not assumed:
        return max(forecast.ratios.values())
    with redirect_stdout(StringIO()) as printed:
        forecast.show()
    (row,) = (r for r in printed.getvalue().splitlines() if r.startswith(assumed))
    return float(row.split()[-1])


def least_people(
    study: StudyConfig, names: list[str], n_features: int, most: float, assumed: str
) -> int | None:
    """Least people with whom the noise is at most so large, to two digits."""

    def drowned(people: int) -> bool:
        counts = Counts(people, N_VOLUMES, n_features)
        return noise_of(study, names, counts, assumed) > most

    low, high = 2 * N_SITES, 2 * N_SITES
    while drowned(high):
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > max(low // 50, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if drowned(middle) else (low, middle)
    step = 10 ** max(len(str(high)) - 2, 0)
    return -(-high // step) * step


def rows(kinds: list[str]) -> Iterator[str]:
    """Rows of the table, as Markdown."""
    head = " | ".join(f"{e:g}" for e in EPSILONS)
    yield f"| question | kind | size | epsilon {head} |"
    yield "| --- " * (3 + len(EPSILONS)) + "|"
    names = [f"site-{s + 1}" for s in range(N_SITES)]
    with tempfile.TemporaryDirectory() as folder:
        for question, kind, size, n_features, most in QUESTIONS:
            if kinds and kind not in kinds:
                continue
            home = Path(folder) / f"{kind}-{n_features}-{most:g}"
            asked = ("init", str(home), "--kind", kind, "--sites", str(N_SITES))
            with redirect_stdout(StringIO()):
                assert cli.main(asked) == 0
            path = home / "config" / "config.yaml"
            text, cells = path.read_text(), []
            for epsilon in EPSILONS:
                edited, n = re.subn(r"(?m)^(  epsilon:) \S+", rf"\1 {epsilon:g}", text)
                assert n == 1, path
                path.write_text(edited)
                with chdir(home):
                    study = load.load_study(path.relative_to(home))
                # Of a contrast a range: of people who vary normally, to heavy tails.
                ends = ("", HEAVY_TAILED) if kind == "contrast" else ("",)
                with redirect_stdout(StringIO()):
                    people = [
                        least_people(study, names, n_features, most, end)
                        for end in ends
                    ]
                said = ("more" if n is None else f"{n:,}" for n in people)
                cells.append(" to ".join(said))
            yield f"| {question} | `{kind}` | {size} | {' | '.join(cells)} |"


if __name__ == "__main__":
    kinds = [word for word in sys.argv[1:] if not word.startswith("-")]
    table = "\n".join(rows(kinds)) + "\n"
    print(table)
    if "--write" in sys.argv:
        before, _, rest = PAGE.read_text().partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        PAGE.write_text(before + MARKS[0] + table + MARKS[1] + after)
