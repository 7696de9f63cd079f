"""Questions to a released second moment, of components and of patterns."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kinds import write_kind
from parties import SITES
from parties import STUDY as KIND_STUDY
from tiny_study import STUDY, command, edit, run_steps, write_image

from capeneuro import linalg
from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.data.tables import open_table
from capeneuro.privacy import noise
from capeneuro.studies import ask, ask_moments


def run_components(name: str, **keys: object) -> Path:
    """Results of the tiny study under a name, with the same draws of noise."""
    edit(STUDY, "study", name)
    edit(STUDY, "ica.independence", "spatial")
    for key, value in keys.items():
        edit(STUDY, key.replace("__", "."), value)
    noise.os = SimpleNamespace(urandom=np.random.default_rng(5).bytes)
    run_steps("validate", "prepare")
    for step in ("pca", "ica"):
        assert command(step, STUDY) == 0
    return Path("results") / name


def ledgers() -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path().rglob("ledger.jsonl")}


@pytest.mark.parametrize("arm", ["non-private", "cape"])
def test_another_number_of_components_is_that_of_a_study_with_it(tiny, arm):
    few = run_components("few", arm=arm, n_components=3)
    many = run_components("many", arm=arm, n_components=6)
    before = ledgers()
    alone = tiny / "alone"
    shutil.copytree(few, alone)
    shutil.rmtree(few)
    path, reply = ask.answered(alone, "components=6")
    ours = files.read_arrays(path.with_suffix(".npz"))
    theirs = files.read_arrays(many / ask_moments.UNMIXING)
    bound = 10.0
    np.testing.assert_allclose(ours["mixing"], bound * theirs["mixing"], rtol=1e-6)
    subspace = files.read_arrays(many / ask_moments.SUBSPACE)
    assert (subspace["noise_deviation"] > 0) == (arm == "cape")
    values = [float(row[1]) for row in reply.rows if row[0].startswith("direction")]
    np.testing.assert_allclose(values, subspace["spectrum"][:6], rtol=1e-3)
    assert ledgers() == before
    own = files.read_arrays(ask.answered(alone, "components=3")[0].with_suffix(".npz"))
    study = files.read_arrays(alone / ask_moments.UNMIXING)
    np.testing.assert_allclose(own["mixing"], bound * study["mixing"], rtol=1e-6)


def test_correlations_are_those_of_the_data(tiny):
    """Without privacy: of all volumes, each person's with the same weight."""
    folder = run_components("exact", arm="non-private")
    people = [
        X[name] / np.sqrt(X[name].shape[1])
        for i in range(3)
        for X in [files.Features(Path(f"private/site-{i}/exact/projected.npz"))]
        for name in X
    ]
    C = sum(X @ X.T for X in people) / len(people)
    s = np.sqrt(np.diag(C))
    r = C / np.outer(s, s)
    table = table_of(folder, "connectivity")
    assert len(table) == 27 * 26 // 2
    place = {f"grid {k + 1}": k for k in range(27)}
    i, j = (table[c].map(place).to_numpy() for c in ("feature", "with"))
    np.testing.assert_allclose(table["correlation"], r[i, j], atol=1e-5)
    assert set(table["verdict"]) == {"not tested"}
    seed = table_of(folder, "seed = grid 4").set_index("with")["correlation"]
    np.testing.assert_allclose(seed[[*place][5:9]], r[3, 5:9], atol=1e-5)
    strength = table_of(folder, "strength").set_index("feature")["strength"]
    np.testing.assert_allclose(strength[[*place]], r.sum(axis=1) - 1, atol=1e-4)


def test_unions_are_those_of_a_study_with_larger_parcels(tiny):
    """Cubes of two edges: eight small ones, with their voxels, are a large one."""
    small = run_components("small", arm="non-private", space__grid_size=2)
    large = run_components("large", arm="non-private", space__grid_size=4)
    cubes = [(x, y, z) for x in range(3) for y in range(3) for z in range(3)]
    union = {
        c: f"grid {1 + sum(k // 2 * 2 ** (2 - i) for i, k in enumerate(c))}"
        for c in cubes
    }
    rows = [[f"grid {k + 1}", union[c]] for k, c in enumerate(cubes)]
    files.write_table(Path("unions.tsv"), ["feature", "union"], rows)
    pairs = ["feature", "with"]
    ours = table_of(small, "merge=unions.tsv").set_index(pairs)["correlation"]
    theirs = table_of(large, "connectivity").set_index(pairs)["correlation"]
    assert len(ours) == len(theirs) == 28
    for (a, b), r in theirs.items():
        value = ours[a, b] if (a, b) in ours.index else ours[b, a]
        assert value == pytest.approx(r, abs=1e-4)


def test_parcels_have_their_public_names_and_sizes(tiny):
    """Of an atlas, parcels of unlike size by the names that the study gives them."""
    volume = np.ones((6, 6, 6))
    volume[3:], volume[:, 3:] = 4, 7
    write_image(Path("data/atlas.nii.gz"), volume)
    rows = [[1, "front", "A"], [4, "back", "B"]]
    files.write_table(Path("names.tsv"), ["index", "name", "network"], rows)
    edit(STUDY, "names", [{"file": "data/atlas.nii.gz", "labels": "names.tsv"}])
    edit(STUDY, "score.truth", None)
    folder = run_components(
        "atlas",
        arm="non-private",
        n_components=2,
        space__basis="atlas",
        space__basis_file="data/atlas.nii.gz",
    )
    table = table_of(folder, "seed=front, A")
    assert set(table["with"]) == {"back, B", "atlas 7"}
    sizes = files.read_arrays(folder / ask_moments.SUBSPACE)["feature_sizes"]
    assert sizes.tolist() == [54, 54, 108]


def table_of(folder: Path, question: str):
    return open_table(ask.answered(folder, question)[0])


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("components=0", "from 1 to 27"),
        ("components=28", "from 1 to 27"),
        ("components", "must be one of components=20"),
        ("~ age", "must be one of components=20"),
        ("partial=3", "must be one of components=20"),
        ("seed=grid 99", "did you mean 'grid 9'?"),
        ("merge=nothing.tsv", "nothing.tsv"),
        ("merge=twice.tsv", "grid 1 again"),
        ("merge=alone.tsv", "two unions at least"),
        ("merge=wrong.tsv", "lacks the columns union"),
    ],
)
def test_bad_questions_are_one_line(released, capsys, question, why):
    assert command("ask", str(released), question) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
    assert not (released / "answers").exists()


@pytest.fixture(scope="module")
def small_release(tmp_path_factory) -> Path:
    """The file of a subspace of 27 features, whose release has noise."""
    folder, rng = tmp_path_factory.mktemp("released"), np.random.default_rng(1)
    A = rng.standard_normal((27, 200))
    A[:9] += 2 * rng.standard_normal(200)
    C, E = A @ A.T / 200, rng.standard_normal((27, 27))
    C = C / np.trace(C) + 1e-3 * (E + E.T)
    names = [f"grid {k + 1}" for k in range(27)]
    kept = ask_moments.arrays_to_keep(names, np.ones(27), np.ones(27))
    files.write_arrays(
        folder / ask_moments.SUBSPACE,
        noise_deviation=2e-3,
        n_units=100,
        norm_bound=1.0,
        center=np.zeros(27),
        moment=linalg.pack_symmetric(C),
        positions=np.argwhere(np.ones((3, 3, 3))),
        n_samples=100.0,
        center_deviation=0.0,
        releases="[]",
        **kept,
    )
    return folder


@pytest.fixture
def released(small_release, tmp_path, monkeypatch) -> Path:
    """A copy of it, and tables of unions."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small_release, "results")
    head = ["feature", "union"]
    files.write_table(Path("twice.tsv"), head, [["grid 1", "a"], ["grid 1", "b"]])
    files.write_table(Path("alone.tsv"), head, [["grid 1", "a"], ["grid 2", "a"]])
    files.write_table(Path("wrong.tsv"), ["feature", "name"], [["grid 1", "a"]])
    return Path("results")


@pytest.mark.parametrize(
    "question", ["connectivity", "partial", "seed=grid 2", "strength", "components=4"]
)
def test_each_question_has_lines_a_table_and_a_page(released, capsys, question):
    assert command("ask", str(released), question) == 0
    out = capsys.readouterr().out
    assert "no privacy was spent" in out
    (page,), (table,) = released.glob("answers/*.html"), released.glob("answers/*.tsv")
    assert page.read_text().count("<img") >= 1
    assert len(open_table(table)) >= 8
    if question == "partial":
        assert "times the mean energy" in out
    if question.startswith(("connectivity", "seed")):
        assert "noise of privacy alone" in out
        table = open_table(table).set_index("with")
        assert "above noise" in set(table["verdict"])


def test_where_noise_hides_everything_there_is_no_estimate(released, capsys):
    arrays = files.read_arrays(released / ask_moments.SUBSPACE)
    arrays["noise_deviation"] = 1.0
    files.write_arrays(released / ask_moments.SUBSPACE, **arrays)
    for question in ("connectivity", "strength"):
        assert command("ask", str(released), question) == 0
        assert "are not estimable" in capsys.readouterr().out
        table = open_table(released / f"answers/{ask.stem_of(question)}.tsv")
        assert set(table["verdict"]) == {"cannot be told"}


def test_results_without_a_moment_say_why(tiny):
    folder = run_components("power", arm="non-private", pca__method="power")
    with pytest.raises(ConfigError, match="power iteration"):
        ask.answered(folder, "connectivity")
    arrays = files.read_arrays(folder / ask_moments.SUBSPACE)
    files.write_arrays(folder / ask_moments.SUBSPACE, posterior=np.ones(3), **arrays)
    with pytest.raises(ConfigError, match="public prior"):
        ask.answered(folder, "connectivity")


def test_nothing_is_kept_of_very_many_features():
    n = ask.MOST_KEPT + 1
    assert not ask_moments.arrays_to_keep([], np.ones(n), np.ones(n))


def test_patterns_answer_too(tmp_path, monkeypatch):
    write_kind(tmp_path / "root", "patterns", "in-process")
    monkeypatch.chdir(tmp_path / "root/together")
    results = {}
    for site in SITES:
        edit(f"{site}.yaml", "epsilon", 200.0)
        edit(f"{site}.yaml", "seed", None)  # would make each study's noise its own
    for name, K in (("two", 2), ("four", 4)):
        edit(KIND_STUDY, "study", name)
        edit(KIND_STUDY, "n_components", K)
        noise.os = SimpleNamespace(urandom=np.random.default_rng(5).bytes)
        assert command("validate", KIND_STUDY) == 0
        for site in SITES:
            assert command("prepare", KIND_STUDY, "--site", site) == 0
        assert command("patterns", KIND_STUDY) == 0
        assert command("maps", KIND_STUDY) == 0
        results[name] = Path(f"results/{name}")
    path, _ = ask.answered(results["two"], "components=4")
    ours = files.read_arrays(path.with_suffix(".npz"))["mixing"]
    theirs = open_table(results["four"] / "group_desc-pattern_components.tsv")
    np.testing.assert_allclose(ours, theirs.iloc[:, 1:5], rtol=1e-4, atol=1e-5)
    table = table_of(results["two"], "seed=score_0")
    assert set(table["with"]) == {f"score_{k}" for k in range(1, 6)}
    assert (table["low_of_all"] <= table["low"]).all()
