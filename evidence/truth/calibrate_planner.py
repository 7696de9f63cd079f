"""Calibrate the planner: simulate studies, fit constants, print.

Run ``python evidence/truth/calibrate_planner.py`` from the repository. The
noise at the aggregator depends on the sites only through S / S_H, so one site with
that noise stands for all; ``tests/algorithms/test_prediction.py`` runs the sites.
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares

from capeneuro import linalg
from capeneuro.algorithms import forecast_components, ica, metrics, pca
from capeneuro.federation.mechanism import Release
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.queries import QUERIES
from sim.garch import garch, garch_parameters
from sim.sources import DEFAULT_20, maps_2d

FITTED = ("CLIPPED", "ROTATION", "SUBSPACE", "START")
N_STUDIES = 200
EXACT = {"n_rounds": 200, "clip": np.inf, "tol": 1e-4}
# Shares of the fair clips.
CLIPS = (0.4, 3)


def draw_study(rng):
    """Draw a number of pixels across, a unit, and a design without its settings."""
    n_side, T = int(rng.integers(7, 22)), int(rng.integers(50, 251))
    D = int(maps_2d((0,), n_side)[1].sum())
    unit = "sample" if rng.random() < 0.6 else "subject"
    few, many = (16, 1024) if unit == "sample" else (64, 4096)
    R, M = np.exp(rng.uniform(*np.log([(3, few), (min(20, D / 5), many)])))
    # Only to bound the time: M T D decides it.
    M = min(M, 60_000 / T, 8e6 / (T * D))
    return n_side, unit, forecast_components.Design(2, int(M), T, D, round(R))


def draw_settings(rng, unit, design):
    """Draw sites, rounds, share, clip and a promise for a study."""
    S = int(rng.integers(2, min(16, design.n_subjects) + 1))
    epsilon = np.exp(rng.uniform(*np.log((0.2, 16) if unit == "sample" else (0.5, 64))))
    R = design.n_components
    clip, pca_clip = np.exp(rng.uniform(*np.log(CLIPS), size=2)) * [
        forecast_components.fair_clip(unit, R, design.n_volumes),
        forecast_components.fair_pca_clip(unit, R),
    ]
    J, share = int(rng.integers(5, 41)), rng.uniform(0.15, 0.85)
    colluding = accounting.coalition(S, independent=True)
    promise = accounting.Budget(float(epsilon), 1e-5, unit, "replace-one", colluding)
    own = {"n_rounds": J, "clip": float(clip), "pca_clip": float(pca_clip)}
    return replace(design, n_sites=S, pca_share=share, **own), promise


def simulate(n_side, design, rng, cnr=3.0):
    """Make maps (D, R) and data (D, M T) of mean square norm 1, person by person."""
    R, M, T = design.n_components, design.n_subjects, design.n_volumes
    inside = maps_2d((0,), n_side)[1].ravel()

    def maps():
        fine = maps_2d(rng.permutation(DEFAULT_20)[:R], 3 * n_side)[0]
        cubes = fine.reshape(n_side, 3, n_side, 3, R)
        return cubes.mean(axis=(1, 3)).reshape(-1, R)[inside]

    # Of ten choices of sources, the one that such coarse pixels tell apart best.
    A = min((maps() for _ in range(10)), key=np.linalg.cond)
    courses = garch(garch_parameters(R, rng), M, T, rng)
    X = A @ courses.transpose(1, 0, 2).reshape(R, -1)
    X += X.std() / cnr * rng.standard_normal(X.shape, dtype=np.float32)
    scale = np.float32(np.sqrt((X**2).sum(axis=0).mean()))
    return A / scale, X / scale


class Pooled:
    """A mechanism over data in memory, with noise of a given deviation."""

    def __init__(self, X, T, unit, noise, rng):
        self.X, self.starts, self.unit = X, np.arange(0, X.shape[1], T), unit
        self.rng, self.roster, self.n_releases = rng, {}, None
        self.noise, self.releases = noise, []
        self.budget = accounting.Budget(1.0, 1e-5, unit, "replace-one", 0)

    def project(self, federation, matrix, norm_bound, clip):
        """Keep the components; the data are scaled already."""
        self.X = matrix.astype("f4") @ self.X

    def clip(self, bound):
        """Clip as private arms do."""
        return bound

    def answer(self, federation, name, parameters, *identity):
        """Mean over units, with noise."""
        total = QUERIES[name].total(Block(self.X, self.starts, self.unit), **parameters)
        n = self.X.shape[1] if self.unit == "sample" else len(self.starts)
        self.releases.append({})
        value = total / n + self.noise * self.rng.standard_normal(total.size)
        return Release(value, self.noise, n, (), np.inf)


def decompose(A, data, noise_pca, noise_ica, rng, pca_clip, **options):
    """NGI, captured energy and best energy of one run; data are (X, T, unit)."""
    R, moment = A.shape[1], {"norm_bound": 1.0, "clip": pca_clip}
    exact = Pooled(*data, 0.0, rng).answer(None, "second_moment", moment).value
    noisy = linalg.unpack_symmetric(exact + noise_pca * rng.standard_normal(exact.size))
    values, V = linalg.top_eigenpairs(noisy, R)
    subspace = pca.Subspace(values, V, 1.0)
    result = ica.infomax(None, Pooled(*data, noise_ica, rng), subspace, **options)
    ngi = metrics.normalized_gain_index(metrics.gain(result.unmixing, result.W, A))
    C = linalg.unpack_symmetric(exact)
    energy = linalg.top_eigenpairs(C, R)[0].sum()
    return ngi, metrics.captured_energy(V, C) / energy, energy


def measure(rng, n_data_sets=3, n_settings=4):
    """Rows of one study: design, promise, exact NGI, excess, captured, energy."""
    n_side, unit, design = draw_study(rng)
    cells = [draw_settings(rng, unit, design) for _ in range(n_settings)]
    runs = np.empty((n_data_sets, n_settings, 4))
    for rows in runs:
        A, X = simulate(n_side, design, rng)
        T = design.n_volumes
        exact = decompose(A, (X, T, "sample"), 0, 0, rng, np.inf, **EXACT)[0]
        for row, (d, promise) in zip(rows, cells, strict=True):
            at, own = forecast_components.predict(d, promise), {"n_rounds": d.n_rounds}
            noise = (at.noise_pca, at.noise_ica)
            data, clips = (X, T, unit), {"pca_clip": d.pca_clip, "clip": d.clip}
            ngi, *rest = decompose(A, data, *noise, rng, **clips, **own)
            row[:] = exact, ngi - exact, *rest
    return [(*c, *m) for c, m in zip(cells, runs.mean(axis=0), strict=True)]


def fit(rows):
    """Set and print the constants: some measured, the others by least squares."""
    designs, promises, exact, excess, captured, energy = zip(*rows, strict=True)
    n = np.array([d.n_subjects * d.n_volumes for d in designs])
    forecast_components.BASE = float(np.mean(exact * np.sqrt(n)))
    kept = []
    for d, b, e in zip(designs, promises, energy, strict=True):
        typical = forecast_components.fair_pca_clip(b.unit, d.n_components)
        kept.append(e * typical / forecast_components.clipped(typical, d.pca_clip))
    forecast_components.KEPT = float(np.mean(kept))

    def predicted(names, x, field):
        for name, value in zip(names, np.exp(x), strict=True):
            setattr(forecast_components, name, float(value))
        at = map(forecast_components.predict, designs, promises)
        return np.array([getattr(prediction, field) for prediction in at])

    def error(x):
        said = np.maximum(predicted(FITTED, x, "ngi_excess"), forecast_components.FLOOR)
        return np.log(said / np.maximum(excess, forecast_components.FLOOR))

    least_squares(lambda x: predicted(("LEAK",), x, "captured") - captured, [-1.0])
    start = np.log([getattr(forecast_components, name) for name in FITTED])
    x = least_squares(error, start, loss="soft_l1", f_scale=0.5).x  # long tails
    within = np.mean(np.abs(error(x)) < np.log(forecast_components.FACTOR))
    for name in ("BASE", "KEPT", "LEAK", *FITTED):
        print(name, getattr(forecast_components, name))
    print(
        f"{len(rows)} cells, within a factor of {forecast_components.FACTOR:g}: "
        f"{within:.2f}"
    )


if __name__ == "__main__":
    rng = np.random.default_rng(1)
    fit([row for _ in range(N_STUDIES) for row in measure(rng)])
