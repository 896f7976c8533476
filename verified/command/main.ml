(* mezzotint-check claim.json [proof.json]: exit status 0 certified, 1 refused or not checked, 2
   unreadable. *)

let usage = "mezzotint-check [--seconds N] (CLAIM.json [PROOF.json] | --batch) | --self-test"

let default_seconds = 60

let most_seconds = 1_000_000

exception Too_long

(* Runs [compute] with at most so many seconds of processor time. The signal is handled when memory
   is next asked for, which extracted functions do at every step. *)
let within seconds compute =
  let timer value = ignore (Unix.setitimer Unix.ITIMER_PROF { it_interval = 0.0; it_value = value }) in
  Sys.set_signal Sys.sigprof (Sys.Signal_handle (fun _ -> raise Too_long));
  timer (float_of_int seconds);
  match compute () with
  | result -> timer 0.0; result
  | exception error -> timer 0.0; raise error

let read_file path =
  let channel = open_in_bin path in
  Fun.protect
    ~finally:(fun () -> close_in channel)
    (fun () ->
       let size = in_channel_length channel in
       if size > Json.max_bytes then Json.unreadable "longer than 2^24 bytes";
       really_input_string channel size)

(* The status and a sentence, whatever the texts are. *)
let verdict seconds claim proof =
  let check () = Claimfile.check (claim ()) (Option.map (fun read -> read ()) proof) in
  try (0, within seconds check) with
  | Json.Unreadable why -> (2, "UNREADABLE: " ^ why)
  | Claimfile.Refused why -> (1, "REFUSED at " ^ why)
  | Sys_error _ | End_of_file -> (2, "UNREADABLE: the file cannot be read")
  | Too_long ->
    (1, Printf.sprintf "NOT CHECKED: the check takes more than %d seconds of processor time" seconds)
  | Stack_overflow | Out_of_memory -> (1, "NOT CHECKED: too large")
  | Z.Overflow | Invalid_argument _ | Failure _ -> (1, "NOT CHECKED: out of range")

(* A claim file per line of the input; a line "status TAB sentence" per claim. *)
let batch seconds =
  try
    while true do
      let line = input_line stdin in
      let status, sentence = verdict seconds (fun () -> line) None in
      Printf.printf "%d\t%s\n%!" status sentence
    done
  with End_of_file -> ()

(* Extracted functions on lists are recursive: a long list needs a large stack, which is set before
   a program starts. So this one starts itself again, once, with the most that is allowed. *)
let with_large_stack () =
  if Sys.getenv_opt "MEZZOTINT_CHECK_STACK" = None then begin
    Unix.putenv "MEZZOTINT_CHECK_STACK" "set";
    let script =
      "ulimit -s unlimited 2> /dev/null || ulimit -s $(ulimit -H -s) 2> /dev/null; exec \"$0\" \"$@\""
    in
    let arguments = Array.sub Sys.argv 1 (Array.length Sys.argv - 1) in
    try Unix.execv "/bin/sh" (Array.append [| "sh"; "-c"; script; Sys.executable_name |] arguments)
    with Unix.Unix_error _ -> ()
  end

(* The seconds, and the arguments after them. *)
let limited = function
  | "--seconds" :: written :: others ->
    (match int_of_string_opt written with
     | Some seconds when seconds >= 1 && seconds <= most_seconds -> (seconds, others)
     | _ ->
       Printf.eprintf "--seconds is not an integer from 1 to %d\n" most_seconds;
       exit 2)
  | arguments -> (default_seconds, arguments)

(* A length that does not fit in a native integer must raise: were it to wrap, false claims could be
   certified. *)
let lengths_never_wrap () =
  let refused length =
    match Extracted.Z.to_nat length with
    | _ -> false
    | exception Failure _ -> true
  in
  let power exponent = Z.shift_left Z.one exponent in
  Extracted.Z.to_nat (Z.of_int max_int) = max_int
  && List.for_all (fun exponent -> refused (power exponent)) [ 62; 63; 64; 65; 128; 1000 ]

let self_test () =
  let hashes = Sha256.works_on_a_million () and lengths = lengths_never_wrap () in
  print_endline (if hashes then "SHA-256: known answers agree" else "SHA-256 gives wrong answers");
  print_endline (if lengths then "lengths: none wraps" else "lengths wrap");
  exit (if hashes && lengths then 0 else 2)

let () =
  with_large_stack ();
  if not (Sha256.works ()) then (prerr_endline "SHA-256 gives wrong answers"; exit 2);
  match limited (List.tl (Array.to_list Sys.argv)) with
  | _, [ "--self-test" ] -> self_test ()
  | seconds, [ "--batch" ] -> batch seconds
  | seconds, claim :: others when List.length others <= 1 && claim <> "" && claim.[0] <> '-' ->
    let reader path () = read_file path in
    let proof = match others with [ path ] -> Some (reader path) | _ -> None in
    let status, sentence = verdict seconds (reader claim) proof in
    print_endline sentence;
    exit status
  | _ -> prerr_endline usage; exit 2
