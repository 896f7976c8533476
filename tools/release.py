"""What must hold before a version goes out, in one command.

`python tools/release.py check` compares the versions that files state, builds the wheel, looks into it, installs it
with the locked dependencies into a fresh environment of every Python from 3.11 on that is found, and runs the demo
there; then once more with the oldest dependencies that pyproject.toml allows on the oldest Python, and with the newest
that are published on the newest. `lock` writes `requirements.lock` anew (with uv), `licences` the table in `LICENCES.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
LICENCES = ROOT / "LICENCES.md"
PYTHONS = ("3.11", "3.12", "3.13")
LOCKED = re.compile(r"^([A-Za-z0-9_.-]+)==([^ \\]+)", re.MULTILINE)
FREE = re.compile(
    r"\b(apache|bsd|0bsd|mit|mpl|psf|python software|isc|hpnd|zlib|unlicense|cc0|lgpl)\b",
    re.IGNORECASE,
)
"""Licences that go together with ours; whatever else turns up is named."""


class Bound(NamedTuple):
    """One end of what pyproject.toml allows.

    Arguments:
        name: as it is printed.
        resolution: how uv chooses among the versions that are allowed.
        python: the version that these dependencies are installed into.
    """

    name: str
    resolution: str
    python: str


BOUNDS = (
    Bound(name="oldest", resolution="lowest-direct", python=PYTHONS[0]),
    Bound(name="newest", resolution="highest", python=PYTHONS[-1]),
)


class Fault(Exception):
    """Something that has to be mended before the release."""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What a command prints; a `Fault` with the end of it where it fails."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Fault(
            f"{' '.join(map(str, command))}: exit status {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}"
        )
    return done.stdout


def project() -> dict[str, str]:
    """The table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def same_version() -> str:
    """The version, which the package, the citation and the changelog must state alike."""
    version = project()["version"]
    stated = {
        "src/mezzotint/__init__.py": rf'^__version__ = "{re.escape(version)}"$',
        "CITATION.cff": rf"^version: {re.escape(version)}$",
        "CHANGELOG.md": rf"^## \[{re.escape(version)}\]",
    }
    for name, line in stated.items():
        if not re.search(line, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE):
            raise Fault(f"{name} does not state version {version} of pyproject.toml")
    return version


def locked() -> dict[str, str]:
    """Package -> version of the lock, which names no server and has a hash for everything."""
    text = LOCK.read_text(encoding="utf-8")
    if "://" in text or "--index" in text:
        raise Fault(f"{LOCK.name} names a server")
    found = dict(LOCKED.findall(text))
    if not found or any(
        "--hash=sha256:" not in part for part in re.split(r"\n(?=[A-Za-z])", text.strip())
    ):
        raise Fault(
            f"{LOCK.name}: every requirement needs its hashes; run `python tools/release.py lock`"
        )
    missing = {_plain(Requirement(line).name) for line in project()["dependencies"]} - {
        _plain(name) for name in found
    }
    if missing:
        raise Fault(
            f"{LOCK.name} lacks {', '.join(sorted(missing))}; run `python tools/release.py lock`"
        )
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def lock() -> None:
    """Writes the lock: what `pip install mezzotint` may bring on every platform and Python, with hashes."""
    resolve(LOCK, python=PYTHONS[0], options=("--universal", "--generate-hashes"))
    locked()


def resolve(target: Path, *, python: str, options: tuple[str, ...]) -> None:
    """Writes the dependencies that uv chooses for this version of Python."""
    tool = shutil.which("uv") or Path(sys.executable).with_name("uv")
    plain = ("--no-annotate", "--no-header", "--quiet")
    chosen = ("--python-version", python, *options, *plain, "--output-file", target)
    run(tool, "pip", "compile", "pyproject.toml", *chosen, cwd=ROOT)


def licences() -> None:
    """Writes the licence of everything in the lock that is installed here."""
    lines = [
        "# Licences of the dependencies",
        "",
        "Written by `python tools/release.py licences` from their metadata.",
        "",
    ]
    lines += ["| package | version | licence |", "|---|---|---|"]
    for name in sorted(set(locked()), key=str.lower):
        try:
            facts = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue  # needed on another platform alone
        words = licence(facts)
        if not FREE.search(words):
            raise Fault(
                f"{name}: licence {words!r} is not one we know; look at it, then add it to FREE"
            )
        lines.append(f"| {facts['Name']} | {facts['Version']} | {words} |")
    LICENCES.write_text("\n".join(lines) + "\n", encoding="utf-8")


def licence(facts: metadata.PackageMetadata) -> str:
    """The expression, else the classifiers, else the first line of the field."""
    classifiers = [
        line.rsplit(" :: ", 1)[-1]
        for line in facts.get_all("Classifier") or ()
        if line.startswith("License")
    ]
    field = (facts.get("License") or "").strip().split("\n")[0]
    return facts.get("License-Expression") or "; ".join(classifiers) or field[:60] or "not stated"


def wheel(folder: Path) -> Path:
    """The wheel, built from the sources alone; nothing is in it that should not be."""
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--quiet",
        "--wheel-dir",
        folder,
        ROOT,
        cwd=folder,
    )
    (built,) = folder.glob("mezzotint-*.whl")
    names = zipfile.ZipFile(built).namelist()
    strange = [
        name
        for name in names
        if not re.match(r"mezzotint(-[^/]+\.dist-info)?/", name) or "__pycache__" in name
    ]
    if strange:
        raise Fault(f"{built.name} also holds {', '.join(strange[:5])}")
    for wanted in ("mezzotint/py.typed", "/licenses/LICENSE", "/licenses/NOTICE"):
        if not any(name.endswith(wanted) for name in names):
            raise Fault(f"{built.name} lacks {wanted}")
    return built


def pythons() -> dict[str, str]:
    """Version -> program, of those that are there and answer: this one, those on the path, those of pyenv."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    for version in PYTHONS:
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
        for program in filter(None, (shutil.which(f"python{version}"), *map(str, kept))):
            if (
                subprocess.run(
                    [program, "-c", "import venv"], capture_output=True, check=False
                ).returncode
                == 0
            ):
                found.setdefault(version, program)
    return found


def demo_locked(program: str, built: Path, folder: Path) -> None:
    """Runs the demonstration of the wheel with the dependencies of the lock."""
    demo(program, built, folder, requirements=("--require-hashes", "--requirement", LOCK))


def demo_at_bound(bound: Bound, program: str, built: Path, folder: Path) -> None:
    """Runs the demonstration of the wheel with the oldest or the newest dependencies allowed."""
    chosen = folder / f"{bound.name}.txt"
    resolve(chosen, python=bound.python, options=("--resolution", bound.resolution))
    demo(program, built, folder, requirements=("--requirement", chosen))


def demo(program: str, built: Path, folder: Path, *, requirements: tuple[str | Path, ...]) -> None:
    """Installs the wheel into a fresh environment of this Python and runs the demonstration in an empty folder."""
    run(program, "-m", "venv", folder / "venv", cwd=folder)
    own = next(
        path for path in (folder / "venv" / "bin", folder / "venv" / "Scripts") if path.is_dir()
    )
    pip = (own / "python", "-m", "pip", "install", "--quiet")
    run(*pip, *requirements, cwd=folder)
    run(*pip, "--no-deps", built, cwd=folder)
    run(own / "python", "-m", "pip", "check", cwd=folder)
    empty = folder / "empty"
    empty.mkdir()
    facts = json.loads(run(own / "mezzotint", "demo", "--json", cwd=empty))
    if not facts["verified"] or not (empty / "demo" / "mechanism.json").is_file():
        raise Fault(f"{program}: the demonstration's certificate does not hold")
    run(own / "mezzotint", "verify", Path("demo") / "mechanism.json", cwd=empty)


def check() -> None:
    """All of it; the first fault ends it."""
    print(f"version {same_version()}: stated alike")
    print(f"{LOCK.name}: {len(locked())} packages with hashes, no server named")
    with tempfile.TemporaryDirectory() as folder:
        built = wheel(Path(folder))
        print(f"{built.name}: {built.stat().st_size / 2**20:.1f} MB, nothing strange in it")
        found = pythons()
        for version, program in found.items():
            inside = Path(folder) / version
            inside.mkdir()
            demo_locked(program, built, inside)
            print(f"Python {version}: installed from the lock, demonstration runs and verifies")
        for bound in BOUNDS:
            if bound.python not in found:
                continue
            inside = Path(folder) / bound.name
            inside.mkdir()
            demo_at_bound(bound, found[bound.python], built, inside)
            print(
                f"Python {bound.python}, {bound.name} dependencies: demonstration runs and verifies"
            )
        for version in PYTHONS:
            if version not in found:
                print(f"Python {version}: NOT CHECKED, there is none on this machine")


def main(arguments: list[str] | None = None) -> int:
    """One of the commands; 1 with the fault named."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = {"check": check, "lock": lock, "licences": licences}
    parser.add_argument("command", choices=commands)
    try:
        commands[parser.parse_args(arguments).command]()
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
