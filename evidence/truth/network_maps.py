"""How true a person's own networks are, and how well two halves of a person agree.

Each part compares guided ICA (GIG-ICA) with dual regression on the same data and
template, without privacy: both stay at a site. Parts:

- ``truth``: simulated people. Their maps are a public template's (36 networks at 3 mm),
  moved by a voxel and changed smoothly, beside sources that no template has, in noise;
  r of maps, of time courses and of FNC over pairs with the truth.
- ``parcels``: 128 people of ABIDE, 200 parcels, the template averaged over each parcel.
  r of maps and of FNC between two halves of a person's scan and between different
  people, and the share of people whose own other half is the nearest (chance 1 / 128).
- ``haxby``: two halves of each of eight runs of one person, 129 voxels of 25 mm in
  scanner space, against ten networks: the template lies roughly.
- ``gift``: GIFT's own 20 components of one person as the template of that person's
  data, which hold them but for the mean image that GIFT leaves in: the maps that come
  back. Then ten networks: the objective and maps beside those of a search as GIFT's
  (unit steps along the gradient, halved while the gain is below .02 of what the slope
  promises) from the same start.

    python -m evidence.truth.network_maps [--only truth parcels haxby gift] [--draws 3]

Some two minutes on one core; it needs the data in ``../shared/data`` or
``$CAPENEURO_DATA``. Prints a table a part.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import scipy.ndimage
import scipy.stats
from threadpoolctl import threadpool_limits

from capeneuro.persons import constrained_ica
from capeneuro.persons.constrained_ica import GuidedOptions, Problem
from capeneuro.persons.named_networks import (
    NetworkOptions,
    PersonNetworks,
    person_networks,
)
from evidence.truth import rates
from papers.cells import abide

ROOT = Path(__file__).parents[2]
DATA = rates.DATA.resolve()
TEMPLATES = {
    "36 networks": "networks/B_repackager_licence/picachooser_smithD50_ic36_3mm.nii.gz",
    "10 networks": "networks/B_repackager_licence/smith2009_rsn10_3mm.nii.gz",
    "NeuroMark": "networks/C_no_licence_found/neuromark1_ic53_10mm.nii.gz",
}
NOISES = (1.0, 4.0, 10.0)
PARTS = ("truth", "parcels", "haxby", "gift")
REGRESSION = NetworkOptions(method="dual-regression")


def guided(**options: object) -> NetworkOptions:
    """GIG-ICA with other options than the defaults."""
    return NetworkOptions(guided=GuidedOptions(**options))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    with threadpool_limits(1):
        if "truth" in options.only:
            truth(options.draws)
        if "parcels" in options.only:
            parcels()
        if "haxby" in options.only:
            haxby()
        if "gift" in options.only:
            gift()


def similarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Correlations of columns of two arrays, (n_columns,)."""
    za, zb = (scipy.stats.zscore(M.astype(float), axis=0) for M in (a, b))
    return (za * zb).mean(axis=0)


def links(fnc: np.ndarray) -> np.ndarray:
    """FNC of the pairs, as one column."""
    return fnc[np.triu_indices(len(fnc), 1)][:, None]


# --- simulated people ----------------------------------------------------------------


def truth(draws: int) -> None:
    """People whose maps, courses and links are known."""
    ways = {
        "dual regression": REGRESSION,
        "GIG-ICA": guided(),
        "GIG-ICA, template weight .8": guided(template_weight=0.8),
        "GIG-ICA, courses of the template": NetworkOptions(courses="template"),
        "GIG-ICA, 60 dimensions": guided(n_dimensions=60),
        "GIG-ICA, tolerance .001": guided(tolerance=1e-3),
    }
    image = nib.load(DATA / TEMPLATES["36 networks"])
    volumes = image.get_fdata(dtype=np.float32)
    inside = np.abs(volumes).max(axis=3) > 0
    A = scipy.stats.zscore(volumes[inside], axis=0)
    print("\n| noise | way | r of maps | of courses | of FNC | FNC's slope | steps |")
    print("|---|---|---|---|---|---|---|")
    for noise in NOISES:
        rows: dict[str, list[list[float]]] = {name: [] for name in ways}
        for draw in range(draws):
            X, maps, S = simulated(A, inside, noise, np.random.default_rng(draw))
            real = links(np.arctanh(np.corrcoef(S) * (1 - np.eye(len(S)))))
            for name, way in ways.items():
                person = person_networks(X, A, 2.0, way)
                z = links(person.fnc)
                rows[name].append(
                    [
                        similarity(person.maps, maps).mean(),
                        similarity(person.S.T, S.T).mean(),
                        similarity(z, real)[0],
                        float((z * real).sum() / (real**2).sum()),
                        person.search.n_steps.mean() if person.search else 0,
                    ]
                )
        print(f"| {noise:g} | template itself | {similarity(A, maps).mean():.3f} |||||")
        for name, values in rows.items():
            cells = " | ".join(f"{x:.3f}" for x in np.mean(values, axis=0)[:4])
            steps = np.mean(values, axis=0)[4]
            print(f"| {noise:g} | {name} | {cells} | {steps:.1f} |")


def simulated(
    A: np.ndarray, inside: np.ndarray, noise: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (n_voxels, 200) of one person, true maps and time courses (R, 200).

    Noise is a multiple of the deviation of all sources together.
    """
    n_others, T, R = 10, 200, A.shape[1]
    maps, volume = np.empty_like(A), np.zeros(inside.shape, np.float32)
    for k in range(R):
        volume[inside] = A[:, k]
        moved = np.roll(volume, rng.integers(-1, 2, 3), (0, 1, 2))[inside]
        maps[:, k] = moved * (1 + 0.5 * smooth(inside, 3, rng))
    maps /= maps.std(axis=0)
    others = np.stack([smooth(inside, 2, rng) ** 3 for _ in range(n_others)], axis=1)
    others /= others.std(axis=0)
    S = rng.standard_normal((R + n_others, T))
    S = scipy.signal.lfilter([1], [1, -0.5], S, axis=1)
    S += 0.1 * rng.standard_normal((len(S), len(S))) @ S  # so that they are linked
    S = scipy.stats.zscore(S, axis=1)
    X = np.hstack([maps, others]) @ S.astype(np.float32)
    X /= X.std()
    X += noise * rng.standard_normal(X.shape, np.float32)
    return X, maps, S[:R]


def smooth(inside: np.ndarray, width: float, rng: np.random.Generator) -> np.ndarray:
    """A smooth random field in a mask, of deviation 1; the width in voxels."""
    field = rng.standard_normal(inside.shape, np.float32)
    field = scipy.ndimage.gaussian_filter(field, width)[inside]
    return field / field.std()


# --- two halves of the same people ---------------------------------------------------


def on_grid(template: str, image: nib.Nifti1Image) -> np.ndarray:
    """Maps of a template at the voxels of another image, (x, y, z, R), linearly."""
    source = nib.load(DATA / TEMPLATES[template])
    to_source = np.linalg.inv(source.affine) @ image.affine
    at = np.indices(image.shape[:3]).reshape(3, -1)
    at = to_source[:3, :3] @ at + to_source[:3, 3:]
    maps = source.get_fdata(dtype=np.float32)
    sampled = [
        scipy.ndimage.map_coordinates(maps[..., k], at, order=1)
        for k in range(maps.shape[3])
    ]
    return np.stack(sampled, axis=1).reshape(*image.shape[:3], -1)


def parcels() -> None:
    """Two halves of 128 people's scans, over 200 parcels."""
    atlas = nib.load(DATA / "atlases/CC200_4mm.nii.gz")
    labels = atlas.get_fdata().astype(int)
    series = abide.load(DATA / "abide_cc200")
    people = [X for site in series.values() for X in site.values()]
    table = pd.read_csv(DATA / "abide_cc200/participants.csv").set_index("file_id")
    names = [name for site in series.values() for name in site]
    seconds = [float(table.TR_s[name]) for name in names]
    for template in ("36 networks", "NeuroMark"):
        maps = on_grid(template, atlas)
        A = np.array([maps[labels == k].mean(axis=0) for k in range(1, 201)])
        ways = {
            "dual regression": REGRESSION,
            "GIG-ICA": guided(),
            "GIG-ICA, courses of the template": NetworkOptions(courses="template"),
            "GIG-ICA, 40 dimensions": guided(n_dimensions=40),
            "GIG-ICA, 20 dimensions": guided(n_dimensions=20),
            "GIG-ICA, template weight .8": guided(template_weight=0.8),
        }
        halves = [
            [(half, t) for half in halved(X)]
            for X, t in zip(people, seconds, strict=True)
        ]
        table_of_halves(f"ABIDE, {len(people)} people, {template}", halves, A, ways)


def haxby() -> None:
    """Two halves of each run of one person."""
    folder = DATA / "haxby_25mm"
    mask = nib.load(folder / "mask_brain.nii.gz")
    inside = mask.get_fdata() > 0
    A = on_grid("10 networks", mask)[inside]
    halves = []
    for path in sorted(folder.glob("task001_run*/bold_25mm.nii.gz")):
        X = scipy.signal.detrend(nib.load(path).get_fdata()[inside], axis=1)
        X = scipy.stats.zscore(X, axis=1)
        halves.append([(half, 2.5) for half in halved(X)])
    ways = {
        "dual regression": REGRESSION,
        "GIG-ICA": guided(),
        "GIG-ICA, 20 dimensions": guided(n_dimensions=20),
    }
    table_of_halves("Haxby, 8 runs of one person, 10 networks", halves, A, ways)


def halved(X: np.ndarray) -> Iterator[np.ndarray]:
    """Two halves of a scan in time, each of the same number of volumes."""
    n = X.shape[1] // 2
    yield X[:, :n]
    yield X[:, n : 2 * n]


def table_of_halves(
    title: str,
    halves: list[list[tuple[np.ndarray, float]]],
    A: np.ndarray,
    ways: dict[str, NetworkOptions],
) -> None:
    """Print agreement of halves within and between people, way by way."""
    print(
        f"\n{title}: r between halves of the same / of different, share identified\n"
        "| way | maps | maps less the mean | courses' FNC | FNC less the mean "
        "| r with the template |\n|---|---|---|---|---|---|"
    )
    for name, way in ways.items():
        pairs = [[person_networks(X, A, t, way) for X, t in both] for both in halves]
        cells = [
            agreement(pairs, lambda p: p.maps.ravel(), False),
            agreement(pairs, lambda p: p.maps.ravel(), True),
            agreement(pairs, lambda p: links(p.fnc)[:, 0], False),
            agreement(pairs, lambda p: links(p.fnc)[:, 0], True),
        ]
        fit = np.mean([p.quality.mean_fit for both in pairs for p in both])
        print(f"| {name} | {' | '.join(cells)} | {fit:.2f} |")


def agreement(
    pairs: list[list[PersonNetworks]], numbers: object, is_centered: bool
) -> str:
    """Mean r within and between, and the share whose other half is the nearest.

    Centered: less the mean over people, so that what all share does not count.
    """
    first, second = (np.array([numbers(both[i]) for both in pairs]) for i in (0, 1))
    if is_centered:
        first, second = first - first.mean(axis=0), second - second.mean(axis=0)
    n = len(pairs)
    r = np.corrcoef(first, second)[:n, n:]
    within = np.diag(r).mean()
    between = r[~np.eye(n, dtype=bool)].mean()
    identified = (r.argmax(axis=1) == np.arange(n)).mean()
    return f"{within:.3f} / {between:.3f}, {identified:.2f}"


# --- GIFT ----------------------------------------------------------------------------


def gift() -> None:
    """GIFT's components of one person, sought in that person's data."""
    from evidence.truth import gift_oracle

    outputs = gift_oracle.load()
    image = nib.load(gift_oracle.RUN)
    volumes = image.get_fdata().reshape(-1, image.shape[3], order="F")
    X = volumes[volumes[:, 0] >= volumes[:, 0].mean()].astype(np.float32)
    A, S = outputs["icasig"].T, outputs["tc"]
    S = S if len(S) == A.shape[1] else S.T
    print(
        "\nGIFT, 20 components of one person\n| way | r of maps | least | of courses |"
    )
    print("|---|---|---|---|")
    for name, way in {"dual regression": REGRESSION, "GIG-ICA": guided()}.items():
        person = person_networks(X, A, 1.0, way)
        maps = similarity(person.maps, A)
        courses = similarity(person.S.T, S.T)
        print(
            f"| {name} | {maps.mean():.4f} | {maps.min():.3f} | {courses.mean():.3f} |"
        )
    # A template of another grid and other people, so that there is a way to go.
    maps = on_grid("10 networks", image).reshape(-1, 10, order="F")
    A = maps[volumes[:, 0] >= volumes[:, 0].mean()]
    problem, W = constrained_ica.guided_problem(constrained_ica.whiten(X).Y, A, 0.5)
    V, n = by_unit_steps(problem, W)
    ours = constrained_ica.guided_components(X, A)
    theirs = constrained_ica.evaluate(problem, V).objective
    r = similarity(ours.maps, problem.Y @ V.astype(np.float32))
    print(
        f"\n10 networks: objective {ours.start.mean():.4f} at the start, "
        f"{ours.end.mean():.4f} after {ours.n_steps.mean():.1f} steps of ours, "
        f"{theirs.mean():.4f} after {n.mean():.1f} evaluations as GIFT's; r of maps "
        f"{r.mean():.4f}, least {r.min():.4f}"
    )


def by_unit_steps(problem: Problem, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Search with steps of length 1, halved for good when the gain is too small.

    Written from the description of GIFT's search, to compare; one network at a time.
    Returns weights (K, R) and evaluations (R,); the last accepted weights, not the last
    that were tried.
    """
    ends, counts = [], []
    for k in range(W.shape[1]):
        single = problem._replace(
            likeness=problem.likeness[:, [k]], scale=problem.scale[[k]]
        )
        point, length, n = constrained_ica.evaluate(single, W[:, [k]]), 1.0, 0
        while n < 100:
            n += 1
            norm = np.linalg.norm(point.gradient)
            w = point.W + length * point.gradient / norm
            trial = constrained_ica.evaluate(single, w / np.linalg.norm(w))
            if (trial.objective - point.objective)[0] < 0.02 * length * norm:
                length /= 2
                continue
            change = float(((trial.W - point.W) ** 2).sum())
            point = trial
            if change < 1e-5:
                break
        ends.append(point.W[:, 0])
        counts.append(n)
    return np.array(ends).T, np.array(counts)


if __name__ == "__main__":
    main()
