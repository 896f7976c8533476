"""Records whose fields are keys of files: none gains, loses or renames a field unseen, for files on disk have the old keys."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import mezzotint as mz

SOURCE = Path(mz.__file__).parent

KEYS = {
    "privacy.charges.Charge": "identity client epsilon delta description fingerprint",
    "privacy.people.PeopleLine": (
        "token identity description fingerprint epsilon persons rows most sha256 key withdrawn"
    ),
    "vectors.ranked_session.Answer": "slot report nonce",
    "training.run_settings.Standing": (
        "step loss train_accuracy test_accuracy epsilon seconds seeded"
    ),
    "training.run_settings.TrainingSettings": (
        "steps batch_size step_size averaging optimizer schedule records_per_user"
    ),
    "collect.columns.Dialect": "delimiter missing_values decimal backslash_is_text",
    "collect.people.Lot": "people question questions name",
    "federated.policy.Policy": (
        "minimum corrupted roster report_epsilon budget delta mechanisms noise_multiplier "
        "largest_value clip_norm rounds dealings evaluate_noise_multiplier evaluate rehearse"
    ),
    "federated.settings.RunSettings": (
        "dataset data model population dirichlet seed algorithm steps client_learning_rate batch "
        "observer mechanism clip clip_norm server_learning_rate server_optimizer rounds "
        "clients_per_round spare minimum roster colluding dropping sampling epsilon delta "
        "corrupted stage_timeout evaluate_every evaluate_noise largest_loss out pause"
    ),
    "federated.encoding.TableEncoding": "mechanism clip_norm seed",
    "federated.encoding.FixedPointEncoding": "clip grid_bits clip_norm",
    "federated.encoding.GaussianEncoding": "clip_norm granularity modulus_bits deviation seed",
    "federated.wrapped_encodings.WeightedEncoding": "inner most_examples",
    "federated.wrapped_encodings.MetricsEncoding": "inner ranges",
    "papers.simulation.Point": "round loss accuracy",
    "papers.simulation.Experiment": (
        "model rounds clients_per_round learning_rate evaluations device"
    ),
    "papers.simulation.State": "parameters round points",
}
"""Record -> its fields, in order. Before one is changed here: are files on disk still read, or refused in words?"""

FILE_USES = {
    "privacy/charges.py": "Charge",
    "privacy/ledger.py": "PeopleLine",
    "privacy/ledger_state.py": "Charge, PeopleLine",
    "vectors/ranked_session.py": "Answer",
    "cli/train.py": "Standing",
    "training/trainer.py": "TrainingSettings",
    "collect/folders.py": "Dialect",
    "federated/policy.py": "Policy",
    "federated/settings.py": "RunSettings",
    "federated/encoding_files.py": "the encodings",
    "papers/simulation.py": "Point, Experiment, State",
}
OTHER_USES = {
    "cli/options.py": "options of a command",
    "cli/smoothed.py": "printed, never read",
    "collect/estimates.py": "printed, never read",
    "collect/plans.py": "printed, never read",
    "core/arguments.py": "checks of arguments",
    "core/kinds.py": "names that annotations may have",
    "core/mechanism.py": "arguments of a certificate, printed",
    "core/loss.py": "printed; a table's document has keys of its own",
    "core/records.py": "printed; what is read again is listed above",
    "core/table.py": "copies in memory",
    "federated/encoding.py": "attributes that follow from fields",
    "privacy/claim.py": "arguments of a call",
    "training/accountant.py": "refuses to be pickled elsewhere",
    "training/gradients.py": "attributes of modules",
    "training/optimizers.py": "attributes of optimizers",
    "vectors/advice.py": "printed, never read",
}
"""Modules that go through all fields of a record, and what for."""

WORDS = r"asdict|astuple|\bvars\(|\bfields\b|__dict__|__dataclass_fields__"
NAMES = {"asdict", "astuple", "vars"}


def _uses(tree: ast.Module) -> Iterator[str]:
    """Where a module goes through all fields of a record, or through all attributes."""
    fields_names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses":
            fields_names |= {
                imported.asname or imported.name
                for imported in node.names
                if imported.name in NAMES | {"fields"}
            }
    called = fields_names | NAMES
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="__dataclass_fields__" | "__dict__" as attribute):
                yield attribute
            case ast.Attribute(
                value=ast.Name(id="dataclasses"), attr="asdict" | "astuple" | "fields" as function
            ):
                yield function
            case ast.Call(func=ast.Name(id=function)) if function in called:
                yield function
            case _:
                pass


def test_every_module_that_goes_through_fields_is_listed() -> None:
    using: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        text = file.read_text("utf-8")
        # Parsing takes time, and most modules have none of these words.
        if re.search(WORDS, text) and set(_uses(ast.parse(text))):
            using.add(file.relative_to(SOURCE).as_posix())
    assert not FILE_USES.keys() & OTHER_USES.keys()
    assert using - OTHER_USES.keys() == FILE_USES.keys()


@pytest.mark.parametrize("record", KEYS)
def test_fields_that_are_keys_of_files_are_as_files_have_them(record: str) -> None:
    module, _, name = record.rpartition(".")
    if module.startswith(("training", "federated")):
        pytest.importorskip("torch")
        pytest.importorskip("flwr")
    kind = getattr(import_module(f"mezzotint.{module}"), name)
    assert [field.name for field in dataclasses.fields(kind)] == KEYS[record].split()
    assert "# Fields are keys of" in inspect.getsource(kind)


def test_every_record_with_the_remark_is_listed() -> None:
    remarks = sum(
        file.read_text("utf-8").count("# Fields are keys of") for file in SOURCE.rglob("*.py")
    )
    assert remarks == len(KEYS)
