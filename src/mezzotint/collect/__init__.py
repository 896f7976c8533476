"""Columns in, private reports out, and estimates back from the reports. Imports `core` and
`privacy`.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.collect.answers import Answer as Answer
    from mezzotint.collect.answers import (
        GroupEstimates as GroupEstimates,
    )
    from mezzotint.collect.answers import (
        estimate_groups as estimate_groups,
    )
    from mezzotint.collect.counter import Counter as Counter
    from mezzotint.collect.counts import CodeCounts as CodeCounts
    from mezzotint.collect.counts import load_counts as load_counts
    from mezzotint.collect.counts import read_counts as read_counts
    from mezzotint.collect.counts import save_counts as save_counts
    from mezzotint.collect.estimates import Estimate as Estimate
    from mezzotint.collect.estimates import Frequencies as Frequencies
    from mezzotint.collect.estimates import Histogram as Histogram
    from mezzotint.collect.estimates import Quantiles as Quantiles
    from mezzotint.collect.estimates import SharesAbove as SharesAbove
    from mezzotint.collect.estimates import estimate as estimate
    from mezzotint.collect.grouping import groups_of as groups_of
    from mezzotint.collect.grouping import read_groups as read_groups
    from mezzotint.collect.groups import Group as Group
    from mezzotint.collect.groups import Part as Part
    from mezzotint.collect.groups import difference as difference
    from mezzotint.collect.groups import parts_of as parts_of
    from mezzotint.collect.groups import stratified as stratified
    from mezzotint.collect.groups import total as total
    from mezzotint.collect.hitters import HashedCounts as HashedCounts
    from mezzotint.collect.hitters import HeavyHitters as HeavyHitters
    from mezzotint.collect.hitters import (
        heavy_hitters as heavy_hitters,
    )
    from mezzotint.collect.hitters import read_hashed as read_hashed
    from mezzotint.collect.intervals import Interval as Interval
    from mezzotint.collect.means import safe_half_width as safe_half_width
    from mezzotint.collect.memo import Memo as Memo
    from mezzotint.collect.memo import load_memo_key as load_memo_key
    from mezzotint.collect.memo import memoised as memoised
    from mezzotint.collect.memo import new_memo_key as new_memo_key
    from mezzotint.collect.pairs import PairCounts as PairCounts
    from mezzotint.collect.pairs import Relation as Relation
    from mezzotint.collect.pairs import means_within as means_within
    from mezzotint.collect.pairs import read_pairs as read_pairs
    from mezzotint.collect.pairs import relation as relation
    from mezzotint.collect.pairs import two_way as two_way
    from mezzotint.collect.pipelines import arrow_codes as arrow_codes
    from mezzotint.collect.pipelines import (
        polars_codes as polars_codes,
    )
    from mezzotint.collect.pipelines import (
        register_duckdb_function as register_duckdb_function,
    )
    from mezzotint.collect.plans import Plan as Plan
    from mezzotint.collect.plans import people_for as people_for
    from mezzotint.collect.plans import plan as plan
    from mezzotint.collect.questions import (
        threshold_table as threshold_table,
    )
    from mezzotint.collect.results import (
        RAW_COUNTS_REMARK as RAW_COUNTS_REMARK,
    )
    from mezzotint.collect.results import ColumnResult as ColumnResult
    from mezzotint.collect.results import (
        ColumnsResult as ColumnsResult,
    )
    from mezzotint.collect.results import (
        PrivatizeResult as PrivatizeResult,
    )
    from mezzotint.collect.runs import privatize as privatize
    from mezzotint.collect.runs import (
        privatize_columns as privatize_columns,
    )
    from mezzotint.collect.settings import Options as Options
    from mezzotint.collect.settings import Settings as Settings
    from mezzotint.collect.source import read_values as read_values
    from mezzotint.collect.spending import Spending as Spending
    from mezzotint.collect.spending import spending_of as spending_of

__getattr__, __dir__ = on_demand(__name__, __file__)
