"""A study of components: what its components are called."""

from pathlib import Path

import numpy as np
from tiny_study import STUDY, command, edit, write_study

from capeneuro.config import load
from capeneuro.data import nifti
from capeneuro.studies import components


def test_components_are_called_at_a_site_that_has_no_files_of_maps(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    words = ["one", "two", "three"]
    rows = [f"{i}\t{name}" for i, name in enumerate(words, 1)]
    Path("data/networks.tsv").write_text("\n".join(["index\tname", *rows]) + "\n")
    atlas = {"file": "data/truth.nii.gz", "labels": "data/networks.tsv"}
    edit(STUDY, "names", [atlas])
    assert command("validate", STUDY) == 0
    study = load.load_study(STUDY)
    mask = nifti.read_mask(study.results / components.MASK)
    truth = nifti.read_maps("data/truth.nii.gz", mask)
    A = nifti.build_basis(study.space, mask).analysis @ truth
    np.savez(study.results / components.UNMIXING, mixing=-A[:, ::-1])
    map_names = components.ComponentsKind(study)._map_names()
    assert [map_name.name for map_name in map_names] == words[: A.shape[1]][::-1]
