(** What is proved about: tables, inputs, what an observer sees, and (epsilon, delta).

    The promise is stated in this file, with the reals, lists and [exp] of Coq's library; the other
    files hold programs and proofs, which Coq checks. That a claim file means one of these claims is
    the work of the reader in OCaml, which is not proved. *)

From Coq Require Import Reals QArith Qreals ZArith List.
Import ListNotations.
Open Scope R_scope.

(** * Tables

    A row per knot, a weight per level, in units of 2^-32. *)

Definition table := list (list Z).

Definition TOTAL : Z := (2 ^ 32)%Z.

Definition levels (t : table) : nat := length (hd [] t).

Definition weight (t : table) (row level : nat) : Z := nth level (nth row t []) 0%Z.

(** Every row is a probability distribution over the same levels, and there is a row. *)
Definition distributions (t : table) : Prop :=
  t <> [] /\
  forall row, In row t ->
    length row = levels t /\ Forall (Z.le 0) row /\ fold_right Z.add 0%Z row = TOTAL.

(** * Inputs

    An input lies between two knots, or at one: row [right] is drawn with probability [share], row
    [left] otherwise, and a level from the drawn row. [share] is any real number in [0, 1]. *)

Record input := Between { share : R; left : nat; right : nat }.

Definition input_of (t : table) (x : input) : Prop :=
  0 <= share x <= 1 /\ (left x < length t)%nat /\ (right x < length t)%nat.

(** The probability that the report on input [x] is [level]. *)
Definition chance (t : table) (x : input) (level : nat) : R :=
  ((1 - share x) * IZR (weight t (left x) level) + share x * IZR (weight t (right x) level))
  / IZR TOTAL.

(** Where a real number lies among real knots; outside of them it is clipped. *)
Fixpoint locate (knots : list R) (x : R) (first : nat) : input :=
  match knots with
  | a :: (b :: _) as others =>
      if Rle_dec x a then Between 0 first first
      else if Rle_dec x b then Between ((x - a) / (b - a)) first (S first)
      else locate others x (S first)
  | _ => Between 0 first first
  end.

(** * What an observer sees

    A view is a strategy without coins of its own: reports one after the other, each a fresh draw,
    each with the input of one world and the input of the other, chosen after what was seen before
    ([next] is applied to the reported level); and coins, seen as well and independent of the
    inputs, that decide whether somebody takes part. Tables, their order and the number of rounds
    are those of a schedule, below. *)

Inductive view : Type :=
  | Done
  | Report (t : table) (x y : input) (next : nat -> view)
  | Coin (rate : R) (present absent : view).

Inductive world := First | Second.

Fixpoint sum (f : nat -> R) (n : nat) : R :=
  match n with
  | O => 0
  | S k => sum f k + f k
  end.

(** The probability that a randomized test accepts what was seen; [accept] gives, for a transcript,
    the probability of yes. An event is a test with values 0 and 1. *)
Fixpoint probability (w : world) (v : view) (accept : list nat -> R) : R :=
  match v with
  | Done => accept []
  | Report t x y next =>
      let mine := match w with First => x | Second => y end in
      sum (fun o => chance t mine o * probability w (next o) (fun seen => accept (o :: seen)))
        (levels t)
  | Coin rate present absent =>
      rate * probability w present (fun seen => accept (1%nat :: seen))
      + (1 - rate) * probability w absent (fun seen => accept (0%nat :: seen))
  end.

(** * Releases

    A schedule lists reports, and rounds in which all of some reports are sent with a probability,
    visibly, and none otherwise. *)

Inductive step :=
  | One (t : table)
  | Seen (rate : R) (reports : list table).

(** The view keeps to the schedule: its tables and coins are those, whatever the inputs are. *)
Fixpoint follows (v : view) (s : list step) : Prop :=
  match v, s with
  | Done, [] => True
  | Report t x y next, One t' :: s' =>
      t = t' /\ input_of t x /\ input_of t y /\ forall o, follows (next o) s'
  | Coin rate present absent, Seen rate' reports :: s' =>
      rate = rate' /\ follows present (map One reports ++ s') /\ follows absent s'
  | _, _ => False
  end.

(** * Claims *)

Record claim := {
  tables : list (table * positive);  (** with the number of reports from each in a round *)
  rounds : positive;  (** of independent reports *)
  seen : option Q;  (** None: everybody takes part; else visibly with this probability *)
  epsilon : Q;
  delta : Q }.

Fixpoint copies {A : Type} (n : nat) (l : list A) : list A :=
  match n with
  | O => []
  | S k => l ++ copies k l
  end.

Definition one_round (c : claim) : list table :=
  flat_map (fun entry => repeat (fst entry) (Pos.to_nat (snd entry))) (tables c).

Definition schedule (c : claim) : list step :=
  copies (Pos.to_nat (rounds c))
    (match seen c with
     | None => map One (one_round c)
     | Some rate => [Seen (Q2R rate) (one_round c)]
     end).

(** The hockey-stick inequality for all tests: (epsilon, delta)-differential privacy. Exchanging the
    two inputs everywhere in a view gives another view of the same schedule, so it holds in both
    directions. *)
Definition private (s : list step) (factor slack : R) : Prop :=
  forall v, follows v s ->
  forall accept, (forall seen, 0 <= accept seen <= 1) ->
    probability First v accept <= factor * probability Second v accept + slack.

(** The rate of rounds that are seen is a probability above 0. *)
Definition rate_is_probability (c : claim) : Prop :=
  match seen c with
  | None => True
  | Some rate => 0 < Q2R rate <= 1
  end.

(** What [check] promises. *)
Definition holds (c : claim) : Prop :=
  Forall (fun entry => distributions (fst entry)) (tables c) /\
  rate_is_probability c /\
  private (schedule c) (exp (Q2R (epsilon c))) (Q2R (delta c)).
