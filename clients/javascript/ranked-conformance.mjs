/**
 * Checks ranked.mjs against clients/vectors/ranks-*.json: `node ranked-conformance.mjs FOLDER`; in a page `problems`.
 */

import { RankedCodebook, RankedError, streamKey } from "./ranked.mjs";

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** One sentence for everything in which the module differs from one file of vectors. */
export async function problems(vectors, normals) {
  const found = [];
  const text = JSON.stringify(vectors.mechanism);
  const codebook = await RankedCodebook.parse(text, normals);
  const { stream } = vectors;
  const seed = BigInt(stream.seed);
  const key = await streamKey("report", codebook.beacon, seed, 0);
  const same = (name, made, wanted) => JSON.stringify(made) === JSON.stringify(wanted) || found.push(name);
  same("key", hex(key), stream.key);
  // Where there is no subspace the file still lists signs, of the padded length: not used by the codebook.
  if (stream.positions !== null) {
    same("signs", await codebook.signs(seed >> 32n), stream.signs_of_its_round);
    same("positions", await codebook.positions(key), stream.positions);
  }
  same("normals", Array.from((await codebook.normals(key, 1, 1))[0]), stream.normals_of_row_1_in_units);
  for (let i = 0; i < vectors.seeds.length; i++) {
    const report = await codebook.report(vectors.inputs[i], BigInt(vectors.seeds[i]), vectors.words[i].map(BigInt));
    if (String(report) !== vectors.codes[i]) found.push(`report ${i}: ${report}, not ${vectors.codes[i]}`);
  }
  found.push(...(await memory(codebook, text, normals, vectors.inputs)), ...(await refusals(text, normals)));
  return found;
}

// Asked again, for another vector and by another object with the same store: the same answer.
async function memory(codebook, text, normals, inputs) {
  const found = [];
  const store = new Map();
  const first = await RankedCodebook.parse(text, normals, store);
  const second = await RankedCodebook.parse(text, normals, store);
  for (let round = 0; round < 5; round++) {
    const together = [0, 1, 2].map((i) => first.answer(inputs[i], round, 3));
    const answers = [...(await Promise.all(together)), await second.answer(inputs[3], round, 3)];
    if (new Set(answers).size !== 1) found.push("another answer to the same question");
    if (answers[0] >> BigInt(codebook.bits)) found.push("a report of too many bits");
    const error = await first.answer(inputs[0], round, 4).then(() => null, (reason) => reason);
    if (!(error instanceof RankedError)) found.push("answered a round under another slot");
  }
  // Fresh words each time: 200 equal reports have a probability below 1e-16 with any of the three tables.
  const drawn = await Promise.all(Array.from({ length: 200 }, () => codebook.encode(inputs[0], 7n)));
  if (new Set(drawn).size === 1) found.push("every draw is the same");
  return found;
}

async function refusals(text, normals) {
  const found = [];
  const edits = [
    ["table", "w_hi", 5], ["table", "w_lo", 0], ["table", "k", 0], ["table", "r", -1], ["table", "T", 1],
    ["codebook", "kind", "Z"], ["codebook", "beacon", "x"], ["codebook", "stream", 2], ["codebook", "dimension", 6],
    ["certificate", "numerator", 1], ["certificate", "epsilon", 0.1], ["certificate", "indices", 9],
    ["certificate", "sha256", "0"], ["certificate", "unit", "record"],
  ];
  for (const [part, name, value] of edits) {
    const edited = JSON.parse(text);
    edited[part][name] = value;
    const error = await RankedCodebook.parse(JSON.stringify(edited), normals).then(() => null, (reason) => reason);
    if (!(error instanceof RankedError)) found.push(`took a file with another ${part}.${name} (${error})`);
  }
  for (const [other, table] of [["{}", normals], ["", normals], [text.replace("seeds", "Seeds"), normals],
    [text, normals.map((entry, i) => entry + (i === 9 ? 1 : 0))]]) {
    const error = await RankedCodebook.parse(other, table).then(() => null, (reason) => reason);
    if (!(error instanceof RankedError)) found.push(`took a damaged file or table (${error})`);
  }
  return found;
}

if (typeof process !== "undefined" && process.argv[1]?.endsWith("ranked-conformance.mjs")) {
  const { readFile } = await import("node:fs/promises");
  const read = async (name) => JSON.parse(await readFile(`${process.argv[2]}/${name}`, "utf8"));
  const normals = await read("normal-table.json");
  let failed = 0;
  for (const number of [1, 2, 3]) {
    const found = await problems(await read(`ranks-${number}.json`), normals);
    console.log(`ranks-${number}.json: ${found.length ? found.join("; ") : "reproduced"}`);
    failed += found.length;
  }
  process.exit(failed ? 1 : 0);
}
