"""The published conformance vectors: what they hold is what this implementation and a scalar one make of them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mezzotint import privacy
from mezzotint.vectors import RankedCodebook, codewords as codebooks
from reference import ranked as twin
from tolerances import MANY

FOLDER = Path(__file__).resolve().parents[2] / "clients" / "vectors"


def documents():
    return [
        json.loads((FOLDER / f"ranks-{number}.json").read_text(encoding="utf-8"))
        for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("document", documents(), ids=["1", "2", "3"])
def test_published_reports_are_reproduced(document, tmp_path):
    scheme = RankedCodebook.from_json(json.dumps(document["mechanism"]))
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document["mechanism"]))
    assert privacy.verify(path).valid
    for i, seed in enumerate(map(int, document["seeds"])):
        vector, words = (
            np.array(document["inputs"][i]),
            [int(word) for word in document["words"][i]],
        )
        code = int(document["codes"][i])
        assert scheme.report(vector, seed, words) == code
        assert scheme.decode(code, seed) == pytest.approx(document["estimates"][i], abs=MANY)
        # No near-tie, which another order of additions could decide otherwise.
        norm = min(1.0, float(np.linalg.norm(vector)) / scheme.clip_norm)
        lifted = vector / np.linalg.norm(vector)
        if scheme.norms == "slack":
            lifted = np.append(norm * lifted, (1 - norm**2) ** 0.5)
        for place in range(scheme.indices):
            products = np.sort(twin.codewords(scheme, seed, place) @ lifted)
            tie = 1e-6  # sums of a thousand floats differ by less than 1e-12 of theirs
            assert np.diff(products).min() > tie * products[-1]


@pytest.mark.parametrize("document", documents(), ids=["1", "2", "3"])
def test_published_streams_are_those_of_the_scalar_twin(document):
    codebook, published = document["mechanism"]["codebook"], document["stream"]
    seed = int(published["seed"])
    key = twin.key("report", codebook["beacon"], seed, 0)
    assert key.hex() == published["key"]
    normals = published["normals_of_row_1_in_units"]
    assert normals == (twin.normal_row(key, 1, len(normals)) * 2**24).astype(int).tolist()
    if published["positions"] is not None:
        padded = 1 << (codebook["dimension"] + (codebook["norms"] == "slack") - 1).bit_length()
        assert published["positions"] == twin.distinct(key, codebook["subspace"], padded)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_javascript_client_reproduces_them():
    """Keys, signs, positions, normal numbers, reports; one answer a round; edited files are refused."""
    script = FOLDER.parent / "javascript" / "ranked-conformance.mjs"
    done = subprocess.run(
        ["node", script, FOLDER], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines() == [
        f"ranks-{number}.json: reproduced" for number in (1, 2, 3)
    ], done.stderr
    assert done.returncode == 0


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_javascript_client_that_differs_is_seen(tmp_path):
    """Mutants: a wrong sign, order, rank, threshold or rounding, and an answer drawn twice."""
    script = (FOLDER.parent / "javascript" / "ranked.mjs").read_text(encoding="utf-8")
    (tmp_path / "ranked-conformance.mjs").write_bytes(
        (FOLDER.parent / "javascript" / "ranked-conformance.mjs").read_bytes()
    )
    for right, wrong in [
        ("? 1 : -1)", "? -1 : 1)"), ("products[b] - products[a]", "products[a] - products[b]"),
        ("edge <= low", "edge < low - 4e8"), ("high >= threshold", "high > threshold + 2n ** 31n"),
        ("word >>> 31 ? -size", "word >>> 31 ? size"), ("kept === undefined || kept === null", "true"),
        ("Math.floor(((left", "Math.ceil(((left"),
    ]:  # fmt: skip
        assert right in script
        (tmp_path / "ranked.mjs").write_text(script.replace(right, wrong), encoding="utf-8")
        command = ["node", tmp_path / "ranked-conformance.mjs", FOLDER]
        assert (
            subprocess.run(command, capture_output=True, timeout=120, check=False).returncode != 0
        ), right


def test_the_published_table_is_pinned():
    table = json.loads((FOLDER / "normal-table.json").read_text(encoding="utf-8"))
    assert (
        hashlib.sha256(np.array(table, dtype="<i4").tobytes()).hexdigest() == codebooks.TABLE_SHA256
    )
    assert codebooks.TABLE_SHA256 in (FOLDER.parents[1] / "docs" / "file-format.md").read_text(
        encoding="utf-8"
    )


def test_the_published_files_are_those_of_their_script():
    described = importlib.util.spec_from_file_location("make_ranks", FOLDER / "make_ranks.py")
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    for name, text in module.files().items():
        made, kept = json.loads(text), json.loads((FOLDER / name).read_text(encoding="utf-8"))
        if isinstance(made, dict):
            assert np.allclose(made.pop("estimates"), kept.pop("estimates"), atol=MANY)
        assert made == kept, name
