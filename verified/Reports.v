(** Claims about reports without losses: pure epsilon, and one report at one epsilon. *)

From Coq Require Import Reals QArith Qreals ZArith List Lra Lia Bool.
From Mezzotint Require Import Definitions Divergence Exponential Losses Product Envelope Fit.
Import ListNotations.
Open Scope R_scope.

(** * Proofs and verdicts *)

Inductive proof :=
  | Ratio  (** the sum of the logarithms of all worst ratios *)
  | Delta  (** one report, at one epsilon *)
  | Losses (size : Q) (cut : Z) (grids : list (Z * Z)) (again : option (Z * Z)).
      (** a grid (low, high) of losses for each table, in steps of [size]; what products may drop at
          either end; and a grid for rounds in which somebody takes part by chance *)

Inductive reason :=
  | NotDistributions | EpsilonOutOfRange | DeltaNegative | RateOutOfRange
  | NotPure | EpsilonTooSmall
  | NotOneReport
  | StepOutOfRange | NotOneGridPerTable | GridOutOfRange | NoGridForRounds | TooManyEntries
  | DeltaTooSmall (have : Q).

Inductive verdict := Certified | Refused (why : reason).

(** A notation, not a function: the extracted program computes [otherwise] only after the check. *)
Notation require holds why otherwise := (if holds then otherwise else Refused why) (only parsing).

Lemma require_certified : forall (b : bool) why v,
  require b why v = Certified -> b = true /\ v = Certified.
Proof. intros [|] why v H; [split; auto|discriminate]. Qed.

(** * Tables *)

Definition row_good (size : nat) (row : list Z) : bool :=
  (length row =? size)%nat && forallb (Z.leb 0) row && (total row =? TOTAL)%Z.

Definition table_good (t : table) : bool :=
  negb (length t =? 0)%nat && forallb (row_good (levels t)) t.

Lemma table_good_distributions : forall t, table_good t = true -> distributions t.
Proof.
  intros t H. unfold table_good in H. apply andb_true_iff in H. destruct H as [N H].
  split.
  - intros E. subst t. discriminate.
  - intros row I. rewrite forallb_forall in H. specialize (H row I).
    unfold row_good in H. rewrite !andb_true_iff in H. destruct H as [[L P] T].
    split; [apply Nat.eqb_eq; exact L|]. split; [|apply Z.eqb_eq; exact T].
    rewrite Forall_forall. rewrite forallb_forall in P. intros m Im. apply Z.leb_le. auto.
Qed.

(** Rows without repetition. *)
Definition distinct (t : table) : list (list Z) := nodup (list_eq_dec Z.eq_dec) t.

Lemma distinct_row : forall t i, (i < length t)%nat -> In (nth i t []) (distinct t).
Proof. intros. apply nodup_In. apply nth_In. assumption. Qed.

Definition all_pairs (test : list Z -> list Z -> bool) (t : table) : bool :=
  let rows := distinct t in forallb (fun p => forallb (test p) rows) rows.

Lemma all_pairs_spec : forall test t i j, all_pairs test t = true ->
  (i < length t)%nat -> (j < length t)%nat -> test (nth i t []) (nth j t []) = true.
Proof.
  intros test t i j H I J. unfold all_pairs in H. rewrite forallb_forall in H.
  specialize (H _ (distinct_row t i I)). rewrite forallb_forall in H.
  apply H. apply distinct_row. exact J.
Qed.

(** * Divergences of rows at a point *)

(** Sum of max(2^bits p - c q, 0) over levels; the first row is given times 2^bits. *)
Fixpoint row_hinge (c : Z) (lifted q : list Z) : Z :=
  match lifted, q with
  | x :: lifted', y :: q' => (Z.max (x - c * y) 0 + row_hinge c lifted' q')%Z
  | _, _ => 0%Z
  end.

Definition lifted (bits : Z) (row : list Z) : list Z := map (fun p => Z.shiftl p bits) row.

Fixpoint largest (l : list Z) : Z :=
  match l with
  | [] => 0%Z
  | m :: l' => Z.max m (largest l')
  end.

Lemma largest_ge : forall l m, In m l -> (m <= largest l)%Z.
Proof.
  induction l as [|x l IH]; intros m I; [destruct I|]. cbn.
  destruct I as [->|I]; [lia|]. specialize (IH m I). lia.
Qed.

(** The largest over ordered pairs of rows, equal ones among them. *)
Definition worst_hinge (pairs : list (list Z * list Z)) (c : Z) : Z :=
  largest (flat_map (fun p => map (fun q => row_hinge c (fst p) (snd q)) pairs) pairs).

Definition row_pairs (bits : Z) (t : table) : list (list Z * list Z) :=
  map (fun row => (lifted bits row, row)) (distinct t).

Lemma row_hinge_sum : forall bits c real_c p q, (0 <= bits)%Z ->
  IZR c <= real_c * IZR (2 ^ bits) -> length p = length q -> Forall (Z.le 0) q ->
  sum (fun o => Rmax (IZR (nth o p 0%Z) - real_c * IZR (nth o q 0%Z)) 0) (length p)
    * IZR (2 ^ bits) <= IZR (row_hinge c (lifted bits p) q).
Proof.
  intros bits c real_c p q B C. revert q.
  assert (U : 0 < IZR (2 ^ bits)) by (apply IZR_lt; apply Z.pow_pos_nonneg; lia).
  induction p as [|x p IH]; intros [|y q] L N; try discriminate.
  - cbn. lra.
  - inversion N; subst. specialize (IH q ltac:(cbn in L; lia) H2).
    change (length (x :: p)) with (S (length p)). rewrite sum_S. cbn [nth lifted map row_hinge].
    fold (lifted bits p). rewrite plus_IZR.
    assert (Y : 0 <= IZR y) by (apply IZR_le; assumption).
    assert (E : Rmax (IZR x - real_c * IZR y) 0 * IZR (2 ^ bits)
      <= IZR (Z.max (Z.shiftl x bits - c * y) 0)).
    { rewrite Rmult_comm. rewrite <- RmaxRmult by lra. apply Rmax_lub.
      - apply Rle_trans with (IZR (Z.shiftl x bits - c * y)); [|apply IZR_le; lia].
        rewrite minus_IZR, mult_IZR, shiftl_IZR by exact B. nra.
      - rewrite Rmult_0_r. apply IZR_le. lia. }
    lra.
Qed.

Lemma worst_hinge_spec : forall bits t c real_c i j, (0 <= bits)%Z ->
  distributions t -> (i < length t)%nat -> (j < length t)%nat ->
  IZR c <= real_c * IZR (2 ^ bits) ->
  hinge t 1 real_c (knot i) (knot j) * (IZR TOTAL * IZR (2 ^ bits))
  <= IZR (worst_hinge (row_pairs bits t) c).
Proof.
  intros bits t c real_c i j B [NE D] I J C. pose proof TOTAL_pos as T.
  destruct (D (nth i t []) (nth_In _ _ I)) as [Li _].
  destruct (D (nth j t []) (nth_In _ _ J)) as [Lj [Nj _]].
  apply Rle_trans with (IZR (row_hinge c (lifted bits (nth i t [])) (nth j t []))).
  - eapply Rle_trans;
      [|apply (row_hinge_sum bits c real_c (nth i t []) (nth j t []) B C ltac:(congruence) Nj)].
    rewrite Li. right. unfold hinge.
    replace (sum (fun o => Rmax (1 * chance t (knot i) o - real_c * chance t (knot j) o) 0) (levels t)
      * (IZR TOTAL * IZR (2 ^ bits)))
      with ((IZR TOTAL * sum (fun o => Rmax (1 * chance t (knot i) o
        - real_c * chance t (knot j) o) 0) (levels t)) * IZR (2 ^ bits)) by ring.
    f_equal. rewrite <- sum_scale. apply sum_ext. intros o _.
    rewrite <- RmaxRmult by lra. f_equal; [|ring].
    unfold chance, knot, weight. cbn -[TOTAL]. field. lra.
  - apply IZR_le. apply largest_ge. apply in_flat_map.
    exists (lifted bits (nth i t []), nth i t []). split.
    + unfold row_pairs. apply in_map_iff. exists (nth i t []). split; [reflexivity|].
      apply distinct_row. exact I.
    + apply in_map_iff. exists (lifted bits (nth j t []), nth j t []). split; [reflexivity|].
      unfold row_pairs. apply in_map_iff. exists (nth j t []). split; [reflexivity|].
      apply distinct_row. exact J.
Qed.

(** * Kind [ratio] *)

Definition LOG_UNIT : positive := (2 ^ 160)%positive.

(** Whether e^(log / 2^160) is surely at or above every ratio of two weights of a level. *)
Definition log_covers (t : table) (log : Z) : bool :=
  let bound := exp_lower (log # LOG_UNIT) in
  all_pairs (fun p q =>
    (row_hinge bound (lifted BITS p) q =? 0)%Z) t.

(** The largest ratio as (numerator, denominator); only used to look for a logarithm. *)
Fixpoint worst_of_rows (p q : list Z) (worst : Z * Z) : Z * Z :=
  match p, q with
  | x :: p', y :: q' =>
      worst_of_rows p' q'
        (if (0 <? y)%Z && (fst worst * y <? x * snd worst)%Z then (x, y) else worst)
  | _, _ => worst
  end.

Definition worst_of_table (t : table) : Z * Z :=
  let rows := distinct t in
  fold_left (fun worst p => fold_left (fun worst q => worst_of_rows p q worst) rows worst)
    rows (1, 1)%Z.

Fixpoint bisected (steps : nat) (ratio : Z * Z) (low high : Z) : Z :=
  match steps with
  | O => high
  | S k =>
      if (high - low <=? 1)%Z then high
      else
        let middle := Z.div2 (low + high) in
        if (fst ratio * UNIT <=? exp_lower (middle # LOG_UNIT) * snd ratio)%Z
        then bisected k ratio low middle else bisected k ratio middle high
  end.

(** A logarithm of the worst ratio, rounded up. *)
Definition log_of (t : table) : Z :=
  let ratio := worst_of_table t in
  if (fst ratio =? snd ratio)%Z then 0%Z
  else bisected 200 ratio 0 (Z.shiftl (Z.log2 (fst ratio) + 1) 160).

Definition log_bound (t : table) : R := exp (Q2R (log_of t # LOG_UNIT)).

Lemma row_hinge_zero : forall c p q o, (0 <= o < length p)%nat -> length p = length q ->
  row_hinge c p q = 0%Z -> (nth o p 0 <= c * nth o q 0)%Z.
Proof.
  assert (N : forall c p q, (0 <= row_hinge c p q)%Z).
  { intros c. induction p as [|x p IH]; intros [|y q]; cbn; try lia. specialize (IH q). lia. }
  intros c. induction p as [|x p IH]; intros [|y q] o O L H; cbn in *; try lia.
  pose proof (N c p q). destruct o as [|o]; [lia|]. apply IH; lia.
Qed.

Lemma log_covers_pure : forall t, distributions t ->
  (0 <=? log_of t)%Z && log_covers t (log_of t) = true -> pure t (log_bound t).
Proof.
  intros t [NE D] H. apply andb_true_iff in H. destruct H as [P H]. apply Z.leb_le in P.
  pose proof (exp_lower_le (log_of t # LOG_UNIT)) as [E0 E]. pose proof UNIT_pos as U.
  split.
  - unfold log_bound. apply exp_above_1. unfold Q2R. cbn [Qnum Qden].
    apply Rmult_le_pos; [apply IZR_le; exact P|]. left. apply Rinv_0_lt_compat. apply IZR_lt. lia.
  - intros i j o I J O. pose proof (all_pairs_spec _ t i j H I J) as Z. cbn beta in Z.
    apply Z.eqb_eq in Z.
    destruct (D (nth i t []) (nth_In _ _ I)) as [Li _].
    destruct (D (nth j t []) (nth_In _ _ J)) as [Lj [Nj _]].
    assert (A : (Z.shiftl (weight t i o) BITS <= exp_lower (log_of t # LOG_UNIT) * weight t j o)%Z).
    { unfold weight.
      replace (Z.shiftl (nth o (nth i t []) 0) BITS)%Z
        with (nth o (lifted BITS (nth i t [])) 0)%Z.
      - apply row_hinge_zero; [| |exact Z]; unfold lifted; rewrite map_length; [lia|congruence].
      - unfold lifted. rewrite <- (Z.shiftl_0_l BITS) at 1.
        apply (map_nth (fun p => Z.shiftl p BITS)). }
    apply IZR_le in A. rewrite shiftl_IZR, mult_IZR in A by (unfold BITS; lia). fold UNIT in A.
    assert (W : 0 <= IZR (weight t j o)).
    { apply IZR_le. apply weight_nonneg; [split; assumption|exact J]. }
    apply Rmult_le_reg_r with (IZR UNIT); [exact U|]. eapply Rle_trans; [exact A|].
    replace (log_bound t * IZR (weight t j o) * IZR UNIT)
      with ((log_bound t * IZR UNIT) * IZR (weight t j o)) by ring.
    apply Rmult_le_compat_r; [exact W|exact E].
Qed.

(** The logarithms of a round, in units of 2^-160. *)
Definition round_log (c : claim) : Z :=
  fold_right (fun entry sum => (Zpos (snd entry) * log_of (fst entry) + sum)%Z) 0%Z (tables c).

Definition check_ratio (c : claim) : verdict :=
  require (forallb (fun entry => (0 <=? log_of (fst entry))%Z
      && log_covers (fst entry) (log_of (fst entry))) (tables c)) NotPure
  (require (Zpos (rounds c) * round_log c * QDen (epsilon c)
      <=? Qnum (epsilon c) * Zpos LOG_UNIT)%Z EpsilonTooSmall
   Certified).

Definition log_sum (l : list table) : R := fold_right (fun t x => Q2R (log_of t # LOG_UNIT) + x) 0 l.

Lemma product_exp : forall l, fold_right Rmult 1 (map log_bound l) = exp (log_sum l).
Proof.
  induction l as [|t l IH]; cbn; [symmetry; apply exp_0|]. rewrite IH. unfold log_bound.
  symmetry. apply exp_plus.
Qed.

Lemma log_sum_app : forall l1 l2, log_sum (l1 ++ l2) = log_sum l1 + log_sum l2.
Proof.
  unfold log_sum. induction l1 as [|t l IH]; intros l2; cbn [app fold_right]; [lra|].
  rewrite IH. lra.
Qed.

Lemma log_sum_repeat : forall t n, log_sum (repeat t n) = INR n * Q2R (log_of t # LOG_UNIT).
Proof.
  induction n as [|n IH]; [cbn; lra|]. cbn [repeat]. rewrite S_INR.
  cbn [log_sum fold_right]. fold (log_sum (repeat t n)). rewrite IH. lra.
Qed.

Lemma INR_pos : forall p, INR (Pos.to_nat p) = IZR (Zpos p).
Proof. intros. rewrite INR_IZR_INZ, positive_nat_Z. reflexivity. Qed.

Lemma log_sum_round : forall c, log_sum (one_round c) = IZR (round_log c) / IZR (Zpos LOG_UNIT).
Proof.
  intros c. unfold one_round, round_log. induction (tables c) as [|[t n] l IH].
  - cbn -[LOG_UNIT]. unfold Rdiv. rewrite Rmult_0_l. reflexivity.
  - cbn [flat_map fold_right fst snd]. rewrite log_sum_app, IH, log_sum_repeat, INR_pos.
    rewrite plus_IZR, mult_IZR. unfold Q2R. cbn [Qnum Qden]. field.
    apply Rgt_not_eq. apply IZR_lt. lia.
Qed.

Lemma ratio_of_copies : forall n s,
  ratio_of log_bound (copies n s) = ratio_of log_bound s ^ n.
Proof.
  assert (A : forall s1 s2, ratio_of log_bound (s1 ++ s2)
    = ratio_of log_bound s1 * ratio_of log_bound s2).
  { induction s1 as [|[t|r l] s1 IH]; intros s2; cbn; try rewrite IH; lra. }
  induction n as [|n IH]; intros s; cbn; [reflexivity|]. rewrite A, IH. reflexivity.
Qed.

Lemma all_pure_copies : forall ratio n s, all_pure ratio s -> all_pure ratio (copies n s).
Proof.
  assert (A : forall ratio s1 s2, all_pure ratio s1 -> all_pure ratio s2 -> all_pure ratio (s1 ++ s2)).
  { induction s1 as [|[t|r l] s1 IH]; intros s2 H1 H2; cbn in *; auto; destruct H1; split; auto. }
  induction n as [|n IH]; intros s H; cbn; [exact I|]. auto.
Qed.

Lemma pow_exp : forall x n, exp x ^ n = exp (INR n * x).
Proof.
  induction n as [|n IH]; [cbn; rewrite Rmult_0_l, exp_0; reflexivity|].
  rewrite S_INR. cbn [pow]. rewrite IH, <- exp_plus. f_equal. lra.
Qed.

(** * Schedules of claims *)

Definition rate_good (c : claim) : bool :=
  match seen c with
  | None => true
  | Some r => (0 <? Qnum r)%Z && (Qnum r <=? QDen r)%Z
  end.

Definition tables_good (c : claim) : bool := forallb (fun entry => table_good (fst entry)) (tables c).

Lemma rate_positive : forall r, (0 <? Qnum r)%Z && (Qnum r <=? QDen r)%Z = true -> 0 < Q2R r.
Proof.
  intros r H. apply andb_true_iff in H. destruct H as [A _]. apply Z.ltb_lt in A. unfold Q2R.
  apply Rmult_lt_0_compat; [apply IZR_lt; exact A|]. apply Rinv_0_lt_compat. apply IZR_lt. lia.
Qed.

Lemma rate_range : forall r, (0 <? Qnum r)%Z && (Qnum r <=? QDen r)%Z = true -> 0 <= Q2R r <= 1.
Proof.
  intros r H. apply andb_true_iff in H. destruct H as [A B].
  apply Z.ltb_lt in A. apply Z.leb_le in B. unfold Q2R.
  assert (D : 0 < IZR (Zpos (Qden r))) by (apply IZR_lt; lia).
  assert (0 <= IZR (Qnum r)) by (apply IZR_le; lia).
  assert (IZR (Qnum r) <= IZR (Zpos (Qden r))) by (apply IZR_le; exact B).
  split.
  - apply Rmult_le_pos; [assumption|]. left. apply Rinv_0_lt_compat. exact D.
  - apply Rmult_le_reg_r with (IZR (Zpos (Qden r))); [exact D|].
    rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

Lemma tables_distributions : forall c, tables_good c = true ->
  Forall (fun entry => distributions (fst entry)) (tables c).
Proof.
  intros c H. rewrite Forall_forall. unfold tables_good in H. rewrite forallb_forall in H.
  intros e I. apply table_good_distributions. apply H. exact I.
Qed.

Lemma round_all : forall (P : table -> Prop) c,
  Forall (fun entry => P (fst entry)) (tables c) -> Forall P (one_round c).
Proof.
  intros P c H. unfold one_round. induction (tables c) as [|[t n] l IH]; cbn; [constructor|].
  inversion H; subst. apply Forall_app. split; [|apply IH; assumption].
  rewrite Forall_forall. intros x I. apply repeat_spec in I. subst. assumption.
Qed.

Definition round_steps (c : claim) : list step :=
  match seen c with
  | None => map One (one_round c)
  | Some rate => [Seen (Q2R rate) (one_round c)]
  end.

Lemma round_good : forall c, tables_good c = true -> rate_good c = true ->
  Forall good (round_steps c).
Proof.
  intros c T R. pose proof (round_all _ c (tables_distributions c T)) as D.
  unfold round_steps, rate_good in *. destruct (seen c) as [r|].
  - constructor; [|constructor]. split; [apply rate_range; exact R|exact D].
  - apply good_reports. exact D.
Qed.

Lemma schedule_good : forall c, tables_good c = true -> rate_good c = true ->
  Forall good (schedule c).
Proof. intros. apply good_copies. apply round_good; assumption. Qed.

Lemma exp_Q_pos : forall q, 0 <= exp (Q2R q).
Proof. intros. left. apply exp_pos. Qed.

Theorem check_ratio_sound : forall c, tables_good c = true -> rate_good c = true ->
  (0 <= Qnum (delta c))%Z -> check_ratio c = Certified ->
  private (schedule c) (exp (Q2R (epsilon c))) (Q2R (delta c)).
Proof.
  intros c T R D0 H. apply require_certified in H. destruct H as [P H].
  apply require_certified in H. destruct H as [E _]. apply Z.leb_le in E.
  pose proof (tables_distributions c T) as D.
  apply private_by_divergence; [apply exp_Q_pos|apply schedule_good; assumption|].
  intros v F. rewrite (pure_views log_bound v (schedule c)); auto using schedule_good; try lra.
  - unfold Q2R. apply Rmult_le_pos; [apply IZR_le; exact D0|].
    left. apply Rinv_0_lt_compat. apply IZR_lt. lia.
  - assert (PT : Forall (fun t => pure t (log_bound t)) (one_round c)).
    { apply round_all. rewrite Forall_forall in *. rewrite forallb_forall in P. intros e I.
      apply log_covers_pure; [apply D; exact I|apply P; exact I]. }
    apply all_pure_copies. destruct (seen c) as [r|].
    + split; [exact PT|exact I].
    + rewrite <- (app_nil_r (map One (one_round c))). apply all_pure_app; [exact PT|exact I].
  - rewrite Rmult_1_l. unfold schedule. rewrite ratio_of_copies.
    replace (ratio_of log_bound (match seen c with
      | None => map One (one_round c) | Some rate => [Seen (Q2R rate) (one_round c)] end))
      with (exp (log_sum (one_round c))).
    + rewrite pow_exp. rewrite INR_pos, log_sum_round.
      set (x := IZR (Z.pos (rounds c)) * (IZR (round_log c) / IZR (Z.pos LOG_UNIT))).
      assert (X : x <= Q2R (epsilon c)).
      { unfold x, Q2R. apply IZR_le in E. rewrite !mult_IZR in E.
        assert (0 < IZR (Zpos (Qden (epsilon c)))) by (apply IZR_lt; lia).
        assert (0 < IZR (Zpos LOG_UNIT)) by (apply IZR_lt; lia).
        apply Rmult_le_reg_r with (IZR (Zpos (Qden (epsilon c))) * IZR (Zpos LOG_UNIT)); [nra|].
        replace (IZR (Z.pos (rounds c)) * (IZR (round_log c) / IZR (Z.pos LOG_UNIT))
          * (IZR (Z.pos (Qden (epsilon c))) * IZR (Z.pos LOG_UNIT)))
          with (IZR (Z.pos (rounds c)) * IZR (round_log c) * IZR (Z.pos (Qden (epsilon c))))
          by (field; lra).
        eapply Rle_trans; [exact E|]. right. field. lra. }
      destruct X as [X|X]; [left; apply exp_increasing; exact X|right; rewrite X; reflexivity].
    + rewrite <- product_exp. destruct (seen c) as [r|]; cbn [ratio_of]; [lra|].
      rewrite <- (app_nil_r (map One (one_round c))), ratio_of_app. cbn. lra.
Qed.

(** * Kind [delta]: one report, at one epsilon *)

Definition FACTOR : Z := 64%Z.

Definition rate_of (c : claim) : Q := match seen c with None => 1 | Some r => r end.

Definition check_delta (c : claim) : verdict :=
  match tables c with
  | [(t, xH)] =>
      require (Z.pos (rounds c) =? 1)%Z NotOneReport
      (let factor := Z.shiftr (exp_lower (epsilon c)) (BITS - FACTOR) in
       let worst := worst_hinge (row_pairs FACTOR t) factor in
       let have := (Qnum (rate_of c) * worst)%Z in
       require (have * QDen (delta c)
           <=? Qnum (delta c) * QDen (rate_of c) * (TOTAL * 2 ^ FACTOR))%Z
         (DeltaTooSmall (have # (Qden (rate_of c) * (2 ^ 96)%positive)))
       Certified)
  | _ => Refused NotOneReport
  end.

Lemma one_view : forall v t a b, follows v [One t] -> exists x y,
  input_of t x /\ input_of t y /\ hs v a b = hinge t a b x y.
Proof.
  intros v t a b F. destruct v as [|t' x y next|]; cbn in F; try contradiction.
  destruct F as [-> [X [Y F]]]. exists x, y. split; [exact X|]. split; [exact Y|].
  cbn [hs]. unfold hinge. apply sum_ext. intros o _. specialize (F o).
  destruct (next o); cbn in F; try contradiction. reflexivity.
Qed.

Theorem check_delta_sound : forall c, tables_good c = true -> rate_good c = true ->
  (0 <= Qnum (epsilon c))%Z -> check_delta c = Certified ->
  private (schedule c) (exp (Q2R (epsilon c))) (Q2R (delta c)).
Proof.
  intros c T R E0 H.
  apply private_by_divergence; [apply exp_Q_pos|apply schedule_good; assumption|].
  pose proof (tables_distributions c T) as D. pose proof (round_good c T R) as RG.
  unfold check_delta in H. unfold schedule, one_round, round_steps, rate_of, rate_good in *.
  destruct (tables c) as [|[t n] [|]]; try discriminate; destruct n; try discriminate.
  apply require_certified in H. destruct H as [N H]. apply Z.eqb_eq in N.
  apply require_certified in H. destruct H as [L _]. apply Z.leb_le in L.
  replace (Pos.to_nat (rounds c)) with 1%nat by lia.
  inversion D as [|? ? Dt _]; subst. cbn [fst] in Dt. clear D.
  set (factor := Z.shiftr (exp_lower (epsilon c)) (BITS - FACTOR)) in *.
  set (worst := worst_hinge (row_pairs FACTOR t) factor) in *.
  pose proof (exp_lower_le (epsilon c)) as [_ B]. pose proof TOTAL_pos as TP.
  assert (C : IZR factor <= exp (Q2R (epsilon c)) * IZR (2 ^ FACTOR)).
  { apply shiftr_le_div; [unfold BITS, FACTOR; lia|]. eapply Rle_trans; [exact B|]. right.
    rewrite Rmult_assoc, <- mult_IZR. reflexivity. }
  set (e := exp (Q2R (epsilon c))) in *.
  assert (F0 : 0 < IZR (2 ^ FACTOR)) by (apply IZR_lt; unfold FACTOR; lia).
  assert (Wt : forall x y, input_of t x -> input_of t y ->
    hinge t 1 e x y <= IZR worst / (IZR TOTAL * IZR (2 ^ FACTOR))).
  { apply worst_inputs_are_rows. intros i j I J.
    apply Rmult_le_reg_r with (IZR TOTAL * IZR (2 ^ FACTOR)); [nra|].
    eapply Rle_trans; [apply (worst_hinge_spec FACTOR t factor e i j); auto; unfold FACTOR; lia|].
    fold worst. right. field. split; lra. }
  assert (E1 : 1 <= e).
  { apply exp_above_1. unfold Q2R. apply Rmult_le_pos; [apply IZR_le; exact E0|].
    left. apply Rinv_0_lt_compat. apply IZR_lt. lia. }
  assert (Fin : Q2R (match seen c with None => 1%Q | Some r => r end)
      * (IZR worst / (IZR TOTAL * IZR (2 ^ FACTOR))) <= Q2R (delta c)).
  { apply IZR_le in L. rewrite !mult_IZR in L. unfold Q2R.
    set (r := match seen c with None => 1%Q | Some r => r end) in *.
    assert (0 < IZR (Zpos (Qden r))) by (apply IZR_lt; lia).
    assert (0 < IZR (Zpos (Qden (delta c)))) by (apply IZR_lt; lia).
    set (k := IZR (Zpos (Qden r)) * IZR (Zpos (Qden (delta c))) * (IZR TOTAL * IZR (2 ^ FACTOR))).
    assert (0 < IZR TOTAL * IZR (2 ^ FACTOR)) by (apply Rmult_lt_0_compat; assumption).
    assert (0 < k).
    { unfold k. apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat|]; assumption. }
    apply Rmult_le_reg_r with k; [assumption|].
    replace (IZR (Qnum r) * / IZR (Z.pos (Qden r)) * (IZR worst / (IZR TOTAL * IZR (2 ^ FACTOR))) * k)
      with (IZR (Qnum r) * IZR worst * IZR (Z.pos (Qden (delta c)))) by (unfold k; field; lra).
    replace (IZR (Qnum (delta c)) * / IZR (Z.pos (Qden (delta c))) * k)
      with (IZR (Qnum (delta c)) * IZR (Z.pos (Qden r)) * (IZR TOTAL * IZR (2 ^ FACTOR)))
      by (unfold k; field; lra).
    exact L. }
  intros v F. destruct (seen c) as [r|].
  - pose proof (rate_range r R) as [R0 R1].
    cbn [flat_map fst snd repeat app copies map] in F. cbn in F.
    destruct v as [| |rate present absent]; try contradiction. destruct F as [-> [P A]].
    destruct absent; cbn in A; try contradiction.
    destruct (one_view present t (Q2R r * 1) (Q2R r * e) P) as [x [y [X [Y Hx]]]].
    cbn [hs]. rewrite Hx.
    assert (Hs : hinge t (Q2R r * 1) (Q2R r * e) x y = Q2R r * hinge t 1 e x y).
    { apply (scales _ (like_rows t x y Dt Y)). exact R0. }
    rewrite Hs. rewrite Rmax_right by nra. specialize (Wt x y X Y). nra.
  - cbn in F. destruct (one_view v t 1 e F) as [x [y [X [Y Hx]]]]. rewrite Hx.
    specialize (Wt x y X Y). rewrite RMicromega.Q2R_1, Rmult_1_l in Fin. lra.
Qed.
