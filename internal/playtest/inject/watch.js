// The playtest's eyes, injected after clock.js: what stands where on the screen,
// seen without the game's help. A sample is a map from an entity's name to its
// place in pixels. Names say how the entity was seen:
//
//   i: image   r: rectangle   a: arc   p: filled path   s: stroked path
//   T: text (never counts as moving)   3: three.js object   u: WebGL matrix
//   P: Phaser object   D: placed element   C: class in a grid   G: glyph in a grid
(() => {
  const hook = window.TOKEN;
  const clock = hook.clock;
  const listen = EventTarget.prototype.addEventListener;
  const listeners = {};
  const clickable = new Set();
  let drawing = true; // what is drawn now will be looked at
  let showing = SHOWN; // and a picture will be taken of it; SHOWN is filled in
  let paints = false; // an earlier page of this game painted all of its canvases anew in every frame

  EventTarget.prototype.addEventListener = function (type, fn, options) {
    if (fn) {
      listeners[type] = (listeners[type] || 0) + 1;
      if (/^(click|(mouse|pointer)(down|up)|touch(start|end))$/.test(type) && this instanceof Element) clickable.add(this);
    }
    return listen.call(this, type, fn, options);
  };

  // Canvas in 2D: a log of what one frame draws, with its transforms.
  let marks = [];
  let texts = [];
  const paint = CanvasRenderingContext2D.prototype;
  const own = new WeakSet(); // canvases of ours
  const canvasNames = new WeakMap();
  let canvasCount = 0;
  // Canvases are numbered as they are made, which is the same in every run.
  const make = Document.prototype.createElement;
  Document.prototype.createElement = function (...args) {
    const e = make.apply(this, args);
    if (e instanceof HTMLCanvasElement) canvasNames.set(e, '#' + ++canvasCount);
    return e;
  };
  if (window.OffscreenCanvas) {
    window.OffscreenCanvas = new Proxy(OffscreenCanvas, {
      construct(target, args, self) {
        const c = Reflect.construct(target, args, self);
        canvasNames.set(c, '#' + ++canvasCount);
        return c;
      },
    });
  }
  const imageName = (image) => {
    const url = image.currentSrc || image.src;
    if (typeof url === 'string' && url) return url.startsWith('data:') ? 'data' + url.length : url.split('/').pop().slice(0, 40);
    if (!canvasNames.has(image)) canvasNames.set(image, '#' + ++canvasCount);
    return canvasNames.get(image);
  };
  const style = (s) => (typeof s === 'string' ? s : 'gradient');
  const mark = (context, name, x, y) => {
    if (marks.length >= 4000 || !context.canvas.isConnected) return;
    const m = context.getTransform();
    marks.push([name, m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f]);
  };
  const paths = new WeakMap(); // context -> [first x, first y, points]
  const step = (context, x, y) => {
    const path = paths.get(context);
    if (!path) paths.set(context, [x, y, 1]); else path[2]++;
  };
  // Drawing is left out in frames that nobody looks at, on canvases that are
  // painted anew in every frame. Whoever reads pixels back, or paints only now
  // and then, is always painted.
  let inFrame = false;
  const fresh = new WeakMap(); // context -> {whole: frames in which all of it was painted, last: the latest, always}
  const habit = (context) => {
    let h = fresh.get(context);
    if (!h) { h = { whole: 0, last: -1, always: false }; fresh.set(context, h); contexts.push(new WeakRef(context)); }
    return h;
  };
  const contexts = [];
  let frameNumber = 0;
  const sawWhole = (context, x, y, w, h) => {
    if (!inFrame || !context.canvas.isConnected) return;
    const m = context.getTransform();
    const canvas = context.canvas;
    if (Math.abs(w * m.a) < canvas.width * 0.98 || Math.abs(h * m.d) < canvas.height * 0.98) return;
    const it = habit(context);
    if (it.last !== frameNumber) { it.whole++; it.last = frameNumber; }
  };
  const leftOut = (context) => {
    if (drawing || !inFrame) return false;
    const h = fresh.get(context);
    return Boolean(context.canvas.isConnected && (h ? !h.always && (paints || h.whole >= 12) : paints));
  };
  const painters = new Set(); // contexts on the page that anything was painted on
  const paintsAnew = () => [...painters].every((c) => {
    const h = fresh.get(c);
    return !c.canvas.isConnected || h && h.whole >= 12 && !h.always;
  });
  const wrap = (name, look) => {
    const original = paint[name];
    if (!original) return;
    paint[name] = function (...args) {
      if (leftOut(this)) return undefined;
      if (this.canvas.isConnected) painters.add(this);
      if (!own.has(this)) { try { look(this, args); } catch { /* what we cannot read we do not see */ } }
      return original.apply(this, args);
    };
  };
  for (const name of ['getImageData', 'isPointInPath', 'isPointInStroke']) {
    const original = paint[name];
    paint[name] = function (...args) {
      if (!own.has(this)) habit(this).always = true;
      return original.apply(this, args);
    };
  }
  wrap('clearRect', (c, [x, y, w, h]) => sawWhole(c, x, y, w, h));
  wrap('strokeText', () => {});
  wrap('drawImage', (c, a) => {
    let [image, x, y, w = image.width, h = image.height] = a;
    if (a.length >= 9) [, , , , , x, y, w, h] = a;
    const name = imageName(image);
    sawWhole(c, x, y, w, h);
    mark(c, 'i:' + name + ':' + Math.round(w) + 'x' + Math.round(h), x + w / 2, y + h / 2);
    mark(c, 'i:' + name, x + w / 2, y + h / 2);
  });
  wrap('fillRect', (c, [x, y, w, h]) => {
    sawWhole(c, x, y, w, h);
    mark(c, 'r:' + style(c.fillStyle) + ':' + Math.round(w) + 'x' + Math.round(h), x + w / 2, y + h / 2);
  });
  wrap('strokeRect', (c, [x, y, w, h]) => mark(c, 's:' + Math.round(w) + 'x' + Math.round(h), x + w / 2, y + h / 2));
  wrap('arc', (c, [x, y, r]) => { mark(c, 'a:' + Math.round(r), x, y); step(c, x, y); });
  wrap('ellipse', (c, [x, y, rx, ry]) => { mark(c, 'a:' + Math.round(rx) + 'x' + Math.round(ry), x, y); step(c, x, y); });
  for (const name of ['rect', 'roundRect']) {
    wrap(name, (c, [x, y, w, h]) => { mark(c, 'q:' + Math.round(w) + 'x' + Math.round(h), x + w / 2, y + h / 2); step(c, x, y); });
  }
  wrap('beginPath', (c) => paths.delete(c));
  for (const name of ['moveTo', 'lineTo']) wrap(name, (c, [x, y]) => step(c, x, y));
  for (const name of ['quadraticCurveTo', 'bezierCurveTo', 'arcTo']) wrap(name, (c, a) => step(c, a[a.length - 2], a[a.length - 1]));
  wrap('fill', (c, a) => {
    if (a[0] instanceof Path2D) return mark(c, 'p:path:' + style(c.fillStyle), 0, 0);
    const path = paths.get(c);
    if (path) mark(c, 'p:' + style(c.fillStyle) + ':' + path[2], path[0], path[1]);
  });
  wrap('stroke', (c) => {
    const path = paths.get(c);
    if (path) mark(c, 's:' + style(c.strokeStyle) + ':' + path[2], path[0], path[1]);
  });
  wrap('fillText', (c, [text, x, y]) => {
    const s = String(text);
    if (texts.length < 200) texts.push(s.slice(0, 60));
    // A picture sign drawn as text is a figure, not a word.
    if (/^\p{Extended_Pictographic}[\p{Extended_Pictographic}\uFE0F\u200D]*$/u.test(s)) mark(c, 'i:' + s, x, y);
    else mark(c, 'T:' + s.replace(/\d+/g, '#').slice(0, 30), x, y);
  });

  // WebGL: drawing is left out but for sampled frames; matrices tell places.
  // Where the scene itself tells them, it is only drawn for pictures.
  const scenes = new Set();
  const matrices = [];
  const uniformNames = new WeakMap();
  for (const kind of [window.WebGLRenderingContext, window.WebGL2RenderingContext]) {
    if (!kind) continue;
    const gl = kind.prototype;
    for (const name of ['drawArrays', 'drawElements', 'drawArraysInstanced', 'drawElementsInstanced', 'drawRangeElements', 'clear', 'blitFramebuffer']) {
      const original = gl[name];
      if (original) gl[name] = function (...args) { if (drawing && (showing || !scenes.size)) return original.apply(this, args); };
    }
    const locate = gl.getUniformLocation;
    gl.getUniformLocation = function (program, name) {
      const location = locate.call(this, program, name);
      if (location) uniformNames.set(location, name);
      return location;
    };
    const matrix = gl.uniformMatrix4fv;
    gl.uniformMatrix4fv = function (location, transpose, data, ...rest) {
      if (drawing && !scenes.size && location && matrices.length < 400 && data && data.length >= 16) {
        matrices.push(['u:' + (uniformNames.get(location) || ''), [data[12] * 20, data[13] * 20, data[14] * 20]]);
      }
      return matrix.call(this, location, transpose, data, ...rest);
    };
  }

  // three.js tells its developer tools about each scene; Phaser is caught as it is set.
  window.__THREE_DEVTOOLS__ = new EventTarget();
  listen.call(window.__THREE_DEVTOOLS__, 'observe', (e) => { if (e.detail && e.detail.isScene) scenes.add(e.detail); });
  const phaserGames = [];
  let phaser;
  Object.defineProperty(window, 'Phaser', {
    configurable: true,
    get: () => phaser,
    set(value) {
      phaser = value;
      if (value && value.Game) {
        try {
          value.Game = class extends value.Game { constructor(config) { super(config); phaserGames.push(this); } };
        } catch { /* a frozen namespace: its pixels still speak */ }
      }
    },
  });

  // The SDK's probe: a name for what moves, never proof that it does.
  let probe = null;
  let ended = 0;
  let sdk;
  Object.defineProperty(window, 'DreamCoreSDK2', {
    configurable: true,
    get: () => sdk,
    set(value) {
      sdk = value;
      if (!value || typeof value !== 'object') return;
      sdk = new Proxy(Object.isFrozen(value) ? { ...value } : value, {
        get(target, name) {
          if (name === 'probe') return (fn) => { if (typeof fn === 'function') probe = fn; return target.probe && target.probe(fn); };
          if (name === 'end') return (...args) => { ended++; return target.end && target.end(...args); };
          const member = target[name];
          return typeof member === 'function' ? member.bind(target) : member;
        },
      });
    },
  });
  const readProbe = () => {
    if (!probe) return null;
    try {
      const p = probe();
      const at = p && p.player;
      const place = at ? ['x', 'y', 'z'].map((k) => Number(at[k])).filter((v) => Number.isFinite(v)) : null;
      const bad = at && ['x', 'y'].some((k) => typeof at[k] === 'number' && !Number.isFinite(at[k]));
      return { place, bad, state: String(p && p.state).slice(0, 20), score: Number(p && p.score) || 0 };
    } catch (e) { clock.note('probe: ' + e); return null; }
  };

  // CSS animations follow our clock.
  const begun = new WeakMap();
  const animate = () => {
    for (const a of document.getAnimations()) {
      try {
        if (!begun.has(a)) { begun.set(a, clock.now() - (Number(a.currentTime) || 0)); a.pause(); }
        const t = clock.now() - begun.get(a);
        const end = a.effect.getComputedTiming().endTime;
        if (t >= end) a.finish(); else a.currentTime = t;
      } catch { /* an animation that cannot be moved stays */ }
    }
  };

  const frame = () => {
    const oldMarks = marks;
    const oldTexts = texts;
    marks = [];
    texts = [];
    if (drawing) matrices.length = 0;
    animate();
    frameNumber++;
    inFrame = true;
    clock.tick();
    inFrame = false;
    if (!marks.length && !texts.length) { marks = oldMarks; texts = oldTexts; } // nothing drawn: the old picture stands
    if (!drawing) return;
    for (const ref of contexts) {
      const context = ref.deref();
      const h = context && fresh.get(context);
      if (h && (paints || h.whole >= 12) && h.last !== frameNumber) h.always = true; // it does not paint in every frame
    }
  };
  // run plays n frames; the last one is drawn where draw says so, for a picture
  // where it says 'show'. The page is left to breathe after each, and while files
  // load no time passes.
  const run = async (n, draw) => {
    for (let i = 0; i < n; i++) {
      const last = i === n - 1;
      drawing = draw === 'all' || Boolean(draw && last);
      showing = SHOWN && last && (draw === 'all' || draw === 'show');
      frame();
      if (clock.busy()) await clock.settle(); else await clock.turn();
    }
    drawing = true;
    showing = SHOWN;
  };

  const visible = (e, least = 4) => {
    const r = e.getBoundingClientRect();
    if (r.width < least || r.height < least) return false;
    const s = getComputedStyle(e);
    return s.visibility !== 'hidden' && s.display !== 'none' && s.pointerEvents !== 'none' && e.checkVisibility({ checkOpacity: true });
  };
  const hits = (e) => {
    const r = e.getBoundingClientRect();
    const at = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
    return at && (e.contains(at) || at.contains(e) && at.tagName === 'LABEL');
  };
  const inlineHandlers = () => {
    const names = ['onclick', 'onmousedown', 'onpointerdown', 'ontouchstart', 'onmouseup', 'onpointerup'];
    for (const e of document.querySelectorAll('*')) if (names.some((n) => e[n])) clickable.add(e);
  };
  const bigCanvas = () => [...document.querySelectorAll('canvas')].filter((c) => visible(c)).sort((a, b) => {
    const [r, q] = [a.getBoundingClientRect(), b.getBoundingClientRect()];
    return q.width * q.height - r.width * r.height;
  })[0];
  const START = /^\W*(start|play|begin|new game|go!?$|click|tap|press|launch|enter|begin|スタート|はじめる|始める|あそぶ|遊ぶ|プレイ|ゲーム開始|开始|开玩|玩|点击|进入)/i;
  const buttons = () => {
    inlineHandlers();
    const all = new Set(document.querySelectorAll('button,[role=button],input[type=button],input[type=submit],a'));
    for (const e of clickable) all.add(e);
    return [...all].filter((e) => e.isConnected && !/^(CANVAS|BODY|HTML)$/.test(e.tagName) && visible(e, 8) && !e.disabled && hits(e));
  };
  const label = (e) => String(e.innerText || e.value || e.getAttribute('aria-label') || '').trim().slice(0, 40);
  // startPoint is the button that most likely starts the game: one that says
  // so, else the most central of few. again: only one that says so.
  const startPoint = (again) => {
    const found = buttons().map((e) => {
      const r = e.getBoundingClientRect();
      const off = Math.hypot((r.x + r.width / 2 - innerWidth / 2) / innerWidth, (r.y + r.height / 2 - innerHeight / 2) / innerHeight);
      return { e, r, off, says: START.test(label(e)) && label(e).length < 30 };
    });
    found.sort((a, b) => (b.says - a.says) || (a.off - b.off));
    const best = found[0];
    if (!best || (!best.says && (again || best.off > 0.38 || found.length > 12))) return null;
    return { x: best.r.x + best.r.width / 2, y: best.r.y + best.r.height / 2, label: label(best.e) };
  };
  const canvasPoint = (u, v) => {
    const c = bigCanvas();
    const r = c ? c.getBoundingClientRect() : { x: 0, y: 0, width: innerWidth, height: innerHeight };
    const x = Math.min(Math.max(r.x + r.width * u, 1), innerWidth - 2);
    const y = Math.min(Math.max(r.y + r.height * v, 1), innerHeight - 2);
    return { x, y };
  };
  // clickPoint is the i-th place to click: elements with handlers and places on
  // the canvas in turn. The element is remembered, to see whether it changes.
  const GRID = [[0.5, 0.5], [0.25, 0.3], [0.75, 0.3], [0.25, 0.7], [0.75, 0.7], [0.5, 0.2], [0.5, 0.8], [0.12, 0.85], [0.88, 0.85]];
  // openPoint is the first place from the i-th on at which the biggest canvas is
  // not covered; null where its middle is.
  const openPoint = (i) => {
    const c = bigCanvas();
    const lies = (p) => document.elementFromPoint(p.x, p.y) === c;
    if (!c || !lies(canvasPoint(0.5, 0.5))) return null;
    for (let k = 0; k < GRID.length; k++) {
      const p = canvasPoint(...GRID[(i + k) % GRID.length]);
      if (lies(p)) return p;
    }
    return null;
  };
  let clicked = null;
  const clickPoint = (i) => {
    clicked = null;
    inlineHandlers();
    const targets = [];
    const add = (e) => {
      if (!e.isConnected || /^(CANVAS|BODY|HTML)$/.test(e.tagName) || targets.includes(e) || !visible(e, 6)) return;
      if (e.tagName === 'A' && e.href && !e.href.startsWith(location.href)) return;
      targets.push(e);
    };
    for (const e of clickable) {
      if (e.children.length > 3) for (const c of [...e.children].slice(0, 60)) add(c);
      else add(e);
    }
    for (const e of document.querySelectorAll('button,td,.cell,.card,.square,.tile')) add(e);
    // A canvas that lies open is the game itself, and what stands around it is
    // its menu: a click on "pause" there stops everything, which is no steering.
    const open = openPoint(i);
    if (open) return open;
    const useCanvas = bigCanvas() && (i % 2 === 0 || !targets.length);
    if (useCanvas || !targets.length) {
      const [u, v] = GRID[i % GRID.length];
      return canvasPoint(u, v);
    }
    const nth = bigCanvas() ? i >> 1 : i;
    const e = targets[(nth * 7 + (nth ? 3 : 0)) % targets.length];
    e.scrollIntoView({ block: 'nearest', behavior: 'instant' });
    clicked = { e, before: look(e) };
    const r = e.getBoundingClientRect();
    return { x: r.x + r.width / 2, y: r.y + r.height / 2 };
  };
  const look = (e) => {
    const s = getComputedStyle(e);
    return [e.className, e.innerHTML.slice(0, 300), s.backgroundColor, s.backgroundImage.slice(0, 80), s.transform, e.isConnected].join('|');
  };
  // answered says whether the element that was clicked last has itself changed.
  const answered = () => Boolean(clicked && look(clicked.e) !== clicked.before);

  const kinds = new WeakMap(); // canvas -> kind of its context
  const open = HTMLCanvasElement.prototype.getContext;
  HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
    const context = open.call(this, kind, ...rest);
    if (context) kinds.set(this, String(kind));
    return context;
  };
  let thumb = null; // a small copy of the biggest canvas
  const picture = () => {
    const c = bigCanvas();
    if (!c || (scenes.size && /gl/.test(kinds.get(c)))) return { hash: 0, colours: 0 }; // a scene is not drawn in every sample
    if (!thumb) {
      const t = document.createElement('canvas');
      t.width = 96;
      t.height = 54;
      thumb = t.getContext('2d', { willReadFrequently: true });
      own.add(thumb);
    }
    try {
      thumb.clearRect(0, 0, 96, 54);
      thumb.drawImage(c, 0, 0, 96, 54);
      const d = thumb.getImageData(0, 0, 96, 54).data;
      const seen = new Set();
      let hash = 0;
      for (let i = 0; i < d.length; i += 4) {
        hash = (Math.imul(hash ^ (d[i] | (d[i + 1] << 8) | (d[i + 2] << 16)), 16777619) + 1) | 0;
        seen.add(((d[i] >> 4) << 8) | ((d[i + 1] >> 4) << 4) | (d[i + 2] >> 4));
      }
      return { hash, colours: seen.size };
    } catch { return { hash: -1, colours: -1 }; } // a tainted canvas cannot be read
  };

  const sample = () => {
    const entities = {};
    const counts = {};
    const put = (name, place) => {
      const n = (counts[name] = (counts[name] || 0) + 1);
      if (n <= 300) entities[name + '#' + n] = place;
    };
    for (const [name, x, y] of marks) put(name, [x, y]);
    for (const [name, place] of matrices) put(name, place);
    for (const scene of scenes) {
      scene.traverse((o) => {
        if (o === scene || o.isLight) return;
        o.updateWorldMatrix(true, false);
        const m = o.matrixWorld.elements;
        put('3:' + (o.isCamera ? 'camera' : o.name || o.type) + ':' + o.id, [m[12] * 20, m[13] * 20, m[14] * 20]);
      });
    }
    for (const game of phaserGames) {
      if (!game.scene) continue;
      for (const s of game.scene.getScenes(true)) {
        s.children.list.forEach((o, i) => {
          if (typeof o.text === 'string') { texts.push(o.text.slice(0, 60)); return; }
          put('P:' + o.type + ':' + (o.texture ? o.texture.key : '') + ':' + i, [o.x, o.y]);
        });
        const cam = s.cameras && s.cameras.main;
        if (cam) put('P:camera', [cam.scrollX, cam.scrollY]);
      }
    }
    let layout = '';
    let words = '';
    let seen = 0;
    if (document.body) {
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_ELEMENT);
      const classes = new Map();
      for (let e = walker.nextNode(); e && seen < 1500; e = walker.nextNode()) {
        if (/^(SCRIPT|STYLE|CANVAS|NOSCRIPT|TEMPLATE)$/.test(e.tagName)) continue;
        seen++;
        const r = e.getBoundingClientRect();
        if (!r.width || !r.height) continue;
        const s = getComputedStyle(e);
        if (s.visibility === 'hidden' || +s.opacity < 0.05) continue;
        let text = '';
        for (const c of e.childNodes) if (c.nodeType === 3) text += c.data;
        text = text.trim();
        words += text.slice(0, 60) + '|';
        const cls = typeof e.className === 'string' ? e.className : '';
        layout += e.tagName + cls + s.backgroundColor + s.backgroundImage.slice(0, 60) + (e.getAttribute('src') || '').slice(-40) + ';';
        const x = r.x + r.width / 2 + scrollX;
        const y = r.y + r.height / 2 + scrollY;
        const name = e.tagName + '.' + (e.id || cls.split(' ')[0]);
        if (e instanceof SVGElement) {
          if (e.tagName !== 'svg' && e.tagName !== 'text') put('D:' + name, [x, y]);
          continue;
        }
        // Only what is placed by its own style counts: what text pushes about does not.
        const placed = /absolute|fixed/.test(s.position) && (e.style.left || e.style.top || e.style.right || e.style.bottom || e.style.inset);
        if (placed || s.transform !== 'none' || s.translate !== 'none') {
          const m = s.transform !== 'none' ? new DOMMatrixReadOnly(s.transform) : { e: 0, f: 0 };
          const [tx, ty] = s.translate !== 'none' ? s.translate.split(' ').map(parseFloat) : [0, 0];
          const [left, top] = placed ? [e.offsetLeft, e.offsetTop] : [0, 0];
          put('D:' + name, [left + m.e + (tx || 0), top + m.f + (ty || 0)]);
        }
        // A board of cells: where a class or a glyph stands.
        const cell = e.parentElement;
        const board = cell && cell.children.length >= 9 ? e : cell && cell.parentElement && cell.parentElement.children.length >= 9 ? cell : null;
        if (board) {
          for (const c of cls.split(/\s+/)) if (c) classes.set('C:' + c, (classes.get('C:' + c) || []).concat([[x, y]]));
          if (text && text.length <= 4 && !/[\p{L}\p{N}]/u.test(text)) classes.set('G:' + text, (classes.get('G:' + text) || []).concat([[x, y]]));
        }
      }
      for (const [key, places] of classes) if (places.length === 1) put(key, places[0]);
    }
    const bad = Object.values(entities).some((p) => p.some((v) => Number.isNaN(v)));
    const p = picture();
    return {
      scroll: [scrollX, scrollY], entities, texts: texts.join('|') + '||' + words, layout,
      picture: p.hash, colours: p.colours, seen, bad, probe: readProbe(), ended, answered: answered(), now: clock.now(),
    };
  };

  hook.watch = {
    paintsAnew,
    paints: () => { paints = true; },
    scrollable: () => {
      const e = document.scrollingElement;
      return Boolean(e) && (e.scrollHeight > innerHeight + 1 || e.scrollWidth > innerWidth + 1);
    },
    heavy: () => scenes.size > 0 || matrices.length > 0,
    run, sample, startPoint, clickPoint, canvasPoint,
    handlers: () => {
      inlineHandlers();
      const found = { ...listeners };
      for (const target of [window, document, document.body]) {
        if (!target) continue;
        for (const n of ['onkeydown', 'onkeyup', 'onkeypress', 'onclick', 'onmousemove', 'onmousedown', 'onpointerdown', 'onpointermove', 'ontouchstart']) {
          if (target[n]) found[n.slice(2)] = 1;
        }
      }
      if (clickable.size) found.click = (found.click || 0) + 1;
      return found;
    },
  };
})();
