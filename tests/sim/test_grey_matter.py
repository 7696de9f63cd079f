"""Simulated grey matter lacks what it claims, in the regions that it claims."""

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from sim import grey_matter


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("maps")
    grey_matter.write(folder, 80, 2, seed=3)
    return folder


def means_of_regions(folder) -> tuple[pd.DataFrame, np.ndarray]:
    """People of all sites, and the mean of each region of each of them."""
    labels = np.asarray(nib.load(folder / "regions.nii.gz").dataobj)
    tables, rows = [], []
    for k in (1, 2):
        place = folder / f"site-{k}"
        table = pd.read_csv(place / "participants.tsv", sep="\t").assign(site=k)
        tables.append(table)
        for name in table.participant_id:
            image = nib.load(place / f"{name}/anat/{name}_label-GM_statmap.nii.gz")
            share = image.get_fdata()
            rows.append([share[labels == j].mean() for j in range(1, labels.max() + 1)])
    return pd.concat(tables), np.array(rows)


def test_patients_lack_grey_matter_in_some_regions(folder):
    people, Y = means_of_regions(folder)
    names = pd.read_csv(folder / "regions.tsv", sep="\t").name
    assert list(names) == [*grey_matter.places()] and Y.shape == (80, len(names))
    X = np.column_stack(
        [people.group == "patient", (people.age - 45) / 10, people.sex == "M"]
        + [people.site == k for k in (1, 2)]
    ).astype(float)
    lost = -np.linalg.lstsq(X, Y, rcond=None)[0] / Y.mean(axis=0)
    is_medial = names.str.endswith("medial temporal").to_numpy()
    assert lost[0, is_medial].mean() == pytest.approx(0.06, abs=0.025)
    others = ~names.str.contains("temporal").to_numpy()
    assert lost[0, others].mean() == pytest.approx(0, abs=0.025)
    assert lost[1].mean() == pytest.approx(grey_matter.AGE, abs=0.015)
    assert Y.min() > 0.4 and Y.max() < 0.9


def test_a_seed_gives_the_same_bytes(folder, tmp_path):
    grey_matter.write(tmp_path, 80, 2, seed=3)
    for path in ("site-2/sub-080/anat/sub-080_label-GM_statmap.nii.gz", "mask.nii.gz"):
        assert (tmp_path / path).read_bytes() == (folder / path).read_bytes()
