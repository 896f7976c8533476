"""The extra that training proper needs, asked for in one place."""

from mezzotint.core import brought_by

with brought_by("torch"):
    import torch as torch
    from opacus import GradSampleModule as GradSampleModule
    from opacus.accountants import IAccountant as IAccountant
    from opacus.data_loader import wrap_collate_with_empty as wrap_collate_with_empty
    from opacus.grad_sample import GradSampleModuleFastGradientClipping as GradSampleModuleFastGradientClipping
    from opacus.grad_sample.gsm_base import AbstractGradSampleModule as AbstractGradSampleModule
    from opacus.optimizers import DPOptimizer as DPOptimizer
    from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed
    from opacus.utils.batch_memory_manager import BatchSplittingSampler as BatchSplittingSampler
    from opacus.validators import ModuleValidator as ModuleValidator
    from torch.distributed.fsdp import FSDPModule as FSDPModule
    from torch.distributed.fsdp import FullyShardedDataParallel as FullyShardedDataParallel
    from torch.fx.node import map_arg as map_arg

check_unused = _check_processed_flag
"""Raises ValueError for gradients that a step has used already."""

mark_used = _mark_as_processed
