// Ice Slide: down the mountain in a round sled, through gates and over ramps.
// What it looks like and how it plays stands in game.json; start there.
(function () {
  "use strict";
  var stage, slope, hero, things, sled, figure, shade, crowds, gates, wedges, arch, eye;
  var CALM = 34;   // metres before anything stands in the way
  var AHEAD = 118; // metres that one sees

  // ---- load: shapes are made once ----
  function load(g) {
    var p = g.palette, size = g.numbers.size;
    stage = Kit.stage(g, { fog: [48, 124], fov: 60 });
    slope = Slope(g, stage, []);
    figure = stage.sticker(g.pictures.hero, size);
    figure.name = "hero";
    sled = new THREE.Group();
    sled.add(tube(p, size), figure);
    stage.scene.add(sled);
    shade = stage.shade(size * 1.7);
    crowds = {
      prizes: g.pictures.prizes.map(function (x, i) { return stage.crowd(x, i ? 1.7 : 1.3); }),
      foes: g.pictures.foes.map(function (x) { return stage.crowd(x, 2.7, Kit.color.mix(p.accent, "#ffffff", 0.2)); }),
    };
    var pole = { shape: new THREE.CylinderGeometry(0.13, 0.13, 3.4, 6), color: Kit.color.light(p.accent, 0.75) };
    var flag = new THREE.ConeGeometry(0.75, 1.5, 3);
    gates = stage.many([-2.7, 2.7].reduce(function (all, x) {
      return all.concat([Object.assign({}, pole, { at: [x, 1.6, 0] }), { shape: flag, color: p.accent, at: [x * 1.22, 2.7, 0], turn: [0, 0, x > 0 ? -1.57 : 1.57], scale: [1, 1, 0.25] }]);
    }, [{ shape: new THREE.BoxGeometry(5.4, 0.5, 0.12), at: [0, 3.3, 0], color: function (x) { return Math.floor(x + 10) % 2 ? "#ffffff" : p.accent; } }]), 12);
    wedges = stage.many(wedge(p), 6);
    arch = finish(p);
    stage.scene.add(arch);
    eye = { x: 0, y: 6, roll: 0, fast: 0, turn: 0 };
  }
  function tube(p, size) { // a striped ring
    var shape = new THREE.TorusGeometry(size * 0.42, size * 0.17, 8, 16), ring = stage.solid([{
      shape: shape, turn: [Math.PI / 2, 0, 0],
      color: function (x, y, z) { return Math.floor((Math.atan2(z, x) / 6.283 + 1) * 16 + 0.01) % 4 < 2 ? p.accent : Kit.color.light(p.accent, 0.8); },
    }]);
    ring.position.y = size * 0.12;
    ring.name = "sled";
    return ring;
  }
  function wedge(p) { // a ramp of 6 by 7 metres, 1.9 high, with stripes
    var parts = [], n = 7;
    for (var i = 0; i < n; i++) {
      var h = 1.9 * Math.pow((i + 1) / n, 1.3);
      parts.push({ shape: new THREE.BoxGeometry(6, h + 1.2, 1.01), at: [0, h / 2 - 0.6, -(i + 0.5)], color: i % 2 ? Kit.color.light(p.accent, 0.85) : p.accent });
    }
    return parts;
  }
  function finish(p) {
    var parts = [], group = new THREE.Group();
    [-11.2, 11.2].forEach(function (x) {
      parts.push({ shape: new THREE.CylinderGeometry(0.5, 0.6, 9, 8, 7), at: [x, 3.5, 0], color: function (a, y) { return Math.floor(y / 1.2 + 20) % 2 ? "#ffffff" : p.accent; } });
      parts.push({ shape: new THREE.IcosahedronGeometry(0.95, 0), at: [x, 8.4, 0], color: p.accent });
    });
    for (var i = 0; i < 28; i++) {
      for (var k = 0; k < 3; k++) parts.push({ shape: new THREE.BoxGeometry(0.8, 0.75, 0.3), at: [-10.8 + i * 0.8, 6.2 + k * 0.75, 0], color: (i + k) % 2 ? "#ffffff" : "#1b2050" });
    }
    group.add(stage.solid(parts));
    return group;
  }

  // ---- begin: what lies on the way is thrown once, from top to bottom ----
  function begin(g) {
    var n = g.numbers, end = n.goal;
    hero = { x: 0, y: 0, d: 0, vx: 0, vy: 0, v: n.speed * 0.35, air: 0, lean: 0, squash: 0, spin: 0, dust: 0, boost: 0, seen: g.clock };
    hero.y = slope.height(0, 0);
    things = [];
    g.found = g.total = g.streak = 0;
    slope.ramps = [];
    var since = { foe: CALM, prize: 12, gate: 52, ramp: 90 }, u = 0;
    for (var d = 12; d < end - 22; d += 2) {
      if (d >= since.ramp) { // a ramp, and things in the air behind it
        u = (g.random() - 0.5) * 9;
        var ramp = { d: d, x: slope.middle(d + 4) + u, length: 7, wide: 6, high: 1.9 };
        slope.ramps.push(ramp);
        things = things.filter(function (t) { return t.d < d - 16 || t.kind === "prize" || t.kind === "gate"; }); // the way to it is free
        add(g, "prize", 1, d + 21, slope.middle(d + 21) + u * 0.8, 4.6);
        for (var i = 0; i < 4; i++) add(g, "prize", 0, d + 9 + i * 4, slope.middle(d + 9 + i * 4) + u * 0.9, 2.6 + Math.sin(0.6 + i * 0.7) * 1.6);
        since.ramp = d + 105 + g.random() * 60;
        since.foe = Math.max(since.foe, d + 34);
        since.gate = Math.max(since.gate, d + 40);
        since.prize = Math.max(since.prize, d + 30);
      } else if (d >= since.gate) {
        add(g, "gate", 0, d, slope.middle(d) + (g.random() - 0.5) * 11, 0);
        since.gate = d + 58 + g.random() * 24;
        since.foe = Math.max(since.foe, d + 10);
      } else if (d >= since.foe) {
        var kind = g.random(), x = slope.middle(d) + (g.random() - 0.5) * 2 * (slope.half - 1.6);
        if (kind < 0.22) add(g, "rock", 0, d, x, 0);
        else if (kind < 0.38) add(g, "fir", 0, d, x, 0);
        else add(g, "foe", kind < 0.72 ? 0 : g.pictures.foes.length - 1, d, x, 0);
        since.foe = d + (100 / n.foes) * (0.5 + g.random() * 0.8);
      } else if (d >= since.prize) {
        d = row(g, d, since) - 2;
      }
    }
    things.sort(function (a, b) { return a.d - b.d; });
    eye.x = eye.roll = eye.fast = eye.turn = 0;
    eye.y = hero.y + 6;
  }
  function add(g, kind, which, d, x, up) {
    if (kind === "prize") g.total++;
    things.push({ kind: kind, which: which, d: d, x: x, home: x, up: up, phase: g.random() * 6, gone: false });
  }
  function row(g, d, since) { // prizes in a line that one can steer along
    var n = 5, u = (g.random() - 0.5) * 11, bend = (g.random() - 0.5) * 7;
    for (var i = 0; i < n; i++) add(g, "prize", 0, d + i * 3, Kit.clamp(u + bend * (i / n), -slope.half + 1, slope.half - 1) + slope.middle(d + i * 3), 0);
    since.prize = d + n * 3 + (n * 100) / g.numbers.prizes - n * 3 * 0.6;
    return d + 2;
  }

  // ---- step ----
  function steer(g, dt) {
    var n = g.numbers, a = g.input.axis(), point = g.input.pointer, flying = hero.air > 0;
    if (point.down && !point.touch) a = { x: Kit.clamp((point.x - g.view.w / 2) / (g.view.w * 0.25), -1, 1), y: 0 };
    var wanted = n.speed * (1 - a.y * (a.y > 0 ? 0.5 : 0.16)) + hero.boost;
    hero.boost = Math.max(0, hero.boost - 5 * dt);
    hero.v = Kit.near(hero.v, wanted, (wanted > hero.v ? 10 : 14) * dt);
    var grip = (g.rules.slippery ? 1.5 : 6.5) * (flying ? 0.35 : 1);
    hero.vx += (a.x * n.steer - hero.vx) * Math.min(1, grip * dt);
    hero.lean = Kit.mix(hero.lean, Kit.clamp(-hero.vx / n.steer, -1, 1) * 0.42, 0.14);
    if (g.input.pressed("action") && !flying) {
      hero.vy = Math.max(0, hero.vy) + n.jump;
      hero.y += 0.05;
      hero.air = 0.01;
      Kit.sound.play("jump");
      stage.puff(hero.x, hero.y, -hero.d, 10, { color: g.palette.ground, speed: 3 });
    }
  }
  function glide(g, dt) { // over the snow, or through the air
    var old = hero.y, way = Math.cos(Math.atan2(hero.vx, hero.v * 1.6));
    hero.x += hero.vx * dt;
    hero.d += hero.v * way * dt;
    var off = hero.x - slope.middle(hero.d), limit = slope.half + 2.6;
    if (Math.abs(off) > slope.half) { // the bank pushes back
      hero.vx -= Math.sign(off) * (Math.abs(off) - slope.half) * 26 * dt;
      hero.v *= 1 - 0.35 * dt;
    }
    hero.x = slope.middle(hero.d) + Kit.clamp(off, -limit, limit);
    var ground = slope.height(hero.x, hero.d), flying = hero.air > 0;
    hero.vy -= g.numbers.gravity * dt;
    var y = old + hero.vy * dt, sticks = !flying && y - ground < 0.1;
    if (y > ground && !sticks) {
      hero.y = y;
      hero.air += dt;
      if (hero.air > 0.55) hero.spin += dt * 7.5;
      return;
    }
    hero.y = ground;
    hero.vy = Kit.clamp((ground - old) / dt, -30, 14);
    if (hero.air > 0.3) land(g);
    hero.air = 0;
    hero.spin = 0;
  }
  function land(g) {
    hero.squash = Math.min(0.4, hero.air * 0.4);
    stage.puff(hero.x, hero.y, -hero.d, 26, { color: g.palette.ground, speed: 6, up: 5 });
    g.fx.shake(5);
    Kit.sound.play("step");
    if (hero.air < 0.75) return;
    var at = stage.at(hero.x, hero.y + 2, -hero.d);
    g.add(Math.round(hero.air * 20), at.x, at.y);
    Kit.sound.play("prize");
    hero.boost = Math.min(10, hero.boost + 4);
  }
  function meet(g, t) {
    var ground = slope.bare(t.x, t.d), dx = Math.abs(t.x - hero.x), size = g.numbers.size, p = g.palette;
    var at = stage.at(t.x, ground + t.up + 1.2, -t.d);
    if (t.kind === "gate") {
      t.gone = true;
      if (dx > 2.9) {
        g.streak = 0;
        return;
      }
      g.streak = Math.min(5, g.streak + 1);
      g.add(20 * g.streak, at.x, at.y);
      g.fx.ring(at.x, at.y, 120, "#ffffff");
      hero.boost = Math.min(12, hero.boost + 7);
      Kit.sound.play("turbo", 1 + g.streak * 0.1);
      stage.puff(t.x, ground + 2, -t.d, 26, { colors: [p.accent, "#ffffff"], speed: 7, up: 6, spread: 4 });
    } else if (t.kind === "prize") {
      if (dx > size * 0.4 + 0.9 || Math.abs(ground + t.up + 0.9 - hero.y - size * 0.4) > size * 0.5 + 1.1) return;
      t.gone = true;
      g.found++;
      g.add(t.which ? 50 : 10, at.x, at.y);
      hero.squash = -0.14;
      stage.puff(t.x, ground + t.up + 1, -t.d, 12, { colors: [p.accent, "#ffffff", Kit.color.light(p.accent, 0.5)], speed: 5, up: 5 });
      Kit.sound.play(t.which ? "prize" : "coin", 1 + (g.found % 8) * 0.06);
    } else {
      var tall = t.kind === "rock" ? 1.3 : t.kind === "foe" ? 2.2 : 5;
      if (dx > size * 0.3 + (t.kind === "fir" ? 0.75 : 1) || hero.y - ground > tall) return;
      t.gone = t.kind === "foe";
      if (!g.hurt(at.x, at.y)) return;
      hero.v *= 0.3;
      hero.boost = 0;
      hero.vy = 5;
      hero.air = 0.01;
      hero.y += 0.1;
      hero.vx = (hero.x >= t.x ? 1 : -1) * 6;
      g.streak = 0;
      stage.puff(hero.x, hero.y + 1, -hero.d, 30, { color: p.ground, speed: 8, up: 6 });
    }
  }
  function step(g, dt) {
    var from = hero.d;
    steer(g, dt);
    glide(g, dt);
    hero.squash *= 0.88;
    things.forEach(function (t) {
      if (t.gone || t.d < from - 4 || t.d > hero.d + AHEAD) return;
      t.phase += dt;
      if (t.kind === "foe") roam(g, t, dt);
      var reach = t.kind === "gate" ? 0 : t.kind === "prize" ? 0.9 : 0.7;
      if (t.d >= from - reach && t.d < hero.d + reach) meet(g, t);
    });
    if ((hero.dust -= dt) <= 0 && hero.air === 0) {
      hero.dust = 0.045;
      var carve = Math.abs(hero.vx) / g.numbers.steer;
      stage.puff(hero.x + hero.lean, hero.y + 0.1, -hero.d + 0.9, 1 + Math.round(carve * 3), { color: g.palette.ground, speed: 1.4 + carve * 2, up: 2.4 + carve * 2, life: 0.55, vx: -hero.vx * 0.25 });
    }
    g.goalText = Math.max(0, Math.ceil(g.numbers.goal - hero.d)) + " m";
    if (hero.d >= g.numbers.goal) {
      g.add(50 * Math.max(0, g.rules.lives ? g.lives : 0));
      var share = g.found / Math.max(1, g.total);
      g.end(true, share > 0.5 ? 3 : share > 0.25 ? 2 : 1);
    }
  }
  function roam(g, t, dt) {
    if (t.which > 0) t.x = t.home + Math.sin(t.phase * 1.1) * 3.2;
    if (!g.rules.chase || t.d < hero.d + 5) return;
    t.home = Kit.near(t.home, hero.x, 4.2 * dt);
    if (t.which === 0) t.x = t.home;
  }

  // coast lets the winner slide on while the picture of the end is shown.
  function coast(g) {
    var dt = Kit.clamp(g.clock - hero.seen, 0, 0.1);
    hero.seen = g.clock;
    if (!g.won || g.state === "play" || g.state === "title") return;
    hero.v = Kit.near(hero.v, 0, 9 * dt);
    hero.d += hero.v * dt;
    hero.x = Kit.mix(hero.x, slope.middle(hero.d), Math.min(1, 2 * dt));
    hero.y = slope.height(hero.x, hero.d);
    hero.lean = hero.vx = hero.air = hero.spin = 0;
    eye.turn += dt * 0.9;
  }

  // ---- picture ----
  function show(g, d) { // everything near d
    things.forEach(function (t) {
      if (t.d < d - 6 || t.d > d + AHEAD) return;
      var y = slope.bare(t.x, t.d);
      if (t.kind === "gate") gates.put(t.x, y, -t.d, 1, 0);
      else if (t.gone) return;
      else if (t.kind === "rock") slope.rocks.put(t.x, y, -t.d, 1.05, t.phase);
      else if (t.kind === "fir") slope.firs.put(t.x, y, -t.d, 0.85, t.phase);
      else if (t.kind === "foe") crowds.foes[t.which].put(t.x, y + 1.3 + Math.abs(Math.sin(t.phase * 4)) * (t.which ? 0.35 : 0.06), -t.d, Math.sin(t.phase * 4) * 0.09);
      else crowds.prizes[t.which].put(t.x, y + t.up + 1.1 + Math.sin(g.clock * 4 + t.phase) * 0.15, -t.d, Math.sin(g.clock * 3 + t.phase) * 0.16);
    });
    slope.ramps.forEach(function (r) {
      if (r.d > d - 12 && r.d < d + AHEAD) wedges.put(r.x, slope.bare(r.x, r.d), -r.d, 1, 0, Math.atan2(slope.bare(r.x, r.d) - slope.bare(r.x, r.d + r.length), r.length) * -1);
    });
    gates.done();
    wedges.done();
    crowds.foes.concat(crowds.prizes).forEach(function (c) { c.done(); });
    var goal = g.numbers.goal, x = slope.middle(goal);
    arch.visible = goal < d + AHEAD + 10;
    arch.position.set(x, slope.bare(x, goal), -goal);
    slope.show(d);
  }
  function dress(g) { // the hero in the sled
    var tilt = Math.atan2(slope.height(hero.x, hero.d + 1) - slope.height(hero.x, hero.d - 1), 2), size = g.numbers.size;
    sled.visible = g.state !== "title" && !g.blinking();
    sled.position.set(hero.x, hero.y + 0.12, -hero.d);
    sled.rotation.set(hero.air > 0 ? 0.12 : tilt, -hero.lean * 0.8, hero.lean * 0.6);
    figure.position.set(0, size * 0.56, 0);
    figure.material.rotation = hero.lean * 0.5 + (hero.spin ? Math.min(6.283, hero.spin) : 0) + Math.sin(g.clock * 9) * 0.03;
    figure.scale.set(figure.full * (1 + hero.squash * 0.6), figure.full * (1 - hero.squash), 1);
    var ground = slope.height(hero.x, hero.d), high = hero.y - ground;
    shade.visible = sled.visible;
    shade.position.set(hero.x, ground + 0.12, -hero.d);
    shade.rotation.x = tilt;
    shade.scale.setScalar(1 / (1 + high * 0.18));
    shade.dark.opacity = 0.42 / (1 + high * 0.25);
  }
  function watch(g) { // the camera behind the hero; on the title it flies alone
    var cam = stage.camera, tall = g.view.portrait;
    if (g.state === "title") {
      var d = (g.clock * 9) % Math.max(60, g.numbers.goal - 120), x = slope.middle(d);
      cam.position.set(x + Math.sin(g.clock * 0.3) * 4, slope.bare(x, d) + 6, -d);
      cam.lookAt(slope.middle(d + 26), slope.bare(slope.middle(d + 26), d + 26) + 2.5, -d - 26);
      return d;
    }
    eye.x = Kit.mix(eye.x, hero.x, 0.12);
    eye.y = Kit.mix(eye.y, hero.y, 0.22);
    eye.fast = Kit.mix(eye.fast, hero.v / 27, 0.05);
    eye.roll = Kit.mix(eye.roll, hero.lean * 0.13, 0.1);
    var back = (tall ? 8.6 : 8) + eye.fast * 0.8, high = tall ? 4.6 : 4;
    if (eye.turn > 0) { // round the winner
      var round = Math.min(2.7, eye.turn);
      cam.position.set(hero.x + Math.sin(round) * back, hero.y + high * 0.8, -hero.d + Math.cos(round) * back);
      cam.lookAt(hero.x, hero.y + 1.2, -hero.d);
      return hero.d - 20;
    }
    cam.position.set(eye.x * 0.9 + slope.middle(hero.d - 8) * 0.1, eye.y + high, -hero.d + back);
    cam.lookAt(Kit.mix(eye.x, slope.middle(hero.d + 16), 0.45), eye.y - (tall ? 4 : 2), -hero.d - 13);
    cam.rotateZ(eye.roll);
    return hero.d;
  }
  function streaks(g, ctx) { // the wind, when it is fast
    var amount = Kit.clamp((hero.v - g.numbers.speed * 0.95) / 12, 0, 1);
    if (g.state !== "play" || amount <= 0) return;
    ctx.strokeStyle = "rgba(255,255,255," + 0.5 * amount + ")";
    ctx.lineWidth = 2;
    ctx.beginPath();
    for (var i = 0; i < 18; i++) {
      var turn = i * 2.4 + Math.floor(g.clock * 20 + i) * 1.7, x = Math.cos(turn), y = Math.sin(turn), near = 0.34 + ((g.clock * 2 + i * 0.37) % 1) * 0.25;
      ctx.moveTo(g.view.w * (0.5 + x * near), g.view.h * (0.5 + y * near));
      ctx.lineTo(g.view.w * (0.5 + x * (near + 0.09)), g.view.h * (0.5 + y * (near + 0.09)));
    }
    ctx.stroke();
  }
  function draw(g, ctx) {
    coast(g);
    dress(g);
    show(g, watch(g));
    stage.paint(ctx);
    streaks(g, ctx);
    g.fx.draw(ctx);
  }

  Kit.game({
    hud: ["score", "goal", "lives", "time"],
    controls: { stick: true, pad: ["action"] },
    music: "happy",
    load: load,
    begin: begin,
    step: step,
    draw: draw,
    player: function () { return { x: hero.x, y: hero.y, z: -hero.d }; },
  });
})();
