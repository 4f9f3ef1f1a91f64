// A Node program that loads a command's modules, says "warm", waits for one line
// of JSON {argv, env, cwd} on its standard input, and becomes the command. It is
// saved while it waits, so that many boxes begin with it.
//
// The copies would share what OpenSSL and V8 have drawn before: whatever a
// program asks of node:crypto or Math.random is therefore answered by the kernel,
// from the start. Out of reach from here is what OpenSSL draws for itself (TLS,
// key pairs): a program that needs those must not be made warm like this.
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { syncBuiltinESMExports } from 'node:module';
import { pathToFileURL } from 'node:url';

const source = fs.openSync('/dev/urandom');
const drawn = (n) => {
  const b = Buffer.alloc(n);
  for (let at = 0; at < n;) at += fs.readSync(source, b, at, n - at, null);
  return b;
};
const fill = (view) => {
  const bytes = ArrayBuffer.isView(view) ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(view);
  bytes.set(drawn(bytes.length));
  return view;
};
const uuid = () => {
  const b = drawn(16);
  b[6] = (b[6] & 0x0f) | 0x40;
  b[8] = (b[8] & 0x3f) | 0x80;
  const h = b.toString('hex');
  return [h.slice(0, 8), h.slice(8, 12), h.slice(12, 16), h.slice(16, 20), h.slice(20)].join('-');
};
const number = () => Number(drawn(8).readBigUInt64LE() >> 11n) / 2 ** 53;
const later = (make) => (...args) => {
  const done = args.at(-1);
  if (typeof done !== 'function') return make(...args);
  process.nextTick(done, null, make(...args.slice(0, -1)));
};
Math.random = number;
const between = (a, b) => (b === undefined ? Math.floor(number() * a) : a + Math.floor(number() * (b - a)));
Object.assign(crypto, {
  randomBytes: later(drawn), pseudoRandomBytes: later(drawn), randomUUID: uuid, randomInt: later(between),
  randomFill: later((v, at = 0, n = v.byteLength - at) => (fill(new Uint8Array(v.buffer, v.byteOffset + at, n)), v)),
  randomFillSync: (v, at = 0, n = v.byteLength - at) => (fill(new Uint8Array(v.buffer ?? v, (v.byteOffset ?? 0) + at, n)), v),
});
// node:crypto's own getRandomValues asks this object.
Object.defineProperties(globalThis.crypto, { getRandomValues: { value: fill }, randomUUID: { value: uuid } });
syncBuiltinESMExports();

// The command is pi: its entry imports everything and runs; here the same file is
// imported for its functions.
const entry = fs.realpathSync('/usr/local/bin/pi');
const runtime = fs.readFileSync(path.join(path.dirname(entry), 'cli-runtime.js'), 'utf8');
const chunk = /import\{configureHttpDispatcher,main\}from"\.\/(chunks\/[\w-]+\.js)"/.exec(runtime)?.[1];
if (!chunk) throw new Error('this version of the command is laid out differently');
const { configureHttpDispatcher, main } = await import(pathToFileURL(path.join(path.dirname(entry), chunk)));
// What loading left behind need not be saved.
for (let i = 0; i < 3; i++) globalThis.gc?.();
console.log('warm');

const job = await new Promise((resolve) => {
  let line = '';
  const more = (piece) => {
    line += piece;
    if (!line.includes('\n')) return;
    process.stdin.off('data', more).pause();
    resolve(JSON.parse(line));
  };
  process.stdin.setEncoding('utf8').on('data', more);
});
if (job.probe) {
  console.log('own', Math.random(), crypto.randomBytes(8).toString('hex'), crypto.randomUUID(), crypto.getRandomValues(new Uint8Array(4)).join('.'));
  process.exit(0);
}
process.chdir(job.cwd ?? process.cwd());
Object.assign(process.env, job.env, { PI_CODING_AGENT: 'true', AI_AGENT: 'pi' });
process.argv = [process.argv[0], entry, ...job.argv];
process.title = 'pi';
configureHttpDispatcher();
await main(job.argv);
