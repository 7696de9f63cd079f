"""Every sentence about data names its row, and every row is measured by one command."""

import ast
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from evidence.truth import bench

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "capeneuro"
# Files whose functions state something of released numbers, or say that they do not.
STATING = [PACKAGE / "report/sentences.py", *PACKAGE.glob("algorithms/*verdict*.py")]
STATING += sorted(PACKAGE.glob("studies/ask_*.py"))
# A line that ends with a comma goes on.
ROW = re.compile(r"^ *(?:\{# )?Row: ((?:.+,\n)*.+?)(?: #\})?$", re.MULTILINE)
# Words of a string that are a sentence.
WORDS = 4
ROWS = bench.read_rows()
# Scripts that take seconds, few draws each.
QUICK = ("distribution", "pairs", "patterns", "regression", "network_features")
QUICK += ("contrast_tables", "longest", "cross_validation")


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    """All functions of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield node


def own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, less errors, docstrings and functions inside it."""
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(child, ast.Expr) and isinstance(
            child.value, ast.Constant
        )
        if not (is_docstring or isinstance(child, (ast.Raise, ast.FunctionDef))):
            yield child
            yield from own(child)


def states(function: ast.FunctionDef) -> bool:
    """Whether it writes a sentence or a verdict."""
    if function.returns is not None and ast.unparse(function.returns) == "Verdicts":
        return True
    for node in own(function):
        if isinstance(node, ast.JoinedStr):
            parts = [v.value for v in node.values if isinstance(v, ast.Constant)]
            text = " ".join(parts)
        else:
            text = getattr(node, "value", "")
        if isinstance(text, str) and len(text.split()) >= WORDS:
            return True
    return False


def named(text: str) -> list[str]:
    """Rows that a docstring names; of what states nothing of data, none."""
    return [
        name
        for line in ROW.findall(text)
        if not line.startswith("none, ")
        for name in re.split(r",\s+", line)
    ]


@pytest.mark.parametrize("path", STATING, ids=lambda path: path.stem)
def test_a_function_that_states_something_names_its_row(path):
    bare = [f.name for f in functions(path) if states(f) and not _rows_of(f)]
    assert not bare, f"{path.name}: add `Row: NAME`, or `Row: none, REASON`"


def _rows_of(function: ast.FunctionDef) -> list[str]:
    return ROW.findall(ast.get_docstring(function) or "")


def test_a_chapter_names_its_rows():
    chapters = [
        path
        for path in PACKAGE.glob("report/templates/*.jinja")
        if re.search(r'extends "(chapter|rows)\.', path.read_text())
    ]
    assert chapters
    assert [p.name for p in chapters if not ROW.search(p.read_text())] == []


def test_rows_are_those_that_sentences_name():
    paths = [*PACKAGE.rglob("*.py"), *PACKAGE.glob("report/templates/*.jinja")]
    names = {name for path in paths for name in named(path.read_text())}
    assert names == {row.name for row in ROWS}


def test_a_function_without_a_row_is_found():
    source = 'def f(x):\n    """It.\n\n    {}\n    """\n    return f"{{x}} of all maps"'
    for line, rows in (
        ("Row: none, a name", []),
        ("Row: r2, effect", ["r2", "effect"]),
    ):
        tree = ast.parse(source.format(line)).body[0]
        assert isinstance(tree, ast.FunctionDef)
        assert not states(tree)
        assert named(ast.get_docstring(tree)) == rows
    told = ast.parse(source.format("").replace("of all", "of all the told")).body[0]
    assert states(told)
    assert not _rows_of(told)


def test_the_page_is_the_rendering_of_the_rows():
    text = (ROOT / bench.PAGE).read_text()
    assert text == bench.page(text, ROWS), "python -m evidence truth --page writes it"
    sections = re.findall(r"<!-- rows: (.+?) -->", text)
    assert set(sections) == {row.section for row in ROWS}


def test_rows_are_whole():
    assert len({row.row for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.row.count("/") == 1, row.row
        assert all((row.sentence, row.estimand, row.data, row.rate)), row.row
        script = f"evidence.truth.{row.command.split()[0]}"
        assert importlib.util.find_spec(script), row.row
        row.verdict(0.5, 10)


def test_a_rate_is_outside_where_its_draws_do_not_explain_it():
    row = ROWS[0]._replace(target="0.9 to 1")
    assert row.verdict(0.95, 0) == "inside"
    assert row.verdict(0.85, 20) == "inside, for so few draws"
    assert row.verdict(0.85, 2000) == row.verdict(0.85, 0) == "OUTSIDE"
    assert row._replace(target="-").verdict(0.1, 2000) == "not judged"


def test_a_part_of_the_bench_holds(tmp_path, monkeypatch, capsys):
    """Another quick command with each commit."""
    commands = {row.command: row for row in ROWS if row.command.split()[0] in QUICK}
    count = ["git", "-C", str(ROOT), "rev-list", "--count", "HEAD"]
    done = subprocess.run(count, capture_output=True, text=True, check=False)
    row = [*commands.values()][int(done.stdout or 0) % len(commands)]
    if not row.is_here:
        pytest.skip(f"{row.needs}: not in {bench.DATA}")
    monkeypatch.setattr(bench, "OUT", tmp_path / "measured.tsv")
    assert bench.main([row.row]) == 0, capsys.readouterr()
