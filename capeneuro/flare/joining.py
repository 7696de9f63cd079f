"""The joining ceremony: four steps, two files a site, one comparison each.

1. The coordinator drafts the study and sends it to every site.
2. Each site looks at it and writes its signed entry (:func:`enter`).
3. The coordinator puts them together with the aggregator's keys (:func:`assemble`) and
   publishes the fingerprint where all sites see the same: a protocol, an ethics annex.
4. Each site compares the fingerprint and signs (:func:`approve`); the coordinator
   collects the approvals (:func:`collect`), which every site checks at the first ping.

A changed study, another party, a renewed key or an exclusion goes through steps 2 to 4
again, as a revision of the manifest.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from capeneuro import __version__
from capeneuro.config.errors import ConfigError, some
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation import durable_files
from capeneuro.federation import manifest as agreed
from capeneuro.federation.entries import PromiseLine
from capeneuro.federation.envelope import Authority
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.manifest import Approval, Entry, Manifest, StageFacts
from capeneuro.federation.requests import COOPERATIVE_ARMS, Description
from capeneuro.federation.secagg import masking, one_exchange
from capeneuro.federation.site import Site
from capeneuro.privacy import accounting
from capeneuro.report import privacy_record
from capeneuro.studies import flow, gate, registry
from capeneuro.studies import sites as site_files

LASTS = timedelta(days=365)
# What a promise may be of, the most first.
UNITS = ("subject", "sample")
# Folder of the aggregator, and its key in it, which serves all its studies.
HUB = "_aggregator"
KEY = Path("private") / HUB / "key"
# Beside the manifest: the visits of a study by files, by number.
VISITS = "visits.json"


# --- at a site -----------------------------------------------------------------------


def enter(study: StudyConfig, name: str, institution: str, contact: str) -> Path:
    """Write a site's entry, signed with its key; made where there was none.

    Parameters
    ----------
    study, name
        The study, and the site, whose file is here.
    institution, contact
        Who answers for it, for the people at the other sites.

    Returns
    -------
    Path
        File for the coordinator, ``<site>.entry.json``.
    """
    site = _own_site(study, name)
    gate.check_stated(study)
    book = site_files.open_ledger(site)
    mask_key = _new_mask_key(study, name)
    try:
        entry = agreed.entry(
            book.key,
            name=name,
            institution=institution,
            contact=contact,
            kind=site.data,
            unit=site.unit,
            # Not its lines: that somebody is new to the ledger is one, too.
            n_releases=len(book.releases()),
            study=study.digest,
            mask_key=mask_key.public_key().public_bytes_raw().hex(),
            stages=_facts(study, name, mask_key, book),
        )
    except ValueError as error:
        raise ConfigError(f"--{error}") from None
    out = Path(f"{name}.entry.json")
    for copy in (study.private(name) / "entry.json", out):
        files.write_json(copy, entry.model_dump(mode="json"))
    return out


def note_study_file(study: StudyConfig, name: str, path: Path) -> None:
    """Note the study file with which a site joins, for requests that come as files."""
    files.write_text(study.private(name) / "joined-with.txt", f"{path}\n")


def study_file(study: str, name: str) -> Path:
    """Path of the study file with which a site wrote its entry last.

    Raises
    ------
    ConfigError
        If nobody noted it, or it is not there.
    """
    note = Path("private") / name / study / "joined-with.txt"
    path = Path(note.read_text().strip()) if note.exists() else note
    if not path.is_file() or path == note:
        raise ConfigError(
            f"{path}: not found; --study must name the study file with which {name} "
            "joined"
        )
    return path


def is_prepared(study: StudyConfig, name: str) -> bool:
    """Whether a site has prepared the first stage, whose people its entry counts."""
    first = next(iter(study.full_study.members.values()))
    return (first.private(name) / "projected.npz").exists()


def _facts(
    study: StudyConfig, name: str, mask_key: X25519PrivateKey, book: Ledger
) -> dict[str, StageFacts]:
    """Sign the mask key for each stage, and the people of those that are prepared.

    With them nobody has to ask before the first release.
    """
    facts, sites = {}, site_files.load_sites(study)
    secret = mask_key.private_bytes_raw()
    for stage in study.full_study.members.values():
        signed = one_exchange.offer(mask_key, book.key, stage.identity, name)
        offer = signed[one_exchange.KEY_BYTES :].hex()
        facts[stage.identity] = StageFacts(offer=offer)
        if (stage.private(name) / "projected.npz").exists():
            registry.of(stage).check_prepared([name])
            site = site_files.open_site(stage, sites, name, mask_key=secret)
            reply = site.answer("describe", {"unit": study.budget.unit})
            description = Description.parse(reply)
            facts[stage.identity] = StageFacts(
                offer=offer,
                n_units=description.n_units,
                version=description.version,
                signature=description.signature.hex(),
            )
    return facts


def _mask_keys(study: StudyConfig, name: str) -> Path:
    """Folder of a site's secret mask keys, one for each entry that it wrote."""
    return study.full_study.private(name) / "mask-keys"


def _new_mask_key(study: StudyConfig, name: str) -> X25519PrivateKey:
    """Make the secret key of a site's masks for one manifest, and keep it."""
    key = X25519PrivateKey.generate()
    folder = _mask_keys(study, name)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / key.public_key().public_bytes_raw().hex()
    durable_files.write_synced(path, key.private_bytes_raw())
    return key


def delete_mask_keys(study: StudyConfig, name: str, but: str = "") -> None:
    """Delete a site's secret mask keys, so that a later theft opens no sum.

    Parameters
    ----------
    study, name
        The study, and the site.
    but
        Public key, in hexadecimal digits, of the one to keep; empty: none.
    """
    for path in _mask_keys(study, name).glob("*"):
        if path.name != but:
            path.unlink(missing_ok=True)


def open_site(
    study: StudyConfig, sites: site_files.Sites, name: str, manifest: Manifest
) -> Site:
    """Open one site on its prepared features, with the mask key of its entry."""
    path = _mask_keys(study, name) / manifest.sites[name].mask_key
    mask_key = None  # it answers again what it has answered, and nothing else
    if path.exists():
        mask_key = path.read_bytes()
    registry.of(study).check_prepared([name])
    return site_files.open_site(study, sites, name, manifest, mask_key)


def signable_manifest(study: StudyConfig, name: str, path: Path) -> Manifest:
    """A manifest that a site may sign, with all checks but the fingerprint.

    Parameters
    ----------
    study, name
        The study, and the site, whose file is here.
    path
        The manifest that the coordinator sent.

    Returns
    -------
    Manifest
        What is to be shown before it is signed.

    Raises
    ------
    ConfigError
        If the study file is another one, the own entry is not what was sent or not of
        this site as it is, or the manifest does not follow the one that was approved.
    """
    site, manifest = _own_site(study, name), read(path)
    fits(study, manifest, path)
    entry, sent = manifest.sites[name], study.private(name) / "entry.json"
    if not sent.exists() or _read(Entry, sent) != entry:
        raise ConfigError(
            f"{path}: sites.{name}: is not the entry that this site wrote last; send "
            f"{name}.entry.json again, or repeat `capeneuro join` as it was"
        )
    key = site_files.open_ledger(site).public_key.hex()
    for key_name, signed, local_value in (
        ("data", entry.kind, site.data),
        ("unit", entry.unit, site.unit),
        ("ledger", entry.key, key),
    ):
        if signed != local_value:
            difference = (
                ""
                if key_name == "ledger"
                else f", got {local_value!r}, signed as {signed!r}"
            )
            raise ConfigError(
                f"site {name}: {key_name}: must be that of its entry{difference}; "
                "restore it, or join again"
            )
    if manifest.revision and not manifest.why:
        raise ConfigError(f"{path}: why: a revision must say why")
    _follows(study, _signed(study, site), manifest, path)
    approved_releases = [
        promise.told
        for promise in site_files.open_ledger(site).promises()
        if promise.told is not None
    ]
    for site_name, party in manifest.sites.items():
        n_before = max(
            (releases.get(party.key, 0) for releases in approved_releases), default=0
        )
        if party.n_releases < n_before:
            raise ConfigError(
                f"{path}: sites.{site_name}: its ledger had {n_before} releases "
                f"before, now {party.n_releases}: it was set back; {site_name} types "
                "capeneuro ledger restore, and sends its entry again"
            )
    return manifest


def approved(study: StudyConfig, name: str) -> Manifest | None:
    """The manifest that a site approved last, if there is one."""
    path = study.private(name) / "manifest.json"
    return read(path) if path.exists() else None


def approve(study: StudyConfig, name: str, path: Path, fingerprint: str) -> Path:
    """Check a manifest and sign it for a site.

    Parameters
    ----------
    study, name
        The study, and the site, whose file is here.
    path
        The manifest that the coordinator sent.
    fingerprint
        What was published, 64 hexadecimal digits; blanks and colons do not count.

    Returns
    -------
    Path
        File for the coordinator, ``<site>.approval.json``.

    Raises
    ------
    ConfigError
        If the fingerprint is another's, the own entry is not what was sent, the study
        file is another one, or the manifest does not follow the one that was approved.
    """
    manifest = signable_manifest(study, name, path)
    stated_fingerprint = re.sub(
        r"[\s:-]", "", fingerprint.removeprefix("SHA256:")
    ).lower()
    if not re.fullmatch("[0-9a-f]{64}", stated_fingerprint):
        raise ConfigError(
            "--fingerprint: must be the 64 hexadecimal digits that were published, "
            f"got {fingerprint!r}"
        )
    # Privacy: the right one is not told here, or it would be typed from here.
    if stated_fingerprint != manifest.fingerprint:
        raise ConfigError(
            f"--fingerprint: {path} has another; do not sign: something was changed on "
            "the way, or it is of another revision; ask the coordinator by telephone"
        )
    book = site_files.open_ledger(_own_site(study, name))
    # Privacy: the ledger remembers what was signed, whatever happens to other files.
    book.promise(
        study.promise_of(name),
        study.identity,
        manifest.root,
        name,
        named=study.study,
        manifest=manifest.fingerprint,
        revision=manifest.revision,
        told={entry.key: entry.n_releases for entry in manifest.sites.values()},
    )
    signature = agreed.approval(manifest, book.key)
    manifest_path = study.private(name) / "manifest.json"
    files.write_json(manifest_path, manifest.model_dump(mode="json"))
    delete_mask_keys(study, name, but=manifest.sites[name].mask_key)
    out = Path(f"{name}.approval.json")
    content = {"name": name, "manifest": manifest.fingerprint}
    files.write_json(out, content | {"signature": signature.hex()})
    return out


def approved_manifest(study: StudyConfig, name: str) -> Manifest:
    """The manifest that a site approved, which holds today.

    Raises
    ------
    ConfigError
        If it has approved none, it has ended, or the study file changed since.
    """
    path = study.private(name) / "manifest.json"
    if not path.exists():
        raise ConfigError(
            f"{path}: not found; a site answers for a manifest that it approved: "
            f"capeneuro join STUDY --site {name}"
        )
    manifest = read(path)
    if manifest.ends < date.today():
        delete_mask_keys(study, name)
    fits(study, manifest, path)
    # Privacy: the ledger knows the last one, whatever file was put in its place.
    signed = _signed(study, flow.one_site(site_files.load_sites(study), name))
    last = _of_root(signed, manifest) or signed
    if last and last[-1].manifest != manifest.fingerprint:
        raise ConfigError(
            f"{path}: is not the manifest that this site approved last, "
            f"{last[-1].manifest}; bring that back, or approve a revision"
        )
    return manifest


# --- at the coordinator --------------------------------------------------------------


def assemble(
    study: StudyConfig,
    entries: Iterable[Path],
    before: Path | None = None,
    why: str = "",
    ends: date | None = None,
) -> Manifest:
    """Put the sites' entries together with the aggregator's keys.

    Parameters
    ----------
    study
        Whose sites they are.
    entries
        One file of :func:`enter` for each site.
    before, why
        The manifest that this one supersedes, and the reason; None: a new lineage.
    ends
        Last day; by default a year from today.

    Returns
    -------
    Manifest
        Also written to ``manifest.json``, and kept at the aggregator.

    Raises
    ------
    ConfigError
        If a site's entry lacks, is of another study, or is not signed by its key.
    """
    entries = list(entries)
    site_entries = [_read(Entry, path) for path in entries]
    names = [entry.name for entry in site_entries]
    if sorted(names) != sorted(study.site_names):
        raise ConfigError(
            f"entries: must be one of each of {', '.join(study.site_names)}, got "
            f"{', '.join(names) or 'none'}"
        )
    for path, entry in zip(entries, site_entries, strict=True):
        if entry.study != study.digest:
            raise ConfigError(
                f"{path}: study: made for another study file; send {entry.name} this "
                "one, and ask for its entry again"
            )
    old = None if before is None else read(before)
    if (old is not None) != bool(why):
        raise ConfigError("--before, --why: a revision has both, a first manifest none")
    hub_manifest = study.private(HUB) / "manifest.json"
    if hub_manifest.exists():
        now = read(hub_manifest)
        signed = sorted(set(now.sites) - set(now.missing(_approved(study))))
        # By files a site approves in the visit in which it answers.
        has_asked = (study.private(HUB) / VISITS).exists()
        if (signed or has_asked) and (
            old is None or old.fingerprint != now.fingerprint
        ):
            # Privacy: who has signed would answer for what the lead no longer has.
            revision = study.private(HUB) / f"manifest-{now.revision}.json"
            why_not = (
                f"signed by {', '.join(signed)}"
                if signed
                else "requests of it are out, whose sites may have signed"
            )
            raise ConfigError(
                f"{hub_manifest}: {why_not}; to change it add --before {revision} "
                "--why ..."
            )
    if not KEY.exists():
        print(f"made the aggregator's key: {KEY}; back it up")
    sign, seal = _keys()
    manifest = Manifest(
        lineage="" if old is None else old.root,
        revision=0 if old is None else _next_revision(study, old),
        supersedes="" if old is None else old.fingerprint,
        why=why,
        study=study.study,
        study_digest=study.digest,
        version=__version__,
        promise=_promise(study),
        without_noise=_without_noise(study),
        inputs=_inputs(study),
        aggregator={
            "at": study.aggregator or "",
            "sign": sign.public_key().public_bytes_raw().hex(),
            "seal": seal.public_key().public_bytes_raw().hex(),
        },
        sites={entry.name: entry for entry in site_entries},
        ends=ends or date.today() + LASTS,
    )
    path = Path("manifest.json")
    fits(study, manifest, path)
    if wrong := manifest.wrong():
        raise ConfigError(f"{wrong}; ask the site for its file again")
    for copy in (
        path,
        hub_manifest.with_name(f"manifest-{manifest.revision}.json"),
        hub_manifest,
    ):
        files.write_json(copy, manifest.model_dump(mode="json"))
    return manifest


def _next_revision(study: StudyConfig, before: Manifest) -> int:
    """Number of a revision, which no other had, also none that a site declined."""
    names = [path.stem for path in study.private(HUB).glob("manifest-*.json")]
    numbers = [name.removeprefix("manifest-") for name in names]
    return max([before.revision, *(int(n) for n in numbers if n.isdecimal())]) + 1


def give_up(study: StudyConfig, name: str, reason: str) -> None:
    """Write down that a site is gone for good, which somebody decided.

    Parameters
    ----------
    study, name
        The study, and the site.
    reason
        Why, for the record.

    Raises
    ------
    ConfigError
        If it is no site of the study, too few would remain, or there is no reason.
    """
    gone = site_files.gone(study)
    if name not in study.site_names:
        names = some(study.site_names)
        raise ConfigError(f"--gone: must be one of {names}, got {name!r}")
    if not reason.strip():
        raise ConfigError("--reason: must say why the site is given up; add it")
    if study.survivor_threshold < len(study.sites):
        raise ConfigError(
            f"--gone: study {study.study} does without lost sites by itself; nobody "
            "has to be given up"
        )
    n_sites = len(study.site_names)
    n_left = n_sites - len({*gone, name})
    if not accounting.threshold_holds(n_sites, study.n_colluding, n_left):
        raise ConfigError(
            f"--gone: of {n_sites} sites, of which {study.n_colluding} may collude, "
            f"{n_left} would remain, too few to remember what each other answered; "
            "wait, or make a revision of the manifest without the site"
        )
    if name not in gone:
        today = date.today().isoformat()
        gone[name] = {"reason": reason.strip(), "on": today}
        files.write_json(site_files.gone_file(study), gone)
    print(
        f"{name} is given up: a round that it has not answered is void and stays "
        "charged; the others go on where the promise pays for another attempt"
    )


def take_back(study: StudyConfig, name: str) -> None:
    """Undo :func:`give_up` of a site, before anything went on without it."""
    gone = {n: why for n, why in site_files.gone(study).items() if n != name}
    files.write_json(site_files.gone_file(study), gone)


def collect(study: StudyConfig, approvals: Iterable[Path]) -> list[str]:
    """Keep the sites' approvals; the sites whose approval lacks.

    Raises
    ------
    ConfigError
        If one is of another manifest or its site did not sign it.
    """
    manifest, path = _at_hub(study)
    # Those of an earlier revision count no more.
    signatures = {
        name: signature
        for name, signature in _approved(study).items()
        if name in manifest.sites and name not in manifest.missing({name: signature})
    }
    for path in approvals:
        approval = _read(Approval, path)
        if approval.manifest != manifest.fingerprint:
            raise ConfigError(
                f"{path}: manifest: is not the one that is here, revision "
                f"{manifest.revision}; {approval.name} signs manifest.json again"
            )
        if approval.name not in manifest.sites:
            raise ConfigError(
                f"{path}: name: must be one of {', '.join(manifest.sites)}, got "
                f"{approval.name!r}"
            )
        signatures[approval.name] = bytes.fromhex(approval.signature)
        if approval.name in manifest.missing(signatures):
            raise ConfigError(
                f"{path}: signature: is not that of {approval.name}'s key"
            )
    plain = {name: signature.hex() for name, signature in signatures.items()}
    files.write_json(study.private(HUB) / "approvals.json", plain)
    return manifest.missing(signatures)


def authority(study: StudyConfig) -> tuple[Authority, dict[str, bytes]]:
    """The aggregator's keys for a study, and the sites' approvals of it.

    By files a site approves in the visit in which it answers first, so approvals may
    lack.

    Raises
    ------
    ConfigError
        If there is no manifest, a site has not approved it, it is of another study
        file, or the key here is not the one that the sites agreed on.
    """
    manifest, path = _at_hub(study)
    approvals = _approved(study)
    missing = manifest.missing(approvals)
    if missing and study.federation != "files":
        raise ConfigError(
            f"{path}: not approved by {some(missing)}; collect: capeneuro "
            "federation approvals STUDY APPROVAL..."
        )
    if not KEY.exists():
        raise ConfigError(
            f"{KEY}: not found; restore the aggregator's key, or revise the manifest"
        )
    keys = Authority(manifest.digest, *_keys())
    if keys.public != manifest.asker:
        raise ConfigError(
            f"{KEY}: is not the aggregator's key of the manifest; "
            "restore it, or revise the manifest"
        )
    return keys, approvals


# --- both ----------------------------------------------------------------------------


def read(path: Path) -> Manifest:
    """Read a manifest and check it in itself; raises ConfigError."""
    manifest = _read(Manifest, path)
    if wrong := manifest.wrong():
        raise ConfigError(f"{path}: {wrong}")
    return manifest


def fits(study: StudyConfig, manifest: Manifest, path: Path) -> None:
    """Raise ConfigError unless a manifest is of this study file, package and day."""
    over_network(study)
    facts = {
        "study_digest": (manifest.study_digest, study.digest),
        "version": (manifest.version, __version__),
        "sites": (sorted(manifest.sites), sorted(study.site_names)),
        "promise": (manifest.promise.model_dump(), _promise(study)),
        "without_noise": (manifest.without_noise, _without_noise(study)),
        **{
            f"inputs.{path}": (manifest.inputs.get(path), facts)
            for path, facts in _inputs(study).items()
        },
        "aggregator.at": (manifest.aggregator.at, study.aggregator or ""),
    }
    for key, (stated, local) in facts.items():
        if stated != local:
            raise ConfigError(
                f"{path}: {key}: is not that of the study file here; all parties need "
                "the same file and version, or a revision of the manifest"
            )
    if manifest.ends < date.today():
        raise ConfigError(f"{path}: ended on {manifest.ends}; revise it to go on")


def summary(manifest: Manifest, before: Manifest | None = None) -> str:
    """A manifest in lines, to be read before it is signed.

    Parameters
    ----------
    manifest
        What is to be signed.
    before
        What was signed; None: nothing.
    """
    at_site, p = manifest.aggregator.at, manifest.promise
    seats = {"": "not declared, counted as a site", "independent": "at no site"}
    seat = seats.get(at_site, f"at {at_site}")
    of = {"sample": "one volume (of a person with n volumes the loss mu is n times)"}
    of["subject"] = "everything of a person"
    promise = f"epsilon {p.epsilon:g}, delta {p.delta:g}, for {of[p.unit]}"
    promise += f"; the aggregator and {p.n_colluding} of the sites may collude"
    if p.arm == "non-private":
        promise = (
            "no privacy: exact numbers of simulated or public data leave the sites"
        )
    lines = [
        f"study {manifest.study!r}, revision {manifest.revision}"
        + (f" ({manifest.why})" if manifest.why else ""),
        f"promise: {promise}",
        *(f"  {name}: epsilon {e:g}" for name, e in p.site_epsilon.items()),
        f"holds until {manifest.ends}; the aggregator: {seat}",
    ]
    lines += ["without noise, exact, each site tells:"]
    lines += [f"  {line}" for line in manifest.without_noise]
    lines += [f"starts from {path}, SHA-256 {d}" for path, d in manifest.inputs.items()]
    lines += [
        f"  {name}: {entry.institution} ({entry.contact}), {entry.kind} data"
        for name, entry in manifest.sites.items()
    ]
    if before is not None and before.fingerprint != manifest.fingerprint:
        lines += [f"changed: {line}" for line in _changes(before, manifest)]
    return "\n".join(lines)


def _changes(old: Manifest, new: Manifest) -> list[str]:
    """Differences of two revisions, one line each."""
    a, b = (m.promise.model_dump() for m in (old, new))
    changes = [f"promise.{k} {a[k]} -> {b[k]}" for k in a if a[k] != b[k]]
    for field_name in ("study_digest", "version", "inputs", "ends", "aggregator"):
        if getattr(old, field_name) != getattr(new, field_name):
            names = {"study_digest": "the study file", "inputs": "public files"}
            changes.append(names.get(field_name, field_name))
    for name in sorted({*old.sites, *new.sites}):
        was, now = old.sites.get(name), new.sites.get(name)
        if was is None or now is None:
            changes.append(f"{name} {'joins' if was is None else 'leaves'}")
        elif was.key != now.key:
            changes.append(f"{name} has another key")
        elif (was.institution, was.contact) != (now.institution, now.contact):
            changes.append(f"{name} has another institution or contact")
    return changes


def _signed(study: StudyConfig, site: SiteConfig) -> list[PromiseLine]:
    """Manifests that a site signed for a study of this name, in order."""
    return site_files.signed(study.study, site.name, site_files.open_ledger(site))


def _of_root(signed: list[PromiseLine], manifest: Manifest) -> list[PromiseLine]:
    """Manifests of one lineage that a site signed, in order.

    A ledger that was merged into this one may have signed another lineage.
    """
    return [promise for promise in signed if promise.lineage == manifest.root]


def _follows(
    study: StudyConfig, signed: list[PromiseLine], new: Manifest, path: Path
) -> None:
    """Raise unless a manifest is the last one that was signed, or a revision of one.

    A revision may supersede one before the last, where another site declined that. What
    was signed before the last is not taken again: terms would be set back.
    """
    if not signed:
        return
    of_lineage = _of_root(signed, new)
    last = (of_lineage or signed)[-1]
    if new.fingerprint == last.manifest:
        return
    if new.fingerprint in {promise.manifest for promise in of_lineage} or (
        of_lineage and new.revision <= (-1 if last.revision is None else last.revision)
    ):
        raise ConfigError(
            f"{path}: revision: must be the last one that this site approved, "
            f"{last.manifest}, or one that supersedes it, got {new.revision}, which "
            "is of before; ask the coordinator for the last"
        )
    if new.supersedes not in {promise.manifest for promise in of_lineage}:
        # Privacy: a new lineage would start the promise to the same people anew.
        raise ConfigError(
            f"{path}: supersedes: must be a manifest of this study that this site "
            f"approved, {last.manifest}, got {new.supersedes or 'none'}; for other "
            "people give the study another name"
        )
    _promises_no_less(study, of_lineage, path)


def _promises_no_less(
    study: StudyConfig, signed: list[PromiseLine], path: Path
) -> None:
    """Raise if a study promises people less than a revision of its lineage did."""
    promise = study.promise_of(signed[-1].site)
    mu = min(line.mu for line in signed)
    units = {line.unit for line in signed}
    if promise.mu > mu * (1 + site_files.TOLERANCE) or (
        "subject" in units and promise.unit == "sample"
    ):
        before = accounting.epsilon_from_mu(mu, promise.delta)
        raise ConfigError(
            f"{path}: promise: must not be weaker than what people were promised, "
            f"epsilon {before:.4g} for one {min(units, key=UNITS.index)}, got "
            f"{promise.epsilon:g} for one {promise.unit}; what is to cost more is a "
            "study of another name"
        )
    # Of sites that remain no more than all others can collude.
    guarded = max(line.n_colluding or 0 for line in signed)
    least = min(guarded, len(study.sites) - 1)
    if study.arm in COOPERATIVE_ARMS and study.n_colluding < least:
        n_others = least - (not study.is_independent)
        raise ConfigError(
            f"{path}: budget.n_colluding: must guard against {least} sites, as people "
            f"were promised, got {study.n_colluding}; set budget.n_colluding: "
            f"{n_others} in the study file"
        )


def _promise(study: StudyConfig) -> dict[str, Any]:
    p = study.promise
    return {
        "arm": study.arm,
        "epsilon": p.epsilon,
        "site_epsilon": dict(study.budget.site_epsilon),
        "delta": p.delta,
        "unit": p.unit,
        "relation": p.relation,
        "n_colluding": study.n_colluding,
        "survivor_threshold": study.survivor_threshold,
    }


def _without_noise(study: StudyConfig) -> tuple[str, ...]:
    """Numbers that leave each site without noise, as the manifest lists them."""
    rows = privacy_record.without_noise(study)
    return tuple(f"{row['description']} ({row['stated_by']})" for row in rows)


def _inputs(study: StudyConfig) -> dict[str, str]:
    """SHA-256 of each public file of a study: its mask, means, prior, names."""
    digests = {}
    for member in study.full_study.members.values():
        for path in registry.of(member).public_files():
            try:
                digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            except OSError as error:
                raise ConfigError(
                    f"{path}: {error.strerror}; what a study starts from is part of "
                    "what its parties sign"
                ) from None
    return digests


def over_network(study: StudyConfig) -> None:
    """Raise ConfigError unless a study's sites work at their own institutions."""
    if not study.is_apart:
        raise ConfigError(
            f"study {study.study}: federation: must be nvflare or files for sites at "
            f"other institutions, got {study.federation!r}"
        )


def _own_site(study: StudyConfig, name: str) -> SiteConfig:
    over_network(study)
    site = flow.one_site(site_files.load_sites(study), name)
    site_files.check_ceilings(study, {name: site})
    return site


def manifest_of_aggregator(study: StudyConfig) -> Manifest:
    """Manifest at the aggregator; raises ConfigError if there is none of the study."""
    return _at_hub(study)[0]


def _at_hub(study: StudyConfig) -> tuple[Manifest, Path]:
    """The manifest at the aggregator, and where it is."""
    path = study.private(HUB) / "manifest.json"
    if not path.exists():
        raise ConfigError(
            f"{path}: not found; in the aggregator's folder: capeneuro federation "
            "manifest STUDY ENTRY..."
        )
    manifest = read(path)
    fits(study, manifest, path)
    return manifest, path


def _approved(study: StudyConfig) -> dict[str, bytes]:
    path = study.private(HUB) / "approvals.json"
    if not path.exists():
        return {}
    try:
        return {n: bytes.fromhex(s) for n, s in json.loads(path.read_text()).items()}
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"{path}: damaged; remove it and collect again") from None


def _keys() -> tuple[Ed25519PrivateKey, X25519PrivateKey]:
    """The aggregator's keys: a file of its own, in no kit."""
    files.keep_private()
    KEY.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = durable_files.secret(KEY)
    sign = masking.derive(secret, b"aggregator sign")
    seal = masking.derive(secret, b"aggregator seal")
    return (
        Ed25519PrivateKey.from_private_bytes(sign),
        X25519PrivateKey.from_private_bytes(seal),
    )


def _read(form: Any, path: Path) -> Any:
    try:
        return agreed.parse(form, path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; check the path") from None
