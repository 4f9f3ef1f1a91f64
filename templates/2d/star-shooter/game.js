// Star Shooter: shoot the waves that come from above, then their chief.
// Names, colours, numbers and rules stand in game.json; start there.
(function () {
  "use strict";
  var art, sky, hero, shots, foes, drops, chief, spawn, reload, power;

  function load(g) {
    var p = g.palette, last = g.pictures.foes[g.pictures.foes.length - 1];
    art = {
      hero: Kit.draw.sticker(g.pictures.hero, g.numbers.size, "#ffffff", 3),
      foes: g.pictures.foes.map(function (x) { return Kit.draw.sticker(x, 66, Kit.color.light(p.sky2, 0.55), 3); }),
      chief: Kit.draw.sticker(last, 190, "#ff4d6d", 6),
      prizes: g.pictures.prizes.map(function (x) { return Kit.draw.sticker(x, 42, "#ffffff", 2.5); }),
      glow: Kit.draw.glow(110, p.accent),
      shot: Kit.draw.sheet(16, 34, function (c) {
        c.fillStyle = Kit.draw.fade(c, 0, 34, ["#ffffff", p.accent, Kit.color.alpha(p.accent, 0)]);
        Kit.draw.box(c, 3, 0, 10, 34, 5);
        c.fill();
      }),
      danger: Kit.draw.glow(40, "#ff4d6d"),
    };
    Kit.view.onResize(function () { sky = null; });
  }

  function line(g) { return g.view.h - (g.view.portrait ? 150 : 90); }

  function begin(g) {
    hero = { x: g.view.w / 2, y: line(g), vx: 0, r: g.numbers.size * 0.34, lean: 0, aim: null, kick: 0 };
    shots = [];
    foes = [];
    drops = [];
    chief = null;
    spawn = 1.2;
    reload = 0;
    power = 1;
    g.beaten = 0;
  }

  // ---- play ----
  function steer(g, dt) {
    var a = g.input.axis(), point = g.input.pointer, speed = g.numbers.speed, half = hero.r + 8;
    if (a.x) hero.aim = null;
    else if (point.moved || point.pressed) hero.aim = point.x;
    var want = a.x * speed;
    if (!a.x && hero.aim !== null) want = Kit.clamp((hero.aim - hero.x) * 13, -speed, speed);
    hero.vx = Kit.near(hero.vx, want, speed * 9 * dt);
    hero.x += hero.vx * dt;
    if (g.rules.wrap) hero.x = hero.x < -half ? g.view.w + half : hero.x > g.view.w + half ? -half : hero.x;
    else hero.x = Kit.clamp(hero.x, half, g.view.w - half);
    hero.y = line(g);
    hero.lean = Kit.mix(hero.lean, Kit.clamp(hero.vx / 1500, -0.35, 0.35), 0.2);
    hero.kick *= 0.8;
    reload -= dt;
    if (reload <= 0 && (g.rules.shoot || g.input.action || g.input.up || point.down)) shoot(g);
  }

  function shoot(g) {
    reload = 1 / g.numbers.fire;
    hero.kick = 7;
    for (var i = 0; i < power; i++) {
      var side = i - (power - 1) / 2;
      shots.push({ x: hero.x + side * 20, y: hero.y - hero.r - 20, vx: side * 60, vy: -720, r: 10 });
    }
    for (i = -1; i <= 1 && g.rules.bounce; i += 2) { // slanted ones, that come back from the sides
      shots.push({ x: hero.x, y: hero.y - hero.r - 20, vx: i * 420, vy: -560, r: 10 });
    }
    Kit.sound.play("shoot", 0.9 + power * 0.1);
  }

  function wave(g) { // a small figure of foes
    var n = 1 + Math.floor(g.random() * 3), x = 70 + g.random() * (g.view.w - 140), which = Math.floor(g.random() * art.foes.length);
    for (var i = 0; i < n; i++) {
      foes.push({
        which: which, x: Kit.clamp(x + (i - (n - 1) / 2) * 84, 50, g.view.w - 50), y: -50 - i * 26, base: 0,
        phase: g.random() * 6, swing: 30 + g.random() * 60, health: which + 1, r: 28, hurt: 0,
      });
    }
    return n;
  }

  function moveFoes(g, dt) {
    var pace = g.numbers.foeSpeed * (1 + Math.min(0.8, g.elapsed / 90));
    foes.forEach(function (f) {
      f.phase += dt * 2;
      f.hurt = Math.max(0, f.hurt - dt * 6);
      f.y += pace * dt;
      f.x += Math.cos(f.phase) * f.swing * dt;
      if (g.rules.chase && f.y > 60) f.x = Kit.near(f.x, hero.x, 110 * dt);
      f.x = Kit.clamp(f.x, 34, g.view.w - 34);
      if (Kit.touching(f, hero) && g.hurt(hero.x, hero.y)) {
        f.gone = true;
        power = Math.max(1, power - 1);
      }
      if (f.y > g.view.h + 60) f.gone = true;
    });
  }

  function moveChief(g, dt) {
    if (!chief) {
      if (g.beaten < g.numbers.goal) return;
      chief = { x: g.view.w / 2, y: -140, r: 84, health: g.numbers.boss, phase: 0, fire: 2, hurt: 0 };
      g.fx.say(g.view.w / 2, g.view.h * 0.3, "!!!", "#ff4d6d");
      g.fx.shake(10);
      Kit.sound.play("lose", 0.6);
    }
    chief.phase += dt;
    chief.hurt = Math.max(0, chief.hurt - dt * 6);
    chief.y = Kit.near(chief.y, 150, 120 * dt);
    chief.x = g.view.w / 2 + Math.sin(chief.phase * 0.9) * (g.view.w / 2 - 120);
    chief.fire -= dt;
    if (chief.fire <= 0) { // throws what falls down on the hero
      chief.fire = 1.1;
      for (var i = -1; i <= 1; i++) drops.push({ kind: "danger", x: chief.x, y: chief.y + 60, vx: i * 90, vy: 230, r: 12, phase: 0 });
    }
  }

  function strike(g, shot, target, size) {
    shot.gone = true;
    target.hurt = 1;
    target.health -= 1;
    g.fx.burst(shot.x, shot.y, 5, { colors: ["#ffffff", g.palette.accent], speed: 160, life: 0.3 });
    if (target.health > 0) {
      Kit.sound.play("tick", 1.4);
      return;
    }
    target.gone = true;
    g.fx.burst(target.x, target.y, size, { colors: ["#ffffff", g.palette.accent, "#ffb347", "#ff5d8f"], speed: 150 + size * 6, life: 0.7, size: 6, gravity: 60 });
    g.fx.ring(target.x, target.y, 40 + size * 2, g.palette.accent);
    g.fx.shake(size / 5);
    Kit.sound.play("pop", 0.7);
  }

  function hitThings(g) {
    shots.forEach(function (s) {
      foes.forEach(function (f) {
        if (s.gone || f.gone || !Kit.touching(s, f)) return;
        strike(g, s, f, 18);
        if (!f.gone) return;
        g.beaten += 1;
        g.add(2 + f.which, f.x, f.y);
        if (g.random() * 100 < g.numbers.prizes) drops.push({ kind: "prize", which: Math.floor(g.random() * art.prizes.length), x: f.x, y: f.y, vx: 0, vy: 130, r: 24, phase: 0 });
      });
      if (chief && !s.gone && chief.health > 0 && Kit.touching(s, chief)) {
        strike(g, s, chief, 70);
        if (!chief.gone) return;
        g.add(30, chief.x, chief.y);
        g.fx.flash("#ffffff", 0.9);
        g.end(true, Kit.clamp(g.lives, 1, 3));
      }
    });
  }

  function step(g, dt) {
    steer(g, dt);
    spawn -= dt;
    if (spawn <= 0 && !chief) spawn = (wave(g) * 60) / g.numbers.foes;
    moveFoes(g, dt);
    moveChief(g, dt);
    shots.forEach(function (s) {
      s.x += s.vx * dt;
      s.y += s.vy * dt;
      if (g.rules.bounce && (s.x < 8 || s.x > g.view.w - 8)) s.vx = -s.vx;
      if (s.y < -40 || s.x < -20 || s.x > g.view.w + 20) s.gone = true;
    });
    drops.forEach(function (d) {
      d.phase += dt;
      d.x += d.vx * dt;
      d.y += d.vy * dt;
      if (d.y > g.view.h + 40) d.gone = true;
      if (d.gone || !Kit.touching(d, hero)) return;
      d.gone = true;
      if (d.kind === "danger") {
        g.hurt(hero.x, hero.y);
        return;
      }
      power = Math.min(5, power + 1);
      g.add(5, d.x, d.y);
      g.fx.ring(hero.x, hero.y, 70, "#ffffff");
      Kit.sound.play("prize");
    });
    hitThings(g);
    function stays(x) { return !x.gone; }
    shots = shots.filter(stays);
    foes = foes.filter(stays);
    drops = drops.filter(stays);
    g.goalText = Math.min(g.beaten, g.numbers.goal) + " / " + g.numbers.goal;
  }

  // ---- picture ----
  function paintSky(g) { // three sheets of stars, each as high as the screen
    var w = g.view.w, h = g.view.h, p = g.palette, random = DreamCoreSDK2.random("stars");
    var base = Kit.draw.sheet(w, h, function (c) {
      c.fillStyle = Kit.draw.fade(c, 0, h, [p.sky, Kit.color.mix(p.sky, p.sky2, 0.55), Kit.color.mix(p.sky2, p.ground, 0.35)]);
      c.fillRect(0, 0, w, h);
      [[0.2, 0.3, p.sky2, 0.6], [0.85, 0.55, p.ground, 0.45], [0.45, 0.85, p.sky2, 0.5], [0.75, 0.1, p.accent, 0.16]].forEach(function (n) {
        var r = Math.max(w, h) * 0.45, x = w * n[0], y = h * n[1], mist = c.createRadialGradient(x, y, 0, x, y, r);
        mist.addColorStop(0, Kit.color.alpha(n[2], n[3]));
        mist.addColorStop(1, Kit.color.alpha(n[2], 0));
        c.fillStyle = mist;
        c.fillRect(0, 0, w, h);
      });
    });
    var layers = [60, 36, 18].map(function (many, depth) {
      return Kit.draw.sheet(w, h, function (c) {
        for (var i = 0; i < many; i++) {
          c.globalAlpha = 0.35 + random() * 0.6;
          c.fillStyle = random() < 0.3 ? Kit.color.light(p.accent, 0.4) : "#ffffff";
          c.beginPath();
          c.arc(random() * w, 4 + random() * (h - 8), 0.7 + depth * 0.8 + random() * 0.7, 0, 7);
          c.fill();
        }
      });
    });
    var worlds = g.pictures.scenery.map(function (x, i) { return Kit.draw.tinted(x, 150 + i * 60, Kit.color.mix(p.sky, p.sky2, 0.5), 0.32); });
    return { base: base, layers: layers, worlds: worlds };
  }

  function drawSky(g, ctx) {
    if (!sky) sky = paintSky(g);
    var w = g.view.w, h = g.view.h;
    Kit.draw.lay(ctx, sky.base, 0, 0);
    sky.layers.forEach(function (l, i) {
      var y = (g.clock * (26 + i * 52)) % h;
      Kit.draw.lay(ctx, l, 0, y);
      Kit.draw.lay(ctx, l, 0, y - h);
    });
    sky.worlds.forEach(function (world, i) {
      var span = h + 700, y = ((g.clock * (16 + i * 8) + 420 + i * 420) % span) - 250;
      Kit.draw.lay(ctx, world, w * (i % 2 ? 0.08 : 0.66), y);
    });
  }

  function drawHero(g, ctx) {
    var flame = 26 + Math.sin(g.clock * 40) * 7, y = hero.y + hero.kick;
    ctx.fillStyle = Kit.draw.fade(ctx, y + hero.r * 0.8, y + hero.r + flame, ["#ffffff", "#ffb347", "rgba(255,90,60,0)"]);
    ctx.beginPath();
    ctx.moveTo(hero.x - 11, y + hero.r * 0.8);
    ctx.quadraticCurveTo(hero.x - hero.lean * 30, y + hero.r + flame * 1.7, hero.x + 11, y + hero.r * 0.8);
    ctx.fill();
    Kit.draw.sprite(ctx, art.glow, hero.x, y, { alpha: 0.55 });
    Kit.draw.sprite(ctx, art.hero, hero.x, y, { angle: hero.lean, alpha: g.blinking() ? 0.35 : 1 });
  }

  function drawChief(g, ctx) {
    var w = Math.min(360, g.view.w - 80), x = (g.view.w - w) / 2;
    Kit.draw.sprite(ctx, art.chief, chief.x, chief.y, { angle: Math.sin(chief.phase * 3) * 0.08, sx: 1 + chief.hurt * 0.08, sy: 1 - chief.hurt * 0.06 });
    ctx.fillStyle = "rgba(10,10,40,0.6)";
    Kit.draw.box(ctx, x, 66, w, 18, 9);
    ctx.fill();
    ctx.fillStyle = "#ff4d6d";
    Kit.draw.box(ctx, x + 3, 69, Math.max(12, (w - 6) * Math.max(0, chief.health / g.numbers.boss)), 12, 6);
    ctx.fill();
  }

  function draw(g, ctx) {
    drawSky(g, ctx);
    g.fx.move(ctx);
    if (g.state === "title") return;
    shots.forEach(function (s) { Kit.draw.sprite(ctx, art.shot, s.x, s.y, { angle: s.vx / 720 }); });
    drops.forEach(function (d) {
      Kit.draw.sprite(ctx, d.kind === "danger" ? art.danger : art.glow, d.x, d.y, { alpha: 0.9 });
      if (d.kind === "prize") Kit.draw.sprite(ctx, art.prizes[d.which], d.x, d.y, { angle: d.phase * 2 });
    });
    foes.forEach(function (f) {
      Kit.draw.sprite(ctx, art.foes[f.which], f.x, f.y, { angle: Math.sin(f.phase) * 0.16, sx: 1 + f.hurt * 0.25, sy: 1 - f.hurt * 0.2 });
    });
    if (chief && !chief.gone) drawChief(g, ctx);
    if (g.state !== "ending" || g.won) drawHero(g, ctx);
    g.fx.draw(ctx);
  }

  Kit.game({
    hud: ["score", "goal", "lives", "time"],
    controls: {},
    music: "space",
    load: load,
    begin: begin,
    step: step,
    draw: draw,
    player: function () { return hero; },
  });
})();
