"""Smoothed differential privacy: exact delta profiles of sampling, their expectations, elections,
gradients."""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.smoothed import mechanisms as mechanisms
    from mezzotint.smoothed.averages import average_profile as average_profile
    from mezzotint.smoothed.averages import continuous_average as continuous_average
    from mezzotint.smoothed.averages import expected_gradients as expected_gradients
    from mezzotint.smoothed.averages import gradient_profile as gradient_profile
    from mezzotint.smoothed.averages import quantized_gaussian as quantized_gaussian
    from mezzotint.smoothed.averages import quantized_laplace as quantized_laplace
    from mezzotint.smoothed.expectations import asymptotic_rate as asymptotic_rate
    from mezzotint.smoothed.expectations import expected as expected
    from mezzotint.smoothed.expectations import likely_ratio_probability as likely_ratio_probability
    from mezzotint.smoothed.expectations import noisy_epsilon as noisy_epsilon
    from mezzotint.smoothed.expectations import (
        published_equation2_probability as published_equation2_probability,
    )
    from mezzotint.smoothed.expectations import published_noise_ratio as published_noise_ratio
    from mezzotint.smoothed.expectations import published_remark8 as published_remark8
    from mezzotint.smoothed.expectations import (
        published_table1_noise_epsilon as published_table1_noise_epsilon,
    )
    from mezzotint.smoothed.expectations import (
        published_theorem5_worst_case as published_theorem5_worst_case,
    )
    from mezzotint.smoothed.guarantees import SmoothedGuarantee as SmoothedGuarantee
    from mezzotint.smoothed.guarantees import compose as compose
    from mezzotint.smoothed.guarantees import guarantee as guarantee
    from mezzotint.smoothed.guarantees import post_process as post_process
    from mezzotint.smoothed.guarantees import pre_process as pre_process
    from mezzotint.smoothed.model import Expected as Expected
    from mezzotint.smoothed.model import Profile as Profile
    from mezzotint.smoothed.model import Utility as Utility
    from mezzotint.smoothed.model import hull_vertices as hull_vertices
    from mezzotint.smoothed.model import read_rational as read_rational
    from mezzotint.smoothed.profiles import profile as profile
    from mezzotint.smoothed.profiles import utility as utility

__getattr__, __dir__ = on_demand(__name__, __file__)
