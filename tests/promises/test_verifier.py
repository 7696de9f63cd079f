"""A second program finds what was altered in a record, a ledger's export, a statement.

It is `packaging/capeneuro-verify.py`, which each study writes beside its record; it
imports nothing of the package.
"""

import ast
import contextlib
import copy
import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import by_files
import numpy as np
import parties
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kinds import KINDS, write_kind
from tiny_study import STUDY, command, edit, make_private, write_study

from capeneuro.federation.requests import Arm
from capeneuro.privacy import contrasts
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import privacy_record, privacy_schema

SITES = [f"site-{i}" for i in range(3)]
FILE = privacy_record.verifier()


@pytest.fixture(scope="module")
def program() -> Any:
    spec = importlib.util.spec_from_file_location("verify", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Iterator[Path]:
    """Components of private people: results that two sites signed, exports of both."""
    root = tmp_path_factory.mktemp("private")
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(root):
        for kind in ("DATA", "STATE"):
            patch.setenv(f"XDG_{kind}_HOME", str(root / kind))
        write_study(root)
        edit(STUDY, "score", {})
        edit(STUDY, "expected", {"people": 6, "volumes": 12})
        edit(STUDY, "budget.epsilon", 8.0)
        for name in SITES:
            edit(f"{name}.yaml", "unit", "subject")
            make_private(f"{name}.yaml")
        assert command("run", STUDY) == 0
        for name in SITES:
            out = str(root / f"{name}.jsonl")
            assert command("ledger", "export", f"{name}.yaml", "--file", out) == 0
        for name in SITES[:2]:
            record = "results/tiny/privacy.json"
            assert (
                command("privacy", "sign", record, "--site-file", f"{name}.yaml") == 0
            )
        yield root


def differing(program, capsys, *paths: Path) -> list[str]:
    """Names of what the program says differs."""
    status = program.main([*map(str, paths)])
    lines = capsys.readouterr().out.splitlines()
    names = [line.split("  ", 1)[1] for line in lines if line.startswith("DIFFERS")]
    assert status == bool(names), lines[-1]
    return names


def renewed(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"digest": privacy_schema.digest(record)}


def test_it_imports_nothing_but_the_standard_library_and_scipy():
    names = set()
    for node in ast.walk(ast.parse(FILE.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add(node.module)
    assert {n.split(".")[0] for n in names} - {"scipy"} <= sys.stdlib_module_names


def test_it_knows_every_query(program):
    reach = {
        name: q.sensitivity(1, "replace-one", {"clip": 1.0})
        for name, q in QUERIES.items()
        if q.distance is None
    }
    assert pytest.approx(reach) == program.REACH
    assert {*program.REACH, *program.DISTANCES} == {*QUERIES}
    linear = [contrasts.moments_distance(p) for p in ({}, {"unit": 1.0})]
    assert pytest.approx(linear) == program.LINEAR


@pytest.mark.parametrize(
    ("query", "distance", "is_right"),
    [
        ("mean", None, True),
        ("mean", 1.9, False),
        ("linear_moments", contrasts.moments_distance({}), True),
        ("linear_moments", 1.3, False),
        ("linear_moments", None, False),
        ("pilot_moments", 1.5, True),
        ("pilot_moments", 1.4, False),
        ("pilot_moments", 2.1, False),
    ],
)
def test_both_verifiers_see_a_distance_that_cannot_be(
    program, capsys, query, distance, is_right
):
    site = {"n_units": 10, "sensitivity": (distance or 2.0) / 10, "variance": 1.0}
    release = {"query": query, "round": 0, "size": 3, "arm": "local", "clip": 1.0}
    release |= {"distance": distance, "survivors": ["a"], "noise_deviation": 1.0}
    record = {"relation": "replace-one", "n_colluding": 0, "noise_ratio": 1.0}
    record |= {"survivor_threshold": 1, "n_units": {"a": 10}, "arm": "local"}
    release["sites"] = {"a": site | {"mu": {}}}
    record["releases"] = [release]
    rows = [row for row in privacy_schema._of_releases(record) if "distance" in row[0]]
    assert all(a == b for _, a, b in rows) == is_right
    program._check_release("releases.0", record, release, {}, program.Findings())
    said = capsys.readouterr().out
    assert ("DIFFERS  releases.0.distance" not in said) == is_right


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_all_kinds_agree(program, tmp_path, capsys, kind):
    write_kind(tmp_path / "root", kind, "in-process")
    with contextlib.chdir(tmp_path / "root/together"):
        assert command("run", STUDY) == 0
        for name in SITES:
            assert (
                command("ledger", "export", f"{name}.yaml", "--file", f"{name}.jsonl")
                == 0
            )
        exports = [Path(f"{name}.jsonl") for name in SITES]
        assert not differing(program, capsys, Path("results") / kind, *exports)


@pytest.mark.parametrize(
    "changes",
    [
        {"budget.unit": "sample", "expected": {"longest": 20}},
        {"budget.site_epsilon": {"site-1": 1.0}},
        {"budget.survivor_threshold": 4, "sites": [f"site-{i}.yaml" for i in range(5)]},
        {"noise_ratio": 4.0},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_records_of_all_promises_agree(program, tmp_path, monkeypatch, capsys, changes):
    monkeypatch.chdir(tmp_path)
    n_sites = len(changes.get("sites", SITES))
    write_study(tmp_path, n_sites)
    edit(STUDY, "score", {})
    for key, value in changes.items():
        if key == "noise_ratio":
            edit(STUDY, "budget.noise_ratio_per_site", value)
            continue
        edit(STUDY, key, value)
    assert command("run", STUDY) == 0
    assert not differing(program, capsys, tmp_path / "results/tiny")


HONEST = [
    (arm, n_sites, ("components", "contrast", "regression")[(i + k) % 3])
    for i, arm in enumerate(get_args(Arm))
    for k, n_sites in enumerate((2, 3, 5))
]


@pytest.mark.parametrize(("arm", "n_sites", "kind"), HONEST)
def test_both_verifiers_agree_with_honest_studies(
    program, tmp_path, monkeypatch, capsys, arm, n_sites, kind
):
    """Of each arm and number of sites; a smaller promise is found by both."""
    root, name, names = (
        tmp_path / "together",
        kind,
        [f"site-{i}" for i in range(n_sites)],
    )
    if kind == "components":
        root.mkdir()
        with contextlib.chdir(root):
            write_study(root, n_sites)
            edit(STUDY, "score", {})
        name = "tiny"
    else:
        write_kind(tmp_path, kind, "in-process", (*names,), n_colluding=1)
    monkeypatch.chdir(root)
    edit(STUDY, "arm", arm)
    assert command("run", STUDY) == 0
    exports = [Path(f"{site}.jsonl") for site in names]
    for site, out in zip(names, exports, strict=True):
        assert command("ledger", "export", f"{site}.yaml", "--file", str(out)) == 0
    path = Path("results", name, "privacy.json")
    assert command("privacy", "verify", str(path)) == 0
    assert not differing(program, capsys, path.parent, *exports)
    record = json.loads(path.read_text())
    record["promise"]["epsilon"] *= 0.999
    path.write_text(json.dumps(renewed(record)))
    assert command("privacy", "verify", str(path)) == 2
    assert differing(program, capsys, path.parent)[0].startswith("promise.mu")


@pytest.mark.parametrize(
    ("site", "words"), [("site-1", "charged nowhere"), ("site-2", "without charges")]
)
def test_a_ledger_without_charges_is_missed_where_all_sites_have_some(
    program, study, tmp_path, capsys, site, words
):
    """The first site signed the record, so its key is known; the other's is not."""
    rows = [json.loads(x) for x in (study / f"{site}.jsonl").read_text().splitlines()]
    path = tmp_path / "other.jsonl"
    kept = [row for row in rows if '"kind": "release"' not in row.get("entry", "")]
    path.write_text("".join(json.dumps(row) + "\n" for row in chained(kept)))
    names = differing(program, capsys, study / "results/tiny", path)
    assert any(words in n for n in names), names


def test_a_folder_of_results_has_it_and_it_runs_there_alone(study):
    results = study / "results/tiny"
    exports = [study / f"{name}.jsonl" for name in SITES]
    own = [
        sys.executable,
        "-I",
        str(results / FILE.name),
        str(results),
        *map(str, exports),
    ]
    run = subprocess.run(own, cwd="/", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "DIFFERS" not in run.stdout and "site-0.json: signature: by" in run.stdout
    assert run.stdout.count("last chain") == 3


def change(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set a field of a record, or change it by a function."""

    def forge(record: dict[str, Any]) -> None:
        *parents, last = key.split(".")
        inner: Any = record
        for parent in parents:
            inner = inner[int(parent) if isinstance(inner, list) else parent]
        last = int(last) if isinstance(inner, list) else last
        inner[last] = value(inner[last]) if callable(value) else value

    return forge


def larger(x: float) -> float:
    return 1.001 * x


def smaller(x: float) -> float:
    return x / 1.001


# Field, what becomes of it, and the first number that no longer follows.
FORGED = [
    ("format", "capeneuro-privacy-2", "format"),
    ("stamp", "WEAK PROMISE: nothing for everything of a person", "stamp"),
    ("arm", "secure_sum", "releases.0.arm"),
    ("unit", "sample", "numbers in assumptions"),
    ("relation", "zero-out", "releases.0.sites.site-0.sensitivity"),
    ("n_colluding", 0, "releases.0.sites.site-0.mu.partners"),
    ("survivor_threshold", 2, "releases.0.sites.site-0.mu.reader"),
    ("n_sites", 4, "n_sites"),
    ("delta", 1e-6, "promise.mu"),
    ("noise_ratio", 299.0, "releases.0.sites.site-0.mu.aggregator"),
    ("promise.epsilon", smaller, "promise.mu"),
    ("promise.mu", smaller, "promise.mu"),
    ("promise.attack_accuracy_bound", smaller, "promise.attack_accuracy_bound"),
    ("promise.has_noise", False, "promise.has_noise"),
    ("promise.within_promise", False, "promise.within_promise"),
    ("person.units", 2, "person.units"),
    ("person.epsilon_at_worst", smaller, "person.epsilon_at_worst"),
    ("people", 7, "people"),
    ("n_units.site-1", 3, "releases.0.sites.site-1.n_units"),
    ("rounding.epsilon", smaller, "rounding.epsilon"),
    ("rounding.delta", smaller, "rounding.delta"),
    ("sites.site-1.promise", smaller, "promise.within_promise"),
    ("sites.site-1.releases", 1, "sites.site-1.releases"),
    ("sites.site-1.n_survived", 1, "sites.site-1.n_survived"),
    ("sites.site-2.reader.gdp", smaller, "sites.site-2.reader.gdp"),
    ("sites.site-2.partner.rdp", smaller, "sites.site-2.partner.rdp"),
    ("sites.site-2.aggregator.basic", smaller, "sites.site-2.aggregator.basic"),
    ("releases.0.query", "mean", "releases.0.sites.site-0.sensitivity"),
    ("releases.0.clip", smaller, "releases.0.sites.site-0.sensitivity"),
    ("releases.0.size", 3, "rounding.delta"),
    ("releases.0.noise_deviation", larger, "releases.0.noise_deviation"),
    ("releases.0.survivors", SITES[:2], "releases.0.noise_deviation"),
    ("releases.1.round", 7, "site-0.jsonl: releases.1.sites.site-0"),
    ("releases.1.sites.site-0.n_units", 3, "releases.1.sites.site-0.n_units"),
    (
        "releases.1.sites.site-0.sensitivity",
        smaller,
        "releases.1.sites.site-0.sensitivity",
    ),
    ("releases.1.sites.site-0.variance", larger, "releases.1.sites.site-0.mu.reader"),
    (
        "releases.1.sites.site-0.mu.partners",
        smaller,
        "releases.1.sites.site-0.mu.partners",
    ),
    (
        "assumptions.1",
        lambda x: x.replace("epsilon ", "epsilon 0"),
        "numbers in assumptions",
    ),
    ("assumptions.2", lambda x: x.replace("2", "3"), "numbers in assumptions"),
    (
        "assumptions.3",
        lambda x: x.replace("epsilon ", "epsilon 9"),
        "numbers in assumptions",
    ),
    ("source", "somebody else", "site-0.json: digest"),
    ("aggregator", "site-1", "site-0.json: digest"),
    ("digests.package", "0" * 64, "site-0.json: digest"),
]


@pytest.mark.parametrize(("key", "value", "name"), FORGED, ids=[f[0] for f in FORGED])
def test_each_altered_field_is_named(
    program, study, tmp_path, capsys, key, value, name
):
    """As it stands the digest shows it; with a new digest what no longer follows."""
    record = json.loads((study / "results/tiny/privacy.json").read_text())
    forged = copy.deepcopy(record)
    change(key, value)(forged)
    assert forged != record
    path = tmp_path / "privacy.json"
    path.write_text(json.dumps(forged))
    assert any(n.startswith("digest") for n in differing(program, capsys, tmp_path))
    path.write_text(json.dumps(renewed(forged)))
    signatures = tmp_path / "signatures"
    signatures.mkdir()
    for voucher in (study / "results/tiny/signatures").iterdir():
        (signatures / voucher.name).write_bytes(voucher.read_bytes())
    names = differing(program, capsys, tmp_path, study / "site-0.jsonl")
    of_numbers = [n for n in names if ".json: " not in n]
    named = names if name.startswith("site-0.json: digest") else of_numbers
    assert named[0].startswith(name), named


def test_a_release_that_was_left_out_is_missed(program, study, tmp_path, capsys):
    record = json.loads((study / "results/tiny/privacy.json").read_text())
    record["releases"].pop()
    (tmp_path / "privacy.json").write_text(json.dumps(renewed(record)))
    names = differing(program, capsys, tmp_path, study / "site-0.jsonl")
    assert any(n.startswith("sites.site-0.releases") for n in names)
    assert any("that the record lacks" in n for n in names)


def chained(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Chains anew, as a forger would."""
    chain = ""
    for row in rows[:-1]:
        if "entry" in row:
            text = f"{chain}\0{row['entry']}".encode()
            row["chain"] = hashlib.sha256(text).hexdigest()
        chain = row["chain"]
    rows[-1] |= {"chain": chain, "n_lines": len(rows) - 1}
    return rows


@pytest.mark.parametrize("field", ["mu", "sensitivity", "noise_multiplier", "query"])
@pytest.mark.parametrize("renews", [False, True])
def test_an_altered_line_of_a_ledger_is_named(
    program, study, tmp_path, capsys, field, renews
):
    rows = [json.loads(x) for x in (study / "site-1.jsonl").read_text().splitlines()]
    i = next(
        i for i, row in enumerate(rows) if '"kind": "release"' in row.get("entry", "")
    )
    entry = json.loads(rows[i]["entry"])
    entry[field] = "mean" if field == "query" else entry[field] / 2
    rows[i]["entry"] = json.dumps(entry, sort_keys=True)
    rows = chained(rows) if renews else rows
    path = tmp_path / "export.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = differing(program, capsys, study / "results/tiny", path)
    assert any(
        "signature" in n if renews else f"line {i + 1}: chain" in n for n in names
    )
    words = {"query": "charged nowhere", "noise_multiplier": "noise_multiplier"}
    word = words.get(field, f".{field}")
    assert any(word in n for n in names), names


def test_a_line_of_a_ledger_that_was_left_out_is_missed(
    program, study, tmp_path, capsys
):
    rows = [json.loads(x) for x in (study / "site-1.jsonl").read_text().splitlines()]
    del rows[-2]
    path = tmp_path / "export.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in chained(rows)))
    names = differing(program, capsys, study / "results/tiny", path)
    assert any("signature" in n for n in names)
    assert any("charged nowhere" in n for n in names)


def test_an_exported_table_is_checked_too(
    program, study, tmp_path, capsys, monkeypatch
):
    with contextlib.chdir(study):
        for kind in ("DATA", "STATE"):
            monkeypatch.setenv(f"XDG_{kind}_HOME", str(study / kind))
        capsys.readouterr()
        assert command("ledger", "export", "site-2.yaml") == 0
    table, path = capsys.readouterr().out, tmp_path / "table.tsv"
    path.write_text(table)
    assert not differing(program, capsys, study / "results/tiny", path)
    path.write_text(table.replace("infomax_skew\t2", "infomax_skew\t9"))
    assert differing(program, capsys, study / "results/tiny", path)


def test_no_person_is_in_an_export(study):
    text = (study / "site-0.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["withheld"] for row in rows if "withheld" in row] == ["cohort"]
    assert "subjects" not in text


@pytest.fixture(scope="module")
def carried(tmp_path_factory) -> Path:
    """A study of a contrast by files: the aggregator's results, and an answer."""
    root = tmp_path_factory.mktemp("files") / "root"
    write_kind(root, "contrast", "files")
    (root / "mail").mkdir()
    parties.join_all(root)
    by_files.run(root)
    return root


def forged_statement(path: Path, out: Path, key: str, value: Any) -> None:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            raw = old.read(name)
            if name == "DISCLOSURE.json":
                statement = json.loads(raw)
                change(key, value)(statement)
                raw = json.dumps(statement).encode()
            elif name == key:
                raw = raw[:-1] + bytes([raw[-1] ^ 1])
            new.writestr(name, raw)


def test_a_statement_agrees_with_the_record(program, carried, capsys):
    results = carried / "aggregator/results/contrast"
    answers = sorted(carried.glob("site-0/*.answer.zip"))
    statement = sorted(carried.glob("site-0/*.DISCLOSURE.json"))
    assert answers and statement
    assert not differing(program, capsys, results, *answers, *statement)


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("spends", "0.5", "spends"),
        ("left", 50, "left"),
        ("arrays.0.deviation", "0.1", "deviation"),
        ("arrays.0.size", 3, "deviation"),
        ("promise.epsilon", "5", "promise.epsilon"),
        ("promise.delta", "1e-06", "promise.delta"),
        ("study", "another", "study"),
        ("written", "yesterday", "signature"),
    ],
)
def test_an_altered_statement_is_named(
    program, carried, tmp_path, capsys, key, value, name
):
    answer = min(carried.glob("site-0/*.answer.zip"))
    forged_statement(answer, tmp_path / "x.answer.zip", key, value)
    results = carried / "aggregator/results/contrast"
    names = differing(program, capsys, results, tmp_path / "x.answer.zip")
    assert any("signature" in n for n in names)
    assert any(n.startswith(f"x.answer.zip: {name}") or f", {name}" in n for n in names)


def test_a_changed_answer_is_named(program, carried, tmp_path, capsys):
    answer = min(carried.glob("site-0/*.answer.zip"))
    with zipfile.ZipFile(answer) as members:
        name = next(n for n in members.namelist() if n.endswith(".answer"))
        statement = json.loads(members.read("DISCLOSURE.json"))
    forged = tmp_path / "x.answer.zip"
    with zipfile.ZipFile(answer) as old, zipfile.ZipFile(forged, "w") as new:
        for member in old.namelist():
            raw = old.read(member)
            new.writestr(member, raw[:-1] + b"!" if member == name else raw)
    results = carried / "aggregator/results/contrast"
    (found,) = differing(program, capsys, results, forged)
    assert "answer_sha256" in found and statement["answer_sha256"] in found


def test_signatures_are_those_of_the_library(program, rng):
    """Of RFC 8032 (test 2), and of keys, messages and mistakes at random."""
    key = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    signature = (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert program.verify_signature(key, signature, b"\x72")
    assert not program.verify_signature(key, signature, b"\x73")
    for _ in range(6):
        private = Ed25519PrivateKey.from_private_bytes(rng.bytes(32))
        message = rng.bytes(int(rng.integers(0, 200)))
        public = private.public_key().public_bytes_raw().hex()
        raw = bytearray(private.sign(message))
        assert program.verify_signature(public, raw.hex(), message)
        raw[int(rng.integers(64))] ^= 1 << int(rng.integers(8))
        assert not program.verify_signature(public, raw.hex(), message)
    assert not program.verify_signature("00", signature, b"\x72")
    assert not program.verify_signature(key, "zz", b"\x72")
    # The group's order added to s: another text of the same signature.
    s = int.from_bytes(bytes.fromhex(signature)[32:], "little") + program.ORDER
    twice = signature[:64] + s.to_bytes(32, "little").hex()
    assert not program.verify_signature(key, twice, b"\x72")


def test_closed_form_and_coalitions_one_by_one_agree(program, rng, monkeypatch):
    for _ in range(20):
        S = int(rng.integers(2, 7))
        gamma = tuple(rng.uniform(0.1, 9.0, S).tolist())
        ratio, c = float(rng.choice([0.5, 4.0, 300.0])), int(rng.integers(0, S))
        one_by_one = [program.squared_loss(gamma, ratio, k, c) for k in range(S)]
        program.squared_loss.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(program, "FEW_SITES", 0)
            closed = [program.squared_loss(gamma, ratio, k, c) for k in range(S)]
        program.squared_loss.cache_clear()
        np.testing.assert_allclose(one_by_one, closed, rtol=1e-12)
