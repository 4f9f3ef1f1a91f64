// Island Treasure: walk and jump over islands in the sky. Enough prizes open the
// treasure, which leads to the next island.
// What it looks like and how it plays stands in game.json and levels/*.json.
(function () {
  "use strict";
  var stage, island, level, hero, foes, prizes, chest, figure, shades, crowds, beam, eye, number;
  var VOID = -9;    // below this one has fallen
  var CALM = 3;     // seconds before anything hunts
  var COYOTE = 0.1; // seconds in which one may still jump after an edge

  function load(g) {
    var p = g.palette;
    stage = Kit.stage(g, { fog: [52, 125], fov: 50, below: 0.7, sun: [-60, 40, -100], light: [30, 70, 44] });
    island = Island(g, stage);
    figure = stage.sticker(g.pictures.hero, g.numbers.size);
    figure.name = "hero";
    figure.center.set(0.5, 0.08); // it stands on its feet
    stage.scene.add(figure);
    shades = [];
    for (var i = 0; i < 10; i++) shades.push(stage.shade(i ? 1.9 : g.numbers.size * 0.9));
    crowds = {
      foe: stage.crowd(g.pictures.foes[0], 2, Kit.color.mix(p.accent, "#ff3b4e", 0.6)),
      prize: stage.crowd(g.pictures.prizes[0], 1.15),
      treasure: stage.crowd(g.pictures.prizes[g.pictures.prizes.length - 1], 2),
      halo: stage.many([{ shape: new THREE.TorusGeometry(0.75, 0.07, 5, 18), turn: [Math.PI / 2, 0, 0], color: p.accent }], 40),
    };
    var light = new THREE.MeshBasicMaterial({ color: p.accent, transparent: true, opacity: 0.3, depthWrite: false, side: THREE.DoubleSide });
    beam = new THREE.Mesh(new THREE.CylinderGeometry(1.15, 1, 26, 14, 1, true), light);
    stage.scene.add(beam);
    eye = { x: 0, y: 0, z: 0 };
  }

  // ---- islands ----
  function begin(g) {
    number = 0;
    enter(g);
  }
  function enter(g) {
    level = g.levels[number];
    island.open(level);
    var at = island.centre(level.spawn), n = g.numbers;
    hero = { x: at.x, y: at.y, z: at.z, vx: 0, vy: 0, vz: 0, r: n.size * 0.26, air: 0, hop: 0, lean: 0, squash: 0, face: 0, safe: at };
    prizes = level.pickups.map(function (c) { return thing(g, c); });
    var free = island.walkable().filter(function (c) {
      return !level.taken[c.join()] && Math.hypot(c[0] - level.spawn[0], c[1] - level.spawn[1]) > 2.5;
    });
    function any() { return free.splice(Math.floor(g.random() * free.length), 1)[0]; }
    for (var i = 0; i < n.prizes && free.length > 4; i++) prizes.push(thing(g, any()));
    foes = [];
    for (i = 0; i < n.foes; i++) {
      var cell = (level.foes || [])[i] || any();
      if (cell) foes.push(Object.assign(thing(g, cell), { vx: 0, vz: 0, turn: 0, flat: 0, home: island.centre(cell) }));
    }
    chest = Object.assign(thing(g, level.goal), { told: 0 });
    g.found = 0;
    g.need = Math.min(n.goal, prizes.length);
    g.levelText = (number + 1) + " / " + g.levels.length;
    Object.assign(eye, { x: hero.x, y: hero.y, z: hero.z });
  }
  function thing(g, cell) { return Object.assign(island.centre(cell), { phase: g.random() * 6, gone: false }); }

  // ---- on foot ----
  // under is the ground that feet at x, z would stand on, coming from height y.
  function under(x, z, y, r) {
    var best = null;
    [[0, 0], [r, 0], [-r, 0], [0, r], [0, -r]].forEach(function (o) {
      var h = island.height(x + o[0], z + o[1]);
      if (h !== null && h <= y + level.physics.stepHeight + 0.01 && (best === null || h > best)) best = h;
    });
    return best;
  }
  function blocked(x, z, y) {
    var h = island.height(x, z);
    return h !== null && h > y + level.physics.stepHeight + 0.01;
  }
  function move(body, dx, dz, keep) { // one axis after the other, so that one slides along walls
    var r = body.r || 0.55, y = body.y;
    var x = body.x + dx + Math.sign(dx) * r;
    if (dx && !blocked(x, body.z - r * 0.7, y) && !blocked(x, body.z + r * 0.7, y) && !(keep && under(body.x + dx, body.z, y, 0) === null)) body.x += dx;
    else body.vx = 0;
    var z = body.z + dz + Math.sign(dz) * r;
    if (dz && !blocked(body.x - r * 0.7, z, y) && !blocked(body.x + r * 0.7, z, y) && !(keep && under(body.x, body.z + dz, y, 0) === null)) body.z += dz;
    else body.vz = 0;
  }
  function walk(g, dt) {
    var n = g.numbers, a = g.input.axis(), point = g.input.pointer, flying = hero.air > 0;
    if (point.down && !point.touch) { // towards the mouse
      var me = stage.at(hero.x, hero.y + 0.6, hero.z), dx = point.x - me.x, dy = point.y - me.y, far = Math.hypot(dx, dy);
      if (far > 24) a = { x: dx / far, y: dy / far };
    }
    // A jump carries as far as the level says that it does, whatever the numbers.
    var carry = (level.physics.jumpLength - 0.45) * level.physics.cell * n.gravity / (2 * n.jump);
    var speed = flying ? Math.max(n.speed, carry) : n.speed, grip = (g.rules.slippery ? 2 : 13) * (flying ? 0.55 : 1);
    hero.vx += (a.x * speed - hero.vx) * Math.min(1, grip * dt);
    hero.vz += (a.y * speed - hero.vz) * Math.min(1, grip * dt);
    move(hero, hero.vx * dt, hero.vz * dt, !g.rules.fall && !flying);
    if (g.input.pressed("action") && hero.air <= COYOTE) {
      hero.vy = n.jump;
      hero.air = COYOTE + dt;
      hero.squash = -0.22;
      Kit.sound.play("jump");
      stage.puff(hero.x, hero.y, hero.z, 8, { color: g.palette.path, speed: 2.5, up: 1.5 });
    }
    hero.lean = Kit.mix(hero.lean, -hero.vx * 0.022, 0.2);
    var pace = Math.hypot(hero.vx, hero.vz), before = hero.hop;
    hero.hop = flying ? 0 : hero.hop + pace * dt * 1.5;
    if (!flying && pace > 1 && Math.floor(before / 3.1416) !== Math.floor(hero.hop / 3.1416)) {
      stage.puff(hero.x, hero.y + 0.1, hero.z, 3, { color: g.palette.path, speed: 1.2, up: 1.4, life: 0.4 });
      Kit.sound.play("step");
    }
  }
  function fall(g, dt) {
    var n = g.numbers, was = hero.y;
    hero.vy -= n.gravity * dt;
    var ground = under(hero.x, hero.z, hero.y, hero.r * 0.8), y = hero.y + hero.vy * dt;
    if (ground !== null && (y <= ground || (hero.air === 0 && was - ground < 0.55 && hero.vy <= 0))) {
      if (hero.air > 0.25) {
        hero.squash = Math.min(0.35, -hero.vy * 0.02);
        stage.puff(hero.x, ground, hero.z, 10, { color: g.palette.path, speed: 3, up: 1.6, life: 0.5 });
        Kit.sound.play("step");
      }
      hero.y = y <= ground ? ground : Kit.near(hero.y, ground, 9 * dt);
      hero.vy = 0;
      hero.air = 0;
      var here = island.height(hero.x, hero.z);
      if (here === ground) { // remember the middle of the last firm cell
        var size = level.physics.cell;
        hero.safe = { x: (Math.floor(hero.x / size) + 0.5) * size, y: ground, z: (Math.floor(hero.z / size) + 0.5) * size };
      }
    } else {
      hero.y = y;
      hero.air += dt;
    }
    if (hero.y > VOID) return;
    stage.puff(hero.x, VOID + 1, hero.z, 26, { color: "#ffffff", speed: 4, up: 9 });
    if (g.rules.fall) {
      g.mercy = 0;
      g.hurt(g.view.w / 2, g.view.h * 0.8);
    }
    g.mercy = 1.2;
    Object.assign(hero, hero.safe, { y: hero.safe.y + 5, vx: 0, vy: 0, vz: 0, air: 1 });
  }

  // ---- foes ----
  function roam(g, f, dt) {
    f.phase += dt;
    if (f.flat) {
      f.flat += dt;
      f.gone = f.flat > 0.5;
      return;
    }
    var dx = hero.x - f.x, dz = hero.z - f.z, far = Math.hypot(dx, dz), speed = g.numbers.foeSpeed;
    if (g.rules.chase && g.elapsed > CALM && far < 10 && Math.abs(hero.y - f.y) < 2.6) f.turn = Math.atan2(dz, dx);
    else speed *= 0.6;
    var x = f.x, z = f.z;
    f.vx = Math.cos(f.turn) * speed;
    f.vz = Math.sin(f.turn) * speed;
    move(f, f.vx * dt, f.vz * dt, true);
    var ground = under(f.x, f.z, f.y, 0);
    if (ground !== null) f.y = Kit.near(f.y, ground, 6 * dt);
    if (Math.hypot(f.x - x, f.z - z) < speed * dt * 0.4) f.turn += 1.6 + g.random() * 2; // an edge or a wall
    if (far > hero.r + 0.75 || Math.abs(hero.y - f.y) > 1.7 || g.mercy > 0) return;
    if (hero.vy < -1 && hero.y > f.y + 0.35) {
      f.flat = 0.01;
      hero.vy = g.numbers.jump * 0.8;
      hero.air = COYOTE + dt;
      gain(g, 30, f, "pop", 18);
      return;
    }
    var at = stage.at(hero.x, hero.y + 1, hero.z);
    if (!g.hurt(at.x, at.y)) return;
    hero.vx = (dx / (far || 1)) * 9;
    hero.vz = (dz / (far || 1)) * 9;
    hero.vy = 5;
    hero.air = COYOTE + dt;
  }
  function gain(g, points, t, sound, bits) {
    var at = stage.at(t.x, t.y + 1.4, t.z);
    g.add(points, at.x, at.y);
    g.fx.ring(at.x, at.y, 46, "#ffffff");
    stage.puff(t.x, t.y + 0.9, t.z, bits, { colors: [g.palette.accent, "#ffffff", Kit.color.light(g.palette.accent, 0.5)], speed: 4, up: 5 });
    Kit.sound.play(sound, sound === "coin" ? 1 + (g.found % 8) * 0.06 : 1);
  }
  function near(t, reach, tall) { return Math.hypot(t.x - hero.x, t.z - hero.z) < reach && Math.abs(t.y - hero.y) < tall; }

  function step(g, dt) {
    walk(g, dt);
    fall(g, dt);
    hero.squash *= 0.86;
    prizes.forEach(function (t) {
      if (t.gone || !near(t, hero.r + 0.85, 1.9)) return;
      t.gone = true;
      g.found++;
      gain(g, 10, t, "coin", 12);
      if (g.found === g.need) {
        Kit.sound.play("door");
        g.fx.flash(g.palette.accent, 0.35);
      }
    });
    foes.forEach(function (f) { if (!f.gone) roam(g, f, dt); });
    chest.told -= dt;
    if (near(chest, hero.r + 1.2, 2.2)) {
      if (g.found >= g.need) return open(g);
      if (chest.told <= 0) {
        var at = stage.at(chest.x, chest.y + 2.4, chest.z);
        g.fx.say(at.x, at.y, g.found + " / " + g.need, "#ffffff");
        chest.told = 1.2;
      }
    }
    g.goalText = Math.min(g.found, g.need) + " / " + g.need;
  }
  function open(g) {
    gain(g, 100, chest, "prize", 40);
    number++;
    if (number >= g.levels.length) {
      number = g.levels.length - 1;
      g.end(true, Kit.clamp(g.rules.lives ? g.lives : 3, 1, 3));
      return;
    }
    g.fx.flash("#ffffff", 0.9);
    Kit.sound.play("go");
    enter(g);
  }

  // ---- picture ----
  function draw(g, ctx) {
    var cam = stage.camera, tall = g.view.portrait, used = 0, ready = g.found >= g.need;
    function shadow(x, y, z, size) {
      var ground = under(x, z, y + 0.3, 0.3), s = shades[used];
      if (ground === null || !s) return;
      used++;
      s.visible = true;
      s.position.set(x, ground + 0.06, z);
      s.scale.setScalar(size / (1 + Math.max(0, y - ground) * 0.12));
    }
    if (g.state === "title") { // around the island
      var mid = island.cols * island.cell / 2, deep = island.rows * island.cell / 2, turn = Math.sin(g.clock * 0.2) * 0.7, far = tall ? 46 : 33;
      cam.position.set(mid + Math.sin(turn) * far, 15, deep + Math.cos(turn) * far);
      cam.lookAt(mid, tall ? 0 : 1.5, deep);
    } else {
      eye.x = Kit.mix(eye.x, hero.x, 0.12);
      eye.y = Kit.mix(eye.y, Math.max(hero.y, VOID + 6), 0.08);
      eye.z = Kit.mix(eye.z, hero.z, 0.12);
      cam.position.set(eye.x * 0.96 + island.cols * island.cell * 0.02, eye.y + (tall ? 11.5 : 8.8), eye.z + (tall ? 12.5 : 11));
      cam.lookAt(eye.x, eye.y + 0.6, eye.z - 2.4);
    }
    figure.visible = g.state !== "title" && !g.blinking();
    if (figure.visible) shadow(hero.x, hero.y, hero.z, 1);
    figure.position.set(hero.x, hero.y + Math.abs(Math.sin(hero.hop)) * 0.28, hero.z + 0.2);
    figure.material.rotation = hero.lean + Math.sin(hero.hop) * 0.09;
    figure.scale.set(figure.full * (1 + hero.squash * 0.7), figure.full * (1 - hero.squash), 1);
    prizes.forEach(function (t) {
      if (t.gone) return;
      var bob = Math.sin(g.clock * 3 + t.phase) * 0.14;
      crowds.prize.put(t.x, t.y + 1 + bob, t.z, Math.sin(g.clock * 2.4 + t.phase) * 0.18);
      crowds.halo.put(t.x, t.y + 0.1, t.z, 0.85 + Math.sin(g.clock * 4 + t.phase) * 0.1);
    });
    foes.forEach(function (f) {
      if (f.gone) return;
      shadow(f.x, f.y, f.z, 0.9);
      var at = crowds.foe.put(f.x, f.y + (f.flat ? 0.5 : 1.15 + Math.sin(f.phase * 4) * 0.13), f.z, Math.sin(f.phase * 5) * 0.1);
      if (f.flat) at.scale.y *= 0.25;
    });
    crowds.treasure.put(chest.x, chest.y + 0.95 + (ready ? Math.abs(Math.sin(g.clock * 5)) * 0.35 : 0), chest.z, ready ? Math.sin(g.clock * 10) * 0.07 : 0);
    beam.position.set(chest.x, chest.y + 13, chest.z);
    beam.material.opacity = ready ? 0.32 + Math.sin(g.clock * 5) * 0.1 : 0.1;
    beam.scale.set(ready ? 1.15 : 0.7, 1, ready ? 1.15 : 0.7);
    Object.keys(crowds).forEach(function (k) { crowds[k].done(); });
    for (; used < shades.length; used++) shades[used].visible = false;
    island.show();
    stage.paint(ctx);
    g.fx.draw(ctx);
  }

  Kit.game({
    hud: ["score", "goal", "lives", "level", "time"],
    controls: { stick: true, pad: ["action"] },
    music: "calm",
    load: load,
    begin: begin,
    step: step,
    draw: draw,
    player: function () { return { x: hero.x, y: hero.y, z: hero.z }; },
  });
})();
