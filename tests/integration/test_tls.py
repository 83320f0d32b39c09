"""TLS towards a Redis: an unknown certificate is refused, by the broker's side as well."""

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aegish_dist.broker.app import tls_of
from aegish_dist.broker.client import check_broker, publish, queue_depths
from aegish_dist.broker.messages import queue_name
from aegish_dist.core.verdict import Item
from aegish_dist.errors import QueueError
from aegish_dist.ratelimit.shared_limiter import server_facts
from tests.services import HOST, ServerProcess, free_port, queue_application, require_binary


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of a server on this host, signed by itself; its key lies beside it."""
    folder = tmp_path_factory.mktemp("tls")
    request = (
        "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=test"
    )
    words = (*request.split(), "-addext", f"subjectAltName=IP:{HOST}")
    openssl = require_binary("openssl")
    subprocess.run([openssl, *words], cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture(scope="module")
def url(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Redis that speaks nothing but TLS."""
    home = tmp_path_factory.mktemp("redis-tls")
    server = ServerProcess(free_port(), home / "redis.log")
    key = certificate.with_name("key.pem")
    options = f"""--port 0 --tls-port {server.port} --bind {HOST} --dir {home} --save ''
        --tls-cert-file {certificate} --tls-key-file {key} --tls-auth-clients no"""
    server.launch([require_binary("redis-server"), *shlex.split(options)])
    yield f"rediss://{HOST}:{server.port}/0"
    server.stop()


def probe_broker(url: str) -> None:
    """Connect as commands and workers do."""
    check_broker(queue_application(url))


@pytest.mark.parametrize("probe", [probe_broker, server_facts])
def test_an_unknown_certificate(url: str, probe: Callable[[str], None]) -> None:
    with pytest.raises(QueueError, match=r"(?i)certificate verify failed") as caught:
        probe(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", ["ssl_ca_certs={}", "ssl_cert_reqs=none"])
def test_a_certificate_that_is_trusted(url: str, certificate: Path, option: str) -> None:
    trusting = f"{url}?{option.format(certificate)}"
    server_facts(trusting)
    app = queue_application(trusting)
    publish(app, [Item("run", "test/tls", 1)])
    queue = queue_name("test/tls", "run")
    assert queue_depths(app, [queue]) == {queue: 1}
    app.connection_for_write().default_channel.queue_purge(queue)


def test_a_port_without_tls(redis_url: str) -> None:
    started = time.monotonic()
    with pytest.raises(QueueError):
        probe_broker(redis_url.replace("redis:", "rediss:"))
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"cert_reqs": 2, "server_hostname": None}),
        ("?ssl_ca_certs=/ca", {"ca_certs": "/ca", "cert_reqs": 2, "server_hostname": None}),
        ("?ssl_check_hostname=false", {"cert_reqs": 2}),
        ("?ssl_cert_reqs=none", {"cert_reqs": 0}),
    ],
)
def test_options_for_rabbitmq(query: str, expected: dict[str, object]) -> None:
    """Its client knows them under other names, and verifies the name of the host."""
    assert tls_of(f"amqps://u:p@broker.example//{query}") == (
        "amqps://u:p@broker.example//",
        expected,
    )
