"""A Flower app folder for `flwr run`: the same run on a deployment of many machines."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from dataclasses import replace
from pathlib import Path

import mezzotint as mz
from mezzotint.core.files import parse_object, refuse_existing, write_text
from mezzotint.federated.app import check_run
from mezzotint.federated.encoding import canonical
from mezzotint.federated.secagg import Roster
from mezzotint.federated.settings import RunSettings, Scheme
from mezzotint.vectors import RankedCodebook

PACKAGE = "mezzotint_run"
ENCODING = "encoding.json"
ROSTER = "roster.json"

_HEAD = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "mezzotint-federated-run"
version = "1.0.0"
description = "Federated learning with few-bit private updates through secure aggregation"
license = "Apache-2.0"
{dependencies}

[tool.hatch.build.targets.wheel]
packages = ["mezzotint_run"]

[tool.flwr.app]
publisher = "mezzotint"

[tool.flwr.app.components]
serverapp = "mezzotint_run.server:server_app"
clientapp = "mezzotint_run.client:client_app"

[tool.flwr.app.config]
"""

_MODULES = {
    "__init__": '''"""The apps of the installed mezzotint, with the files beside this one."""

import mezzotint

WRITTEN_BY = "{version}"

if mezzotint.__version__ != WRITTEN_BY:
    raise ImportError(
        f"this app was written by mezzotint {{WRITTEN_BY}}, but {{mezzotint.__version__}} runs here; install "
        "that version, or write the app anew with this one"
    )
''',
    # Flower looks for assignments in these files, without running them.
    "server": '''"""What the SuperLink runs."""

from pathlib import Path

from mezzotint.federated.app import make_server_app

server_app = make_server_app(folder=Path(__file__).parent)
''',
    "client": '''"""What nodes run, in a process for each message: nothing of the server's is loaded here."""

from mezzotint.federated.client_app import make_client_app

client_app = make_client_app(observer={observer!r})
''',
}


def requirement() -> str:
    """A pip requirement for this version of mezzotint; "" if it was installed from a folder or an
    archive (PEP 610).
    """
    distribution = importlib.metadata.distribution("mezzotint")
    recorded = distribution.read_text("direct_url.json")
    if recorded is None:
        return f"mezzotint[flower]=={distribution.version}"
    origin = parse_object(recorded, name="direct_url.json")
    if "vcs_info" not in origin:
        return ""
    system, commit = (origin["vcs_info"][key] for key in ("vcs", "commit_id"))
    return f"mezzotint[flower] @ {system}+{origin['url']}@{commit}"


def described(encoding: Scheme) -> str:
    """The text of the file that `RunSettings.mechanism` names."""
    return (
        encoding.to_json()
        if isinstance(encoding, RankedCodebook)
        else canonical(encoding.as_dict())
    )


def _dependencies() -> str:
    needed = requirement()
    if needed:
        return f"dependencies = [{json.dumps(needed)}]"
    return (
        f"# mezzotint {mz.__version__} was installed from a folder, not from a package index: install the same\n"
        "# version on every machine of the federation, in a checkout: pip install '.[flower]'\n"
        "dependencies = []"
    )


def write_app(folder: Path, settings: RunSettings, encoding: Scheme | None = None) -> None:
    """Write a Flower app that contains everything but the data; `flwr run FOLDER` then runs these
    settings.

    The folder can be moved to another machine: no path in it is absolute. Results go to
    `settings.out` if that is a relative path, else to a new folder per run, both below the
    directory in which the SuperLink was started. Each machine has its own path of the data: nodes
    name it in their `--node-config 'data="/path"'`, the SuperLink's machine in the environment
    variable MEZZOTINT_DATA. `settings.mechanism` is ignored; without an encoding, updates are
    rounded to the fine grid of `settings.clip`. ParameterError if the folder holds an app already.
    """
    check_run(settings, encoding or replace(settings, mechanism="").encoding())
    is_new = not folder.is_dir()
    if is_new:
        refuse_existing(folder, overwrite=None, parameter="app")
        folder.mkdir()
    try:
        _write(folder, settings, encoding)
    except BaseException:
        if is_new:
            shutil.rmtree(folder)
        raise


def _write(folder: Path, settings: RunSettings, encoding: Scheme | None) -> None:
    target = refuse_existing(folder / "pyproject.toml", overwrite=None, parameter="app")
    roster = Roster.load(settings.roster) if settings.roster else None
    if roster is not None:
        roster.check_drawn(
            settings.clients_per_round + settings.spare, parameter="clients_per_round"
        )
    relative_out = "" if Path(settings.out).is_absolute() else settings.out
    relative_data = "" if Path(settings.data).is_absolute() else settings.data
    file_names = {
        "mechanism": "" if encoding is None else ENCODING,
        "roster": ROSTER if settings.roster else "",
    }
    portable = replace(settings, **file_names, out=relative_out, data=relative_data)
    config_lines = [
        f"{setting.replace('_', '-')} = {json.dumps(value)}"
        for setting, value in portable.as_dict().items()
    ]
    package = folder / PACKAGE
    package.mkdir(exist_ok=True)
    # Not the installed metadata's version, which in an editable install stays behind its code.
    placeholders = {"version": mz.__version__, "observer": settings.observer}
    files = {
        package / f"{module_name}.py": contents.format(**placeholders)
        for module_name, contents in _MODULES.items()
    }
    if encoding is not None:
        files[package / ENCODING] = described(encoding)
    if roster is not None:
        files[package / ROSTER] = roster.to_json()
    # The project file comes last: without it, the folder is not an app.
    files[target] = _HEAD.format(dependencies=_dependencies()) + "\n".join(config_lines) + "\n"
    for path, contents in files.items():
        write_text(path, contents, overwrite=True)
