"""The steps of a study of components: each reads the files of the step before.

`prepare` and `reconstruct` run at one site; people's features and maps, and their mean
over a site, stay there. The steps over all sites are the same for sites in this process
and over a network.
"""

import heapq
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from capeneuro import __version__
from capeneuro.algorithms import metrics, prior_maps
from capeneuro.algorithms.component_verdicts import (
    of_components,
    with_evidence,
    without_mixed,
)
from capeneuro.algorithms.ica import Unmixing, repeated_infomax, spatial_components
from capeneuro.algorithms.pca import (
    Subspace,
    from_moment,
    krylov_subspace,
    power_start,
    power_subspace,
    released_center,
    second_moment,
)
from capeneuro.algorithms.prior import PriorSubspace
from capeneuro.algorithms.verdict import Verdicts
from capeneuro.algorithms.verdicts import of_changes
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.sections import is_cifti
from capeneuro.config.site import SiteConfig
from capeneuro.data import beside, cleaning, derivatives, files, labels, nifti, survey
from capeneuro.data.basis import Basis
from capeneuro.federation.transport import Federation
from capeneuro.persons.components import RUNS, Reconstruction, write_people
from capeneuro.persons.quality import run_quality
from capeneuro.report import maps as group_maps
from capeneuro.report import page, progress, scores, sentences
from capeneuro.site_data.people import check_elsewhere, keep_people
from capeneuro.studies import around_prior, ask_moments, components_forecast
from capeneuro.studies.ask import MOST_KEPT
from capeneuro.studies.components_forecast import check_expected, check_features
from capeneuro.studies.counts import note_other_lengths, write_sizes
from capeneuro.studies.flow import (
    MASK,
    VERDICTS,
    check_each,
    folder_of,
    is_exact,
    mask_file,
    mask_path,
    mechanism_of,
    one_site,
    read_released,
    releases_of,
    validated_mask,
    write_released,
    write_verdicts,
)
from capeneuro.studies.forecasts import Counts, Forecast
from capeneuro.studies.gate import FORECAST, gate
from capeneuro.studies.priors import open_prior
from capeneuro.studies.site_people import EVERYBODY, SitePeople
from capeneuro.studies.sites import (
    Sites,
    check_ceilings,
    in_process,
    keep_inventory,
)
from capeneuro.studies.study_kind import StudyKind

# Released results, under results/<study>/.
SUBSPACE = "group_desc-pca_subspace.npz"
UNMIXING = "group_desc-ica_unmixing.npz"
# Least weight of a person's second moment after clipping without a note at the site.
LOW_CLIP_WEIGHT = 0.25


@final
@dataclass(frozen=True)
class ComponentsKind(StudyKind):
    """A study of components: the sites' common subspace, and ICA in it."""

    study: ComponentsConfig
    site_files: ClassVar = (
        "timecourses.tsv",
        "spectra.tsv",
        "connectivity.tsv",
        "reconstruction.html",
        "dualregression/",
    )
    steps_in_parts: ClassVar = "prepare", "reconstruct"
    site_keys: ClassVar = {
        "validate": ("images", "task"),
        "prepare": ("images", "task", "mask", "repetition_time"),
        "reconstruct": ("images", "task", "repetition_time"),
    }

    @cached_property
    def mask(self) -> Any:
        """The study's mask, as `validate` wrote it."""
        return nifti.read_mask(validated_mask(self.study))

    @cached_property
    def basis(self) -> Basis:
        """The basis of features on the mask."""
        return nifti.build_basis(self.study.space, self.mask)

    # --- before anything is computed -------------------------------------------------

    def validate(self, sites: Sites, threads: int = 1) -> None:
        """Check the sites' images and budgets; write the study's mask."""
        study = self.study
        check_expected(study, sites)
        inventories = {
            name: derivatives.inventory(site) for name, site in sites.items()
        }
        public_mask = None if study.computes_mask else study.space.mask
        public = [public_mask, study.space.basis_file]
        derivatives.check_templates(inventories, public)
        runs = {name: inventory.people for name, inventory in inventories.items()}
        if study.computes_mask:
            by_person = chain(*(people.values() for people in runs.values()))
            mask = nifti.compute_mask([*chain.from_iterable(by_person)])
        else:
            mask = nifti.read_mask(Path(study.space.mask))
        n_features = nifti.build_basis(study.space, mask).n_features
        regions = nifti.start_regions(study.space, mask, study.pca.start_grid)
        check_features(
            study, n_features, None if regions is None else regions.max() + 1
        )
        check_ceilings(study, sites)
        included, tables = {}, {}
        open_all = (
            partial(self._include, site, runs[name], mask, included, tables)
            for name, site in sites.items()
        )
        read_all = partial(self._check_people, sites, included, tables, mask, threads)
        try:  # all errors of all people in one message
            check_all(chain(open_all, [read_all]))
        except ConfigError as error:
            raise ConfigError(_with_remedy(error, sites, runs)) from None
        check_all(partial(check_elsewhere, study, sites[n], included[n]) for n in sites)
        lengths = {name: _lengths(rows) for name, rows in tables.items()}
        nifti.write_mask(study.results / MASK, mask)
        if study.prior is not None:
            open_prior(study)
        volumes = {name: [*of.values()] for name, of in lengths.items()}
        write_sizes(study, sites, volumes)
        note_other_lengths(study, volumes)
        for name, people in included.items():
            n_runs = sum(map(len, people.values()))
            print(f"{name}: {survey.how_many(len(people), n_runs)}")
            keep_inventory(study, name, inventories[name])
            for person, session, task, run, *_, why in tables[name]:
                if why != "n/a":
                    label = f"{person} session {session} {task} run {run}"
                    print(f"  left out: {label}: {why}")
        print(f"{survey.sites_in_words(len(sites))}, {n_features} features: valid")

    def _include(
        self,
        site: SiteConfig,
        people: dict[str, list[Path]],
        mask: Any,
        included: dict[str, dict[str, list[Path]]],
        tables: dict[str, list[list[Any]]],
    ) -> None:
        """Add a site's runs after exclusion, and their table; also where some fail."""
        reader, name = self._run_reader(site, mask), site.name
        included[name], tables[name] = {}, []
        try:
            included[name], tables[name] = reader.kept_runs(people)
        except ConfigError:
            for person, runs in people.items():
                with suppress(ConfigError):
                    runs_of_person, rows = reader.kept_runs({person: runs})
                    included[name] |= runs_of_person
                    tables[name] += rows
            raise

    def _check_people(
        self,
        sites: Sites,
        included: dict[str, dict[str, list[Path]]],
        tables: dict[str, list[list[Any]]],
        mask: Any,
        threads: int,
    ) -> None:
        """Check the images of all people with runs after exclusion."""
        lengths = {name: _lengths(rows) for name, rows in tables.items()}
        everybody = [
            (sites[name], runs, mask, lengths[name][person])
            for name, people in included.items()
            for person, runs in people.items()
        ]
        check_each(self._check_person, everybody, threads)

    def _check_person(
        self, site: SiteConfig, runs: list[Path], mask: Any, n: int
    ) -> None:
        """Refuse a person that `prepare` would refuse, perhaps after hours."""
        study = self.study
        if n < study.n_components:
            raise ConfigError(
                f"{runs[0]}: the person has {n} volumes, fewer than n_components "
                f"{study.n_components}; exclude the person"
            )
        check = self._run_reader(site, mask).check
        check_all(partial(check, run) for run in runs)

    def _run_reader(self, site: SiteConfig, mask: Any) -> nifti.RunReader:
        return nifti.RunReader(site, self.study.space, self.study.cleaning, mask)

    # --- at one site -----------------------------------------------------------------

    def prepare(self, sites: Sites, site: str, people: SitePeople = EVERYBODY) -> None:
        """Turn one site's images into features; nothing leaves the site."""
        from capeneuro.report import plots, slices

        study, mask, basis = self.study, self.mask, self.basis
        config, bound = one_site(sites, site), study.pca.norm_bound
        reader, title = self._run_reader(config, mask), f"prepare {site}"
        runs, table = reader.kept_runs(people.share(derivatives.find_runs(config)))
        rows: list[dict[str, Any]] = []
        norms: list[np.ndarray] = []
        pictured: list[tuple[float, int]] = []

        def encode(name: str, images: list[Path]) -> tuple[np.ndarray, dict[str, Any]]:
            parts, qualities = [], []
            for image in images:
                motion = cleaning.motion(image)

                def look(V: np.ndarray, covered: np.ndarray, motion=motion) -> None:
                    qualities.append(run_quality(V, covered, motion))

                parts.append(reader.features(image, basis, look))
            X = np.concatenate(parts, axis=1)
            if X.shape[1] < study.n_components:
                raise ConfigError(
                    f"{images[0]}: {name} has {X.shape[1]} volumes, fewer than "
                    f"n_components {study.n_components}; exclude the person"
                )
            row = page.quality(name, X, qualities)
            row["plane"] = None
            if not study.space.has_parcels:
                row["plane"] = slices.portrait(qualities[0].image, mask)
            return X, row

        state_of = partial(beside.state_of, cleaning=study.cleaning, site=config)

        def encoded() -> Iterator[tuple[str, np.ndarray]]:
            prepared = people.prepared(runs, encode, title, state_of=state_of)
            for name, X, row in prepared:
                norms.append(np.linalg.norm(X, axis=0))
                row = page.with_clip_weight(row, norms[-1], study)
                plane, alt = row.pop("plane"), f"axial plane of {name}"
                rows.append(row | {"picture": plane and page.Picture("", plane, alt)})
                # Pictures of people whom the page will not show are not kept.
                heapq.heappush(pictured, (-row["clip_weight"], -len(rows)))
                if len(pictured) > page.MOST_PEOPLE:
                    _, number = heapq.heappop(pictured)
                    rows[-number - 1]["picture"] = None
                yield name, X

        if people.part:
            people.store(runs, encode, title, state_of=state_of)
            return
        folder = study.private(site)
        files.write_features(folder / "projected.npz", encoded(), self.layout)
        keep_people(study, config)
        files.write_table(folder / RUNS, nifti.RUNS, table)
        text = page.render_quality(site, rows, plots.norms(norms, bound), study)
        files.write_text(folder / "qc.html", text)
        header = [name for name in rows[0] if name != "picture"]
        every_row = [[row[name] for name in header] for row in rows]
        files.write_table(folder / "qc.tsv", header, every_row)
        if far := sum(row["clip_weight"] < LOW_CLIP_WEIGHT for row in rows):
            print(
                f"note: {site}: {survey.how_many(far)} of {len(rows)} far above the "
                f"norm bound; of their second moments pca.clip keeps less than "
                f"{100 * LOW_CLIP_WEIGHT:.0f}%: see {folder}/qc.html"
            )

    def reconstruct(
        self, sites: Sites, site: str, people: SitePeople = EVERYBODY
    ) -> None:
        """Write each component's maps and time courses of one site's people."""
        from capeneuro.report import plots

        study = self.study
        config, folder = one_site(sites, site), study.private(site)
        runs = list(chain(*derivatives.find_runs(config).values()))
        t_r, reason = beside.one_time(runs, config)
        if t_r is None:
            print(f"note: {site}: spectra are in cycles per volume: {reason}")
        reconstruction = Reconstruction(
            folder,
            files.read_arrays(study.results / UNMIXING),
            study.pca.norm_bound,
            files.read_arrays(study.results / SUBSPACE)["center"],
            self.basis,
            self.mask,
        )
        title = f"reconstruct {site}"
        if people.part:
            features = files.Features(folder / "projected.npz")
            people.store(
                features.only(people.names(features)),
                reconstruction.write_person,
                title,
                reconstruction.has_maps,
            )
            return
        compute_all = partial(people.prepared, title=title)
        means = write_people(reconstruction, t_r, compute_all)
        figures = {
            "Mean power spectrum of each component's time courses": plots.power(
                means["frequencies"], means["power"], means["unit"]
            ),
            "Mean functional network connectivity": plots.connectivity(
                means["connectivity"], [map_.name for map_ in self._map_names()]
            ),
        }
        pictures = [page.picture(title, figure) for title, figure in figures.items()]
        text = page.template_of("reconstruction.html.jinja").render(
            site=site,
            n_people=means["n_people"],
            pictures=pictures,
            why_no_time=reason,
        )
        files.write_text(folder / "reconstruction.html", text)
        reconstruction.end(files.Features(folder / "projected.npz"))

    # --- over all sites --------------------------------------------------------------

    def release(
        self, step: str, sites: Sites, threads: int = 1, reference: bool = False
    ) -> None:
        """Find the sites' common subspace (`pca`) or components in it (`ica`)."""
        subspace = None if step == "pca" else self.read_subspace(reference)
        is_not_private = is_exact(self.study, reference)
        with in_process(self.study, sites, threads, is_not_private) as federation:
            if subspace is None:
                self._release_subspace(federation, sites, reference)
            else:
                self._release_components(federation, sites, subspace, reference)

    def release_all(self, federation: Federation, sites: Sites) -> None:
        """Find subspace and components of sites that work anywhere; write them."""
        self._release_subspace(federation, sites)
        self._release_components(federation, sites, self.read_subspace())

    def read_subspace(self, reference: bool = False) -> Subspace:
        """Read the subspace that the step `pca` wrote, around a prior or not."""
        path = folder_of(self.study, reference) / SUBSPACE
        has_prior = "posterior" in files.read_arrays(path)
        result = PriorSubspace if has_prior else Subspace
        return read_released(self.study, SUBSPACE, result, "pca", reference)

    def read_unmixing(self) -> Unmixing:
        """Read the unmixing that the step `ica` wrote."""
        return read_released(self.study, UNMIXING, Unmixing, "ica")

    def _release_subspace(
        self, federation: Federation, sites: Sites, reference: bool = False
    ) -> None:
        """Find the common subspace of sites that work anywhere; write it."""
        study = self.study
        check, exact = partial(gate, study, sites), is_exact(study, reference)
        mechanism = mechanism_of(study, "pca", reference, check)
        options, bound = study.pca, study.pca.norm_bound
        center, stages, center_deviation = None, [mechanism], 0.0
        if study.has_prior and not exact:
            corrected = around_prior.subspace(federation, mechanism, study)
            if corrected is not None:
                write_released(study, sites, reference, SUBSPACE, corrected, stages)
                return
        is_power = options.method == "power"
        # A start that is impossible fails here, before anything is released.
        if is_power:
            mask = nifti.read_mask(mask_file(study))
            n_features = nifti.build_basis(study.space, mask).n_features
            regions = nifti.start_regions(study.space, mask, options.start_grid)
            start = power_start(n_features, study.n_components, regions)
        if options.center:
            stages = [mechanism_of(study, "center", reference, check), mechanism]
            center_clip = options.clip**0.5
            released = released_center(federation, stages[0], bound, center_clip)
            center, center_deviation = released.value, released.deviation
        R, clip, arrays = study.n_components, options.clip, {}
        bar = progress.named(f"pca {mechanism.arm}")
        if is_power and exact:
            subspace = krylov_subspace(
                federation, mechanism, R, bound, center, start=start, progress=bar
            )
        elif is_power:
            subspace = power_subspace(
                federation,
                mechanism,
                R,
                bound,
                clip,
                center,
                start=start,
                n_iterations=options.n_iterations,
                progress=bar,
            )
        else:
            moment = second_moment(federation, mechanism, bound, clip, center)
            subspace = from_moment(moment, R, bound, center)
            arrays = self._arrays_to_keep(len(moment.value))
        if not is_power:
            print(sentences.order_line(study, subspace))
        elif not exact:
            print(sentences.shares_line(study, subspace))
        subspace = replace(
            subspace,
            center_deviation=center_deviation,
            positions=self._positions(),
            n_samples=self._n_samples(subspace.n_units),
        )
        write_released(study, sites, reference, SUBSPACE, subspace, stages, arrays)

    def _positions(self) -> np.ndarray:
        """Public positions of the features [mm]; empty where none are known."""
        if (path := mask_file(self.study)) is None:
            return np.zeros((0, 3))
        space, mask = self.study.space, nifti.read_mask(path)
        return nifti.positions(space, mask, nifti.build_basis(space, mask))

    def _n_samples(self, n_units: int) -> float:
        """Independent volumes behind the moment: one in ten of a person's, about."""
        volumes = self.study.volumes or 0
        is_of_people = self.study.budget.unit == "subject"
        return n_units * max(1.0, volumes / 10) if is_of_people else n_units

    def _arrays_to_keep(self, n_features: int) -> dict[str, Any]:
        """Descriptions of features that later questions are answered with."""
        path = mask_file(self.study)
        if n_features > MOST_KEPT or path is None:
            return {}
        space, mask = self.study.space, nifti.read_mask(path)
        basis = nifti.build_basis(space, mask)
        public = {
            index: name
            for atlas in self.study.names
            if space.basis == "atlas" and atlas.file == space.basis_file
            for index, name in labels.region_names(atlas.labels).items()
        }
        names = [
            public.get(label, label if space.has_parcels else f"{space.basis} {label}")
            for label in nifti.basis_labels(space, mask, basis)
        ]
        units = np.full(n_features, self.study.pca.norm_bound)
        return ask_moments.arrays_to_keep(names, basis.sizes, units)

    def _release_components(
        self,
        federation: Federation,
        sites: Sites,
        subspace: Subspace,
        reference: bool = False,
    ) -> None:
        """Find the common components of sites that work anywhere; write them."""
        study, options = self.study, self.study.ica
        stage = "ica" if "ica" in study.n_releases else "pca"
        check, exact = partial(gate, study, sites), is_exact(study, reference)
        mechanism = mechanism_of(study, stage, reference, check)
        infomax = partial(
            repeated_infomax,
            federation,
            mechanism,
            subspace,
            n_runs=1 if exact else options.n_runs,
            n_rounds=options.max_rounds_exact if exact else options.n_rounds,
            clip=options.clip,
            update=options.update,
            sub_gaussian=options.sub_gaussian,
            tol=options.tol,
            progress=progress.named(f"ica {mechanism.arm}"),
        )
        if options.independence == "spatial":
            mechanism.describe(federation)  # the stamp has the kinds of data
        match subspace, options.independence:
            case PriorSubspace(), "spatial":
                prior, posterior = around_prior.prior_and_posterior(study, subspace)
                public, bar = around_prior.public(study, prior), progress.named("ica")
                unmixing = prior_maps.components(
                    prior, posterior, study.n_components, public, progress=bar
                )
            case PriorSubspace(), _:
                prior, _ = around_prior.prior_and_posterior(study, subspace)
                public = around_prior.public(study, prior)
                unmixing = infomax(start=public.mixing)
                unmixing = prior_maps.in_order_of(unmixing, public.mixing)
            case _, "spatial":
                unmixing = spatial_components(
                    subspace, options.max_rounds_exact, options.tol
                )
            case _:
                unmixing = infomax(start=options.start)
        if not isinstance(subspace, PriorSubspace):
            unmixing = with_evidence(unmixing, subspace, options.start)
        for line in sentences.ica_lines(unmixing):
            print(line)
        write_released(study, sites, reference, UNMIXING, unmixing, [mechanism])

    # --- maps, scores and the report -------------------------------------------------

    def maps(self, sites: Sites) -> None:
        """Write the component maps as NIfTI in the study's space, and their table."""
        study = self.study
        unmixing = files.read_arrays(study.results / UNMIXING)
        metadata = {
            "Stamp": str(unmixing["stamp"]),
            "Sources": [UNMIXING],
            "capeneuro": {
                "version": __version__,
                "study": study.study,
                "arm": study.arm,
                **vars(study.promise),
            },
        }
        if isinstance(self.read_subspace(), PriorSubspace):
            metadata["Order"] = metadata["Sign"] = "as of the prior's own maps"
        verdicts = self._verdicts()
        write_verdicts(study, verdicts)
        group_maps.write_group(
            study.results,
            unmixing["mixing"] * study.pca.norm_bound,
            self.basis,
            self.mask,
            metadata,
            study.ica.independence,
            unmixing["stability"],
            unmixing["agreement"],
            verdicts.labels,
            [labels.read(atlas, self.mask) for atlas in study.names],
        )

    def _verdicts(self) -> Verdicts:
        """Judge which components, or changes of a prior's maps, are above the noise."""
        study = self.study
        subspace, unmixing = self.read_subspace(), self.read_unmixing()
        if isinstance(subspace, PriorSubspace):
            prior, posterior = around_prior.prior_and_posterior(study, subspace)
            P = around_prior.public(study, prior).unmixing @ prior.directions
            n_people = subspace.n_units if study.budget.unit == "subject" else 0
            verdicts = of_changes(prior, posterior, P, n_people)
            return self._unless_mixed(verdicts, unmixing)
        return sentences.as_tested(study, of_components(unmixing))

    def _unless_mixed(self, verdicts: Verdicts, unmixing: Unmixing) -> Verdicts:
        """Withdraw verdicts where the noise of ICA's rounds may mix components."""
        if self.study.ica.independence != "temporal":
            return verdicts
        path = self.study.results / FORECAST
        foretold = json.loads(path.read_text()) if path.is_file() else {}
        ratios = foretold.get("noise", {})
        return without_mixed(verdicts, unmixing, ratios.get("ICA", 0.0) > 1)

    def score(self, sites: Sites) -> None:
        """Compare the components with the truth and with a run without privacy."""
        study, bound = self.study, self.study.pca.norm_bound
        references = self._references()
        unmixing = files.read_arrays(study.results / UNMIXING)
        unmixings = {"": unmixing}
        if study.prior is not None and study.arm != "non-private":
            unmixings["public"] = vars(around_prior.public(study, open_prior(study)[0]))
        rows = [
            row
            for name, A in references.items()
            for owner, arrays in unmixings.items()
            for row in scores.components(arrays, A, name, bound, owner)
        ]
        if {"truth", "reference"} <= set(references):
            exact, A = self._reference_unmixing(), references["truth"]
            rows += scores.components(exact, A, "nonprivate_truth", bound)
        scores.write(study.results / "scores.tsv", rows, str(unmixing["stamp"]))

    def chapter(self, record: dict[str, Any], threads: int = 1) -> page.Chapter:
        """Make the study's chapter of the report: pictures, verdicts and scores."""
        from capeneuro.report import plots, viewer

        study, folder, R = self.study, self.study.results, self.study.n_components
        subspace, unmixing = self.read_subspace(), self.read_unmixing()
        verdicts, map_names = self._verdicts(), self._map_names()
        is_not_private = is_exact(study, reference=False)
        noise = [
            r["noise_deviation"] * r["size"] ** 0.5
            for r in releases_of(study, UNMIXING)
            if r["query"] in ("infomax_skew", "infomax_gradient") and r["survivors"]
        ] or [0.0] * len(unmixing.trace)
        figures, changes, notes = {}, [], sentences.ica_lines(unmixing)
        if isinstance(subspace, PriorSubspace):
            changes = [self._picture_of_changes(subspace, unmixing, verdicts)]
        else:
            notes += sentences.loose_bound(subspace)
            if len(subspace.spectrum):
                edge, caption = sentences.order_in_words(study, subspace)
                exact = not subspace.noise_deviation
                figures[caption] = plots.spectrum(subspace.spectrum, edge, R, exact)
        if len(unmixing.trace):
            title = "Norm of the released gradient"
            if study.ica.independence == "spatial":
                title = "Norm of the gradient of spatial ICA, at no cost"
            if study.ica.n_runs > 1 and not is_not_private:
                title += f", {study.ica.n_runs} runs one after the other"
            figures[title] = plots.convergence(unmixing.trace, noise)
        for name, A in self._references().items():
            r = metrics.matched_correlation(unmixing.mixing, A)
            figures[f"Maps matched with the {scores.AGAINST[name]}"] = plots.matching(r)
        titles = [
            f"{name}, {map_name.title}" if map_name.title else name
            for name, map_name in zip(verdicts.names, map_names, strict=True)
        ]
        if verdicts.is_of_maps:
            pairs = zip(titles, sentences.agreements(verdicts), strict=True)
            titles = [f"{title}, agreement {r}" for title, r in pairs]
        titles = sentences.titles(verdicts, titles)
        described = files.read_table(folder / group_maps.TABLE)
        path, peaks = folder / group_maps.SCALED, [None] * R
        if study.space.has_parcels:  # no peaks in a volume
            path = files.of_parcels(path)
        else:
            peaks = [tuple(map(float, row[3:6])) for row in described]
        maps = [
            plots.map_figure(path, i, title, peaks[i], group_maps.UNIT)
            for i, title in enumerate(titles)
        ]
        pictures = {
            "found": changes,
            "quality": [page.picture(title, fig) for title, fig in figures.items()],
            **page.gallery(verdicts, maps, threads),
        }
        if len(unmixing.trace) and max(noise) > 0:
            notes = [*notes, sentences.ending(unmixing.trace, noise)]
        if study.pca.method == "power" and not (study.has_prior or is_not_private):
            notes = [sentences.shares_line(study, subspace), *notes]
        scored = files.read_table(folder / "scores.tsv")
        return page.Chapter(
            study,
            "components.html.jinja",
            verdicts,
            scored,
            pictures,
            notes,
            _table(verdicts, described, map_names, path, peaks),
            viewer.viewer(page.findings(verdicts, maps)),
            page.forecast_of(study),
            foretold=page.foretold(study),
        )

    def _picture_of_changes(
        self, subspace: PriorSubspace, unmixing: Unmixing, verdicts: Verdicts
    ) -> page.Picture:
        """Draw how far private data moved the prior's maps."""
        from capeneuro.report import plots

        study = self.study
        prior, _ = around_prior.prior_and_posterior(study, subspace)
        public, R = around_prior.public(study, prior).mixing, study.n_components
        r = np.diag(np.corrcoef(unmixing.mixing.T, public.T)[:R, R:])
        return page.picture(sentences.CHANGES, plots.changes(r, verdicts.exceeds_noise))

    def _map_names(self) -> list[group_maps.Name]:
        """Most similar regions or templates of each component, if the study has any."""
        study = self.study
        if not study.names:
            return [group_maps.Name("", 0.0, "", "")] * study.n_components
        atlases = [labels.read(atlas, self.mask) for atlas in study.names]
        # From the unmixing, since a site need not have the maps' files.
        A = files.read_arrays(study.results / UNMIXING)["mixing"]
        return group_maps.named(self.basis.synthesis @ A, atlases)

    def n_numbers(self, n_features: int) -> int:
        """Numbers in the largest release: of power iteration 2 R directions."""
        if self.study.pca.method == "power":
            return n_features * 2 * self.study.n_components
        return super().n_numbers(n_features)

    def forecast(self, site_names: Sequence[str], counts: Counts) -> Forecast:
        """Foretell the noise of the subspace and of the components."""
        return components_forecast.forecast(self.study, site_names, counts)

    # --- files, for the workflow -----------------------------------------------------

    def check_public_files(self) -> None:
        """Nothing: `validate` opens them."""

    def input_files(self, site: SiteConfig) -> list[str]:
        """Files of a site that its features depend on."""
        runs, cleaning = chain(*self.runs(site).values()), self.study.cleaning
        paths = [path for run in runs for path in beside.inputs(run, cleaning)]
        return [*map(str, paths), *([] if site.mask is None else [str(site.mask)])]

    def runs(self, site: SiteConfig) -> dict[str, list[Path]]:
        """A site's images by person."""
        return derivatives.find_runs(site)

    def public_files(self) -> list[str]:
        """Public files that define the study's space."""
        study = self.study
        paths = [] if study.computes_mask else [study.space.mask]
        if study.prior is not None:
            paths += [study.prior.file, study.prior.stand_in]
        for atlas in study.names:
            paths += [atlas.file, atlas.labels]
        return [str(p) for p in (*paths, study.space.basis_file) if p is not None]

    def map_files(self) -> list[str]:
        """Files of the component maps."""
        maps = group_maps.names_of_files(has_parcels=self.study.space.has_parcels)
        return [str(self.study.results / name) for name in (*maps, VERDICTS)]

    def validated_files(self) -> list[str]:
        """The study's mask."""
        return [str(mask_path(self.study))]

    def made_files(self, sites: Sites) -> list[str]:
        """Files that the data makers write last."""
        study, mask = self.study, self.study.space.mask
        last = {"simtb": "truth/desc-truth_components.nii.gz"}
        last |= {"painted": "atlas.nii.gz"}
        public = [last[study.data.kind]]
        if getattr(study.data, "coupled", None):
            public.append("means.tsv")
        people = [f"{site.folder}/dataset_description.json" for site in sites.values()]
        return [*people, mask, *(str(Path(mask).parent / name) for name in public)]

    def score_inputs(self) -> list[str]:
        """Files that the components are compared with."""
        truth = self.study.score.truth
        inputs = [] if truth is None else [str(truth)]
        if self.study.score.reference:
            inputs.append(str(folder_of(self.study, reference=True) / UNMIXING))
        return inputs

    def true_maps(self) -> np.ndarray | None:
        """True maps over features of a simulated study, (n_features, R), or None."""
        if self.study.score.truth is None:
            return None
        truth = nifti.read_maps(self.study.score.truth, self.mask)
        return self.basis.analysis @ truth

    def _references(self) -> dict[str, np.ndarray]:
        """Maps over features that the study's components are compared with."""
        study, references = self.study, {}
        if (truth := self.true_maps()) is not None:
            references["truth"] = truth
        if study.score.reference:
            mixing = self._reference_unmixing()["mixing"]
            references["reference"] = mixing * study.pca.norm_bound
        return references

    def _reference_unmixing(self) -> dict[str, np.ndarray]:
        """Arrays of the unmixing that was found without privacy."""
        return files.read_arrays(folder_of(self.study, reference=True) / UNMIXING)


def _with_remedy(
    error: ConfigError, sites: Sites, images: dict[str, dict[str, list[Path]]]
) -> str:
    """Errors of files, with the keys that leave these people out."""
    files = {line.partition(": ")[0] for line in error.lines}
    text = str(error)
    for site, people in images.items():
        bad = [name for name, runs in people.items() if files & set(map(str, runs))]
        remedy = sites[site].leaving_out(bad)
        if len(bad) == len(error.lines) == 1 < len(people):
            text += f"; or do without the person: {remedy}"
        elif 1 < len(bad) < len(people):
            text += (
                f"\nsite {site}: mend these files, or do without {len(bad)} of its "
                f"{len(people)} people: {remedy}"
            )
    return text


def _lengths(rows: list[list[Any]]) -> dict[str, int]:
    """Volumes of each person after cleaning, from a table of runs."""
    lengths: Counter[str] = Counter()
    for person, *_, n, _ in rows:
        lengths[person] += n
    return lengths


def _table(
    verdicts: Verdicts,
    described: list[list[str]],
    map_names: list[group_maps.Name],
    path: Path,
    peaks: list[tuple[float, ...] | None],
) -> page.Table:
    """The table of components as the page shows it, with a thumbnail of each.

    Parameters
    ----------
    verdicts, map_names
        Of the components.
    described
        Rows of the table that `maps` wrote.
    path, peaks
        File of the scaled maps, and the peak of each [mm]; None: of parcels.
    """
    from capeneuro.report import slices

    columns = {
        "component": "order number, as in the maps",
        "map": "axial plane at the peak",
        "strength": "norm of the map over features, in their unit",
        "share": "of the energy of all maps",
        "peak [mm]": "x, y, z of the largest value with the component's sign; of a "
        "cube or parcel its middle",
        "stability": "agreement of the component over repeated runs, 1 is perfect; n/a "
        "without repeated runs",
        "agreement": "correlation with the map without privacy noise, and its 80% "
        "range: by the law of the noise, in these people",
        "verdict": "",
    }
    has_parcels = is_cifti(path)
    if has_parcels:
        del columns["map"]
        names = {"peak [mm]": "peak"}
        columns = {names.get(name, name): text for name, text in columns.items()}
        columns["peak"] = "parcel of the largest value with the component's sign"
    has_names = any(name.measure or name.peak for name in map_names)
    if has_names:
        columns |= {
            "most like": "public region or map, with the overlap: Dice coefficient (of "
            "as many voxels as the region has) or correlation r",
            "peak in": "region of the peak",
        }
    agreements, rows, is_shown = sentences.agreements(verdicts), [], verdicts.is_drawn
    for i, (number, strength, share, x, y, z, stability, *end) in enumerate(described):
        if has_parcels:
            row = [f"component {number}", f"{float(strength):.3g}", share, end[-1]]
            rows.append([*row, stability, agreements[i], verdicts.labels[i]])
            continue
        alt = f"component {number} at z = {z} mm"
        thumbnail = "not drawn"
        if is_shown[i]:  # else no finding is drawn
            thumbnail = page.Picture("", slices.thumbnail(path, i, peaks[i]), alt)
        peak = ", ".join(f"{float(v):.0f}" for v in (x, y, z))
        row = [f"component {number}", thumbnail, f"{float(strength):.3g}", share, peak]
        row += [stability, agreements[i], verdicts.labels[i]]
        if has_names:
            name = map_names[i]
            overlap = f"{name.name} ({name.measure} {name.overlap:.2f})"
            row += [overlap if name.name else "none", name.peak or "none"]
        rows.append(row)
    return page.Table(columns, rows, group_maps.TABLE)
