"""Attacks on the promise of studies of rows, and on those who run one."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from canaries import ALPHA, no_clip
from kills import Killed
from tiny_study import ACCEPT, begin, command, edit

from capeneuro.algorithms import tensors
from capeneuro.audit import canaries
from capeneuro.config import load
from capeneuro.data import files
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.federation.transport import Ungated
from capeneuro.notebook.estimators import PrivateRegressor
from capeneuro.privacy import accounting
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.moments import third_moment
from capeneuro.privacy.queries import QUERIES
from capeneuro.studies import registry
from capeneuro.studies import sites as site_files

STUDY, SIZES, D = "config.yaml", (20, 25, 30), 4
ONE = np.zeros(1, dtype=int)
NAMES = [f"x{i}" for i in range(D)]
BLOCKS = {
    "mixture": {"n_components": 2, "tensors": {}},
    "topics": {"n_components": 2, "tensors": {"model": "topics"}},
    "patterns": {"n_components": 2, "patterns": {}},
    "linear": {"regression": {"target": "y", "bounds": [-1.0, 1.0]}},
    "logistic": {"regression": {"target": "g", "bounds": [0, 1], "task": "logistic"}},
    "network": {
        "network": {"target": "g", "bounds": [0, 1], "n_rounds": 3, "n_hidden": 4}
    },
}
# The step over all sites, and what it asks for.
STEPS = dict.fromkeys(("mixture", "topics"), "tensors")
STEPS |= {"patterns": "patterns"}
STEPS |= {"linear": "regression", "logistic": "regression", "network": "network"}
N_RELEASES = {
    "mixture": 3,
    "topics": 2,
    "patterns": 1,
    "linear": 1,
    "logistic": 1,
    "network": 4,
}


# --- what one person moves -----------------------------------------------------------


def _wild(rng: np.random.Generator, n_rows: int) -> np.ndarray:
    """One column at a random scale, at times not finite."""
    with np.errstate(over="ignore", under="ignore"):
        x = 10.0 ** rng.uniform(-46, 39) * rng.choice([-1, 1, 0.5, 1e-20, 0], n_rows)
        if rng.random() < 0.5:
            x = 10.0 ** rng.uniform(-3, 3) * rng.standard_normal(n_rows)
        x = x.astype("f4")[:, None]
    if rng.random() < 0.1:
        x[rng.integers(n_rows)] = rng.choice([np.nan, np.inf, -np.inf])
    return x


def _counts(rng: np.random.Generator, n_rows: int) -> np.ndarray:
    """One document: few words, huge counts, or none at all."""
    c = rng.integers(0, 4, (n_rows, 1)).astype("f4")
    kind = rng.integers(4)
    if kind == 0:
        c[:] = 0
        c[rng.integers(n_rows)] = rng.choice([3, 2**24, 2**24 + 2, 1])
    elif kind == 1:
        c[:] = 2**24
    elif kind == 2:
        c = _wild(rng, n_rows)
    return c


def _asked(name: str, rng: np.random.Generator, n_rows: int) -> dict:
    """Parameters that a site admits, up to their limits."""
    asked = {"clip": float(10.0 ** rng.choice([-12, 0, 12]))}
    if name.endswith("third_moment"):
        S = rng.standard_normal((n_rows, n_rows)) * 10.0 ** rng.uniform(-8, 5)
        S = np.eye(n_rows) * 10.0 ** rng.uniform(-9, 6) if rng.random() < 0.5 else S
        asked["covariance"] = np.clip((S + S.T) / 2, -1e6, 1e6)
    if name == "whitened_word_triples":
        Q = rng.choice([-1, 1, 0, 0.3], (n_rows, rng.integers(1, n_rows + 1)))
        with np.errstate(under="ignore"):
            asked["Q"] = (Q * 10.0 ** rng.uniform(-45, 5.9)).astype("f4")
    if name in ("network_gradient", "log_odds_counts"):
        size = 3 * n_rows + 4
        w = 10.0 ** rng.uniform(-3, 4) * rng.standard_normal(size)
        asked["weights"] = rng.choice([-1e6, 1e6, 0], size) if rng.random() < 0.3 else w
        asked["norm_bound"] = float(10.0 ** rng.choice([-12, 0, 12]))
    return asked


def _climb(name: str, unit: str, rng: np.random.Generator) -> float:
    """Largest distance of two neighbours over the claim that a short search finds."""
    n_rows = int(rng.choice([2, 5]))
    draw, asked = _counts if "word" in name else _wild, _asked(name, rng, n_rows)
    query = QUERIES[name]
    assert query.admits(asked, n_rows)
    claimed = query.sensitivity(1, "replace-one", asked)

    def far(pair: list[np.ndarray]) -> float:
        a, b = (query.total(Block(x, ONE, unit), **asked) for x in pair)
        assert np.isfinite(a).all() and np.isfinite(b).all()
        return float(np.linalg.norm(a - b) / claimed)

    pair = [draw(rng, n_rows), draw(rng, n_rows)]
    best = far(pair)
    for _ in range(30):
        k, other = rng.integers(2), list(pair)
        with np.errstate(over="ignore", under="ignore"):
            scale = np.float32(rng.choice([-1, 0.5, 0.9, 1.1, 2]))
            other[k] = (draw(rng, n_rows), -pair[1 - k], pair[k] * scale)[
                rng.integers(3)
            ]
        if (found := far(other)) > best:
            best, pair = found, other
    return best


@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize(
    "name",
    sorted(
        {"third_moment", "whitened_third_moment", "word_pairs", "word_triples"}
        | {"whitened_word_triples", "network_gradient", "log_odds_counts"}
    ),
)
def test_a_search_for_neighbours_reaches_the_claim_and_not_more(name, unit, rng):
    worst = max(_climb(name, unit, rng) for _ in range(25))
    assert 0.49 < worst <= 1


def test_rounding_of_everybody_elses_terms_moves_no_one_further(rng):
    """Terms of all others cancel by as much as the clip allows, in many blocks."""
    x = np.float32(np.sqrt(3 * 0.7)) * np.ones((1, 5000), "f4")
    asked = {"clip": 1e-3, "covariance": np.array([[0.7]])}
    starts = np.arange(x.shape[1])
    totals = []
    for value in (9.0, -9.0):
        x[0, 17] = value
        totals.append(third_moment(Block(x, starts, "subject"), **asked))
    claimed = QUERIES["third_moment"].sensitivity(1, "replace-one", asked)
    assert 0.99 * claimed < np.linalg.norm(totals[0] - totals[1]) <= claimed


def test_two_samples_of_one_person_do_not_count_twice():
    """As many samples as people, but one of them has both."""
    X, starts = np.ones((2, 2), "f4"), np.array([0, 2])
    asked = {"clip": 1.0, "covariance": np.zeros((2, 2))}
    assert np.linalg.norm(third_moment(Block(X, starts, "subject"), **asked)) <= 1


# --- what the whole view of the adversary shows --------------------------------------

# Of one person, far beyond the clips: nearly orthogonal in both releases.
WORST = {
    "mixture": (([900.0], [500.0]), ([-500.0], [900.0])),
    "topics": (([900.0], [0.0]), ([0.0], [900.0])),
}


def _transcript(
    kind: str, world: int, name: str, mu: float
) -> tuple[np.ndarray, float]:
    """Both releases of a decomposition at a new site; the noisy statistics seen.

    Without masks no other site takes part in what it sends.
    """
    people = {"0-1": np.array([[2.0], [1.0]], "f4")}
    people["0-0"] = np.array(WORST[kind][world], "f4")
    own = people, dict.fromkeys(people, 1), Ledger(None, canaries.CEILING)
    site = canaries.Witness("s0", *own, Limits("simulated"))
    federation = Ungated({site.name: site})
    promise = Budget(1.0, canaries.DELTA, "subject", "replace-one", 0)
    about = name, "conventional", 2**0.5 / mu, promise, 300.0
    shown = []
    mechanisms = Mechanism(*about), Mechanism(*about)
    site.answer = _listening(site, shown)
    if kind == "mixture":
        tensors.mixture_components(federation, mechanisms, 1, 1.0, projected=False)
    else:
        tensors.topic_components(federation, mechanisms, 1, projected=False)
    entries = site._ledger.entries()
    claim = accounting.compose(e.mu for e in entries if e.kind == "release")
    return np.concatenate(shown), claim


def _listening(site: Site, shown: list):
    """Its answers, as they are; what is released is also kept in ``shown``."""
    answer = site.answer

    def listening(what: str, message: dict) -> dict:
        reply = answer(what, message)
        if what == "release":
            shown.append(reply["noisy"].view("i8").astype(float))
        return reply

    return listening


def _shown(kind: str, n_pairs: int, mu: float) -> tuple[float, float]:
    views, claims = ([], []), []
    for i in range(2 * n_pairs):
        view, claim = _transcript(kind, i % 2, str(i), mu)
        views[i % 2].append(view)
        claims.append(claim)
    return canaries.attack(*map(np.array, views), ALPHA), max(claims)


@pytest.mark.parametrize("kind", WORST)
def test_an_attack_shows_no_more_than_the_ledger_says(fixed_noise, kind):
    shown, claimed = _shown(kind, 250, 3.0)
    assert claimed == pytest.approx(3.0)
    assert 0.2 * claimed < shown <= claimed


def test_an_attack_finds_people_who_are_not_clipped(fixed_noise, monkeypatch):
    no_clip(monkeypatch)
    shown, claimed = _shown("mixture", 60, 0.5)
    assert shown > claimed


# --- tables without a study file -----------------------------------------------------


def _table(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-1, 1, (50, 3))
    return X, 0.5 * X[:, 0]


def _front(ledgers, **options) -> PrivateRegressor:
    given = {"bounds": (-1, 1), "target_bounds": (-1, 1), "ledgers": ledgers}
    given |= {"accept": "an attack on the ledger, not a model"}
    return PrivateRegressor(**{"epsilon": 1.0, **given, **options})


def _ledger(folder: Path, epsilon: float) -> Ledger:
    return Ledger(folder, Budget(epsilon, 1e-5, "sample", "replace-one", 0))


def test_a_renamed_table_does_not_start_anew(rng, tmp_path):
    book, (X, y) = _ledger(tmp_path, 1.2), _table(rng)
    _front({"a": book}).fit(X, y, groups=["a"] * len(y))
    with pytest.raises(Exception, match="ceiling"):
        _front({"b": book}).fit(X, y, groups=["b"] * len(y))
    assert len(book.releases()) == 1


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"ridge": -1.0}, "ridge"),
        ({"ridge": np.nan}, "ridge"),
        ({"clip": 0.0}, "clip"),
        ({"clip": np.nan}, "clip"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"n_colluding": 1}, "n_colluding"),
        ({"bounds": (-1e308, 1e308)}, "bounds"),
        ({"bounds": (0, 5e-324)}, "bounds"),
    ],
)
def test_a_wrong_option_of_a_table_is_told_before_it_is_paid_for(
    options, rule, rng, tmp_path
):
    book = _ledger(tmp_path, 1.2)
    with pytest.raises(ValueError, match=f"^{rule}: "):
        _front({"all": book}, **options).fit(*_table(rng))
    assert not book.entries()


# --- studies -------------------------------------------------------------------------


def write_study(kind: str, data: str = "private", sizes=SIZES, **budget) -> None:
    """A study of sites whose people are rows of tables, in the working directory."""
    rng = np.random.default_rng(1)
    for s, N in enumerate(sizes):
        X = rng.uniform(-1, 1, (N, D))
        y, g = 0.5 * X[:, 0], (X[:, 0] > 0).astype(int)
        X = rng.integers(1, 5, (N, D)) if kind == "topics" else X
        rows = ([f"sub-{s}p{i}", *X[i].tolist(), y[i], g[i]] for i in range(N))
        head = ["participant_id", *NAMES, "y", "g"]
        files.write_table(Path(f"x-{s}.tsv"), head, rows)
        own = {
            "name": f"site-{s}",
            "images": f"x-{s}.tsv",
            "data": data,
            "epsilon": 50.0,
            "delta": 1e-5,
            "unit": "subject",
            "ledger": f"private/site-{s}/ledger",
        }
        Path(f"site-{s}.yaml").write_text(yaml.safe_dump(own))
        if data == "private":
            begin(f"site-{s}.yaml")
    rows = ([name, -1.0, 1.0] for name in NAMES)
    files.write_table(Path("features.tsv"), ["feature", "low", "high"], rows)
    study = {
        "study": "rows",
        "sites": [f"site-{s}.yaml" for s in range(len(sizes))],
        "space": None,
        "arm": "cape",
        "aggregator": "independent",
        "budget": {
            "epsilon": 4.0,
            "delta": 1e-5,
            "unit": "subject",
            "relation": "replace-one",
            "n_colluding": 1,
            **budget,
        },
        "rows": {"features": {"kind": "table", "features": "features.tsv"}},
        "accept": ACCEPT,
        "source": "made for a test",
        **BLOCKS[kind],
    }
    Path(STUDY).write_text(yaml.safe_dump(study))


def run(*steps: str) -> int:
    """Run steps at all sites; the first status that is not 0."""
    for step in steps:
        apart = step in ("prepare", "reconstruct")
        for s in range(len(SIZES)) if apart else [None]:
            more = [] if s is None else ["--site", f"site-{s}"]
            if status := command(step, STUDY, *more):
                return status
    return 0


def charges() -> list[list[tuple[str, float]]]:
    """Query and mu of every release in each site's ledger."""
    books = (
        site_files.open_ledger(load.load_site(path)).entries()
        for path in sorted(Path().glob("site-*.yaml"))
    )
    return [[(e.query, e.mu) for e in b if e.kind == "release"] for b in books]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """The working directory; sites draw no pictures."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tables_and_studies_share_no_ledger(here, rng, capsys):
    """Rows have no names: one ledger would charge the larger, and not both."""
    write_study("linear")
    assert run("validate", "prepare", "regression") == 0
    book = _ledger(Path("private/site-0/ledger"), 4.5)
    with pytest.raises(ValueError, match="its ledger holds studies"):
        _front({"all": book}, epsilon=4.0).fit(*_table(rng))
    _front({"all": _ledger(Path("t"), 4.5)}, epsilon=4.0).fit(*_table(rng))
    edit("site-0.yaml", "ledger", "t")
    edit("site-0.yaml", "unit", "sample")
    begin("site-0.yaml")
    assert run("regression") == 3
    assert "ledger: holds releases of tables" in capsys.readouterr().err


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("kind", ["mixture", "topics", "network"])
def test_a_killed_study_goes_on_and_is_charged_once(here, monkeypatch, kind, before):
    """Killed at every site of every release: what left never leaves differently."""
    write_study(kind)
    assert run("validate", "prepare") == 0
    release, left, n_calls, n_killed = Site.release, {}, 0, 0

    def killed(site: Site, message: dict) -> dict:
        nonlocal n_calls
        n_calls += 1
        if n_calls == at and before:
            raise Killed
        reply = release(site, message)
        asked = message.request
        key = site.name, asked.query, asked.round
        sent = {k: v.tobytes() for k, v in reply.message.items() if k != "signature"}
        assert left.setdefault(key, sent) == sent
        if n_calls == at:
            raise Killed
        return reply

    monkeypatch.setattr(Site, "release", killed)
    at = 0
    while at < N_RELEASES[kind] * len(SIZES):
        at += 1
        n_calls = 0
        try:
            assert run(STEPS[kind]) == 0
        except Killed:
            n_killed += 1
    at = 0
    assert n_killed >= len(SIZES)
    assert run(STEPS[kind]) == 0
    (result,) = registry.of(load.load_study(STUDY)).released_files
    first = Path(result).read_bytes()
    assert run(STEPS[kind]) == 0 and Path(result).read_bytes() == first
    assert len(left) == N_RELEASES[kind] * len(SIZES)
    mu = load.load_study(STUDY).promise.mu
    for own in charges():
        assert len(own) == N_RELEASES[kind]
        assert accounting.compose(m for _, m in own) == pytest.approx(mu)


FREE = {
    "mixture": {"budget.pca_share": 0.2},
    "patterns": {"n_components": 1, "patterns.within_sites": False},
    "linear": {"regression.within_sites": False, "regression.ridge": 0.1},
    "network": {"budget.pca_share": 0.2},
}
PAID = {
    "mixture": {"tensors.pair_share": 0.4, "n_components": 1, "rows.norm_bound": 1.5},
    "patterns": {"patterns.clip": 0.4},
    "linear": {"regression.clip": 0.4, "budget.epsilon": 3.0},
    "network": {"network.clip": 0.4, "network.n_rounds": 2, "rows.norm_bound": 1.5},
}


@pytest.mark.parametrize("kind", FREE)
def test_only_keys_that_no_release_depends_on_are_free(here, kind):
    write_study(kind)
    assert run("validate", "prepare", STEPS[kind]) == 0
    before = charges()
    for key, value in FREE[kind].items():
        edit(STUDY, key, value)
        assert run(STEPS[kind]) == 0
        assert charges() == before, key
    for key, value in PAID[kind].items():
        edit(STUDY, key, value)
        n_before = len(charges()[0])
        assert run("prepare", STEPS[kind]) == 0
        assert len(charges()[0]) > n_before, key


@pytest.mark.parametrize("kind", BLOCKS)
def test_no_noise_voids_what_was_paid_for(here, kind):
    """Ten thousand times the signal, one person at a site: every step still ends."""
    write_study(kind, sizes=(1, 2, 3), epsilon=1e-3)
    assert run("validate", "prepare", STEPS[kind], "maps", "score", "report") == 0
    arrays = files.read_arrays(next(Path("results/rows").glob("*.npz")))
    odd = {n for n, a in arrays.items() if a.dtype.kind == "f" and np.isnan(a).any()}
    # What cannot be told; and where no ridge was given, the study chose its own.
    untold = {"estimates", "errors", "captured", "prediction_half_width"}
    assert odd <= {"r2", "moments_ridge", *untold}


@pytest.mark.parametrize("kind", BLOCKS)
def test_nothing_of_private_people_is_among_results(here, kind):
    write_study(kind)
    assert run("validate", "prepare", STEPS[kind], "maps", "reconstruct") == 0
    assert run("score", "report") == 0
    kept = Path("private/site-1/rows/people.tsv").read_text()
    assert "sub-1p24" in kept
    for path in Path("results").rglob("*"):
        assert not path.is_file() or b"sub-" not in path.read_bytes(), path
    scores = Path("results/rows/scores.tsv").read_text()
    assert "_r2" not in scores and "accuracy" not in scores
    # In open data the same study says how well its people are predicted.
    for s in range(len(SIZES)):
        edit(f"site-{s}.yaml", "data", "public")
        edit(f"site-{s}.yaml", "ledger", f"private/site-{s}/open")
    assert run("score") == 0
    told = Path("results/rows/scores.tsv").read_text()
    predicts = STEPS[kind] not in ("tensors", "patterns")
    assert ("_r2" in told or "accuracy" in told) == predicts


@pytest.mark.parametrize("kind", ["linear", "mixture"])
def test_no_spreadsheet_runs_what_a_feature_is_called(here, kind):
    write_study(kind, data="simulated")
    for path in (Path("features.tsv"), *Path().glob("x-*.tsv")):
        text = path.read_text().replace("x0\t", "=1+1\t").replace("x1\t", "-x\t")
        path.write_text(text)
    assert run("validate", "prepare", STEPS[kind], "maps", "reconstruct") == 0
    tables = list(Path("results/rows").glob("*.tsv"))
    cells = {c for path in tables for row in files.read_table(path) for c in row}
    assert {"'=1+1", "'-x", "x2"} <= cells and not {"=1+1", "-x"} & cells
    # What was released once may be the truth of another study.
    (Path("truth")).mkdir()
    released = f"results/rows/group_desc-{STEM[kind]}.tsv"
    head, *rows = (row.split("\t") for row in Path(released).read_text().splitlines())
    numbers = slice(None, -1 if head[-1] == "verdict" else None)
    rows = ["\t".join(row[numbers]) for row in (head, *rows)]
    rows = [row.replace("n/a", "0") for row in rows]  # what was not told
    for name in ("coefficients.tsv", "components.tsv"):
        Path("truth", name).write_text("\n".join(rows[: D + 1]) + "\n")
    weights = Path("results/rows/group_desc-tensor_weights.tsv")
    if weights.exists():
        Path("truth/weights.tsv").write_bytes(weights.read_bytes())
    edit(STUDY, "score", {"truth": "truth"})
    assert run("score", "report") == 0


STEM = {"linear": "regression_coefficients", "mixture": "tensor_components"}


def test_sites_in_another_order_do_not_swap_their_intercepts(here, capsys):
    write_study("linear")
    assert run("validate", "prepare") == 0
    edit(STUDY, "sites", [f"site-{s}.yaml" for s in (2, 1, 0)])
    assert run("regression") == 2
    assert "run `prepare` again" in capsys.readouterr().err
    assert charges() == [[], [], []]
    assert run("prepare", "regression") == 0


# --- bad input -----------------------------------------------------------------------


def _column(name: str, value: str, sites=(0, 1, 2)) -> None:
    for path in (Path(f"x-{s}.tsv") for s in sites):
        head, *rows = (line.split("\t") for line in path.read_text().splitlines())
        for row in rows:
            row[head.index(name)] = value
        files.write_table(path, head, rows)


@pytest.mark.parametrize(
    ("value", "rule"), [("0.25", "counts, not shares"), ("-3", "at least 0")]
)
def test_what_are_no_counts_is_not_paid_for(here, value, rule, capsys):
    """Each of them would count as nothing: noise alone, at full price."""
    write_study("topics")
    _column("x1", value)
    assert run("validate") == run("prepare") == 2
    lines = capsys.readouterr().err.splitlines()
    # A line for each site, and that of the one whose rows are prepared first.
    assert len(lines) == len(SIZES) + 1 and all(rule in line for line in lines)


def test_a_site_of_nobody_is_told(here, capsys):
    write_study("mixture")
    head = Path("x-0.tsv").read_text().split("\n")[0]
    Path("x-0.tsv").write_text(head + "\n")
    assert run("validate") == 2
    assert "must have rows of people, got none" in capsys.readouterr().err


CELLS = [("x1", v) for v in ("", "inf", "1e39", "x", "1,5")]
CELLS += [("g", v) for v in ("", "2", "-1", "patient", "0.5")]


@pytest.mark.parametrize(("name", "value"), CELLS)
def test_an_odd_cell_is_one_line_before_data_leave(here, name, value, capsys):
    write_study("logistic")
    _column(name, value, [1])
    assert run("validate") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "1" in lines[0] and len(lines[0]) < 300


FILES = ["", "feature\n", "feature\tlow\thigh\n", "feature,low,high\nx0;0;1\n"]
HEAD = "feature\tlow\thigh\n"
FILES += [HEAD + row for row in ("x0\t1\t0", "x0\t0", "x0", "x0\t0\tnan")]
FILES += [HEAD + row for row in ("x0\t0\t1\nx0\t0\t1", "x9\t0\t1", "y\t0\t1\nx1\t0\t1")]
FILES += [HEAD + row for row in ("x0\t-1e308\t1e308", "x0\t0\t5e-324", "x0\t-inf\t1")]


@pytest.mark.parametrize("text", FILES)
def test_odd_features_files_are_one_line(here, text, capsys):
    write_study("linear")
    Path("features.tsv").write_text(text)
    assert run("validate") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 or len(lines) == len(SIZES)  # one, or one a site


@pytest.mark.parametrize(
    ("kind", "key", "value", "rule"),
    [
        ("mixture", "tensors.variance", 1e7, "tensors.variance: "),
        ("mixture", "tensors.variance", 1e300, "tensors.variance: "),
        ("mixture", "rows.norm_bound", 1e-13, "rows.norm_bound: "),
        ("mixture", "rows.norm_bound", 1e13, "rows.norm_bound: "),
        ("mixture", "n_components", 4, "n_components: must be below the 4"),
        ("topics", "rows.covariates", {"g": [0, 1]}, "tensors.model: topics"),
        ("linear", "rows.covariates", {"y": [-1, 1]}, "target: must not be a feature"),
        ("linear", "rows.covariates", {"x0": [-1, 1]}, "must not be features, too"),
        ("linear", "rows.covariates", {"sex": [0, 1]}, "lacks the columns sex"),
        ("linear", "regression.target", "x1", "target: must not be a feature"),
        ("linear", "regression.target", "age", "lacks the columns age"),
        ("linear", "regression.bounds", [1, -1], "regression.bounds: "),
        ("linear", "regression.bounds", [0, 5e-324], "regression.bounds: "),
        ("linear", "regression.bounds", [-1e308, 1e308], "regression.bounds: "),
        ("linear", "regression.clip", 1e-13, "regression.clip: "),
        ("network", "network.clip", 1e13, "network.clip: "),
        ("linear", "budget.unit", "sample", "budget.unit: must be subject"),
    ],
)
def test_a_wrong_key_is_one_line_before_it_is_paid_for(
    here, kind, key, value, rule, capsys
):
    write_study(kind)
    edit(STUDY, key, value)
    assert run("validate") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) in (1, len(SIZES)) and all(rule in line for line in lines)


def test_a_variance_beyond_a_small_bound_is_told_before_the_pairs(here, capsys):
    """Sites refused the covariance of the second release, the first was paid for."""
    write_study("mixture")
    edit(STUDY, "rows.norm_bound", 1e-4)
    edit(STUDY, "tensors.variance", 0.5)
    assert run("validate") == 2
    assert "at most the square of rows.norm_bound" in capsys.readouterr().err


TRUTHS = ["", "feature\n", "feature\tc\nx0\t1\n"]
ROWS = ["{}\tabc", "{}", "{}\tnan", "{}\t1\t2", "{}\t1\t2\t3"]
TRUTHS += ["feature\tc\n" + "\n".join(map(row.format, NAMES)) for row in ROWS]


@pytest.mark.parametrize("text", TRUTHS)
def test_an_odd_truth_is_one_line(here, text, capsys):
    write_study("mixture")
    for name in ("components.tsv", "weights.tsv"):
        files.write_text(Path("truth") / name, text)
    edit(STUDY, "score", {"truth": "truth"})
    assert run("validate", "prepare", "tensors") == 0
    capsys.readouterr()
    assert run("score") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "truth: score.truth: must " in lines[0]


@pytest.mark.parametrize("kind", ["mixture", "topics"])
def test_no_tensor_of_many_features_is_asked_for_after_the_pairs(here, kind):
    """By noise alone all numbers of any D could be chosen, after the first charge."""
    write_study(kind, epsilon=1e-3)
    words, rng = [f"w{i}" for i in range(120)], np.random.default_rng(2)
    for s, N in enumerate(SIZES):
        X = rng.integers(0, 3, (N, len(words)))
        rows = ([f"sub-{s}p{i}", *X[i].tolist()] for i in range(N))
        files.write_table(Path(f"x-{s}.tsv"), ["participant_id", *words], rows)
    rows = ([word, 0, 2] for word in words)
    files.write_table(Path("features.tsv"), ["feature", "low", "high"], rows)
    assert run("validate", "prepare", "tensors") == 0
    assert all(own[1][0].startswith("whitened_") for own in charges())
