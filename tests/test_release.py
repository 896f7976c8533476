"""A release that could go out: versions agree, the lock is whole, the wheel installs and runs the demonstration."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
_spec = importlib.util.spec_from_file_location("tools_release", ROOT / "tools" / "release.py")
assert _spec is not None
assert _spec.loader is not None
release = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(release)


def test_versions_and_lock_hold() -> None:
    assert release.same_version() == release.project()["version"]
    assert {"numpy", "python-flint", "clarabel"} <= set(release.locked())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("--index-url https://example.org\nnumpy==2.0 --hash=sha256:00\n", "names a server"),
        ("numpy==2.0\n", "needs its hashes"),
        ("numpy==2.0 --hash=sha256:00\n", "lacks"),
    ],
)
def test_a_lock_that_is_not_whole_is_refused(
    text: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.lock").write_text(text)
    monkeypatch.setattr(release, "LOCK", tmp_path / "requirements.lock")
    with pytest.raises(release.Fault, match=fault):
        release.locked()


def test_a_version_that_is_not_in_the_changelog_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "project", lambda: {"version": "99.0"})
    with pytest.raises(release.Fault, match=r"99\.0"):
        release.same_version()


def test_licences_are_listed_and_known() -> None:
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| (.+) \|$",
        release.LICENCES.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) > 15
    assert all(release.FREE.search(words) for _, version, words in rows if version[0].isdigit())
    listed = {release._plain(name) for name, _, _ in rows}
    assert {"numpy", "scipy", "numba", "cryptography", "python-flint"} <= listed


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
@pytest.mark.parametrize("version", release.PYTHONS)
def test_the_wheel_installs_from_the_lock_and_runs_the_demonstration(
    version: str, built: Path, tmp_path: Path
) -> None:
    release.demo_locked(_program(version), built, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("bound", release.BOUNDS, ids=lambda bound: bound.name)
def test_the_wheel_runs_with_the_oldest_and_the_newest_dependencies(
    bound: Any, built: Path, tmp_path: Path
) -> None:
    release.demo_at_bound(bound, _program(bound.python), built, tmp_path)


def _program(version: str) -> str:
    program = release.pythons().get(version)
    if program is None:
        pytest.skip(f"there is no Python {version} on this machine")
    return program
