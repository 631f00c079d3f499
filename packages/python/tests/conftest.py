"""What the tests share: an empty workspace, and a state folder of their own."""

import os
from pathlib import Path

import pytest
from tollgate import Workspace


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's own state, or a claim or an agent of the environment."""
    for name in [name for name in os.environ if name.startswith("TOLLGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(folder: Path) -> Workspace:
    return Workspace(folder)
