"""DC power flow against pandapower's own solution, and the nets that must be refused."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import numpy as np
import pytest
from flow_oracles import circuits_by_brute_force, null_space, same_space, scaled

import affinedp as adp
from affinedp import flows
from affinedp.domains.component import recognise_network
from affinedp.errors import AffineDPError, IdentifiableEntriesError

pp = pytest.importorskip("pandapower", reason="needs the extra [flows]")
networks = pytest.importorskip("pandapower.networks", reason="needs the extra [flows]")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pandapower's own files


@cache
def _loaded(name: str):
    return getattr(networks, name)()


def net_of(name: str):
    """A net of its own; reading one from pandapower's files is slow."""
    return deepcopy(_loaded(name))


def small_net(angles: tuple[float, ...] = (0.0,)):
    """A ring of four 110 kV buses with a spur; slack at bus 0 (and at bus 2)."""
    net = pp.create_empty_network()
    buses = [pp.create_bus(net, 110.0) for _ in range(5)]
    for one, other, km in ((0, 1, 10.0), (1, 2, 20.0), (2, 3, 15.0), (3, 0, 30.0), (3, 4, 5.0)):
        pp.create_line_from_parameters(
            net, buses[one], buses[other], km, r_ohm_per_km=0.1, x_ohm_per_km=0.4, c_nf_per_km=9,
            max_i_ka=1,
        )  # fmt: skip
    for bus, angle in zip((0, 2), angles):
        pp.create_ext_grid(net, buses[bus], va_degree=angle)
    for bus, power in ((1, 10.0), (2, 20.0), (4, 5.0)):
        pp.create_load(net, buses[bus], p_mw=power)
    return net


def solution_by_hand(net, flow):
    """The solved flows from pandapower's result tables, looked up by the entries' names."""
    pp.rundcpp(net)
    tables = {
        "line": net.res_line.p_from_mw,
        "trafo": net.res_trafo.p_hv_mw,
        "impedance": net.res_impedance.p_from_mw if len(net.impedance) else None,
    }
    found = []
    for name in flow.flows:
        kind, number = name.split(":")[0].split(" ")[:2]
        if kind == "trafo3w":
            side = name.split(":")[0].split(" ")[2]
            value = net.res_trafo3w[f"p_{side}_mw"][int(number)]
            found.append(value if side == "hv" else -value)
        else:
            found.append(tables[kind][int(number)])
    for name in flow.injections:
        buses = [int(bus) for bus in name.removeprefix("injection at bus ").split("+")]
        # pandapower's bus results count consumption as positive
        found.append(-net.res_bus.p_mw[buses].sum())
    return np.array(found)


# ---------------------------------------------------------------------- the model


@pytest.mark.parametrize("name", ["case9", "case14", "case30", "case39", "case118", "case300"])
def test_solved_flows_obey_the_laws(name):
    net = net_of(name)
    for laws in ("full", "balance"):
        flow = flows.from_pandapower(net, laws=laws)
        x = flows.dc_flows(flow, net)
        assert flow.manifold.residual(x).max() < 1e-9
        expected = solution_by_hand(deepcopy(net), flow)
        assert np.abs(x - expected).max() < 1e-9 * np.abs(expected).max()
    assert net.res_bus.empty  # the net itself was not solved
    assert flow.manifold.n == len(flow.flows) + len(flow.injections)


def test_case9_from_the_matrices_of_pandapower():
    """The kernel from susceptances and potentials, not from cycles."""
    net = net_of("case9")
    flow = flows.from_pandapower(net)
    pp.rundcpp(net)
    susceptance = net._ppc["internal"]["Bf"].toarray()
    balance = net._ppc["internal"]["Bbus"].toarray()
    private = [0, 1, 2, 4, 6, 8]
    potentials = null_space(balance[[3, 5, 7]])
    kernel = np.vstack([susceptance, balance[private]]) @ potentials
    assert same_space(kernel, flow.manifold.kernel)


def test_case9_sensitivities_of_unit_noise_on_the_flows():
    """2.45 under node balance, 12.9 under the full laws: brute force over all circuits."""
    net = net_of("case9")
    expected = {"balance": np.sqrt(6), "full": 12.880370748}
    for laws, value in expected.items():
        flow = flows.from_pandapower(net, laws=laws)
        kernel = null_space(np.asarray(flow.manifold.D))
        circuits = scaled(circuits_by_brute_force(kernel))
        brute = np.linalg.norm(circuits[:, :9], axis=1).max()
        on_flows = np.eye(15)[:9]
        found = flow.circuits().sensitivity(on_flows, 2)
        assert found.value == pytest.approx(brute, rel=1e-9)
        assert found.value == pytest.approx(value, rel=1e-9)
        promise = adp.verify(flow.manifold, 1.0, query=list(flow.flows), adjacency=flow.circuits())
        assert promise.sensitivity == pytest.approx(value, rel=1e-9)
        assert ("ONLY" in promise.neighbours) == (laws == "balance")


def test_names_and_exact_arithmetic():
    flow = flows.from_pandapower(net_of("case9"))
    assert flow.flows[2] == "line 2: bus 4→5"
    assert flow.injections == tuple(f"injection at bus {i}" for i in (0, 1, 2, 4, 6, 8))
    assert flow.manifold.exact_rows is not None
    assert flow.manifold.equations()[-1] == (
        "0.092*`line 1: bus 3→4` + 0.17*`line 2: bus 4→5` + 0.1008*`line 4: bus 5→6` + "
        "0.072*`line 5: bus 6→7` + 0.161*`line 7: bus 7→8` + 0.085*`line 8: bus 8→3` = 0"
    )


def test_node_balance_of_case118_is_a_network():
    import scipy.sparse as sparse

    flow = flows.from_pandapower(net_of("case118"), laws="balance")
    assert recognise_network(sparse.csc_array(flow.manifold.D)) is not None


# ---------------------------------------------------------------------- elements


@pytest.mark.slow
def test_transformers_switches_impedances_and_fused_buses():
    net = networks.example_multivoltage()
    with pytest.raises(AffineDPError, match="xward 0 and xward 1"):
        flows.from_pandapower(net)
    net.xward["in_service"] = False
    flow = flows.from_pandapower(net)
    sides = [name.split(":")[0] for name in flow.flows if "trafo3w" in name]
    assert sides == ["trafo3w 0 hv", "trafo3w 0 mv", "trafo3w 0 lv"]
    ends = net.impedance.loc[0]
    assert f"impedance 0: bus {ends.from_bus}→{ends.to_bus}" in flow.flows
    assert any("+" in name for name in flow.network.nodes)  # buses fused by closed switches
    x = flows.dc_flows(flow, net)
    assert np.allclose(x, solution_by_hand(deepcopy(net), flow), atol=1e-9)
    assert flow.network.left_out  # lines that open switches take out of the circuit


def test_phase_shifter_in_a_loop_drives_a_public_flow():
    net = small_net()
    # 0 and 4 degrees in two parallel transformers: a circulating flow
    low = pp.create_bus(net, 20.0)
    for shift in (0.0, 4.0):
        pp.create_transformer_from_parameters(
            net, 4, low, sn_mva=40, vn_hv_kv=110, vn_lv_kv=20, vkr_percent=0.5, vk_percent=12,
            pfe_kw=10, i0_percent=0.1, shift_degree=shift,
        )  # fmt: skip
    flow = flows.from_pandapower(net)
    x = flows.dc_flows(flow, net)
    assert np.allclose(x, solution_by_hand(deepcopy(net), flow), atol=1e-9)
    # nothing is connected below the transformers, so what goes around there is public
    assert flow.known == ("trafo 0: bus 4→5", "trafo 1: bus 4→5")
    assert abs(x[flow.flows.index("trafo 0: bus 4→5")]) > 1
    pp.create_load(net, low, p_mw=3.0)
    flow = flows.from_pandapower(net)
    assert flow.known == ()
    assert flow.manifold.contains(flows.dc_flows(flow, net))


def test_several_slack_buses_tie_the_potentials_between_them():
    net = small_net(angles=(0.0, 1.5))
    flow = flows.from_pandapower(net)
    one = flows.from_pandapower(small_net())
    assert flow.manifold.dim == one.manifold.dim - 1  # the path between the two slack buses
    assert "angles between slack nodes" in flow.assumes
    assert "angles" not in one.assumes
    x = flows.dc_flows(flow, net)
    assert np.allclose(x, solution_by_hand(deepcopy(net), flow), atol=1e-9)
    # a slack that is a generator, not an external grid
    net.ext_grid.drop(1, inplace=True)
    pp.create_gen(net, 2, p_mw=1.0, slack=True)
    again = flows.from_pandapower(net)
    assert again.manifold.dim == flow.manifold.dim


def test_elements_out_of_service_and_islands():
    net = small_net()
    net.line.loc[1, "in_service"] = False
    flow = flows.from_pandapower(net)
    assert flow.network.left_out == ("line 1: bus 1→2",)
    assert len(flow.flows) == 4
    # without line 4 the load at bus 4 has no supply and is no part of the model
    net.line.loc[4, "in_service"] = False
    flow = flows.from_pandapower(net)
    assert "injection at bus 4" not in flow.injections
    with pytest.raises(AffineDPError, match="no node 4"):
        flows.from_pandapower(net, public_injections=[4])
    # a second island with a slack of its own
    far = [pp.create_bus(net, 110.0) for _ in range(2)]
    pp.create_line_from_parameters(net, *far, 5.0, 0.1, 0.4, 9, 1)
    pp.create_ext_grid(net, far[0])
    pp.create_load(net, far[1], p_mw=7.0)
    both = flows.from_pandapower(net)
    assert len(np.unique(both.network.island)) == 2
    assert both.manifold.dim == flow.manifold.dim + 1
    assert both.manifold.contains(flows.dc_flows(both, net))
    # a load that is switched off leaves its bus without injection
    net.load.loc[0, "in_service"] = False
    assert "injection at bus 1" not in flows.from_pandapower(net).injections


def test_parallel_lines_share_by_their_reactances():
    net = small_net()
    pp.create_line_from_parameters(net, 3, 4, 15.0, 0.1, 0.4, 9, 1)
    flow = flows.from_pandapower(net)
    x = dict(zip(flow.manifold.names, flows.dc_flows(flow, net)))
    assert x["line 4: bus 3→4"] == pytest.approx(3.75)
    assert x["line 5: bus 3→4"] == pytest.approx(1.25)


def test_shunts_are_public_where_nothing_else_is_connected():
    net = small_net()
    pp.create_shunt(net, 3, q_mvar=0.0, p_mw=2.0)
    flow = flows.from_pandapower(net)
    assert "injection at bus 3" not in flow.injections
    x = flows.dc_flows(flow, net)
    assert flow.manifold.contains(x)
    into = dict(zip(flow.manifold.names, x))
    assert into["injection at bus 0"] == pytest.approx(37.0)


# ---------------------------------------------------------------------- what is public


def test_public_injections():
    net = net_of("case30")
    flow = flows.from_pandapower(net, public_injections=[0, 1, 21, 22])
    assert len(flow.injections) == 24 - 4
    assert flow.manifold.dim == 20 - 1
    assert flow.manifold.contains(flows.dc_flows(flow, net))
    assert "the injections at bus" in flow.circuits().words
    # another load profile has other public injections, which is noticed
    net.gen.loc[0, "p_mw"] += 5.0
    with pytest.raises(AffineDPError, match="public injections than the manifold"):
        flows.dc_flows(flow, net)


def fused_net():
    """Bus 5 hangs on bus 1 by a closed switch: one node, with a load on both sides."""
    net = small_net()
    far = pp.create_bus(net, 110.0)
    pp.create_switch(net, 1, far, et="b", closed=True)
    pp.create_load(net, far, p_mw=4.0)
    return net, far


def test_a_public_bus_takes_no_private_load_with_it():
    net, far = fused_net()
    with pytest.raises(AffineDPError, match=f"bus 1 one node with bus {far}"):
        flows.from_pandapower(net, public_injections=[1])
    with pytest.raises(AffineDPError, match=f"bus {far} one node with bus 1"):
        flows.from_pandapower(net, public_injections=[far])
    both = flows.from_pandapower(net, public_injections=[1, far])
    assert both.injections == ("injection at bus 0", "injection at bus 2", "injection at bus 4")
    net.load.loc[net.load.bus == far, "in_service"] = False
    alone = flows.from_pandapower(net, public_injections=[np.int64(1)])  # nothing else is there
    assert alone.injections == both.injections


def test_a_public_slack_shows_no_rounding_of_private_loads():
    """0.1 + 0.2 + 0.3 and 0.3 + 0.3 + 0.0 are the same total, and so is what the slack gives."""
    points = []
    for loads in ((0.1, 0.2, 0.3), (0.3, 0.3, 0.0), (0.2, 0.1, 0.3)):
        net = small_net()
        net.load["p_mw"] = loads
        flow = flows.from_pandapower(net, public_injections=[0])
        assert flow.network.public_injection[0] == 0.6
        assert flow.manifold.contains(flows.dc_flows(flow, net))
        points.append(flow.manifold.point.tobytes())
    assert len(set(points)) == 1
    net.load["p_mw"] = (1 / 3, 0.1, 0.2)
    with pytest.raises(AffineDPError, match="bus 1 has more than 8 decimals") as refusal:
        flows.from_pandapower(net, public_injections=[0])
    assert "0.33" not in str(refusal.value)
    with pytest.raises(AffineDPError, match="several slack buses"):
        flows.from_pandapower(small_net(angles=(0.0, 1.5)), public_injections=[0])


def test_public_values_show_no_rounding_of_the_loads_before_them():
    """pandapower's sums by bus are differences of running sums over all loads."""
    values = []
    for load in (21.7, 21.6, 0.3):
        net = net_of("case30")
        net.load.loc[0, "p_mw"] = load
        flow = flows.from_pandapower(net, public_injections=[17, 19])
        values.append(flow.network.public_injection[[17, 19]].tolist())
        assert flow.manifold.contains(flows.dc_flows(flow, net))
    assert values == [[-3.2, -2.2]] * 3


def test_a_public_leaf_reveals_its_line():
    net = net_of("case9")
    with pytest.raises(IdentifiableEntriesError, match="line 6: bus 7→1"):
        flows.from_pandapower(net, public_injections=[1])
    allowed = flows.from_pandapower(net, public_injections=[1], public_entries="allow")
    assert allowed.known == ("line 6: bus 7→1",)
    with pytest.raises(IdentifiableEntriesError, match="nothing left to protect"):
        flows.from_pandapower(net, public_injections=[0, 1, 2, 4, 6, 8])


def test_lines_to_nowhere_are_public_and_zero():
    flow = flows.from_pandapower(net_of("case30"))
    assert flow.known == ("line 12: bus 8→10",)
    x = flows.dc_flows(flow, net_of("case30"))
    assert x[12] == 0.0


# ---------------------------------------------------------------------- refusals


@pytest.mark.slow
def test_refusals():
    with pytest.raises(AffineDPError, match="pandapower net"):
        flows.from_pandapower("case9")
    net = small_net()
    net.ext_grid["in_service"] = False
    with pytest.raises(AffineDPError, match="pandapower cannot solve"):
        flows.from_pandapower(net)
    net = small_net()
    pp.create_ward(net, 1, 1.0, 0.0, 1.0, 0.0)
    with pytest.raises(AffineDPError, match="ward 0: the DC model"):
        flows.from_pandapower(net)
    net = small_net()
    pp.create_dcline(net, 1, 3, p_mw=1.0, loss_percent=1.0, loss_mw=0.1, vm_from_pu=1, vm_to_pu=1)
    with pytest.raises(AffineDPError, match="dcline 0"):
        flows.from_pandapower(net)
    # an element that a later pandapower may know and this module does not
    net = small_net()
    pp.create_load(net, 3, p_mw=1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("affinedp.flows.power.INJECTING", ("ext_grid", "gen"))
        with pytest.raises(AffineDPError, match="power at bus 1, bus 2, bus 3 and bus 4"):
            flows.from_pandapower(net)
    net = small_net()
    with pytest.raises(AffineDPError, match="list of bus numbers"):
        flows.from_pandapower(net, public_injections="all")
    with pytest.raises(AffineDPError, match="no node 99"):
        flows.from_pandapower(net, public_injections=[99])
    flow = flows.from_pandapower(net)
    with pytest.raises(AffineDPError, match="other buses or branches"):
        flows.dc_flows(flow, net_of("case9"))
    net.line.loc[0, "x_ohm_per_km"] = 0.8
    with pytest.raises(AffineDPError, match="other reactances"):
        flows.dc_flows(flow, net)
