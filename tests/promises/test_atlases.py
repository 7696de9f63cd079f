"""The data package: its table, its checksums, and the wheel made of a folder."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "packaging/atlases"
DATA = Path(os.environ.get("CAPENEURO_DATA", ROOT / "../shared/data")).resolve()
FOLDER = DATA / "networks/A_licence_stated"


@pytest.fixture
def builder(monkeypatch):
    monkeypatch.syspath_prepend(str(SOURCE))
    spec = importlib.util.spec_from_file_location("build_atlases", SOURCE / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_atlas_has_a_source_a_licence_and_checksums(builder):
    atlases = builder.package.atlases()
    assert {"yeo7", "schaefer100", "cc200"} <= set(atlases)
    for row in atlases.values():
        assert all(str(value) for value in row), row
        assert {len(row.sha256), len(row.labels_sha256)} == {64}
        assert row.noncommercial == ("NC" in row.licence)
    assert not (SOURCE / "capeneuro_atlases/data").exists()  # no data in the repository


def test_names_that_no_atlas_has_are_refused_with_the_nearest(builder):
    with pytest.raises(ValueError, match="no atlas is called 'yeo_7'; there is yeo7"):
        builder.package.path("yeo_7")
    with pytest.raises(ValueError, match="'yeo7' is not in this build"):
        builder.package.path("yeo7")


def test_a_folder_without_the_files_or_with_others_makes_no_wheel(builder, tmp_path):
    with pytest.raises(ValueError, match="must be there, is missing"):
        builder.build(tmp_path, tmp_path / "dist")
    for row in builder.package.atlases().values():
        (tmp_path / row.file).write_text("other")
        (tmp_path / row.labels).write_text("other")
    with pytest.raises(ValueError, match="must have the sha256"):
        builder.build(tmp_path, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


TRY = """
import capeneuro_atlases as package
from importlib.metadata import entry_points
point, = entry_points(group="capeneuro.atlases")
assert point.load()("yeo7") == package.path("yeo7")
assert package.labels("yeo7").read_text().startswith("index")
assert package.altered() == []
for name, row in package.atlases().items():
    if not row.noncommercial: package.path(name)
try: package.path("cc200")
except ValueError as error: print(error)
"""


@pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the atlases are not here; set CAPENEURO_DATA"
)
def test_the_wheel_installs_and_its_atlases_are_found(builder, tmp_path):
    wheel = builder.build(FOLDER, tmp_path / "a", commercial=True)
    again = builder.build(FOLDER, tmp_path / "b", commercial=True)
    assert wheel.read_bytes() == again.read_bytes()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index"]
    place = tmp_path / "place"
    subprocess.run([*install, "--target", place, wheel], check=True)
    run = subprocess.run(
        [sys.executable, "-c", TRY],
        env=os.environ | {"PYTHONPATH": str(place)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'cc200' is not in this build" in run.stdout
