"""What small studies of contrasts foretell after the pilot, beside what comes.

Ten studies of other people, sizes, epsilons and public numbers are written as files and
run by `capeneuro run`: simulated people of `capeneuro init`, and people of real tables
[consortia]. The error of the primary effects, against what is true of all people, over
the error that the pilot foretold. Rates are of root mean squares over draws of a study.

    python -m evidence.truth.contrast_studies [--draws 1] [--cover 0]

``--cover 10`` runs as many studies of 5,000 people of adult at epsilon 4, and prints
how often their intervals hold beside those of the algebra of the same people.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from evidence.truth import consortia, contrast_tables, rates
from evidence.truth.consortia import Consortium

EFFECTS, TRUTH = "group_desc-contrast_effects.npz", "data/truth/effects.tsv"
N_SITES = 4


class Study(NamedTuple):
    """A small study."""

    data: str
    """``simulated``, or a table."""
    people: int
    epsilon: float
    public: str
    """Of outcomes: a covariance of other people, or bounds alone."""


STUDIES = (
    Study("simulated", 900, 2.0, "covariance"),
    Study("simulated", 1800, 1.0, "bounds"),
    Study("simulated", 1200, 4.0, "bounds"),
    Study("simulated", 3000, 2.0, "covariance"),
    Study("warfarin", 2000, 2.0, "bounds"),
    Study("adult", 3000, 2.0, "covariance"),
    Study("phishing", 2500, 1.0, "bounds"),
    Study("communities", 1500, 4.0, "covariance"),
    Study("abide", 3000, 4.0, "bounds"),
    Study("vbm", 1500, 4.0, "bounds"),
)


def command(*words: str, where: Path) -> None:
    """Run `capeneuro`; what it prints is shown if it fails."""
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "capeneuro", *words]
    done = subprocess.run(
        line, cwd=where, env=threads | os.environ, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def write(study: Study, home: Path, seed: int) -> Consortium | None:
    """Write a study's files; of a table also its people, who are returned."""
    people = None
    if study.data != "simulated":
        rng = np.random.default_rng([seed, study.people])
        people = consortia.draw(study.data, study.people, N_SITES, rng)
    n = N_SITES if people is None else people.n_sites
    asked = "--kind", "contrast", "--data", "simulated", "--sites", str(n)
    command("init", str(home), *asked, "--people", str(study.people), where=home.parent)
    path = home / "config" / "config.yaml"
    keys = yaml.safe_load(path.read_text())
    keys["budget"]["epsilon"] = study.epsilon
    keys["score"]["reference"] = False
    if study.public == "bounds":
        keys["contrast"]["covariance"] = None
    if people is None:
        keys["data"]["seed"] = 100 + seed
    else:
        del keys["data"]
        keys["contrast"] |= _tables(people, home)
        for site in (home / "config" / "sites").iterdir():
            text = site.read_text()
            site.write_text(text.replace("data: simulated", "data: public"))
    path.write_text(yaml.safe_dump(keys, sort_keys=False))
    return people


def _tables(people: Consortium, home: Path) -> Mapping[str, Any]:
    """Write people of each site and what is public; the study's covariates."""
    names = [f"outcome_{j:02}" for j in range(len(people.y))]
    (home / TRUTH).parent.mkdir(parents=True)
    covariates = [c.name for c in people.covariates]

    def table(columns: Mapping[str, Any], path: str) -> None:
        pd.DataFrame(columns).to_csv(home / path, sep="\t", index=False)

    for s in range(people.n_sites):
        own = people.site == s
        columns = {"participant_id": [f"sub-{k:05}" for k in np.flatnonzero(own)]}
        columns |= dict(zip(names, people.y[:, own], strict=True))
        columns |= dict(zip(covariates, people.beside[:, own], strict=True))
        table(columns, f"data/site-{s + 1}.tsv")
    bounds = {"feature": names, "low": people.low, "high": people.high}
    table(bounds, "data/features.tsv")
    table({"feature": names, covariates[0]: people.truth}, TRUTH)
    if people.covariance is not None:
        of_outcomes = dict(zip(names, people.covariance, strict=True))
        about = {"feature": names, "mean": people.means, **of_outcomes}
        table(about, "data/covariance.tsv")
    of = {
        c.name: {"groups": [*c.groups]}
        if c.groups
        else {"mean": c.mean, "deviation": c.deviation}
        for c in people.covariates
    }
    return {"covariates": of, "primary": covariates[0]}


def run(study: Study, folder: Path, seed: int) -> tuple[Any, Consortium | None]:
    """Arrays of the results of a study, with the truth, and people of a table."""
    home = folder / f"{study.data}-{study.people}-{study.epsilon:g}-{seed}"
    people = write(study, home, seed)
    command("run", "config/config.yaml", where=home)
    with np.load(home / "results" / home.name / EFFECTS) as arrays:
        found = dict(arrays)
    truth = pd.read_csv(home / TRUTH, sep="\t").iloc[:, 1].to_numpy()
    return {**found, "truth": truth}, people


def over_foretold(found: Mapping[str, Any]) -> float:
    """Root mean square of errors of the primary effects over the foretold ones."""
    if not found["is_estimable"][0]:
        return np.nan
    off = found["effects"][0] - found["truth"]
    return float(np.mean((off / found["moments_foretold"][0]) ** 2)) ** 0.5


def holds(found: Mapping[str, Any]) -> float:
    """Share of outcomes whose interval has the truth."""
    low, high = found["lows"][0], found["highs"][0]
    return float(np.mean((low <= found["truth"]) & (found["truth"] <= high)))


def cover(folder: Path, n: int) -> None:
    """Print how often intervals hold, by study files and by the algebra."""
    study, rates_of = Study("adult", 5000, 4.0, "bounds"), []
    for seed in range(n):
        found, people = run(study, folder, seed)
        outcomes = contrast_tables.outcomes_of(people, study.public)
        rng = np.random.default_rng([seed, 1])
        about = people, study.epsilon, "noised", outcomes, rng
        again = contrast_tables.study(*about)[0].contrasts()
        ends = {"lows": again.lows, "highs": again.highs, "truth": people.truth}
        rates_of.append((holds(found), holds(ends)))
        print("holds, files and algebra:", *rates_of[-1], sep="\t", flush=True)
    mean = np.mean(rates_of, axis=0)
    error = np.std(rates_of, axis=0) / n**0.5
    print(f"files {mean[0]:.3f} +- {error[0]:.3f}, algebra {mean[1]:.3f}")


def main() -> None:
    """Run all studies; print a line of each."""
    parser = rates.options(__doc__, 1)
    parser.add_argument("--cover", type=int, default=0, help="studies of adult")
    given, ratios, here = parser.parse_args(), [], consortia.names()
    with tempfile.TemporaryDirectory() as folder:
        if given.cover:
            cover(Path(folder), given.cover)
            return
        studies = [s for s in STUDIES if s.data in ("simulated", *here)]
        print("data people epsilon public over_foretold holds", flush=True)
        for seed in range(given.draws):
            for place, study in enumerate(studies):
                found, _ = run(study, Path(folder), 10 * seed + place)
                ratios.append(over_foretold(found))
                numbers = f"{ratios[-1]:.2f}", f"{holds(found):.2f}"
                print(*study, *numbers, sep="\t", flush=True)
    squares = np.square(ratios).reshape(given.draws, -1)
    ratios = np.nanmean(squares, axis=0) ** 0.5
    inside = (ratios > 0.75) & (ratios < 1.35)
    rates.say("effect-foretold/files", float(np.median(ratios)))
    rates.say("effect-foretold/files-inside", float(inside.mean()), len(ratios))


if __name__ == "__main__":
    main()
