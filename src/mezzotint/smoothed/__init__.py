"""Smoothed differential privacy: exact delta profiles of sampling, their expectations, elections,
gradients."""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.smoothed import mechanisms as mechanisms
    from mezzotint.smoothed.averages import (
        average_profile as average_profile,
        continuous_average as continuous_average,
        expected_gradients as expected_gradients,
        gradient_profile as gradient_profile,
        quantized_gaussian as quantized_gaussian,
        quantized_laplace as quantized_laplace,
    )
    from mezzotint.smoothed.expectations import (
        asymptotic_rate as asymptotic_rate,
        expected as expected,
        likely_ratio_probability as likely_ratio_probability,
        noisy_epsilon as noisy_epsilon,
        published_equation2_probability as published_equation2_probability,
        published_noise_ratio as published_noise_ratio,
        published_remark8 as published_remark8,
        published_table1_noise_epsilon as published_table1_noise_epsilon,
        published_theorem5_worst_case as published_theorem5_worst_case,
    )
    from mezzotint.smoothed.guarantees import (
        SmoothedGuarantee as SmoothedGuarantee,
        compose as compose,
        guarantee as guarantee,
        post_process as post_process,
        pre_process as pre_process,
    )
    from mezzotint.smoothed.model import (
        Expected as Expected,
        Profile as Profile,
        Utility as Utility,
        hull_vertices as hull_vertices,
        read_rational as read_rational,
    )
    from mezzotint.smoothed.profiles import profile as profile, utility as utility

__getattr__, __dir__ = on_demand(__name__, __file__)
