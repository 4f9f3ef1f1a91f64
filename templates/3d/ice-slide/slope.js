// The slope: its shape (which the play uses too) and how it looks. It winds
// downhill along -z; d is how far down one is, in metres, so z = -d.
window.Slope = function (g, stage, ramps) {
  "use strict";
  var p = g.palette, HALF = 9, FALL = 0.27; // half the width of the run; metres down for each metre
  var CHUNK = 24, ROW = 3, CHUNKS = 7;
  var COLUMNS = [-70, -46, -32, -24, -18, -14.5, -12, -10, -9, -6, -3, 0, 3, 6, 9, 10, 12, 14.5, 18, 24, 32, 46, 70];
  var slope = { half: HALF, ramps: ramps };

  // noise is a fixed number from 0 to 1 for each place, without a memory.
  function noise(a, b) {
    var s = Math.sin(a * 127.1 + b * 311.7) * 43758.5453;
    return s - Math.floor(s);
  }
  // middle is where the run winds to.
  slope.middle = function (d) {
    var calm = Kit.clamp(d / 70, 0, 1);
    return (Math.sin(d * 0.021) * 15 + Math.sin(d * 0.047 + 1.3) * 5) * calm;
  };
  // bare is the height without ramps.
  slope.bare = function (x, d) {
    var off = Math.max(0, Math.abs(x - slope.middle(d)) - HALF);
    var y = -FALL * d + (Math.sin(d * 0.06) * 1 + Math.sin(d * 0.023 + 2) * 2.4) * Kit.clamp(d / 40, 0, 1);
    return y + Math.min(off * 0.5, 3 + off * 0.12) * Math.min(1, off / 4);
  };
  slope.rampAt = function (x, d) {
    for (var i = 0; i < slope.ramps.length; i++) {
      var r = slope.ramps[i];
      if (d >= r.d && d <= r.d + r.length && Math.abs(x - r.x) < r.wide / 2) return r;
    }
    return null;
  };
  slope.height = function (x, d) {
    var r = slope.rampAt(x, d);
    return slope.bare(x, d) + (r ? r.high * Math.pow((d - r.d) / r.length, 1.3) : 0);
  };

  // ---- snow, in pieces that are laid anew ahead of the hero ----
  var pieces = [];
  function piece() {
    var rows = CHUNK / ROW, n = rows * (COLUMNS.length - 1) * 6, geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(n * 3), 3));
    geometry.setAttribute("color", new THREE.BufferAttribute(new Float32Array(n * 3), 3));
    var mesh = new THREE.Mesh(geometry, stage.material);
    mesh.frustumCulled = false;
    mesh.name = "snow";
    stage.scene.add(mesh);
    return { mesh: mesh, of: -1000 };
  }
  for (var i = 0; i < CHUNKS; i++) pieces.push(piece());

  var tone = new THREE.Color();
  function corner(d, c) {
    var x = slope.middle(d) + COLUMNS[c], far = Math.max(0, Math.abs(COLUMNS[c]) - HALF);
    return [x, slope.bare(x, d) + (noise(c, d) - 0.5) * Math.min(4.5, far * 0.22), -d];
  }
  function lay(one, k) {
    one.of = k;
    var place = one.mesh.geometry.attributes.position, color = one.mesh.geometry.attributes.color, at = 0;
    for (var r = 0; r < CHUNK / ROW; r++) {
      for (var c = 0; c < COLUMNS.length - 1; c++) {
        var d = k * CHUNK + r * ROW, a = corner(d, c), b = corner(d, c + 1), e = corner(d + ROW, c), f = corner(d + ROW, c + 1);
        var on = COLUMNS[c] >= -HALF && COLUMNS[c + 1] <= HALF, edge = Math.abs(Math.abs(COLUMNS[c] + COLUMNS[c + 1]) / 2 - HALF) < 1;
        [[a, b, e], [b, f, e]].forEach(function (face, half) {
          var n = noise(c * 2 + half, d * 0.7);
          if (edge) tone.set(Kit.color.mix(p.path, p.ground2, 0.35 + n * 0.15));
          else if (on) tone.set(Kit.color.mix(p.ground, p.path, 0.34 + n * 0.2 + (c % 2) * 0.06));
          else tone.set(Kit.color.mix(p.ground, p.ground2, 0.05 + n * 0.4));
          face.forEach(function (v) {
            place.setXYZ(at, v[0], v[1], v[2]);
            color.setXYZ(at++, tone.r, tone.g, tone.b);
          });
        });
      }
    }
    place.needsUpdate = color.needsUpdate = true;
  }

  // ---- what stands beside the run ----
  var snowy = Kit.color.light(p.ground, 0.3), bark = Kit.color.mix(p.wall, "#6b3f1d", 0.65);
  var firParts = [{ shape: new THREE.CylinderGeometry(0.3, 0.4, 1.4, 6), at: [0, 0.5, 0], color: bark }];
  [[1.9, 2.4, 1.9], [1.5, 2.1, 3.2], [1.05, 1.9, 4.5]].forEach(function (s, i) {
    firParts.push({ shape: new THREE.ConeGeometry(s[0], s[1], 7), at: [0, s[2], 0], turn: [0, i, 0], rough: 0.12,
      color: Kit.color.light(p.wall, i * 0.1) });
    firParts.push({ shape: new THREE.ConeGeometry(s[0] * 0.56, s[1] * 0.52, 7), at: [0, s[2] + s[1] * 0.27, 0], turn: [0, i, 0], color: snowy });
  });
  var firs = stage.many(firParts, 70);
  var stone = Kit.color.mix(p.ground2, "#3b4468", 0.6);
  var rockParts = [
    { shape: new THREE.IcosahedronGeometry(1.15, 0), at: [0, 0.45, 0], scale: [1.2, 0.85, 1], rough: 0.3, color: function (x, y) { return y > 0.95 ? snowy : Kit.color.light(stone, noise(x, y) * 0.25); } },
    { shape: new THREE.IcosahedronGeometry(0.6, 0), at: [1.1, 0.2, 0.3], rough: 0.3, color: stone },
  ];
  var rocks = stage.many(rockParts, 40);
  slope.rocks = rocks;
  slope.firs = firs;
  var signs = stage.crowd(g.pictures.scenery[0], 5, Kit.color.light(p.ground, 0.4));

  // far mountains go along with the viewer
  var peaks = [], tip = Kit.color.light(p.ground, 0.2);
  for (i = 0; i < 26; i++) {
    var turn = (i / 26) * 6.283 + noise(i, 3) * 0.15, high = 60 + noise(i, 1) * 75, wide = 55 + noise(i, 2) * 40;
    peaks.push({
      shape: new THREE.ConeGeometry(wide, high, 6, 4), at: [Math.cos(turn) * 300, high * 0.5 - 62, Math.sin(turn) * 300], turn: [0, i, 0], rough: 0.2,
      color: (function (top) {
        return function (x, y, z) { return Kit.color.mix(y > top + noise(x, z) * 10 ? tip : Kit.color.mix(p.ground2, p.sky, 0.45), p.sky2, y < -10 ? 0.75 : 0.3); };
      })(high * 0.26),
    });
  }
  var range = stage.solid(peaks, new THREE.MeshLambertMaterial({ vertexColors: true, flatShading: true, fog: false }));
  stage.sky.add(range);

  function scatter(d0) {
    var first = Math.floor((d0 - 14) / 7);
    for (var k = first; k < first + 22; k++) {
      for (var side = -1; side <= 1; side += 2) {
        for (var j = 0; j < 2; j++) {
          var d = k * 7 + noise(k, side + j * 5) * 7, off = side * (HALF + 3.4 + Math.pow(noise(k + 9, side * 3 + j), 1.6) * 30);
          var x = slope.middle(d) + off, y = slope.bare(x, d) - 0.3, what = noise(k * 3 + j, side * 7);
          if (what < 0.55) firs.put(x, y, -d, 0.8 + noise(k, j + side) * 0.75, k);
          else if (what < 0.68) rocks.put(x, y, -d, 1 + noise(k, j) * 1.6, k * 2);
          else if (what < 0.82) signs.put(x, y + 2.4, -d);
        }
      }
    }
  }

  // show lays everything out for a viewer at d; the play has put its own rocks
  // and trees before.
  slope.show = function (d) {
    var first = Math.floor((d - 12) / CHUNK);
    for (var k = first; k < first + CHUNKS; k++) {
      var one = pieces[((k % CHUNKS) + CHUNKS) % CHUNKS];
      if (one.of !== k) lay(one, k);
    }
    scatter(d);
    firs.done();
    rocks.done();
    signs.done();
  };
  return slope;
};
