"""People of a site who are prepared by several jobs of a cluster."""

import numpy as np
import pytest
from tiny_study import STUDY, command

from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.studies.site_people import SitePeople, parse_part

SOURCES = {f"sub-{k}": k for k in range(5)}


def prepare(name: str, source: int):
    """Features in Fortran's order, which what is released depends on, and notes."""
    X = np.asfortranarray(np.full((3, 2), source, np.float32))
    return X, [name, np.nan if source == 0 else source / 3]


def everybody(people: SitePeople, function=prepare) -> list:
    return list(people.prepared(people.share(SOURCES), function, "prepare"))


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
    path = people._path("sub-1")
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


def test_a_site_in_parts_has_the_features_and_page_of_one_job(tiny):
    assert command("validate", STUDY) == 0
    assert command("prepare", STUDY, "--site", "site-0") == 0
    study = load.load_study(STUDY)
    folder = study.private("site-0")
    whole = [(folder / name).read_bytes() for name in ("projected.npz", "qc.html")]
    for part in ("1/2", "2/2"):
        assert command("prepare", STUDY, "--site", "site-0", "--part", part) == 0
    assert len(list((folder / "parts").glob("*.npz"))) == len(
        files.Features(folder / "projected.npz")
    )
    (folder / "projected.npz").unlink()
    assert command("prepare", STUDY, "--site", "site-0") == 0
    assert whole == [
        (folder / name).read_bytes() for name in ("projected.npz", "qc.html")
    ]
    assert not (folder / "parts").exists()
