r"""Simulated tables of patients: a symptom score, and how thick their cortex is.

    python -m sim.thickness FOLDER [--people N] [--sites S] [--seed SEED]

writes ``FOLDER/site-1.csv`` and so on, a row a person: ``participant_id``, ``score``
(as the PHQ-9, 0 to 27), ``age``, ``sex``, ``medication``, and the thickness [mm] of
eight regions. ``features.tsv`` has the public bounds of each region, :data:`REACH` mm
about its mean. Regions in :data:`THINNER` are the thinner the larger the score is; all
become thinner with age.
"""

import argparse
from pathlib import Path

import numpy as np

from sim.bids import write_bytes, write_tsv
from sim.fmri import site_sizes, subject_labels

# Mean thickness [mm].
REGIONS = {
    "insula": 3.0,
    "rostral anterior cingulate": 2.9,
    "medial orbitofrontal": 2.5,
    "superior frontal": 2.7,
    "fusiform": 2.7,
    "superior temporal": 2.8,
    "precentral": 2.5,
    "lateral occipital": 2.2,
}
THINNER = ("insula", "rostral anterior cingulate", "medial orbitofrontal")
# Mean and deviation of the score [points] and of age [years], and the thickness that is
# lost by a deviation of either [mm].
SCORE, AGE = (12.0, 5.0), (40.0, 12.0)
LOST_BY_SCORE, LOST_BY_AGE = 0.05, 0.03
# Deviations [mm]: of what all regions of a person share, of each region, and of a site.
SHARED_SD, REGION_SD, SITE_SD = 0.07, 0.11, 0.02
REACH = 0.4


def write(folder: Path, n_people: int, n_sites: int, seed: int) -> None:
    """Write the tables of all sites, and the public bounds.

    Parameters
    ----------
    folder
        Gets ``site-1.csv`` and so on, and ``features.tsv``.
    n_people, n_sites
        At all sites together, about as many at each.
    seed
        Fixes the bytes of all files.
    """
    mean = np.array([*REGIONS.values()])
    slope = LOST_BY_SCORE * np.isin([*REGIONS], THINNER)
    header = ["participant_id", "score", "age", "sex", "medication", *REGIONS]
    labels = subject_labels(site_sizes(n_people, n_sites))
    sites = np.random.default_rng(seed).spawn(n_sites)
    for k, (people, rng) in enumerate(zip(labels, sites, strict=True)):
        n = len(people)
        score = np.clip(np.rint(rng.normal(*SCORE, n)), 0, 27)
        age = np.round(np.clip(rng.normal(*AGE, n), 18, 75), 1)
        sex, medication = rng.choice(["F", "M"], n), rng.choice(["without", "with"], n)
        shared = SITE_SD * rng.standard_normal() + SHARED_SD * rng.standard_normal(n)
        Y = mean + shared[:, None] + REGION_SD * rng.standard_normal((n, len(mean)))
        Y -= np.outer((score - SCORE[0]) / SCORE[1], slope)
        Y -= LOST_BY_AGE * ((age - AGE[0]) / AGE[1])[:, None]
        rows = [
            [f"sub-{label}", f"{score[i]:.0f}", f"{age[i]:.1f}", sex[i], medication[i]]
            + [f"{mm:.3f}" for mm in Y[i]]
            for i, label in enumerate(people)
        ]
        lines = [",".join(row) for row in [header, *rows]]
        write_bytes(folder / f"site-{k + 1}.csv", "\n".join([*lines, ""]).encode())
    rows = [
        [name, f"{m - REACH:.1f}", f"{m + REACH:.1f}"] for name, m in REGIONS.items()
    ]
    write_tsv(folder / "features.tsv", ["feature", "low", "high"], rows)


def main() -> None:
    """Write simulated tables of cortical thickness."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--people", type=int, default=1200)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    write(options.folder, options.people, options.sites, options.seed)


if __name__ == "__main__":
    main()
