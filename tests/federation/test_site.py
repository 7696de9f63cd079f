"""The audit: what a site lets out, what it refuses, and that it charges first."""

import inspect
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np
import pytest
from helpers import (
    agree,
    budget,
    in_process,
    make_mechanism,
    make_site,
    make_sites,
    request,
)

from capeneuro.federation.ledger import Exchange, Ledger
from capeneuro.federation.messages import pack
from capeneuro.federation.requests import EXACT_ARMS, PROTOCOL
from capeneuro.federation.rounds import RoundFailed
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.privacy import accounting, queries

REFUSED = "refused"
FORM = "form of the request, "
FLOOR, RANGE = "noise multiplier below the floor", "range of the noise"
THREE = ("site0", "site1", "site2")


@pytest.fixture(autouse=True)
def quiet_logs(caplog):
    caplog.set_level(logging.CRITICAL + 1)


@pytest.fixture
def sites(rng, tmp_path) -> dict[str, Site]:
    """Three sites with private data; the tests ask the first."""
    options = {"kind": "private", "ceiling": budget(1.0), "min_colluding": 1}
    return make_sites([2, 3, 4], 5, 6, rng, tmp_path, **options)


@pytest.fixture
def site(sites) -> Site:
    return sites["site0"]


def _ask(sites: dict[str, Site], **changes: Any) -> dict[str, Any]:
    changes = {"noise_multiplier": 20.0, "n_colluding": 1, **changes}
    return _answer(sites, request(sites, **changes))


def _answer(sites: dict[str, Site], asked: dict[str, Any]) -> dict[str, Any]:
    """What the first site answers to a request, in all its exchanges."""
    return sites["site0"].answer("release", agree(sites, asked)["site0"])


def _answer_with(monkeypatch: pytest.MonkeyPatch, total: Callable[..., Any]) -> None:
    # Keywords are those of the query it replaces.
    def form(block, *, norm_bound, clip, center=None):
        return total(block.X)

    query = replace(queries.QUERIES["second_moment"], total=form)
    monkeypatch.setitem(queries.QUERIES, "second_moment", query)


def _rule(reply: dict[str, Any]) -> str:
    assert set(reply) == {"error", "rule"}
    return reply["rule"]


def _spent(site: Site) -> float:
    return site._ledger.total()


# The wire


def test_public_methods_are_the_protocol():
    public = [n for n, _ in inspect.getmembers(Site) if not n.startswith("_")]
    assert public == sorted(["answer", "quantum", "room", *PROTOCOL])
    one_exchange = {"describe", "mask_key", "project", "release"}
    assert set(PROTOCOL) == one_exchange | {"advertise", "share", "confirm", "unmask"}


def test_the_table_of_the_protocol_is_what_a_site_answers(site):
    for name, task in PROTOCOL.items():
        hints = get_type_hints(getattr(site, name))
        assert hints == {"message": task.takes, "return": task.leaves}
        assert task.guarantee


@pytest.mark.parametrize("arm", ["cape", "secure_sum", "conventional", "non-private"])
def test_messages_have_the_fields_of_the_table(rng, arm):
    sites = make_sites([2, 3, 4, 5], 5, 6, rng)
    taken, left = {}, {}

    class Recorded:
        def __init__(self, site: Site) -> None:
            self.site = site

        def answer(self, what: str, message: dict[str, Any]) -> dict[str, Any]:
            reply = self.site.answer(what, message)
            taken.setdefault(what, set()).update(message)
            left.setdefault(what, set()).update(reply)
            return reply

    federation = in_process({name: Recorded(site) for name, site in sites.items()})
    for t in (None, 3):  # in one exchange, and in four
        promise = replace(budget(), survivor_threshold=t)
        mechanism = make_mechanism(arm, consistency=t is not None, budget=promise)
        mechanism.project(federation, np.eye(2, 5), 1.0)
        mechanism.answer(federation, "mean", {"norm_bound": 1.0, "clip": 1.0})
    if arm == "cape":  # which sends all that can be sent
        assert taken == {
            name: set(one.takes.model_fields) for name, one in PROTOCOL.items()
        }
        assert left == {
            name: set(one.leaves.model_fields) for name, one in PROTOCOL.items()
        }
    for name in taken:
        assert taken[name] <= set(PROTOCOL[name].takes.model_fields)
        assert left[name] <= set(PROTOCOL[name].leaves.model_fields)


def test_a_site_has_no_public_attributes(site):
    assert [n for n in vars(site) if not n.startswith("_")] == ["name"]


@pytest.mark.parametrize(
    "what",
    [
        *(
            "",
            "answer",
            "_mean",
            "_blocks",
            "__init__",
            "__class__",
            "name",
            "releases",
        ),
        *("_methods", "Release", "release ", None, 0, ["release"], {"release": 1}),
    ],
)
def test_other_names_are_refused(site, what):
    assert _rule(site.answer(what, {})) == "unknown request"


def test_describe_returns_four_public_facts_and_signs_them(site):
    facts = site.answer("describe", {"unit": "subject"})
    assert set(facts) == {"n_units", "key", "kind", "version", "signature"}
    assert facts["n_units"] == 2
    assert facts["kind"] == "private"
    assert len(facts["key"]) == 32


def test_version_tells_that_data_changed_and_nothing_more(tmp_path):
    data = {"a": np.zeros((2, 3))}
    folder, other = tmp_path / "x", tmp_path / "y"
    a, b = (make_site("s", data, folder, digest=d) for d in ("one", "two"))
    c = make_site("s", data, other, digest="one")
    versions = {s.answer("describe", {"unit": "subject"})["version"] for s in (a, b, c)}
    assert len(versions) == 3
    assert not any("one" in v or "two" in v for v in versions)


def test_project_only_acknowledges(site):
    message = {"matrix": np.ones((2, 5)), "norm_bound": 1.0, "center": np.zeros(5)}
    assert site.answer("project", message) == {}
    assert _spent(site) == 0


@pytest.mark.parametrize(
    ("arm", "parts"),
    [
        ("local", {"noisy", "signature"}),
        ("conventional", {"noisy", "signature"}),
        ("cape", {"noisy", "masked", "signature"}),
        ("secure_sum", {"masked", "signature"}),
    ],
)
def test_a_release_has_the_parts_of_its_arm(sites, arm, parts):
    assert set(_ask(sites, arm=arm)) == parts


# Refusals


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"query": "raw_data"}, "unknown query"),
        ({"arm": "plain"}, FORM + "arm"),
        ({"arm": ""}, FORM + "arm"),
        ({"arm": "non-private"}, "arm without privacy on private data"),
        ({"arm": "pooled"}, "arm without privacy on private data"),
        ({"relation": "zero-out"}, "relation"),
        ({"relation": "add-or-remove"}, FORM + "relation"),
        ({"variances": {}}, FORM + "variances"),
        ({"variances": dict.fromkeys(("site0", "site1"), 99.0)}, FORM + "variances"),
        ({"variances": dict.fromkeys(THREE, 0.0)}, FORM + "variances"),
        ({"variances": dict.fromkeys(THREE, -9.0)}, FORM + "variances"),
        ({"variances": dict.fromkeys(THREE, 1e-31)}, FORM + "variances"),
        ({"variances": dict.fromkeys(THREE, float("nan"))}, FORM + "variances"),
        ({"variances": dict.fromkeys([*THREE, "x"], 99.0)}, FORM + "variances"),
        ({"variances": dict.fromkeys(THREE, 99.0) | {"site2": 1e-29}}, RANGE),
        ({"variances": dict.fromkeys(THREE, 1e9) | {"site0": 1e-29}}, FLOOR),
        ({"variances": dict.fromkeys(THREE, 1e4) | {"site2": 1e-24}}, RANGE),
        ({"variances": dict.fromkeys(THREE, 1e9) | {"site2": 1e4}}, RANGE),
        ({"noise_ratio": 1e12}, RANGE),
        ({"noise": "none"}, FORM + "noise"),
        ({"n_colluding": 0}, "number of colluding sites"),
        ({"n_colluding": -1}, FORM + "n_colluding"),
        ({"n_colluding": 3}, "number of colluding sites"),
        ({"n_colluding": float("nan")}, FORM + "n_colluding"),
        (
            {"parameters": {"norm_bound": 1.0, "clip": float("inf")}},
            "unbounded sensitivity",
        ),
        (
            {"parameters": {"norm_bound": 1.0, "clip": float("nan")}},
            "parameters of the query",
        ),
        ({"roster": {}}, "own entry in the roster"),
    ],
    ids=str,
)
def test_each_rule_refuses_uncharged(sites, changes, rule):
    if changes.get("roster") == {}:
        changes = {**changes, "arm": "conventional"}
    reply = _ask(sites, **changes)
    assert reply["error"] == REFUSED
    assert _rule(reply) == rule
    assert _spent(sites["site0"]) == 0


@pytest.mark.parametrize("unit", ["scan", None, "Subject"])
def test_an_unknown_unit_is_refused(sites, unit):
    message = request(sites, n_colluding=1, noise_multiplier=20.0)
    reply = _answer(sites, {**message, "unit": unit})
    assert _rule(reply) == FORM + "unit"


def test_samples_are_refused_where_the_ceiling_protects_subjects(sites):
    message = request(sites, n_colluding=1, noise_multiplier=20.0)
    reply = _answer(sites, {**message, "unit": "sample"})
    assert _rule(reply) == "unit weaker than the ceiling's"
    assert _spent(sites["site0"]) == 0


@pytest.mark.parametrize("field", ["n_units", "key", "kind", "version"])
def test_a_false_entry_about_oneself_is_refused(sites, field):
    message = request(sites, n_colluding=1, noise_multiplier=20.0)
    other = "public" if field == "kind" else message["roster"]["site1"][field] * 2
    message["roster"]["site0"][field] = other
    reply = _answer(sites, message)
    assert _rule(reply) == "own entry in the roster"


@pytest.mark.parametrize("arm", ["cape", "conventional"])
def test_the_floor_of_the_site_holds(rng, arm):
    sites = make_sites([2, 2], 5, 6, rng, min_noise_multiplier=10.0)
    assert _ask(sites, noise_multiplier=10.0, arm=arm).keys() >= {"noisy"}
    reply = _ask(sites, noise_multiplier=9.999, arm=arm)
    assert _rule(reply) == "noise multiplier below the floor"


@pytest.mark.parametrize(("kind", "least"), [("private", 1), ("simulated", 0)])
def test_of_two_private_sites_the_other_always_counts(rng, tmp_path, kind, least):
    """It takes its own noise off the result, whatever the site's file allows."""
    for n_colluding in (0, 1):
        folder = tmp_path / str(n_colluding)
        sites = make_sites([2, 2], 5, 6, rng, folder, kind=kind, min_colluding=0)
        reply = _ask(sites, n_colluding=n_colluding)
        if n_colluding < least:
            assert _rule(reply) == "number of colluding sites"
        else:
            assert reply.keys() >= {"noisy"}


def test_a_query_of_another_projection_is_refused(rng):
    sites = make_sites([2, 3], 5, 6, rng)
    mechanism = make_mechanism("conventional")
    parameters = {"W": np.eye(2), "clip": 1.0}
    digests = []
    for U in (np.eye(2, 5), np.eye(2, 5)[::-1].copy()):
        mechanism.project(in_process(sites), U, 1.0)
        digests.append(sites["site0"]._reduction)
    about = {"query": "infomax_skew", "parameters": parameters, "arm": "conventional"}
    first, last = (_ask(sites, **about, reduction=digest) for digest in digests)
    assert _rule(first) == "query before its projection"
    assert "noisy" in last


def test_a_line_of_the_ledger_says_what_noise_was_asked_for(sites):
    _ask(sites, noise_multiplier=20.0)
    (line,) = sites["site0"]._ledger.releases()
    assert line.noise_multiplier == pytest.approx(1 / line.mu)
    assert line.mu == pytest.approx(1 / 20)


def test_a_query_before_its_projection_is_refused(sites):
    parameters = {"W": np.eye(2), "clip": 1.0}
    changes = {"query": "infomax_skew", "parameters": parameters, "reduction": "00"}
    assert _rule(_ask(sites, **changes)) == "query before its projection"


def test_a_matrix_that_does_not_fit_is_refused(site):
    message = {"matrix": np.ones((2, 4)), "norm_bound": 1.0, "center": np.zeros(5)}
    assert _rule(site.answer("project", message)) == "matrix does not fit the features"


@pytest.mark.parametrize("arm", EXACT_ARMS)
@pytest.mark.parametrize("kind", ["simulated", "public"])
def test_exact_arms_run_on_other_kinds(rng, arm, kind):
    sites = make_sites([2, 2], 5, 6, rng, kind=kind)
    assert set(_ask(sites, arm=arm)) == {"noisy"}


@pytest.mark.parametrize("seed", [0, 7])
def test_private_data_refuse_a_seed(tmp_path, seed):
    ledger = Ledger(tmp_path, budget())
    with pytest.raises(ValueError, match="remove `seed`"):
        Site("a", {}, {}, ledger, Limits("private"), seed=seed)


def test_private_data_refuse_a_ledger_in_memory():
    with pytest.raises(ValueError, match="need a ledger on disk"):
        Site("a", {}, {}, Ledger(None, budget()), Limits("private"))


def test_limits_are_private_by_default():
    assert Limits().kind == "private"


# Charging


def test_a_release_is_charged_at_its_multiplier(sites):
    _ask(sites)
    assert _spent(sites["site0"]) == pytest.approx(1 / 20)
    _ask(sites, round=1)
    assert _spent(sites["site0"]) == pytest.approx(np.sqrt(2) / 20, rel=1e-4)


def test_the_same_request_is_answered_from_the_ledger(sites):
    first, again = _ask(sites), _ask(sites)
    assert pack(first) == pack(again)
    assert _spent(sites["site0"]) == pytest.approx(1 / 20)


@pytest.mark.parametrize(
    "change",
    [{"round": 1}, {"study": "u"}, {"noise_ratio": 101.0}, {"arm": "secure_sum"}],
    ids=str,
)
def test_any_other_request_is_a_new_release_with_new_masks(sites, change):
    first, other = _ask(sites), _ask(sites, **change)
    assert not (first["masked"] == other["masked"]).any()
    assert _spent(sites["site0"]) == pytest.approx(np.sqrt(2) / 20, rel=1e-4)


def test_other_data_are_another_request(tmp_path):
    data = [{"a": np.full((5, 6), v)} for v in (0.0, 1.0)]
    replies = []
    for X, version in zip(data, ("v1", "v2"), strict=True):
        site = make_site("site0", X, tmp_path / "l", digest=version, kind="private")
        replies.append(_ask({"site0": site}, n_colluding=0))
    assert not (replies[0]["noisy"] == replies[1]["noisy"]).any()
    assert _spent(site) == pytest.approx(np.sqrt(2) / 20)


def test_beyond_the_ceiling_nothing_leaves(sites):
    mu = accounting.mu_from_epsilon(1.0, 1e-5)
    assert "noisy" in _ask(sites, noise_multiplier=1.01 / mu)
    reply = _ask(sites, noise_multiplier=1.01 / mu, round=1)
    assert reply == {"error": "budget", "rule": "ceiling"}
    assert _spent(sites["site0"]) == pytest.approx(mu / 1.01)


@pytest.mark.parametrize(
    "error", [OSError("disk full"), RuntimeError("bug"), KeyError(1)]
)
def test_without_a_charge_nothing_leaves(sites, monkeypatch, error):
    def charge(*_: Any) -> bytes:
        raise error

    monkeypatch.setattr(sites["site0"]._ledger, "charge", charge)
    reply = _ask(sites)
    assert reply["error"] == "failed"
    _rule(reply)


def test_what_leaves_is_what_the_ledger_returned(sites, monkeypatch):
    stored = {"noisy": np.arange(3.0)}
    monkeypatch.setattr(
        sites["site0"]._ledger,
        "charge",
        lambda *args: Exchange(args[2].asked, pack(stored)),
    )
    np.testing.assert_array_equal(_ask(sites)["noisy"], stored["noisy"])


def test_a_damaged_ledger_stops_releases(sites):
    _ask(sites)
    path = sites["site0"]._ledger.folder / "ledger.jsonl"
    path.write_bytes(b"x" + path.read_bytes())
    assert _ask(sites, round=1) == {"error": "failed", "rule": "ledger"}
    assert _ask(sites) == {"error": "failed", "rule": "ledger"}


# Errors carry no data

SECRET = 7654.321


@pytest.mark.parametrize(
    "error", [ValueError, KeyError, FloatingPointError, MemoryError]
)
def test_an_error_carries_a_code_and_a_rule_only(tmp_path, monkeypatch, error):
    def leaky(X: np.ndarray, *_: Any, **__: Any) -> np.ndarray:
        raise error(f"bad value {X[0, 0]}")

    _answer_with(monkeypatch, leaky)
    site = make_site("site0", {"a": np.full((5, 6), SECRET)}, tmp_path, kind="private")
    reply = _ask({"site0": site}, n_colluding=0)
    assert reply == {"error": "failed", "rule": "internal"}
    assert b"7654" not in pack(reply)


@pytest.mark.parametrize(
    "message",
    [{}, {"unit": "subject"}, {"roster": []}, {"query": []}, {"roster": {"site0": 1}}],
    ids=str,
)
@pytest.mark.parametrize("what", PROTOCOL)
def test_a_malformed_message_is_an_error_reply(site, what, message):
    if what == "describe" and message.get("unit"):
        return
    reply = site.answer(what, message)
    assert reply["error"] in ("failed", REFUSED)
    forms = ("internal", "matrix does not fit the features")
    assert reply["rule"] in forms or reply["rule"].startswith(
        (FORM, "form of the message")
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {}},
        {"parameters": {"clip": 1.0}},
        {"parameters": {"norm_bound": 1.0, "clip": 1.0, "extra": 1}},
        {"parameters": {"norm_bound": 1.0, "clip": 0.0}},
        {"parameters": {"norm_bound": "x", "clip": 1.0}},
        {"variances": dict.fromkeys(THREE, float("inf"))},
        {"variances": dict.fromkeys(THREE, "20")},
        {"variances": [20.0, 20.0, 20.0]},
        {"noise_ratio": float("nan")},
        {"noise_ratio": float("inf")},
        {"noise_ratio": -1.0},
        {"noise_ratio": -2.5},
        {"noise_ratio": None},
        {"n_colluding": "1"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_malformed_release_leaves_nothing_and_costs_nothing(sites, changes):
    reply = _ask(sites, **changes)
    assert reply["error"] in ("failed", REFUSED)
    _rule(reply)
    assert _spent(sites["site0"]) == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_statistic_that_is_not_finite_does_not_leave(tmp_path, value, monkeypatch):
    _answer_with(monkeypatch, lambda *_, **__: np.full(3, value))
    site = make_site("site0", {"a": np.zeros((5, 6))}, tmp_path, kind="private")
    for arm in ("cape", "conventional", "secure_sum"):
        reply = _ask({"site0": site}, arm=arm, n_colluding=0)
        assert reply["error"] == "failed"
    assert _spent(site) == 0


def test_private_noise_is_never_seeded(sites, monkeypatch):
    def forbidden(*_: Any) -> None:
        raise AssertionError("a generator of NumPy's was used")

    monkeypatch.setattr(np.random, "default_rng", forbidden)
    assert "noisy" in _ask(sites)


# Holes found by attack; each becomes an ordinary test when it is closed.


def _attacked(sites: dict[str, Site], **changes: Any) -> str:
    reply = _ask(sites, **changes)
    return "released" if "error" not in reply else f"{reply['error']}: {reply['rule']}"


def test_made_up_sites_do_not_thin_the_noise(tmp_path, rng):
    # 1000 invented honest sites: 30 times less noise here for the same charge.
    agreed = dict.fromkeys(THREE)
    sites = make_sites([2, 3, 4], 5, 6, rng, tmp_path, kind="private", roster=agreed)
    message = request(sites, n_colluding=1, noise_multiplier=20.0, arm="secure_sum")
    assert "masked" in _answer(sites, message)
    for i in range(1000):
        message["roster"][f"ghost{i}"] = message["roster"]["site1"]
        message["variances"][f"ghost{i}"] = message["variances"]["site1"]
    message["survivor_threshold"] = len(message["roster"])
    reply = _answer(sites, message)
    assert reply == {"error": REFUSED, "rule": "sites that were not agreed on"}


@pytest.mark.parametrize(
    ("arm", "changes"),
    [
        ("conventional", {"variances": {"site0": 400.0, "site1": 1e-19}}),
        ("cape", {"variances": {"site0": 400.0, "site1": 1e-18}, "noise_ratio": 0.0}),
        ("cape", {"variances": {"site0": 1e6, "site1": 1e-10}, "noise_ratio": 1.5e22}),
    ],
    ids=["another's tiny noise", "the same in cape", "a ratio beyond doubles"],
)
def test_no_variance_shows_the_lattice_of_doubles(tmp_path, rng, arm, changes):
    # The grid follows the smallest noise; values far above it would leave unrounded.
    sites = make_sites([2, 3], 5, 6, rng, tmp_path, kind="private", ceiling=budget(1.0))
    reply = _ask(sites, arm=arm, n_colluding=1, **changes)
    assert reply == {"error": REFUSED, "rule": RANGE}
    assert _spent(sites["site0"]) == 0


def test_a_pinned_key_must_be_the_one_that_was_agreed(tmp_path, rng):
    sites = make_sites([2, 3], 5, 6, rng, tmp_path, kind="private")
    facts = sites["site1"].answer("describe", {"unit": "subject"})
    data = {"a": rng.standard_normal((5, 6))}
    for key, rule in (
        (facts["key"], None),
        (bytes(32), "sites that were not agreed on"),
    ):
        pins = {"site0": None, "site1": key}
        site = make_site("site0", data, tmp_path / "p", kind="private", roster=pins)
        reply = _ask({"site0": site, "site1": sites["site1"]})
        assert reply.get("rule") == rule


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("norm_bound", [1e-18, 3e-17])
def test_no_parameter_turns_the_size_of_the_data_into_an_error(tmp_path, norm_bound):
    # By halving norm_bound the aggregator reads the largest value, free of charge.
    replies = []
    for value in (1.0, 1e4):
        data = {"a": np.full((5, 6), value)}
        site = make_site("site0", data, tmp_path / str(value), kind="private")
        parameters = {"norm_bound": norm_bound, "clip": 1.0}
        sites = {"site0": site}
        replies.append(_attacked(sites, parameters=parameters, n_colluding=0))
    assert replies[0] == replies[1]


def test_no_multiplier_turns_the_statistic_into_an_error(tmp_path):
    # |u| beyond the ring for small statistics or large: the ceiling is asked too late.
    replies = []
    for value in (1e-3, 1.0):
        data, ceiling = {"a": np.full((1, 20000), value)}, budget(1.0, "sample")
        site = make_site("site0", data, tmp_path / str(value), ceiling, kind="private")
        changes = {"noise_multiplier": 1e-9, "arm": "conventional", "unit": "sample"}
        replies.append(_attacked({"site0": site}, **changes))
    assert replies[0] == replies[1]


def test_sample_counts_stay_at_a_site_of_subjects(site):
    assert "error" in site.answer("describe", {"unit": "sample"})


@pytest.mark.parametrize("field", ["study", "round"])
def test_an_array_for_a_name_does_not_break_the_ledger(sites, field):
    _attacked(sites, **{field: np.zeros(1)})
    assert _attacked(sites) == "released"


def test_sizes_of_other_sites_are_plausible(sites):
    # The variance becomes a denormal number and is rounded, here down to two thirds.
    message = request(sites, n_colluding=1, noise_multiplier=20.0, arm="conventional")
    message["roster"]["site1"]["n_units"] = 1e162
    assert _answer(sites, message).get("error") == REFUSED


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "parameters",
    [
        {"norm_bound": np.ones((1, 1, 1)), "clip": 1.0},
        {"norm_bound": 1.0, "clip": -1.0},
        {"norm_bound": 0.0, "clip": 1.0},
        {"norm_bound": -1.0, "clip": 1.0},
        {"norm_bound": 1e-300, "clip": 1.0},
        {"norm_bound": 1.0, "clip": 1e-300},
        {"norm_bound": True, "clip": 1.0},
    ],
    ids=str,
)
def test_parameters_out_of_range_are_refused(sites, parameters):
    assert _attacked(sites, parameters=parameters).startswith(REFUSED)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "changes",
    [
        {"W": np.ones((9, 1)), "b": np.zeros(9)},
        {"W": np.ones((2, 2, 2))},
        {"W": np.full((2, 2), np.nan)},
        {"W": np.full((2, 2), 1e30)},
        {"b": np.zeros((2, 1))},
        {"as_printed": True},
        {"clip": -1.0},
    ],
    ids=lambda c: ",".join(c),
)
def test_components_parameters_out_of_range_are_refused(sites, changes):
    matrix = np.ones((1 if np.shape(changes.get("W"))[-1:] == (1,) else 2, 5))
    projection = {"matrix": matrix, "norm_bound": 1.0, "center": np.zeros(5)}
    sites["site0"].answer("project", projection)
    parameters = {"W": np.eye(2), "b": np.zeros(2), "clip": 1.0, **changes}
    reply = _attacked(
        sites,
        query="infomax_gradient",
        parameters=parameters,
        reduction=sites["site0"]._reduction,
    )
    assert reply.startswith(REFUSED)


def test_lengths_that_are_not_those_of_the_data_are_refused(tmp_path):
    X = {"a": np.zeros((2, 9), "f4"), "b": np.zeros((2, 3), "f4")}
    site = Site("s", X, {"a": 3, "b": 9}, Ledger(tmp_path, budget()), Limits())
    message = {"matrix": np.eye(2), "norm_bound": 1.0, "center": np.zeros(2)}
    assert "error" in site.answer("project", message)


AGREED = {"study": "t", "arm": "cape", "n_colluding": 1, "survivor_threshold": 3}


@pytest.mark.parametrize(
    "change",
    [
        {"study": "another"},
        {"arm": "secure_sum"},
        {"n_colluding": 0},
        {"n_colluding": 2},
        {"survivor_threshold": 2},
    ],
    ids=str,
)
def test_a_request_that_differs_from_the_agreed_study_is_refused(rng, tmp_path, change):
    sites = make_sites([2, 3, 4], 5, 6, rng, tmp_path, kind="private", study=AGREED)
    assert "noisy" in _ask(sites)
    reply = _ask(sites, round=1, **change)
    assert reply == {"error": REFUSED, "rule": "study that was not agreed on"}
    assert _spent(sites["site0"]) == pytest.approx(1 / 20)


def test_a_study_ends_at_its_promise_though_the_ceiling_has_room(rng, tmp_path):
    promise = accounting.Budget(1.0, 1e-5, "subject", "replace-one", 1)
    options = {"kind": "private", "ceiling": budget(9.0), "promise": promise}
    sites = make_sites([2, 3, 4], 5, 6, rng, tmp_path, **options)
    last = {"noise_multiplier": 1.01 / promise.mu}
    assert "noisy" in _ask(sites, **last)
    assert "noisy" in _ask(sites, **last)  # the same request, from the ledger
    reply = _ask(sites, round=1, noise_multiplier=20.0)
    assert reply == {"error": REFUSED, "rule": "beyond the study's promise"}
    assert "noisy" in _ask(sites, study="another", **last)


def test_a_site_that_refuses_is_waited_for_and_nobody_pays_twice(rng, tmp_path):
    sites = make_sites([2, 3], 5, 6, rng, tmp_path, kind="private")
    data = {"a": rng.standard_normal((5, 6))}
    strict = {"ceiling": budget(0.1), "kind": "private"}
    sites["site2"] = make_site("site2", data, tmp_path / "strict", **strict)
    mechanism = make_mechanism("cape", n_colluding=1)
    asked = in_process(sites), "second_moment", {"norm_bound": 1.0, "clip": 1.0}
    for _ in range(2):
        with pytest.raises(RoundFailed, match="site2: refused"):
            mechanism.answer(*asked)
        spent = [_spent(site) for site in sites.values()]
        assert spent == pytest.approx([0.25, 0.25, 0.0])
    sites["site2"]._ledger.ceiling = budget(9.0)
    release = mechanism.answer(*asked)
    assert release.survivors == ("site0", "site1", "site2")
    assert [_spent(site) for site in sites.values()] == pytest.approx([0.25] * 3)


@pytest.mark.parametrize(
    "odd",
    [
        {"norm_bound": np.ones((1, 37))},
        {"norm_bound": np.inf},
        {"center": np.ones((1, 37))},
        {"center": np.full(5, np.nan)},
        {"matrix": np.full((2, 5), np.nan)},
        {"matrix": np.ones((6, 5))},
        {"matrix": np.ones((2, 5), "i8")},
        {"more": 1},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_no_projection_tells_how_many_volumes_people_have(tmp_path, odd):
    # One bound per volume fits people of so many volumes alone, free of charge.
    message = {"matrix": np.zeros((1, 5)), "norm_bound": 1.0}
    message |= {"center": np.zeros(5), **odd}
    replies = []
    for n_volumes in (37, 41):
        data = {"a": np.zeros((5, n_volumes))}
        site = make_site("site0", data, tmp_path / str(n_volumes), kind="private")
        replies.append(site.answer("project", message))
    rules = ("matrix does not fit the features", "form of the message, fields")
    assert replies[0] == replies[1]
    assert replies[0] == {"error": REFUSED, "rule": rules["more" in odd]}


def test_another_roster_does_not_start_the_promise_anew(rng, tmp_path):
    # The aggregator writes the roster: what it says of others must not reset a count.
    promise = accounting.Budget(1.0, 1e-5, "subject", "replace-one", 1)
    options = {"kind": "private", "ceiling": budget(9.0), "promise": promise}
    sites = make_sites([2, 3, 4], 5, 6, rng, tmp_path, **options)
    asked = request(sites, n_colluding=1, noise_multiplier=1.01 / promise.mu)
    assert "noisy" in _answer(sites, asked)
    sites["site2"]._digest = "another"
    asked["roster"]["site2"] = sites["site2"].answer("describe", {"unit": "subject"})
    reply = _answer(sites, asked)
    assert reply == {"error": REFUSED, "rule": "beyond the study's promise"}


def test_two_requests_at_once_do_not_pass_the_promise_together(rng, tmp_path):
    promise = accounting.Budget(1.0, 1e-5, "subject", "replace-one", 0)
    options = {"kind": "private", "ceiling": budget(9.0), "promise": promise}
    sites = make_sites([2, 3], 5, 6, rng, tmp_path, **options)
    forms = {"arm": "conventional", "noise_multiplier": 1.01 / promise.mu}
    messages = [{"request": request(sites, round=i, **forms)} for i in range(2)]
    site = sites["site0"]
    replies = [site.answer("release", message) for message in messages]
    assert "noisy" in replies[0]
    assert replies[1] == {"error": REFUSED, "rule": "beyond the study's promise"}


@pytest.mark.parametrize(("n", "fits"), [(0, False), (1, True), (3, True), (4, False)])
def test_a_person_has_a_volume_and_no_more_than_the_longest(n, fits):
    people = {"ann": np.ones((2, n), np.float32), "bob": np.ones((2, 3), np.float32)}
    about = {who: x.shape[1] for who, x in people.items()}
    ledger = Ledger(None, budget(5.0))
    with nullcontext() if fits else pytest.raises(ValueError, match="ann"):
        Site("north", people, about, ledger, Limits("simulated"), longest=3)
