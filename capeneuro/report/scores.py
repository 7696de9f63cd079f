"""Scores of a study's results against a truth, each beside its level of chance."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from capeneuro.algorithms import metrics
from capeneuro.algorithms.verdict import Verdicts
from capeneuro.data import files

# Name, value, reference, note.
Score = tuple[str, float, str, str]
AGAINST = {
    "truth": "truth",
    "reference": "run without privacy",
    "nonprivate_truth": "truth, of the run without privacy",
}


# Results with their intervals beside those of the run without privacy.
BESIDE = "group_desc-beside_results.tsv"
# Of rows that are public knowledge alone.
PUBLIC = "public, epsilon 0"


def components(
    unmixing: dict[str, np.ndarray],
    A: np.ndarray,
    prefix: str,
    norm_bound: float,
    owner: str = "",
) -> list[Score]:
    """Compare an unmixing with true or reference maps over features.

    Parameters
    ----------
    unmixing
        Arrays of a ``group_desc-ica_unmixing.npz``.
    A
        Maps over features for sources of unit variance, (n_features, R').
    prefix
        Kind of the maps A, a key of :data:`AGAINST`; begins the names of the scores.
    norm_bound
        Constant that the samples were divided by.
    owner
        Origin of the unmixing, if not the study's own; begins the names of the scores.

    Returns
    -------
    list of tuple
        Name, value, reference, note.
    """
    rows: list[Score] = []
    against = AGAINST[prefix]
    R, n_true = len(unmixing["W"]), A.shape[1]
    if n_true == R:
        G = metrics.gain(unmixing["unmixing"] / norm_bound, unmixing["W"], A)
        chance = f"chance {metrics.chance_gain_index(R):.3f}"
        value = metrics.normalized_gain_index(G)
        note = f"normalized gain index against the {against}, 0 is perfect"
        rows.append((f"{prefix}_ngi", value, chance, note))
    rows += patterns(unmixing["mixing"], A, prefix, against)
    # One map alone is always matched.
    r, chance = rows[-2][1], metrics.chance_match(A)
    if prefix == "reference" and chance < 1:
        agreement = (r - chance) / (1 - chance)
        note = "the mean as a share of what chance leaves"
        rows.append((f"{prefix}_agreement", agreement, "0 by chance", note))
    if owner:
        rows = [
            (f"{owner}_{name}", value, chance_text, f"{PUBLIC}: {note}")
            for name, value, chance_text, note in rows
        ]
    return rows


def patterns(
    estimate: np.ndarray, truth: np.ndarray, prefix: str, against: str
) -> list[Score]:
    """Compare maps, or any patterns over features, with others one to one.

    Parameters
    ----------
    estimate, truth
        As columns, (n_features, R) and (n_features, R').
    prefix, against
        Beginning of the scores' names, and a noun for the truth.
    """
    _, r = metrics.match(estimate, truth)
    chance = f"chance {metrics.chance_match(truth):.3f}"
    note = f"|correlation| of maps matched one to one with the {against}, 1 is perfect"
    return [
        (f"{prefix}_mean_abs_r", float(np.abs(r).mean()), chance, f"mean {note}"),
        (f"{prefix}_min_abs_r", float(np.abs(r).min()), "", f"least {note}"),
    ]


def correlations(estimate: np.ndarray, truth: np.ndarray, prefix: str) -> list[Score]:
    """Compare canonical correlations with others: ``|r - r_hat| / K`` [thesis, 7.3].

    Parameters
    ----------
    estimate, truth
        Shapes (K,) and (K',); those that one of them lacks count as 0.
    prefix
        Kind of the truth, a key of :data:`AGAINST`.
    """
    K = max(len(estimate), len(truth))
    r = [np.pad(np.sort(c)[::-1], (0, K - len(c))) for c in (estimate, truth)]
    error = float(np.linalg.norm(r[0] - r[1]) / K)
    reference = f"{np.linalg.norm(r[1]) / K:.3f} if all were said to be 0"
    quantity = f"error of the canonical correlations against the {AGAINST[prefix]}"
    note = f"{quantity}, 0 is perfect"
    return [(f"{prefix}_err_corr", error, reference, note)]


def write_beside(folder: Path, verdicts: Verdicts, exact: Verdicts) -> None:
    """Write each result with its interval beside that of the run without privacy.

    Parameters
    ----------
    folder
        Of the study's results; gets :data:`BESIDE`.
    verdicts, exact
        Of the same results in the same order, both with intervals; what is not
        estimable is ``n/a``.
    """
    private, reference = (
        [
            [*(f"{x:.4g}" if np.isfinite(x) else "n/a" for x in interval), label]
            for interval, label in zip(run.intervals, run.labels, strict=True)
        ]
        for run in (verdicts, exact)
    )
    rows = [[name, *private[k], *reference[k]] for k, name in enumerate(verdicts.names)]
    columns = ["value", "low", "high", "verdict"]
    header = ["result", *columns, *(f"exact_{name}" for name in columns)]
    files.write_table(folder / BESIDE, header, rows)


def write(path: Path, rows: Sequence[Score], stamp: str) -> None:
    """Write and print the table of scores, with its stamp if it has one."""
    table = [(name, f"{value:.4f}", *notes) for name, value, *notes in rows]
    if rows and stamp:
        table.append(("stamp", "", "", stamp))
    files.write_table(path, ["name", "value", "reference", "note"], table)
    for name, value, _, note in table:
        print(f"{name}\t{value or note}")
