"""Columns in, private reports out, and estimates back from the reports. Imports `core` and `privacy`."""

from mezzotint.collect.claim import RecordClaim as RecordClaim
from mezzotint.collect.claim import record_claim as record_claim
from mezzotint.collect.columns import read_values as read_values
from mezzotint.collect.counts import CodeCounts as CodeCounts
from mezzotint.collect.counts import read_counts as read_counts
from mezzotint.collect.estimate import DEFAULT_BINS as DEFAULT_BINS
from mezzotint.collect.estimate import DEFAULT_PROBABILITIES as DEFAULT_PROBABILITIES
from mezzotint.collect.estimate import Estimate as Estimate
from mezzotint.collect.estimate import Histogram as Histogram
from mezzotint.collect.estimate import Quantiles as Quantiles
from mezzotint.collect.estimate import estimate as estimate
from mezzotint.collect.flights import AIR_TIME as AIR_TIME
from mezzotint.collect.flights import flights as flights
from mezzotint.collect.mean import Interval as Interval
from mezzotint.collect.mean import safe_half_width as safe_half_width
from mezzotint.collect.privatize import RAW_COUNTS_REMARK as RAW_COUNTS_REMARK
from mezzotint.collect.privatize import ColumnResult as ColumnResult
from mezzotint.collect.privatize import ColumnsResult as ColumnsResult
from mezzotint.collect.privatize import PrivatizeResult as PrivatizeResult
from mezzotint.collect.privatize import privatize as privatize
from mezzotint.collect.privatize import privatize_columns as privatize_columns
