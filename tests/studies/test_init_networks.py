"""A study of named networks from folders of images to its report."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import scipy
import yaml
from tiny_study import command

from capeneuro.config import load
from capeneuro.data import files, measures
from capeneuro.report import plots
from capeneuro.studies import init_networks
from sim import networks

CONFIG = "config/config.yaml"
NAMES = [network.name for network in networks.NETWORKS]


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    """Twelve simulated people at three sites, small and short."""
    folder = tmp_path_factory.mktemp("consortium")
    networks.write(folder, 12, 3, 60, seed=1, voxel_size=12.0)
    return folder


@pytest.fixture
def study(consortium, tmp_path, monkeypatch):
    """A study that `init` has written of them, in its folder."""
    sites = [str(consortium / f"site-{k}") for k in (1, 2, 3)]
    template = str(consortium / "template.nii.gz")
    options = ["--kind", "networks", "--template", template, "--data", "simulated"]
    assert command("init", str(tmp_path / "new"), *options, "--from", *sites) == 0
    monkeypatch.chdir(tmp_path / "new")
    return tmp_path / "new"


def edit(key: str, value) -> None:
    """Change a key of the features in the study file."""
    content = yaml.safe_load(Path(CONFIG).read_text())
    content["rows"]["features"][key] = value
    Path(CONFIG).write_text(yaml.safe_dump(content))


def write_states() -> None:
    """Two states that everybody has between, in a public table."""
    z = networks.connectivity().controls
    pairs = measures.pairs(NAMES)
    rows = [
        [name, *(f"{z[pair] + shift:.3f}" for pair in pairs)]
        for name, shift in (("low", -0.1), ("high", 0.1))
    ]
    header = ["state", *measures.pair_names(NAMES)]
    files.write_table(Path("config/states.tsv"), header, rows)


def test_from_folders_to_the_report_by_two_commands(study, capsys):
    write_states()
    edit("measures", ["connectivity", "occupancy", "maps"])
    edit("states", {"file": "config/states.tsv"})
    assert command("run", CONFIG) == 0
    config = load.load_study(CONFIG)
    # Each person's own networks lie at the site, with a line on how good they are.
    private = config.private("site-1")
    rows = files.read_table(private / "networks/quality.tsv")
    assert len(rows) == 4
    fits = np.array([float(row[3]) for row in rows])
    assert ((fits > 0.4) & (fits < 1)).all()
    stem = private / "networks/sub-001/func/sub-001_desc-networks"
    table = files.read_table(Path(f"{stem}_timeseries.tsv"))
    assert np.shape(table) == (60, 20)
    maps = nib.load(f"{stem}_components.nii.gz")
    assert maps.shape[3] == 20
    z = np.array(files.read_table(Path(f"{stem}_relmat.tsv")), float)
    r = np.corrcoef(np.array(table, float).T)
    np.testing.assert_allclose(np.tanh(z)[0, 1], r[0, 1], atol=0.02)
    # Released are means over people, of networks by name.
    names = {row[1] for row in files.read_table(config.results / TABLE)}
    assert {"caudate - putamen", "occupancy of low"} <= names
    assert "thalamus in the map of caudate" in names
    group_maps = nib.load(config.results / "group_desc-networks_components.nii.gz")
    assert group_maps.shape[3] == 20
    text = (config.results / "report.html").read_text()
    assert "State low: people are nearest to it" in text
    assert "thalamus: map of the group" in text
    # Privacy: of a person who is withdrawn nothing stays.
    site = Path("config/sites/site-1.yaml")
    keys = yaml.safe_load(site.read_text())
    site.write_text(yaml.safe_dump(keys | {"without": ["001"]}))
    for step in (["validate", CONFIG], ["prepare", CONFIG, "--site", "site-1"]):
        assert command(*step) == 0
    people = {path.name for path in (private / "networks").glob("sub-*")}
    assert people == {"sub-002", "sub-003", "sub-004"}


TABLE = "group_desc-contrast_table.tsv"


def test_rows_of_people_are_not_taken_for_their_volumes(study, capsys):
    content = yaml.safe_load(Path(CONFIG).read_text())
    content["expected"] = {"people": 12, "volumes": 60}
    Path(CONFIG).write_text(yaml.safe_dump(content))
    assert command("validate", CONFIG) == 0
    assert "half of the people" not in capsys.readouterr().out


def test_degrees_of_freedom_count_the_constants_of_all_sites(study):
    """Else half of studies of so few people named a difference."""
    assert command("run", CONFIG) == 0
    path = load.load_study(CONFIG).results / "group_desc-contrast_effects.npz"
    arrays = files.read_arrays(path)
    assert arrays["degrees"] == 12 - 1 - 3
    table = files.read_table(path.with_name(TABLE))
    _, _, effect, error, low, *_ = next(row for row in table if row[0] != "mean")
    width = (float(effect) - float(low)) / float(error)
    assert width == pytest.approx(scipy.stats.t.isf(0.025, 8), rel=1e-3)
    # Of domains the least p of their pairs, corrected for these and for all domains.
    rows = files.read_table(path.with_name("group_desc-contrast_families.tsv"))
    assert len(rows) == 6 * 7 / 2 and sum(int(row[2]) for row in rows) == 190
    assert {row[5] for row in rows} <= {"above noise", "not above noise"}
    within = next(row for row in rows if row[1] == "visual")
    pairs = ("lateral visual - posterior visual", "lateral visual - medial visual")
    pairs += ("posterior visual - medial visual",)
    least = min(float(row[10]) for row in table if row[0] != "mean" and row[1] in pairs)
    assert float(within[3]) == pytest.approx(min(1, 3 * least), rel=1e-2)
    assert float(within[4]) == pytest.approx(min(1, 21 * 3 * least), rel=1e-2)


def test_a_circle_has_a_line_for_each_pair_that_is_shown():
    values, shown = np.arange(16.0).reshape(4, 4), np.zeros((4, 4), bool)
    shown[0, 2] = shown[2, 0] = shown[1, 3] = shown[3, 1] = True
    figure = plots.connectogram(list("abcd"), ["x", "y", "x", "y"], values, shown)
    curves = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]
    assert len(curves) == 2
    assert "a line for each of 2 pairs" in figure.get_label()


def test_occupancies_are_shares_and_rows_are_read_once(study, monkeypatch):
    write_states()
    edit("measures", ["occupancy"])
    edit("states", {"file": "config/states.tsv"})
    assert command("validate", CONFIG) == 0
    for site in ("site-1", "site-2", "site-3"):
        assert command("prepare", CONFIG, "--site", site) == 0
    config = load.load_study(CONFIG)
    stored = files.Features(config.private("site-1") / "rows.npz")
    x = np.array([stored[name][:, 0] for name in stored])
    np.testing.assert_allclose(((x + 1) / 2).sum(axis=1), 1, atol=1e-6)
    assert command("contrast", CONFIG) == 0
    # What takes seconds a person is not computed twice.
    monkeypatch.setattr(
        "capeneuro.studies.timecourse_features.person_networks", pytest.fail
    )
    assert command("reconstruct", CONFIG, "--site", "site-1") == 0


def test_domains_order_the_matrix_and_means_take_less_noise(study):
    text = Path(CONFIG).read_text()
    assert "column: network" in text and "families: domain" in text
    config = load.load_study(CONFIG)
    domains = measures.domains(config.rows.features.domains, range(1, 21))
    families = measures.families(config.rows.features.domains, domains)
    assert list(domains) == NAMES
    assert list(families) == networks.domains()


def test_networks_of_a_domain_are_drawn_side_by_side():
    square = np.arange(9.0).reshape(3, 3)
    figure = plots.between_networks(
        ["a", "b", "c"], square, square > 7, "size", ["x", "y", "x"], "title"
    )
    (image,) = figure.axes[0].images
    np.testing.assert_array_equal(image.get_array(), square[[0, 2, 1]][:, [0, 2, 1]])
    assert len(figure.axes[0].lines) == 3  # a line each way, and the dots


@pytest.mark.parametrize("courses", ["regressed", "constrained", "gift"])
def test_courses_are_of_the_template_but_gifts(study, courses):
    edit("courses", courses)
    assert command("prepare", CONFIG, "--site", "site-1") == 0
    config = load.load_study(CONFIG)
    people = files.Features(config.private("site-1") / "projected.npz")
    x = people["sub-001"][-190:, 0]
    edit("courses", "regressed")
    edit("measures", ["connectivity", "similarity"])  # by another reader
    assert command("prepare", CONFIG, "--site", "site-1") == 0
    y = files.Features(config.private("site-1") / "projected.npz")["sub-001"]
    r = np.corrcoef(x, y[-210:-20, 0])[0, 1]
    # Where own maps are found, voxels are scaled, and not time courses alone.
    assert {"regressed": r > 0.98, "constrained": r > 0.9999, "gift": r < 0.97}[courses]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("measures", ["connectivity", "occupancy"], "must be given with occupancy"),
        ("measures", ["similarity", "similarity"], "must be measures, each once"),
        ("courses", "fitted", "regressed"),
        (
            "domains",
            {"file": "config/networks.tsv", "column": "domain", "families": "domain"},
            "column, got domain for both; null leaves families out",
        ),
        (
            "domains",
            {"file": "config/networks.tsv", "column": "network", "families": "x"},
            "lacks the columns x",
        ),
    ],
)
def test_keys_that_do_not_fit_are_one_line(study, capsys, key, value, said):
    edit(key, value)
    assert command("validate", CONFIG) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("index\tname\n1\ta\n", "must have a row for each of 20 maps, has 1"),
        ("index\tpeak\n1\ta\n", "with a column name or label"),
        (None, "needs a table of its networks"),
    ],
)
def test_a_template_without_names_is_refused(consortium, tmp_path, table, said, capsys):
    image = tmp_path / "own.nii.gz"
    image.write_bytes((consortium / "template.nii.gz").read_bytes())
    if table is not None:
        (tmp_path / "own.tsv").write_text(table)
    sites = [str(consortium / f"site-{k}") for k in (1, 2)]
    options = ["--kind", "networks", "--template", str(image)]
    new = str(tmp_path / "new")
    assert command("init", new, *options, "--from", *sites) == 2
    assert said in capsys.readouterr().err


def test_groups_of_private_people_go_into_no_file(consortium, tmp_path, capsys):
    sites = [str(consortium / f"site-{k}") for k in (1, 2, 3)]
    template = str(consortium / "template.nii.gz")
    options = ["--kind", "networks", "--template", template]
    new = tmp_path / "new"
    assert command("init", str(new), *options, "--from", *sites) == 0
    text = "".join(path.read_text() for path in new.rglob("*.yaml"))
    assert "control" not in text and "DECIDE: yours" in text
    # Who begins the study sees them, and takes them from the protocol.
    assert "group control, patient" in capsys.readouterr().out


def test_a_contrast_of_runs_is_one_of_networks(consortium, tmp_path, capsys):
    sites = [str(consortium / f"site-{k}") for k in (1, 2, 3)]
    shared = ["--template", str(consortium / "template.nii.gz"), "--from", *sites]
    shared += ["--covariates", "group", "age"]
    for kind in ("contrast", "networks"):
        new = tmp_path / kind / "new"
        assert command("init", str(new), "--kind", kind, *shared) == 0
        assert "mean and deviation, of group, age into" in capsys.readouterr().out
    contrast, networks = (
        (tmp_path / kind / "new" / CONFIG).read_text()
        for kind in ("contrast", "networks")
    )
    assert contrast == networks
    assert "    group: {}  # DECIDE" in contrast and "  primary: group" in contrast
    assert "control" not in contrast


def test_templates_by_name_need_their_package(tmp_path, capsys):
    with pytest.raises(init_networks.ConfigError, match="capeneuro-atlases"):
        init_networks.find_template("smith10")


def test_maps_have_the_names_that_their_index_says(tmp_path):
    image = nib.Nifti1Image(np.ones((3, 3, 3, 3), "f4"), np.eye(4))
    nib.save(image, tmp_path / "t.nii.gz")
    for index in ("0 2 1", "1 3 2"):
        rows = zip(index.split(), "acb", strict=True)
        lines = "".join(f"{k}\t{name}\n" for k, name in rows)
        (tmp_path / "t.tsv").write_text(f"index\tname\n{lines}")
        template = init_networks.find_template(str(tmp_path / "t.nii.gz"))
        assert template.names == ["a", "b", "c"]
    (tmp_path / "t.tsv").write_text("index\tname\n1\ta\n1\tb\n3\tc\n")
    with pytest.raises(init_networks.ConfigError, match="from 1, or from 0, each once"):
        init_networks.find_template(str(tmp_path / "t.nii.gz"))


def test_a_template_elsewhere_is_refused(study, capsys):
    image = nib.load("config/template.nii.gz")
    nib.save(nib.Nifti1Image(image.get_fdata(), np.eye(4)), "config/template.nii.gz")
    assert command("validate", CONFIG) == 2
    assert "is it in the mask's space?" in capsys.readouterr().err


def test_maps_of_means_over_domains_are_refused_at_once(study, capsys):
    edit("measures", ["connectivity", "maps"])
    columns = {"file": "config/networks.tsv", "column": "domain"}
    edit("domains", columns)
    assert command("validate", CONFIG) == 2
    assert "maps needs a network for each map" in capsys.readouterr().err
    # Files of people have the names of maps, not of their domains.
    edit("measures", ["connectivity"])
    assert command("prepare", CONFIG, "--site", "site-1") == 0
    folder = load.load_study(CONFIG).private("site-1") / "networks"
    (table,) = folder.glob("sub-001/func/*_timeseries.tsv")
    assert table.read_text().splitlines()[0].split("\t") == NAMES
    assert (folder / "dataset_description.json").is_file()


def test_names_that_occur_twice_are_told_apart(tmp_path):
    image = nib.Nifti1Image(np.ones((3, 3, 3, 3), "f4"), np.eye(4))
    nib.save(image, tmp_path / "t_3mm.nii.gz")
    (tmp_path / "t.tsv").write_text("name\tdomain\nA\tx\nA\tx\nB\ty\n")
    template = init_networks.find_template(str(tmp_path / "t_3mm.nii.gz"))
    assert template.names == ["A 1", "A 2", "B"]
    assert template.domains == ["x", "x", "y"]
