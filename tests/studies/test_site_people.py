"""People of a site who are prepared by several jobs of a cluster."""

import numpy as np
import pytest
from tiny_study import STUDY, command, edit, run_path, run_steps

from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.data import files, nifti
from capeneuro.studies import site_people
from capeneuro.studies.site_people import SitePeople, parse_part

SOURCES = {f"sub-{k}": k for k in range(5)}


def prepare(name: str, source: int):
    """Features in Fortran's order, which what is released depends on, and notes."""
    X = np.asfortranarray(np.full((3, 2), source, np.float32))
    return X, [name, np.nan if source == 0 else source / 3]


def everybody(people: SitePeople, function=prepare, sources=SOURCES) -> list:
    return list(people.prepared(people.share(sources), function, "prepare"))


def same(a, b) -> bool:
    return all(
        x[0] == y[0] and x[1].tobytes("A") == y[1].tobytes("A") and repr(x) == repr(y)
        for x, y in zip(a, b, strict=True)
    )


def test_parts_gather_to_the_same_people_in_their_order(tmp_path):
    direct = everybody(SitePeople())
    for part in (2, 1):
        people = SitePeople(tmp_path / "parts", "key", part, 2)
        people.store(people.share(SOURCES), prepare, "prepare")
        people.end()
    assert (tmp_path / "parts/part-1-of-2").is_file()
    gather = SitePeople(tmp_path / "parts", "key")
    assert same(everybody(gather, pytest.fail), direct)
    gather.end()
    assert not (tmp_path / "parts").exists()


def test_a_killed_part_goes_on_at_the_next_person_and_mends_half_a_file(tmp_path):
    people, done = SitePeople(tmp_path, "key", 1, 1), []

    def killed(name, source):
        if source == 3:
            raise KeyboardInterrupt
        done.append(name)
        return prepare(name, source)

    with pytest.raises(KeyboardInterrupt):
        people.store(SOURCES, killed, "prepare")
    assert done == ["sub-0", "sub-1", "sub-2"]
    path = people._path("key", "sub-1")
    content = path.read_bytes()
    path.write_bytes(content[:150] + b"\0" * 20 + content[170:])
    again = []

    def goes_on(name, source):
        again.append(name)
        return prepare(name, source)

    people.store(SOURCES, goes_on, "prepare")
    assert sorted(again) == ["sub-1", "sub-3", "sub-4"]
    assert same(
        everybody(SitePeople(tmp_path, "key"), pytest.fail), everybody(SitePeople())
    )
    # Privacy: what was made of other data or keys is not read.
    with pytest.raises(pytest.fail.Exception):
        everybody(SitePeople(tmp_path, "another"), lambda *_: pytest.fail("anew"))


@pytest.mark.parametrize("text", ["3", "0/2", "3/2", "a/b", "1/2/3"])
def test_a_part_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match="--part: must be one of several"):
        parse_part(text)


def test_a_person_who_comes_or_goes_costs_nobody_elses_time(tmp_path, monkeypatch):
    monkeypatch.setattr(site_people, "SLOW", -1.0)
    folder = tmp_path / "people"

    def gather(sources, key="whole", key_without_people=lambda: "keys") -> int:
        """Number of people who were prepared anew."""
        anew = []

        def noted(name, source):
            anew.append(name)
            return prepare(name, source)

        job = SitePeople(folder, key, key_without_people=key_without_people)
        found = [*job.prepared(sources, noted, "prepare", state_of=str)]
        assert same(found, everybody(SitePeople(), sources=sources))
        job.end()
        return len(anew)

    assert gather(SOURCES) == len(SOURCES)
    assert gather(SOURCES, "another list of people") == 0
    assert gather(SOURCES | {"sub-9": 9}) == 1
    assert gather(SOURCES | {"sub-9": 8}) == 1  # another file of one person
    assert gather({"sub-1": 1, "sub-3": 3}) == 0
    # Privacy: of people who are withdrawn nothing stays.
    assert len([*folder.iterdir()]) == 2
    assert gather(SOURCES, key_without_people=lambda: "other keys") == len(SOURCES)
    # Large features, or those that took no time, are not kept a second time.
    monkeypatch.setattr(site_people, "LARGEST_KEPT", 1)
    gather(SOURCES)
    assert not folder.exists()


def test_a_site_in_parts_has_the_features_and_page_of_one_job(tiny):
    assert command("validate", STUDY) == 0
    assert command("prepare", STUDY, "--site", "site-0") == 0
    study = load.load_study(STUDY)
    folder = study.private("site-0")
    whole = [(folder / name).read_bytes() for name in ("projected.npz", "qc.html")]
    for part in ("1/2", "2/2"):
        assert command("prepare", STUDY, "--site", "site-0", "--part", part) == 0
    people = files.Features(folder / "projected.npz")
    kept = {*(folder / "prepare-people").glob("*.npz")}
    assert len(kept) == len(people) == 2
    (folder / "projected.npz").unlink()
    assert command("prepare", STUDY, "--site", "site-0") == 0
    assert whole == [
        (folder / name).read_bytes() for name in ("projected.npz", "qc.html")
    ]
    assert {*(folder / "prepare-people").iterdir()} == kept  # small ones stay


def test_a_person_is_prepared_anew_only_where_own_files_or_keys_change(
    tiny, monkeypatch
):
    assert command("validate", STUDY) == 0
    monkeypatch.setattr(site_people, "SLOW", -1.0)
    features, read = nifti.RunReader.features, []

    def noted(self, run, *args):
        read.append(run.name.split("_")[0])
        return features(self, run, *args)

    def prepared(**keys) -> list[str]:
        read.clear()
        for key, value in keys.items():
            edit("site-0.yaml", key, value)
        assert command("prepare", STUDY, "--site", "site-0") == 0
        return sorted(read)

    monkeypatch.setattr(nifti.RunReader, "features", noted)
    assert prepared() == ["sub-00", "sub-01"]
    assert prepared() == []
    folder = load.load_study(STUDY).private("site-0")
    whole = (folder / "projected.npz").read_bytes()
    kept = {*(folder / "prepare-people").iterdir()}
    assert prepared(without=["sub-01"]) == []
    # Privacy: of a person who is withdrawn nothing stays.
    assert list(files.Features(folder / "projected.npz")) == ["sub-00"]
    assert len({*(folder / "prepare-people").iterdir()} & kept) == 1
    assert prepared(without=[]) == ["sub-01"]
    derivatives = {"derivatives": "data/site-0", "desc": []}
    both = ["sub-00", "sub-01"]
    assert prepared(images=derivatives) == both  # other images, as far as keys tell
    assert prepared(images={**derivatives, "without": ["01"]}) == []
    assert prepared(images={**derivatives, "without": []}) == ["sub-01"]
    assert prepared(images="data/site-0") == both
    assert (folder / "projected.npz").read_bytes() == whole
    run_path(0, 0).touch()
    assert prepared() == ["sub-00"]
    # A constant of all people's features.
    edit(STUDY, "cleaning", {"standardize": "none"})
    assert prepared() == ["sub-00", "sub-01"]


def test_maps_by_parts_are_the_files_of_one_job(tiny):
    run_steps("validate", "plan", "prepare", "pca", "ica", n_sites=3)
    one = "reconstruct", STUDY, "--site", "site-0"
    assert command(*one) == 0
    folder = load.load_study(STUDY).private("site-0")
    whole = written_of(folder)
    assert len(whole) == 2 * 2 + 4  # maps with words beside them, tables, page
    for path in whole:
        (folder / path).unlink()
    for part in ("2/2", "1/2"):
        assert command(*one, "--part", part) == 0
    assert not written_of(folder)
    first = [path.stat().st_mtime_ns for path in folder.glob("unf*/*.nii.gz")]
    assert len(first) == 2
    assert command(*one) == 0
    assert written_of(folder) == whole
    now = [path.stat().st_mtime_ns for path in folder.glob("dual*/*.nii.gz")]
    assert sorted(now) == sorted(first)  # moved, not written again
    assert not (folder / "reconstruct-people").exists()


def written_of(folder) -> dict[str, bytes]:
    patterns = "dualregression/*", "*.html", "timecourses.tsv", "spectra.tsv"
    paths = [p for pattern in (*patterns, "connect*.tsv") for p in folder.glob(pattern)]
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths if p.stem != "qc"}
