(** Claims about many reports: losses of each table on a grid, products, participation that is
    seen. *)

From Coq Require Import Reals QArith Qreals ZArith List Lra Lia Bool.
From Mezzotint Require Import Definitions Divergence Exponential Losses Product Envelope Fit Reports.
Import ListNotations.
Open Scope R_scope.

Definition POINT_BITS : Z := 256%Z.
Definition MAX_ENTRIES : Z := (2 ^ 20)%Z.
Definition MAX_POINTS : Z := (2 ^ 18)%Z.
Definition MAX_STEP : Z := 100000%Z.

(** e^s from below, e^-s from above and from below. *)
Record powers := Powers { rise : Z; fall_up : Z; fall_low : Z }.

Definition powers_of (size : Q) : powers :=
  let low := exp_lower size in Powers low (exp_upper_inverse low) (exp_lower (- size)).

(** * From rows to a measure *)

Definition multiple (k : Z) (size : Q) : Q := (k * Qnum size) # Qden size.

Lemma multiple_R : forall k size, Q2R (multiple k size) = IZR k * Q2R size.
Proof. intros. unfold multiple, Q2R. cbn [Qnum Qden]. rewrite mult_IZR. ring. Qed.

Definition coarse (p : Z) : Z := Z.shiftr p (BITS - POINT_BITS).

Definition grid_points (size : Q) (low high : Z) : list Z :=
  points (Z.to_nat (high - low + 1)) (exp_lower (multiple low size)) (rise (powers_of size)).

Definition table_values (t : table) (ps : list Z) : list Z :=
  let pairs := row_pairs POINT_BITS t in
  map (fun p => shiftr_up (worst_hinge pairs (coarse p)) (POINT_BITS + 32 - MASS_BITS - FINE)) ps.

(** In units of 2^-160, for the masses that are proposed. *)
Definition rounded (us : list Z) : list Z := map (fun u => shiftr_up u FINE) us.

Definition table_measure (size : Q) (cut low high : Z) (t : table) : measure :=
  let ps := grid_points size low high in
  let us := table_values t ps in
  fitted (fall_up (powers_of size)) cut low us (proposed (map coarse ps) (rounded us)) WHOLE.

Definition silence : measure := Measure 0 [WHOLE] 0.

(** * Within limits of size *)

Definition times_within (cut : Z) (m1 m2 : measure) : option measure :=
  if (Zlength (masses m1) + Zlength (masses m2) <=? MAX_ENTRIES)%Z
  then Some (times cut m1 m2) else None.

Fixpoint power_within (cut : Z) (m : measure) (count : positive) : option measure :=
  match count with
  | xH => Some m
  | xO p =>
      match power_within cut m p with
      | Some half => times_within cut half half
      | None => None
      end
  | xI p =>
      match power_within cut m p with
      | Some half =>
          match times_within cut half half with
          | Some twice => times_within cut twice m
          | None => None
          end
      | None => None
      end
  end.

Fixpoint round_measure (size : Q) (cut : Z) (before : measure)
    (ts : list (table * positive)) (grids : list (Z * Z)) : option measure :=
  match ts, grids with
  | [], [] => Some before
  | (t, n) :: ts', (low, high) :: grids' =>
      match power_within cut (table_measure size cut low high t) n with
      | Some part =>
          match times_within cut before part with
          | Some after => round_measure size cut after ts' grids'
          | None => None
          end
      | None => None
      end
  | _, _ => None
  end.

(** * Rounds in which somebody takes part visibly, with a probability *)

Definition zeros (n : Z) : list Z := repeat 0%Z (Z.to_nat n).

(** Upper bounds of the curve, without its missing mass, at the points low, ..., high. *)
Definition curve_values (fall : Z) (m : measure) (low high : Z) : list Z :=
  let first := Z.min (start m) low in
  let l := zeros (start m - first) ++ masses m
    ++ zeros (high + 1 - (start m + Zlength (masses m))) in
  firstn (Z.to_nat (high - low + 1)) (skipn (Z.to_nat (low - first)) (snd (reading fall l))).

(** Whether few zeros stand between the masses and both ends of the grid, so that lengths are small
    before a list of zeros is made. *)
Definition within_reach (m : measure) (low high : Z) : bool :=
  (start m - low <=? MAX_ENTRIES)%Z
  && (high + 1 - (start m + Zlength (masses m)) <=? MAX_ENTRIES)%Z.

(** rate * value + (1 - rate) * equal, rounded up. *)
Definition mixed (rate : Q) (value equal : Z) : Z :=
  ceil_div (Qnum rate * value + (QDen rate - Qnum rate) * equal) (QDen rate).

(** (1 - c)+ from above, in units of 2^-(160 + FINE). *)
Definition equal_rows (p : Z) : Z :=
  Z.max 0 (Z.shiftl WHOLE FINE - Z.shiftr p (BITS - MASS_BITS - FINE)).

Definition seen_measure (size : Q) (cut : Z) (rate : Q) (m : measure) (low high : Z)
    : option measure :=
  if within_reach m low high then
    let ps := grid_points size low high in
    let values := curve_values (fall_low (powers_of size)) m low high in
    if (length values =? length ps)%nat then
      let us := map (fun pv =>
          mixed rate (Z.shiftl (missing m) FINE + snd pv) (equal_rows (fst pv)))
        (combine ps values) in
      Some (fitted (fall_up (powers_of size)) cut low us (proposed (map coarse ps) (rounded us))
        (mixed rate (missing m + total (masses m)) WHOLE))
    else None
  else None.

(** * The curve at the claim's epsilon *)

(** An upper bound of the curve at e^epsilon, in units of 2^-160. *)
Definition delta_of (size eps : Q) (m : measure) : Z :=
  let above := ((Qnum eps * QDen size) / (QDen eps * Qnum size) + 1)%Z in
  let low := Z.max above (start m) in
  let rest := skipn (Z.to_nat (Z.min (low - start m) (Zlength (masses m)))) (masses m) in
  let all := total rest in
  if Qle_bool eps (multiple low size)
     && ((low =? start m)%Z || Qle_bool (multiple (low - 1) size) eps)
  then
    let tilted := tilted_sum (fall_low (powers_of size)) rest in
    let factor := exp_lower (eps - multiple low size) in
    (missing m + all - Z.shiftr (tilted * factor) (FINE + BITS))%Z
  else (missing m + total (masses m))%Z.

Definition grid_good (size : Q) (grid : Z * Z) : bool :=
  let (low, high) := grid in
  (low <=? high)%Z && (high - low <? MAX_POINTS)%Z
  && Qle_bool (-100 # 1) (multiple low size) && Qle_bool (multiple high size) (100000 # 1).

Definition step_good (size : Q) : bool :=
  Qle_bool (1 # 1073741824) size && Qle_bool size (MAX_STEP # 1)
  && (0 <? rise (powers_of size))%Z.

Definition check_total (c : claim) (size : Q) (cut : Z) (m : measure) : verdict :=
  match power_within cut m (rounds c) with
  | None => Refused TooManyEntries
  | Some all =>
      let have := Z.min WHOLE (delta_of size (epsilon c) all) in
      require (have * QDen (delta c) <=? Qnum (delta c) * WHOLE)%Z
        (DeltaTooSmall (have # (2 ^ 160)%positive)) Certified
  end.

Definition check_losses (c : claim) (size : Q) (cut : Z) (grids : list (Z * Z))
    (again : option (Z * Z)) : verdict :=
  require (step_good size) StepOutOfRange
  (require (length grids =? length (tables c))%nat NotOneGridPerTable
  (require (forallb (grid_good size) grids) GridOutOfRange
  (match seen c, again with
   | None, _ =>
       match round_measure size cut silence (tables c) grids with
       | None => Refused TooManyEntries
       | Some m => check_total c size cut m
       end
   | Some _, None => Refused NoGridForRounds
   | Some rate, Some (low, high) =>
       require (grid_good size (low, high)) GridOutOfRange
       (match round_measure size cut silence (tables c) grids with
        | None => Refused TooManyEntries
        | Some m =>
            match seen_measure size cut rate m low high with
            | None => Refused TooManyEntries
            | Some m' => check_total c size cut m'
            end
        end)
   end))).

(** * Soundness *)

Section Step.
Variable size : Q.
Hypothesis Good : step_good size = true.
Let s := Q2R size.

Lemma size_pos : 0 < s.
Proof.
  unfold step_good in Good. rewrite !andb_true_iff in Good. destruct Good as [[G _] _].
  apply Qle_bool_iff in G. apply Qle_Rle in G. unfold s.
  eapply Rlt_le_trans; [|exact G]. unfold Q2R. cbn [Qnum Qden]. lra.
Qed.

Lemma rise_below : (0 <= rise (powers_of size))%Z /\ IZR (rise (powers_of size)) <= exp s * IZR UNIT.
Proof. apply exp_lower_le. Qed.

Lemma fall_up_above : loss_factor s 1 * IZR UNIT <= IZR (fall_up (powers_of size)).
Proof.
  unfold loss_factor. rewrite Rmult_1_l. apply exp_upper_inverse_ge.
  - unfold step_good in Good. apply andb_true_iff in Good. destruct Good as [_ G].
    apply Z.ltb_lt in G. exact G.
  - apply rise_below.
Qed.

Lemma fall_low_below : (0 <= fall_low (powers_of size))%Z /\
  IZR (fall_low (powers_of size)) <= loss_factor s 1 * IZR UNIT.
Proof.
  unfold loss_factor. rewrite Rmult_1_l. unfold s. rewrite <- Q2R_opp. apply exp_lower_le.
Qed.

Lemma grid_points_below : forall low high j, (j < length (grid_points size low high))%nat ->
  IZR (nth j (grid_points size low high) 0%Z) <= point s (low + Z.of_nat j) * IZR UNIT.
Proof.
  intros low high j J. unfold grid_points in *. rewrite points_length in J.
  destruct rise_below as [R0 R1]. destruct (exp_lower_le (multiple low size)) as [F0 F1].
  apply points_below; auto. unfold point. rewrite multiple_R in F1. exact F1.
Qed.

Lemma grid_points_length : forall low high,
  length (grid_points size low high) = Z.to_nat (high - low + 1).
Proof. intros. apply points_length. Qed.

Lemma proposed_good : forall ps us,
  length (proposed ps (rounded us)) = length us /\ nonneg (proposed ps (rounded us)).
Proof.
  intros. unfold proposed. replace (length us) with (length (rounded us)) by apply map_length.
  apply dense_spec.
Qed.

Lemma table_measure_bounds : forall cut low high t,
  distributions t -> (low <= high)%Z -> bounds s (table_measure size cut low high t) [One t].
Proof.
  intros cut low high t D LH. pose proof WHOLE_pos as W. pose proof TOTAL_pos as T.
  assert (Rows : forall i j, (i < length t)%nat -> (j < length t)%nat ->
    let m := table_measure size cut low high t in
    nonneg (masses m) /\ (0 <= missing m)%Z /\
    forall a b, 0 <= a -> 0 <= b -> hinge t a b (knot i) (knot j) <= curve s m a b).
  { intros i j I J. unfold table_measure.
    assert (Ki : input_of t (knot i)) by (split; [cbn; lra|split; exact I]).
    assert (Kj : input_of t (knot j)) by (split; [cbn; lra|split; exact J]).
    set (ps := grid_points size low high). set (us := table_values t ps).
    destruct (proposed_good (map coarse ps) us) as [Lp Np].
    assert (Lu : length us = Z.to_nat (high - low + 1)).
    { unfold us, table_values. rewrite map_length. apply grid_points_length. }
    apply (fitted_bounds s size_pos _ fall_up_above
      (fun a b => hinge t a b (knot i) (knot j))); auto.
    - apply like_rows; assumption.
    - intros E. rewrite E in Lp. cbn in Lp. lia.
    - unfold hinge. rewrite (sum_ext _ (chance t (knot i))).
      + rewrite chance_sum by assumption. lra.
      + intros o _. rewrite Rmult_0_l, Rminus_0_r, Rmult_1_l. apply Rmax_left.
        apply chance_nonneg; assumption.
    - intros k K. unfold us, table_values in K. rewrite map_length in K.
      pose proof (grid_points_below low high k K) as P. fold ps in P.
      unfold us, table_values.
      set (f := fun p => shiftr_up (worst_hinge (row_pairs POINT_BITS t) (coarse p))
        (POINT_BITS + 32 - MASS_BITS - FINE)).
      rewrite (nth_indep _ 0%Z (f 0%Z)) by (rewrite map_length; exact K). rewrite map_nth.
      unfold f. set (p := nth k ps 0%Z) in *. set (c := point s (low + Z.of_nat k)) in *.
      apply shiftr_up_ge_div; [unfold POINT_BITS, MASS_BITS, FINE; lia|].
      assert (C : IZR (coarse p) <= c * IZR (2 ^ POINT_BITS)).
      { apply shiftr_le_div; [unfold BITS, POINT_BITS; lia|]. eapply Rle_trans; [exact P|].
        right. rewrite Rmult_assoc, <- mult_IZR. reflexivity. }
      eapply Rle_trans;
        [|apply (worst_hinge_spec POINT_BITS t (coarse p) c i j); auto; unfold POINT_BITS; lia].
      right. rewrite !Rmult_assoc, <- !mult_IZR. reflexivity. }
  assert (NE : (0 < length t)%nat).
  { destruct t; [destruct D; congruence|cbn; lia]. }
  destruct (Rows O O NE NE) as [N [M _]]. split; [exact N|]. split; [exact M|].
  intros v a b F A B. destruct (one_view v t a b F) as [x [y [X [Y H]]]]. rewrite H.
  apply worst_inputs_are_rows; auto. intros i j I J. apply (Rows i j I J); assumption.
Qed.

Lemma silence_bounds : bounds s silence [].
Proof.
  split; [constructor; [unfold WHOLE, MASS_BITS; cbn; lia|constructor]|]. split; [cbn; lia|].
  intros v a b F A B. destruct v; cbn in F; try contradiction. cbn [hs].
  pose proof WHOLE_pos as W. unfold curve, silence. cbn [missing start masses lin].
  replace (loss_factor s 0) with 1
    by (unfold loss_factor; rewrite Rmult_0_l, Ropp_0, exp_0; reflexivity).
  rewrite Rmult_1_r. right. field. lra.
Qed.

Lemma times_within_bounds : forall cut m1 m2 m s1 s2, times_within cut m1 m2 = Some m ->
  bounds s m1 s1 -> bounds s m2 s2 -> Forall good s1 -> bounds s m (s1 ++ s2).
Proof.
  intros cut m1 m2 m s1 s2 E B1 B2 G. unfold times_within in E.
  destruct (_ <=? _)%Z; [|discriminate]. injection E as <-. apply times_bounds; assumption.
Qed.

Lemma power_within_power : forall cut m count m',
  power_within cut m count = Some m' -> m' = power cut m count.
Proof.
  induction count as [p IH|p IH|]; intros m' E; cbn [power_within power] in *.
  - destruct (power_within cut m p) as [half|]; [|discriminate].
    rewrite <- (IH half eq_refl). unfold times_within in E.
    destruct (_ <=? _)%Z; [|discriminate]. destruct (_ <=? _)%Z; [|discriminate].
    injection E as <-. reflexivity.
  - destruct (power_within cut m p) as [half|]; [|discriminate].
    rewrite <- (IH half eq_refl). unfold times_within in E.
    destruct (_ <=? _)%Z; [|discriminate]. injection E as <-. reflexivity.
  - injection E as <-. reflexivity.
Qed.

Lemma power_within_bounds : forall cut m sched count m',
  power_within cut m count = Some m' -> bounds s m sched -> Forall good sched ->
  bounds s m' (copies (Pos.to_nat count) sched).
Proof.
  intros cut m sched count m' E B G. rewrite (power_within_power _ _ _ _ E).
  apply power_bounds; assumption.
Qed.

Lemma copies_one : forall t n, copies n [One t] = map One (repeat t n).
Proof. induction n as [|n IH]; cbn; [reflexivity|]. rewrite <- IH. reflexivity. Qed.

Lemma round_measure_bounds : forall cut ts grids before done m,
  round_measure size cut before ts grids = Some m ->
  bounds s before done -> Forall good done ->
  Forall (fun entry => distributions (fst entry)) ts ->
  Forall (fun grid => (fst grid <= snd grid)%Z) grids ->
  bounds s m (done ++ map One (flat_map (fun e => repeat (fst e) (Pos.to_nat (snd e))) ts)).
Proof.
  induction ts as [|[t n] ts IH]; intros grids before done m E B G D L;
    destruct grids as [|[low high] grids]; try discriminate.
  - injection E as <-. cbn. rewrite app_nil_r. exact B.
  - cbn [round_measure] in E. inversion D as [|? ? Dt Ds]; subst. inversion L as [|? ? Lh Ls]; subst.
    cbn [fst snd] in *.
    destruct (power_within cut (table_measure size cut low high t) n) as [part|] eqn:P;
      [|discriminate].
    destruct (times_within cut before part) as [after|] eqn:Q; [|discriminate].
    assert (Bp : bounds s part (map One (repeat t (Pos.to_nat n)))).
    { rewrite <- copies_one. eapply power_within_bounds; [exact P| |].
      - apply table_measure_bounds; assumption.
      - constructor; [exact Dt|constructor]. }
    cbn [flat_map fst snd]. rewrite map_app, app_assoc.
    eapply IH; [exact E| | |exact Ds|exact Ls].
    + eapply times_within_bounds; eassumption.
    + apply Forall_app. split; [exact G|]. apply good_reports.
      rewrite Forall_forall. intros x I. apply repeat_spec in I. subst. exact Dt.
Qed.

Lemma lin_zeros_front : forall f n k l, (0 <= n)%Z -> lin f k (zeros n ++ l) = lin f (k + n) l.
Proof.
  intros f n k l N. unfold zeros. rewrite lin_app, repeat_length, Z2Nat.id by exact N.
  assert (E : forall c j, lin f j (repeat 0%Z c) = 0).
  { induction c as [|c IH]; intros j; cbn; [reflexivity|]. rewrite IH. lra. }
  rewrite E. lra.
Qed.

Lemma lin_zeros_back : forall f n k l, lin f k (l ++ zeros n) = lin f k l.
Proof.
  intros f n k l. unfold zeros. rewrite lin_app.
  assert (E : forall c j, lin f j (repeat 0%Z c) = 0).
  { induction c as [|c IH]; intros j; cbn; [reflexivity|]. rewrite IH. lra. }
  rewrite E. lra.
Qed.

Lemma zeros_nonneg : forall n, nonneg (zeros n).
Proof. intros. unfold zeros, nonneg. rewrite Forall_forall. intros x I. apply repeat_spec in I. lia. Qed.

Lemma curve_values_above : forall m low high j, nonneg (masses m) ->
  (j < length (curve_values (fall_low (powers_of size)) m low high))%nat ->
  lin (rest s (point s (low + Z.of_nat j))) (start m) (masses m) * IZR (2 ^ FINE)
  <= IZR (nth j (curve_values (fall_low (powers_of size)) m low high) 0%Z).
Proof.
  intros m low high j N J. destruct fall_low_below as [F0 F1]. unfold curve_values in *.
  set (first := Z.min (start m) low) in *.
  set (back := zeros (high + 1 - (start m + Zlength (masses m)))) in *.
  set (l := zeros (start m - first) ++ masses m ++ back) in *.
  assert (Nl : nonneg l).
  { unfold l, nonneg. apply Forall_app. split; [apply zeros_nonneg|].
    apply Forall_app. split; [exact N|apply zeros_nonneg]. }
  pose proof (reading_spec s size_pos (fall_low (powers_of size)) F0 F1 l first Nl) as R.
  destruct (reading (fall_low (powers_of size)) l) as [[all tilted] values]. cbn [snd] in *.
  destruct R as [_ [Lv [_ [_ V]]]].
  set (count := Z.to_nat (high - low + 1)) in *. set (skip := Z.to_nat (low - first)) in *.
  assert (J1 : (j < count)%nat) by (rewrite firstn_length in J; lia).
  assert (J2 : (skip + j < length values)%nat).
  { rewrite firstn_length, skipn_length in J. lia. }
  assert (E : nth j (firstn count (skipn skip values)) 0%Z = nth (skip + j) values 0%Z).
  { rewrite <- (firstn_skipn count (skipn skip values)) in J at 1.
    transitivity (nth j (skipn skip values) 0%Z).
    - rewrite <- (firstn_skipn count (skipn skip values)) at 2. rewrite app_nth1; [reflexivity|].
      rewrite firstn_length, skipn_length. lia.
    - rewrite <- (firstn_skipn skip values) at 2. rewrite app_nth2.
      + f_equal. rewrite firstn_length. lia.
      + rewrite firstn_length. lia. }
  rewrite E. rewrite Lv in J2. specialize (V (skip + j)%nat J2).
  replace (first + Z.of_nat (skip + j))%Z with (low + Z.of_nat j)%Z in V
    by (unfold skip; lia).
  eapply Rle_trans; [|exact V]. right. unfold l.
  rewrite lin_zeros_front by lia. unfold back. rewrite lin_zeros_back. do 2 f_equal. lia.
Qed.

Lemma mixed_above : forall rate value equal x y,
  (0 <? Qnum rate)%Z && (Qnum rate <=? QDen rate)%Z = true ->
  x <= IZR value -> y <= IZR equal ->
  Q2R rate * x + (1 - Q2R rate) * y <= IZR (mixed rate value equal).
Proof.
  intros rate value equal x y R X Y. pose proof (rate_range rate R) as [R0 R1].
  assert (D : 0 < IZR (QDen rate)) by (apply IZR_lt; lia).
  apply Rle_trans with (Q2R rate * IZR value + (1 - Q2R rate) * IZR equal); [nra|].
  apply Rmult_le_reg_r with (IZR (QDen rate)); [exact D|].
  eapply Rle_trans; [|apply ceil_div_ge; lia].
  rewrite plus_IZR, !mult_IZR, minus_IZR. right. unfold Q2R. field. lra.
Qed.

Lemma equal_rows_above : forall p c, IZR p <= c * IZR UNIT ->
  Rmax (1 * 1 - c * 1) 0 * IZR WHOLE * IZR (2 ^ FINE) <= IZR (equal_rows p).
Proof.
  intros p c P. pose proof WHOLE_pos as W. unfold equal_rows.
  assert (U : 0 < IZR WHOLE * IZR (2 ^ FINE))
    by (apply Rmult_lt_0_compat; [exact W|apply FINE_pos]).
  rewrite Rmult_assoc, Rmult_comm, <- RmaxRmult by lra.
  set (units := IZR WHOLE * IZR (2 ^ FINE)) in *. apply Rmax_lub.
  - apply Rle_trans with (IZR (Z.shiftl WHOLE FINE - Z.shiftr p (BITS - MASS_BITS - FINE)));
      [|apply IZR_le; lia].
    rewrite minus_IZR, shiftl_IZR by (unfold FINE; lia). fold units.
    assert (IZR (Z.shiftr p (BITS - MASS_BITS - FINE)) <= c * units).
    { apply shiftr_le_div; [unfold BITS, MASS_BITS, FINE; lia|]. eapply Rle_trans; [exact P|].
      right. unfold units. rewrite !Rmult_assoc, <- !mult_IZR. reflexivity. }
    lra.
  - rewrite Rmult_0_r. apply IZR_le. lia.
Qed.

Lemma seen_measure_bounds : forall cut rate m low high m' reports,
  seen_measure size cut rate m low high = Some m' ->
  (0 <? Qnum rate)%Z && (Qnum rate <=? QDen rate)%Z = true -> (low <= high)%Z ->
  bounds s m (map One reports) -> bounds s m' [Seen (Q2R rate) reports].
Proof.
  intros cut rate m low high m' reports E R LH [N [M H]]. unfold seen_measure in E.
  destruct (within_reach m low high); [|discriminate].
  pose proof WHOLE_pos as W. pose proof (rate_range rate R) as [R0 R1].
  set (ps := grid_points size low high) in *.
  set (values := curve_values (fall_low (powers_of size)) m low high) in *.
  destruct (length values =? length ps)%nat eqn:L; [|discriminate]. apply Nat.eqb_eq in L.
  set (us := map (fun pv => mixed rate (Z.shiftl (missing m) FINE + snd pv) (equal_rows (fst pv)))
    (combine ps values)) in *.
  destruct (proposed_good (map coarse ps) us) as [Lp Np].
  assert (Lu : length us = length ps).
  { unfold us. rewrite map_length, combine_length. lia. }
  assert (Lps : length ps = Z.to_nat (high - low + 1)) by apply grid_points_length.
  set (h := fun a b => Q2R rate * curve s m a b + (1 - Q2R rate) * Rmax (a * 1 - b * 1) 0).
  assert (Hl : curve_like h).
  { apply like_plus.
    - apply like_scale; [exact R0|]. apply like_curve. exact N.
    - apply (like_scale (1 - Q2R rate) (fun a b => Rmax (a * 1 - b * 1) 0)); [lra|].
      apply like_hinge. lra. }
  assert (Cw : forall c, curve s m 1 c * IZR WHOLE
    = IZR (missing m) + lin (rest s c) (start m) (masses m)).
  { intros c. unfold curve, Rdiv. rewrite Rmult_assoc, Rinv_l by lra. unfold rest. lra. }
  assert (Fb : nonneg (masses m') /\ (0 <= missing m')%Z /\
    forall a b, 0 <= a -> 0 <= b -> h a b <= curve s m' a b).
  { injection E as <-. apply (fitted_bounds s size_pos _ fall_up_above h); auto.
    - intros Z. rewrite Z in Lp. cbn in Lp. lia.
    - unfold h. rewrite Rmult_plus_distr_r, !Rmult_assoc, Cw.
      apply mixed_above; [exact R| |].
      + rewrite plus_IZR. apply Rplus_le_compat_l.
        rewrite (lin_ext _ (fun _ => 1)), lin_const.
        * lra.
        * intros i. unfold rest. rewrite Rmult_0_l, Rminus_0_r. apply Rmax_left. lra.
      + rewrite Rmult_1_l, Rmult_0_l, Rminus_0_r, Rmax_left; lra.
    - intros j J. rewrite Lu in J.
      pose proof (grid_points_below low high j J) as P. fold ps in P.
      unfold us. set (f := fun pv => mixed rate (Z.shiftl (missing m) FINE + snd pv) (equal_rows (fst pv))).
      rewrite (nth_indep _ 0%Z (f (0%Z, 0%Z)))
        by (rewrite map_length, combine_length; lia).
      rewrite map_nth, combine_nth by (symmetry; exact L). unfold f. cbn [fst snd].
      unfold h. rewrite Rmult_assoc, Rmult_plus_distr_r, !Rmult_assoc.
      apply mixed_above; [exact R| |].
      + rewrite <- Rmult_assoc, Cw, plus_IZR, shiftl_IZR, Rmult_plus_distr_r by (unfold FINE; lia).
        apply Rplus_le_compat_l. apply curve_values_above; [exact N|].
        fold values. lia.
      + rewrite <- Rmult_assoc. apply equal_rows_above. exact P. }
  destruct Fb as [N' [M' H']]. split; [exact N'|]. split; [exact M'|].
  intros v a b F A B. eapply Rle_trans; [|apply H'; assumption].
  destruct v as [| |rate' present absent]; cbn [follows] in F; try contradiction.
  destruct F as [-> [Fp Fa]]. rewrite app_nil_r in Fp.
  destruct absent; cbn in Fa; try contradiction. cbn [hs]. unfold h.
  apply Rplus_le_compat.
  - eapply Rle_trans; [apply H; [exact Fp|nra|nra]|].
    rewrite (scales _ (like_curve s m N)) by exact R0. lra.
  - right. rewrite !Rmult_1_r.
    replace ((1 - Q2R rate) * a - (1 - Q2R rate) * b) with ((1 - Q2R rate) * (a - b)) by ring.
    replace 0 with ((1 - Q2R rate) * 0) at 1 by ring. apply RmaxRmult. lra.
Qed.

Lemma delta_of_above : forall eps m, nonneg (masses m) ->
  curve s m 1 (exp (Q2R eps)) * IZR WHOLE <= IZR (delta_of size eps m).
Proof.
  intros eps m N. pose proof WHOLE_pos as W. set (e := exp (Q2R eps)).
  assert (Cw : curve s m 1 e * IZR WHOLE = IZR (missing m) + lin (rest s e) (start m) (masses m)).
  { unfold curve, Rdiv. rewrite Rmult_assoc, Rinv_l by lra. unfold rest. lra. }
  rewrite Cw. clear Cw. unfold delta_of.
  set (above := ((Qnum eps * QDen size) / (QDen eps * Qnum size) + 1)%Z).
  set (low := Z.max above (start m)).
  set (n := Z.to_nat (Z.min (low - start m) (Zlength (masses m)))).
  pose proof (Zlength_correct (masses m)) as Len.
  destruct (Qle_bool eps (multiple low size)
    && ((low =? start m)%Z || Qle_bool (multiple (low - 1) size) eps)) eqn:T.
  - apply andb_true_iff in T. destruct T as [T1 T2].
    apply Qle_bool_iff in T1. apply Qle_Rle in T1. rewrite multiple_R in T1. fold s in T1.
    set (tail := skipn n (masses m)).
    assert (Nt : nonneg (firstn n (masses m)) /\ nonneg tail).
    { unfold nonneg, tail. apply Forall_app. rewrite firstn_skipn. exact N. }
    destruct Nt as [Nf Nt]. destruct fall_low_below as [F0 F1].
    destruct (tilted_sum_spec s (fall_low (powers_of size)) F0 F1 tail low Nt) as [P Q].
    destruct (exp_lower_le (eps - multiple low size)) as [X0 X1].
    set (tilted := tilted_sum (fall_low (powers_of size)) tail) in *.
    set (factor := exp_lower (eps - multiple low size)) in *.
    set (sum := lin (fun i => loss_factor s (i - low)) low tail) in *.
    assert (S0 : 0 <= sum).
    { apply lin_nonneg; [exact Nt|]. intros. left. apply loss_factor_pos. }
    set (x := exp (Q2R eps - IZR low * s)).
    assert (Ex : exp (Q2R (eps - multiple low size)) = x).
    { unfold x, s. rewrite Q2R_minus, multiple_R. reflexivity. }
    rewrite Ex in X1.
    assert (B : IZR (Z.shiftr (tilted * factor) (FINE + BITS)) <= sum * x).
    { apply shiftr_le_div; [unfold FINE, BITS; lia|]. rewrite mult_IZR.
      replace (IZR (2 ^ (FINE + BITS))) with (IZR (2 ^ FINE) * IZR UNIT)
        by (rewrite <- mult_IZR; reflexivity).
      replace (sum * x * (IZR (2 ^ FINE) * IZR UNIT))
        with ((sum * IZR (2 ^ FINE)) * (x * IZR UNIT)) by ring.
      apply Rmult_le_compat; auto; apply IZR_le; assumption. }
    rewrite minus_IZR, plus_IZR.
    assert (Ee : forall i, e * loss_factor s i = x * loss_factor s (i - low)).
    { intros i. unfold e, x, loss_factor. rewrite <- !exp_plus, minus_IZR. f_equal. ring. }
    assert (H : lin (rest s e) (start m) (masses m) <= IZR (total tail) - sum * x).
    { rewrite <- (firstn_skipn n (masses m)), lin_app. fold tail.
      assert (Z1 : lin (rest s e) (start m) (firstn n (masses m)) <= 0).
      { destruct (low =? start m)%Z eqn:Q0.
        - apply Z.eqb_eq in Q0. replace n with O by (unfold n; lia). cbn. lra.
        - cbn [orb] in T2. apply Qle_bool_iff in T2. apply Qle_Rle in T2.
          rewrite multiple_R in T2. fold s in T2. right.
          rewrite (lin_ext_range _ (fun _ => 0)); [rewrite lin_const; ring|].
          intros i I. unfold rest. apply Rmax_right.
          assert (1 <= e * loss_factor s i); [|lra].
          unfold e, loss_factor. rewrite <- exp_plus. apply exp_above_1.
          rewrite firstn_length in I.
          assert (IZR i <= IZR (low - 1)) by (apply IZR_le; unfold n in I; lia).
          pose proof size_pos. nra. }
      assert (Z2 : lin (rest s e) (start m + Z.of_nat (length (firstn n (masses m)))) tail
        <= IZR (total tail) - sum * x).
      { destruct (Nat.le_gt_cases (length (masses m)) n) as [C|C].
        - unfold sum, tail. rewrite skipn_all2 by exact C. cbn. lra.
        - rewrite firstn_length, Nat.min_l by lia.
          replace (start m + Z.of_nat n)%Z with low by (unfold n in *; lia).
          right. rewrite (lin_ext_range _ (fun i => 1 + - x * loss_factor s (i - low))).
          + rewrite lin_plus, lin_scale, lin_const. fold sum. ring.
          + intros i I. unfold rest. rewrite Ee. rewrite Rmax_left; [ring|].
            assert (x * loss_factor s (i - low) <= 1); [|lra].
            rewrite <- Ee. unfold e, loss_factor. rewrite <- exp_plus. apply exp_below_1.
            assert (IZR low <= IZR i) by (apply IZR_le; lia).
            pose proof size_pos. nra. }
      lra. }
    lra.
  - rewrite plus_IZR. apply Rplus_le_compat_l.
    apply Rle_trans with (lin (fun _ => 1) (start m) (masses m)).
    + apply lin_le; [exact N|]. intros i. unfold rest. apply Rmax_lub; [|lra].
      assert (0 <= e * loss_factor s i); [|lra].
      apply Rmult_le_pos; left; [apply exp_pos|apply loss_factor_pos].
    + rewrite lin_const. lra.
Qed.

Theorem check_total_sound : forall c cut m, tables_good c = true -> rate_good c = true ->
  bounds s m (round_steps c) -> check_total c size cut m = Certified ->
  private (schedule c) (exp (Q2R (epsilon c))) (Q2R (delta c)).
Proof.
  intros c cut m T R B H. unfold check_total in H.
  destruct (power_within cut m (rounds c)) as [all|] eqn:P; [|discriminate].
  apply require_certified in H. destruct H as [L _]. apply Z.leb_le in L.
  assert (Ba : bounds s all (schedule c)).
  { eapply power_within_bounds; [exact P|exact B|]. apply round_good; assumption. }
  destruct Ba as [N [_ Hv]]. pose proof WHOLE_pos as W.
  apply private_by_divergence; [apply exp_Q_pos|apply schedule_good; assumption|].
  intros v F.
  assert (D : hs v 1 (exp (Q2R (epsilon c))) * IZR WHOLE
    <= IZR (Z.min WHOLE (delta_of size (epsilon c) all))).
  { apply Z.min_case_strong; intros _.
    - pose proof (hs_le_first v (schedule c) 1 (exp (Q2R (epsilon c))) F
        (schedule_good c T R) Rle_0_1 (exp_Q_pos _)). nra.
    - eapply Rle_trans; [|apply delta_of_above; exact N].
      apply Rmult_le_compat_r; [lra|]. apply Hv; [exact F|lra|apply exp_Q_pos]. }
  assert (Q : 0 < IZR (QDen (delta c))) by (apply IZR_lt; lia).
  apply IZR_le in L. rewrite !mult_IZR in L.
  apply Rmult_le_reg_r with (IZR WHOLE); [exact W|]. eapply Rle_trans; [exact D|].
  apply Rmult_le_reg_r with (IZR (QDen (delta c))); [exact Q|]. eapply Rle_trans; [exact L|].
  right. unfold Q2R. field. lra.
Qed.

End Step.

Theorem check_losses_sound : forall c size cut grids again,
  tables_good c = true -> rate_good c = true ->
  check_losses c size cut grids again = Certified ->
  private (schedule c) (exp (Q2R (epsilon c))) (Q2R (delta c)).
Proof.
  intros c size cut grids again T R H. unfold check_losses in H.
  apply require_certified in H. destruct H as [S H].
  apply require_certified in H. destruct H as [_ H].
  apply require_certified in H. destruct H as [G H].
  assert (LH : forall grid, grid_good size grid = true -> (fst grid <= snd grid)%Z).
  { intros [low high] E. unfold grid_good in E. rewrite !andb_true_iff in E.
    apply Z.leb_le. apply E. }
  assert (B : forall m, round_measure size cut silence (tables c) grids = Some m ->
    bounds (Q2R size) m (map One (one_round c))).
  { intros m E. change (map One (one_round c)) with ([] ++ map One (one_round c)).
    eapply round_measure_bounds; [exact S|exact E|apply silence_bounds|constructor| |].
    - apply tables_distributions. exact T.
    - rewrite Forall_forall. rewrite forallb_forall in G. intros grid I. apply LH. auto. }
  destruct (seen c) as [rate|] eqn:Sc.
  - destruct again as [[low high]|]; [|discriminate].
    apply require_certified in H. destruct H as [Gg H].
    destruct (round_measure size cut silence (tables c) grids) as [m|]; [|discriminate].
    specialize (B m eq_refl).
    destruct (seen_measure size cut rate m low high) as [m'|] eqn:Em; [|discriminate].
    eapply (check_total_sound size S); [exact T|exact R| |exact H].
    unfold round_steps. rewrite Sc. eapply seen_measure_bounds; [exact S|exact Em| | |exact B].
    + unfold rate_good in R. rewrite Sc in R. exact R.
    + exact (LH _ Gg).
  - destruct (round_measure size cut silence (tables c) grids) as [m|]; [|discriminate].
    eapply (check_total_sound size S); [exact T|exact R| |exact H].
    unfold round_steps. rewrite Sc. apply B. reflexivity.
Qed.
