// Kit.tiles: levels made of tiles, bodies that stand on them, and the camera.
//
// A level file has tiles (one string for each row), legend (letter to kind),
// tileSize and physics; the level validator simulates these very numbers.
Kit.tiles = (function () {
  "use strict";

  // read turns a level file into {size, cols, rows, w, h, kind(col, row), find(kind)}.
  function read(level) {
    var size = level.tileSize || 32, rows = level.tiles.length, cols = 0;
    level.tiles.forEach(function (row) { cols = Math.max(cols, row.length); });
    var map = {
      size: size, cols: cols, rows: rows, w: cols * size, h: rows * size, physics: level.physics,
      // kind of a tile: "" is air. Left and right of the level is solid, above and below is air.
      kind: function (col, row) {
        if (col < 0 || col >= cols) return "solid";
        if (row < 0 || row >= rows) return "";
        return level.legend[level.tiles[row][col]] || "";
      },
      // find lists the middles of all tiles of a kind, as {x, y, col, row}.
      find: function (kind) {
        var found = [];
        for (var r = 0; r < rows; r++) {
          for (var c = 0; c < cols; c++) {
            if (map.kind(c, r) === kind) found.push({ x: (c + 0.5) * size, y: (r + 0.5) * size, col: c, row: r });
          }
        }
        return found;
      },
      // one is the first tile of a kind that a level must have.
      one: function (kind) {
        var found = map.find(kind)[0];
        if (!found) throw new Error("the level has no tile of the kind " + kind);
        return found;
      },
      at: function (x, y) { return map.kind(Math.floor(x / size), Math.floor(y / size)); },
    };
    return map;
  }

  // hits tells whether the box around body {x, y, w, h} (x, y its middle) meets a solid tile.
  function hits(map, body) {
    var s = map.size, left = Math.floor((body.x - body.w / 2) / s), right = Math.floor((body.x + body.w / 2 - 0.001) / s);
    var top = Math.floor((body.y - body.h / 2) / s), bottom = Math.floor((body.y + body.h / 2 - 0.001) / s);
    for (var r = top; r <= bottom; r++) for (var c = left; c <= right; c++) if (map.kind(c, r) === "solid") return true;
    return false;
  }

  // move carries body by its speed vx, vy for dt seconds and stops it at solid
  // tiles. It sets body.onGround, body.hitWall and body.hitHead.
  function move(map, body, dt) {
    var s = map.size, parts = Math.max(1, Math.ceil((Math.max(Math.abs(body.vx), Math.abs(body.vy)) * dt) / (s * 0.4)));
    body.onGround = body.hitWall = body.hitHead = false;
    for (var i = 0; i < parts; i++) {
      body.x += (body.vx * dt) / parts;
      if (hits(map, body)) {
        body.x = body.vx > 0
          ? Math.floor((body.x + body.w / 2) / s) * s - body.w / 2
          : (Math.floor((body.x - body.w / 2) / s) + 1) * s + body.w / 2;
        body.vx = 0;
        body.hitWall = true;
      }
      body.y += (body.vy * dt) / parts;
      if (hits(map, body)) {
        if (body.vy > 0) {
          body.y = Math.floor((body.y + body.h / 2) / s) * s - body.h / 2;
          body.onGround = true;
        } else {
          body.y = (Math.floor((body.y - body.h / 2) / s) + 1) * s + body.h / 2;
          body.hitHead = true;
        }
        body.vy = 0;
      }
    }
  }

  return { read: read, move: move, hits: hits };
})();

// Kit.camera follows a thing softly and stays inside the world.
Kit.camera = function () {
  "use strict";
  var camera = {
    x: 0, y: 0, // the world's point that is in the screen's top left corner
    // look at a place at once.
    jump: function (thing, world) {
      camera.aim(thing, world, 1);
    },
    // aim moves a part (0 to 1) of the way to the thing.
    aim: function (thing, world, part) {
      var v = Kit.view;
      var x = thing.x - v.w / 2, y = thing.y - v.h / 2;
      x = world.w < v.w ? (world.w - v.w) / 2 : Kit.clamp(x, 0, world.w - v.w);
      y = world.h < v.h ? world.h - v.h : Kit.clamp(y, 0, world.h - v.h);
      camera.x = Kit.mix(camera.x, x, part);
      camera.y = Kit.mix(camera.y, y, part);
    },
  };
  return camera;
};
