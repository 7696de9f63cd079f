"""A renewed certificate is put into a kit in one step, and running parties take it."""

import io
import zipfile
from pathlib import Path

import pytest
from answering import DAY, Authority, make_kit
from tiny_study import command

from capeneuro.config.errors import ConfigError
from capeneuro.flare import kit, renewal


@pytest.fixture
def ours(tmp_path) -> Authority:
    return Authority(tmp_path / "ours", "study")


@pytest.fixture
def folder(tmp_path, ours) -> Path:
    return make_kit(tmp_path / "kit", ours, 8002, end=5 * DAY)


def signed(
    folder: Path, authority: Authority, name: str = "site-0", **about
) -> tuple[Path, Path]:
    """A signed zip, and the folder with the new key, as FLARE's commands leave them."""
    folder.mkdir()
    certificate, key = authority.issue("new", name, **about)
    request = key.rename(folder / "site-0.key").parent
    path = folder / "site-0.signed.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(certificate, "site-0.crt")
        archive.write(authority.root, "rootCA.pem")
    return path, request


def test_a_certificate_and_its_key_are_put_in_place_together(tmp_path, ours, folder):
    path, request = signed(tmp_path / "new", ours)
    before = {p.name: p.read_bytes() for p in (folder / "startup").iterdir()}
    until = renewal.renew(folder, path, request)
    assert kit.certificate(folder).not_valid_after_utc == until
    startup = folder / "startup"
    assert (startup / "client.key").read_bytes() == next(
        request.glob("*.key")
    ).read_bytes()
    assert (startup / "client.key").stat().st_mode & 0o777 == 0o600
    for name in before.keys() - {"client.key", "client.crt"}:
        assert (startup / name).read_bytes() == before[name]
    kept = {p.name: p.read_bytes() for p in (folder / renewal.BEFORE).iterdir()}
    assert kept == before
    assert {p.name for p in folder.iterdir()} == {"startup", renewal.BEFORE}


REFUSED = {
    "another authority": ({"authority": "others"}, "another federation"),
    "another party": ({"name": "site-1"}, "must be for .*site-0.*got .*site-1"),
    "no later": ({"end": 4 * DAY}, "must end later"),
    "not yet": ({"begin": DAY}, "begins later"),
    "another key": ({"request": False}, "--from FOLDER"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_continue_the_certificate_is_refused(
    tmp_path, ours, folder, name
):
    about, text = REFUSED[name]
    about = dict(about)
    others = Authority(tmp_path / "others", "study")
    authority = {"ours": ours, "others": others}[about.pop("authority", "ours")]
    has_request = about.pop("request", True)
    path, request = signed(tmp_path / "new", authority, **about)
    before = (folder / "startup/client.crt").read_bytes()
    with pytest.raises(ConfigError, match=text) as error:
        renewal.renew(folder, path, request if has_request else None)
    assert "\n" not in str(error.value)
    assert (folder / "startup/client.crt").read_bytes() == before
    assert {p.name for p in folder.iterdir()} == {"startup"}


def test_a_file_that_is_no_signed_zip_is_one_line(tmp_path, folder, capsys):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.crt", b"0" * (renewal.LARGEST + 1))
    for content in (b"no zip", buffer.getvalue()):
        (tmp_path / "x.zip").write_bytes(content)
        assert command("federation", "renew", str(folder), str(tmp_path / "x.zip")) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "not the NAME.signed.zip" in line


def test_a_file_that_is_not_there_or_not_for_this_user_says_so(tmp_path, folder):
    with pytest.raises(ConfigError, match="No such file"):
        renewal.renew(folder, tmp_path / "new.signed.zip")


def test_where_folders_cannot_be_exchanged_it_is_renamed(
    tmp_path, ours, folder, monkeypatch
):
    monkeypatch.setattr(renewal.ctypes, "CDLL", lambda *_, **__: object())
    path, request = signed(tmp_path / "new", ours)
    until = renewal.renew(folder, path, request)
    assert kit.certificate(folder).not_valid_after_utc == until
    assert {p.name for p in folder.iterdir()} == {"startup", renewal.BEFORE}
