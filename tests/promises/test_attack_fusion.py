"""Attacks on the promise of a fusion study, and on those who run one."""

import contextlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from canaries import ALPHA, no_clip
from helpers import in_process, make_mechanism, make_site
from kills import Killed
from tiny_study import begin, command, edit

from capeneuro.algorithms import cca, covariance
from capeneuro.algorithms.cca import NORM_BOUND
from capeneuro.audit import canaries
from capeneuro.config import load
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.study import CENTER_SHARE
from capeneuro.data import files
from capeneuro.federation import mechanism
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.federation.transport import Ungated
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block, people
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import privacy_record
from capeneuro.studies import fusion
from capeneuro.studies import sites as site_files

ONE = np.zeros(1, dtype=int)
STUDY, SIZES = "config.yaml", (20, 25, 30)
DIRECTIONS = Path("results/both") / fusion.DIRECTIONS
# Of one promise, as the two releases share it.
SHARES = (CENTER_SHARE**0.5, (1 - CENTER_SHARE) ** 0.5)


# --- what one person moves -----------------------------------------------------------


def _person(rng: np.random.Generator, D: int) -> np.ndarray:
    """One person's z at a random scale, at times not finite; the constant stays."""
    z = 10.0 ** rng.uniform(-46, 40) * rng.choice([-1, 1, 0.5, 1e-20], D)
    with np.errstate(over="ignore", under="ignore"):
        z = z.astype("f4")
    if rng.random() < 0.1:
        z[rng.integers(D)] = rng.choice([np.nan, np.inf, -np.inf])
    z[-1] = covariance.CONSTANT * NORM_BOUND
    return z[:, None]


@pytest.mark.parametrize("name", ["mean", "second_moment"])
def test_one_person_moves_no_more_than_is_charged(name, rng):
    """Whatever views the person has, and bounds and center the aggregator sends."""
    query, worst = QUERIES[name], 0.0
    for _ in range(1500):
        D = rng.choice([3, 30, 400])
        clip, bound = 10.0 ** rng.choice([-12, 0, 12], 2)
        asked = {"clip": float(clip), "norm_bound": float(bound)}
        if name == "second_moment" and rng.random() < 0.5:
            asked["center"] = 10.0 ** rng.uniform(-45, 6) * rng.choice([-1, 1, 0], D)
        assert query.admits(asked, D)
        a, b = (
            query.total(Block(_person(rng, D), ONE, "subject"), **asked)
            for _ in range(2)
        )
        claimed = query.sensitivity(1, "replace-one", asked)
        worst = max(worst, np.linalg.norm(a - b) / claimed)
    assert 0.9 < worst <= 1


def test_two_samples_of_one_person_never_make_up_for_none_of_another():
    """As many samples as people, but one person would count twice."""
    two, none = np.ones((3, 2), "f4"), np.ones((3, 0), "f4")
    with pytest.raises(ValueError, match="one sample of each"):
        list(people({"a": two, "b": none}, 2, "subject"))


# --- what the whole view of the adversary shows --------------------------------------

# Both views far beyond their clips: in the two worlds z z' are nearly orthogonal.
WORST = (([[900.0]], [[500.0]]), ([[-500.0]], [[900.0]]))


def _transcript(world: int, name: str, arm: str, mu: float) -> tuple[np.ndarray, float]:
    """Both releases of a fusion with new sites and keys; in ``cape`` one colludes."""
    others = cca.stack(np.full((1, 1), 0.3), np.full((1, 1), 0.2))
    sites, n_colluding = [], int(arm == "cape")
    # Without masks no other site takes part in what the one of two worlds sends.
    n_honest = 2 if arm == "cape" else 1
    for s in range(n_honest + n_colluding):
        people = dict.fromkeys((f"{s}-0", f"{s}-1"), others)
        if s == 0:
            people["0-0"] = cca.stack(*map(np.array, WORST[world]))
        ledger = Ledger(None, canaries.CEILING)
        own = people, dict.fromkeys(people, 1), ledger, Limits("simulated")
        sites.append(canaries.Witness(f"s{s}", *own))
    federation = Ungated({site.name: site for site in sites})
    promise = accounting.Budget(
        1.0, canaries.DELTA, "subject", "replace-one", n_colluding
    )
    about = [(name, arm, 1 / (mu * share), promise, 300.0) for share in SHARES]
    first, second = (Mechanism(*one) for one in about)
    center = cca.rough_center(federation, first, 1, 2.0)
    view, _ = canaries.overhear(sites, n_honest, [])
    cca.canonical_directions(federation, second, 1, 1, 1.0, center)
    more, _ = canaries.overhear(sites, n_honest, [])
    entries = sites[0]._ledger.entries()
    claim = accounting.compose(e.mu for e in entries if e.kind == "release")
    return np.concatenate([*view, *more]), claim


def _shown(arm: str, n_pairs: int, mu: float) -> tuple[float, float]:
    """What an attack shows of mu, and what the ledger says."""
    views, claims = ([], []), []
    for i in range(2 * n_pairs):
        view, claim = _transcript(i % 2, str(i), arm, mu)
        views[i % 2].append(view)
        claims.append(claim)
    return canaries.attack(*map(np.array, views), ALPHA), max(claims)


@pytest.fixture
def releases_alone(monkeypatch):
    """What is computed of the releases tells nothing more; attacks do without."""
    monkeypatch.setattr(cca, "from_moment", lambda *_, **__: None)


# Of 600 pairs an attack shows .53 to .73 of mu: a ledger that charges half is found.
@pytest.mark.parametrize(
    ("arm", "n_pairs"),
    [("conventional", 600), pytest.param("cape", 2000, marks=pytest.mark.slow)],
)
def test_an_attack_shows_no_more_than_the_ledger_says(
    fixed_noise, releases_alone, arm, n_pairs
):
    shown, claimed = _shown(arm, n_pairs, 3.0)
    assert claimed == pytest.approx(3.0)
    assert 0.5 * claimed < shown <= claimed


@pytest.mark.parametrize("arm", ["conventional", "cape"])
def test_an_attack_finds_views_that_are_not_clipped(
    fixed_noise, releases_alone, monkeypatch, arm
):
    no_clip(monkeypatch)
    # Who attacks takes totals that are larger than they can honestly be.
    monkeypatch.setattr(mechanism, "largest_total", lambda *_: np.inf)
    # Who is never wrong in 64 pairs shows .69.
    shown, claimed = _shown(arm, 64, 0.5)
    assert shown > claimed


# --- noise as large as the data ------------------------------------------------------


@pytest.mark.parametrize(("N", "noise"), [(2, 4.0), (10, 2.0), (38, 6.0), (200, 40.0)])
def test_no_noise_voids_what_was_paid_for(N, noise, rng):
    """The constant's moment came out negative, the mean infinite, the step failed."""
    for seed in range(8):
        x = rng.standard_normal((6, N)) / 2.5
        z = cca.stack(x, x[:5] + 0.1 * rng.standard_normal((5, N)))
        halves = np.array_split(np.arange(N), 2)
        sites = {
            name: make_site(name, {f"{i}": z[:, [i]] for i in half}, seed=seed)
            for name, half in zip("ab", halves, strict=True)
        }
        federation = in_process(sites)
        how = [make_mechanism("cape", noise_multiplier=noise) for _ in range(2)]
        center = cca.rough_center(federation, how[0], 6, 2.0)
        found = cca.canonical_directions(federation, how[1], 2, 6, 1.0, center)
        told = found.variates[np.isfinite(found.variates)]  # some cannot be told
        assert ((told >= -1) & (told <= 1)).all()
        others = {**vars(found), "variates": told}
        assert all(np.isfinite(value).all() for value in others.values())
        shares = found.correlations, found.null_level
        assert all(((x >= 0) & (x <= 1)).all() for x in map(np.asarray, shares))
        # The mean's own noise, and not that over a constant that noise made small.
        tau = how[1].releases[-1]["noise_deviation"]
        most = 6 * max(tau, 0.05) / covariance.CONSTANT
        assert np.abs(found.mean - center[:-1]).max() < most


# --- a study of tables ---------------------------------------------------------------


def write_tables(kind: str = "simulated") -> None:
    """A study of three sites whose views are tables, in the working directory."""
    rng = np.random.default_rng(1)
    features = {"x": 6, "y": 5}
    for view, D in features.items():
        names = [f"{view}{i}" for i in range(D)]
        Path(f"{view}.txt").write_text("\n".join(names))
        for s, N in enumerate(SIZES):
            X = rng.standard_normal((N, D))
            rows = ([f"sub-{s}p{i}", *row] for i, row in enumerate(X))
            files.write_table(Path(f"{view}-{s}.tsv"), ["participant_id", *names], rows)
    for s in range(len(SIZES)):
        own = {
            "name": f"site-{s}",
            "images": f"x-{s}.tsv",
            "eeg": f"y-{s}.tsv",
            "data": kind,
            "epsilon": 50.0,
            "delta": 1e-5,
            "unit": "subject",
            "ledger": f"private/site-{s}/ledger",
            "seed": 5 if kind == "simulated" else None,
        }
        Path(f"site-{s}.yaml").write_text(yaml.safe_dump(own))
        if kind == "private":
            begin(f"site-{s}.yaml")
    study = {
        "study": "both",
        "source": "made for a test",
        "sites": [f"site-{s}.yaml" for s in range(len(SIZES))],
        "space": None,
        "n_components": 2,
        "arm": "cape",
        "aggregator": "independent",
        "budget": {
            "epsilon": 4.0,
            "delta": 1e-5,
            "unit": "subject",
            "relation": "replace-one",
            "n_colluding": 1,
        },
        "fusion": {
            "fmri": {"kind": "table", "features": "x.txt", "norm_bound": 3.0},
            "eeg": {"kind": "table", "features": "y.txt", "norm_bound": 3.0},
        },
    }
    Path(STUDY).write_text(yaml.safe_dump(study))


def prepare() -> None:
    assert command("validate", STUDY) == 0
    for s in range(len(SIZES)):
        assert command("prepare", STUDY, "--site", f"site-{s}") == 0


def charges() -> list[list[tuple[str, float]]]:
    """Query and mu of every release in each site's ledger."""
    sites = site_files.load_sites(load.load_study(STUDY))
    books = [site_files.open_ledger(site).entries() for site in sites.values()]
    return [[(e.query, e.mu) for e in b if e.kind == "release"] for b in books]


@pytest.fixture
def private(tmp_path, monkeypatch) -> Path:
    """A prepared study of private tables, the working directory; without pages."""
    monkeypatch.chdir(tmp_path)
    write_tables("private")
    empty = SimpleNamespace(render=lambda **_: "")
    with monkeypatch.context() as undrawn:
        undrawn.setattr("capeneuro.report.plots.view_norms", lambda _: None)
        undrawn.setattr(fusion.page, "picture", lambda *_: None)
        undrawn.setattr(fusion.page, "template_of", lambda _: empty)
        prepare()
    return tmp_path


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_killed_fusion_goes_on_and_is_charged_once(private, monkeypatch, before):
    """Killed at every site of both releases: what left never leaves differently."""
    release, left, n_calls = Site.release, {}, 0

    def killed(site: Site, message: dict) -> dict:
        nonlocal n_calls
        n_calls += 1
        if n_calls == at and before:
            raise Killed
        reply = release(site, message)
        key = site.name, message.request.query
        sent = {k: v.tobytes() for k, v in reply.message.items() if k != "signature"}
        assert left.setdefault(key, sent) == sent
        if n_calls == at:
            raise Killed
        return reply

    monkeypatch.setattr(Site, "release", killed)
    n_killed = at = 0
    while at < 2 * len(SIZES):
        at += 1
        n_calls = 0
        try:
            assert command("cca", STUDY) == 0
        except Killed:
            n_killed += 1
    assert n_killed >= len(SIZES)
    at = 0
    assert command("cca", STUDY) == 0
    first = DIRECTIONS.read_bytes()
    assert command("cca", STUDY) == 0
    assert DIRECTIONS.read_bytes() == first
    assert len(left) == 2 * len(SIZES)
    mu = load.load_study(STUDY).promise.mu
    for own in charges():
        assert [query for query, _ in own] == ["mean", "second_moment"]
        assert [m for _, m in own] == pytest.approx([mu * share for share in SHARES])
        assert accounting.compose(m for _, m in own) <= mu * (1 + 1e-12)


def test_only_keys_that_no_release_depends_on_are_free(private):
    assert command("cca", STUDY) == 0
    before = charges()
    free = {"n_components": 3, "fusion.n_directions": 4, "fusion.debias": False}
    for key, value in {**free, "budget.pca_share": 0.2}.items():
        edit(STUDY, key, value)
        assert command("cca", STUDY) == 0
        assert charges() == before, key
    found = files.read_arrays(DIRECTIONS)
    assert found["n_directions"].tolist() == [4, 4] and found["mean"].size == 11
    paid = {"fusion.clip": 0.5, "fusion.center_clip": 1.0, "fusion.center": False}
    paid |= {"fusion.fmri.norm_bound": 4.0, "budget.epsilon": 3.0}
    for key, value in paid.items():
        edit(STUDY, key, value)
        n_before = len(charges()[0])
        prepare()
        assert command("cca", STUDY) == 0
        n_releases = 1 if load.load_study(STUDY).fusion.center is False else 2
        assert [len(own) - n_before for own in charges()] == [n_releases] * 3, key


def test_changed_data_are_another_spend(private, capsys):
    """A promise is kept for people, whatever version of their data was charged."""
    assert command("cca", STUDY) == 0
    before, table = charges(), Path("y-2.tsv")
    table.write_text(_first_cell(table.read_text(), "0.5", 1))
    prepare()
    assert command("cca", STUDY) == 3
    assert "has charged its people for the data as they were" in capsys.readouterr().err
    assert charges() == before
    edit(STUDY, "study", "again")
    prepare()
    assert command("cca", STUDY) == 0
    assert [len(own) for own in charges()] == [4, 4, 4]


def test_a_low_ceiling_of_the_last_site_stops_all_before_the_first(private, capsys):
    for epsilon in (0.5, 3.9):  # the center alone fits under both
        edit("site-2.yaml", "epsilon", epsilon)
        assert command("cca", STUDY) == 3
        assert "site site-2: epsilon: the ceiling is" in capsys.readouterr().err
    assert charges() == [[], [], []]
    edit("site-2.yaml", "epsilon", 4.0)
    assert command("cca", STUDY) == 0


def test_a_floor_between_the_releases_stops_all_before_the_first(private, capsys):
    """The center has more noise than the moment: it was charged in vain."""
    center, moment = load.load_study(STUDY).multipliers.values()
    assert center > 3.0 > moment
    edit("site-2.yaml", "min_noise_multiplier", 3.0)
    assert command("validate", STUDY) == command("cca", STUDY) == 2
    assert "site site-2: min_noise_multiplier: no release" in capsys.readouterr().err
    assert charges() == [[], [], []]
    edit("site-2.yaml", "min_noise_multiplier", moment)
    assert command("cca", STUDY) == 0


def test_private_sites_refuse_what_has_no_privacy(private, capsys):
    for key, value in (
        ("arm", "non-private"),
        ("arm", "pooled"),
        ("score.reference", True),
        ("budget.relation", "zero-out"),
    ):
        content = Path(STUDY).read_text()
        edit(STUDY, key, value)
        assert command("cca", STUDY) == 2
        Path(STUDY).write_text(content)
    assert command("cca", STUDY, "--reference") == 2
    assert "arm without privacy on private data" in capsys.readouterr().err
    edit("site-1.yaml", "seed", 3)
    assert command("cca", STUDY) == 2
    edit("site-1.yaml", "seed", None)
    edit("site-1.yaml", "eeg", "y-0.tsv")
    assert command("check", STUDY) == 2
    told = capsys.readouterr().err
    assert "eeg: must differ between sites, got 'y-0.tsv' again" in told
    edit("site-1.yaml", "eeg", "y-1.tsv")
    assert not DIRECTIONS.exists() and charges() == [[], [], []]


# --- what is released ----------------------------------------------------------------


def test_results_hold_sums_alone_and_say_what_they_cost(private):
    edit(STUDY, "fusion.unmatched", "drop")
    alone = Path("y-1.tsv").read_text().replace("sub-1p3\t", "sub-solo\t")
    Path("y-1.tsv").write_text(alone)
    prepare()
    for step in ("cca", "maps", "score", "report"):
        assert command(step, STUDY) == 0
    assert command("reconstruct", STUDY, "--site", "site-1") == 0
    people = Path("private/site-1/both/variates.tsv").read_text()
    assert "sub-1p4\t" in people and "sub-1p3\t" not in people
    released = [path for path in Path("results").rglob("*") if path.is_file()]
    assert len(released) >= 9
    for path in released:
        content = path.read_bytes()
        for word in (b"sub-", b"solo", b"x-1.tsv", b"private/", str(private).encode()):
            assert word not in content, path
    # Nothing is as long as there are people, and no value is one person's.
    arrays = files.read_arrays(DIRECTIONS)
    assert all(max(x.shape, default=0) < min(SIZES) for x in arrays.values())
    record = json.loads(Path("results/both/privacy.json").read_text())
    assert record["promise"]["has_noise"] and record["promise"]["within_promise"]
    mean, moment = record["releases"]
    for name, N in (("site-0", 20), ("site-1", 24), ("site-2", 30)):
        assert mean["sites"][name]["sensitivity"] == pytest.approx(2 * 2.0 / N)
        assert moment["sites"][name]["sensitivity"] == pytest.approx(2**0.5 / N)
        whole = record["sites"][name]["aggregator_and_colluders"]["gdp"]
        assert whole == pytest.approx(4.0) and whole <= 4.0
    assert [mean["size"], moment["size"]] == [14, 14 * 15 // 2]
    assert arrays["n_units"] == 74


def test_no_path_of_a_montage_is_shared(tmp_path):
    content = yaml.safe_load(
        Path(__file__).parents[2].joinpath("config/linked/study.yaml").read_text()
    )
    content["fusion"]["eeg"]["montage"] = str(tmp_path / "ours.elc")
    shared = privacy_record.shareable(FusionConfig(**content))
    assert shared["fusion"]["eeg"]["montage"] == "ours.elc"
    assert str(tmp_path) not in json.dumps(shared)


# --- bad input: one line, status 2, nothing spent ------------------------------------


def _first_cell(text: str, cell: str, column: int) -> str:
    rows = [row.split("\t") for row in text.splitlines()]
    rows[1][column] = cell
    return "\n".join("\t".join(row) for row in rows) + "\n"


NAMES = ["", "n/a", ".meta", "../a", "a/b", '"a\nb"', "x" * 70_000]
TEXTS = [("a\0b", 0, "not a table"), ('"a\tb"', 0, "line 2: has 8 cells")]
CELLS = ["", "nan", "inf", "1e39", "x", "1,5", "9" * 400]


@pytest.mark.parametrize(
    ("cell", "column", "rule"),
    [(name, 0, "participant_id must be a name") for name in NAMES]
    + [(cell, 1, "must be") for cell in CELLS]
    + TEXTS,
)
def test_odd_cells_are_refused_in_one_line(
    cell, column, rule, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write_tables()
    for table in map(Path, ("x-0.tsv", "y-0.tsv")):
        table.write_text(_first_cell(table.read_text(), cell, column))
    assert command("validate", STUDY) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and rule in lines[0] and len(lines[0]) < 300


@pytest.mark.parametrize("size", ["1e30", "-3e38", "1e-44"])
def test_one_absurd_person_stops_nobody(size, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tables()
    x = Path("x-0.tsv")
    x.write_text(_first_cell(x.read_text(), size, 1))
    prepare()
    assert command("cca", STUDY) == 0
    arrays = files.read_arrays(DIRECTIONS)
    del arrays["variates"]  # some cannot be told
    assert all(np.isfinite(x).all() for x in arrays.values() if x.dtype.kind == "f")


def test_longer_rows_shift_no_columns(tmp_path, monkeypatch, capsys):
    """Pandas takes the ids for an index: people then have names of numbers."""
    monkeypatch.chdir(tmp_path)
    write_tables()
    for table in map(Path, ("x-0.tsv", "y-0.tsv")):
        head, *rows = table.read_text().splitlines()
        table.write_text("\n".join([head, *(row + "\t7" for row in rows)]))
    assert command("validate", STUDY) == 2
    assert "x-0.tsv, line 2: has 8 cells, the header 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("fusion", 5, "fusion: "),
        ("fusion.fmri", {}, "fusion.fmri.kind: required key is missing"),
        ("fusion.fmri.kind", ["table"], "fusion.fmri.kind: must be of maps, table"),
        ("fusion.eeg.kind", "maps", "fusion.eeg.kind: must be of erp, bands, table"),
        ("fusion.fmri.norm_bound", 1e-40, "fusion.fmri.norm_bound: "),
        ("fusion.clip", 1e13, "fusion.clip: "),
        ("fusion.center_clip", 1e-13, "fusion.center_clip: "),
        ("fusion.n_directions", 1, "must be at least n_components 2, got 1"),
        ("n_components", 6, "n_components: must be at most the features"),
        ("budget.unit", "sample", "budget.unit: must be subject"),
        ("space", {"mask": "m.nii", "basis": "voxels"}, "space: must be null"),
        ("fusion.fmri.features", "x-0.tsv", "x-0.tsv: lacks"),
        ("fusion.eeg.features", ".", "is a folder"),
        ("score", {"truth": "truth"}, "score.truth: needs views of maps and erp, got"),
        ("pca", {"norm_bound": 1.0}, "pca: unknown key"),
    ],
)
def test_a_wrong_key_is_one_line_before_data(
    key, value, rule, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write_tables()
    edit(STUDY, key, value)
    assert command("validate", STUDY) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) in (1, 3) and rule in lines[0]


def test_a_site_with_a_mask_of_its_own_is_refused(private, capsys):
    """Nothing in a fusion study would use it."""
    edit("site-1.yaml", "mask", "own.nii.gz")
    assert command("validate", STUDY) == 2
    assert "site-1.yaml: mask: maps of a fusion" in capsys.readouterr().err


def test_features_of_another_plan_are_not_released(private, capsys):
    Path("x.txt").write_text("x0\nx1\nx2")
    assert command("cca", STUDY) == 2
    assert "run `prepare` again" in capsys.readouterr().err
    assert charges() == [[], [], []]


def test_damaged_features_are_named(private, capsys):
    path = Path("private/site-1/both/projected.npz")
    whole = path.read_bytes()
    for damaged in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        assert command("cca", STUDY) == 2
    told = capsys.readouterr().err
    assert told.count("projected.npz: not readable; run `prepare` again") == 3
    assert charges() == [[], [], []]


# --- across processes ----------------------------------------------------------------


@pytest.mark.slow
def test_a_fusion_across_processes_is_the_fusion_in_one(tmp_path):
    pytest.importorskip("nvflare", reason="needs the extra federated")
    import parties

    together = tmp_path / "together"
    together.mkdir()
    with contextlib.chdir(together):
        write_tables()
        edit(STUDY, "federation", "nvflare")
        edit(STUDY, "expected", {"people": 6, "volumes": 12})
        prepare()
        for name in (*parties.SITES, "aggregator"):
            (tmp_path / name / "private").mkdir(parents=True)
            for file in (STUDY, "x.txt", "y.txt"):
                shutil.copy(file, tmp_path / name)
        for name in parties.SITES:
            shutil.copy(f"{name}.yaml", tmp_path / name)
            of_site = shutil.ignore_patterns("ledger")
            to = tmp_path / name / "private" / name
            shutil.copytree(f"private/{name}", to, ignore=of_site)
        assert command("cca", STUDY) == 0
        parties.make_kits(together, parties.free_port())
    parties.join_all(tmp_path)
    kits = together / "kits"
    with contextlib.ExitStack() as stack:
        for name in parties.SITES:
            stack.enter_context(parties.site(tmp_path, kits, name))
        drive = stack.enter_context(parties.aggregate(tmp_path, kits, patience=90))
        assert drive.wait(150) == 0, parties.said(tmp_path / "aggregator")
    assert [parties.n_charged(tmp_path, name) for name in parties.SITES] == [2, 2, 2]
    here, there = (tmp_path / n / DIRECTIONS for n in ("aggregator", "together"))
    assert here.read_bytes() == there.read_bytes()
    for path in (tmp_path / "aggregator").rglob("*"):
        assert not path.is_file() or b"sub-" not in path.read_bytes(), path
