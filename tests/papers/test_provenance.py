"""What cells were made of: a change makes stale what depends on it, nothing else."""

import sys
from pathlib import Path

import pytest
from workflows import ROOT

from papers import grid, provenance, status

TWO = {"uses": "copied.uses", "is apart": "copied.apart"}


@pytest.fixture
def copied(tmp_path, monkeypatch) -> Path:
    """A package with a copy of the CAPE arithmetic, a module that uses it in a function
    by way of another, and one that does not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(provenance, "PACKAGES", ("copied",))
    forget()
    folder = tmp_path / "copied"
    folder.mkdir()
    content = {
        "__init__": "",
        "cape": (ROOT / "capeneuro/privacy/cape.py").read_text(),
        "middle": "def run():\n    from copied import cape\n    return cape.losses\n",
        "uses": "KINDS = {'one': 'copied.middle'}\n",
        "apart": "import math\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from copied import cape\n",
    }
    for name, text in content.items():
        (folder / f"{name}.py").write_text(text)
    yield folder
    forget()
    sys.modules.pop("copied", None)


def forget() -> None:
    """What a new process would not know: digests of files as they were."""
    for cached in (provenance._source, provenance._parsed, provenance._content):
        cached.cache_clear()


def figure(name: str) -> grid.Figure:
    """A figure of two cells, whose data are in a folder."""
    return grid.Figure.model_validate(
        {
            "figure": name.replace(" ", "-"),
            "experiment": "toy",
            "grids": [{"method": ["a"], "n": [10], "seed": [0, 1]}],
            "fixed": {"folder": "data"},
            "scores": ["score"],
            "plot": {"x": "n", "y": "score", "line": "method"},
        }
    )


def finish(name: str) -> None:
    for cell in grid.cells(figure(name)):
        with provenance.files_of(cell.options["folder"]) as data:
            score = float(Path("data/people.txt").read_text()) + cell.axes["seed"]
        made = provenance.made_of(TWO[name], data)
        grid.write_cell(cell, [{"score": score}], 30.0, made)


def states() -> dict[str, set[str]]:
    forget()
    return {
        name: {seen.state for seen in status.look(figure(name), module)}
        for name, module in TWO.items()
    }


def test_a_changed_line_of_cape_makes_exactly_its_dependants_stale(copied):
    Path("data").mkdir()
    Path("data/people.txt").write_text("3")
    Path("data/others.txt").write_text("4")
    for name in TWO:
        finish(name)
    fresh = {"uses": {"finished"}, "is apart": {"finished"}}
    assert states() == fresh

    cape = copied / "cape.py"
    before = cape.read_text()
    words = before.replace('"""Privacy loss mu of one', '"""The loss mu of one')
    words = words.replace("# Sherman", "# By Sherman").replace("\n\n\n", "\n\n")
    assert len(words) < len(before)
    cape.write_text(words)
    assert states() == fresh

    line = "square = free / gamma + hidden**2"
    assert line in before
    cape.write_text(before.replace(line, "square = free / gamma + hidden**3"))
    assert states() == {"uses": {"stale"}, "is apart": {"finished"}}
    (seen, _) = status.look(figure("uses"), TWO["uses"])
    assert seen.changed == ["copied.cape"]
    assert status.minutes_left(figure("uses"), [seen]) == 0.5

    cape.write_text(before)
    Path("data/others.txt").write_text("5")  # no cell read it
    assert states() == fresh
    Path("data/people.txt").write_text("6")
    assert states() == {"uses": {"stale"}, "is apart": {"stale"}}
    Path("data/people.txt").unlink()  # not here, so it cannot be compared
    assert states() == fresh


def test_what_is_kept_says_of_which_code_and_settings_it_is(copied, monkeypatch):
    monkeypatch.setattr(status, "RESULTS", Path("kept"))
    monkeypatch.setattr(status, "MADE_OF", Path("kept/made_of.tsv"))
    Path("data").mkdir()
    Path("data/people.txt").write_text("3")
    (name, module), _ = TWO.items()
    finish(name)
    told = status.line(figure(name), module)
    assert told == ["uses", "2", "2", "0", "0", "0.0", "not recorded"]
    status.record(figure(name), module)
    assert status.line(figure(name), module)[-1] == "current"
    assert (
        Path("kept/uses.tsv").read_text().splitlines()[1].endswith("3.5\t3\t4\t2\t0.5")
    )
    other = figure(name).model_copy(update={"fixed": {"folder": "data", "x": 1}})
    # Its cells have yet to run; the time is that of those which were recorded.
    assert status.line(other, module)[2:] == ["0", "0", "2", "1.0", "other settings"]
    (copied / "middle.py").write_text("def run():\n    return 1\n")
    forget()
    assert status.line(figure(name), module)[3:] == ["2", "0", "1.0", "older code"]


def test_the_wording_of_errors_makes_no_number_stale():
    for module in ("papers.cells.pca", "papers.cells.cca", "papers.cells.regression"):
        found = provenance.code(module)
        assert "capeneuro.privacy.cape" in found
        assert not provenance.WORDS & found.keys()
        assert all(map(provenance._source, provenance.WORDS))
