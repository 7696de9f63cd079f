"""How far a long message is: not too often, and in words."""

from capeneuro.flare.progress import Progress


def test_a_long_message_is_shown_every_few_seconds():
    now = [0.0]
    progress = Progress(lambda: now[0])
    shown = []
    for i in range(39):
        now[0] = 10.0 * i
        if progress.note("from north", i * 1_000_000, 38_000_000):
            shown.append(progress.in_words)
    assert shown[11] == "from north: 12 of 38 MB, 100 kB/s, 4 min left"
    assert len(shown) == 38
    assert progress.in_words == ""  # all of it has passed
    now[0] += 1.0
    assert not progress.note("to north", 0, 19_000_000)


def test_short_messages_are_not_shown():
    now = [0.0]
    progress = Progress(lambda: now[0])
    for i in range(10):
        now[0] = 10.0 * i
        assert not progress.note("from north", i, 1000)
    assert progress.in_words == ""
