// Kit.effects: what makes a game feel alive: particles, rising words, shaking,
// flashes, and tweens. One set for each play; it forgets what is over.
Kit.effects = function () {
  "use strict";
  var MOST = 260; // particles at once
  var bits = [], words = [], rings = [], tweens = [], shake = 0, flash = 0, flashColor = "#ffffff", clock = 0;
  var random = DreamCoreSDK2.random("effects"); // its own, so that looks never change the play

  var EASES = {
    out: function (t) { return 1 - (1 - t) * (1 - t); },
    in: function (t) { return t * t; },
    both: function (t) { return t < 0.5 ? 2 * t * t : 1 - 2 * (1 - t) * (1 - t); },
    back: function (t) { return 1 + 2.7 * Math.pow(t - 1, 3) + 1.7 * Math.pow(t - 1, 2); },
    line: function (t) { return t; },
  };

  var fx = {
    // burst throws n bits from x, y. look: color or colors, speed, size, life, gravity, angle, spread.
    burst: function (x, y, n, look) {
      var o = Object.assign({ speed: 160, size: 5, life: 0.6, gravity: 260, angle: 0, spread: 6.2832 }, look);
      for (var i = 0; i < n && bits.length < MOST; i++) {
        var a = o.angle + (random() - 0.5) * o.spread, v = o.speed * (0.35 + random() * 0.65);
        bits.push({
          x: x, y: y, vx: Math.cos(a) * v, vy: Math.sin(a) * v, size: o.size * (0.5 + random() * 0.7), gravity: o.gravity,
          life: o.life * (0.6 + random() * 0.4), age: 0, color: o.colors ? o.colors[i % o.colors.length] : o.color || "#ffffff",
        });
      }
    },
    // ring is a circle of light that grows and fades.
    ring: function (x, y, size, tone) { if (rings.length < 20) rings.push({ x: x, y: y, size: size, color: tone, age: 0, life: 0.45 }); },
    // say lets a word rise from x, y.
    say: function (x, y, word, tone) { if (words.length < 12) words.push({ x: x, y: y, word: word, color: tone || "#ffffff", age: 0, life: 0.9 }); },
    shake: function (amount) { shake = Math.max(shake, amount); },
    flash: function (tone, amount) { flashColor = tone; flash = amount || 0.5; },
    // tween moves thing's numbers to goal in so many seconds, then calls done.
    tween: function (thing, goal, seconds, ease, done) {
      var from = {};
      Object.keys(goal).forEach(function (k) { from[k] = thing[k]; });
      tweens.push({ thing: thing, from: from, goal: goal, seconds: seconds, age: 0, ease: EASES[ease || "out"], done: done });
    },
    step: function (dt) {
      clock += dt;
      shake = Math.max(0, shake - shake * 7 * dt - 2 * dt);
      flash = Math.max(0, flash - dt * 1.8);
      [bits, words, rings].forEach(function (list) {
        for (var i = list.length - 1; i >= 0; i--) if ((list[i].age += dt) >= list[i].life) list.splice(i, 1);
      });
      bits.forEach(function (b) {
        b.vy += b.gravity * dt;
        b.vx -= b.vx * 1.6 * dt;
        b.x += b.vx * dt;
        b.y += b.vy * dt;
      });
      tweens = tweens.filter(function (t) {
        t.age = Math.min(t.seconds, t.age + dt);
        var k = t.ease(t.age / t.seconds);
        Object.keys(t.goal).forEach(function (key) { t.thing[key] = Kit.mix(t.from[key], t.goal[key], k); });
        if (t.age < t.seconds) return true;
        if (t.done) t.done();
        return false;
      });
    },
    // move shifts the picture while it shakes; call before drawing the world.
    move: function (ctx) {
      if (shake > 0.2) ctx.translate(Math.sin(clock * 61) * shake, Math.cos(clock * 53) * shake);
    },
    // draw paints particles, rings and words where the world is.
    draw: function (ctx) {
      rings.forEach(function (r) {
        var t = r.age / r.life;
        ctx.globalAlpha = 1 - t;
        ctx.strokeStyle = r.color;
        ctx.lineWidth = 6 * (1 - t) + 1;
        ctx.beginPath();
        ctx.arc(r.x, r.y, r.size * EASES.out(t) + 1, 0, 6.2832);
        ctx.stroke();
      });
      bits.forEach(function (b) {
        var t = b.age / b.life;
        ctx.globalAlpha = 1 - t * t;
        ctx.fillStyle = b.color;
        ctx.beginPath();
        ctx.arc(b.x, b.y, Math.max(0.3, b.size * (1 - t * 0.7)), 0, 6.2832);
        ctx.fill();
      });
      ctx.textAlign = "center";
      ctx.font = "700 26px " + Kit.font;
      ctx.lineJoin = "round";
      words.forEach(function (w) {
        var t = w.age / w.life;
        ctx.globalAlpha = 1 - t * t * t;
        ctx.lineWidth = 5;
        ctx.strokeStyle = "rgba(14,18,50,0.75)";
        ctx.strokeText(w.word, w.x, w.y - 46 * EASES.out(t));
        ctx.fillStyle = w.color;
        ctx.fillText(w.word, w.x, w.y - 46 * EASES.out(t));
      });
      ctx.globalAlpha = 1;
    },
    // cover paints the flash over everything; call last.
    cover: function (ctx) {
      if (flash <= 0) return;
      ctx.globalAlpha = flash;
      ctx.fillStyle = flashColor;
      ctx.fillRect(0, 0, Kit.view.w, Kit.view.h);
      ctx.globalAlpha = 1;
    },
  };
  return fx;
};
Kit.font = "Fredoka, ui-rounded, 'Hiragino Maru Gothic ProN', 'Yuanti SC', 'Noto Sans CJK JP', system-ui, sans-serif";
