"""The extra that training proper needs, asked for in one place."""

try:
    import torch as torch
    from opacus import GradSampleModule as GradSampleModule
    from opacus.optimizers import DPOptimizer as DPOptimizer
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler as UniformWithReplacementSampler
except ImportError as error:
    raise ImportError("training needs PyTorch and Opacus, an extra: pip install mezzotint[torch]") from error
