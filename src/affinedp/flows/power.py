"""The DC power flow of a pandapower net as a flow manifold.

The model is pandapower's own.  The solved flows of the net are checked against the equations, so
an element that is not understood cannot go unnoticed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from affinedp.arrays import FloatArray, IntArray
from affinedp.errors import AffineDPError, listed
from affinedp.files.problem import PublicEntries
from affinedp.flows.dc_model import SolvedNetwork, solve
from affinedp.flows.manifold import FlowManifold, Laws, build

# The solved flows must obey the equations this well, relative to the largest of them.
AGREES = 1e-9
ROUNDING = 1e-13
# A public injection has at most so many decimals (in MW), and pandapower adds less than this to it.
DECIMALS = 8
STRAY = 1e-9


def from_pandapower(
    net: Any,
    *,
    laws: Laws = "full",
    public_injections: Iterable[Hashable] = (),
    public_entries: PublicEntries = "refuse",
) -> FlowManifold:
    """Return the DC flows (MW) on the branches of a net and the private injections at its buses.

    What counts as public: the grid itself (which elements are there, how they are connected and
    switched, reactances, taps and phase shifts), the angle of every slack bus, shunts, and that a
    bus without load or generation injects nothing.  The net injection of every bus at which a
    load, generator or other injecting element is in service is private, the slack's too, unless
    it is declared public.  A bus injection is generation minus load minus shunts at that bus:
    a promise about it covers each element behind it, because one element moves it by as much as
    itself.  Reactances are taken to 12 digits, which undoes the rounding of unit conversions, so
    that the equations are exact.

    Parameters
    ----------
    net : pandapowerNet
        Solved with ``rundcpp`` on a copy; it is not changed.
    laws : {"full", "balance"}
        ``"full"``: everyone knows node balance and the line laws, as anyone with the grid data
        does.  ``"balance"``: node balance alone; the promise then does not hold against someone
        who knows the reactances.
    public_injections : iterable of bus numbers
        Buses whose injection is public; its value is that of the solved net, to 8 decimals (a
        public slack takes the exact rest of its island).  Where closed
        switches make several buses one node, all of them that have loads or generators must be
        named: their injections are one number.
    public_entries : {"refuse", "allow"}
        What to do with flows that follow from public injections alone.

    Returns
    -------
    FlowManifold

    Examples
    --------
    >>> import pandapower.networks
    >>> from affinedp import flows
    >>> net = pandapower.networks.case9()
    >>> flow = flows.from_pandapower(net)
    >>> flow.manifold
    AffineManifold(15 entries, 10 independent equations)
    >>> flow.flows[:2]
    ('line 0: bus 0→3', 'line 1: bus 3→4')
    >>> flow.manifold.contains(flows.dc_flows(flow, net))
    True
    """
    solved = solve(net)
    network = solved.network
    if isinstance(public_injections, str) or not isinstance(public_injections, Iterable):
        raise AffineDPError("public_injections is a list of bus numbers")
    declared = tuple(public_injections)
    public = np.array([network.position_of(bus) for bus in declared], dtype=np.intp)
    _refuse_fused(solved, declared, public)
    given = network.public_injection.copy()
    given[public] = [_public_value(solved, int(node)) for node in public]
    network = replace(
        network, private=np.setdiff1d(network.private, public), public_injection=given
    )
    flow = build(network, laws, declared, public_entries)
    _check(flow, solved)
    return flow


def _refuse_fused(solved: SolvedNetwork, declared: Sequence[Hashable], public: IntArray) -> None:
    """Refuse to make public what was not named: buses that are one node have one injection."""
    for bus, node in zip(declared, public):
        others = [f"bus {one}" for one in solved.injecting[node] if one not in declared]
        if others:
            raise AffineDPError(
                f"closed switches make bus {bus} one node with {listed(others)}, whose loads or "
                "generators would become public with it. Name those buses in public_injections, "
                f"too, or leave bus {bus} out"
            )


def _public_value(solved: SolvedNetwork, node: int) -> float:
    """The injection of a node that is public, without a trace of the private ones.

    A slack bus takes the rest of its island: the sum of the others as decimals, which depends on
    nothing else than itself.
    """
    network = solved.network
    if node not in network.references:
        return float(_recorded(solved, node))
    island = np.flatnonzero(network.island == network.island[node])
    shared = [i for i in island.tolist() if i in network.references]
    if len(shared) > 1:
        raise AffineDPError(
            f"the injection at {network.nodes[node]} cannot be public: several slack buses "
            f"({listed([network.nodes[i] for i in shared])}) share what is left, and the digits of "
            "that share depend on private injections. Leave it private"
        )
    return float(-sum(_recorded(solved, int(i)) for i in island if i != node))


def _recorded(solved: SolvedNetwork, node: int) -> Fraction:
    """The injection of a node as people recorded it.

    pandapower adds loads along the list of buses and takes differences, so that the last bits of
    one bus depend on the loads of all others (3.1999999999999886 for 3.2).
    """
    value = float(solved.injections[node])
    decimal = round(Fraction(value), DECIMALS)
    if abs(value - float(decimal)) > STRAY:
        raise AffineDPError(
            f"the injection at {solved.network.nodes[node]} has more than {DECIMALS} decimals, so "
            "its digits cannot be told from the rounding of others, which are private. Round the "
            "loads and generators, or declare fewer injections public"
        )
    return decimal


def dc_flows(flow: FlowManifold, net: Any) -> FloatArray:
    """Return the data of a net's DC power flow, in MW, in the order of the manifold's entries.

    Parameters
    ----------
    flow : FlowManifold
        From :func:`from_pandapower`, of this net or of one with the same grid.
    net : pandapowerNet
        Solved with ``rundcpp`` on a copy; it is not changed.

    Returns
    -------
    array, shape (n,)

    Examples
    --------
    >>> import pandapower.networks
    >>> from affinedp.flows import dc_flows, from_pandapower
    >>> net = pandapower.networks.case9()
    >>> flow = from_pandapower(net)
    >>> x = dc_flows(flow, net)
    >>> bool(flow.manifold.contains(x)), round(float(x[0]), 2)
    (True, 67.0)
    """
    solved = solve(net)
    if (solved.network.nodes, solved.network.branches) != (
        flow.network.nodes,
        flow.network.branches,
    ):
        raise AffineDPError("the net has other buses or branches in service than the manifold")
    return _check(flow, solved)


def _check(flow: FlowManifold, solved: SolvedNetwork) -> FloatArray:
    """The solved data in the order of the entries, if it obeys the equations.

    The solver's rounding is taken out: all entries follow from those that parametrise the
    manifold, so that a line to nowhere carries 0 and not 10⁻¹⁴ MW.
    """
    manifold = flow.manifold
    solution = np.concatenate([solved.flows, solved.injections[flow.network.private]])
    free = manifold.canonical.free
    x = np.asarray(manifold.point + manifold.kernel @ (solution - manifold.point)[free])
    size = float(np.abs(solution).max(initial=1.0))
    known = np.isin(manifold.names, flow.known)
    x[known & (np.abs(x) <= ROUNDING * size)] = 0.0
    off = np.abs(x - solution)
    # terms cancel on the way to an entry, so its error is relative to the largest of them
    allowed = AGREES * size
    if not np.all(off <= allowed):
        worst = int(np.argmax(off))
        raise AffineDPError(
            f"the solved DC flow has another value for {manifold.names[worst]} than the equations: "
            "the net holds an element that is not understood here, or other reactances, taps, "
            "shunts or public injections than the manifold"
        )
    return x
