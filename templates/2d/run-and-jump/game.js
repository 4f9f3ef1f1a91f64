// Run and Jump: the smallest platform game. Reach the flag of every level.
// Names, colours, numbers and rules stand in game.json, each level with its
// physics in levels/*.json; start there.
(function () {
  "use strict";
  var COYOTE = 0.1; // seconds after an edge in which one may still jump
  var EARLY = 0.12; // seconds before landing in which a jump is remembered
  var art, back, map, ground, hero, foes, prizes, plants, goal, camera, world, foeTurn;

  function load(g) {
    var p = g.palette, size = g.numbers.size;
    back = Kit.backdrop({ palette: p, night: g.rules.night, scenery: g.pictures.scenery.slice(0, 1), horizon: 0.78, hills: 3, seed: 5, look: g.data.look });
    art = {
      hero: Kit.draw.sticker(g.pictures.hero, size, "#ffffff"),
      foes: g.pictures.foes.map(function (x) { return Kit.draw.sticker(x, 48, Kit.color.dark(p.ground2, 0.75), 3); }),
      prizes: g.pictures.prizes.map(function (x) { return Kit.draw.sticker(x, 36, "#ffffff", 2.5); }),
      glow: Kit.draw.glow(84, Kit.color.light(p.accent, 0.4)),
      scenery: g.pictures.scenery,
    };
  }

  function begin(g) {
    g.level = 0;
    enter(g);
  }

  // enter begins the level g.level.
  function enter(g) {
    map = Kit.tiles.read(g.levels[g.level]);
    ground = paintGround(g);
    var spawn = map.one("spawn"), ph = map.physics;
    hero = { x: spawn.x, y: spawn.y, w: ph.width || 34, h: ph.height || 42, vx: 0, vy: 0, face: 1, air: 0, wish: 9, stretch: 0, run: 0, safe: spawn };
    foes = map.find("foe").map(function (f, i) { return { x: f.x, y: f.y, w: 36, h: 40, vx: -g.numbers.foeSpeed, vy: 0, which: i % art.foes.length, phase: i }; });
    prizes = map.find("prize").map(function (q, i) { return { x: q.x, y: q.y, which: i % art.prizes.length, phase: i * 0.6 }; });
    goal = map.one("goal");
    plant(g);
    camera = Kit.camera();
    // below the level there is room for the thumbs on a phone
    world = { w: map.w, h: map.h + (g.view.portrait ? 190 : 0) };
    camera.jump(hero, world);
    foeTurn = 0;
    g.levelText = "★ " + (g.level + 1) + "/" + g.levels.length;
  }

  function plant(g) { // scenery that stands on the ground
    var random = DreamCoreSDK2.random("plants" + g.level);
    plants = [];
    for (var c = 3; c < map.cols - 2; c += 2 + Math.floor(random() * 4)) {
      for (var r = 1; r < map.rows; r++) {
        if (map.kind(c, r) !== "solid") continue;
        if (map.kind(c, r - 1) === "") plants.push({ x: (c + 0.5) * map.size, y: r * map.size, which: Math.floor(random() * art.scenery.length), size: 46 + random() * 74 });
        break;
      }
    }
  }

  // ---- play ----
  function steer(g, dt) {
    var ph = map.physics, point = g.input.pointer, right = g.input.right, left = g.input.left, up = g.input.up || g.input.action;
    var jump = g.input.pressed("up") || g.input.pressed("action");
    if (point.down) { // point where to go; above the hero means jump
      var dx = point.x + camera.x - hero.x;
      right = right || dx > 24;
      left = left || dx < -24;
      if (point.y + camera.y < hero.y - 40) {
        jump = jump || point.pressed || hero.onGround;
        up = true;
      }
    }
    var want = (right ? 1 : 0) - (left ? 1 : 0);
    var grip = g.rules.slippery ? (want ? 2.2 : 0.7) : 11; // how soon the feet obey
    hero.vx = Kit.near(hero.vx, want * ph.speed, ph.speed * grip * dt);
    if (want) hero.face = want;
    hero.wish = jump ? 0 : hero.wish + dt;
    if (hero.wish < EARLY && hero.air < COYOTE) {
      hero.vy = -ph.jumpSpeed;
      hero.air = hero.wish = 9;
      hero.stretch = 0.28;
      Kit.sound.play("jump");
      g.fx.burst(hero.x, hero.y + hero.h / 2, 8, { color: "#ffffff", speed: 120, angle: 1.57, spread: 2.6, gravity: -40, life: 0.35 });
    }
    if (!up && hero.vy < -ph.jumpSpeed * 0.45) hero.vy += ph.gravity * 1.4 * dt; // let go early: a smaller jump
    hero.vy = Math.min(hero.vy + ph.gravity * dt, ph.maxFall);
  }

  function step(g, dt) {
    steer(g, dt);
    var falling = hero.vy;
    Kit.tiles.move(map, hero, dt);
    hero.air = hero.onGround ? 0 : hero.air + dt;
    hero.run += Math.abs(hero.vx) * dt * 0.05;
    hero.stretch *= 0.86;
    if (hero.onGround && falling > 420) {
      hero.stretch = -0.22;
      g.fx.burst(hero.x, hero.y + hero.h / 2, 6, { color: Kit.color.light(g.palette.ground, 0.4), speed: 110, angle: -1.57, spread: 2.8, life: 0.35 });
      Kit.sound.play("step");
    }
    if (hero.onGround && map.at(hero.x, hero.y + hero.h) === "solid") hero.safe = { x: hero.x, y: hero.y };
    if (hero.y > map.h + 90) {
      g.hurt(hero.x, map.h);
      hero.x = hero.safe.x;
      hero.y = hero.safe.y - 4;
      hero.vx = hero.vy = 0;
    }
    touchTiles(g);
    foes.forEach(function (f) { stepFoe(g, f, dt); });
    foes = foes.filter(function (f) { return !f.gone; });
    prizes = prizes.filter(function (q) { return !q.gone; });
    camera.aim({ x: hero.x + hero.face * 60, y: hero.y }, world, 0.12);
  }

  function touchTiles(g) {
    prizes.forEach(function (q) {
      if (Math.abs(q.x - hero.x) > 38 || Math.abs(q.y - hero.y) > 42) return;
      q.gone = true;
      g.add(1, q.x, q.y);
      g.fx.burst(q.x, q.y, 10, { colors: [g.palette.accent, "#ffffff", "#ffe27a"], speed: 190 });
      g.fx.ring(q.x, q.y, 40, "#ffffff");
      Kit.sound.play("coin");
    });
    if (map.at(hero.x, hero.y + hero.h / 2 - 4) === "spike" && g.hurt(hero.x, hero.y)) {
      hero.vy = -map.physics.jumpSpeed * 0.7;
    }
    if (Math.abs(goal.x - hero.x) < 36 && Math.abs(goal.y - hero.y) < 60) {
      g.add(10, goal.x, goal.y - 40);
      g.fx.burst(goal.x, goal.y - 30, 40, { colors: [g.palette.accent, "#ffffff", "#ffe27a", g.palette.ground], speed: 320, life: 1 });
      if (++g.level >= g.levels.length) {
        g.end(true, Kit.clamp(Math.round((g.lives / g.numbers.lives) * 3), 1, 3));
      } else {
        Kit.sound.play("win");
        g.fx.flash("#ffffff", 0.8);
        enter(g);
      }
    }
  }

  function stepFoe(g, f, dt) {
    var near = Math.abs(f.x - hero.x) < 260 && Math.abs(f.y - hero.y) < 100, speed = g.numbers.foeSpeed;
    if (g.rules.chase && near && Math.abs(f.x - hero.x) > 8) f.vx = Math.sign(hero.x - f.x) * speed * 1.5;
    else if (Math.abs(f.vx) !== speed) f.vx = (f.vx < 0 ? -1 : 1) * speed;
    var way = Math.sign(f.vx), edge = map.at(f.x + way * (f.w / 2 + 4), f.y + f.h / 2 + 8) !== "solid";
    if (edge && f.onGround) f.vx = g.rules.chase && near ? 0 : -f.vx;
    f.vy = Math.min(f.vy + map.physics.gravity * dt, map.physics.maxFall);
    Kit.tiles.move(map, f, dt);
    if (f.hitWall) f.vx = -way * speed;
    f.phase += dt;
    if (f.y > map.h + 100) f.gone = true;
    if (Math.abs(f.x - hero.x) > (f.w + hero.w) / 2 - 4 || Math.abs(f.y - hero.y) > (f.h + hero.h) / 2) return;
    if (hero.vy > 60 && hero.y < f.y - 12) { // from above: stomp
      f.gone = true;
      hero.vy = -map.physics.jumpSpeed * 0.66;
      hero.stretch = 0.25;
      g.add(3, f.x, f.y);
      g.fx.burst(f.x, f.y, 18, { colors: ["#ffffff", g.palette.accent], speed: 240 });
      g.fx.shake(5);
      Kit.sound.play("pop");
    } else if (g.hurt(hero.x, hero.y)) {
      hero.vy = -map.physics.jumpSpeed * 0.5;
      hero.vx = Math.sign(hero.x - f.x || 1) * map.physics.speed;
    }
  }

  // ---- picture ----
  function paintGround(g) { // the whole level's ground, painted once
    var s = map.size, p = g.palette, deep = 220, random = DreamCoreSDK2.random("ground" + g.level);
    return Kit.draw.sheet(map.w, map.h + deep, function (c) {
      function solid(col, row) { return map.kind(col, Math.min(row, map.rows - 1)) === "solid" && col >= 0 && col < map.cols; }
      for (var col = 0; col < map.cols; col++) {
        for (var row = 0; row < map.rows; row++) {
          if (!solid(col, row)) continue;
          var x = col * s, y = row * s, last = row === map.rows - 1, air = !solid(col, row - 1);
          c.fillStyle = Kit.draw.fade(c, 0, map.h + deep * 0.6, [Kit.color.light(p.ground2, 0.16), p.ground2, Kit.color.dark(p.ground2, 0.5)]);
          c.fillRect(x - 0.5, y, s + 1, last ? s + deep : s);
          for (var i = 0; i < 2; i++) { // pebbles
            c.fillStyle = random() < 0.5 ? Kit.color.alpha("#ffffff", 0.1) : Kit.color.alpha("#000000", 0.12);
            c.beginPath();
            c.ellipse(x + random() * s, y + 14 + random() * (s - 16), 3 + random() * 6, 2 + random() * 3, 0, 0, 7);
            c.fill();
          }
          c.fillStyle = "rgba(0,0,20,0.16)";
          if (!solid(col - 1, row)) c.fillRect(x, y, 5, last ? s + deep : s);
          if (!solid(col + 1, row)) c.fillRect(x + s - 5, y, 5, last ? s + deep : s);
          if (air) { // grass: a cap with drops hanging down
            c.fillStyle = p.ground;
            Kit.draw.box(c, x - (solid(col - 1, row) ? 1 : 5), y - 4, s + (solid(col - 1, row) ? 1 : 5) + (solid(col + 1, row) ? 1 : 5), 18, 8);
            c.fill();
            for (i = 0; i < 4; i++) {
              c.beginPath();
              c.ellipse(x + s * (i + 0.5) / 4, y + 12, s / 7, 5 + random() * 8, 0, 0, 7);
              c.fill();
            }
            c.fillStyle = Kit.color.light(p.ground, 0.38);
            c.fillRect(x, y - 3, s, 4);
          }
        }
      }
      map.find("spike").forEach(function (q) {
        for (var i = -1; i < 2; i++) {
          c.fillStyle = Kit.draw.fade(c, q.y - s * 0.3, q.y + s / 2, ["#ffffff", "#9aa7c7", "#5a668c"]);
          c.beginPath();
          c.moveTo(q.x + i * s * 0.32, q.y - s * 0.28);
          c.lineTo(q.x + i * s * 0.32 + s * 0.18, q.y + s / 2);
          c.lineTo(q.x + i * s * 0.32 - s * 0.18, q.y + s / 2);
          c.fill();
        }
      });
    });
  }

  function drawFlag(g, ctx) {
    var foot = goal.y + map.size / 2;
    Kit.draw.shadow(ctx, goal.x, foot, 60, 0.4);
    ctx.fillStyle = "#f5f1e6";
    ctx.fillRect(goal.x - 4, foot - 128, 8, 128);
    ctx.fillStyle = g.palette.accent;
    ctx.beginPath();
    ctx.moveTo(goal.x + 4, foot - 124);
    for (var i = 1; i <= 6; i++) ctx.lineTo(goal.x + 4 + i * 11, foot - 124 + i * 2 + Math.sin(g.clock * 5 - i * 0.8) * 4);
    for (i = 6; i >= 0; i--) ctx.lineTo(goal.x + 4 + i * 11, foot - 76 - i * 2 + Math.sin(g.clock * 5 - i * 0.8) * 4);
    ctx.fill();
    ctx.fillStyle = "#ffd34d";
    ctx.beginPath();
    ctx.arc(goal.x, foot - 130, 9, 0, 7);
    ctx.fill();
  }

  function draw(g, ctx) {
    if (g.state === "title") camera.x = 40 + Math.sin(g.clock * 0.15) * 40;
    back.draw(ctx, camera.x, 0, g.clock);
    ctx.save();
    g.fx.move(ctx);
    ctx.translate(-camera.x, -camera.y);
    plants.forEach(function (q) { ctx.drawImage(art.scenery[q.which], q.x - q.size / 2, q.y - q.size * 0.93, q.size, q.size); });
    drawFlag(g, ctx);
    Kit.draw.lay(ctx, ground, 0, 0);
    prizes.forEach(function (q) {
      var y = q.y + Math.sin(g.clock * 3 + q.phase) * 4;
      Kit.draw.sprite(ctx, art.glow, q.x, y, { alpha: 0.5 });
      Kit.draw.sprite(ctx, art.prizes[q.which], q.x, y, { angle: Math.sin(g.clock * 2 + q.phase) * 0.15 });
    });
    foes.forEach(function (f) {
      Kit.draw.shadow(ctx, f.x, f.y + f.h / 2, 50, 0.4);
      Kit.draw.sprite(ctx, art.foes[f.which], f.x, f.y - 4, { flip: f.vx < 0, angle: Math.sin(f.phase * 8) * 0.08, sy: 1 + Math.sin(f.phase * 8) * 0.06 });
    });
    if (g.state !== "title" && (g.state !== "ending" || g.won)) drawHero(g, ctx);
    g.fx.draw(ctx);
    ctx.restore();
  }

  function drawHero(g, ctx) {
    var hop = hero.onGround ? Math.abs(Math.sin(hero.run)) * 5 : 0, size = g.numbers.size;
    if (hero.onGround) Kit.draw.shadow(ctx, hero.x, hero.y + hero.h / 2, size * 1.1, 0.45);
    Kit.draw.sprite(ctx, art.hero, hero.x, hero.y + hero.h / 2 - size * 0.47 - hop, {
      flip: hero.face < 0, angle: hero.onGround ? Math.sin(hero.run) * 0.09 : Kit.clamp(hero.vy / 3000, -0.2, 0.25) * hero.face,
      sx: 1 - hero.stretch * 0.7, sy: 1 + hero.stretch, alpha: g.blinking() ? 0.35 : 1,
    });
  }

  Kit.game({
    hud: ["score", "lives", "level", "time"],
    controls: { pad: ["left", "right", "action"] },
    music: "happy",
    load: load,
    begin: begin,
    step: step,
    draw: draw,
    player: function () { return hero; },
  });
})();
