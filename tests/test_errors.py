"""Refusals: they reach whoever called, from another process, too."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil

import pytest

import affinedp
from affinedp.errors import AffineDPError
from affinedp.tables.refusals import BrokenTotal, BrokenTotalsError


def _subclasses(kind):
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


def _every_refusal():
    for module in pkgutil.walk_packages(affinedp.__path__, "affinedp."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # of an extra that is not there
                continue
    own = (one for one in _subclasses(AffineDPError) if one.__module__.startswith("affinedp"))
    return sorted({AffineDPError, *own}, key=lambda one: (one.__module__, one.__qualname__))


def _made(kind):
    """A refusal with data of the kinds that its parameters name."""
    given = {"position": 1, "size": 0.5, "residual": 0.5, "estimate": 3.0, "limit": 2.0}
    lists = {"rows": [3, 4], "entries": ["a"], "pivots": [1.0], "neighbours": ["x"]}
    places, names = [], {}
    if kind.__init__ is not ValueError.__init__:
        for name, one in inspect.signature(kind.__init__).parameters.items():
            value = given.get(name, lists.get(name, "words of it"))
            if one.kind == one.KEYWORD_ONLY:
                names[name] = value
            elif name != "self" and one.kind == one.POSITIONAL_OR_KEYWORD:
                places.append(value)
    if kind is BrokenTotalsError:
        places[1] = [BrokenTotal("row 7", "a = b")]
    return kind(*(places or ["words of it"]), **names)


@pytest.mark.parametrize("kind", _every_refusal(), ids=lambda kind: kind.__name__)
def test_every_refusal_comes_back_as_it_was_sent(kind):
    sent = _made(kind)
    sent.add_note("in the second part")
    for back in (pickle.loads(pickle.dumps(sent)), copy.copy(sent)):
        assert type(back) is kind
        assert str(back) == str(sent)
        assert vars(back) == vars(sent)


@pytest.mark.parametrize("kind", _every_refusal(), ids=lambda kind: kind.__name__)
def test_every_refusal_can_say_where(kind):
    sent = _made(kind)
    found = sent.located("part 3")
    assert type(found) is kind
    assert str(found) == f"part 3: {sent}"
    assert vars(found) == vars(sent)
