"""Pages keep what they promise: their commands run, and their links lead somewhere."""

import importlib.util
import re
import sys
from urllib.parse import unquote

import pages
import pytest
from pages import run_page
from workflows import ROOT, run

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")])
TUTORIAL, FIRST = "docs/tutorial.md", "docs/first-private-study.md"
REST = [str(page.relative_to(ROOT)) for page in pages.PAGES]
IN_README = {"readme_maps.png"}
LANGUAGES = {"bash", "python", "yaml", "text"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_tutorial_runs_from_nothing_to_maps(here, capsys):
    run_page(TUTORIAL)
    said = capsys.readouterr().out
    assert "promise: epsilon 2, delta 1e-05, unit sample" in said
    assert (here / "results/demo/report.html").is_file()
    for name in ("component-1.png", "component-1-nilearn.png"):
        assert (here / name).stat().st_size > 10_000
    assert "add up to its totals" in said
    assert (here / "my-study/config/config.yaml").is_file()


def test_the_first_private_study_runs(here, capsys):
    run_page(FIRST)
    said = capsys.readouterr().out
    assert "noise is foretold to be" in said
    assert "epsilon 1: at most" in said
    assert (here / "coefficients.png").stat().st_size > 5000


def test_the_example_of_readme_prints_what_readme_says(here, capsys):
    every = pages.blocks(ROOT / "README.md")
    example = next(i for i, block in enumerate(every) if block.language == "python")
    pages.run_block(every[example], {})
    assert capsys.readouterr().out == every[example + 1].text
    assert (here / "component_1.png").stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in REST if p not in (TUTORIAL, FIRST)])
def test_a_page_runs(page, here):
    took = run_page(page)
    assert len(took) == sum(block.runs for block in pages.blocks(ROOT / page))


def test_every_block_runs_or_says_why_not(tmp_path):
    """Keys of YAML are the product's, and so are options of what is not run."""
    every = [block for page in pages.PAGES for block in pages.blocks(page)]
    marks = re.compile(r"^<!-- (?:first|of|not run)\b", re.MULTILINE)
    written = sum(len(marks.findall(page.read_text())) for page in pages.PAGES)
    assert written == sum(bool(block.mark) for block in every)
    assert sum(block.runs for block in every) > 25
    # Indented blocks would be neither run nor listed.
    hidden = r"^ +```(?!text)\w|\n\n {4}(?:capeneuro|snakemake|python|pip|import) "
    found = [p for p in pages.PAGES if re.search(hidden, p.read_text(), re.MULTILINE)]
    assert not found
    for block in every:
        assert block.language in LANGUAGES, block.where
        if block.language == "yaml":
            assert block.mark == "of", block.where
            pages.read_yaml(block, tmp_path)
        elif block.language != "text":
            assert block.runs or block.note, block.where
            pages.parse(block)


def test_a_wrong_block_is_noticed(tmp_path):
    def block(language, text, note=""):
        return pages.Block("page.md", 1, language, text, "", note)

    key = block("yaml", "budget: {epsilonn: 1, ...}", "config/config.yaml")
    with pytest.raises(pages.load.ConfigError, match="did you mean 'epsilon'"):
        pages.read_yaml(key, tmp_path)
    for line in ("capeneuro run --fast study.yaml", "cd x\ncapeneuro plam study.yaml"):
        with pytest.raises(SystemExit):
            pages.parse(block("bash", line))
    with pytest.raises(ModuleNotFoundError, match=r"page\.md:1: sim\.brains"):
        pages.parse(block("bash", "python -m sim.brains"))
    with pytest.raises(RuntimeError, match=r"page\.md:1: false"):
        pages.run_block(block("bash", "false\n"), {})


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub and MyST name them."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    named = re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE)
    found = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in plain}
    return found | set(named)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = page.parent / unquote(target) if target else page
        assert path.exists(), target
        if path.name.startswith("gallery_"):
            assert path.stat().st_size < 150_000, target
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path.read_text()), f"{target}#{anchor}"


@pytest.fixture(scope="module")
def reference():
    """The site's generator of reference pages, a file of docs/."""
    path = ROOT / "docs" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_explains_every_key(reference):
    page = reference.configuration()
    entries = dict(re.findall(r"^`([\w.]+)`\n: (.*(?:\n\n  .*)?)", page, re.M))
    for _, model in reference.PARTS:
        assert set(model.model_fields) <= set(entries)
    assert entries["budget.epsilon"].startswith("*number above 0; required*\n\n  Total")
    assert "at least 1; default `15`" in entries["ica.n_rounds"]
    assert "(#sections-scrub) or null; default `null`" in entries["cleaning.scrub"]
    silent = {name for name, text in entries.items() if text.endswith("*")}
    assert {name.split(".")[-1] for name in silent} <= {"kind"}
    assert anchors(page) >= set(re.findall(r"\]\(#([\w-]+)\)", page))


def test_every_figure_is_on_one_page(reference):
    page = reference.figures(ROOT / "docs")
    figures = ROOT / "docs" / "figures"
    kept = {str(path.relative_to(figures)) for path in figures.rglob("*.*")}
    shown = set(re.findall(r"^```{figure} figures/(\S+)", page, re.M))
    assert {name for name in kept - shown if "/" not in name} == IN_README
    assert shown <= kept


def test_the_table_of_people_is_what_plan_says(capsys):
    """Two of its rows, whose studies are quickly planned."""
    table = (ROOT / "docs" / "decide.md").read_text()
    done = run(ROOT, sys.executable, "docs/decide.py", "regression")
    rows = [row for row in done.stdout.splitlines() if "`regression`" in row]
    assert len(rows) == 2
    assert all(row in table for row in rows)


def test_the_reference_has_every_command_and_option(reference):
    page = reference.command_line()
    assert "`--from FOLDER...`\n: folders of images, one a site" in page
    assert "`--sites NAME...`\n: number of sites, or their names (default 2)" in page
    assert "### `capeneuro federation init`" in page
    assert page.count("`--log LOG`") == 1
    every = next(a for a in pages.PARSER._actions if a.choices).choices
    for name, command in every.items():
        at = page.index(f"## `capeneuro {name}`\n")
        own = page[at : page.index("```text", at)]
        for action in command._actions:
            for option in action.option_strings:
                assert option in own or option in page[: page.index("## `capeneuro")]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("sphinx", reason="needs the extra `docs`")
    done = run(ROOT, "sphinx-build", "-q", "-W", "docs", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for name in ("index", "tutorial", "api", "reference-cli", "reference-config"):
        assert (tmp_path / f"{name}.html").stat().st_size > 10_000
