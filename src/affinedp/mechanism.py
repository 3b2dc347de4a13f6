"""A mechanism: neighbours, a strategy, a law.  What people do with it is written here, once."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from affinedp.arrays import Matrix
from affinedp.budget.ledger import Ledger, Rows
from affinedp.domains.reading import in_parts
from affinedp.errors import AffineDPError
from affinedp.files.saved import file_path, proved_design, read_saved, refusals, write_saved
from affinedp.files.values import check_names
from affinedp.functions.published import FunctionInterval, function_of
from affinedp.intervals import Interval, interval_of
from affinedp.laws.base import law_named
from affinedp.laws.sampler import Sampler
from affinedp.neighbours.adjacency import Adjacency
from affinedp.parts import StorageError
from affinedp.privacy.design import Design
from affinedp.privacy.guarantee import ON_TRUST, Guarantee, promised_about
from affinedp.record import MechanismRecord
from affinedp.release.engines import publish_rows_in_parts
from affinedp.release.publish import make_measurement, publish
from affinedp.show.page import Report
from affinedp.show.plot import plot
from affinedp.show.report import report
from affinedp.strategies.causal import Causal, sent_outputs
from affinedp.strategies.dense import Dense
from affinedp.stream.in_steps import ReleaseInSteps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = "affinedp mechanism 2"
# A guarantee that is computed again differs by rounding only.
AGREEMENT = 1e-9


@dataclass(frozen=True, eq=False)
class Mechanism(MechanismRecord):
    """``reconstruct(measure(x) + η)``, and what it promises.

    Designs make mechanisms: :func:`affinedp.design` and its like.  ``F x + Λ η`` of the paper is
    one whose strategy is ``Dense``; trees, margins and
    trajectories have strategies of their own.  The guarantee follows from the three parts.

    Attributes
    ----------
    adjacency : Adjacency
        Whom the guarantee is about; it knows what data is.
    strategy : Strategy
        Which numbers noise is added to, and how outputs are made of them.
    noise : Law
        The law of the noise; ``law`` is its name.
    proof : Proof or None
        Why the guarantee holds, where moves cannot be listed.
    design : Design
        How it came about: ``gap``, ``notes``, ``least``, ``alternatives``.
    """

    kind = "mechanism"

    def release(
        self,
        x: Any,
        *,
        ledger: Ledger | None = None,
        label: str | None = None,
        bound: float | None = None,
        rows: Rows | None = None,
        into: str | os.PathLike[str] | None = None,
        sampler: Sampler = "bulk",
    ) -> Any:
        """Publish ``F x`` with this noise: cryptographic randomness, safe in floating point.

        Each row of data gets noise of its own, and the guarantee holds for each row.  What all rows
        promise together depends on whom they are about: a secret that only one row is about keeps
        the guarantee of one row; for a secret that several rows are about they are several
        releases, whose costs add up.  Nothing here can know which, so a ledger asks for ``rows``.

        Data that is missing, malformed or off the manifold is refused; nothing is drawn or
        charged then.  That membership in the manifold is checked is public by assumption.

        Parameters
        ----------
        x : array_like, shape (n,) or (rows, n), or a mapping, Series or DataFrame
            The data; frames, of pandas or polars, are matched by name, and so is a mapping of
            names to numbers.  DataFrames of Dask and Spark, and :class:`~affinedp.Parts` of any
            other engine, are released where they are, part by part.  A lazy table of polars is
            read once, or part by part with ``into``.
        ledger : Ledger, optional
            Charged before any noise is drawn.
        label : str, optional
            For the ledger.
        bound : float, optional
            A public bound on |x|.  If given, neighbours whose records are off by the rounding of
            double precision are covered too.
        rows : {"same", "different"}, optional
            For several rows and a ledger, which is charged for each row if a change of the secret
            may move all of them (``"same"``), and once if it moves one row at most
            (``"different"``).
        into : str or Path, optional
            For tables in parts: a new folder that all workers share.  Each part is written there
            as a Parquet file, with the same noise however often the engine runs it.
        sampler : {"bulk", "opendp"}
            Who draws: affinedp's own sampler, or OpenDP's, which is the reference and slower.
            Both have the same law; OpenDP's knows no K-norm noise, and no tables in parts.

        Returns
        -------
        The outputs, in the form of ``x``.

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold.from_equations(["cells_in + cells_out = cells_total"])
        >>> m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
        >>> y = m.release([30, 70, 100])
        >>> bool(abs(y[0] + y[1] - y[2]) < 1e-9)
        True
        """
        plan = self.prepared(bound)
        if in_parts(x, into):
            return publish_rows_in_parts(
                self, plan, x, into=into, ledger=ledger, label=label, rows=rows, sampler=sampler
            )
        return publish(self, plan, x, ledger=ledger, label=label, rows=rows, sampler=sampler)

    def in_steps(
        self,
        steps: Sequence[Sequence[str]] | None = None,
        *,
        state: str | os.PathLike[str],
        ledger: Ledger | None = None,
        label: str | None = None,
        redraw: bool = False,
        moved: bool = False,
        bound: float | None = None,
    ) -> ReleaseInSteps:
        """Publish one data set step by step; what is published may decide later offsets.

        The paper's manifold with feedback, ``D x + b(Y) = 0``, for causal b: see
        docs/explanation/feedback.md.  One draw serves all steps, the ledger is charged once, and a
        crash loses nothing that was published.

        Parameters
        ----------
        steps : sequence of sequences of str, optional
            The names of the outputs of every step, each output once; one step for each output
            by default.
        state : str or Path
            The file of this release: created, for its owner only, if it does not exist, and locked
            while it is open.  It is secret.
        ledger : Ledger, optional
            Charged once, before the draw.  Without one nothing keeps count.
        label : str, optional
            What the ledger calls this release; by default the name of the file.
        redraw : bool
            Draw again if the state is lost or damaged: a second release, which a ledger must pay.
        moved : bool
            Take a state that was drawn under another path.  Say so only if no copy is in use.
        bound : float, optional
            A public bound on |x|, as for :meth:`release`.

        Returns
        -------
        ReleaseInSteps

        Examples
        --------
        A level that is moved by what was published about it: ``level1 = level0 + b0``.

        >>> import tempfile
        >>> import affinedp as adp
        >>> M = adp.AffineManifold([[1, -1]], names=["level0", "level1"])
        >>> m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
        >>> folder = tempfile.TemporaryDirectory()
        >>> with m.in_steps(state=f"{folder.name}/levels.db") as run:
        ...     (seen,) = run.send({"level0": 40.0})
        ...     move = -0.5 * seen                               # decided from what was published
        ...     (then,) = run.send(b={0: move})                  # level1 follows: it is not read
        >>> bool(abs(then - (seen + move)) < 1e-9)
        True
        """
        return ReleaseInSteps(
            self, steps, state=state, ledger=ledger, label=label, redraw=redraw, moved=moved,
            bound=bound,
        )  # fmt: skip

    def interval(
        self,
        y: Any,
        *,
        combination: Any = None,
        level: float = 0.95,
        simultaneous: bool = False,
        bound: float | None = None,
    ) -> Interval:
        """Return where the true outputs lie, or any linear function of them, given a release.

        The noise is public, so this costs no budget.  Each interval by itself is exact for
        Gaussian noise, and comes from the law and is never too short for Laplace, geometric and
        staircase noise, and for K-norm noise whose cones can be listed.  All at once: Šidák's for
        Gaussian noise, exact for numbers that share no noise.  Otherwise up to half a million
        releases are simulated, which takes some tenths of a second, and a rank of their errors is
        taken that is too small with a probability of 1e-6 at most (``how`` says which).

        Parameters
        ----------
        y : array_like, shape (m,) or (rows, m), or pandas Series or DataFrame
            What :meth:`release` returned; of noise over time also the rows that a
            :class:`~affinedp.control.Gateway` sent, from the first on, with its ``mechanism``.
        combination : mapping or array_like, shape (m,) or (k, m), optional
            Coefficients by output (or rows of them); every output by itself if left out.
        level : float
            With which probability, at least.
        simultaneous : bool
            Whether all numbers, of all rows, are to hold at once.
        bound : float, optional
            What was given to :meth:`release`: it makes the noise larger.

        Returns
        -------
        Interval
            ``low, high = m.interval(y)``.

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold.from_equations(["women + men = all"])
        >>> m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
        >>> y = m.release([30, 70, 100])
        >>> low, high = m.interval(y)
        >>> bool(((high - low) > 0).all())
        True
        >>> found = m.interval(y, combination={"women": 1, "men": -1})
        >>> print(round(float(found.high - found.low), 1))
        33.1
        """
        made, factor = self._as_published(y, bound)
        return interval_of(made, y, combination, level, simultaneous, factor)

    def function(
        self,
        y: Any,
        f: Any,
        *,
        level: float = 0.95,
        certified: bool = False,
        bound: float | None = None,
    ) -> FunctionInterval:
        """Return a function of what was released, such as a share, with an interval.

        It costs no budget.  Ratios of linear forms have Fieller's interval: exact for Gaussian
        noise, never too short for other laws, and unbounded where noise leaves the denominator's
        sign open.  Other smooth functions are debiased, and their variance is corrected for
        curvature, by simulating the noise around y; that keeps about the level, as
        docs/explanation/functions.md measures, and warns where noise is too large for it;
        numbers so large that doubles hardly hold their noise are refused there.

        Parameters
        ----------
        y : array_like, or what :meth:`release` returned
            One data set, or one per row; or what was sent, as for :meth:`interval`.
        f : callable or str
            A NumPy function whose arguments are named after outputs, as in ``lambda a, c: a / c``;
            or of one argument, all outputs as they were released; or a text such as ``"a / c"``.
            It may return an array.
        level : float
            With which probability.
        certified : bool
            Return the range over a region that holds all numbers that f reads, with at least this
            probability, at once for all functions of these numbers.  f must be a formula.
        bound : float, optional
            What was given to :meth:`release`: it makes the noise larger.

        Returns
        -------
        FunctionInterval
            With ``value``, ``low``, ``high``, ``how``, ``pieces`` and ``warnings``.

        Examples
        --------
        >>> import affinedp as adp
        >>> M = adp.AffineManifold.from_equations(["women + men = all"])
        >>> m = adp.design_gaussian(M, epsilon=1.0, delta=1e-6)
        >>> share = m.function([300.0, 700.0, 1000.0], "women / all")
        >>> print(share)
        0.300005 (95 %: 0.291483 to 0.30848)
        >>> print(share.how)  # doctest: +ELLIPSIS
        Fieller: exact for Gaussian noise; the value is less the bias of noise, ...
        >>> odds = m.function([300.0, 700.0, 1000.0], lambda women, men: women / men)
        >>> print(round(odds.low, 3), round(odds.high, 3))
        0.411 0.446
        """
        made, factor = self._as_published(y, bound)
        return function_of(made, y, f, level, certified, factor)

    def _as_published(self, y: Any, bound: float | None) -> tuple[Mechanism, float]:
        """The noise of what was published, and by how much a release enlarged it."""
        strategy, sent = self.strategy, self.design.sent
        if not isinstance(strategy, Causal) or (sent is None and strategy.released_at_once(y)):
            return self, self.prepared(bound).factor
        outputs, law = sent_outputs(strategy, self.noise, sent, y)
        return replace(self, strategy=outputs, noise=law), 1.0

    def make_measurement(self) -> Any:
        """Return an OpenDP measurement that releases with this mechanism.

        Its input distance is the number of neighbour steps between two data sets (d_in = 1:
        neighbours); its privacy map gives ρ of zCDP for Gaussian and ε for other noise.
        """
        return make_measurement(self, self.prepared())

    def dp_event(self) -> Any:
        """Return the ``DpEvent`` of one release, for dp_accounting: :meth:`Guarantee.dp_event`."""
        return self.guarantee.dp_event()

    def stack(self, *others: Mechanism) -> Mechanism:
        """Return the mechanism that releases this and the others with independent noise.

        Its guarantee is exact, unlike ``compose`` of theirs: the same direction must be the
        worst for all of them at once.

        Parameters
        ----------
        *others : Mechanism
            With the same law and the same neighbours.
        """
        import scipy.sparse as sparse

        parts = (self, *others)
        for part in others:
            if not isinstance(part, Mechanism):
                raise AffineDPError(f"stack takes mechanisms, not {type(part).__name__}")
            if part.law != self.law or part.adjacency.key != self.adjacency.key:
                raise AffineDPError(
                    "only mechanisms with the same law and the same neighbours are stacked; use "
                    "compose for their guarantees"
                )
        if any(type(part.strategy) is not Dense for part in parts):
            raise AffineDPError(
                "only noise on outputs is stacked: release the mechanisms one by one, and compose "
                "their guarantees"
            )
        names = [f"{name} ({i})" for i, part in enumerate(parts, 1) for name in part.output_names]

        def beside(matrices: Sequence[Matrix]) -> Matrix:
            return sparse.csr_array(sparse.block_diag(matrices))

        queries = [sparse.csr_array(part.dense.query) for part in parts]
        strategy = Dense(
            self.manifold,
            sparse.csr_array(sparse.vstack(queries)),
            beside([part.dense.noise for part in parts]),
            tuple(names),
        )
        return Mechanism(self.adjacency, strategy, self.noise.beside([p.noise for p in others]))

    def save(self, path: str | Path) -> None:
        """Write the mechanism as JSON: its parts, and the promise that they state.

        Nothing in such a file is executed, and nothing in it is believed: :meth:`load` computes
        the promise again.

        Parameters
        ----------
        path : str or Path
            Where to; an existing file is replaced at once or not at all.
        """
        guarantee, place = self.guarantee, file_path(path)
        _check_names(self, f"{place.name} is not written")
        stated = {"sensitivity": guarantee.sensitivity, "neighbours": guarantee.neighbours}
        write_saved(place, FORMAT, self, stated)

    @classmethod
    def load(cls, path: str | Path, *, reverify: bool = True) -> Mechanism:
        """Read a mechanism of any kind, and verify its guarantee again.

        Bounds and gaps come back as far as the file proves them; what it cannot prove, such as
        the errors of other laws, is left out.

        Parameters
        ----------
        path : str or Path
            What :meth:`save` wrote.
        reverify : bool
            Compute the guarantee again from the noise.  If False the stored one is taken on
            trust and marked so.
        """
        place = file_path(path)
        read, stated = read_saved(place, FORMAT, cls)
        with refusals(place):
            _check_names(read, "a name")
            return _verified(read, stated) if reverify else _on_trust(read, stated)

    def report(self) -> Report:
        """Return what people want to read, as text and as HTML."""
        return report(self)

    def plot(self) -> Figure:
        """Return a figure: the δ(ε) curve, the covariance, the noise per output."""
        return plot(self)

    def __str__(self) -> str:
        return str(self.report())

    def _repr_html_(self) -> str:
        return self.report().html()


def build(
    adjacency: Adjacency,
    query: Matrix,
    basis: Matrix,
    root: Matrix,
    law: str,
    output_names: Sequence[str],
    *,
    rate: float = 1.0,
    whole: bool = False,
    **design: Any,
) -> Mechanism:
    """Return the mechanism ``F x + Λ η``, with the guarantee that its noise really has."""
    noise = law_named(law).of_root(root, rate, whole)
    own_root = root if noise.size is None else None
    strategy = Dense(adjacency.manifold, query, basis, tuple(output_names), own_root)
    made = Mechanism(adjacency, strategy, noise, design=Design(**design))
    made.guarantee  # noqa: B018 (what cannot be promised is refused here)
    return made


def _check_names(mechanism: Mechanism, where: str) -> None:
    """Refuse names that a terminal would act on; names that only count are not looked at."""
    for names in (mechanism.domain.names, mechanism.strategy.given_names):
        if isinstance(names, tuple):
            check_names(names, where)


def _verified(read: Mechanism, stated: Mapping[str, Any]) -> Mechanism:
    """A mechanism of a file, of which everything that it claims was computed again."""
    guarantee = read.guarantee
    sensitivity = _stated_sensitivity(stated)
    if not guarantee.sensitivity <= sensitivity * (1 + AGREEMENT):
        raise StorageError(
            f"the file states a sensitivity of {sensitivity!r}, but its noise gives "
            f"{guarantee.sensitivity!r}: the file was altered, or made by something else"
        )
    return read.with_design(**proved_design(read))


def _on_trust(read: Mechanism, stated: Mapping[str, Any]) -> Mechanism:
    """A mechanism whose promise is what the file states, marked as not verified here."""
    sensitivity, law = _stated_sensitivity(stated), read.noise
    made = read.with_design(gap=None, least=None, alternatives=())
    about = promised_about(read.adjacency, law)
    made.__dict__["guarantee"] = Guarantee(
        law=law.kind, sensitivity=sensitivity, exact=False, neighbours=about.words,
        basis=law.theorem, curve=law.curve(sensitivity), names=read.domain.names,
        output_names=read.output_names, neighbours_key=about.key, unit=read.adjacency.unit,
        warnings=(ON_TRUST,),
    ).asked_for(read.design.asked)  # fmt: skip
    return made


def _stated_sensitivity(stated: Mapping[str, Any]) -> float:
    value = stated.get("sensitivity")
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise StorageError("the stated sensitivity is not a number")
    return math.inf if math.isnan(value) else float(value)
