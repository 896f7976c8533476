(* Reads a claim file, in the format of docs/file-format.md, into the types that the proofs are
   about. Outside of what is proved: that the file's words mean the claim that is read here. *)

open Json

exception Refused of string

let refused why = raise (Refused why)

let most = Z.of_string "1000000000000"

(* * Fields of an object, each read once; [finish] refuses keys that nobody read. *)

type fields = { name : string; mutable left : (string * Json.t) list }

let fields name = function
  | Object members -> { name; left = members }
  | _ -> unreadable (name ^ " is not a JSON object")

let has f key = List.mem_assoc key f.left

let take f key =
  match List.assoc_opt key f.left with
  | None -> unreadable (Printf.sprintf "%s lacks \"%s\"" f.name key)
  | Some value ->
    f.left <- List.remove_assoc key f.left;
    value

let finish f =
  if f.left <> [] then
    unreadable
      (Printf.sprintf "%s has unknown keys: %s" f.name
         (String.concat ", " (List.map (fun (key, _) -> "\"" ^ String.escaped key ^ "\"") f.left)))

let text f key =
  match take f key with
  | Text value -> value
  | _ -> unreadable (key ^ " is not a text")

let choice f key options =
  let value = text f key in
  if not (List.mem value options) then
    unreadable (Printf.sprintf "%s is not %s" key (String.concat " or " options));
  value

let integer f key least largest =
  match take f key with
  | Integer value when Z.leq least value && Z.leq value largest -> value
  | _ ->
    unreadable
      (Printf.sprintf "%s is not an integer from %s to %s" key (Z.to_string least)
         (Z.to_string largest))

let items f key largest =
  match take f key with
  | List values when List.compare_length_with values largest <= 0 -> values
  | _ -> unreadable (Printf.sprintf "%s is not a list of at most %d values" key largest)

(* * Numbers: an integer, or a text "p/q", "0.221", "1e-6", as the rational it is. *)

let max_bits = 13_000

let split_at character written =
  match String.index_opt written character with
  | None -> (written, None)
  | Some i ->
    (String.sub written 0 i, Some (String.sub written (i + 1) (String.length written - i - 1)))

let digits limit written =
  let size = String.length written in
  if size < 1 || size > limit || not (String.for_all is_digit written) then
    unreadable "a number is not written exactly";
  Z.of_string written

let unsigned written = (* "p/q", or digits with a point and an exponent *)
  match split_at '/' written with
  | numerator, Some denominator ->
    let q = digits 1200 denominator in
    if Z.equal q Z.zero then unreadable "a number is divided by 0";
    Q.make (digits 1200 numerator) q
  | _, None ->
    let mantissa, exponent = split_at 'e' written in
    let whole, fraction = split_at '.' mantissa in
    let part = Option.value fraction ~default:"" in
    if fraction <> None then ignore (digits 1200 part);
    ignore (digits 1200 whole);
    let scale =
      match exponent with
      | None -> 0
      | Some e when String.length e > 0 && e.[0] = '-' ->
        -Z.to_int (digits 4 (String.sub e 1 (String.length e - 1)))
      | Some e -> Z.to_int (digits 4 e)
    in
    let power = scale - String.length part in
    let all = Z.of_string (whole ^ part) in
    if power >= 0 then Q.of_bigint (Z.mul all (Z.pow (Z.of_int 10) power))
    else Q.make all (Z.pow (Z.of_int 10) (-power))

let exact = function
  | Integer value -> Q.of_bigint value
  | Text written when String.length written > 0 && written.[0] = '-' ->
    Q.neg (unsigned (String.sub written 1 (String.length written - 1)))
  | Text written -> unsigned written
  | _ -> unreadable "a number is not written exactly"

let number f key =
  let value = exact (take f key) in
  if Z.numbits (Q.num value) > max_bits || Z.numbits (Q.den value) > max_bits then
    unreadable (key ^ " has too many digits");
  if Q.sign value < 0 then unreadable (key ^ " is below 0");
  value

let rational value = { Extracted.qnum = Q.num value; Extracted.qden = Q.den value }

(* * Tables *)

let is_digest written =
  String.length written = 64
  && String.for_all (fun c -> is_digit c || (c >= 'a' && c <= 'f')) written

let weight = function
  | Integer value when Z.sign value >= 0 -> value
  | _ -> unreadable "weights holds what is not an integer from 0 on"

let row = function
  | List entries -> List.map weight entries
  | _ -> unreadable "weights holds what is not a list"

let read_table written =
  let f = fields "a table" (Json.parse written) in
  let knots = items f "knots" max_int in
  let levels = items f "levels" (1 lsl 16) in
  let weights = List.map row (items f "weights" max_int) in
  if has f "categories" then ignore (items f "categories" max_int);
  finish f;
  let rows = List.length weights in
  if rows < 2 || List.length knots <> rows then refused "table: not one row per knot";
  if List.length (List.hd weights) <> List.length levels then
    refused "table: row 0 has not one weight per level";
  (Sha256.hex written, weights)

let find_table tables digest =
  match List.assoc_opt digest tables with
  | Some table -> table
  | None -> refused ("tables: the proof holds no table with the hash " ^ digest)

(* * Releases *)

type release = {
  described : (string * Z.t) list;  (* the hash and the number of reports of each table *)
  rounds : Z.t;
  distinct : Z.t;  (* 0: every report is drawn afresh *)
  sampling : string;
  rate : Q.t;
  neighboring : string;
  seeded : bool;
  assumed : string list;
}

let assumptions ~distinct ~sampling =
  let memoised = Z.sign distinct > 0 and sampled = sampling <> "none" in
  let all = [
    ("distinct_rounds_use_fresh_randomness", not memoised);
    ("reports_of_equal_values_are_copies", memoised);
    ("neighbours_have_equal_values_in_the_same_rounds", memoised);
    ("distinct_values<=" ^ Z.to_string distinct, memoised);
    ("reports_are_drawn_from_the_tables", true);
    ("participation_is_independent_of_data", sampled);
    ("participation_is_secret", sampling = "poisson");
    ("absent_records_leave_reports_as_if_drawn_for_others", sampling = "poisson");
  ] in
  List.sort compare (List.map fst (List.filter snd all))

let described_table value =
  let f = fields "tables" value in
  let digest = text f "sha256" in
  if not (is_digest digest) then unreadable "sha256 is not a SHA-256 in hexadecimal";
  let coordinates = integer f "coordinates" Z.one most in
  finish f;
  (digest, coordinates)

let read_release value =
  let f = fields "release" value in
  let observer = text f "observer" in
  if observer <> "reports" then
    refused "claim: the theorems are about observers of every report";
  if text f "trust" <> "local" then unreadable "trust is not that of the observer";
  let described = List.map described_table (items f "tables" 1000) in
  if described = [] then unreadable "reports come from a table";
  let distinct = if has f "distinct" then integer f "distinct" Z.one most else Z.zero in
  let rounds = integer f "rounds" Z.one most in
  let s = fields "sampling" (take f "sampling") in
  let sampling = choice s "kind" [ "none"; "public"; "poisson" ] in
  let rate_written = text s "rate" in
  finish s;
  let rate = exact (Text rate_written) in
  if Q.to_string rate <> rate_written then unreadable "rate is not written in lowest terms";
  let neighboring = choice f "neighboring" [ "replace_one"; "add_or_remove_one" ] in
  let unit_of = if sampling = "poisson" then "record" else "client" in
  if text f "unit" <> unit_of then unreadable "unit is not that of the release";
  let seeded = choice f "randomness" [ "keystream"; "seeded" ] = "seeded" in
  let everybody = sampling = "none" in
  if not (Q.gt rate Q.zero && Q.leq rate Q.one && everybody = Q.equal rate Q.one) then
    unreadable "sampling does not match the rate";
  if neighboring <> "replace_one" && sampling <> "poisson" then
    unreadable "one who is seen to be absent cannot be hidden";
  if Z.gt distinct rounds || ((not everybody) && Z.sign distinct > 0) then
    unreadable "memoised reports have at most one value a round, and everybody takes part";
  let assumed = assumptions ~distinct ~sampling in
  if take f "assumptions" <> List (List.map (fun name -> Text name) assumed) then
    unreadable "the assumptions are not those that follow from the release";
  finish f;
  { described; rounds; distinct; sampling; rate; neighboring; seeded; assumed }

(* * Claims and proofs *)

type statement = { epsilon : Q.t; delta : Q.t; written : string }

let shown_number = function
  | Integer value -> Z.to_string value
  | Text written -> written
  | _ -> unreadable "a number is not written exactly"

let read_statement value =
  let f = fields "statement" value in
  let kind = text f "kind" in
  if kind <> "dp" then refused "claim: the theorems are about (epsilon, delta)";
  let shown key = shown_number (Option.value (List.assoc_opt key f.left) ~default:Null) in
  let written = Printf.sprintf "(%s, %s)" (shown "epsilon") (shown "delta") in
  let epsilon = number f "epsilon" in
  let delta = number f "delta" in
  finish f;
  { epsilon; delta; written }

let grid value =
  let f = fields "grid" value in
  let limit = Z.of_int (1 lsl 22) in
  let low = integer f "low" (Z.neg limit) limit in
  let high = integer f "high" low limit in
  finish f;
  (low, high)

(* Reports in a round that are drawn independently, over all rounds. *)
let independent release =
  if Z.sign release.distinct > 0 then release.distinct else release.rounds

let read_again release proof =
  if release.sampling = "none" then None else Some (grid (take proof "sampled"))

let whole = Z.shift_left Z.one 160

let read_proof release proof = function
  | "ratio" ->
    if has proof "ranks" then refused "claim: the theorems are not about ranked codebooks";
    Extracted.Ratio
  | "delta" ->
    (match release.described with
     | [ (_, coordinates) ] when Z.equal (Z.mul coordinates (independent release)) Z.one ->
       Extracted.Delta
     | [ _ ] ->
       let entry = grid (take proof "grid") in
       let step = number proof "step" in
       Extracted.Losses (rational step, Z.zero, [ entry ], read_again release proof)
     | _ -> refused "tables: this proof is about one table")
  | "losses" ->
    let step = number proof "step" in
    let tail = Z.to_int (integer proof "tail" Z.zero (Z.of_int 160)) in
    let grids = List.map grid (items proof "grids" 1000) in
    Extracted.Losses
      (rational step, Z.shift_right whole tail, grids, read_again release proof)
  | _ -> refused "claim: the theorems are about the kinds ratio, delta and losses"

let words = function
  | Extracted.NotDistributions -> "table: a row is no distribution over the levels"
  | EpsilonOutOfRange -> "claim: epsilon is out of range"
  | DeltaNegative -> "claim: delta is negative"
  | RateOutOfRange -> "sampling: the rate is not a probability above 0"
  | NotPure -> "pure: a report is possible under one input and impossible under another"
  | EpsilonTooSmall -> "pure: epsilon is too small"
  | NotOneReport -> "claim: this proof is about one report"
  | StepOutOfRange -> "grid: the step is too small or too large"
  | NotOneGridPerTable -> "grids: not one grid per table"
  | GridOutOfRange -> "grid: it is empty, too long, or its losses are outside [-100, 100000]"
  | NoGridForRounds -> "grid: there is none for rounds with chance participation"
  | TooManyEntries -> "size: a product, or a round that is seen, has too many entries"
  | DeltaTooSmall have ->
    let digits = Z.pow (Z.of_int 10) 60 in
    let scaled = Z.cdiv (Z.mul have.qnum digits) have.qden in
    Printf.sprintf "delta: delta is too small at this epsilon (have at most %se-60)"
      (Z.to_string scaled)

let sentence release statement digest =
  let total (hash, count) = Printf.sprintf "%s from table %s" (Z.to_string count) hash in
  let seen =
    if Z.sign release.distinct > 0 then
      Printf.sprintf "every report, memoised for at most %s distinct values"
        (Z.to_string release.distinct)
    else "every report"
  in
  let manner =
    if release.sampling = "public" then
      ", taking part visibly with probability " ^ Q.to_string release.rate
    else ""
  in
  Printf.sprintf
    "certified: %s-differential privacy for replacing all data of one client, to an observer of \
     %s, in %s round(s) of %s%s; assumed: %s (claim %s), checked by a proved program"
    statement.written seen (Z.to_string release.rounds)
    (String.concat ", " (List.map total release.described))
    manner
    (String.concat ", " release.assumed)
    digest

(* The claim file's text, and the text of a proof if it is in a file of its own. *)
let check claim_text proof_text =
  let f = fields "the file" (Json.parse claim_text) in
  if text f "format" <> "mezzotint-claim" then unreadable "no claim file";
  let one = integer f "version" Z.one Z.one in
  let release_value = take f "release" in
  let statement_value = take f "statement" in
  let proof_value =
    match proof_text with
    | None -> take f "proof"
    | Some written ->
      if has f "proof" then unreadable "the claim file holds a proof, and another is given";
      Json.parse written
  in
  finish f;
  if release_value = Null then refused "claim: the theorems are about releases";
  let release = read_release release_value in
  let statement = read_statement statement_value in
  let digest =
    Sha256.hex
      (Json.canonical
         (Object [
            ("format", Text "mezzotint-claim"); ("version", Integer one);
            ("release", release_value); ("statement", statement_value) ]))
  in
  let proof = fields "proof" proof_value in
  let kind = text proof "kind" in
  ignore (integer proof "version" Z.one Z.one);
  if text proof "claim_sha256" <> digest then refused "proof: it was written for another claim";
  let table_text = function Text t -> t | _ -> unreadable "tables is not a list of texts" in
  let tables =
    List.map (fun value -> read_table (table_text value)) (items proof "tables" 1000)
  in
  ignore (integer proof "precision" (Z.of_int 64) (Z.of_int 512));
  if release.sampling = "poisson" then
    refused "sampling: the theorems are not about secret participation";
  if release.seeded then
    refused "randomness: simulation; no privacy: who knows the seed knows every draw";
  let shape = read_proof release proof kind in
  finish proof;
  let claim = {
    Extracted.tables =
      List.map (fun (hash, count) -> (find_table tables hash, count)) release.described;
    rounds = independent release;
    seen = (if release.sampling = "none" then None else Some (rational release.rate));
    epsilon = rational statement.epsilon;
    delta = rational statement.delta;
  } in
  match Extracted.check claim shape with
  | Certified -> sentence release statement digest
  | Refused why -> refused (words why)
