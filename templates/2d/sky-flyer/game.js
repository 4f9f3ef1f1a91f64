// Sky Flyer: fly freely, collect prizes, keep away from foes.
// What it looks like and how it plays stands in game.json; start there.
(function () {
  "use strict";
  var back, art, hero, things, travelled, spawnPrize, spawnFoe, combo, comboTime;
  var START_CALM = 2.2; // seconds before the first foe, so that one can try the keys

  // load: pictures are cut out once.
  function load(g) {
    var p = g.palette, size = g.numbers.size;
    back = Kit.backdrop({ palette: p, night: g.rules.night, scenery: g.pictures.scenery, horizon: 0.8, hills: 3, seed: 3, look: g.data.look });
    art = {
      hero: Kit.draw.sticker(g.pictures.hero, size, "#ffffff"),
      foes: g.pictures.foes.map(function (x) { return Kit.draw.sticker(x, 96, Kit.color.dark(p.sky, 0.7), 4); }),
      prizes: g.pictures.prizes.map(function (x, i) { return Kit.draw.sticker(x, i ? 70 : 50, "#ffffff", 3); }),
      glow: Kit.draw.glow(120, p.accent),
      puff: Kit.draw.glow(40, "#ffffff"),
    };
  }

  function begin(g) {
    hero = { x: g.view.w * 0.25, y: g.view.h * 0.48, vx: 0, vy: 0, r: g.numbers.size * 0.34, lean: 0, flap: 0, squash: 0, trail: 0 };
    things = [];
    travelled = 0;
    spawnPrize = 0.4;
    spawnFoe = START_CALM;
    combo = comboTime = 0;
    g.collected = 0;
  }

  // ---- what comes towards the hero ----
  function prizes(g) { // a little figure of prizes: line, arc or wave
    var shape = Math.floor(g.random() * 3), n = 4 + Math.floor(g.random() * 3);
    var top = 90, room = g.view.h * 0.82 - top, y0 = top + g.random() * room, bend = 40 + g.random() * 70;
    for (var i = 0; i < n; i++) {
      var t = i / (n - 1), dy = shape === 1 ? -Math.sin(t * 3.14) * bend : shape === 2 ? Math.sin(t * 6.28) * bend * 0.6 : (t - 0.5) * bend;
      things.push({ kind: "prize", which: 0, x: g.view.w + 60 + i * 62, y: Kit.clamp(y0 + dy, top, top + room), vx: 0, vy: 0, r: 28, phase: i * 0.5 });
    }
    if (art.prizes.length > 1 && g.random() < 0.4) {
      things.push({ kind: "prize", which: 1, x: g.view.w + 60 + n * 66, y: top + g.random() * room, vx: 0, vy: 0, r: 36, phase: 0 });
    }
    return n;
  }
  function foe(g) {
    var which = Math.floor(g.random() * art.foes.length), quick = which % 2 === 1;
    things.push({
      kind: "foe", which: which, x: g.view.w + 90, y: 90 + g.random() * (g.view.h * 0.82 - 90),
      vx: quick ? -g.numbers.pace * 0.55 : -20, vy: 0, r: 34, phase: g.random() * 6, swing: quick ? 26 : 60,
    });
  }

  function steer(g, dt) {
    var a = g.input.axis(), speed = g.numbers.speed, point = g.input.pointer;
    if (point.down && !point.touch) { // fly to the mouse
      var dx = point.x - hero.x, dy = point.y - hero.y, d = Math.hypot(dx, dy), k = Math.min(1, d / 40) / (d || 1);
      a = { x: dx * k, y: dy * k };
    }
    if (g.input.action) a.y = Math.min(a.y, -1);
    hero.vx = Kit.near(hero.vx, a.x * speed, speed * 6 * dt);
    if (g.rules.fall) {
      hero.vy += g.numbers.gravity * dt;
      if (a.y < 0) hero.vy += a.y * g.numbers.gravity * 2.6 * dt;
      if (a.y > 0) hero.vy += a.y * g.numbers.gravity * dt;
      hero.vy = Kit.clamp(hero.vy, -speed, speed * 1.4);
    } else {
      hero.vy = Kit.near(hero.vy, a.y * speed, speed * 6 * dt);
    }
    hero.x = Kit.clamp(hero.x + hero.vx * dt, hero.r, g.view.w - hero.r);
    hero.y += hero.vy * dt;
    var top = hero.r + 56, bottom = g.view.h - hero.r - 16;
    if (g.rules.wrap) {
      if (hero.y < -hero.r) hero.y = g.view.h + hero.r;
      if (hero.y > g.view.h + hero.r) hero.y = -hero.r;
    } else if (hero.y < top || hero.y > bottom) {
      hero.y = Kit.clamp(hero.y, top, bottom);
      hero.vy *= g.rules.fall ? -0.35 : 0;
    }
    hero.lean = Kit.mix(hero.lean, Kit.clamp(hero.vy / 900 + hero.vx / 2600, -0.5, 0.5), 0.15);
    hero.flap += dt * (a.y < 0 ? 17 : 9);
    hero.squash *= 0.88;
    hero.trail -= dt;
    if (hero.trail <= 0) {
      hero.trail = 0.05;
      g.fx.burst(hero.x - hero.r, hero.y + hero.r * 0.3, 1, { color: Kit.color.alpha("#ffffff", 0.8), speed: 30, angle: 3.14, spread: 1, gravity: 0, size: 6, life: 0.5 });
    }
  }

  function collect(g, t) {
    combo = comboTime > 0 ? combo + 1 : 1;
    comboTime = 1.2;
    g.collected += 1;
    g.add((t.which ? 5 : 1) * Math.min(5, 1 + Math.floor(combo / 4)), t.x, t.y);
    g.fx.burst(t.x, t.y, 12, { colors: [g.palette.accent, "#ffffff", Kit.color.light(g.palette.accent, 0.5)], speed: 230 });
    g.fx.ring(t.x, t.y, 54, "#ffffff");
    hero.squash = 0.2;
    Kit.sound.play(t.which ? "prize" : "coin", 1 + Math.min(combo, 12) * 0.06);
    if (g.collected >= g.numbers.goal) g.end(true, Kit.clamp(g.lives, 1, 3));
  }

  function step(g, dt) {
    var pace = g.numbers.pace * (1 + Math.min(0.6, g.elapsed / 120)); // slowly faster
    travelled += pace * dt;
    comboTime -= dt;
    steer(g, dt);
    if ((spawnPrize -= dt) <= 0) spawnPrize = (prizes(g) * 60) / g.numbers.prizes;
    if ((spawnFoe -= dt) <= 0) {
      foe(g);
      spawnFoe = (60 / g.numbers.foes) * (0.7 + g.random() * 0.6);
    }
    things.forEach(function (t) {
      t.phase += dt;
      if (t.kind === "foe" && g.rules.chase && t.x > hero.x) t.y = Kit.near(t.y, hero.y, 75 * dt);
      t.x += (t.vx - pace) * dt;
      t.y += (t.kind === "foe" ? Math.sin(t.phase * 2) * t.swing : 0) * dt;
      if (!Kit.touching(t, hero)) return;
      if (t.kind === "prize") {
        t.gone = true;
        collect(g, t);
      } else if (g.hurt(hero.x, hero.y)) {
        hero.vx = -g.numbers.speed;
        combo = 0;
      }
    });
    things = things.filter(function (t) { return !t.gone && t.x > -120; });
    g.goalText = g.collected + " / " + g.numbers.goal;
  }

  // ---- picture ----
  function drawStreaks(g, ctx) { // wind
    ctx.strokeStyle = "rgba(255,255,255,0.28)";
    ctx.lineCap = "round";
    for (var i = 0; i < 9; i++) {
      var span = g.view.w + 300, x = g.view.w + 150 - ((travelled * (1.2 + (i % 3) * 0.35) + i * 397) % span), y = ((i * 137.5) % (g.view.h * 0.86)) + 30;
      ctx.lineWidth = 1.5 + (i % 3);
      ctx.beginPath();
      ctx.moveTo(x, y);
      ctx.lineTo(x + 70 + (i % 4) * 30, y);
      ctx.stroke();
    }
  }

  function draw(g, ctx) {
    back.draw(ctx, travelled + g.clock * 12, 0, g.clock);
    g.fx.move(ctx);
    drawStreaks(g, ctx);
    if (g.state === "title") return;
    things.forEach(function (t) {
      var bob = Math.sin(t.phase * 4) * 4;
      if (t.kind === "prize") {
        Kit.draw.sprite(ctx, art.glow, t.x, t.y + bob, { alpha: 0.55 + 0.25 * Math.sin(t.phase * 5) });
        Kit.draw.sprite(ctx, art.prizes[t.which], t.x, t.y + bob, { angle: Math.sin(t.phase * 3) * 0.18 });
      } else {
        Kit.draw.sprite(ctx, art.foes[t.which], t.x, t.y, { angle: Math.sin(t.phase * 5) * 0.1, sy: 1 + Math.sin(t.phase * 9) * 0.05 });
      }
    });
    var beat = Math.sin(hero.flap);
    if (g.state !== "ending" || g.won) {
      Kit.draw.sprite(ctx, art.hero, hero.x, hero.y + beat * 3, {
        angle: hero.lean, sx: 1 + hero.squash - beat * 0.03, sy: 1 - hero.squash + beat * 0.06, alpha: g.blinking() ? 0.35 : 1,
      });
    }
    g.fx.draw(ctx);
  }

  Kit.game({
    hud: ["score", "goal", "lives", "time"],
    controls: { stick: true },
    music: "happy",
    load: load,
    begin: begin,
    step: step,
    draw: draw,
    timeUp: function (g) { g.end(g.collected * 2 >= g.numbers.goal, 1); },
    player: function () { return hero; },
  });
})();
