"""The report in a browser: no sideways scroll at any width, no request, a PDF.

Needs Chromium (on Debian: apt-get install chromium); without it these are skipped.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from tiny_study import STUDY

from capeneuro.algorithms.verdict import ABOVE, NOT_ABOVE, Verdicts
from capeneuro.config import load
from capeneuro.report import page as pages
from capeneuro.report import plots, viewer
from capeneuro.report.privacy_record import privacy_record

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
FLAGS += "--disable-background-networking --disable-component-update "
FLAGS += "--disable-sync --hide-scrollbars"
WIDTHS = (390, 768, 1280)
# What the page inside a frame tells the page around it: its width, what is in it, what
# reaches beyond though it does not scroll in a box of its own, and what the viewer says
# before and after its second plane's slider goes to the end.
TELL = """<script>const wrong = [];
addEventListener("error", event => wrong.push(event.message));
addEventListener("unhandledrejection", event => wrong.push(String(event.reason)));
addEventListener("load", () => setTimeout(() => {
  const root = document.documentElement, width = root.clientWidth;
  const reaches = one => one.getBoundingClientRect().right > width + 1;
  const inBox = one => one && ((getComputedStyle(one).overflowX == "auto"
    && !reaches(one)) || inBox(one.parentElement));
  const beyond = [...document.querySelectorAll("main *")].filter(one =>
    reaches(one) && !inBox(one.parentElement));
  const said = [width, root.scrollWidth, beyond.map(one => one.outerHTML.slice(0, 80)),
    performance.getEntriesByType("resource").map(one => one.name)];
  const box = document.querySelector(".viewer");
  const slider = box.querySelectorAll(".planes input")[1];
  const value = () => box.querySelector(".value").textContent;
  said.push(box.hidden, value());
  slider.value = slider.max;
  slider.dispatchEvent(new Event("input"));
  parent.postMessage(JSON.stringify([...said, value(), wrong]), "*");
}, 1000))</script>"""
FRAME = '<iframe src="in.html" style="width:{}px;height:700px;border:0"></iframe>'
HEAR = """<title></title><pre></pre><script>addEventListener("message", event => {
  document.querySelector("pre").textContent += event.data + "\\n"; })</script>"""


def chromium(folder: Path, *options: str) -> str:
    """Run Chromium on a page of a folder, with a profile of its own."""
    own = [f"--user-data-dir={folder / 'profile'}", *options]
    done = subprocess.run(
        [CHROMIUM, *FLAGS.split(), *own], capture_output=True, text=True, timeout=100
    )
    return done.stdout


@pytest.fixture
def page(tiny, tmp_path) -> str:
    """A report with wide tables, long names, pictures and accepted rules."""
    study = load.load_study(STUDY)
    mu = dict.fromkeys(("reader", "partner", "partners", "aggregator"), 0.1)
    mu |= {"aggregator_and_colluders": 0.2, "site_as_aggregator": 0.2}
    site = {"n_units": 20, "sensitivity": 0.1, "variance": 1.0, "mu": mu}
    names = ["site-0", "site-1", "a-site-with-a-rather-long-name"]
    release = {"query": "second_moment", "round": 0, "size": 378, "arm": "cape"}
    release |= {"clip": 1.0, "noise_deviation": 0.1, "survivors": names}
    release["sites"] = dict.fromkeys(names, site)
    record = privacy_record(study, dict.fromkeys(names, "private"), [release])
    long = "a_name_of_a_region_without_any_blank_in_it" * 2
    values, words = np.array([2.0, 0.5]), (ABOVE, NOT_ABOVE)
    told = Verdicts(("one", long), values, np.ones(2), words, "size")
    figure = plots.effects(["one", long], values, "effect")
    shown = [pages.picture("effects", figure)._replace(anchor="one")]
    rows = [["one", *["0.123 to 4.567"] * 9], [long, *["0.1 to 4"] * 9]]
    table = pages.Table({f"column {i}": "a number" for i in range(10)}, rows, "a.tsv")
    pictures = {"quality": shown, "maps": [], "rest": []}
    scores = [[long, "0.5", "chance 0.1", "a comparison " * 20]]
    about = study, "components.html.jinja", told, scores, pictures
    maps = np.full((6, 7, 8, 1), 0.1, np.float32)
    maps[1, 2, 3] = 4.0
    nib.save(nib.Nifti1Image(maps, np.diag([8.0, 8, 8, 1])), tmp_path / "maps.nii")
    looked = viewer.viewer([plots.map_figure(tmp_path / "maps.nii", 0, long)])
    chapter = pages.Chapter(*about, [], table, looked, {"PCA": 2.0})
    return pages.render(study, record, [chapter], Path("."))


def test_it_fits_every_width_fetches_nothing_and_shows_maps(page, tmp_path):
    (tmp_path / "in.html").write_text(page.replace("</body>", TELL + "</body>"))
    frames = "".join(FRAME.format(width) for width in WIDTHS)
    (tmp_path / "out.html").write_text(HEAR + frames)
    shown = ("--virtual-time-budget=5000", "--dump-dom", f"file://{tmp_path}/out.html")
    heard = re.search(r"<pre>(.*?)</pre>", chromium(tmp_path, *shown), re.DOTALL)
    told = [json.loads(line) for line in heard[1].splitlines() if line]
    assert sorted(width for width, *_ in told) == list(WIDTHS)
    for width, scrolled, beyond, fetched, hidden, first, moved, wrong in told:
        assert scrolled == width, (width, scrolled)
        assert beyond == [] and fetched == [] and wrong == []
        assert not hidden and "about 4.0" in first and "about 0.09" in moved


def test_it_prints(page, tmp_path):
    (tmp_path / "in.html").write_text(page)
    pdf = tmp_path / "page.pdf"
    options = f"--print-to-pdf={pdf}", "--no-pdf-header-footer"
    chromium(tmp_path, *options, f"file://{tmp_path}/in.html")
    n_pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf.read_bytes()))
    assert 3 <= n_pages <= 12
