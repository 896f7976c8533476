(** Lower and upper bounds of e^x for rational x, in integers.

    The only fact about e^x that is used is 1 + y <= e^y: for y = x / 2^SQUARINGS the left side is
    squared so many times, rounded down at each. *)

From Coq Require Import Reals QArith Qreals ZArith List Lra Lia.
Open Scope R_scope.

Definition BITS : Z := 704%Z.
Definition SQUARINGS : nat := 320%nat.
Definition UNIT : Z := (2 ^ BITS)%Z.

Lemma UNIT_pos : 0 < IZR UNIT.
Proof. apply IZR_lt. unfold UNIT, BITS. lia. Qed.

(** Floor of z / 2^bits. *)
Lemma shiftr_le : forall z bits, (0 <= bits)%Z ->
  IZR (Z.shiftr z bits) * IZR (2 ^ bits) <= IZR z.
Proof.
  intros z bits B. rewrite Z.shiftr_div_pow2 by exact B. rewrite <- mult_IZR. apply IZR_le.
  rewrite Z.mul_comm. apply Z.mul_div_le. apply Z.pow_pos_nonneg; lia.
Qed.

Lemma shiftr_le_div : forall z bits r, (0 <= bits)%Z ->
  IZR z <= r * IZR (2 ^ bits) -> IZR (Z.shiftr z bits) <= r.
Proof.
  intros z bits r B H. pose proof (shiftr_le z bits B) as S.
  assert (0 < IZR (2 ^ bits)) by (apply IZR_lt; apply Z.pow_pos_nonneg; lia).
  apply Rmult_le_reg_r with (IZR (2 ^ bits)); lra.
Qed.

(** Ceiling of z / 2^bits. *)
Definition shiftr_up (z bits : Z) : Z := (- Z.shiftr (- z) bits)%Z.

Lemma shiftr_up_ge_div : forall z bits r, (0 <= bits)%Z ->
  r * IZR (2 ^ bits) <= IZR z -> r <= IZR (shiftr_up z bits).
Proof.
  intros z bits r B H. unfold shiftr_up. rewrite opp_IZR.
  pose proof (shiftr_le_div (- z) bits (- r) B) as S. rewrite opp_IZR in S. lra.
Qed.

Lemma shiftr_nonneg : forall z bits, (0 <= z)%Z -> (0 <= Z.shiftr z bits)%Z.
Proof. intros. apply Z.shiftr_nonneg. assumption. Qed.

Definition ceil_div (n d : Z) : Z := (- ((- n) / d))%Z.

Lemma ceil_div_ge : forall n d, (0 < d)%Z -> IZR n <= IZR (ceil_div n d) * IZR d.
Proof.
  intros n d D. rewrite <- mult_IZR. apply IZR_le. unfold ceil_div.
  pose proof (Z.mul_div_le (- n) d D). lia.
Qed.

Fixpoint squared (count : nat) (z : Z) : Z :=
  match count with
  | O => z
  | S k => squared k (Z.shiftr (z * z) BITS)
  end.

Lemma squared_le : forall count z y, (0 <= z)%Z -> IZR z <= exp y * IZR UNIT ->
  (0 <= squared count z)%Z /\ IZR (squared count z) <= exp (2 ^ count * y) * IZR UNIT.
Proof.
  induction count as [|k IH]; intros z y Z0 H.
  - cbn -[UNIT]. rewrite Rmult_1_l. split; assumption.
  - cbn [squared]. destruct (IH (Z.shiftr (z * z) BITS) (y + y)) as [N L].
    + apply shiftr_nonneg. nia.
    + apply shiftr_le_div; [unfold BITS; lia|]. rewrite mult_IZR, exp_plus. fold UNIT.
      assert (0 <= IZR z) by (apply IZR_le; exact Z0).
      replace (exp y * exp y * IZR UNIT * IZR UNIT)
        with ((exp y * IZR UNIT) * (exp y * IZR UNIT)) by ring.
      apply Rmult_le_compat; assumption.
    + split; [exact N|]. replace (2 ^ S k * y) with (2 ^ k * (y + y)) by (cbn; ring). exact L.
Qed.

(** At or below e^x, in units of 2^-BITS. *)
Definition exp_lower (x : Q) : Z :=
  let first := (UNIT + (Qnum x * 2 ^ (BITS - Z.of_nat SQUARINGS)) / Zpos (Qden x))%Z in
  squared SQUARINGS (Z.max 0 first).

Lemma exp_lower_le : forall x,
  (0 <= exp_lower x)%Z /\ IZR (exp_lower x) <= exp (Q2R x) * IZR UNIT.
Proof.
  intros x. unfold exp_lower.
  set (shift := (2 ^ (BITS - Z.of_nat SQUARINGS))%Z).
  set (part := ((Qnum x * shift) / Z.pos (Qden x))%Z).
  set (y := Q2R x / 2 ^ SQUARINGS).
  assert (P : 0 < 2 ^ SQUARINGS) by (apply pow_lt; lra).
  replace (Q2R x) with (2 ^ SQUARINGS * y) by (unfold y; field; lra).
  apply squared_le; [apply Z.le_max_l|].
  pose proof UNIT_pos as U.
  assert (D : 0 < IZR (Zpos (Qden x))) by (apply IZR_lt; lia).
  assert (S : IZR shift * 2 ^ SQUARINGS = IZR UNIT).
  { rewrite pow_IZR, <- mult_IZR. apply f_equal. unfold shift, UNIT.
    rewrite <- Z.pow_add_r; unfold BITS, SQUARINGS; cbn; try lia. }
  assert (L : IZR part <= y * IZR UNIT).
  { assert (IZR part * IZR (Zpos (Qden x)) <= IZR (Qnum x) * IZR shift).
    { rewrite <- !mult_IZR. apply IZR_le. unfold part. rewrite Z.mul_comm.
      apply Z.mul_div_le. lia. }
    unfold y, Q2R. rewrite <- S.
    apply Rmult_le_reg_r with (IZR (Zpos (Qden x))); [exact D|].
    eapply Rle_trans; [eassumption|]. right. field. split; lra. }
  assert (E : 1 + y <= exp y) by apply exp_ineq1_le.
  apply Z.max_case_strong; intros _.
  - assert (0 < exp y) by apply exp_pos. nra.
  - rewrite plus_IZR. nra.
Qed.

(** At or above e^-x for a lower bound [low] of e^x: their product is 1. *)
Definition exp_upper_inverse (low : Z) : Z := ceil_div (UNIT * UNIT) low.

Lemma exp_upper_inverse_ge : forall x low,
  (0 < low)%Z -> IZR low <= exp x * IZR UNIT ->
  exp (- x) * IZR UNIT <= IZR (exp_upper_inverse low).
Proof.
  intros x low P H. unfold exp_upper_inverse.
  pose proof (ceil_div_ge (UNIT * UNIT) low P) as C. rewrite mult_IZR in C.
  assert (P' : 0 < IZR low) by (apply IZR_lt; exact P). pose proof UNIT_pos as U.
  assert (E : exp (- x) * exp x = 1) by (rewrite <- exp_plus, Rplus_opp_l; apply exp_0).
  assert (0 < exp (- x)) by apply exp_pos.
  apply Rmult_le_reg_r with (IZR low); [exact P'|].
  apply Rle_trans with (exp (- x) * IZR UNIT * (exp x * IZR UNIT)).
  - apply Rmult_le_compat_l; [nra|exact H].
  - replace (exp (- x) * IZR UNIT * (exp x * IZR UNIT))
      with ((exp (- x) * exp x) * (IZR UNIT * IZR UNIT)) by ring.
    rewrite E, Rmult_1_l. exact C.
Qed.

(** Proofs use the bounds above, never the program. *)
Global Opaque exp_lower exp_upper_inverse.
