r"""Simulated consortia whose patients differ in how networks go together.

    python -m sim.networks FOLDER [--people N] [--sites S] [--volumes T]

writes a BIDS-like folder a site, ``template.nii.gz`` with 20 named networks in
``template.tsv``, and ``truth/connectivity.tsv``: Fisher's z of each pair of networks in
controls, and what patients have more. Each person's maps lie a few millimetres off the
template's. Then::

    capeneuro init STUDY --kind networks --from FOLDER/site-* \
        --template FOLDER/template.nii.gz --data simulated
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy

from sim.bids import nifti, write_dataset, write_image, write_tsv
from sim.fmri import site_sizes, subject_labels, write_site
from sim.grid import fill_volumes, head_mask_3d, voxel_coordinates
from sim.sources import DEFAULT_20, SOURCES, maps_3d

NETWORKS = tuple(SOURCES[k] for k in DEFAULT_20)
DOMAINS = {
    "visual": ("lateral visual", "posterior visual", "medial visual"),
    "sensorimotor": (
        "post-central",
        "pre-central",
        "left sensorimotor",
        "right sensorimotor",
    ),
    "auditory": ("left auditory", "right auditory"),
    "subcortical": ("caudate", "putamen", "thalamus"),
    "default mode": ("precuneus", "default mode"),
    "control": (
        "left frontal",
        "right frontal",
        "dorsal attention",
        "right frontoparietal",
        "left frontoparietal",
        "bilateral frontal",
    ),
}
# Correlation of networks of one domain, and of two.
WITHIN, BETWEEN = 0.45, 0.1
# Two domains of which patients have less, and by how much (Fisher's z).
LESS, DIFFERENCE = ("default mode", "control"), -0.2
# Spread of a person's Fisher's z about the group's, beside that of a finite scan.
PEOPLE_SD = 0.1
REPETITION_TIME = 2.0


class Connectivity(NamedTuple):
    """Fisher's z of each pair of networks, (R, R)."""

    controls: np.ndarray
    patients: np.ndarray


def domains() -> list[str]:
    """Domain of each network, in the order of the template."""
    domain_of = {name: domain for domain, names in DOMAINS.items() for name in names}
    return [domain_of[network.name] for network in NETWORKS]


def connectivity(difference: float = DIFFERENCE) -> Connectivity:
    """Fisher's z of controls and of patients; zero on the diagonal."""
    of = np.array(domains())
    z = np.arctanh(np.where(of[:, None] == of, WITHIN, BETWEEN))
    np.fill_diagonal(z, 0.0)
    is_less = (of[:, None] == LESS[0]) & (of == LESS[1])
    return Connectivity(z, z + difference * (is_less | is_less.T))


def time_courses(z: np.ndarray, n_volumes: int, rng: np.random.Generator) -> np.ndarray:
    """Draw one person's courses, slow (below .1 Hz) and of unit variance, (R, T)."""
    spread = PEOPLE_SD * rng.standard_normal(z.shape)
    r = np.tanh(z + (np.triu(spread, 1) + np.triu(spread, 1).T))
    np.fill_diagonal(r, 1.0)
    values, vectors = np.linalg.eigh(r)
    root = vectors * np.sqrt(np.maximum(values, 1e-3)) @ vectors.T
    frequency = scipy.fft.rfftfreq(n_volumes, REPETITION_TIME)
    band = (frequency > 0) & (frequency < 0.1)
    white = scipy.fft.rfft(rng.standard_normal((len(z), n_volumes)))
    slow = scipy.fft.irfft(white * band, n_volumes)
    return root @ (slow / slow.std(axis=1, keepdims=True))


def write(
    folder: Path,
    n_people: int,
    n_sites: int,
    n_volumes: int,
    seed: int,
    voxel_size: float = 8.0,
) -> None:
    """Write a consortium; half of the people of each site are patients.

    Parameters
    ----------
    folder
        Gets ``site-1`` and so on, the template and the truth.
    n_people, n_sites
        At all sites together, about as many at each.
    n_volumes
        Of each person, two seconds apart.
    seed
        Fixes the bytes of all files.
    voxel_size
        Edge of the voxels [mm].
    """
    mask, affine = head_mask_3d(voxel_size)
    template = maps_3d(NETWORKS, voxel_coordinates(mask, affine))
    write_image(folder / "template.nii.gz", nifti(fill_volumes(template, mask), affine))
    rows = [
        [str(k + 1), network.name, domain]
        for k, (network, domain) in enumerate(zip(NETWORKS, domains(), strict=True))
    ]
    write_tsv(folder / "template.tsv", ["index", "name", "domain"], rows)
    z = connectivity()
    write_tsv(
        folder / "truth/connectivity.tsv",
        ["network", "other_network", "controls", "patients_less_controls"],
        [
            [
                NETWORKS[i].name,
                NETWORKS[j].name,
                f"{z.controls[i, j]:.4f}",
                f"{z.patients[i, j] - z.controls[i, j]:.4f}",
            ]
            for i, j in zip(*np.triu_indices(len(NETWORKS), 1), strict=True)
        ],
    )
    sizes = site_sizes(n_people, n_sites)
    sites = np.random.default_rng(seed).spawn(n_sites)
    for k, (labels, rng) in enumerate(zip(subject_labels(sizes), sites, strict=True)):
        group = rng.permutation(np.arange(len(labels)) % 2)
        courses = np.array([time_courses(z[g], n_volumes, rng) for g in group])
        place = folder / f"site-{k + 1}"
        write_site(
            place,
            labels,
            courses,
            rng,
            networks=NETWORKS,
            mask=mask,
            affine=affine,
            repetition_time=REPETITION_TIME,
            translation_deviation=3.0,
            spread_deviation=0.15,
        )
        age = np.round(rng.normal(40, 12, len(labels)), 1)
        people = [
            [f"sub-{label}", ("control", "patient")[g], f"{years:.1f}"]
            for label, g, years in zip(labels, group, age, strict=True)
        ]
        header = ["participant_id", "group", "age"]
        write_dataset(place, "Simulated site", header, people)


def main() -> None:
    """Write a simulated consortium of named networks."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--people", type=int, default=120)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--volumes", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    write(options.folder, options.people, options.sites, options.volumes, options.seed)


if __name__ == "__main__":
    main()
