"""The report of a study: one page, with a chapter for each of its stages."""

import json

from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.report import page
from capeneuro.report.privacy_record import write_beside
from capeneuro.studies import registry
from capeneuro.studies.sites import Sites


def report(study: StudyConfig, sites: Sites, threads: int = 1) -> None:
    """Write the report of a study, and the privacy record of all its stages."""
    study = study.full_study
    folder = study.results
    write_beside(study, folder)
    record = json.loads((folder / "privacy.json").read_text())
    # Open data are stamped on the page; a weak promise wherever a picture goes.
    stamp = "" if record["stamp"].startswith("NOT") else record["stamp"]
    chapters = [
        page.stamped(registry.of(member).chapter(record, threads), stamp)
        for member in study.members.values()
    ]
    for chapter in chapters:
        page.write_figures(chapter, chapter.config.results)
    text = page.render(study, record, chapters, folder)
    files.write_text(folder / "report.html", text)
    print(folder / "report.html")
