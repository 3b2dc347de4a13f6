"""Connections to a real broker: how they begin, come back, and fail."""

import logging
import socket
import sys
import threading

import pytest

from affinedp.errors import AffineDPError, MissingExtraError
from affinedp.mqtt import connection as mqtt
from affinedp.mqtt.broker import Broker, password_from
from affinedp.mqtt.connection import Connection, Message
from brokers import KINDS, PATIENCE, Mosquitto, certificates, free_port, private_broker, until

pytest.importorskip("paho.mqtt.client")


@pytest.fixture(scope="module", params=KINDS)
def broker(request, tmp_path_factory):
    with private_broker(tmp_path_factory.mktemp("broker"), request.param) as started:
        yield started


# ---------------------------------------------------------------------- addresses and passwords


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost", "localhost", 1883),
        (" localhost:2000 ", "localhost", 2000),
        ("192.0.2.7:1", "192.0.2.7", 1),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1%eth0]", "fe80::1%eth0", 1883),
        ("::1", "::1", 1883),
    ],
)
def test_addresses(text, host, port):
    found = Broker.parse(text)
    assert (found.host, found.port) == (host, port)
    assert Broker.parse(found.address) == found


NO_ADDRESSES = (
    ": a: :1883 a:b a:-1 a:1883x a:0 a:65536 a:99999999999 a:१२३ http://a:1 a/b "
    "mqtts://u:password@a:1 a@b@c [::1 [::1]1883 [::1]: [a]:1 [] \0:1"
)


@pytest.mark.parametrize("text", ["", "a b:1", *NO_ADDRESSES.split()])
def test_addresses_that_are_none(text):
    with pytest.raises(AffineDPError):
        Broker.parse(text)


def test_settings_that_do_not_fit():
    assert Broker.parse("a", tls=True).port == 8883
    for wrong in (
        {"password": "x"},
        {"ca_file": "ca.pem"},
        {"tls": True, "key_file": "key.pem"},
    ):
        with pytest.raises(AffineDPError):
            Broker.parse("a", **wrong)


def test_password_is_not_shown():
    assert "secret" not in repr(Broker("a", username="me", password="secret"))


def test_password_sources(tmp_path, monkeypatch):
    file = tmp_path / "password"
    file.write_text("first line \nsecond\n")
    monkeypatch.setenv("AFFINEDP_MQTT_PASSWORD", "from the environment")
    assert password_from(file) == "first line "
    assert password_from() == "from the environment"
    file.write_text("\n")
    with pytest.raises(AffineDPError, match="empty"):
        password_from(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(AffineDPError, match="UTF-8"):
        password_from(file)
    with pytest.raises(AffineDPError, match="No such file"):
        password_from(tmp_path / "absent")


# ---------------------------------------------------------------------- messages


def test_messages_arrive_in_order_on_the_callers_thread(broker):
    sent = [Message("a/b", bytes([n]) * n) for n in range(50)]
    with (
        Connection(Broker.parse(broker.address), ["a/#"]) as reader,
        Connection(Broker.parse(broker.address)) as writer,
    ):
        assert reader.connected
        assert writer.connected
        for message in sent:
            assert writer.publish(*message)
        assert [reader.receive(PATIENCE) for _ in sent] == sent
        assert reader.receive(0.0) is None
    assert not any(thread.name == "mqtt" for thread in threading.enumerate())


def test_no_delay(broker):
    with Connection(Broker.parse(broker.address)) as connection:
        opened = connection._client.socket()
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.mark.parametrize("topic", ["", "a#", "a/#/b", "a+/b", "a\0b", "x" * 70_000])
def test_topics_that_are_none(broker, topic):
    with pytest.raises(AffineDPError, match="no topic"):
        Connection(Broker.parse(broker.address), [topic])


def test_wildcards_are_not_published_to(broker):
    with (
        Connection(Broker.parse(broker.address)) as connection,
        pytest.raises(AffineDPError, match="wildcards"),
    ):
        connection.publish("a/+", b"")


def test_messages_that_nobody_takes_are_dropped_and_counted(broker, monkeypatch, caplog):
    with (
        Connection(Broker.parse(broker.address), ["flood"]) as reader,
        Connection(Broker.parse(broker.address)) as writer,
    ):
        monkeypatch.setattr(mqtt, "MOST_WAITING", 3)
        for n in range(5):
            writer.publish("flood", bytes([n]))
        until(lambda: reader.dropped.counts == {"too fast": 2})
        assert [reader.receive(1.0).payload for _ in range(3)] == [b"\0", b"\1", b"\2"]
    assert "faster than they are handled" in caplog.text


# ---------------------------------------------------------------------- coming back


def test_comes_back_after_the_broker_died(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "affinedp.mqtt.connection")
    with (
        private_broker(tmp_path) as mortal,
        Connection(Broker.parse(mortal.address), ["a"]) as connection,
    ):
        for _ in range(2):
            mortal.kill()
            until(lambda: not connection.connected)
            assert not connection.publish("a", b"dropped")
            mortal.start()
            until(lambda: connection.connected)
            assert connection.publish("a", b"arrives")
            assert connection.receive(PATIENCE) == ("a", b"arrives")
            assert connection.receive(0.0) is None
    assert caplog.text.count("lost the broker") == 2
    assert caplog.text.count("again") >= 2


def test_closes_while_the_broker_is_away(tmp_path):
    with private_broker(tmp_path) as mortal, Connection(Broker.parse(mortal.address)) as connection:
        mortal.kill()
        until(lambda: not connection.connected)
    assert not connection._thread.is_alive()


def test_an_error_in_the_network_thread_reaches_the_caller(broker):
    with Connection(Broker.parse(broker.address), ["a"]) as connection:
        connection._inbox = None  # breaks the thread when a message comes
        connection.publish("a", b"")
        until(lambda: not connection._thread.is_alive())
        with pytest.raises(AffineDPError, match="broke down: AttributeError"):
            connection.publish("a", b"")


# ---------------------------------------------------------------------- refusals


def refused(broker, topics=(), timeout=10.0):
    with pytest.raises(AffineDPError) as refusal, Connection(broker, topics, timeout=timeout):
        pass
    return str(refusal.value)


def test_nobody_listens():
    assert "no broker listens" in refused(Broker("localhost", free_port()))


def test_unknown_host():
    assert "no host named 'nowhere.invalid'" in refused(Broker("nowhere.invalid"))


def test_somebody_else_listens():
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert "does not answer" in refused(Broker(*other.getsockname()), timeout=0.2)
        other.accept()[0].close()
        guest = threading.Thread(target=lambda: other.accept()[0].close())
        guest.start()
        assert "closed the connection" in refused(Broker(*other.getsockname()))
        guest.join()


def test_wrong_password(tmp_path):
    with Mosquitto(tmp_path, users={"plant": "right"}) as guarded:
        right = Broker.parse(guarded.address, username="plant", password="right")
        with Connection(right) as connection:
            assert connection.connected
        wrong = Broker.parse(guarded.address, username="plant", password="wrong")
        message = refused(wrong)
        assert "wrong username or password" in message
        assert "wrong'" not in message
        assert "wants a username" in refused(Broker.parse(guarded.address))


def test_access_is_denied(tmp_path):
    rules = "user plant\ntopic write plant/y\n"
    with Mosquitto(tmp_path, users={"plant": "right"}, acl=rules) as guarded:
        plant = Broker.parse(guarded.address, username="plant", password="right")
        with Connection(plant) as connection:
            assert connection.publish("cloud/u", b"forged")
            until(lambda: connection.dropped.counts == {"refused by the broker": 1})


def test_subscription_is_denied(broker):
    # mosquitto grants every subscription and delivers nothing; other brokers say no
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.reasoncodes import ReasonCode

    connection = Connection(Broker.parse(broker.address), ["a", "b"])
    codes = [ReasonCode(PacketTypes.SUBACK, name) for name in ("Granted QoS 1", "Not authorized")]
    with pytest.raises(AffineDPError, match="refuses the subscription to 'b': Not authorized"):
        connection._on_subscribe(connection._client, None, 1, codes, None)


def test_tls(tmp_path):
    ca, certificate, key = certificates(tmp_path / "made")
    other_ca, *_ = certificates(tmp_path / "other")
    with Mosquitto(tmp_path / "broker", tls=(ca, certificate, key)) as secure:
        address = secure.address
        with Connection(Broker.parse(address, tls=True, ca_file=ca), ["a"]) as connection:
            connection.publish("a", b"x" * 50_000)
            assert connection.receive(PATIENCE).payload == b"x" * 50_000
        assert "not trusted" in refused(Broker.parse(address, tls=True, ca_file=other_ca))
        assert "not trusted" in refused(Broker.parse(address, tls=True))
        assert "not trusted" in refused(Broker("127.0.0.1", secure.port, tls=True, ca_file=ca))
        assert "may want TLS" in refused(Broker.parse(address))
        for wrong, text in (
            ({"ca_file": tmp_path / "absent"}, "CA file .* No such file"),
            ({"ca_file": key}, "CA file"),
            ({"ca_file": ca, "cert_file": ca, "key_file": key}, "MISMATCH"),
        ):
            with pytest.raises(AffineDPError, match=text):
                Connection(Broker.parse(address, tls=True, **wrong))


def test_tls_to_a_port_without(broker):
    assert "no TLS with" in refused(Broker.parse(broker.address, tls=True))


def test_missing_paho(monkeypatch):
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[network\]"):
        Connection(Broker())


def test_who_leaves_amid_messages_is_heard_to_the_end(broker):
    """What is unread when a socket closes must not take down what was just published."""
    heard, place = set(), Broker.parse(broker.address)
    with Connection(place, ["last"], lambda said: heard.add(said.payload)):
        for number in range(20):
            with Connection(place, ["much"]) as leaving:
                for _ in range(100):
                    leaving.publish("much", b"!" * 1000)
                assert leaving.publish("last", b"%d" % number)
        until(lambda: len(heard) == 20)
