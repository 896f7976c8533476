/**
 * Ranked codebooks where the vector is: in a browser or in node, without dependencies.
 *
 *     const table = await (await fetch("normal-table.json")).json();
 *     const codebook = await RankedCodebook.parse(await (await fetch("ranks.json")).text(), table);
 *     const report = await codebook.answer(vector, round, slot); // a BigInt of codebook.bits bits
 *
 * Public stream, codewords and reports are those of docs/file-format.md; clients/vectors/ranks-*.json hold their
 * conformance vectors, normal-table.json the table of the normal distribution. Browsers offer WebCrypto to pages from
 * https and from localhost.
 */

const TOTAL = 2 ** 32;
const UNIT = 2 ** -24;
const OCTAVE_BITS = 8;
const ROWS_START = 2n ** 32n; // block that the rows of normal numbers start at
const TABLE_SHA256 = "1c01ef181ebc01d52a5966ba4319f900d9d7e0c716ed0f1c2507284adf60e7ed";
const SEED_RULE =
  "seeds are public and handed out, never chosen by the client; one answer per seed; asked again, the same answer";
const KEYS = "format version kind name table indices codebook seed_rule sha256 certificate";
const CODEBOOK = "kind dimension subspace norms clip_norm beacon stream";
const CERTIFICATE = "epsilon numerator denominator indices sha256 neighboring unit";

/** Why a file is no ranked codebook, or a vector no input; the message holds no value of the vector. */
export class RankedError extends Error {}

function require(condition, message) {
  if (!condition) throw new RankedError(message);
}

/** A codebook read from a mechanism file of kind "ranks", all checks of its claim passed. Make one with `parse`. */
export class RankedCodebook {
  #edges;
  #normals;
  #answers;

  constructor(document, normals, answers) {
    const { table, indices, codebook, sha256, certificate, name } = document;
    Object.assign(this, { ...codebook, table, indices, sha256, certificate, name });
    this.clipNorm = Number(codebook.clip_norm);
    this.codewords = table.M;
    /** Outputs of one index: codewords, and the null output if there is one. */
    this.outputs = table.M + (table.null ? 1 : 0);
    /** Bits of one report. */
    this.bits = (BigInt(this.outputs) ** BigInt(indices) - 1n).toString(2).length;
    this.size = codebook.dimension + (codebook.norms === "slack" ? 1 : 0);
    this.padded = codebook.subspace === null ? this.size : powerOfTwo(this.size);
    this.width = codebook.subspace ?? this.size;
    this.#edges = rows(table).map((row) => row.map(((sum) => (weight) => (sum += weight))(0)));
    this.#normals = normals;
    this.#answers = answers;
    Object.freeze(this);
  }

  /**
   * Reads a mechanism file.
   * @param {string} text the file.
   * @param {number[]} normals normal-table.json; another table is refused by its hash.
   * @param {{get: function, set: function}} answers keeps answers under "hash round": a Map, or what outlives the page.
   * @returns {Promise<RankedCodebook>}
   * @throws {RankedError} for anything else: a broken rule, another hash, another certificate.
   */
  static async parse(text, normals, answers = new Map()) {
    let document;
    try {
      document = JSON.parse(text);
    } catch {
      throw new RankedError("not JSON");
    }
    checkDocument(document);
    const { codebook, indices, seed_rule, table } = document;
    const hash = hex(await digest(new TextEncoder().encode(canonical({ codebook, indices, seed_rule, table }))));
    require(hash === document.sha256, "the table is not the one its sha256 names");
    require(document.certificate.sha256 === hash, "the certificate is about another table");
    const bytes = new DataView(new ArrayBuffer(4 * normals.length));
    normals.forEach((entry, i) => bytes.setInt32(4 * i, entry, true));
    require(hex(await digest(bytes.buffer)) === TABLE_SHA256, "not the pinned table of the normal distribution");
    return new RankedCodebook(document, Int32Array.from(normals), answers);
  }

  /**
   * The report for a question of the server: drawn once per round, and the same when it is asked again.
   * @param {ArrayLike<number>} vector what it is does not matter when the round was answered before.
   * @param {number} round 0 to 2^32 - 1.
   * @param {number} slot 0 to 2^32 - 1, assigned by the server.
   * @returns {Promise<bigint>}
   * @throws {RankedError} the round was answered under another slot.
   */
  async answer(vector, round, slot) {
    for (const part of [round, slot]) {
      require(Number.isInteger(part) && part >= 0 && part < TOTAL, "round and slot are integers below 2^32");
    }
    const place = `${this.sha256} ${round}`;
    let kept = await this.#answers.get(place);
    if (kept === undefined || kept === null) {
      const report = await this.encode(vector, (BigInt(round) << 32n) + BigInt(slot));
      // Asked twice at the same time: the answer that was kept first stands.
      kept = await this.#answers.get(place);
      if (kept === undefined || kept === null) {
        kept = `${slot} ${report}`;
        await this.#answers.set(place, kept);
      }
    }
    const [given, report] = kept.split(" ");
    require(Number(given) === slot, "this round was answered under another slot; one answer per round");
    return BigInt(report);
  }

  /**
   * A report under a seed that was handed out. Keep it: a second one under the same seed costs epsilon again.
   * @param {ArrayLike<number>} vector entries that are not finite count as 0; longer vectors are scaled down.
   * @param {bigint} seed public, never derived from the vector nor chosen by the client.
   * @returns {Promise<bigint>}
   */
  encode(vector, seed) {
    // Drawn before the vector is looked at.
    return this.report(vector, seed, crypto.getRandomValues(new BigUint64Array(this.indices)));
  }

  /** The report that given secret words lead to; for conformance vectors: who knows the words learns about the vector. */
  async report(vector, seed, words) {
    require(vector.length === this.dimension, `a vector has ${this.dimension} coordinates`);
    require(typeof seed === "bigint" && seed >= 0n && seed < 2n ** 64n, "a seed is a BigInt from 0 to 2^64 - 1");
    const { lifted, norm } = this.#lift(vector);
    if (this.subspace !== null) {
      const signs = await this.signs(seed >> 32n);
      signs.forEach((sign, i) => (lifted[i] *= sign));
      hadamard(lifted);
    }
    const threshold = this.norms === "null" ? BigInt(roundHalfEven(norm * TOTAL)) : 2n ** 32n;
    let report = 0n;
    for (let place = 0; place < this.indices; place++) {
      const products = await this.products(lifted, seed, place);
      const order = Array.from(products.keys()).sort((a, b) => products[b] - products[a] || a - b);
      order.push(this.codewords);
      const [low, high] = [Number(words[place] & 0xffffffffn), words[place] >> 32n];
      // Both rows' places are looked up, and one is taken.
      const ranks = this.#edges.map((edges) => edges.filter((edge) => edge <= low).length);
      const row = Number(high >= threshold) * (ranks.length - 1);
      report = report * BigInt(this.outputs) + BigInt(order[ranks[row]]);
    }
    return report;
  }

  // The vector over the clipping norm, at most of norm 1, with its slack coordinate; and its norm.
  #lift(vector) {
    const lifted = new Float64Array(this.padded);
    let largest = 0;
    for (let i = 0; i < this.dimension; i++) {
      lifted[i] = Number.isFinite(vector[i]) ? vector[i] : 0;
      largest = Math.max(largest, Math.abs(lifted[i]));
    }
    largest = largest > 0 ? largest : 1;
    let squares = 0;
    for (let i = 0; i < this.dimension; i++) {
      lifted[i] /= largest;
      squares += lifted[i] * lifted[i];
    }
    const size = Math.sqrt(squares);
    const norm = size > 0 ? Math.min(1, size * (largest / this.clipNorm)) : 0;
    const factor = (this.norms === "slack" ? norm : 1) / (size > 0 ? size : 1);
    for (let i = 0; i < this.dimension; i++) lifted[i] *= factor;
    if (this.norms === "slack") lifted[this.dimension] = Math.sqrt(Math.max(0, 1 - norm * norm));
    return { lifted, norm };
  }

  // The public stream ------------------------------------------------------------------------------------------------

  /** The key of a report's index. */
  key(seed, place) {
    return streamKey("report", this.beacon, seed, place);
  }

  /** (padded) numbers +-1 of a round. */
  async signs(round) {
    const key = await streamKey("signs", this.beacon, round);
    const words = await halves(key, 0n, 4 * Math.ceil(this.padded / 128));
    return Array.from({ length: this.padded }, (_, j) => ((words[j >> 5] >>> (j & 31)) & 1 ? 1 : -1));
  }

  /** The transform's outputs that an index's codewords live in. */
  async positions(key) {
    const [found, taken] = [[], new Set()];
    for (let block = 0n; found.length < this.subspace; block += 64n) {
      for (const word of await halves(key, block, 256)) {
        const place = word % this.padded;
        if (found.length < this.subspace && !taken.has(place)) {
          taken.add(place);
          found.push(place);
        }
      }
    }
    return found;
  }

  /** (count, width) normal numbers in units of 2^-24: rows from `first` on. */
  async normals(key, first, count) {
    const blocks = Math.ceil(this.width / 4);
    const words = await halves(key, ROWS_START + BigInt(first * blocks), 4 * blocks * count);
    return Array.from({ length: count }, (_, i) =>
      Float64Array.from({ length: this.width }, (_, j) => this.#normal(words[4 * blocks * i + j])),
    );
  }

  #normal(word) {
    const place = word & 0x7fffffff;
    const shift = Math.max(0, 32 - Math.clz32(place >>> (OCTAVE_BITS + 1)));
    const piece = (shift << OCTAVE_BITS) + (place >>> shift);
    const [left, right] = [this.#normals[piece], this.#normals[piece + 1]];
    const rest = place % 2 ** shift;
    const size = left - Math.floor(((left - right) * rest) / 2 ** shift); // below 2^53: exact
    return word >>> 31 ? -size : size;
  }

  /** (M) inner products of a transformed vector with the codewords of an index. */
  async products(lifted, seed, place) {
    const key = await this.key(seed, place);
    let vector = lifted;
    if (this.subspace !== null) vector = (await this.positions(key)).map((i) => lifted[i]);
    const rows = { S: this.codewords - 1, X: this.codewords / 2, G: this.codewords, GX: this.codewords / 2 }[this.kind];
    let basis = await this.normals(key, 0, rows);
    if (this.kind === "S" || this.kind === "X") basis = orthonormal(basis);
    const half = basis.map((row) => dot(row, vector) * (this.kind[0] === "G" ? UNIT : 1));
    if (this.kind === "S") return simplex(this.codewords).map((row) => dot(row, half));
    if (this.kind === "G") {
      const mean = half.reduce((sum, value) => sum + value, 0) / half.length;
      return half.map((value) => value - mean);
    }
    return [...half, ...half.map((value) => -value)];
  }
}

// Words ---------------------------------------------------------------------------------------------------------------

/** SHA-256 of "mezzotint public stream 1", purpose, beacon and numbers, separated by zero bytes. */
export function streamKey(purpose, beacon, ...numbers) {
  return digest(new TextEncoder().encode(["mezzotint public stream 1", purpose, beacon, ...numbers].join("\0")));
}

async function digest(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// 32-bit little-endian numbers from a block of AES-256 in counter mode on; count is a multiple of 4.
async function halves(key, block, count) {
  const aes = await crypto.subtle.importKey("raw", key, "AES-CTR", false, ["encrypt"]);
  const counter = new DataView(new ArrayBuffer(16));
  counter.setBigUint64(8, block);
  const mode = { name: "AES-CTR", counter: counter.buffer, length: 128 };
  const view = new DataView(await crypto.subtle.encrypt(mode, aes, new Uint8Array(4 * count)));
  return Uint32Array.from({ length: count }, (_, i) => view.getUint32(4 * i, true));
}

// Numbers -------------------------------------------------------------------------------------------------------------

function powerOfTwo(size) {
  return 2 ** (size > 1 ? 32 - Math.clz32(size - 1) : 0);
}

function roundHalfEven(value) {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
}

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

// Walsh-Hadamard over sqrt(N), in place.
function hadamard(values) {
  for (let half = 1; half < values.length; half *= 2) {
    for (let start = 0; start < values.length; start += 2 * half) {
      for (let i = start; i < start + half; i++) {
        const [a, b] = [values[i], values[i + half]];
        [values[i], values[i + half]] = [a + b, a - b];
      }
    }
  }
  const scale = 1 / Math.sqrt(values.length);
  for (let i = 0; i < values.length; i++) values[i] *= scale;
}

// Gram and Schmidt, each row freed of the earlier ones twice.
function orthonormal(rows) {
  const found = [];
  for (const row of rows) {
    let next = Float64Array.from(row);
    for (let pass = 0; pass < 2; pass++) {
      for (const earlier of found) {
        const along = dot(next, earlier);
        next = next.map((value, i) => value - along * earlier[i]);
      }
    }
    const size = Math.sqrt(dot(next, next));
    found.push(next.map((value) => value / size));
  }
  return found;
}

// (M, M - 1) unit vectors with inner products -1 / (M - 1).
function simplex(count) {
  return Array.from({ length: count }, (_, m) =>
    Array.from({ length: count - 1 }, (_, column) => {
      const j = column + 1;
      const entry = m < j ? 1 : m === j ? -j : 0;
      return (entry / Math.sqrt(j * (j + 1))) * Math.sqrt(count / (count - 1));
    }),
  );
}

// Weights by place: of a ranked row, and with a null output of the zero vector's.
function rows({ M, k, w_hi, w_lo, r, null: none }) {
  const ranked = Array.from({ length: M }, (_, i) => (i < k ? w_hi : i < k + r ? w_lo + 1 : w_lo));
  return none ? [[...ranked, none[0]], [...Array(M).fill(w_lo), none[1]]] : [ranked];
}

// The file ------------------------------------------------------------------------------------------------------------

function checkDocument(document) {
  keys(document, KEYS, "file");
  const { format, version, kind, name, table, indices, codebook, seed_rule, certificate } = document;
  require(format === "mezzotint-mechanism" && version === 1 && kind === "ranks", "not a file of kind ranks, version 1");
  require(typeof name === "string", "name is not text");
  require(seed_rule === SEED_RULE, "the seed rule is not the one that the claim supposes");
  require(Number.isInteger(indices) && indices >= 1 && indices <= 64, "indices is not between 1 and 64");
  keys(codebook, CODEBOOK, "codebook");
  require(["S", "X", "G", "GX"].includes(codebook.kind), "codebook kind");
  require(["unit", "slack", "null"].includes(codebook.norms), "codebook norms");
  require(positive(codebook.dimension) && codebook.dimension <= 2 ** 24, "codebook dimension");
  const size = codebook.dimension + (codebook.norms === "slack" ? 1 : 0);
  const inside = codebook.subspace;
  require(inside === null || (positive(inside) && 2 * inside <= powerOfTwo(size)), "codebook subspace");
  require(inside === null || codebook.kind[0] === "G", "only G and GX live in a subspace");
  require(typeof codebook.beacon === "string" && !codebook.beacon.includes("\0"), "codebook beacon");
  require(typeof codebook.clip_norm === "string" && Number(codebook.clip_norm) > 0, "codebook clip_norm");
  require(Number.isFinite(Number(codebook.clip_norm)) && codebook.stream === 1, "codebook clip_norm or stream");
  const [high, low] = checkTable(table);
  require((codebook.norms === "null") === Boolean(table.null), "a null output goes with norms null");
  require(codebook.kind === "S" || codebook.kind === "G" || table.M % 2 === 0, "need an even number of +- pairs");
  const most = { S: size + 1, X: 2 * size }[codebook.kind] ?? table.M;
  require(table.M <= most, "more codewords than fit into the coordinates");
  keys(certificate, CERTIFICATE, "certificate");
  const { numerator, denominator } = certificate;
  require(positive(numerator) && positive(denominator), "the certificate names no ratio");
  require(BigInt(numerator) * low === BigInt(denominator) * high, "the certificate does not name the largest ratio");
  require(certificate.indices === indices, "the certificate is about another number of indices");
  require(certificate.neighboring === "replace_one" && certificate.unit === "report", "the certificate's relation");
  const exact = indices * Math.log(numerator / denominator);
  require(Math.abs(certificate.epsilon - exact) <= 1e-9 * (1 + exact), "epsilon is not the ratio's logarithm");
}

// The largest ratio of two weights that one output can have.
function checkTable(table) {
  keys(table, "null" in Object(table) ? "M k T w_hi w_lo r null" : "M k T w_hi w_lo r", "table");
  const { M, k, T, w_hi, w_lo, r, null: none = null } = table;
  require([M, k, w_hi, w_lo].every(positive) && Number.isInteger(r) && r >= 0, "a weight is no positive integer");
  require(T === TOTAL && M >= 2 && M <= 2 ** 20 && k < M && r <= M - k, "the table's counts");
  require(w_hi >= w_lo + (r > 0 ? 1 : 0), "w_hi is below a weight of the other ranks");
  const pair = none ?? [];
  require(none === null || (Array.isArray(none) && none.length === 2 && none.every(positive)), "null is no pair");
  require(k * w_hi + r + (M - k) * w_lo + (pair[0] ?? 0) === T, "the weights do not sum to 2^32");
  if (none === null) {
    require(!("null" in table), "null is no pair");
    return [BigInt(w_hi), BigInt(w_lo)];
  }
  require(pair[0] <= pair[1] && M * w_lo + pair[1] === T, "the weights of the null row do not sum to 2^32");
  const larger = BigInt(pair[1]) * BigInt(w_lo) > BigInt(w_hi) * BigInt(pair[0]);
  return larger ? [BigInt(pair[1]), BigInt(pair[0])] : [BigInt(w_hi), BigInt(w_lo)];
}

function positive(value) {
  return Number.isSafeInteger(value) && value >= 1;
}

function keys(value, names, where) {
  require(typeof value === "object" && value !== null && !Array.isArray(value), `${where} is not an object`);
  require(Object.keys(value).sort().join() === names.split(" ").sort().join(), `${where} keys missing or unknown`);
}

// JSON with sorted keys, no spaces, ASCII.
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const entries = Object.keys(value).sort().map((key) => `${canonical(key)}:${canonical(value[key])}`);
    return `{${entries.join(",")}}`;
  }
  const text = JSON.stringify(value);
  return text.replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
