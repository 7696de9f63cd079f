"""`capeneuro prior`: make a prior of public people, for studies of private ones."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from capeneuro import __version__, linalg
from capeneuro.algorithms import prior as priors
from capeneuro.algorithms.ica import infomax
from capeneuro.algorithms.pca import (
    Subspace,
    krylov_subspace,
    power_start,
    principal_subspace,
)
from capeneuro.algorithms.prior import Prior
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.errors import ConfigError
from capeneuro.config.study import StudyConfig
from capeneuro.data import files, nifti
from capeneuro.data import priors as prior_files
from capeneuro.federation.transport import Federation
from capeneuro.report import progress
from capeneuro.studies import components, outcomes
from capeneuro.studies.flow import MOST_FEATURES, mechanism_of, validated_mask
from capeneuro.studies.priors import HALF, OTHER
from capeneuro.studies.site_people import SitePeople
from capeneuro.studies.sites import Sites, in_process

# Kinds of data of which a prior may be made.
OPEN = ("public", "simulated")


def make(
    study: StudyConfig,
    sites: Sites,
    out: Path,
    source: str,
    licence: str,
    threads: int = 1,
) -> None:
    """Make a prior of the people of a study whose data are all public or simulated.

    Parameters
    ----------
    study, sites
        A study of components, or of contrasts; its space, cleaning, covariates and
        sites count, no budget does.
    out
        File to write: `.npz`; of contrasts the table that `contrast.covariance` names,
        `.tsv`.
    source, licence
        Origin and licence of the data, for readers of the studies that will name the
        prior.
    threads
        Sites, or people, at a time.

    Raises
    ------
    ConfigError
        If a site's data are private, or a file is wrong.
    """
    if not isinstance(study, ComponentsConfig | ContrastConfig):
        raise ConfigError(
            f"study {study.study}: a prior is of a study of components or of contrasts"
        )
    if len(sites) < len(study.sites):
        raise ConfigError(
            f"study {study.study}: sites: all of their files must be here"
        )
    for name, site in sites.items():
        if site.data not in OPEN:
            raise ConfigError(
                f"site {name}: data: must be public or simulated to make a prior of, "
                f"got {site.data}: a prior is given away without noise"
            )
    if isinstance(study, ContrastConfig):
        return outcomes.write_covariance(study, sites, out)
    if out.suffix != ".npz":
        raise ConfigError(f"--out: must end with .npz, got {out}")
    files.keep_private()
    kind = components.ComponentsKind(study)
    kind.validate(sites, threads)
    for name in sites:
        kind.prepare(sites, name, SitePeople(threads=threads))
    mask = nifti.read_mask(validated_mask(study))
    basis = nifti.build_basis(study.space, mask)
    q = min(priors.DIRECTIONS, basis.n_features)
    regions = nifti.start_regions(study.space, mask, study.pca.start_grid)
    if regions is not None:
        q = min(q, int(regions.max()) + 1)
    if q < study.n_components:
        raise ConfigError(
            f"study {study.study}: n_components: must be at most the {q} directions of "
            f"a prior, got {study.n_components}"
        )
    with in_process(study, sites, threads, exact=True) as federation:
        start = None
        if basis.n_features > MOST_FEATURES:
            start = power_start(basis.n_features, q, regions)
        subspace = _directions(study, federation, q, start)
        maps = _temporal_maps(study, federation, subspace)
    prior = _prior_of_people(study, sites, subspace.eigenvectors)
    halves = {}
    if basis.n_features <= MOST_FEATURES:
        halves = _halves(study, sites, q)
    if maps.size:
        prior = replace(prior, maps=maps * study.pca.norm_bound)
    metadata = {
        "source": source,
        "licence": licence,
        "study": study.study,
        "version": __version__,
        **prior_files.space_of(study, mask, basis),
    }
    prior_files.write(out, {**vars(prior), **halves}, metadata)
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    print(
        f"{out}: {prior.n_people} people at {prior.n_sites} sites, {q} directions that "
        f"hold {100 * prior.energy_shares[-1]:.0f}% of a person's energy; "
        f"SHA-256 {digest}"
    )


def _directions(
    study: ComponentsConfig, federation: Federation, q: int, start: np.ndarray | None
) -> Subspace:
    """Find the q first directions of public people."""
    mechanism = mechanism_of(study, "pca", reference=True)
    bound = study.pca.norm_bound
    if start is None:
        return principal_subspace(federation, mechanism, q, bound, np.inf)
    bar = progress.named("directions")
    return krylov_subspace(federation, mechanism, q, bound, start=start, progress=bar)


def _halves(study: ComponentsConfig, sites: Sites, q: int) -> dict[str, np.ndarray]:
    """Arrays of a prior of every second site, and of the people of the others.

    On these studies are tried before anything is released [:func:`.open_stand_ins`].
    """
    names = [*sites]
    first = {name: sites[name] for name in names[::2]}
    n, C = _mean_moment(study, names[::2])
    if len(names) < 2 or n < 2:  # of one person no prior is made
        return {}
    half = _prior_of_people(study, first, linalg.top_eigenpairs(C, q)[1])
    _, C = _mean_moment(study, names[1::2])
    energies, V = linalg.top_eigenpairs(C, q)
    moment = {
        "directions": V.astype("f4"),
        "energies": energies,
        "energy_shares": np.cumsum(energies) / np.trace(C),
    }
    return {
        prefix + name: value
        for prefix, arrays in ((HALF, vars(half)), (OTHER, moment))
        for name, value in arrays.items()
    }


def _mean_moment(
    study: ComponentsConfig, names: Sequence[str]
) -> tuple[int, np.ndarray]:
    """Number of people at these sites, and their mean second moment."""
    n, C = 0, np.zeros(())
    for name in names:
        for X in files.Features(study.private(name) / "projected.npz").values():
            n, C = n + 1, C + X.astype(np.float64) @ X.T / X.shape[1]
    return n, C / max(n, 1)


def _prior_of_people(study: ComponentsConfig, sites: Sites, U: np.ndarray) -> Prior:
    """Make a prior of the prepared people's second moments along directions U."""
    volumes: list[np.ndarray] = []
    norms: list[float] = []
    moments: dict[str, np.ndarray] = {}
    for name in progress.bar(sites, "people"):
        coordinates = []
        for X in files.Features(study.private(name) / "projected.npz").values():
            X = X.astype(np.float64)
            coordinates.append(U.T @ X)
            norms.append(float(np.mean(np.sum(X**2, axis=0))))
        moments[name] = np.stack([y @ y.T / y.shape[1] for y in coordinates])
        volumes += coordinates
    try:
        return priors.from_people(U, moments, volumes, norms)
    except ValueError as error:
        raise ConfigError(f"study {study.study}: {error}") from None


def _temporal_maps(
    study: ComponentsConfig, federation: Federation, subspace: Subspace
) -> np.ndarray:
    """Maps of temporal ICA of public people, over the norm bound; or no maps."""
    K = study.n_components
    if study.ica.independence == "spatial":
        return np.zeros((0, 0))
    values, U = subspace.eigenvalues[:K], subspace.eigenvectors[:, :K]
    first = replace(subspace, eigenvalues=values, eigenvectors=U)
    mechanism = mechanism_of(study, "ica", reference=True)
    rounds = study.ica.max_rounds_exact
    return infomax(federation, mechanism, first, n_rounds=rounds, tol=1e-4).mixing
