"""Steps that studies of rows share: each person is one row of features.

Each kind is one final class in its own file; nothing here depends on the kind.
`prepare` and `reconstruct` run at one site, where everything that they compute of a
person stays. Predictions are compared with people's targets only if the data of all
sites are simulated or public, and on this machine.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capeneuro import __version__
from capeneuro.algorithms.forecast_rows import FILL, RATIO, fill
from capeneuro.algorithms.verdict import Verdicts
from capeneuro.config.errors import ConfigError, check_all, some
from capeneuro.config.rows import RowStudy
from capeneuro.config.site import SiteConfig
from capeneuro.data import derivatives, eeg, files, labels, nifti, survey
from capeneuro.data import rows as row_files
from capeneuro.data.inventory import Inventory
from capeneuro.data.rows import Person, Shape, find_people, open_rows
from capeneuro.data.tables import constant_features
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.persons import network_files
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import maps as group_maps
from capeneuro.report import page, progress, scores
from capeneuro.report.figures import Figure
from capeneuro.report.scores import AGAINST, Score
from capeneuro.site_data.people import check_elsewhere, keep_people
from capeneuro.studies.counts import write_sizes
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
from capeneuro.studies.gate import gate, noise_over_pooled
from capeneuro.studies.row_scores import OpenPeople, Reference, read_truth
from capeneuro.studies.site_people import EVERYBODY, SitePeople
from capeneuro.studies.sites import (
    Sites,
    check_ceilings,
    in_process,
    is_complete,
    keep_inventory,
    names,
)
from capeneuro.studies.study_kind import StudyKind
from capeneuro.studies.timecourse_features import (
    SiteNotes,
    check_person,
    made_from,
    reader,
)

FEATURES = "group_desc-rows_features.tsv"
# Rows of a site's people before they are encoded, under private/<site>/<study>/.
ROWS = "rows.npz"
# Regions and networks that maps resemble, if the study names atlases or templates.
MAP_NAMES = "group_desc-rows_names.tsv"
# People that are encoded at once: by one product, in the memory of so many rows.
AT_ONCE = 64
SITE_KEYS = ("images", "people", "eeg", "eeg_about", "task", "mask", "repetition_time")

# (rows x, columns of tables that are no features) -> encoded people z, float32; people
# are columns of all three.
Encoder = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class SizePage:
    """Words and numbers of a site's private page on the sizes of its people's rows.

    Parameters
    ----------
    text
        Definition of the sizes, and the effect of clipping.
    quantity, unit
        Name of a size in the picture, and in the head of the table.
    limit, limit_name
        Number that is drawn beside the sizes, and its name.
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
    """Further columns and maps of a result, in the features' own units.

    Parameters
    ----------
    columns
        Further columns of the table over features, by name, each (D,).
    description
        Of the maps, for their sidecars.
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
        Figures of convergence and spectrum, by title; drawn already.
    findings
        Figures of results that exceed the noise, and of the primary question.
    folded
        Figures of the remaining results, which readers have to unfold.
    group
        Figures of the group as a whole, of which nothing is tested, with captions.
    """

    quality: Mapping[str, Any]
    findings: Sequence[Figure]
    folded: Sequence[Figure]
    group: Sequence[Figure] = ()


@dataclass(frozen=True)
class ReleaseNoise:
    """Noise that a forecast expects of a study, and its sizes.

    Parameters
    ----------
    deviation
        Deviation of the noise at the aggregator, as a function of query, clip and
        stage.
    n_sites, n_people, n_features
        S, N and D of a release.
    """

    deviation: Callable[[str, float, str], float]
    n_sites: int
    n_people: int
    n_features: int


class RowStudyKind(StudyKind):
    """A study in which each person is one row of features.

    Subclasses define the queries to sites and the meaning of the result; the steps are
    the same. x are rows, (D, N), as :func:`.data.rows.read_row` gives them; z are
    people as the kind encodes them for the sites' queries.
    """

    study: RowStudy
    result_type: ClassVar[type]
    """Dataclass of the result."""
    stem: ClassVar[str]
    """File stem of the table over features, and of its maps if there are images."""
    template: ClassVar[str]
    """Template of the report's chapter."""
    truth_files: ClassVar[tuple[str, ...]]
    """Files of a truth, in the folder that `score.truth` names."""
    caveat: ClassVar[str]
    """Assumptions of a forecast, in words."""
    fewer_features: ClassVar[tuple[int, ...]] = ()
    """Smaller numbers of features for which `plan` makes forecasts, too."""
    feature_noun: ClassVar[str] = "features"
    """Features of a person, in this kind of study."""
    shown_table: ClassVar[str] = ""
    """File whose rows the report shows; empty: the table over features."""
    headings: ClassVar[Mapping[str, str]] = {}
    """Columns of it that are shown, each with its explanation; none: all."""
    site_files: ClassVar = ("people.tsv",)
    site_keys: ClassVar = dict.fromkeys(
        ("validate", "prepare", "reconstruct"), SITE_KEYS
    )

    # --- defined by each kind --------------------------------------------------------

    @property
    @abstractmethod
    def most_features(self) -> int:
        """Most features that the algorithm is meant for."""

    @abstractmethod
    def check_features(self) -> None:
        """Refuse features that the algorithm cannot take; writes nothing."""

    @abstractmethod
    def check_people(self, site: SiteConfig, people: Mapping[str, Person]) -> None:
        """Refuse people of a site that contradict the study's public tables."""

    @abstractmethod
    def not_estimable(self, people: Sequence[Mapping[str, Person]]) -> str:
        """Reason for which effects are not estimable; empty: they are estimable."""

    @abstractmethod
    def encoder(self, site_index: int, n_sites: int) -> Encoder:
        """Make the encoder of people's rows for one site.

        Parameters
        ----------
        site_index, n_sites
            Index of the people's site, from 0, and number of the study's sites.
        """

    @abstractmethod
    def decode(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows (D, N) and targets (N,) of encoded people; None: there is no target."""

    @abstractmethod
    def row_size(self, z: np.ndarray) -> float:
        """Size of one encoded person, which is compared with the clip."""

    @abstractmethod
    def clip_weight(self, z: np.ndarray) -> float:
        """Share of a person's contribution to the first release after clipping."""

    @abstractmethod
    def size_page(self) -> SizePage:
        """Describe the sizes of rows for the site's private page."""

    @abstractmethod
    def compute(self, federation: Federation, mechanisms: Sequence[Mechanism]) -> Any:
        """Run the algorithm with a mechanism for each stage, in their order."""

    @abstractmethod
    def summary(self, result: Any) -> list[str]:
        """Summarize the result in words, a line each."""

    @abstractmethod
    def feature_values(self, result: Any) -> tuple[list[str], np.ndarray]:
        """Names and values over features, in their own unit, (D, K)."""

    @abstractmethod
    def write_tables(
        self, sites: Sites, result: Any, metadata: dict[str, Any]
    ) -> FeatureTable:
        """Write further tables; return columns to add to the one over features."""

    @abstractmethod
    def extra_files(self) -> list[str]:
        """Names of the files that :meth:`write_tables` adds."""

    @abstractmethod
    def describe_people(
        self, result: Any, x: np.ndarray, beside: np.ndarray, site_index: int
    ) -> np.ndarray:
        """Apply the result to people of one site, n numbers of each, (n, N).

        ``x`` are their features, ``beside`` the columns of the table of people.
        """

    @abstractmethod
    def people_columns(self) -> list[str]:
        """Names of the n numbers of :meth:`describe_people`."""

    @abstractmethod
    def verdicts(self, result: Any, releases: Sequence[Mapping[str, Any]]) -> Verdicts:
        """Judge which parts of the result stand above the noise."""

    @abstractmethod
    def figures(
        self,
        result: Any,
        record: Mapping[str, Any],
        references: Mapping[str, Reference],
        verdicts: Verdicts,
    ) -> Figures:
        """Draw the figures of the report."""

    @abstractmethod
    def scores_against(
        self, result: Any, reference: Reference, prefix: str, people: OpenPeople | None
    ) -> list[Score]:
        """Score a result against the truth, or a run without privacy."""

    @abstractmethod
    def people_scores(
        self, result: Any, people: OpenPeople, prefix: str
    ) -> list[Score]:
        """Score predictions of the targets of open people."""

    @abstractmethod
    def predict(self, noise: ReleaseNoise) -> dict[str, float]:
        """Predict the noise of the result, by heading, :data:`RATIO` among them."""

    def predict_ratio(self, noise: ReleaseNoise) -> float:
        """Predict :data:`RATIO` alone, before each release."""
        return self.predict(noise)[RATIO]

    def assumption(self, is_open: bool) -> str:
        """Describe the forecast's assumption on people; empty: there is none.

        ``is_open``: the public files of the features are here.
        """
        return ""

    def predict_otherwise(self, noise: ReleaseNoise) -> dict[str, dict[str, float]]:
        """Predict the noise where an assumption does not hold, by row of `plan`."""
        return {}

    # --- before anything is computed -------------------------------------------------

    @cached_property
    def shape(self) -> Shape:
        """Names, bounds and scales of the rows, from public files alone."""
        return open_rows(self.study)

    def check_public_files(self) -> None:
        """Refuse public files that do not fit the study."""
        self.check_features()

    def validate(self, sites: Sites, threads: int = 1) -> None:
        """Check the sites' people, files and budgets; write the list of features."""
        study, shape = self.study, self.shape
        self.check_features()
        D = len(shape.names)
        if self.most_features < D:
            raise ConfigError(
                f"study {study.study}: features: must be at most {self.most_features} "
                f"features, got {D}; use a coarser basis or fewer columns"
            )
        people, inventories = self._find_everybody(sites)
        # An aggregator has no site's people, and checks what is public.
        reason = people and self.not_estimable(list(people.values()))
        if reason:
            if is_complete(study, sites):
                raise ConfigError(
                    f"study {study.study}: {self.name}.covariates: {reason}; leave one "
                    "out"
                )
            print(f"note: {some(sites)}: {reason} here")
        check_ceilings(study, sites)
        check_all(partial(check_elsewhere, study, sites[n], people[n]) for n in people)
        arguments = [
            (study, shape, sites[name], person)
            for name, site_people in people.items()
            for person in site_people.values()
        ]
        # Readers of EEG catch warnings, whose filters are the whole process's.
        check_each(check_person, arguments, 1 if study.has_eeg else threads)
        if shape.mask is not None:
            nifti.write_mask(study.results / MASK, shape.mask)
        counts = {n: [1] * len(site_people) for n, site_people in people.items()}
        write_sizes(study, sites, counts)
        bounds = [("", "")] * D if shape.bounds is None else shape.bounds
        rows = ([name, *pair] for name, pair in zip(shape.names, bounds, strict=True))
        files.write_table(study.results / FEATURES, ["feature", "low", "high"], rows)
        for name, site_people in people.items():
            print(f"{name}: {len(site_people)} people")
            keep_inventory(study, name, inventories[name])
            if excluded := row_files.without_images(study, sites[name], site_people):
                print(
                    f"note: {name}: {len(excluded)} people of its table have no "
                    f"images, and are not in the study: {some(excluded)}"
                )
        if line := self.places_in_words():
            print(line)
        print(f"{survey.sites_in_words(len(sites))}, {D} features: valid")

    def places_in_words(self) -> str:
        """Number of features that are places of maps, and their kind; empty: none."""
        if not self.study.has_maps:
            return ""
        places = labels.places(self.study.space, self.shape.mask)
        return f"{self.shape.basis.n_features:,} {self.feature_noun}: {places}"

    def _find_everybody(
        self, sites: Sites
    ) -> tuple[dict[str, dict[str, Person]], dict[str, Inventory]]:
        """Find people and inventories of all sites; raise their errors together."""
        people: dict[str, dict[str, Person]] = {}
        inventories: dict[str, Inventory] = {}

        def find(name: str) -> None:
            inventories[name] = row_files.inventory_of(self.study, sites[name])
            people[name] = self._people_of(sites[name])

        check_all(partial(find, name) for name in sites)
        if (space := self.study.space) is not None:
            derivatives.check_templates(inventories, (space.mask, space.basis_file))
        return people, inventories

    def _people_of(self, site: SiteConfig) -> dict[str, Person]:
        """Find the people of a site, and check them against public tables."""
        people = find_people(self.study, site, self.shape)
        self.check_people(site, people)
        return people

    def forecast(self, site_names: Sequence[str], counts: Counts) -> Forecast:
        """Predict the noise of a result as planned, and of other choices.

        ``counts.features`` is used if there is no mask yet; volumes are not used.
        """
        study, promise = self.study, self.study.own_promise
        (people, _, features), places, is_open = counts, "", False
        mask = None if study.space is None else Path(study.space.mask)
        if features is None and (mask is None or mask.is_file()):
            self.check_features()
            features = len(self.shape.names)
            places, is_open = self.places_in_words(), True
        require(counts._replace(features=features), "people", "features")
        double = replace(promise, epsilon=2 * promise.epsilon)
        choices = {
            "twice the people": (2 * people, features, promise),
            "half the features": (people, max(features // 2, 1), promise),
            "twice the epsilon": (people, features, double),
        }
        for n in self.fewer_features:
            if n < features:
                name = f"{n} of them" if n > 1 else "one of them"
                choices[name] = (people, n, promise)

        def sizes(N: int, D: int) -> tuple[int, int, int, float]:
            S, n, over = noise_over_pooled(study, site_names, N)
            return S, n, D, over

        def predict(N: int, D: int, budget: Budget) -> dict[str, float]:
            return self.predicted(budget, *sizes(N, D))

        def show() -> None:
            planned = predict(people, features, promise)
            if places:
                print(places)
            heads = (f"{head:>26}" for head in planned)
            print(f"\n{'':20} {'   '.join(heads)}")
            _print_prediction("as planned", planned)
            for name, (N, D, budget) in choices.items():  # each takes as long again
                _print_prediction(name, predict(N, D, budget))
            noise = self._release_noise(promise, *sizes(people, features))
            for name, prediction in self.predict_otherwise(noise).items():
                _print_prediction(name, prediction)
            print(f"\n{self.caveat}")

        ratios = {"the result": self._ratio_once(promise, *sizes(people, features))}
        remedy = "More people, a larger epsilon or fewer features"
        in_short = self.assumption(is_open)
        return Forecast(ratios, remedy, show, in_short=in_short, n_features=features)

    def predicted(
        self,
        promise: Budget,
        n_sites: int,
        n_people: int,
        n_features: int,
        noise_over_pooled: float,
    ) -> dict[str, float]:
        """Predict the noise of the study's result, from public numbers alone.

        Parameters
        ----------
        promise
            The study's, or an alternative.
        n_sites, n_people, n_features
            S, N and D of a release.
        noise_over_pooled
            Deviation of the noise at the aggregator over that of a trusted curator.

        Returns
        -------
        dict of str to float
            With :data:`RATIO`; from 1 on the study should not run.
        """
        noise = self._release_noise(
            promise, n_sites, n_people, n_features, noise_over_pooled
        )
        return self.predict(noise)

    def _release_noise(
        self,
        promise: Budget,
        n_sites: int,
        n_people: int,
        n_features: int,
        noise_over_pooled: float,
    ) -> ReleaseNoise:
        """Noise of the study's releases; parameters as of :meth:`predicted`."""

        def deviation(query: str, clip: float, stage: str) -> float:
            options = {"clip": clip}
            t = QUERIES[query].sensitivity(n_people, promise.relation, options)
            share = self.study.shares[stage] / self.study.n_releases[stage]
            return noise_over_pooled * float(t) / (promise.mu * share**0.5)

        return ReleaseNoise(deviation, n_sites, n_people, n_features)

    @cached_property
    def _ratio_once(self) -> Callable[..., float]:
        """:meth:`predict_ratio`, once for the same numbers as :meth:`predicted` has.

        Of many outcomes it takes a second, and every release is preceded by it.
        """
        return cache(lambda *sizes: self.predict_ratio(self._release_noise(*sizes)))

    def assumed_fill(self, n_features: int) -> float:
        """Root mean square of a feature over the norm bound that a forecast assumes."""
        return fill(n_features, FILL if self.study.rows.norm_bound is None else 1.0)

    # --- at one site -----------------------------------------------------------------

    def prepare(self, sites: Sites, site: str, people: SitePeople = EVERYBODY) -> None:
        """Turn one site's images or tables into rows; nothing leaves the site."""
        from capeneuro.report import plots

        study, shape, title = self.study, self.shape, f"prepare {site}"
        self.check_features()
        persons = people.share(self._people_of(one_site(sites, site)))
        site_index, n_sites = names(study, sites).index(site), len(study.sites)
        encode = self.encoder(site_index, n_sites)
        folder = study.private(site)
        if study.rows.features.kind in ("table", "components"):
            # These are read faster than a process is asked for them.
            people = replace(people, threads=1)
        rows: list[tuple[str, float, float, list[str]]] = []
        low, high = np.inf, -np.inf
        kept_rows: dict[str, np.ndarray] = {}
        notes, new_notes = SiteNotes(folder, [], []), SiteNotes(folder, [], [])
        read = reader(study, shape, sites[site], new_notes)

        def read_row(name: str, person: Person) -> tuple[np.ndarray, list[list[Any]]]:
            new_notes.epochs.clear()
            new_notes.qualities.clear()
            return read(person), [[*new_notes.epochs], [*new_notes.qualities]]

        # Runs take long to read, so they are kept. Not where networks are computed:
        # their files would stay as they are, though a key of the study has changed.
        state_of = None
        if study.rows.features.kind == "runs" and not self._needs_voxels:
            state_of = partial(row_files.state_of, study, sites[site])
        if people.part:
            people.store(persons, read_row, title, state_of=state_of)
            return

        def encoded() -> Iterator[tuple[str, np.ndarray]]:
            nonlocal low, high
            block: dict[str, np.ndarray] = {}
            prepared = people.prepared(persons, read_row, title, state_of=state_of)
            for name, x, (epochs, qualities) in prepared:
                block[name] = x
                notes.epochs.extend(epochs)
                notes.qualities.extend(qualities)
                if self._keeps_rows:
                    kept_rows[name] = x
                low, high = np.minimum(low, x), np.maximum(high, x)
                if len(block) == AT_ONCE:
                    yield from encoded_block(block)
                    block = {}
            yield from encoded_block(block)

        def encoded_block(
            block: dict[str, np.ndarray],
        ) -> Iterator[tuple[str, np.ndarray]]:
            if not block:
                return
            beside = np.stack([persons[name].beside for name in block], axis=1)
            Z = encode(np.concatenate([*block.values()], axis=1), beside)
            for name, z in zip(block, np.hsplit(Z, len(block)), strict=True):
                size, weight = self.row_size(z), self.clip_weight(z)
                rows.append((name, size, weight, self._as_written(persons[name])))
                yield name, z

        path = folder / "projected.npz"
        files.write_features(path, encoded(), self.layout, made_from(study))
        keep_people(study, one_site(sites, site))
        if notes.epochs:
            files.write_table(folder / eeg.EPOCHS, eeg.EPOCHS_HEAD, notes.epochs)
            print(eeg.fewest(site, notes.epochs))
        if kept_rows:
            files.write_features(folder / ROWS, kept_rows.items(), self.layout)
        # Privacy: of a person who is withdrawn nothing stays.
        network_files.remove_others(folder, persons if self._needs_voxels else ())
        if notes.qualities:
            path = folder / network_files.QUALITY
            files.write_table(path, network_files.QUALITY_HEADER, notes.qualities)
        constant = constant_features((high - low)[:, 0], shape.names)
        if constant and shape.bounds is not None:  # as bounds in another unit make it
            print(f"note: {constant}")
        sizes, size_page = np.array([row[1] for row in rows]), self.size_page()
        figure = plots.row_norms(
            sizes, size_page.limit, size_page.quantity, size_page.limit_name
        )
        text = page.template_of("people.html.jinja").render(
            site=site,
            rows=rows,
            picture=page.picture("People", figure),
            beside=list(study.beside),
            sizes=size_page,
        )
        files.write_text(folder / "qc.html", text)
        header = ["participant_id", size_page.unit, "counts", *study.beside]
        every_row = [[*row[:3], *row[3]] for row in rows]
        files.write_table(folder / "qc.tsv", header, every_row)

    @property
    def layout(self) -> str:
        """Digest of the keys that rows depend on, with names and bounds of numbers."""
        shape = self.shape
        bounds = None if shape.bounds is None else shape.bounds.tolist()
        parts = super().layout, shape.names, bounds, shape.norm_bound, shape.longest
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def reconstruct(
        self, sites: Sites, site: str, people: SitePeople = EVERYBODY
    ) -> None:
        """Write the result for each person of one site; it stays at the site.

        Of a mixture or topics this is the probability of each component; of a
        prediction the target and its predicted value.
        """
        study, result = self.study, self.read_result()
        people = find_people(study, one_site(sites, site), self.shape)
        site_index, rows = names(study, sites).index(site), []
        stored = self._stored_rows(site)
        read_row = reader(study, self.shape, sites[site])
        for name, person in progress.bar(people.items(), f"reconstruct {site}"):
            x = stored[name] if name in stored else read_row(person)
            values = self.describe_people(
                result, x, person.beside[:, None], site_index
            )[:, 0]
            cells = (f"{value:.6g}" for value in values)
            rows.append([name, *self._as_written(person), *cells])
        header = ["participant_id", *study.beside, *self.people_columns()]
        files.write_table(study.private(site) / self.site_files[0], header, rows)

    def _as_written(self, person: Person) -> list[str]:
        """Values of a person in the table beside features; groups by their names."""
        values = zip(self.study.beside, person.beside.tolist(), strict=True)
        words = self.study.levels
        return [
            words[name][int(value)] if name in words else f"{value:.6g}"
            for name, value in values
        ]

    def _stored_rows(self, site: str) -> Mapping[str, np.ndarray]:
        """Rows of people that `prepare` kept, since they take long; empty: none."""
        path = self.study.private(site) / ROWS
        if not self._keeps_rows or not path.is_file():
            return {}
        stored = files.Features(path)
        return stored if stored.layout == self.layout else {}

    @property
    def _keeps_rows(self) -> bool:
        """Whether a person's row takes long to read, as of runs it does."""
        return self._needs_voxels or self.study.rows.features.kind == "runs"

    @property
    def _needs_voxels(self) -> bool:
        """Whether a person has networks of the person's own, in files."""
        return getattr(self.study.rows.features, "needs_voxels", False)

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
            self.check_prepared(sites, made_from(study))  # before anything is spent
            self.release_all(federation, sites, reference)

    def release_all(
        self, federation: Federation, sites: Sites, reference: bool = False
    ) -> None:
        """Run the step over sites that work anywhere; write its result."""
        study = self.study
        self.check_features()
        check = partial(gate, study, sites, forecaster=self.forecast)
        mechanisms = [
            mechanism_of(study, s, reference, check) for s in study.n_releases
        ]
        result, beside = self.computed(federation, mechanisms)
        for line in self.summary(result):
            print(line)
        write_released(
            study,
            sites,
            reference,
            self.result_file,
            result,
            mechanisms,
            beside,
        )

    def computed(
        self, federation: Federation, mechanisms: Sequence[Mechanism]
    ) -> tuple[Any, dict[str, Any]]:
        """Result of the algorithm, and arrays to keep beside it for later questions."""
        return self.compute(federation, mechanisms), {}

    @property
    def result_file(self) -> str:
        """Name of the result's file."""
        return self.result_files[self.name]

    def read_result(self, reference: bool = False) -> Any:
        """Read the result that :meth:`release_all` wrote."""
        file, result = self.result_file, self.result_type
        return read_released(self.study, file, result, self.name, reference)

    # --- tables, maps and report -----------------------------------------------------

    def maps(self, sites: Sites) -> None:
        """Write the result as tables over features, maps, and a model in JSON."""
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
        table = self.write_tables(sites, result, metadata)
        columns = {**{h: A[:, i] for i, h in enumerate(heads)}, **table.columns}
        numbers = np.stack([*columns.values()], 1)
        rows = [
            [name, *map(files.number_cell, row)]
            for name, row in zip(shape.names, numbers, strict=True)
        ]
        header = ["feature", *columns]
        labels_of = dict(zip(verdicts.names, verdicts.labels, strict=True))
        if set(shape.names) <= set(labels_of):  # else they are not of features
            header = [*header, "verdict"]
            rows = [[*row, labels_of[row[0]]] for row in rows]
        files.write_table(folder / f"{self.stem}.tsv", header, rows)
        if shape.mask is None:
            return
        if map_names := self.map_names(A):
            lines = [
                [head, *name.cells] for head, name in zip(heads, map_names, strict=True)
            ]
            files.write_table(folder / MAP_NAMES, ["map", *group_maps.NAMES], lines)
        maps = {self.stem: (A, table.description), **table.maps}
        for stem, (values, description) in maps.items():
            D = shape.basis.n_features  # covariates have no place in an image
            sidecar = {"Description": description, **metadata}
            volumes = shape.basis.synthesis @ values[:D]
            nifti.write_maps(folder / f"{stem}.nii.gz", volumes, shape.mask, sidecar)

    def map_names(self, A: np.ndarray) -> list[group_maps.Name]:
        """Name each map, a column of A, by the study's atlases; none: no names."""
        if not self.study.names:
            return []
        shape = self.shape
        atlases = [labels.read(atlas, shape.mask) for atlas in self.study.names]
        volumes = shape.basis.synthesis @ A[: shape.basis.n_features]
        return group_maps.named(volumes, atlases)

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
            "rest": page.pictures(figures.folded, threads),
            "group": page.pictures(figures.group, threads),
        }
        return page.Chapter(
            self.study,
            self.template,
            verdicts,
            files.read_table(folder / "scores.tsv"),
            pictures,
            self.summary(result),
            page.table_of(
                folder / (self.shown_table or f"{self.stem}.tsv"),
                self.headings,
                self.primary,
            ),
            viewer.viewer(figures.findings),
            page.forecast_of(self.study),
            self.headline(result, verdicts),
            page.beside_of(self.study),
            len(self.shape.names),
            primary=self.primary_line(verdicts),
        )

    @property
    def primary(self) -> tuple[str, ...]:
        """Names of the effects that the study is about; empty: all alike."""
        return ()

    def primary_line(self, verdicts: Verdicts) -> str:
        """Sentence on the primary effects, the page's first; empty: none is."""
        return ""

    def headline(self, result: Any, verdicts: Verdicts) -> str:
        """Name the clearest findings for the report's first paragraph."""
        return ""

    def scalp(self, values: np.ndarray, title: str, unit: str) -> list[Figure]:
        """Make a figure of one number a feature on the scalp, if they are of EEG."""
        from capeneuro.report import scalps

        if not self.study.has_eeg:
            return []
        options = self.study.rows.features
        D = len(self.shape.names) - len(self.study.rows.covariates)
        channels, positions = options.channels, eeg.positions(options)
        if options.kind == "erp":
            view = scalps.Potential(eeg.window_times(options), channels, positions)
        else:
            bands = [f"{low:g}-{high:g} Hz" for low, high in options.bands]
            view = scalps.Powers(bands, channels, positions)
        draw = partial(scalps.scalp, view, values[:D], title, unit)
        return [Figure(title, draw)]

    def map_of_changes(self, quantity: str) -> list[Figure]:
        """Make a figure of one number a voxel, if features are of images."""
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
        if self.study.score.reference:
            exact = self.verdicts(self.read_result(reference=True), [])
            if exact.intervals is not None:
                private = self.verdicts(self.read_result(), [])
                scores.write_beside(results, private, exact)

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

    def references(self) -> dict[str, Reference]:
        """Truth and result without privacy, if there are, by their names in words."""
        references, truth = {}, self.study.score.truth
        if truth is not None and self.truth_files:
            paths = [truth / name for name in self.truth_files]
            references[AGAINST["truth"]] = read_truth(paths, self.shape.names)
        if self.study.score.reference:
            exact = self.read_result(reference=True)
            weights = getattr(exact, "weights", None)
            values = self.feature_values(exact)[1]
            references[AGAINST["reference"]] = Reference(values, weights)
        return references

    def open_people(self, sites: Sites) -> OpenPeople | None:
        """Prepared rows and targets of all people; None if any of them is private."""
        study = self.study
        parts = [study.private(name) / "projected.npz" for name in sites]
        # Privacy: predictions for private people may not enter a published score.
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
        """Return None: tables define the people, not images alone."""
        return None


def _print_prediction(name: str, prediction: Mapping[str, float]) -> None:
    """Print a row of a forecast."""
    values = (f"{value:>26.3g}" for value in prediction.values())
    print(f"{name:20} {'   '.join(values)}", flush=True)
