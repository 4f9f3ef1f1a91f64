// Kit.view and Kit.stage for games in three dimensions: load this file, after
// three.js, instead of view.js. The 3D picture lies below; a clear sheet over it
// takes what Kit.effects and Kit.game draw in 2D: words, flashes, confetti.
//
//   var stage = Kit.stage(g, {fog: [40, 120]});   in load; also fov, below (how much sky is
//                                    under the horizon), sun and light (where they are)
//   stage.scene, stage.camera                                        three.js
//   stage.sticker(picture, height)   a picture that always faces the viewer
//   stage.solid(parts)               one low-poly mesh out of many shapes
//   stage.many(parts, most)          the same, drawn often: put(x, y, z, size, turn), done()
//   stage.puff(x, y, z, n, look)     particles
//   stage.at(x, y, z)                where that is on the sheet, for g.fx
//   stage.paint(ctx)                 first line of draw
Kit.view = (function () {
  "use strict";
  var sheet = null, listeners = [];
  var base = { landscape: [960, 540], portrait: [540, 960] };
  var view = { w: 960, h: 540, scale: 1, css: 1, portrait: false, ctx: null, canvas: null };

  function fit() {
    var cssW = Math.max(1, window.innerWidth), cssH = Math.max(1, window.innerHeight);
    var dpr = Math.min(window.devicePixelRatio || 1, 2);
    view.portrait = cssH > cssW;
    var size = view.portrait ? base.portrait : base.landscape;
    view.css = Math.min(cssW / size[0], cssH / size[1]);
    view.scale = view.css * dpr;
    view.w = cssW / view.css;
    view.h = cssH / view.css;
    sheet.width = Math.round(cssW * dpr);
    sheet.height = Math.round(cssH * dpr);
    listeners.forEach(function (fn) { fn(view); });
  }
  function add(after) {
    var c = document.createElement("canvas");
    c.className = "kit-canvas";
    c.width = 960;
    c.height = 540;
    document.body.insertBefore(c, after);
    return c;
  }

  view.open = function (sizes) {
    base = Object.assign(base, sizes);
    sheet = add(document.body.firstChild);
    sheet.style.pointerEvents = "none";
    view.canvas = add(sheet);
    view.canvas.tabIndex = 0; // so that it can have the keyboard
    view.ctx = sheet.getContext("2d");
    window.addEventListener("resize", fit);
    fit();
  };
  view.onResize = function (fn) { listeners.push(fn); };
  view.begin = function () {
    view.ctx.setTransform(view.scale, 0, 0, view.scale, 0, 0);
    view.ctx.globalAlpha = 1;
    return view.ctx;
  };
  view.fromPage = function (x, y) { return { x: x / view.css, y: y / view.css }; };
  return view;
})();

Kit.stage = function (g, options) {
  "use strict";
  var o = Object.assign({ fog: [40, 130], fov: 58, below: 0, sun: [-45, 34, -100], light: [34, 60, 46] }, options);
  var p = g.palette, look = g.data.look || {}, SKY = 420; // metres to the dome
  var random = DreamCoreSDK2.random("stage"); // its own, so that looks never change the play
  var renderer;
  try {
    renderer = new THREE.WebGLRenderer({ canvas: Kit.view.canvas, antialias: true });
  } catch (e) {
    throw new Error(Kit.text({ en: "This game needs WebGL, which is switched off here.", ja: "このゲームには WebGL が必要です。", zh: "此游戏需要 WebGL，但这里无法使用。" }));
  }
  var scene = new THREE.Scene(), camera = new THREE.PerspectiveCamera(o.fov, 1, 0.1, SKY * 1.3);
  scene.fog = new THREE.Fog(p.sky2, o.fog[0], o.fog[1]);
  var sunAt = new THREE.Vector3(o.sun[0], o.sun[1], o.sun[2]).normalize();
  var above = new THREE.HemisphereLight(Kit.color.light(p.sky2, 0.35), Kit.color.dark(p.ground2, 0.15), g.rules.night ? 2.7 : 2.1);
  var sun = new THREE.DirectionalLight(g.rules.night ? "#9db8ff" : "#fff1d6", g.rules.night ? 1.5 : 1.9);
  sun.position.fromArray(o.light); // from behind the viewer: what one sees is lit
  scene.add(above, sun, camera);

  // ---- fit the screen, and stay quick on a slow machine ----
  var ratio = Math.min(window.devicePixelRatio || 1, 2), lastPaint = 0, slow = 0, judged = 0;
  function fit() {
    camera.aspect = window.innerWidth / Math.max(1, window.innerHeight);
    camera.fov = Kit.view.portrait ? o.fov * 1.25 : o.fov;
    camera.updateProjectionMatrix();
    renderer.setPixelRatio(ratio);
    renderer.setSize(window.innerWidth, window.innerHeight, false);
  }
  Kit.view.onResize(fit);
  fit();
  function easeOff(now) { // fewer pixels when frames take long; never when they are few by chance
    var took = now - lastPaint;
    lastPaint = now;
    if (took > 500) return;
    judged++;
    if (took > 30) slow++;
    if (judged < 90) return;
    if (slow > 60 && ratio > 0.7) {
      ratio = Math.max(0.7, ratio * 0.8);
      fit();
    }
    judged = slow = 0;
  }

  // ---- sky ----
  var sky = new THREE.Group();
  scene.add(sky);
  function paintFaces(geometry, colorOf) { // one colour for each vertex
    var at = geometry.attributes.position, out = new Float32Array(at.count * 3), c = new THREE.Color();
    for (var i = 0; i < at.count; i++) c.set(colorOf(at.getX(i), at.getY(i), at.getZ(i))).toArray(out, i * 3);
    geometry.setAttribute("color", new THREE.BufferAttribute(out, 3));
    return geometry;
  }
  var dome = paintFaces(new THREE.SphereGeometry(SKY, 20, 24), function (x, y) {
    return Kit.color.mix(p.sky2, p.sky, y > 0 ? Kit.clamp(y / SKY * 2.1 - 0.05, 0, 1) : Kit.clamp(-y / SKY * 1.1, 0, o.below));
  });
  sky.add(new THREE.Mesh(dome, new THREE.MeshBasicMaterial({ vertexColors: true, side: THREE.BackSide, fog: false, depthWrite: false })));
  function texture(canvas) {
    var t = new THREE.CanvasTexture(canvas);
    t.colorSpace = THREE.SRGBColorSpace;
    return t;
  }
  var glow = texture(Kit.draw.glow(128, "#ffffff")), disc = texture(Kit.draw.sheet(64, 64, function (c) {
    var f = c.createRadialGradient(32, 32, 4, 32, 32, 31);
    f.addColorStop(0, "#ffffff");
    f.addColorStop(0.55, "rgba(255,255,255,0.9)");
    f.addColorStop(1, "rgba(255,255,255,0)");
    c.fillStyle = f;
    c.fillRect(0, 0, 64, 64);
  }));
  if (look.sun !== false) {
    [[170, glow, 0.9], [46, disc, 1]].forEach(function (s) {
      var m = new THREE.Sprite(new THREE.SpriteMaterial({ map: s[1], color: g.rules.night ? "#dfe8ff" : "#fff3c4", fog: false, depthWrite: false, opacity: s[2] }));
      m.position.copy(sunAt).multiplyScalar(SKY * 0.9);
      m.scale.setScalar(s[0] * (g.rules.night ? 0.6 : 1));
      sky.add(m);
    });
  }
  function cloud(n, size, life) { // n free points
    var place = new Float32Array(n * 3), tone = new Float32Array(n * 4), geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.BufferAttribute(place, 3));
    geometry.setAttribute("color", new THREE.BufferAttribute(tone, 4));
    var points = new THREE.Points(geometry, new THREE.PointsMaterial(Object.assign({ size: size, map: disc, vertexColors: true, transparent: true, depthWrite: false }, life)));
    points.frustumCulled = false;
    return { points: points, place: place, tone: tone, changed: function () { geometry.attributes.position.needsUpdate = geometry.attributes.color.needsUpdate = true; } };
  }
  if (g.rules.night) {
    var stars = cloud(220, 2.2, { sizeAttenuation: false, fog: false });
    for (var i = 0; i < 220; i++) {
      var turn = random() * 6.283, up = 0.06 + random() * 0.9, flat = Math.sqrt(1 - up * up) * SKY * 0.95;
      stars.place.set([Math.cos(turn) * flat, up * SKY * 0.95, Math.sin(turn) * flat], i * 3);
      stars.tone.set([1, 1, 1, 0.3 + random() * 0.7], i * 4);
    }
    sky.add(stars.points);
  }

  // ---- shapes ----
  // solid joins parts {shape, color, at, turn, scale, rough} into one mesh with
  // flat faces; color may be a function of x, y, z. rough pushes corners about.
  var plain = new THREE.MeshLambertMaterial({ vertexColors: true, flatShading: true });
  function join(parts) {
    var places = [], tones = [], c = new THREE.Color(), v = new THREE.Vector3(), m = new THREE.Matrix4(), e = new THREE.Euler(), q = new THREE.Quaternion();
    parts.forEach(function (part) {
      var shape = part.shape.index ? part.shape.toNonIndexed() : part.shape, at = shape.attributes.position, seen = {};
      var s = part.scale || 1, scale = Array.isArray(s) ? v.clone().fromArray(s) : v.clone().setScalar(s);
      e.fromArray(part.turn || [0, 0, 0]);
      m.compose(v.clone().fromArray(part.at || [0, 0, 0]), q.setFromEuler(e), scale);
      for (var i = 0; i < at.count; i += 3) {
        var mid = [0, 0, 0];
        for (var k = 0; k < 3; k++) {
          v.fromBufferAttribute(at, i + k);
          if (part.rough) {
            var key = [v.x, v.y, v.z].map(function (w) { return Math.round(w * 50); }).join();
            v.multiplyScalar(seen[key] || (seen[key] = 1 + (random() - 0.5) * part.rough));
          }
          v.applyMatrix4(m);
          places.push(v.x, v.y, v.z);
          mid[0] += v.x / 3, mid[1] += v.y / 3, mid[2] += v.z / 3;
        }
        c.set(typeof part.color === "function" ? part.color(mid[0], mid[1], mid[2]) : part.color);
        for (k = 0; k < 3; k++) tones.push(c.r, c.g, c.b);
      }
    });
    var geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.Float32BufferAttribute(places, 3));
    geometry.setAttribute("color", new THREE.Float32BufferAttribute(tones, 3));
    return geometry;
  }
  function solid(parts, material) { return new THREE.Mesh(join(parts), material || plain); }

  function many(parts, most, material) {
    var mesh = new THREE.InstancedMesh(join(parts), material || plain, most), thing = new THREE.Object3D(), n = 0;
    mesh.frustumCulled = false;
    mesh.count = 0;
    scene.add(mesh);
    return {
      mesh: mesh,
      put: function (x, y, z, size, turn, lean) {
        if (n >= most) return;
        thing.position.set(x, y, z);
        thing.rotation.set(lean || 0, turn || 0, 0);
        thing.scale.setScalar(size || 1);
        thing.updateMatrix();
        mesh.setMatrixAt(n++, thing.matrix);
      },
      done: function () {
        mesh.count = n;
        n = 0;
        mesh.instanceMatrix.needsUpdate = true;
      },
    };
  }

  // sticker is a picture with a rim, so high in metres, that faces the viewer.
  function sticker(picture, height, rim) {
    var cut = Kit.draw.sticker(picture, 128, rim || "#ffffff", 4), t = cut.texture || (cut.texture = texture(cut));
    var s = new THREE.Sprite(new THREE.SpriteMaterial({ map: t, alphaTest: 0.05 }));
    s.full = height * cut.unitH / 128; // the rim is outside
    s.scale.setScalar(s.full);
    return s;
  }
  // crowd is a sticker that stands at many places: put(x, y, z), done().
  function crowd(picture, height, rim) {
    var first = sticker(picture, height, rim), all = [], n = 0;
    return {
      put: function (x, y, z, turn, size) {
        if (n === all.length) {
          var s = new THREE.Sprite(n ? first.material.clone() : first.material);
          all.push(s);
          scene.add(s);
        }
        var at = all[n++];
        at.visible = true;
        at.position.set(x, y, z);
        at.material.rotation = turn || 0;
        at.scale.setScalar(first.full * (size || 1));
        return at;
      },
      done: function () {
        for (var i = n; i < all.length; i++) all[i].visible = false;
        n = 0;
      },
    };
  }
  // shade is a soft dark spot for the ground.
  function shade(width) {
    var m = new THREE.Mesh(new THREE.PlaneGeometry(width, width), new THREE.MeshBasicMaterial({ map: disc, color: Kit.color.dark(p.ground2, 0.8), transparent: true, opacity: 0.4, depthWrite: false }));
    m.rotation.x = -Math.PI / 2;
    var group = new THREE.Group();
    group.add(m);
    scene.add(group);
    group.dark = m.material;
    return group;
  }

  // ---- particles ----
  var MOST = 220, dust = cloud(MOST, 0.55), bits = [];
  scene.add(dust.points);
  function puff(x, y, z, n, how) {
    var h = Object.assign({ color: "#ffffff", speed: 4, up: 3, life: 0.7, gravity: 9, spread: 0.5, vx: 0, vz: 0 }, how);
    for (var i = 0; i < n; i++) {
      if (bits.length >= MOST) bits.shift();
      var turn = random() * 6.283, fast = h.speed * (0.3 + random() * 0.7), c = new THREE.Color(h.colors ? h.colors[i % h.colors.length] : h.color);
      bits.push({ x: x + (random() - 0.5) * h.spread, y: y + random() * h.spread * 0.5, z: z + (random() - 0.5) * h.spread,
        vx: h.vx + Math.cos(turn) * fast, vy: h.up * (0.3 + random()), vz: h.vz + Math.sin(turn) * fast, g: h.gravity, age: 0, life: h.life * (0.6 + random() * 0.6), c: c });
    }
  }
  function stir(dt) {
    bits = bits.filter(function (b) { return (b.age += dt) < b.life; });
    for (var i = 0; i < MOST; i++) {
      var b = bits[i];
      if (!b) {
        dust.tone[i * 4 + 3] = 0;
        continue;
      }
      b.vy -= b.g * dt;
      b.x += b.vx * dt;
      b.y += b.vy * dt;
      b.z += b.vz * dt;
      dust.place.set([b.x, b.y, b.z], i * 3);
      dust.tone.set([b.c.r, b.c.g, b.c.b, 1 - b.age / b.life], i * 4);
    }
    dust.changed();
  }

  // weather: snow that falls, or bubbles that rise, in a box around the viewer.
  var flakes = null, BOX = 46;
  if (look.snow || look.bubbles) {
    flakes = cloud(look.bubbles ? 90 : 260, look.bubbles ? 0.5 : 0.22);
    for (i = 0; i < flakes.place.length; i++) flakes.place[i] = random() * BOX;
    for (i = 0; i < flakes.tone.length; i++) flakes.tone[i] = i % 4 === 3 ? (look.bubbles ? 0.4 : 0.85) : 1;
    scene.add(flakes.points);
  }
  function fall(dt, clock) {
    var q = flakes.place, c = camera.position, speed = look.bubbles ? 1.6 : -3.2;
    for (var i = 0; i < q.length; i += 3) {
      q[i] += Math.sin(clock * 0.8 + i) * 0.6 * dt;
      q[i + 1] += speed * (0.7 + (i % 7) * 0.1) * dt;
      for (var k = 0; k < 3; k++) {
        var mid = k === 0 ? c.x : k === 1 ? c.y : c.z - BOX * 0.3, off = q[i + k] - mid + BOX / 2;
        q[i + k] = mid - BOX / 2 + (off - Math.floor(off / BOX) * BOX);
      }
    }
    flakes.changed();
  }

  var v2 = new THREE.Vector3(), jolt = { x: 0, y: 0 }, hand = { translate: function (x, y) { jolt.x = x; jolt.y = y; } }, before = 0;
  return {
    scene: scene, camera: camera, renderer: renderer, sky: sky, glow: glow, disc: disc, material: plain, texture: texture,
    join: join, solid: solid, many: many, sticker: sticker, crowd: crowd, shade: shade, puff: puff,
    at: function (x, y, z) {
      v2.set(x, y, z).project(camera);
      return { x: (v2.x + 1) / 2 * Kit.view.w, y: (1 - v2.y) / 2 * Kit.view.h };
    },
    paint: function (ctx) {
      var dt = Kit.clamp(g.clock - before, 0, 0.1);
      before = g.clock;
      ctx.clearRect(0, 0, Kit.view.w, Kit.view.h);
      easeOff(performance.now());
      stir(dt);
      if (flakes) fall(dt, g.clock);
      sky.position.copy(camera.position);
      jolt.x = jolt.y = 0;
      g.fx.move(hand);
      camera.position.x += jolt.x * 0.02;
      camera.position.y += jolt.y * 0.02;
      renderer.render(scene, camera);
    },
  };
};
