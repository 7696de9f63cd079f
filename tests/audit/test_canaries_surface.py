"""What an auditor reads says what it takes, gives, raises and guarantees."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "capeneuro"
# By file what bounds, noises, masks, admits or charges, and must say what it promises.
SURFACE = {
    "privacy/clipping": "clip_factors norms without_outliers is_outlier scaled bounded",
    "privacy/blocks": "people",
    "privacy/moments": "mean second_moment moment_product third_moment word_pairs "
    "word_triples whitened_word_triples",
    "privacy/gradients": "infomax_gradient infomax_skew infomax_curvature "
    "network_gradient log_odds_counts",
    "privacy/noise": "standard_normal key_stream discrete_normal",
    "privacy/cape": "losses least_sums",
    "privacy/parties": "views",
    "privacy/calibration": "calibrate arm_variances",
    "privacy/ring": "grid to_ring",
    "privacy/accounting": "Budget.admits compose compose_squares "
    "add_exactly epsilon_from_mu mu_from_epsilon",
    "privacy/queries": "is_projection Query.admits Query.sensitivity "
    "largest_contribution",
    "federation/noise_addition": "perturb",
    "federation/site": "Site.answer Site.describe Site.project Site.mask_key "
    "Site.advertise "
    "Site.share Site.release Site.confirm Site.unmask",
    "federation/requests": "Form.parse parse",
    "federation/rules": "admit",
    "federation/ledger": "Ledger.pseudonym Ledger.stored Ledger.check Ledger.charge "
    "Ledger.fix_survivors Ledger.total Ledger.promise",
    "federation/mechanism": "Mechanism.clip Mechanism.variances Mechanism.answer "
    "Mechanism.project",
    "federation/rounds": "gather",
    "federation/secagg/protocol": "advertise check_keys share masks sign unmask "
    "check_signatures Party.secret",
    "federation/secagg/unmasking": "leftover",
    "federation/secagg/one_exchange": "offer check_offers agree context masks "
    "digest_of_keys",
    "federation/secagg/masking": "pairwise_masks self_mask stretch derive",
    "federation/secagg/shamir": "split",
    "federation/secagg/signing": "is_signed",
}


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Public functions, and public methods of public classes, properties left out."""
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else []
        for one, prefix in [(node, ""), *((n, f"{node.name}.") for n in inner)]:
            if not isinstance(one, ast.FunctionDef):
                continue
            marks = {ast.unparse(mark) for mark in one.decorator_list}
            name = f"{prefix}{one.name}"
            if not re.search(r"(^|\.)_", name) and not marks & {
                "property",
                "cached_property",
            }:
                yield name, one


def takes(function: ast.FunctionDef) -> list[str]:
    a = function.args
    names = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def sections(function: ast.FunctionDef) -> dict[str, str]:
    """Text of each numpydoc section, by its heading."""
    text = ast.get_docstring(function) or ""
    _, *parts = re.split(r"^(\w+)\n-+$", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def raises(function: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Raise) and n.exc for n in ast.walk(function))


def _found() -> dict[str, ast.FunctionDef]:
    return {
        f"{file}:{name}": function
        for file in SURFACE
        for name, function in functions(ast.parse((PACKAGE / f"{file}.py").read_text()))
    }


FOUND = _found()
PROMISING = {
    f"{file}:{name}" for file, names in SURFACE.items() for name in names.split()
}


def test_every_promising_function_is_there():
    assert set(FOUND) >= PROMISING


@pytest.mark.parametrize("name", FOUND)
def test_a_public_function_says_what_it_takes_gives_and_raises(name):
    function, said = FOUND[name], sections(FOUND[name])
    # Names stand at the left margin, several of one description on one line.
    lines = re.findall(r"^(\w[\w, ]*)$", said.get("Parameters", ""), re.MULTILINE)
    assert [n for line in lines for n in line.split(", ")] == takes(function)
    gives = ast.unparse(function.returns) != "None"
    assert gives == bool({"Returns", "Yields"} & set(said))
    # A site's public answer turns what is raised inside into a code.
    if raises(function) and name != "federation/site:Site.answer":
        assert "Raises" in said
    assert all(text.strip() for text in said.values())


@pytest.mark.parametrize("name", sorted(PROMISING))
def test_what_bounds_noises_masks_or_charges_says_its_guarantee(name):
    assert "Guarantee" in sections(FOUND[name])
