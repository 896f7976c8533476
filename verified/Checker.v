(** The checker and its promise: [check c p = Certified] implies [holds c]. *)

From Coq Require Import Reals QArith Qreals ZArith List Lra Lia Bool.
From Mezzotint Require Import Definitions Divergence Losses Reports Rounds.
Import ListNotations.
Open Scope R_scope.

Definition MAX_EPSILON : Z := 1000000%Z.

Definition check (c : claim) (p : proof) : verdict :=
  require (tables_good c) NotDistributions
  (require ((0 <=? Qnum (epsilon c))%Z && Qle_bool (epsilon c) (MAX_EPSILON # 1)) EpsilonOutOfRange
  (require (0 <=? Qnum (delta c))%Z DeltaNegative
  (require (rate_good c) RateOutOfRange
  (match p with
   | Ratio => check_ratio c
   | Delta => check_delta c
   | Losses size cut grids again => check_losses c size cut grids again
   end)))).

Theorem check_sound : forall c p, check c p = Certified -> holds c.
Proof.
  intros c p H. unfold check in H.
  apply require_certified in H. destruct H as [T H].
  apply require_certified in H. destruct H as [E H].
  apply require_certified in H. destruct H as [D H].
  apply require_certified in H. destruct H as [R H].
  apply andb_true_iff in E. destruct E as [E _]. apply Z.leb_le in E. apply Z.leb_le in D.
  split; [apply tables_distributions; exact T|]. split.
  { unfold rate_is_probability. unfold rate_good in R. destruct (seen c) as [r|]; [|exact I].
    split; [apply rate_positive; exact R|apply rate_range; exact R]. }
  destruct p.
  - apply check_ratio_sound; assumption.
  - apply check_delta_sound; assumption.
  - eapply check_losses_sound; eassumption.
Qed.

(** * What follows from the promise *)

(** Both worlds exchanged: privacy holds in both directions. *)
Fixpoint exchanged (v : view) : view :=
  match v with
  | Done => Done
  | Report t x y next => Report t y x (fun o => exchanged (next o))
  | Coin rate present absent => Coin rate (exchanged present) (exchanged absent)
  end.

Lemma exchanged_follows : forall v s, follows v s -> follows (exchanged v) s.
Proof.
  induction v as [|t x y next IH|rate p IHp n IHn]; intros [|[t'|rate' l] s] F; cbn in *; auto.
  - destruct F as [T [X [Y F]]]. repeat split; auto; try apply X; try apply Y.
  - destruct F as [T [P N]]. auto.
Qed.

Lemma exchanged_probability : forall v accept,
  probability First (exchanged v) accept = probability Second v accept /\
  probability Second (exchanged v) accept = probability First v accept.
Proof.
  induction v as [|t x y next IH|rate p IHp n IHn]; intros accept; cbn.
  - split; reflexivity.
  - split; apply sum_ext; intros o _; f_equal; apply IH.
  - destruct (IHp (fun seen => accept (1%nat :: seen))) as [P1 P2].
    destruct (IHn (fun seen => accept (0%nat :: seen))) as [N1 N2].
    rewrite P1, P2, N1, N2. split; reflexivity.
Qed.

Theorem both_directions : forall s factor slack v accept, private s factor slack ->
  follows v s -> (forall seen, 0 <= accept seen <= 1) ->
  probability Second v accept <= factor * probability First v accept + slack.
Proof.
  intros s factor slack v accept P F A.
  destruct (exchanged_probability v accept) as [E1 E2]. rewrite <- E1, <- E2.
  apply P; [apply exchanged_follows; exact F|exact A].
Qed.

(** A certified claim, for whatever is computed from what was seen, such as memoised reports that
    repeat earlier ones. *)
Corollary certified_after_processing : forall c p, check c p = Certified ->
  forall (outcome : Type) (process : list nat -> (outcome -> Prop) -> R) v event,
  follows v (schedule c) -> (forall seen event, 0 <= process seen event <= 1) ->
  probability First v (fun seen => process seen event)
  <= exp (Q2R (epsilon c)) * probability Second v (fun seen => process seen event)
     + Q2R (delta c).
Proof.
  intros c p H outcome process v event F P.
  destruct (check_sound c p H) as [_ [_ S]].
  apply (post_processing outcome (schedule c)); [exact S|exact F|exact P].
Qed.
