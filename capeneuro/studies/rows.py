"""What studies of rows share: each person is one row of features.

Their kinds are in :mod:`.studies.tensors`, :mod:`.studies.regression` and
:mod:`.studies.network`; a kind is one :class:`RowKind`, and nothing here asks which.
`prepare` and `reconstruct` are one site's alone; what they compute of a person stays
there. What is predicted of people is compared with them only where all sites' data are
simulated or public and here.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_other
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro import __version__
from capeneuro.algorithms.row_prediction import FILL, RATIO, fill
from capeneuro.algorithms.verdicts import Verdicts
from capeneuro.config.errors import ConfigError, check_all, some
from capeneuro.config.load import section
from capeneuro.config.rows import RowStudy
from capeneuro.config.site import SiteConfig
from capeneuro.data import derivatives, eeg, files, labels, nifti
from capeneuro.data import rows as row_files
from capeneuro.data.inventory import Inventory
from capeneuro.data.rows import Shape, find_people, open_rows
from capeneuro.data.tables import constant_features
from capeneuro.federation.in_process import Federation
from capeneuro.federation.mechanism import Mechanism
from capeneuro.linalg import TINY
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import maps as group_maps
from capeneuro.report import page, progress, scores
from capeneuro.report.scores import AGAINST, Score
from capeneuro.studies.counts import Counts, require, write_sizes
from capeneuro.studies.courses import check_person, made_from, reader
from capeneuro.studies.flow import (
    MASK,
    MOST_FEATURES,
    VERDICTS,
    Kind,
    check_each,
    folder_of,
    is_exact,
    mechanism_of,
    one_site,
    read_released,
    releases_of,
    write_released,
    write_verdicts,
)
from capeneuro.studies.plan import Forecast, gate, noise_over_pooled, plan
from capeneuro.studies.reports import report
from capeneuro.studies.sites import (
    Sites,
    check_ceilings,
    in_process,
    is_complete,
    keep_inventory,
    keep_people,
    names,
)

FEATURES = "group_desc-rows_features.tsv"
# What maps are like, where the study names atlases or templates.
CALLED = "group_desc-rows_names.tsv"
# What `reconstruct` writes at a site.
KEPT = ("people.tsv",)
SITE_KEYS = dict.fromkeys(
    ("validate", "prepare", "reconstruct"),
    ("images", "people", "eeg", "eeg_about", "task", "mask", "repetition_time"),
)


class Other(NamedTuple):
    """What a result is compared with, over features in their own unit."""

    values: np.ndarray
    """As the kind's ``columns``, (D, K)."""
    weights: np.ndarray | None
    """Of components, (K,)."""


class People(NamedTuple):
    """Everybody, where that is no secret."""

    rows: list[np.ndarray]
    """Scaled features of each site's people, (D, N_s)."""
    targets: list[np.ndarray]
    """In their own unit; groups are 0 and 1; (N_s,)."""


class Expected(NamedTuple):
    """What a prediction knows of a study: its noise and its sizes."""

    noise: Callable[[str, float, str], float]
    """Deviation at the aggregator, of a query, at a clip, in a stage."""
    n_sites: int
    n_people: int
    n_features: int


# What a picture of the report is drawn by, by its title.
Drawn = dict[str, Callable[[], Any]]
Figures = tuple[dict[str, Any], Drawn, Drawn]
# (x, beside) -> z, float32; beside: what tables say that is no feature, (n, N).
Holder = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class RowKind:
    """A kind of study of rows, as the functions that differ between kinds.

    ``study`` is of this kind, ``shape`` says what its rows are, ``x`` are rows (D, N)
    as :func:`.data.rows.read_row` gives them, ``z`` what sites hold of people,
    ``found`` a result, ``other`` what it is compared with.
    """

    command: str
    """Its step over all sites."""
    result: type
    """Dataclass of its result."""
    file: str
    """Where the step writes it."""
    stem: str
    """Of the table over features, and of the maps where features are of images."""
    check: Callable[[RowStudy, Shape], None]
    """(study, shape): refuses what its algorithm cannot take; writes nothing."""
    holder: Callable[[RowStudy, Shape, tuple[int, int]], Holder]
    """(study, shape, place) -> what gives z; place: the site's among all, and S."""
    size: Callable[[RowStudy, Shape, np.ndarray], float]
    """(study, shape, z) of one person: what the clip looks at."""
    kept: Callable[[RowStudy, Shape, np.ndarray], float]
    """(study, shape, z) of one person: share of its part in the first release that the
    clip leaves."""
    limit: Callable[[RowStudy], tuple[float, str, str]]
    """(study): number beside which sizes are shown, what sizes are, and its name."""
    page: Callable[[RowStudy], dict[str, Any]]
    """(study): what the private page of a site says: ``about`` its numbers, ``size``,
    what they are in a word, and ``clipped``, whether rows are."""
    template: str
    """Of the report."""
    compute: Callable[[Federation, RowStudy, Shape, Sequence[Mechanism]], Any]
    """(federation, study, shape, stages) -> found: the algorithm."""
    lines: Callable[[Any], list[str]]
    """(found): what it says in words."""
    told: Callable[[RowStudy, Shape, Any, np.ndarray, int], np.ndarray]
    """(study, shape, found, x, place of the site) -> what is said of people, (n, N)."""
    header: Callable[[RowStudy], list[str]]
    """(study): names of what ``told`` says, after the target if there is one."""
    columns: Callable[[RowStudy, Shape, Any], tuple[list[str], np.ndarray]]
    """(study, shape, found): names and numbers over features in their unit, (D, K)."""
    tables: Callable[..., tuple[dict[str, np.ndarray], str, dict[str, Any]]]
    """(study, sites, shape, found, about): writes its further tables; returns further
    columns of the table over features, what its maps are, and further maps by stem."""
    more: Callable[[RowStudy], list[str]]
    """(study): names of the further files."""
    truths: tuple[str, ...]
    """Files of a truth, in the folder that `score.truth` names."""
    against: Callable[..., list[Score]]
    """(study, shape, found, other, prefix, people): scores."""
    verdicts: Callable[..., Verdicts]
    """(study, shape, found, releases): what of the result stands above the noise."""
    figures: Callable[..., Figures]
    """(study, shape, found, record, others, verdicts): pictures of quality, of what
    stands above the noise, and of the rest, which a reader has to unfold."""
    predict: Callable[[RowStudy, Expected], dict[str, float]]
    """(study, expected): what noise leaves, by heading, :data:`RATIO` among them."""
    caveat: str
    """What a prediction rests on."""
    people: Callable[..., tuple[np.ndarray, np.ndarray]] | None = None
    """(study, shape, z): rows and targets of open people; None: there is no target."""
    of_people: Callable[..., list[Score]] | None = None
    """(study, shape, found, people, prefix): how well targets are predicted."""
    ladder: tuple[int, ...] = ()
    """Fewer features, for which `plan` foretells the same, too."""
    table: str = ""
    """File whose rows the report shows; empty: the table over features."""
    most_features: Callable[[RowStudy], int] = lambda study: MOST_FEATURES
    """(study): features that its algorithm is meant for, at most."""
    check_people: Callable[[RowStudy, SiteConfig, dict[str, Any]], None] = (
        lambda study, site, people: None
    )
    """(study, site, people): refuses people of a site who are not those of public
    tables."""
    not_estimable: Callable[[RowStudy, Sequence[Mapping[str, Any]]], str] = (
        lambda study, people: ""
    )
    """(study, people of each site): says what no release can tell; empty: nothing."""
    headings: Mapping[str, str] = field(default_factory=dict)
    """Its columns that are shown, with what they are in words; none: all."""


def kind_of(own: RowKind) -> Kind:
    """Put a kind of study of rows together: the shared steps with what is its own."""

    def step(function: Callable[..., Any]) -> Callable[..., Any]:
        def bound(*arguments: Any, **options: Any) -> Any:
            return function(own, *arguments, **options)

        bound.__name__, bound.__doc__ = function.__name__, function.__doc__
        return bound

    return Kind(
        name=own.command,
        steps={
            "validate": step(validate),
            "plan": partial(plan, step(foretell)),
            "prepare": step(prepare),
            own.command: step(run),
            "maps": step(maps),
            "reconstruct": step(reconstruct),
            "score": step(score),
            "report": report,
        },
        chapter=step(chapter),
        foretell=step(foretell),
        over=step(over),
        inputs=row_files.inputs,
        public_files=row_files.public_files,
        released=step(released),
        shown=step(shown),
        kept=KEPT,
        validated=validated,
        stages=((own.command, own.file),),
        depends=step(depends),
        site_keys=SITE_KEYS,
        made=step(made),
        score_inputs=step(score_inputs),
        own=own,
    )


# --- before anything is computed -----------------------------------------------------


def validate(own: RowKind, study: RowStudy, sites: Sites, threads: int = 1) -> None:
    """Check the sites' people, files and budgets; write what the features are."""
    shape = _opened(own, study)
    D, most = len(shape.names), own.most_features(study)
    if most < D:
        raise ConfigError(
            f"study {study.study}: features: must be at most {most} "
            f"features, got {D}; use a coarser basis or fewer columns"
        )
    found: dict[str, dict[str, row_files.Person]] = {}
    inventories: dict[str, Inventory] = {}

    def find(name: str) -> None:
        inventories[name] = row_files.inventory_of(study, sites[name])
        found[name] = _people_of(own, study, sites[name], shape)

    check_all(partial(find, name) for name in sites)
    if study.space is not None:
        public = study.space.mask, study.space.basis_file
        derivatives.check_templates(inventories, public)
    if text := own.not_estimable(study, list(found.values())):
        if is_complete(study, sites):
            raise ConfigError(
                f"study {study.study}: {own.command}.covariates: {text}; leave one out"
            )
        print(f"note: {some(sites)}: {text} here")
    check_ceilings(study, sites)
    everybody = [
        (study, shape, sites[name], person)
        for name, people in found.items()
        for person in people.values()
    ]
    # Readers of EEG catch warnings, whose filters are the whole process's.
    check_each(check_person, everybody, 1 if study.has_eeg else threads)
    if shape.mask is not None:
        nifti.write_mask(study.results / MASK, shape.mask)
    write_sizes(study, sites, {name: [1] * len(own) for name, own in found.items()})
    bounds = [("", "")] * D if shape.bounds is None else shape.bounds
    rows = ([name, *pair] for name, pair in zip(shape.names, bounds, strict=True))
    files.write_table(study.results / FEATURES, ["feature", "low", "high"], rows)
    for name, people in found.items():
        print(f"{name}: {len(people)} people")
        keep_inventory(study, name, inventories[name])
        if alone := row_files.without_images(study, sites[name], people):
            print(
                f"note: {name}: {len(alone)} people of its table have no images, and "
                f"are not in the study: {some(alone)}"
            )
    print(f"{len(sites)} sites, {D} features: valid")


def _people_of(
    own: RowKind, study: RowStudy, site: SiteConfig, shape: Shape
) -> dict[str, row_files.Person]:
    """People of a site, if they are those whom public tables speak of."""
    people = find_people(study, site, shape)
    own.check_people(study, site, people)
    return people


def foretell(
    own: RowKind, study: RowStudy, everyone: Sequence[str], counts: Counts
) -> Forecast:
    """Foretell what the noise leaves of a result.

    ``counts.features`` are all features, where no mask is there yet; volumes mean
    nothing here.
    """
    people, _, features = counts
    mask = None if study.space is None else Path(study.space.mask)
    if features is None and (mask is None or mask.is_file()):
        features = len(_opened(own, study).names)
    require(counts._replace(features=features), "people", "features")
    double = with_other(study.own_promise, epsilon=2 * study.own_promise.epsilon)
    choices = {
        "as planned": (people, features, study.own_promise),
        "twice the people": (2 * people, features, study.own_promise),
        "half the features": (people, max(features // 2, 1), study.own_promise),
        "twice the epsilon": (people, features, double),
    }
    for n in own.ladder:
        if n < features:
            choices[f"{n} of them" if n > 1 else "one of them"] = (
                people,
                n,
                study.own_promise,
            )
    found = {}
    for name, (N, D, promise) in choices.items():
        S, n, over = noise_over_pooled(study, everyone, N)
        found[name] = predicted(own, study, promise, S, n, D, over)

    def show(keep: bool) -> None:
        heads = (f"{head:>26}" for head in found["as planned"])
        print(f"\n{'':20} {'   '.join(heads)}")
        for name, said in found.items():
            values = (f"{value:>26.3g}" for value in said.values())
            print(f"{name:20} {'   '.join(values)}")
        print(f"\n{own.caveat}")

    ratios = {"the result": found["as planned"][RATIO]}
    return Forecast(ratios, "More people, a larger epsilon or fewer features", show)


def _opened(own: RowKind, study: RowStudy) -> Shape:
    """What the rows are, if the kind's algorithm can take them."""
    shape = open_rows(study)
    own.check(study, shape)
    return shape


def predicted(
    own: RowKind,
    study: RowStudy,
    promise: Budget,
    n_sites: int,
    n_people: int,
    n_features: int,
    over: float,
) -> dict[str, float]:
    """Predict what noise leaves of a study, from public numbers alone.

    Parameters
    ----------
    own, study
        The study, and its kind.
    promise
        Of the study, or another.
    n_sites, n_people, n_features
        S, N and D of a release.
    over
        Deviation of the noise at the aggregator over that of a trusted curator.

    Returns
    -------
    dict of str to float
        With :data:`RATIO`; from 1 on the study should not run.
    """

    def noise(query: str, clip: float, stage: str) -> float:
        t = QUERIES[query].sensitivity(n_people, promise.relation, {"clip": clip})
        share = study.shares[stage] / study.n_releases[stage]
        return over * float(t) / (promise.mu * share**0.5)

    return own.predict(study, Expected(noise, n_sites, n_people, n_features))


def assumed_fill(study: RowStudy, D: int) -> float:
    """Assumed root mean square of a feature over the norm bound."""
    return fill(D, FILL if study.rows.norm_bound is None else 1.0)


# --- at one site ---------------------------------------------------------------------


def prepare(
    own: RowKind, study: RowStudy, sites: Sites, site: str, threads: int = 1
) -> None:
    """Turn one site's images or tables into rows; nothing leaves the site."""
    from capeneuro.report import plots

    shape = _opened(own, study)
    found = _people_of(own, study, one_site(sites, site), shape)
    place = names(study, sites).index(site), len(study.sites)
    held = own.holder(study, shape, place)
    epochs: list[tuple[Any, ...]] = []
    read_row = reader(study, shape, sites[site], epochs)
    rows: list[tuple[str, float, float, list[float]]] = []
    low, high = np.inf, -np.inf

    def people() -> Iterator[tuple[str, np.ndarray]]:
        nonlocal low, high
        for name, person in progress.bar(found.items(), f"prepare {site}"):
            x = read_row(person)
            low, high = np.minimum(low, x), np.maximum(high, x)
            z = held(x, person.beside[:, None])
            about = own.size(study, shape, z), own.kept(study, shape, z)
            rows.append((name, *about, person.beside.tolist()))
            yield name, z

    folder = study.private(site)
    about = folder / "projected.npz", people(), _layout(study, shape)
    files.write_features(*about, made_from(study))
    keep_people(study, one_site(sites, site))
    if epochs:
        files.write_table(folder / eeg.EPOCHS, eeg.EPOCHS_HEAD, epochs)
        print(eeg.fewest(site, epochs))
    odd = constant_features((high - low)[:, 0], shape.names)
    if odd and shape.bounds is not None:  # bounds in another unit make a feature so
        print(f"note: {odd}")
    sizes = np.array([row[1] for row in rows])
    number, what, name = own.limit(study)
    figure = plots.row_norms(sizes, number, what, name)
    text = page.template_of("people.html.jinja").render(
        site=site,
        rows=rows,
        picture=page.picture("People", figure),
        beside=list(study.beside),
        number=number,
        what=what,
        limit=name,
        **own.page(study),
    )
    files.write_text(folder / "qc.html", text)


def reconstruct(own: RowKind, study: RowStudy, sites: Sites, site: str) -> None:
    """Write what the result says of each of one site's people; it stays at the site.

    Of a mixture or topics the probability of each component; of a prediction the target
    and what is predicted.
    """
    shape, result = open_rows(study), read_result(own, study)
    found = find_people(study, one_site(sites, site), shape)
    place, rows = names(study, sites).index(site), []
    read_row = reader(study, shape, sites[site])
    for name, person in progress.bar(found.items(), f"reconstruct {site}"):
        x = read_row(person)
        said = own.told(study, shape, result, x, place)[:, 0]
        rows.append([name, *(f"{value:.6g}" for value in (*person.beside, *said))])
    header = [*study.beside, *own.header(study)]
    files.write_table(study.private(site) / KEPT[0], ["participant_id", *header], rows)


# --- over all sites ------------------------------------------------------------------


def run(
    own: RowKind, study: RowStudy, sites: Sites, threads: int, reference: bool
) -> None:
    """Run the step over all sites in this process, in the arm of the study."""
    layout = _layout(study, _opened(own, study))
    with in_process(study, sites, threads, is_exact(study, reference)) as federation:
        for name in sites:  # before anything is paid for
            people = files.Features(study.private(name) / "projected.npz")
            if (people.layout, people.made_from) != (layout, made_from(study)):
                raise ConfigError(
                    f"site {name}: its prepared rows are not the study's; run "
                    "`prepare` again"
                )
        over(own, federation, study, sites, reference)


def _layout(study: RowStudy, shape: Shape) -> str:
    """What the numbers of prepared rows are: names, bounds, target, place of a site."""
    bounds = None if shape.bounds is None else shape.bounds.tolist()
    about = study.layout, shape.names, bounds, shape.norm_bound, shape.longest
    return hashlib.sha256(repr(about).encode()).hexdigest()


def over(
    own: RowKind,
    federation: Federation,
    study: RowStudy,
    sites: Sites,
    reference: bool = False,
) -> None:
    """Run the step over sites that work anywhere; write its result."""
    shape = _opened(own, study)
    check = partial(gate, partial(foretell, own), study, sites)
    stages = [mechanism_of(study, s, reference, check) for s in study.n_releases]
    found = own.compute(federation, study, shape, stages)
    for line in own.lines(found):
        print(line)
    write_released(study, sites, reference, own.file, found, stages)


def read_result(own: RowKind, study: RowStudy, reference: bool = False) -> Any:
    """Read what :func:`over` wrote."""
    return read_released(study, own.file, own.result, own.command, reference)


# --- what readers see ----------------------------------------------------------------


def maps(own: RowKind, study: RowStudy, sites: Sites) -> None:
    """Write what was found: tables over features, maps as NIfTI, a model as JSON."""
    found, shape, folder = read_result(own, study), open_rows(study), study.results
    about = {
        "Stamp": str(files.read_arrays(folder / own.file)["stamp"]),
        "Sources": [own.file],
        "capeneuro": {
            "version": __version__,
            "study": study.study,
            "arm": study.arm,
            **vars(study.promise),
        },
    }
    verdicts = own.verdicts(study, shape, found, releases_of(study, own.file))
    write_verdicts(study, verdicts)
    heads, A = own.columns(study, shape, found)
    added, what, more = own.tables(study, sites, shape, found, about)
    table = {**{h: A[:, i] for i, h in enumerate(heads)}, **added}
    numbers = np.stack([*table.values()], 1)
    rows = [
        [name, *(f"{value:.6g}" for value in row)]
        for name, row in zip(shape.names, numbers, strict=True)
    ]
    head, told = (
        ["feature", *table],
        dict(zip(verdicts.names, verdicts.words, strict=True)),
    )
    if set(shape.names) <= set(told):  # else they are not of features
        head, rows = [*head, "verdict"], [[*row, told[row[0]]] for row in rows]
    files.write_table(folder / f"{own.stem}.tsv", head, rows)
    if shape.mask is None:
        return
    if named := called(study, shape, A):
        lines = zip(heads, (own.cells for own in named), strict=True)
        columns = ["map", *group_maps.NAMES]
        files.write_table(folder / CALLED, columns, [[h, *cells] for h, cells in lines])
    for stem, (B, said) in {own.stem: (A, what), **more}.items():
        D = shape.basis.n_features  # covariates have no place in an image
        sidecar = {"Description": said, **about}
        path = folder / f"{stem}.nii.gz"
        nifti.write_maps(path, shape.basis.synthesis @ B[:D], shape.mask, sidecar)


def called(study: RowStudy, shape: Shape, A: np.ndarray) -> list[group_maps.Name]:
    """What each map is like, if the study names atlases or templates."""
    if not study.names:
        return []
    known = [labels.read(atlas, shape.mask) for atlas in study.names]
    drawn = shape.basis.synthesis @ A[: shape.basis.n_features]
    return group_maps.named(group_maps.zscore(drawn), known)


def score(own: RowKind, study: RowStudy, sites: Sites) -> None:
    """Compare the result with the truth, a run without privacy, and open people."""
    found, shape = read_result(own, study), open_rows(study)
    rows = compared(own, study, shape, found, open_people(own, study, sites, shape))
    stamp = str(files.read_arrays(study.results / own.file)["stamp"])
    scores.write(study.results / "scores.tsv", rows, stamp)


def chapter(
    own: RowKind, study: RowStudy, record: dict[str, Any], threads: int = 1
) -> page.Chapter:
    """What the report says of the study: pictures, verdicts and scores."""
    from capeneuro.report import viewer

    folder, shape, found = study.results, open_rows(study), read_result(own, study)
    others = comparisons(own, study, shape)
    verdicts = own.verdicts(study, shape, found, releases_of(study, own.file))
    about = study, shape, found, record, others, verdicts
    quality, *drawn = own.figures(*about)
    pictures = {
        "quality": [page.picture(title, figure) for title, figure in quality.items()]
    }
    for place, own_figures in zip(("maps", "rest"), drawn, strict=True):
        pictures[place] = page.pictures([*own_figures.items()], threads)
    return page.Chapter(
        study,
        own.template,
        verdicts,
        files.read_table(folder / "scores.tsv"),
        pictures,
        own.lines(found),
        page.table_of(folder / (own.table or f"{own.stem}.tsv"), own.headings),
        viewer.viewer(drawn[0].items()),
        page.forecast_of(study),
    )


def scalp(
    study: RowStudy, shape: Shape, values: np.ndarray, title: str, unit: str
) -> Drawn:
    """The picture of a number of each feature on the head, where they are of EEG."""
    from capeneuro.report import scalps

    if not study.has_eeg:
        return {}
    options, D = study.rows.features, len(shape.names) - len(study.rows.covariates)
    where = options.channels, eeg.positions(options)
    if options.kind == "erp":
        about = scalps.Potential(eeg.window_times(options), *where)
    else:
        bands = [f"{low:g}-{high:g} Hz" for low, high in options.bands]
        about = scalps.Powers(bands, *where)
    return {title: partial(scalps.scalp, about, values[:D], title, unit)}


def one_map(study: RowStudy, shape: Shape, stem: str, what: str) -> dict[str, Any]:
    """The picture of a map of one number a voxel, where features are of images."""
    from capeneuro.report import plots

    if shape.mask is None:
        return {}
    title, path = f"{what}: change per unit", study.results / f"{stem}.nii.gz"
    return {title: partial(plots.component_map, path, 0, title)}


# --- files, for the workflow ---------------------------------------------------------


def released(own: RowKind, study: RowStudy) -> list[str]:
    """Files that the step over all sites writes."""
    return [str(study.results / own.file)]


def shown(own: RowKind, study: RowStudy) -> list[str]:
    """Files that :func:`maps` writes."""
    images = [f"{own.stem}.nii.gz"] if study.has_maps else []
    images += [CALLED] if study.names else []
    found = [f"{own.stem}.tsv", VERDICTS, *images, *own.more(study)]
    return [str(study.results / name) for name in found]


def validated(study: RowStudy) -> list[str]:
    """The list of features, and the mask if there is one."""
    found = [FEATURES, *([MASK] if study.has_maps else [])]
    return [str(study.results / name) for name in found]


def depends(own: RowKind, study: RowStudy, step: str) -> str:
    """What of the study file a step depends on."""
    block = own.command
    keys = {
        "make_data": ("data", "n_components"),
        "validate": ("space", "rows", block),
        "prepare": ("space", "rows"),
        block: ("arm", "noise", "budget", "rows", "n_components", block),
        f"reference_{block}": ("rows", "n_components", block),
        "maps": ("space", "rows", "names"),
        "score": ("score",),
        "report": (
            *("study", "space", "rows", "score", "names", block),
            *("accept", "source", "governance"),
        ),
    }
    layout = study.layout if step in ("make_data", "prepare") else ""
    return f"{section(study, *keys[step])} {layout}"


def made(own: RowKind, study: RowStudy, sites: Sites) -> list[str]:
    """Files that the data makers write last."""
    if study.has_eeg:
        people = [f"{site.eeg}/dataset_description.json" for site in sites.values()]
        return [*people, *map(str, study.public_tables), *_truths(own, study)]
    features = study.rows.features.features
    truth = [features.parent / "truth" / name for name in own.truths]
    public = [features, *study.public_tables, *truth]
    return [*(site.folder for site in sites.values()), *map(str, public)]


def score_inputs(own: RowKind, study: RowStudy) -> list[str]:
    """Files that the result is compared with."""
    found = _truths(own, study)
    if study.score.reference:
        found.append(str(folder_of(study, reference=True) / own.file))
    return found


def _truths(own: RowKind, study: RowStudy) -> list[str]:
    truth = study.score.truth
    return [] if truth is None else [str(truth / name) for name in own.truths]


# --- what there is to compare with ---------------------------------------------------


def comparisons(own: RowKind, study: RowStudy, shape: Shape) -> dict[str, Other]:
    """Truth and run without privacy, by their names in words, as far as there are."""
    against = {}
    if study.score.truth is not None and own.truths:
        against["truth"] = _truth(own, shape, study.score.truth)
    if study.score.reference:
        exact = read_result(own, study, reference=True)
        weights = getattr(exact, "weights", None)
        against["reference"] = Other(own.columns(study, shape, exact)[1], weights)
    return {AGAINST[name]: other for name, other in against.items()}


def _truth(own: RowKind, shape: Shape, folder: Path) -> Other:
    first, *more = (_read(folder / name) for name in own.truths)
    # As in a table that was released, whose names may have an apostrophe more.
    names = list(map(files.cell, shape.names))
    values = {files.cell(row[0]): row[1:] for row in first[1]}
    if missing := [name for name in names if name not in values]:
        raise ConfigError(
            f"{folder}: score.truth: must know all features, lacks {missing[0]!r}"
        )
    try:
        A = np.array([values[name] for name in names], float)
        header, rows = more[0] if more else (["weight"], [])
        at = header.index("weight") if "weight" in header else -1
        w = np.array([float(row[at]) for row in rows])
        fit = A.shape[1] > 0 and np.isfinite(A).all() and np.isfinite(w).all()
    except (ValueError, IndexError):
        fit = False
    if not fit or (more and not (len(w) == A.shape[1] and w.sum() > 0)):
        raise ConfigError(
            f"{folder}: score.truth: must be finite numbers, as many in each row"
            + ", and a weight of each component" * bool(more)
        )
    return Other(A, w if more else None)


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        header = path.read_text().split("\n", 1)[0].split("\t")
        return header, files.read_table(path)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not a text"
        raise ConfigError(f"{path}: score.truth: {why}; check the path") from None


def open_people(
    own: RowKind, study: RowStudy, sites: Sites, shape: Shape
) -> People | None:
    """Rows and targets of everybody as prepared; None where that is nobody's to see."""
    parts = [study.private(name) / "projected.npz" for name in sites]
    # Privacy: what a model says of private people is no score for others to see.
    is_open = all(site.data != "private" for site in sites.values())
    here = is_complete(study, sites) and all(part.is_file() for part in parts)
    if study.target is None or not (is_open and here):
        return None
    rows, targets = [], []
    for part in parts:
        people = files.Features(part)
        z = np.concatenate([people[name] for name in people], axis=1).astype(float)
        x, target = own.people(study, shape, z)
        rows.append(x)
        targets.append(target)
    return People(rows, targets)


def compared(
    own: RowKind, study: RowStudy, shape: Shape, found: Any, people: People | None
) -> list[Score]:
    """Scores of a result, (name, value, reference, note) each."""
    others = comparisons(own, study, shape)
    key = {words: name for name, words in AGAINST.items()}
    rows: list[Score] = []
    for words, other in others.items():
        rows += own.against(study, shape, found, other, key[words], people)
    if study.score.reference:
        exact = read_result(own, study, reference=True)
        if AGAINST["truth"] in others:
            other = others[AGAINST["truth"]]
            rows += own.against(study, shape, exact, other, "nonprivate_truth", people)
        if people is not None:
            rows += own.of_people(study, shape, exact, people, "reference_people")
    if people is not None:
        rows = own.of_people(study, shape, found, people, "people") + rows
    return rows


def prediction_r(
    w: np.ndarray, truth: np.ndarray, people: People | None, prefix: str, what: str
) -> list[Score]:
    """Correlation over people of two linear predictions, within sites."""
    if people is None:
        return []
    X = np.concatenate([x - x.mean(axis=1, keepdims=True) for x in people.rows], 1)
    a, b = w @ X, truth @ X
    r = float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), TINY))
    note = f"correlation of {what} with the {AGAINST[prefix]}'s, within sites"
    return [(f"{prefix}_prediction_r", r, "chance 0", note)]


def told_right(
    own: Callable[..., np.ndarray],
    study: RowStudy,
    shape: Shape,
    found: Any,
    people: People,
    prefix: str,
) -> list[Score]:
    """Share of open people whose group is told right, beside the larger group's."""
    p = np.concatenate(
        [own(study, shape, found, x, k)[0] for k, x in enumerate(people.rows)]
    )
    y = np.concatenate(people.targets)
    right = float(np.mean((p > 0.5) == (y > 0.5)))
    larger = max(float(np.mean(y > 0.5)), float(np.mean(y <= 0.5)))
    note = (
        "share told right among the people themselves, whose data are open; the base "
    )
    note += "rate is the larger group's"
    return [(f"{prefix}_accuracy", right, f"base rate {larger:.3f}", note)]
