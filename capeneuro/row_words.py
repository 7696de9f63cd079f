"""What studies of rows say in words: lines of their results, a site's private page."""

from typing import Any

import numpy as np

from capeneuro import regression, shrinkage
from capeneuro import report as page
from capeneuro.config import RegressionConfig, RowStudy
from capeneuro.network import Network
from capeneuro.otd import TensorComponents
from capeneuro.regression import LinearModel
from capeneuro.row_data import Shape
from capeneuro.tensor_moments import FEWEST_WORDS


def row_lines(found: TensorComponents | LinearModel | Network) -> list[str]:
    """What a result says beside its numbers, one line each."""
    if isinstance(found, TensorComponents):
        return _tensor_lines(found)
    if isinstance(found, LinearModel):
        return _model_lines(found)
    first, last = found.trace[[0, -1]] if len(found.trace) else (np.nan, np.nan)
    return [
        f"{found.n_rounds} rounds; the norm of the released gradient, noise and all, "
        f"was {first:.3g} in the first and {last:.3g} in the last"
    ]


def _tensor_lines(found: TensorComponents) -> list[str]:
    w = found.weights
    K, edge = len(w), shrinkage.edge(found.noise_deviations[0], len(found.spectrum))
    above = int((found.spectrum[:K] > edge).sum())
    lines = [
        f"shares of people by component: {', '.join(f'{x:.2f}' for x in w)}; they are "
        f"found one by one, and add up to {w.sum():.2f}"
    ]
    if above < K:
        lines.append(
            f"note: {above} of {K} directions of the pairs stand above what noise "
            "alone reaches; components beyond cannot be told from noise"
        )
    # Shares above 1 are impossible: lambda below 1 is noise.
    if (found.eigenvalues < 1).any():
        lines.append(
            "note: a component's strength is below the least possible one; noise or a "
            "wrong number of components"
        )
    return lines


def _model_lines(found: LinearModel) -> list[str]:
    D = len(found.coefficients)
    apart = int((found.intervals.prod(axis=1) > 0).sum())
    of = "target's variance" if found.task == "linear" else "variance of the groups"
    r2 = f"explains an unknown share of the {of}: it is within the noise"
    if np.isfinite(found.r2):
        low, high = (f"{100 * x:.0f}%" for x in r2_interval(found))
        r2 = (
            f"explains {100 * found.r2:.0f}% of the {of} (95% interval {low} to {high})"
        )
    left = f"; deviation of what is left {found.residual_variance**0.5:.3g}"
    lines = [
        r2 + left * (found.task == "linear"),
        f"{apart} of {D} coefficients have a 95% interval that leaves out 0",
    ]
    if found.n_directions < D:
        lines.append(
            f"note: along {D - found.n_directions} of {D} directions the features vary "
            "by less than the noise; coefficients there are close to 0 whatever is true"
        )
    if found.weight < page.SLIGHTLY:
        lines.append(
            f"people count {found.weight:.2f} on average, the rest was clipped: slopes "
            "are some hundredths too small, which the intervals leave out"
        )
    return lines


def r2_interval(found: LinearModel) -> tuple[float, float]:
    """About 95% interval of the share that is explained; post-processing.

    That share is quadratic in the coefficients, so with a length of z errors they tell
    it up to ``2 / z`` of itself, one deviation.
    """
    w = found.coefficients
    z2 = float(w @ np.linalg.lstsq(found.covariance, w, rcond=None)[0])
    half = found.r2 * 2 * regression.WIDTH / max(z2, 1e-300) ** 0.5
    return max(found.r2 - half, 0.0), min(found.r2 + half, 1.0)


# --- a site's private page -----------------------------------------------------------


def kept(study: RowStudy, shape: Shape, z: np.ndarray) -> float:
    """Share of what one person adds to the first release that its clip leaves.

    Parameters
    ----------
    study, shape
        The study, and what its rows are.
    z
        What the site holds of the person, (n, 1).
    """
    if study.counts_words:
        return float(z.sum() >= FEWEST_WORDS)
    if study.target is None:
        return min(1.0, 1 / max(size(study, shape, z) ** 2, 1e-300))
    if isinstance(study, RegressionConfig):
        square = size(study, shape, z) ** 2
        return min(1.0, study.regression.clip / max(square, 1e-300))
    return 1.0  # of a network gradients are clipped, which say nothing before


def size(study: RowStudy, shape: Shape, z: np.ndarray) -> float:
    """What the clip looks at: words, or a norm over the study's bound."""
    if study.counts_words:
        return float(z.sum())
    if isinstance(study, RegressionConfig):
        return float(np.linalg.norm(z) / regression.norm_bound())
    own = z if study.target is None else z[:-1]
    return float(np.linalg.norm(own) / shape.norm_bound)


def limit(study: RowStudy) -> tuple[float, str, str]:
    """Public number beside which sizes are shown; what sizes and it are, in words."""
    if study.counts_words:
        return float(FEWEST_WORDS), "words of a person", "fewest words that count"
    if isinstance(study, RegressionConfig):
        clip = float(np.sqrt(study.regression.clip))
        return clip, "norm of a person's row and target over their bounds", "clip"
    return 1.0, "norm of a person's row over its bound", "norm bound"


def render_people(
    site: str,
    people: list[tuple[str, float, float, float]],
    figure: Any,
    study: RowStudy,
) -> str:
    """Render a site's private quality page.

    Parameters
    ----------
    site
        Its name.
    people
        Name, :func:`size`, :func:`kept` and target of each.
    figure
        Of their sizes.
    study
        The study.
    """
    number, what, name = limit(study)
    return page.template_of("people.html.jinja").render(
        site=site,
        rows=people,
        picture=page.picture("", figure)[1],
        target=None if study.target is None else study.target[0],
        number=number,
        what=what,
        limit=name,
        kind="topics" if study.counts_words else list(study.n_releases)[-1],
        is_centered="center" in study.n_releases,
    )
