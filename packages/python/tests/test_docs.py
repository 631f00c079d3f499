"""Every Python block of docs/reference/python.md runs, and has no type errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tollgate import Workspace

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["docs/reference/python.md"]


def blocks() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        texts = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
        assert texts, page
        found += [(f"{Path(page).stem.lower()}_{number}", text) for number, text in enumerate(texts)]
    return found


@pytest.mark.parametrize(("name", "text"), blocks(), ids=[name for name, _ in blocks()])
def test_the_block_runs(name: str, text: str, folder: Path, tmp_path: Path) -> None:
    (folder / "notes.md").write_text("# Notes\n" + "".join(f"line {number}\n" for number in range(10)))
    Workspace(folder).vault(create=True).add("water-the-plants", "# Water the plants\n")
    script = tmp_path / f"{name}.py"
    script.write_text(text)
    subprocess.run([sys.executable, script], cwd=folder, check=True)


def test_the_blocks_have_no_type_errors(tmp_path: Path) -> None:
    for name, text in blocks():
        (tmp_path / f"{name}.py").write_text(text)
    pyright = Path(sys.executable).parent / "pyright"
    said = subprocess.run([pyright, "--pythonpath", sys.executable, "."], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout
