"""Ledgers of private data with one second place, in a folder of their own."""

from pathlib import Path
from typing import Any

from capeneuro.federation import ledger_backup
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.ledger import Ledger
from capeneuro.privacy import accounting

CEILING = accounting.Budget(2.0, 1e-5, "subject", "replace-one", 0)


def ledger(folder: Path, name: str, cohort: str = "", data: str = "private") -> Ledger:
    """A ledger of this name, begun."""
    book = opened(folder, name, cohort, data)
    ledger_backup.begin(book)
    return book


def opened(folder: Path, name: str, cohort: str = "", data: str = "private") -> Ledger:
    """A ledger of this name as it is, as another process would open it."""
    return Ledger(folder / name, CEILING, folder / "second", cohort, data)


def spend(
    book: Ledger,
    request: str,
    mu: float,
    people: tuple[str, ...],
    promise: accounting.Budget | None = None,
    **about: Any,
) -> None:
    """Charge one release of study `s` to people."""
    entry = ReleaseLine(study="s", mu=mu, unit="subject", **about)
    book.charge(request * 64, people, entry, b"", promise=promise)
