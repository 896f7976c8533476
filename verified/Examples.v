(** The definitions mean something: probabilities sum to 1, every schedule has views, a false claim
    does not hold, and the checker certifies a true one, here inside of Coq. *)

From Coq Require Import Reals QArith Qreals ZArith List Lra Lia.
From Mezzotint Require Import Definitions Divergence Losses Reports Checker Premise.
Import ListNotations.
Open Scope R_scope.

Theorem probability_of_everything : forall w v s, follows v s -> Forall good s ->
  probability w v (fun _ => 1) = 1.
Proof.
  intros w. induction v as [|t x y next IH|rate p IHp n IHn]; intros s F G.
  - reflexivity.
  - destruct s as [|[t'|] s]; try contradiction. destruct F as [<- [X [Y F]]].
    inversion G as [|? ? D Gs]; subst. cbn in D. cbn [probability].
    rewrite (sum_ext _ (chance t (match w with First => x | Second => y end))).
    + apply chance_sum; [exact D|]. destruct w; assumption.
    + intros o _. rewrite (IH o s (F o) Gs). ring.
  - destruct s as [|[|rate' reports] s]; try contradiction. destruct F as [<- [P N]].
    inversion G as [|? ? GR Gs]; subst. destruct GR as [R D]. cbn [probability].
    rewrite (IHp (map One reports ++ s)), (IHn s); auto; [ring|].
    apply Forall_app. split; [apply good_reports|]; assumption.
Qed.

Lemma first_row : forall t, distributions t -> input_of t (knot 0).
Proof.
  intros t [NE _]. split; [cbn; lra|]. destruct t; [congruence|]. cbn. lia.
Qed.

Theorem every_schedule_has_a_view : forall s, Forall good s -> exists v, follows v s.
Proof.
  induction s as [|[t|rate reports] s IH]; intros G; inversion G as [|? ? D Gs]; subst.
  - exists Done. exact I.
  - destruct (IH Gs) as [v F]. pose proof (first_row t D).
    exists (Report t (knot 0) (knot 0) (fun _ => v)). cbn [follows]. auto.
  - destruct (IH Gs) as [v F]. destruct D as [_ D].
    assert (E : exists p, follows p (map One reports ++ s)).
    { clear - D F. induction D as [|t reports Dt _ IH]; [exists v; exact F|].
      destruct IH as [p P]. pose proof (first_row t Dt).
      exists (Report t (knot 0) (knot 0) (fun _ => p)). cbn [map app follows]. auto. }
    destruct E as [p P]. exists (Coin rate p v). cbn [follows]. auto.
Qed.

(** One report of randomized response (3/4, 1/4), at epsilon 0. *)
Definition response_claim (d : Q) : claim :=
  {| tables := [(response, 1%positive)]; rounds := 1; seen := None; epsilon := 0; delta := d |}.

Example certified_at_one_half : check (response_claim (1 # 2)) Delta = Certified.
Proof. vm_compute. reflexivity. Qed.

Example holds_at_one_half : holds (response_claim (1 # 2)).
Proof. exact (check_sound _ _ certified_at_one_half). Qed.

Definition says_zero (seen : list nat) : R := match seen with [O] => 1 | _ => 0 end.

Example fails_below_one_half : forall d, Q2R d < 1 / 2 -> ~ holds (response_claim d).
Proof.
  intros d L [_ [_ H]]. specialize (H watched). unfold schedule, one_round in H. cbn in H.
  assert (F : follows watched [One response]).
  { cbn. repeat split; cbn; try lra; lia. }
  specialize (H F says_zero).
  assert (T : forall seen, 0 <= says_zero seen <= 1).
  { intros [|[|n] [|m l]]; cbn; lra. }
  specialize (H T). unfold watched in H. cbn [probability] in H.
  change (levels response) with 2%nat in H. cbn [sum] in H. rewrite !chances in H by lia.
  cbn in H. rewrite RMicromega.Q2R_0, exp_0 in H. lra.
Qed.
