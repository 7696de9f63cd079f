"""Make the data of a study: ``python -m sim STUDY.yaml``."""

import argparse
import importlib.util
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from capeneuro import machine
from capeneuro.config import components, load, rows
from capeneuro.config.components import Painting, Simulation
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.errors import ConfigError
from capeneuro.config.fusion import SimulatedViews
from capeneuro.config.rows import SimulatedRecordings, SimulatedRows
from capeneuro.config.study import StudyConfig
from capeneuro.studies.sites import is_complete, load_sites
from capeneuro.studies.usage import Usage
from sim import (
    bids,
    coupled,
    erp,
    fmri,
    garch,
    grid,
    hemodynamics,
    linked,
    painting,
    recorded,
    sources,
)
from sim import made as tables

DEFAULT_SOURCES = {10: sources.DEFAULT_10, 20: sources.DEFAULT_20}


def simulate(
    study: components.ComponentsConfig,
    made: Simulation,
    folders: dict[str, Path],
    threads: int = 1,
) -> None:
    """Write simulated runs of every site, the true maps and the mask.

    Site ``k`` has a generator of its own, so adding a site leaves the others as they
    were. Source coefficients and task designs are common to all.
    """
    n_named = len(sources.SOURCES) - 1  # without the global disc
    if study.n_components > n_named:
        raise ConfigError(
            f"n_components: must be at most the {n_named} named sources, "
            f"got {study.n_components}"
        )
    indices = DEFAULT_SOURCES.get(
        study.n_components, tuple(range(1, study.n_components + 1))
    )
    networks = sources.named(indices)
    if made.altered is not None:
        networks = sources.altered(networks, made.altered.network, made.altered.how)
    if made.patches:  # a generator of their own: time courses stay what they are
        drawn = np.random.default_rng([made.seed, made.patches])
        networks = sources.distributed(networks, made.patches, drawn)
    common, *own = np.random.SeedSequence(made.seed).spawn(1 + len(folders))
    draw_courses = _time_courses(made, len(networks), np.random.default_rng(common))
    mask, affine = grid.head_mask_3d(made.voxel_size)
    n = made.n_subjects * len(folders)
    sizes = fmri.site_sizes(n, len(folders), made.unequal)
    if not min(sizes):
        raise ConfigError(
            f"data.unequal: must leave every site somebody, got {made.unequal:g} with "
            f"{n} people at {len(folders)} sites; make n_subjects larger"
        )
    labels = fmri.subject_labels(sizes)
    if made.coupled is not None:
        seed = np.random.SeedSequence([made.seed, n])
        drawn, recorded = (np.random.default_rng(s) for s in seed.spawn(2))
        who = coupled.people(made.coupled, n, len(networks), drawn)
    for folder, names in zip(folders.values(), labels, strict=True):
        there = {path.name for path in folder.glob("sub-*")}
        if others := there - {f"sub-{name}" for name in names}:
            raise ConfigError(
                f"{folder}: holds people who are not of this study, such as "
                f"{min(others)}; remove the folder and make it anew"
            )
    all_courses = {}

    def write_site(folder: Path, names: list[str], seed: Any) -> np.ndarray:
        rng = np.random.default_rng(seed)
        courses = draw_courses(rng, len(names))
        if made.presence < 1:
            about = len(names), len(networks), made.presence
            courses = courses * fmri.present(*about, rng)
        if made.coupled is not None:
            first = sum(sizes[: labels.index(names)])
            own = who.strengths[first : first + len(names)]
            courses = courses * np.exp(own)[:, :, None]
        all_courses.update(zip(names, courses, strict=True))
        return fmri.write_site(
            folder,
            names,
            courses,
            rng,
            networks=networks,
            mask=mask,
            affine=affine,
            repetition_time=made.repetition_time,
            percent_signal_change=made.percent_signal_change,
            cnr=made.cnr,
            site_deviation=made.site_translation,
            translation_deviation=made.translation,
            rotation_deviation=made.rotation,
            spread_deviation=made.spread,
            scanner_deviation=made.scanner,
            tissue_contrast=made.tissue,
            max_translation=made.motion,
            max_rotation=made.motion,
        )

    # Noise and compression, most of the work, run beside each other in threads.
    with ThreadPoolExecutor(threads) as pool:
        maps = list(pool.map(write_site, folders.values(), labels, own))
    if made.coupled is not None:
        folder = Path(study.space.mask).parent
        about = made.coupled, who, folder / "truth", recorded
        coupled.write([*folders.values()], labels, *about)
        rows = coupled.site_means(who, sizes)
        rows = [[name, *row] for name, row in zip(folders, rows, strict=True)]
        bids.write_tsv(folder / "means.tsv", coupled.MEANS, rows)
    fmri.write_truth(
        Path(study.space.mask).parent,
        np.average(maps, axis=0, weights=sizes),
        {name: all_courses[name] for own_names in labels for name in own_names},
        networks=networks,
        mask=mask,
        affine=affine,
        percent_signal_change=made.percent_signal_change,
        parameters=made.model_dump(mode="json"),
    )


def _time_courses(made: Simulation, n_sources: int, rng: np.random.Generator):
    """Draw what is common to all sites; return the draw of so many subjects."""
    if made.sources == "garch":
        ranges = {"alpha": made.alpha, "beta": made.beta, "ar": made.ar}
        parameters = garch.garch_parameters(n_sources, rng, **ranges)
        return lambda own, n: garch.garch(parameters, n, made.n_volumes, own)
    n_types = 4
    if made.sources == "blocks":
        design = hemodynamics.block_design(n_types, made.n_volumes, rng)
    else:
        chances = np.full(n_types, 0.1)
        design = hemodynamics.event_design(chances, made.n_volumes, rng)
    amplitudes = rng.standard_normal((n_sources, n_types))
    return lambda own, n: np.stack(
        [
            hemodynamics.task_time_courses(
                design, amplitudes, own, repetition_time=made.repetition_time
            )
            for _ in range(n)
        ]
    )


def paint(
    study: components.ComponentsConfig, made: Painting, folders: dict[str, Path]
) -> None:
    """Write painted runs of every site; a site's folder is named as its series file."""
    for needed in (made.atlas, made.series / "participants.csv"):
        if not needed.is_file():
            raise ConfigError(
                f"{needed}: file not found; put the data there, or change "
                "`data.series` and `data.atlas` in the study file"
            )
    atlas = nib.load(made.atlas)
    labels, affine = painting.resample_atlas(
        np.asarray(atlas.dataobj).astype(int), atlas.affine, made.voxel_size
    )
    for folder in folders.values():
        series = made.series / f"{folder.name}.npz"
        if not series.is_file():
            raise ConfigError(f"{series}: file not found; put the series there")
        painting.paint_site(
            series, made.series / "participants.csv", labels, affine, folder
        )
    painting.write_atlas(Path(study.space.mask).parent, labels, affine)


def _need_eeg() -> None:
    for needed in ("mne", "pybv"):
        if importlib.util.find_spec(needed) is None:
            raise ConfigError(f"data: EEG needs {needed}; pip install 'capeneuro[eeg]'")


def link(
    study: components.ComponentsConfig, made: SimulatedViews, folders: dict[str, Path]
) -> None:
    """Write contrast maps and EEG of every site, the truth and the mask."""
    _need_eeg()
    K, K_max = len(made.correlations), len(erp.SOURCES)
    if not 1 <= K <= K_max:
        raise ConfigError(
            f"data.correlations: must be 1 to {K_max}, one of each pair of components, "
            f"got {K}"
        )
    N = made.n_subjects * len(folders)
    if N <= 2 * K:
        raise ConfigError(
            f"data.n_subjects: all sites together need more than {2 * K} people, two "
            f"of each component, got {N}"
        )
    linked.write_study(folders, made, Path(study.space.mask))


def record(study: rows.RowStudy, folders: dict[str, Path]) -> None:
    """Write EEG and people of every site, the public tables and the truth."""
    _need_eeg()
    known = {"patient", "age"}
    if not isinstance(study, ContrastConfig) or {*study.contrast.covariates} != known:
        raise ConfigError(
            "data: recorded makes people for a contrast on patient and age alone"
        )
    if odd := {*study.rows.features.channels} - {*erp.CHANNELS}:
        raise ConfigError(f"rows.features.channels: made EEG has no {min(odd)}")
    recorded.write_study(folders, study)


def tabulate(study: rows.RowStudy, folders: dict[str, Path]) -> None:
    """Write a table of rows of every site, the table of features and the truth."""
    if study.rows.covariates:
        raise ConfigError("rows.covariates: made rows have none; set it to {}")
    odd = [str(path) for path in folders.values() if path.suffix != ".tsv"]
    if odd:
        raise ConfigError(f"images: made rows are .tsv files, got {', '.join(odd)}")
    tables.write_study(folders, study)


def make(study: StudyConfig, folders: dict[str, Path], threads: int) -> None:
    """Write what a study, or a stage, asks for."""
    if isinstance(study.data, Simulation):
        simulate(study, study.data, folders, threads)
    elif isinstance(study.data, Painting):
        paint(study, study.data, folders)
    elif isinstance(study.data, SimulatedViews):
        link(study, study.data, folders)
    elif isinstance(study.data, SimulatedRecordings):
        record(study, folders)
    elif isinstance(study.data, SimulatedRows):
        tabulate(study, folders)


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("study", help="study file with a `data` block")
    parser.add_argument("--log", type=Path, help="also write messages here")
    parser.add_argument("--threads", type=int, default=1, help="sites at a time")
    options = parser.parse_args(argv)
    if "CAPENEURO_RUN" in os.environ:  # as every step that `capeneuro run` starts
        print("make_data", flush=True)
    usage, status, lines = Usage(), 0, []
    try:
        study = load.load_study(options.study)
        sites = load_sites(study)
        if not is_complete(study, sites):
            raise ConfigError(
                f"{options.study}: sites: data are made for all sites at once, but "
                f"only {len(sites)} of {len(study.sites)} site files are here"
            )
        folders = {name: Path(site.folder) for name, site in sites.items()}
        asked = [m for m in study.members.values() if m.data is not None]
        if not asked:
            raise ConfigError(
                f"{options.study}: data: nothing to make, the block is null"
            )
        for member in asked:
            make(member, folders, options.threads)
    except (ConfigError, ValueError) as error:
        status, lines = 2, [f"error: {line}" for line in str(error).splitlines()]
    except OSError as error:
        status, lines = 1, [f"error: {machine.in_words(error)}"]
    except KeyboardInterrupt:
        status, lines = 130, [machine.INTERRUPTED]
    if options.log is not None:
        end = f"ended with status {status}" if status else usage.in_words()
        options.log.parent.mkdir(parents=True, exist_ok=True)
        options.log.write_text("\n".join([*lines, end, ""]))
    # `capeneuro run` prints errors, last of all.
    if options.log is None or "CAPENEURO_RUN" not in os.environ or status == 130:
        for line in lines:
            print(line, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
