// An island: what can be stood on (the play uses it too) and how it looks. A
// level is a grid of heights, null where there is only sky; x goes east, z south.
window.Island = function (g, stage) {
  "use strict";
  var p = g.palette, island = { cell: 2.6, high: 0, cols: 0, rows: 0 }, level = null, ground = null, depths = [];

  function noise(a, b) {
    var s = Math.sin(a * 91.7 + b * 217.3) * 24634.6345;
    return s - Math.floor(s);
  }
  // top is the height of a cell, null for sky.
  island.top = function (c, r) {
    var row = level.heights[r], h = row && row[c];
    return h === undefined || h === null ? null : h;
  };
  // height is that under a place in metres.
  island.height = function (x, z) { return island.top(Math.floor(x / island.cell), Math.floor(z / island.cell)); };
  // centre is the middle of a cell on the ground.
  island.centre = function (cell) {
    return { x: (cell[0] + 0.5) * island.cell, y: island.top(cell[0], cell[1]) || 0, z: (cell[1] + 0.5) * island.cell };
  };
  // walkable lists the cells that can be reached from the spawn, in order.
  island.walkable = function () {
    var seen = {}, list = [level.spawn], f = level.physics;
    seen[level.spawn.join()] = true;
    for (var i = 0; i < list.length; i++) {
      var c = list[i], h = island.top(c[0], c[1]);
      [[1, 0], [-1, 0], [0, 1], [0, -1]].forEach(function (d) {
        for (var n = 1; n <= f.jumpLength; n++) {
          var to = [c[0] + d[0] * n, c[1] + d[1] * n], up = island.top(to[0], to[1]);
          if (up === null) continue;
          if (up - h > f.stepHeight) return;
          if (!seen[to.join()]) list.push(to);
          seen[to.join()] = true;
        }
      });
    }
    return list;
  };

  // ---- the ground: one mesh ----
  function build() {
    var places = [], tones = [], c = new THREE.Color(), size = island.cell;
    function face(a, b, d, e, color) { // two triangles, corners in order
      c.set(color);
      [a, b, d, a, d, e].forEach(function (v) {
        places.push(v[0], v[1], v[2]);
        tones.push(c.r, c.g, c.b);
      });
    }
    function wall(x0, z0, x1, z1, from, to, n) { // a band of grass, then earth that darkens
      if (to <= from) return;
      var rim = Math.max(from, to - 0.38), mid = from + (rim - from) * 0.55;
      function band(low, high, color) { if (high > low) face([x0, low, z0], [x1, low, z1], [x1, high, z1], [x0, high, z0], color); }
      band(rim, to, Kit.color.dark(p.ground, 0.16 + n * 0.06));
      band(mid, rim, Kit.color.light(p.ground2, n * 0.12));
      band(from, mid, Kit.color.dark(p.ground2, 0.14 + n * 0.14));
    }
    for (var r = 0; r < island.rows; r++) {
      for (var q = 0; q < island.cols; q++) {
        var h = island.top(q, r);
        if (h === null) continue;
        var x = q * size, z = r * size, n = noise(q, r), tone = Kit.color.mix(p.ground, p.path, ((q + r) % 2) * 0.16 + n * 0.1);
        if (q === level.goal[0] && r === level.goal[1]) tone = p.path;
        tone = Kit.color.light(tone, Math.min(0.2, h * 0.045));
        face([x, h, z + size], [x + size, h, z + size], [x + size, h, z], [x, h, z], tone);
        var low = foot(q, r);
        function side(c2, r2) { // down to the neighbour, or to the bottom
          var other = island.top(c2, r2);
          return other === null ? low : Math.max(low, other);
        }
        wall(x, z + size, x + size, z + size, side(q, r + 1), h, n);
        wall(x + size, z, x, z, side(q, r - 1), h, n);
        wall(x, z, x, z + size, side(q - 1, r), h, n);
        wall(x + size, z + size, x + size, z, side(q + 1, r), h, n);
      }
    }
    if (ground) {
      stage.scene.remove(ground);
      ground.geometry.dispose();
    }
    var geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.Float32BufferAttribute(places, 3));
    geometry.setAttribute("color", new THREE.Float32BufferAttribute(tones, 3));
    ground = new THREE.Mesh(geometry, stage.material);
    ground.name = "island";
    stage.scene.add(ground);
  }
  // foot is where a column of rock ends: deeper in the middle of the island.
  function foot(q, r) {
    if (depths[r * 64 + q] === undefined) {
      var near = 4;
      for (var dr = -3; dr <= 3; dr++) {
        for (var dq = -3; dq <= 3; dq++) if (island.top(q + dq, r + dr) === null) near = Math.min(near, Math.max(Math.abs(dq), Math.abs(dr)));
      }
      depths[r * 64 + q] = -1 - near * 1.5 - noise(q + 5, r) * 1.6;
    }
    return depths[r * 64 + q];
  }

  // ---- what grows, and what floats around ----
  var leaf = p.wall, stone = Kit.color.mix(p.ground2, "#8a90a6", 0.6);
  var bushes = stage.many([
    { shape: new THREE.IcosahedronGeometry(0.55, 0), at: [0, 0.3, 0], rough: 0.25, color: leaf },
    { shape: new THREE.IcosahedronGeometry(0.36, 0), at: [0.5, 0.2, 0.15], rough: 0.25, color: Kit.color.light(leaf, 0.18) },
  ], 60);
  var stones = stage.many([{ shape: new THREE.IcosahedronGeometry(0.45, 0), at: [0, 0.15, 0], scale: [1.2, 0.8, 1], rough: 0.35, color: stone }], 40);
  var tall = stage.crowd(g.pictures.scenery[0], 4.4), small = stage.crowd(g.pictures.scenery[1], 0.9);
  var puffs = g.data.look && g.data.look.clouds === false ? null : stage.many([0, 1, 2, 3].map(function (i) {
    return { shape: new THREE.IcosahedronGeometry(1.5 - Math.abs(i - 1.4) * 0.35, 1), at: [(i - 1.5) * 1.6, (i % 2) * 0.35, (i % 3) * 0.5], scale: [1.2, 0.7, 1], rough: 0.1, color: Kit.color.light(p.sky2, 0.7) };
  }), 40, new THREE.MeshLambertMaterial({ vertexColors: true, flatShading: true, emissive: Kit.color.light(p.sky2, 0.3), emissiveIntensity: g.rules.night ? 0.05 : 0.3 }));
  var islets = stage.many([
    { shape: new THREE.CylinderGeometry(2.2, 1.9, 0.6, 7), at: [0, 0, 0], rough: 0.12, color: p.ground },
    { shape: new THREE.ConeGeometry(2, 3.4, 7), at: [0, -2, 0], turn: [Math.PI, 0, 0], rough: 0.2, color: function (x, y) { return Kit.color.dark(p.ground2, Kit.clamp(-y * 0.07, 0, 0.35)); } },
    { shape: new THREE.IcosahedronGeometry(0.8, 0), at: [0.7, 0.7, 0.3], rough: 0.25, color: leaf },
  ], 14);

  island.show = function () {
    for (var r = 0; r < island.rows; r++) {
      for (var q = 0; q < island.cols; q++) {
        var h = island.top(q, r), n = noise(q + 11, r + 3), m = noise(r, q + 7);
        if (h === null || level.taken[q + "," + r]) continue;
        var x = (q + 0.25 + m * 0.5) * island.cell, z = (r + 0.25 + n * 3 % 0.5) * island.cell;
        var back = island.top(q, r - 1) === null && island.top(q, r - 2) === null; // hides nothing
        if (back && n < 0.45) tall.put((q + 0.5) * island.cell, h + 2.05, (r + 0.14) * island.cell);
        else if (n < 0.16) bushes.put(x, h, z, 0.8 + m * 0.5, m * 6);
        else if (n < 0.24) stones.put(x, h, z, 0.7 + m * 0.7, m * 6);
        else if (n < 0.42) small.put(x, h + 0.42, z);
      }
    }
    var mid = [island.cols * island.cell / 2, island.rows * island.cell / 2], reach = Math.max(mid[0], mid[1]);
    for (var i = 0; i < 12; i++) {
      var turn = i * 2.4 + 0.5, far = reach + 9 + noise(i, 4) * 26, up = -5 + noise(i, 2) * 9 + Math.sin(g.clock * 0.5 + i) * 0.5;
      if (Math.sin(turn) > 0.5) continue; // nothing between the island and the viewer
      islets.put(mid[0] + Math.cos(turn) * far * 1.3, up, mid[1] + Math.sin(turn) * far, 0.8 + noise(i, 1) * 0.9, i);
    }
    for (i = 0; puffs && i < 34; i++) {
      var wide = 110, px = mid[0] - wide + ((noise(i, 8) * wide * 2 + g.clock * (0.6 + noise(i, 5))) % (wide * 2));
      puffs.put(px, -9 - noise(i, 6) * 9, mid[1] + 26 - noise(i, 7) * 110, 1.4 + noise(i, 9) * 2.2, noise(i, 3) * 0.6);
    }
    [bushes, stones, tall, small, islets].concat(puffs || []).forEach(function (s) { s.done(); });
  };

  // open makes the island of one level.
  island.open = function (l) {
    level = l;
    depths = [];
    island.cell = l.physics.cell;
    island.rows = l.heights.length;
    island.cols = 0;
    l.heights.forEach(function (row) { island.cols = Math.max(island.cols, row.length); });
    level.taken = {}; // cells that stay free of plants
    [l.spawn, l.goal].concat(l.pickups, l.foes || []).forEach(function (c) { level.taken[c.join()] = true; });
    build();
  };
  return island;
};
