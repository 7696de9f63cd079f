"""What a machine can see of whether a page can be read."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

# The largest page that is sent by mail without a second thought.
LARGEST = 6_000_000


class Page(HTMLParser):
    """What is on a page: parts by id, links, pictures, headings of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.alts: list[str] = []
        self.unscoped = 0
        self.tables = self.boxes = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        about = dict(attrs)
        if "id" in about:
            self.ids.append(about["id"])
        if tag == "a":
            self.links.append(about["href"])
        elif tag in ("link", "iframe", "object", "base"):
            self.fetched.append(tag)
        wanted = ("src", "srcset", "data", "poster", "action")
        self.fetched += [v for k, v in attrs if k in wanted]
        if tag == "img":
            self.alts.append(about.get("alt") or "")
        self.unscoped += tag == "th" and about.get("scope") not in ("col", "row")
        self.tables += tag == "table"
        self.boxes += about.get("class") == "scroll"


def assert_readable(path: Path) -> Page:
    """Check a page as a machine can: one file, no request, links, names, headings."""
    text = Path(path).read_text()
    page = Page(text)
    assert len(text) < LARGEST
    for one in page.fetched:  # a script of a file, too
        kind, _, data = one.partition(";base64,")
        assert kind in ("data:image/png", "data:image/svg+xml"), "would be fetched"
        if kind.endswith("xml"):
            svg = base64.b64decode(data).decode()
            inside = re.findall(r"(?:href|src)=\"([^\"]{,11})", svg)
            assert all(to.startswith(("#", "data:image/")) for to in inside)
            assert len(re.findall(r"url\([^#]|@import|<script", svg)) == 0
    for script in re.findall(r"(?s)<script[^>]*>(.*?)</script>", text):
        assert not re.search(r"https?:|fetch\(|XMLHttp|import\(|Socket", script)
    plain = re.sub(r"base64,[^\"]+", "", text)  # any four letters may stand in it
    assert not re.search(r"url\(|@import", plain)
    assert len(set(page.ids)) == len(page.ids)
    for link in page.links:
        inside = link.removeprefix("#") in page.ids and link.startswith("#")
        assert inside or link.startswith("https://doi.org/10."), link
    assert all(alt.strip() for alt in page.alts)
    assert not page.unscoped
    assert page.tables == page.boxes  # a wide one scrolls in its own box
    assert 'name="viewport"' in text and "@media print" in text
    return page
