"""Refusals: they reach whoever called, from another process, too."""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import pickle
import pkgutil

import pytest

import affinedp
from affinedp import functions
from affinedp.errors import AffineDPError


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


M = affinedp.AffineManifold.from_equations(["a + b = c"])
GAUSSIAN = affinedp.design_gaussian(M, epsilon=1.0, delta=1e-6)
Y = [1.0, 2.0, 3.0]


def _tangent(**options):
    return affinedp.design_tangent(M, "a * a", epsilon=1.0, delta=1e-6, **options)


MISTAKES = {
    "compare of two": lambda: _tangent(compare=[1, 2]),
    "compare of none": lambda: _tangent(compare=[]),
    "table of a number": lambda: _tangent(table=math.nan),
    "table without a release": lambda: _tangent(table=(GAUSSIAN,)),
    "table without a mechanism": lambda: _tangent(table=(1, Y)),
    "table of text": lambda: _tangent(table=(GAUSSIAN, "abc")),
    "rank nan": lambda: functions.order_statistic(math.nan),
    "rank inf": lambda: functions.order_statistic(math.inf),
    "rank none": lambda: functions.order_statistic(None),
    "rank between": lambda: functions.order_statistic(1.5),
    "limit": lambda: functions.exceedance("abc"),
    "limit nan": lambda: functions.exceedance(math.nan),
    "cut": lambda: functions.clipped_sum("abc"),
    "total": lambda: functions.gini("abc"),
    "total inf": lambda: functions.gini(math.inf),
    "constant": lambda: functions.lipschitz(max, "abc"),
    "no function": lambda: functions.lipschitz(None, 1.0),
    "no entries": lambda: functions.peak(None),
    "entries in one text": lambda: functions.peak("ab"),
    "numbers for entries": lambda: functions.peak([1]),
    "interval of text": lambda: GAUSSIAN.interval("abc"),
    "interval of a mapping": lambda: GAUSSIAN.interval({}),
    "interval of ragged rows": lambda: GAUSSIAN.interval([Y, [1.0]]),
    "function of text": lambda: GAUSSIAN.function("abc", "a/c"),
    "stack": lambda: GAUSSIAN.stack(None),
    "compose": lambda: affinedp.compose(None),
    "load": lambda: affinedp.Mechanism.load(None),
    "save": lambda: GAUSSIAN.save(None),
    "names": lambda: affinedp.AffineManifold([[1, 1, -1]], names=3),
    "names of equations": lambda: affinedp.AffineManifold.from_equations(["a = b"], names=3),
    "equations": lambda: affinedp.AffineManifold.from_equations(None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_given_by_mistake_is_refused_with_a_sentence(mistake):
    with pytest.raises(AffineDPError, match=r"\w+ \w+ \w+"):
        MISTAKES[mistake]()


RAGGED = [[1, 2], [3]]
TOTAL = affinedp.AffineManifold.from_equations(["a + b = c"])
NOISE = affinedp.design_laplace(TOTAL, epsilon=1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: affinedp.verify(TOTAL, RAGGED), "noise_matrix is not a rectangular array"),
        (lambda: affinedp.design(TOTAL, epsilon=1.0, weights=RAGGED), "weights is not a rectang"),
        (lambda: affinedp.design_gaussian(TOTAL, epsilon=1.0, delta=RAGGED), "delta is not a rec"),
        (lambda: NOISE.interval([1, 2, 3], combination=RAGGED), "combination is not a rectangular"),
        (lambda: NOISE.covariance_of(RAGGED), "shown is not a rectangular array"),
        (lambda: NOISE.covariance_of([3]), "places of outputs, from 0 to 2"),
        (lambda: NOISE.with_names(range(3)), "names must be a sequence of strings"),
        (lambda: NOISE.with_names(abs), "names must be a sequence of strings"),
        (lambda: NOISE.release([1, 2, 3], rows=TOTAL.D), "rows must be 'same' or 'different'"),
        (lambda: NOISE.in_steps(abs, state="x"), "steps must be a list of lists of names"),
        (lambda: affinedp.AffineManifold([[1, 1]], rank_tolerance="x"), "rank_tolerance"),
        (lambda: NOISE.guarantee.holds(-1.0), "epsilon must be at least 0, not -1.0$"),
    ],
)
def test_what_is_no_such_thing_is_refused_in_words(call, words):
    with pytest.raises(AffineDPError, match=words):
        call()


def test_names_may_come_one_by_one():
    named = (f"n{i}" for i in range(3))
    assert affinedp.AffineManifold([[1, 1, -1]], names=named).names == ("n0", "n1", "n2")
    assert NOISE.with_names(f"n{i}" for i in range(3)).output_names == ("n0", "n1", "n2")
