"""The build backend: maturin builds the native module, and cargo the command `tollgate` that goes into the same wheel.

Two variables are for tests and for release builds:
- TOLLGATE_BINARY: a command that is built already.
- TOLLGATE_PROFILE: the profile of cargo for what is built here. Default: release.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import maturin

HERE = Path(__file__).resolve().parent.parent
SCRIPTS = HERE / "data" / "scripts"
PROFILE = os.environ.get("TOLLGATE_PROFILE", "release")


def _command() -> Path:
    given = os.environ.get("TOLLGATE_BINARY")
    if given:
        return Path(given)
    arguments = ["cargo", "build", "--locked", "-p", "tollgate-cli", "--profile", PROFILE]
    built = subprocess.run([*arguments, "--message-format", "json-render-diagnostics"], cwd=HERE, check=True, stdout=subprocess.PIPE)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "tollgate":
            return Path(message["executable"])
    sys.exit("cargo has not built the command `tollgate`")


def _with_command(build):  # type: ignore[no-untyped-def]
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    shutil.copy(_command(), SCRIPTS / "tollgate")
    os.environ["MATURIN_PEP517_ARGS"] = f"--profile {PROFILE} --locked"
    return build()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    return _with_command(lambda: maturin.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    return _with_command(lambda: maturin.build_editable(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory, config_settings=None):  # type: ignore[no-untyped-def]
    sys.exit("tollgate has wheels and no source distribution: build from its repository")


get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_editable
