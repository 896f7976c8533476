(* mezzotint-check claim.json [proof.json]: exit status 0 certified, 1 refused, 2 unreadable. *)

let usage = "mezzotint-check CLAIM.json [PROOF.json] | --batch | --self-test"

let read_file path =
  let channel = open_in_bin path in
  Fun.protect
    ~finally:(fun () -> close_in channel)
    (fun () ->
       let size = in_channel_length channel in
       if size > Json.max_bytes then Json.unreadable "longer than 2^24 bytes";
       really_input_string channel size)

(* The status and a sentence, whatever the texts are. *)
let verdict claim proof =
  try (0, Claimfile.check (claim ()) (Option.map (fun read -> read ()) proof)) with
  | Json.Unreadable why -> (2, "UNREADABLE: " ^ why)
  | Claimfile.Refused why -> (1, "REFUSED at " ^ why)
  | Sys_error _ | End_of_file -> (2, "UNREADABLE: the file cannot be read")
  | Stack_overflow | Out_of_memory -> (1, "NOT CHECKED: too large")
  | Z.Overflow | Invalid_argument _ | Failure _ -> (1, "NOT CHECKED: out of range")

(* A claim file per line of the input; a line "status TAB sentence" per claim. *)
let batch () =
  try
    while true do
      let line = input_line stdin in
      let status, sentence = verdict (fun () -> line) None in
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

let () =
  with_large_stack ();
  if not (Sha256.works ()) then (prerr_endline "SHA-256 gives wrong answers"; exit 2);
  match Array.to_list Sys.argv with
  | [ _; "--self-test" ] ->
    let works = Sha256.works_on_a_million () in
    print_endline (if works then "SHA-256: known answers agree" else "SHA-256 gives wrong answers");
    exit (if works then 0 else 2)
  | [ _; "--batch" ] -> batch ()
  | _ :: claim :: others when List.length others <= 1 && claim.[0] <> '-' ->
    let reader path () = read_file path in
    let proof = match others with [ path ] -> Some (reader path) | _ -> None in
    let status, sentence = verdict (reader claim) proof in
    print_endline sentence;
    exit status
  | _ -> prerr_endline usage; exit 2
