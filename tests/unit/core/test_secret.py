"""Secrets are not printed."""

from aegish_dist.core.secret import SecretStr


def test_a_secret_shows_only_when_it_is_asked_for() -> None:
    """Neither text nor representation holds it; equal secrets are equal."""
    secret = SecretStr("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert secret.get_secret_value() == "hunter2"
    assert secret == SecretStr("hunter2") != SecretStr("hunter3")
    assert (str(SecretStr("")), len({secret, SecretStr("hunter2")})) == ("", 1)
