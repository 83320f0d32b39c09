"""Origins, loopback and metadata services, in every notation that an operating system takes."""

import pytest

from aegish_dist.core.addresses import host_of, is_loopback, is_metadata, origin


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com:443"),
        ("HTTPS://API.OpenAI.com:443", "https://api.openai.com:443"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://[::1]:9/v1/", "http://[::1]:9"),
        ("http://my_llm/v1", "http://my_llm:80"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, expected: str) -> None:
    """The default port is spelled out, letters are lower case, the path does not count."""
    assert origin(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.openai.com",
        "ftp://api.openai.com",
        "https://",
        "https://user@api.openai.com",
        "https://api.openai.com@evil.test/v1",
        "https://api.openai.com\\@evil.test",
        "https://evil.test\\.api.openai.com",
        "https://api.openai.com#@evil.test",
        "https://api.openai.com?x=@evil.test",
        "https://api.openai.com:443@evil.test",
        "https://api.openai.com:99999",
        "https://api.openai.com:0",
        "https://api.openai.com /v1",
        "https://api.openai.com\n.evil.test",
        "https://api.openai.com/v1\n",
        "https://münchen.test",
        "https://api。openai。com",
        "https://[::1%25eth0]",
        "https://.evil.test",
    ],
)
def test_what_two_parsers_may_read_differently_has_no_origin(url: str) -> None:
    """Users, back slashes, blanks and letters outside of ASCII are refused."""
    assert origin(url) is None
    assert host_of(url) == ""


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.2",
        "127.255.1.9",
        "::1",
        "[::1]",
        "localhost",
        "LOCALHOST",
        "127.1",
        "0x7f.1",
        "2130706433",
        "::ffff:127.0.0.1",
    ],
)
def test_this_machine_has_many_names(host: str) -> None:
    """All of 127.0.0.0/8 in any notation, ::1 and localhost."""
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "10.0.0.1", "localhost.evil.test", "128.0.0.1", "face", "::2"]
)
def test_other_hosts_are_not_this_machine(host: str) -> None:
    """Neither private networks nor names that begin alike."""
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.0.1",
        "2852039166",
        "0xa9fea9fe",
        "[fd00:ec2::254]",
        "fe80::1",
        "::ffff:169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
        "fd20:ce::254",
        "fd00:42::42",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "metadata.google.internal",
        "METADATA",
        "100.100.100.200",
    ],
)
def test_metadata_services_are_known(host: str) -> None:
    """Link-local networks in any notation, and the names and addresses of clouds."""
    assert is_metadata(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "127.0.0.1", "api.openai.com", "fd00:ec2::253", ""])
def test_other_hosts_are_no_metadata_services(host: str) -> None:
    """Private networks may hold models."""
    assert not is_metadata(host)
