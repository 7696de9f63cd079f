"""The steps of a fusion study: two views of each person, capeCCA, linked components.

`prepare` and `reconstruct` are one site's alone; what they compute of a person stays
there.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from capeneuro import __version__
from capeneuro.algorithms import (
    forecast_fusion,
    metrics,
    prediction,
    shrinkage,
    verdicts,
)
from capeneuro.algorithms.cca import (
    NORM_BOUND,
    CanonicalDirections,
    canonical_directions,
    rough_center,
    stack,
)
from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.load import section
from capeneuro.data import derivatives, eeg, files, labels, nifti
from capeneuro.data.tables import constant_features, open_table
from capeneuro.data.views import (
    Views,
    find_people,
    inputs,
    inventories,
    n_second,
    open_views,
    public_files,
    read_person,
)
from capeneuro.federation.in_process import Federation
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import maps as group_maps
from capeneuro.report import page, progress, scores, words
from capeneuro.studies.counts import Counts, require, write_sizes
from capeneuro.studies.courses import made_from, of_components
from capeneuro.studies.flow import (
    MASK,
    MOST_FEATURES,
    VERDICTS,
    Kind,
    folder_of,
    is_exact,
    mechanism_of,
    one_site,
    read_released,
    write_released,
    write_verdicts,
)
from capeneuro.studies.plan import Forecast, gate, noise_over_pooled, plan
from capeneuro.studies.reports import report
from capeneuro.studies.sites import (
    Sites,
    check_ceilings,
    in_process,
    keep_inventory,
    keep_people,
    names,
)

DIRECTIONS = "group_desc-cca_directions.npz"
FEATURES = "group_desc-cca_features.tsv"
COMPONENTS = "group_desc-cca_components.tsv"
MAPS = "group_desc-cca_components.nii.gz"
# Of each view the patterns over its features, a column for each component.
PATTERNS = {"fmri": "group_desc-cca_fmri.tsv", "eeg": "group_desc-cca_eeg.tsv"}
# Truth of a simulated study, in the folder that `score.truth` names.
TRUTH = {
    "fmri": "desc-truth_components.nii.gz",
    "eeg": "desc-truth_waveforms.tsv",
    "correlations": "desc-truth_correlations.tsv",
}
TRUTHS = ("eeg", "correlations")
KEPT = ("variates.tsv",)
SITE_KEYS = dict.fromkeys(
    ("validate", "prepare", "reconstruct"), ("images", "eeg", "eeg_about", "task")
)
# Of each step the sections of the study file that it depends on.
KEYS = {
    "make_data": ("data", "n_components"),
    "validate": ("space", "n_components"),
    "prepare": ("space",),
    "cca": ("arm", "noise", "budget", "fusion", "n_components"),
    "reference_cca": ("fusion", "n_components"),
    "maps": ("space", "names"),
    "score": ("score",),
    "report": (
        *("study", "space", "fusion", "score", "names"),
        *("accept", "source", "governance"),
    ),
}


# --- before anything is computed -----------------------------------------------------


def validate(study: FusionConfig, sites: Sites, threads: int = 1) -> None:
    """Match the sites' people, read them all, check budgets; say what features are.

    One person at a time, whatever ``threads`` says: readers of EEG catch warnings.
    """
    mask = None if study.space is None else nifti.read_mask(Path(study.space.mask))
    views = open_views(study, mask)
    if sum(views.sizes) > MOST_FEATURES:
        raise ConfigError(
            f"study {study.study}: fusion: both views together must have at most "
            f"{MOST_FEATURES} features, got {' + '.join(map(str, views.sizes))}; use a "
            "coarser basis or fewer windows"
        )
    found: dict[str, dict[str, Any]] = {}

    def find(name: str) -> None:
        found[name] = find_people(study, sites[name], views.names)
        if study.handed:  # what the stage before will say of them
            nothing = np.zeros(views.sizes[0])
            found[name] = {who: (nothing, y) for who, (_, y) in found[name].items()}

    check_all(partial(find, name) for name in sites)
    if study.space is not None:
        first = {name: inventories(study, site)[0] for name, site in sites.items()}
        public = study.space.mask, study.space.basis_file
        derivatives.check_templates(first, public)
    check_ceilings(study, sites)
    everybody = [person for people in found.values() for person in people.values()]
    bar = progress.bar(everybody, "validate")
    check_all(partial(read_person, study, views, person) for person in bar)
    if mask is not None:
        nifti.write_mask(study.results / MASK, mask)
    write_sizes(study, sites, {name: [1] * len(own) for name, own in found.items()})
    named = zip(PATTERNS, views.names, strict=True)
    rows = ([view, name] for view, own in named for name in own)
    files.write_table(study.results / FEATURES, ["view", "feature"], rows)
    for name, people in found.items():
        print(f"{name}: {len(people)} people with both views")
        keep_inventory(study, name, *inventories(study, sites[name]))
    print(
        f"{len(sites)} sites, {views.sizes[0]} features of fmri, {views.sizes[1]} of "
        "eeg: valid"
    )


# --- at one site ---------------------------------------------------------------------


def prepare(study: FusionConfig, sites: Sites, site: str, threads: int = 1) -> None:
    """Turn one site's images and EEG into features; nothing leaves the site.

    ``threads`` people at a time, each in a process of its own.
    """
    from capeneuro.report import plots

    own, views = one_site(sites, site), _views(study)
    found = find_people(study, own, views.names)
    if study.handed:
        measure = of_components(study, views.domains, own)
        found = {who: (measure(who, runs), y) for who, (runs, y) in found.items()}
    low, high = np.inf, -np.inf
    norms: list[tuple[str, float, float]] = []
    epochs: list[tuple[Any, ...]] = []
    n_first, D = views.sizes[0], sum(views.sizes)
    place = _place(study, sites, site)

    def person(folder: Path, sources: tuple[Any, Any]) -> tuple[np.ndarray, Any]:
        os.chdir(folder)  # a worker may have been started elsewhere
        x, y, n_epochs = read_person(study, views, sources)
        return stack(x, y, *place), n_epochs

    def people() -> Iterator[tuple[str, np.ndarray]]:
        nonlocal low, high
        work = Parallel(threads, return_as="generator")
        features = work(delayed(person)(Path.cwd(), s) for s in found.values())
        bar = progress.bar(found, f"prepare {site}")
        for name, (z, n_epochs) in zip(bar, features, strict=True):
            epochs.extend((name, *row) for row in n_epochs)
            low, high = np.minimum(low, z), np.maximum(high, z)
            parts = z[:n_first], z[n_first:D]
            sizes = (np.linalg.norm(part.astype(float)) for part in parts)
            norms.append((name, *map(float, sizes)))
            yield name, z
        odd = constant_features((high - low)[:D, 0], [*views.names[0], *views.names[1]])
        # Privacy: one person can decide it, so of private data it stops nothing.
        if odd and own.data == "private":
            print(f"note: {odd}")
        elif odd and len(found) > 1:
            raise ConfigError(f"site {site}: {odd}")

    folder = study.private(site)
    about = folder / "projected.npz", people()
    files.write_features(*about, made_from=made_from(study))
    keep_people(study, own)
    if epochs:
        files.write_table(folder / eeg.EPOCHS, eeg.EPOCHS_HEAD, epochs)
        print(eeg.fewest(site, epochs))
    figure = plots.view_norms(np.array([row[1:] for row in norms]))
    text = page.template_of("views.html.jinja").render(
        site=site,
        rows=norms,
        picture=page.picture("Norms of people", figure),
        fusion=study.fusion,
    )
    files.write_text(folder / "qc.html", text)


def reconstruct(study: FusionConfig, sites: Sites, site: str) -> None:
    """Write how much of each component one site's people have; it stays at the site.

    A table of canonical variates, to relate to groups, age or symptoms there.
    """
    one_site(sites, site)
    found, folder = read_directions(study), study.private(site)
    people = files.Features(folder / "projected.npz")
    n_first, K = len(found.x_directions), len(found.correlations)
    mean, rows = found.means[:, _place(study, sites, site)[0]], []
    for name in progress.bar(people, f"reconstruct {site}"):
        z = people[name][: mean.size, 0] / NORM_BOUND - mean
        u = found.x_directions.T @ z[:n_first], found.y_directions.T @ z[n_first:]
        rows.append([name, *(f"{value:.6g}" for value in np.concatenate(u))])
    header = [f"{view}_{i + 1}" for view in PATTERNS for i in range(K)]
    table = folder / KEPT[0]
    files.write_table(table, ["participant_id", *header], rows)


# --- over all sites ------------------------------------------------------------------


def cca(study: FusionConfig, sites: Sites, threads: int, reference: bool) -> None:
    """Find what two views have in common: capeCCA, or the arm of the study."""
    with in_process(study, sites, threads, is_exact(study, reference)) as federation:
        S = len(study.sites)  # as many constants
        n_features = sum(_views(study).sizes) + S
        made = made_from(study)
        for name in sites:  # before anything is paid for
            people = files.Features(study.private(name) / "projected.npz")
            if people.made_from != made:
                raise ConfigError(
                    f"site {name}: its features are of other components than those "
                    "that were released last; run `prepare` again"
                )
            if (found := len(next(iter(people.values())))) != n_features:
                raise ConfigError(
                    f"site {name}: its prepared features are not the study's, "
                    f"{found - S} against {n_features - S}; run `prepare` again"
                )
        cca_over(federation, study, sites, reference)


def cca_over(
    federation: Federation, study: FusionConfig, sites: Sites, reference: bool = False
) -> None:
    """Find canonical directions of sites that work anywhere; write them."""
    options, center = study.fusion, None
    check = partial(gate, foretell, study, sites)
    stages = [mechanism_of(study, s, reference, check) for s in study.n_releases]
    n_first, _ = _views(study).sizes
    if options.center:
        about = n_first, options.center_clip, len(study.sites)
        center = rough_center(federation, stages[0], *about)
    found = canonical_directions(
        federation,
        stages[-1],
        study.n_components,
        n_first,
        options.clip,
        center,
        n_groups=len(study.sites),
        within=options.within_sites,
        n_directions=options.n_directions,
        debias=options.debias,
    )
    for line in words.correlation_lines(found):
        print(line)
    write_released(study, sites, reference, DIRECTIONS, found, stages)


def read_directions(
    study: FusionConfig, reference: bool = False
) -> CanonicalDirections:
    """Read the directions that :func:`cca_over` wrote."""
    return read_released(study, DIRECTIONS, CanonicalDirections, "cca", reference)


def patterns(
    study: FusionConfig, found: CanonicalDirections
) -> tuple[np.ndarray, np.ndarray]:
    """Patterns of both views in the unit of their features, (D, K) each."""
    fmri, erp = study.fusion.fmri, study.fusion.eeg
    x = found.x_patterns * NORM_BOUND * fmri.norm_bound
    return x, found.y_patterns * NORM_BOUND * erp.norm_bound


def maps(study: FusionConfig, sites: Sites) -> None:
    """Write linked components: maps as NIfTI, potentials and loadings as tables."""
    found, views, folder = read_directions(study), _views(study), study.results
    K = len(found.correlations)
    arrays = files.read_arrays(folder / DIRECTIONS)
    about = {
        "Description": "Linked components of two views by canonical correlation "
        "analysis: how each view varies per unit deviation of its variate",
        "Order": "by correlation of the two variates where they were found, descending",
        "Sign": "the entry of largest magnitude of a map over features is positive; "
        "the EEG pattern of a component has the sign that goes with it",
        "Stamp": str(arrays["stamp"]),
        "Sources": [DIRECTIONS],
        "capeneuro": {
            "version": __version__,
            "study": study.study,
            "arm": study.arm,
            **vars(study.promise),
        },
    }
    shown = patterns(study, found)
    if views.basis is not None:
        nifti.write_maps(
            folder / MAPS, views.basis.synthesis @ shown[0], views.mask, about
        )
    columns = [f"component_{i + 1}" for i in range(K)]
    for file, own, A in zip(PATTERNS.values(), views.names, shown, strict=True):
        rows = (
            [name, *(f"{value:.6g}" for value in row)]
            for name, row in zip(own, A, strict=True)
        )
        files.write_table(folder / file, ["feature", *columns], rows)
    said = verdicts.of_pairs(found)
    write_verdicts(study, said)
    about = *said.intervals.T, said.values, said.levels, found.correlations
    numbers = zip(*about, said.words, strict=True)
    called = _called(study, views, shown[0])
    rows = (
        [i + 1, *(f"{value:.4f}" for value in values), word]
        + [text for own in called[i : i + 1] for text in own.cells]
        for i, (*values, word) in enumerate(numbers)
    )
    header = ["component", "correlation", "low", "high", "found_at", "chance"]
    header += ["canonical", "verdict", *(group_maps.NAMES if called else [])]
    files.write_table(folder / COMPONENTS, header, rows)


def score(study: FusionConfig, sites: Sites) -> None:
    """Compare correlations and components with the truth and a run without privacy."""
    found, rows = read_directions(study), []
    shown = patterns(study, found)
    for name, (r, *own) in _comparisons(study).items():
        rows += scores.correlations(found.correlations, r, name)
        for view, A, B in zip(PATTERNS, shown, own, strict=True):
            rows += scores.patterns(A, B, f"{name}_{view}", scores.AGAINST[name])
    stamp = str(files.read_arrays(study.results / DIRECTIONS)["stamp"])
    scores.write(study.results / "scores.tsv", rows, stamp)


def chapter(
    study: FusionConfig, record: dict[str, Any], threads: int = 1
) -> page.Chapter:
    """What the report says of the study: pictures, verdicts and scores."""
    from capeneuro.report import plots, scalps, viewer

    folder, views = study.results, _views(study)
    found = read_directions(study)
    x, y = patterns(study, found)
    said = verdicts.of_pairs(found)
    figures = {
        "Correlation of each pair of variates, with 95% intervals for noise and "
        "sampling": plots.correlations(said.values, said.intervals, said.levels[0])
    }
    for view, spectrum in (("fmri", found.x_spectrum), ("eeg", found.y_spectrum)):
        edge = shrinkage.edge(found.noise_deviation, len(spectrum))
        kept = int(found.n_directions[0 if view == "fmri" else 1])
        title = f"Spectrum of {view} as released; {kept} directions were kept"
        figures[title] = plots.spectrum(spectrum, edge, kept)
    for name, (_, *own) in _comparisons(study).items():
        for view, A, B in zip(PATTERNS, (x, y), own, strict=True):
            r = metrics.matched_correlation(A, B)
            title = f"Patterns of {view} matched with the {scores.AGAINST[name]}"
            figures[title] = plots.matching(r)
    quality = [page.picture(title, figure) for title, figure in figures.items()]
    erp, second = study.fusion.eeg, views.names[1]
    if erp.kind == "erp":
        info = eeg.positions(erp)
        second = scalps.Potential(eeg.window_times(erp), erp.channels, info)
    is_map = views.basis is not None
    known = [
        f": correlation {r:.2f} ({low:.2f} to {high:.2f})" * (word == verdicts.ABOVE)
        for (r, low, high), word in zip(said.intervals, said.words, strict=True)
    ]
    called = [own.title for own in _called(study, views, x)] or [""] * len(known)
    titles = said.titles(
        [
            f"component {i + 1}{', ' * bool(like)}{like}{r}"
            for i, (r, like) in enumerate(zip(known, called, strict=True))
        ]
    )
    linked, maps = [], []
    for i, title in enumerate(titles):
        first = (folder / MAPS, i) if is_map else (views.names[0], x[:, i])
        both = first, (second, y[:, i])
        linked.append((title, partial(scalps.linked_component, *both, title)))
        if is_map:
            maps.append((title, partial(plots.component_map, *first, title)))
    pictures = {"quality": quality, **page.gallery(said, linked, threads)}
    return page.Chapter(
        study,
        "fusion.html.jinja",
        said,
        files.read_table(folder / "scores.tsv"),
        pictures,
        words.correlation_lines(found),
        _table(study),
        viewer.viewer(page.told_of(said, maps) if is_map else []),
        page.forecast_of(study),
    )


def _table(study: FusionConfig) -> page.Table:
    """The table of pairs as the page shows it."""
    columns = {
        "component": "pair of patterns, in the order in which they were found",
        "correlation": "of the variates, in people like these",
        "low": "for noise, sampling and clipping",
        "found_at": "correlation where the pair was found, most often more",
        "chance": "what the largest of these reaches in 95% of studies if nothing is "
        "common",
        "verdict": "",
        **(group_maps.NAMES if study.names else {}),
    }
    found = page.table_of(study.results / COMPONENTS, columns)
    rows = [[f"component {number}", *row] for number, *row in found.rows]
    return found._replace(rows=rows)


# --- what noise leaves ---------------------------------------------------------------


def foretell(study: FusionConfig, everyone: Sequence[str], counts: Counts) -> Forecast:
    """Foretell which correlations noise leaves to be seen.

    ``counts.features`` are those of the fMRI view, where no mask is there yet; volumes
    mean nothing here.
    """
    people, _, features = counts
    mask = None if study.space is None else Path(study.space.mask)
    if features is None and (mask is None or mask.is_file()):
        own = None if mask is None else nifti.read_mask(mask)
        sizes = open_views(study, own).sizes
    else:
        sizes = features, n_second(study)
    require(counts._replace(features=sizes[0]), "people", "features")
    half, double = (sizes[0] // 2, sizes[1] // 2), 2 * study.own_promise.epsilon
    choices = {
        "as planned": (people, sizes, study.own_promise),
        "twice the people": (2 * people, sizes, study.own_promise),
        "half the features of each view": (people, half, study.own_promise),
        "twice the epsilon": (
            people,
            sizes,
            replace(study.own_promise, epsilon=double),
        ),
    }
    K, share = study.n_components, study.shares["cca"]
    found = {}
    for name, (N, D, promise) in choices.items():
        S, n, over = noise_over_pooled(study, everyone, N)
        options = {"pca_share": share, "noise_over_pooled": over}
        design = prediction.Design(S, n, 1, D[0], K, **options)
        found[name] = prediction.predict_fusion(
            design, promise, D[1], study.fusion.clip
        )

    def show(keep: bool) -> None:
        print(f"\n{'':40} noise over the energy of a component")
        for name, (ratio, _) in found.items():
            print(f"{name:40} {ratio:.2g}")
        print(_lost(study, everyone, people, sizes))
        print(
            "\nfor features whose energy is the components', equally strong; an order "
            "of magnitude for others.\nThe noise over the energy grows as the root of "
            "the number of features, not the number\nthat is lost: coarser features "
            "help until it is well below 1"
        )

    ratio, level = found["as planned"]
    ratios = {"a view": ratio, "the largest correlation": level}
    return Forecast(
        ratios,
        "More people, a larger epsilon, fewer components or coarser features",
        show,
    )


def _lost(
    study: FusionConfig, everyone: Sequence[str], people: int, sizes: tuple[int, int]
) -> str:
    """Correlations that will be lost, as a sentence, by simulated stand-ins."""
    if sum(sizes) > forecast_fusion.MOST_FEATURES:
        return (
            "\nWhich correlations are lost is not foretold of more than "
            f"{forecast_fusion.MOST_FEATURES} features"
        )
    S, n, over = noise_over_pooled(study, everyone, people)
    clip, promise = study.fusion.clip, study.own_promise
    t = QUERIES["second_moment"].sensitivity(n, promise.relation, {"clip": clip})
    tau = over * float(t) / (promise.mu * study.shares["cca"] ** 0.5)
    design = prediction.Design(S, n, 1, sizes[0], study.n_components)
    levels = forecast_fusion.null_levels(design, sizes[1], tau, clip)
    drawn = list(progress.bar(levels, "forecast", forecast_fusion.DRAWS))
    low, middle, high = np.quantile(drawn, forecast_fusion.RANGE)
    return (
        f"\nCorrelations below {middle:.2f} ({low:.2f} to {high:.2f}, 80% of "
        f"{len(drawn)} simulated studies of these sizes) are lost"
    )


# --- files, for the workflow ---------------------------------------------------------


def released(study: FusionConfig) -> list[str]:
    """Files that the step over all sites writes."""
    return [str(study.results / DIRECTIONS)]


def shown(study: FusionConfig) -> list[str]:
    """Files of the linked components."""
    found = [COMPONENTS, VERDICTS, *PATTERNS.values()]
    if study.space is not None:
        found.append(MAPS)
    return [str(study.results / name) for name in found]


def validated(study: FusionConfig) -> list[str]:
    """The list of features, and the mask if there is one."""
    names = [FEATURES, *([] if study.space is None else [MASK])]
    return [str(study.results / name) for name in names]


def depends(study: FusionConfig, step: str) -> str:
    """What of the study file a step depends on."""
    reads = step in ("validate", "prepare", "maps")
    views = section(study.fusion, "fmri", "eeg", "unmatched") if reads else ""
    return f"{section(study, *KEYS[step])} {views}"


def made(study: FusionConfig, sites: Sites) -> list[str]:
    """Files that the data makers write last."""
    found = [f"{site.folder}/dataset_description.json" for site in sites.values()]
    folder = Path(study.space.mask).parent / "truth"
    return [*found, study.space.mask, *(str(folder / n) for n in TRUTH.values())]


def score_inputs(study: FusionConfig) -> list[str]:
    """Files that the components are compared with."""
    truth = study.score.truth
    found = [] if truth is None else [str(truth / name) for name in TRUTH.values()]
    if study.score.reference:
        found.append(str(folder_of(study, reference=True) / DIRECTIONS))
    return found


# --- shared by the steps -------------------------------------------------------------


def _place(study: FusionConfig, sites: Sites, site: str) -> tuple[int, int]:
    """Place of a site in the study's order, from 0, and the number of sites."""
    return names(study, sites).index(site), len(study.sites)


def _views(study: FusionConfig) -> Views:
    mask = None if study.space is None else nifti.read_mask(Path(study.space.mask))
    return open_views(study, mask)


def _called(study: FusionConfig, views: Views, A: np.ndarray) -> list[group_maps.Name]:
    """What each map is like, if the study names atlases or templates."""
    if not study.names:
        return []
    known = [labels.read(atlas, views.mask) for atlas in study.names]
    return group_maps.named(group_maps.zscore(views.basis.synthesis @ A), known)


def _comparisons(
    study: FusionConfig,
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Correlations and patterns (D, K) that the study's are compared with."""
    against = {}
    if study.score.truth is not None:
        against["truth"] = _truth(study, study.score.truth)
    if study.score.reference:
        exact = read_directions(study, reference=True)
        against["reference"] = exact.correlations, *patterns(study, exact)
    return against


def _truth(
    study: FusionConfig, folder: Path
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True correlations, maps and potentials over the study's features."""
    views, erp = _views(study), study.fusion.eeg
    x = views.basis.analysis @ nifti.read_maps(folder / TRUTH["fmri"], views.mask)
    tables = {name: open_table(folder / TRUTH[name]) for name in TRUTHS}
    waveforms = tables["eeg"]
    columns = [name for name in waveforms if name.startswith("component")]
    y = []
    for channel in erp.channels:
        own = waveforms[waveforms["channel"] == channel]
        at = eeg.epoch_times(erp)
        curves = [np.interp(at, own["time"], own[column]) for column in columns]
        y.append(eeg.window_means(np.stack(curves), erp).T)
    return tables["correlations"]["correlation"].to_numpy(), x, np.concatenate(y)


KIND = Kind(
    name="fusion",
    steps={
        "validate": validate,
        "plan": partial(plan, foretell),
        "prepare": prepare,
        "cca": cca,
        "maps": maps,
        "reconstruct": reconstruct,
        "score": score,
        "report": report,
    },
    chapter=chapter,
    foretell=foretell,
    over=cca_over,
    inputs=inputs,
    public_files=public_files,
    released=released,
    shown=shown,
    kept=KEPT,
    validated=validated,
    stages=(("cca", DIRECTIONS),),
    depends=depends,
    site_keys=SITE_KEYS,
    made=made,
    score_inputs=score_inputs,
)
