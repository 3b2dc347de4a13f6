"""The picture shows every branch and node, with the noise that the mechanism has."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import affinedp as adp
from affinedp import flows
from affinedp.errors import AffineDPError
from affinedp.flows.picture import node_positions

pytest.importorskip("matplotlib", reason="needs the extra [plot]")


def triangle():
    graph = nx.MultiGraph()
    for u, v, x in (("a", "b", 0.1), ("a", "b", 0.2), ("b", "c", 0.1), ("c", "a", 0.3)):
        graph.add_edge(u, v, x=x)
    return flows.from_graph(graph, reactance="x")


def test_every_branch_carries_its_number(tmp_path):
    flow = triangle()
    m = flows.design_flow_noise(flow, epsilon=1.0, delta=1e-6)
    figure = flows.draw_flow_noise(flow, m, title="three nodes", unit="kW")
    axes = figure.axes[0]
    assert len(axes.lines) == 4 + 3
    texts = [text.get_text() for text in axes.texts]
    noise = np.sqrt(m.expected_squared_errors)
    assert texts == [f"{level:.3g}" for level in noise[:4]] + ["a", "b", "c"]
    assert axes.get_title() == "three nodes"
    assert "(kW)" in figure.axes[1].get_ylabel()
    # parallel branches do not hide each other
    one, other = (line.get_xydata() for line in axes.lines[:2])
    assert np.linalg.norm(one[7] - other[7]) > 0
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5_000


def test_what_is_not_published_is_dashed():
    flow = triangle()
    m = flows.design_flow_noise(flow, epsilon=1.0, delta=1e-6, publish=list(flow.flows[:2]))
    lines = flows.draw_flow_noise(flow, m).axes[0].lines
    assert [line.get_linestyle() for line in lines[:4]] == ["-", "-", "--", "--"]


def test_large_networks_have_no_labels():
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(9, 9))
    nx.set_edge_attributes(graph, 0.1, "x")
    flow = flows.from_graph(graph, reactance="x")
    adjacency = flows.injection_neighbours(flow, balance=0)
    m = flows.design_flow_noise(flow, epsilon=1.0, delta=1e-6, adjacency=adjacency)
    assert not flows.draw_flow_noise(flow, m, limits=(0.0, 10.0)).axes[0].texts
    assert node_positions(flow.network).shape == (81, 2)


def test_a_mechanism_of_something_else_is_refused():
    other = adp.design_gaussian(adp.AffineManifold([[1, -1]]), epsilon=1.0, delta=1e-6)
    with pytest.raises(AffineDPError, match="no noise on the flows"):
        flows.draw_flow_noise(triangle(), other)
