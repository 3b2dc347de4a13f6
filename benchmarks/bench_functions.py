"""Coverage of intervals for functions of published numbers, beside the delta method."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm

import affinedp as adp

LEVEL = 0.95
EPSILON, DELTA = 1.0, 1e-6
FLOOR = 0.5  # cells below it are read as this: shares have no logarithm at 0


def sums(n: int, total: float) -> adp.AffineManifold:
    """n cells with a public total."""
    return adp.AffineManifold(np.ones((1, n)), b=[-total])


def designed(manifold: adp.AffineManifold, law: str) -> adp.Mechanism:
    """The least noise of a law."""
    if law == "gaussian":
        return adp.design_gaussian(manifold, epsilon=EPSILON, delta=DELTA)
    if law == "laplace":
        return adp.design_laplace(manifold, epsilon=EPSILON)
    return adp.design_knorm(manifold, epsilon=EPSILON)


def shares(y: Any) -> Any:
    return np.maximum(y, FLOOR) / np.maximum(y, FLOOR).sum()


def concentration(y: Any) -> Any:
    return (np.asarray(y) ** 2).sum() / np.asarray(y).sum() ** 2


def entropy(y: Any) -> Any:
    return -(shares(y) * np.log(shares(y))).sum()


def variance(y: Any) -> Any:
    return np.var(y)


THREE = adp.AffineManifold.from_equations(["a + b = c"])
YEARS = adp.AffineManifold(np.zeros((0, 4)), names=["old", "new", "sick", "people"])


def cases() -> list[tuple[str, adp.AffineManifold, Any, np.ndarray]]:
    """Names, equations, functions and data."""
    found: list[tuple[str, adp.AffineManifold, Any, np.ndarray]] = []
    for c in (60, 1000):
        found.append((f"share a/c, c = {c}", THREE, "a / c", np.array([0.3 * c, 0.7 * c, c])))
    found.append(("odds a/b, c = 200", THREE, "a / b", np.array([60.0, 140, 200])))
    found.append(("log odds, c = 200", THREE, "log(a / b)", np.array([60.0, 140, 200])))
    years = np.array([400.0, 460, 90, 1200])
    found.append(("growth new/old - 1", YEARS, "new / old - 1", years))
    found.append(("rate per 1000", YEARS, "1000 * sick / people", years))
    found.append(("log growth", YEARS, "log(new / old)", years))
    found.append(("product of rates", YEARS, "sick / people * new / old", years))
    for n, total in ((10, 1000), (100, 10_000), (1000, 100_000)):
        p = np.random.default_rng(7).dirichlet(np.full(n, 2.0))
        x = np.round(p * total)
        x[0] += total - x.sum()
        found.append((f"concentration, {n} cells", sums(n, total), concentration, x))
        found.append((f"entropy, {n} cells", sums(n, total), entropy, x))
        if n == 10:
            found.append(("variance, 10 cells", sums(n, total), variance, x))
            ages = np.linspace(5, 95, n)

            def mean_age(y: Any, ages: np.ndarray = ages) -> Any:
                return (ages * y).sum() / y.sum()

            flat = np.full(n, total / n)
            found.append(("concentration, 10 equal cells", sums(n, total), concentration, flat))
            free = adp.AffineManifold(np.zeros((0, n)))
            found.append(("weighted mean, 10 cells", free, mean_age, x))
    return found


def delta_method(m: adp.Mechanism, f: Callable[[Any], Any], y: np.ndarray) -> tuple[float, float]:
    """f(y) ± 1.96 √(J Σ J')."""
    step = 0.05 * np.sqrt(m.expected_squared_errors)
    shift = np.diag(step)
    with np.errstate(all="ignore"):
        slope = np.array([(f(y + e) - f(y - e)) / (2 * h) for e, h in zip(shift, step)])
        half = norm.ppf((1 + LEVEL) / 2) * np.sqrt(m.variance_of(np.nan_to_num(slope)))
        return f(y) - half, f(y) + half


def plain(m: adp.Mechanism, f: Any) -> Callable[[Any], Any]:
    """The function of all outputs, for the delta method."""
    if callable(f):
        return f
    names = list(m.output_names)
    code = compile(f, "formula", "eval")  # our own texts, above
    return lambda y: eval(code, {"log": np.log}, dict(zip(names, y)))


def measured(case: tuple[str, adp.AffineManifold, Any, np.ndarray], law: str, runs: int) -> str:
    name, manifold, f, x = case
    m = designed(manifold, law)
    own = plain(m, f)
    truth = float(own(x))
    noise = m.sample(runs, seed=11)
    hits = delta_hits = bounded = 0
    widths, deltas, warned = [], [], 0
    start = time.perf_counter()
    for e in noise:
        found = m.function(x + e, f, level=LEVEL)
        hits += any(low <= truth <= high for low, high in found.pieces)
        bounded += bool(found.bounded)
        widths.append(found.high - found.low)
        warned += bool(found.warnings)
    seconds = (time.perf_counter() - start) / runs
    for e in noise:
        low, high = delta_method(m, own, x + e)
        delta_hits += bool(low <= truth <= high)
        deltas.append(high - low)
    how = found.how.partition(":")[0].partition(" ")[0]
    return (
        f"| {name} | {law} | {hits / runs:.3f} | {delta_hits / runs:.3f} | "
        f"{np.median(widths) / np.median(deltas):.2f} | {how} | {warned / runs:.0%} | "
        f"{1e3 * seconds:.0f} |"
    )


# ---------------------------------------------------------------------- two looks, known reach


def losses_of(case: str) -> tuple[adp.AffineManifold, Any, Any, np.ndarray]:
    """DC losses of a case of pandapower, as a function of the injections at its buses."""
    import pandapower
    import pandapower.networks as networks

    net = getattr(networks, case)()
    pandapower.rundcpp(net)
    ppc = net._ppc
    branch, count = ppc["branch"].real, len(ppc["bus"])
    lines = branch[branch[:, 3] > 0]
    incidence = np.zeros((len(lines), count))
    incidence[np.arange(len(lines)), lines[:, 0].astype(int)] = 1
    incidence[np.arange(len(lines)), lines[:, 1].astype(int)] = -1
    weight = 1 / lines[:, 3]
    flows = (weight[:, None] * incidence) @ np.linalg.pinv(
        incidence.T @ (weight[:, None] * incidence)
    )
    square = flows.T @ (lines[:, 2, None] * flows) / ppc["baseMVA"]
    p = -ppc["bus"][:, 2].real.copy()
    np.add.at(p, ppc["gen"][:, 0].real.astype(int), ppc["gen"][:, 1].real)
    p = np.round(p - p.mean(), 3)
    p[0] -= p.sum()
    manifold = adp.AffineManifold(np.ones((1, count)))
    return manifold, lambda y: y @ square @ y, lambda y: 2 * square @ y, np.round(p, 3)


def table_case(n: int, total: float, kind: str) -> tuple[adp.AffineManifold, Any, Any, np.ndarray]:
    p = np.random.default_rng(7).dirichlet(np.full(n, 2.0))
    x = np.round(p * total)
    x[0] += total - x.sum()
    if kind == "concentration":
        return sums(n, total), lambda y: (y**2).sum() / total**2, lambda y: 2 * y / total**2, x

    def own(y: Any) -> Any:
        z = np.maximum(y, FLOOR) / total
        return -(z * np.log(z)).sum()

    def slope(y: Any) -> Any:
        return -(np.log(np.maximum(y, FLOOR) / total) + 1) / total

    return sums(n, total), own, slope, x


def two_looks(name: str, case: tuple[Any, Any, Any, np.ndarray], runs: int) -> str:
    """Errors of real releases of both ways."""
    manifold, f, slope, x = case
    truth = float(f(x))
    repair = "positive" if "entropy" in name else None
    made = adp.design_tangent(
        manifold, f, epsilon=EPSILON, delta=DELTA, gradient=slope, repair=repair
    )
    whole = adp.design_gaussian(manifold, epsilon=EPSILON, delta=DELTA)
    start = time.perf_counter()
    found = [made.release(x) for _ in range(runs)]
    seconds = (time.perf_counter() - start) / runs
    plain = [whole.function(whole.release(x), f).value - truth for _ in range(runs)]
    errors = [np.sqrt(np.mean(np.square(e))) for e in (plain, [one.value - truth for one in found])]
    hits = sum(one.low <= truth <= one.high for one in found) / runs
    return (
        f"| {name} | {truth:.5g} | {errors[0]:.3g} | {errors[1]:.3g} | "
        f"{errors[0] / errors[1]:.2f} | {hits:.2f} | {seconds:.2f} |"
    )


def known_reach() -> list[str]:
    """Noise on the value, beside the same function of a release of all entries."""
    n = 96
    generator = np.random.default_rng(5)
    hours = np.arange(n) / n * 2 * np.pi
    load = 200 + 80 * np.sin(hours - 1.5) + 40 * np.sin(2 * hours) + generator.normal(0, 6, n)
    load = np.round(load, 1)
    total = float(np.round(load.sum(), 1))
    manifold = sums(n, total)
    lines = []
    functions = {
        "peak": (adp.functions.peak(), np.max),
        "range": (adp.functions.range(), np.ptp),
        "exceedance of 280": (
            adp.functions.exceedance(280), lambda x: np.maximum(x - 280, 0).sum()
        ),
        "Gini": (
            adp.functions.gini(total), lambda x: np.abs(x[:, None] - x).sum() / (2 * n * total)
        ),
    }  # fmt: skip
    gaussian = adp.design_gaussian(manifold, epsilon=EPSILON, delta=DELTA)
    best = adp.design(manifold, epsilon=EPSILON, delta=DELTA)
    for name, (query, plain) in functions.items():
        row = f"| {name} | {plain(load):.5g} |"
        for law, whole in (("gaussian", gaussian), ("auto", best)):
            direct = adp.design(manifold, query=query, epsilon=EPSILON, delta=DELTA, law=law)
            after = np.array([plain(load + e) for e in whole.sample(2000, seed=3)]) - plain(load)
            own = np.sqrt(direct.expected_squared_error)
            row += (
                f" {np.sqrt((after**2).mean()):.3g} ({whole.law}) | {own:.3g} ({direct.law}) | "
                f"{np.sqrt((after**2).mean()) / own:.2f} |"
            )
        lines.append(row)
    return lines


def sharper(runs: int = 40) -> str:
    """Return the second half of the section."""
    lines = [
        "",
        "Two looks (`design_tangent`, share .5) beside one release with the whole budget, "
        f"debiased: root mean square errors of {runs} real releases each "
        f"(± {100 / (2 * runs) ** 0.5:.0f} %), "
        "ε = 1, δ = 10⁻⁶, Gaussian noise.",
        "",
        "| function | value | one release | two looks | gain | 95 % intervals cover | s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    cases = {
        "concentration, 1000 cells of 10⁵": table_case(1000, 1e5, "concentration"),
        "concentration, 100 cells of 10⁴": table_case(100, 1e4, "concentration"),
        "entropy, 1000 cells of 10⁶": table_case(1000, 1e6, "entropy"),
        "entropy, 1000 cells of 10⁵": table_case(1000, 1e5, "entropy"),
        "losses of case118, MW": losses_of("case118"),
    }
    for name, case in cases.items():
        lines.append(two_looks(name, case, runs))
        print(lines[-1], flush=True)
    lines += [
        "",
        "Functions with a known reach, 96 quarter hours with a public total: noise on the value, "
        "beside the function of a release of all entries (root mean square; bias included).",
        "",
        "| function | value | of a Gaussian release | Gaussian noise on it | gain | of the best "
        "release | best noise on it | gain |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *known_reach(),
    ]
    return "\n".join(lines)


def run(runs: int = 400) -> str:
    """Return the Markdown section."""
    lines = [
        "## Functions of published numbers",
        "",
        "How often 95 % intervals of `m.function` hold the true value, beside the delta method "
        "(f(y) ± 1.96 √(JΣJ')), for the least noise of each law at ε = 1 (δ = 10⁻⁶ for Gaussian "
        f"noise).  {runs:,} simulated releases a row ({runs // 2:,} for 100 cells and more), so "
        "± 2 %.  *width*: median width over that of the delta method.  *warned*: how often the "
        "answer says that noise is too large for it, or the interval is unbounded.",
        "",
        "| function | law | covers | delta method | width | how | warned | ms |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for case in cases():
        cells = len(case[3])
        laws = ("gaussian", "laplace", "knorm")[: 3 if cells < 10 else 2 if cells < 100 else 1]
        for law in laws:
            lines.append(measured(case, law, runs // 2 if cells >= 100 else runs))
            print(lines[-1], flush=True)
    return "\n".join(lines) + "\n" + sharper()


if __name__ == "__main__":
    print(run())
