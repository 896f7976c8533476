"""Files that a program reads back (state, settings, policies, packed models): refused by name, or in order.

`test_files.py` does the same for the files that verbs are given. Here every damage of `damaged.py` is applied to the
bytes, and every value of the JSON inside, where there is some, is replaced by strange ones under correct checksums.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mezzotint as mz
from federated.grids import charge_sum
from hostile.damaged import DAMAGES, STRANGE, _places
from mezzotint.core.files import _encoded
from mezzotint.federated.run_ledger import Checkpoint
from mezzotint.federated.secagg.roster import introduce, read_introduction
from mezzotint.training.packed import PackedModel, _digest, pack_weights

POLICY: dict[str, Any] = {
    "minimum": 2, "corrupted": 0.1, "report_epsilon": 2.0, "budget": 5.0, "delta": 1e-6, "mechanisms": ["ab" * 32],
    "noise_multiplier": 0.0, "largest_value": 1.0, "clip_norm": 1.0, "rounds": 10,
    "evaluate_noise_multiplier": 0.0, "evaluate": False,
}  # fmt: skip


def _changed(document: Any) -> Iterator[Any]:
    """The document with each of its values replaced or removed, one at a time."""
    for place in range(len(list(_places(document)))):
        for strange in (*STRANGE, ...):
            other = copy.deepcopy(document)
            container, key = list(_places(other))[place]
            if strange is ...:
                del container[key]
            else:
                container[key] = strange
            yield other


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return (
        '"none"'
        if value is None
        else json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")
    )


def _policy(values: dict[str, Any]) -> bytes:
    return "\n".join(f"{key} = {_toml(value)}" for key, value in values.items()).encode()


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if key != "chain"} for line in lines
    ]


def _chained(rows: list[dict[str, Any]]) -> bytes:
    body, chain = b"", ""
    for row in rows:
        line, chain = _encoded(row, chain)
        body += line
    return body


def _run_ledger(path: Path) -> object:
    ledger = mz.federated.RunLedger(path, {"session": "s"})
    return ledger.as_dict(), ledger.turns


def _lifetime(path: Path) -> object:
    return mz.federated.LifetimeLedger(path, identity="ab" * 32).spent(1e-6)


def _checkpoint(path: Path) -> object:
    path.rename(path.with_name("model.npz"))
    return Checkpoint.load(path.parent)


def _settings(path: Path) -> object:
    path.rename(path.with_name("settings.json"))
    return mz.federated.RunSettings.load(path.parent)


def _write(kind: str, path: Path) -> None:
    """A file in order."""
    if kind == "run":
        run = mz.federated.RunLedger(path, {"session": "s"})
        for survivors in (["1", "2"], None):
            number = run.start()
            run.take_turn(number, ["1", "2"])
            run.ask(number, ["1", "2"], minimum=2)
            run.fail(number, "a test") if survivors is None else run.close(number, survivors)
    elif kind == "lifetime":
        encoding = mz.federated.gaussian_encoding(
            noise_multiplier=2.0, clip_norm=1.0, clients=10, size=4
        )
        single_sum = mz.federated.Sums(size=4, clients=8, corrupted=1, delta=1e-6)
        ledger = mz.federated.LifetimeLedger(path, identity="ab" * 32)
        charge_sum(ledger, encoding, single_sum, 1, budget=99.0)
    elif kind == "checkpoint":
        state: dict[str, Any] = {"optimizer": {"m": np.ones(3)}, "told": {"a": 1}}
        Checkpoint(parameters=np.arange(3.0), done=1, session=bytes(16), **state).save(path.parent)
        path.with_name("model.npz").rename(path)
    elif kind == "roster":
        cards = [read_introduction(introduce(bytes([index]) * 32)) for index in (1, 2, 3)]
        mz.federated.Roster.drawn(cards).save(path)
    elif kind == "packed":
        pack_weights({"a": np.linspace(-1, 1, 40).reshape(2, 20), "b": np.ones(2)}, bits=3).save(
            path
        )
    else:
        path.write_bytes(_policy(POLICY))


READERS: dict[str, Callable[[Path], object]] = {
    "run": _run_ledger,
    "lifetime": _lifetime,
    "checkpoint": _checkpoint,
    "roster": mz.federated.Roster.load,
    "packed": PackedModel.load,
    "policy": mz.federated.load_policy,
}


def _in_order_or_refused(read: Callable[[Path], object], path: Path, body: bytes) -> bool:
    path.write_bytes(body)
    try:
        read(path)
    except mz.MezzotintError:  # another error fails the test
        return False
    return True


@pytest.mark.filterwarnings("ignore::mezzotint.core.files.RepairWarning")
@pytest.mark.parametrize("kind", READERS)
def test_damaged_bytes_are_refused_or_in_order(kind: str, tmp_path: Path) -> None:
    path, dice = tmp_path / "file", random.Random(kind)
    _write(kind, path)
    body = path.read_bytes()
    assert _in_order_or_refused(READERS[kind], path, body)
    for damage in DAMAGES * 4:
        accepted = _in_order_or_refused(READERS[kind], path, damage.apply(body, dice))
        assert not (accepted and damage.refused), damage.name
    if kind not in ("run", "lifetime", "checkpoint"):
        with pytest.raises(mz.FileFormatError):
            READERS[kind](tmp_path / "none")


def test_strange_values_in_ledgers_are_refused_or_in_order(tmp_path: Path) -> None:
    for kind in ("run", "lifetime"):
        _write(kind, tmp_path / kind)
        rows = _rows(tmp_path / kind)
        assert _chained(rows) == (tmp_path / kind).read_bytes()
        for other in _changed(rows[1:]):
            if all(isinstance(row, dict) and np.nan not in row.values() for row in other):
                try:
                    body = _chained([rows[0], *other])
                except ValueError:
                    continue  # JSON has no infinity
                _in_order_or_refused(READERS[kind], tmp_path / "other", body)


def test_strange_values_in_policies_are_refused_or_in_order(tmp_path: Path) -> None:
    for other in _changed(POLICY):
        _in_order_or_refused(mz.federated.load_policy, tmp_path / "policy.toml", _policy(other))


def test_strange_values_in_settings_are_refused_or_in_order(tmp_path: Path) -> None:
    for other in _changed(asdict(mz.federated.RunSettings())):
        _in_order_or_refused(_settings, tmp_path / "file", json.dumps(other).encode())


def test_strange_values_in_packed_models_are_refused_or_in_order(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    pytest.importorskip("safetensors.numpy")
    _write("packed", tmp_path / "packed")
    with safetensors.safe_open(tmp_path / "packed", framework="np") as file:
        header = json.loads(file.metadata()["mezzotint"].partition(" ")[2])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for other in _changed(header):
        text = json.dumps(other)
        metadata = {"mezzotint": f"{_digest(text, arrays)} {text}"}
        safetensors.numpy.save_file(arrays, tmp_path / "other", metadata=metadata)
        _in_order_or_refused(
            PackedModel.load, tmp_path / "other", (tmp_path / "other").read_bytes()
        )
