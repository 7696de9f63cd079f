"""The house's own rules: who imports whom, how large a file may be, what is written."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "capeneuro"
# A module may import from its own floor downwards only, never from a later line.
FLOORS = [
    {"cli", "__main__"},
    {"parties"},
    {"flare", "flare_site", "daemon", "workflow"},
    {"kinds"},
    {"row_results"},
    {"row_scores"},
    {"onsite", "fusion", "forecast", "row_steps"},
    {"fusion_plots", "row_plots", "row_words"},
    {"steps", "scaffold", "figures"},
    {"report", "plots", "planner", "row_planner", "consortium", "components"}
    | {"dp_djica", "views"},
    {"row_data"},
    {"spatial", "stability", "tabular", "baselines", "memberships"},
    {"ica", "cca", "network", "audit", "otd", "regression"},
    {"updates"},
    {"pca", "quadratic"},
    {"groups"},
    {"mechanism"},
    {"rounds"},
    {"site"},
    {"perturb", "ledger"},
    {"rules"},
    {"federation"},
    {"secagg", "cape", "queries"},
    {"moments", "gradients", "backprop", "tensor_moments"},
    {"masking", "privacy", "as_printed", "clipping", "pairs", "shrinkage"},
    {"noise", "ring", "shamir", "signing", "linalg", "durable", "order"},
]
# Leaves: files in and out, settings and scores; used by the upper four floors.
LEAVES = {
    "kit": {"config", "files"},
    "io": {"config", "basis", "files"},
    "eeg": {"config", "files", "fusion_sections"},
    "fusion_sections": {"sections"},
    "row_sections": {"sections"},
    "person_files": {"basis", "config", "files", "io", "sections"},
    "files": {"config"},
    "config": {"explain", "fusion_sections", "row_sections", "sections", "study"},
    "study": {"privacy", "sections"},
    "sections": {"cape", "privacy"},
    "explain": set(),
    "basis": set(),
    "metrics": set(),
    "scores": {"files", "metrics"},
}
MODULES = sorted(p for p in PACKAGE.glob("*.py") if p.name != "__init__.py")


def imports(path: Path) -> set[str]:
    """Every module that a file imports, at any depth of its code."""
    return imported(ast.parse(path.read_text()))


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            if node.module == "capeneuro":
                found |= {f"capeneuro.{alias.name}" for alias in node.names}
            else:
                found.add(node.module or "")
    return found


def inner(path: Path) -> set[str]:
    names = {n.split(".")[1] for n in imports(path) if n.startswith("capeneuro.")}
    return {n for n in names if (PACKAGE / f"{n}.py").exists()}


def floor(name: str) -> int:
    return next(i for i, names in enumerate(FLOORS) if name in names)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_imports_point_down(path):
    name = path.stem
    if name in LEAVES:
        assert inner(path) <= LEAVES[name]
        return
    lower = set().union(*FLOORS[floor(name) + 1 :])
    same = FLOORS[floor(name)] if floor(name) == 0 else set()
    leaves = set(LEAVES) if floor(name) <= 10 else set()
    assert inner(path) <= lower | same | leaves


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_image_libraries_stay_in_io_and_plots(path):
    libraries = {n.split(".")[0] for n in imports(path)} & {"nibabel", "nilearn", "mne"}
    allowed = {"io": {"nibabel", "nilearn"}, "eeg": {"mne"}}
    allowed |= {"plots": {"nibabel", "nilearn"}, "fusion_plots": {"mne"}}
    assert libraries <= allowed.get(path.stem, set())


def test_a_study_without_eeg_never_loads_its_library():
    for path in MODULES:
        tree = ast.parse(path.read_text())
        at_top = ast.Module([n for n in tree.body if not hasattr(n, "body")], [])
        assert not {n for n in imported(at_top) if n.split(".")[0] == "mne"}, path


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_the_federation_engine_stays_in_one_file(path):
    libraries = {n.split(".")[0] for n in imports(path)} & {"nvflare", "psutil"}
    assert libraries <= {
        "flare": {"nvflare"},
        "flare_site": {"nvflare"},
        "daemon": {"psutil"},
    }.get(path.stem, set())


def test_the_core_runs_without_the_engine():
    """No module of the core imports the engine's files but inside a function."""
    for path in MODULES:
        if path.stem in ("flare", "daemon"):
            continue
        tree = ast.parse(path.read_text())
        at_top = ast.Module([n for n in tree.body if not hasattr(n, "body")], [])
        engine = {"capeneuro.flare.controller", "capeneuro.flare.daemon"}
        assert not imported(at_top) & engine, path


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_package_never_imports_the_data_makers(path):
    assert not {n for n in imports(path) if n.split(".")[0] == "sim"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_formulas_as_printed_reach_figures_only(path):
    assert "as_printed" not in inner(path) or path.stem == "report"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_files_stay_readable(path):
    limit = 420
    assert len(path.read_text().splitlines()) <= limit


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_every_module_begins_with_a_preface(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_rules_hold_no_logic():
    for path in (ROOT / "workflow").rglob("*.smk"):
        text = path.read_text()
        assert not re.search(r"^\s+(run|script):", text, re.MULTILINE), path
        assert "retries:" not in text, path


def test_privacy_lines_are_marked():
    marked = [p.stem for p in MODULES if "# Privacy:" in p.read_text()]
    assert {"site", "ledger", "queries"} <= set(marked)
