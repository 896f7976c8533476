(** Integer programs that turn values of a divergence at points into a measure, and read its curve.

    Masses may be proposed in any way ([proposed] takes slopes of the lower envelope); what they lack
    at the worst point is added to the missing mass, so that no choice of theirs can be wrong. *)

From Coq Require Import Reals ZArith List Lra Lia.
From Mezzotint Require Import Definitions Divergence Exponential Losses Envelope.
Import ListNotations.
Open Scope R_scope.

Definition FINE : Z := 96%Z.

Lemma FINE_pos : 0 < IZR (2 ^ FINE).
Proof. apply IZR_lt. unfold FINE. lia. Qed.

Lemma shiftl_IZR : forall z bits, (0 <= bits)%Z -> IZR (Z.shiftl z bits) = IZR z * IZR (2 ^ bits).
Proof. intros. rewrite Z.shiftl_mul_pow2 by assumption. apply mult_IZR. Qed.

(** * Points of a grid, from below *)

Fixpoint points (count : nat) (first rise : Z) : list Z :=
  match count with
  | O => []
  | S k => first :: points k (Z.shiftr (first * rise) BITS) rise
  end.

Lemma points_length : forall count first rise, length (points count first rise) = count.
Proof. induction count; intros; cbn; auto. Qed.

(** * Masses, proposed: nothing is proved about them but their number and sign *)

Record corner := Corner { at_point : Z; value : Z; index : Z }.

Definition turns_up (a b c : corner) : bool :=
  ((value c - value a) * (at_point b - at_point a)
   <=? (value b - value a) * (at_point c - at_point a))%Z.

Fixpoint popped (stack : list corner) (new : corner) : list corner :=
  match stack with
  | b :: (a :: _) as others => if turns_up a b new then popped others new else stack
  | _ => stack
  end.

Fixpoint hull (ps us : list Z) (i least : Z) (stack : list corner) : list corner :=
  match ps, us with
  | p :: ps', u :: us' =>
      let least' := Z.min least u in
      let new := Corner p least' i in
      hull ps' us' (i + 1) least' (new :: popped stack new)
  | _, _ => stack
  end.

Fixpoint atoms (corners : list corner) : list (Z * Z) :=
  match corners with
  | a :: (b :: others) as following =>
      let c := match others with c :: _ => c | [] => Corner (at_point b + 1) (value b) 0 end in
      let rise := ((value c - value b) * (at_point b - at_point a)
        - (value b - value a) * (at_point c - at_point b))%Z in
      let width := ((at_point c - at_point b) * (at_point b - at_point a))%Z in
      (index b, (at_point b * rise / width)%Z) :: atoms following
  | _ => []
  end.

Fixpoint dense (count : nat) (i : Z) (found : list (Z * Z)) : list Z :=
  match count with
  | O => []
  | S k =>
      match found with
      | (j, m) :: found' =>
          if (i =? j)%Z then Z.max 0 m :: dense k (i + 1) found' else 0%Z :: dense k (i + 1) found
      | [] => 0%Z :: dense k (i + 1) []
      end
  end.

Definition proposed (ps us : list Z) : list Z :=
  dense (length us) 0 (atoms (rev' (hull ps us 0 WHOLE [Corner 0 WHOLE (-1)]))).

Lemma dense_spec : forall count i found,
  length (dense count i found) = count /\ nonneg (dense count i found).
Proof.
  induction count as [|k IH]; intros i found; cbn [dense].
  - split; [reflexivity|constructor].
  - destruct found as [|[j m] found].
    + destruct (IH (i + 1)%Z []) as [L N]. split; [cbn; rewrite L; reflexivity|].
      constructor; [lia|exact N].
    + destruct (i =? j)%Z.
      * destruct (IH (i + 1)%Z found) as [L N]. split; [cbn; rewrite L; reflexivity|].
        constructor; [lia|exact N].
      * destruct (IH (i + 1)%Z ((j, m) :: found)) as [L N].
        split; [cbn; rewrite L; reflexivity|]. constructor; [lia|exact N].
Qed.

(** * What the masses lack, and what their curve is *)

(** The total, an upper bound of 2^FINE sum m_i e^-(i + 1)s, and the most that a value exceeds the
    curve. Values are in units of 2^-(160 + FINE). *)
Fixpoint fit (fall : Z) (us ms : list Z) : Z * Z * Z :=
  match us, ms with
  | u :: us', m :: ms' =>
      let '(later, tilted, lack) := fit fall us' ms' in
      ((m + later)%Z, shiftr_up ((Z.shiftl m FINE + tilted) * fall) BITS,
       Z.max lack (shiftr_up (u - Z.shiftl later FINE + tilted) FINE))
  | _, _ => (0, 0, 0)%Z
  end.

(** The total, a lower bound of the same sum, and upper bounds of the curve without missing mass, in
    the same units. *)
Fixpoint reading (fall : Z) (ms : list Z) : Z * Z * list Z :=
  match ms with
  | m :: ms' =>
      let '(later, tilted, values) := reading fall ms' in
      ((m + later)%Z, Z.shiftr ((Z.shiftl m FINE + tilted) * fall) BITS,
       (Z.shiftl later FINE - tilted)%Z :: values)
  | [] => (0%Z, 0%Z, [])
  end.

(** A lower bound of 2^FINE sum m_i e^-is. *)
Fixpoint tilted_sum (fall : Z) (ms : list Z) : Z :=
  match ms with
  | [] => 0%Z
  | m :: ms' => (Z.shiftl m FINE + Z.shiftr (tilted_sum fall ms' * fall) BITS)%Z
  end.

(** The measure with these masses at [low], ..., and the mass missing that the values ask for. *)
Definition fitted (fall cut low : Z) (us ms : list Z) (at_zero : Z) : measure :=
  let '(all, _, lack) := fit fall us ms in
  let (k, l) := trimmed cut low ms in
  Measure k l (Z.max lack (at_zero - all) + all - total l).

Section Step.
Variable s : R.
Hypothesis S_pos : 0 < s.

Definition rest (c : R) (i : Z) : R := Rmax (1 - c * loss_factor s i) 0.

Lemma rest_nonneg : forall c i, 0 <= rest c i.
Proof. intros. apply Rmax_r. Qed.

Lemma point_loss : forall k i, point s k * loss_factor s i = loss_factor s (i - k).
Proof.
  intros. rewrite point_factor. unfold loss_factor. f_equal. rewrite !minus_IZR. ring.
Qed.

Lemma loss_factor_1 : forall i, loss_factor s (i + 1) = loss_factor s i * loss_factor s 1.
Proof. intros. apply loss_factor_add. Qed.

Lemma points_below : forall count first rise k,
  (0 <= first)%Z -> (0 <= rise)%Z -> IZR first <= point s k * IZR UNIT ->
  IZR rise <= exp s * IZR UNIT ->
  forall j, (j < count)%nat ->
    (0 <= nth j (points count first rise) 0)%Z /\
    IZR (nth j (points count first rise) 0%Z) <= point s (k + Z.of_nat j) * IZR UNIT.
Proof.
  induction count as [|n IH]; intros first rise k F0 R0 F R j J; [lia|].
  destruct j as [|j]; cbn [points nth].
  - rewrite Z.add_0_r. split; assumption.
  - replace (k + Z.of_nat (S j))%Z with (k + 1 + Z.of_nat j)%Z by lia.
    apply IH; auto; try lia.
    + apply shiftr_nonneg. nia.
    + apply shiftr_le_div; [unfold BITS; lia|]. fold UNIT. rewrite mult_IZR.
      replace (point s (k + 1) * IZR UNIT * IZR UNIT)
        with ((point s k * IZR UNIT) * (exp s * IZR UNIT)).
      * apply Rmult_le_compat; auto; apply IZR_le; assumption.
      * unfold point. rewrite plus_IZR, Rmult_plus_distr_r, exp_plus, Rmult_1_l. ring.
Qed.

Variable fall_up : Z.
Hypothesis Up : loss_factor s 1 * IZR UNIT <= IZR fall_up.

Lemma fit_spec : forall us ms k, length us = length ms -> nonneg ms ->
  let '(all, tilted, lack) := fit fall_up us ms in
  all = total ms /\ (0 <= lack)%Z /\
  lin (fun i => loss_factor s (i - k + 1)) k ms * IZR (2 ^ FINE) <= IZR tilted /\
  forall j, (j < length us)%nat ->
    IZR (nth j us 0%Z)
    <= (IZR lack + lin (rest (point s (k + Z.of_nat j))) k ms) * IZR (2 ^ FINE).
Proof.
  induction us as [|u us IH]; intros ms k L N; destruct ms as [|m ms]; try discriminate.
  - cbn. split; [reflexivity|]. split; [lia|]. split; [lra|]. intros; lia.
  - cbn [fit]. inversion N; subst.
    specialize (IH ms (k + 1)%Z ltac:(cbn in L; lia) H2).
    destruct (fit fall_up us ms) as [[later tilted] lack].
    destruct IH as [A [P [T V]]]. subst later.
    assert (M : 0 <= IZR m) by (apply IZR_le; assumption).
    set (tail := lin (fun i => loss_factor s (i - k)) (k + 1) ms).
    assert (T' : tail * IZR (2 ^ FINE) <= IZR tilted).
    { eapply Rle_trans; [|exact T]. right. f_equal. apply lin_ext. intros i. f_equal. lia. }
    assert (T0 : 0 <= tail).
    { apply lin_nonneg; [assumption|]. intros. left. apply loss_factor_pos. }
    pose proof FINE_pos as Fp. pose proof UNIT_pos as Up0.
    split; [reflexivity|]. split; [lia|]. split.
    + apply shiftr_up_ge_div; [unfold BITS; lia|]. fold UNIT.
      rewrite mult_IZR, plus_IZR, shiftl_IZR by (unfold FINE; lia).
      cbn [lin]. rewrite (lin_ext (fun i => loss_factor s (i - k + 1))
        (fun i => loss_factor s 1 * loss_factor s (i - k))).
      2:{ intros i. rewrite loss_factor_1. ring. }
      rewrite lin_scale. fold tail. replace (k - k + 1)%Z with 1%Z by lia.
      replace ((IZR m * loss_factor s 1 + loss_factor s 1 * tail) * IZR (2 ^ FINE) * IZR UNIT)
        with ((IZR m * IZR (2 ^ FINE) + tail * IZR (2 ^ FINE)) * (loss_factor s 1 * IZR UNIT))
        by ring.
      apply Rmult_le_compat; try lra.
      * apply Rplus_le_le_0_compat; apply Rmult_le_pos; lra.
      * apply Rmult_le_pos; [left; apply loss_factor_pos|lra].
    + intros j J. cbn [lin]. destruct j as [|j]; cbn [nth].
      * set (short := shiftr_up (u - Z.shiftl (total ms) FINE + tilted) FINE).
        assert (C : IZR u / IZR (2 ^ FINE) - IZR (total ms) + tail <= IZR short).
        { apply shiftr_up_ge_div; [unfold FINE; lia|].
          rewrite plus_IZR, minus_IZR, shiftl_IZR by (unfold FINE; lia).
          replace ((IZR u / IZR (2 ^ FINE) - IZR (total ms) + tail) * IZR (2 ^ FINE))
            with (IZR u - IZR (total ms) * IZR (2 ^ FINE) + tail * IZR (2 ^ FINE))
            by (field; lra).
          lra. }
        rewrite Z.add_0_r.
        assert (E : IZR (total ms) - tail <= lin (rest (point s k)) (k + 1) ms).
        { replace (IZR (total ms) - tail)
            with (lin (fun i => 1 + -1 * loss_factor s (i - k)) (k + 1) ms).
          - apply lin_le; [assumption|]. intros i. unfold rest. rewrite point_loss.
            eapply Rle_trans; [|apply Rmax_l]. lra.
          - rewrite lin_plus, lin_scale, lin_const. fold tail. ring. }
        assert (0 <= IZR m * rest (point s k) k)
          by (apply Rmult_le_pos; [exact M|apply rest_nonneg]).
        assert (IZR short <= IZR (Z.max lack short)) by (apply IZR_le; lia).
        apply Rmult_le_reg_r with (/ IZR (2 ^ FINE)); [apply Rinv_0_lt_compat; exact Fp|].
        rewrite Rmult_assoc, Rinv_r by lra. unfold Rdiv in C. lra.
      * specialize (V j ltac:(cbn in J; lia)).
        replace (k + Z.of_nat (S j))%Z with (k + 1 + Z.of_nat j)%Z by lia.
        assert (0 <= IZR m * rest (point s (k + 1 + Z.of_nat j)) k)
          by (apply Rmult_le_pos; [exact M|apply rest_nonneg]).
        set (short := shiftr_up (u - Z.shiftl (total ms) FINE + tilted) FINE).
        assert (IZR lack <= IZR (Z.max lack short)) by (apply IZR_le; lia).
        eapply Rle_trans; [exact V|]. apply Rmult_le_compat_r; lra.
Qed.

Theorem fitted_bounds : forall h cut low us ms at_zero,
  curve_like h -> length us = length ms -> nonneg ms -> ms <> [] ->
  h 1 0 * IZR WHOLE <= IZR at_zero ->
  (forall j, (j < length us)%nat ->
     h 1 (point s (low + Z.of_nat j)) * IZR WHOLE * IZR (2 ^ FINE) <= IZR (nth j us 0%Z)) ->
  let m := fitted fall_up cut low us ms at_zero in
  nonneg (masses m) /\ (0 <= missing m)%Z /\
  forall a b, 0 <= a -> 0 <= b -> h a b <= curve s m a b.
Proof.
  intros h cut low us ms at_zero H L N NE Z0 V. pose proof WHOLE_pos as W. unfold fitted.
  pose proof (fit_spec us ms low L N) as F.
  destruct (fit fall_up us ms) as [[all tilted] lack]. destruct F as [A [P [_ F]]]. subst all.
  pose proof (trimmed_lossy cut low ms N) as T.
  destruct (trimmed cut low ms) as [k l]. destruct T as [Nl Lossy].
  set (d := Z.max lack (at_zero - total ms)).
  assert (D0 : (0 <= d)%Z) by lia.
  assert (Le : (total l <= total ms)%Z).
  { specialize (Lossy (fun _ => 0) 1 ltac:(intros; lra)). rewrite !lin_const in Lossy.
    apply le_IZR. lra. }
  cbn [masses missing start]. split; [exact Nl|]. split; [lia|].
  assert (Raw : forall a b, 0 <= a -> 0 <= b -> h a b <= curve s (Measure low ms d) a b).
  { apply (envelope s S_pos h (Measure low ms d)); cbn [masses missing start]; auto.
    - unfold curve. cbn [masses missing start].
      rewrite (lin_ext _ (fun _ => 1)) by (intros; rewrite Rmult_0_l, Rminus_0_r, Rmax_left; lra).
      rewrite lin_const. apply Rmult_le_reg_r with (IZR WHOLE); [exact W|].
      eapply Rle_trans; [exact Z0|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra.
      assert (IZR (at_zero - total ms) <= IZR d) by (apply IZR_le; lia).
      rewrite minus_IZR in H0. lra.
    - intros j J. rewrite <- L in J. specialize (V j J). specialize (F j J).
      apply Rmult_le_reg_r with (IZR WHOLE); [exact W|].
      apply Rle_trans with (IZR lack + lin (rest (point s (low + Z.of_nat j))) low ms).
      { apply Rmult_le_reg_r with (IZR (2 ^ FINE)); [apply FINE_pos|].
        eapply Rle_trans; [exact V|exact F]. }
      unfold curve, Rdiv. cbn [masses missing start]. rewrite Rmult_assoc, Rinv_l by lra.
      fold (rest (point s (low + Z.of_nat j))).
      assert (IZR lack <= IZR d) by (apply IZR_le; lia). lra. }
  intros a b Ha Hb. eapply Rle_trans; [apply Raw; assumption|]. unfold curve.
  cbn [masses missing start]. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; exact W|].
  specialize (Lossy (fun i => Rmax (a - b * loss_factor s i) 0) a
    (fun i => curve_nonneg_hinge s a b i Ha Hb)).
  rewrite minus_IZR, plus_IZR. lra.
Qed.

Variable fall_low : Z.
Hypothesis Low_pos : (0 <= fall_low)%Z.
Hypothesis Low : IZR fall_low <= loss_factor s 1 * IZR UNIT.

Lemma reading_spec : forall ms k, nonneg ms ->
  let '(all, tilted, values) := reading fall_low ms in
  all = total ms /\ length values = length ms /\ (0 <= tilted)%Z /\
  IZR tilted <= lin (fun i => loss_factor s (i - k + 1)) k ms * IZR (2 ^ FINE) /\
  forall j, (j < length ms)%nat ->
    lin (rest (point s (k + Z.of_nat j))) k ms * IZR (2 ^ FINE) <= IZR (nth j values 0%Z).
Proof.
  induction ms as [|m ms IH]; intros k N.
  - cbn. repeat split; try lra; try lia.
  - cbn [reading]. inversion N; subst. specialize (IH (k + 1)%Z H2).
    destruct (reading fall_low ms) as [[later tilted] values].
    destruct IH as [A [Lv [P [T V]]]]. subst later.
    assert (M : 0 <= IZR m) by (apply IZR_le; assumption).
    set (tail := lin (fun i => loss_factor s (i - k)) (k + 1) ms).
    assert (T' : IZR tilted <= tail * IZR (2 ^ FINE)).
    { eapply Rle_trans; [exact T|]. right. f_equal. apply lin_ext. intros i. f_equal. lia. }
    pose proof FINE_pos as Fp. pose proof UNIT_pos as Up0.
    assert (Pt : 0 <= IZR tilted) by (apply IZR_le; exact P).
    assert (Ps : (0 <= Z.shiftl m FINE + tilted)%Z).
    { apply Z.add_nonneg_nonneg; [apply Z.shiftl_nonneg; assumption|exact P]. }
    split; [reflexivity|]. split; [cbn; rewrite Lv; reflexivity|].
    split; [apply shiftr_nonneg; apply Z.mul_nonneg_nonneg; assumption|]. split.
    + apply shiftr_le_div; [unfold BITS; lia|]. fold UNIT.
      rewrite mult_IZR, plus_IZR, shiftl_IZR by (unfold FINE; lia).
      cbn [lin]. rewrite (lin_ext (fun i => loss_factor s (i - k + 1))
        (fun i => loss_factor s 1 * loss_factor s (i - k))).
      2:{ intros i. rewrite loss_factor_1. ring. }
      rewrite lin_scale. fold tail. replace (k - k + 1)%Z with 1%Z by lia.
      replace ((IZR m * loss_factor s 1 + loss_factor s 1 * tail) * IZR (2 ^ FINE) * IZR UNIT)
        with ((IZR m * IZR (2 ^ FINE) + tail * IZR (2 ^ FINE)) * (loss_factor s 1 * IZR UNIT))
        by ring.
      apply Rmult_le_compat; try lra.
      * apply Rplus_le_le_0_compat; [apply Rmult_le_pos; lra|exact Pt].
      * apply IZR_le. exact Low_pos.
    + intros j J. cbn [lin]. destruct j as [|j]; cbn [nth].
      * rewrite Z.add_0_r.
        assert (E0 : rest (point s k) k = 0).
        { unfold rest. rewrite point_loss, Z.sub_diag. unfold loss_factor.
          rewrite Rmult_0_l, Ropp_0, exp_0. apply Rmax_right. lra. }
        assert (E : lin (rest (point s k)) (k + 1) ms = IZR (total ms) - tail).
        { rewrite (lin_ext_range _ (fun i => 1 + -1 * loss_factor s (i - k))).
          - rewrite lin_plus, lin_scale, lin_const. fold tail. ring.
          - intros i I. unfold rest. rewrite point_loss.
            pose proof (beyond s S_pos k i ltac:(lia)) as B. rewrite point_loss in B.
            rewrite Rmax_left; lra. }
        rewrite E0, E, Rmult_0_r, minus_IZR, shiftl_IZR by (unfold FINE; lia). lra.
      * specialize (V j ltac:(cbn in J; lia)).
        replace (k + Z.of_nat (S j))%Z with (k + 1 + Z.of_nat j)%Z by lia.
        assert (E0 : rest (point s (k + 1 + Z.of_nat j)) k = 0).
        { unfold rest. apply Rmax_right.
          pose proof (before s S_pos (k + 1 + Z.of_nat j) k ltac:(lia)). lra. }
        rewrite E0, Rmult_0_r, Rplus_0_l. exact V.
Qed.

Lemma tilted_sum_spec : forall ms k, nonneg ms ->
  (0 <= tilted_sum fall_low ms)%Z /\
  IZR (tilted_sum fall_low ms) <= lin (fun i => loss_factor s (i - k)) k ms * IZR (2 ^ FINE).
Proof.
  induction ms as [|m ms IH]; intros k N.
  - cbn. split; [lia|lra].
  - cbn [tilted_sum]. inversion N; subst. destruct (IH (k + 1)%Z H2) as [P T].
    pose proof FINE_pos as Fp. pose proof UNIT_pos as Up0.
    split.
    + apply Z.add_nonneg_nonneg; [apply Z.shiftl_nonneg; assumption|].
      apply shiftr_nonneg. apply Z.mul_nonneg_nonneg; assumption.
    + rewrite plus_IZR, shiftl_IZR by (unfold FINE; lia). cbn [lin].
      rewrite Z.sub_diag. replace (loss_factor s 0) with 1
        by (unfold loss_factor; rewrite Rmult_0_l, Ropp_0, exp_0; reflexivity).
      rewrite (lin_ext (fun i => loss_factor s (i - k))
        (fun i => loss_factor s 1 * loss_factor s (i - (k + 1)))).
      2:{ intros i. rewrite Rmult_comm, <- loss_factor_1. f_equal. lia. }
      rewrite lin_scale. set (tail := lin (fun i => loss_factor s (i - (k + 1))) (k + 1) ms) in *.
      assert (IZR (Z.shiftr (tilted_sum fall_low ms * fall_low) BITS)
        <= loss_factor s 1 * tail * IZR (2 ^ FINE)).
      { apply shiftr_le_div; [unfold BITS; lia|]. fold UNIT. rewrite mult_IZR.
        replace (loss_factor s 1 * tail * IZR (2 ^ FINE) * IZR UNIT)
          with ((tail * IZR (2 ^ FINE)) * (loss_factor s 1 * IZR UNIT)) by ring.
        apply Rmult_le_compat; auto; apply IZR_le; assumption. }
      lra.
Qed.

End Step.
