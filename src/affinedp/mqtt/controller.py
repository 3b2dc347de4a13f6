"""The controller in the cloud, step by step: it always has an answer, also where nothing came."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np

from affinedp.arrays import FloatArray
from affinedp.control.loop.closed_loop import ClosedLoop
from affinedp.errors import AffineDPError
from affinedp.files.writing import write_text

Missing = Literal["predict", "hold", "stop"]
# Answers that are kept for steps that are asked about again.
KEPT = 4096


class Controller:
    """Observer and feedback of a :class:`~affinedp.control.ClosedLoop` (section V.C of the paper).

    Where no measurement came the plant gets the feedback of the predicted state, or with "hold"
    the input before it once more; the observer takes into account which.

    >>> loop = ClosedLoop(([[1.0]], [[1.0]], [[1.0]]), [[0.5]], [[0.5]], reference=[2.0])
    >>> controller = Controller(loop, horizon=5)
    >>> controller.answer(0, np.array([4.0])), controller.answer(0, np.array([9.0]))
    (array([1.]), array([1.]))
    >>> controller.answer(2, np.array([4.0])), controller.answer(1, None)     # step 1 was predicted
    (array([-0.25]), array([-0.5]))
    """

    def __init__(
        self, loop: ClosedLoop, horizon: int, missing: Literal["predict", "hold"] = "predict"
    ) -> None:
        self._loop = loop
        self._horizon = horizon
        self._missing = missing
        self._references = loop.references(horizon)
        self._estimate = loop.xhat0
        self._given: dict[int, FloatArray] = {}
        self.next_step = 0

    def answer(self, step: int, received: FloatArray | None) -> FloatArray | None:
        """Return u(step), given ŷ(step) if there is one; None if it is long ago and forgotten.

        Over steps that were skipped the observer predicts, as if the plant had got the answers.
        """
        if step < self.next_step:
            return self._given.get(step)
        while self.next_step < step:
            self._advance(None)
        return self._advance(received)

    def _advance(self, received: FloatArray | None) -> FloatArray:
        """Take one step, with or without a correction; refuse before anything has changed."""
        plant, loop, estimate = self._loop.plant, self._loop, self._estimate
        with np.errstate(over="ignore", invalid="ignore"):
            given = loop.feedback @ (self._references[self.next_step] - estimate)
            if received is None and self._missing == "hold":
                given = self._given.get(self.next_step - 1, np.zeros_like(given))
            predicted = plant.A @ estimate + plant.B @ given
            if received is not None:
                surprise = received - plant.C @ estimate - plant.D @ given
                predicted = predicted + loop.observer @ surprise
        if not (np.all(np.isfinite(predicted)) and np.all(np.isfinite(given))):
            raise AffineDPError(
                f"the observer would leave double precision at step {self.next_step}: that "
                "measurement is absurd, or A − L C or A − B K is not stable"
            )
        self._estimate = predicted
        self._given[self.next_step] = np.asarray(given)
        self._given.pop(self.next_step - KEPT, None)
        self.next_step += 1
        return np.asarray(given)

    def save(self, path: Path, run: str) -> None:
        """Write down how far it has come; an existing file is replaced at once or not at all.

        Nothing in it is secret: all of it follows from what was published.
        """
        recent = sorted(self._given)[-64:]
        record = {
            "loop": self._fingerprint(),
            "run": run,
            "next_step": self.next_step,
            "estimate": [float(v).hex() for v in self._estimate],
            "given": {str(t): [float(v).hex() for v in self._given[t]] for t in recent},
        }
        write_text(path, json.dumps(record))

    def resume(self, path: Path) -> str | None:
        """Go on from what :meth:`save` wrote; return the run, or None if there is no file."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            same = record["loop"] == self._fingerprint()
            if same:
                self._take(record)
                return str(record["run"])
        except FileNotFoundError:
            return None
        except (OSError, LookupError, TypeError, ValueError, AttributeError):
            raise AffineDPError(
                f"{path} cannot be read: remove it, and the observer starts anew"
            ) from None
        raise AffineDPError(
            f"{path} is of another loop, or of another choice for missing steps: give another "
            "file, or remove it"
        )

    def _take(self, record: dict[str, Any]) -> None:
        estimate = np.array([float.fromhex(v) for v in record["estimate"]])
        given = {
            int(t): np.array([float.fromhex(v) for v in values])
            for t, values in record["given"].items()
        }
        if estimate.shape != self._estimate.shape or not np.all(np.isfinite(estimate)):
            raise ValueError
        self.next_step = int(record["next_step"])
        self._estimate, self._given = estimate, given

    def _fingerprint(self) -> str:
        """A hash of everything that decides the answers."""
        plant, loop = self._loop.plant, self._loop
        digest = hashlib.sha256(f"{self._horizon} {self._missing}".encode())
        parts = (plant.A, plant.B, plant.C, plant.D, loop.feedback, loop.observer, loop.xhat0)
        for part in (*parts, self._references):
            digest.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
        return digest.hexdigest()
