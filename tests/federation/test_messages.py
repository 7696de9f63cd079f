"""Messages survive packing; nothing else gets through; a lost site does not raise."""

import json
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capeneuro.federation import in_process, messages
from capeneuro.federation.in_process import InProcess, sort_reply
from capeneuro.federation.messages import pack, unpack

ARRAYS = [
    np.arange(6, dtype="<f4").reshape(2, 3),
    np.array([np.nan, np.inf, -0.0, 5e-324]),
    np.array([-(2**63), 2**63 - 1]),
    np.array([2**64 - 1], dtype=np.uint64),
    np.array(1.5),
    np.zeros((0, 3)),
    np.arange(12.0).reshape(3, 4).T[::2],
]
PLAIN = [0, -(2**70), 1.5, 1e-300, True, None, "", "ünï\0", [1, [2.0, "x"]], {"a": {}}]
UNFIT = [
    np.array([object()]),
    np.array([1j]),
    np.array([True]),
    np.array(["text"]),
    np.array([1.0], dtype=">f8"),
    np.array([1], dtype="<i4"),
    np.float32(1.0),
    {1, 2},
    object(),
    len,
]


def _raw(header: object, buffers: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + buffers


def _array_header(**changes: object) -> dict[str, object]:
    value = {"~array": 0, "dtype": "<f8", "shape": [2], **changes}
    return {"message": {"x": value}, "sizes": [16]}


@pytest.mark.parametrize("x", ARRAYS, ids=lambda x: f"{x.dtype.str}{x.shape}")
def test_arrays_survive(x):
    y = unpack(pack({"x": x}))["x"]
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert y.tobytes() == x.tobytes()
    assert not y.flags.writeable


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_survive(value):
    received = unpack(pack({"v": value, "~": 1}))
    assert received == {"v": value, "~": 1}
    assert type(received["v"]) is type(value)


def test_bytes_and_nesting_survive(rng):
    message = {"b": b"\0\xff", "a": {"x": rng.random(3), "l": [b"", {"z": b"q"}]}}
    received = unpack(pack(message))
    assert received["b"] == b"\0\xff"
    assert received["a"]["l"] == [b"", {"z": b"q"}]
    np.testing.assert_array_equal(received["a"]["x"], message["a"]["x"])


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()
)
KEYS = st.text("abc", max_size=3)


@given(
    st.dictionaries(
        KEYS,
        st.recursive(
            st.one_of(LEAVES, st.binary(max_size=9)),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_any_message_survives_and_repacks_to_the_same_bytes(message):
    received = unpack(pack(message))
    assert received == message
    assert pack(unpack(pack(received))) == pack(received)


@pytest.mark.parametrize(
    "value", UNFIT, ids=lambda v: str(getattr(v, "dtype", type(v)))
)
def test_other_kinds_may_not_travel(value):
    with pytest.raises(TypeError, match="may not travel"):
        pack({"x": value})


@pytest.mark.parametrize("length", [0, 7, 8, 9, 30, -8, -1])
def test_truncated_bytes_are_refused(length):
    raw = pack({"x": np.arange(3.0), "y": b"abc"})
    with pytest.raises(ValueError):  # noqa: PT011  JSON errors are ValueErrors too
        unpack(raw[:length])


def test_trailing_bytes_are_refused():
    with pytest.raises(ValueError, match="cut short or too long"):
        unpack(pack({"x": np.arange(3.0)}) + b"\0")


def test_pickles_are_refused():
    with pytest.raises(ValueError):  # noqa: PT011
        unpack(pickle.dumps({"x": [1.0] * 9}))


@pytest.mark.parametrize(
    "dtype", ["|O", "O", "object", "<c16", ">f8", "<f2", "|S8", "<M8[s]", "", "<f8,<f8"]
)
def test_foreign_types_in_the_header_are_refused(dtype):
    with pytest.raises(ValueError, match="array type not allowed"):
        unpack(_raw(_array_header(dtype=dtype), bytes(16)))


@pytest.mark.parametrize("shape", [[3], [2**40], [2, 2], [-1, 3], [1], [0], []])
def test_shapes_that_do_not_fit_their_buffer_are_refused(shape):
    with pytest.raises(ValueError, match="reshape"):
        unpack(_raw(_array_header(shape=shape), bytes(16)))


@pytest.mark.parametrize("sizes", [[17], [2**50], [32, -16], [-1, 17], []])
def test_sizes_that_do_not_fit_are_refused(sizes):
    header = {**_array_header(), "sizes": sizes}
    with pytest.raises(ValueError, match="cut short or too long"):
        unpack(_raw(header, bytes(16)))


def test_a_message_above_the_cap_is_refused(monkeypatch):
    raw = pack({"x": np.zeros(100)})
    monkeypatch.setattr(messages, "LARGEST_MESSAGE", len(raw) - 1)
    with pytest.raises(ValueError, match="out of range"):
        unpack(raw)


@pytest.mark.parametrize(
    "raw",
    [
        _raw([]),
        _raw({"sizes": []}),
        _raw({"message": {}}),
        _raw({**_array_header(), "sizes": [2**70]}, bytes(16)),
        _raw(_array_header(**{"~array": 7}), bytes(16)),
        _raw({"message": {"x": {"~array": 0}}, "sizes": [0]}),
        b'\xff\xff\xff\xff\xff\xff\xff\x7f{"message": {}, "sizes": []}',
    ],
    ids=["list", "no message", "no sizes", "huge", "index", "no dtype", "length"],
)
def test_malformed_headers_are_value_errors(raw):
    with pytest.raises(ValueError):  # noqa: PT011
        unpack(raw)


def test_the_order_of_keys_does_not_change_the_bytes():
    a, b = np.zeros(2), np.ones(2)
    assert pack({"x": a, "a": b}) == pack({"a": b, "x": a})


class Echo:
    """Answers with its name, or an error if it is told to fail."""

    def __init__(self, name: str) -> None:
        self.name = name

    def answer(self, what: str, message: dict) -> dict:
        if message["fail"]:
            return {"error": "refused", "rule": "told to"}
        return {"what": what, "x": message["x"] + len(self.name)}


class Broken:
    def answer(self, what: str, message: dict) -> dict:
        raise RuntimeError("secret 1234.5")


@pytest.fixture(params=[1, 4])
def echoes(request) -> InProcess:
    return InProcess({n: Echo(n) for n in ("a", "bb", "ccc")}, request.param)


def _messages(*failing: str) -> dict[str, dict]:
    return {n: {"x": np.zeros(2), "fail": n in failing} for n in ("a", "bb", "ccc")}


def test_answers_come_back_by_name(echoes):
    replies = echoes.ask("w", _messages())
    assert [r["x"].tolist() for r in replies.ok.values()] == [[1, 1], [2, 2], [3, 3]]
    assert echoes.names == tuple(replies.ok) == ("a", "bb", "ccc")
    assert replies.lost == {}


def test_only_the_sites_named_are_asked(echoes):
    assert list(echoes.ask("w", {"bb": _messages()["bb"]}).ok) == ["bb"]


@pytest.mark.parametrize("failing", [("a",), ("a", "ccc"), ("a", "bb", "ccc")])
def test_lost_sites_do_not_raise(echoes, failing):
    replies = echoes.ask("w", _messages(*failing))
    assert replies.lost == dict.fromkeys(failing, "refused: told to")
    assert set(replies.ok) == {"a", "bb", "ccc"} - set(failing)


def test_a_site_that_raises_is_lost():
    replies = InProcess({"a": Echo("a"), "b": Broken()}).ask(
        "w", {n: {"x": np.zeros(1), "fail": False} for n in ("a", "b")}
    )
    assert set(replies.ok) == {"a"}
    assert "1234.5" not in replies.lost["b"]


def test_fold_sees_every_answer_once_and_nothing_is_kept(echoes):
    seen = []
    replies = echoes.ask("w", _messages("bb"), fold=lambda n, r: seen.append((n, r)))
    assert sorted(n for n, _ in seen) == ["a", "ccc"]
    assert [r["x"][0] for _, r in seen] == [1, 3]
    assert replies.ok == {"a": {}, "ccc": {}}
    assert set(replies.lost) == {"bb"}


def test_sort_reply_keeps_an_error_out_of_the_fold():
    replies = in_process.Replies()
    sort_reply(replies, "a", {"error": "e", "rule": "r"}, fold=pytest.fail)
    assert replies.lost == {"a": "e: r"}
