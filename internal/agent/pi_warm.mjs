// Loaded by node ahead of pi (node --import THIS /usr/local/bin/pi). It loads all
// that pi will need, says that it is ready and waits, while the sandbox is saved
// and many are made of it. Then it reads one line of orders from file 3, answers,
// waits for "go", and lets node run pi as if it had just started. The standard
// input is empty from the start, as a command's is: loading looks at it already.
//
// The copies share the state of OpenSSL's and V8's generators, and JavaScript
// cannot seed them anew: without more, every copy would draw the same numbers. So
// from the start, before pi sees them, the functions that give random numbers take
// them from the kernel, which differs in each copy, and what draws from OpenSSL
// below JavaScript (keys, signatures, TLS) is refused. Other processes are new and
// seed themselves. See docs/adr/0008.
import crypto from 'node:crypto';
import fs from 'node:fs';
import module, { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import tls from 'node:tls';
import { pathToFileURL } from 'node:url';
import v8 from 'node:v8';
import vm from 'node:vm';
import { isMainThread } from 'node:worker_threads';

const from = 3; // where orders come from

const forget = ownRandomness();
// A worker of pi's gets this too, and has nothing to wait for.
if (isMainThread) {
  try {
    await wait();
  } catch (err) {
    fs.writeSync(2, `${err}\n`);
    process.exit(1);
  }
}

async function wait() {
  const entry = fs.realpathSync(process.argv[1]);
  module.enableCompileCache(); // as the entry does; later turns find what is kept here
  await preload(entry);
  module.flushCompileCache();
  collect();
  fs.writeSync(1, 'ready\n');

  const orders = JSON.parse(line());
  process.chdir(orders.dir);
  Object.assign(process.env, orders.env);
  process.argv.splice(2, Infinity, ...orders.args.slice(1));
  process.execArgv.length = 0;
  forget();
  fs.writeSync(1, JSON.stringify({ accepted: orders.token }) + '\n');
  if (line() !== 'go') throw new Error('that is no order to go');
  fs.closeSync(from);
}

// line reads a line; whoever sends one waits for the answer before the next.
function line() {
  const pieces = [];
  const piece = Buffer.alloc(64 << 10);
  for (;;) {
    const n = fs.readSync(from, piece, 0, piece.length, null);
    if (n === 0) throw new Error('nobody gives orders any more');
    pieces.push(Buffer.from(piece.subarray(0, n)));
    if (piece[n - 1] === 10) return Buffer.concat(pieces).toString().slice(0, -1);
  }
}

// preload loads what the entry imports, and what a turn loads when it gets there.
async function preload(entry) {
  const dir = path.dirname(entry);
  const runtime = fs.readFileSync(path.join(dir, 'cli-runtime.js'), 'utf8');
  const chunks = [...runtime.matchAll(/(?:from|import)"(\.\/chunks\/[\w.-]+\.js)"/g)].map((m) => m[1]);
  if (chunks.length === 0) throw new Error('this version of pi is laid out differently');
  for (const name of fs.readdirSync(path.join(dir, 'chunks'))) {
    if (/^(anthropic-messages|openai-completions|openai-responses)-/.test(name)) chunks.push('./chunks/' + name);
  }
  for (const chunk of chunks) await import(pathToFileURL(path.join(dir, chunk)));
}

// collect keeps out of the saved memory what loading left behind.
function collect() {
  v8.setFlagsFromString('--expose-gc');
  const gc = vm.runInNewContext('gc');
  v8.setFlagsFromString('--no-expose-gc');
  for (let i = 0; i < 3; i++) gc();
}

// ownRandomness returns the function that forgets what was drawn ahead.
function ownRandomness() {
  const source = fs.openSync('/dev/urandom');
  const pool = Buffer.alloc(4096);
  let used = pool.length;
  const read = (b) => {
    for (let at = 0; at < b.length;) at += fs.readSync(source, b, at, b.length - at, null);
    return b;
  };
  const drawn = (n) => {
    if (n > pool.length) return read(Buffer.alloc(n));
    if (used + n > pool.length) {
      read(pool);
      used = 0;
    }
    const b = Buffer.from(pool.subarray(used, used + n));
    pool.fill(0, used, used += n);
    return b;
  };
  const fill = (view, offset = 0, size = view.byteLength - offset) => {
    const to = ArrayBuffer.isView(view) ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(view);
    to.set(drawn(size), offset);
    return view;
  };
  const number = () => Number(drawn(8).readBigUInt64LE() >> 11n) / 2 ** 53;
  const uuid = () => {
    const b = drawn(16);
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    return b.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  };
  const integer = (min, max) => (max === undefined ? integer(0, min) : min + Math.floor(number() * (max - min)));
  // With a function as the last argument the answer comes later.
  const later = (make) => (...args) => {
    const done = args.at(-1);
    if (typeof done !== 'function') return make(...args);
    const made = make(...args.slice(0, -1));
    process.nextTick(done, null, made);
    return undefined;
  };
  Math.random = number;
  Object.assign(crypto, {
    randomBytes: later(drawn), pseudoRandomBytes: later(drawn), randomUUID: uuid, randomInt: later(integer),
    randomFill: later(fill), randomFillSync: fill,
  });
  const refuse = (what) => () => { throw new Error(`${what} would use random numbers that other sandboxes have too`); };
  for (const name of [
    'createDiffieHellman', 'createECDH', 'createSign', 'generateKey', 'generateKeyPair', 'generateKeyPairSync', 'generateKeySync',
    'generatePrime', 'generatePrimeSync', 'getDiffieHellman', 'publicEncrypt', 'sign',
  ]) crypto[name] = refuse('crypto.' + name);
  for (const name of ['connect', 'createServer']) tls[name] = refuse('tls.' + name);
  for (const name of ['encrypt', 'generateKey', 'sign']) {
    Object.defineProperty(globalThis.crypto.subtle, name, { value: refuse('crypto.subtle.' + name), configurable: true, writable: true });
  }
  // node:crypto's own getRandomValues asks this object.
  Object.defineProperties(globalThis.crypto, {
    getRandomValues: { value: (view) => fill(view), configurable: true, writable: true },
    randomUUID: { value: uuid, configurable: true, writable: true },
  });
  syncBuiltinESMExports();
  return () => { pool.fill(0); used = pool.length; };
}
