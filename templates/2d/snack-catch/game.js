// Snack Catch: catch what falls; a stack of five gives a bonus; dodge the foes.
// Names, colours, numbers and rules stand in game.json; start there.
(function () {
  "use strict";
  var STACK = 5; // caught things on the head that make a bonus
  var back, art, hero, falling, stack, spawnPrize, spawnFoe, ground;

  function load(g) {
    var p = g.palette;
    back = Kit.backdrop({ palette: p, night: g.rules.night, scenery: g.pictures.scenery, horizon: 0.8, hills: 3, seed: 9, look: g.data.look });
    art = {
      hero: Kit.draw.sticker(g.pictures.hero, g.numbers.size, "#ffffff"),
      foes: g.pictures.foes.map(function (x) { return Kit.draw.sticker(x, 62, "#ff3b4e", 4); }),
      prizes: g.pictures.prizes.map(function (x) { return Kit.draw.sticker(x, 52, "#ffffff", 3); }),
      glow: Kit.draw.glow(110, "#ffffff"),
    };
    Kit.view.onResize(function () { ground = null; });
  }

  function floor(g) { return g.view.h * (g.view.portrait ? 0.86 : 0.88); }

  function begin(g) {
    hero = { x: g.view.w / 2, y: floor(g), vx: 0, hop: 0, vy: 0, face: 1, squash: 0, run: 0, scale: 1, aim: null };
    falling = [];
    stack = [];
    spawnPrize = 0.3;
    spawnFoe = 2.4; // calm at first
    g.caught = 0;
  }

  function drop(g, kind) {
    var list = kind === "foe" ? art.foes : art.prizes, edge = 50;
    falling.push({
      kind: kind, which: Math.floor(g.random() * list.length), x: edge + g.random() * (g.view.w - edge * 2), y: -50,
      vy: g.numbers.gravity * (0.75 + g.random() * 0.5), swing: 10 + g.random() * 36, phase: g.random() * 6, r: 26, bounced: false,
    });
  }

  function steer(g, dt) {
    var a = g.input.axis(), point = g.input.pointer, speed = g.numbers.speed;
    if (a.x) hero.aim = null;
    else if (point.moved || point.pressed) hero.aim = point.x;
    var want = a.x * speed;
    if (!a.x && hero.aim !== null) want = Kit.clamp((hero.aim - hero.x) * 14, -speed, speed);
    hero.vx = Kit.near(hero.vx, want, speed * 9 * dt);
    hero.x += hero.vx * dt;
    var half = g.numbers.size * 0.4;
    if (g.rules.wrap) hero.x = hero.x < -half ? g.view.w + half : hero.x > g.view.w + half ? -half : hero.x;
    else hero.x = Kit.clamp(hero.x, half, g.view.w - half);
    if (Math.abs(hero.vx) > 20) hero.face = hero.vx < 0 ? -1 : 1;
    hero.run += Math.abs(hero.vx) * dt * 0.03;
    var jump = g.input.pressed("action") || g.input.pressed("up") || (point.pressed && Math.abs(point.x - hero.x) < 90);
    if (jump && hero.hop === 0) {
      hero.vy = 620;
      Kit.sound.play("jump");
    }
    if (hero.vy || hero.hop) {
      hero.hop += hero.vy * dt;
      hero.vy -= 1900 * dt;
      if (hero.hop <= 0) {
        hero.hop = hero.vy = 0;
        hero.squash = 0.2;
        g.fx.burst(hero.x, floor(g), 8, { color: Kit.color.light(g.palette.ground, 0.5), speed: 130, angle: -1.57, spread: 2.8, life: 0.35 });
      }
    }
    hero.y = floor(g) - hero.hop;
    hero.squash *= 0.87;
    var grown = g.rules.grow ? Math.min(1.7, 1 + g.caught * 0.02) : 1;
    hero.scale = Kit.mix(hero.scale, grown, 0.1);
  }

  // top is where things land: on the head, or on the stack upon it.
  function top() { return hero.y - art.hero.unitH * hero.scale * 0.82 - stack.length * 34; }

  function caught(g, t) {
    g.caught += 1;
    stack.push({ which: t.which, lean: 0 });
    hero.squash = 0.16;
    g.add(1, t.x, t.y);
    g.fx.burst(t.x, t.y, 10, { colors: ["#ffffff", g.palette.accent, "#ffe27a"], speed: 170 });
    Kit.sound.play("coin", 1 + stack.length * 0.12);
    if (stack.length >= STACK) {
      var y = top() + 70;
      g.add(STACK, hero.x, y - 60);
      g.fx.burst(hero.x, y, 34, { colors: ["#ff5d8f", "#ffd23f", "#3bceac", "#4d9de0"], speed: 380, life: 1, size: 7 });
      g.fx.ring(hero.x, y, 110, "#ffffff");
      Kit.sound.play("prize");
      stack = [];
    }
    if (g.caught >= g.numbers.goal) g.end(true, Kit.clamp(g.lives, 1, 3));
  }

  function hit(g, t) {
    t.gone = true;
    if (!g.hurt(t.x, t.y)) return;
    stack.forEach(function (s, i) {
      g.fx.burst(hero.x, top() + i * 30, 6, { colors: ["#ffffff", g.palette.accent], speed: 260 });
    });
    stack = [];
    g.fx.ring(t.x, t.y, 120, "#ffb347");
  }

  function step(g, dt) {
    var faster = 1 + Math.min(0.8, g.elapsed / 100);
    steer(g, dt);
    if ((spawnPrize -= dt * faster) <= 0) {
      drop(g, "prize");
      spawnPrize = (60 / g.numbers.prizes) * (0.7 + g.random() * 0.6);
    }
    if ((spawnFoe -= dt * faster) <= 0) {
      drop(g, "foe");
      spawnFoe = (60 / g.numbers.foes) * (0.7 + g.random() * 0.6);
    }
    var reach = art.hero.unitW * hero.scale * 0.42, head = top(), body = hero.y - art.hero.unitH * hero.scale * 0.4;
    falling.forEach(function (t) {
      t.phase += dt * 2;
      t.vy += (t.bounced ? g.numbers.gravity * 2.4 : g.numbers.gravity * 0.25) * dt;
      t.y += t.vy * faster * dt;
      t.x += Math.cos(t.phase) * t.swing * dt;
      if (t.kind === "foe" && g.rules.chase) t.x = Kit.near(t.x, hero.x, 90 * dt);
      var over = Math.abs(t.x - hero.x) < reach + t.r * 0.5;
      if (t.kind === "foe" && over && t.y > head && t.y < hero.y) hit(g, t);
      if (t.kind === "prize" && over && t.vy > 0 && t.y > head - 8 && t.y < Math.max(body, head + 60)) {
        t.gone = true;
        caught(g, t);
        head = top();
      }
      if (t.gone || t.y < floor(g) - 12) return;
      if (g.rules.bounce && !t.bounced && t.kind === "prize") { // a second chance
        t.bounced = true;
        t.vy = -g.numbers.gravity * 2.1;
        Kit.sound.play("pop");
        return;
      }
      t.gone = true;
      g.fx.burst(t.x, floor(g), t.kind === "foe" ? 16 : 6, { colors: t.kind === "foe" ? ["#ff8a3d", "#ffd23f", "#6b6f80"] : [Kit.color.light(g.palette.ground, 0.5)], speed: t.kind === "foe" ? 240 : 110, angle: -1.57, spread: 3 });
      if (t.kind === "foe") g.fx.shake(3);
    });
    falling = falling.filter(function (t) { return !t.gone; });
    stack.forEach(function (s, i) { s.lean = Kit.mix(s.lean, -hero.vx * 0.011 * (i + 1), 0.12); });
    g.goalText = g.caught + " / " + g.numbers.goal;
  }

  // ---- picture ----
  function paintGround(g) {
    var p = g.palette, h = g.view.h - floor(g) + 30;
    return Kit.draw.sheet(g.view.w, h, function (c) {
      c.fillStyle = Kit.draw.fade(c, 0, h, [p.ground, Kit.color.mix(p.ground, p.ground2, 0.6), p.ground2]);
      c.fillRect(0, 14, g.view.w, h);
      var random = DreamCoreSDK2.random("blades"), x;
      for (x = 0; x < g.view.w + 20; x += 9) { // blades of grass
        var tall = 8 + random() * 12;
        c.fillStyle = random() < 0.5 ? p.ground : Kit.color.light(p.ground, 0.22);
        c.beginPath();
        c.moveTo(x - 7, 18);
        c.quadraticCurveTo(x, 16 - tall, x + random() * 8 - 4, 18 - tall);
        c.quadraticCurveTo(x + 3, 10, x + 8, 18);
        c.fill();
      }
      for (var i = 0; i < 26; i++) {
        c.fillStyle = Kit.color.alpha("#ffffff", 0.14);
        c.beginPath();
        c.ellipse(random() * g.view.w, 26 + random() * (h - 26), 12 + random() * 26, 3 + random() * 3, 0, 0, 7);
        c.fill();
      }
    });
  }

  function draw(g, ctx) {
    back.draw(ctx, g.clock * 4, 0, g.clock);
    g.fx.move(ctx);
    if (!ground) ground = paintGround(g);
    Kit.draw.lay(ctx, ground, 0, floor(g) - 24);
    if (g.state === "title") return;
    falling.forEach(function (t) {
      var near = Kit.clamp(t.y / floor(g), 0, 1);
      Kit.draw.shadow(ctx, t.x, floor(g) + 4, 20 + near * 46, near * 0.45); // tells where it will land
      if (t.kind === "prize") Kit.draw.sprite(ctx, art.glow, t.x, t.y, { alpha: 0.45 });
      Kit.draw.sprite(ctx, t.kind === "foe" ? art.foes[t.which] : art.prizes[t.which], t.x, t.y, { angle: Math.sin(t.phase) * 0.4 });
    });
    if (g.state !== "ending" || g.won) drawHero(g, ctx);
    g.fx.draw(ctx);
  }

  function drawHero(g, ctx) {
    var k = hero.scale, size = art.hero.unitH * k, bob = hero.hop ? 0 : Math.abs(Math.sin(hero.run)) * 7;
    Kit.draw.shadow(ctx, hero.x, floor(g) + 4, size * 0.95, 0.5);
    Kit.draw.sprite(ctx, art.hero, hero.x, hero.y - size * 0.44 - bob + hero.squash * size * 0.4, {
      flip: hero.face < 0, angle: Kit.clamp(hero.vx / 3600, -0.2, 0.2), sx: k * (1 + hero.squash), sy: k * (1 - hero.squash), alpha: g.blinking() ? 0.35 : 1,
    });
    var y = hero.y - size * 0.86 - bob + hero.squash * size * 0.6;
    stack.forEach(function (s, i) {
      Kit.draw.sprite(ctx, art.prizes[s.which], hero.x + s.lean, y - i * 34, { angle: s.lean * 0.012 });
    });
  }

  Kit.game({
    hud: ["score", "goal", "lives", "time"],
    controls: {},
    music: "happy",
    load: load,
    begin: begin,
    step: step,
    draw: draw,
    timeUp: function (g) { g.end(g.caught * 2 >= g.numbers.goal, 1); },
    player: function () { return hero; },
  });
})();
