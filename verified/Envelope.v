(** A divergence that is below a curve at the points of a grid is below it everywhere.

    Between neighbouring points the divergence is below its chord, and the curve, whose atoms all
    stand at points, is its own chord. The points begin at 0: the premise is needed below c = 1 as
    well ([premise_at_c_below_1_is_needed] in Checker). *)

From Coq Require Import Reals ZArith List Lra Lia.
From Mezzotint Require Import Definitions Divergence Losses.
Import ListNotations.
Open Scope R_scope.

(** * Functions that behave like divergences *)

Record curve_like (h : R -> R -> R) : Prop := {
  scales : forall l a b, 0 <= l -> h (l * a) (l * b) = l * h a b;
  falls : forall a b b', 0 <= b <= b' -> h a b' <= h a b;
  convex : forall a b b' t, 0 <= t <= 1 ->
    h a ((1 - t) * b + t * b') <= (1 - t) * h a b + t * h a b' }.

Lemma like_hinge : forall p q, 0 <= q -> curve_like (fun a b => Rmax (a * p - b * q) 0).
Proof.
  intros p q Q. split.
  - intros l a b L. replace (l * a * p - l * b * q) with (l * (a * p - b * q)) by ring.
    replace 0 with (l * 0) at 1 by ring. apply RmaxRmult. exact L.
  - intros a b b' [B B']. apply Rmax_lub; [|apply Rmax_r].
    eapply Rle_trans; [|apply Rmax_l]. nra.
  - intros a b b' t T. eapply Rle_trans; [|apply Rmax_mixed; exact T]. right. f_equal. ring.
Qed.

Lemma like_first : forall k, curve_like (fun a _ => k * a).
Proof. intros k. split; intros; lra. Qed.

Lemma like_plus : forall g h, curve_like g -> curve_like h -> curve_like (fun a b => g a b + h a b).
Proof.
  intros g h G H. split.
  - intros. rewrite (scales _ G), (scales _ H) by assumption. ring.
  - intros a b b' B. pose proof (falls _ G a b b' B). pose proof (falls _ H a b b' B). lra.
  - intros a b b' t T. pose proof (convex _ G a b b' t T). pose proof (convex _ H a b b' t T). lra.
Qed.

Lemma like_scale : forall k h, 0 <= k -> curve_like h -> curve_like (fun a b => k * h a b).
Proof.
  intros k h K H. split.
  - intros. rewrite (scales _ H) by assumption. ring.
  - intros a b b' B. apply Rmult_le_compat_l; [exact K|]. apply (falls _ H). exact B.
  - intros a b b' t T. pose proof (convex _ H a b b' t T). nra.
Qed.

Lemma like_sum : forall (h : nat -> R -> R -> R) n, (forall o, curve_like (h o)) ->
  curve_like (fun a b => sum (fun o => h o a b) n).
Proof.
  intros h n H. induction n as [|n IH]; cbn.
  - split; intros; lra.
  - apply like_plus; auto.
Qed.

Lemma like_lin : forall (h : Z -> R -> R -> R) l k, nonneg l -> (forall i, curve_like (h i)) ->
  curve_like (fun a b => lin (fun i => h i a b) k l).
Proof.
  intros h l k N H. revert k. induction l as [|m l IH]; intros k; cbn.
  - split; intros; lra.
  - inversion N; subst. apply like_plus; [|apply IH; assumption].
    apply like_scale; [apply IZR_le; assumption|]. apply H.
Qed.

Lemma like_ext : forall g h, (forall a b, g a b = h a b) -> curve_like h -> curve_like g.
Proof.
  intros g h E H. split; intros; rewrite ?E.
  - apply (scales _ H). assumption.
  - apply (falls _ H). assumption.
  - apply (convex _ H). assumption.
Qed.

(** Two rows of a table. *)
Lemma like_rows : forall t x y, distributions t -> input_of t y ->
  curve_like (fun a b => hinge t a b x y).
Proof.
  intros t x y D Y. unfold hinge.
  apply (like_sum (fun o a b => Rmax (a * chance t x o - b * chance t y o) 0)).
  intros o. apply like_hinge. apply chance_nonneg; assumption.
Qed.

Lemma like_curve : forall s m, nonneg (masses m) -> curve_like (curve s m).
Proof.
  intros s m N. pose proof WHOLE_pos as W.
  apply like_ext with (fun a b => / IZR WHOLE * (IZR (missing m) * a
    + lin (fun i => Rmax (a * 1 - b * loss_factor s i) 0) (start m) (masses m))).
  - intros a b. unfold curve. unfold Rdiv. rewrite Rmult_comm. f_equal. f_equal.
    apply lin_ext. intros i. rewrite Rmult_1_r. reflexivity.
  - apply like_scale; [left; apply Rinv_0_lt_compat; exact W|].
    apply like_plus; [apply like_first|].
    apply (like_lin (fun i a b => Rmax (a * 1 - b * loss_factor s i) 0)); [exact N|].
    intros i. apply like_hinge. left. apply loss_factor_pos.
Qed.

(** * The envelope *)

Lemma lin_ext_range : forall f g l k,
  (forall i, (k <= i < k + Z.of_nat (length l))%Z -> f i = g i) -> lin f k l = lin g k l.
Proof.
  induction l as [|m l IH]; intros k H; [reflexivity|].
  cbn [lin]. rewrite IH, H; [reflexivity| |]; cbn [length] in *; intros; try apply H; lia.
Qed.

Section Step.
Variable s : R.
Hypothesis S : 0 < s.

(** e^(i s): the points. *)
Definition point (i : Z) : R := exp (IZR i * s).

Lemma point_factor : forall i j, point i * loss_factor s j = exp (IZR (i - j) * s).
Proof.
  intros. unfold point, loss_factor. rewrite <- exp_plus, minus_IZR. f_equal. ring.
Qed.

Lemma exp_below_1 : forall x, x <= 0 -> exp x <= 1.
Proof.
  intros x [H|H].
  - rewrite <- exp_0. left. apply exp_increasing. exact H.
  - subst. rewrite exp_0. lra.
Qed.

Lemma exp_above_1 : forall x, 0 <= x -> 1 <= exp x.
Proof.
  intros x [H|H].
  - rewrite <- exp_0. left. apply exp_increasing. exact H.
  - subst. rewrite exp_0. lra.
Qed.

Lemma beyond : forall i j, (i <= j)%Z -> point i * loss_factor s j <= 1.
Proof.
  intros i j H. rewrite point_factor. apply exp_below_1.
  assert (IZR (i - j) <= 0) by (apply IZR_le; lia). nra.
Qed.

Lemma before : forall i j, (j <= i)%Z -> 1 <= point i * loss_factor s j.
Proof.
  intros i j H. rewrite point_factor. apply exp_above_1.
  assert (0 <= IZR (i - j)) by (apply IZR_le; lia). nra.
Qed.

Lemma hinge_chord : forall e x y t, 0 <= e -> x <= y -> 0 <= t <= 1 ->
  1 <= x * e \/ y * e <= 1 ->
  (1 - t) * Rmax (1 - x * e) 0 + t * Rmax (1 - y * e) 0
  = Rmax (1 - ((1 - t) * x + t * y) * e) 0.
Proof.
  intros e x y t E XY T [H|H].
  - assert (x * e <= y * e) by (apply Rmult_le_compat_r; assumption).
    rewrite !Rmax_right; nra.
  - assert (x * e <= y * e) by (apply Rmult_le_compat_r; assumption).
    rewrite !Rmax_left; nra.
Qed.

Lemma chord : forall h m x y c,
  curve_like h -> x < y -> x <= c <= y ->
  (forall i, (start m <= i < start m + Z.of_nat (length (masses m)))%Z ->
     1 <= x * loss_factor s i \/ y * loss_factor s i <= 1) ->
  h 1 x <= curve s m 1 x -> h 1 y <= curve s m 1 y -> h 1 c <= curve s m 1 c.
Proof.
  intros h m x y c H XY C E Hx Hy. pose proof WHOLE_pos as W.
  set (t := (c - x) / (y - x)).
  assert (T : 0 <= t <= 1).
  { unfold t. split.
    - apply Rmult_le_pos; [lra|]. left. apply Rinv_0_lt_compat. lra.
    - apply Rmult_le_reg_r with (y - x); [lra|]. unfold Rdiv.
      rewrite Rmult_assoc, Rinv_l by lra. lra. }
  assert (Ec : c = (1 - t) * x + t * y) by (unfold t; field; lra).
  rewrite Ec. eapply Rle_trans; [apply (convex _ H); exact T|].
  apply Rle_trans with ((1 - t) * curve s m 1 x + t * curve s m 1 y); [nra|].
  right. unfold curve.
  rewrite <- (lin_ext_range (fun i => (1 - t) * Rmax (1 - x * loss_factor s i) 0
    + t * Rmax (1 - y * loss_factor s i) 0)
    (fun i => Rmax (1 - ((1 - t) * x + t * y) * loss_factor s i) 0)).
  - rewrite lin_plus, !lin_scale. field. lra.
  - intros i I. apply hinge_chord; try lra; [left; apply loss_factor_pos|]. apply E. exact I.
Qed.

Theorem envelope : forall h m,
  curve_like h -> nonneg (masses m) -> (0 <= missing m)%Z -> masses m <> [] ->
  h 1 0 <= curve s m 1 0 ->
  (forall j, (j < length (masses m))%nat ->
     h 1 (point (start m + Z.of_nat j)) <= curve s m 1 (point (start m + Z.of_nat j))) ->
  forall a b, 0 <= a -> 0 <= b -> h a b <= curve s m a b.
Proof.
  intros h m H N M NE H0 HP. pose proof WHOLE_pos as W.
  pose proof (like_curve s m N) as G.
  assert (ONE : forall c, 0 <= c -> h 1 c <= curve s m 1 c).
  { assert (IN : forall j, (j < length (masses m))%nat ->
      forall c, 0 <= c <= point (start m + Z.of_nat j) -> h 1 c <= curve s m 1 c).
    { induction j as [|j IH]; intros J c C.
      - apply chord with 0 (point (start m + Z.of_nat 0)); auto; [apply exp_pos|].
        intros i I. right. apply beyond. lia.
      - destruct (Rle_dec c (point (start m + Z.of_nat j))) as [L|L].
        + apply IH; [lia|lra].
        + assert (J' : (j < length (masses m))%nat) by lia.
          apply (chord h m (point (start m + Z.of_nat j))
            (point (start m + Z.of_nat (Datatypes.S j))) c H).
          * unfold point. apply exp_increasing. apply Rmult_lt_compat_r; [exact S|].
            apply IZR_lt. lia.
          * lra.
          * intros i I. destruct (Z_le_gt_dec i (start m + Z.of_nat j)).
            -- left. apply before. assumption.
            -- right. apply beyond. lia.
          * apply HP. exact J'.
          * apply HP. exact J. }
    intros c C. destruct (exists_last NE) as [l' [x L]].
    set (last := (length (masses m) - 1)%nat).
    assert (LN : (last < length (masses m))%nat).
    { unfold last. rewrite L, app_length. cbn. lia. }
    destruct (Rle_dec c (point (start m + Z.of_nat last))) as [D|D]; [apply (IN last); auto|].
    apply Rle_trans with (h 1 (point (start m + Z.of_nat last))).
    - apply (falls _ H). split; [left; apply exp_pos|lra].
    - eapply Rle_trans; [apply HP; exact LN|]. unfold curve.
      rewrite (lin_ext_range _ (fun _ => 0) (masses m)).
      + rewrite lin_const. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; exact W|].
        assert (0 <= lin (fun i => Rmax (1 - c * loss_factor s i) 0) (start m) (masses m))
          by (apply lin_nonneg; [exact N|intros; apply Rmax_r]).
        lra.
      + intros i I. apply Rmax_right.
        pose proof (before (start m + Z.of_nat last) i ltac:(unfold last; lia)). lra. }
  intros a b [A|A] B.
  - assert (R : 0 <= b / a).
    { apply Rmult_le_pos; [exact B|]. left. apply Rinv_0_lt_compat. exact A. }
    replace (h a b) with (h (a * 1) (a * (b / a))) by (f_equal; field; lra).
    replace (curve s m a b) with (curve s m (a * 1) (a * (b / a))) by (f_equal; field; lra).
    rewrite (scales _ H), (scales _ G) by lra.
    apply Rmult_le_compat_l; [lra|]. apply ONE. exact R.
  - subst a. apply Rle_trans with (h 0 0).
    + apply (falls _ H). lra.
    + replace (h 0 0) with (h (0 * 0) (0 * 0)) by (rewrite !Rmult_0_l; reflexivity).
      rewrite (scales _ H) by lra. unfold curve. rewrite Rmult_0_l, Rmult_0_r, Rplus_0_l.
      apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat; exact W].
      apply lin_nonneg; [exact N|]. intros. apply Rmax_r.
Qed.

End Step.
