"""The network with the noise on its branches and injections."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.flows.flow_manifold import FlowManifold
from affinedp.flows.flow_network import FlowNetwork
from affinedp.mechanism import Mechanism
from affinedp.show.plot import is_wide, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Perceived alike by readers with and without colour vision deficiency, and in grey.
COLOURS = "viridis_r"
GREY, LIGHT = "#8C8C8C", "#DDDDDD"
LABELLED_NODES = 40
LABELLED_BRANCHES = 50
CURVE_POINTS = 15


def draw_flow_noise(
    flow: FlowManifold,
    mechanism: Mechanism,
    *,
    axes: Axes | None = None,
    title: str | None = None,
    unit: str = "MW",
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Return a picture of the network, coloured by the standard deviation of the noise.

    Branches and nodes share one colour scale: branches show the noise on their flow, circles that
    on the injection of their node (squares: slack nodes), and grey dots are nodes that only pass
    flow on.  What is not published, or is public anyway, is dashed.

    Parameters
    ----------
    flow : FlowManifold
        The network.
    mechanism : Mechanism
        Noise for outputs that are entries of ``flow``, from ``design_flow_noise``.
    axes : matplotlib Axes, optional
        Where to draw; a figure of its own by default.
    title : str, optional
        Above the picture.
    unit : str
        Unit of the flows, for the colour bar.
    limits : (float, float), optional
        Ends of the colour scale, to compare pictures.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import networkx as nx
    >>> from affinedp import flows
    >>> flow = flows.from_graph(nx.cycle_graph(4), laws="balance")
    >>> m = flows.design_flow_noise(flow, epsilon=1.0, delta=1e-6)
    >>> figure = flows.draw_flow_noise(flow, m, title="A ring")
    >>> figure.axes[0].get_title()
    'A ring'
    """
    own = new_figure(figsize=(8.5, 6.5), layout="constrained") if axes is None else None
    from matplotlib.cm import ScalarMappable

    noise = dict(zip(mechanism.output_names, np.sqrt(mechanism.expected_squared_errors)))
    on_branches = np.array([noise.get(name, 0.0) for name in flow.flows])
    on_injections = np.array([noise.get(name, 0.0) for name in flow.injections])
    levels = np.concatenate([on_branches, on_injections])
    if not levels.any():
        raise AffineDPError("the mechanism has no noise on the flows or injections of this network")
    if own is not None:
        axes = own.subplots()
    assert axes is not None
    scale = ScalarMappable(_scale(levels[levels > 0], limits), COLOURS)
    positions = node_positions(flow.network)
    _draw_branches(axes, flow.network, positions, on_branches, scale)
    _draw_nodes(axes, flow.network, positions, on_injections, scale)
    axes.set_aspect("equal" if flow.network.positions is None else "auto")
    axes.margins(0.07)
    axes.set_axis_off()
    if title is not None:
        axes.set_title(title)
    figure: Any = axes.figure
    label = f"standard deviation of the noise ({unit})"
    figure.colorbar(scale, ax=axes, label=label, fraction=0.04, pad=0.02)
    return figure  # type: ignore[no-any-return]


def node_positions(network: FlowNetwork) -> FloatArray:
    """Return where to draw the nodes: as the network says, or by the shape of its graph."""
    if network.positions is not None:
        return network.positions
    try:
        nx: Any = importlib.import_module("networkx")
    except ImportError:
        raise MissingExtraError("networkx", "flows") from None
    graph = nx.Graph()
    graph.add_nodes_from(range(len(network.nodes)))
    graph.add_edges_from(zip(network.tail.tolist(), network.head.tolist()))
    layout = nx.kamada_kawai_layout if nx.is_connected(graph) else nx.spring_layout
    fixed = {} if layout is nx.kamada_kawai_layout else {"seed": 0}
    found = layout(graph, **fixed)
    return np.array([found[node] for node in range(len(network.nodes))])


def _scale(levels: FloatArray, limits: tuple[float, float] | None) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    low, high = limits if limits is not None else (float(levels.min()), float(levels.max()))
    if is_wide(np.array([low, high])):
        return LogNorm(low, high)
    return Normalize(0.0 if limits is None else low, high)


def _draw_branches(
    axes: Axes, network: FlowNetwork, positions: FloatArray, noise: FloatArray, scale: Any
) -> None:
    size = float(np.linalg.norm(np.ptp(positions, axis=0)))
    few = len(noise) <= LABELLED_BRANCHES
    bends = _bends(network)
    for branch, level in enumerate(noise):
        ends = positions[[network.tail[branch], network.head[branch]]]
        curve = _curve(ends, bends[branch] * 0.012 * size)
        style: dict[str, Any] = {"color": GREY, "linewidth": 1.2, "linestyle": (0, (2, 2))}
        if level > 0:
            style = {"color": scale.to_rgba(level), "linewidth": 4 if few else 2.2}
        axes.plot(*curve.T, zorder=1, solid_capstyle="round", **style)
        middle = curve[CURVE_POINTS // 2]
        if few and level > 0:
            box = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none"}
            axes.text(
                middle[0], middle[1], f"{level:.3g}", fontsize=7.5, ha="center", va="center",
                bbox={**box, "alpha": 0.85}, zorder=4,
            )  # fmt: skip


def _bends(network: FlowNetwork) -> list[float]:
    """How far each branch bends aside, so that parallel ones are seen."""
    pairs = [tuple(sorted(ends)) for ends in zip(network.tail.tolist(), network.head.tolist())]
    total, seen = Counter(pairs), Counter[tuple[int, ...]]()
    bends = []
    for pair, tail in zip(pairs, network.tail.tolist()):
        aside = seen[pair] - (total[pair] - 1) / 2
        bends.append(aside if tail == pair[0] else -aside)
        seen[pair] += 1
    return bends


def _curve(ends: FloatArray, aside: float) -> FloatArray:
    along = ends[1] - ends[0]
    length = float(np.linalg.norm(along)) or 1.0
    across = np.array([-along[1], along[0]]) / length
    t = np.linspace(0.0, 1.0, CURVE_POINTS)[:, None]
    return np.asarray(ends[0] + t * along + 4 * t * (1 - t) * aside * across)


def _draw_nodes(
    axes: Axes, network: FlowNetwork, positions: FloatArray, noise: FloatArray, scale: Any
) -> None:
    few = len(network.nodes) <= LABELLED_NODES
    level = np.zeros(len(network.nodes))
    level[network.private] = noise
    for node, place in enumerate(positions):
        private = node in set(network.private.tolist())
        style: dict[str, Any] = {"color": LIGHT if few else GREY, "markersize": 12 if few else 3}
        if private:
            colour = scale.to_rgba(level[node]) if level[node] > 0 else "white"
            style = {"color": colour, "markeredgecolor": "black", "markersize": 15 if few else 6}
        axes.plot(*place, "s" if node in network.references else "o", zorder=3, **style)
        if few:
            text = network.nodes[node].split(" ", 1)[1]
            dark = private and level[node] > 0 and sum(scale.to_rgba(level[node])[:3]) < 1.4
            axes.text(
                place[0], place[1], text, fontsize=7.5, ha="center", va="center",
                color="white" if dark else "black", zorder=5,
            )  # fmt: skip
