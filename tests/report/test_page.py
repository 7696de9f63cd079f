"""What a finished study tells: its record, its page, and what it must not tell."""

import json
import math
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import yaml
from helpers import CONTRACT
from nilearn.interfaces.fmriprep.load_confounds_strategy import preset_strategies
from readable import assert_readable
from scipy.optimize import brentq
from scipy.stats import norm
from tiny_study import (
    N_COMPONENTS,
    N_VOLUMES,
    SIDE,
    STUDY,
    command,
    edit,
    run_steps,
    tree,
    write_study,
)

from capeneuro import cli, linalg
from capeneuro.algorithms import cca, regression, verdict, verdicts
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.verdict import ABOVE, Verdicts
from capeneuro.config import load
from capeneuro.config.sections import Cleaning
from capeneuro.data.tables import open_table
from capeneuro.privacy import parties, queries
from capeneuro.report import methods_text, privacy_schema, protection, scores, sentences
from capeneuro.report import page as pages
from capeneuro.report.privacy_record import privacy_record, stamp
from capeneuro.studies import components
from sim.rows import rows

STEPS = ("validate", "prepare", "pca", "ica", "maps", "reconstruct", "score", "report")
PRIVATE = {
    "projected.npz",
    "qc.html",
    "qc.tsv",
    "timecourses.tsv",
    "inventory.tsv",
    "runs.tsv",
    "spectra.tsv",
    "connectivity.tsv",
    "reconstruction.html",
    "dualregression",
}
EMPTY = {"quality": [], "maps": [], "rest": []}
TOLD = Verdicts(("component 1",), np.ones(1), np.zeros(1), (ABOVE,), "share")
VIEWS = parties.VIEWS


def chapter(study) -> pages.Chapter:
    """A chapter of nothing."""
    return pages.Chapter(study, "components.html.jinja", TOLD, [], EMPTY)


def brentq_mu(epsilon: float, delta: float) -> float:
    """Largest mu of (epsilon, delta), from the formula of own_epsilon."""
    return brentq(lambda mu: own_epsilon([mu], delta) - epsilon, 0.1, 3)


@pytest.fixture(scope="module", params=["subject", "sample"])
def finished(request, tmp_path_factory) -> SimpleNamespace:
    """The tiny study, run to its report under one unit."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_study(folder)
        edit(STUDY, "budget.unit", request.param)
        run_steps(*STEPS)
    return SimpleNamespace(folder=folder, unit=request.param)


@pytest.fixture
def results(finished, monkeypatch) -> Path:
    monkeypatch.chdir(finished.folder)
    return Path("results/tiny")


@pytest.fixture
def record(results) -> dict:
    return json.loads((results / "privacy.json").read_text())


def test_the_whole_chain_leaves_every_file_of_the_contract(results):
    assert {p.name for p in results.iterdir()} == CONTRACT
    assert not [p for p in tree() if "part" in Path(p).name]
    maps = nib.load(results / "group_desc-ica_components.nii.gz")
    assert maps.shape == (SIDE, SIDE, SIDE, N_COMPONENTS)
    courses = Path("private/site-1/tiny/timecourses.tsv").read_text().splitlines()
    names = [f"component-{i + 1}" for i in range(N_COMPONENTS)]
    assert courses[0].split("\t") == ["subject", "session", "run", "volume", *names]
    assert len(courses) == 1 + 2 * N_VOLUMES
    own = {p.name for p in Path("private/site-1/tiny").iterdir()} - {"logs"}
    assert own == PRIVATE
    people = Path("private/site-1/tiny/dualregression").glob("*.nii.gz")
    assert sorted(p.name[:6] for p in people) == ["sub-10", "sub-11"]


def test_the_promise_does_not_end_rounds_without_privacy(results):
    exact = np.load(results / "reference/group_desc-ica_unmixing.npz")
    paid = load.load_study(STUDY).n_releases["ica"]
    assert bool(exact["converged"]) or int(exact["n_rounds"]) > paid


def test_scores_compare_with_truth_and_reference(results):
    table = [x.split("\t") for x in (results / "scores.tsv").read_text().splitlines()]
    assert table[0] == ["name", "value", "reference", "note"]
    assert table[-1] == ["stamp", "", "", "NOT PRIVATE: simulated data"]
    values = {name: float(value) for name, value, *_ in table[1:-1]}
    assert set(values) == {
        f"{against}_{kind}"
        for against in ("truth", "reference", "nonprivate_truth")
        for kind in ("ngi", "mean_abs_r", "min_abs_r")
    } | {"reference_agreement"}
    assert values["nonprivate_truth_mean_abs_r"] > 0.8
    assert all(0 <= v <= 1 for name, v in values.items() if "_abs_r" in name)


def test_bounds_that_nobody_fills_are_told(rng):
    """A bound ten times too large; were views not divided by sqrt(2), it were 0.14."""
    x, y = rng.standard_normal((2, 4, 5000)) / np.sqrt(2 * 4)
    C = np.cov(np.concatenate([x / 10, y]), bias=True)
    lines = sentences.correlation_lines(cca.from_covariance(C, 4, 2, 0.0, 5000))
    loose = [line for line in lines if "norm bound" in line]
    assert len(loose) == 1 and "by 0.1 of the norm bound of fmri" in loose[0]


def test_what_a_regression_explains_is_told_or_said_not_to_be(rng):
    X, y, _ = rows(4, 3000, rng, noise=1.0)
    z = regression.stack(X, y).astype(float) / regression.norm_bound()
    size = np.array([3000])

    def said(tau: float, clip: float) -> list[str]:
        weight = np.minimum(1, clip / np.sum(z**2, axis=0))
        E = tau * linalg.unpack_symmetric(rng.standard_normal(21))
        moment = Moment((z * weight) @ z.T / 3000 + E, tau)
        return sentences.model_lines(regression.from_moment(moment, size))

    first, second, *rest = said(1e-4, 1.0)
    found = r"explains (\d+)% of the target's variance in these people \(95% interval "
    value, low, high = re.match(found + r"(\d+)% to (\d+)%\)", first).groups()
    assert 0 < int(low) < int(value) < int(high) < 100 and not rest
    assert "4 of 4 coefficients" in second and "ridge" not in second
    first, _, last = said(1e-4, 0.2)
    assert "in these people as they count (95%" in first and "count 0." in last
    assert said(0.1, 1.0)[0].startswith(
        "the share of the target's variance that it explains is not"
    )


def own_epsilon(mus: list[float], delta: float) -> float:
    """Balle & Wang 2018, Theorem 8, in plain arithmetic and bisection."""
    mu = math.sqrt(sum(m * m for m in mus))

    def excess(epsilon: float) -> float:
        first = norm.cdf(mu / 2 - epsilon / mu)
        return first - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 0, 50, xtol=1e-14, rtol=1e-13)


@pytest.mark.parametrize("view", VIEWS)
def test_epsilons_follow_from_the_records_own_releases(record, view):
    delta, releases = record["delta"], record["releases"]
    assert [r["query"] for r in releases] == ["second_moment", *3 * ["infomax_skew"]]
    assert set(record["sites"]) == {"site-0", "site-1", "site-2"}
    for site, spent in record["sites"].items():
        mus = [r["sites"][site]["mu"][view] for r in releases]
        total = sum(m * m for m in mus)
        expected = {
            "gdp": own_epsilon(mus, delta),
            "rdp": total / 2 + math.sqrt(2 * total * math.log(1 / delta)),
            "basic": sum(own_epsilon([m], delta / len(mus)) for m in mus),
        }
        assert spent[view] == pytest.approx(expected, rel=1e-9)


def test_mu_of_each_release_follows_from_its_noise(record, finished):
    """Views from sensitivities and noise deviation, by design.md 5.1 alone."""
    n_sites, n_honest = 3, 2
    n_units = 6 if finished.unit == "subject" else 6 * N_VOLUMES
    bounds = {"second_moment": math.sqrt(2), "infomax_skew": 2 * 2.5}
    for r in record["releases"]:
        t = bounds[r["query"]] / n_units
        gamma = r["noise_deviation"] ** 2 / n_sites
        sigma2 = 100 * n_sites * gamma
        square = t**2 / (sigma2 + gamma) * (1 + sigma2 / (gamma * n_honest))
        for site in r["sites"].values():
            assert site["sensitivity"] == pytest.approx(n_sites * t, rel=1e-12)
            mu = site["mu"]
            assert mu["aggregator_and_colluders"] == pytest.approx(square**0.5)
            assert mu["reader"] == pytest.approx(t / r["noise_deviation"])


def test_the_promise_is_kept_and_used_up(record, finished):
    promise = record["promise"]
    assert promise["has_noise"] is True
    assert promise["epsilon"] == 5.0
    assert record["delta"] == 1e-5
    assert record["unit"] == finished.unit
    assert record["n_colluding"] == 1
    for spent in record["sites"].values():
        assert spent["promise"] == 5.0
        total = spent["aggregator_and_colluders"]["gdp"]
        assert total <= 5.0 * (1 + 1e-9)
        assert total == pytest.approx(5.0, rel=1e-6)
        assert spent["reader"]["gdp"] < spent["aggregator"]["gdp"] < total


PAGES = [
    "results/tiny/report.html",
    "private/site-1/tiny/qc.html",
    "private/site-1/tiny/reconstruction.html",
]


@pytest.mark.parametrize("page", PAGES)
def test_pages_can_be_read_offline(results, page):
    found = assert_readable(Path(page))
    assert found.alts
    text = Path(page).read_text()
    assert ("It stays at the site" in text) == page.startswith("private")


SECTIONS = ["summary", "promise", "results", "methods", "references", "appendix"]


def test_the_page_has_its_parts_in_the_order_people_ask(results):
    found = assert_readable(results / "report.html")
    assert [one for one in found.ids if one in SECTIONS] == SECTIONS
    assert {f"#{one}" for one in SECTIONS} <= set(found.links)
    assert "https://doi.org/10.1109/TSP.2021.3126546" in found.links


def test_a_run_without_privacy_has_no_promise(results, record):
    study = load.load_study(STUDY).model_copy(update={"arm": "non-private"})
    releases = [dict(one) for one in record["releases"]]
    nothing = {"n_units": 2, "sensitivity": None, "mu": dict.fromkeys(VIEWS)}
    for one in releases:
        one |= {"clip": None, "sites": dict.fromkeys(record["sites"], nothing)}
    kinds = dict.fromkeys(record["sites"], "simulated")
    exact = privacy_record(study, kinds, releases)
    own = components.ComponentsKind(study).chapter(exact)
    assert len(own.pictures["maps"]) == N_COMPONENTS and not own.pictures["rest"]
    own = own._replace(notes=())  # of rounds that had noise
    page = pages.render(study, exact, [own], Path("."))
    plain = re.sub(r"(?s)<style>.*?</style>|<[^>]+>", " ", page)
    assert 'id="promise"' not in page and 'href="#promise"' not in page
    assert "This run protects nobody" in plain and "NOT PRIVATE" in plain
    for word in ("epsilon", "promise", "guess", "delta"):
        said = plain.split("Configuration")[0].lower()
        assert word not in said, word
    assert "No noise was added and nothing was tested" in plain
    assert "above noise" not in plain and "above the noise" not in plain
    assert "nothing was tested" in sentences.found_line(study.arm, own.verdicts)
    # Verdicts that count sampling stay, and say what they are about.
    assert "1 of 1 results stand above sampling alone" in sentences.found_line(
        study.arm, TOLD
    )


def test_the_page_states_the_promise(results, record, finished):
    text = (results / "report.html").read_text()
    words = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    unit = {
        "subject": "for everything of one person that the study used",
        "sample": "for one volume (one image of the series) of one person",
    }[finished.unit]
    assert "(5, 1e-05)-differentially private" in words
    assert unit in words
    assert "the aggregator and any 1 site, of 3 sites" in words
    assert ("weaker than it sounds" in words) == (finished.unit == "sample")
    # Everybody counts, or each volume: of so few people nothing can be told.
    table = open_table(results / "verdicts.tsv")
    thumbnails = sum(table["verdict"] == "above noise")
    drawn = sum(table["verdict"].isin(["above noise", *verdict.REPRODUCIBLE]))
    is_found = drawn > 0
    # Without small maps of told components the first picture leads.
    leads = is_found and not thumbnails
    n_pictures = thumbnails + drawn + N_COMPONENTS * is_found + leads
    assert text.count("<img") == 2 + 2 + n_pictures
    # Told maps stand in the first paragraph, each with the way to its picture.
    strip = re.search(r'<p class="strip">(.*?)</p>', text)
    ways = re.findall(r'<a href="#(.*?)"><img', strip[1]) if strip else []
    assert len(ways) == thumbnails and all(f'<figure id="{to}"' in text for to in ways)
    assert text.count('class="viewer"') == is_found
    figures = {path.name for path in (results / "figures").iterdir()}
    assert "group_desc-spectrumOfTheReleasedSecondMoment_quality.svg" in figures
    assert len([name for name in figures if "_result" in name]) == drawn
    said = f"{thumbnails} of {N_COMPONENTS} components are distinguishable"
    assert said in words
    assert not is_found or finished.unit == "sample"
    assert "ran although its noise was foretold" in words
    assert "a test of the steps, not of a result" in words
    assert "Before anything was released, the planner foretold" in words
    n = 6 if finished.unit == "subject" else 72
    who = "6 people" if finished.unit == "subject" else "72 volumes of people"
    assert f"{who} at 3 sites" in words and n == sum(record["n_units"].values())
    right = 100 * norm.cdf(brentq_mu(5.0, 1e-5) / 2)
    assert f"right at most {right:.0f}% of the time" in words
    assert "the source" not in words.lower() or "made for a test" in words
    assert "Foretold: nothing stands above the noise. Obtained" in words
    assert "infomax_skew" in words
    assert re.search(r"\d+ of 27 eigenvalues exceed the largest of noise alone", words)
    assert ("number of people replaces" in words) == (finished.unit == "subject")
    assert ("by its root mean square over the mask" in words) == is_found


def test_every_output_of_simulated_data_is_stamped(results, record):
    stamp = "NOT PRIVATE: simulated data"
    assert record["stamp"] == stamp
    assert stamp in (results / "report.html").read_text()
    sidecar = json.loads((results / "group_desc-ica_components.json").read_text())
    assert sidecar["Stamp"] == stamp
    arrays = list(results.rglob("*.npz"))
    assert len(arrays) == 4
    assert {str(np.load(path)["stamp"]) for path in arrays} == {stamp}
    for path in results.rglob("config.yaml"):
        assert stamp in path.read_text()
    reference = json.loads((results / "reference/privacy.json").read_text())
    assert reference["promise"]["has_noise"] is False
    assert {reference["sites"]["site-0"][view] for view in VIEWS} == {None}


def test_no_path_and_no_person_is_told(results):
    released = [p for p in results.rglob("*") if p.is_file()]
    assert len(released) >= 12
    secret = [f"sub-{site}{person}".encode() for site in range(3) for person in (0, 1)]
    secret += [b"data/site-", b"private/", b"ledger\x00", b"site-0.yaml"]
    secret += [str(Path.cwd()).encode()]
    for path in released:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = nib.load(path).to_bytes()
        assert not [s for s in secret if s in content], path


def test_the_quality_page_is_private_and_names_people(results):
    text = Path("private/site-1/tiny/qc.html").read_text()
    assert "Private: this page describes single participants" in text
    assert "sub-10" in text and "sub-11" in text
    assert text.count("<img") == 3 and "tSNR" in text and "100.0%" in text


def test_of_many_people_those_who_are_kept_least_are_on_the_page(results, monkeypatch):
    folder = Path("private/site-1/tiny")
    prepare = ["prepare", "config.yaml", "--site", "site-1"]
    with monkeypatch.context() as patched:
        patched.setattr(pages, "MOST_PEOPLE", 1)
        assert cli.main(prepare) == 0
    text, table = (folder / "qc.html").read_text(), pd.read_table(folder / "qc.tsv")
    assert len(table) == 2
    least = table["subject"][table["clip_weight"].idxmin()]
    assert [name in text for name in table["subject"]] == list(
        table["subject"] == least
    )
    assert "The 1 of 2 people of whose second moments least is kept" in text
    assert text.count("<img") == 2  # the histogram, and one plane
    assert cli.main(prepare) == 0


def test_what_people_have_in_the_components_is_on_a_private_page(results):
    text = Path("private/site-1/tiny/reconstruction.html").read_text()
    assert "Private: this page describes the participants of one site" in text
    assert "Means over 2 people" in text
    assert text.count("<img") == 2
    assert "sub-1" not in text


# Parts of the page


def subspace_of(spectrum: list[float], deviation: float) -> Subspace:
    values = np.array(spectrum)
    return Subspace(values[:3], np.eye(len(values))[:, :3], 1.0, spectrum=values,
                    noise_deviation=deviation, n_units=1000)  # fmt: skip


def test_the_order_in_words(results):
    study = load.load_study(STUDY)
    rest = np.linspace(0.011, 0.009, 18).tolist()
    noisy = subspace_of([1.0, 0.5, *rest], 2e-2)
    line = sentences.order_line(study, noisy)
    more = ", more than either supports: the last ones are uncertain"
    assert line == f"order: threshold 2, MDL 2; the study uses 3{more}"
    edge, text = sentences.order_in_words(study, noisy)
    assert "2 of 20 eigenvalues exceed" in text
    assert "indistinguishable from noise" in text
    assert "white" not in text
    assert 0.011 < edge < 0.5
    exact = subspace_of([1.0, 0.5, *rest], 0.0)
    said = sentences.order_in_words(study, exact)[1]
    assert "exceed the largest of sampling alone, if" in said and "white" in said
    assert "noise alone" not in said and "indistinguishable" not in said
    assert "tend to be large" in sentences.order_line(study, exact)
    assert "order of the run without noise" in sentences.order_line(study, exact)
    one_more = subspace_of([1.0, 0.5, 0.3, *rest], 2e-2)
    assert "indistinguishable" not in sentences.order_in_words(study, one_more)[1]
    told = replace(one_more, captured=np.array([0.8, 0.714, 0.9]))
    assert "at least 71% of the energy" in sentences.order_in_words(study, told)[1]
    unknown = replace(one_more, captured=np.full(3, np.nan))
    assert (
        "along its directions cannot be" in sentences.order_in_words(study, unknown)[1]
    )


def test_a_likely_cause_is_named_where_less_was_found_than_foretold(record):
    """A bound five times too large, which no page may know but by what was released."""
    study = load.load_study(STUDY)
    none = replace(TOLD, labels=(verdict.NOT_ABOVE,))
    for told, ratio, is_told in (
        (none, 0.3, True),
        (none, 3, False),
        (TOLD, 0.3, False),
    ):
        own = chapter(study)._replace(verdicts=told, forecast={"PCA": ratio})
        page = pages.render(study, record, [own], Path("."))
        assert ("A likely cause is a norm bound" in page) == is_told
        assert ("<code>qc.html</code> has the usual norm" in page) == is_told
    small = subspace_of([0.02, 0.01, *[5e-4] * 18], 1e-3)  # 0.04 = 0.2^2 in all
    assert "usual norm at some 20% of pca.norm_bound" in sentences.loose_bound(small)[0]
    assert sentences.loose_bound(replace(small, noise_deviation=0.05)) == []
    assert sentences.loose_bound(subspace_of([0.5, 0.2, *[5e-4] * 18], 1e-3)) == []


def test_the_methods_text_names_regressors_as_nilearn_has_them():
    for name, known in preset_strategies.items():
        has = known.get("motion", ""), known.get("wm_csf", ""), known.get("compcor", "")
        assert methods_text.STRATEGIES[name] == has
        assert known["global_signal"] is None and "high_pass" in known["strategy"]
    given = {"standardize": "zscore", "run_mask": True, "dummy_scans": 4}
    asked = {"strategy": "simple", "global_signal": "power2"}
    said = methods_text.cleaned(Cleaning(**given, confounds=asked), "0.1")
    for part in (
        "24 regressors of motion (translations and rotations, their derivatives",
        "white matter and cerebrospinal fluid; the global signal, their squares; and",
        "slow cosines of fMRIPrep",
        "No other temporal filter",
        "outside a run's own brain mask",
        "first 4 volumes",
        "variance 1",
        "nilearn (Abraham et al. 2014; version 0.1 ",
    ):
        assert part in said, part
    scrubbed = methods_text.cleaned(
        Cleaning(standardize="psc", confounds="scrubbing"), "0.1"
    )
    assert "displacement above 0.5 mm or a standardized DVARS above 1.5" in scrubbed
    by_motion = {"fd_threshold": 0.5, "std_dvars_threshold": None}
    scrubbed = methods_text.cleaned(Cleaning(standardize="psc", scrub=by_motion), "0.1")
    assert "displacement above 0.5 mm were left out" in scrubbed
    assert "as they were" in methods_text.cleaned(
        Cleaning.model_validate("none"), "0.1"
    )
    name = "config/tpl-MNI152NLin6Asym_res-02_desc-brain_mask.nii.gz"
    assert methods_text.template_in(name) == "MNI152NLin6Asym"
    assert methods_text.template_in("data/mask.nii.gz") == ""


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["private", "private"], ""),
        (["private", "public"], "NOT PRIVATE: public data"),
        (["simulated", "public"], "NOT PRIVATE: public and simulated data"),
    ],
)
def test_stamp(tiny, kinds, expected):
    study = load.load_study(STUDY)
    assert stamp(study, dict(enumerate(kinds))) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"epsilon": 10.0}, ""),
        ({"epsilon": 10.5}, "WEAK PROMISE: no more than epsilon 10.5 for everything"),
        ({"site_epsilon": {"site-1": 30.0}}, "no more than epsilon 30 for everything"),
        ({"unit": "sample"}, "WEAK PROMISE: nothing for everything of a person"),
    ],
)
def test_a_weak_promise_is_stamped(tiny, changes, expected):
    for key, value in changes.items():
        edit(STUDY, f"budget.{key}", value)
    said = stamp(load.load_study(STUDY), {"a": "private"})
    assert expected in said if expected else not said


def test_exact_releases_break_the_promise_of_every_view(results):
    study = load.load_study(STUDY)
    sites = {"a": "private"}
    mu = dict.fromkeys(parties.VIEWS)
    site = {"sensitivity": None, "mu": mu}
    exact = {"query": "second_moment", "sites": {"a": site}, "survivors": ["a"]}
    record = privacy_record(study, sites, [exact])
    assert record["promise"]["has_noise"] is False
    assert record["sites"]["a"]["reader"] is None


def test_releases_of_two_plans_together_are_not_called_within_the_promise(record):
    """A subspace that took the whole budget, and rounds paid for by another plan."""
    assert record["promise"]["within_promise"] is True
    study, kinds = load.load_study(STUDY), dict.fromkeys(record["sites"], "private")
    more = [*record["releases"], record["releases"][0]]
    beyond = privacy_record(study, kinds, more)
    assert beyond["promise"]["within_promise"] is False
    page = pages.render(study, beyond, [chapter(study)], Path("."))
    assert "spent more than the (5, 1e-05)" in page
    assert "together are (5, 1e-05)" not in page


def test_a_page_escapes_what_it_is_given(results, record):
    study = load.load_study(STUDY)
    odd = chapter(study)._replace(scores=[["name", "1", "", "<b>x"]])
    text = pages.render(study, record, [odd], Path("."))
    assert "<b>x" not in text
    assert "&lt;b&gt;x" in text


def test_scores_of_a_perfect_unmixing(rng):
    A = rng.standard_normal((9, 3))
    perfect = {"W": np.eye(3), "unmixing": 2 * np.linalg.pinv(A), "mixing": A}
    rows = {
        name: value for name, value, *_ in scores.components(perfect, A, "truth", 2.0)
    }
    assert rows["truth_ngi"] == pytest.approx(0, abs=1e-12)
    assert rows["truth_mean_abs_r"] == pytest.approx(1)
    name, agreement, *_ = scores.components(perfect, A, "reference", 2.0)[-1]
    assert (name, agreement) == ("reference_agreement", pytest.approx(1))
    fewer = scores.components(perfect, A[:, :2], "truth", 2.0)
    assert [row[0] for row in fewer] == ["truth_mean_abs_r", "truth_min_abs_r"]


def test_the_page_says_what_was_forecast(record, monkeypatch):
    study = load.load_study(STUDY)
    words = "maps are forecast to correlate at r = 0.80 (0.75 to 0.85)"
    of_file = {"forecast.json": {"noise": {"PCA": 0.5}, "in_short": words}}
    monkeypatch.setattr(pages, "_read", lambda path: of_file.get(path.name, {}))
    own = chapter(study)._replace(
        foretold=pages.foretold(study), forecast=pages.forecast_of(study)
    )
    text = pages.render(study, record, [own], Path("."))
    assert f"<p>Forecast: {words}.</p>" in text


def test_the_page_says_who_took_part_and_what_was_void(results, record):
    study = load.load_study(STUDY)
    assert "took part in" not in (results / "report.html").read_text()
    releases = [dict(r) for r in record["releases"]]
    releases[2]["survivors"] = ["site-0", "site-2"]
    releases[3] |= {"survivors": [], "size": 0, "noise_deviation": None}
    kinds = {f"site-{i}": "private" for i in range(3)}
    told = privacy_record(study, kinds, releases)
    assert [told["sites"][s]["n_survived"] for s in kinds] == [3, 2, 3]
    page = pages.render(study, told, [chapter(study)], Path("."))
    assert "2 of 4" in page and "3 of 4" in page
    assert "2 to 3" in page and "(1 void)" in page


# The record as others check it


def test_a_record_agrees_with_its_own_releases(results, capsys):
    assert command("privacy", "verify", str(results / "privacy.json")) == 0
    assert "epsilon 5 at delta 1e-05 is kept" in capsys.readouterr().out
    exact = results / "reference" / "privacy.json"
    assert command("privacy", "verify", str(exact)) == 0
    assert "no promise was made" in capsys.readouterr().out
    own = ["--site-file", "site-0.yaml"]
    assert command("privacy", "verify", str(results / "privacy.json"), *own) == 0
    assert "has charged all 4 of them" in capsys.readouterr().out


def test_a_site_signs_the_record_that_its_ledger_agrees_with(
    results, tmp_path, capsys, monkeypatch
):
    site_file = str(Path("site-0.yaml").absolute())
    (tmp_path / "privacy.json").write_bytes((results / "privacy.json").read_bytes())
    path = str(tmp_path / "privacy.json")
    assert command("privacy", "sign", path) == 2
    assert command("privacy", "sign", path, "--site-file", site_file) == 0
    capsys.readouterr()
    assert command("privacy", "verify", path) == 0
    signature = tmp_path / "signatures" / "site-0.json"
    said = json.loads(signature.read_text())
    assert (
        f"signed by site-0, whose key must be {said['key']}" in capsys.readouterr().out
    )
    assert command("ledger", "key", site_file) == 0
    assert said["key"] in capsys.readouterr().out
    other = said["key"][::-1]
    for key, value in (("site", "site-1"), ("site", "a"), ("key", other)):
        signature.write_text(json.dumps(said | {key: value}))
        assert command("privacy", "verify", path) == 2
        assert "must be a site's signature" in capsys.readouterr().err
    # What was signed of another record does not keep a site from signing this one.
    assert command("privacy", "sign", path, "--site-file", site_file) == 0
    assert json.loads(signature.read_text()) == said


def numbers(part, key=()):
    """Keys of all numbers of a record."""
    if isinstance(part, dict | list):
        inner = part.items() if isinstance(part, dict) else enumerate(part)
        return [found for k, v in inner for found in numbers(v, (*key, k))]
    return [key] if isinstance(part, int | float) and not isinstance(part, bool) else []


def test_a_record_that_changed_in_any_number_is_found(record, tmp_path, capsys):
    """By the digest, and, were that renewed, by what the releases tell."""
    path, keys = tmp_path / "privacy.json", numbers(record)
    untold = {"n_sites", "survivor_threshold", "round", "size"}
    matter = [key for key in keys if key[-1] not in untold]
    assert len(matter) > 100
    for key in matter[:: max(len(matter) // 25, 1)]:
        changed = json.loads(json.dumps(record))
        inner = changed
        for part in key[:-1]:
            inner = inner[part]
        is_count = isinstance(inner[key[-1]], int)
        inner[key[-1]] += 1 if is_count else 1e-6 * inner[key[-1]] + 1e-9
        for renewed in (False, True):
            if renewed:
                changed["digest"] = privacy_schema.digest(changed)
            path.write_text(json.dumps(changed))
            capsys.readouterr()
            assert command("privacy", "verify", str(path)) == 2, (key, renewed)
            error = capsys.readouterr().err
            assert error.count("\n") == 1 and "changed" in error, (key, error)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "got no JSON"),
        ("{}", "format: must be 'capeneuro-privacy-3'"),
        ('{"format": "capeneuro-privacy-3"}', "study: field required"),
    ],
)
def test_what_is_no_record_is_refused_in_a_line(tmp_path, capsys, content, said):
    path = tmp_path / "privacy.json"
    path.write_text(content)
    assert command("privacy", "verify", str(path)) == 2
    assert said in capsys.readouterr().err


def test_the_schema_of_the_docs_is_that_of_the_records():
    docs = Path(__file__).parents[2] / "docs" / "privacy.schema.json"
    assert docs.read_text() == privacy_schema.schema()


def test_a_record_is_an_entry_of_the_registry(results, capsys):
    assert command("privacy", "registry", str(results / "privacy.json")) == 0
    entry = yaml.safe_load(capsys.readouterr().out)
    parts = entry["deployment"]
    assert set(parts) == {
        *("basic", "dp_variant", "privacy_loss", "deployment_model"),
        *("accounting", "implementation", "administrative"),
    }
    parameters = parts["privacy_loss"]["privacy_parameters"]
    assert parameters == {"epsilon": 5.0, "delta": 1e-5}
    assert entry["tier"] == 3 and parts["deployment_model"]["model_name"] == "Federated"


def test_every_query_is_said_in_words():
    assert protection.ANSWERS.keys() == queries.QUERIES.keys()


def test_a_range_is_one_of_numbers():
    assert pages._range([9, 10], "{:d}") == "9 to 10"
    assert pages._range([0.009, 0.01, None], "{:.2e}") == "9.00e-03 to 1.00e-02"


DRAWING = """
import time
from dataclasses import replace
from functools import partial
from capeneuro.report import page
from capeneuro.report.figures import Figure
page.pictures([Figure(title, partial(time.sleep, 60)) for title in "ab"], 2)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_a_report_that_is_killed_leaves_no_worker():
    drawing = subprocess.Popen([sys.executable, "-c", DRAWING])
    children = Path(f"/proc/{drawing.pid}/task/{drawing.pid}/children")
    while len(workers := children.read_text().split()) < 2:
        time.sleep(0.05)
    drawing.kill()
    drawing.wait()
    for _ in range(100):
        alive = [w for w in workers if Path(f"/proc/{w}/cmdline").exists()]
        if not any(Path(f"/proc/{w}/cmdline").read_bytes() for w in alive):
            return  # what is left is not yet reaped
        time.sleep(0.05)
    raise AssertionError(alive)


def test_a_fusions_lines_and_verdicts_count_alike(rng):
    """Noise makes correlations above 1: a line must say no more than the verdict."""
    n = 15 * 16 // 2
    for tau in (1e-3, 0.02, 0.3):
        for _ in range(20):
            E = tau * linalg.unpack_symmetric(rng.standard_normal(n))
            released = Moment(np.eye(15) / 15 + E, tau)
            found = cca.from_moment(released, np.array([200]), 3, 7)
            above = verdicts.of_pairs(found).exceeds_noise.sum()
            assert sentences.correlation_lines(found)[0].startswith(
                f"{above} of 3 pairs"
            )
