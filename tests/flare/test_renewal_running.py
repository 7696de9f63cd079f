"""Certificates of a site and of the server are renewed while a study runs."""

import time
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra federated")

import parties
from parties import SITES, said

from capeneuro.flare import kit, renewal

ROUNDS = 120


def renew(kits: Path, party: str, name: str, days: int) -> float:
    """Ask for a certificate, sign it, put it in place; when that was done."""
    folder = f"{party}-{days}"
    kit.request(kits / f"{party}.yaml", kits / folder)
    request, signed = f"{folder}/{name}.request.zip", f"{folder}/{name}.signed.zip"
    authority = ["--ca-dir", "ca", "--profile", "project.yaml"]
    length = ["--valid-days", str(days), "--out", signed]
    kit._nvflare(kits, ["cert", "approve", request, *authority, *length])
    renewal.renew(kits / party / "kit", kits / signed, kits / folder)
    return time.monotonic()


@pytest.mark.slow
def test_a_study_goes_on_with_renewed_certificates(tmp_path):
    """``-s`` prints for how many seconds a party was away."""
    root = tmp_path / "root"
    parties.write_parties(root, ROUNDS)
    parties.make_kits(root / "together", parties.free_port())
    kits = root / "together/kits"

    def charged() -> int:
        return parties.n_charged(root, "site-1")

    def renewed(party: str, name: str, where: str, days: int) -> None:
        """Rounds stand still while the party connects anew, and go on."""
        last = done = renew(kits, party, name, days)
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
        renewed("site-1", "site-1", "site-1", 2000)
        renewed("server", "localhost", "aggregator", 2100)
        assert charged() < ROUNDS, "the study was over before"
        assert drive.wait(150) == 0, said(root / "aggregator")
    parties.assert_same_results(root)
    assert [parties.n_charged(root, name) for name in SITES] == [1 + ROUNDS] * 3
