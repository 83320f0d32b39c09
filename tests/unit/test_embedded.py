"""The embedded server where the machine refuses it something."""

from pathlib import Path

import platformdirs
import pytest

from aegish_dist.db.embedded import start_embedded
from aegish_dist.errors import StoreError


def test_a_runtime_folder_of_another_user_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names what is wrong and what to set."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Owned by another user", "/tmp/runtime-0")

    monkeypatch.setattr(platformdirs, "user_runtime_path", refuse)
    with pytest.raises(StoreError, match=r"Owned by another user.*set AEGISH_DIST_HOME"):
        start_embedded(tmp_path / "home")
    assert not (tmp_path / "home").exists()
