"""Break the code that keeps the promise, one thing at a time, and see who notices.

Every mutant is a copy of the package in which one statement is left out, one
condition turned, one comparison moved, one operator or number changed, in the trusted
base: the files that admit, bound, noise, mask, charge and account. It is killed if the
tests of its file fail. Survivors are listed, to be read: some change nothing that
anybody could notice.

    python -m evidence.truth.mutants --each 40 --workers 2 [--only ledger]

Writes ``benchmarks/mutants.tsv`` as it goes, and goes on from there.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
OUT = ROOT / "benchmarks" / "mutants.tsv"
# By file of the trusted base [docs/proofs.md], the tests that should notice, quick ones
# first.
LEDGER = ("federation/test_ledger", "promises/test_proofs", "promises/test_set_back")
LEDGER += ("promises/test_ways_around", "promises/test_verifier")
RULES = ("federation/test_site", "promises/test_proofs", "promises/test_accepted")
RULES += ("promises/test_traffic", "promises/test_laws", "federation/test_gate")
RULES += ("promises/test_lies", "promises/test_set_back", "promises/test_two_worlds")
REMOVED = "promises/test_removed_answers"
RULES += (REMOVED, "promises/test_one_exchange")
SUMS = ("federation/secagg", "promises/test_proofs", "promises/test_lies")
SUMS += ("promises/test_one_exchange", "promises/test_set_back")
GATE = ("federation/test_gate", "promises/test_ways_around", "promises/test_lies")
GATE += ("promises/test_two_worlds",)
NOISE = ("privacy/test_ring", "privacy/test_noise", "federation/test_noise_addition")
NOISE += ("promises/test_proofs", "promises/test_laws")
LOSS = ("privacy/test_cape", "privacy/test_accounting", "promises/test_proofs")
LOSS += ("promises/test_coalitions", "promises/test_laws", "promises/test_verifier")
MOMENTS = ("privacy/test_queries", "promises/test_proofs", "privacy/test_moments")
MOMENTS += ("privacy/test_moments_third", "promises/test_attack_fusion")
MOMENTS += ("promises/test_attack_rows",)
JOINING = ("flare/test_joining", "promises/test_ways_around")
TESTS = {
    "federation/hash_chain": LEDGER,
    "federation/ledger": LEDGER,
    "federation/entries": LEDGER,
    "federation/index": ("federation/test_index", *LEDGER, REMOVED),
    "federation/durable_files": LEDGER,
    "federation/site": RULES,
    "federation/requests": ("federation/test_requests", *RULES),
    "federation/rules": RULES,
    "federation/messages": ("federation/test_messages", *RULES),
    "federation/noise_addition": NOISE,
    "federation/gate": GATE,
    "federation/manifest": (*GATE, *JOINING),
    "federation/sums": ("federation/test_sums", *SUMS, "privacy/test_queries"),
    "federation/secagg/one_exchange": SUMS,
    "federation/secagg/protocol": SUMS,
    "federation/secagg/masking": SUMS,
    "federation/secagg/shamir": SUMS,
    "federation/secagg/signing": (*SUMS, "federation/test_gate"),
    "privacy/accounting": LOSS,
    "privacy/cape": LOSS,
    "privacy/clipping": ("privacy/test_ring", *MOMENTS),
    "privacy/noise": NOISE,
    "privacy/ring": NOISE,
    "privacy/blocks": MOMENTS,
    "privacy/moments": MOMENTS,
    "privacy/contrasts": (*MOMENTS, "algorithms/test_contrasts"),
    "privacy/deviations": (*MOMENTS, "algorithms/test_prior"),
    "privacy/gradients": (
        *MOMENTS,
        "algorithms/test_updates",
        "algorithms/test_network",
    ),
    "privacy/queries": (*MOMENTS, "federation/test_site"),
    "linalg": ("test_linalg", "algorithms/test_pca", "promises/test_attack_pca"),
    "machine": ("test_cli_wrong_inputs", "test_last_words", "federation/test_ledger"),
    "site_data/terms": ("site_data", *RULES),
    "site_data/opening": ("site_data", "data/test_door_tables", *RULES),
}
# Of those, what takes long and notices nothing else.
LEFT_OUT = "not killed_study and not killed_runs and not two_studies_share"
# So many files of tests are tried before the rest of them.
FIRST = 3
NONE_CHOSEN = 5  # exit status of pytest where `-k` leaves no test
# Of the checkout, what no test reads.
LEFT_BEHIND = (".git", ".venv", ".snakemake", "results", "__pycache__")
COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
}
Place = tuple[int, str]  # number of the node in the tree's order, and what is done


def changes(node: ast.AST) -> Iterator[str]:
    """What can be done to a node."""
    if isinstance(node, ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "left out"
    if isinstance(node, ast.If):
        yield "always"
        yield "never"
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        yield "compared otherwise"
    if isinstance(node, ast.BoolOp):
        yield "and for or"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not left out"
    if isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        yield "computed otherwise"
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "one more"
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "the other"


def apply(node: ast.AST, what: str) -> ast.AST:
    """The node with one change."""
    if what == "left out":
        return ast.Pass()
    if what in ("always", "never"):
        node.test = ast.Constant(what == "always")
    elif what == "compared otherwise":
        node.ops[0] = COMPARED[type(node.ops[0])]()
    elif what == "and for or":
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    elif what == "not left out":
        return node.operand
    elif what == "computed otherwise":
        node.op = COMPUTED[type(node.op)]()
    elif what == "one more":
        node.value = node.value + 1 if type(node.value) is int else 1.03 * node.value
    else:
        node.value = not node.value
    return node


def places(tree: ast.Module) -> list[Place]:
    """Everything that can be changed, docstrings and annotations apart."""
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
        for inner in ast.walk(part)
    }
    return [
        (number, what)
        for number, node in enumerate(ast.walk(tree))
        if id(node) not in skipped
        for what in changes(node)
    ]


def mutated(tree: ast.Module, place: Place) -> tuple[str, int]:
    """Text of a tree with one change, and the line it is in."""
    tree, (number, what) = copy.deepcopy(tree), place
    node = list(ast.walk(tree))[number]

    class Change(ast.NodeTransformer):
        def visit(self, one: ast.AST) -> ast.AST:
            return apply(one, what) if one is node else self.generic_visit(one)

    line = node.lineno
    return ast.unparse(ast.fix_missing_locations(Change().visit(tree))), line


def survives(copy_of: Path, texts: dict[str, str], seconds: float) -> bool:
    """Whether all tests of some files pass with these texts in their place."""
    paths = [copy_of / "capeneuro" / f"{file}.py" for file in texts]
    before = [path.read_text() for path in paths]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    names = dict.fromkeys(name for file in texts for name in TESTS[file])
    tests = [
        str(found)
        for name in names
        for found in (copy_of / "tests" / name, copy_of / "tests" / f"{name}.py")
        if found.exists()
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", "-k", LEFT_OUT]
    try:
        # Most are seen by the first ones, without importing what the others need.
        for part in filter(None, (tests[:FIRST], tests[FIRST:])):
            done = subprocess.run(
                [*command, *part],
                cwd=copy_of,
                env={**os.environ, "PYTHONPATH": str(copy_of)},
                capture_output=True,
                timeout=seconds,
            )
            if done.returncode not in (0, NONE_CHOSEN):
                return False
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        for path, text in zip(paths, before, strict=True):
            path.write_text(text)


def main() -> None:
    """Run a sample of the mutants of each file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=40, help="mutants of a file")
    parser.add_argument("--only", default="", help="part of a file's name")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300.0, help="for one mutant")
    options = parser.parse_args()
    known = (
        {line.rsplit("\t", 1)[0] for line in OUT.read_text().splitlines()}
        if OUT.exists()
        else set()
    )
    with tempfile.TemporaryDirectory() as folder:
        free = [Path(folder) / str(k) for k in range(options.workers)]
        for own in free:
            shutil.copytree(ROOT, own, ignore=shutil.ignore_patterns(*LEFT_BEHIND))

        def tried(texts: dict[str, str], seconds: float) -> bool:
            own = free.pop()
            try:
                return survives(own, texts, seconds)
            finally:
                free.append(own)

        def run(mutant: tuple[str, Place]) -> None:
            file, place = mutant
            text, line = mutated(trees[file], place)
            name = f"{file}\t{line}\t{place[1]}\t{place[0]}"
            if name in known:
                return
            verdict = "SURVIVED" if tried({file: text}, options.seconds) else "killed"
            with open(OUT, "a") as out:
                out.write(f"{name}\t{verdict}\n")
            print(name, verdict, sep="\t", flush=True)

        files = [file for file in TESTS if options.only in file]
        trees = {
            file: ast.parse((free[0] / "capeneuro" / f"{file}.py").read_text())
            for file in files
        }
        chosen = []
        for file, tree in trees.items():
            found = places(tree)
            random.Random(file).shuffle(found)
            chosen += [(file, place) for place in found[: options.each]]
        # In any order, so that a run that is ended early has seen something of all.
        random.Random(0).shuffle(chosen)
        unchanged = {file: ast.unparse(tree) for file, tree in trees.items()}
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(run, chosen))
            if not tried(unchanged, len(files) * options.seconds):
                raise SystemExit("the tests fail without any change: nothing is shown")
    lines = [line.split("\t") for line in OUT.read_text().splitlines()]
    killed = sum(line[-1] == "killed" for line in lines)
    print(f"{killed} of {len(lines)} killed, {killed / len(lines):.1%}")


if __name__ == "__main__":
    main()
