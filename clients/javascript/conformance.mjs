/**
 * Checks mezzotint.mjs against clients/vectors/sampling.json, and its randomness by chi-square.
 * In node: `node conformance.mjs`; in a page: `await problems(vectors)`.
 */

import { Mechanism, MechanismError, keystream, seedKey } from "./mezzotint.mjs";

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const word = (low, high) => ((BigInt(high) << 32n) | BigInt(low)).toString(16).padStart(16, "0");

/** One sentence for everything in which the module differs from the vectors. */
export async function problems(vectors) {
  const found = [];
  for (const { seed, key, first, words } of vectors.keystreams) {
    const derived = await seedKey(seed);
    if (hex(derived) !== key) found.push(`key of seed ${seed}`);
    const drawn = await keystream(derived, first, words.length);
    words.forEach((wanted, i) => {
      if (word(drawn[2 * i], drawn[2 * i + 1]) !== wanted) found.push(`word ${i} of seed ${seed} from ${first}`);
    });
  }
  for (const { name, mechanism: text, inputs, words, codes } of vectors.draws) {
    const mechanism = await Mechanism.parse(text);
    inputs.forEach((input, i) => {
      const [high, low] = [words[i].slice(0, 8), words[i].slice(8)].map((half) => parseInt(half, 16));
      if (mechanism.code(input, low, high) !== codes[i]) found.push(`code ${i} of ${name}`);
    });
    found.push(...randomness(name, mechanism, inputs[0]));
    for (const wrong of mechanism.categories ? [1.5, {}] : [NaN, "1", null, undefined, 1n]) {
      if (refusal(() => mechanism.report(wrong)) === null) found.push(`${name} took ${typeof wrong}`);
    }
  }
  for (const { why, text } of vectors.refused) {
    const error = await Mechanism.parse(text).then(() => null, (reason) => reason);
    if (!(error instanceof MechanismError)) found.push(`took a file with ${why} (${error})`);
  }
  return found;
}

function refusal(attempt) {
  try {
    attempt();
    return null;
  } catch (error) {
    return error instanceof MechanismError ? error : null;
  }
}

const REPORTS = 20000;

// Pearson's statistic beyond mean + 6 s.d. + 20 of its law: less than one false alarm in a million for each table.
function randomness(name, mechanism, input) {
  const x = mechanism.input(input);
  const { knots, weights, levels } = mechanism;
  let k = knots.length - 2;
  while (k > 0 && (knots[k] > x || knots[k] === knots[k + 1])) k--;
  const t = (x - knots[k]) / (knots[k + 1] - knots[k]);
  const expected = levels.map((_, i) => (REPORTS * ((1 - t) * weights[k][i] + t * weights[k + 1][i])) / 2 ** 32);
  const counts = levels.map(() => 0);
  for (let i = 0; i < REPORTS; i++) counts[mechanism.report(input)]++;
  if (expected.some((mean, i) => mean === 0 && counts[i] > 0)) return [`${name} reported what has no probability`];
  // Rare codes together: the chi-square law supposes at least 5 expected.
  const groups = [[0, 0]];
  expected.forEach((mean, i) => {
    if (mean >= 5) groups.push([mean, counts[i]]);
    else [groups[0][0], groups[0][1]] = [groups[0][0] + mean, groups[0][1] + counts[i]];
  });
  const kept = groups.filter(([mean]) => mean >= 5);
  const statistic = kept.reduce((sum, [mean, count]) => sum + (count - mean) ** 2 / mean, 0);
  const freedom = kept.length - 1;
  const limit = freedom + 6 * Math.sqrt(2 * freedom) + 20;
  return statistic <= limit ? [] : [`${name}: chi-square ${statistic.toFixed(1)} beyond ${limit.toFixed(1)}`];
}

if (typeof process !== "undefined" && process.argv?.[1] && import.meta.url.endsWith("/conformance.mjs")) {
  const { readFile } = await import("node:fs/promises");
  const vectors = JSON.parse(await readFile(new URL("../vectors/sampling.json", import.meta.url), "utf8"));
  const found = await problems(vectors);
  console.log(found.length ? found.join("\n") : "conforms");
  process.exitCode = found.length ? 1 : 0;
}
