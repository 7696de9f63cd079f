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
        self._book = site_files.open_ledger(site)  # which reads each line once
        self._status: dict[str, Any] = {"state": "waiting", "round": "", "away": []}
        self._status |= {"passing": ""}
        before = read(study, site.name)
        self._status |= {"lines": before["lines"] if before else []}
        self._roster: list[str] = []
        self._away: list[str] = []  # in the last line
        self._write()

    def answered(self, task: str, message: dict[str, Any], reply: Any) -> None:
        """Note an answer; a refusal with its rule."""
        request = message.get("request")
        if task in ("ping", "advertise", "release") and "error" in reply:
            rule = reply["rule"]
            state = f"{reply['error']}: {flow.RULES.get(rule, rule)}"
            if task == "ping" and state == self._status["state"]:
                return  # it is asked again several times a second
            self._status |= {"state": state}
        elif task == "release":
            self._roster = sorted(request["roster"])
            round_name = f"{request['query']} {request['round'] + 1}"
            self._status |= {"state": "released", "round": round_name}
        elif task == "unmask" and "error" not in reply:
            away = sorted(set(self._roster) - set(message["survivors"]))
            self._status |= {"state": "summed", "away": away}
        else:
            return
        self._write()

    def passing(self, words: str) -> None:
        """Note how far a long message is."""
        if words != self._status["passing"]:
            self._status |= {"passing": words}
            files.write_json(_file(self._study, self._site.name), self._status)

    def finished(self) -> None:
        """Note that the aggregator has all that the study asked for."""
        self._status |= {"state": "finished"}
        self._write()

    def _write(self) -> None:
        study, site = self._study, self._site
        total, stages = self._book.total(), site_files.stages_of(study)
        spent = self._book.spent(self._lineage, study.identity, site.name, stages)
        promise, mu = study.promise_of(site.name), spent.mu()
        remaining = max(0.0, 1 - (mu / promise.mu) ** 2)
        self._status |= {
            "at": datetime.now().isoformat(timespec="seconds"),
            "releases": spent.n,
            "spent": accounting.epsilon_from_mu(mu, promise.delta),
            "promise": promise.epsilon,
            "left": remaining,
            "in_all": accounting.epsilon_from_mu(total, site.delta),
            "ceiling": site.epsilon,
        }
        # A sum follows its release at once: one line a round, and one for who is away.
        status, lines = self._status, self._status["lines"]
        if status["state"] != "summed" or status["away"] != self._away:
            number = lines[-1][0] + 1 if lines else 0
            status["lines"] = [*lines, [number, _line(status)]][-LINES:]
            self._away = status["away"]
        files.write_json(_file(study, site.name), self._status)


def log_file(study: StudyConfig, name: str) -> Path:
    """Log of a site's process that answers for a study."""
    return study.private(name) / "logs" / "site.log"


def read(study: StudyConfig, name: str) -> dict[str, Any] | None:
    """How a study stands at a site; None before its first job."""
    path = _file(study, name)
    return json.loads(path.read_text()) if path.exists() else None


def forget(study: StudyConfig, name: str) -> None:
    """Remove the status of an earlier run."""
    _file(study, name).unlink(missing_ok=True)


def _line(status: dict[str, Any]) -> str:
    """One line for the operator's terminal."""
    away = f"; away: {', '.join(status['away'])}" if status["away"] else ""
    round_name = f"{status['round']}: " if status["round"] else ""
    return (
        f"{status['at'][11:]} {round_name}{status['state']}; "
        f"spent {status['spent']:.3g} of {status['promise']:g}, "
        f"{100 * status['left']:.0f}% left; "
        f"ledger {status['in_all']:.3g} of {status['ceiling']:g}{away}"
    )


def write_page(study: StudyConfig, name: str, status: dict[str, Any]) -> Path:
    """Write the page that a browser opens; it asks to be read again by itself."""
    path = study.private(name) / "status.html"
    page = template_of("status.html.jinja")
    files.write_text(path, page.render(status=status, study=study.study, site=name))
    path.chmod(0o600)
    return path


def _file(study: StudyConfig, name: str) -> Path:
    return study.private(name) / "status.json"
