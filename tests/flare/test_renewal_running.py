"""Certificates of a site and of the server are renewed while a study runs."""

import time
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra federated")

import parties
from parties import SITES, said

from capeneuro.flare import kit, renewal

ROUNDS = 160


def ask(kits: Path, party: str, name: str, days: int) -> tuple[Path, Path]:
    """Ask for a certificate and sign it: the signed zip, and the new key's folder."""
    folder = f"{party}-{days}"
    kit.request(kits / f"{party}.yaml", kits / folder)
    request, signed = f"{folder}/{name}.request.zip", f"{folder}/{name}.signed.zip"
    authority = ["--ca-dir", "ca", "--profile", "project.yaml"]
    length = ["--valid-days", str(days), "--out", signed]
    kit._nvflare(kits, ["cert", "approve", request, *authority, *length])
    return kits / signed, kits / folder


@pytest.mark.slow
def test_a_study_goes_on_with_renewed_certificates(tmp_path):
    """``-s`` prints for how many seconds a party was away."""
    root = tmp_path / "root"
    parties.write_parties(root, ROUNDS)
    parties.make_kits(root / "together", parties.free_port())
    kits = root / "together/kits"

    def charged() -> int:
        return parties.n_charged(root, "site-1")

    # Before the study: its rounds are quicker than FLARE's command.
    of_site = ask(kits, "site-1", "site-1", 2000)
    of_server = ask(kits, "server", "localhost", 2100)

    def renewed(party: str, where: str, signed: tuple[Path, Path]) -> None:
        """Rounds stand still while the party connects anew, and go on."""
        renewal.renew(kits / party / "kit", signed[0], signed[1])
        last = done = time.monotonic()
        before = n = charged()
        longest, noticed = 0.0, 0.0
        while n < before + 25:
            assert time.monotonic() < done + 120, said(root / where)
            if not noticed and "the certificate was renewed" in said(root / where):
                noticed = time.monotonic() - done
            if charged() > n:
                longest = max(longest, time.monotonic() - last)
                n, last = charged(), time.monotonic()
            time.sleep(0.02)
        assert noticed, said(root / where)
        print(f"{party}: noticed after {noticed:.1f} s, no round for {longest:.1f} s")

    with (
        parties.site(root, kits, "site-0"),
        parties.site(root, kits, "site-1"),
        parties.site(root, kits, "site-2"),
        parties.aggregate(root, kits, timeout=10, patience=120) as drive,
    ):
        parties.wait_for(lambda: charged() > 10, 60, "ten rounds")
        renewed("site-1", "site-1", of_site)
        renewed("server", "aggregator", of_server)
        assert drive.wait(150) == 0, said(root / "aggregator")
    parties.assert_same_results(root)
    assert [parties.n_charged(root, name) for name in SITES] == [1 + ROUNDS] * 3
