"""What several test files need: laws, sites, requests."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.messages import digest, pack, unpack
from capeneuro.federation.requests import COOPERATIVE_ARMS, Release
from capeneuro.federation.rules import Limits
from capeneuro.federation.secagg import one_exchange, unmasking
from capeneuro.federation.site import Site
from capeneuro.federation.transport import Ungated
from capeneuro.privacy.accounting import Budget

# Files under results/<study>/ of a study with a reference run.
CONTRACT = {
    "figures",
    "group_desc-pca_subspace.npz",
    "group_desc-ica_unmixing.npz",
    "group_desc-ica_components.nii.gz",
    "group_desc-ica_components.json",
    "group_desc-ica_components.tsv",
    "group_desc-icaz_components.nii.gz",
    "group_desc-icaz_components.json",
    "group_desc-brain_mask.nii.gz",
    "privacy.json",
    "capeneuro-verify.py",
    "forecast.json",
    "verdicts.tsv",
    "scores.tsv",
    "report.html",
    "config.yaml",
    "dataset_description.json",
    ".bidsignore",
    "reference",
}

# A correct sampler fails one of the two tests with this probability; seeds are fixed.
ALPHA = 1e-4


def assert_same_law(sample: np.ndarray, scale: float) -> None:
    """Accept ``N(0, scale^2)`` by variance (chi-square) and by shape (KS).

    With 2000 values a scale off by 15% is nine deviations of the variance away.
    """
    n = sample.size
    assert n >= 2000, "too few values to see a scale that is off by 15%"
    total = float(np.sum((sample / scale) ** 2))
    tail = min(stats.chi2.cdf(total, n), stats.chi2.sf(total, n))
    assert tail > ALPHA / 2, f"variance is {total / n:.4f} times the claimed one"
    p = stats.kstest(sample / scale, "norm").pvalue
    assert p > ALPHA, f"not normal with the claimed scale, p = {p:.2g}"


def uniform_bytes_p(values: np.ndarray) -> float:
    """Chi-square p-value of the bytes of ``values`` being uniform."""
    counts = np.bincount(np.frombuffer(values.tobytes(), np.uint8), minlength=256)
    return float(stats.chisquare(counts).pvalue)


def looks_uniform(values: np.ndarray) -> bool:
    """Whether bytes are as even as chance makes them, but for one case in 10^9.

    Of 2^16 bytes of a sum in the clear the high ones are all alike: p is 0.
    """
    assert values.nbytes >= 2**16, "too few bytes to tell"
    return uniform_bytes_p(values) > 1e-9


def budget(epsilon: float = 8.0, unit: str = "subject", n_colluding: int = 0) -> Budget:
    return Budget(epsilon, 1e-5, unit, "replace-one", n_colluding)


# mu = 18000: no test below meets it unless it asks for a ceiling of its own.
UNLIMITED = Budget(1.7e8, 1e-5, "sample", "replace-one", 0)


def make_site(
    name: str,
    subjects: Mapping[str, np.ndarray],
    folder: Path | None = None,
    ceiling: Budget = UNLIMITED,
    kind: str = "simulated",
    **options: Any,
) -> Site:
    """One site; ``options`` are limits, ``digest``, ``seed`` and ``mask_key``."""
    names = {"digest", "seed", "mask_key"} & options.keys()
    own = {key: options.pop(key) for key in names}
    subjects = {s: np.asarray(X, np.float32) for s, X in subjects.items()}
    n_samples = {s: X.shape[1] for s, X in subjects.items()}
    ledger = Ledger(folder, ceiling)
    return Site(name, subjects, n_samples, ledger, Limits(kind, **options), **own)


def make_sites(
    sizes: Sequence[int],
    n_features: int,
    n_samples: int,
    rng: np.random.Generator | None = None,
    folder: Path | None = None,
    **options: Any,
) -> dict[str, Site]:
    """Sites with ``sizes`` subjects each; zero data without a generator."""

    def block() -> np.ndarray:
        shape = (n_features, n_samples)
        return np.zeros(shape) if rng is None else rng.standard_normal(shape)

    return {
        f"site{i}": make_site(
            f"site{i}",
            {f"s{i}-{j}": block() for j in range(size)},
            folder / f"site{i}" if folder else None,
            **options,
        )
        for i, size in enumerate(sizes)
    }


def make_mechanism(arm: str, **changes: Any) -> Mechanism:
    """A mechanism with noise multiplier 4 and the default ratio for ten sites."""
    unit, n_colluding = changes.pop("unit", "subject"), changes.pop("n_colluding", 0)
    fields = {"study": "t", "arm": arm, "noise_multiplier": 4.0, "noise_ratio": 1000.0}
    fields["budget"] = budget(unit=unit, n_colluding=n_colluding)
    return Mechanism(**{**fields, **changes})


def request(sites: Mapping[str, Site], **changes: Any) -> dict[str, Any]:
    """A request that every one of ``sites`` admits, as it arrives over the wire.

    ``noise_multiplier`` is turned into the variances that give it.
    """
    unit, n_colluding = changes.get("unit", "subject"), changes.get("n_colluding")
    mechanism = make_mechanism(
        changes.get("arm", "cape"),
        noise_multiplier=changes.pop("noise_multiplier", 4.0),
        n_colluding=n_colluding if n_colluding in range(len(sites)) else 0,
        noise_ratio=100.0,
        roster={name: {} for name in sites},
    )
    message = {
        "study": "t",
        "query": "second_moment",
        "parameters": {"norm_bound": 1.0, "clip": 1.0},
        "round": 0,
        "attempt": 0,
        "reduction": "",
        "arm": "cape",
        "unit": unit,
        "relation": "replace-one",
        "variances": mechanism.variances(),
        "n_colluding": 0,
        "survivor_threshold": len(sites),
        "consistency": False,
        "noise_ratio": 100.0,
        "noise": "rounded",
        "roster": {n: s.answer("describe", {"unit": unit}) for n, s in sites.items()},
    }
    return unpack(pack({**message, **changes}))


def agree(sites: Mapping[str, Site], asked: dict[str, Any]) -> dict[str, Any]:
    """What each of ``sites`` is asked to release, once they agreed on keys.

    A site that refuses has its refusal in the place of keys; others then refuse, too.
    """
    one = {"request": asked}
    if asked["arm"] not in COOPERATIVE_ARMS:
        return dict.fromkeys(sites, one)
    if asked["survivor_threshold"] == len(asked["roster"]):
        one = {**one, "mask_keys": mask_keys(sites, asked)}
        return dict.fromkeys(sites, one)
    replies = {n: s.answer("advertise", one) for n, s in sites.items()}
    one = {**one, "advertised": {n: r.get("keys", b"") for n, r in replies.items()}}
    boxes = {n: s.answer("share", one).get("sealed", {}) for n, s in sites.items()}
    return {
        to: {**one, "sealed": {n: boxes[n].get(to, b"") for n in boxes if n != to}}
        for to in sites
    }


def mask_keys(sites: Mapping[str, Site], asked: dict[str, Any]) -> dict[str, bytes]:
    """What each of ``sites`` offers for the masks of a study."""
    message = {"study": asked["study"]}
    replies = {n: s.answer("mask_key", message) for n, s in sites.items()}
    return {name: reply.get("mask_key", b"") for name, reply in replies.items()}


def release(sites: Mapping[str, Site], asked: dict[str, Any]) -> dict[str, Any]:
    """Answers of all ``sites`` to a request."""
    messages = agree(sites, asked)
    return {n: s.answer("release", messages[n]) for n, s in sites.items()}


def without_colluders(
    site: Site, message: dict[str, Any], masked: np.ndarray, colluders: Collection[str]
) -> np.ndarray:
    """What ``colluders`` make of a site's vector: without the masks that they know."""
    told = Release.parse(message)
    secrets = {n: site._pair_secret(n, told) for n in colluders}
    context = site._context(told)
    return masked - one_exchange.masks(secrets, site.name, context, masked.size)


def total_mask(
    sites: Mapping[str, Site], asked: dict[str, Any], size: int
) -> np.ndarray:
    """Masks that are left in the sum of a release by all ``sites``, by unmasking."""
    if asked["survivor_threshold"] == len(asked["roster"]):
        return np.zeros(size, np.uint64)
    keys = agree(sites, asked)[next(iter(sites))]["advertised"]
    message = {"request": digest(asked), "survivors": list(sites)}
    shares = {n: s.answer("unmask", message)["shares"] for n, s in sites.items()}
    t, context = asked["survivor_threshold"], bytes.fromhex(digest(asked))
    return unmasking.leftover(list(sites), t, context, keys, list(sites), shares, size)


def in_process(sites: Mapping[str, Site]) -> Ungated:
    """Sites without gates, which have tests of their own and are most of the time."""
    return Ungated(sites)


def charge_many(folder: str, first: int, n: int, mu: float) -> None:
    """Charge ``n`` releases of ``mu``; runs in a process of its own."""
    ledger = Ledger(Path(folder), UNLIMITED)
    for i in range(first, first + n):
        ledger.charge(f"{i:064x}", ["ann", "bob"], ReleaseLine(mu=mu), b"bytes %d" % i)
