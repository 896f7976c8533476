"""Vectors under pure local differential privacy in few bits: one index into a public random codebook."""

from mezzotint.vectors.ranked.designer import ranked_codebook as ranked_codebook
from mezzotint.vectors.ranked.scheme import RankedCodebook as RankedCodebook
from mezzotint.vectors.ranked.scheme import RankedSession as RankedSession
from mezzotint.vectors.ranked.scheme import RankTable as RankTable
from mezzotint.vectors.ranked.scheme import own_seeds as own_seeds
from mezzotint.vectors.ranked.scheme import rank_table as rank_table
from mezzotint.vectors.ranked.scheme import round_seeds as round_seeds
