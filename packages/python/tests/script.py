"""A scripted model: what it does, and what it is told. The same story for every framework."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Script:
    """The story: a foreign save between read and write, then a task."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self._steps = self._story()

    def next(self, told: str | None) -> tuple[str, dict[str, Any]] | None:
        """The next call, after the result of the last one. None: the model is done."""
        if told is not None:
            self.told.append(told)
        return next(self._steps, None)

    def _story(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "read_file", {"path": "notes.md"}
        (self.folder / "notes.md").write_text("one\ntwo\n")
        yield "write_file", {"path": "notes.md", "content": "one\nmine\n"}
        yield "read_file", {"path": "notes.md"}
        yield "write_file", {"path": "notes.md", "content": self.told[-1] + "mine\n"}
        yield "edit_file", {"path": "notes.md", "old_text": "mine", "new_text": "ours"}
        yield "claim_task", {}
        yield "release_task", {"task": "water", "result": "success"}

    def check(self) -> None:
        """Nothing was lost, and the model was told the truth."""
        first, refused, again, wrote, edited, claimed, released = self.told
        assert (first, again, wrote, edited) == ("one\n", "one\ntwo\n", "wrote notes.md", "edited notes.md"), self.told
        assert '"error_type": "STALE_FILE"' in refused and "recovery_hint" in refused
        assert "Water the plants" in claimed and '"state": "Done"' in released
        assert (self.folder / "notes.md").read_text() == "one\ntwo\nours\n"
        assert (self.folder / "vault/Done/water.md").exists()
