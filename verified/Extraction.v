(** The checker as an OCaml program. Integers become those of Zarith, and the lengths of lists
    native ones, by the directives of Coq's own library and the three below: all of this is trusted. *)

From Coq Require Import ExtrOcamlBasic ExtrOcamlZBigInt ExtrOcamlNatInt.
From Mezzotint Require Import Checker.

Extraction Language OCaml.
Extract Constant Coq.ZArith.BinInt.Z.pow =>
  "(fun x y -> Big_int_Z.power_big_int_positive_big_int x y)".
Extract Constant Coq.ZArith.BinInt.Z.log2 =>
  "(fun x -> if Big_int_Z.sign_big_int x <= 0 then Big_int_Z.zero_big_int
     else Big_int_Z.big_int_of_int (Z.numbits x - 1))".

(** Lengths are native integers: what does not fit in one raises [Failure], and never wraps. *)
Extract Constant Coq.PArith.BinPos.Pos.to_nat => "Big_int_Z.int_of_big_int".

Extraction "extracted.ml" check.
