(* SHA-256 (FIPS 180-4) in native integers, which hold 32-bit words; not proved, but tested. *)

let mask = 0xffffffff

let constants = [|
  0x428a2f98; 0x71374491; 0xb5c0fbcf; 0xe9b5dba5; 0x3956c25b; 0x59f111f1; 0x923f82a4; 0xab1c5ed5;
  0xd807aa98; 0x12835b01; 0x243185be; 0x550c7dc3; 0x72be5d74; 0x80deb1fe; 0x9bdc06a7; 0xc19bf174;
  0xe49b69c1; 0xefbe4786; 0x0fc19dc6; 0x240ca1cc; 0x2de92c6f; 0x4a7484aa; 0x5cb0a9dc; 0x76f988da;
  0x983e5152; 0xa831c66d; 0xb00327c8; 0xbf597fc7; 0xc6e00bf3; 0xd5a79147; 0x06ca6351; 0x14292967;
  0x27b70a85; 0x2e1b2138; 0x4d2c6dfc; 0x53380d13; 0x650a7354; 0x766a0abb; 0x81c2c92e; 0x92722c85;
  0xa2bfe8a1; 0xa81a664b; 0xc24b8b70; 0xc76c51a3; 0xd192e819; 0xd6990624; 0xf40e3585; 0x106aa070;
  0x19a4c116; 0x1e376c08; 0x2748774c; 0x34b0bcb5; 0x391c0cb3; 0x4ed8aa4a; 0x5b9cca4f; 0x682e6ff3;
  0x748f82ee; 0x78a5636f; 0x84c87814; 0x8cc70208; 0x90befffa; 0xa4506ceb; 0xbef9a3f7; 0xc67178f2 |]

let initial = [|
  0x6a09e667; 0xbb67ae85; 0x3c6ef372; 0xa54ff53a; 0x510e527f; 0x9b05688c; 0x1f83d9ab; 0x5be0cd19 |]

let rotated word count = ((word lsr count) lor (word lsl (32 - count))) land mask

(* The message, a bit 1, zeros, and the length in bits in eight bytes. *)
let padded text =
  let size = String.length text in
  let zeros = (119 - (size mod 64)) mod 64 in
  let result = Bytes.make (size + 1 + zeros + 8) '\000' in
  Bytes.blit_string text 0 result 0 size;
  Bytes.set result size '\128';
  Bytes.set_int64_be result (size + 1 + zeros) (Int64.of_int (8 * size));
  result

let schedule block offset =
  let w = Array.make 64 0 in
  for i = 0 to 15 do
    w.(i) <- Int32.to_int (Bytes.get_int32_be block (offset + (4 * i))) land mask
  done;
  for i = 16 to 63 do
    let a = w.(i - 15) and b = w.(i - 2) in
    let s0 = rotated a 7 lxor rotated a 18 lxor (a lsr 3) in
    let s1 = rotated b 17 lxor rotated b 19 lxor (b lsr 10) in
    w.(i) <- (w.(i - 16) + s0 + w.(i - 7) + s1) land mask
  done;
  w

let compress state w =
  let v = Array.copy state in
  for i = 0 to 63 do
    let a = v.(0) and e = v.(4) in
    let s1 = rotated e 6 lxor rotated e 11 lxor rotated e 25 in
    let choice = (e land v.(5)) lxor (lnot e land mask land v.(6)) in
    let first = (v.(7) + s1 + choice + constants.(i) + w.(i)) land mask in
    let s0 = rotated a 2 lxor rotated a 13 lxor rotated a 22 in
    let majority = (a land v.(1)) lxor (a land v.(2)) lxor (v.(1) land v.(2)) in
    Array.blit v 0 v 1 7;
    v.(4) <- (v.(4) + first) land mask;
    v.(0) <- (first + s0 + majority) land mask
  done;
  Array.map2 (fun old fresh -> (old + fresh) land mask) state v

(* The hash in hexadecimal. *)
let hex text =
  let message = padded text in
  let state = ref initial in
  for block = 0 to (Bytes.length message / 64) - 1 do
    state := compress !state (schedule message (64 * block))
  done;
  String.concat "" (List.map (Printf.sprintf "%08x") (Array.to_list !state))

(* Known answers of FIPS 180-4, one per number of blocks and a long one. *)
let known = [
  ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  ("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
   "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  ("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
   "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
]

let long_answer = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"

let works () = List.for_all (fun (text, answer) -> hex text = answer) known

let works_on_a_million () = hex (String.make 1_000_000 'a') = long_answer
