"""The steps that each site does alone, with its own images; nothing leaves it.

What the command line and the workflow call.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from tqdm import tqdm

from capeneuro import components, files, io
from capeneuro import report as page
from capeneuro.config import Config, ConfigError, SiteConfig
from capeneuro.consortium import Sites
from capeneuro.steps import MASK, SUBSPACE, UNMIXING, one_site

# Of whom the clip keeps less is named at the site.
MOSTLY = 0.25
KEPT = "timecourses.tsv"


def inputs(study: Config, site: SiteConfig) -> list[str]:
    """Files of a site that its features depend on."""
    return [str(image) for person in io.find_runs(site).values() for image in person]


def prepare(study: Config, sites: Sites, site: str, threads: int = 1) -> None:
    """Turn one site's images into features; nothing leaves the site.

    ``threads`` people at a time, each in a process of its own.
    """
    from capeneuro import plots

    own, bound = one_site(sites, site), study.pca.norm_bound
    mask = io.read_mask(study.results / MASK)
    basis = io.build_basis(study.space, mask)
    runs = io.find_runs(own)
    rows: list[dict[str, Any]] = []
    norms: list[np.ndarray] = []

    def person(folder: Path, images: list[Path]) -> np.ndarray:
        os.chdir(folder)  # a worker may have been started elsewhere
        parts = [
            io.run_features(image, own, study.space, study.cleaning, mask, basis)
            for image in images
        ]
        return np.concatenate(parts, axis=1)

    def people() -> Iterator[tuple[str, np.ndarray]]:
        # In order and as they come: few people are in memory at a time.
        work = Parallel(threads, return_as="generator")
        here = Path.cwd()
        features = work(delayed(person)(here, images) for images in runs.values())
        bar = tqdm(runs.items(), f"prepare {site}", disable=None)
        for (name, images), X in zip(bar, features, strict=True):
            if X.shape[1] < study.n_components:
                raise ConfigError(
                    f"{images[0]}: {name} has {X.shape[1]} volumes, fewer than "
                    f"n_components {study.n_components}; exclude the person"
                )
            norms.append(np.linalg.norm(X, axis=0))
            rows.append(page.quality(name, X, study))
            if rows[-1]["kept"] < MOSTLY:
                print(
                    f"note: {name}: far above the norm bound; of the second moment "
                    f"pca.clip keeps {100 * rows[-1]['kept']:.0f}%"
                )
            yield name, X

    folder = study.private(site)
    files.write_features(folder / "projected.npz", people())
    text = page.render_quality(site, rows, plots.norms(norms, bound), study)
    files.write_text(folder / "qc.html", text)


def reconstruct(study: Config, sites: Sites, site: str) -> None:
    """Write what one site's people have in the components; it stays at the site."""
    from capeneuro import plots

    own, folder = one_site(sites, site), study.private(site)
    mask = io.read_mask(study.results / MASK)
    result = files.read_arrays(study.results / UNMIXING)
    runs = [run for person in io.find_runs(own).values() for run in person]
    known = {io.repetition_time(run, own) for run in runs}
    found = components.write_people(
        folder,
        result,
        study.pca.norm_bound,
        files.read_arrays(study.results / SUBSPACE)["center"],
        io.build_basis(study.space, mask),
        mask,
        known.pop() if len(known) == 1 else None,
        lambda people: tqdm(people, f"reconstruct {site}", disable=None),
    )
    figures = {
        "Mean power spectrum of each component's time courses": plots.power(
            found["frequencies"], found["power"], found["unit"]
        ),
        "Mean functional network connectivity": plots.connectivity(
            found["connectivity"]
        ),
    }
    pictures = [page.picture(title, figure) for title, figure in figures.items()]
    text = page.render_people(site, found["n_people"], pictures)
    files.write_text(folder / "reconstruction.html", text)
