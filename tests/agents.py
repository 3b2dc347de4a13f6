"""The network of section VI of the paper, written down once more."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

EDGES = (
    (1, 2), (1, 10), (2, 3), (2, 5), (2, 10), (3, 4), (4, 5), (5, 6), (5, 7), (6, 7), (7, 8),
    (7, 10), (8, 9), (9, 10),
)  # fmt: skip
VALUES = (10.0, 100.0, 20.0, -30.0, -20.0, -60.0, 70.0, 0.0, 80.0, -20.0)
WEIGHT = 0.25


def neighbours(agent: int) -> list[int]:
    return sorted({a + b - agent for a, b in EDGES if agent in (a, b)})


def transition(links: dict[str, dict[str, float]]) -> np.ndarray:
    """P = I − L, agents in the order of ``links``."""
    place = {name: i for i, name in enumerate(links)}
    matrix = np.eye(len(links))
    for name, weights in links.items():
        for other, weight in weights.items():
            matrix[place[name], place[other]] += weight
            matrix[place[name], place[name]] -= weight
    return matrix


def overheard(log: Path) -> dict[tuple[str, int], set[float]]:
    """All values that were ever seen, by agent and round, whatever else is in the log."""
    found: dict[tuple[str, int], set[float]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        payload = json.loads(line).get("payload", "")
        if '"agent"' not in payload:
            continue
        message = json.loads(payload)
        message = message.get("message", message)  # of a sealed one, the inside
        t = message["round"]
        found.setdefault((message["agent"], t), set()).add(message["y"])
        if t:
            found.setdefault((message["agent"], t - 1), set()).add(message["previous"])
    return found
