// Maze Treasure: find the way, the keys and the treasure; keep away from foes.
// Names, colours, numbers and rules stand in game.json, each maze with the pace
// of the hero in levels/*.json; start there.
(function () {
  "use strict";
  var WAYS = { left: [-1, 0], right: [1, 0], up: [0, -1], down: [0, 1] };
  var art, map, walls, hero, foes, items, doors, goal, keys, route, camera, world, spawn, lamp;

  function load(g) {
    var rim = Kit.color.dark(g.palette.sky, 0.6);
    art = {
      hero: Kit.draw.sticker(g.pictures.hero, g.numbers.size, "#ffffff", 3),
      foes: g.pictures.foes.map(function (x) { return Kit.draw.sticker(x, 50, rim, 3); }),
      gem: Kit.draw.sticker(g.pictures.prizes[0], 34, "#ffffff", 2.5),
      treasure: Kit.draw.sticker(g.pictures.prizes[1] || g.pictures.prizes[0], 56, "#ffffff", 3),
      key: Kit.draw.sticker(g.pictures.prizes[2] || g.pictures.prizes[0], 40, "#ffffff", 3),
      glow: Kit.draw.glow(130, Kit.color.light(g.palette.accent, 0.3)),
    };
    Kit.view.onResize(function () { lamp = null; });
  }

  function begin(g) {
    g.level = 0;
    enter(g);
  }

  function walker(at, pace) { // something that goes from tile to tile
    return { x: at.x, y: at.y, col: at.col, row: at.row, way: null, part: 0, pace: pace, face: 1, phase: 0, r: 20 };
  }

  // enter begins the maze g.level.
  function enter(g) {
    map = Kit.tiles.read(g.levels[g.level]);
    walls = Walls(g, map);
    spawn = map.one("spawn");
    goal = map.one("goal");
    hero = walker(spawn, map.physics.stepsPerSecond);
    var free = map.find("").filter(function (q) { return Kit.distance(q, spawn) > map.size * 4; });
    function anywhere() { return free.splice(Math.floor(g.random() * free.length), 1)[0]; }
    var homes = map.find("foe");
    foes = [];
    for (var i = 0; i < g.numbers.foes && free.length; i++) {
      var home = homes[i] || anywhere(), f = walker(home, g.numbers.foeSpeed);
      f.which = i % art.foes.length;
      f.home = home;
      f.wait = 2 + i; // a little head start
      foes.push(f);
    }
    doors = map.find("door").map(function (d) { return { x: d.x, y: d.y, col: d.col, row: d.row, open: 0 }; });
    items = map.find("prize").map(function (q) { return { kind: "gem", x: q.x, y: q.y }; });
    map.find("key").forEach(function (q) { items.push({ kind: "key", x: q.x, y: q.y }); });
    for (i = 0; i < g.numbers.prizes && free.length; i++) {
      var at = anywhere();
      items.push({ kind: "gem", x: at.x, y: at.y });
    }
    keys = 0;
    route = [];
    camera = Kit.camera();
    world = { w: map.w, h: map.h };
    aim(1);
    g.levelText = "★ " + (g.level + 1) + "/" + g.levels.length;
  }

  // aim points the camera; small mazes are centred.
  function aim(part) {
    camera.aim(hero, world, part);
    if (world.h < Kit.view.h) camera.y = (world.h - Kit.view.h) / 2;
  }

  // ---- the way ----
  function door(col, row) {
    return doors.filter(function (d) { return d.col === col && d.row === row && !d.open; })[0];
  }
  function free(col, row, who) {
    if (row < 0 || row >= map.rows || map.kind(col, row) === "solid") return false;
    return !door(col, row) || (who === hero && keys > 0);
  }
  // search finds the shortest way from one tile to another, as a list of tiles.
  function search(from, to, who) {
    var seen = {}, queue = [[from.col, from.row, null]], at;
    seen[from.col + "," + from.row] = true;
    for (var i = 0; i < queue.length; i++) {
      at = queue[i];
      if (at[0] === to.col && at[1] === to.row) break;
      for (var name in WAYS) {
        var col = at[0] + WAYS[name][0], row = at[1] + WAYS[name][1], tag = col + "," + row;
        if (seen[tag] || !free(col, row, who)) continue;
        seen[tag] = true;
        queue.push([col, row, at]);
      }
      at = null;
    }
    var way = [];
    for (; at && at[2]; at = at[2]) way.unshift({ col: at[0], row: at[1] });
    return way;
  }

  // walk carries a walker on; decide(walker) names the next way at each tile.
  function walk(w, dt, decide) {
    w.phase += dt;
    if (!w.way) w.way = decide(w);
    if (!w.way) return;
    w.part += w.pace * dt;
    if (w.part >= 1) {
      w.col += w.way[0];
      w.row += w.way[1];
      w.part -= 1;
      w.way = decide(w);
      if (!w.way) w.part = 0;
    }
    var way = w.way || [0, 0];
    if (way[0]) w.face = way[0];
    w.x = (w.col + 0.5 + way[0] * w.part) * map.size;
    w.y = (w.row + 0.5 + way[1] * w.part) * map.size;
  }

  function turnBack(w) { // half-way between two tiles one may turn round
    w.col += w.way[0];
    w.row += w.way[1];
    w.way = [-w.way[0], -w.way[1]];
    w.part = 1 - w.part;
  }

  function wish(g) { // the way that the keys or a finger ask for
    var a = g.input.axis(), across = Math.abs(a.x) > Math.abs(a.y);
    if (Math.abs(a.x) < 0.3 && Math.abs(a.y) < 0.3) return null;
    return across ? (a.x < 0 ? WAYS.left : WAYS.right) : a.y < 0 ? WAYS.up : WAYS.down;
  }

  function decideHero(g) {
    return function (w) {
      var want = wish(g);
      if (want && free(w.col + want[0], w.row + want[1], hero)) return want;
      if (route.length) {
        var next = route.shift();
        return [next.col - w.col, next.row - w.row];
      }
      return null;
    };
  }

  function decideFoe(g) {
    return function (f) {
      if (g.rules.chase && g.random() < 0.8) {
        var way = search(f, hero, f);
        if (way.length && way.length < 16) return [way[0].col - f.col, way[0].row - f.row];
      }
      var open = [], back = f.last && [-f.last[0], -f.last[1]];
      for (var name in WAYS) {
        var q = WAYS[name];
        if (free(f.col + q[0], f.row + q[1], f) && !(back && q[0] === back[0] && q[1] === back[1])) open.push(q);
      }
      f.last = open.length ? open[Math.floor(g.random() * open.length)] : back;
      return f.last;
    };
  }

  // ---- play ----
  function step(g, dt) {
    var want = wish(g), point = g.input.pointer;
    if (want) route = [];
    if (point.pressed) {
      var to = { col: Math.floor((point.x + camera.x) / map.size), row: Math.floor((point.y + camera.y) / map.size) };
      var from = hero.way ? { col: hero.col + hero.way[0], row: hero.row + hero.way[1] } : hero;
      route = search(from, to, hero);
      if (route.length) g.fx.ring((to.col + 0.5) * map.size, (to.row + 0.5) * map.size, 30, "#ffffff");
    }
    if (want && hero.way && want[0] === -hero.way[0] && want[1] === -hero.way[1]) turnBack(hero);
    walk(hero, dt, decideHero(g));
    doors.forEach(function (d) {
      if (!d.open && Math.abs(d.x - hero.x) + Math.abs(d.y - hero.y) < map.size * 0.9 && keys > 0) unlock(g, d);
      if (d.open) d.open = Math.min(1, d.open + dt * 3);
    });
    items.forEach(function (q) { if (Kit.distance(q, hero) < 28) take(g, q); });
    items = items.filter(function (q) { return !q.gone; });
    foes.forEach(function (f) {
      f.wait -= dt;
      if (f.wait <= 0) walk(f, dt, decideFoe(g));
      if (Kit.distance(f, hero) < 34 && g.hurt(hero.x, hero.y)) {
        var home = f.home;
        f.col = home.col;
        f.row = home.row;
        f.x = home.x;
        f.y = home.y;
        f.way = null;
        f.part = 0;
        f.wait = 2.5;
      }
    });
    if (Kit.distance(goal, hero) < 26) reach(g);
    g.goalText = keys ? Kit.text((g.data.prizes[2] || g.data.prizes[0]).name) + " ×" + keys : "";
    aim(0.12);
  }

  function unlock(g, d) {
    d.open = 0.01;
    keys -= 1;
    g.fx.burst(d.x, d.y, 18, { colors: [g.palette.accent, "#ffffff"], speed: 200 });
    Kit.sound.play("door");
  }

  function take(g, q) {
    q.gone = true;
    if (q.kind === "key") keys += 1;
    g.add(q.kind === "key" ? 3 : 1, q.x, q.y);
    g.fx.burst(q.x, q.y, 12, { colors: ["#ffffff", g.palette.accent, "#8fe3ff"], speed: 180 });
    g.fx.ring(q.x, q.y, 44, "#ffffff");
    Kit.sound.play(q.kind === "key" ? "prize" : "coin");
  }

  function reach(g) {
    g.add(10, goal.x, goal.y);
    g.fx.burst(goal.x, goal.y, 40, { colors: [g.palette.accent, "#ffffff", "#ffe27a"], speed: 300, life: 1 });
    if (++g.level >= g.levels.length) {
      g.level -= 1;
      g.end(true, Kit.clamp(g.lives, 1, 3));
      return;
    }
    Kit.sound.play("win");
    g.fx.flash("#ffffff", 0.8);
    enter(g);
  }

  // ---- picture ----
  function drawDoor(g, ctx, d) {
    var s = map.size, r = walls.rise, gap = d.open;
    if (gap >= 1) return;
    ctx.globalAlpha = 1 - gap;
    ctx.fillStyle = Kit.color.dark(g.palette.accent, 0.55);
    Kit.draw.box(ctx, d.x - s / 2 + 2, d.y - s / 2 - r, s - 4, s + r - 2, 8);
    ctx.fill();
    ctx.fillStyle = Kit.draw.fade(ctx, d.y - s / 2 - r, d.y + s / 2, [Kit.color.light(g.palette.accent, 0.3), g.palette.accent, Kit.color.dark(g.palette.accent, 0.3)]);
    for (var i = 0; i < 3; i++) {
      Kit.draw.box(ctx, d.x - s / 2 + 6 + (i * (s - 12)) / 3, d.y - s / 2 - r + 5, (s - 18) / 3, s + r - 12, 4);
      ctx.fill();
    }
    ctx.fillStyle = "#2a2140"; // the keyhole
    ctx.beginPath();
    ctx.arc(d.x, d.y - 6, 7, 0, 7);
    ctx.fill();
    ctx.fillRect(d.x - 3, d.y - 4, 6, 14);
    ctx.globalAlpha = 1;
  }

  function drawItems(g, ctx) {
    items.forEach(function (q) {
      var y = q.y - 4 + Math.sin(g.clock * 3.4 + q.x) * 4;
      Kit.draw.shadow(ctx, q.x, q.y + 16, 36, 0.4);
      if (q.kind === "key") Kit.draw.sprite(ctx, art.glow, q.x, y, { alpha: 0.8 });
      Kit.draw.sprite(ctx, q.kind === "key" ? art.key : art.gem, q.x, y, { angle: Math.sin(g.clock * 2 + q.y) * 0.16 });
    });
    var beat = 1 + Math.sin(g.clock * 4) * 0.06;
    Kit.draw.sprite(ctx, art.glow, goal.x, goal.y - 6, { sx: 1.15 * beat, sy: 1.15 * beat });
    Kit.draw.shadow(ctx, goal.x, goal.y + 22, 60, 0.5);
    Kit.draw.sprite(ctx, art.treasure, goal.x, goal.y - 8, { sx: beat, sy: beat });
  }

  function drawWalker(g, ctx, w, image, alpha) {
    var hop = w.way || w === hero ? Math.abs(Math.sin(w.phase * (w.way ? 12 : 3))) * (w.way ? 6 : 2) : 0;
    Kit.draw.shadow(ctx, w.x, w.y + 20, 54, 0.5);
    Kit.draw.sprite(ctx, image, w.x, w.y - 8 - hop, { flip: w.face < 0, angle: w.way ? Math.sin(w.phase * 12) * 0.08 : 0, alpha: alpha });
  }

  function draw(g, ctx) {
    ctx.fillStyle = Kit.draw.fade(ctx, 0, g.view.h, [Kit.color.light(g.palette.sky, 0.12), Kit.color.dark(g.palette.sky, 0.35)]);
    ctx.fillRect(0, 0, g.view.w, g.view.h);
    ctx.save();
    g.fx.move(ctx);
    ctx.translate(-camera.x, -camera.y);
    Kit.draw.lay(ctx, walls.floor, 0, 0);
    Kit.draw.lay(ctx, walls.blocks, 0, -walls.rise);
    doors.forEach(function (d) { drawDoor(g, ctx, d); });
    drawItems(g, ctx);
    foes.forEach(function (f) { drawWalker(g, ctx, f, art.foes[f.which], f.wait > 0 ? 0.5 : 1); });
    if (g.state !== "title" && (g.state !== "ending" || g.won)) drawWalker(g, ctx, hero, art.hero, g.blinking() ? 0.35 : 1);
    g.fx.draw(ctx);
    ctx.restore();
    drawLamp(g, ctx);
  }

  function drawLamp(g, ctx) { // at night one sees as far as the lamp shines
    var w = g.view.w * 2, h = g.view.h * 2, night = g.rules.night;
    if (!lamp) {
      lamp = Kit.draw.sheet(w, h, function (c) {
        var light = c.createRadialGradient(w / 2, h / 2, night ? 70 : Math.max(w, h) * 0.2, w / 2, h / 2, night ? 260 : Math.max(w, h) * 0.45);
        light.addColorStop(0, "rgba(8,8,34,0)");
        light.addColorStop(1, night ? "rgba(6,8,30,0.93)" : "rgba(8,10,40,0.4)");
        c.fillStyle = light;
        c.fillRect(0, 0, w, h);
      });
    }
    if (g.state !== "title") Kit.draw.lay(ctx, lamp, Kit.clamp(hero.x - camera.x, 0, w / 2) - w / 2, Kit.clamp(hero.y - camera.y, 0, h / 2) - h / 2);
  }

  Kit.game({
    hud: ["score", "lives", "level", "goal", "time"],
    controls: { stick: true },
    music: "calm",
    load: load,
    begin: begin,
    step: step,
    draw: draw,
    player: function () { return hero; },
  });
})();
