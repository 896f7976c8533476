#!/usr/bin/env bash
# Compiles the proofs, checks what they assume, extracts the checker and compiles mezzotint-check.
# Needs Coq (tested with 8.16), OCaml, findlib and Zarith; installs them where the system's packages can be installed.
# Exit status 3: they are not there.
set -euo pipefail
cd "$(dirname "$0")"
OUT=$PWD/build
THEORIES="Definitions Divergence Exponential Losses Product Envelope Fit Reports Rounds Checker Premise Examples"

present() { command -v coqc > /dev/null && ocamlfind query zarith > /dev/null 2>&1 && command -v ocamlopt > /dev/null; }
if ! present && command -v apt-get > /dev/null; then
  AS=""
  [ "$(id -u)" = 0 ] || AS="sudo -n"
  export DEBIAN_FRONTEND=noninteractive
  { $AS apt-get update && $AS apt-get install -y --no-install-recommends \
    coq libcoq-stdlib ocaml-nox ocaml-findlib libzarith-ocaml-dev; } > /dev/null 2>&1 || true
fi
if ! present; then
  echo "the proofs need coq, ocaml, ocaml-findlib and zarith (Debian: coq libcoq-stdlib ocaml-nox ocaml-findlib libzarith-ocaml-dev)"
  exit 3
fi

mkdir -p "$OUT"
rm -f "$OUT/mezzotint-check"  # it is there only if everything below succeeded
cp ./*.v command/*.ml "$OUT"
cd "$OUT"
started=$(date +%s)
for theory in $THEORIES; do coqc -q -R . Mezzotint "$theory.v"; done
compiled=$(date +%s)
times > times.log  # of this shell, then of all that it ran
echo "proofs: $(cat ../*.v | wc -l) lines, compiled in $((compiled - started)) s, $(tail -n 1 times.log | cut -d' ' -f1) of processor time, with Coq $(coqc --print-version | cut -d' ' -f1)"

if grep -nwE "Admitted|Axiom|Axioms|Parameter|Parameters|Conjecture|Abort|admit|give_up|Unset|bypass_check" ../*.v; then
  echo "the proofs are not complete"
  exit 1
fi
coqc -q -R . Mezzotint Assumptions.v > assumptions.log
# Declarations whose checks were turned off are listed in words of their own.
if grep -nE "assumed to be|relies on|unsafe|type.in.type|definitional UIP" assumptions.log; then
  echo "a check of Coq was turned off"
  exit 1
fi
# Names of axioms begin a line; the lines between go on with their types.
grep -oE "^[A-Za-z_][A-Za-z_0-9.']* *:" assumptions.log | grep -v "^Axioms" | tr -d ' :' | LC_ALL=C sort -u > assumptions.txt || true
grep -oE "^[A-Za-z_][A-Za-z_0-9.']*$" assumptions.log | LC_ALL=C sort -u >> assumptions.txt || true
LC_ALL=C sort -u -o assumptions.txt assumptions.txt
if ! diff ../assumptions.txt assumptions.txt; then
  echo "the proofs assume something else than verified/assumptions.txt lists"
  exit 1
fi
echo "assumptions: $(wc -l < assumptions.txt) axioms of Coq's library, those of verified/assumptions.txt"

coqc -q -R . Mezzotint Extraction.v > extraction.log 2>&1 || { cat extraction.log; exit 1; }
ocamlfind ocamlopt -package zarith -inline 50 -w -a -c extracted.mli extracted.ml
ocamlfind ocamlopt -package zarith,unix -linkpkg -inline 50 -w +a-4-40-41-42-44-45-70 -warn-error +a \
  extracted.cmx sha256.ml json.ml claimfile.ml main.ml -o unchecked
./unchecked --self-test
mv unchecked mezzotint-check
echo "built verified/build/mezzotint-check in $(($(date +%s) - started)) s in all"
