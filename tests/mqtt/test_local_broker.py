"""The broker for trials beside mosquitto, and that none outlives us."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from affinedp.errors import AffineDPError
from affinedp.mqtt.broker import Broker
from affinedp.mqtt.connection import Connection, Will, is_older
from affinedp.mqtt.gateway_process import Claim
from affinedp.mqtt.local_broker import local_broker
from affinedp.mqtt.process import Place
from brokers import KINDS, PATIENCE, Embedded, Mosquitto, private_broker, processes_about, until

pytest.importorskip("paho.mqtt.client")
pytest.importorskip("amqtt")


@pytest.fixture(scope="module", params=KINDS)
def own(request, tmp_path_factory):
    with private_broker(tmp_path_factory.mktemp("broker"), request.param) as started:
        yield request.param, Broker.parse(started.address)


def listens(broker):
    try:
        socket.create_connection((broker.host, broker.port), timeout=1.0).close()
    except OSError:
        return False
    return True


def test_a_broker_of_ones_own(tmp_path):
    with local_broker(tmp_path) as started, Connection(started, ["t"]) as connection:
        assert started.host == "127.0.0.1"
        assert is_older(connection._client), "amqtt speaks MQTT 3.1.1"
        assert connection.publish("t", b"heard")
        assert connection.receive(PATIENCE).payload == b"heard"
    assert not listens(started)


def test_version_5_where_it_is_spoken(own):
    kind, broker = own
    with Connection(broker) as connection:
        assert is_older(connection._client) == (kind == "embedded")


def test_what_is_kept(own):
    """Whoever subscribes is sent it once, whoever does not want it is not, nor is anyone else."""
    _, broker = own
    with Connection(broker, ["kept/#"]) as first, Connection(broker, ["kept/other"]) as other:
        first.publish("kept/a", b"1", retain=True)
        assert first.receive(PATIENCE) == ("kept/a", b"1")
        with (
            Connection(broker, ["kept/+"]) as late,
            Connection(broker, ["kept/a"], retained=False) as fresh,
        ):
            assert late.receive(PATIENCE) == ("kept/a", b"1")
            first.publish("kept/a", b"2")
            assert late.receive(PATIENCE) == ("kept/a", b"2")
            assert fresh.receive(PATIENCE) == ("kept/a", b"2")
        first.publish("kept/a", b"", retain=True)
        first.publish("kept/other", b"3")
        assert other.receive(PATIENCE) == ("kept/other", b"3")
        with Connection(broker, ["kept/a"]) as late:
            assert late.receive(0.3) is None


@pytest.mark.parametrize("retain", [True, False])
def test_last_will(own, retain):
    _, broker = own
    with Connection(broker, ["will"]) as witness:
        dying = Connection(broker, will=Will("will", b"", retain))
        dying.__enter__()
        dying._client.socket().shutdown(socket.SHUT_RDWR)  # no goodbye
        assert witness.receive(PATIENCE) == ("will", b"")
        dying.close()


def test_one_publisher_at_a_time(own):
    _, broker = own
    place = Place(broker, "claimed")
    with Claim(place, "me"):
        with pytest.raises(AffineDPError, match="another gateway"), Claim(place, "you"):
            pass
        # the claim that came second stands there until its owner has renewed the first
        with Connection(broker, ["claimed/claim"]) as witness:
            while b"me" not in witness.receive(PATIENCE).payload:
                pass
        with Claim(place, "me"):
            pass
    with Claim(place, "you"):
        pass


def test_many_at_once(own):
    """While some come and go, nothing is lost and the order of each is kept."""
    _, broker = own
    count, each = 8, 40

    def talk(i):
        with Connection(broker, [f"many/{i}"]) as connection:
            for k in range(each):
                assert connection.publish(f"many/{i}", b"%d" % k)
            return [int(connection.receive(PATIENCE).payload) for _ in range(each)]

    with ThreadPoolExecutor(count) as pool:
        for heard in pool.map(talk, range(count)):
            assert heard == list(range(each))


def test_who_does_not_speak_mqtt_is_left(own):
    _, broker = own
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"):
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE) as stranger:
            stranger.sendall(words)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(100)[:1] in (b"", b"\x20")
    with Connection(broker):
        pass  # others are served as before


def test_it_ends_with_its_parent(tmp_path):
    """Also when that is killed and cannot tidy up."""
    code = textwrap.dedent(
        f"""
        import pathlib, time
        from affinedp.mqtt.local_broker import local_broker
        with local_broker(pathlib.Path({str(tmp_path)!r})) as broker:
            print(broker.port, flush=True)
            time.sleep(600)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    broker = Broker("127.0.0.1", int(parent.stdout.readline()))
    assert listens(broker)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until(lambda: not listens(broker))
    until(lambda: not processes_about(tmp_path))


def test_without_any(monkeypatch, tmp_path):
    monkeypatch.setattr("affinedp.mqtt.local_broker.has_embedded", lambda: False)
    said = r"pip install .*\[broker,network\].*mosquitto.*--broker host:port"
    with pytest.raises(AffineDPError, match=said), local_broker(tmp_path):
        pass


def test_a_broker_that_does_not_start(monkeypatch, tmp_path):
    false = tmp_path / "python"
    false.write_text("#!/bin/sh\necho no such luck\nexit 3\n")
    false.chmod(0o755)
    monkeypatch.setattr("affinedp.mqtt.local_broker.sys.executable", str(false))
    said = "does not start: no such luck"
    with pytest.raises(AffineDPError, match=said), local_broker(tmp_path):
        pass


def test_a_port_that_is_taken(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(AffineDPError, match="no broker can be at port .*in use"),
        local_broker(tmp_path, port=taken.getsockname()[1]),
    ):
        pass


def test_a_broker_that_comes_to_speak_less(tmp_path):
    """mosquitto goes, and the embedded one comes in its place: the connection comes back."""
    first, second = Mosquitto(tmp_path), Embedded(tmp_path)
    with first:
        connection = Connection(Broker.parse(first.address), ["t"])
        connection.__enter__()
    until(lambda: not connection.connected)
    second.port = first.port
    with second:
        until(lambda: connection.connected)
        assert is_older(connection._client)
        assert connection.publish("t", b"back")
        assert connection.receive(PATIENCE).payload == b"back"
        connection.close()


def test_one_that_was_killed_comes_back(tmp_path):
    """Otherwise whoever waits for messages would wait for ever."""
    others = serving()
    with local_broker(tmp_path) as started, Connection(started, ["t"]) as connection:
        for _ in range(2):
            (broker,) = serving() - others
            os.kill(broker, signal.SIGKILL)
            until(lambda: not connection.connected)
            until(lambda: connection.connected)
            assert connection.publish("t", b"heard")
            assert connection.receive(PATIENCE).payload == b"heard"
    assert not listens(started)
    assert serving() == others


def serving():
    """Numbers of our brokers."""
    listed = subprocess.run(
        ["ps", "-ewwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    return {
        int(pid)
        for pid, parent, words in (line.split(None, 2) for line in listed.stdout.splitlines())
        if "affinedp.mqtt.local_broker" in words
        and int(parent) == os.getpid()
        and "defunct" not in words
    }
