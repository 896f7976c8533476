"""Columns in, private reports out, and estimates back from the reports. Imports `core` and
`privacy`.
"""

from typing import TYPE_CHECKING

from mezzotint.core import on_demand

if TYPE_CHECKING:
    from mezzotint.collect.answers import (
        Answer as Answer,
        GroupEstimates as GroupEstimates,
        estimate_groups as estimate_groups,
    )
    from mezzotint.collect.counter import Counter as Counter
    from mezzotint.collect.counts import (
        CodeCounts as CodeCounts,
        load_counts as load_counts,
        read_counts as read_counts,
        save_counts as save_counts,
    )
    from mezzotint.collect.estimates import (
        Estimate as Estimate,
        Frequencies as Frequencies,
        Histogram as Histogram,
        estimate as estimate,
    )
    from mezzotint.collect.grouping import groups_of as groups_of, read_groups as read_groups
    from mezzotint.collect.groups import (
        Group as Group,
        Part as Part,
        difference as difference,
        parts_of as parts_of,
        stratified as stratified,
        total as total,
    )
    from mezzotint.collect.hitters import (
        HashedCounts as HashedCounts,
        HeavyHitters as HeavyHitters,
        heavy_hitters as heavy_hitters,
        read_hashed as read_hashed,
    )
    from mezzotint.collect.intervals import Interval as Interval
    from mezzotint.collect.memo import (
        Memo as Memo,
        load_memo_key as load_memo_key,
        memoised as memoised,
        new_memo_key as new_memo_key,
    )
    from mezzotint.collect.pairs import (
        PairCounts as PairCounts,
        Relation as Relation,
        read_pairs as read_pairs,
        relation as relation,
        two_way as two_way,
    )
    from mezzotint.collect.people import Lot as Lot, question_of as question_of
    from mezzotint.collect.pipelines import (
        arrow_codes as arrow_codes,
        polars_codes as polars_codes,
        register_duckdb_function as register_duckdb_function,
    )
    from mezzotint.collect.plans import Plan as Plan, people_for as people_for, plan as plan
    from mezzotint.collect.questions import (
        threshold_table as threshold_table,
    )
    from mezzotint.collect.results import (
        RAW_COUNTS_REMARK as RAW_COUNTS_REMARK,
        ColumnResult as ColumnResult,
        PrivatizeResult as PrivatizeResult,
    )
    from mezzotint.collect.runs import (
        privatize as privatize,
        privatize_columns as privatize_columns,
    )
    from mezzotint.collect.settings import Settings as Settings
    from mezzotint.collect.source import read_values as read_values
    from mezzotint.collect.spending import Spending as Spending, spending_of as spending_of

__getattr__, __dir__ = on_demand(__name__, __file__)
