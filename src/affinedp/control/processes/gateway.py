"""The gateway as a process: measurements in, noisy measurements out."""

from __future__ import annotations

import logging
import threading

from affinedp.control.gateway.gateway import Gateway, GatewayStateError, HorizonError, LateStepError
from affinedp.control.processes.messages import decode, encode
from affinedp.errors import AffineDPError
from affinedp.wire.line import LINGER, Line, OnStep, Outcome, Place, say_ready
from affinedp.wire.messages import Dropped, MalformedMessageError

logger = logging.getLogger(__name__)


def run_gateway(
    gateway: Gateway,
    source: Place,
    target: Place,
    stop: threading.Event,
    *,
    linger: float = LINGER,
    on_step: OnStep | None = None,
) -> Outcome:
    """Read measurements, and publish them with noise.

    A step that was published before is published again with the same bytes, whatever the
    repeated measurement says.  Steps that come too late are dropped.

    Parameters
    ----------
    gateway : Gateway
        What adds the noise.
    source, target : Place
        Where measurements come from, and where noisy ones go.  Who can read the source sees the
        measurements themselves: it belongs on a broker on the plant's side.
    stop : Event
        Ends it.
    linger : float
        Seconds without a message after the last step, after which it ends by itself.
    on_step : callable, optional
        Called with each step that was published.

    Returns
    -------
    Outcome
    """
    dropped = Dropped("gateway")
    past_horizon = False

    def handle(payload: bytes) -> None:
        nonlocal past_horizon
        # No payload is logged here: it holds a measurement without noise.
        try:
            step, measured = decode(payload, "y", gateway.mechanism.outputs)
            published = gateway.send(measured, step)
        except MalformedMessageError as error:
            dropped.add("malformed", str(error))
        except LateStepError as error:
            dropped.add("late", str(error))
        except HorizonError as error:
            past_horizon = True
            logger.info("gateway: %s; it ends here", error)
        except GatewayStateError:
            raise
        except AffineDPError as error:
            dropped.add("refused", str(error))
        else:
            if not line.send(encode(step, "y", published)):
                dropped.add("broker away", f"step {step}; it is sent again when y comes again")
            elif on_step is not None:
                on_step(step)

    def done(quiet: float) -> bool:
        return past_horizon or (gateway.next_step >= gateway.horizon and quiet >= linger)

    line = Line(source, target, handle)
    with line:
        say_ready("gateway", source, target, f"at step {gateway.next_step} of {gateway.horizon}")
        line.serve(done, stop)
    return Outcome(gateway.next_step, gateway.next_step >= gateway.horizon, dropped.counts)
