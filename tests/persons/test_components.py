"""What belongs to each person, in files at the site."""

import json
from functools import partial

import numpy as np
import pytest
from decomposed import R, read

from capeneuro.data import files, nifti
from capeneuro.persons import components, dual_regression
from capeneuro.studies.site_people import SitePeople

WHO = ["subject", "session", "run"]


@pytest.mark.parametrize("t_r", [2.0, None])
def test_people_are_written(site, t_r):
    folder, people, result, grid, mask = site
    people_of_site = SitePeople(folder / "parts", "key", 1, 1, threads=2)
    # Features are divided by the norm bound before the unmixing: one of 2 says so.
    halved = {
        **result,
        "mixing": result["mixing"] / 2,
        "unmixing": result["unmixing"] * 2,
    }
    # A released center of the divided features is taken off first.
    center = np.linspace(-1, 1, grid.n_features)
    files.write_features(
        folder / "projected.npz",
        ((k, (X + 2 * center[:, None]).astype("f4")) for k, X in people.items()),
    )
    about = components.Reconstruction(folder, halved, 2.0, center, grid, mask)
    compute_all = partial(people_of_site.prepared, title="reconstruct")
    found = components.write_people(about, t_r, compute_all)
    about.end(people)
    assert found["n_people"] == 2
    courses = read(folder / "timecourses.tsv")
    assert len(courses) == 60 + 90
    mean = np.zeros((R, R))
    links = read(folder / "connectivity.tsv")
    for row, (name, X) in zip(links, people.items(), strict=True):
        S, own = dual_regression.dual_regression(X, result["mixing"])
        r = np.corrcoef(S)
        mean += r / 2
        assert list(row) == [*WHO, "1-2", "1-3", "2-3"]
        values = [float(row[k]) for k in ("1-2", "1-3", "2-3")]
        np.testing.assert_allclose(values, r[np.triu_indices(R, 1)], atol=1e-4)
        path = folder / components.PERSON.format(name)
        written = nifti.read_maps(path, mask)
        np.testing.assert_allclose(written, grid.synthesis @ own, atol=1e-3)
        sidecar = json.loads(path.with_name(path.name[:-7] + ".json").read_text())
        assert "stays at the site" in sidecar["Private"]
    np.testing.assert_allclose(found["connectivity"], mean, atol=1e-4)
    spectra = read(folder / "spectra.tsv")
    header = "frequency [Hz]" if t_r else "frequency [cycles per volume]"
    assert list(spectra[0])[:5] == [*WHO, header, "component-1"]
    # One length of segment for all, so that means over people exist.
    assert len(spectra) == 2 * (60 // 2 + 1)
    assert max(float(row[header]) for row in spectra) == (0.25 if t_r else 0.5)
    first = np.array([float(row["component-1"]) for row in spectra]).reshape(2, -1)
    np.testing.assert_allclose(found["power"][0], first.mean(axis=0), rtol=1e-4)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_run_that_was_killed_goes_on_at_the_next_person(site, monkeypatch, is_lost):
    folder, people, result, grid, mask = site
    files.write_features(folder / "projected.npz", people.items())
    center = np.zeros(grid.n_features)
    about = components.Reconstruction(folder, result, 1.0, center, grid, mask)
    people_of_site = SitePeople(folder / "parts", "key", 1, 1)
    compute_all = partial(people_of_site.prepared, title="reconstruct")
    write_maps, written = nifti.write_maps, []

    def one_alone(path, *args):
        if written:
            raise MemoryError
        written.append(path)
        write_maps(path, *args)

    with monkeypatch.context() as patch:
        patch.setattr(nifti, "write_maps", one_alone)
        with pytest.raises(MemoryError):
            components.write_people(about, 2.0, compute_all)
    assert not (folder / "timecourses.tsv").exists()  # no half of a table
    stranger = about.path_of("sub-of-before")
    stranger.touch()
    first = written[0].stat().st_mtime_ns
    if is_lost:
        written[0].unlink()
    components.write_people(about, 2.0, compute_all)
    about.end(people)
    paths = [folder / components.PERSON.format(name) for name in people]
    assert (paths[0].stat().st_mtime_ns == first) == (not is_lost)
    words = [path.with_name(path.name[:-7] + ".json") for path in paths]
    # Privacy: nothing of anybody else stays.
    assert {*paths[0].parent.iterdir()} == {*paths, *words}
    assert not stranger.parent.exists()
    assert len(read(folder / "timecourses.tsv")) == 60 + 90
