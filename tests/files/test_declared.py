"""The reader of files that people write: its refusals name the file, the field, the remedy."""

import json

import pytest

from affinedp.errors import AffineDPError
from affinedp.files.documents import Field, FileKind
from affinedp.files.values import a, as_written, at_least, number, numbers, one_of, texts

KIND = FileKind(
    {
        "": {"steps": Field(a("whole number"), needed="how many"), "names": Field(texts, ["x"])},
        "noise": {
            "scale": Field(number),
            "law": Field(one_of("gaussian", "laplace"), "laplace"),
            "delta": Field(at_least(below=1.0)),
            "points": Field(numbers),
            "matrix": Field(as_written),
        },
    },
    needed={"noise": ": its scale"},
    elsewhere={"links": "this is a network file"},
)
GOOD = {"steps": 3, "noise": {"scale": 2}}


def read(tmp_path, document):
    file = tmp_path / "file.json"
    file.write_text(json.dumps(document))
    return KIND.read(file, lambda told: told)


def test_what_is_read(tmp_path):
    (tmp_path / "m.csv").write_text("1,2\n3,4\n")
    told = read(tmp_path, {**GOOD, "noise": {"scale": 2, "matrix": "m.csv"}})
    assert told[""] == {"steps": 3, "names": ["x"]}
    assert (told["noise"]["scale"], told["noise"]["law"], told["noise"]["delta"]) == (
        2.0, "laplace", None,
    )  # fmt: skip
    assert told.there == {"noise"}
    assert told.rows("noise", "matrix").tolist() == [[1, 2], [3, 4]]
    assert told.given("names", "matrix") == {"steps": 3, "scale": 2.0, "law": "laplace"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": None}, "steps must be a whole number, not a NoneType"),
        ({"steps": 3.5}, "steps must be a whole number, not 3.5"),
        ({"steps": True}, "steps must be a whole number, not true"),
        ({"step": 3}, "unknown key 'step' at the top of the file; did you mean 'steps'?"),
        ({"scale": 3}, "unknown key 'scale' at the top of the file; it belongs in [noise]"),
        ({"nose": {}}, "did you mean 'noise'?"),
        ({"links": []}, "this is a network file"),
        ({"names": [1]}, "names must be a list of texts"),
        ({"noise": 3}, "'noise' must be a section [noise], not 3"),
        ({"noise": []}, "'noise' must be a section [noise], not a list"),
        ({"noise": {"steps": 3}}, "'steps' in [noise]; it belongs before the first [section]"),
        ({"noise": {"sclae": 3}}, "unknown key 'sclae' in [noise]; did you mean 'scale'?"),
        ({"noise": {"scale": "2"}}, "[noise] scale must be a number, not '2'"),
        ({"noise": {"scale": 2**60 + 1}}, "[noise] scale has more digits than a float can hold"),
        ({"noise": {"delta": 1}}, "[noise] delta must be at least 0 and less than 1, not 1.0"),
        ({"noise": {"law": "normal"}}, "[noise] law must be one of 'gaussian', 'laplace', not"),
        ({"noise": {"points": []}}, "[noise] points must be a list, not an empty list"),
        ({"noise": {"points": [1, "b"]}}, "[noise] points 2 must be a number"),
        ({"noise": {"matrix": None}}, "[noise] matrix must have a value, not null"),
    ],
)
def test_what_is_refused(tmp_path, change, said):
    with pytest.raises(AffineDPError) as refusal:
        read(tmp_path, {**GOOD, **change})
    assert str(refusal.value).startswith(f"{tmp_path / 'file.json'}: ")
    assert said in str(refusal.value)


def test_what_must_be_there(tmp_path):
    for missing, said in (("steps", "steps is missing: how many"), ("noise", "[noise] is missing")):
        with pytest.raises(AffineDPError) as refusal:
            read(tmp_path, {key: value for key, value in GOOD.items() if key != missing})
        assert said in str(refusal.value)
