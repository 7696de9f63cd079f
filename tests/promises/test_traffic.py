"""All that leaves the sites in a whole study: declared kinds, fields and sizes."""

import struct
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from faulty import Faulty, Sent
from helpers import make_mechanism, make_sites, mask_keys, request

from capeneuro.algorithms.ica import infomax
from capeneuro.algorithms.pca import principal_subspace
from capeneuro.federation.messages import Message, pack, unpack
from capeneuro.federation.requests import PROTOCOL, Request
from capeneuro.federation.rounds import Checkpoint, gather
from capeneuro.federation.site import Site
from capeneuro.privacy import accounting

S, D, K, ROUNDS = 5, 6, 3, 2
ENTRIES = {"second_moment": D * (D + 1) // 2, "infomax_skew": K * (K - 1) // 2}
FIELDS = {
    "describe": {"n_units", "key", "kind", "version", "signature"},
    "mask_key": {"mask_key"},
    "project": set(),
    "advertise": {"keys"},
    "share": {"sealed"},
    "confirm": {"signature"},
    "unmask": {"shares"},
}
ONE = ("release",)
FOUR = ("advertise", "share", "release", "confirm", "unmask")
PARTS = {"cape": {"noisy", "masked"}, "secure_sum": {"masked"}}


def study(sites: dict[str, Site], arm: str, consistency: bool = False) -> Faulty:
    """Run PCA and ICA over the sites; the federation logged every byte."""
    federation = Faulty(sites)
    t = len(sites) - 1 if consistency else None  # in four exchanges, or in one
    promise = accounting.Budget(8.0, 1e-5, "subject", "replace-one", 1, t)
    common = {"budget": promise, "consistency": consistency}
    mechanism = make_mechanism(arm, **common)
    subspace = principal_subspace(federation, mechanism, K, 1.0)
    mechanism = make_mechanism(arm, **common)
    infomax(federation, mechanism, subspace, n_rounds=ROUNDS)
    return federation


@pytest.fixture(
    scope="module",
    params=[("cape", True), ("secure_sum", True), ("cape", False)],
    ids=["cape in four", "secure sum in four", "cape in one"],
)
def traffic(request) -> tuple[str, list[Sent], dict[str, Site]]:
    sites = make_sites([3] * S, D, 8, np.random.default_rng(2))
    return request.param[0], study(sites, *request.param).log, sites


def split(raw: bytes) -> tuple[int, int]:
    """Bytes of a message's JSON header, with its length, and of its buffers."""
    header = 8 + struct.unpack_from("<Q", raw)[0]
    return header, len(raw) - header


def payload(sent: Sent, arm: str) -> int:
    """Declared size of the buffers of a reply."""
    if sent.what == "release":
        query = unpack(sent.request)["request"]["query"]
        return 8 * len(PARTS[arm]) * ENTRIES[query] + 64
    return {
        "describe": 96,
        "mask_key": 96,
        "project": 0,
        "advertise": 160,
        "share": 114 * (S - 1),
        "confirm": 64,
        "unmask": 33 * S,
    }[sent.what]


def test_only_declared_kinds_of_messages_leave(traffic):
    _, log, sites = traffic
    in_one = any(sent.what == "mask_key" for sent in log)
    once = {"describe": 2, "project": 1, **({"mask_key": 2} if in_one else {})}
    rounds = dict.fromkeys(ONE if in_one else FOUR, 1 + ROUNDS)
    for name in sites:
        kinds = Counter(sent.what for sent in log if sent.name == name)
        assert kinds == once | rounds
    assert set(once) | set(rounds) | {"mask_key"} | set(FOUR) == set(PROTOCOL)


def test_every_reply_has_its_declared_fields_and_types(traffic):
    arm, log, sites = traffic
    for what, name, _, raw in log:
        reply = unpack(raw)
        others = set(sites) - {name}
        if what == "release":
            assert reply.keys() == PARTS[arm] | {"signature"}
            assert len(reply.pop("signature")) == 64
            assert all(x.dtype == np.uint64 and x.ndim == 1 for x in reply.values())
            continue
        assert reply.keys() == FIELDS[what]
        if what == "share":
            assert reply["sealed"].keys() == others
            assert {type(box) for box in reply["sealed"].values()} == {bytes}
        if what == "unmask":
            assert reply["shares"].keys() == set(sites)
            assert {len(y) for y in reply["shares"].values()} == {33}
        if what == "describe":
            assert type(reply["n_units"]) is int
            assert (len(reply["key"]), len(reply["version"])) == (32, 16)


def test_every_reply_has_its_declared_size(traffic):
    arm, log, _ = traffic
    for sent in log:
        header, buffers = split(sent.reply)
        assert buffers == payload(sent, arm), sent.what
        # Two names and a number for each buffer, and 200 bytes around them.
        n_buffers = {"share": S - 1, "unmask": S}.get(sent.what, 3)
        assert header <= 200 + 60 * n_buffers, sent.what


def test_requests_repeat_public_facts_only(traffic):
    _, log, _ = traffic
    in_one = any(sent.what == "mask_key" for sent in log)
    beside = {"mask_keys"} if in_one else {"advertised", "sealed"}
    fields = {
        "describe": {"unit"},
        "mask_key": {"study"},
        "project": {"matrix", "norm_bound", "center"},
        "advertise": {"request"},
        "share": {"request", "advertised"},
        "release": {"request"} | beside,
        "confirm": {"request", "survivors"},
        "unmask": {"request", "survivors", "signatures"},
    }
    for sent in log:
        assert unpack(sent.request).keys() == fields[sent.what]


def test_no_reply_holds_a_number_of_the_data(traffic):
    _, log, sites = traffic
    for name, site in sites.items():
        data = np.concatenate([X.ravel() for X in site._subjects.values()])
        numbers = {np.float64(x).tobytes() for x in data}
        sent = b"".join(s.reply for s in log if s.name == name and s.what == "release")
        assert not any(number in sent for number in numbers)


def test_the_record_notices_an_undeclared_field(traffic, monkeypatch):
    real = Site.answer

    def chatty(self: Site, task: str, message: Message) -> Message:
        more = {"mean": np.zeros(3)} if task == "project" else {}
        return real(self, task, message) | more

    monkeypatch.setattr(Site, "answer", chatty)
    arm, _, _ = traffic
    log = study(make_sites([3] * S, D, 8, np.random.default_rng(2)), arm).log
    with pytest.raises(AssertionError):
        test_every_reply_has_its_declared_fields_and_types((arm, log, traffic[2]))
    with pytest.raises(AssertionError):
        test_every_reply_has_its_declared_size((arm, log, traffic[2]))


def test_an_error_is_a_code_and_a_rule():
    sites = make_sites([3] * S, D, 8, min_noise_multiplier=1e6)
    asked = request(sites)
    for what in ("advertise", "share", "release", "confirm", "unmask"):
        raw = pack(sites["site0"].answer(what, {"request": asked}))
        assert unpack(raw).keys() == {"error", "rule"}
        assert len(raw) < 200


# --- how it grows [thesis, Table 3.1] ------------------------------------------------


def moved(n_sites: int, n_features: int, **forms: Any) -> tuple[int, int]:
    """Bytes to and from one site, and all sites, in one round."""
    sites = make_sites([2] * n_sites, n_features, 2)
    federation = Faulty(sites)
    asked = request(sites, consistency=True, **forms)
    gather(federation, Request.parse(asked), Checkpoint(), mask_keys(sites, asked))
    by_site: Counter[str] = Counter()
    for sent in federation.log:
        by_site[sent.name] += len(sent.request) + len(sent.reply)
    return max(by_site.values()), by_site.total()


@pytest.mark.parametrize("n_missing", [0, 1], ids=["one exchange", "four exchanges"])
@pytest.mark.parametrize("arm", ["cape", "secure_sum"])
def test_traffic_is_linear_at_a_site_and_quadratic_at_the_aggregator(arm, n_missing):
    for n_features in (2, 40):
        sizes = [
            moved(n, n_features, arm=arm, survivor_threshold=n - n_missing)
            for n in (4, 8, 16)
        ]
        for (site, total), (site_next, total_next) in pairwise(sizes):
            assert site < site_next <= 2 * site
            assert 2 * total < total_next <= 4 * total


@pytest.mark.parametrize(("arm", "width"), [("cape", 16), ("secure_sum", 8)])
def test_more_entries_cost_their_bytes_once_and_nothing_else(arm, width):
    for n_sites, t in ((3, 3), (6, 5)):
        forms = {"arm": arm, "survivor_threshold": t}
        small, large = (moved(n_sites, n, **forms) for n in (40, 80))
        entries = 80 * 81 // 2 - 40 * 41 // 2
        # Digits of sizes in headers differ.
        assert large[0] - small[0] == pytest.approx(width * entries, abs=30)
        assert large[1] - small[1] == pytest.approx(
            n_sites * width * entries, abs=30 * n_sites
        )


@pytest.mark.parametrize("n_sites", [4, 6, 12])
@pytest.mark.parametrize("n_missing", [0, 1])
def test_what_a_site_sends_follows_the_formula(n_sites, n_missing):
    sites = make_sites([2] * n_sites, 4, 2)
    federation, t = Faulty(sites), n_sites - n_missing
    asked = request(sites, consistency=True, survivor_threshold=t)
    gather(federation, Request.parse(asked), Checkpoint(), mask_keys(sites, asked))
    sent = sum(split(s.reply)[1] for s in federation.log if s.name == "site0")
    answer = 16 * 10 + 64
    if n_missing:
        answer += 160 + 114 * (n_sites - 1) + 64 + 33 * n_sites
    assert sent == answer
