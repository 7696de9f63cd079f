"""What studies of rows share: each person is one row of features.

A kind of them is one final class in its own file, and nothing here asks which.
`prepare` and `reconstruct` are one site's alone; what they compute of a person stays
there. What is predicted of people is compared with them only where all sites' data are
simulated or public and here.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capeneuro import __version__
from capeneuro.algorithms.row_prediction import FILL, RATIO, fill
from capeneuro.algorithms.verdicts import Verdicts
from capeneuro.config.errors import ConfigError, check_all, some
from capeneuro.config.rows import RowStudy
from capeneuro.config.site import SiteConfig
from capeneuro.data import derivatives, eeg, files, labels, nifti
from capeneuro.data import rows as row_files
from capeneuro.data.inventory import Inventory
from capeneuro.data.rows import Person, Shape, find_people, open_rows
from capeneuro.data.tables import constant_features
from capeneuro.federation.in_process import Federation
from capeneuro.federation.mechanism import Mechanism
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import maps as group_maps
from capeneuro.report import page, progress, scores
from capeneuro.report.figures import Figure
from capeneuro.report.scores import AGAINST, Score
from capeneuro.studies.counts import write_sizes
from capeneuro.studies.courses import check_person, made_from, reader
from capeneuro.studies.flow import (
    MASK,
    VERDICTS,
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
from capeneuro.studies.forecasts import Counts, Forecast, require
from capeneuro.studies.plan import gate, noise_over_pooled
from capeneuro.studies.row_scores import Compared, OpenPeople, read_truth
from capeneuro.studies.sites import (
    Sites,
    check_ceilings,
    in_process,
    is_complete,
    keep_inventory,
    keep_people,
    names,
)
from capeneuro.studies.study_kind import StudyKind

FEATURES = "group_desc-rows_features.tsv"
# What maps are like, where the study names atlases or templates.
MAP_NAMES = "group_desc-rows_names.tsv"
SITE_KEYS = ("images", "people", "eeg", "eeg_about", "task", "mask", "repetition_time")

# Draws a picture of the report, by its title.
# (rows x, what tables say that is no feature) -> what the site holds, float32; people
# are columns of all three.
Encoder = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class SizePage:
    """What a site's private page says of how large its people's rows are.

    Parameters
    ----------
    text
        What the sizes are, and what becomes of large ones.
    quantity, unit
        Name of a size in the picture, and in the head of the table.
    limit, limit_name
        Number beside which sizes are shown, and what it is.
    is_clipped
        Whether rows beyond it count less.
    """

    text: str
    quantity: str
    unit: str
    limit: float
    limit_name: str
    is_clipped: bool = True


@dataclass(frozen=True)
class FeatureTable:
    """What a result says of each feature, in the feature's own unit.

    Parameters
    ----------
    columns
        Further columns of the table over features, by name, each (D,).
    description
        What the maps are, for their sidecars.
    maps
        Further maps by file stem: values over features (D, K), and their description.
    """

    columns: Mapping[str, np.ndarray]
    description: str
    maps: Mapping[str, tuple[np.ndarray, str]]


@dataclass(frozen=True)
class Figures:
    """Figures of a result.

    Parameters
    ----------
    quality
        Of how well it was found, by title; drawn already.
    findings
        Of what stands above the noise.
    others
        Of the rest, which a reader has to unfold.
    """

    quality: Mapping[str, Any]
    findings: Sequence[Figure]
    others: Sequence[Figure]


@dataclass(frozen=True)
class ReleaseNoise:
    """Noise that a forecast expects of a study, and its sizes.

    Parameters
    ----------
    deviation
        At the aggregator, of (query, clip, stage).
    n_sites, n_people, n_features
        S, N and D of a release.
    """

    deviation: Callable[[str, float, str], float]
    n_sites: int
    n_people: int
    n_features: int


class RowStudyKind(StudyKind):
    """A study in which each person is one row of features.

    Its five kinds say what is asked of the sites and what it means; the steps are the
    same. x are rows, (D, N), as :func:`.data.rows.read_row` gives them; z is what sites
    hold of people, as the kind encodes them.
    """

    study: RowStudy
    result_type: ClassVar[type]
    """Dataclass of its result."""
    stem: ClassVar[str]
    """Of the table over features, and of the maps where features are of images."""
    template: ClassVar[str]
    """Of the report's chapter."""
    truth_files: ClassVar[tuple[str, ...]]
    """Files of a truth, in the folder that `score.truth` names."""
    caveat: ClassVar[str]
    """What a forecast rests on."""
    fewer_features: ClassVar[tuple[int, ...]] = ()
    """For which `plan` foretells the same, too."""
    shown_table: ClassVar[str] = ""
    """File whose rows the report shows; empty: the table over features."""
    headings: ClassVar[Mapping[str, str]] = {}
    """Columns of it that are shown, with what they are in words; none: all."""
    site_files: ClassVar = ("people.tsv",)
    site_keys: ClassVar = dict.fromkeys(
        ("validate", "prepare", "reconstruct"), SITE_KEYS
    )

    # --- what its kinds say ----------------------------------------------------------

    @property
    @abstractmethod
    def most_features(self) -> int:
        """Most features that the algorithm is meant for."""

    @abstractmethod
    def check_features(self) -> None:
        """Refuse features that the algorithm cannot take; writes nothing."""

    @abstractmethod
    def check_people(self, site: SiteConfig, people: Mapping[str, Person]) -> None:
        """Refuse people of a site who are not those of the study's public tables."""

    @abstractmethod
    def not_estimable(self, people: Sequence[Mapping[str, Person]]) -> str:
        """Say what no release can tell of these people, by site; empty: nothing."""

    @abstractmethod
    def encoder(self, place: tuple[int, int]) -> Encoder:
        """Make what encodes people as the sites hold them, z.

        Parameters
        ----------
        place
            That of the people's site among the study's S sites, and S.
        """

    @abstractmethod
    def decode(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows (D, N) and targets (N,) of encoded people; None: there is no target."""

    @abstractmethod
    def row_size(self, z: np.ndarray) -> float:
        """Size of one encoded person, which the clip looks at."""

    @abstractmethod
    def clip_weight(self, z: np.ndarray) -> float:
        """Share of one person's part in the first release that the clip leaves."""

    @abstractmethod
    def size_page(self) -> SizePage:
        """Say what the sizes of rows are, for the site's private page."""

    @abstractmethod
    def compute(self, federation: Federation, mechanisms: Sequence[Mechanism]) -> Any:
        """Run the algorithm: one mechanism a stage of the study, in their order."""

    @abstractmethod
    def summary(self, result: Any) -> list[str]:
        """Say in words what was found, a line each."""

    @abstractmethod
    def feature_values(self, result: Any) -> tuple[list[str], np.ndarray]:
        """Names and values over features, in their own unit, (D, K)."""

    @abstractmethod
    def write_tables(
        self, sites: Sites, result: Any, metadata: dict[str, Any]
    ) -> FeatureTable:
        """Write further tables; say what is added to the one over features."""

    @abstractmethod
    def extra_files(self) -> list[str]:
        """Names of the further files that :meth:`write_tables` leads to."""

    @abstractmethod
    def describe_people(self, result: Any, x: np.ndarray, place: int) -> np.ndarray:
        """What the result says of people of the site at that place, (n, N)."""

    @abstractmethod
    def people_columns(self) -> list[str]:
        """Names of what :meth:`describe_people` says, after the target if any."""

    @abstractmethod
    def verdicts(self, result: Any, releases: Sequence[Mapping[str, Any]]) -> Verdicts:
        """Tell which parts of the result stand above the noise."""

    @abstractmethod
    def figures(
        self,
        result: Any,
        record: Mapping[str, Any],
        references: Mapping[str, Compared],
        verdicts: Verdicts,
    ) -> Figures:
        """Pictures for the report."""

    @abstractmethod
    def scores_against(
        self, result: Any, reference: Compared, prefix: str, people: OpenPeople | None
    ) -> list[Score]:
        """Scores of a result beside the truth, or a run without privacy."""

    @abstractmethod
    def people_scores(
        self, result: Any, people: OpenPeople, prefix: str
    ) -> list[Score]:
        """Scores of how well the targets of open people are predicted."""

    @abstractmethod
    def predict(self, noise: ReleaseNoise) -> dict[str, float]:
        """What noise leaves of the result, by heading, :data:`RATIO` among them."""

    # --- before anything is computed -------------------------------------------------

    @cached_property
    def shape(self) -> Shape:
        """What the rows are, from public files alone."""
        return open_rows(self.study)

    def check_public_files(self) -> None:
        """Refuse public files that do not fit the study."""
        self.check_features()

    def validate(self, sites: Sites, threads: int = 1) -> None:
        """Check the sites' people, files and budgets; write what the features are."""
        study, shape = self.study, self.shape
        self.check_features()
        D = len(shape.names)
        if self.most_features < D:
            raise ConfigError(
                f"study {study.study}: features: must be at most {self.most_features} "
                f"features, got {D}; use a coarser basis or fewer columns"
            )
        people: dict[str, dict[str, Person]] = {}
        inventories: dict[str, Inventory] = {}

        def find(name: str) -> None:
            inventories[name] = row_files.inventory_of(study, sites[name])
            people[name] = self._people_of(sites[name])

        check_all(partial(find, name) for name in sites)
        if study.space is not None:
            public = study.space.mask, study.space.basis_file
            derivatives.check_templates(inventories, public)
        if reason := self.not_estimable(list(people.values())):
            if is_complete(study, sites):
                raise ConfigError(
                    f"study {study.study}: {self.name}.covariates: {reason}; leave one "
                    "out"
                )
            print(f"note: {some(sites)}: {reason} here")
        check_ceilings(study, sites)
        everybody = [
            (study, shape, sites[name], person)
            for name, at_site in people.items()
            for person in at_site.values()
        ]
        # Readers of EEG catch warnings, whose filters are the whole process's.
        check_each(check_person, everybody, 1 if study.has_eeg else threads)
        if shape.mask is not None:
            nifti.write_mask(study.results / MASK, shape.mask)
        write_sizes(study, sites, {n: [1] * len(own) for n, own in people.items()})
        bounds = [("", "")] * D if shape.bounds is None else shape.bounds
        rows = ([name, *pair] for name, pair in zip(shape.names, bounds, strict=True))
        files.write_table(study.results / FEATURES, ["feature", "low", "high"], rows)
        for name, at_site in people.items():
            print(f"{name}: {len(at_site)} people")
            keep_inventory(study, name, inventories[name])
            if alone := row_files.without_images(study, sites[name], at_site):
                print(
                    f"note: {name}: {len(alone)} people of its table have no images, "
                    f"and are not in the study: {some(alone)}"
                )
        print(f"{len(sites)} sites, {D} features: valid")

    def _people_of(self, site: SiteConfig) -> dict[str, Person]:
        """People of a site, if they are those whom public tables speak of."""
        people = find_people(self.study, site, self.shape)
        self.check_people(site, people)
        return people

    def forecast(self, site_names: Sequence[str], counts: Counts) -> Forecast:
        """Foretell what the noise leaves of a result.

        ``counts.features`` are all features, where no mask is there yet; volumes mean
        nothing here.
        """
        study, promise = self.study, self.study.own_promise
        people, _, features = counts
        mask = None if study.space is None else Path(study.space.mask)
        if features is None and (mask is None or mask.is_file()):
            self.check_features()
            features = len(self.shape.names)
        require(counts._replace(features=features), "people", "features")
        double = replace(promise, epsilon=2 * promise.epsilon)
        choices = {
            "as planned": (people, features, promise),
            "twice the people": (2 * people, features, promise),
            "half the features": (people, max(features // 2, 1), promise),
            "twice the epsilon": (people, features, double),
        }
        for n in self.fewer_features:
            if n < features:
                name = f"{n} of them" if n > 1 else "one of them"
                choices[name] = (people, n, promise)
        predictions = {}
        for name, (N, D, budget) in choices.items():
            S, n, over = noise_over_pooled(study, site_names, N)
            predictions[name] = self.predicted(budget, S, n, D, over)

        def show(keep: bool) -> None:
            heads = (f"{head:>26}" for head in predictions["as planned"])
            print(f"\n{'':20} {'   '.join(heads)}")
            for name, prediction in predictions.items():
                values = (f"{value:>26.3g}" for value in prediction.values())
                print(f"{name:20} {'   '.join(values)}")
            print(f"\n{self.caveat}")

        ratios = {"the result": predictions["as planned"][RATIO]}
        remedy = "More people, a larger epsilon or fewer features"
        return Forecast(ratios, remedy, show)

    def predicted(
        self,
        promise: Budget,
        n_sites: int,
        n_people: int,
        n_features: int,
        noise_over_pooled: float,
    ) -> dict[str, float]:
        """Predict what noise leaves of the study, from public numbers alone.

        Parameters
        ----------
        promise
            Of the study, or another.
        n_sites, n_people, n_features
            S, N and D of a release.
        noise_over_pooled
            Deviation of the noise at the aggregator over that of a trusted curator.

        Returns
        -------
        dict of str to float
            With :data:`RATIO`; from 1 on the study should not run.
        """

        def deviation(query: str, clip: float, stage: str) -> float:
            options = {"clip": clip}
            t = QUERIES[query].sensitivity(n_people, promise.relation, options)
            share = self.study.shares[stage] / self.study.n_releases[stage]
            return noise_over_pooled * float(t) / (promise.mu * share**0.5)

        return self.predict(ReleaseNoise(deviation, n_sites, n_people, n_features))

    def assumed_fill(self, n_features: int) -> float:
        """Root mean square of a feature over the norm bound that a forecast assumes."""
        return fill(n_features, FILL if self.study.rows.norm_bound is None else 1.0)

    # --- at one site -----------------------------------------------------------------

    def prepare(self, sites: Sites, site: str, threads: int = 1) -> None:
        """Turn one site's images or tables into rows; nothing leaves the site."""
        from capeneuro.report import plots

        study, shape = self.study, self.shape
        self.check_features()
        people = self._people_of(one_site(sites, site))
        encode = self.encoder((names(study, sites).index(site), len(study.sites)))
        epochs: list[tuple[Any, ...]] = []
        read_row = reader(study, shape, sites[site], epochs)
        rows: list[tuple[str, float, float, list[float]]] = []
        low, high = np.inf, -np.inf

        def encoded() -> Iterator[tuple[str, np.ndarray]]:
            nonlocal low, high
            for name, person in progress.bar(people.items(), f"prepare {site}"):
                x = read_row(person)
                low, high = np.minimum(low, x), np.maximum(high, x)
                z = encode(x, person.beside[:, None])
                size, weight = self.row_size(z), self.clip_weight(z)
                rows.append((name, size, weight, person.beside.tolist()))
                yield name, z

        folder = study.private(site)
        path = folder / "projected.npz"
        files.write_features(path, encoded(), self._layout, made_from(study))
        keep_people(study, one_site(sites, site))
        if epochs:
            files.write_table(folder / eeg.EPOCHS, eeg.EPOCHS_HEAD, epochs)
            print(eeg.fewest(site, epochs))
        constant = constant_features((high - low)[:, 0], shape.names)
        if constant and shape.bounds is not None:  # as bounds in another unit make it
            print(f"note: {constant}")
        sizes, shown = np.array([row[1] for row in rows]), self.size_page()
        figure = plots.row_norms(sizes, shown.limit, shown.quantity, shown.limit_name)
        text = page.template_of("people.html.jinja").render(
            site=site,
            rows=rows,
            picture=page.picture("People", figure),
            beside=list(study.beside),
            sizes=shown,
        )
        files.write_text(folder / "qc.html", text)

    @property
    def _layout(self) -> str:
        """Digest of what the numbers of prepared rows are: names, bounds, target."""
        shape = self.shape
        bounds = None if shape.bounds is None else shape.bounds.tolist()
        parts = (
            self.study.depends("prepare"),
            shape.names,
            bounds,
            shape.norm_bound,
            shape.longest,
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def reconstruct(self, sites: Sites, site: str) -> None:
        """Write what the result says of each of one site's people; it stays there.

        Of a mixture or topics the probability of each component; of a prediction the
        target and what is predicted.
        """
        study, result = self.study, self.read_result()
        people = find_people(study, one_site(sites, site), self.shape)
        place, rows = names(study, sites).index(site), []
        read_row = reader(study, self.shape, sites[site])
        for name, person in progress.bar(people.items(), f"reconstruct {site}"):
            values = self.describe_people(result, read_row(person), place)[:, 0]
            cells = (f"{value:.6g}" for value in (*person.beside, *values))
            rows.append([name, *cells])
        header = ["participant_id", *study.beside, *self.people_columns()]
        files.write_table(study.private(site) / self.site_files[0], header, rows)

    # --- over all sites --------------------------------------------------------------

    def release(
        self, step: str, sites: Sites, threads: int = 1, reference: bool = False
    ) -> None:
        """Run the step over all sites in this process, in the arm of the study."""
        study = self.study
        self.check_features()
        with in_process(
            study, sites, threads, is_exact(study, reference)
        ) as federation:
            for name in sites:  # before anything is paid for
                people = files.Features(study.private(name) / "projected.npz")
                if (people.layout, people.made_from) != (
                    self._layout,
                    made_from(study),
                ):
                    raise ConfigError(
                        f"site {name}: its prepared rows are not the study's; run "
                        "`prepare` again"
                    )
            self.release_all(federation, sites, reference)

    def release_all(
        self, federation: Federation, sites: Sites, reference: bool = False
    ) -> None:
        """Run the step over sites that work anywhere; write its result."""
        study = self.study
        self.check_features()
        check = partial(gate, study, sites)
        mechanisms = [
            mechanism_of(study, s, reference, check) for s in study.n_releases
        ]
        result = self.compute(federation, mechanisms)
        for line in self.summary(result):
            print(line)
        write_released(study, sites, reference, self.result_file, result, mechanisms)

    @property
    def result_file(self) -> str:
        """File of its result."""
        return self.result_files[self.name]

    def read_result(self, reference: bool = False) -> Any:
        """Read what :meth:`release_all` wrote."""
        file, result = self.result_file, self.result_type
        return read_released(self.study, file, result, self.name, reference)

    # --- what readers see ------------------------------------------------------------

    def maps(self, sites: Sites) -> None:
        """Write what was found: tables over features, maps, a model as JSON."""
        study, shape, folder = self.study, self.shape, self.study.results
        result = self.read_result()
        metadata = {
            "Stamp": str(files.read_arrays(folder / self.result_file)["stamp"]),
            "Sources": [self.result_file],
            "capeneuro": {
                "version": __version__,
                "study": study.study,
                "arm": study.arm,
                **vars(study.promise),
            },
        }
        verdicts = self.verdicts(result, releases_of(study, self.result_file))
        write_verdicts(study, verdicts)
        heads, A = self.feature_values(result)
        more = self.write_tables(sites, result, metadata)
        columns = {**{h: A[:, i] for i, h in enumerate(heads)}, **more.columns}
        numbers = np.stack([*columns.values()], 1)
        rows = [
            [name, *(f"{value:.6g}" for value in row)]
            for name, row in zip(shape.names, numbers, strict=True)
        ]
        header = ["feature", *columns]
        words = dict(zip(verdicts.names, verdicts.labels, strict=True))
        if set(shape.names) <= set(words):  # else they are not of features
            header, rows = [*header, "verdict"], [[*row, words[row[0]]] for row in rows]
        files.write_table(folder / f"{self.stem}.tsv", header, rows)
        if shape.mask is None:
            return
        if map_names := self.map_names(A):
            cells = (name.cells for name in map_names)
            lines = [[head, *own] for head, own in zip(heads, cells, strict=True)]
            files.write_table(folder / MAP_NAMES, ["map", *group_maps.NAMES], lines)
        drawn = {self.stem: (A, more.description), **more.maps}
        for stem, (values, description) in drawn.items():
            D = shape.basis.n_features  # covariates have no place in an image
            sidecar = {"Description": description, **metadata}
            volumes = shape.basis.synthesis @ values[:D]
            nifti.write_maps(folder / f"{stem}.nii.gz", volumes, shape.mask, sidecar)

    def map_names(self, A: np.ndarray) -> list[group_maps.Name]:
        """What each map, a column of A, is like, if the study names atlases."""
        if not self.study.names:
            return []
        shape = self.shape
        atlases = [labels.read(atlas, shape.mask) for atlas in self.study.names]
        volumes = shape.basis.synthesis @ A[: shape.basis.n_features]
        return group_maps.named(group_maps.zscore(volumes), atlases)

    def chapter(self, record: dict[str, Any], threads: int = 1) -> page.Chapter:
        """Make the study's chapter of the report: pictures, verdicts and scores."""
        from capeneuro.report import viewer

        folder, result = self.study.results, self.read_result()
        verdicts = self.verdicts(result, releases_of(self.study, self.result_file))
        figures = self.figures(result, record, self.references(), verdicts)
        quality = [page.picture(title, fig) for title, fig in figures.quality.items()]
        pictures = {
            "quality": quality,
            "maps": page.pictures(figures.findings, threads),
            "rest": page.pictures(figures.others, threads),
        }
        return page.Chapter(
            self.study,
            self.template,
            verdicts,
            files.read_table(folder / "scores.tsv"),
            pictures,
            self.summary(result),
            page.table_of(
                folder / (self.shown_table or f"{self.stem}.tsv"), self.headings
            ),
            viewer.viewer(figures.findings),
            page.forecast_of(self.study),
        )

    def scalp(self, values: np.ndarray, title: str, unit: str) -> list[Figure]:
        """Figure of a number of each feature on the head, where they are of EEG."""
        from capeneuro.report import scalps

        if not self.study.has_eeg:
            return []
        options = self.study.rows.features
        D = len(self.shape.names) - len(self.study.rows.covariates)
        where = options.channels, eeg.positions(options)
        if options.kind == "erp":
            view = scalps.Potential(eeg.window_times(options), *where)
        else:
            bands = [f"{low:g}-{high:g} Hz" for low, high in options.bands]
            view = scalps.Powers(bands, *where)
        draw = partial(scalps.scalp, view, values[:D], title, unit)
        return [Figure(title, draw)]

    def map_of_changes(self, quantity: str) -> list[Figure]:
        """Figure of a map of one number a voxel, where features are of images."""
        from capeneuro.report import plots

        if self.shape.mask is None:
            return []
        path = self.study.results / f"{self.stem}.nii.gz"
        return [plots.map_figure(path, 0, f"{quantity}: change per unit")]

    # --- scores ----------------------------------------------------------------------

    def score(self, sites: Sites) -> None:
        """Compare the result with the truth, a run without privacy, and open people."""
        rows = self.scores_of(self.read_result(), self.open_people(sites))
        results = self.study.results
        stamp = str(files.read_arrays(results / self.result_file)["stamp"])
        scores.write(results / "scores.tsv", rows, stamp)

    def scores_of(self, result: Any, people: OpenPeople | None) -> list[Score]:
        """Scores of a result, (name, value, reference, note) each."""
        references = self.references()
        rows: list[Score] = []
        for prefix, words in AGAINST.items():
            if words in references:
                rows += self.scores_against(result, references[words], prefix, people)
        if self.study.score.reference:
            exact = self.read_result(reference=True)
            if truth := references.get(AGAINST["truth"]):
                rows += self.scores_against(exact, truth, "nonprivate_truth", people)
            if people is not None:
                rows += self.people_scores(exact, people, "reference_people")
        if people is not None:
            rows = self.people_scores(result, people, "people") + rows
        return rows

    def references(self) -> dict[str, Compared]:
        """Truth and run without privacy, by their names in words, if there are."""
        references, truth = {}, self.study.score.truth
        if truth is not None and self.truth_files:
            paths = [truth / name for name in self.truth_files]
            references[AGAINST["truth"]] = read_truth(paths, self.shape.names)
        if self.study.score.reference:
            exact = self.read_result(reference=True)
            weights = getattr(exact, "weights", None)
            values = self.feature_values(exact)[1]
            references[AGAINST["reference"]] = Compared(values, weights)
        return references

    def open_people(self, sites: Sites) -> OpenPeople | None:
        """Rows and targets of everybody as prepared; None where nobody may see them."""
        study = self.study
        parts = [study.private(name) / "projected.npz" for name in sites]
        # Privacy: what a model says of private people is no score for others to see.
        is_open = all(site.data != "private" for site in sites.values())
        is_here = is_complete(study, sites) and all(part.is_file() for part in parts)
        if study.target is None or not (is_open and is_here):
            return None
        rows, targets = [], []
        for part in parts:
            people = files.Features(part)
            z = np.concatenate([people[name] for name in people], axis=1).astype(float)
            x, target = self.decode(z)
            rows.append(x)
            targets.append(target)
        return OpenPeople(rows, targets)

    # --- files, for the workflow -----------------------------------------------------

    def input_files(self, site: SiteConfig) -> list[str]:
        """Files of a site that its rows depend on."""
        return row_files.inputs(self.study, site)

    def public_files(self) -> list[str]:
        """Public files that define the features."""
        return row_files.public_files(self.study)

    def map_files(self) -> list[str]:
        """Files that :meth:`maps` writes."""
        study = self.study
        images = [f"{self.stem}.nii.gz"] if study.has_maps else []
        images += [MAP_NAMES] if study.names else []
        written = [f"{self.stem}.tsv", VERDICTS, *images, *self.extra_files()]
        return [str(study.results / name) for name in written]

    def validated_files(self) -> list[str]:
        """The list of features, and the mask if there is one."""
        written = [FEATURES, *([MASK] if self.study.has_maps else [])]
        return [str(self.study.results / name) for name in written]

    def made_files(self, sites: Sites) -> list[str]:
        """Files that the data makers write last."""
        study = self.study
        if study.has_eeg:
            people = [f"{site.eeg}/dataset_description.json" for site in sites.values()]
            return [*people, *map(str, study.public_tables), *self._truths()]
        features = study.rows.features.features
        truth = [features.parent / "truth" / name for name in self.truth_files]
        public = [features, *study.public_tables, *truth]
        return [*(site.folder for site in sites.values()), *map(str, public)]

    def score_inputs(self) -> list[str]:
        """Files that the result is compared with."""
        inputs = self._truths()
        if self.study.score.reference:
            folder = folder_of(self.study, reference=True)
            inputs.append(str(folder / self.result_file))
        return inputs

    def _truths(self) -> list[str]:
        truth = self.study.score.truth
        return [] if truth is None else [str(truth / name) for name in self.truth_files]

    def runs(self, site: SiteConfig) -> None:
        """Nobody: tables tell who takes part, too."""
        return None
