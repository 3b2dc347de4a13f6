"""Private flows of three power networks: exact, certified, and what cannot be promised.

Run ``python examples/power_flows.py [folder]``; with a folder, three pictures are written there.
Needs the extras [flows] and [plot], and takes about a minute.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pandapower.networks
from matplotlib.figure import Figure

import affinedp as adp
from affinedp import flows
from affinedp.flows.flow_manifold import FlowManifold

EPSILON, DELTA = 1.0, 1e-6
MU = 1.0  # MW
TITLES = {"balance": "known: node balance only", "full": "known: node balance and line laws"}


def noise_level(mechanism: adp.Mechanism) -> float:
    """Return the root mean square of the noise on an output, in MW."""
    return math.sqrt(mechanism.expected_squared_error / len(mechanism.output_names))


def say(what: str, mechanism: adp.Mechanism) -> None:
    """Print one line about a design."""
    how = "exact" if mechanism.guarantee.exact else "certified bound"
    print(f"{what:<52} {noise_level(mechanism):7.2f} MW   {how}, gap {mechanism.gap:.0e}")


def case9() -> Figure:
    """Design for both sets of laws, and show what ignoring the line laws costs."""
    net = pandapower.networks.case9()
    known = {laws: flows.from_pandapower(net, laws=laws) for laws in ("balance", "full")}
    for laws, flow in known.items():
        found = flow.circuits(MU).sensitivity(_on_flows(flow), norm=2).value
        print(f"case9, {laws}: unit noise on the flows has sensitivity {found:.2f}")
    figure = Figure(figsize=(13.5, 5.4))
    figure.set_layout_engine("constrained")
    for axes, (laws, flow) in zip(figure.subplots(1, 2), known.items()):
        design = flows.design_flow_noise(flow, epsilon=EPSILON, delta=DELTA, mu=MU)
        say(f"case9, {laws}, Definition 4", design)
        flows.draw_flow_noise(flow, design, axes=axes, title=TITLES[laws], limits=(0.0, 47.0))
        if laws == "balance":
            truth = adp.verify(
                known["full"].manifold, design.noise_matrix, adjacency=known["full"].circuits(MU)
            )
            print(f"  … which promises ε = {truth.epsilon(DELTA):.1f} to who knows the reactances")
    return figure


def case30() -> Figure:
    """Design exactly for the cycles of node balance, and for transfers under the full laws."""
    net = pandapower.networks.case30()
    balance = flows.from_pandapower(net, laws="balance")
    design = flows.design_flow_noise(balance, epsilon=EPSILON, delta=DELTA, mu=MU, tol=0.1)
    say("case30, balance, Definition 4 (43,153 cycles)", design)
    full = flows.from_pandapower(net)
    try:
        flows.design_flow_noise(full, epsilon=EPSILON, delta=DELTA, mu=MU)
    except adp.AffineDPError as refusal:
        print(f"case30, full, Definition 4: {str(refusal).split('. Ways out')[0]}")
    transfers = flows.injection_neighbours(full, MU, balance="any")
    design = flows.design_flow_noise(full, epsilon=EPSILON, delta=DELTA, adjacency=transfers)
    say("case30, full, one injection moves, any other balances", design)
    return flows.draw_flow_noise(full, design, title="case30: hides any transfer of 1 MW")


def case118() -> Figure:
    """Design with a certificate for node balance, and exactly for a load that changes."""
    net = pandapower.networks.case118()
    balance = flows.from_pandapower(net, laws="balance")
    design = flows.design_flow_noise(balance, epsilon=EPSILON, delta=DELTA, mu=MU)
    say("case118, balance, Definition 4", design)
    full = flows.from_pandapower(net)
    moves = flows.injection_neighbours(full, MU)
    design = flows.design_flow_noise(full, epsilon=EPSILON, delta=DELTA, adjacency=moves)
    say("case118, full, one injection moves, slack balances", design)
    released = design.release(flows.dc_flows(full, net))
    print(f"  … and a release obeys all laws: {full.manifold.contains(released, 1e-9)}")
    title = "case118: hides a change of 1 MW at any bus"
    return flows.draw_flow_noise(full, design, title=title)


def _on_flows(flow: FlowManifold) -> list[list[float]]:
    entries = flow.manifold.n
    return [[float(i == j) for j in range(entries)] for i in range(len(flow.flows))]


def main() -> None:
    """Run the three cases, and save their pictures if a folder was given."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for case in (case9, case30, case118):
        figure = case()
        if folder is not None:
            figure.savefig(folder / f"flows_{case.__name__}.png", dpi=110)


if __name__ == "__main__":
    main()
