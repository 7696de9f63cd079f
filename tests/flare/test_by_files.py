"""A study by files: the same results, whoever carries what, and nothing twice."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import by_files
import parties
import pytest
import two_stages
from by_files import WAITING, aggregate, answer, requests
from kinds import KINDS, write_kind
from parties import SITES, STUDY
from tiny_study import command, edit

from capeneuro.config import load
from capeneuro.data import files
from capeneuro.federation import folder, ledger
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.ledger import Ledger
from capeneuro.flare import joining
from capeneuro.privacy import accounting
from capeneuro.report.protection import ANSWERS
from capeneuro.studies import registry
from capeneuro.studies import sites as site_files

# Visits of each kind after the entry: those that adapt to what was released, as to a
# rough center, take more.
VISITS = {
    "tensors": 3,
    "patterns": 2,
    "regression": 2,
    "network": 5,
    "contrast": 3,
    "distribution": 1,
    "fusion": 2,
}


@pytest.fixture
def root(tmp_path) -> Path:
    """Components with one round of PCA and two of ICA; all have joined."""
    root = tmp_path / "root"
    parties.write_parties(root, 2, federation="files")
    (root / "mail").mkdir()
    return root


def kept(root: Path, name: str) -> list[Path]:
    return sorted((root / name / "private" / name / "tiny/mask-keys").glob("*"))


def book(root: Path, name: str) -> Ledger:
    with contextlib.chdir(root / name):
        sites = site_files.load_sites(load.load_study(STUDY))
        ledger = site_files.open_ledger(sites[name])
        ledger.folder = (root / name / ledger.folder).resolve()
        ledger.releases()
        return ledger


def carried(root: Path) -> None:
    """All that the tiny study asks, but for its last request."""
    by_files.aggregate(root)
    while len(requests(root, SITES[0])) == 1:
        for name in SITES:
            assert answer(root, name, requests(root, name)[0]) == 0
        if aggregate(root) != WAITING:
            return


def write_open(root: Path, kind: str) -> None:
    write_kind(root, kind, "files")
    (root / "mail").mkdir()


def run_kind(root: Path, kind: str) -> int:
    """One kind in this process and by files, with equal bytes; visits after joining."""
    write_open(root, kind)
    with contextlib.chdir(root / "together"):
        steps = registry.of(load.load_study(STUDY)).result_files
    parties.join_all(root)
    with contextlib.chdir(root / "together"):
        for step in steps:
            assert command(step, STUDY) == 0
    n_visits = by_files.run(root)
    here, there = (root / who / "results" / kind for who in ("aggregator", "together"))
    for name in steps.values():
        assert (here / name).read_bytes() == (there / name).read_bytes(), name
    counts = {parties.n_charged(root, name) for name in SITES}
    assert counts == {n_visits}
    return n_visits


FEW = ("contrast", "tensors")


@pytest.mark.parametrize("kind", FEW)
def test_a_study_by_files_is_the_study_in_one_process(tmp_path, kind):
    assert run_kind(tmp_path / "root", kind) == VISITS[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - set(FEW)))
def test_every_kind_by_files_is_the_study_in_one_process(tmp_path, kind):
    assert run_kind(tmp_path / "root", kind) == VISITS[kind]


def test_components_by_files_and_what_each_file_discloses(root, capsys):
    n_visits = by_files.run(root)
    assert n_visits == 3
    parties.assert_same_results(root)
    spent = 0.0
    for number in range(1, 4):
        path = root / SITES[0] / f"tiny-{number}.{SITES[0]}.answer.zip"
        members = folder.read_zip(path, folder.ANSWER)
        told = json.loads(members["DISCLOSURE.json"])
        text, page = (members[f"DISCLOSURE.{x}"].decode() for x in ("txt", "html"))
        entry = book(root, SITES[0]).releases()[number - 1]
        spent = accounting.compose([spent, entry.mu])
        delta = float(told["promise"]["delta"])
        for mu, key in ((entry.mu, "spends"), (spent, "spent")):
            epsilon = f"{accounting.epsilon_from_mu(mu, delta):.3g}"
            assert told[key] == epsilon
            assert f"epsilon {epsilon}" in text and f"epsilon {epsilon}" in page
        sizes = (
            {"noisy": 378, "masked": 378} if number == 1 else {"noisy": 3, "masked": 3}
        )
        assert {row["name"]: row["size"] for row in told["arrays"]} == sizes
        for row in told["arrays"]:
            assert f"{row['size']} " in text and f"{row['size']} " in page
            if row["name"] == "noisy":
                assert f"standard deviation {row['deviation']}." in " ".join(
                    text.split()
                )
        manifest = f"private/{SITES[0]}/tiny/manifest.json"
        assert f"--manifest {manifest}" in text and f"--manifest {manifest}" in page
        verify = "privacy", "verify", str(path)
        assert command(*verify) == 0
        assert command(*verify, "--manifest", str(root / SITES[0] / manifest)) == 0
    assert told["left"] == 0
    assert "may use epsilon 0 together" in told["left_words"]


@pytest.mark.parametrize(
    "part",
    ["2-release.answer", "DISCLOSURE.json", "signature", "DISCLOSURE.html", "[]"],
)
def test_a_changed_answer_or_statement_does_not_verify(root, tmp_path, capsys, part):
    aggregate(root)
    assert answer(root, SITES[0], requests(root, SITES[0])[0]) == 0
    path = root / SITES[0] / f"tiny-1.{SITES[0]}.answer.zip"
    members = folder.read_zip(path, folder.ANSWER)
    told = json.loads(members["DISCLOSURE.json"])
    if part == "2-release.answer":
        members[part] = members[part][:-1] + bytes([members[part][-1] ^ 1])
    elif part == "DISCLOSURE.html":  # the page that people read
        members[part] = members[part].replace(b"random noise", b"nothing")
    else:
        key = "spent" if part == "DISCLOSURE.json" else "signature"
        told[key] = "0" * len(told[key])
        text = part if part == "[]" else json.dumps(told)
        members["DISCLOSURE.json"] = text.encode()
    folder.write_zip(tmp_path / "x.zip", members)
    capsys.readouterr()
    assert command("privacy", "verify", str(tmp_path / "x.zip")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert any(why in line for why in ("changed", "not the one", "no disclosure"))
    manifest = root / "aggregator/manifest.json"
    verify = "privacy", "verify", str(path), "--manifest"
    assert command(*verify, str(manifest)) == 0
    other = json.loads(manifest.read_text()) | {"ends": "2999-01-01"}
    (tmp_path / "other.json").write_text(json.dumps(other))
    assert command(*verify, str(tmp_path / "other.json")) == 2


def test_each_step_of_a_contrast_says_what_leaves(tmp_path, capsys):
    root, name = tmp_path / "root", SITES[0]
    write_open(root, "contrast")
    parties.join_all(root)
    assert by_files.run(root) == 3
    words = []
    for path in sorted((root / name).glob("*.answer.zip")):
        members = folder.read_zip(path, folder.ANSWER)
        statement = json.loads(members["DISCLOSURE.json"])
        words += statement["asked"]
        title = statement["arrays"][0]["title"].lower()
        assert title.startswith(words[-1].lower())
        assert words[-1] in " ".join(members["DISCLOSURE.txt"].decode().split())
    assert words[0] == ANSWERS["pilot_moments"]
    assert words[-1].startswith(ANSWERS["linear_moments"])
    assert f"  {words[0]}: epsilon" in capsys.readouterr().out


def test_two_visits_entry_then_approval_and_answer_in_one(tmp_path, capsys):
    root = tmp_path / "root"
    write_open(root, "distribution")
    entries = []
    for name in SITES:
        with contextlib.chdir(root / name):
            who = "--institution", f"Hospital {name}", "--contact", "dpo@example.org"
            assert command("join", STUDY, "--site", name, *who) == 0
            entries.append(str(root / name / f"{name}.entry.json"))
    with contextlib.chdir(root / "aggregator"):
        assert command("federation", "manifest", STUDY, *entries) == 0
        manifest = joining.read(Path("manifest.json"))
    assert aggregate(root) == WAITING
    for wrong in ((), ("--fingerprint", "0" * 64)):
        path = shutil.copy(requests(root, SITES[0])[0], root / SITES[0])
        with contextlib.chdir(root / SITES[0]):
            assert command("answer", path, "--yes", *wrong) == 2
        assert not list((root / SITES[0]).glob("*.answer.zip"))
        assert parties.n_charged(root, SITES[0]) == 0
        assert manifest.fingerprint not in capsys.readouterr().err
    for name in SITES:
        (path,) = requests(root, name)
        assert answer(root, name, path, "--fingerprint", manifest.fingerprint) == 0
    assert aggregate(root) == 0
    with contextlib.chdir(root / "aggregator"):
        _, approvals = joining.authority(load.load_study(STUDY))
    assert manifest.missing(approvals) == []
    assert {parties.n_charged(root, name) for name in SITES} == {1}


def test_keys_end_with_the_study_and_answers_stay_the_same(root):
    carried(root)
    (name, *_) = SITES
    request = sorted((root / name).glob(f"tiny-3.{SITES[0]}.request.zip"))[0]
    before = (root / name / f"tiny-3.{SITES[0]}.answer.zip").read_bytes()
    assert len(kept(root, name)) == 1
    (ending,) = requests(root, name)
    assert answer(root, name, ending) == 0
    assert kept(root, name) == []
    with contextlib.chdir(root / name):
        assert command("answer", request.name, "--yes") == 0
    assert (root / name / f"tiny-3.{SITES[0]}.answer.zip").read_bytes() == before
    # Also from the ledger alone; sealed anew, it holds the same.
    shutil.rmtree(root / name / "private" / name / "tiny/answers")
    with contextlib.chdir(root / name):
        assert command("answer", request.name, "--yes") == 0
    assert parties.n_charged(root, name) == 3


def test_large_answers_leave_the_ledger_as_they_are_confirmed(root, monkeypatch):
    """The next request, and the last one, say that the aggregator has them."""
    monkeypatch.setattr(ledger, "LARGEST_KEPT", 0)
    name = SITES[0]

    def answers() -> int:
        folder = book(root, name).folder / "releases"
        return len(list(folder.glob("*.bin")))

    carried(root)
    assert parties.n_charged(root, name) == 3
    before = answers()
    assert before <= 2  # the last one of each stage, at most
    (ending,) = requests(root, name)
    assert answer(root, name, ending) == 0
    assert answers() == before - 1
    assert parties.n_charged(root, name) == 3
    assert book(root, name).verify() == 3


def test_a_refusal_is_not_kept_as_the_answer(root, capsys):
    aggregate(root)
    (name, *_) = SITES
    with contextlib.chdir(root / name):
        edit(f"{name}.yaml", "epsilon", 0.5)
    (path,) = requests(root, name)
    assert answer(root, name, path) in (2, 3)
    assert not list((root / name).glob("*.answer.zip"))
    with contextlib.chdir(root / name):
        edit(f"{name}.yaml", "epsilon", 50.0)
        assert command("answer", path.name, "--yes") == 0
    assert parties.n_charged(root, name) == 1


def test_files_of_all_sorts_in_the_folder_do_not_stop_the_study(root, capsys):
    """Old, cut, renamed, doubled, of another site: told, or taken for what they are."""
    aggregate(root)
    for name in SITES:
        assert answer(root, name, requests(root, name)[0]) == 0
    mail = root / "mail"
    good = mail / f"from-{SITES[0]}" / f"tiny-1.{SITES[0]}.answer.zip"
    shutil.copy(good, mail / "twice and renamed (1).zip")
    good.rename(mail / "x.zip")
    (mail / "cut.zip").write_bytes((mail / "x.zip").read_bytes()[:-20])
    (mail / "empty.zip").write_bytes(b"")
    deep = {"answer.json": b"[" * 200_000}
    folder.write_zip(mail / "deep.zip", deep)
    shutil.copy(root / SITES[1] / f"tiny-1.{SITES[1]}.request.zip", mail)
    members = folder.read_zip(mail / "x.zip", folder.ANSWER)
    approval = {"name": SITES[0], "manifest": "0" * 64, "signature": "00"}
    odd = {**members, "approval.json": json.dumps(approval).encode()}
    folder.write_zip(mail / "approval of another.zip", odd)
    capsys.readouterr()
    assert aggregate(root) == WAITING
    out = capsys.readouterr().out
    assert "tiny-2" in out and "cut.zip: left aside" in out
    assert "deep.zip: left aside" in out and "is a request for a site" in out
    # The first answers again, in place of the second.
    for name in SITES[1:]:
        assert answer(root, name, requests(root, name)[0]) == 0
    assert aggregate(root) == WAITING
    assert f"waiting for 1 of 3 sites: {SITES[0]}" in capsys.readouterr().out


def test_two_copies_of_a_site_that_answer_are_noticed(root, capsys):
    aggregate(root)
    (name, *_) = SITES
    (path,) = requests(root, name)
    shutil.copytree(root / name, root / "copy")
    with contextlib.chdir(root / "copy"):
        edit(f"{name}.yaml", "seed", 6)
        shutil.copy(path, path.name)
        assert command("answer", path.name, "--yes") == 0
        shutil.copy(f"tiny-1.{SITES[0]}.answer.zip", root / "mail/copy.zip")
    for site in SITES:
        assert answer(root, site, requests(root, site)[0]) == 0
    assert aggregate(root) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line and "two different answers" in line


def test_a_site_that_is_gone_is_given_up_by_name(root, capsys):
    """Three sites of which one colludes can lose none; it says so."""
    aggregate(root)
    assert aggregate(root, "--gone", SITES[2], "--reason", "withdrew") == 2
    assert "too few" in capsys.readouterr().err
    assert aggregate(root, "--gone", "nobody", "--reason", "x") == 2
    assert aggregate(root, "--gone", SITES[2]) == 2


def test_a_site_is_not_given_up_where_that_ends_the_study(tmp_path, capsys):
    """A release that nobody pays for again: the site is waited for after all."""
    root, names = tmp_path / "root", [f"site-{i}" for i in range(5)]
    keys = {"federation": "files", "n_colluding": 1, "spatial": True}
    parties.write_parties(root, 1, names, **keys)
    (root / "mail").mkdir()
    assert aggregate(root) == WAITING
    for name in names[:4]:
        assert answer(root, name, requests(root, name)[0]) == 0
    assert aggregate(root, "--gone", names[4], "--reason", "its server burnt") == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{names[4]} was not given up" in line and "another name" in line
    # It is back.
    assert answer(root, names[4], requests(root, names[4])[0]) == 0
    assert aggregate(root) == 0
    record = json.loads((root / "aggregator/results/tiny/privacy.json").read_text())
    assert record["given_up"] == {}
    assert [parties.n_charged(root, name) for name in names] == [1] * 5


def test_a_manifest_is_not_replaced_once_requests_are_out(root, capsys):
    assert aggregate(root) == WAITING
    entries = [str(root / name / f"{name}.entry.json") for name in SITES]
    with contextlib.chdir(root / "aggregator"):
        Path("private/_aggregator/tiny/approvals.json").unlink()
        assert command("federation", "manifest", STUDY, *entries) == 2
    assert "requests of it are out" in capsys.readouterr().err


def test_features_that_were_prepared_for_another_study_file_are_not_charged(
    tmp_path, capsys
):
    """Places of the sites are numbers of a row; other places are another table."""
    root = tmp_path / "root"
    write_open(root, "contrast")
    parties.join_all(root)
    assert aggregate(root) == WAITING
    (name, *_) = SITES
    path = root / name / "private" / name / "contrast/projected.npz"
    people = files.Features(path)
    files.write_features(path, {**people}.items(), "another", people.made_from)
    assert answer(root, name, requests(root, name)[0]) == 2
    assert "run `prepare` again" in capsys.readouterr().err
    assert parties.n_charged(root, name) == 0


def test_what_the_promise_does_not_pay_for_is_refused_before_a_yes(root, capsys):
    assert aggregate(root) == WAITING
    (name, *_) = SITES
    ledger = book(root, name)
    with contextlib.chdir(root / name):
        study = load.load_study(STUDY)
        charge = {"study": study.identity, "site": name, "unit": study.budget.unit}
        charge |= {"arm": "cape", "n_colluding": 1, "survivor_threshold": 3}
        lineage = joining.approved(study, name).root
        line = ReleaseLine(**charge, lineage=lineage, mu=study.promise.mu)
        ledger.charge("1" * 64, ["sub-00"], line, b"")
    n = parties.n_charged(root, name)
    assert answer(root, name, requests(root, name)[0]) == 3
    assert "under another name" in capsys.readouterr().err
    assert parties.n_charged(root, name) == n


def test_nobody_at_the_terminal_is_told_to_say_yes_by_an_option(
    root, capsys, monkeypatch
):
    assert aggregate(root) == WAITING
    (name, *_) = SITES
    path = shutil.copy(requests(root, name)[0], root / name)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with contextlib.chdir(root / name):
        assert command("answer", path) == 2
        assert "--yes: nobody is at a terminal" in capsys.readouterr().err
        monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
        assert command("answer", path) == 1
    assert parties.n_charged(root, name) == 0


@pytest.mark.slow
def test_five_sites_go_on_without_one_that_is_gone(tmp_path, capsys):
    root, names = tmp_path / "root", [f"site-{i}" for i in range(5)]
    parties.write_parties(root, 3, names, federation="files", n_colluding=1)
    (root / "mail").mkdir()
    for _ in range(2):
        assert aggregate(root) == WAITING
        present = (
            names
            if len(list((root / names[0]).glob("*.request.zip"))) == 0
            else names[:4]
        )
        for name in present:
            assert answer(root, name, requests(root, name)[0]) == 0
    assert aggregate(root) == WAITING
    assert "waiting for 1 of 5 sites: site-4" in capsys.readouterr().out
    gone = "--gone", "site-4", "--reason", "its server burnt"
    status = aggregate(root, *gone)
    while status == WAITING:
        for name in names[:4]:
            for path in requests(root, name):
                assert answer(root, name, path) == 0
        status = aggregate(root)
    assert status == 0
    record = json.loads((root / "aggregator/results/tiny/privacy.json").read_text())
    assert record["given_up"]["site-4"]["reason"] == "its server burnt"
    survivors = [len(release["survivors"]) for release in record["releases"]]
    assert survivors == [5, 0, 4, 4]
    assert [parties.n_charged(root, name) for name in names] == [4, 4, 4, 4, 1]
    report = (root / "aggregator/results/tiny/report.html").read_text()
    assert "its server burnt" in report


# --- killed --------------------------------------------------------------------------


def start(where: Path, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "capeneuro", *arguments],
        cwd=where,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def killed(where: Path, after: float, *arguments: str) -> bool:
    """Run a command and kill it so many seconds later; whether it was still running."""
    process = start(where, *arguments)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    return False


def run_with_kills(root: Path, seed: int, n_kills: int) -> int:
    """Carry a study whose commands are killed at random; how many were."""
    rng, n = random.Random(seed), 0
    for _ in range(60):
        more = ("aggregate", STUDY, "--folder", str(root / "mail"))
        if n < n_kills:
            n += killed(root / "aggregator", rng.uniform(0.3, 4.0), *more)
        status = start(root / "aggregator", *more).wait()
        if status != WAITING:
            assert status == 0
            return n
        for name in SITES:
            for path in requests(root, name):
                shutil.copy(path, root / name)
                arguments = ("answer", path.name, "--yes")
                while n < n_kills and rng.random() < 0.7:
                    n += killed(root / name, rng.uniform(0.3, 2.5), *arguments)
                assert start(root / name, *arguments).wait() == 0
                path.unlink()
                (root / f"mail/from-{name}").mkdir(exist_ok=True)
                out = path.name.replace(".request.", ".answer.")
                shutil.copy(root / name / out, root / f"mail/from-{name}")
    raise AssertionError("not done")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["components", *KINDS])
def test_random_kills_lose_nothing_and_charge_nothing_twice(tmp_path, kind):
    root = tmp_path / "root"
    if kind == "components":
        parties.write_parties(root, 2, federation="files")
        steps = dict(zip(("pca", "ica"), parties.RESULTS, strict=True))
        name_of_study = "tiny"
    else:
        write_kind(root, kind, "files")
        parties.join_all(root)
        with contextlib.chdir(root / "together"):
            steps = registry.of(load.load_study(STUDY)).result_files
            for step in steps:
                assert command(step, STUDY) == 0
        name_of_study = kind
    (root / "mail").mkdir()
    n = run_with_kills(root, seed=len(kind), n_kills=10)
    print(f"{kind}: {n} killed")
    assert n >= 3
    here, there = (
        root / who / "results" / name_of_study for who in ("aggregator", "together")
    )
    for name in steps.values():
        assert (here / name).read_bytes() == (there / name).read_bytes(), name
    record = json.loads((here / "privacy.json").read_text())
    assert all(release["survivors"] for release in record["releases"])
    assert {parties.n_charged(root, name) for name in SITES} == {
        len(record["releases"])
    }


@pytest.mark.parametrize("at", ["charge", "archive"])
def test_killed_between_charging_and_writing_the_answer(root, monkeypatch, at):
    """The answer that comes when it is asked again is the one that was charged."""
    aggregate(root)
    (name, *_) = SITES
    (path,) = requests(root, name)

    class Kill(BaseException):
        pass

    def die(*_: object) -> None:
        raise Kill

    with monkeypatch.context() as patch:
        if at == "charge":
            patch.setattr("capeneuro.flare.by_files._statement", die)
        else:
            patch.setattr(folder, "write_zip", die)
        shutil.copy(path, root / name)
        with contextlib.chdir(root / name), pytest.raises(Kill):
            command("answer", path.name, "--yes")
    assert parties.n_charged(root, name) == 1
    by_files.run(root)
    parties.assert_same_results(root)
    assert {parties.n_charged(root, site) for site in SITES} == {3}


def test_stages_by_files_are_those_of_one_process(tmp_path, capsys):
    """The second stage is prepared from what the first released; sites get it."""
    root = tmp_path / "root"
    two_stages.write_parties(root, "files")
    (root / "mail").mkdir()
    before = ""
    for stage in ("components", "contrast"):
        with contextlib.chdir(root / "together"):
            for name in SITES if before else ():
                about = "--stage", stage, "--site", name
                assert command("prepare", STUDY, *about) == 0
            steps = registry.of(load.load_study(STUDY, stage)).result_files
            for step in steps:
                assert command(step, STUDY, "--stage", stage) == 0
        for name in SITES if before else ():
            there = root / name / "results/tiny" / before
            shutil.copytree(root / "aggregator/results/tiny" / before, there)
            with contextlib.chdir(root / name):
                about = "--stage", stage, "--site", name
                assert command("prepare", STUDY, *about) == 0
        status = aggregate(root)
        here, there = (
            root / who / "results/tiny" / stage for who in ("aggregator", "together")
        )
        while status == WAITING and not all(
            (here / n).exists() for n in steps.values()
        ):
            for name in SITES:
                for path in requests(root, name):
                    assert answer(root, name, path) == 0
            status = aggregate(root)
        for file in steps.values():
            assert (here / file).read_bytes() == (there / file).read_bytes(), file
        before = stage
    assert status == 0
    assert [parties.n_charged(root, name) for name in SITES] == [4, 4, 4]
