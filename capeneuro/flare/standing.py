"""What a site's operator sees while a study runs: a line a round, and a page.

The process that answers writes how things stand to a file; the one that waits in the
operator's terminal prints what changed, and keeps a page for a browser. Both stay at
the site: who is away is public, what was spent and the ceiling are the site's own.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.privacy import accounting
from capeneuro.report.page import template_of
from capeneuro.studies import flow
from capeneuro.studies import sites as site_files

LINES = 200  # that are kept


class Standing:
    """How a study stands at a site, as its answering process sees it.

    Parameters
    ----------
    study, site
        The study and the site's own file.
    lineage
        Of the manifest.
    """

    def __init__(self, study: StudyConfig, site: SiteConfig, lineage: str) -> None:
        self._study, self._site, self._lineage = study, site, lineage
        self._told: dict[str, Any] = {"state": "waiting", "round": "", "away": []}
        before = read(study, site.name)
        self._told |= {"lines": before["lines"] if before else []}
        self._roster: list[str] = []
        self._away: list[str] = []  # in the last line
        self._write()

    def answered(self, what: str, message: dict[str, Any], reply: Any) -> None:
        """Note an answer; a refusal with its rule."""
        request = message.get("request")
        if what in ("ping", "advertise", "release") and "error" in reply:
            rule = reply["rule"]
            state = f"{reply['error']}: {flow.RULES.get(rule, rule)}"
            if what == "ping" and state == self._told["state"]:
                return  # it is asked again several times a second
            self._told |= {"state": state}
        elif what == "release":
            self._roster = sorted(request["roster"])
            where = f"{request['query']} {request['round'] + 1}"
            self._told |= {"state": "released", "round": where}
        elif what == "unmask" and "error" not in reply:
            away = sorted(set(self._roster) - set(message["survivors"]))
            self._told |= {"state": "summed", "away": away}
        else:
            return
        self._write()

    def finished(self) -> None:
        """Note that the aggregator has all that the study asked for."""
        self._told |= {"state": "finished"}
        self._write()

    def _write(self) -> None:
        study, site = self._study, self._site
        book = site_files.open_ledger(site)
        total = book.total()
        about = self._lineage, study.identity, site.name
        own = book.of_lineage(*about, site_files.stages_of(study))
        promise = study.promise_of(site.name)
        mu = accounting.compose([e.mu for e in own])
        left = max(0.0, 1 - (mu / promise.mu) ** 2)
        self._told |= {
            "at": datetime.now().isoformat(timespec="seconds"),
            "releases": len(own),
            "spent": accounting.epsilon_from_mu(mu, promise.delta),
            "promise": promise.epsilon,
            "left": left,
            "in_all": accounting.epsilon_from_mu(total, site.delta),
            "ceiling": site.epsilon,
        }
        # A sum follows its release at once: one line a round, and one for who is away.
        told, lines = self._told, self._told["lines"]
        if told["state"] != "summed" or told["away"] != self._away:
            number = lines[-1][0] + 1 if lines else 0
            told["lines"] = [*lines, [number, _line(told)]][-LINES:]
            self._away = told["away"]
        files.write_json(_file(study, site.name), self._told)


def read(study: StudyConfig, name: str) -> dict[str, Any] | None:
    """How a study stands at a site; None before its first job."""
    path = _file(study, name)
    return json.loads(path.read_text()) if path.exists() else None


def forget(study: StudyConfig, name: str) -> None:
    """Remove what an earlier run left."""
    _file(study, name).unlink(missing_ok=True)


def _line(told: dict[str, Any]) -> str:
    """One line for the operator's terminal."""
    away = f"; away: {', '.join(told['away'])}" if told["away"] else ""
    where = f"{told['round']}: " if told["round"] else ""
    return (
        f"{told['at'][11:]} {where}{told['state']}; spent {told['spent']:.3g} of "
        f"{told['promise']:g}, {100 * told['left']:.0f}% left; "
        f"ledger {told['in_all']:.3g} of {told['ceiling']:g}{away}"
    )


def write_page(study: StudyConfig, name: str, told: dict[str, Any]) -> Path:
    """Write the page that a browser opens; it asks to be read again by itself."""
    path = study.private(name) / "status.html"
    page = template_of("status.html.jinja")
    files.write_text(path, page.render(told=told, study=study.study, site=name))
    path.chmod(0o600)
    return path


def _file(study: StudyConfig, name: str) -> Path:
    return study.private(name) / "status.json"
