"""Zips that somebody carried: what is in them, or one line and nothing written."""

import stat
import struct
import time
import zipfile
from pathlib import Path

import pytest

from capeneuro.federation import folder

MEMBERS = {"answer.json": b"{}", "1-ping.answer": bytes(100)}


def plain(path: Path, members: dict[str, bytes], **options) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_what_is_written_is_read_and_equal_content_is_an_equal_file(tmp_path):
    one, two = tmp_path / "a/one.zip", tmp_path / "two.zip"
    folder.write_zip(one, MEMBERS)
    time.sleep(0.01)
    folder.write_zip(two, dict(MEMBERS))
    assert folder.read_zip(one, folder.ANSWER) == MEMBERS
    assert one.read_bytes() == two.read_bytes()
    assert not list(tmp_path.rglob("*.part"))


def bomb(path: Path) -> Path:
    """Zeros that take a two-hundredth of their length; 100 GB would take 500 MB."""
    how = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}
    return plain(path, {"1-ping.answer": bytes(2**27)}, **how)


def forged(path: Path) -> Path:
    """A member that says to be 100 GB long, stored as it is."""
    raw = bytearray(plain(path, MEMBERS).read_bytes())
    place = raw.rindex(b"PK\x01\x02")
    struct.pack_into("<I", raw, place + 24, 2**32 - 2)
    path.write_bytes(raw)
    return path


def link(path: Path) -> Path:
    info = zipfile.ZipInfo("1-ping.answer")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    return path


def locked(path: Path) -> Path:
    raw = bytearray(plain(path, MEMBERS).read_bytes())
    for mark, at in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        place = raw.index(mark)
        raw[place + at] |= 1
    path.write_bytes(raw)
    return path


def doubled(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("answer.json", b"{}")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("answer.json", b"{}")
    return path


def text_of(path: Path, text: bytes) -> Path:
    path.write_bytes(text)
    return path


HOSTILE = {
    "a bomb": (bomb, "compressed"),
    "a forged size": (forged, "compressed|unpacks|cut or changed"),
    "outside": (lambda p: plain(p, {"../x": b"1"}), "another name"),
    "absolute": (lambda p: plain(p, {"/tmp/x": b"1"}), "another name"),
    "a folder": (lambda p: plain(p, {"answer.json/x": b"1"}), "another name"),
    "encrypted": (locked, "compressed or encrypted"),
    "two of one name": (doubled, "two files of one name"),
    "too many": (
        lambda p: plain(
            p, {f"{i % 10}-{'a' * (i // 10 + 1)}.answer": b"" for i in range(17)}
        ),
        "at most 16",
    ),
    "cut": (
        lambda p: text_of(p, plain(p, MEMBERS).read_bytes()[:-30]),
        "copy it again",
    ),
    "no zip": (lambda p: text_of(p, bytes(range(256)) * 9), "copy it again"),
    "empty": (lambda p: text_of(p, b""), "copy it again"),
    "a folder in its place": (lambda p: p.mkdir() or p, "cannot be read"),
    "absent": (lambda p: p, "cannot be read"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_what_was_not_written_here_is_one_line_and_writes_nothing(tmp_path, how):
    make, rule = HOSTILE[how]
    path = make(tmp_path / "x.zip")
    before = sorted(tmp_path.rglob("*"))
    start = time.perf_counter()
    with pytest.raises(ValueError, match=rule) as error:
        folder.read_zip(path, folder.ANSWER)
    assert time.perf_counter() - start < 1
    assert "\n" not in str(error.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_in_a_zip_is_text_and_nothing_is_followed(tmp_path):
    members = folder.read_zip(link(tmp_path / "x.zip"), folder.ANSWER)
    assert members == {"1-ping.answer": b"/etc/passwd"}


def test_a_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "x.zip"
    folder.write_zip(path, MEMBERS)
    raw = bytearray(path.read_bytes())
    raw[raw.index(bytes(100)) + 50] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="copy it again"):
        folder.read_zip(path, folder.ANSWER)
