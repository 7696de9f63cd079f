"""Reports and private pages from templates: single files that open offline."""

import base64
import io as bytes_io
import itertools
import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import yaml
from tqdm import tqdm

from capeneuro.algorithms.verdicts import Verdicts
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.study import Study
from capeneuro.privacy.cape import VIEWS
from capeneuro.report import words
from capeneuro.report.record import shareable, versions

# Titles, and what draws the figure.
Drawn = Sequence[tuple[str, Callable[[], Any]]]


def render(
    config: Study,
    record: dict[str, Any],
    score_rows: list[list[str]],
    pictures: dict[str, list[tuple[str, str]]],
    verdicts: Verdicts | None,
    notes: Sequence[str] = (),
    template: str = "report.html.jinja",
    **more: Any,
) -> str:
    """Render the page; pictures are titles and base64 PNG by section."""
    forecast = config.results / "forecast.json"
    path = config.results / "audit.json"
    audit = json.loads(path.read_text()) if path.is_file() else {}
    is_foretold = forecast.is_file() and config.arm != "non-private"
    return template_of(template).render(
        parties=words.parties(config),
        accepted=words.ACCEPTED,
        # An attack on other options says nothing of this study.
        audit=audit if audit.get("study") == config.identity else None,
        largest=_largest(record),
        verdicts=verdicts,
        forecast=json.loads(forecast.read_text()) if is_foretold else {},
        config=config,
        config_text=yaml.safe_dump(shareable(config), sort_keys=False),
        record=record,
        scores=score_rows,
        pictures=pictures,
        notes=notes,
        releases=_summary(record["releases"]),
        versions=versions(),
        today=date.today().isoformat(),
        **more,
    )


def _largest(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Epsilon of the site with the largest, by class of parties and accountant."""
    sites = record["sites"].values()
    about = {view: [s[view] for s in sites if s[view] is not None] for view in VIEWS}
    return {
        view: max(spent, key=lambda e: e["gdp"])
        for view, spent in about.items()
        if spent
    }


def quality(person: str, X: np.ndarray, config: ComponentsConfig) -> dict[str, Any]:
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
    site: str, rows: list[dict[str, Any]], figure: Any, config: ComponentsConfig
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


def render_reconstruction(
    site: str, n_people: int, pictures: list[tuple[str, str]]
) -> str:
    """Render a site's private page on its own people's part in the components."""
    return template_of("reconstruction.html.jinja").render(
        site=site, n_people=n_people, pictures=pictures
    )


def template_of(name: str) -> jinja2.Template:
    """Open one of the package's pages."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=jinja2.select_autoescape(["html.jinja"]),  # not of a model card
        undefined=jinja2.StrictUndefined,
    ).get_template(name)


def picture(title: str, figure: Any) -> tuple[str, str]:
    """Encode a figure as base64 PNG and close it; returns it with its title."""
    import matplotlib.pyplot as plt

    buffer = bytes_io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    return title, base64.b64encode(buffer.getvalue()).decode()


def gallery(
    told: Verdicts, drawn: Drawn, threads: int
) -> dict[str, list[tuple[str, str]]]:
    """Pictures of results above the noise, ``maps``, and of the ``rest``.

    Where nothing stands above the noise, a sentence stands in place of all; maps around
    a prior are public at least, and all are shown.
    """
    if told.of_prior:
        return {"maps": pictures(drawn, threads), "rest": []}
    if not told.above.any():
        return {"maps": [], "rest": []}
    done = pictures(drawn, threads)
    both = [*zip(done, told.above, strict=True)]
    return {
        "maps": [one for one, above in both if above],
        "rest": [one for one, above in both if not above],
    }


def pictures(drawn: Drawn, threads: int) -> list[tuple[str, str]]:
    """Draw and encode figures, so many at a time, each in a process of its own."""
    bar = partial(tqdm, desc="report", total=len(drawn), disable=None)
    # Elsewhere a process that has imported matplotlib cannot be forked.
    if threads == 1 or len(drawn) < 2 or sys.platform != "linux":
        return [*bar(itertools.starmap(_picture, drawn))]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(threads, context, _end_with_parent) as pool:
        return [*bar(pool.map(_picture, *zip(*drawn, strict=True)))]


def _end_with_parent() -> None:
    """End this worker when the step is killed; it would wait for work for ever."""

    def watch() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _picture(title: str, draw: Callable[[], Any]) -> tuple[str, str]:
    return picture(title, draw())


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
