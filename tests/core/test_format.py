from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import FileFormatError, Mechanism, ParameterError
from mezzotint.core import files
from mezzotint.privacy import verify
from strategies import mechanisms

TOTAL = 2**32


@pytest.fixture
def mechanism() -> Mechanism:
    return Mechanism(
        knots=[-1, 0, 0, 1],
        levels=[-2, 0.1, 2],
        weights=[
            [TOTAL // 2, TOTAL // 4, TOTAL // 4],
            [1, TOTAL - 2, 1],
            [2, TOTAL - 4, 2],
            [TOTAL // 4 * 2, 5, TOTAL // 2 - 5],
        ],
        name="tést",
    )


def edited(mechanism: Mechanism, **changes: Any) -> str:
    return json.dumps({**json.loads(mechanism.to_json()), **changes})


# Round trip -----------------------------------------------------------------------------------------------------------


@given(table=mechanisms(max_levels=12, max_segments=6))
def test_every_bit_comes_back(table: Mechanism) -> None:
    again = Mechanism.from_json(table.to_json())
    assert again == table
    assert again.name == table.name
    for key in ("knots", "levels", "weights"):
        assert getattr(again, key).tobytes() == getattr(table, key).tobytes()
    assert again.to_json() == table.to_json()


def test_save_and_load(mechanism: Mechanism, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    mechanism.save(path)
    assert Mechanism.load(path) == mechanism
    assert Mechanism.load(str(path)).name == "tést"
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.json"]


def test_hash_is_of_the_canonical_table(mechanism: Mechanism) -> None:
    document = json.loads(mechanism.to_json())
    table = {key: document[key] for key in ("knots", "levels", "weights")}
    assert json.loads(mechanism.canonical()) == table
    assert document["sha256"] == mechanism.sha256


# Files that are none --------------------------------------------------------------------------------------------------


@given(cut=st.integers(0, 10_000))
def test_truncated_text_is_refused(cut: int) -> None:
    table = Mechanism(knots=[0, 1], levels=[0, 1], weights=[[TOTAL // 2] * 2] * 2)
    text = table.to_json().rstrip("\n")
    with pytest.raises(FileFormatError, match="mechanism file"):
        Mechanism.from_json(text[: cut % len(text)])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "3",
        '"text"',
        "{}",
        "\x00",
        '{"format": 1}',
        "[" * 100_000,
        '{"format":"mezzotint-mechanism"}',
    ],
    ids=lambda text: text[:20] or "empty",
)
def test_foreign_text_is_refused(text: str) -> None:
    with pytest.raises(FileFormatError, match="mechanism file"):
        Mechanism.from_json(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version=2.*upgrade"),
        ({"version": "1"}, "version='1'"),
        ({"version": True}, "version=True"),
        ({"version": 1.0}, "version=1.0"),
        ({"version": None}, "version=None"),
        ({"format": "other"}, "format"),
        ({"extra": 1}, "unknown: extra"),
        ({"name": 3}, "name must be text"),
        ({"knots": [-1, 0, 0, 2]}, "sha256"),
        ({"levels": [-2, 0.1, 2.0000000000000004]}, "sha256"),
        ({"levels": [-2, 0.1]}, "column per level"),
        ({"levels": "text"}, "levels must be a list"),
        ({"levels": [-2, "0.1", 2]}, "levels must be a list"),
        ({"levels": [-2, True, 2]}, "levels must be a list"),
        ({"levels": [-2, None, 2]}, "levels must be a list"),
        ({"levels": [-2, [0.1], 2]}, "levels must be a list"),
        ({"knots": [10**400, 0, 0, 1]}, "knots"),
        ({"knots": {}}, "knots must be a list"),
        ({"weights": [[TOTAL, 0, 0]] * 4}, "sha256"),
        ({"weights": [[TOTAL, 0, 0]] * 3}, "one row per knot"),
        ({"weights": [[TOTAL, 0, 0]] * 3 + [[TOTAL, 0]]}, "differ in length"),
        ({"weights": [[TOTAL - 1, 0, 0]] * 4}, "must sum"),
        ({"weights": [[TOTAL + 1, -1, 0]] * 4}, "integer from 0"),
        ({"weights": [[2**70, 0, 0]] * 4}, "integer from 0"),
        ({"weights": [[float(TOTAL), 0, 0]] * 4}, "integer from 0"),
        ({"weights": [[True, 0, 0]] * 4}, "integer from 0"),
        ({"weights": 3}, "weights must be a list"),
        ({"weights": [3]}, "row of weights must be a list"),
        ({"weights": []}, "weights|row per knot"),
        ({"sha256": "0" * 64}, "sha256"),
        ({"sha256": None}, "sha256"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_edited_documents_are_refused(
    mechanism: Mechanism, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FileFormatError, match=message):
        Mechanism.from_json(edited(mechanism, **changes))


@pytest.mark.parametrize(
    ("claim", "value", "true"),
    [
        ("epsilon", 0.5, "gives 21.4"),
        ("epsilon", "inf", "gives 21.4"),
        ("epsilon", True, "gives 21.4"),
        ("epsilon", None, "gives 21.4"),
        ("epsilon", [], "gives 21.4"),
        ("unit", "report", "alone"),
        ("numerator", 1, "alone"),
    ],
)
def test_a_forged_certificate_is_refused_wherever_it_is_read(
    mechanism: Mechanism, claim: str, value: Any, true: str, tmp_path: Path
) -> None:
    document = json.loads(mechanism.to_json())
    document["certificate"][claim] = value
    (tmp_path / "forged.json").write_text(json.dumps(document))
    with pytest.raises(FileFormatError, match=rf"forged\.json.*certificate.*{true}"):
        Mechanism.load(tmp_path / "forged.json")
    assert not verify(tmp_path / "forged.json").valid


@given(table=mechanisms(max_levels=5, max_segments=3), data=st.data())
def test_what_is_loaded_is_what_verify_accepts(table: Mechanism, data: st.DataObject) -> None:
    """The two readers share no code; they refuse and accept the same certificates."""
    document = json.loads(table.to_json())
    was = document["certificate"]["epsilon"]
    near = st.integers(-1, 6) | st.sampled_from([0.5, "inf", None, TOTAL, [], was])
    if isinstance(was, float):
        near |= st.sampled_from([was * (1 + 2.0**-51), was * (1 + 2.0**-40), was * (1 - 2.0**-50)])
    document["certificate"]["epsilon"] = data.draw(near)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.json"
        path.write_text(json.dumps(document))
        try:
            loaded = Mechanism.load(path) == table
        except FileFormatError:
            loaded = False
        assert loaded == verify(path).valid


@pytest.mark.parametrize("certificate", [None, [], {}, {"epsilon": 1}])
def test_a_certificate_that_is_none_is_refused(mechanism: Mechanism, certificate: Any) -> None:
    with pytest.raises(FileFormatError, match="certificate"):
        Mechanism.from_json(edited(mechanism, certificate=certificate))


@pytest.mark.parametrize(
    "key", ["format", "version", "name", "knots", "levels", "weights", "sha256", "certificate"]
)
def test_missing_keys_are_refused(mechanism: Mechanism, key: str) -> None:
    document = json.loads(mechanism.to_json())
    del document[key]
    with pytest.raises(FileFormatError, match=key):
        Mechanism.from_json(json.dumps(document))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_no_number_is_refused(mechanism: Mechanism, constant: str) -> None:
    text = mechanism.to_json().replace('"knots":[-1.0', f'"knots":[{constant}')
    assert constant in text
    with pytest.raises(FileFormatError, match="mechanism file"):
        Mechanism.from_json(text)


def test_a_key_that_stands_twice_is_refused(mechanism: Mechanism) -> None:
    text = mechanism.to_json()
    for twice in (
        text.replace('{"format"', '{"name":"x","format"', 1),
        text.replace('"certificate":{', '"certificate":{"epsilon":1,', 1),
    ):
        assert twice != text
        with pytest.raises(FileFormatError, match="occurs twice"):
            Mechanism.from_json(twice)


@given(position=st.integers(0, 10_000), digit=st.sampled_from('0123456789-.,[]{}"e: x'))
def test_no_single_edit_of_the_table_goes_unnoticed(position: int, digit: str) -> None:
    table = Mechanism(
        knots=[-1, 0.25, 1],
        levels=[-2.5, 0, 2],
        weights=[[TOTAL - 7, 5, 2], [3, TOTAL - 3, 0], [0, 1, TOTAL - 1]],
    )
    text = table.to_json()
    begin, end = text.index('"knots"'), text.index('"sha256"')
    place = begin + position % (end - begin)
    changed = text[:place] + digit + text[place + 1 :]
    try:
        again = Mechanism.from_json(changed)
    except FileFormatError:
        return
    assert again == table  # a space for a space, or another spelling of the same number


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, message in (
        ("absent", "cannot be read"),
        (".", "cannot be read"),
        ("binary", "not a text file"),
    ):
        with pytest.raises(FileFormatError, match=message):
            Mechanism.load(tmp_path / name)


# Writing --------------------------------------------------------------------------------------------------------------


def test_an_existing_file_is_kept_unless_told(mechanism: Mechanism, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text("precious")
    with pytest.raises(ParameterError, match=r"path=.*exists already"):
        mechanism.save(path)
    assert path.read_text() == "precious"
    mechanism.save(path, overwrite=True)
    assert Mechanism.load(path) == mechanism


def test_bad_targets(mechanism: Mechanism, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="does not exist"):
        mechanism.save(tmp_path / "nowhere" / "m.json")
    with pytest.raises(ParameterError, match="is a folder"):
        mechanism.save(tmp_path, overwrite=True)


@pytest.mark.parametrize("call", ["write_text", "fsync", "replace"])
@pytest.mark.parametrize("before", [None, "old"])
def test_a_full_disk_leaves_no_half_file(
    mechanism: Mechanism,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    before: str | None,
) -> None:
    path = tmp_path / "m.json"
    if before is not None:
        path.write_text(before)

    def full(*arguments: Any, **_: Any) -> None:
        if call == "write_text":
            arguments[0].write_bytes(b'{"format":"mezz')
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(
        *{
            "write_text": (Path, "write_text"),
            "fsync": (files.os, "fsync"),
            "replace": (files.os, "replace"),
        }[call],
        full,
    )
    with pytest.raises(OSError, match="No space left"):
        mechanism.save(path, overwrite=True)
    monkeypatch.undo()
    assert [entry.name for entry in tmp_path.iterdir()] == ([] if before is None else ["m.json"])
    if before is not None:
        assert path.read_text() == before


def test_a_kill_leaves_no_half_file(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
import mezzotint as mz
from mezzotint.core import files
whole = Path.write_text
def half(self, text, **options):
    whole(self, text[: len(text) // 2], **options)
    os.kill(os.getpid(), signal.SIGKILL)
Path.write_text = half
mz.Mechanism(knots=[0, 1], levels=[0, 1], weights=[[2**31] * 2] * 2).save({str(tmp_path / "m.json")!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "m.json").exists()
    assert all(
        entry.name.startswith(".m.json.") and entry.name.endswith(".partial")
        for entry in tmp_path.iterdir()
    )
    Mechanism(knots=[0, 1], levels=[0, 1], weights=[[2**31] * 2] * 2).save(tmp_path / "m.json")
    assert Mechanism.load(tmp_path / "m.json").epsilon == 0.0


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    def write() -> None:
        with files.replacing(tmp_path / "m.json") as temporary:
            temporary.write_text("mine")
            (tmp_path / "m.json").write_text("theirs")

    with pytest.raises(ParameterError, match="exists already"):
        write()
    assert (tmp_path / "m.json").read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


def test_integers_of_thousands_of_digits_are_refused(mechanism: Mechanism) -> None:
    with pytest.raises(FileFormatError, match="Exceeds the limit"):
        Mechanism.from_json(
            mechanism.to_json().replace('"weights":[[', '"weights":[[' + "9" * 5000 + ",")
        )


def test_infinite_epsilon_is_stored_without_nan_or_infinity(tmp_path: Path) -> None:
    table = Mechanism(knots=[0, 1], levels=[0, 1], weights=[[TOTAL, 0], [0, TOTAL]])
    assert table.epsilon == math.inf
    table.save(tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text()
    assert "Infinity" not in text
    assert "NaN" not in text
    np.testing.assert_array_equal(Mechanism.load(tmp_path / "m.json").weights, table.weights)
