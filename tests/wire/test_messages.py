"""Messages that are none: short in the log, and mentioned once in a while."""

from hypothesis import given
from hypothesis import strategies as st

from affinedp.wire.messages import Dropped, printable


@given(st.binary(max_size=1000))
def test_what_is_logged_is_short_and_printable(payload):
    text = printable(payload)
    assert text.isprintable()
    assert len(text) <= 61


def test_trouble_is_mentioned_once_in_a_while(caplog):
    dropped = Dropped("cloud")
    for _ in range(1000):
        dropped.add("malformed", "it is not JSON", b"\x1b[2Jx" * 100)
    dropped.add("late", "step 3")
    assert dropped.counts == {"malformed": 1000, "late": 1}
    assert len(caplog.messages) == 2
    assert "\x1b" not in caplog.text
