"""Publications that methods rest on, from `references.bib`, as text and as BibTeX."""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# One field a line; the paper about capeneuro reads the same file.
BIBLIOGRAPHY = Path(__file__).with_name("references.bib")


class Reference(NamedTuple):
    """One publication."""

    bibtex: str
    """Its entry."""
    fields: Mapping[str, str]

    @property
    def label(self) -> str:
        """Citation in a text: the first author, or two, and the year."""
        names = [name.split(",")[0] for name in self.fields["author"].split(" and ")]
        if len(names) > 2 or names[-1] == "others":
            names = [f"{names[0]} et al."]
        return f"{' & '.join(names)} {self.fields['year']}"

    @property
    def authors(self) -> str:
        """The first three authors."""
        names = self.fields["author"].split(" and ")
        return "; ".join(names[:3]) + " et al." * (len(names) > 3)

    @property
    def venue(self) -> str:
        """Journal, proceedings or school, with volume and pages."""
        names = ("journal", "booktitle", "school")
        text = next(self.fields[name] for name in names if name in self.fields)
        if "volume" in self.fields:
            text += f" {self.fields['volume']}"
        if "number" in self.fields:
            text += f"({self.fields['number']})"
        if "pages" in self.fields:
            text += f", {self.fields['pages']}"
        return text.replace("--", "-")


@functools.cache
def references() -> Sequence[Reference]:
    """All publications of the bibliography, in the order of their keys."""
    entries = BIBLIOGRAPHY.read_text().strip().split("\n\n")
    return [Reference(entry, _fields(entry)) for entry in entries]


def _fields(entry: str) -> dict[str, str]:
    pairs = re.findall(r"^  (\w+) = \{+(.*?)\}+,$", entry, re.MULTILINE)
    return dict(pairs)


def cited(text: str) -> Sequence[Reference]:
    """Publications that a text, as HTML, cites; in the order of authors."""
    plain = text.replace("&amp;", "&")
    publications = [entry for entry in references() if entry.label in plain]
    return sorted(publications, key=lambda p: (p.fields["author"], p.fields["year"]))
