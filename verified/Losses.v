(** Discretised losses in integers, and why their products bound adaptive compositions.

    A measure has masses at the losses start * s, (start + 1) * s, ... for one real step s > 0, in
    units of 2^-160, and a missing mass, which counts as certain disclosure. Its curve at c is
    missing + sum of mass * max(1 - c e^-loss, 0). *)

From Coq Require Import Reals ZArith List Lra Lia.
From Mezzotint Require Import Definitions Divergence Exponential.
Import ListNotations.
Open Scope R_scope.

Definition MASS_BITS : Z := 160%Z.
Definition WHOLE : Z := (2 ^ MASS_BITS)%Z.

Lemma WHOLE_pos : 0 < IZR WHOLE.
Proof. apply IZR_lt. unfold WHOLE, MASS_BITS. lia. Qed.

Record measure := Measure { start : Z; masses : list Z; missing : Z }.

Definition total (l : list Z) : Z := fold_right Z.add 0%Z l.

(** * Sums over masses at consecutive integers *)

Fixpoint lin (f : Z -> R) (k : Z) (l : list Z) : R :=
  match l with
  | [] => 0
  | m :: l' => IZR m * f k + lin f (k + 1)%Z l'
  end.

Definition nonneg (l : list Z) : Prop := Forall (Z.le 0) l.

Lemma lin_ext : forall f g l k, (forall i, f i = g i) -> lin f k l = lin g k l.
Proof. induction l as [|m l IH]; intros k H; cbn; [|rewrite (IH _ H), H]; reflexivity. Qed.

Lemma lin_le : forall f g l k, nonneg l -> (forall i, f i <= g i) -> lin f k l <= lin g k l.
Proof.
  induction l as [|m l IH]; intros k N H; cbn; [lra|]. inversion N; subst.
  assert (0 <= IZR m) by (apply IZR_le; assumption).
  specialize (IH (k + 1)%Z H3 H). specialize (H k). nra.
Qed.

Lemma lin_nonneg : forall f l k, nonneg l -> (forall i, 0 <= f i) -> 0 <= lin f k l.
Proof.
  induction l as [|m l IH]; intros k N H; cbn; [lra|]. inversion N; subst.
  assert (0 <= IZR m) by (apply IZR_le; assumption).
  specialize (IH (k + 1)%Z H3 H). specialize (H k). nra.
Qed.

Lemma lin_plus : forall f g l k, lin (fun i => f i + g i) k l = lin f k l + lin g k l.
Proof. induction l as [|m l IH]; intros k; cbn; [lra|rewrite IH; lra]. Qed.

Lemma lin_scale : forall c f l k, lin (fun i => c * f i) k l = c * lin f k l.
Proof. induction l as [|m l IH]; intros k; cbn; [lra|rewrite IH; lra]. Qed.

Lemma lin_const : forall c l k, lin (fun _ => c) k l = c * IZR (total l).
Proof.
  induction l as [|m l IH]; intros k; cbn; [lra|]. rewrite IH. fold (total l).
  rewrite plus_IZR. lra.
Qed.

Lemma lin_shift : forall f l k j, lin (fun i => f (i + j)%Z) k l = lin f (k + j)%Z l.
Proof.
  induction l as [|m l IH]; intros k j; cbn; [reflexivity|]. rewrite IH.
  replace (k + 1 + j)%Z with (k + j + 1)%Z by lia. reflexivity.
Qed.

Lemma lin_app : forall f l1 l2 k,
  lin f k (l1 ++ l2) = lin f k l1 + lin f (k + Z.of_nat (length l1))%Z l2.
Proof.
  induction l1 as [|m l IH]; intros l2 k.
  - cbn. rewrite Z.add_0_r. lra.
  - cbn [lin app length]. rewrite IH.
    replace (k + Z.of_nat (S (length l)))%Z with (k + 1 + Z.of_nat (length l))%Z by lia. lra.
Qed.

Lemma lin_sum : forall (f : nat -> Z -> R) n l k,
  sum (fun o => lin (f o) k l) n = lin (fun i => sum (fun o => f o i) n) k l.
Proof.
  induction n as [|n IH]; intros l k; cbn.
  - symmetry. rewrite lin_const. lra.
  - rewrite IH, <- lin_plus. reflexivity.
Qed.

Lemma total_app : forall l1 l2, total (l1 ++ l2) = (total l1 + total l2)%Z.
Proof. induction l1 as [|m l IH]; intros l2; cbn; [reflexivity|]. unfold total in *. rewrite IH. lia. Qed.

Lemma total_nonneg : forall l, nonneg l -> (0 <= total l)%Z.
Proof. induction 1; cbn; [lia|]. unfold total in *. lia. Qed.

(** * Products of masses *)

Fixpoint added (l1 l2 : list Z) : list Z :=
  match l1, l2 with
  | [], _ => l2
  | _, [] => l1
  | m1 :: l1', m2 :: l2' => (m1 + m2)%Z :: added l1' l2'
  end.

Fixpoint convolved (l1 l2 : list Z) : list Z :=
  match l1 with
  | [] => []
  | m :: l1' => added (map (Z.mul m) l2) (0%Z :: convolved l1' l2)
  end.

Lemma lin_added : forall f l1 l2 k, lin f k (added l1 l2) = lin f k l1 + lin f k l2.
Proof.
  induction l1 as [|m l IH]; intros [|m2 l2] k; cbn; try lra.
  rewrite IH, plus_IZR. lra.
Qed.

Lemma lin_map_mul : forall f c l k, lin f k (map (Z.mul c) l) = IZR c * lin f k l.
Proof. induction l as [|m l IH]; intros k; cbn; [lra|]. rewrite IH, mult_IZR. lra. Qed.

Lemma lin_convolved : forall f l1 l2 k1 k2,
  lin f (k1 + k2)%Z (convolved l1 l2) = lin (fun i => lin (fun j => f (i + j)%Z) k2 l2) k1 l1.
Proof.
  induction l1 as [|m l IH]; intros l2 k1 k2; cbn [convolved lin]; [reflexivity|].
  rewrite lin_added, lin_map_mul. cbn [lin]. rewrite Rmult_0_l, Rplus_0_l.
  replace (k1 + k2 + 1)%Z with (k1 + 1 + k2)%Z by lia. rewrite IH. f_equal. f_equal.
  rewrite (lin_ext (fun j => f (k1 + j)%Z) (fun j => f (j + k1)%Z)) by (intros; f_equal; lia).
  rewrite lin_shift. f_equal. lia.
Qed.

Lemma total_lin : forall l, IZR (total l) = lin (fun _ => 1) 0 l.
Proof. intros. rewrite lin_const. lra. Qed.

Lemma total_convolved : forall l1 l2, total (convolved l1 l2) = (total l1 * total l2)%Z.
Proof.
  intros. apply eq_IZR. rewrite mult_IZR, !total_lin.
  change (lin (fun _ => 1) 0 (convolved l1 l2)) with (lin (fun _ => 1) (0 + 0)%Z (convolved l1 l2)).
  rewrite lin_convolved. rewrite !lin_const. lra.
Qed.

Lemma added_nonneg : forall l1 l2, nonneg l1 -> nonneg l2 -> nonneg (added l1 l2).
Proof.
  unfold nonneg. induction l1 as [|m l IH]; intros [|m2 l2] H1 H2; cbn; auto.
  inversion H1; inversion H2; subst. constructor; [lia|]. apply IH; assumption.
Qed.

Lemma convolved_nonneg : forall l1 l2, nonneg l1 -> nonneg l2 -> nonneg (convolved l1 l2).
Proof.
  unfold nonneg. induction l1 as [|m l IH]; intros l2 H1 H2; cbn; [constructor|].
  inversion H1; subst. apply added_nonneg.
  - apply Forall_map. eapply Forall_impl; [|exact H2]. cbn. intros. nia.
  - constructor; [lia|]. apply IH; assumption.
Qed.

(** * What may be dropped

    [lossy f ...]: masses that are rounded down, or dropped at an end, are accounted for by adding
    what is missing of their total. *)

Definition lossy (k : Z) (l : list Z) (k' : Z) (l' : list Z) : Prop :=
  forall f a, (forall i, 0 <= f i <= a) ->
    lin f k l - lin f k' l' <= a * (IZR (total l) - IZR (total l')).

Lemma lossy_trans : forall k l k' l' k'' l'',
  lossy k l k' l' -> lossy k' l' k'' l'' -> lossy k l k'' l''.
Proof.
  intros k l k' l' k'' l'' H H' f a F. specialize (H f a F). specialize (H' f a F). lra.
Qed.

Lemma lossy_front : forall k p l, nonneg p -> lossy k (p ++ l) (k + Z.of_nat (length p)) l.
Proof.
  intros k p l N f a F. rewrite lin_app, total_app, plus_IZR.
  assert (lin f k p <= lin (fun _ => a) k p) by (apply lin_le; [exact N|]; intros; apply F).
  rewrite lin_const in H. lra.
Qed.

Lemma lossy_back : forall k p l, nonneg p -> lossy k (l ++ p) k l.
Proof.
  intros k p l N f a F. rewrite lin_app, total_app, plus_IZR.
  set (k' := (k + Z.of_nat (length l))%Z).
  assert (lin f k' p <= lin (fun _ => a) k' p) by (apply lin_le; [exact N|]; intros; apply F).
  rewrite lin_const in H. lra.
Qed.

Fixpoint dropped (cut : Z) (k : Z) (l : list Z) : Z * list Z :=
  match l with
  | [] => (k, [])
  | m :: l' => if (m <=? cut)%Z then dropped (cut - m) (k + 1) l' else (k, l)
  end.

Lemma dropped_split : forall l cut k, exists p,
  l = p ++ snd (dropped cut k l) /\ fst (dropped cut k l) = (k + Z.of_nat (length p))%Z.
Proof.
  induction l as [|m l IH]; intros cut k; cbn.
  - exists []. cbn. split; [reflexivity|lia].
  - destruct (m <=? cut)%Z.
    + destruct (IH (cut - m)%Z (k + 1)%Z) as [p [E F]]. exists (m :: p). cbn [app length].
      rewrite <- E, F. split; [reflexivity|lia].
    + exists []. cbn. split; [reflexivity|lia].
Qed.

(** Without the outermost masses, which together hold at most [cut] at either end. *)
Definition trimmed (cut : Z) (k : Z) (l : list Z) : Z * list Z :=
  let (k', l') := dropped cut k l in
  (k', rev' (snd (dropped cut 0 (rev' l')))).

Lemma trimmed_lossy : forall cut k l, nonneg l ->
  let (k', l') := trimmed cut k l in nonneg l' /\ lossy k l k' l'.
Proof.
  intros cut k l N. unfold trimmed, rev'.
  pose proof (dropped_split l cut k) as [p [E F]].
  destruct (dropped cut k l) as [k' l']. cbn [fst snd] in *. subst k'. rewrite <- !rev_alt.
  pose proof (dropped_split (rev l') cut 0) as [q [E' _]].
  set (kept := snd (dropped cut 0 (rev l'))) in *.
  assert (L : l' = rev kept ++ rev q).
  { rewrite <- (rev_involutive l'), E', rev_app_distr. reflexivity. }
  unfold nonneg in *. rewrite E in N. apply Forall_app in N. destruct N as [Np Nl].
  rewrite L in Nl. apply Forall_app in Nl. destruct Nl as [Nk Nq].
  split; [exact Nk|]. eapply lossy_trans.
  - rewrite E at 1. apply lossy_front. exact Np.
  - rewrite L at 1. apply lossy_back. exact Nq.
Qed.

(** * Curves *)

Section Step.
Variable s : R.

Definition loss_factor (i : Z) : R := exp (- (IZR i * s)).

Lemma loss_factor_add : forall i j, loss_factor (i + j) = loss_factor i * loss_factor j.
Proof. intros. unfold loss_factor. rewrite <- exp_plus, plus_IZR. f_equal. ring. Qed.

Lemma loss_factor_pos : forall i, 0 < loss_factor i.
Proof. intros. apply exp_pos. Qed.

(** The curve, homogeneous in the masses of the two worlds: its value at c is [curve m 1 c]. *)
Definition curve (m : measure) (a b : R) : R :=
  (IZR (missing m) * a + lin (fun i => Rmax (a - b * loss_factor i) 0) (start m) (masses m))
  / IZR WHOLE.

(** The premise of composition: the curve bounds every view of the schedule at ALL a, b >= 0, in
    particular at c = b/a below 1. *)
Definition bounds (m : measure) (sched : list step) : Prop :=
  nonneg (masses m) /\ (0 <= missing m)%Z /\
  forall v a b, follows v sched -> 0 <= a -> 0 <= b -> hs v a b <= curve m a b.

(** The part of a view up to the end of a schedule. *)
Fixpoint first_part (v : view) (sched : list step) : view :=
  match v, sched with
  | Report t x y next, One _ :: sched' => Report t x y (fun o => first_part (next o) sched')
  | Coin rate present absent, Seen _ reports :: sched' =>
      Coin rate (first_part present (map One reports ++ sched')) (first_part absent sched')
  | _, _ => Done
  end.

Lemma first_part_follows : forall v s1 s2, follows v (s1 ++ s2) -> follows (first_part v s1) s1.
Proof.
  induction v as [|t x y next IH|rate present IHp absent IHa]; intros s1 s2 F.
  - destruct s1 as [|[t|] s1]; cbn in *; auto.
  - destruct s1 as [|[t'|] s1]; cbn in *; auto.
    destruct F as [T [X [Y F]]]. repeat split; try assumption; try apply X; try apply Y.
    intros o. eapply IH. apply F.
  - destruct s1 as [|[t'|rate' reports] s1]; cbn in *; auto.
    destruct F as [T [P N]]. repeat split; try assumption.
    + eapply IHp. rewrite <- app_assoc. exact P.
    + eapply IHa. exact N.
Qed.

(** What follows the first part costs at most its curve, at the masses that the first part left. *)
Lemma second_part : forall m s2, bounds m s2 ->
  forall v s1 a b, follows v (s1 ++ s2) -> Forall good s1 -> 0 <= a -> 0 <= b ->
  hs v a b <= (IZR (missing m) * a
    + lin (fun i => hs (first_part v s1) a (b * loss_factor i)) (start m) (masses m)) / IZR WHOLE.
Proof.
  intros m s2 [N [M H]]. pose proof WHOLE_pos as W.
  induction v as [|t x y next IH|rate present IHp absent IHa]; intros s1 a b F G A B.
  - destruct s1 as [|[t|] s1]; [|contradiction|contradiction]. apply (H _ _ _ F A B).
  - destruct s1 as [|[t'|] s1]; [exact (H _ _ _ F A B)| |contradiction].
    cbn [app follows] in F. destruct F as [<- [X [Y F]]].
    inversion G as [|? ? D Gs]; subst. cbn in D. cbn [hs first_part].
    apply Rle_trans with (sum (fun o => (IZR (missing m) / IZR WHOLE * a) * chance t x o
      + / IZR WHOLE * lin (fun i => hs (first_part (next o) s1) (a * chance t x o)
          (b * loss_factor i * chance t y o)) (start m) (masses m)) (levels t)).
    + apply sum_le. intros o _.
      assert (0 <= chance t x o) by (apply chance_nonneg; assumption).
      assert (0 <= chance t y o) by (apply chance_nonneg; assumption).
      eapply Rle_trans; [apply (IH o s1)|]; auto; try (apply Rmult_le_pos; assumption).
      right. rewrite (lin_ext
        (fun i => hs (first_part (next o) s1) (a * chance t x o) (b * chance t y o * loss_factor i))
        (fun i => hs (first_part (next o) s1) (a * chance t x o) (b * loss_factor i * chance t y o)))
        by (intros; f_equal; ring).
      field. lra.
    + rewrite sum_plus, !sum_scale, chance_sum, lin_sum by assumption. right. field. lra.
  - destruct s1 as [|[t'|rate' reports] s1]; [exact (H _ _ _ F A B)|contradiction|].
    cbn [app follows] in F. destruct F as [<- [P Q]].
    inversion G as [|? ? GR Gs]; subst. destruct GR as [R D]. cbn [hs first_part].
    rewrite app_assoc in P.
    assert (Gp : Forall good (map One reports ++ s1))
      by (apply Forall_app; split; [apply good_reports|]; assumption).
    pose proof (IHp (map One reports ++ s1) (rate * a) (rate * b) P Gp
      ltac:(nra) ltac:(nra)) as E.
    pose proof (IHa s1 ((1 - rate) * a) ((1 - rate) * b) Q Gs ltac:(nra) ltac:(nra)) as E'.
    rewrite (lin_ext _ (fun i => hs (first_part present (map One reports ++ s1)) (rate * a)
      (rate * (b * loss_factor i)))) in E by (intros; f_equal; ring).
    rewrite (lin_ext _ (fun i => hs (first_part absent s1) ((1 - rate) * a)
      ((1 - rate) * (b * loss_factor i)))) in E' by (intros; f_equal; ring).
    eapply Rle_trans; [apply Rplus_le_compat; [exact E|exact E']|].
    right. rewrite lin_plus. field. lra.
Qed.

Lemma curve_nonneg_hinge : forall a b i, 0 <= a -> 0 <= b ->
  0 <= Rmax (a - b * loss_factor i) 0 <= a.
Proof.
  intros a b i A B. pose proof (loss_factor_pos i). split; [apply Rmax_r|].
  apply Rmax_lub; nra.
Qed.

(** * Composition *)

(** What a product misses: what either missed, what rounding dropped, and what trimming dropped. *)
Definition product_missing (m1 m2 : measure) (kept : Z) : Z :=
  let s1 := total (masses m1) in
  let s2 := total (masses m2) in
  ceil_div (missing m2 * WHOLE + s2 * missing m1 + (s1 * s2 - WHOLE * kept)) WHOLE.

Theorem composition : forall m1 m2 s1 s2 raw k l,
  bounds m1 s1 -> bounds m2 s2 -> Forall good s1 ->
  (forall f i, lin f i raw = lin f i (convolved (masses m2) (masses m1))) ->
  nonneg l ->
  (forall f a, (forall i, 0 <= f i <= a) ->
     lin f (start m2 + start m1) raw - IZR WHOLE * lin f k l
     <= a * (IZR (total raw) - IZR WHOLE * IZR (total l))) ->
  bounds (Measure k l (Z.max 0 (product_missing m1 m2 (total l)))) (s1 ++ s2).
Proof.
  intros m1 m2 s1 s2 raw k l B1 B2 G RAW N LOSS.
  split; [exact N|]. split; [cbn; lia|]. intros v a b F A B.
  pose proof WHOLE_pos as W.
  eapply Rle_trans; [apply (second_part m2 s2 B2 v s1 a b F G A B)|].
  destruct B1 as [N1 [M1 H1]]. destruct B2 as [N2 [M2 _]].
  set (f := fun i => Rmax (a - b * loss_factor i) 0).
  assert (E : lin (fun i => hs (first_part v s1) a (b * loss_factor i)) (start m2) (masses m2)
    <= (IZR (missing m1) * a * IZR (total (masses m2)) + lin f (start m2 + start m1) raw)
       / IZR WHOLE).
  { rewrite RAW, lin_convolved, <- lin_const with (k := start m2), <- lin_plus.
    unfold Rdiv. rewrite Rmult_comm, <- lin_scale. apply lin_le; [exact N2|]. intros i.
    eapply Rle_trans.
    - apply H1; [eapply first_part_follows; exact F|exact A|].
      apply Rmult_le_pos; [exact B|]. left. apply loss_factor_pos.
    - right. unfold curve. rewrite Rmult_comm. unfold Rdiv. rewrite Rmult_comm. f_equal. f_equal.
      apply lin_ext. intros j. unfold f. rewrite loss_factor_add. f_equal. f_equal. ring. }
  specialize (LOSS f a (fun i => curve_nonneg_hinge a b i A B)).
  assert (T : IZR (total raw) = IZR (total (masses m1)) * IZR (total (masses m2))).
  { rewrite total_lin, RAW, <- total_lin, total_convolved, mult_IZR. ring. }
  rewrite T in LOSS.
  set (d := Z.max 0 (product_missing m1 m2 (total l))).
  assert (D : (IZR (missing m2) * IZR WHOLE + IZR (total (masses m2)) * IZR (missing m1)
    + (IZR (total (masses m1)) * IZR (total (masses m2)) - IZR WHOLE * IZR (total l)))
    <= IZR d * IZR WHOLE).
  { apply Rle_trans with (IZR (product_missing m1 m2 (total l)) * IZR WHOLE).
    - unfold product_missing. eapply Rle_trans; [|apply ceil_div_ge; unfold WHOLE, MASS_BITS; lia].
      rewrite !plus_IZR, minus_IZR, !mult_IZR. lra.
    - apply Rmult_le_compat_r; [lra|]. apply IZR_le. unfold d. lia. }
  unfold curve. cbn [missing masses start]. fold f.
  apply Rmult_le_reg_r with (IZR WHOLE * IZR WHOLE); [nra|].
  apply Rle_trans with ((IZR (missing m2) * a) * IZR WHOLE
    + (IZR (missing m1) * a * IZR (total (masses m2)) + lin f (start m2 + start m1) raw)).
  - replace ((IZR (missing m2) * a
      + lin (fun i => hs (first_part v s1) a (b * loss_factor i)) (start m2) (masses m2))
      / IZR WHOLE * (IZR WHOLE * IZR WHOLE))
      with (IZR (missing m2) * a * IZR WHOLE + IZR WHOLE
        * lin (fun i => hs (first_part v s1) a (b * loss_factor i)) (start m2) (masses m2))
      by (field; lra).
    apply Rplus_le_compat_l.
    apply Rmult_le_compat_l with (r := IZR WHOLE) in E; [|lra].
    eapply Rle_trans; [exact E|]. right. field. lra.
  - replace ((IZR d * a + lin f k l) / IZR WHOLE * (IZR WHOLE * IZR WHOLE))
      with (a * (IZR d * IZR WHOLE) + IZR WHOLE * lin f k l) by (field; lra).
    apply Rmult_le_compat_l with (r := a) in D; [|exact A]. lra.
Qed.

End Step.
