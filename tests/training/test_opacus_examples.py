"""Opacus's own example scripts, as they are installed, with one line changed: the import of the engine."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true"),
    pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

THEIRS = "from opacus import PrivacyEngine\n"
OURS = "from mezzotint.training import PrivacyEngine\n"
DELTA = 1e-5


def changed_script(name: str) -> ModuleType:
    """An installed example with the one line changed."""
    package = importlib.util.find_spec("examples")
    folders = [] if package is None else list(package.submodule_search_locations or ())
    paths = [Path(folder) / name for folder in folders]
    text = next((path.read_text() for path in paths if path.is_file()), "")
    if THEIRS not in text:
        pytest.skip(f"this release of Opacus installs no {name}")
    lines = text.splitlines(keepends=True)
    changed = [OURS if line == THEIRS else line for line in lines]
    assert sum(before != after for before, after in zip(lines, changed, strict=True)) == 1
    script = ModuleType("opacus_example")
    exec(compile("".join(changed), name, "exec"), vars(script))
    return script


class Pictures(torch.utils.data.Dataset):
    """Made-up images whose class shows: what the scripts load by torchvision, with its arguments."""

    count, shape = 60, (1, 28, 28)

    def __init__(self, *_: object, train: bool = True, **__: object) -> None:
        self.train = train

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, position: int) -> Any:
        if position >= self.count:
            raise IndexError(position)
        image = torch.randn(self.shape, generator=torch.Generator().manual_seed(position))
        image[:, position % 10] += 2
        return image, position % 10


class ColourPictures(Pictures):
    shape = (3, 32, 32)


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for torchvision, of which the scripts want data and transforms of it."""

    names = ("torchvision", "torchvision.transforms", "torchvision.datasets")
    modules: dict[str, Any] = {name: ModuleType(name) for name in names}
    for name in ("Compose", "ToTensor", "Normalize", "RandomCrop", "RandomHorizontalFlip"):
        setattr(modules["torchvision.transforms"], name, lambda *_, **__: None)
    modules["torchvision.datasets"].MNIST = Pictures
    modules["torchvision.datasets"].CIFAR10 = ColourPictures
    modules["torchvision"].transforms = modules["torchvision.transforms"]
    modules["torchvision"].datasets = modules["torchvision.datasets"]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def epsilon(sigma: float, rate: float, steps: int, delta: float) -> float:
    """By dp_accounting alone."""
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma))
    return PLDAccountant().compose(event, steps).get_epsilon(delta)


def run(script: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["example", *map(str, words)])
    script.main()


def printed_epsilons(capsys: pytest.CaptureFixture[str]) -> list[float]:
    return [float(number) for number in re.findall(r"ε = ([\d.]+)", capsys.readouterr().out)]


@pytest.mark.usefixtures("torchvision")
def test_mnist_in_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = changed_script("mnist.py")
    words = ["--device", "cpu", "-b", 20, "-n", 2, "-r", 2, "--save-model"]
    run(script, tmp_path, monkeypatch, *words)
    expected = [epsilon(1.0, 1 / 3, steps, DELTA) for steps in (3, 6)]
    assert printed_epsilons(capsys) == pytest.approx(expected * 2, abs=0.0051)  # two decimals
    results = list(tmp_path.glob("*.pt"))
    assert len(results) == 2  # of the model and of the accuracies
    loaded = [torch.load(path, weights_only=True) for path in results]
    (weights,) = [content for content in loaded if isinstance(content, dict)]
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())


@pytest.mark.usefixtures("torchvision")
@pytest.mark.parametrize("optimizer", ["SGD", pytest.param("Adam", marks=pytest.mark.slow)])
def test_cifar10(
    optimizer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = changed_script("cifar10.py")
    words = ["--device", "cpu", "-j", 0, "--batch-size", 30, "--epochs", 2, "--print-freq", 1]
    run(script, tmp_path, monkeypatch, *words, "--optim", optimizer, "--lr-schedule", "cos")
    expected = [epsilon(1.5, 1 / 2, steps, DELTA) for steps in range(1, 5)]
    # The scripts print two decimals.
    assert printed_epsilons(capsys) == pytest.approx(expected, abs=0.0051)
    assert (tmp_path / "checkpoint.tar").is_file()


@pytest.mark.parametrize("mode", ["lstm", pytest.param("gru", marks=pytest.mark.slow)])
def test_char_lstm(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = changed_script("char-lstm-classification.py")
    names = tmp_path / "names"
    names.mkdir()
    for letter in "abc":
        words = [letter * (2 + number % 4) for number in range(20)]
        (names / f"{letter}.txt").write_text("\n".join(words))
    words = ["--data-root", names, "--device", "cpu", "-b", 24, "--epochs", 2, "--mode", mode]
    run(script, tmp_path, monkeypatch, *words, "--hidden-size", 8, "--embedding-size", 8)
    expected = [epsilon(1.0, 1 / 2, steps, 8e-5) for steps in (2, 4, 4)]
    # The scripts print two decimals.
    assert printed_epsilons(capsys) == pytest.approx(expected, abs=0.0051)
