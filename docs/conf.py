"""The pages as a site that is built and read without a network.

sphinx-build -W docs results/site
"""

import sys
import warnings
from pathlib import Path

import capeneuro

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

# It is told all the same, below.
warnings.filterwarnings("ignore", "Unknown section Guarantee")

project = "capeneuro"
version = release = capeneuro.__version__
copyright = "the capeneuro developers"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
]
# Sphinx' own footnotes and fields are not used; math is plain text in all pages.
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
# Links to files of the checkout, such as a study, are the tests' to check.
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]
# They would make a dash of the two before an option.
smartquotes = False
numpydoc_show_class_members = False
autodoc_typehints = "none"
autodoc_mock_imports = ["nvflare"]
autosummary_generate = True

html_theme = "pydata_sphinx_theme"
# All pages stand at the left, by what they are for, and not in a row at the top.
html_theme_options = {"navigation_with_keys": False, "navbar_center": []}
html_title = "capeneuro"
templates_path = ["_templates"]
html_sidebars = {"**": ["pages.html"]}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = html_use_index = False
exclude_patterns: list[str] = []


def tell_the_guarantee(app, what, name, obj, options, lines: list[str]) -> None:
    """Numpydoc leaves out sections that it does not know."""
    if "Guarantee" in lines:
        if "Notes" in lines:  # they follow it, and become one section
            notes = lines.index("Notes")
            del lines[notes : notes + 2]
        at = lines.index("Guarantee")
        lines[at : at + 2] = ["Notes", "-----", "**Guarantee.**"]


def setup(app) -> None:
    """Write the reference, and hear docstrings before numpydoc does."""
    import reference

    reference.write(HERE)
    app.connect("autodoc-process-docstring", tell_the_guarantee, priority=1)
