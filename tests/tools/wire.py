"""What sites send while a step runs, beside what the study's record says of it."""

from typing import Any

import numpy as np
import pytest

from capeneuro.federation.site import Site

# Numbers of people under noise, and the same under masks that cancel.
NOISED = {"noisy", "masked"}
Sent = list[tuple[str, str, dict[str, Any]]]


def listen(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Keep every answer of every site in this process: site, request, fields."""
    answer, sent = Site.answer, []

    def answered(site: Site, what: str, message: dict[str, Any]) -> dict[str, Any]:
        reply = answer(site, what, message)
        sent.append((site.name, what, reply))
        return reply

    monkeypatch.setattr(Site, "answer", answered)
    return sent


def assert_named(record: dict[str, Any], sent: Sent) -> None:
    """Each field that left is noised, or named in the record; so are its numbers."""
    named = {row["sent_as"] for row in record["without_noise"]}
    noised: dict[str, int] = {}
    assert {what for _, what, _ in sent} >= {"describe", "release"}
    for name, what, reply in sent:
        for field, value in reply.items():
            assert field in NOISED | named, (what, field)
            if field == "n_units":
                assert record["n_units"][name] == value
            elif field == "noisy":
                noised[name] = noised.get(name, 0) + np.size(value)
            elif field not in NOISED:  # of data nothing but a keyed digest
                assert not isinstance(value, np.ndarray | float | int), (what, field)
    sizes = [r["size"] for r in record["releases"]]
    assert set(noised.values()) == {sum(sizes)}
