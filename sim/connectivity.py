"""Write resting-state connectivity of 128 people at 11 sites as a study of rows.

Run ``python -m sim.connectivity`` from the repository, some seconds; it needs the
data in ``../shared/data`` or ``$CAPENEURO_DATA``. Then::

    snakemake --cores 2 --configfile evidence/truth/studies/abide_mixture/study.yaml

A person's row has eight numbers: the mean Fisher-transformed correlation of all pairs
of parcels (CC200) within each of eight groups of AAL regions (:data:`GROUPS`), less the
mean of the eight. All of it is done within the person, so it costs nothing.

``python -m sim.connectivity --look`` tells whether there are kinds of people at
all: the held-out likelihood of spherical Gaussian mixtures (scikit-learn) on these
rows, on rows with each feature shuffled over people, and on normal rows of the same
covariance, which has no kinds; and how alike the kinds found are to sites and
diagnoses. How many people it takes:
``python -m evidence.truth.row_studies --consortium``.
"""

import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd

from sim.bids import write_tsv
from sim.vbm import AAL, DATA, digits

SERIES = DATA / "abide_cc200"
PARCELS = DATA / "atlases/CC200_4mm.nii.gz"
OUT = Path("data/abide_mixture")
# First digit of the numbers of AAL regions.
GROUPS = {
    "frontal": 2,
    "insula": 3,
    "limbic": 4,
    "occipital": 5,
    "parietal": 6,
    "subcortical": 7,
    "temporal": 8,
    "cerebellum": 9,
}
# Of a group's mean less the mean of all, both of Fisher's z.
BOUNDS = (-0.5, 0.5)


def group_of_parcels() -> np.ndarray:
    """Digit of the AAL regions that most of each of 200 parcels lies in; 0: none."""
    atlas = nib.load(PARCELS)
    labels, found = np.asarray(atlas.dataobj).astype(int), digits(atlas, AAL)
    counts = np.zeros((labels.max() + 1, 10), int)
    np.add.at(counts, (labels.ravel(), found.ravel()), 1)
    return np.where(counts[1:, 1:].any(axis=1), counts[1:, 1:].argmax(axis=1) + 1, 0)


def profile(series: np.ndarray, of_parcel: np.ndarray) -> np.ndarray:
    """Row of a person's series (n_volumes, 200), shape (8,)."""
    z = np.arctanh(np.corrcoef(series.astype(float).T) * (1 - np.eye(len(of_parcel))))
    own = []
    for digit in GROUPS.values():
        inside = of_parcel == digit
        n = inside.sum()
        own.append(z[np.ix_(inside, inside)].sum() / (n * (n - 1)))
    return np.array(own) - np.mean(own)


def people() -> dict[str, dict[str, np.ndarray]]:
    """Rows by site and person.

    Raises
    ------
    SystemExit
        If the data are not there.
    """
    if not SERIES.is_dir():
        raise SystemExit(
            f"{SERIES}: not found; put the data there or set CAPENEURO_DATA"
        )
    of_parcel = group_of_parcels()
    found = {}
    for file in sorted(SERIES.glob("*.npz")):
        with np.load(file) as own:
            found[file.stem] = {name: profile(own[name], of_parcel) for name in own}
    return found


def write(out: Path = OUT) -> None:
    """Write a table of each site, and the public table of features."""
    for site, rows in people().items():
        lines = [[n, *(f"{v:.6f}" for v in row)] for n, row in rows.items()]
        write_tsv(out / f"{site}.tsv", ["participant_id", *GROUPS], lines)
    bounds = [[name, *BOUNDS] for name in GROUPS]
    write_tsv(out / "features.tsv", ["feature", "low", "high"], bounds)


# --- without privacy: are there kinds of people? -------------------------------------


def held_out(X: np.ndarray, n_components: int, n_folds: int = 8) -> float:
    """Mean log-likelihood of people that a spherical mixture did not see."""
    from sklearn.mixture import GaussianMixture

    fold = np.random.default_rng(1).permutation(len(X)) % n_folds
    options = {"covariance_type": "spherical", "n_init": 5, "random_state": 0}
    total = 0.0
    for k in range(n_folds):
        fitted = GaussianMixture(n_components, **options).fit(X[fold != k])
        total += fitted.score(X[fold == k]) * (fold == k).sum()
    return total / len(X)


def look(n_draws: int = 10) -> None:
    """Print how well mixtures fit, beside rows that have no kinds."""
    from sklearn.metrics import adjusted_rand_score
    from sklearn.mixture import GaussianMixture

    found = people()
    X = np.array([row for rows in found.values() for row in rows.values()])
    names = [name for rows in found.values() for name in rows]
    site = [site for site, rows in found.items() for _ in rows]
    table = pd.read_csv(SERIES / "participants.csv", index_col="file_id")
    rng = np.random.default_rng(0)
    Ks = (1, 2, 3, 4)
    print("held-out log-likelihood at K =", *Ks)
    print("as they are", *(f"{held_out(X, K):.2f}" for K in Ks))
    null = {
        "shuffled": lambda: np.column_stack([rng.permutation(c) for c in X.T]),
        "normal": lambda: rng.multivariate_normal(X.mean(axis=0), np.cov(X.T), len(X)),
    }
    for name, draw in null.items():
        draws = [draw() for _ in range(n_draws)]
        values = np.array([[held_out(Y, K) for K in Ks] for Y in draws])
        gains = values - values[:, :1]
        means = values.mean(axis=0)
        print(name, *(f"{m:.2f}" for m in means), "gain over K = 1, mean and deviation")
        print(" ", *(f"{g.mean():.2f}+-{g.std():.2f}" for g in gains.T))
    for K in (2, 3):
        fitted = GaussianMixture(
            K, covariance_type="spherical", n_init=5, random_state=0
        ).fit(X)
        kind = fitted.predict(X)
        alike = adjusted_rand_score(site, kind)
        diagnosis = adjusted_rand_score(table.loc[names].dx, kind)
        print(f"K = {K}: adjusted Rand index {alike:.2f} sites, {diagnosis:.2f} dx")
        print(fitted.weights_.round(2), fitted.covariances_.round(4))
        print(fitted.means_.round(2))


if __name__ == "__main__":
    if "--look" in sys.argv:
        look()
    else:
        write()
        study = "evidence/truth/studies/abide_mixture/study.yaml"
        again = f"snakemake --cores 2 --configfile {study}"
        print(f"{OUT}: written; now: {again}")
