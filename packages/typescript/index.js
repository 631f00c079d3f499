// tollgate for Node.js: promises and synchronous calls around the native module. index.d.ts documents it.
'use strict';
const { join } = require('node:path');
const { errorOf, ...errors } = require('./errors.js');

const native = require(join(__dirname, 'native', `${process.platform}-${process.arch}`, 'tollgate.node'));

// The first versions of Node.js 20 have no such symbol, and then no `await using` either.
const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');

/** Waits for a call of the native module, and throws our errors. */
async function call(promise) {
  try {
    return await promise;
  } catch (thrown) {
    fail(thrown, call);
  }
}

/** The same for a synchronous call. */
function callSync(run) {
  try {
    return run();
  } catch (thrown) {
    fail(thrown, callSync);
  }
}

/** Throws our error. Its stack begins at the caller of this function of ours. */
function fail(thrown, from) {
  const error = errorOf(thrown);
  Error.captureStackTrace?.(error, from);
  throw error;
}

const json = async (promise) => JSON.parse(await call(promise));

/** The last argument of a native call that has a synchronous form. */
const SYNC = true;

class Workspace {
  #path;
  #opened;

  constructor(path) {
    this.#path = String(path);
  }

  /** Opened once, at the first use. After a failure, the next use tries again. */
  #native() {
    this.#opened ??= call(native.openWorkspace(this.#path)).catch((error) => {
      this.#opened = undefined;
      throw error;
    });
    return this.#opened;
  }

  async path() {
    return (await this.#native()).path;
  }

  async turn({ agent } = {}) {
    return new Turn(await call((await this.#native()).turn(agent)));
  }

  async vault({ create = false } = {}) {
    return new Vault(await call((await this.#native()).vault(create)));
  }

  async history(path, { agent, task, since, limit } = {}) {
    const from = since instanceof Date ? since.toISOString() : since;
    return json((await this.#native()).history(path, agent, task, from, limit));
  }

  async blame(path, { why = false } = {}) {
    return json((await this.#native()).blame(path, why));
  }
}

/** What a claim needs of a turn. */
let nativeTurn;

class Turn {
  #native;

  static {
    nativeTurn = (turn) => turn.#native;
  }

  constructor(turn) {
    this.#native = turn;
  }

  get id() {
    return this.#native.id;
  }

  get agent() {
    return this.#native.agent;
  }

  async read(path, { lines: [from, to] = [] } = {}) {
    return new Read(await call(this.#native.read(String(path), from, to)));
  }

  readSync(path, { lines: [from, to] = [] } = {}) {
    return new Read(callSync(() => this.#native.read(String(path), from, to, SYNC)));
  }

  write(path, content, { expectedHash } = {}) {
    return json(this.#native.write(String(path), bytes(content), expectedHash));
  }

  writeSync(path, content, { expectedHash } = {}) {
    return JSON.parse(callSync(() => this.#native.write(String(path), bytes(content), expectedHash, SYNC)));
  }

  create(path, content) {
    return json(this.#native.create(String(path), bytes(content)));
  }

  edit(path, oldText, newText, { all = false, expectedHash } = {}) {
    return json(this.#native.edit(String(path), oldText, newText, all, expectedHash));
  }

  editSync(path, oldText, newText, { all = false, expectedHash } = {}) {
    return JSON.parse(callSync(() => this.#native.edit(String(path), oldText, newText, all, expectedHash, SYNC)));
  }

  delete(path, { expectedHash } = {}) {
    return json(this.#native.delete(String(path), expectedHash));
  }

  moveFile(path, to, { expectedHash } = {}) {
    return json(this.#native.moveFile(String(path), String(to), expectedHash));
  }

  apply(changes) {
    return json(this.#native.apply(JSON.stringify(changes)));
  }

  initialHash(path) {
    return json(this.#native.initialHash(String(path)));
  }

  merge(path) {
    return json(this.#native.merge(String(path)));
  }

  async end() {
    await call(this.#native.end());
  }

  [asyncDispose]() {
    return this.end();
  }
}

/** Text stays text; other views of bytes become a Buffer over the same memory. */
function bytes(content) {
  if (typeof content === 'string' || Buffer.isBuffer(content)) return content;
  return Buffer.from(content.buffer, content.byteOffset, content.byteLength);
}

class Read {
  constructor({ path, sha256, size, bytes }) {
    Object.assign(this, { path, sha256, size, bytes });
  }

  get text() {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(this.bytes);
  }
}

class Vault {
  #native;

  constructor(vault) {
    this.#native = vault;
  }

  add(task, text) {
    return json(this.#native.add(task, text));
  }

  list(state) {
    return json(this.#native.list(state));
  }

  get(task) {
    return json(this.#native.get(task));
  }

  async claim(task, { agent, tenure = 'held' } = {}) {
    return new Claim(await call(this.#native.claim(task, agent, tenure === 'leased')));
  }

  async claimNext({ agent, tenure = 'held' } = {}) {
    return new Claim(await call(this.#native.claimNext(agent, tenure === 'leased')));
  }

  async work(options, callback) {
    const claim = await this.claimNext(options);
    let result;
    try {
      result = await callback(claim);
    } catch (error) {
      // The caller must hear of its own error, not of this release. If it fails, the claim ends with the process.
      if (!claim.ended) await claim.release('failure', { note: String(error).slice(0, 500) }).catch(() => {});
      throw error;
    }
    if (!claim.ended) await claim.release();
    return result;
  }
}

class Claim {
  #native;

  constructor(claim) {
    this.#native = claim;
    this.payload = JSON.parse(claim.payload);
    const { task, agent, claim_id: claimId, mode, epoch, path, action, lease_until: leaseUntil } = this.payload;
    Object.assign(this, { task, agent, claimId, mode, epoch, path, action, leaseUntil });
  }

  get ended() {
    return this.#native.ended;
  }

  text() {
    return json(this.#native.text());
  }

  async turn() {
    return new Turn(await call(this.#native.turn()));
  }

  fence(turn) {
    this.#native.fence(nativeTurn(turn));
  }

  verify() {
    return json(this.#native.verify());
  }

  renew() {
    return json(this.#native.renew());
  }

  async progress(text) {
    await call(this.#native.progress(text));
  }

  async draft(text) {
    await call(this.#native.draft(text));
  }

  release(result = 'success', { to, note } = {}) {
    return json(this.#native.release(result === 'failure' ? 'failure' : 'success', to, note));
  }

  giveBack() {
    return json(this.#native.release('give back'));
  }

  /** A claim that was not released: its work did not come to its end. */
  async [asyncDispose]() {
    if (this.ended) return;
    await this.release('failure', { note: 'the work ended without a release' }).catch((error) => {
      if (!(error instanceof errors.NotOwner)) throw error;
    });
  }
}

module.exports = { Workspace, Turn, Read, Vault, Claim, ...errors, ...require('./tools.js') };
