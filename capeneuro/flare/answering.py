"""A site that answers for a manifest, however requests come: engine or files.

Whatever arrives goes through the site's gate. What it answers to ``ping`` is how it and
the aggregator find that they mean the same: version, results of the stage before, and
over a network also clock and everybody's approvals.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from capeneuro import __version__
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation.gate import NO_SESSION, Gate
from capeneuro.federation.gate import ROOM as SMALL_ROOM
from capeneuro.federation.manifest import Manifest
from capeneuro.federation.messages import Message
from capeneuro.federation.site import Site
from capeneuro.flare import joining
from capeneuro.flare.site_status import Standing
from capeneuro.studies import sites as site_files
from capeneuro.studies.threads import limit_threads

LARGEST_SKEW = 60.0
# Rule by which a site refuses to go on with results that it does not have.
STAGE_BEFORE = "results of the stage before; get them and prepare again"
logger = logging.getLogger("capeneuro.flare.answering")


class AnsweringSite:
    """One site with its own files, which answers requests of its manifest's aggregator.

    Parameters
    ----------
    study
        The study, or the stage of one, that is asked for.
    name
        The site.
    manifest
        What it approved.
    is_live
        Whether requests come over a network: then clocks are compared, approvals of all
        sites are shown, and a session lasts as long as this object. Requests in files
        are older, and the first comes before other sites have signed.
    before, after
        Called with the site, a task and its message before the site answers, and with
        the answer afterwards.
    """

    def __init__(
        self,
        study: StudyConfig,
        name: str,
        manifest: Manifest,
        is_live: bool,
        before: Callable[[Site, str, Message], None] = lambda *_: None,
        after: Callable[[Site, str, Message, Message], None] = lambda *_: None,
    ) -> None:
        self._study, self._name, self._manifest = study, name, manifest
        self._is_live, self._before, self._after = is_live, before, after
        self._site: Site | None = None
        self._standing: Standing | None = None
        self._sites: site_files.Sites = {}
        self._made_from = ""  # digest of what features are made from
        self._agreed = False
        self.gate = Gate(
            name,
            manifest.digest,
            manifest.asker,
            self._answer,
            self._room,
            self._ping,
            None if is_live else NO_SESSION,
        )

    def open(self) -> None:
        """Open the site on its prepared features; before that it refuses everything.

        Raises
        ------
        ConfigError
            If its files do not do.
        """
        limit_threads(1)  # for this process; runs are bit-equal
        study, name = self._study, self._name
        self._sites = sites = site_files.load_sites(study)
        self._site = joining.open_site(study, sites, name, self._manifest)
        path = study.private(name) / "projected.npz"
        self._made_from = files.Features(Path(path)).made_from
        self._standing = Standing(study, sites[name], self._manifest.root)

    def show_passing(self, words: str) -> None:
        """Show the operator how far a long message is; empty: none is passing."""
        if self._standing is not None:
            try:
                self._standing.passing(words)
            except Exception:  # what the operator sees is no part of the answer
                logger.exception("the site's page")

    def _room(self, task: str, message: Message) -> int:
        return SMALL_ROOM if self._site is None else self._site.room(task, message)

    def _answer(self, task: str, message: Message) -> Message:
        if self._site is None:
            return {"error": "failed", "rule": "files of the site"}
        if not self._agreed:
            return {"error": "refused", "rule": "ping first"}
        self._before(self._site, task, message)
        reply = self._site.answer(task, message)
        self._after(self._site, task, message, reply)
        if self._standing is not None:
            try:
                self._standing.answered(task, message, reply)
            except Exception:  # what the operator sees is no part of the answer
                logger.exception("the site's page")
        return reply

    def _ping(self, message: Message) -> Message:
        rule = self._differs(message)
        # A replayed ping, which fails by its clock, must not end a session.
        self._agreed = self._agreed or rule is None
        if rule is None and message["done"]:
            self._finish()
        reply = {} if rule is None else {"error": "refused", "rule": rule}
        if rule is not None and self._standing is not None:
            with suppress(Exception):  # what the operator sees is no part of the answer
                self._standing.answered("ping", message, reply)
        return reply

    def _finish(self) -> None:
        """Note the end of the study or its stage; with the last stage keys end.

        The aggregator has every sum, so large answers need not stay at the site.
        """
        if self._standing is not None:
            self._standing.finished()
        if self._study.identity == site_files.stages_of(self._study)[-1]:
            joining.delete_mask_keys(self._study.full_study, self._name)
        if self._sites:
            book = site_files.open_ledger(self._sites[self._name])
            book.finish(self._study.identity, self._manifest.root, self._name)

    def _differs(self, message: Message) -> str | None:
        """Name of the first thing in which the aggregator differs from this site."""
        if self._site is None:
            return "files of the site"
        if message["version"] != __version__:
            return "version of capeneuro"
        # Of released numbers on both sides, so neither word tells anything of people.
        if message["made_from"] != self._made_from:
            return STAGE_BEFORE
        if not self._is_live:
            return None
        if not abs(message["clock"] - time.time()) <= LARGEST_SKEW:
            return "clock"
        # Privacy: whoever lacks may not exist; made-up sites would bring no noise.
        missing = self._manifest.missing(message["approvals"])
        return "approvals of all sites" if missing else None
