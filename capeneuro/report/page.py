"""Reports and private pages from templates: single files that open offline."""

import base64
import io as bytes_io
import itertools
import json
import multiprocessing
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
import yaml

from capeneuro.algorithms.verdicts import ABOVE, Verdicts
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.study import Study
from capeneuro.data import files
from capeneuro.persons.quality import MOVED, Seen, of_person
from capeneuro.privacy import accounting
from capeneuro.privacy.cape import VIEWS
from capeneuro.report import literature, paper, progress, protection, words
from capeneuro.report.record import mus_of, shareable, versions

# Titles, and what draws the figure.
Drawn = Sequence[tuple[str, Callable[[], Any]]]
# Rows of a table that the page shows; all are in a file beside it.
MOST_ROWS = 40
INTERVAL = "95% interval"
SVG = "data:image/svg+xml;base64,"
# Of a stamp below a picture: room for it [pt], and how it is written.
STAMP_HEIGHT, STAMP_STYLE = 11, "font: 7px sans-serif; fill: #a33; translate: 0 -3px"


class Picture(NamedTuple):
    """A figure as the page shows it."""

    title: str
    data: str
    """Image as a data URI: SVG, or of a thumbnail PNG."""
    alt: str
    """What is seen, for who cannot see it."""
    anchor: str = ""
    """What it is of, as the page's links call it; empty: nothing links to it."""


class Table(NamedTuple):
    """Results in rows, at most :data:`MOST_ROWS` of which the page shows."""

    columns: Mapping[str, str]
    """What each column is, in words, by its heading."""
    rows: Sequence[Sequence[Any]]
    """Strings, or a :class:`Picture`; a first one that a picture is of links to it."""
    file: str
    """Where all rows are."""

    def is_number(self, column: int) -> bool:
        """Whether a column's cells are numbers, which stand to the right."""
        cells = [row[column] for row in self.rows]
        text = "".join(cell for cell in cells if isinstance(cell, str))
        digits = sum(letter.isdigit() for letter in text)
        return column > 0 and digits > 0.4 * len(text.replace(" to ", ""))


class Chapter(NamedTuple):
    """What the page says of one stage of a study, for the scientist."""

    config: Any
    template: str
    """Of its kind: says what was asked, found and done, see chapter.html.jinja."""
    verdicts: Verdicts
    scores: list[list[str]]
    """Rows of scores.tsv."""
    pictures: Mapping[str, Sequence[Picture]]
    """``found`` beside the verdicts, ``quality``, ``maps`` and the ``rest``."""
    notes: Sequence[str] = ()
    table: Table | None = None
    viewer: Mapping[str, Any] = {}
    """Maps above the noise to look around in, see :mod:`.viewer`."""
    forecast: Mapping[str, float] = {}
    """Noise as foretold over the most that leaves a result, by what it is of."""

    @property
    def sentence(self) -> str:
        """What was found."""
        return words.found_line(self.config, self.verdicts)

    @property
    def strip(self) -> list[Picture]:
        """Small maps of what is told of these people, each as its picture is called.

        None of what cannot be told from noise, nor of public maps around a prior.
        """
        told, rows = self.verdicts, self.table.rows if self.table else ()
        is_told = told.exceeds_noise | (np.array(told.labels) == words.NOT_TESTED)
        names = {n for n, one in zip(told.names, is_told, strict=True) if one}
        return [
            cell._replace(anchor=anchor_of(row[0]))
            for row in rows[:MOST_ROWS]
            for cell in row
            if isinstance(cell, Picture) and row[0] in names
        ]


def render(
    config: Study, record: dict[str, Any], chapters: Sequence[Chapter], folder: Path
) -> str:
    """Render the report of a study: a page for three readers.

    Parameters
    ----------
    config, record
        The study, and its ``privacy.json``.
    chapters
        One for each stage that found something; most studies have one.
    folder
        Of the study's results, where audit and forecast lie if there are any.
    """
    audit = _read(folder / "audit.json")
    shown = versions()
    about = {
        "config": config,
        "record": record,
        "releases": _summary(record["releases"]),
        "who": protection.who(record),
        "versions": shown,
        "meanings": words.MEANINGS,
        "most": MOST_ROWS,
    }
    parts = [
        {part: _part(about, i, one, part) for part in ("asked", "result", "methods")}
        for i, one in enumerate(chapters)
    ]
    said = " ".join(part["methods"] for part in parts)
    text = partial(
        template_of("report.html.jinja").render,
        **about,
        chapters=[*zip(chapters, parts, strict=True)],
        parties=words.parties(config),
        accepted=words.ACCEPTED,
        guess=accounting.right_guesses,
        any_guess=accounting.right_guesses_of,
        any_odds=np.exp,
        # An attack on other options says nothing of this study.
        audit=audit if audit.get("study") == config.identity else None,
        largest=largest(record),
        left=protection.what_left(record["releases"]),
        units=protection.UNITS,
        config_text=yaml.safe_dump(shareable(config), sort_keys=False),
        drowned=any(max(one.forecast.values(), default=0) > 1 for one in chapters),
        today=date.today().isoformat(),
    )
    # What is cited is known once the text is there.
    cited = literature.cited(text(cited=[]) + said)
    return text(cited=cited)


def _part(about: dict[str, Any], number: int, chapter: Chapter, part: str) -> str:
    """One part of a chapter, from its kind's template."""
    own = {**about, **chapter._asdict(), "part": part, "number": number}
    own["features"] = words.features(chapter.config)
    own["sentence"] = chapter.sentence
    own["cleaned"] = paper.of(chapter.config, about["versions"]["nilearn"])
    own["template_in"] = paper.template_in
    return template_of(chapter.template).render(**own).strip()


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}


def forecast_of(config: Study) -> dict[str, float]:
    """What was foretold of a private study before its first release."""
    if config.arm == "non-private":
        return {}
    return _read(config.results / "forecast.json")


def largest(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Mu and epsilon of the site with the largest, by class of parties."""
    found = {}
    for view in VIEWS:
        spent = [own[view] for own in record["sites"].values() if own[view] is not None]
        if spent:
            mus = [accounting.compose(mu) for mu in mus_of(record, view).values()]
            found[view] = {**max(spent, key=lambda e: e["gdp"]), "mu": max(mus)}
    return found


def quality(
    person: str, X: np.ndarray, runs: Sequence[Seen], config: ComponentsConfig
) -> dict[str, Any]:
    """One row of a site's private quality page, of features and of images as read.

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
        **of_person(runs),
    }


def render_quality(
    site: str, rows: list[dict[str, Any]], figure: Any, config: ComponentsConfig
) -> str:
    """Render a site's private quality page."""
    bound = config.pca.norm_bound
    return template_of("qc.html.jinja").render(
        site=site,
        rows=rows,
        known={
            name
            for name in ("tsnr", "motion")
            if any(np.isfinite(row[name]) for row in rows)
        },
        most_moved=MOVED,
        picture=picture("Norms of all volumes", figure),
        norm_bound=bound,
        power=config.pca.method == "power",
        unit=config.budget.unit,
        advice=words.bound_in_words([row["median"] for row in rows], bound),
    )


@cache
def template_of(name: str) -> jinja2.Template:
    """Open one of the package's pages."""
    return _pages().get_template(name)


@cache
def _pages() -> jinja2.Environment:
    """All pages; what they share is compiled once."""
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=jinja2.select_autoescape(["html.jinja"]),  # not of a model card
        undefined=jinja2.StrictUndefined,
    )
    pages.globals["anchor_of"] = anchor_of
    return pages


def picture(title: str, figure: Any) -> Picture:
    """Encode a figure as SVG and close it; its label says what is seen."""
    import matplotlib.pyplot as plt

    buffer = bytes_io.BytesIO()
    # Without a date the same result gives the same file.
    figure.savefig(buffer, format="svg", dpi=150, metadata={"Date": None})
    plt.close(figure)
    data = SVG + base64.b64encode(buffer.getvalue()).decode()
    return Picture(title, data, figure.get_label() or title)


def stamped(chapter: Chapter, stamp: str) -> Chapter:
    """Write the stamp of a weak promise into every picture of a chapter.

    Parameters
    ----------
    chapter
        What the page says of a stage.
    stamp
        Of the record; empty: nothing is written.
    """
    if not stamp:
        return chapter

    def with_stamp(one: Picture) -> Picture:
        if not one.data.startswith(SVG):
            return one
        text = base64.b64decode(one.data.removeprefix(SVG)).decode()
        # A line of room below the picture, whose height stands twice in its head.
        height = re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', text)[1]
        taller = f"{float(height) + STAMP_HEIGHT:g}"
        text = text.replace(f'height="{height}pt"', f'height="{taller}pt"', 1)
        text = text.replace(f' {height}" xmlns', f' {taller}" xmlns', 1)
        label = f'<text x="4" y="{taller}" style="{STAMP_STYLE}">{stamp}</text>\n</svg>'
        text = label.join(text.rsplit("</svg>", 1))
        return one._replace(data=SVG + base64.b64encode(text.encode()).decode())

    pictures = {k: [*map(with_stamp, own)] for k, own in chapter.pictures.items()}
    return chapter._replace(pictures=pictures)


def write_figures(chapter: Chapter, folder: Path) -> None:
    """Write the pictures of what was found as ``figures/*.svg``, the page's own.

    Results that cannot be told from noise are folded away on the page, which a file
    cannot say of itself: they have none.
    """
    folder = folder / "figures"
    for old in folder.glob("group_desc-*.svg"):
        old.unlink()
    named: set[str] = set()
    for part, suffix in (
        ("found", "found"),
        ("maps", "result"),
        ("quality", "quality"),
    ):
        for one in chapter.pictures.get(part, ()):
            whole = one.anchor or one.title
            name, longer = map(_camel, (re.split("[,.;:]", whole)[0], whole))
            name = longer if name in named else name
            named.add(name)
            text = base64.b64decode(one.data.removeprefix(SVG)).decode()
            files.write_text(folder / f"group_desc-{name}_{suffix}.svg", text)


def _camel(title: str) -> str:
    """A title as a label of BIDS: letters and digits alone."""
    first, *rest = anchor_of(title).split("-")
    return first + "".join(word.title() for word in rest)


def gallery(told: Verdicts, drawn: Drawn, threads: int) -> dict[str, list[Picture]]:
    """Pictures of results above the noise, ``maps``, and of the ``rest``.

    Where nothing stands above the noise, a sentence stands in place of all; maps around
    a prior are public at least, and all are shown.
    """
    if not words.is_shown(told).any():
        return {"maps": [], "rest": []}
    both = zip(told.names, pictures(drawn, threads), strict=True)
    done = [one._replace(anchor=anchor_of(name)) for name, one in both]
    above = told_of(told, done)
    return {"maps": above, "rest": [one for one in done if one not in above]}


def told_of(told: Verdicts, results: Sequence[Any]) -> list[Any]:
    """Of results those that are shown as found, see :func:`.words.is_shown`."""
    both = zip(results, words.is_shown(told), strict=True)
    return [one for one, shown in both if shown]


def table_of(path: Path, columns: Mapping[str, str]) -> Table:
    """Read a table of results; the named columns, with what they are, or all.

    Rows with a verdict come in its order: what stands above the noise first. Columns
    ``low`` and ``high`` become one.
    """
    head, *rows = (line.split("\t") for line in path.read_text().splitlines())
    columns = columns or dict.fromkeys(head, "")
    if "verdict" in head:
        at = head.index("verdict")
        rows = sorted(rows, key=lambda row: row[at] != ABOVE)
    own = [dict(zip(head, map(_short, row), strict=True)) for row in rows]
    if "low" in columns:
        interval = ((INTERVAL, f"{row.pop('low')} to {row.pop('high')}") for row in own)
        own = [row | dict([one]) for row, one in zip(own, interval, strict=True)]
        columns = {INTERVAL if k == "low" else k: v for k, v in columns.items()}
        columns.pop("high", None)
    return Table(columns, [[row[name] for name in columns] for row in own], path.name)


def _short(cell: str) -> str:
    """A number as a reader wants it; text as it is."""
    try:
        return cell if cell.lstrip("-").isdigit() else f"{float(cell):.3g}"
    except ValueError:
        return cell


def anchor_of(name: str) -> str:
    """What links call the picture of a result."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def pictures(drawn: Drawn, threads: int) -> list[Picture]:
    """Draw and encode figures, so many at a time, each in a process of its own."""
    bar = progress.named("report", len(drawn))
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


def _picture(title: str, draw: Callable[[], Any]) -> Picture:
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
