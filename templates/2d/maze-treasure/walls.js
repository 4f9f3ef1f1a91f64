// Walls: the picture of a maze: a floor of tiles, and blocks with a lit top, a
// front and a shadow, so that the flat plan looks deep.
window.Walls = function (g, map) {
  "use strict";
  var s = map.size, p = g.palette, color = Kit.color, draw = Kit.draw, rise = s * 0.3;
  var random = DreamCoreSDK2.random("walls" + g.level);
  var top = color.light(p.wall, 0.16), front = color.dark(p.wall, 0.38);

  function wall(col, row) { return col < 0 || row < 0 || col >= map.cols || row >= map.rows || map.kind(col, row) === "solid"; }
  function each(fn) {
    for (var row = 0; row < map.rows; row++) for (var col = 0; col < map.cols; col++) fn(col, row, col * s, row * s);
  }

  // floor lies under everything
  var floor = draw.sheet(map.w, map.h, function (c) {
    each(function (col, row, x, y) {
      c.fillStyle = (col + row) % 2 ? p.path : p.ground;
      c.fillRect(x, y, s + 0.5, s + 0.5);
      c.fillStyle = color.alpha("#ffffff", 0.12);
      draw.box(c, x + 4, y + 4, s - 8, s - 8, 9);
      c.fill();
      if (random() < 0.18) { // a crumb here and there
        c.fillStyle = color.alpha(color.dark(p.ground, 0.4), 0.3);
        c.beginPath();
        c.arc(x + random() * s, y + random() * s, 2 + random() * 3, 0, 7);
        c.fill();
      }
    });
    each(function (col, row, x, y) { // the shadow of a wall falls down and to the right
      if (!wall(col, row)) return;
      c.fillStyle = "rgba(20,16,60,0.2)";
      c.fillRect(x + 6, y + 6, s + 10, s + 12);
    });
  }, 1.6);

  // blocks stand on it; what walks is drawn between the two rows it is in
  var blocks = draw.sheet(map.w, map.h + rise, function (c) {
    c.translate(0, rise);
    each(function (col, row, x, y) {
      if (!wall(col, row)) return;
      var right = wall(col + 1, row), below = row + 1 < map.rows && wall(col, row + 1), left = wall(col - 1, row), above = wall(col, row - 1), r = s * 0.2;
      if (!below) {
        c.fillStyle = draw.fade(c, y + s - rise - 4, y + s, [color.dark(p.wall, 0.2), front]);
        draw.box(c, x, y + s - rise - r, s, rise + r, 6);
        c.fill();
      }
      c.fillStyle = top; // corners are round where nothing joins
      c.fillRect(x + (left ? 0 : r), y - rise, s - (left ? 0 : r) - (right ? 0 : r) + (right ? 0.5 : 0), s);
      c.fillRect(x, y - rise + (above ? 0 : r), s + (right ? 0.5 : 0), s - (above ? 0 : r) - (below ? 0 : r) + (below ? 0.5 : 0));
      draw.box(c, x, y - rise, s, s, r);
      c.fill();
      c.fillStyle = color.alpha("#ffffff", 0.28);
      if (!above) c.fillRect(x + (left ? 0 : r), y - rise, s - (left ? 0 : r) - (right ? 0 : r), 4);
      c.fillStyle = color.alpha(color.dark(p.wall, 0.5), 0.16);
      for (var i = 0; i < 3; i++) {
        c.beginPath();
        c.ellipse(x + 8 + random() * (s - 16), y - rise + 8 + random() * (s - 16), 3 + random() * 6, 2 + random() * 3, 0, 0, 7);
        c.fill();
      }
      if (g.pictures.scenery.length && random() < 0.22) {
        var size = s * (0.42 + random() * 0.2), which = Math.floor(random() * g.pictures.scenery.length);
        draw.shadow(c, x + s / 2, y - rise + s * 0.72, size, 0.4);
        c.drawImage(g.pictures.scenery[which], x + (s - size) / 2, y - rise + s * 0.72 - size * 0.95, size, size);
      }
    });
  }, 1.6);

  return { floor: floor, blocks: blocks, rise: rise };
};
