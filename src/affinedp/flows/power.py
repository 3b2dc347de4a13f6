"""The DC power flow of a pandapower net as a flow manifold.

The model is pandapower's own, its branch and bus matrices after ``rundcpp``.  The solved flows of
the net are checked against the equations, so an element that is not understood cannot go
unnoticed.  Flows are lossless and obey ``flow = (angle(from) − angle(to) − shift) / reactance``.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from affinedp.arrays import FloatArray, IntArray
from affinedp.domains.manifold import PublicEntries
from affinedp.errors import AffineDPError, MissingExtraError, listed
from affinedp.flows.flow_manifold import FlowManifold, Laws, build
from affinedp.flows.flow_network import FlowNetwork

# Elements that put power into a bus or take it out.
INJECTING = (
    "load", "sgen", "gen", "ext_grid", "storage", "motor", "asymmetric_load", "asymmetric_sgen",
)  # fmt: skip
# Elements whose DC model ties injections to each other or to more than a bus.
REFUSED = (
    "ward", "xward", "dcline", "tcsc", "svc", "ssc", "vsc", "b2b_vsc", "bi_vsc",
    "bus_dc", "line_dc", "load_dc", "source_dc",
)  # fmt: skip
# The ends of the elements that become branches; transformers with three windings apart.
ENDS = {
    "line": ("from_bus", "to_bus"),
    "trafo": ("hv_bus", "lv_bus"),
    "impedance": ("from_bus", "to_bus"),
    "switch": ("bus", "element"),
}
WINDINGS = ("hv", "mv", "lv")
# Reactances are taken to this many digits, which undoes the rounding of unit conversions and keeps
# the arithmetic exact.
DIGITS = 12
# Columns and codes of pandapower's matrices (those of MATPOWER's case format).
BUS_TYPE, PD, GS, VA = 1, 2, 4, 8
F_BUS, T_BUS, BR_X, TAP, SHIFT, PF = 0, 1, 3, 8, 9, 13
GEN_BUS, PG = 0, 1
REFERENCE, OUT_OF_SERVICE = 3, 4


@dataclass(frozen=True)
class SolvedNetwork:
    """A net after its DC power flow."""

    network: FlowNetwork
    flows: FloatArray
    injections: FloatArray
    injecting: tuple[tuple[int, ...], ...]


def solve(net: Any) -> SolvedNetwork:
    """Return the network behind a net, and its solved DC flows."""
    copied = _solved_copy(net)
    matrices = copied._ppc
    _refuse_unknown(copied)
    bus, branch = np.real(matrices["bus"]), np.real(matrices["branch"])
    nodes = int(np.count_nonzero(bus[:, BUS_TYPE] != OUT_OF_SERVICE))  # those come first
    bus = bus[:nodes]
    place = _places(copied, nodes)
    names = _node_names(place, nodes)
    labels = _branch_names(copied, len(branch))
    running = np.flatnonzero(matrices["internal"]["branch_is"])
    elements = _from_elements(matrices, bus)
    injecting = _buses_with(copied, INJECTING, place, nodes)
    private = np.array([bool(buses) for buses in injecting], dtype=np.bool_)
    shunted = np.array([bool(b) for b in _buses_with(copied, ("shunt",), place, nodes)])
    _refuse_unexplained(names, (elements != 0) | ((bus[:, GS] != 0) & ~shunted), ~private)
    injected = elements - bus[:, GS]
    base = float(matrices["baseMVA"])
    reactance = branch[running, BR_X] * np.where(branch[running, TAP] == 0, 1, branch[running, TAP])
    references = np.flatnonzero(bus[:, BUS_TYPE] == REFERENCE)
    network = FlowNetwork(
        nodes=tuple(names),
        branches=tuple(labels[i] for i in running),
        tail=branch[running, F_BUS].astype(np.intp),
        head=branch[running, T_BUS].astype(np.intp),
        private=np.flatnonzero(private),
        public_injection=np.where(private, 0.0, injected),
        reactance=np.array([float(f"{x:.{DIGITS}g}") for x in reactance]),
        angle=np.deg2rad(branch[running, SHIFT]) * base,
        references={int(i): math.radians(bus[i, VA]) * base for i in references},
        place=place,
        positions=_positions(copied, place, nodes),
        left_out=tuple(labels[i] for i in np.setdiff1d(np.arange(len(branch)), running)),
    )
    return SolvedNetwork(network, branch[running, PF], injected, injecting)


def _solved_copy(net: Any) -> Any:
    try:
        import pandapower
    except ImportError:
        raise MissingExtraError("pandapower", "flows") from None

    if not isinstance(net, pandapower.pandapowerNet):
        raise AffineDPError(f"this takes a pandapower net, not {type(net).__name__}")
    copied = copy.deepcopy(net)
    try:
        pandapower.rundcpp(copied)
    except Exception as error:  # pandapower raises many kinds
        raise AffineDPError(
            f"pandapower cannot solve the DC power flow of this net: {error}"
        ) from None
    return copied


def _refuse_unknown(net: Any) -> None:
    found = []
    for kind in REFUSED:
        table = net.get(kind)
        if table is None or len(table) == 0:
            continue
        running = table[table["in_service"]] if "in_service" in table else table
        found += [f"{kind} {index}" for index in running.index]
    if found:
        raise AffineDPError(
            f"{listed(found)}: the DC model of such an element ties injections or flows in ways "
            "that are not covered. Replace it by loads, generators and lines"
        )


def _places(net: Any, nodes: int) -> dict[Hashable, int]:
    """Bus numbers to nodes; fused buses share one, and buses out of service have none."""
    lookup = net._pd2ppc_lookups["bus"]
    found = {int(bus): int(lookup[bus]) for bus in net.bus.index[net.bus.in_service.astype(bool)]}
    return {bus: node for bus, node in found.items() if 0 <= node < nodes}


def _node_names(place: Mapping[Hashable, int], nodes: int) -> list[str]:
    members: list[list[str]] = [[] for _ in range(nodes)]
    for bus, node in place.items():
        members[node].append(str(bus))
    names = [f"bus {'+'.join(buses)}" for buses in members]
    inner = 0
    for node, buses in enumerate(members):
        if not buses:  # a star point, or the open end of a line
            names[node] = f"inner node {inner}"
            inner += 1
    return names


def _branch_names(net: Any, count: int) -> list[str]:
    """A name for every row of pandapower's branch matrix."""
    names = [""] * count
    for kind, (start, stop) in net._pd2ppc_lookups["branch"].items():
        if kind in ENDS:
            table = net[kind][net._impedance_bb_switches] if kind == "switch" else net[kind]
            ends = zip(table.index, *(table[column] for column in ENDS[kind]))
            found = [f"{kind} {index}: bus {one}→{other}" for index, one, other in ends]
        elif kind == "trafo3w":
            found = [
                f"{kind} {index} {side}: "
                + (f"bus {bus}→star" if side == "hv" else f"star→bus {bus}")
                for side in WINDINGS
                for index, bus in net[kind][f"{side}_bus"].items()
            ]
        else:
            found = [f"{kind} {index}" for index in net[kind].index]
        if len(found) != stop - start:
            raise AffineDPError(
                f"pandapower's branches of the kind {kind!r} are not understood: there are "
                f"{stop - start} for {len(found)} elements"
            )
        names[start:stop] = found
    return names


def _from_elements(matrices: Any, bus: FloatArray) -> FloatArray:
    """Generation minus load at every node, in MW, from the elements' side."""
    generators = np.real(matrices["gen"])[matrices["internal"]["gen_is"]]
    generated = np.bincount(
        generators[:, GEN_BUS].astype(np.intp), generators[:, PG], minlength=len(bus)
    )
    return np.asarray(generated[: len(bus)] - bus[:, PD])


def _refuse_unexplained(
    names: list[str], unexplained: NDArray[np.bool_], transit: NDArray[np.bool_]
) -> None:
    """Refuse power at a node that has no element for it: it might be private."""
    found = [names[i] for i in np.flatnonzero(unexplained & transit)]
    if found:
        raise AffineDPError(
            f"there is power at {listed(found)} that comes from no load, generator or shunt that "
            "is understood here, so whether it is private is not known. Replace that element by "
            "one of these"
        )


def _buses_with(
    net: Any, kinds: tuple[str, ...], place: Mapping[Hashable, int], nodes: int
) -> tuple[tuple[int, ...], ...]:
    """The buses of each node at which an element of these kinds is in service."""
    found: list[set[int]] = [set() for _ in range(nodes)]
    for kind in kinds:
        table = net.get(kind)
        if table is None or len(table) == 0:
            continue
        for bus in table.bus[table.in_service.astype(bool)]:
            if int(bus) in place:
                found[place[int(bus)]].add(int(bus))
    return tuple(tuple(sorted(buses)) for buses in found)


def _positions(net: Any, place: Mapping[Hashable, int], nodes: int) -> FloatArray | None:
    """Where the buses are, if the net says so for every node."""
    positions = np.full((nodes, 2), np.nan)
    if "geo" not in net.bus:
        return None
    for bus, text in net.bus.geo.items():
        if bus in place and isinstance(text, str):
            positions[place[bus]] = json.loads(text)["coordinates"][:2]
    return positions if np.all(np.isfinite(positions)) else None


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
