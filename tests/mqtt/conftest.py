"""A broker for all tests of a module, and things that run beside a test."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from affinedp.mqtt.broker import Broker
from brokers import private_broker, until

pytest.importorskip("paho.mqtt.client")


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    with private_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield Broker.parse(broker.address)


@pytest.fixture
def start():
    """Run something beside the test: ``start(function, ...)``; all are stopped at its end."""
    stop = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        yield lambda function, *words, **more: pool.submit(function, *words, stop, **more)
        stop.set()


@pytest.fixture
def ready(caplog):
    """Wait until processes in threads say that they listen, so many times."""
    caplog.set_level("INFO")

    def wait(*names, times=1):
        for who in names:
            until(
                lambda who=who: (
                    sum(f"{who}:" in line and "listening" in line for line in caplog.messages)
                    >= times
                )
            )

    return wait
