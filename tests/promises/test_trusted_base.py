"""What an auditor must read: a short list of files, which import nothing beside it.

The list is in docs/proofs.md. What is above it can lose a study, or say something wrong
of it, and makes no site release more than it has charged.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import code_lines
import numpy as np
import pytest
from kinds import KINDS, write_kind
from parties import SITES, STUDY
from tiny_study import command, run_path, run_steps, write_image

from capeneuro.data import files

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "capeneuro"
PAGE = (ROOT / "docs" / "proofs.md").read_text()
# Below the seam, by room.
ROOMS = {
    "federation": "site gate manifest requests messages rules noise_addition ledger "
    "entries index sums hash_chain durable_files",
    "federation/secagg": "one_exchange protocol masking shamir signing",
    "privacy": "accounting cape queries blocks clipping moments contrasts deviations "
    "gradients noise ring",
}
TRUSTED = [f"{room}/{name}" for room, names in ROOMS.items() for name in names.split()]
TRUSTED += ["linalg", "machine"]
# The seam: it reads the files of study and site and hands over, so it knows both sides.
SEAM = {
    "site_data/terms": {"config/names", "config/site", "config/study"},
    "site_data/opening": {
        *("config/errors", "config/site", "config/study", "data/files"),
        *("data/inventory", "site_data/people", "site_data/terms"),
    },
}
LIBRARIES = {"numpy", "scipy", "cryptography", "pydantic", "opendp"}
MOST_LINES = 3540
# Code of statements that are about a record, or a plan, and about no site's answer.
OF_RECORDS = {"privacy/calibration", "privacy/parties", "privacy/rounding"}
OF_RECORDS |= {"privacy/accountants", "report/privacy_record", "report/protection"}
# Of answers that people carry: the file is kept, whose bytes the ledger has.
OF_RECORDS |= {"flare/by_files"}


def text_of(name: str) -> str:
    return (PACKAGE / f"{name}.py").read_text()


def imported(text: str) -> Iterator[str]:
    """Modules that a file imports, anywhere in it; the package's by their file."""
    for node in ast.walk(ast.parse(text)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            files = [m for m in inner if _file(m)]
            modules = [*files, *([node.module] if len(files) < len(inner) else [])]
        for module in modules:
            yield _file(module) or module.split(".")[0]


def _file(module: str) -> str:
    """Name of a module of the package by its file; empty: it is none, or a room."""
    name = module.removeprefix("capeneuro.").replace(".", "/")
    is_own = module.startswith("capeneuro.") and (PACKAGE / f"{name}.py").is_file()
    return name if is_own else ""


def outside(text: str, beside: frozenset[str] | set[str] = frozenset()) -> set[str]:
    """What a file imports beside the trusted files and the named libraries."""
    allowed = {*TRUSTED, *LIBRARIES, *sys.stdlib_module_names, *beside}
    return set(imported(text)) - (allowed - {"importlib", "imp", "runpy"})


@pytest.mark.parametrize("name", TRUSTED)
def test_a_trusted_file_imports_nothing_above_the_seam(name):
    assert outside(text_of(name)) == set()
    assert not re.search(r"\b(__import__|eval|exec)\(", text_of(name))


@pytest.mark.parametrize("name", SEAM)
def test_the_seam_imports_what_it_reads_and_what_it_hands_over_to(name):
    assert outside(text_of(name), SEAM[name]) == set()


@pytest.mark.parametrize(
    "line",
    [
        "from capeneuro.studies.sites import load_sites",
        "from capeneuro.report import page",
        "from capeneuro import config",
        "import capeneuro.config.study",
        "from capeneuro.privacy import cape, parties",
        "def f():\n    from capeneuro.federation.registry import check",
        "import importlib",
        "import pandas as pd",
    ],
)
def test_an_import_from_above_is_noticed(line):
    assert outside(f"{text_of('federation/site')}\n{line}\n")


def test_the_list_is_all_that_a_site_runs_to_answer():
    """Loaded in a process of its own: no preface of a room loads anything, either."""
    roots = ["site", "gate", "manifest"]
    program = "".join(f"import capeneuro.federation.{root}\n" for root in roots)
    program += "import sys; print(*(n for n in sys.modules if 'capeneuro.' in n))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {
        n.removeprefix("capeneuro.").replace(".", "/") for n in run.stdout.split()
    }
    assert loaded - ROOMS.keys() == set(TRUSTED)
    for room in ROOMS:  # a preface, no code
        (preface,) = ast.parse((PACKAGE / room / "__init__.py").read_text()).body
        assert isinstance(preface, ast.Expr)


def test_an_auditor_reads_at_most_so_many_lines():
    counts = [code_lines.count(text_of(name)) for name in (*TRUSTED, *SEAM)]
    assert sum(lines.code for lines in counts) <= MOST_LINES


def test_lines_of_code_are_counted():
    text = '"""Preface."""\n\nimport os\n\n\ndef f(x):\n    """Doc."""\n    # why\n'
    assert code_lines.count(text + "    return (\n        x\n    )\n") == (4, 1, 11)


def test_the_page_has_a_sentence_on_every_file():
    rows = re.findall(r"^\| `([\w/]+)\.py` \| (\S[^|]+) \|$", PAGE, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted({*TRUSTED, *SEAM})


def test_what_is_proved_is_about_these_files():
    """But for what a record says beside what sites have charged."""
    rows = re.findall(r"^\| [A-Z]\d+\w* \|[^|]+\| `([\w/]+)\.py`", PAGE, re.MULTILINE)
    assert len(rows) > 50
    assert set(rows) - {*TRUSTED, *SEAM} == OF_RECORDS


# --- what is handed over -------------------------------------------------------------


def prepared(folder: Path) -> dict[str, bytes]:
    people = files.Features(folder / "projected.npz")
    return {name: X.tobytes() for name, X in people.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_nobodys_features_depend_on_another_persons_row(kind, tmp_path, monkeypatch):
    root = tmp_path / "root"
    write_kind(root, kind, "in-process")
    monkeypatch.chdir(root / "together")
    name = SITES[0]
    folder, table = Path("private") / name / kind, Path(f"x-{name}.tsv")
    before = prepared(folder)
    header, *rows = [line.split("\t") for line in table.read_text().splitlines()]
    rows[30][1:7] = [f"{-float(value):.4f}" for value in rows[30][1:7]]
    files.write_table(table, header, rows)
    assert command("prepare", STUDY, "--site", name) == 0
    after = prepared(folder)
    assert before.keys() == after.keys()
    changed = {person for person in before if before[person] != after[person]}
    assert changed == {"sub-30"}


def test_nobodys_features_depend_on_another_persons_images(tiny):
    run_steps("validate", "prepare")
    folder, rng = Path("private/site-0/tiny"), np.random.default_rng(5)
    before = prepared(folder)
    write_image(run_path(0, 1), 100 + rng.standard_normal((6, 6, 6, 15)))
    assert command("prepare", "config.yaml", "--site", "site-0") == 0
    after = prepared(folder)
    assert {p for p in before if before[p] != after[p]} == {"sub-01"}
