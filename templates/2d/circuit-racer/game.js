// Circuit Racer: drive laps against rivals. Coins fill the turbo.
// Names, colours, numbers, rules and the road's points stand in game.json.
(function () {
  "use strict";
  var COLOURS = ["#3d8bff", "#3bceac", "#b06bff", "#ff8f3f", "#ff6fae"];
  var track, world, plan, art, hero, rivals, coins, camera, turbo, charge, lost, skid, air;

  function load(g) {
    track = Track(g.data.track, g.numbers.road);
    world = track.paint(g);
    plan = track.map(150);
    art = {
      hero: Kit.draw.sticker(g.pictures.hero, g.numbers.size, "#ffffff", 3),
      foes: g.pictures.foes.map(function (x) { return Kit.draw.sticker(x, g.numbers.size * 0.9, "#ffffff", 2.5); }),
      prizes: g.pictures.prizes.map(function (x) { return Kit.draw.sticker(x, 36, "#ffffff", 2.5); }),
      glow: Kit.draw.glow(90, g.palette.accent),
      kart: kart(g.palette.accent),
      karts: COLOURS.map(kart),
    };
    Kit.view.onResize(function () { air = null; });
  }

  // kart is a little car seen from above, its nose to the right.
  function kart(tone) {
    return Kit.draw.sheet(84 * 1.35, 60 * 1.35, function (c) {
      c.scale(1.35, 1.35);
      c.translate(42, 30);
      c.fillStyle = "#1a1d2e";
      [[-30, -25], [14, -25], [-30, 13], [14, 13]].forEach(function (w) {
        Kit.draw.box(c, w[0], w[1], 20, 12, 4);
        c.fill();
      });
      c.fillStyle = Kit.color.dark(tone, 0.35);
      Kit.draw.box(c, -34, -17, 68, 36, 15);
      c.fill();
      c.fillStyle = Kit.draw.fade(c, -18, 16, [Kit.color.light(tone, 0.45), tone]);
      Kit.draw.box(c, -33, -18, 66, 32, 14);
      c.fill();
      c.fillStyle = "rgba(255,255,255,0.85)";
      Kit.draw.box(c, 12, -5, 17, 8, 4);
      c.fill();
      c.fillStyle = Kit.color.dark(tone, 0.6);
      Kit.draw.box(c, -18, -13, 24, 22, 9);
      c.fill();
    });
  }

  function begin(g) {
    var grid = track.at(track.length - 90, 34);
    hero = { x: grid.x, y: grid.y, angle: grid.angle, vx: 0, vy: 0, speed: g.numbers.speed * 0.4, index: 0, lap: 0, s: track.length - 90, face: 1, hop: 0, place: 1 };
    hero.index = track.near(hero, 0, track.list.length >> 1).index;
    rivals = [];
    for (var i = 0; i < g.numbers.rivals; i++) {
      rivals.push({ s: track.length - 60 + i * 55 - track.length, side: (i % 2 ? 1 : -1) * g.numbers.road * 0.22, v: 0, skill: 0.93 + g.random() * 0.14, sway: g.random() * 6, which: i % art.foes.length, colour: i % COLOURS.length, x: 0, y: 0, angle: 0, face: 1 });
    }
    coins = [];
    for (i = 0; i < g.numbers.prizes; i++) {
      var at = track.at(((i + 0.7) / g.numbers.prizes) * track.length, (g.random() - 0.5) * g.numbers.road * 0.6);
      coins.push({ x: at.x, y: at.y, which: i % art.prizes.length, gone: 0, phase: i });
    }
    turbo = charge = lost = skid = 0;
    camera = Kit.camera();
    camera.jump(hero, track);
    moveRivals(g, 0);
  }

  // ---- play ----
  function drive(g, dt) {
    var n = g.numbers, point = g.input.pointer, turn = (g.input.right ? 1 : 0) - (g.input.left ? 1 : 0);
    var off = track.near(hero, hero.index, 16), outside = off.distance > n.road / 2 + 6;
    if (point.down) { // steer to where the pointer is
      var want = Math.atan2(point.y + camera.y - hero.y, point.x + camera.x - hero.x) - hero.angle;
      turn = Kit.clamp(Math.atan2(Math.sin(want), Math.cos(want)) * 2.5, -1, 1);
    }
    if ((g.input.pressed("action") || g.input.pressed("up")) && charge >= 1 && turbo <= 0) {
      turbo = 1.6;
      charge = 0;
      g.fx.shake(6);
      g.fx.ring(hero.x, hero.y, 90, g.palette.accent);
      Kit.sound.play("turbo");
    }
    turbo -= dt;
    var top = n.speed * (turbo > 0 ? 1.55 : g.input.down ? 0.3 : 1) * (outside && !g.rules.bounce ? 0.5 : 1);
    hero.speed = Kit.near(hero.speed, top, n.speed * (hero.speed > top ? 1.6 : 0.75) * dt);
    hero.angle += turn * n.turn * (0.45 + 0.55 * Math.min(1, hero.speed / n.speed)) * dt;
    var grip = n.grip * (g.rules.slippery ? 0.22 : 1);
    hero.vx = Kit.mix(hero.vx, Math.cos(hero.angle) * hero.speed, Math.min(1, grip * dt));
    hero.vy = Kit.mix(hero.vy, Math.sin(hero.angle) * hero.speed, Math.min(1, grip * dt));
    hero.x = Kit.clamp(hero.x + hero.vx * dt, 40, track.w - 40);
    hero.y = Kit.clamp(hero.y + hero.vy * dt, 40, track.h - 40);
    if (Math.abs(Math.cos(hero.angle)) > 0.25) hero.face = Math.cos(hero.angle) < 0 ? -1 : 1;
    if (outside) leaveRoad(g, off, dt);
    else lost = 0;
    skid -= dt;
    if (skid <= 0 && (turbo > 0 || outside || Math.abs(turn) > 0.6)) {
      skid = 0.04;
      g.fx.burst(hero.x - Math.cos(hero.angle) * 34, hero.y - Math.sin(hero.angle) * 34, turbo > 0 ? 3 : 1, {
        colors: turbo > 0 ? ["#fff3a8", g.palette.accent, "#ff7a3d"] : [Kit.color.alpha(outside ? g.palette.ground2 : "#d8dbe8", 0.8)],
        speed: turbo > 0 ? 200 : 50, angle: hero.angle + 3.14, spread: 0.9, gravity: 0, life: 0.45, size: turbo > 0 ? 9 : 8,
      });
    }
  }

  function leaveRoad(g, off, dt) {
    var middle = track.list[off.index];
    if (g.rules.bounce) { // the kerb is a wall of rubber
      var nx = (middle.x - hero.x) / off.distance, ny = (middle.y - hero.y) / off.distance, into = hero.vx * nx + hero.vy * ny;
      hero.x += nx * (off.distance - g.numbers.road / 2 - 5);
      hero.y += ny * (off.distance - g.numbers.road / 2 - 5);
      if (into >= 0) return;
      hero.vx -= 1.7 * into * nx;
      hero.vy -= 1.7 * into * ny;
      hero.speed *= 0.8;
      hero.angle = Math.atan2(hero.vy, hero.vx);
      g.fx.shake(5);
      Kit.sound.play("pop", 0.6);
      return;
    }
    lost += off.distance > g.numbers.road * 1.2 ? dt : 0;
    if (lost < 1.5) return;
    lost = 0; // far away: put back on the road
    hero.x = middle.x;
    hero.y = middle.y;
    hero.angle = middle.angle;
    hero.speed = hero.vx = hero.vy = 0;
    g.fx.ring(hero.x, hero.y, 80, "#ffffff");
    Kit.sound.play("door");
  }

  function countLaps(g) {
    var before = hero.index, many = track.list.length;
    hero.index = track.near(hero, hero.index, 16).index;
    if (before > many * 0.75 && hero.index < many * 0.25) hero.lap += 1;
    if (before < many * 0.25 && hero.index > many * 0.75) hero.lap -= 1; // the wrong way
    hero.s = (hero.lap - 1) * track.length + track.list[hero.index].s;
    if (hero.lap > g.numbers.goal) {
      g.add(Math.max(0, 40 - hero.place * 10), hero.x, hero.y);
      g.end(hero.place <= 3, 4 - hero.place);
    }
  }

  function moveRivals(g, dt) {
    rivals.forEach(function (r) {
      var ahead = track.at(r.s + 90, 0), now = track.at(r.s, 0), curve = Math.abs(Math.sin(ahead.angle - now.angle));
      var pull = g.rules.chase ? Kit.clamp((hero.s - r.s) / 900, -0.16, 0.2) : 0; // keeps the race close
      r.v = Kit.near(r.v, g.numbers.rivalSpeed * r.skill * (1 + pull) * (1 - curve * 0.28), g.numbers.rivalSpeed * 0.6 * dt);
      r.s += r.v * dt;
      r.sway += dt;
      var at = track.at(r.s, r.side + Math.sin(r.sway * 0.7) * g.numbers.road * 0.14);
      r.x = at.x;
      r.y = at.y;
      r.angle += Math.atan2(Math.sin(at.angle - r.angle), Math.cos(at.angle - r.angle)) * (dt ? Math.min(1, 9 * dt) : 1);
      if (Math.abs(Math.cos(r.angle)) > 0.25) r.face = Math.cos(r.angle) < 0 ? -1 : 1;
      var d = Kit.distance(r, hero);
      if (dt && d < 54) {
        var k = (54 - d) / (d || 1);
        hero.x += (hero.x - r.x) * k;
        hero.y += (hero.y - r.y) * k;
        if (g.mercy <= 0) {
          g.mercy = 0.7;
          r.v *= turbo > 0 ? 0.3 : 0.75;
          hero.speed *= turbo > 0 ? 1 : 0.7;
          g.fx.shake(7);
          g.fx.burst((hero.x + r.x) / 2, (hero.y + r.y) / 2, 10, { colors: ["#ffffff", "#ffd23f"], speed: 220 });
          Kit.sound.play("hit", 1.6);
        }
      }
    });
  }

  function step(g, dt) {
    drive(g, dt);
    moveRivals(g, dt);
    coins.forEach(function (c) {
      c.gone -= dt;
      if (c.gone > 0 || Kit.distance(c, hero) > 46) return;
      c.gone = 12; // it comes back
      charge = Math.min(1, charge + 0.25);
      g.add(1, c.x, c.y);
      g.fx.burst(c.x, c.y, 9, { colors: [g.palette.accent, "#ffffff"], speed: 190 });
      Kit.sound.play("coin", 1 + charge * 0.4);
      if (charge === 1) g.fx.say(hero.x, hero.y - 40, "TURBO!", "#ffffff");
    });
    hero.place = 1 + rivals.filter(function (r) { return r.s > hero.s; }).length;
    countLaps(g);
    g.levelText = "○ " + Kit.clamp(hero.lap, 1, g.numbers.goal) + "/" + g.numbers.goal;
    g.goalText = "#" + hero.place + "/" + (rivals.length + 1);
    camera.aim({ x: hero.x + hero.vx * 0.35, y: hero.y + hero.vy * 0.35 }, track, 0.1);
  }

  // ---- picture ----
  function drawKart(ctx, k, car, face, x) {
    Kit.draw.shadow(ctx, x.x + 4, x.y + 22, 124, 0.55);
    Kit.draw.sprite(ctx, car, x.x, x.y, { angle: x.angle });
    Kit.draw.sprite(ctx, face, x.x, x.y - 20 + Math.sin(k * 18) * 1.5, { flip: x.face < 0 });
  }

  function drawPanel(g, ctx) { // the plan, and the turbo
    var k = plan.k, x = 14, y = g.view.portrait ? 74 : g.view.h - plan.unitH - 14;
    ctx.globalAlpha = 0.9;
    ctx.drawImage(plan, x, y, plan.unitW, plan.unitH);
    ctx.globalAlpha = 1;
    rivals.concat([hero]).forEach(function (r) {
      ctx.fillStyle = r === hero ? g.palette.accent : COLOURS[r.colour];
      ctx.strokeStyle = "#10142e";
      ctx.lineWidth = 2;
      ctx.beginPath();
      ctx.arc(x + r.x * k, y + r.y * k, r === hero ? 7 : 5, 0, 7);
      ctx.fill();
      ctx.stroke();
    });
    var w = 190, bx = (g.view.w - w) / 2, by = g.view.portrait ? 76 : g.view.h - 36;
    ctx.fillStyle = "rgba(12,16,48,0.6)";
    Kit.draw.box(ctx, bx, by, w, 22, 11);
    ctx.fill();
    var full = turbo > 0 ? turbo / 1.6 : charge;
    if (full > 0.04) {
      ctx.fillStyle = charge >= 1 && Math.floor(g.clock * 6) % 2 ? "#ffffff" : g.palette.accent;
      Kit.draw.box(ctx, bx + 4, by + 4, Math.max(14, (w - 8) * full), 14, 7);
      ctx.fill();
    }
  }

  function draw(g, ctx) {
    if (g.state === "title") {
      var tour = track.at(g.clock * 60 + 300, 0);
      camera.aim(tour, track, 0.05);
    }
    ctx.fillStyle = g.palette.ground;
    ctx.fillRect(0, 0, g.view.w, g.view.h);
    ctx.save();
    g.fx.move(ctx);
    ctx.translate(-camera.x, -camera.y);
    Kit.draw.lay(ctx, world, 0, 0);
    coins.forEach(function (c) {
      if (c.gone > 0) return;
      Kit.draw.sprite(ctx, art.glow, c.x, c.y, { alpha: 0.5 });
      Kit.draw.sprite(ctx, art.prizes[c.which], c.x, c.y - 4 + Math.sin(g.clock * 4 + c.phase) * 3, { sx: Math.abs(Math.cos(g.clock * 2.5 + c.phase)) * 0.7 + 0.3 });
    });
    rivals.forEach(function (r) { drawKart(ctx, r.sway, art.karts[r.colour], art.foes[r.which], r); });
    if (turbo > 0) Kit.draw.sprite(ctx, art.glow, hero.x, hero.y, { sx: 1.7, sy: 1.7, alpha: 0.8 });
    drawKart(ctx, g.clock, art.kart, art.hero, hero);
    g.fx.draw(ctx);
    ctx.restore();
    drawLight(g, ctx);
    if (g.state === "play" || g.state === "ending") drawPanel(g, ctx);
  }

  function drawLight(g, ctx) { // the air: a tint at the edges; at night what the lamps leave dark
    var w = g.view.w * 2, h = g.view.h * 2, far = Math.max(w, h), night = g.rules.night, sky = g.palette.sky;
    if (!air) {
      air = Kit.draw.sheet(w, h, function (c) {
        var light = c.createRadialGradient(w / 2, h / 2, night ? 90 : far * 0.18, w / 2, h / 2, night ? 430 : far * 0.38);
        light.addColorStop(0, Kit.color.alpha(sky, 0));
        light.addColorStop(1, night ? Kit.color.alpha(Kit.color.dark(sky, 0.85), 0.82) : Kit.color.alpha(sky, 0.32));
        c.fillStyle = light;
        c.fillRect(0, 0, w, h);
      });
    }
    var x = hero.x - camera.x + Math.cos(hero.angle) * 90, y = hero.y - camera.y + Math.sin(hero.angle) * 90;
    if (g.state !== "title") Kit.draw.lay(ctx, air, Kit.clamp(x, 0, w / 2) - w / 2, Kit.clamp(y, 0, h / 2) - h / 2);
  }

  Kit.game({
    hud: ["score", "level", "goal", "time"],
    controls: { pad: ["left", "right", "action"] },
    music: "tense",
    load: load,
    begin: begin,
    step: step,
    draw: draw,
    player: function () { return hero; },
  });
})();
