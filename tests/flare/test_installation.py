"""What an installation says of itself, for people to paste into a question."""

import json

import pytest

from capeneuro.cli import main
from capeneuro.flare import installation


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def make_ledger(home, name):
    site_file = home / f"{name}.yaml"
    keys = {"name": name, "data": "private", "images": "*.nii.gz", "epsilon": 1}
    site_file.write_text(json.dumps(keys))
    assert main(["ledger", "init", str(site_file)]) == 0
    return home / ".local/share/capeneuro" / name


def test_doctor_shows_the_installation_and_no_names(home, capsys, monkeypatch):
    monkeypatch.chdir(home)
    make_ledger(home, "charity-hospital")
    capsys.readouterr()
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "numpy" in out
    assert "1 whole, 0 releases" in out
    for name in ("charity", str(home)):
        assert name not in out


def test_doctor_finds_a_damaged_ledger_and_an_old_package(home, capsys, monkeypatch):
    folder = make_ledger(home, "north")
    (path,) = folder.glob("*.jsonl")
    path.write_text(path.read_text()[:-9] + "}\n")
    monkeypatch.setattr(installation.metadata, "requires", lambda _: ["numpy>=99"])
    assert main(["doctor"]) == 1
    failed = [x for x in capsys.readouterr().out.splitlines() if "failed" in x[:7]]
    assert len(failed) == 2
    assert "pip install --upgrade 'capeneuro'" in failed[0]
    assert "is damaged" in failed[1]


def test_an_extra_that_is_there_in_part_is_not_installed(home, capsys, monkeypatch):
    """Nobody may have asked for it: its packages are there for something else."""
    lines = ["numpy", "numpy; extra == 'x'", "no-such-package; extra == 'x'"]
    monkeypatch.setattr(installation.metadata, "requires", lambda _: lines)
    extra = [*installation.versions()][-1]
    assert extra.line.split() == ["ok", "extra", "x:", "not", "installed"]
    lines[1] = "numpy>=99; extra == 'x'"
    extra = [*installation.versions()][-1]
    assert extra.failed and "is not numpy>=99" in extra.line
    lines[:] = ["numpy", "no-such-package"]
    (packages,) = installation.versions()
    assert packages.failed and "no-such-package is not installed" in packages.line
