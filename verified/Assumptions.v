(** Prints every axiom on which the promise, and the theorem about its premise, rest. *)

From Mezzotint Require Import Divergence Checker Premise Examples.

Print Assumptions check_sound.
Print Assumptions certified_after_processing.
Print Assumptions both_directions.
Print Assumptions located.
Print Assumptions premise_at_c_below_1_is_needed.
Print Assumptions fails_below_one_half.
