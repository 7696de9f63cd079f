"""Messages survive packing; nothing else gets through; a lost site does not raise."""

import pickle
import random
import tracemalloc
from typing import Any

import numpy as np
import pytest
from changed import ARRAYS, CHANGES, PLAIN, raw_message, real_messages
from helpers import agree, make_sites, request
from hypothesis import given
from hypothesis import strategies as st

from capeneuro.federation import transport
from capeneuro.federation.messages import SMALLEST_LIMIT, digest, pack, unpack
from capeneuro.federation.transport import InProcess, sort_reply

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
        unpack(raw_message(_array_header(dtype=dtype), bytes(16)))


@pytest.mark.parametrize("shape", [[3], [2**40], [2, 2], [1], [0], [], [2] + [1] * 99])
def test_shapes_that_do_not_fit_their_buffer_are_refused(shape):
    with pytest.raises(ValueError, match=r"reshape|dimension"):
        unpack(raw_message(_array_header(shape=shape), bytes(16)))


SHAPES = [[-1], [-1, 3], [True, 2], [2.0], ["2"], [None], [[2]], 2, "2", {}, None]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_shapes_that_are_no_list_of_whole_numbers_are_refused(shape):
    with pytest.raises(ValueError, match="shape not allowed"):
        unpack(raw_message(_array_header(shape=shape), bytes(16)))


@pytest.mark.parametrize("shape", [[0, 2**62, 2**62], [2**63, 0], [2**70, 0], [0] * 99])
def test_huge_shapes_of_no_bytes_are_refused(shape):
    with pytest.raises(ValueError):  # noqa: PT011  in numpy's words
        unpack(raw_message({**_array_header(shape=shape), "sizes": [0]}))


SIZES = [[17], [2**50], [32, -16], [-1, 17], [], [16.0], ["16"], [None, 16], 16]


@pytest.mark.parametrize("sizes", SIZES, ids=repr)
def test_sizes_that_do_not_fit_are_refused(sizes):
    header = {**_array_header(), "sizes": sizes}
    with pytest.raises(ValueError, match="cut short or too long"):
        unpack(raw_message(header, bytes(16)))


def test_a_message_above_the_limit_is_refused():
    raw = pack({"x": np.zeros(100)})
    assert unpack(raw, len(raw))
    with pytest.raises(ValueError, match="out of range"):
        unpack(raw, len(raw) - 1)


# --- each buffer once, in order ------------------------------------------------------


def _references(*numbers: Any) -> dict[str, Any]:
    return {"message": {"x": [{"~bytes": n} for n in numbers]}, "sizes": [1, 1]}


ORDERS = [(0,), (0, 0), (1, 0), (0, 1, 1), (0, 2), (0, 1, 2), (-1, 0), (False, True)]


@pytest.mark.parametrize("numbers", [*ORDERS, (0.0, 1.0), ("0", "1"), ()], ids=str)
def test_a_buffer_is_read_once_and_in_order(numbers):
    assert unpack(raw_message(_references(0, 1), b"ab"))["x"] == [b"a", b"b"]
    with pytest.raises(ValueError, match=r"out of order|not a message"):
        unpack(raw_message(_references(*numbers), b"ab"))


def test_a_repeated_reference_copies_nothing():
    buffer = bytes(2**21)
    header = {"message": {"x": [{"~bytes": 0}] * 500}, "sizes": [len(buffer)]}
    raw = raw_message(header, buffer)
    assert peak_of(raw, SMALLEST_LIMIT) < 2 * SMALLEST_LIMIT


def test_buffers_keep_the_order_of_keys_that_were_numbers():
    received = unpack(pack({"x": {2: b"two", 10: b"ten"}}))
    assert received == {"x": {"2": b"two", "10": b"ten"}}


@pytest.mark.parametrize("content", [[], 1, "x", None, {"~bytes": 0}], ids=repr)
def test_what_is_no_dict_is_no_message(content):
    with pytest.raises(ValueError, match="not a message"):
        unpack(
            raw_message({"message": content, "sizes": [0] * isinstance(content, dict)})
        )


# --- what it takes in memory ---------------------------------------------------------


def peak_of(raw: bytes, limit: int) -> int:
    """Bytes that decoding takes at most; only a ValueError may come of it."""
    tracemalloc.start()
    try:
        unpack(raw, limit)
    except ValueError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


ARRAY = '{"~array":%d,"dtype":"<f8","shape":[0]}'
BOMBS = ["[" * 500 + "]" * 500, "[" * 100 + "]" * 100, "[]", "[0]", '{"":0}', "1e9"]
BOMBS += ['{"":[' * 99 + "]}" * 99, '"ab"', '{"~bytes":%d}', ARRAY]


@pytest.mark.parametrize("piece", BOMBS, ids=lambda piece: f"{len(piece)}{piece[:9]}")
@pytest.mark.parametrize("length", [2**16, 2**20])
def test_any_message_takes_less_than_twice_the_limit(piece, length):
    """A header full of what takes most, beside one buffer that fills the limit."""
    n = (length - 99) // (len(piece) + (8 if "%" in piece else 1))
    pieces = ",".join(piece % i if "%" in piece else piece for i in range(n))
    sizes = "0," * n * ("%" in piece)
    about = '{"message":{"x":[%s],"y":{"~bytes":%d}},"sizes":[%s%d]}'
    number = n if "%" in piece else 0
    rest = SMALLEST_LIMIT - length
    header = about % (pieces, number, sizes, rest)
    raw = raw_message(header.ljust(length - 8).encode(), bytes(rest))
    assert len(raw) == SMALLEST_LIMIT
    assert peak_of(raw, SMALLEST_LIMIT) < 2 * SMALLEST_LIMIT
    if length == 2**16:  # it is a message, and is read
        assert len(unpack(raw, SMALLEST_LIMIT)["x"]) == n


def test_a_header_may_grow_with_the_limit():
    raw = pack({"x": ["abcd"] * 2**18})
    with pytest.raises(ValueError, match="header out of range"):
        unpack(raw, SMALLEST_LIMIT)
    assert len(unpack(raw)["x"]) == 2**18


@pytest.mark.parametrize("prefix", ["", "a-long-name-of-an-institution-" * 2])
def test_headers_of_64_sites_are_within_the_smallest_limit(prefix):
    sites = {prefix + name: site for name, site in make_sites([1] * 64, 2, 2).items()}
    for name, site in sites.items():
        site.name = name
    asked = request(sites, survivor_threshold=63, consistency=True)
    told, (name, *_) = agree(sites, asked), sites
    message = {"request": digest(asked), "survivors": list(sites)}
    for n, site in sites.items():
        assert "masked" in site.answer("release", told[n])
    signed = {n: s.answer("confirm", message)["signature"] for n, s in sites.items()}
    message = {**message, "signatures": signed}
    shares = sites[name].answer("unmask", message)
    assert len(shares["shares"]) == 64
    for sent in (told[name], message, shares):
        assert unpack(pack(sent), SMALLEST_LIMIT).keys() == sent.keys()


# --- whatever may come ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "n"), [(0, 10_000), pytest.param(1, 100_000, marks=pytest.mark.slow)]
)
def test_whatever_comes_is_a_message_or_a_value_error(seed, n):
    draw, real = random.Random(seed), real_messages()
    refused, most = 0, 0
    tracemalloc.start()
    for _ in range(n):
        raw = draw.choice(CHANGES)(draw, draw.choice(real), draw.choice(real))
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        try:
            assert isinstance(unpack(raw, SMALLEST_LIMIT), dict)
        except ValueError:
            refused += 1
        most = max(most, tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert 0.5 * n < refused < n  # some changes are none
    assert most < 2 * SMALLEST_LIMIT


@pytest.mark.parametrize(
    "raw",
    [
        raw_message([]),
        raw_message({"sizes": []}),
        raw_message({"message": {}}),
        raw_message({**_array_header(), "sizes": [2**70]}, bytes(16)),
        raw_message(_array_header(**{"~array": 7}), bytes(16)),
        raw_message({"message": {"x": {"~array": 0}}, "sizes": [0]}),
        raw_message('{"message": {"x": "ü"}, "sizes": []}'.encode()),
        raw_message('{"message": {}, "sizes": []}'.encode("utf-16")),
        b'\xff\xff\xff\xff\xff\xff\xff\x7f{"message": {}, "sizes": []}',
    ],
    ids=[
        "list",
        "no message",
        "no sizes",
        "huge",
        "index",
        "no dtype",
        "latin",
        "wide",
        "length",
    ],
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
    replies = transport.Replies()
    sort_reply(replies, "a", {"error": "e", "rule": "r"}, fold=pytest.fail)
    assert replies.lost == {"a": "e: r"}
