"""A Flower app folder for `flwr run`: the same run on a deployment of many machines."""

from __future__ import annotations

import json
from pathlib import Path

from mezzotint.core.files import refuse_existing
from mezzotint.federated.settings import RunSettings

_HEAD = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "mezzotint-federated-run"
version = "1.0.0"
description = "Federated learning with few-bit private updates through secure aggregation"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["mezzotint_run"]

[tool.flwr.app]
publisher = "mezzotint"

[tool.flwr.app.components]
serverapp = "mezzotint_run:server_app"
clientapp = "mezzotint_run:client_app"

[tool.flwr.app.config]
"""

_MODULE = '''"""The apps of the installed mezzotint."""

from mezzotint.federated.app import client_app as client_app
from mezzotint.federated.app import server_app as server_app
'''


def write_app(folder: Path, settings: RunSettings) -> None:
    """Writes pyproject.toml and one module; `flwr run FOLDER` then runs these settings.

    Paths among the settings are those of the machine that runs the server app; a node's own data path is given by its
    `--node-config 'partition-id=3 data="/path" policy="/path/policy.toml"'`.

    Raises:
        ParameterError: the folder holds an app already, or its parent does not exist.
    """
    if not folder.is_dir():
        refuse_existing(folder)
        folder.mkdir()
    target = refuse_existing(folder / "pyproject.toml")
    lines = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in settings.as_dict().items()]
    (folder / "mezzotint_run").mkdir(exist_ok=True)
    (folder / "mezzotint_run" / "__init__.py").write_text(_MODULE, encoding="utf-8")
    target.write_text(_HEAD + "\n".join(lines) + "\n", encoding="utf-8")
