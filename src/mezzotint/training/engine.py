"""Opacus's PrivacyEngine, so that a script changes by its import alone; a shell around
`make_private`.
"""

from __future__ import annotations

from typing import Any, final

from mezzotint.core.arguments import check_options
from mezzotint.core.errors import ParameterError
from mezzotint.core.types import AnyPath
from mezzotint.training.accountant import Accountant
from mezzotint.training.models import Module, torch
from mezzotint.training.private import Settings, made_private
from mezzotint.training.records import refuse_layers

_DEFAULTS = {"poisson_sampling": True, "clipping": "flat", "batch_first": True}
"""Options of Opacus with one value that is accounted for here."""

_OF_OPACUS = "the engine sets it, as Opacus does"

_IGNORED = ("noise_generator", "criterion", "wrap_model", "alphas")
"""Options of Opacus that have no meaning here."""


@final
class PrivacyEngine:
    """Makes scripts that were written for Opacus private: `from mezzotint.training import
    PrivacyEngine`.

    Arguments:
        accountant: accepted for Opacus's sake; epsilon is that of the privacy loss distribution.
        secure_mode: accepted for Opacus's sake; randomness is always cryptographic.
    Guarantees: those of `make_private`. A step is divided by the expected batch size with
        loss_reduction="sum", too, where Opacus does not: give such scripts so many times the
        learning rate.
    Example:
        >>> records = torch.utils.data.TensorDataset(torch.randn(200, 5), torch.randint(2, (200,)))
        >>> module, engine = torch.nn.Linear(5, 2), PrivacyEngine()
        >>> module, optimizer, loader = engine.make_private(
        ...     module=module, optimizer=torch.optim.SGD(module.parameters()),
        ...     data_loader=torch.utils.data.DataLoader(records, batch_size=20),
        ...     noise_multiplier=1.0, max_grad_norm=1.0,
        ... )
        >>> for x, y in loader:
        ...     optimizer.zero_grad()
        ...     torch.nn.functional.cross_entropy(module(x), y).backward()
        ...     optimizer.step()
        >>> 2.85 < engine.get_epsilon(delta=1e-5) < 2.86
        True
    """

    def __init__(self, *, accountant: str = "prv", secure_mode: bool = False) -> None:
        self._accountant: Accountant | None = None

    @property
    def accountant(self) -> Accountant:
        """Counts the steps. Raises ParameterError before `make_private`."""
        if self._accountant is None:
            raise ParameterError("accountant", None, "call make_private first")
        return self._accountant

    def make_private(
        self,
        *,
        module: Module,
        optimizer: torch.optim.Optimizer,
        data_loader: torch.utils.data.DataLoader[Any],
        noise_multiplier: float,
        max_grad_norm: float,
        **options: Any,
    ) -> Any:
        """Makes a script private with given noise.

        Arguments: as of Opacus; options may be those of `mezzotint.training.make_private`.
        Returns: module, optimizer and loader.
        Raises:
            ParameterError: as `make_private`; sampling, clipping or gradients of a kind that is not
                accounted for here.
        """
        settings = _settings(
            options, delta=None, noise_multiplier=noise_multiplier, max_grad_norm=max_grad_norm
        )
        return self._private(module, optimizer, data_loader, settings)

    def make_private_with_epsilon(
        self,
        *,
        module: Module,
        optimizer: torch.optim.Optimizer,
        data_loader: torch.utils.data.DataLoader[Any],
        target_epsilon: float,
        target_delta: float,
        epochs: int,
        max_grad_norm: float,
        **options: Any,
    ) -> Any:
        """Makes a script private that costs at most `target_epsilon` in all its epochs.

        Arguments, returns, raises: as `make_private`.
        """
        settings = _settings(
            options,
            delta=target_delta,
            target_epsilon=target_epsilon,
            epochs=epochs,
            max_grad_norm=max_grad_norm,
        )
        return self._private(module, optimizer, data_loader, settings)

    def _private(self, module: Any, optimizer: Any, loader: Any, settings: Settings) -> Any:
        if self._accountant is not None:
            raise ParameterError(
                "engine",
                "in use",
                "each engine counts the steps of one script; make another for another",
            )
        module, optimizer, loader, self._accountant = made_private(
            module, optimizer, loader, settings
        )
        return module, optimizer, loader

    def get_epsilon(self, delta: float) -> float:
        """Epsilon of all steps so far."""
        return self.accountant.get_epsilon(delta)

    def is_compatible(
        self, *, module: Module, optimizer: Any = None, data_loader: Any = None
    ) -> bool:
        """Whether no layer of a module is refused."""
        try:
            refuse_layers(module)
        except ParameterError:
            return False
        return True

    def validate(self, *, module: Module, optimizer: Any = None, data_loader: Any = None) -> None:
        """Raises ParameterError for a layer that is refused."""
        refuse_layers(module)

    def save_checkpoint(
        self,
        *,
        path: AnyPath,
        module: Module,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Writes weights, the optimizer's state and the steps counted; no key of any noise."""
        state = {"module": module.state_dict(), "accountant": self.accountant.state_dict()}
        if optimizer is not None:
            state["optimizer"] = optimizer.state_dict()
        torch.save(state, path)

    def load_checkpoint(
        self,
        *,
        path: AnyPath,
        module: Module,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Goes on from what `save_checkpoint` wrote, after `make_private` of the same script."""
        state = torch.load(path, weights_only=True)
        self.accountant.load_state_dict(state["accountant"])
        module.load_state_dict(state["module"])
        if optimizer is not None and "optimizer" in state:
            optimizer.load_state_dict(state["optimizer"])


def _settings(options: dict[str, Any], **given: Any) -> Settings:
    """The settings of Opacus's options; refuses what is not accounted for."""
    remaining = {name: value for name, value in options.items() if name not in _IGNORED}
    for name, accepted in _DEFAULTS.items():
        value = remaining.pop(name, accepted)
        if value != accepted:
            raise ParameterError(name, value, f"only {accepted} is accounted for; leave it out")
    if not isinstance(given["max_grad_norm"], int | float):
        raise ParameterError(
            "max_grad_norm",
            given["max_grad_norm"],
            "a record's norm is taken over all tensors together; give one number",
        )
    check_options(remaining, Settings, **dict.fromkeys(given, _OF_OPACUS))
    return Settings(**given, **remaining)
