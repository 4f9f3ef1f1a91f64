// The playtest's clock, injected before any script of the page: time moves only
// when the playtest says so, chance is seeded, and while something loads the
// clock stands. So a game plays the same way in every run, and ten seconds of
// play cost far less than ten seconds.
//
// TOKEN and SEED are filled in by the playtest. The hook is one property whose
// name no page can guess; it holds {clock, watch}.
(() => {
  const hook = {};
  Object.defineProperty(window, 'TOKEN', { value: hook });

  const real = {
    setTimeout: window.setTimeout.bind(window),
    Date: window.Date,
    Promise: window.Promise,
    Map: window.Map,
    message: window.MessageChannel,
  };

  // Chance: mulberry32.
  let seed = SEED >>> 0;
  const random = () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  Math.random = random;
  Crypto.prototype.getRandomValues = (array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let i = 0; i < bytes.length; i++) bytes[i] = random() * 256;
    return array;
  };
  Crypto.prototype.randomUUID = () =>
    'xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx'.replace(/x/g, () => ((random() * 16) | 0).toString(16));

  // Time.
  const EPOCH = 1767225600000;
  let now = 0;
  let nextID = 1;
  let frameQueue = new real.Map();
  let runningQueue = new real.Map();
  const timers = new real.Map();
  const errors = [];
  let errorCount = 0;

  const note = (what) => {
    errorCount++;
    const text = String(what).slice(0, 300);
    if (errors.length < 20 && !errors.includes(text)) errors.push(text);
  };
  // noteError keeps the first place in the page's own files that the stack names.
  const noteError = (e) => {
    const message = e instanceof Error ? e.name + ': ' + e.message : String(e);
    const place = e && e.stack && /((?:[\w-]+\/)*[\w.-]+\.\w+):(\d+):\d+/.exec(String(e.stack).replace(/https?:\/\/[^/]+\//g, ''));
    note(place ? message + ' (' + place[1] + ':' + place[2] + ')' : message);
  };
  addEventListener('error', (e) => {
    if (e.target && e.target !== window) return; // a file that did not load: the server knows
    if (/ResizeObserver loop/.test(e.message)) return; // Chromium's own, harmless
    noteError(e.error || e.message);
  }, true);
  addEventListener('unhandledrejection', (e) => noteError(e.reason));
  const violations = [];
  addEventListener('securitypolicyviolation', (e) => {
    if (violations.length < 20) violations.push(e.effectiveDirective + ' ' + String(e.blockedURI).slice(0, 120));
  });

  Performance.prototype.now = () => now;
  const VirtualDate = function (...args) {
    if (!new.target) return new real.Date(EPOCH + now).toString();
    return Reflect.construct(real.Date, args.length ? args : [EPOCH + now], new.target);
  };
  Object.setPrototypeOf(VirtualDate, real.Date);
  VirtualDate.prototype = real.Date.prototype;
  VirtualDate.now = () => Math.floor(EPOCH + now);
  VirtualDate.prototype.constructor = VirtualDate;
  window.Date = VirtualDate;
  if (window.BaseAudioContext) {
    Object.defineProperty(BaseAudioContext.prototype, 'currentTime', { get: () => now / 1000 });
  }
  Object.defineProperty(AnimationTimeline.prototype, 'currentTime', { get: () => now });

  window.requestAnimationFrame = (fn) => {
    if (typeof fn !== 'function') throw new TypeError('requestAnimationFrame needs a function');
    frameQueue.set(nextID, fn);
    return nextID++;
  };
  window.cancelAnimationFrame = (id) => { frameQueue.delete(id); runningQueue.delete(id); };
  const timer = (repeat) => (fn, delay, ...args) => {
    const every = Math.max(repeat ? 4 : 0, +delay || 0);
    timers.set(nextID, { fn, at: now + every, every, repeat, args });
    return nextID++;
  };
  window.setTimeout = timer(false);
  window.setInterval = timer(true);
  window.clearTimeout = window.clearInterval = (id) => { timers.delete(id); };
  window.requestIdleCallback = (fn) =>
    window.setTimeout(() => fn({ didTimeout: false, timeRemaining: () => 10 }), 1);
  window.cancelIdleCallback = window.clearTimeout;

  // Loads: the clock stands while any of them is pending.
  let pending = 0;
  const hold = (promise) => {
    pending++;
    const done = () => { pending--; };
    real.Promise.prototype.then.call(promise, done, done);
    return promise;
  };
  const holdCall = (proto, name) => {
    const original = proto && proto[name];
    if (!original) return;
    proto[name] = function (...args) {
      const result = original.apply(this, args);
      if (result && typeof result.then === 'function') hold(result);
      return result;
    };
  };
  holdCall(window, 'fetch');
  holdCall(window, 'createImageBitmap');
  for (const name of ['json', 'text', 'arrayBuffer', 'blob']) holdCall(Response.prototype, name);
  holdCall(HTMLImageElement.prototype, 'decode');
  if (window.BaseAudioContext) holdCall(BaseAudioContext.prototype, 'decodeAudioData');
  if (window.FontFace) holdCall(FontFace.prototype, 'load');
  const send = XMLHttpRequest.prototype.send;
  XMLHttpRequest.prototype.send = function (...args) {
    hold(new real.Promise((resolve) => this.addEventListener('loadend', resolve, { once: true })));
    return send.apply(this, args);
  };
  const holdSource = (proto) => {
    const source = Object.getOwnPropertyDescriptor(proto, 'src');
    Object.defineProperty(proto, 'src', {
      ...source,
      set(value) {
        hold(new real.Promise((resolve) => {
          this.addEventListener('load', resolve, { once: true });
          this.addEventListener('error', resolve, { once: true });
          real.setTimeout(resolve, 3000);
        }));
        source.set.call(this, value);
      },
    });
  };
  holdSource(HTMLImageElement.prototype);

  // A dialog would stop the page for ever, and it is a fault in a game.
  let dialogs = 0;
  window.alert = () => { dialogs++; };
  window.confirm = () => { dialogs++; return true; };
  window.prompt = () => { dialogs++; return null; };

  const turn = () => new real.Promise((resolve) => {
    const channel = new real.message();
    channel.port1.onmessage = () => { channel.port1.close(); resolve(); };
    channel.port2.postMessage(0);
  });
  const pause = (ms) => new real.Promise((resolve) => real.setTimeout(resolve, ms));

  const FRAME = 1000 / 60;
  let frames = 0;
  const tick = () => {
    const end = now + FRAME;
    for (let guard = 0; guard < 1000; guard++) {
      let id = 0;
      let due = null;
      for (const [i, t] of timers) {
        if (t.at <= end && (!due || t.at < due.at || (t.at === due.at && i < id))) { id = i; due = t; }
      }
      if (!due) break;
      now = Math.max(now, due.at);
      if (due.repeat) due.at = now + due.every; else timers.delete(id);
      try {
        if (typeof due.fn === 'function') due.fn.apply(window, due.args); else (0, eval)(String(due.fn));
      } catch (e) { noteError(e); }
    }
    now = end;
    frames++;
    runningQueue = frameQueue;
    frameQueue = new real.Map();
    for (const [, fn] of runningQueue) {
      try { fn(now); } catch (e) { noteError(e); }
    }
  };
  const settle = async () => {
    await turn();
    for (let i = 0; pending > 0 && i < 400; i++) await pause(i < 20 ? 1 : 10);
    await turn();
  };

  const loaded = new real.Promise((resolve) => {
    addEventListener('load', () => resolve(true), { once: true });
  });

  hook.clock = {
    loaded,
    tick, turn, settle, note,
    now: () => now,
    busy: () => pending > 0,
    facts: () => ({
      errors: errors.slice(), errorCount, violations: violations.slice(), dialogs, frames,
      waiting: frameQueue.size + timers.size,
    }),
  };
})();
