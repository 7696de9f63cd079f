"""The steps of studies whose people are rows: tensors, regression, a network.

`prepare` and `reconstruct` are one site's alone; what they compute of a person stays
there.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from capeneuro.algorithms import network as networks
from capeneuro.algorithms import regression, tensors
from capeneuro.algorithms.cca import rough_center
from capeneuro.algorithms.network import Network
from capeneuro.algorithms.regression import LinearModel
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.config.errors import ConfigError
from capeneuro.config.network import NetworkConfig
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.rows import RowStudy
from capeneuro.config.tensors import TensorConfig
from capeneuro.data import files, nifti
from capeneuro.data.rows import Shape, find_people, open_rows, read_row, to_unit
from capeneuro.data.tables import constant_features
from capeneuro.federation.in_process import Federation
from capeneuro.federation.mechanism import Mechanism
from capeneuro.privacy.moments import FEWEST_WORDS
from capeneuro.report import page, words
from capeneuro.studies.flow import (
    MASK,
    MOST_FEATURES,
    folder_of,
    is_exact,
    mechanism_of,
    one_site,
    write_released,
)
from capeneuro.studies.sites import Sites, check_ceilings, in_process, names

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
    """Public number beside which sizes are shown, what sizes are, and its name."""
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


# Of each kind, what its step over all sites writes.
RESULTS = {
    TensorConfig: "group_desc-tensor_components.npz",
    RegressionConfig: "group_desc-regression_model.npz",
    NetworkConfig: "group_desc-network_weights.npz",
}
FEATURES = "group_desc-rows_features.tsv"
# What `reconstruct` writes at a site.
KEPT = "people.tsv"
# Features of a third moment as a whole: 22,100 numbers at 50, 180,000 at 100.
MOST_WHOLE = 100


# --- before anything is computed -----------------------------------------------------


def validate(study: RowStudy, sites: Sites) -> None:
    """Check the sites' people, files and budgets; write what the features are."""
    shape = open_rows(study)
    D = len(shape.names)
    if D > MOST_FEATURES:
        raise ConfigError(
            f"study {study.study}: features: must be at most {MOST_FEATURES} "
            f"features, got {D}; use a coarser basis or fewer columns"
        )
    whole = isinstance(study, TensorConfig) and study.tensors.projected is False
    if whole and D > MOST_WHOLE:
        raise ConfigError(
            f"study {study.study}: tensors.projected: false takes at most {MOST_WHOLE} "
            f"features, got {D}; set it to null or true"
        )
    found = {name: find_people(study, site, shape) for name, site in sites.items()}
    for people in found.values():
        for person in people.values():
            if person.image is not None:
                image = nifti.open_image(person.image, 3)
                nifti.on_grid(image, shape.mask, study.space.resample)
    check_ceilings(study, sites)
    if shape.mask is not None:
        nifti.write_mask(study.results / MASK, shape.mask)
    rows: Any = ([n, *b] for n, b in zip(shape.names, shape.bounds, strict=True))
    if study.counts_words:
        rows = ([name, "", ""] for name in shape.names)
    files.write_table(study.results / FEATURES, ["feature", "low", "high"], rows)
    for name, people in found.items():
        print(f"{name}: {len(people)} people")
    print(f"{len(sites)} sites, {D} features: valid")


# --- at one site ---------------------------------------------------------------------


def prepare(study: RowStudy, sites: Sites, site: str, threads: int = 1) -> None:
    """Turn one site's images or tables into rows; nothing leaves the site."""
    from capeneuro.report import plots

    shape = open_rows(study)
    found = find_people(study, one_site(sites, site), shape)
    place = names(study, sites).index(site), len(study.sites)
    rows: list[tuple[str, float, float, float]] = []
    low, high = np.inf, -np.inf

    def people() -> Iterator[tuple[str, np.ndarray]]:
        nonlocal low, high
        for name, person in tqdm(found.items(), f"prepare {site}", disable=None):
            x = read_row(study, shape, person)
            low, high = np.minimum(low, x), np.maximum(high, x)
            z = held(study, shape, x, np.array([person.target]), place)
            about = size(study, shape, z), kept(study, shape, z)
            rows.append((name, *about, person.target))
            yield name, z

    folder = study.private(site)
    layout = _layout(study, shape)
    files.write_features(folder / "projected.npz", people(), layout)
    odd = constant_features((high - low)[:, 0], shape.names)
    if odd and not study.counts_words:  # bounds in another unit make a feature so
        print(f"note: {odd}")
    sizes = np.array([row[1] for row in rows])
    figure = plots.row_norms(sizes, *limit(study))
    page = render_people(site, rows, figure, study)
    files.write_text(folder / "qc.html", page)


def held(
    study: RowStudy,
    shape: Shape,
    x: np.ndarray,
    target: np.ndarray,
    place: tuple[int, int] = (0, 1),
) -> np.ndarray:
    """Stack rows and targets to what the study's algorithm takes, float32.

    Parameters
    ----------
    study, shape
        The study, and what its rows are.
    x
        Rows of :func:`.rows.read_row`, (D, N).
    target
        In its own unit, (N,).
    place
        That of the people's site among the study's S sites, and S.
    """
    if isinstance(study, TensorConfig):
        return x.astype(np.float32)
    y = to_unit(target, *study.target[1])
    labels = (y + 1) / 2
    if isinstance(study, NetworkConfig):
        return np.concatenate([x, labels[None]]).astype(np.float32)
    task = study.regression.task
    y = y if task == "linear" else labels
    S = place[1]
    return regression.stack(x / shape.norm_bound, y, task, group=place[0], n_groups=S)


def reconstruct(study: RowStudy, sites: Sites, site: str) -> None:
    """Write what the result says of each of one site's people; it stays at the site.

    Of a mixture or topics the probability of each component; of a prediction the target
    and what is predicted.
    """
    shape, result = open_rows(study), read_result(study)
    found = find_people(study, one_site(sites, site), shape)
    place, rows = names(study, sites).index(site), []
    for name, person in tqdm(found.items(), f"reconstruct {site}", disable=None):
        x = read_row(study, shape, person)
        said = told(study, shape, result, x, place)[:, 0]
        own = [] if study.target is None else [person.target]
        rows.append([name, *(f"{value:.6g}" for value in (*own, *said))])
    if isinstance(study, TensorConfig):
        header = [f"component_{i + 1}" for i in range(study.n_components)]
    else:
        header = [study.target[0], "predicted"]
    files.write_table(study.private(site) / KEPT, ["participant_id", *header], rows)


def told(
    study: RowStudy, shape: Shape, result: Any, x: np.ndarray, group: int
) -> np.ndarray:
    """Memberships of people (K, N), or what is predicted of them (1, N).

    Parameters
    ----------
    study, shape, x
        As in :func:`held`.
    result
        Of :func:`read_result`.
    group
        Place of the people's site in the study.
    """
    if isinstance(study, NetworkConfig):
        return result.probabilities(x)[None]
    if isinstance(study, RegressionConfig):
        own = group if study.regression.within_sites else None
        values = shape.middle[:, None] + shape.spread[:, None] * x
        return result.predict(values, own)[None]
    if study.counts_words:
        return tensors.topic_memberships(result, x)
    return tensors.mixture_memberships(result, x)


# --- over all sites ------------------------------------------------------------------


def run(study: RowStudy, sites: Sites, threads: int, reference: bool) -> None:
    """Run the step over all sites in this process, in the arm of the study."""
    layout = _layout(study, open_rows(study))
    with in_process(study, sites, threads, is_exact(study, reference)) as federation:
        for name in sites:  # before anything is paid for
            people = files.Features(study.private(name) / "projected.npz")
            if people.layout != layout:
                raise ConfigError(
                    f"site {name}: its prepared rows are not the study's; run "
                    "`prepare` again"
                )
        over(federation, study, sites, reference)


def _layout(study: RowStudy, shape: Shape) -> str:
    """What the numbers of prepared rows are: names, bounds, target, place of a site."""
    about = study.layout, shape.names, shape.bounds.tolist(), shape.norm_bound
    return hashlib.sha256(repr(about).encode()).hexdigest()


def over(
    federation: Federation, study: RowStudy, sites: Sites, reference: bool = False
) -> None:
    """Run the step over sites that work anywhere; write its result."""
    shape = open_rows(study)
    stages = [mechanism_of(study, stage, reference) for stage in study.n_releases]
    found = compute(federation, study, shape, stages)
    for line in words.row_lines(found):
        print(line)
    write_released(study, sites, reference, RESULTS[type(study)], found, stages)


def compute(
    federation: Federation, study: RowStudy, shape: Shape, stages: Sequence[Mechanism]
) -> TensorComponents | LinearModel | Network:
    """Run the algorithm of a study, with a mechanism for each of its stages."""
    algorithms = {
        TensorConfig: _tensors,
        RegressionConfig: _regression,
        NetworkConfig: _network,
    }
    return algorithms[type(study)](federation, study, shape, stages)


def _tensors(
    federation: Federation,
    study: TensorConfig,
    shape: Shape,
    stages: Sequence[Mechanism],
) -> TensorComponents:
    options, K = study.tensors, study.n_components
    # A third moment of more is not affordable, whatever its noise.
    projected = True if len(shape.names) > MOST_WHOLE else options.projected
    if study.counts_words:
        return tensors.topic_components(
            federation, tuple(stages), K, projected=projected
        )
    return tensors.mixture_components(
        federation,
        tuple(stages),
        K,
        shape.norm_bound,
        1.0,
        options.variance,
        projected=projected,
    )


def _regression(
    federation: Federation,
    study: RegressionConfig,
    shape: Shape,
    stages: Sequence[Mechanism],
) -> LinearModel:
    options, center = study.regression, None
    *first, last = stages
    if first:
        about = len(shape.names), 1.0, len(study.sites)
        center = rough_center(federation, *first, *about, regression.norm_bound())
    found = regression.linear_model(
        federation,
        last,
        options.task,
        clip=options.clip,
        center=center,
        n_groups=len(study.sites),
        within=options.within_sites,
        ridge=options.ridge,
    )
    low, high = options.bounds
    return found.in_unit(
        shape.middle,
        shape.spread * shape.norm_bound,
        (low + high) / 2,
        (high - low) / 2,
    )


def _network(
    federation: Federation,
    study: NetworkConfig,
    shape: Shape,
    stages: Sequence[Mechanism],
) -> Network:
    options = study.network
    return networks.network(
        federation,
        stages[0],
        len(shape.names),
        shape.norm_bound,
        options.n_hidden,
        options.n_rounds,
        options.optimizer,
        options.learning_rate,
        options.clip,
        progress=lambda r: tqdm(r, f"network {stages[0].arm}", disable=None),
    )


def read_result(study: RowStudy, reference: bool = False) -> Any:
    """Read what :func:`over` wrote: components, a model or a network."""
    kinds = {
        TensorConfig: TensorComponents,
        RegressionConfig: LinearModel,
        NetworkConfig: Network,
    }
    kind = kinds[type(study)]
    arrays = files.read_arrays(folder_of(study, reference) / RESULTS[type(study)])
    values = (arrays[name] for name in kind.__dataclass_fields__)
    return kind(*(v.item() if v.ndim == 0 else v for v in values))
