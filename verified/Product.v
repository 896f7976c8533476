(** Products of masses, fast: lists are packed into one integer, and integers are multiplied.

    The digits of an integer to a base are unique, so what is unpacked is the convolution; if a
    digit is out of range, the convolution is computed as it is defined. *)

From Coq Require Import Reals ZArith List Lra Lia Bool.
From Mezzotint Require Import Losses.
Import ListNotations.
Open Scope Z_scope.

Fixpoint packed (base : Z) (l : list Z) : Z :=
  match l with
  | [] => 0
  | m :: l' => m + base * packed base l'
  end.

Lemma packed_added : forall base l1 l2,
  packed base (added l1 l2) = packed base l1 + packed base l2.
Proof. induction l1 as [|m l IH]; intros [|m2 l2]; cbn; try lia. rewrite IH. lia. Qed.

Lemma packed_map : forall base c l, packed base (map (Z.mul c) l) = c * packed base l.
Proof. induction l as [|m l IH]; cbn; [lia|]. rewrite IH. lia. Qed.

Lemma packed_convolved : forall base l1 l2,
  packed base (convolved l1 l2) = packed base l1 * packed base l2.
Proof.
  induction l1 as [|m l IH]; intros l2; cbn; [lia|].
  rewrite packed_added, packed_map. cbn [packed]. rewrite IH. lia.
Qed.

Lemma packed_app : forall base l1 l2,
  packed base (l1 ++ l2) = packed base l1 + base ^ Z.of_nat (length l1) * packed base l2.
Proof.
  induction l1 as [|m l IH]; intros l2.
  - cbn [app length packed]. change (Z.of_nat 0) with 0. rewrite Z.pow_0_r. lia.
  - cbn [app packed length]. rewrite IH, Nat2Z.inj_succ, Z.pow_succ_r by lia. lia.
Qed.

Definition digits (base : Z) (l : list Z) : Prop := Forall (fun m => 0 <= m < base) l.

Lemma digits_unique : forall base l1 l2, 0 < base -> digits base l1 -> digits base l2 ->
  packed base l1 = packed base l2 -> forall f k, lin f k l1 = lin f k l2.
Proof.
  intros base l1 l2 B. revert l2.
  assert (ZERO : forall l, digits base l -> packed base l = 0 -> forall f k, lin f k l = 0%R).
  { induction l as [|m l IH]; intros D E f k; [reflexivity|]. inversion D; subst. cbn in E.
    assert (0 <= packed base l).
    { clear - H2 B. induction l; cbn; [lia|]. inversion H2; subst. specialize (IHl H3). nia. }
    assert (m = 0) by nia. assert (packed base l = 0) by nia. subst m.
    cbn [lin]. rewrite IH by assumption. lra. }
  induction l1 as [|m1 l1 IH]; intros l2 D1 D2 E f k.
  - cbn in E. cbn [lin]. symmetry. apply ZERO; [exact D2|symmetry; exact E].
  - destruct l2 as [|m2 l2].
    + apply (ZERO (m1 :: l1)); [exact D1|exact E].
    + inversion D1; inversion D2; subst. cbn [packed] in E.
      assert (m1 = m2).
      { assert (m1 mod base = m2 mod base).
        { rewrite <- (Z.mod_add m1 (packed base l1) base) by lia.
          rewrite <- (Z.mod_add m2 (packed base l2) base) by lia. f_equal. lia. }
        rewrite !Z.mod_small in H by assumption. exact H. }
      subst m2. cbn [lin]. f_equal. apply IH; try assumption. nia.
Qed.

(** * Packing and unpacking by halves *)

Fixpoint paired (bits : Z) (l : list Z) : list Z :=
  match l with
  | x :: y :: l' => (x + Z.shiftl y bits) :: paired bits l'
  | _ => l
  end.

Lemma paired_packed : forall n bits l, 0 <= bits -> (length l <= n)%nat ->
  packed (2 ^ bits) l = packed (2 ^ (2 * bits)) (paired bits l).
Proof.
  induction n as [|n IH]; intros bits l B L.
  - destruct l; [reflexivity|cbn in L; lia].
  - destruct l as [|x [|y l]]; [reflexivity|cbn [paired packed]; lia|].
    cbn [paired packed]. rewrite <- IH by (cbn in L; lia).
    rewrite Z.shiftl_mul_pow2 by exact B.
    replace (2 * bits) with (bits + bits) by lia. rewrite Z.pow_add_r by exact B. lia.
Qed.

Fixpoint pack (fuel : nat) (bits : Z) (l : list Z) : Z :=
  match fuel, l with
  | _, [] => 0
  | _, [x] => x
  | O, _ => packed (2 ^ bits) l
  | S k, _ => pack k (2 * bits) (paired bits l)
  end.

Lemma pack_packed : forall fuel bits l, 0 <= bits -> pack fuel bits l = packed (2 ^ bits) l.
Proof.
  induction fuel as [|k IH]; intros bits l B; destruct l as [|x [|y l]];
    cbn [pack]; try (cbn; lia); try reflexivity.
  rewrite IH by lia. symmetry. apply (paired_packed (length (x :: y :: l))); [exact B|lia].
Qed.

Fixpoint unpack (levels : nat) (bits z : Z) : list Z :=
  match levels with
  | O => [z]
  | S k =>
      let width := bits * 2 ^ Z.of_nat k in
      let high := Z.shiftr z width in
      unpack k bits (z - Z.shiftl high width) ++ unpack k bits high
  end.

Lemma unpack_length : forall levels bits z,
  Z.of_nat (length (unpack levels bits z)) = 2 ^ Z.of_nat levels.
Proof.
  induction levels as [|k IH]; intros bits z; [reflexivity|].
  cbn [unpack]. rewrite app_length, Nat2Z.inj_add, !IH, Nat2Z.inj_succ, Z.pow_succ_r by lia. lia.
Qed.

Lemma unpack_packed : forall levels bits z, 0 <= bits ->
  packed (2 ^ bits) (unpack levels bits z) = z.
Proof.
  induction levels as [|k IH]; intros bits z B.
  - cbn. lia.
  - cbn [unpack]. rewrite packed_app, unpack_length, !IH by exact B.
    rewrite <- Z.pow_mul_r by (try apply Z.pow_nonneg; lia).
    rewrite Z.shiftl_mul_pow2 by (apply Z.mul_nonneg_nonneg; [|apply Z.pow_nonneg]; lia). lia.
Qed.

Definition product (l1 l2 : list Z) : list Z :=
  let bits := Z.log2 (total l1 * total l2) + 1 in
  let base := 2 ^ bits in
  let levels := Nat.log2_up (length l1 + length l2) in
  let z := pack levels bits l1 * pack levels bits l2 in
  let l := unpack levels bits z in
  if forallb (fun m => (0 <=? m) && (m <? base)) l then l else convolved l1 l2.

Lemma digits_of_total : forall l base, nonneg l -> total l < base -> digits base l.
Proof.
  induction l as [|m l IH]; intros base N T; [constructor|]. inversion N; subst.
  pose proof (total_nonneg l H2). unfold total in *. cbn in T.
  constructor; [lia|]. apply IH; [exact H2|]. lia.
Qed.

Lemma product_convolved : forall l1 l2, nonneg l1 -> nonneg l2 ->
  forall f k, lin f k (product l1 l2) = lin f k (convolved l1 l2).
Proof.
  intros l1 l2 N1 N2 f k. unfold product.
  set (bits := Z.log2 (total l1 * total l2) + 1). set (base := 2 ^ bits).
  set (levels := Nat.log2_up (length l1 + length l2)).
  set (l := unpack levels bits (pack levels bits l1 * pack levels bits l2)).
  destruct (forallb (fun m => (0 <=? m) && (m <? base)) l) eqn:E; [|reflexivity].
  assert (P : 0 <= total l1 * total l2) by (apply Z.mul_nonneg_nonneg; apply total_nonneg; assumption).
  assert (B : 0 <= bits) by (unfold bits; pose proof (Z.log2_nonneg (total l1 * total l2)); lia).
  assert (Bp : 0 < base) by (unfold base; apply Z.pow_pos_nonneg; lia).
  apply (digits_unique base); [exact Bp| | |].
  - unfold digits. rewrite Forall_forall. rewrite forallb_forall in E. intros m I.
    specialize (E m I). apply andb_true_iff in E. destruct E as [E1 E2].
    apply Z.leb_le in E1. apply Z.ltb_lt in E2. lia.
  - apply digits_of_total; [apply convolved_nonneg; assumption|]. rewrite total_convolved.
    unfold base, bits. destruct (Z.eq_dec (total l1 * total l2) 0) as [Z0|Z0].
    + rewrite Z0. cbn. lia.
    + pose proof (Z.log2_spec (total l1 * total l2)). lia.
  - unfold l, base. rewrite unpack_packed by exact B.
    rewrite packed_convolved, !pack_packed by exact B. reflexivity.
Qed.

Lemma product_nonneg : forall l1 l2, nonneg l1 -> nonneg l2 -> nonneg (product l1 l2).
Proof.
  intros l1 l2 N1 N2. unfold product.
  match goal with |- nonneg (if ?c then ?l else _) => destruct c eqn:E end.
  - unfold nonneg. rewrite Forall_forall. rewrite forallb_forall in E. intros m I.
    specialize (E m I). apply andb_true_iff in E. destruct E as [E1 _].
    apply Z.leb_le in E1. exact E1.
  - apply convolved_nonneg; assumption.
Qed.

(** * Products and powers of measures *)

Definition times (cut : Z) (m1 m2 : measure) : measure :=
  let raw := product (masses m2) (masses m1) in
  let (k, l) :=
    trimmed cut (start m2 + start m1) (map (fun m => Z.shiftr m MASS_BITS) raw) in
  Measure k l (Z.max 0 (product_missing m1 m2 (total l))).

Lemma floored : forall f a l k, nonneg l -> (forall i, 0 <= f i <= a)%R ->
  nonneg (map (fun m => Z.shiftr m MASS_BITS) l) /\
  (lin f k l - IZR WHOLE * lin f k (map (fun m => Z.shiftr m MASS_BITS) l)
   <= a * (IZR (total l) - IZR WHOLE * IZR (total (map (fun m => Z.shiftr m MASS_BITS) l))))%R.
Proof.
  intros f a l k N F. revert k. induction l as [|m l IH]; intros k.
  - cbn. split; [constructor|lra].
  - inversion N; subst. destruct (IH H2 (k + 1)) as [P Q].
    split; [constructor; [apply Z.shiftr_nonneg; assumption|exact P]|].
    cbn [map lin]. unfold total in *. cbn [fold_right]. rewrite !plus_IZR.
    pose proof (Exponential.shiftr_le m MASS_BITS ltac:(unfold MASS_BITS; lia)) as S.
    fold WHOLE in S. specialize (F k).
    set (x := (IZR m)%R) in *. set (y := (IZR (Z.shiftr m MASS_BITS))%R) in *.
    set (w := (IZR WHOLE)%R) in *.
    assert (((x - y * w) * f k <= (x - y * w) * a)%R) by (apply Rmult_le_compat_l; lra).
    lra.
Qed.

Theorem times_bounds : forall s cut m1 m2 s1 s2,
  bounds s m1 s1 -> bounds s m2 s2 -> Forall Divergence.good s1 ->
  bounds s (times cut m1 m2) (s1 ++ s2).
Proof.
  intros s cut m1 m2 s1 s2 B1 B2 G. unfold times.
  assert (N1 : nonneg (masses m1)) by apply B1. assert (N2 : nonneg (masses m2)) by apply B2.
  set (raw := product (masses m2) (masses m1)).
  assert (NR : nonneg raw) by (apply product_nonneg; assumption).
  set (low := map (fun m => Z.shiftr m MASS_BITS) raw).
  assert (NL : nonneg low) by (apply (floored (fun _ => 0%R) 0%R raw 0 NR); intros; lra).
  pose proof (trimmed_lossy cut (start m2 + start m1) low NL) as T.
  destruct (trimmed cut (start m2 + start m1) low) as [k l]. destruct T as [Nl L].
  apply composition with (raw := raw); try assumption.
  - intros f i. apply product_convolved; assumption.
  - intros f a F. destruct (floored f a raw (start m2 + start m1) NR F) as [_ E].
    fold low in E. specialize (L f a F). pose proof WHOLE_pos as W.
    apply Rmult_le_compat_l with (r := IZR WHOLE) in L; lra.
Qed.

Fixpoint power (cut : Z) (m : measure) (count : positive) : measure :=
  match count with
  | xH => m
  | xO p => let half := power cut m p in times cut half half
  | xI p => let half := power cut m p in times cut (times cut half half) m
  end.

Lemma copies_add : forall (A : Type) n k (l : list A),
  Definitions.copies (n + k) l = Definitions.copies n l ++ Definitions.copies k l.
Proof. induction n as [|n IH]; intros k l; cbn; [reflexivity|]. rewrite IH, app_assoc. reflexivity. Qed.

Lemma good_copies : forall n s, Forall Divergence.good s ->
  Forall Divergence.good (Definitions.copies n s).
Proof. induction n; intros s G; cbn; [constructor|]. apply Forall_app. split; auto. Qed.

Theorem power_bounds : forall s cut m sched count,
  bounds s m sched -> Forall Divergence.good sched ->
  bounds s (power cut m count) (Definitions.copies (Pos.to_nat count) sched).
Proof.
  intros s cut m sched count B G. induction count as [p IH|p IH|]; cbn [power].
  - rewrite Pos2Nat.inj_xI. replace (S (2 * Pos.to_nat p))%nat
      with ((Pos.to_nat p + Pos.to_nat p) + 1)%nat by lia.
    rewrite !copies_add. apply times_bounds.
    + apply times_bounds; auto using good_copies.
    + cbn. rewrite app_nil_r. exact B.
    + apply Forall_app. split; auto using good_copies.
  - rewrite Pos2Nat.inj_xO. replace (2 * Pos.to_nat p)%nat
      with (Pos.to_nat p + Pos.to_nat p)%nat by lia.
    rewrite copies_add. apply times_bounds; auto using good_copies.
  - change (Pos.to_nat 1) with 1%nat. cbn. rewrite app_nil_r. exact B.
Qed.
