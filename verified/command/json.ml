(* A strict JSON reader and the canonical writer. Outside of what is proved: a claim is what this
   file reads. Refuses duplicate keys, lone surrogates, invalid UTF-8, NaN and deep nesting. *)

type t =
  | Null
  | Bool of bool
  | Integer of Z.t
  | Real of string
  | Text of string
  | List of t list
  | Object of (string * t) list

exception Unreadable of string

let unreadable why = raise (Unreadable why)

let max_bytes = 1 lsl 24
let max_depth = 100
let max_digits = 4300

(* Every byte sequence is the shortest form of a code point that is no surrogate. *)
let require_utf8 text =
  let size = String.length text in
  let byte i = if i < size then Char.code text.[i] else unreadable "not valid UTF-8" in
  let follows i = if byte i land 0xc0 <> 0x80 then unreadable "not valid UTF-8" in
  let rec go i =
    if i < size then begin
      let b = byte i in
      if b < 0x80 then go (i + 1)
      else if b >= 0xc2 && b < 0xe0 then (follows (i + 1); go (i + 2))
      else if b >= 0xe0 && b < 0xf0 then begin
        follows (i + 1); follows (i + 2);
        let second = byte (i + 1) in
        if (b = 0xe0 && second < 0xa0) || (b = 0xed && second >= 0xa0) then
          unreadable "not valid UTF-8";
        go (i + 3)
      end
      else if b >= 0xf0 && b < 0xf5 then begin
        follows (i + 1); follows (i + 2); follows (i + 3);
        let second = byte (i + 1) in
        if (b = 0xf0 && second < 0x90) || (b = 0xf4 && second >= 0x90) then
          unreadable "not valid UTF-8";
        go (i + 4)
      end
      else unreadable "not valid UTF-8"
    end
  in
  go 0

let add_code_point buffer code = Buffer.add_utf_8_uchar buffer (Uchar.of_int code)

let is_digit c = c >= '0' && c <= '9'

let parse text =
  if String.length text > max_bytes then unreadable "longer than 2^24 bytes";
  require_utf8 text;
  let size = String.length text in
  let position = ref 0 in
  let peek () = if !position < size then text.[!position] else '\000' in
  let advance () = incr position in
  let fail () = unreadable (Printf.sprintf "not valid JSON at byte %d" !position) in
  let rec blanks () =
    match peek () with
    | ' ' | '\t' | '\n' | '\r' when !position < size -> advance (); blanks ()
    | _ -> ()
  in
  let expect word value =
    let length = String.length word in
    if !position + length <= size && String.sub text !position length = word then begin
      position := !position + length;
      value
    end
    else fail ()
  in
  let hex4 () =
    if !position + 4 > size then fail ();
    let digits = String.sub text !position 4 in
    let hex c = is_digit c || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') in
    if not (String.for_all hex digits) then fail ();
    position := !position + 4;
    int_of_string ("0x" ^ digits)
  in
  let escape buffer =
    let c = peek () in
    advance ();
    match c with
    | '"' | '\\' | '/' -> Buffer.add_char buffer c
    | 'b' -> Buffer.add_char buffer '\b'
    | 'f' -> Buffer.add_char buffer '\012'
    | 'n' -> Buffer.add_char buffer '\n'
    | 'r' -> Buffer.add_char buffer '\r'
    | 't' -> Buffer.add_char buffer '\t'
    | 'u' ->
      let code = hex4 () in
      if code >= 0xd800 && code < 0xdc00 then begin
        ignore (expect "\\u" ());
        let low = hex4 () in
        if low < 0xdc00 || low >= 0xe000 then unreadable "half a character";
        add_code_point buffer (0x10000 + ((code - 0xd800) lsl 10) + (low - 0xdc00))
      end
      else if code >= 0xdc00 && code < 0xe000 then unreadable "half a character"
      else add_code_point buffer code
    | _ -> fail ()
  in
  let string () =
    advance ();
    let buffer = Buffer.create 16 in
    let rec go () =
      if !position >= size then fail ();
      let c = peek () in
      if c = '"' then advance ()
      else if c = '\\' then (advance (); escape buffer; go ())
      else if c < ' ' then fail ()
      else (advance (); Buffer.add_char buffer c; go ())
    in
    go ();
    Buffer.contents buffer
  in
  let digits () =
    let start = !position in
    while is_digit (peek ()) do advance () done;
    if !position = start then fail ()
  in
  let number () =
    let start = !position in
    if peek () = '-' then advance ();
    if peek () = '0' then advance () else digits ();
    let whole = !position in
    if peek () = '.' then (advance (); digits ());
    if peek () = 'e' || peek () = 'E' then begin
      advance ();
      if peek () = '+' || peek () = '-' then advance ();
      digits ()
    end;
    let written = String.sub text start (!position - start) in
    if !position > whole then Real written
    else if String.length written > max_digits then unreadable "an integer has too many digits"
    else Integer (Z.of_string written)
  in
  let rec value depth =
    if depth > max_depth then unreadable "nested too deeply";
    blanks ();
    match peek () with
    | '{' -> advance (); members depth
    | '[' -> advance (); elements depth
    | '"' -> Text (string ())
    | 'n' -> expect "null" Null
    | 't' -> expect "true" (Bool true)
    | 'f' -> expect "false" (Bool false)
    | '-' | '0' .. '9' -> number ()
    | _ -> fail ()
  and elements depth =
    blanks ();
    if peek () = ']' then (advance (); List [])
    else
      let rec go found =
        let found = value (depth + 1) :: found in
        blanks ();
        match peek () with
        | ',' -> advance (); go found
        | ']' -> advance (); List (List.rev found)
        | _ -> fail ()
      in
      go []
  and members depth =
    let keys = Hashtbl.create 16 in
    let member () =
      blanks ();
      if peek () <> '"' then fail ();
      let key = string () in
      if Hashtbl.mem keys key then unreadable "a key occurs twice, so two readers could see two files";
      Hashtbl.add keys key ();
      blanks ();
      if peek () <> ':' then fail ();
      advance ();
      (key, value (depth + 1))
    in
    blanks ();
    if peek () = '}' then (advance (); Object [])
    else
      let rec go found =
        let found = member () :: found in
        blanks ();
        match peek () with
        | ',' -> advance (); go found
        | '}' -> advance (); Object (List.rev found)
        | _ -> fail ()
      in
      go []
  in
  let result = value 0 in
  blanks ();
  if !position < size then fail ();
  result

(* Sorted keys, no spaces, ASCII: the text that is hashed. *)
let rec write buffer value =
  let add = Buffer.add_string buffer in
  let rec separated write_one = function
    | [] -> ()
    | [ last ] -> write_one last
    | first :: others -> write_one first; add ","; separated write_one others
  in
  match value with
  | Null -> add "null"
  | Bool b -> add (string_of_bool b)
  | Integer i -> add (Z.to_string i)
  | Real written -> add written
  | Text text -> write_text buffer text
  | List values -> add "["; separated (write buffer) values; add "]"
  | Object members ->
    let sorted = List.sort (fun (a, _) (b, _) -> compare a b) members in
    add "{";
    separated (fun (key, v) -> write_text buffer key; add ":"; write buffer v) sorted;
    add "}"

and write_text buffer text =
  let add = Buffer.add_string buffer in
  let size = String.length text in
  let continuation i = Char.code text.[i] land 0x3f in
  let escaped code = add (Printf.sprintf "\\u%04x" code) in
  let rec go i =
    if i < size then
      let b = Char.code text.[i] in
      match text.[i] with
      | '"' -> add "\\\""; go (i + 1)
      | '\\' -> add "\\\\"; go (i + 1)
      | '\n' -> add "\\n"; go (i + 1)
      | '\r' -> add "\\r"; go (i + 1)
      | '\t' -> add "\\t"; go (i + 1)
      | '\b' -> add "\\b"; go (i + 1)
      | '\012' -> add "\\f"; go (i + 1)
      | _ when b < 0x20 -> escaped b; go (i + 1)
      | c when b < 0x80 -> Buffer.add_char buffer c; go (i + 1)
      | _ when b < 0xe0 -> escaped (((b land 0x1f) lsl 6) lor continuation (i + 1)); go (i + 2)
      | _ when b < 0xf0 ->
        escaped (((b land 0x0f) lsl 12) lor (continuation (i + 1) lsl 6) lor continuation (i + 2));
        go (i + 3)
      | _ ->
        let code =
          ((b land 0x07) lsl 18) lor (continuation (i + 1) lsl 12)
          lor (continuation (i + 2) lsl 6) lor continuation (i + 3)
        in
        let rest = code - 0x10000 in
        escaped (0xd800 + (rest lsr 10));
        escaped (0xdc00 + (rest land 0x3ff));
        go (i + 4)
  in
  add "\"";
  go 0;
  add "\""

let canonical value =
  let buffer = Buffer.create 1024 in
  write buffer value;
  Buffer.contents buffer
