"""What a console without Greek shows: words, not numbers of characters; files stay as they are."""

import io
import sys
import tomllib

import pytest

from affinedp.cli import output
from affinedp.cli.spelling import escaped, spelled


def console(encoding):
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize(
    ("encoding", "text", "shown"),
    [
        ("cp1252", "ε = 1, δ ≤ 10⁻⁶", "epsilon = 1, delta <= 10^-6"),
        ("ascii", "Σ ± ½ … −1", "Sigma +- 1/2 ... -1"),
        ("ascii", "x₁² ‖μ‖ → ∞", "x_1^2 |mu| -> infinity"),
        ("utf-8", "ε ≤ δ", "ε ≤ δ"),
        ("cp1252", "Łódź", "\\u0141ód\\u017a"),
        (None, "ε", "ε"),
    ],
)
def test_signs_become_words(encoding, text, shown):
    stream = console(encoding) if encoding else object()
    assert spelled(text, stream) == shown


@pytest.mark.parametrize("name", ["ε", "é", "Łódź", "𝛿", "plain"])
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_a_file_is_read_back_as_it_was(name, encoding):
    text = escaped(f'names = ["{name}"]', console(encoding))
    assert tomllib.loads(text) == {"names": [name]}


def test_a_table_stays_in_line(monkeypatch):
    stream = console("ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    output.say_table(("what", "ε"), [("a", "1"), ("δ", "2")], right=["ε"])
    stream.flush()
    lines = stream.buffer.getvalue().decode("ascii").splitlines()
    shown = [line for line in lines if set(line) & set("12e")]
    assert "epsilon" in shown[0]
    assert "delta" in shown[2]
    assert len({len(line) for line in shown}) == 1
