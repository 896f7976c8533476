(** Hockey-stick divergences of views: mixtures, adaptive composition, tests.

    [hs v a b] is the sum of max(a P - b Q, 0) over all that can be seen, so the divergence at c is
    [hs v 1 c]. *)

From Coq Require Import Reals ZArith List Lra Lia.
From Mezzotint Require Import Definitions.
Import ListNotations.
Open Scope R_scope.

Fixpoint hs (v : view) (a b : R) : R :=
  match v with
  | Done => Rmax (a - b) 0
  | Report t x y next =>
      sum (fun o => hs (next o) (a * chance t x o) (b * chance t y o)) (levels t)
  | Coin rate present absent =>
      hs present (rate * a) (rate * b) + hs absent ((1 - rate) * a) ((1 - rate) * b)
  end.

(** * Finite sums *)

Lemma sum_ext : forall f g n, (forall i, (i < n)%nat -> f i = g i) -> sum f n = sum g n.
Proof.
  induction n as [|n IH]; intros H; cbn; [reflexivity|].
  rewrite IH by (intros; apply H; lia). rewrite H by lia. reflexivity.
Qed.

Lemma sum_le : forall f g n, (forall i, (i < n)%nat -> f i <= g i) -> sum f n <= sum g n.
Proof.
  induction n as [|n IH]; intros H; cbn; [lra|].
  assert (sum f n <= sum g n) by (apply IH; intros; apply H; lia).
  assert (f n <= g n) by (apply H; lia). lra.
Qed.

Lemma sum_plus : forall f g n, sum (fun i => f i + g i) n = sum f n + sum g n.
Proof. induction n as [|n IH]; cbn; [lra|rewrite IH; lra]. Qed.

Lemma sum_scale : forall k f n, sum (fun i => k * f i) n = k * sum f n.
Proof. induction n as [|n IH]; cbn; [lra|rewrite IH; lra]. Qed.

Lemma sum_nonneg : forall f n, (forall i, (i < n)%nat -> 0 <= f i) -> 0 <= sum f n.
Proof.
  induction n as [|n IH]; intros H; cbn; [lra|].
  assert (0 <= sum f n) by (apply IH; intros; apply H; lia).
  assert (0 <= f n) by (apply H; lia). lra.
Qed.

Lemma sum_zero : forall n, sum (fun _ => 0) n = 0.
Proof. induction n as [|n IH]; cbn; [reflexivity|rewrite IH; lra]. Qed.

Lemma sum_S : forall f n, sum f (S n) = f O + sum (fun i => f (S i)) n.
Proof. induction n as [|n IH]; [cbn; lra|]. cbn in *. rewrite IH. lra. Qed.

(** * Chances *)

Lemma TOTAL_pos : 0 < IZR TOTAL.
Proof. apply IZR_lt. unfold TOTAL. lia. Qed.

Lemma weight_nonneg : forall t row o,
  distributions t -> (row < length t)%nat -> (0 <= weight t row o)%Z.
Proof.
  intros t row o [_ D] H. unfold weight.
  destruct (D (nth row t [])) as [_ [F _]]; [apply nth_In; exact H|].
  destruct (Nat.lt_ge_cases o (length (nth row t []))) as [L|L].
  - rewrite Forall_forall in F. apply F. apply nth_In. exact L.
  - rewrite nth_overflow by exact L. lia.
Qed.

Lemma sum_nth : forall l : list Z,
  sum (fun o => IZR (nth o l 0%Z)) (length l) = IZR (fold_right Z.add 0%Z l).
Proof.
  induction l as [|x l IH]; [reflexivity|].
  change (length (x :: l)) with (S (length l)). rewrite sum_S. cbn [nth fold_right].
  rewrite IH. rewrite plus_IZR. reflexivity.
Qed.

Lemma sum_weights : forall t row,
  distributions t -> (row < length t)%nat ->
  sum (fun o => IZR (weight t row o)) (levels t) = IZR TOTAL.
Proof.
  intros t row [_ D] H. destruct (D (nth row t [])) as [L [_ S]]; [apply nth_In; exact H|].
  unfold weight. rewrite <- L, sum_nth, S. reflexivity.
Qed.

Lemma chance_nonneg : forall t x o, distributions t -> input_of t x -> 0 <= chance t x o.
Proof.
  intros t x o D [[s0 s1] [L R]]. unfold chance.
  apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat; apply TOTAL_pos].
  assert (0 <= IZR (weight t (left x) o)) by (apply IZR_le; apply weight_nonneg; assumption).
  assert (0 <= IZR (weight t (right x) o)) by (apply IZR_le; apply weight_nonneg; assumption).
  apply Rplus_le_le_0_compat; apply Rmult_le_pos; lra.
Qed.

(** Probabilities of the levels sum to 1. *)
Lemma chance_sum : forall t x,
  distributions t -> input_of t x -> sum (chance t x) (levels t) = 1.
Proof.
  intros t x D [S [L R]]. pose proof TOTAL_pos as T.
  rewrite (sum_ext _ (fun o => ((1 - share x) / IZR TOTAL) * IZR (weight t (left x) o)
    + (share x / IZR TOTAL) * IZR (weight t (right x) o)))
    by (intros; unfold chance; field; lra).
  rewrite sum_plus, !sum_scale, !sum_weights by assumption. field. lra.
Qed.

(** Every real number between, at or outside of the knots is an input. *)
Theorem located : forall t knots x,
  knots <> [] -> length knots = length t -> input_of t (locate knots x 0).
Proof.
  intros t knots x N L.
  enough (E : forall ks i, ks <> [] -> forall y, y = locate ks x i ->
    0 <= share y <= 1 /\ (left y < i + length ks)%nat /\ (right y < i + length ks)%nat).
  { destruct (E knots O N _ eq_refl) as [S [A B]]. rewrite L in A, B.
    repeat split; try apply S; assumption. }
  clear L N; induction ks as [|a ks IH]; intros i Hn y Y; [congruence|].
  destruct ks as [|b ks].
  - subst y. cbn. repeat split; try lra; lia.
  - change (y = if Rle_dec x a then Between 0 i i
      else if Rle_dec x b then Between ((x - a) / (b - a)) i (S i)
      else locate (b :: ks) x (S i)) in Y.
    destruct (Rle_dec x a) as [H|H]; [|destruct (Rle_dec x b) as [G|G]].
    + subst y. cbn. repeat split; try lra; lia.
    + subst y. cbn [share left right length]. assert (0 < b - a) by lra. repeat split; try lia.
      * apply Rmult_le_pos; [lra|]. left. apply Rinv_0_lt_compat. lra.
      * apply Rmult_le_reg_r with (b - a); [lra|]. unfold Rdiv.
        rewrite Rmult_assoc, Rinv_l by lra. lra.
    + destruct (IH (S i) ltac:(congruence) y Y) as [S1 [A B]].
      cbn [length] in *. repeat split; try apply S1; lia.
Qed.

(** * The worst inputs are rows *)

(** One report: the sum of max(a p - b q, 0) over levels. *)
Definition hinge (t : table) (a b : R) (x y : input) : R :=
  sum (fun o => Rmax (a * chance t x o - b * chance t y o) 0) (levels t).

Definition knot (i : nat) : input := Between 0 i i.

Lemma chance_mixed : forall t x o,
  chance t x o
  = (1 - share x) * chance t (knot (left x)) o + share x * chance t (knot (right x)) o.
Proof. intros. unfold chance, knot. cbn -[TOTAL]. field. apply Rgt_not_eq, TOTAL_pos. Qed.

Lemma Rmax_mixed : forall s u v, 0 <= s <= 1 ->
  Rmax ((1 - s) * u + s * v) 0 <= (1 - s) * Rmax u 0 + s * Rmax v 0.
Proof.
  intros s u v S.
  assert (0 <= Rmax u 0) by apply Rmax_r. assert (0 <= Rmax v 0) by apply Rmax_r.
  assert (u <= Rmax u 0) by apply Rmax_l. assert (v <= Rmax v 0) by apply Rmax_l.
  apply Rmax_lub; nra.
Qed.

(** The worst case over the continuum of inputs is one over ordered pairs of rows, equal ones
    among them. *)
Theorem worst_inputs_are_rows : forall t a b bound,
  (forall i j, (i < length t)%nat -> (j < length t)%nat ->
    hinge t a b (knot i) (knot j) <= bound) ->
  forall x y, input_of t x -> input_of t y -> hinge t a b x y <= bound.
Proof.
  intros t a b bound H x y [Sx [Lx Rx]] [Sy [Ly Ry]].
  assert (E : forall i, (i < length t)%nat -> hinge t a b (knot i) y <= bound).
  { intros i I.
    apply Rle_trans with ((1 - share y) * hinge t a b (knot i) (knot (left y))
      + share y * hinge t a b (knot i) (knot (right y))).
    - unfold hinge. rewrite <- !sum_scale, <- sum_plus. apply sum_le. intros o _.
      rewrite (chance_mixed t y o).
      eapply Rle_trans; [|apply Rmax_mixed; exact Sy].
      right. f_equal. ring.
    - pose proof (H i (left y) I Ly). pose proof (H i (right y) I Ry). nra. }
  apply Rle_trans with ((1 - share x) * hinge t a b (knot (left x)) y
    + share x * hinge t a b (knot (right x)) y).
  - unfold hinge. rewrite <- !sum_scale, <- sum_plus. apply sum_le. intros o _.
    rewrite (chance_mixed t x o).
    eapply Rle_trans; [|apply Rmax_mixed; exact Sx].
    right. f_equal. ring.
  - pose proof (E (left x) Lx). pose proof (E (right x) Rx). nra.
Qed.

(** * Tests are bounded by the divergence *)

Definition good (s : step) : Prop :=
  match s with
  | One t => distributions t
  | Seen rate reports => 0 <= rate <= 1 /\ Forall distributions reports
  end.

Lemma good_reports : forall reports, Forall distributions reports -> Forall good (map One reports).
Proof. induction 1; cbn; constructor; assumption. Qed.

Lemma tests_bounded : forall v s accept a b,
  follows v s -> Forall good s -> 0 <= a -> 0 <= b -> (forall seen, 0 <= accept seen <= 1) ->
  a * probability First v accept - b * probability Second v accept <= hs v a b.
Proof.
  induction v as [|t x y next IH|rate present IHp absent IHa]; intros s accept a b F G A B T.
  - cbn. specialize (T []). pose proof (Rmax_l (a - b) 0). pose proof (Rmax_r (a - b) 0). nra.
  - destruct s as [|[t'|] s]; try contradiction. destruct F as [<- [X [Y F]]].
    inversion G as [|? ? D Gs]; subst. cbn in D.
    cbn [probability hs]. unfold Rminus. rewrite Ropp_mult_distr_l.
    rewrite <- !sum_scale, <- sum_plus. apply sum_le. intros o _.
    assert (P : 0 <= chance t x o) by (apply chance_nonneg; assumption).
    assert (Q : 0 <= chance t y o) by (apply chance_nonneg; assumption).
    eapply Rle_trans; [|apply (IH o s (fun seen => accept (o :: seen)) _ _ (F o) Gs)].
    + right. ring.
    + apply Rmult_le_pos; assumption.
    + apply Rmult_le_pos; assumption.
    + intros. apply T.
  - destruct s as [|[|rate' reports] s]; try contradiction. destruct F as [<- [P N]].
    inversion G as [|? ? GR Gs]; subst. destruct GR as [R D]. cbn [probability hs].
    assert (E : rate * a * probability First present (fun seen => accept (1%nat :: seen))
      - rate * b * probability Second present (fun seen => accept (1%nat :: seen))
      <= hs present (rate * a) (rate * b)).
    { eapply IHp; eauto; [|nra|nra]. apply Forall_app. split; [apply good_reports|]; assumption. }
    assert (E' : (1 - rate) * a * probability First absent (fun seen => accept (0%nat :: seen))
      - (1 - rate) * b * probability Second absent (fun seen => accept (0%nat :: seen))
      <= hs absent ((1 - rate) * a) ((1 - rate) * b)).
    { eapply IHa; eauto; nra. }
    lra.
Qed.

(** A bound of the divergence at c of every view of a schedule is privacy. *)
Theorem private_by_divergence : forall s factor slack,
  0 <= factor -> Forall good s ->
  (forall v, follows v s -> hs v 1 factor <= slack) -> private s factor slack.
Proof.
  intros s factor slack C G H v F accept T.
  pose proof (tests_bounded v s accept 1 factor F G Rle_0_1 C T). specialize (H v F). lra.
Qed.

(** Post-processing: whatever is computed from what was seen, with fresh randomness or without,
    is as private. [process] gives the probability that the outcome lies in an event. *)
Theorem post_processing : forall (outcome : Type) s factor slack,
  private s factor slack ->
  forall v, follows v s ->
  forall process : list nat -> (outcome -> Prop) -> R,
  (forall seen event, 0 <= process seen event <= 1) ->
  forall event,
    probability First v (fun seen => process seen event)
    <= factor * probability Second v (fun seen => process seen event) + slack.
Proof. intros outcome s factor slack H v F process P event. apply H; auto. Qed.

(** * Signs and zeros *)

Lemma hs_nonneg : forall v a b, 0 <= hs v a b.
Proof.
  induction v as [|t x y next IH|rate p IHp n IHn]; intros a b; cbn.
  - apply Rmax_r.
  - apply sum_nonneg. intros. apply IH.
  - apply Rplus_le_le_0_compat; auto.
Qed.

Lemma hs_le_first : forall v s a b,
  follows v s -> Forall good s -> 0 <= a -> 0 <= b -> hs v a b <= a.
Proof.
  induction v as [|t x y next IH|rate present IHp absent IHa]; intros s a b F G A B.
  - cbn. apply Rmax_lub; lra.
  - destruct s as [|[t'|] s]; try contradiction. destruct F as [<- [X [Y F]]].
    inversion G as [|? ? D Gs]; subst. cbn in D. cbn [hs].
    apply Rle_trans with (sum (fun o => a * chance t x o) (levels t)).
    + apply sum_le. intros o _. apply (IH o s); auto; apply Rmult_le_pos; auto;
        apply chance_nonneg; assumption.
    + rewrite sum_scale, chance_sum by assumption. lra.
  - destruct s as [|[|rate' reports] s]; try contradiction. destruct F as [<- [P N]].
    inversion G as [|? ? GR Gs]; subst. destruct GR as [R D]. cbn [hs].
    assert (Gp : Forall good (map One reports ++ s))
      by (apply Forall_app; split; [apply good_reports|]; assumption).
    pose proof (IHp _ (rate * a) (rate * b) P Gp ltac:(nra) ltac:(nra)).
    pose proof (IHa _ ((1 - rate) * a) ((1 - rate) * b) N Gs ltac:(nra) ltac:(nra)). lra.
Qed.

(** * Pure privacy of many reports *)

(** The product of the worst ratios: a schedule whose steps have these ratios is pure. *)
Fixpoint ratio_of (ratio : table -> R) (s : list step) : R :=
  match s with
  | [] => 1
  | One t :: s' => ratio t * ratio_of ratio s'
  | Seen _ reports :: s' => fold_right Rmult 1 (map ratio reports) * ratio_of ratio s'
  end.

Definition pure (t : table) (ratio : R) : Prop :=
  1 <= ratio /\
  forall i j o, (i < length t)%nat -> (j < length t)%nat -> (o < levels t)%nat ->
    IZR (weight t i o) <= ratio * IZR (weight t j o).

Lemma pure_chance : forall t ratio x y o,
  pure t ratio -> distributions t -> input_of t x -> input_of t y -> (o < levels t)%nat ->
  chance t x o <= ratio * chance t y o.
Proof.
  intros t ratio x y o [R1 H] D [Sx [Lx Rx]] [Sy [Ly Ry]] O.
  assert (E : forall i j, (i < length t)%nat -> (j < length t)%nat ->
    chance t (knot i) o <= ratio * chance t (knot j) o).
  { intros i j I J. unfold chance, knot. cbn -[TOTAL]. specialize (H i j o I J O).
    unfold Rdiv. rewrite <- Rmult_assoc. apply Rmult_le_compat_r; [|lra].
    left. apply Rinv_0_lt_compat, TOTAL_pos. }
  rewrite (chance_mixed t x), (chance_mixed t y).
  pose proof (E _ _ Lx Ly). pose proof (E _ _ Lx Ry). pose proof (E _ _ Rx Ly). pose proof (E _ _ Rx Ry).
  set (s := share x) in *. set (u := share y) in *.
  set (px := chance t (knot (left x)) o) in *. set (rx := chance t (knot (right x)) o) in *.
  set (py := chance t (knot (left y)) o) in *. set (ry := chance t (knot (right y)) o) in *.
  assert (A : px <= ratio * ((1 - u) * py + u * ry)) by nra.
  assert (B : rx <= ratio * ((1 - u) * py + u * ry)) by nra.
  nra.
Qed.

Fixpoint all_pure (ratio : table -> R) (s : list step) : Prop :=
  match s with
  | [] => True
  | One t :: s' => pure t (ratio t) /\ all_pure ratio s'
  | Seen _ reports :: s' => Forall (fun t => pure t (ratio t)) reports /\ all_pure ratio s'
  end.

Lemma ratio_of_app : forall ratio reports s,
  ratio_of ratio (map One reports ++ s) = fold_right Rmult 1 (map ratio reports) * ratio_of ratio s.
Proof. induction reports as [|t r IH]; intros s; cbn; [lra|]. rewrite IH. lra. Qed.

Lemma all_pure_app : forall ratio reports s,
  Forall (fun t => pure t (ratio t)) reports -> all_pure ratio s ->
  all_pure ratio (map One reports ++ s).
Proof. induction 1; cbn; auto. Qed.

Lemma product_ge_1 : forall ratio reports,
  Forall (fun t => pure t (ratio t)) reports -> 1 <= fold_right Rmult 1 (map ratio reports).
Proof. induction 1 as [|t r [P _] _ IH]; cbn; nra. Qed.

Lemma ratio_of_ge_1 : forall ratio s, all_pure ratio s -> 1 <= ratio_of ratio s.
Proof.
  induction s as [|[t|rate reports] s IH]; cbn; intros H; [lra| |].
  - destruct H as [[P _] H]. specialize (IH H). nra.
  - destruct H as [P H]. specialize (IH H). pose proof (product_ge_1 _ _ P). nra.
Qed.

Theorem pure_views : forall ratio v s a b,
  follows v s -> Forall good s -> all_pure ratio s -> 0 <= a -> a * ratio_of ratio s <= b ->
  hs v a b = 0.
Proof.
  intros ratio. induction v as [|t x y next IH|rate present IHp absent IHa]; intros s a b F G P A H.
  - destruct s; [|contradiction]. cbn in *. rewrite Rmax_right; lra.
  - destruct s as [|[t'|] s]; try contradiction. destruct F as [<- [X [Y F]]].
    inversion G as [|? ? D Gs]; subst. destruct P as [Pt Ps]. cbn [ratio_of] in H. cbn [hs].
    rewrite <- (sum_zero (levels t)). apply sum_ext. intros o O.
    apply (IH o s); auto.
    + apply Rmult_le_pos; [exact A|]. apply chance_nonneg; assumption.
    + pose proof (pure_chance _ _ x y o Pt D X Y O) as C.
      assert (0 <= chance t y o) by (apply chance_nonneg; assumption).
      pose proof (ratio_of_ge_1 _ _ Ps) as R1.
      assert (a * chance t x o <= a * (ratio t * chance t y o)) by (apply Rmult_le_compat_l; lra).
      apply Rle_trans with (a * (ratio t * chance t y o) * ratio_of ratio s).
      * apply Rmult_le_compat_r; lra.
      * replace (a * (ratio t * chance t y o) * ratio_of ratio s)
          with (a * (ratio t * ratio_of ratio s) * chance t y o) by ring.
        apply Rmult_le_compat_r; assumption.
  - destruct s as [|[|rate' reports] s]; try contradiction. destruct F as [<- [Fp Fa]].
    inversion G as [|? ? GR Gs]; subst. destruct GR as [R D]. destruct P as [Pt Ps]. cbn [ratio_of] in H. cbn [hs].
    pose proof (product_ge_1 _ _ Pt) as R1. pose proof (ratio_of_ge_1 _ _ Ps) as R2.
    rewrite (IHp (map One reports ++ s)), (IHa s); auto; try nra.
    + assert (a * ratio_of ratio s <= b).
      { eapply Rle_trans; [|exact H]. apply Rmult_le_compat_l; nra. }
      rewrite Rmult_assoc. apply Rmult_le_compat_l; lra.
    + apply Forall_app. split; [apply good_reports|]; assumption.
    + apply all_pure_app; assumption.
    + rewrite ratio_of_app, Rmult_assoc. apply Rmult_le_compat_l; lra.
Qed.
