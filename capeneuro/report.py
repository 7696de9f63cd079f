"""What a study tells: its privacy record, its scores, one page that opens offline."""

import base64
import importlib.metadata
import io as bytes_io
import json
import platform
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import yaml

from capeneuro import as_printed, cape, files, order, privacy, shrinkage
from capeneuro.cca import CanonicalDirections
from capeneuro.config import Config, FusionConfig, Study
from capeneuro.ica import Unmixing, inseparable
from capeneuro.pca import Subspace

# Results that carry their releases.
NAMES = "pca_subspace ica_unmixing cca_directions tensor_components regression_model "
NAMES += "network_weights"
RELEASED = tuple(f"group_desc-{name}.npz" for name in NAMES.split())
# Mean weight of people from which on clipping is worth a word.
SLIGHTLY = 0.97
# Of a norm bound, what people fill on average where it is worth a word.
HALF = 0.5
VIEWS = ("output", "aggregator", "aggregator_and_colluders")
PACKAGES = ("capeneuro", "numpy", "scipy", "nibabel", "nilearn", "cryptography")


def versions() -> dict[str, str]:
    """Versions of what made the numbers."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **found}


def write_beside(config: Study, folder: Path) -> None:
    """Write what must stand beside every released file: privacy, configuration, BIDS.

    Reads the releases and the sites' kinds of data that each result file carries, so it
    may run after any step, and where no site's file is.
    """
    releases, kinds = [], {}
    for name in RELEASED:
        if (folder / name).exists():
            arrays = files.read_arrays(folder / name)
            releases += json.loads(str(arrays["releases"]))
            kinds |= json.loads(str(arrays["sites"]))
    files.write_json(folder / "privacy.json", privacy_record(config, kinds, releases))
    # Privacy: site files stay out of it; they hold paths and limits.
    content = {"stamp": stamp(kinds), "versions": versions(), **shareable(config)}
    content["sites"] = sorted(kinds)
    files.write_text(folder / "config.yaml", yaml.safe_dump(content, sort_keys=False))
    description = {
        "Name": f"capeneuro results of {config.study}",
        "BIDSVersion": "1.11.2",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "capeneuro", "Version": versions()["capeneuro"]}],
    }
    files.write_json(folder / "dataset_description.json", description)
    ignored = (
        "group_* privacy.json scores.tsv report.html config.yaml plan.* reference/"
    )
    files.write_text(folder / ".bidsignore", "\n".join([*ignored.split(), ""]))


def shareable(config: Study) -> dict[str, Any]:
    """The study's keys with file names instead of paths."""

    def name(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: name(v) for k, v in value.items()}
        return value.name if isinstance(value, Path) else value

    content = name(config.model_dump(exclude={"sites"}))
    if content["space"] is not None:
        content["space"]["mask"] = Path(content["space"]["mask"]).name
    erp = content.get("fusion", {}).get("eeg", {})
    if erp.get("montage"):
        erp["montage"] = Path(erp["montage"]).name
    return json.loads(json.dumps(content))  # tuples become lists


def stamp(kinds: Mapping[str, str]) -> str:
    """Stamp for outputs of simulated or public data; empty for private data."""
    stamped = sorted(set(kinds.values()) - {"private"})
    return f"NOT PRIVATE: {' and '.join(stamped)} data" if stamped else ""


def privacy_record(
    config: Study, kinds: Mapping[str, str], releases: list[dict[str, Any]]
) -> dict[str, Any]:
    """Promise and spend of a study: the content of ``privacy.json``.

    Per site, epsilon at the promise's delta under each view and accountant. Sites are
    assumed to hold different people: releases about one site do not add to another's.
    ``kinds`` tells the kind of data of each site.
    """
    p = config.promise
    spent = {}
    for site in kinds:
        mine = [r["sites"][site]["mu"] for r in releases if site in r["sites"]]
        mus = {view: [mu[view] for mu in mine] for view in VIEWS}
        about = [r for r in releases if site in r["sites"]]
        n_present = sum(site in r["survivors"] for r in about)
        spent[site] = {
            "promise": config.promise_of(site).epsilon,
            "releases": len(about),
            "present": n_present,
        } | {
            view: None if None in mus[view] else privacy.epsilons(mus[view], p.delta)
            for view in VIEWS
        }
        whole = mus["aggregator_and_colluders"]
        papers_split = config.arm == "cape" and config.budget.noise_ratio_per_site == 1
        if papers_split and None not in whole:
            spent[site]["as_printed_not_valid"] = _as_printed(whole, config)
    return {
        "study": config.study,
        "stamp": stamp(kinds),
        "unit": p.unit,
        "relation": p.relation,
        "n_colluding": p.n_colluding,
        "survivor_threshold": config.survivor_threshold,
        "n_sites": len(config.sites),
        "delta": p.delta,
        "promise": {
            "epsilon": p.epsilon,
            "mu": p.mu,
            "holds": all(
                site["mu"]["aggregator_and_colluders"]
                for r in releases
                for site in r["sites"].values()
            ),
            "kept": all(_kept(config, site, releases) for site in kinds),
        },
        "assumptions": [
            "The promise is for these releases; a second run on changed data or with "
            "changed options is a second spend, which the sites' ledgers add up.",
            "No person takes part at two sites; someone who does has "
            + _at_two_sites(spent, config)
            + ".",
            "Losses are those of the worst case that was allowed: the noise of "
            f"{config.survivor_threshold - p.n_colluding} honest sites, whoever "
            "dropped out.",
            "Numbers of units per site, masks, bases, bounds and clips are public.",
            "All parties follow the protocol; the aggregator and up to n_colluding "
            "sites pool all that they see.",
        ],
        "sites": spent,
        "releases": releases,
    }


def _kept(config: Study, site: str, releases: list[dict[str, Any]]) -> bool:
    """Whether a site's releases together keep its promise.

    They may not where some are an older plan's: each site counts by study.
    """
    own = [r["sites"][site] for r in releases if site in r["sites"]]
    mus = [said["mu"]["aggregator_and_colluders"] for said in own]
    return None not in mus and config.promise_of(site).admits(privacy.compose(mus))


def _as_printed(mus: list[float], config: Study) -> float | None:
    """NOT VALID: what thesis Thm 3.1 claims of releases, added as in its Thm 6.1.

    For a study with the papers' noise split alone, to compare with the exact value.
    """
    S, S_C, delta = len(config.sites), config.n_colluding, config.promise.delta
    exact = cape.losses(1.0, np.ones(S), np.full(S, 1 / S), S_C)[0]
    try:
        losses = [as_printed.loss_2020_not_valid(mu / exact, 1.0, S, S_C) for mu in mus]
    except ValueError:  # the printed formula has no value for so many colluders
        return None
    return sum(as_printed.tail_epsilon(delta / len(mus), *loss) for loss in losses)


def _at_two_sites(spent: dict[str, dict[str, Any]], config: Study) -> str:
    """Bound for someone whose data lie at two sites: their losses mu add up."""
    if any(views["aggregator_and_colluders"] is None for views in spent.values()):
        return "no promise"
    mus = sorted(config.promise_of(site).mu for site in spent)
    epsilon = privacy.epsilon_from_mu(sum(mus[-2:]), config.promise.delta)
    return f"epsilon {epsilon:.3g} at most, the sum of both losses mu"


def render(
    config: Study,
    record: dict[str, Any],
    score_rows: list[list[str]],
    pictures: dict[str, list[tuple[str, str]]],
    notes: Sequence[str] = (),
    template: str = "report.html.jinja",
) -> str:
    """Render the page; pictures are titles and base64 PNG by section."""
    return template_of(template).render(
        config=config,
        config_text=yaml.safe_dump(shareable(config), sort_keys=False),
        record=record,
        scores=score_rows,
        pictures=pictures,
        notes=notes,
        releases=_summary(record["releases"]),
        versions=versions(),
        today=date.today().isoformat(),
    )


def order_line(config: Config, subspace: Subspace) -> str:
    """What a released spectrum says of the order, as one line."""
    counted, shortest, _, white = _order(subspace)
    line = f"order: threshold {counted}, MDL {shortest}; "
    line += f"the study uses {config.n_components}"
    return line + (" (counts tend to be large: see the report)" if white else "")


def shares_line(config: Config, subspace: Subspace) -> str:
    """What noise left of the directions of power iteration, as one line."""
    about = subspace.noise_deviation, len(subspace.eigenvectors)
    energies, rounds = subspace.eigenvalues, config.pca.n_iterations
    shares = shrinkage.signal_shares(energies, *about, rounds)
    return (
        f"directions: {(shares > 0.5).sum()} of {len(shares)} are more signal than "
        f"noise, on average some {100 * shares.mean():.0f}% is signal"
    )


def order_in_words(config: Config, subspace: Subspace) -> tuple[float, str]:
    """Edge of the noise in the released spectrum, and what it says of the order."""
    (counted, shortest, edge, white), K = _order(subspace), config.n_components
    text = (
        f"Spectrum of the released second moment. {counted} of "
        f"{len(subspace.spectrum)} eigenvalues stand above what noise alone reaches; "
        f"minimum description length keeps {shortest}; the study uses {K}."
    )
    total = subspace.spectrum.sum()  # noise has no part in it: its mean is 0
    if total > 0:
        share = 100 * np.clip(subspace.eigenvalues.sum() / total, 0, 1)
        text += f" Its directions hold some {share:.0f}% of the energy of the data."
    if counted < K:
        text += " What lies below the line cannot be told from noise."
    if config.budget.unit == "subject":
        text += (
            " The number of people stands in for that of volumes, so the line is high."
        )
    if white:
        text += (
            " Both counts tend to be large here: what is measured beside the "
            "components is taken as white, which in images it is not."
        )
    return edge, text


def ica_lines(found: Unmixing) -> list[str]:
    """What the rounds say of the components beside their maps, one line each."""
    lines = []
    if pairs := inseparable(found):
        shown = ", ".join(f"{i + 1} and {j + 1}" for i, j in pairs[:5])
        more = f" and {len(pairs) - 5} pairs more" if len(pairs) > 5 else ""
        lines.append(
            f"note: components {shown}{more}: near Gaussian, so any turn of the pair "
            "is as good; ICA cannot separate them"
        )
    if np.isfinite(found.stability).all():
        least = int(found.stability.argmin())
        lines.append(
            f"stability over runs: median {np.median(found.stability):.2f}, least "
            f"{found.stability[least]:.2f} (component {least + 1})"
        )
    return lines


def correlation_lines(found: CanonicalDirections) -> list[str]:
    """What is known of canonical correlations, one line each."""
    above = int((found.intervals[:, 0] > 0).sum())
    p, q = found.n_directions
    clipped = []
    if found.weight < SLIGHTLY:
        clipped = [
            f"people count {found.weight:.2f} on average, the rest was clipped: "
            "correlations are some hundredths too small, which the intervals leave out"
        ]
    return [
        f"{above} of {len(found.correlations)} correlations are above noise: were "
        f"nothing common, the largest would exceed {found.null_level:.2f} in one study "
        "of twenty",
        f"{p} principal directions of fmri and {q} of eeg were kept",
        *clipped,
        *_loose_bounds(found),
    ]


def _loose_bounds(found: CanonicalDirections) -> list[str]:
    """Norm bounds that people do not fill: no image of anybody tells, a trace does."""
    spectra = {"fmri": found.x_spectrum, "eeg": found.y_spectrum}
    # Views were divided by sqrt(2), too.
    sizes = {view: max(2 * float(v.sum()), 0) ** 0.5 for view, v in spectra.items()}
    return [
        f"people differ from the mean by {size:.2g} of the norm bound of {view} (root "
        "mean square): a bound so much smaller would mean less noise"
        for view, size in sizes.items()
        if size < HALF
    ]


def _order(subspace: Subspace) -> tuple[int, int, float, bool]:
    """Order by threshold, by description length, the edge of the noise.

    And whether it rests on measurement noise, which is only assumed to be white.
    """
    released = subspace.spectrum, subspace.noise_deviation, subspace.n_units
    counted, level, edge = order.threshold(*released)
    return counted, order.description_length(*released), edge, level > 0.2 * edge


def quality(person: str, X: np.ndarray, config: Config) -> dict[str, Any]:
    """One row of a site's private quality page.

    ``kept`` is the share of the person's second moment that PCA's clip leaves.
    """
    norms, bound = np.linalg.norm(X, axis=0), config.pca.norm_bound
    if config.budget.unit == "sample":
        squares = (norms.astype(np.float64) / bound) ** 2
        kept = np.minimum(squares, config.pca.clip).sum() / max(squares.sum(), 1e-300)
    else:
        # |X X'| = |X' X|: the smaller of the two.
        G = X.T @ X if X.shape[1] < X.shape[0] else X @ X.T
        moment = np.linalg.norm(G) / X.shape[1] / bound**2
        kept = min(1.0, config.pca.clip / max(float(moment), 1e-300))
    return {
        "subject": person,
        "n_samples": norms.size,
        "median": np.median(norms),
        "high": np.percentile(norms, 95),
        "kept": kept,
    }


def render_quality(
    site: str, rows: list[dict[str, Any]], figure: Any, config: Config
) -> str:
    """Render a site's private quality page."""
    return template_of("qc.html.jinja").render(
        site=site,
        rows=rows,
        picture=picture("", figure)[1],
        norm_bound=config.pca.norm_bound,
        power=config.pca.method == "power",
    )


def render_views(
    site: str, norms: list[tuple[str, float, float]], figure: Any, config: FusionConfig
) -> str:
    """Render a site's private quality page of a fusion study."""
    return template_of("views.html.jinja").render(
        site=site, rows=norms, picture=picture("", figure)[1], fusion=config.fusion
    )


def render_people(site: str, n_people: int, pictures: list[tuple[str, str]]) -> str:
    """Render a site's private page on its own people's part in the components."""
    return template_of("reconstruction.html.jinja").render(
        site=site, n_people=n_people, pictures=pictures
    )


def template_of(name: str) -> jinja2.Template:
    """Open one of the package's pages."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    ).get_template(name)


def picture(title: str, figure: Any) -> tuple[str, str]:
    """Encode a figure as base64 PNG and close it; returns it with its title."""
    import matplotlib.pyplot as plt

    buffer = bytes_io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    return title, base64.b64encode(buffer.getvalue()).decode()


def _summary(releases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Releases of one query as one row, with the range over sites and rounds."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for r in releases:
        groups.setdefault(r["query"], []).append(r)
    rows = []
    for rounds in groups.values():
        sites = [site for r in rounds for site in r["sites"].values()]
        mus = [site["mu"]["aggregator_and_colluders"] for site in sites]
        present = [len(r["survivors"]) for r in rounds]
        ranges = {
            "clip": _range([r["clip"] for r in rounds], "{:.3g}"),
            "sensitivity": _range([site["sensitivity"] for site in sites], "{:.2e}"),
            "noise_multiplier": _range([m and 1 / m for m in mus], "{:.2f}"),
            "mu": _range(mus, "{:.4f}"),
            "present": _range([n for n in present if n], "{:d}"),
        }
        counts = {"rounds": len(rounds), "n_void": present.count(0)}
        rows.append({**rounds[0], **ranges, **counts})
    return rows


def _range(values: list[float | None], form: str) -> str:
    """Smallest and largest of values that differ when written."""
    known = sorted(x for x in values if x is not None)
    return " to ".join(dict.fromkeys(form.format(x) for x in (*known[:1], *known[-1:])))
