// Kit.backdrop: a deep landscape out of a palette: sky, sun or moon, stars,
// clouds, hills one behind the other, and scenery pictures standing on them.
//
//   var back = Kit.backdrop({palette: g.palette, night: false, scenery: g.pictures.scenery,
//                            horizon: 0.7, hills: 3, seed: 1, look: g.data.look});
//   back.draw(ctx, cameraX, cameraY, seconds);
//
// palette: sky (top), sky2 (at the horizon), ground, ground2, accent.
// look, in game.json: {"sun": false, "clouds": false, "bubbles": true} is under the sea.
Kit.backdrop = function (options) {
  "use strict";
  var o = Object.assign({ horizon: 0.72, hills: 3, clouds: true, sun: true, bubbles: false, scenery: [], seed: 7 }, options, options.look);
  var color = Kit.color, draw = Kit.draw, p = o.palette, layers = [], sky = null, forW = 0, forH = 0, forScale = 0;
  var sky2 = p.sky2 || color.light(p.sky, 0.5), ground2 = p.ground2 || color.dark(p.ground, 0.3);
  var dark = o.night || color.bright(p.sky) < 0.28;

  function wave(random, width) { // a hill line that meets itself at the tile's end
    var parts = [1, 2, 3, 5].map(function (n) { return [n, random() * 6.28, (0.4 + random() * 0.6) / n]; });
    return function (x) {
      return parts.reduce(function (sum, q) { return sum + Math.sin((x / width) * 6.2832 * q[0] + q[1]) * q[2]; }, 0) / 1.9;
    };
  }

  function paintSky(c, w, h) {
    var line = h * o.horizon;
    c.fillStyle = draw.fade(c, 0, line * 1.05, [p.sky, color.mix(p.sky, sky2, 0.55), sky2]);
    c.fillRect(0, 0, w, h);
    var random = DreamCoreSDK2.random("sky" + o.seed), i;
    if (dark && !o.bubbles) {
      for (i = 0; i < 130; i++) {
        c.globalAlpha = 0.25 + random() * 0.75;
        c.fillStyle = random() < 0.2 ? color.light(p.accent, 0.5) : "#ffffff";
        c.beginPath();
        c.arc(random() * w, random() * line, 0.5 + random() * random() * 2.1, 0, 7);
        c.fill();
      }
      c.globalAlpha = 1;
    }
    if (!o.sun) return;
    var x = w * 0.76, y = h * 0.2, r = Math.min(w, h) * 0.085, tone = dark ? "#fdf6d8" : color.mix("#fff3b8", p.accent, 0.12);
    var g = c.createRadialGradient(x, y, r * 0.4, x, y, r * 5.5);
    g.addColorStop(0, color.alpha(tone, dark ? 0.4 : 0.75));
    g.addColorStop(1, color.alpha(tone, 0));
    c.fillStyle = g;
    c.fillRect(0, 0, w, h);
    c.fillStyle = tone;
    c.beginPath();
    c.arc(x, y, r, 0, 7);
    c.fill();
    if (dark) { // the moon has craters
      c.fillStyle = color.alpha("#b9ae86", 0.45);
      [[-0.35, -0.2, 0.22], [0.3, 0.25, 0.28], [0.15, -0.45, 0.13], [-0.3, 0.45, 0.14]].forEach(function (m) {
        c.beginPath();
        c.arc(x + m[0] * r, y + m[1] * r, m[2] * r, 0, 7);
        c.fill();
      });
    }
  }

  function paintCloud(c, x, y, size, tone, random) {
    var puffs = 4 + Math.floor(random() * 3), i, list = [];
    for (i = 0; i < puffs; i++) {
      var t = i / (puffs - 1) - 0.5;
      list.push([x + t * size * 1.7, y - Math.cos(t * 3) * size * 0.26, size * (0.28 + 0.2 * Math.cos(t * 2.6) + random() * 0.08)]);
    }
    [[color.mix(tone, color.bright(p.sky) > 0.8 ? color.dark(p.sky, 0.4) : p.sky, 0.32), 0.1], [tone, 0]].forEach(function (pass) {
      c.fillStyle = pass[0];
      c.beginPath();
      list.forEach(function (q) {
        c.moveTo(q[0] + q[2], q[1] + pass[1] * size);
        c.arc(q[0], q[1] + pass[1] * size, q[2], 0, 7);
      });
      c.fill();
    });
  }

  function cloudLayer(w, h, depth, count) {
    var random = DreamCoreSDK2.random("cloud" + depth + o.seed), span = w * 1.5;
    return { speed: 0.06 + depth * 0.16, drift: 5 + depth * 9, span: span, y: 0, image: draw.sheet(span, h * 0.75, function (c) {
      c.globalAlpha = (dark ? 0.22 : 0.75) + depth * (dark ? 0.1 : 0.2);
      var tone = color.mix(sky2, dark ? "#aab4e8" : "#ffffff", 0.55 + depth * 0.45);
      for (var i = 0; i < count; i++) {
        var size = Math.min(w, h) * (0.07 + depth * 0.07 + random() * 0.05);
        // kept off the tile's edge, so that no cloud is cut
        paintCloud(c, size * 1.3 + (i + random() * 0.6) * (span - size * 2.6) / count, h * (0.1 + random() * 0.48), size, tone, random);
      }
    }) };
  }

  function hillLayer(w, h, index) {
    var near = (index + 1) / o.hills, random = DreamCoreSDK2.random("hill" + index + o.seed), span = w * 1.5;
    var big = o.scenery.length ? Math.min(w, h) * (0.09 + near * 0.09) * 1.3 : 0; // the tallest scenery
    var tall = h * 0.13 + big, wavy = h * 0.08, top = h * (o.horizon + (near - 1) * 0.13) + h * 0.03, height = h - top + tall;
    var face = color.mix(sky2, p.ground, 0.3 + near * 0.55), foot = color.mix(face, ground2, 0.35 + near * 0.4), line = wave(random, span);
    function y(x) { return tall + line(x) * wavy; }
    return { speed: 0.12 + near * 0.33, drift: 0, span: span, y: top - tall, image: draw.sheet(span, height, function (c) {
      var i, x;
      var many = o.scenery.length ? 3 + index * 2 : 0;
      for (i = 0; i < many; i++) {
        var size = Math.min(w, h) * (0.09 + near * 0.09) * (0.8 + random() * 0.5);
        x = size + ((i + 0.2 + random() * 0.6) * (span - 2 * size)) / many;
        c.drawImage(draw.tinted(o.scenery[Math.floor(random() * o.scenery.length)], size, face, 0.62 - near * 0.42 + (o.night ? 0.28 : 0)), x - size / 2, y(x) - size * 0.86, size, size);
      }
      c.beginPath();
      c.moveTo(0, height);
      for (x = 0; x <= span + 6; x += 6) c.lineTo(x, y(x));
      c.lineTo(span, height);
      c.fillStyle = draw.fade(c, tall - wavy, height, [face, foot]);
      c.fill();
      c.lineWidth = 2 + near * 2;
      c.strokeStyle = color.alpha(color.light(face, 0.5), 0.5);
      c.beginPath();
      for (x = 0; x <= span + 6; x += 6) c.lineTo(x, y(x) + 1);
      c.stroke();
    }) };
  }

  function bubbleLayer(w, h, depth) { // they rise: draw moves this layer upwards
    var random = DreamCoreSDK2.random("bubble" + depth + o.seed);
    return { rise: 26 + depth * 40, speed: 0.2 + depth * 0.3, drift: 0, span: w, y: 0, image: draw.sheet(w, h, function (c) {
      for (var i = 0; i < 16; i++) {
        var r = 3 + random() * (6 + depth * 9), x = r + random() * (w - 2 * r), y = r + random() * (h - 2 * r);
        c.fillStyle = "rgba(255,255,255,0.12)";
        c.strokeStyle = "rgba(255,255,255,0.5)";
        c.lineWidth = 1.5;
        c.beginPath();
        c.arc(x, y, r, 0, 7);
        c.fill();
        c.stroke();
        c.fillStyle = "rgba(255,255,255,0.7)";
        c.beginPath();
        c.arc(x - r * 0.35, y - r * 0.35, r * 0.22, 0, 7);
        c.fill();
      }
    }) };
  }

  function build(w, h) {
    forW = w;
    forH = h;
    forScale = Kit.view.scale;
    sky = draw.sheet(w, h, function (c) { paintSky(c, w, h); });
    layers = [];
    if (o.clouds) layers.push(cloudLayer(w, h, 0, 5), cloudLayer(w, h, 0.6, 4));
    for (var i = 0; i < o.hills; i++) layers.push(hillLayer(w, h, i));
    if (o.bubbles) layers.push(bubbleLayer(w, h, 0), bubbleLayer(w, h, 1));
  }

  return {
    draw: function (ctx, cameraX, cameraY, seconds) {
      var w = Kit.view.w, h = Kit.view.h;
      if (w !== forW || h !== forH || Kit.view.scale !== forScale) build(w, h);
      draw.lay(ctx, sky, 0, 0);
      layers.forEach(function (l) {
        var x = -((cameraX * l.speed + seconds * l.drift) % l.span);
        if (x > 0) x -= l.span;
        var y = l.y - (cameraY || 0) * l.speed;
        if (l.rise) y = -((seconds * l.rise) % h);
        for (; x < w; x += l.span) {
          draw.lay(ctx, l.image, x, y);
          if (l.rise) draw.lay(ctx, l.image, x, y + h);
        }
      });
    },
  };
};
