"""Reports and private pages from templates: single files that open offline."""

import base64
import io as bytes_io
import json
import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
import yaml

from capeneuro.algorithms.designs import MEAN
from capeneuro.algorithms.verdict import ABOVE, LEVEL, NOT_TESTED, Verdicts
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.rows import RowStudy
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.persons.quality import MOVED, RunQuality, person_quality
from capeneuro.privacy import accountants, accounting
from capeneuro.privacy.parties import VIEWS
from capeneuro.report import (
    literature,
    methods_text,
    progress,
    protection,
    scores,
    sentences,
)
from capeneuro.report.figures import Figure
from capeneuro.report.privacy_record import mus_of, shareable, versions

# Rows of a table that a page shows, of effects the strongest; a file beside it has all.
# P-values below the smallest are not told apart.
MOST_ROWS, MOST_PRIMARY, MOST_EFFECTS, SMALLEST_P = 40, 30, 10, 1e-4
# People that a private page shows: no browser opens one with all of a biobank.
MOST_PEOPLE = 200
INTERVAL = "95% interval"
SVG = "data:image/svg+xml;base64,"
# Height of the stamp below a picture [pt], and its style.
STAMP_HEIGHT, STAMP_STYLE = 11, "font: 7px sans-serif; fill: #a33; translate: 0 -3px"


class Picture(NamedTuple):
    """A figure as the page shows it."""

    title: str
    data: str
    """Image as a data URI: SVG, or of a thumbnail PNG."""
    alt: str
    """Description of the picture, for readers who cannot see it."""
    anchor: str = ""
    """Anchor of the result that it shows; empty: nothing links to it."""


class Table(NamedTuple):
    """Results in rows, the first of which the page shows."""

    columns: Mapping[str, str]
    """Explanation of each column, by its heading."""
    rows: Sequence[Sequence[Any]]
    """Strings, or a :class:`Picture`; a first cell links to the picture of its name."""
    file: str
    """Name of the file with all rows."""
    most: int = MOST_ROWS
    """Number of rows that the page shows."""

    def is_number(self, column: int) -> bool:
        """Whether a column's cells are numbers, which stand to the right."""
        cells = [row[column] for row in self.rows]
        text = "".join(cell for cell in cells if isinstance(cell, str))
        digits = sum(letter.isdigit() for letter in text)
        return column > 0 and digits > 0.4 * len(text.replace(" to ", ""))


class Chapter(NamedTuple):
    """The page's chapter on one stage of a study, for the scientist."""

    config: Any
    template: str
    """Of its kind: question, results and methods, see chapter.html.jinja."""
    verdicts: Verdicts
    scores: list[list[str]]
    """Rows of scores.tsv."""
    pictures: Mapping[str, Sequence[Picture]]
    """``found`` beside the verdicts, ``quality``, ``maps`` and the ``rest``."""
    notes: Sequence[str] = ()
    table: Table | None = None
    viewer: Mapping[str, Any] = {}
    """Maps above the noise for the interactive viewer, see :mod:`.viewer`."""
    forecast: Mapping[str, float] = {}
    """Forecast of the noise over the most that leaves a result, by step."""
    headline: str = ""
    """What was found, by name, for the first paragraph; empty: nothing more."""
    beside: Table | None = None
    """Results with their intervals beside those of the run without privacy."""
    n_features: int = 0
    """Number of features of a person, in a study of rows."""
    foretold: str = ""
    """Forecast of the result in words, see :func:`foretold`."""
    primary: str = ""
    """The outcome of the primary question; empty: all results are alike."""

    @property
    def sentence(self) -> str:
        """The outcome in a sentence, of the primary question if there is one."""
        line = sentences.found_line(self.config.arm, self.verdicts)
        if self.primary and self.config.arm != "non-private":
            return self.primary
        return f"{self.primary}; {line}" if self.primary else line

    @property
    def strip(self) -> list[Picture]:
        """Small maps of the results above the noise, with their pictures' anchors.

        Results indistinguishable from noise, and public maps around a prior, have none.
        """
        verdicts, rows = self.verdicts, self.table.rows if self.table else ()
        is_finding = verdicts.exceeds_noise | (np.array(verdicts.labels) == NOT_TESTED)
        names = set(np.array(verdicts.names)[is_finding])
        return [
            cell._replace(anchor=anchor_of(row[0]))
            for row in rows[:MOST_ROWS]
            for cell in row
            if isinstance(cell, Picture) and row[0] in names
        ]

    @property
    def lead(self) -> Picture | None:
        """The first picture that is shown, if no small maps are."""
        pictures = [*self.pictures.get("found", ()), *self.pictures["maps"]]
        if not pictures or self.strip:
            return None
        return pictures[0]._replace(alt=f"also below: {pictures[0].alt}")


def render(
    config: StudyConfig,
    record: dict[str, Any],
    chapters: Sequence[Chapter],
    folder: Path,
) -> str:
    """Render the report of a study: a page for three readers.

    Parameters
    ----------
    config, record
        The study, and its ``privacy.json``.
    chapters
        One for each stage with results; most studies have one.
    folder
        Of the study's results, with audit and forecast if there are any.
    """
    audit = _read(folder / "audit.json")
    variables = {
        "config": config,
        "record": record,
        "releases": _summary(record["releases"]),
        "participants": protection.participants(record),
        "versions": versions(),
        "meanings": sentences.MEANINGS,
    }
    parts = [
        {
            part: _part(variables, i, chapter, part)
            for part in ("question", "result", "methods")
        }
        for i, chapter in enumerate(chapters)
    ]
    methods = " ".join(part["methods"] for part in parts)
    text = partial(
        template_of("report.html.jinja").render,
        **variables,
        chapters=[*zip(chapters, parts, strict=True)],
        parties=sentences.parties(config),
        accepted=sentences.ACCEPTED,
        guess=accounting.attack_accuracy_bound,
        any_guess=accountants.attack_accuracy_bound_of_epsilon,
        any_odds=np.exp,
        # An attack on other options is no evidence about this study.
        audit=audit if audit.get("study") == config.identity else None,
        largest=largest(record),
        curve=curve_of(record),
        answers=protection.answers(record["releases"]),
        units=protection.UNITS,
        config_text=yaml.safe_dump(shareable(config), sort_keys=False),
        drowned=any(max(c.forecast.values(), default=0) > 1 for c in chapters),
        today=date.today().isoformat(),
    )
    # The rendered text contains the citations.
    cited = literature.cited(text(cited=[]) + methods)
    return text(cited=cited)


def _part(variables: dict[str, Any], number: int, chapter: Chapter, part: str) -> str:
    """One part of a chapter, from its kind's template."""
    features = sentences.features(chapter.config)
    text = template_of(chapter.template).render(
        {**variables, **chapter._asdict()},
        part=part,
        number=number,
        row=methods_text.of_row(chapter.config, features, chapter.n_features)
        if isinstance(chapter.config, RowStudy)
        else "",
        features=features,
        sentence=chapter.sentence,
        cleaned=methods_text.of(chapter.config, variables["versions"]["nilearn"]),
        template_in=methods_text.template_in,
        covariates_of=methods_text.covariates,
        level=LEVEL,
    )
    return text.strip()


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}


def forecast_of(config: StudyConfig) -> dict[str, float]:
    """Forecast of a private study's noise, made before its first release."""
    if config.arm == "non-private":
        return {}
    return _read(config.results / "forecast.json").get("noise", {})


def foretold(config: StudyConfig) -> str:
    """Forecast of a private study's result in words."""
    if config.arm == "non-private":
        return ""
    return _read(config.results / "forecast.json").get("in_short", "")


def beside_of(config: StudyConfig) -> Table | None:
    """Table of results beside those of the run without privacy, if there was one."""
    path = config.results / scores.BESIDE
    if not (config.score.reference and path.is_file()):
        return None
    columns = {
        "result": "",
        "here": "with the noise of privacy; n/a: not estimable",
        INTERVAL: "for noise and sampling",
        "verdict": "",
        "without privacy": "of the same people and the same features of them",
        "its 95% interval": "for sampling alone",
        "its verdict": "",
    }
    rows = []
    for name, *cells in sorted(files.read_table(path), key=lambda row: row[4] != ABOVE):
        value, low, high, verdict, *exact = (_short(cell, "", 2) for cell in cells)
        intervals = [
            ends[0] if ends[0] == "n/a" else " to ".join(ends)
            for ends in ((low, high), exact[1:3])
        ]
        beside = exact[0], intervals[1], exact[3]
        rows.append([name, value, intervals[0], verdict, *beside])
    return Table(columns, rows, path.name)


def largest(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Mu and epsilon of the site with the largest, by class of parties."""
    largest_by_view = {}
    for view in VIEWS:
        totals = [site[view] for site in record["sites"].values()]
        totals = [total for total in totals if total is not None]
        if totals:
            mu = max(accounting.compose(mus) for mus in mus_of(record, view).values())
            largest_by_view[view] = {**max(totals, key=lambda e: e["gdp"]), "mu": mu}
    return largest_by_view


def curve_of(record: dict[str, Any]) -> list[dict[str, float]]:
    """Epsilon over the releases about the site with the largest, worst class."""
    mus = mus_of(record, "aggregator_and_colluders").values()
    known = [of_site for of_site in mus if None not in of_site]
    if not known:
        return []
    return accountants.curve(max(known, key=accounting.compose), record["delta"])


def quality(person: str, X: np.ndarray, runs: Sequence[RunQuality]) -> dict[str, Any]:
    """One row of a site's private quality page, of features and of images as read.

    Of keys of the study nothing, since it is kept when clips change: ``moment`` is the
    norm of the person's second moment, see :func:`with_clip_weight`.
    """
    norms = np.linalg.norm(X, axis=0)
    # |X X'| = |X' X|: the smaller of the two.
    G = X.T @ X if X.shape[1] < X.shape[0] else X @ X.T
    return {
        "subject": person,
        "n_samples": norms.size,
        "median": float(np.median(norms)),
        "high": float(np.percentile(norms, 95)),
        "moment": float(np.linalg.norm(G)) / X.shape[1],
        **person_quality(runs),
    }


def with_clip_weight(
    row: Mapping[str, Any], norms: np.ndarray, config: ComponentsConfig
) -> dict[str, Any]:
    """Put ``clip_weight``, the share that PCA's clip leaves, in place of the moment.

    Parameters
    ----------
    row
        Of :func:`quality`.
    norms
        Of the person's samples.
    config
        The study.
    """
    clip, bound = config.pca.clip, config.pca.norm_bound
    if config.budget.unit == "sample":
        squares = (norms.astype(np.float64) / bound) ** 2
        weight = float(np.minimum(squares, clip).sum() / max(squares.sum(), 1e-300))
    else:
        weight = min(1.0, clip / max(row["moment"] / bound**2, 1e-300))
    names = {"moment": "clip_weight"}
    values = {**row, "moment": weight}
    return {names.get(name, name): value for name, value in values.items()}


def render_quality(
    site: str, rows: list[dict[str, Any]], figure: Any, config: ComponentsConfig
) -> str:
    """Render a site's private page of the quality of its people's images."""
    bound, page_rows = config.pca.norm_bound, rows
    if len(rows) > MOST_PEOPLE:
        page_rows = sorted(rows, key=lambda row: row["clip_weight"])[:MOST_PEOPLE]
    return template_of("qc.html.jinja").render(
        site=site,
        rows=page_rows,
        n_people=len(rows),
        measures={
            name
            for name in ("tsnr", "motion")
            if any(np.isfinite(row[name]) for row in rows)
        },
        most_moved=MOVED,
        picture=picture("Norms of all volumes", figure),
        norm_bound=bound,
        power=config.pca.method == "power",
        unit=config.budget.unit,
        advice=sentences.bound_in_words([row["median"] for row in rows], bound),
    )


@cache
def template_of(name: str) -> jinja2.Template:
    """Open one of the package's pages."""
    return _pages().get_template(name)


@cache
def _pages() -> jinja2.Environment:
    """All pages; shared templates are compiled once."""
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=jinja2.select_autoescape(["html.jinja"]),  # not of a model card
        undefined=jinja2.StrictUndefined,
    )
    pages.globals |= {"anchor_of": anchor_of, "most_people": MOST_PEOPLE}
    return pages


def picture(title: str, figure: Any) -> Picture:
    """Encode a figure as SVG and close it; its label becomes the description."""
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
        On one stage of the study.
    stamp
        Of the record; empty: nothing is written.
    """
    if not stamp:
        return chapter

    def with_stamp(picture: Picture) -> Picture:
        if not picture.data.startswith(SVG):
            return picture
        text = base64.b64decode(picture.data.removeprefix(SVG)).decode()
        # One more line below the picture, whose height stands twice in its head.
        height = re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', text)[1]
        taller = f"{float(height) + STAMP_HEIGHT:g}"
        text = text.replace(f'height="{height}pt"', f'height="{taller}pt"', 1)
        text = text.replace(f' {height}" xmlns', f' {taller}" xmlns', 1)
        label = f'<text x="4" y="{taller}" style="{STAMP_STYLE}">{stamp}</text>\n</svg>'
        text = label.join(text.rsplit("</svg>", 1))
        return picture._replace(data=SVG + base64.b64encode(text.encode()).decode())

    pictures = {
        part: [with_stamp(picture) for picture in of_part]
        for part, of_part in chapter.pictures.items()
    }
    return chapter._replace(pictures=pictures)


def write_figures(chapter: Chapter, folder: Path) -> None:
    """Write the pictures that the page shows as ``figures/*.svg``.

    The page folds away results that are indistinguishable from noise; a file cannot,
    so they have none, but for intervals of the primary question.
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
        for picture in chapter.pictures.get(part, ()):
            title = picture.anchor or picture.title
            name = _camel(re.split("[,.;:]", title)[0])
            name = _camel(title) if name in named else name
            named.add(name)
            text = base64.b64decode(picture.data.removeprefix(SVG)).decode()
            files.write_text(folder / f"group_desc-{name}_{suffix}.svg", text)


def _camel(title: str) -> str:
    """A title as a label of BIDS: letters and digits alone."""
    first, *words_after = anchor_of(title).split("-")
    return first + "".join(word.title() for word in words_after)


def gallery(
    verdicts: Verdicts, figures: Sequence[Figure], threads: int
) -> dict[str, list[Picture]]:
    """Pictures of results above the noise, ``maps``, and of the ``rest``.

    Without any result above the noise the page has a sentence instead of pictures.
    Maps around a prior are at least public, and all are shown.
    """
    is_shown = verdicts.is_drawn
    if not is_shown.any():
        return {"maps": [], "rest": []}
    parts = {"maps": [], "rest": []}
    titled = zip(verdicts.names, pictures(figures, threads), strict=True)
    for (name, picture), is_finding in zip(titled, is_shown, strict=True):
        part = parts["maps" if is_finding else "rest"]
        part.append(picture._replace(anchor=anchor_of(name)))
    return parts


def findings(verdicts: Verdicts, results: Sequence[Any]) -> list[Any]:
    """Select the results that are shown as findings (:attr:`.Verdicts.is_drawn`)."""
    pairs = zip(results, verdicts.is_drawn, strict=True)
    return [result for result, is_shown in pairs if is_shown]


def table_of(
    path: Path, columns: Mapping[str, str], primary: Collection[str] = ()
) -> Table:
    """Read a table of results: the explained columns, or without any all columns.

    Rows above the noise come first, and effects, which have a p-value, by that: the
    strongest first, after those of primary covariates, and without means of everybody.
    Columns ``low`` and ``high`` become one.
    """
    head, *rows = (line.split("\t") for line in path.read_text().splitlines())
    columns, most = columns or dict.fromkeys(head, ""), MOST_ROWS
    if "verdict" in head:
        k = head.index("verdict")
        rows = sorted(rows, key=lambda row: row[k] != ABOVE)
        if "p" in head:
            place, most = head.index("p"), MOST_EFFECTS
            rows = [row for row in rows if row[0] != MEAN]
            rows.sort(key=lambda row: float(row[place].replace("n/a", "inf")))
            rows.sort(key=lambda row: row[k] != ABOVE)
            first = [row for row in rows if row[0] in primary]
            secondary = [row for row in rows if row[0] not in primary]
            rows = first[:MOST_PRIMARY] + secondary[:most]
            rows += first[MOST_PRIMARY:] + secondary[most:]
            most = len(first[:MOST_PRIMARY]) + len(secondary[:most])
    # An interval says how well a number is known: no more digits than that.
    digits = 2 if "low" in columns else 3
    cells = [
        {name: _short(cell, name, digits) for name, cell in zip(head, row, strict=True)}
        for row in rows
    ]
    if "low" in columns:
        for row in cells:
            ends = f"{row['low']} to {row['high']}"
            row[INTERVAL] = "n/a" if row["low"] == "n/a" else ends
        columns = {INTERVAL if k == "low" else k: v for k, v in columns.items()}
        columns.pop("high", None)
    table_rows = [[row[name] for name in columns] for row in cells]
    return Table(columns, table_rows, path.name, most)


def _short(cell: str, column: str, digits: int) -> str:
    """Round a number in a table to some digits."""
    if cell.lstrip("-").isdigit():
        return cell
    try:
        number = float(cell)
    except ValueError:
        return cell
    if column in ("p", "p_corrected"):
        return f"{number:.2g}" if number >= SMALLEST_P else f"< {SMALLEST_P:.4f}"
    if 10 ** (digits - 1) <= abs(number) < 1e5:
        return f"{number:.0f}"
    return f"{number:#.{digits}g}" if digits == 2 else f"{number:.{digits}g}"


def anchor_of(name: str) -> str:
    """Anchor of the picture of a result, for links."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def pictures(figures: Sequence[Figure], threads: int) -> list[Picture]:
    """Draw and encode figures in parallel, each in a process of its own."""
    bar = progress.named("report", len(figures))
    # Elsewhere a process that has imported matplotlib cannot be forked.
    if threads == 1 or len(figures) < 2 or sys.platform != "linux":
        return [*bar(map(_picture, figures))]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(threads, context, _end_with_parent) as pool:
        return [*bar(pool.map(_picture, figures))]


def _end_with_parent() -> None:
    """End this worker when the step is killed; else it would wait for ever.

    A terminal interrupts this worker, too; the step ends it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _picture(figure: Figure) -> Picture:
    return picture(figure.title, figure.draw())


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
    numbers = sorted(x for x in values if x is not None)
    ends = (*numbers[:1], *numbers[-1:])
    return " to ".join(dict.fromkeys(form.format(x) for x in ends))
