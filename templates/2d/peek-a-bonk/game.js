// Peek-a-Bonk: hop onto what peeks out of the holes before it gets away.
// Names, colours, numbers and rules stand in game.json; start there.
(function () {
  "use strict";
  var COLS = 3, ROWS = 3;
  var back, art, hero, guests, chosen, spawn, combo;

  function load(g) {
    var p = g.palette;
    back = Kit.backdrop({ palette: p, night: g.rules.night, scenery: g.pictures.scenery, horizon: 0.4, hills: 3, seed: 12, look: g.data.look });
    art = {
      hero: Kit.draw.sticker(g.pictures.hero, g.numbers.size, "#ffffff"),
      foes: g.pictures.foes.map(function (x) { return Kit.draw.sticker(x, 112, Kit.color.dark(p.path, 0.6), 4); }),
      prizes: g.pictures.prizes.map(function (x) { return Kit.draw.sticker(x, 92, "#ffffff", 4); }),
      glow: Kit.draw.glow(170, p.accent),
    };
  }

  // hole tells where a hole is on this screen; 0 is at the top left.
  function hole(g, n) {
    var w = Math.min(g.view.w * 0.3, 250), h = Math.min((g.view.h - 190) / 3, 190), col = n % COLS, row = Math.floor(n / COLS);
    return { x: g.view.w / 2 + (col - 1) * w, y: g.view.h - 60 - (g.view.portrait ? 150 : 0) + (row - 2) * h, w: w * 0.74, h: h * 0.36 };
  }

  function begin(g) {
    var home = hole(g, 4);
    hero = { x: home.x, y: home.y, at: 4, from: home, to: 4, part: 1, squash: 0 };
    guests = [];
    chosen = 4;
    spawn = 0.8;
    combo = 0;
    g.beaten = 0;
  }

  function guest(n) { return guests.filter(function (q) { return q.at === n && q.out < 2; })[0]; }

  function peek(g) {
    var free = [];
    for (var n = 0; n < COLS * ROWS; n++) if (!guest(n) && n !== hero.at && n !== hero.to) free.push(n);
    if (!free.length) return;
    var prize = g.random() * 100 < g.numbers.prizes, list = prize ? art.prizes : art.foes;
    guests.push({
      kind: prize ? "prize" : "foe", which: Math.floor(g.random() * list.length), at: free[Math.floor(g.random() * free.length)],
      up: 0, age: 0, out: 0, health: g.rules.bounce && !prize ? 2 : 1, hurt: 0, move: 0.8,
    });
  }

  // ---- play ----
  function choose(g) {
    var point = g.input.pointer, col = chosen % COLS, row = Math.floor(chosen / COLS), go = false;
    if (g.input.pressed("left")) col -= 1;
    if (g.input.pressed("right")) col += 1;
    if (g.input.pressed("up")) row -= 1;
    if (g.input.pressed("down")) row += 1;
    chosen = Kit.clamp(row, 0, ROWS - 1) * COLS + Kit.clamp(col, 0, COLS - 1);
    if (point.pressed) {
      for (var n = 0, best = Infinity; n < COLS * ROWS; n++) {
        var at = hole(g, n), d = Math.hypot(point.x - at.x, (point.y - at.y + 30) * 1.3);
        if (d < best) best = d, chosen = n;
      }
      go = true;
    }
    if ((go || g.input.pressed("action")) && hero.part >= 1) {
      hero.from = { x: hero.x, y: hero.y };
      hero.to = chosen;
      hero.part = 0;
      Kit.sound.play("jump", 1.2);
    }
  }

  function bonk(g) {
    var at = hole(g, hero.at), q = guest(hero.at);
    hero.squash = 0.3;
    if (!q || q.up < 0.25) {
      combo = 0;
      g.fx.burst(at.x, at.y, 6, { color: Kit.color.light(g.palette.ground, 0.4), speed: 120, life: 0.3 });
      Kit.sound.play("step");
      return;
    }
    q.hurt = 1;
    q.health -= 1;
    g.fx.burst(at.x, at.y - 40, 18, { colors: ["#ffffff", g.palette.accent, "#ffe14d"], speed: 280 });
    g.fx.ring(at.x, at.y - 30, 90, "#ffffff");
    g.fx.shake(4);
    Kit.sound.play(q.kind === "prize" ? "prize" : "pop", 1 + Math.min(combo, 10) * 0.06);
    if (q.health > 0) { // it comes up once more
      q.up = 0.1;
      q.age = 0;
      return;
    }
    q.out = 2;
    combo += 1;
    g.beaten += 1;
    g.add((q.kind === "prize" ? 5 : 1) + Math.min(4, Math.floor(combo / 5)), at.x, at.y - 60);
    if (g.beaten >= g.numbers.goal) g.end(true, Kit.clamp(Math.round((g.lives / g.numbers.lives) * 3), 1, 3));
  }

  function step(g, dt) {
    choose(g);
    if (hero.part < 1) {
      hero.part = Math.min(1, hero.part + dt * g.numbers.speed);
      if (hero.part === 1) {
        hero.at = hero.to;
        bonk(g);
      }
    }
    var to = hole(g, hero.to), t = hero.part;
    hero.x = Kit.mix(hero.from.x, to.x, t);
    hero.y = Kit.mix(hero.from.y, to.y, t) - Math.sin(t * Math.PI) * 120;
    hero.squash *= 0.86;
    spawn -= dt * (1 + Math.min(1, g.elapsed / 60));
    if (spawn <= 0) {
      peek(g);
      spawn = (60 / g.numbers.foes) * (0.6 + g.random() * 0.8);
    }
    guests.forEach(function (q) {
      q.age += dt;
      q.hurt = Math.max(0, q.hurt - dt * 5);
      q.move -= dt;
      if (g.rules.chase && q.kind === "foe" && q.move <= 0 && q.out === 0) dodge(g, q);
      if (q.out === 0 && q.age > g.numbers.stay) q.out = 1; // enough of peeking
      q.up = Kit.near(q.up, q.out ? 0 : 1, dt * (q.out === 2 ? 9 : 4));
      if (q.out === 1 && q.up <= 0) {
        q.out = 3;
        combo = 0;
        if (q.kind === "foe") g.hurt(hole(g, q.at).x, hole(g, q.at).y);
      }
    });
    guests = guests.filter(function (q) { return q.out < 2 || q.up > 0; });
    g.goalText = g.beaten + " / " + g.numbers.goal;
  }

  function dodge(g, q) { // with the rule "chase" they run from hole to hole
    var next = Math.floor(g.random() * COLS * ROWS);
    q.move = 0.9;
    if (guest(next) || next === hero.at) return;
    q.at = next;
    q.up = 0.2;
  }

  // ---- picture ----
  function drawHole(g, ctx, n) {
    var at = hole(g, n), p = g.palette;
    function oval(x, y, w, h, tone) {
      ctx.fillStyle = tone;
      ctx.beginPath();
      ctx.ellipse(x, y, w / 2, h / 2, 0, 0, 6.2832);
      ctx.fill();
    }
    oval(at.x, at.y + 10, at.w * 1.34, at.h * 1.5, "rgba(10,20,40,0.16)");
    oval(at.x, at.y, at.w * 1.26, at.h * 1.36, Kit.color.light(p.path, 0.3));
    oval(at.x, at.y + 3, at.w * 1.12, at.h * 1.16, p.path);
    oval(at.x, at.y + 4, at.w, at.h, Kit.color.dark(p.path, 0.65));
    if (n === chosen && g.state === "play") {
      ctx.strokeStyle = g.palette.accent;
      ctx.lineWidth = 5;
      ctx.beginPath();
      ctx.ellipse(at.x, at.y, at.w * 0.68, at.h * 0.76, 0, 0, 6.2832);
      ctx.stroke();
    }
    guests.forEach(function (q) {
      if (q.at !== n || q.up <= 0) return;
      var image = q.kind === "prize" ? art.prizes[q.which] : art.foes[q.which], tall = image.unitH, k = q.health > 1 ? 1.2 : 1; // the tough ones are bigger
      ctx.save();
      ctx.beginPath(); // what is below the hole's front edge is hidden
      ctx.rect(at.x - 120, at.y - 240, 240, 244);
      ctx.ellipse(at.x, at.y + 4, at.w / 2, at.h / 2, 0, 0, 3.1416);
      ctx.clip();
      if (q.kind === "prize") Kit.draw.sprite(ctx, art.glow, at.x, at.y - 40, { alpha: 0.8 });
      Kit.draw.sprite(ctx, image, at.x + Math.sin(q.age * 9) * 3, at.y + tall * 0.62 - q.up * tall * 0.98, { angle: Math.sin(q.age * 6) * 0.07, sx: k * (1 + q.hurt * 0.3), sy: k * (1 - q.hurt * 0.35) });
      ctx.restore();
    });
  }

  function draw(g, ctx) {
    back.draw(ctx, 0, 0, g.clock);
    ctx.save();
    g.fx.move(ctx);
    for (var n = 0; n < COLS * ROWS; n++) drawHole(g, ctx, n);
    if (g.state !== "title") {
      var to = hole(g, hero.to), tall = art.hero.unitH;
      Kit.draw.shadow(ctx, Kit.mix(hero.from.x, to.x, hero.part), Kit.mix(hero.from.y, to.y, hero.part) + 6, 90, 0.5);
      Kit.draw.sprite(ctx, art.hero, hero.x, hero.y - tall * 0.36 + hero.squash * 30, {
        sx: 1 + hero.squash, sy: 1 - hero.squash, angle: (to.x - hero.from.x) * 0.0009 * Math.sin(hero.part * 3.14), alpha: g.blinking() ? 0.35 : 1,
      });
    }
    g.fx.draw(ctx);
    ctx.restore();
  }

  Kit.game({
    hud: ["score", "goal", "lives", "time"],
    controls: {},
    music: "happy",
    load: load,
    begin: begin,
    step: step,
    draw: draw,
    timeUp: function (g) { g.end(g.beaten * 2 >= g.numbers.goal, 1); },
    player: function () { return hero; },
  });
})();
