"""Plants that tests share: a room, a building of six states, a quarter car."""

from fractions import Fraction

import numpy as np
import scipy.linalg

Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]


def sampled(A: np.ndarray, B: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
    n, m = B.shape
    both = scipy.linalg.expm(np.block([[A, B], [np.zeros((m, n + m))]]) * dt)
    return both[:n, :n], both[:n, n:]


def room() -> Matrices:
    """Forgets in 25 hours, steps of 15 minutes; w is a heat gain in kW."""
    return np.array([[0.99]]), np.array([[0.9]]), np.eye(1)


def building() -> Matrices:
    """Three rooms with heavy walls; w are heat gains in kW."""
    capacity = np.array([1e6, 1.2e6, 0.9e6, 8e6, 1e7, 9e6])
    G = np.zeros((6, 6))
    for i, j, g in [(0, 1, 60), (1, 2, 60), (0, 3, 150), (1, 4, 150), (2, 5, 150), (3, 4, 30.0)]:
        G[i, j] = G[j, i] = g
    outside = np.array([10, 8, 12, 40, 35, 45.0])
    A = (G - np.diag(G.sum(1) + outside)) / capacity[:, None]
    B = np.eye(6)[:, :3] / capacity[:, None] * 1000.0
    A, B = sampled(A, B, 900.0)
    return A, B, np.eye(6)[:3]


def _car() -> tuple[np.ndarray, np.ndarray]:
    """Continuous time; inputs are the force between body and wheel (kN) and the road (m)."""
    m1, m2, k1, k2, b1 = 2500.0, 320.0, 80000.0, 500000.0, 350.0
    A = np.array(
        [
            [0, 1, 0, 0],
            [-k1 / m1, -b1 / m1, k1 / m1, b1 / m1],
            [0, 0, 0, 1],
            [k1 / m2, b1 / m2, -(k1 + k2) / m2, -b1 / m2],
        ]
    )
    return A, np.array([[0, 0], [1000 / m1, 0], [0, 0], [-1000 / m2, k2 / m2]])


def quarter_car() -> Matrices:
    """Suspension travel; w is the height of the road."""
    A, B = sampled(*_car(), 0.01)
    return A, B[:, 1:], np.array([[1.0, 0, -1, 0]])


def quarter_car_actuator() -> Matrices:
    """The same car; u is the force between body and wheel."""
    A, B = sampled(*_car(), 0.01)
    return A, B[:, :1], np.array([[1.0, 0, -1, 0]])


def exact_loadings(strategy):
    """``C A^t R`` in rational numbers, rounded once: in doubles late rows lose their digits."""
    system = strategy.system

    def fractions(matrix):
        rows = [[Fraction(int(value), int(matrix.over)) for value in row] for row in matrix.values]
        return np.array(rows, dtype=object)

    state, rows = fractions(system.start), []
    for t in range(system.horizon):
        rows.append(fractions(system.C(t)) @ state)
        state = fractions(system.A(t)) @ state if t + 1 < system.horizon else state
    return np.vstack(rows).astype(float)


def recorded(mechanism):
    """The same noise as matrices on the manifold of whole trajectories, by the generic path."""
    import scipy.sparse as sparse

    from affinedp.mechanism import build
    from affinedp.neighbours.trajectory import trajectory_manifold
    from affinedp.strategies.trajectory import Trajectory

    dynamics, noise = mechanism.domain, mechanism.noise_matrix
    if isinstance(mechanism.strategy, Trajectory):
        noise = exact_loadings(mechanism.strategy)
    manifold = trajectory_manifold(dynamics)
    outputs = [dynamics.output_matrix(t) for t in range(dynamics.horizon)]
    query = sparse.csr_array(sparse.block_diag(outputs))
    root = np.eye(noise.shape[1])
    rate = 1.0
    if mechanism.law == "knorm":
        noise, root = mechanism.strategy.loadings(), mechanism.noise.points
        rate = mechanism.noise.rate
    return build(
        mechanism.adjacency.on_manifold(manifold), query, noise, root, mechanism.law,
        tuple(mechanism.strategy.names), rate=rate,
    )  # fmt: skip
