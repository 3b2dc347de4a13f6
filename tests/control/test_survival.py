"""A loop that survives its plant: power cuts, full disks, late brokers, second gateways."""

import signal
import subprocess
import sys
import textwrap

import pytest

from affinedp.budget.ledger import Ledger
from affinedp.control import ClosedLoop, Gateway, design_output_noise
from affinedp.control.gateway import StepError
from affinedp.stream.run import RunError
from disks import MortalDisk, SmallDisk

HORIZON = 25
A, B, C = [[1.0, 0.1], [0.0, 1.0]], [[0.005], [0.1]], [[1.0, 0.0]]
K, L = [[3.4240, 4.3095]], [[0.8266], [0.6973]]
LOOP = ClosedLoop((A, B, C), K, L, [1.0, 0.0], x0=[-20.0, 0.0], xhat0=[1.0, 2.0])
NOISE = design_output_noise((A, C), HORIZON, epsilon=1.0, delta=0.01)


# ---------------------------------------------------------------------- disks

SENDING = """
    import sys
    from affinedp import Mechanism
    from affinedp.control import Gateway
    mechanism = Mechanism.load(sys.argv[1])
    with Gateway(mechanism, state=sys.argv[2], resolution=0.001) as gateway:
        while True:
            step = gateway.next_step
            print(step, gateway.send([1.0], step, run="r").tobytes().hex(), flush=True)
"""


@pytest.mark.slow
def test_power_is_cut_while_sending(tmp_path):
    """What came out comes out again or not at all, and nothing that may have is sent anew."""
    m = design_output_noise(([[1]], [[1]]), 4000, epsilon=1, delta=1e-3)
    m.save(tmp_path / "m.json")
    with MortalDisk(tmp_path) as disk:
        state = disk.place / "run.db"
        seen = {}
        for lines in (1, 40, 300):
            process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(SENDING), tmp_path / "m.json", state],
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            printed = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGSTOP)
            left = disk.snapshot()
            process.kill()
            printed += process.communicate()[0].splitlines(keepends=True)
            for step, sent in (line.split() for line in printed if line.endswith("\n")):
                assert int(step) not in seen, "a step went out twice"
                seen[int(step)] = sent
            disk.boot(left)
        again = lost = 0
        with Gateway(m, state=state, resolution=0.001) as gateway:
            assert gateway.run == "r", "whose draw it is survives"
            assert gateway.next_step > max(seen)
            for step, sent in seen.items():
                try:
                    assert gateway.send([1.0], step).tobytes().hex() == sent
                    again += 1
                except StepError:
                    lost += 1
            gateway.send([1.0])
        assert again + lost == len(seen) > 300
        assert lost > 0, "the cut came too gently to test anything"


@pytest.mark.slow
@pytest.mark.parametrize("lines", [0, 1])
def test_power_is_cut_at_the_start(tmp_path, lines):
    """The draw and its charge are on the disk before anything is sent."""
    NOISE.save(tmp_path / "m.json")
    code = """
        import sys, time
        from affinedp.budget.ledger import Ledger
        from affinedp import Mechanism
        from affinedp.control import Gateway
        ledger = Ledger(sys.argv[3], create=False)
        m = Mechanism.load(sys.argv[1])
        gateway = Gateway(m, state=sys.argv[2], resolution=0.001, ledger=ledger)
        print("drawn", flush=True)
        print(gateway.send([1.0], run="r").tobytes().hex(), flush=True)
        time.sleep(100)
    """
    with MortalDisk(tmp_path) as disk:
        state, budget = disk.place / "run.db", disk.place / "budget.db"
        with Ledger(budget, epsilon=3.0, delta=0.05, protects="one vehicle"):
            pass
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), tmp_path / "m.json", state, budget],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        printed = [process.stdout.readline() for _ in range(1 + lines)]
        process.send_signal(signal.SIGSTOP)
        left = disk.snapshot()
        process.kill()
        process.communicate()
        disk.boot(left)
        with Ledger(budget) as ledger, Gateway(
            NOISE, state=state, resolution=0.001, ledger=ledger
        ) as gateway:  # fmt: skip
            assert len(ledger.history()) == 1
            if lines:  # the first step is waited for: it names the run
                assert gateway.run == "r"
                assert gateway.send([1.0], 0).tobytes().hex() == printed[1].strip()
            else:
                assert gateway.next_step <= 1


def test_no_draw_on_a_full_disk(tmp_path):
    with (
        SmallDisk(tmp_path, 64) as disk,
        Ledger(tmp_path / "b.db", epsilon=3.0, delta=0.05, protects="one vehicle") as ledger,
    ):
        disk.fill()
        with pytest.raises(RunError):
            Gateway(NOISE, state=disk.place / "run.db", resolution=0.001, ledger=ledger)
        assert {name.name for name in disk.place.iterdir()} <= {"filler"}, "no draw is left behind"
