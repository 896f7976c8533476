/**
 * Private reports drawn where the value is: in a browser or in node, without dependencies.
 *
 *     const mechanism = await Mechanism.parse(await (await fetch("mechanism.json")).text());
 *     await fetch("report", { method: "POST", body: mechanism.message(value) });
 *
 * The rule by which a value becomes a code is that of docs/file-format.md, "The sampling rule"; clients/vectors/
 * sampling.json holds its conformance vectors. Browsers offer WebCrypto to pages from https and from localhost.
 */

const TOTAL = 2 ** 32;
const [OTHER, MISSING, PART] = ["(other)", "(missing)", 2 ** 18];
const KEYS = "format version name knots levels weights sha256 certificate";

/** Text as it is, trimmed, in lower case where it is true or false, and without a fraction of zeros. */
function spellings(text) {
  const trimmed = text.trim();
  const lower = trimmed.toLowerCase();
  const whole = /^(-?(?:0|[1-9][0-9]*))(?:\.0+)?$/.exec(trimmed);
  const others = lower === "true" || lower === "false" ? [lower] : [];
  if (whole) others.push(whole[1] === "-0" ? "0" : whole[1]);
  return [text, trimmed, ...others];
}

/** Why a file is no mechanism, or a value no input; the message holds no value. */
export class MechanismError extends Error {}

function require(condition, message) {
  if (!condition) throw new MechanismError(message);
}

/** A table read from a mechanism file, all its checks passed. Make one with `Mechanism.parse`. */
export class Mechanism {
  #segments = [];
  #cells;

  constructor(document) {
    const { knots, levels, weights, categories = null, name, sha256, certificate } = document;
    Object.assign(this, { knots, levels, weights, categories, name, sha256, certificate });
    /** Bits of one report. */
    this.bits = 32 - Math.clz32(levels.length - 1);
    for (let k = 0; k + 1 < knots.length; k++) {
      const width = knots[k + 1] - knots[k]; // of a jump 0: no input falls into it
      if (width > 0) this.#segments.push({ start: knots[k], slope: TOTAL / width, row: k });
    }
    this.#cells = weights.map((row) => aliasCells(row, this.bits));
    Object.freeze(this);
  }

  /**
   * Reads a mechanism file.
   * @param {string} text the file, byte for byte.
   * @returns {Promise<Mechanism>}
   * @throws {MechanismError} for anything that is no mechanism: a broken rule, another hash or another epsilon.
   */
  static async parse(text) {
    const document = wholeJson(text);
    require(!standsTwice(text), "a key stands twice");
    checkDocument(document);
    const hash = Array.from(await digest(canonical(document)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    require(hash === document.sha256, "the table is not the one its sha256 names");
    checkCertificate(document);
    return new Mechanism(document);
  }

  /** The clipped number that a value or a category stands for; `null` and `undefined` are missing. */
  input(value) {
    const number = this.categories === null ? value : this.#category(value);
    require(typeof number === "number" && !Number.isNaN(number), "an input is a number, and not NaN");
    return Math.min(Math.max(number, this.knots[0]), this.knots[this.knots.length - 1]);
  }

  #category(value) {
    const named = Number.isSafeInteger(value) || typeof value === "string" || typeof value === "boolean";
    const absent = value === null || value === undefined || Number.isNaN(value);
    require(absent || named, "a category is text, an integer, or true or false");
    const text = absent ? "" : String(value);
    let place = spellings(text).map((one) => this.#listed(one)).find((one) => one >= 0) ?? -1;
    if (place < 0) place = this.categories.indexOf(text.trim() === "" ? MISSING : OTHER);
    require(place >= 0, "no category of this table");
    return place;
  }

  /** The place of a category that text can name: not of those for other and missing values. */
  #listed(text) {
    return text === OTHER || text === MISSING ? -1 : this.categories.indexOf(text);
  }

  /**
   * The code that two given 32-bit words lead to. Reports take theirs from `report`; this is for conformance vectors.
   * @param {number|string|boolean|null} value the input.
   * @param {number} low of the word: names the level.
   * @param {number} high of the word: chooses between the two rows beside the input.
   */
  code(value, low, high) {
    const x = this.input(value);
    let [first, last] = [0, this.#segments.length - 1];
    while (first < last) {
      const middle = (first + last + 1) >> 1;
      if (x >= this.#segments[middle].start) first = middle;
      else last = middle - 1;
    }
    const { start, slope, row } = this.#segments[first];
    const cells = this.#cells[row + (high < Math.floor((x - start) * slope + 0.5) ? 1 : 0)];
    const cell = low >>> (32 - this.bits);
    const ones = (1 << this.bits) - 1;
    return ((low << this.bits) | ones) >>> 0 < cells[cell] ? cell : cells[cell] & ones;
  }

  /**
   * One private report: a code from 0 to levels.length - 1. Every call is a release of its own.
   * @param {number|string|boolean|null} value the input, data units; clipped to the first and last knot.
   */
  report(value) {
    const words = crypto.getRandomValues(new Uint32Array(2));
    return this.code(value, words[0], words[1]);
  }

  /** One report as the JSON that `mezzotint.collect.Counter` reads. */
  message(value) {
    return JSON.stringify({ format: "mezzotint-report", version: 1, sha256: this.sha256, code: this.report(value) });
  }
}

// Words -------------------------------------------------------------------------------------------------------------

/**
 * Words of a key's stream, for reproducible draws in tests. Whoever knows the key knows every word.
 * @param {Uint8Array} key 32 bytes.
 * @param {number} first index of the first element.
 * @param {number} count how many words.
 * @returns {Promise<Uint32Array>} low and high half of each, 2 * count numbers.
 */
export async function keystream(key, first, count) {
  const aes = await crypto.subtle.importKey("raw", key, "AES-CTR", false, ["encrypt"]);
  const words = new Uint32Array(2 * count);
  for (let done = 0; done < count; ) {
    const place = (first + done) % PART;
    const size = Math.min(count - done, PART - place);
    const block = BigInt(Math.floor((first + done) / PART)) * 2n ** 32n + 2n + BigInt(place >> 1);
    const counter = new DataView(new ArrayBuffer(16));
    counter.setBigUint64(0, block >> 64n);
    counter.setBigUint64(8, block & (2n ** 64n - 1n));
    const zeros = new Uint8Array(8 * (size + (place & 1)));
    const mode = { name: "AES-CTR", counter: counter.buffer, length: 128 };
    const view = new DataView(await crypto.subtle.encrypt(mode, aes, zeros), 8 * (place & 1));
    for (let i = 0; i < 2 * size; i++) words[2 * done + i] = view.getUint32(4 * i, true);
    done += size;
  }
  return words;
}

/** The key of a seed, as `Mechanism.privatize(x, rng=seed)` has it. */
export const seedKey = (seed) => digest(`mezzotint seed ${seed}`);

// 2^bits cells of one row, threshold above alias; docs/proofs/sampling.md derives the sweep.
function aliasCells(weights, bits) {
  const size = 2 ** bits;
  const capacity = 2 ** (32 - bits);
  const cells = Uint32Array.from({ length: size }, (_, cell) => cell);
  const units = (level) => (level < weights.length ? weights[level] : 0);
  const nextHeavy = (level) => {
    while (level < weights.length && weights[level] <= capacity) level++;
    return level;
  };
  let [light, heavy] = [-1, nextHeavy(0)];
  let rest = units(heavy);
  while (heavy < weights.length) {
    let [cell, threshold] = [heavy, rest];
    if (rest > capacity) {
      do light++; while (units(light) > capacity);
      [cell, threshold] = [light, units(light)];
    } else [heavy, rest] = [nextHeavy(heavy + 1), units(nextHeavy(heavy + 1))];
    if (threshold < capacity) {
      cells[cell] = threshold * size + heavy;
      rest -= capacity - threshold;
    }
  }
  return cells;
}

// The file ----------------------------------------------------------------------------------------------------------

function wholeJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new MechanismError("not valid JSON");
  }
}

function checkDocument(document) {
  require(document?.format === "mezzotint-mechanism", 'its "format" is not "mezzotint-mechanism"');
  require(document.version === 1, "of a version that this reader does not know");
  require(document.kind === undefined, "a ranked codebook, which reports vectors");
  const { knots, levels, weights, categories, name } = document;
  require(hasKeys({ ...document, categories: 0 }, `${KEYS} categories`), "keys missing or unknown");
  require(typeof name === "string", "name must be text");
  require(isSorted(knots, (a, b) => a <= b) && knots.length >= 2, "knots must be sorted numbers, at least 2");
  require(isSorted(levels, (a, b) => a < b), "levels must be strictly increasing numbers");
  require(levels.length >= 2 && levels.length <= 65536, "2 to 65536 levels");
  const last = knots.length - 1;
  require(knots[0] < knots[1] && knots[last - 1] < knots[last], "no jump can be at the first or last knot");
  require(knots[last] - knots[0] < Infinity, "the knots' spread overflows");
  for (let k = 0; k < last; k++) {
    const step = knots[k + 1] - knots[k];
    require(step === 0 || step >= 2 ** -900, "knots are too close");
    require(k === 0 || step > 0 || knots[k] > knots[k - 1], "a knot may stand at most twice");
  }
  require(Array.isArray(weights) && weights.length === knots.length, "need one row of weights per knot");
  for (const row of weights) {
    require(Array.isArray(row) && row.length === levels.length, "need one weight per level");
    require(row.every((weight) => Number.isInteger(weight) && weight >= 0), "weights are integers from 0 on");
    require(row.reduce((sum, weight) => sum + weight, 0) === TOTAL, "every row must sum to 2^32");
  }
  if (categories === undefined) return;
  require(Array.isArray(categories) && categories.every((one) => typeof one === "string"), "categories are text");
  require(new Set(categories).size === categories.length, "a category stands twice");
  require(categories.length === knots.length && knots.every((knot, i) => knot === i), "category i has the row of knot i");
}

function isSorted(values, ordered) {
  const fits = (value, i) => Number.isFinite(value) && (i === 0 || ordered(values[i - 1], value));
  return Array.isArray(values) && values.every(fits);
}

function hasKeys(object, wanted) {
  return Object.keys(object ?? {}).sort().join(" ") === wanted.split(" ").sort().join(" ");
}

// JSON.parse takes the last of two equal keys; another reader might take the first.
function standsTwice(text) {
  const open = [];
  for (const [token, key, colon] of text.matchAll(/("(?:[^"\\]|\\.)*")(\s*:)?|[{}[\]]/g)) {
    if (token === "{" || token === "[") open.push(new Set());
    else if (token === "}" || token === "]") open.pop();
    else if (colon) {
      const name = JSON.parse(key);
      if (open[open.length - 1].has(name)) return true;
      open[open.length - 1].add(name);
    }
  }
  return false;
}

/** The table as canonical JSON, whose SHA-256 is its hash. */
export function canonical({ knots, levels, weights, categories }) {
  const list = (values) => `[${values.join(",")}]`;
  const escape = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const named = categories && categories.map((name) => JSON.stringify(name).replace(/[^ -~]/g, escape));
  const rows = list(weights.map((row) => list(row)));
  const table = `{"knots":${list(knots.map(decimal))},"levels":${list(levels.map(decimal))},"weights":${rows}`;
  return `${table}${named ? `,"categories":${list(named)}` : ""}}`;
}

// The shortest decimal that reads back to the same double, as Python's repr writes it.
function decimal(x) {
  if (x === 0) return "0.0"; // no negative zero
  const [, sign, lead, more = "", power] = /^(-?)(\d)(?:\.(\d+))?e([+-]\d+)$/.exec(x.toExponential());
  const [digits, exponent] = [lead + more, Number(power)];
  if (exponent < -4 || exponent >= 16) {
    const size = String(Math.abs(exponent)).padStart(2, "0");
    return `${sign}${lead}${more && `.${more}`}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  return `${sign}${digits.slice(0, exponent + 1).padEnd(exponent + 1, "0")}.${digits.slice(exponent + 1) || "0"}`;
}

const digest = async (text) =>
  new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));

// The stated epsilon is compared with the logarithm of the largest ratio of two weights of a level.
function checkCertificate({ weights, certificate }) {
  require(hasKeys(certificate, "epsilon"), "certificate: keys missing or unknown");
  let [top, bottom] = [1, 1];
  for (const level of weights[0].keys()) {
    const column = weights.map((row) => row[level]);
    const [high, low] = [Math.max(...column), Math.min(...column)];
    if (high > 0 && BigInt(high) * BigInt(bottom) > BigInt(top) * BigInt(low)) [top, bottom] = [high, low];
    if (bottom === 0) break;
  }
  const epsilon = bottom === 0 ? "inf" : Math.log1p((top - bottom) / bottom);
  const stated = certificate.epsilon;
  const near = typeof stated === "number" && Math.abs(stated - epsilon) <= 2 ** -47 * epsilon;
  require(near || stated === epsilon, "certificate: another epsilon");
}
