"""Joining a study: what each party signs, and what stops when anything differs."""

import contextlib
import json
import shutil
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml
from parties import SITES, join_all
from tiny_study import (
    SIDE,
    STUDY,
    command,
    edit,
    site_content,
    study_content,
    write_image,
)

from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.federation import ledger_backup
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.manifest import Manifest
from capeneuro.flare import joining
from capeneuro.studies import registry
from capeneuro.studies import sites as site_files

HUB = "aggregator"


def write_party(root: Path, name: str, n_sites: int = 3) -> None:
    """The study file at a party, and its own site file."""
    (root / name).mkdir(parents=True)
    content = study_content(n_sites) | {"federation": "nvflare"}
    content["score"] = {"reference": False}
    content["expected"] = {"people": 2 * n_sites, "volumes": 12}
    (root / name / STUDY).write_text(yaml.safe_dump(content))
    write_image(root / name / content["space"]["mask"], np.ones((SIDE,) * 3))
    if name != HUB:
        own = {**site_content(int(name[-1])), "ledger": "ledger"}
        (root / name / f"{name}.yaml").write_text(yaml.safe_dump(own))


@pytest.fixture
def root(tmp_path) -> Path:
    for name in (HUB, *SITES):
        write_party(tmp_path, name)
    return tmp_path


@pytest.fixture
def joined(root) -> Path:
    join_all(root)
    return root


@contextlib.contextmanager
def at(root: Path, name: str):
    with contextlib.chdir(root / name):
        yield load.load_study(STUDY)


def manifest_of(root: Path) -> Manifest:
    return joining.read(root / HUB / "manifest.json")


def rewritten(root: Path, change) -> Path:
    """The manifest as a coordinator might change it."""
    content = json.loads((root / HUB / "manifest.json").read_text())
    change(content)
    path = root / "changed.json"
    path.write_text(json.dumps(content))
    return path


def test_after_the_ceremony_every_party_holds_the_same(joined):
    own = manifest_of(joined)
    for name in SITES:
        with at(joined, name) as study:
            assert joining.approved_manifest(study, name).digest == own.digest
    with at(joined, HUB) as study:
        authority, approvals = joining.authority(study)
    assert authority.public == own.asker
    assert own.missing(approvals) == []
    assert own.root == own.fingerprint
    assert len(own.fingerprint) == 64


def test_the_commands_of_the_ceremony(root, capsys, monkeypatch):
    who = ("--institution", "Institute", "--contact", "dpo@example.org")
    for name in SITES:
        monkeypatch.chdir(root / name)
        assert command("join", STUDY, "--site", name) == 2
        assert command("join", STUDY, "--site", name, *who) == 0
    said = capsys.readouterr().out
    assert "promised for everything of a person: epsilon 5" in said
    assert (
        "another site, which subtracts its own noise from the results: epsilon" in said
    )
    monkeypatch.chdir(root / HUB)
    sent = [str(root / name / f"{name}.entry.json") for name in SITES]
    assert command("federation", "manifest", STUDY, *sent) == 0
    own = manifest_of(root)
    assert own.fingerprint in capsys.readouterr().out
    signed = []
    for name in SITES:
        monkeypatch.chdir(root / name)
        about = ("--manifest", str(root / HUB / "manifest.json"))
        given = ("--fingerprint", own.fingerprint.upper())
        assert command("join", STUDY, "--site", name, *about) == 0
        assert not Path(f"{name}.approval.json").exists()
        wrong = ("--fingerprint", "0" * 64)
        assert command("join", STUDY, "--site", name, *about, *wrong) == 2
        assert own.fingerprint not in "".join(capsys.readouterr())
        assert command("join", STUDY, "--site", name, *about, *given) == 0
        signed.append(str(root / name / f"{name}.approval.json"))
    assert "site-1: Institute (dpo@example.org), simulated data" in (
        capsys.readouterr().out
    )
    monkeypatch.chdir(root / HUB)
    assert command("federation", "approvals", STUDY, *signed[:2]) == 0
    assert "missing: site-2" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="not approved by site-2"):
        joining.authority(load.load_study(STUDY))
    assert command("federation", "approvals", STUDY, signed[2]) == 0
    assert "all sites have signed" in capsys.readouterr().out


def test_the_aggregators_key_is_its_owners_and_in_no_kit(joined):
    path = joined / HUB / "private/_aggregator/key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    path.write_bytes(bytes(32))
    with (
        at(joined, HUB) as study,
        pytest.raises(ConfigError, match="not the aggregator's key"),
    ):
        joining.authority(study)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m["promise"].update(epsilon=9.0), "promise: is not that"),
        (lambda m: m["aggregator"].update(sign="0" * 64), "has another; do not sign"),
        (lambda m: m.update(ends="2099-01-01"), "has another; do not sign"),
        (
            lambda m: m["sites"]["site-1"].update(contact="me"),
            "not signed with its key",
        ),
        (
            lambda m: m["sites"]["site-1"].update(key="0" * 64),
            "not signed with its key",
        ),
        (lambda m: m["sites"].pop("site-1"), "sites: is not that"),
        (lambda m: m.update(extra=1), "extra"),
        (lambda m: m.update(revision=1), "names its lineage"),
    ],
    ids=["promise", "asker", "ends", "contact", "key", "site", "extra", "revision"],
)
def test_a_manifest_that_differs_in_one_key_is_another(joined, change, said):
    own, path = manifest_of(joined), rewritten(joined, change)
    # Not signed yet, and by no ledger known.
    (joined / "site-0/private/site-0/tiny/manifest.json").unlink()
    lines = joined / "site-0/ledger/ledger.jsonl"
    lines.unlink()
    with at(joined, "site-0") as study, pytest.raises(ConfigError, match=said):
        joining.approve(study, "site-0", path, own.fingerprint)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m["promise"].update(epsilon=9.0), "promise"),
        (lambda m: m["promise"].update(n_colluding=2), "promise"),
        (lambda m: m["aggregator"].update(at="site-1"), "aggregator.at"),
        (lambda m: m.update(study_digest="0" * 64), "another site or study"),
        (lambda m: m.update(version="0.0"), "version"),
        (lambda m: m.update(ends="2020-01-01"), "ended on 2020-01-01"),
        (lambda m: m["sites"].pop("site-1"), "sites: is not that of the study file"),
        (lambda m: m["aggregator"].update(sign="0" * 64), "supersedes"),
    ],
    ids=["promise", "coalition", "seat", "study", "version", "ends", "site", "asker"],
)
def test_its_own_fingerprint_does_not_help_it(joined, change, said):
    """A coordinator who publishes the changed one's fingerprint is stopped as well."""
    path = rewritten(joined, change)
    own = Manifest.model_validate_json(path.read_text()).fingerprint
    with at(joined, "site-0") as study, pytest.raises(ConfigError, match=said):
        joining.approve(study, "site-0", path, own)


def test_an_entry_that_is_not_what_the_site_sent_is_not_signed(joined):
    with at(joined, "site-0") as study:
        joining.enter(study, "site-0", "Another name", "dpo@site-0.example")
        path = joined / HUB / "manifest.json"
        with pytest.raises(ConfigError, match="is not the entry that this site wrote"):
            joining.approve(study, "site-0", path, manifest_of(joined).fingerprint)


def test_a_made_up_site_has_no_entry_and_no_approval(root):
    with at(root, "site-0") as study:
        sent = root / "site-0" / joining.enter(study, "site-0", "I", "c")
    with at(root, HUB) as study:
        with pytest.raises(ConfigError, match="one of each of site-0, site-1, site-2"):
            joining.assemble(study, [sent])
        with pytest.raises(ConfigError, match="one of each of"):
            joining.assemble(study, [sent, sent, sent])


def test_approvals_of_another_manifest_do_not_count(joined):
    with at(joined, HUB) as study:
        path = joined / "site-0/site-0.approval.json"
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"manifest": "0" * 64}))
        with pytest.raises(ConfigError, match="is not the one that is here"):
            joining.collect(study, [path])
        path.write_text(json.dumps(content | {"name": "site-1"}))
        with pytest.raises(ConfigError, match="is not that of site-1's key"):
            joining.collect(study, [path])


def test_a_study_file_that_changed_needs_a_revision(joined):
    for name in (HUB, *SITES):
        edit(str(joined / name / STUDY), "accept", [])
    with (
        at(joined, "site-0") as study,
        pytest.raises(ConfigError, match="study_digest"),
    ):
        joining.approved_manifest(study, "site-0")
    with at(joined, HUB) as study, pytest.raises(ConfigError, match="study_digest"):
        joining.authority(study)


def revise(root: Path, why: str = "one reason is enough", **options) -> Manifest:
    """Everybody's new entry, and the next revision."""
    entries, before = [], root / "before.json"
    shutil.copy(root / HUB / "manifest.json", before)
    with at(root, HUB) as study:
        names = study.site_names
    for name in names:
        with at(root, name) as study:
            entries.append(root / name / joining.enter(study, name, "I", "c"))
    with at(root, HUB) as study:
        return joining.assemble(study, entries, before, why, **options)


def test_a_revision_keeps_the_lineage_and_needs_everybody_again(joined):
    first = manifest_of(joined)
    for name in (HUB, *SITES):  # one site leaves
        edit(str(joined / name / STUDY), "sites", ["site-0.yaml", "site-1.yaml"])
    second = revise(joined, "site-2 withdrew")
    assert (second.revision, second.root) == (1, first.fingerprint)
    assert second.digest != first.digest
    with at(joined, HUB) as study, pytest.raises(ConfigError, match="not approved by"):
        joining.authority(study)
    signed = []
    for name in ("site-0", "site-1"):
        with at(joined, name) as study:
            path = joined / HUB / "manifest.json"
            approved = joining.approve(study, name, path, second.fingerprint)
            signed.append(joined / name / approved)
    with at(joined, HUB) as study:
        assert joining.collect(study, signed) == []
        assert joining.authority(study)[0].manifest == second.digest


def test_what_was_signed_before_the_last_is_not_taken_again(joined):
    """Promise or parties would be set back to what held earlier."""
    first, own = manifest_of(joined), joined / "site-0/private/site-0/tiny"
    shutil.copytree(own, joined / "before")
    second = revise(joined, ends=date.today() + timedelta(days=30))
    with at(joined, "site-0") as study:
        path = joined / HUB / "manifest.json"
        joining.approve(study, "site-0", path, second.fingerprint)
        assert joining.approved_manifest(study, "site-0").digest == second.digest
        # All that the ledger does not hold is set back.
        shutil.copytree(joined / "before", own, dirs_exist_ok=True)
        with pytest.raises(ConfigError, match="revision: must be the last one"):
            joining.approve(study, "site-0", joined / "before.json", first.fingerprint)
        with pytest.raises(ConfigError, match="not the manifest that this site"):
            joining.approved_manifest(study, "site-0")


@pytest.mark.parametrize(("key", "value"), [("epsilon", 6.0), ("delta", 1e-4)])
def test_a_revision_promises_nobody_less(joined, key, value):
    for name in (HUB, *SITES):
        edit(str(joined / name / STUDY), f"budget.{key}", value)
    second, path = revise(joined), joined / HUB / "manifest.json"
    with at(joined, "site-0") as study, pytest.raises(ConfigError, match="be weaker"):
        joining.approve(study, "site-0", path, second.fingerprint)


def set_all(root: Path, **changes) -> None:
    """Change a key of the study file at everybody who takes part."""
    with at(root, HUB) as study:
        parties = (HUB, *study.site_names)
    for name in parties:
        for key, value in changes.items():
            edit(str(root / name / STUDY), key.replace("__", "."), value)


def withdraw(root: Path, **changes) -> None:
    """The last site leaves, and signs no more."""
    with at(root, HUB) as study:
        left = [f"{name}.yaml" for name in study.site_names[:-1]]
    set_all(root, sites=left, **changes)
    path, second = root / HUB / "manifest.json", revise(root, "one site withdrew")
    with at(root, "site-0") as study:
        joining.approve(study, "site-0", path, second.fingerprint)


@pytest.mark.parametrize(
    ("n_sites", "before", "then", "refused"),
    [
        (7, {"budget__n_colluding": None}, {}, "set budget.n_colluding: 2 in"),
        (7, {"budget__n_colluding": None}, {"budget__n_colluding": 2}, ""),
        (7, {"budget__n_colluding": None, "arm": "local"}, {}, ""),
        (3, {"budget__n_colluding": 2}, {"budget__n_colluding": 1}, ""),
        (3, {"budget__n_colluding": 2}, {"budget__n_colluding": 0}, ""),
    ],
    ids=["default falls", "stated", "no partners", "two are left", "fewer stated"],
)
def test_a_site_may_leave_whatever_was_guarded_against(
    tmp_path, n_sites, before, then, refused
):
    """With as many colluding sites as before, or all others where fewer are left."""
    names = [f"site-{i}" for i in range(n_sites)]
    for name in (HUB, *names):
        write_party(tmp_path, name, n_sites)
    set_all(tmp_path, **before)
    join_all(tmp_path, names)
    if not refused:
        withdraw(tmp_path, **then)
        return
    with pytest.raises(ConfigError, match=refused):
        withdraw(tmp_path, **then)


def test_a_revision_guards_against_as_many_sites(joined):
    second, path = revise(joined), joined / HUB / "manifest.json"
    with at(joined, "site-0") as study:
        book = site_files.open_ledger(load.load_site("site-0.yaml"))
        (first,) = (p for p in book.promises() if p.named)
        book.lines.append(replace(first, n_colluding=2))
        with pytest.raises(ConfigError, match=r"guard against 2 sites, .* got 1"):
            joining.approve(study, "site-0", path, second.fingerprint)


@pytest.mark.parametrize("merged", [{}, {"merged": "another"}], ids=["old", "new"])
def test_a_lineage_of_a_merged_ledger_is_another_promise(joined, merged):
    """It does not decide what is weaker, what is last, or what was spent."""
    with at(joined, "site-0") as study:
        book = site_files.open_ledger(load.load_site("site-0.yaml"))
        (first,) = (p for p in book.promises() if p.named)
        other = {"lineage": "a" * 64, "manifest": "b" * 64, "revision": 5, **merged}
        other |= {"mu": 3 * first.mu, "n_colluding": 2}
        book.lines.append(replace(first, **other))
        assert joining.approved_manifest(study, "site-0").revision == 0
        entry = ReleaseLine(
            study="tiny:old",
            unit="subject",
            mu=0.9 * first.mu,
            lineage=first.lineage,
            site="site-0",
        )
        book.charge("1" * 64, ["ann"], entry, b"")
        own = load.load_site("site-0.yaml")
        assert site_files.check_ceilings(study, {"site-0": own}) == {"site-0": 0.0}
    path, before = joined / HUB / "manifest.json", joined / "first.json"
    shutil.copy(path, before)
    set_all(joined, budget__epsilon=9.0)
    weaker = revise(joined)
    with at(joined, "site-0") as study, pytest.raises(ConfigError, match="be weaker"):
        joining.approve(study, "site-0", path, weaker.fingerprint)
    shutil.copy(before, path)  # the others declined, too
    set_all(joined, budget__epsilon=5.0)
    third = revise(joined)
    with at(joined, "site-0") as study:
        joining.approve(study, "site-0", path, third.fingerprint)


def test_a_revision_has_a_number_of_its_own(joined):
    """One that a site declined, and the next of the same manifest, are two."""
    first = joined / "first.json"
    shutil.copy(joined / HUB / "manifest.json", first)
    path = joined / HUB / "manifest.json"
    declined = revise(joined, ends=date.today() + timedelta(days=30))
    with at(joined, "site-0") as study:
        joining.approve(study, "site-0", path, declined.fingerprint)
    shutil.copy(first, path)  # before which revise() puts the next one
    later = revise(joined, ends=date.today() + timedelta(days=60))
    assert (declined.revision, later.revision) == (1, 2)
    assert later.supersedes == declined.supersedes
    same = later.model_copy(update={"revision": 1})
    with at(joined, "site-0") as study:
        content = json.dumps(same.model_dump(mode="json"))
        (joined / "same.json").write_text(content)
        with pytest.raises(ConfigError, match="revision: must be the last one"):
            joining.approve(study, "site-0", joined / "same.json", same.fingerprint)
        joining.approve(study, "site-0", path, later.fingerprint)


def test_a_damaged_copy_of_a_revision_does_not_stop_the_next(joined):
    with at(joined, HUB) as study:
        for name in ("manifest-3.json", "manifest-old.json"):
            (study.private("_aggregator") / name).write_text("torn")
    assert revise(joined).revision == 4


def test_lines_of_a_merged_ledger_do_not_set_the_last_manifest_back(joined):
    second = revise(joined, ends=date.today() + timedelta(days=30))
    with at(joined, "site-0") as study:
        path = joined / HUB / "manifest.json"
        joining.approve(study, "site-0", path, second.fingerprint)
        book = site_files.open_ledger(load.load_site("site-0.yaml"))
        earlier = next(p for p in book.promises() if p.revision == 0)
        book.lines.append(earlier)  # as a merge would
        assert joining.approved_manifest(study, "site-0").digest == second.digest


def test_public_files_are_those_that_all_signed(joined):
    """Another mask under the same name would be another study."""
    with at(joined, "site-0") as study:
        write_image(Path(study.space.mask), np.eye(SIDE)[None].repeat(SIDE, 0))
        with pytest.raises(ConfigError, match=r"inputs\.data/mask.*: is not that"):
            joining.approved_manifest(study, "site-0")
        Path(study.space.mask).unlink()
        with pytest.raises(ConfigError, match="part of what its parties sign"):
            joining.approved_manifest(study, "site-0")
    listed = joining.summary(manifest_of(joined))
    assert "number of its people (each site, which signs it)" in listed
    assert "starts from data/mask.nii.gz, SHA-256" in listed


def test_a_revision_says_why(joined):
    with pytest.raises(ConfigError, match="a revision has both"):
        revise(joined, "")


def test_what_sites_signed_is_not_overwritten(joined):
    entries = [joined / name / f"{name}.entry.json" for name in SITES]
    with at(joined, HUB) as study:
        with pytest.raises(ConfigError, match=r"signed by .*manifest-0\.json --why"):
            joining.assemble(study, entries)
        assert joining.authority(study)


def test_a_site_sees_what_changed_before_it_signs(joined):
    old = manifest_of(joined)
    for name in (HUB, *SITES):
        edit(str(joined / name / STUDY), "budget.epsilon", 9.0)
    new = revise(joined, "more budget")
    said = joining.summary(new, old)
    assert "promise: epsilon 9, delta 1e-05, for everything of a person" in said
    assert "changed: promise.epsilon 5.0 -> 9.0" in said
    assert "changed: the study file" in said


@pytest.mark.parametrize("odd", ["x\ny", "\x1b[2K", " ", "x" * 300], ids=repr)
def test_nobody_writes_lines_into_what_others_sign(root, odd):
    with at(root, "site-0") as study:
        with pytest.raises(ConfigError, match="--contact: "):
            joining.enter(study, "site-0", "I", odd)
        assert not list(Path().glob("*.json"))


def test_forged_and_foreign_entries_are_refused_by_the_lead(joined):
    sent = [joined / name / f"{name}.entry.json" for name in SITES]
    content = json.loads(sent[1].read_text())
    forged = joined / "forged.json"
    shutil.rmtree(joined / HUB / "private/_aggregator/tiny")  # nothing is signed yet
    for change, said in (
        ({"institution": "Another"}, "not signed with its key"),
        ({"study": "0" * 64}, "made for another study file"),
    ):
        forged.write_text(json.dumps(content | change))
        with at(joined, HUB) as study, pytest.raises(ConfigError, match=said):
            joining.assemble(study, [sent[0], forged, sent[2]])


@pytest.mark.parametrize("text", ["", "[]", "{}", "\x00", '{"name": "zorro"}'])
def test_what_is_no_file_of_the_ceremony_is_told_in_a_line(joined, text, capsys):
    odd = joined / "odd.json"
    odd.write_text(text)
    with contextlib.chdir(joined / HUB):
        for action in ("approvals", "manifest"):
            assert command("federation", action, STUDY, str(odd)) == 2
    with contextlib.chdir(joined / "site-0"):
        about = ("--site", "site-0", "--manifest", str(odd))
        assert command("join", STUDY, *about) == 2
    for line in capsys.readouterr().err.splitlines():
        assert "odd.json: is no " in line


def test_a_site_signs_as_what_it_is(joined):
    edit(str(joined / "site-0/site-0.yaml"), "data", "public")
    with at(joined, "site-0") as study, pytest.raises(ConfigError, match="data: must"):
        joining.signable_manifest(study, "site-0", joined / HUB / "manifest.json")


def test_a_study_in_one_process_needs_no_joining(joined, capsys):
    edit(str(joined / "site-0" / STUDY), "federation", "in-process")
    with contextlib.chdir(joined / "site-0"):
        about = ("--site", "site-0", "--institution", "I", "--contact", "c")
        assert command("join", STUDY, *about) == 2
    assert "federation: must be nvflare" in capsys.readouterr().err


def test_a_site_does_not_begin_another_lineage_of_a_study(joined):
    """It would start the promise to the same people anew."""
    with at(joined, HUB) as study:
        entries = [joined / name / f"{name}.entry.json" for name in SITES]
        ends = date.today() + timedelta(days=30)
        shutil.rmtree("private/_aggregator/tiny")  # a lead who means it
        other = joining.assemble(study, entries, ends=ends)
    path = joined / HUB / "manifest.json"
    with at(joined, "site-0") as study, pytest.raises(ConfigError, match="supersedes"):
        joining.approve(study, "site-0", path, other.fingerprint)


def test_the_promise_is_counted_over_revisions(joined):
    with at(joined, "site-0") as study:
        book = site_files.open_ledger(load.load_site("site-0.yaml"))
        promise, own = study.promise, manifest_of(joined)
        entry = {"study": study.identity, "unit": "subject", "lineage": own.root}
        book.charge("1" * 64, ["ann"], ReleaseLine(**{**entry, "mu": promise.mu}), b"")
        # Another study file, in a later revision of the same lineage.
        later = {**entry, "study": "tiny:another", "mu": 0.01}
        with pytest.raises(Exception, match="promise"):
            book.check(ReleaseLine(**later), promise)
        book.check(ReleaseLine(**{**later, "lineage": "another"}), promise)


def test_a_ledger_from_before_manifests_goes_on(joined):
    """Its releases of the same study count against the same promise."""
    with at(joined, "site-0") as study:
        book = site_files.open_ledger(load.load_site("site-0.yaml"))
        old = {"study": study.identity, "unit": "subject", "mu": study.promise.mu}
        book.charge("1" * 64, ["ann"], ReleaseLine(**old), b"")
        now = {**old, "lineage": manifest_of(joined).root, "mu": 0.01}
        with pytest.raises(Exception, match="promise"):
            book.check(ReleaseLine(**now), study.promise)


def test_a_site_with_another_key_does_not_answer_for_the_manifest(joined):
    with at(joined, "site-0") as study:
        manifest = joining.approved_manifest(study, "site-0")
        sites = site_files.load_sites(study)
        Path("ledger/key").write_bytes(bytes(32))
        with pytest.raises(ConfigError, match="key is not the one"):
            site_files.open_site(study, sites, "site-0", manifest)


PAID = {"arm": "cape", "n_colluding": 1, "survivor_threshold": 3, "unit": "sample"}


@pytest.mark.parametrize("changes", [{"unit": "subject"}, {"n_colluding": 2}])
def test_losses_of_a_weaker_promise_are_not_added_to_a_stronger_one(joined, changes):
    with at(joined, "site-0") as study:
        book = site_files.open_ledger(load.load_site("site-0.yaml"))
        entry = ReleaseLine(**PAID, study="s", mu=0.1)
        book.charge("1" * 64, ["ann"], entry, b"")
        book.check(entry, study.promise)
        with pytest.raises(Exception, match="promised less"):
            book.check(replace(entry, **changes), study.promise)


def test_a_site_that_was_excluded_does_not_end_the_study_of_the_others(joined):
    """Fewer sites have a smaller threshold; what was charged before holds as it was."""
    with at(joined, "site-0") as study:
        book = site_files.open_ledger(load.load_site("site-0.yaml"))
        about = {**PAID, "study": "s", "mu": 0.1}
        book.charge("1" * 64, ["ann"], ReleaseLine(**about), b"")
        book.check(ReleaseLine(**{**about, "survivor_threshold": 2}), study.promise)


def test_a_restored_site_may_join_again(joined):
    with at(joined, "site-0") as study:
        edit("site-0.yaml", "second_place", "second")
        own = load.load_site("site-0.yaml")
        book = site_files.open_ledger(own)
        ledger_backup.begin(book)
        charged = ledger_backup.restore(site_files.open_ledger(own))
        assert [entry.study for entry in charged] == [study.identity]
        assert joining.enter(study, "site-0", "Institute", "dpo@example.org").exists()


def test_another_study_file_of_the_same_lineage_is_the_same_promise(
    joined, monkeypatch
):
    """A revised study fits under a ceiling under which its promise fits."""
    with at(joined, "site-0") as study:
        edit("site-0.yaml", "epsilon", 5.5)
        own = load.load_site("site-0.yaml")
        book, root = site_files.open_ledger(own), manifest_of(joined).root
        about = {"study": study.identity, "lineage": root, "site": "site-0"}
        entry = ReleaseLine(**about, unit="subject", mu=0.8 * study.promise.mu)
        book.charge("1" * 64, ["ann"], entry, b"")
        edit(STUDY, "ica.n_rounds", 7)
        revised = load.load_study(STUDY)
        assert revised.identity != study.identity
        monkeypatch.setattr(site_files, "_version", lambda *about: "others")
        with pytest.raises(Exception, match="as they were before"):
            site_files.check_ceilings(revised, {"site-0": own})  # of another version
        edit(STUDY, "study", "other")
        with pytest.raises(Exception, match="the ceiling is 5"):
            site_files.check_ceilings(load.load_study(STUDY), {"site-0": own})


def test_a_peer_that_was_set_back_is_known_from_any_study(joined):
    with at(joined, "site-0") as study:
        book = site_files.open_ledger(load.load_site("site-0.yaml"))
        told = {manifest_of(joined).sites["site-1"].key: 42}
        book.promise(study.promise, "x", "x", "site-0", named="another", told=told)
        path = joined / HUB / "manifest.json"
        with pytest.raises(ConfigError, match="42 releases before, now 0"):
            joining.signable_manifest(study, "site-0", path)


def test_sites_that_share_a_ledger_have_a_promise_each(joined):
    with at(joined, "site-0") as study:
        book = site_files.open_ledger(load.load_site("site-0.yaml"))
        mu = study.promise.mu
        for k, site in enumerate(("a", "b")):
            entry = ReleaseLine(**PAID, study="s", site=site, mu=mu)
            book.charge(f"{k:064x}", [site], entry, b"", b"", study.promise)
        with pytest.raises(Exception, match="promise"):
            book.check(replace(entry, site="a"), study.promise)


def test_a_site_says_the_same_of_itself_after_a_revision(joined):
    """Its statement is in each request, which else would be another, paid again."""
    said, before = [], manifest_of(joined)
    with at(joined, "site-0") as study:
        path = study.private("site-0") / "projected.npz"
        layout = registry.of(study).layout
        files.write_features(path, [("ann", np.ones((5, 6), "f4"))], layout)
    after = revise(joined, "another contact")
    assert after.fingerprint != before.fingerprint
    for manifest in (before, after):
        with at(joined, "site-0") as study:
            sites = site_files.load_sites(study)
            site = site_files.open_site(study, sites, "site-0", manifest)
            said.append(site.answer("describe", {"unit": "subject"}))
    assert said[0] == said[1]


def test_sites_that_share_a_ledger_resume(joined, monkeypatch):
    """What another site charged is not data that changed."""
    with at(joined, "site-0") as study:
        own = load.load_site("site-0.yaml")
        book = site_files.open_ledger(own)
        monkeypatch.setattr(site_files, "_version", lambda *about: "others")
        charge = {**PAID, "unit": "subject", "study": study.identity, "mu": 0.1}
        there = ReleaseLine(**charge, site="site-1", version="x")
        book.charge("1" * 64, ["bob"], there, b"")
        site_files.check_ceilings(study, {"site-0": own})
        book.charge("2" * 64, ["ann"], ReleaseLine(**charge, site="site-0"), b"")
        with pytest.raises(Exception, match="as they were before"):
            site_files.check_ceilings(study, {"site-0": own})
