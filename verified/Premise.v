(** The premise of composition below c = 1 is needed: an instance in which it holds for every
    c >= 1 only, and the conclusion is false.

    A table of randomized response (3/4, 1/4) with its exact losses log 3 and -log 3 is composed
    with nothing at all, whose curve is said to be that of a loss of -log 3 for certain: 0 at every
    c >= 1, as it should be, but too small below 1. The product says that nothing is lost at
    epsilon 0, where 1/2 is. *)

From Coq Require Import Reals ZArith List Lra Lia.
From Mezzotint Require Import Definitions Divergence Losses Product.
Import ListNotations.
Open Scope R_scope.

Definition HIGH : Z := (3 * 2 ^ 30)%Z.
Definition LOW : Z := (2 ^ 30)%Z.

Definition response : table := [[HIGH; LOW]; [LOW; HIGH]].

Definition honest : measure := Measure (-1) [2 ^ 158; 0; 3 * 2 ^ 158]%Z 0.
Definition forged : measure := Measure (-1) [WHOLE] 0.

Lemma response_good : distributions response.
Proof.
  split; [discriminate|]. intros row [<-|[<-|[]]]; repeat split;
    repeat (constructor; [unfold HIGH, LOW; lia|]); constructor.
Qed.

Lemma factor_down : loss_factor (ln 3) (-1) = 3.
Proof.
  unfold loss_factor. replace (- (-1 * ln 3)) with (ln 3) by ring. apply exp_ln. lra.
Qed.

Lemma factor_up : loss_factor (ln 3) 1 = / 3.
Proof.
  unfold loss_factor. replace (- (1 * ln 3)) with (- ln 3) by ring.
  rewrite exp_Ropp, exp_ln by lra. reflexivity.
Qed.

Lemma whole_quarters : IZR WHOLE = 4 * IZR (2 ^ 158).
Proof. rewrite <- mult_IZR. reflexivity. Qed.

Lemma quarter_pos : 0 < IZR (2 ^ 158).
Proof. apply IZR_lt. reflexivity. Qed.

Lemma honest_curve : forall a b,
  curve (ln 3) honest a b = / 4 * Rmax (a - b * 3) 0 + 3 / 4 * Rmax (a - b * / 3) 0.
Proof.
  intros a b. unfold curve, honest. cbn [missing start masses lin].
  change (-1 + 1)%Z with 0%Z. change (0 + 1)%Z with 1%Z.
  rewrite factor_down, factor_up, whole_quarters, mult_IZR. pose proof quarter_pos.
  field. lra.
Qed.

Lemma chances : forall i j, (i < 2)%nat -> (j < 2)%nat ->
  chance response (knot i) j = if Nat.eqb i j then 3 / 4 else / 4.
Proof.
  intros i j I J. unfold chance, knot, weight. cbn [share left right].
  assert (T : IZR TOTAL = 4 * IZR LOW) by (rewrite <- mult_IZR; reflexivity).
  assert (H : IZR HIGH = 3 * IZR LOW) by (rewrite <- mult_IZR; reflexivity).
  assert (0 < IZR LOW) by (apply IZR_lt; reflexivity).
  destruct i as [|[|i]]; [| |lia]; destruct j as [|[|j]]; try lia; cbn [nth Nat.eqb response];
    rewrite T, ?H; field; lra.
Qed.

Lemma honest_bounds : bounds (ln 3) honest [One response].
Proof.
  split; [repeat (constructor; [lia|]); constructor|]. split; [cbn; lia|].
  intros v a b F A B.
  destruct v as [|t x y next|]; cbn in F; try contradiction. destruct F as [-> [X [Y F]]].
  replace (hs (Report response x y next) a b) with (hinge response a b x y).
  2:{ cbn [hs]. unfold hinge. apply sum_ext. intros o _. specialize (F o).
      destruct (next o); cbn in F; try contradiction. reflexivity. }
  apply worst_inputs_are_rows; auto. intros i j I J. rewrite honest_curve.
  change (length response) with 2%nat in I, J. unfold hinge.
  change (levels response) with 2%nat. cbn [sum]. rewrite !chances by lia.
  destruct i as [|[|i]]; [| |lia]; destruct j as [|[|j]]; try lia; cbn [Nat.eqb];
    unfold Rmax; repeat destruct Rle_dec; lra.
Qed.

Lemma forged_above_1 : forall v a b, follows v [] -> 0 <= a -> a <= b ->
  hs v a b <= curve (ln 3) forged a b.
Proof.
  intros v a b F A B. destruct v; cbn in F; try contradiction. cbn [hs].
  rewrite Rmax_right by lra. unfold curve, forged. cbn [missing start masses lin].
  pose proof WHOLE_pos as W. pose proof (Rmax_r (a - b * loss_factor (ln 3) (-1)) 0).
  apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat; exact W]. nra.
Qed.

Definition watched : view := Report response (knot 0) (knot 1) (fun _ => Done).

Theorem premise_at_c_below_1_is_needed :
  exists s m1 m2 s1 s2 v,
    0 < s /\ bounds s m1 s1 /\ Forall good s1 /\ nonneg (masses m2) /\ (0 <= missing m2)%Z /\
    (forall w a b, follows w s2 -> 0 <= a -> a <= b -> hs w a b <= curve s m2 a b) /\
    follows v (s1 ++ s2) /\ curve s (times 0 m1 m2) 1 1 = 0 /\ hs v 1 1 = 1 / 2.
Proof.
  exists (ln 3), honest, forged, [One response], [], watched.
  assert (S : 0 < ln 3) by (rewrite <- ln_1; apply ln_increasing; lra).
  split; [exact S|]. split; [exact honest_bounds|].
  split; [constructor; [exact response_good|constructor]|].
  split; [constructor; [unfold WHOLE, MASS_BITS; lia|constructor]|]. split; [cbn; lia|].
  split; [exact forged_above_1|]. split.
  - cbn. repeat split; cbn; try lra; lia.
  - split.
    + replace (times 0 honest forged) with (Measure (-2) [2 ^ 158; 0; 3 * 2 ^ 158]%Z 0)
        by (vm_compute; reflexivity).
      unfold curve. cbn [missing start masses lin].
      assert (E : forall i, (i <= 0)%Z -> Rmax (1 - 1 * loss_factor (ln 3) i) 0 = 0).
      { intros i I. apply Rmax_right. assert (1 <= loss_factor (ln 3) i); [|lra].
        unfold loss_factor. destruct (Z.eq_dec i 0) as [->|N].
        - rewrite Rmult_0_l, Ropp_0, exp_0. lra.
        - left. rewrite <- exp_0 at 1. apply exp_increasing.
          assert (IZR i < 0) by (apply IZR_lt; lia). nra. }
      rewrite !E by lia. unfold Rdiv. ring.
    + unfold watched. cbn [hs]. change (levels response) with 2%nat. cbn [sum].
      rewrite !chances by lia. cbn [Nat.eqb]. unfold Rmax. repeat destruct Rle_dec; lra.
Qed.
