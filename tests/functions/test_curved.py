"""Curved equations: publish Φ(ξ + noise), and what is published obeys them."""

import numpy as np
import pytest

import affinedp as adp
from affinedp.control import predict

SIR = adp.AffineManifold.from_equations(["S + I + R = 100000"])


def test_ac_power_flow_from_private_injections():
    pandapower = pytest.importorskip("pandapower")
    networks = pytest.importorskip("pandapower.networks")
    net = networks.case9()
    loads = net.load.p_mw.to_numpy()
    private = adp.AffineManifold(np.zeros((0, len(loads))))
    m = adp.design_gaussian(private, epsilon=2.0, delta=1e-4)
    net.load["p_mw"] = m.release(loads)
    pandapower.runpp(net, numba=False)
    inside = net._ppc["internal"]
    voltage, admittance = inside["V"], inside["Ybus"]
    power = voltage * np.conj(admittance @ voltage) * net.sn_mva
    drawn = np.zeros(len(voltage))
    np.add.at(drawn, net._pd2ppc_lookups["bus"][net.load.bus], net.load.p_mw)
    free = inside["pq"]
    assert power.real[free] == pytest.approx(-drawn[free], abs=1e-5)
    assert net.res_line.pl_mw.sum() + net.res_trafo.pl_mw.sum() == pytest.approx(
        net.res_gen.p_mw.sum() + net.res_ext_grid.p_mw.sum() - net.load.p_mw.sum(), abs=1e-4
    )


def day(x, u):
    new, well = 0.3 * x[0] * x[1] / 1e5, 0.1 * x[1]
    return x + np.array([-new, new - well, well])


def test_any_plant_is_predicted_from_one_release(tmp_path):
    m = adp.design_gaussian(SIR, epsilon=1.0, delta=1e-6)
    ledger = adp.Ledger(tmp_path / "ledger.db", epsilon=1.0, delta=1e-6, protects="one person")
    released = m.release([99500, 500, 0], ledger=ledger)
    assert released.sum() == pytest.approx(1e5)
    seen = predict(day, released, 150, output=lambda x: x[1])
    assert seen.shape == (150, 1)
    state = released
    for t in range(149):
        assert seen[t, 0] == state[1]
        state = day(state, None)
    found = m.function(released, lambda x: predict(day, x, 60)[59, 1], level=1 - 1e-6)
    truth = predict(day, [99500.0, 500.0, 0.0], 60)[59, 1]
    assert found.low < truth < found.high
    with pytest.raises(adp.AffineDPError, match="inputs"):
        predict(day, released, 10, [None] * 3)
    with pytest.raises(adp.AffineDPError, match="steps"):
        predict(day, released, 0)
