"""Names of before: parameters, fields and keys of files still work, and say what they are called today."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

import mezzotint as mz
from mezzotint.core.arguments import with_old_fields, with_old_names
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.federated import (
    GaussianEncoding,
    Policy,
    RunLedger,
    RunSettings,
    SecureStrategy,
    gaussian_encoding,
    load_encoding,
    load_policy,
)
from mezzotint.federated.app import _dimension_key
from mezzotint.federated.encoding import encoding_of_today

QUIET = {"noise_multiplier": 8.0, "clients": 20, "size": 5}
SAID = "l2_norm is now called clip_norm"


def test_functions_accept_old_names_and_hide_them() -> None:
    @with_old_names(dim="dimension")
    def area(*, dimension: int) -> int:
        return dimension**2

    assert list(inspect.signature(area).parameters) == ["dimension"]
    with pytest.warns(FutureWarning, match="dim is now called dimension") as warned:
        assert area(dim=3) == 9  # pyright: ignore[reportCallIssue]
    assert warned[0].filename == __file__
    with pytest.raises(ParameterError, match="dim=4: is now called dimension, which is there too"):
        area(dim=4, dimension=3)  # pyright: ignore[reportCallIssue]


def test_classes_have_their_old_fields() -> None:
    @with_old_fields(dim="dimension")
    class Square:
        def __init__(self, *, dimension: int) -> None:
            self.dimension = dimension

    with pytest.warns(FutureWarning, match="dim is now called dimension") as warned:
        square = Square(dim=3)  # pyright: ignore[reportCallIssue]
    assert warned[0].filename == __file__
    with pytest.warns(FutureWarning, match="dim is now called dimension") as warned:
        assert square.dim == 3  # pyright: ignore[reportAttributeAccessIssue]
    assert warned[0].filename == __file__


def test_encodings_policies_strategies_and_designs() -> None:
    encoding = gaussian_encoding(clip_norm=2.0, **QUIET)
    with pytest.warns(FutureWarning, match=SAID):
        assert gaussian_encoding(l2_norm=2.0, **QUIET) == encoding  # pyright: ignore
    with pytest.warns(FutureWarning, match=SAID):
        assert encoding.l2_norm == 2.0  # pyright: ignore
    with pytest.warns(FutureWarning, match=SAID):
        assert Policy(l2_norm=1.0) == Policy(clip_norm=1.0)  # pyright: ignore
    with pytest.warns(FutureWarning, match="per_round is now called clients_per_round"):
        strategy = SecureStrategy(encoding=encoding, per_round=20)  # pyright: ignore
    assert strategy.clients_per_round == 20
    with pytest.warns(FutureWarning, match="coordinates is now called size"):
        old = strategy.plan(20, 1, coordinates=5, roster=bytes(32))  # pyright: ignore
    assert old == strategy.plan(20, 1, size=5, roster=bytes(32))
    with pytest.warns(FutureWarning, match=SAID):
        table = mz.design.vector(2.0, dimension=4, l2_norm=1.0, levels=2)  # pyright: ignore
    assert table.mechanism.upper == 1.0


def test_files_of_before_are_read(tmp_path: Path) -> None:
    encoding = gaussian_encoding(clip_norm=2.0, **QUIET)
    document = encoding.as_dict()
    assert "clip_norm" in document
    assert "l2_norm" not in document
    document["l2_norm"] = document.pop("clip_norm")
    (tmp_path / "encoding.json").write_text(json.dumps(document))
    read = load_encoding(tmp_path / "encoding.json")
    assert isinstance(read, GaussianEncoding)
    assert read == encoding
    before = {"per-round": 7, "l2-norm": 0.5, "clients": 9, "rate": 0.1, "learning-rate": 3.0}
    settings = RunSettings.from_config({**before, "trust": "local"})
    assert settings == RunSettings(
        clients_per_round=7,
        clip_norm=0.5,
        population=9,
        client_learning_rate=0.1,
        server_learning_rate=3.0,
        observer="reports",
    )
    (tmp_path / "policy.toml").write_text("l2_norm = 1.0\n")
    with pytest.warns(FutureWarning, match=f"policy policy.toml: {SAID}") as warned:
        assert load_policy(tmp_path / "policy.toml").clip_norm == 1.0
    assert [warning.filename for warning in warned] == [__file__]
    (tmp_path / "policy.toml").write_text("l2_norm = 1.0\nclip_norm = 2.0\n")
    with pytest.raises(FileFormatError, match=r"policy\.toml: l2_norm is now called clip_norm"):
        load_policy(tmp_path / "policy.toml")


def test_a_file_with_a_key_under_both_names_is_refused() -> None:
    """One of two values would be lost in silence."""
    with pytest.raises(ParameterError, match=r"l2_norm.*is now called clip_norm"):
        encoding_of_today({"l2_norm": 1.0, "clip_norm": 2.0})


def test_words_of_before_are_read_and_answered() -> None:
    """A setting whose values were renamed, too: old code compares with the old ones."""
    with pytest.warns(FutureWarning, match="trust is now called observer"):
        settings = RunSettings(trust="local")  # pyright: ignore[reportCallIssue]
    assert settings == RunSettings(observer="reports")
    with pytest.warns(FutureWarning, match="trust is now called observer"):
        assert settings.trust == "local"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.warns(FutureWarning, match="rate is now called client_learning_rate"):
        assert RunSettings(rate=0.1).client_learning_rate == 0.1  # pyright: ignore
    with pytest.warns(FutureWarning, match="learning_rate is now called server_learning_rate"):
        assert RunSettings(learning_rate=3.0).server_learning_rate == 3.0  # pyright: ignore
    with pytest.raises(ParameterError, match=r"rate=0\.1: is now called client_learning_rate"):
        RunSettings.from_config({"rate": 0.1, "client-learning-rate": 0.2})


def test_a_ledger_of_before_goes_on(tmp_path: Path) -> None:
    """Its header is compared word by word: a run of an earlier version keeps its own."""
    path = tmp_path / "ledger.jsonl"
    facts = {"session": "ab", "encoding": "cd"}
    RunLedger(path, {**facts, "coordinates": 3}).start()
    assert _dimension_key(path) == "coordinates"
    assert RunLedger(path, {**facts, _dimension_key(path): 3}).start() == 2
    assert _dimension_key(tmp_path / "none.jsonl") == "dimension"
