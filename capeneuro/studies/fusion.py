"""The steps of a fusion study: two views of each person, capeCCA, linked components.

`prepare` and `reconstruct` run at one site; people's features and variates stay there.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from capeneuro import __version__
from capeneuro.algorithms import (
    forecast_components,
    forecast_fusion,
    metrics,
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
from capeneuro.algorithms.verdict import ABOVE
from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.site import SiteConfig
from capeneuro.data import derivatives, eeg, files, labels, nifti, survey
from capeneuro.data import views as view_files
from capeneuro.data.tables import constant_features, open_table
from capeneuro.data.views import (
    Views,
    find_people,
    inventories,
    n_second,
    open_views,
    read_person,
)
from capeneuro.federation.transport import Federation
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import maps as group_maps
from capeneuro.report import page, progress, scores, sentences
from capeneuro.report.figures import Figure
from capeneuro.site_data.people import check_elsewhere, keep_people
from capeneuro.studies.counts import write_sizes
from capeneuro.studies.flow import (
    MASK,
    MOST_FEATURES,
    VERDICTS,
    folder_of,
    is_exact,
    mechanism_of,
    one_site,
    read_released,
    write_released,
    write_verdicts,
)
from capeneuro.studies.forecasts import Counts, Forecast, require
from capeneuro.studies.gate import gate, noise_over_pooled
from capeneuro.studies.site_people import EVERYBODY, SitePeople
from capeneuro.studies.sites import (
    Sites,
    check_ceilings,
    in_process,
    keep_inventory,
    names,
)
from capeneuro.studies.study_kind import StudyKind
from capeneuro.studies.timecourse_features import made_from, of_components

DIRECTIONS = "group_desc-cca_directions.npz"
FEATURES = "group_desc-cca_features.tsv"
COMPONENTS = "group_desc-cca_components.tsv"
MAPS = "group_desc-cca_components.nii.gz"
# Patterns of each view over its features, a column for each component.
PATTERNS = {"fmri": "group_desc-cca_fmri.tsv", "eeg": "group_desc-cca_eeg.tsv"}
# Truth of a simulated study, in the folder that `score.truth` names.
TRUTH = {
    "fmri": "desc-truth_components.nii.gz",
    "eeg": "desc-truth_waveforms.tsv",
    "correlations": "desc-truth_correlations.tsv",
}


class LinkedComponents(NamedTuple):
    """Linked components that a study's are compared with."""

    correlations: np.ndarray
    """Of the pairs of variates, (K,)."""
    fmri: np.ndarray
    """Patterns over features of fMRI, (D_x, K)."""
    eeg: np.ndarray
    """Patterns over features of EEG, (D_y, K)."""


@final
@dataclass(frozen=True)
class FusionKind(StudyKind):
    """A study of two views of each person, fMRI and EEG: linked components."""

    study: FusionConfig
    site_files: ClassVar = ("variates.tsv",)
    site_keys: ClassVar = dict.fromkeys(
        ("validate", "prepare", "reconstruct"), ("images", "eeg", "eeg_about", "task")
    )

    # --- before anything is computed -------------------------------------------------

    @cached_property
    def views(self) -> Views:
        """The two views, from public files alone."""
        space = self.study.space
        mask = None if space is None else nifti.read_mask(Path(space.mask))
        return open_views(self.study, mask)

    def check_public_files(self) -> None:
        """Nothing: `validate` opens them."""

    def validate(self, sites: Sites, threads: int = 1) -> None:
        """Match the two views of the sites' people, read them all, and check budgets.

        One person at a time, whatever ``threads`` is: readers of EEG catch warnings.
        """
        study, views = self.study, self.views
        if sum(views.sizes) > MOST_FEATURES:
            sizes = " + ".join(map(str, views.sizes))
            raise ConfigError(
                f"study {study.study}: fusion: both views together must have at most "
                f"{MOST_FEATURES} features, got {sizes}; use a coarser basis or fewer "
                "windows"
            )
        people: dict[str, dict[str, Any]] = {}

        def find(name: str) -> None:
            people[name] = find_people(study, sites[name], views.names)
            if study.handed:  # a placeholder for measures of the stage before
                x = np.zeros(views.sizes[0])
                people[name] = {p: (x, y) for p, (_, y) in people[name].items()}

        check_all(partial(find, name) for name in sites)
        if study.space is not None:
            images = {name: inventories(study, site)[0] for name, site in sites.items()}
            public = study.space.mask, study.space.basis_file
            derivatives.check_templates(images, public)
        check_ceilings(study, sites)
        check_all(partial(check_elsewhere, study, sites[n], people[n]) for n in people)
        everybody = [pair for pairs in people.values() for pair in pairs.values()]
        bar = progress.bar(everybody, "validate")
        check_all(partial(read_person, study, views, pair) for pair in bar)
        if views.mask is not None:
            nifti.write_mask(study.results / MASK, views.mask)
        lengths = {name: [1] * len(pairs) for name, pairs in people.items()}
        write_sizes(study, sites, lengths)
        by_view = zip(PATTERNS, views.names, strict=True)
        rows = ([view, feature] for view, features in by_view for feature in features)
        files.write_table(study.results / FEATURES, ["view", "feature"], rows)
        for name, pairs in people.items():
            print(f"{name}: {len(pairs)} people with both views")
            keep_inventory(study, name, *inventories(study, sites[name]))
        first, second = views.sizes
        print(
            f"{survey.sites_in_words(len(sites))}, {first} features of fmri, "
            f"{second} of eeg: valid"
        )

    # --- at one site -----------------------------------------------------------------

    def prepare(self, sites: Sites, site: str, people: SitePeople = EVERYBODY) -> None:
        """Turn one site's images and EEG into features; nothing leaves the site."""
        from capeneuro.report import plots

        study, views, config = self.study, self.views, one_site(sites, site)
        sources = people.share(find_people(study, config, views.names))
        if study.handed:
            measure = of_components(study, views.domains, config)
            sources = {p: (measure(p, x), y) for p, (x, y) in sources.items()}
        title = f"prepare {site}"
        low, high = np.inf, -np.inf
        norms: list[tuple[str, float, float]] = []
        epochs: list[tuple[Any, ...]] = []
        n_first, D = views.sizes[0], sum(views.sizes)
        group, n_groups = self._group(sites, site)

        def encode(name: str, source: tuple[Any, Any]) -> tuple[np.ndarray, Any]:
            x, y, n_epochs = read_person(study, views, source)
            return stack(x, y, group, n_groups), n_epochs

        if people.part:
            people.store(sources, encode, title)
            return

        def encoded() -> Iterator[tuple[str, np.ndarray]]:
            nonlocal low, high
            prepared = people.prepared(sources, encode, title)
            for name, z, n_epochs in prepared:
                epochs.extend((name, *row) for row in n_epochs)
                low, high = np.minimum(low, z), np.maximum(high, z)
                parts = z[:n_first], z[n_first:D]
                sizes = (np.linalg.norm(part.astype(float)) for part in parts)
                norms.append((name, *map(float, sizes)))
                yield name, z
            features = [*views.names[0], *views.names[1]]
            constant = constant_features((high - low)[:D, 0], features)
            # Privacy: one person can decide it, so of private data it stops nothing.
            if constant and config.data == "private":
                print(f"note: {constant}")
            elif constant and len(sources) > 1:
                raise ConfigError(f"site {site}: {constant}")

        folder = study.private(site)
        path = folder / "projected.npz"
        files.write_features(path, encoded(), self.layout, made_from(study))
        keep_people(study, config)
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
        header = ["participant_id", "fmri_norm", "eeg_norm"]
        files.write_table(folder / "qc.tsv", header, norms)

    @property
    def layout(self) -> str:
        """Digest of the keys that a person's two views depend on, and their sizes."""
        parts = super().layout, self.views.sizes
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def reconstruct(
        self, sites: Sites, site: str, people: SitePeople = EVERYBODY
    ) -> None:
        """Write the canonical variates of one site's people; they stay there.

        The site can relate them to groups, age or symptoms.
        """
        one_site(sites, site)
        directions, folder = self.read_result(), self.study.private(site)
        people = files.Features(folder / "projected.npz")
        U, V = directions.x_directions, directions.y_directions
        mean = directions.means[:, self._group(sites, site)[0]]
        rows = []
        for name in progress.bar(people, f"reconstruct {site}"):
            z = people[name][: mean.size, 0] / NORM_BOUND - mean
            variates = np.concatenate([U.T @ z[: len(U)], V.T @ z[len(U) :]])
            rows.append([name, *(f"{value:.6g}" for value in variates)])
        K = len(directions.correlations)
        header = [f"{view}_{i + 1}" for view in PATTERNS for i in range(K)]
        path = folder / self.site_files[0]
        files.write_table(path, ["participant_id", *header], rows)

    # --- over all sites --------------------------------------------------------------

    def release(
        self, step: str, sites: Sites, threads: int = 1, reference: bool = False
    ) -> None:
        """Find the canonical directions of the two views, in the study's arm."""
        study = self.study
        is_not_private = is_exact(study, reference)
        with in_process(study, sites, threads, is_not_private) as federation:
            self.check_prepared(sites, made_from(study))  # before anything is spent
            self.release_all(federation, sites, reference)

    def release_all(
        self, federation: Federation, sites: Sites, reference: bool = False
    ) -> None:
        """Find canonical directions of sites that work anywhere; write them."""
        study, options, S = self.study, self.study.fusion, len(self.study.sites)
        check = partial(gate, study, sites)
        stages = [mechanism_of(study, s, reference, check) for s in study.n_releases]
        n_first, _ = self.views.sizes
        center = None
        if options.center:
            clip = options.center_clip
            center = rough_center(federation, stages[0], n_first, clip, S)
        directions = canonical_directions(
            federation,
            stages[-1],
            study.n_components,
            n_first,
            options.clip,
            center,
            n_groups=S,
            within=options.within_sites,
            n_directions=options.n_directions,
            debias=options.debias,
        )
        for line in sentences.correlation_lines(directions):
            print(line)
        write_released(study, sites, reference, DIRECTIONS, directions, stages)

    def read_result(self, reference: bool = False) -> CanonicalDirections:
        """Read the directions that :meth:`release_all` wrote."""
        form = CanonicalDirections
        return read_released(self.study, DIRECTIONS, form, "cca", reference)

    def patterns(
        self, directions: CanonicalDirections
    ) -> tuple[np.ndarray, np.ndarray]:
        """Patterns of both views in the unit of their features, (D, K) each."""
        fmri, erp = self.study.fusion.fmri, self.study.fusion.eeg
        x = directions.x_patterns * NORM_BOUND * fmri.norm_bound
        return x, directions.y_patterns * NORM_BOUND * erp.norm_bound

    # --- maps and the report ---------------------------------------------------------

    def maps(self, sites: Sites) -> None:
        """Write linked components: maps as NIfTI, potentials and loadings as tables."""
        study, views, folder = self.study, self.views, self.study.results
        directions = self.read_result()
        metadata = {
            "Description": "Linked components of two views by canonical correlation "
            "analysis: how each view varies per unit deviation of its variate",
            "Order": "by correlation of the two variates where they were found, "
            "descending",
            "Sign": "the entry of largest magnitude of a map over features is "
            "positive; the EEG pattern of a component has the sign that goes with it",
            "Stamp": str(files.read_arrays(folder / DIRECTIONS)["stamp"]),
            "Sources": [DIRECTIONS],
            "capeneuro": {
                "version": __version__,
                "study": study.study,
                "arm": study.arm,
                **vars(study.promise),
            },
        }
        patterns = self.patterns(directions)
        if views.basis is not None:
            volumes = views.basis.synthesis @ patterns[0]
            nifti.write_maps(folder / MAPS, volumes, views.mask, metadata)
        K = len(directions.correlations)
        header = ["feature", *(f"component_{i + 1}" for i in range(K))]
        tables = zip(PATTERNS.values(), views.names, patterns, strict=True)
        for file, features, A in tables:
            rows = (
                [feature, *(f"{value:.6g}" for value in values)]
                for feature, values in zip(features, A, strict=True)
            )
            files.write_table(folder / file, header, rows)
        pairs = verdicts.of_pairs(directions)
        write_verdicts(study, pairs)
        numbers = [*pairs.intervals.T, pairs.values, pairs.levels]
        columns = zip(*numbers, directions.correlations, pairs.labels, strict=True)
        map_names = self._map_names(patterns[0])
        rows = (
            [i + 1, *(f"{value:.4f}" for value in values), word]
            + [cell for name in map_names[i : i + 1] for cell in name.cells]
            for i, (*values, word) in enumerate(columns)
        )
        header = [
            "component",
            "correlation",
            "low",
            "high",
            "in_sample_correlation",
            "chance",
        ]
        header += ["canonical", "verdict", *(group_maps.NAMES if map_names else [])]
        files.write_table(folder / COMPONENTS, header, rows)

    def _map_names(self, A: np.ndarray) -> list[group_maps.Name]:
        """Most similar regions or templates of each map, if the study has any."""
        if not self.study.names:
            return []
        atlases = [labels.read(atlas, self.views.mask) for atlas in self.study.names]
        volumes = self.views.basis.synthesis @ A
        return group_maps.named(volumes, atlases)

    def chapter(self, record: dict[str, Any], threads: int = 1) -> page.Chapter:
        """Make the study's chapter of the report: pictures, verdicts and scores."""
        from capeneuro.report import plots, scalps, viewer

        folder, views, directions = self.study.results, self.views, self.read_result()
        x, y = self.patterns(directions)
        pairs = verdicts.of_pairs(directions)
        figures = {
            "Correlation of each pair of variates, with 95% intervals for noise and "
            "sampling": plots.correlations(
                pairs.values, pairs.intervals, pairs.levels[0]
            )
        }
        spectra = directions.x_spectrum, directions.y_spectrum
        for view, spectrum, n in zip(
            PATTERNS, spectra, directions.n_directions, strict=True
        ):
            edge = shrinkage.edge(directions.noise_deviation, len(spectrum))
            title = f"Spectrum of {view} as released; {int(n)} directions were kept"
            figures[title] = plots.spectrum(spectrum, edge, int(n))
        for name, reference in self._references().items():
            patterns = reference.fmri, reference.eeg
            for view, A, B in zip(PATTERNS, (x, y), patterns, strict=True):
                r = metrics.matched_correlation(A, B)
                title = f"Patterns of {view} matched with the {scores.AGAINST[name]}"
                figures[title] = plots.matching(r)
        quality = [page.picture(title, figure) for title, figure in figures.items()]
        options, second = self.study.fusion.eeg, views.names[1]
        if options.kind == "erp":
            info = eeg.positions(options)
            times = eeg.window_times(options)
            second = scalps.Potential(times, options.channels, info)
        has_map = views.basis is not None
        intervals = [
            f": correlation {r:.2f} ({low:.2f} to {high:.2f})" * (word == ABOVE)
            for (r, low, high), word in zip(pairs.intervals, pairs.labels, strict=True)
        ]
        map_names = [name.title for name in self._map_names(x)]
        map_names = map_names or [""] * len(intervals)
        titles = pairs.titles(
            [
                f"component {i + 1}{', ' * bool(name)}{name}{interval}"
                for i, (interval, name) in enumerate(
                    zip(intervals, map_names, strict=True)
                )
            ]
        )
        linked, maps = [], []
        for i, title in enumerate(titles):
            first = (folder / MAPS, i) if has_map else (views.names[0], x[:, i])
            draw = partial(scalps.linked_component, first, (second, y[:, i]), title)
            linked.append(Figure(title, draw))
            if has_map:
                maps.append(plots.map_figure(folder / MAPS, i, title))
        return page.Chapter(
            self.study,
            "fusion.html.jinja",
            pairs,
            files.read_table(folder / "scores.tsv"),
            {"quality": quality, **page.gallery(pairs, linked, threads)},
            sentences.correlation_lines(directions),
            self._table(),
            viewer.viewer(page.findings(pairs, maps) if has_map else []),
            page.forecast_of(self.study),
            beside=page.beside_of(self.study),
        )

    def _table(self) -> page.Table:
        """The table of pairs as the page shows it."""
        columns = {
            "component": "pair of patterns, in the order in which they were found",
            "correlation": "of the variates, in people like these",
            "low": "for noise, sampling and clipping",
            "in_sample_correlation": "where the pair was found, most often more",
            "chance": "what the largest of these reaches in 95% of studies if nothing "
            "is common",
            "verdict": "",
            **(group_maps.NAMES if self.study.names else {}),
        }
        table = page.table_of(self.study.results / COMPONENTS, columns)
        rows = [[f"component {number}", *row] for number, *row in table.rows]
        return table._replace(rows=rows)

    # --- scores ----------------------------------------------------------------------

    def score(self, sites: Sites) -> None:
        """Compare correlations and components with the truth and an exact run."""
        directions, rows = self.read_result(), []
        patterns = self.patterns(directions)
        for name, reference in self._references().items():
            r = reference.correlations
            rows += scores.correlations(directions.correlations, r, name)
            pairs = zip(patterns, (reference.fmri, reference.eeg), strict=True)
            for view, (A, B) in zip(PATTERNS, pairs, strict=True):
                rows += scores.patterns(A, B, f"{name}_{view}", scores.AGAINST[name])
        folder = self.study.results
        stamp = str(files.read_arrays(folder / DIRECTIONS)["stamp"])
        scores.write(folder / "scores.tsv", rows, stamp)
        if self.study.score.reference:
            exact = self.read_result(reference=True)
            # Each pair beside the one whose map is most like its own.
            order, _ = metrics.match(self.patterns(exact)[0], patterns[0])
            pairs = verdicts.of_pairs(exact)
            in_order = replace(
                pairs,
                intervals=pairs.intervals[order],
                labels=tuple(pairs.labels[i] for i in order),
            )
            scores.write_beside(folder, verdicts.of_pairs(directions), in_order)

    def _references(self) -> dict[str, LinkedComponents]:
        """Linked components that the study's are compared with, by name."""
        references = {}
        if self.study.score.truth is not None:
            references["truth"] = self._truth(self.study.score.truth)
        if self.study.score.reference:
            exact = self.read_result(reference=True)
            x, y = self.patterns(exact)
            references["reference"] = LinkedComponents(exact.correlations, x, y)
        return references

    def _truth(self, folder: Path) -> LinkedComponents:
        """Read true correlations, maps and potentials over the study's features."""
        views, options = self.views, self.study.fusion.eeg
        x = views.basis.analysis @ nifti.read_maps(folder / TRUTH["fmri"], views.mask)
        correlations = open_table(folder / TRUTH["correlations"])["correlation"]
        waveforms = open_table(folder / TRUTH["eeg"])
        columns = [name for name in waveforms if name.startswith("component")]
        y, times = [], eeg.epoch_times(options)
        for channel in options.channels:
            of_channel = waveforms[waveforms["channel"] == channel]
            curves = [
                np.interp(times, of_channel["time"], of_channel[column])
                for column in columns
            ]
            y.append(eeg.window_means(np.stack(curves), options).T)
        return LinkedComponents(correlations.to_numpy(), x, np.concatenate(y))

    # --- forecast --------------------------------------------------------------------

    def forecast(self, site_names: Sequence[str], counts: Counts) -> Forecast:
        """Foretell the noise over a component's energy, and correlations that are lost.

        ``counts.features`` are those of the fMRI view, where there is no mask yet;
        volumes have no meaning here.
        """
        study, promise = self.study, self.study.own_promise
        people, _, features = counts
        is_open = study.space is None or Path(study.space.mask).is_file()
        if features is None and is_open:
            sizes = self.views.sizes
        else:
            sizes = features, n_second(study)
        require(counts._replace(features=sizes[0]), "people", "features")
        half = sizes[0] // 2, sizes[1] // 2
        double = replace(promise, epsilon=2 * promise.epsilon)
        choices = {
            "as planned": (people, sizes, promise),
            "twice the people": (2 * people, sizes, promise),
            "half the features of each view": (people, half, promise),
            "twice the epsilon": (people, sizes, double),
        }
        K, share, clip = study.n_components, study.shares["cca"], study.fusion.clip
        predictions = {}
        for name, (N, (n_fmri, n_eeg), budget) in choices.items():
            arm = noise_over_pooled(study, site_names, N)
            design = forecast_components.Design(
                arm.n_sites,
                arm.n_people,
                1,
                n_fmri,
                K,
                pca_share=share,
                noise_over_pooled=arm.over_pooled,
            )
            ratios = forecast_components.predict_fusion(design, budget, n_eeg, clip)
            predictions[name] = ratios

        def show() -> None:
            print(f"\n{'':40} noise over the energy of a component")
            for name, (ratio, _) in predictions.items():
                print(f"{name:40} {ratio:.2g}")
            print(self._lost(site_names, people, sizes))
            print(
                "\nfor features whose energy is the components', equally strong; an "
                "order of magnitude for others.\nThe noise over the energy grows as "
                "the root of the number of features, not the number\nthat is lost: "
                "coarser features help until it is well below 1"
            )

        ratio, level = predictions["as planned"]
        return Forecast(
            {"a view": ratio, "the largest correlation": level},
            "More people, a larger epsilon, fewer components or coarser features",
            show,
            n_features=sum(sizes),
        )

    def _lost(
        self, site_names: Sequence[str], people: int, sizes: tuple[int, int]
    ) -> str:
        """Correlations that will be lost, as a sentence, by simulated stand-ins.

        Row: forecast-fusion
        """
        study, promise = self.study, self.study.own_promise
        clip, K = study.fusion.clip, study.n_components
        if sum(sizes) > forecast_fusion.MOST_FEATURES:
            return (
                "\nWhich correlations are lost is not foretold of more than "
                f"{forecast_fusion.MOST_FEATURES} features"
            )
        arm = noise_over_pooled(study, site_names, people)
        n = arm.n_people
        t = QUERIES["second_moment"].sensitivity(n, promise.relation, {"clip": clip})
        tau = arm.over_pooled * float(t) / (promise.mu * study.shares["cca"] ** 0.5)
        design = forecast_components.Design(arm.n_sites, n, 1, sizes[0], K)
        levels = forecast_fusion.null_levels(design, sizes[1], tau, clip)
        simulated = list(progress.bar(levels, "forecast", forecast_fusion.DRAWS))
        low, middle, high = np.quantile(simulated, forecast_fusion.RANGE)
        return (
            f"\nCorrelations below {middle:.2f} ({low:.2f} to {high:.2f}, 80% of "
            f"{len(simulated)} simulated studies of these sizes) are lost"
        )

    # --- files, for the workflow -----------------------------------------------------

    def input_files(self, site: SiteConfig) -> list[str]:
        """Files of a site that its features depend on."""
        return view_files.inputs(self.study, site)

    def public_files(self) -> list[str]:
        """Public files that define the features."""
        return view_files.public_files(self.study)

    def map_files(self) -> list[str]:
        """Files of the linked components."""
        maps = [] if self.study.space is None else [MAPS]
        written = [COMPONENTS, VERDICTS, *PATTERNS.values(), *maps]
        return [str(self.study.results / name) for name in written]

    def validated_files(self) -> list[str]:
        """The list of features, and the mask if there is one."""
        written = [FEATURES, *([] if self.study.space is None else [MASK])]
        return [str(self.study.results / name) for name in written]

    def made_files(self, sites: Sites) -> list[str]:
        """Files that the data makers write last."""
        people = [f"{site.folder}/dataset_description.json" for site in sites.values()]
        mask = self.study.space.mask
        truth = Path(mask).parent / "truth"
        return [*people, mask, *(str(truth / name) for name in TRUTH.values())]

    def score_inputs(self) -> list[str]:
        """Files that the components are compared with."""
        truth, inputs = self.study.score.truth, []
        if truth is not None:
            inputs += [str(truth / name) for name in TRUTH.values()]
        if self.study.score.reference:
            inputs.append(str(folder_of(self.study, reference=True) / DIRECTIONS))
        return inputs

    def runs(self, site: SiteConfig) -> None:
        """None: only images and EEG together show which people take part."""
        return None

    def _group(self, sites: Sites, site: str) -> tuple[int, int]:
        """Index of a site in the study's order, from 0, and the number of sites."""
        return names(self.study, sites).index(site), len(self.study.sites)
