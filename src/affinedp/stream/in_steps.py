"""Release the outputs of one data set step by step, while its equations take up what was published.

With t the outputs that are read, the noise on them is ``C η`` with a lower triangular C.  At each
step ``z = C⁻¹ t`` needs only what is due by then, and integer noise is added to each z by itself.
docs/explanation/feedback.md gives the argument.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import EPS, FloatArray, Matrix, dense
from affinedp.budget.ledger import Ledger
from affinedp.domains.manifold import AffineManifold
from affinedp.errors import AffineDPError
from affinedp.exact.numbers import exact_number, given_rows, meaning, real_array
from affinedp.exact.rational import Echelon
from affinedp.laws.base import sampler_of_law
from affinedp.laws.gaussian import Gaussian
from affinedp.laws.sampler.noise import drawn_integers
from affinedp.laws.sampler.words import system_bytes
from affinedp.parts import Part, restored
from affinedp.privacy.guarantee import Guarantee
from affinedp.record import MechanismRecord, checked_bound
from affinedp.strategies.base import GRID_BITS, SHARE
from affinedp.strategies.rounded_plan import BIAS
from affinedp.stream.run import Asked, Beginning, Held, Memory, Owner, Run, RunError

# whole numbers as int, which is far quicker
Exact = int | Fraction
Row = dict[int, Exact]
# Numbers up to which the equations are solved in rational arithmetic.
MOST_NUMBERS = 4_000_000


@dataclass(frozen=True)
class Following:
    """``F_i x = Σ coefficients[j] F_j x + Σ offsets[e] b_e`` for all x with ``D x + b = 0``."""

    # by output that is read
    coefficients: Row
    # by equation
    offsets: Row


def followings(
    manifold: AffineManifold, query: Matrix, order: Sequence[int]
) -> tuple[tuple[int, ...], dict[int, Following]]:
    """Return the outputs that must be read, in order, and how each of the others follows.

    On ``D x + b = 0`` an output is a combination of free entries plus a combination of b.  Taken in
    the order in which they are due, an output either is independent of those before, and must be
    read, or it is a combination of earlier ones plus a combination of b.
    """
    equations = len(manifold.b)
    if equations * float(manifold.n) > MOST_NUMBERS:
        raise AffineDPError(
            f"{equations:,} equations in {manifold.n:,} entries are too many to be solved in exact "
            "arithmetic, which a release in steps needs"
        )
    # D x + b = 0 and F x − y = 0 in the unknowns x, b and y, of which only x is eliminated
    n, rows = manifold.n, manifold.exact_rows or given_rows(manifold.D)
    space = Echelon(n)
    for e, row in enumerate(rows):
        space.add({**row, n + e: Fraction(1)})
    read: list[int] = []
    follow: dict[int, Following] = {}
    outputs = dict(zip(order, given_rows(query[list(order)])))
    for i in order:
        output = n + equations + i
        row = {**outputs[i], output: Fraction(-1)}
        if space.add(row):
            read.append(i)
            continue
        rest = space.rest(row)
        parts = {j: _plain(Fraction(-c, rest[output])) for j, c in rest.items() if j != output}
        first = n + equations
        follow[i] = Following(
            {j - first: c for j, c in parts.items() if j >= first},
            {j - n: c for j, c in parts.items() if j < first},
        )
    return tuple(read), follow


def _plain(value: Fraction) -> Exact:
    """A whole number as int."""
    return value.numerator if value.denominator == 1 else value


# The noise may grow by this share for what rounding adds.
MOST_GROWTH = 1e-6
# Noise of outputs that follow may be off by this share of its terms.
AGREEMENT = 1e-9
NOT_IN_STEPS = "release it at once (Mechanism.release), or design noise with design_gaussian"


@dataclass(frozen=True, eq=False)
class StepPlan(Part):
    """What is read at each step, and the noise."""

    kind = "step plan"

    # the outputs that are read, in the order in which they are due
    read: tuple[int, ...]
    # ``C⁻¹ F`` of the outputs that are read: row j needs what is due with the first j of them;
    # shape (r, n)
    whitening: FloatArray
    # C; shape (r, r)
    root: FloatArray
    # how much larger than unit the noise is, for all that rounding adds
    noise_factor: float
    # data beyond this is refused
    largest: float
    # law of the noise
    law: str
    # how every other output follows: exact, and so not kept in a file
    follow: Mapping[int, Following] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Return what rests on floating point, for a file."""
        return {name: one for name, one in super().fields().items() if name != "follow"}

    @property
    def scale(self) -> int:
        """The scale of the noise, in grid steps."""
        return math.ceil(Fraction(self.noise_factor) * (1 << GRID_BITS))

    def noisy(self, place: int, entries: Mapping[int, Fraction], noise: int) -> int:
        """Return z plus noise, in grid steps, exactly."""
        row = self.whitening[place]
        exact = sum(
            (Fraction(float(row[j])) * entries[int(j)] for j in np.flatnonzero(row)), Fraction(0)
        )
        return math.floor(exact * (1 << GRID_BITS) + Fraction(1, 2)) + noise

    def published(self, place: int, noisy: Sequence[int]) -> Fraction:
        """Return an output that was read, from noisy numbers alone."""
        row = self.root[place, : place + 1]
        total = sum((Fraction(float(c)) * w for c, w in zip(row, noisy)), Fraction(0))
        return total / (1 << GRID_BITS)


def step_plan(mechanism: MechanismRecord, order: Sequence[int], bound: float | None) -> StepPlan:
    """Prepare a release in steps, or refuse it."""
    guarantee, law = mechanism.guarantee, mechanism.law
    own = mechanism.noise
    if own.norm is None or own.whole:
        why = "later steps would depend on the noise of earlier ones"
        if own.norm is not None:
            why = "it is for whole numbers, and steps are read on a finer grid"
        raise AffineDPError(
            f"{own.words} noise is not released in steps: {why}. Use Gaussian or Laplace noise, or "
            "release all at once"
        )
    if guarantee.leak is not None or not 0 < guarantee.sensitivity < math.inf:
        raise AffineDPError("this mechanism promises nothing; nothing is released with it")
    read, follow = _what_is_read(mechanism, order)
    noise = dense(mechanism.noise_matrix)[list(read)]
    root = _triangular(noise) if isinstance(own, Gaussian) else _triangular_as_it_is(noise)
    query = dense(mechanism.dense.query)[list(read)]
    whitening = _solved(root, query)
    found = mechanism.adjacency.sensitivity(whitening, own.norm)
    count = own.box(len(read))
    # two roundings to the grid differ by at most one step
    total = own.rate * found.upper * (1 + EPS) + count * math.ldexp(1.0, -GRID_BITS)
    if bound is not None:
        rows = np.abs(whitening).sum(axis=1)
        total += 2 * bound * EPS * own.rate * float(np.linalg.norm(rows, ord=own.norm))
    factor = max(1.0, total / guarantee.sensitivity) * (1 + SHARE)
    if not factor < 1 + MOST_GROWTH:
        raise AffineDPError(
            "rounding would add more than a millionth to the noise: it is too ill-conditioned to "
            f"release in steps, or the bound is too large; {NOT_IN_STEPS}"
        )
    largest = _largest(root, whitening, query, factor)
    return StepPlan(read, whitening, root, factor, largest, law, follow)


def _what_is_read(
    mechanism: MechanismRecord, order: Sequence[int]
) -> tuple[tuple[int, ...], dict[int, Following]]:
    """Outputs that carry news; all of them, where each has noise of its own."""
    read, follow = followings(mechanism.manifold, mechanism.dense.query, order)
    noise = dense(mechanism.noise_matrix)
    size = np.linalg.norm(noise, axis=1)
    if np.any(size[list(read)] == 0):
        name = mechanism.output_names[next(i for i in read if size[i] == 0)]
        raise AffineDPError(
            f"{name} is published without noise, because neighbours agree in it: what neighbours "
            f"share is not released in steps; {NOT_IN_STEPS}"
        )
    rank = int(np.linalg.matrix_rank(noise / np.where(size > 0, size, 1.0)[:, None], tol=1e-9))
    if rank == len(read):
        for i, one in follow.items():
            terms = [float(c) * noise[j] for j, c in one.coefficients.items()]
            off = np.abs(noise[i] - sum(terms, np.zeros(noise.shape[1])))
            if np.any(off > AGREEMENT * (size[i] + sum(np.linalg.norm(term) for term in terms))):
                raise AffineDPError(
                    f"the noise of {mechanism.output_names[i]} does not follow the equations that "
                    f"its value follows: it cannot be released in steps; {NOT_IN_STEPS}"
                )
        return read, follow
    if rank == len(order):
        return tuple(order), {}
    raise AffineDPError(
        f"the outputs carry {len(read)} independent numbers, but the noise {rank}, and not one for "
        f"each of {len(order)} outputs: such noise is not released in steps; {NOT_IN_STEPS}"
    )


def _triangular(noise: FloatArray) -> FloatArray:
    """A lower triangular root of the same covariance, which for Gaussian noise is the same law."""
    _, upper = np.linalg.qr(noise.T)
    root = np.asarray(np.tril(upper.T))
    return root * np.where(np.diagonal(root) < 0, -1.0, 1.0)


def _triangular_as_it_is(noise: FloatArray) -> FloatArray:
    """The noise matrix with its columns in the order in which they are needed."""
    order: list[int] = []
    for row in noise:
        new = [int(j) for j in np.flatnonzero(row) if int(j) not in order]
        if len(new) != 1:
            raise AffineDPError(
                "an output needs Laplace noise that later outputs decide about: each output that "
                "is read may bring one new draw. Give design_laplace(method='algorithm2') a basis "
                "that is triangular in the order of the steps, or use Gaussian noise"
            )
        order += new
    if len(order) != noise.shape[1]:
        raise AffineDPError(f"the noise has more draws than outputs that are read; {NOT_IN_STEPS}")
    return np.asarray(noise[:, order])


def _solved(root: FloatArray, query: FloatArray) -> FloatArray:
    """``C⁻¹ F``, with exact zeros where nothing is due yet."""
    from scipy.linalg import solve_triangular

    if not np.all(np.diagonal(root) != 0):
        raise AffineDPError("an output that carries news gets no noise of its own")
    found = np.asarray(solve_triangular(root, query, lower=True))
    due = np.logical_or.accumulate(query != 0, axis=0)
    return np.where(due, found, 0.0)


def _largest(root: FloatArray, whitening: FloatArray, query: FloatArray, factor: float) -> float:
    """Up to which size data is published without a bias that could be seen."""
    wide = np.longdouble
    off = np.abs(root.astype(wide) @ whitening.astype(wide) - query).astype(float).sum(axis=1)
    deviation = factor * np.linalg.norm(root, axis=1)
    seen = off > 0
    return float(BIAS * (deviation[seen] / off[seen]).min()) if seen.any() else 1e290


# ---------------------------------------------------------------------- the release itself


STEPS = Owner("release in steps", "data")
Values = Mapping[int, Fraction]


class ReleaseInSteps(Held):
    """One data set, published step by step with one draw; offsets may depend on earlier steps.

    The paper's manifold with feedback, ``D x + b(Y) = 0``: what is published at a step may decide
    the offsets b of equations that later steps use.  An output that carries news is read and gets
    noise; one that follows from earlier ones and from b is computed from what was published.

    Made by :meth:`affinedp.Mechanism.in_steps`.

    Parameters
    ----------
    mechanism : MechanismRecord
        Query, noise, guarantee.
    steps : sequence of sequences of str, optional
        The names of the outputs of every step, each output once; one step for each by default.
    state : str or Path
        The file of this release.
    ledger : Ledger, optional
        Charged once, before the draw.
    label : str, optional
        What the ledger calls this release; by default the name of the file.
    redraw, moved : bool
        As for a :class:`~affinedp.control.Gateway`.
    bound : float, optional
        A public bound on |x|, as for :meth:`affinedp.Mechanism.release`.

    Examples
    --------
    >>> import tempfile
    >>> import affinedp as adp
    >>> m = adp.design_gaussian(adp.AffineManifold([[1, -1, 0], [0, 1, -1]]), epsilon=1, delta=1e-6)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with m.in_steps([["x1"], ["x2", "x3"]], state=f"{folder.name}/run.db") as run:
    ...     first = run.send([7.0])
    ...     run.needs, run.equations_due
    ((), (0, 1))
    """

    def __init__(
        self,
        mechanism: MechanismRecord,
        steps: Sequence[Sequence[str]] | None = None,
        *,
        state: str | os.PathLike[str],
        ledger: Ledger | None = None,
        label: str | None = None,
        redraw: bool = False,
        moved: bool = False,
        bound: float | None = None,
    ) -> None:
        asked = Asked(ledger, label, redraw, moved)
        self._mechanism, self._bound = mechanism, checked_bound(bound)
        self._steps = _checked_steps(mechanism, steps)
        order = [i for step in self._steps for i in step]
        chosen = {
            "fingerprint": mechanism.fingerprint,
            "steps": [list(step) for step in self._steps],
            "bound": None if self._bound is None else float(self._bound).hex(),
        }

        def begin() -> Beginning:
            plan = step_plan(mechanism, order, self._bound)
            noise = sampler_of_law(mechanism.noise, plan.scale)  # refused before the charge
            return Beginning.charging(
                mechanism,
                {**chosen, "plan": plan.record()},
                lambda: _memory(drawn_integers(noise, (len(plan.read),), system_bytes), {}, {}),
            )

        def check(settings: Mapping[str, Any], memory: Memory) -> None:
            for name, value in chosen.items():
                if settings[name] != value:
                    what = "mechanism" if name == "fingerprint" else name
                    raise RunError(
                        f"this is the state of a release with another {what}: with one draw for "
                        "two, the noise would cancel. Give each its own state"
                    )

        self._run = Run(state, STEPS, begin, check, asked)
        read, follow = followings(mechanism.manifold, mechanism.dense.query, order)
        plan = restored(self._run.settings["plan"], StepPlan)
        self._plan = replace(plan, follow=follow if len(plan.read) == len(read) else {})
        self._place = {i: place for place, i in enumerate(self._plan.read)}

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """The outputs of every step, by name."""
        names = self._mechanism.output_names
        return tuple(tuple(names[i] for i in step) for step in self._steps)

    @property
    def next_step(self) -> int:
        """The first step that was not published yet."""
        return self._run.until

    @property
    def needs(self) -> tuple[str, ...]:
        """The entries of x that the next step reads; none where its outputs follow."""
        known = self._entries
        return tuple(self._mechanism.manifold.names[j] for j in self._due() if j not in known)

    @property
    def equations_due(self) -> tuple[int, ...]:
        """The equations, as rows of ``manifold.D``, whose offsets the next step uses first."""
        known = self._offsets
        return tuple(e for e in self._used() if e not in known)

    @property
    def published(self) -> tuple[FloatArray, ...]:
        """What was published so far, one array per step."""
        with self._run.turn():
            return tuple(self._sent(step) for step in range(self._run.until))

    @property
    def guarantee(self) -> Guarantee:
        """What is promised about everything that is published in all steps."""
        promise = self._mechanism.guarantee
        warnings = [
            "offsets must follow from what was published in earlier steps, and public things"
        ]
        warnings += self._run.warnings
        return replace(promise, warnings=(*promise.warnings, *warnings))

    def send(
        self,
        x: Mapping[str, Any] | Iterable[Any] = (),
        b: Mapping[int, Any] | None = None,
    ) -> FloatArray:
        """Publish the next step; it is on the disk before this returns.

        Parameters
        ----------
        x : mapping of str to number, or numbers in the order of ``needs``
            The entries that the step reads.
        b : mapping of int to number, optional
            Offsets of ``D x + b = 0`` by equation, a row of ``manifold.D``; those of the manifold
            where none are given.  An offset that was used or given before cannot be changed.

        Returns
        -------
        array
            The outputs of the step.

        Examples
        --------
        See :meth:`affinedp.Mechanism.in_steps`.
        """
        with self._run.turn():
            step = self._run.until
            if step >= len(self._steps):
                raise AffineDPError(f"all {step} steps are published")
            entries = {**self._entries, **self._read(x)}
            offsets = {**self._offsets, **self._given(b)}
            for e in self._used():
                offsets.setdefault(e, exact_number(self._mechanism.manifold.b[e]))
            outputs = self._outputs(step, entries, offsets)
            self._run.keep(step, outputs.tobytes())
            self._run.commit(step + 1, _memory(self._noise, entries, offsets))
            return outputs

    def __repr__(self) -> str:
        done, all_steps = self.next_step, len(self._steps)
        return f"ReleaseInSteps(state={str(self._run.path)!r}, step {done} of {all_steps})"

    # ------------------------------------------------------------------ inside

    @property
    def _noise(self) -> list[int]:
        """What was drawn, for every output that is read."""
        return [int(word, 16) for word in self._run.memory["noise"]]

    @property
    def _entries(self) -> Values:
        """What was read so far, by entry of x."""
        return _fractions(self._run.memory["entries"])

    @property
    def _offsets(self) -> Values:
        """The offsets that were used or given so far, by equation."""
        return _fractions(self._run.memory["offsets"])

    def _step(self) -> tuple[int, ...]:
        steps, step = self._steps, self._run.until
        return steps[step] if step < len(steps) else ()

    def _due(self) -> list[int]:
        """The entries that are read up to the outputs of the next step."""
        rows = [self._plan.whitening[self._place[i]] for i in self._step() if i in self._place]
        return sorted({int(j) for row in rows for j in np.flatnonzero(row)})

    def _used(self) -> list[int]:
        """The equations whose offsets the outputs of the next step use."""
        follow = self._plan.follow
        return sorted({e for i in self._step() if i in follow for e in follow[i].offsets})

    def _read(self, x: Any) -> dict[int, Fraction]:
        """What the step reads, as the numbers that it means."""
        names, known = self._mechanism.manifold.names, self._entries
        wanted = [j for j in self._due() if j not in known]
        needs = [names[j] for j in wanted]
        if isinstance(x, Mapping):
            if set(x) != set(needs):
                raise AffineDPError(
                    f"this step reads {needs or 'nothing'}, not {sorted(map(str, x))}"
                )
            x = [x[name] for name in needs]
        try:
            given = list(x)
        except TypeError:
            raise AffineDPError(f"x must be a list or a mapping: this step reads {needs}") from None
        values = real_array(given or np.zeros(0), "x", 1)
        if len(values) != len(wanted):
            raise AffineDPError(f"this step reads {needs or 'nothing'}, not {len(values)} numbers")
        limit, bound = self._plan.largest, self._bound
        if bound is not None and np.abs(values).max(initial=0.0) > bound:
            raise AffineDPError("some entry of x is larger than the declared bound")
        if np.abs(values).max(initial=0.0) > limit:
            raise AffineDPError(
                f"some entry of x is beyond {limit:.1e}, up to which data is released exactly with "
                "this noise. Nothing was released; change the units"
            )
        return {j: meaning(float(value)) for j, value in zip(wanted, values)}

    def _given(self, b: Mapping[int, Any] | None) -> dict[int, Fraction]:
        """The offsets that come with this step."""
        found: dict[int, Fraction] = {}
        known = self._offsets
        if not isinstance(b, Mapping | None):
            raise AffineDPError("b must be a mapping from equations (rows of D) to offsets")
        for e, value in (b or {}).items():
            if isinstance(e, bool) or not isinstance(e, int | np.integer):
                raise AffineDPError(f"{e!r} is no equation: count the rows of D from 0")
            if not 0 <= e < len(self._mechanism.manifold.b):
                raise AffineDPError(f"there is no equation {e}")
            if int(e) in known:
                raise AffineDPError(
                    f"the offset of equation {e} was settled in an earlier step: feedback must be "
                    "causal, and what was published does not change"
                )
            found[int(e)] = exact_number(value)
        return found

    def _outputs(self, step: int, entries: Values, offsets: Values) -> FloatArray:
        """The outputs of a step, from noisy integers and public offsets alone."""
        plan, drawn = self._plan, self._noise
        due = [i for outputs in self._steps[: step + 1] for i in outputs]
        noisy = [
            plan.noisy(self._place[i], entries, drawn[self._place[i]])
            for i in due
            if i in self._place
        ]
        read = {i: plan.published(self._place[i], noisy) for i in due if i in self._place}
        found = []
        for i in self._steps[step]:
            if i in read:
                found.append(read[i])
                continue
            one = plan.follow[i]
            total = sum((c * read[j] for j, c in one.coefficients.items()), Fraction(0))
            found.append(total + sum((a * offsets[e] for e, a in one.offsets.items()), Fraction(0)))
        try:
            return np.array([float(value) for value in found])
        except OverflowError:
            raise AffineDPError("an output leaves the range of floating point: rescale") from None

    def _sent(self, step: int) -> FloatArray:
        outputs = self._run.sent(step)
        assert outputs is not None  # every step is committed, and none is skipped
        return np.frombuffer(outputs, dtype=np.float64).copy()


def _memory(noise: Iterable[int], entries: Values, offsets: Values) -> Memory:
    """What a run keeps: the draw, and all that was read and settled."""

    def words(numbers: Values) -> dict[str, list[str]]:
        return {
            str(i): [format(value.numerator, "x"), format(value.denominator, "x")]
            for i, value in numbers.items()
        }

    drawn = [format(int(number), "x") for number in noise]
    return {"noise": drawn, "entries": words(entries), "offsets": words(offsets)}


def _fractions(words: Mapping[str, Sequence[str]]) -> dict[int, Fraction]:
    return {int(i): Fraction(int(over, 16), int(under, 16)) for i, (over, under) in words.items()}


def _checked_steps(
    mechanism: MechanismRecord, steps: Sequence[Sequence[str]] | None
) -> tuple[tuple[int, ...], ...]:
    """The outputs of every step as places, each exactly once."""
    names = mechanism.output_names
    if steps is None:
        return tuple((i,) for i in range(len(names)))
    place = {name: i for i, name in enumerate(names)}
    found = []
    if isinstance(steps, str) or not isinstance(steps, Iterable):
        raise AffineDPError(f"steps must be a list of lists of names of outputs, not {steps!r}")
    for step in steps:
        if isinstance(step, str) or not isinstance(step, Sequence) or not step:
            raise AffineDPError(f"a step is a list of names of outputs, not {step!r}")
        unknown = [name for name in step if name not in place]
        if unknown:
            raise AffineDPError(f"there is no output {unknown[0]!r}")
        found.append(tuple(place[name] for name in step))
    if sorted(i for step in found for i in step) != list(range(len(names))):
        raise AffineDPError("every output must be in exactly one step")
    return tuple(found)
