// Track: a closed road through the points of game.json, and how it looks.
window.Track = function (data, road) {
  "use strict";
  var EACH = 28; // samples between two points
  var points = data.points, n = points.length, list = [], total = 0;

  function bend(a, b, c, d, t) { // Catmull-Rom
    return 0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t * t + (3 * b - a - 3 * c + d) * t * t * t);
  }
  for (var i = 0; i < n; i++) {
    var p = [points[(i + n - 1) % n], points[i], points[(i + 1) % n], points[(i + 2) % n]];
    for (var j = 0; j < EACH; j++) {
      var t = j / EACH;
      list.push({ x: bend(p[0][0], p[1][0], p[2][0], p[3][0], t), y: bend(p[0][1], p[1][1], p[2][1], p[3][1], t) });
    }
  }
  list.forEach(function (q, k) {
    var next = list[(k + 1) % list.length];
    q.angle = Math.atan2(next.y - q.y, next.x - q.x);
    q.s = total;
    total += Kit.distance(q, next);
  });

  var track = { w: data.size[0], h: data.size[1], list: list, length: total, road: road };

  // at tells the place that is s units from the start and side units to the right.
  track.at = function (s, side) {
    s = ((s % total) + total) % total;
    var low = 0, high = list.length - 1;
    while (low < high) {
      var mid = (low + high + 1) >> 1;
      if (list[mid].s <= s) low = mid;
      else high = mid - 1;
    }
    var a = list[low], b = list[(low + 1) % list.length], span = Kit.distance(a, b) || 1, t = (s - a.s) / span;
    return { x: Kit.mix(a.x, b.x, t) - Math.sin(a.angle) * side, y: Kit.mix(a.y, b.y, t) + Math.cos(a.angle) * side, angle: a.angle };
  };

  // near finds the sample nearest to a thing, among those around index.
  track.near = function (thing, index, reach) {
    var best = index, least = Infinity;
    for (var k = -reach; k <= reach; k++) {
      var m = (index + k + list.length) % list.length, d = Kit.distance(thing, list[m]);
      if (d < least) least = d, best = m;
    }
    return { index: best, distance: least };
  };
  track.far = function (x, y) { // distance to the middle of the road
    return track.near({ x: x, y: y }, 0, list.length >> 1).distance;
  };

  function trace(c) {
    c.beginPath();
    list.forEach(function (q, k) { k ? c.lineTo(q.x, q.y) : c.moveTo(q.x, q.y); });
    c.closePath();
  }
  function stroke(c, width, style, dash) {
    c.setLineDash(dash || []);
    c.lineWidth = width;
    c.strokeStyle = style;
    trace(c);
    c.stroke();
    c.setLineDash([]);
  }

  // paint makes the whole world's picture once.
  track.paint = function (g) {
    var p = g.palette, color = Kit.color, random = DreamCoreSDK2.random("world"), scenery = g.pictures.scenery;
    return Kit.draw.sheet(track.w, track.h, function (c) {
      c.lineJoin = "round";
      c.fillStyle = p.ground;
      c.fillRect(0, 0, track.w, track.h);
      var i, x, y, r;
      for (i = 0; i < 90; i++) { // soft patches
        x = random() * track.w;
        y = random() * track.h;
        r = 60 + random() * 150;
        c.fillStyle = color.alpha(i % 3 ? p.ground2 : color.light(p.ground, 0.4), 0.16);
        c.beginPath();
        c.ellipse(x, y, r, r * 0.55, 0, 0, 7);
        c.fill();
      }
      for (i = 0; i < 70; i++) { // hollows, each with a lit rim
        x = random() * track.w;
        y = random() * track.h;
        r = 10 + random() * 34;
        c.fillStyle = color.alpha(color.dark(p.ground2, 0.25), 0.45);
        c.beginPath();
        c.ellipse(x, y, r, r * 0.62, 0, 0, 7);
        c.fill();
        c.strokeStyle = color.alpha(color.light(p.ground, 0.55), 0.7);
        c.lineWidth = 3;
        c.beginPath();
        c.ellipse(x, y + 2, r, r * 0.62, 0, 0.3, 2.9);
        c.stroke();
      }
      c.save();
      c.translate(0, 10);
      stroke(c, road + 62, color.alpha(color.dark(p.ground2, 0.7), 0.3));
      c.restore();
      stroke(c, road + 54, color.mix(p.ground, p.ground2, 0.55));
      stroke(c, road + 26, "#ffffff");
      stroke(c, road + 26, p.wall, [34, 34]);
      stroke(c, road, p.path);
      stroke(c, road * 0.86, color.light(p.path, 0.05));
      stroke(c, road * 0.5, color.light(p.path, 0.09));
      stroke(c, 5, color.alpha("#ffffff", 0.75), [30, 38]);
      var start = list[0], cell = road / 10; // the chequered line
      c.save();
      c.translate(start.x, start.y);
      c.rotate(start.angle);
      for (i = 0; i < 30; i++) {
        c.fillStyle = (Math.floor(i / 10) + i) % 2 ? "#16192b" : "#ffffff";
        c.fillRect(Math.floor(i / 10) * cell - cell * 1.5, (i % 10) * cell - road / 2, cell, cell);
      }
      c.restore();
      for (i = 0; i < 150 && scenery.length; i++) {
        x = random() * track.w;
        y = (i / 150) * track.h;
        r = 60 + random() * 70;
        if (track.far(x, y) < road / 2 + 28 + r * 0.45) continue;
        Kit.draw.shadow(c, x + r * 0.12, y + r * 0.42, r * 1.15, 0.55);
        c.drawImage(scenery[Math.floor(random() * scenery.length)], x - r / 2, y - r / 2, r, r);
      }
    }, 1.5);
  };

  // map paints the little plan of the road.
  track.map = function (size) {
    var k = size / Math.max(track.w, track.h);
    var plan = Kit.draw.sheet(track.w * k, track.h * k, function (c) {
      c.scale(k, k);
      c.lineJoin = "round";
      stroke(c, 120, "rgba(10,14,44,0.6)");
      stroke(c, 66, "#ffffff");
    });
    plan.k = k;
    return plan;
  };
  return track;
};
