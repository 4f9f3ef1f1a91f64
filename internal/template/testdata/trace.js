// Runs before a game's own scripts. It takes the clock, paints nothing, and
// keeps a hash of everything that would have been painted and of the words at
// the top, so that two plays can be compared.
(function () {
  "use strict";
  var now = 0, next = [], hash = 0;
  performance.now = function () { return now; };
  window.requestAnimationFrame = function (fn) { return next.push(fn); };
  function add(text) {
    for (var i = 0; i < text.length; i++) hash = (Math.imul(hash, 31) + text.charCodeAt(i)) | 0;
  }
  function plain(v) { return typeof v === "number" ? v.toFixed(2) : typeof v === "string" ? v : ""; }
  var P = CanvasRenderingContext2D.prototype;
  ["drawImage", "fillRect", "fill", "stroke", "fillText", "strokeText", "arc", "ellipse", "moveTo", "lineTo", "arcTo", "createRadialGradient"].forEach(function (name) {
    var real = P[name], makes = name === "createRadialGradient";
    P[name] = function () {
      add(name + plain(this.fillStyle) + plain(this.strokeStyle) + this.globalAlpha + Array.prototype.map.call(arguments, plain).join());
      var m = this.getTransform();
      add(m.a.toFixed(2) + m.b.toFixed(2) + m.e.toFixed(1) + m.f.toFixed(1));
      return makes ? real.apply(this, arguments) : undefined;
    };
  });
  var stop = CanvasGradient.prototype.addColorStop;
  CanvasGradient.prototype.addColorStop = function (at, colour) {
    add(at + colour);
    stop.call(this, at, colour);
  };
  // 3D: the numbers that go to the graphics card; they hold places and colours.
  function count(v) {
    if (typeof v === "number") hash = (Math.imul(hash, 31) + Math.round(v * 100)) | 0;
    else if (v instanceof Float32Array || Array.isArray(v)) for (var i = 0; i < v.length; i++) count(v[i]);
  }
  var G = WebGL2RenderingContext.prototype;
  ["uniform1f", "uniform2f", "uniform3f", "uniform4f", "uniform1fv", "uniform2fv", "uniform3fv", "uniform4fv", "uniformMatrix3fv", "uniformMatrix4fv", "bufferData", "bufferSubData"].forEach(function (name) {
    var real = G[name];
    G[name] = function () {
      for (var i = 1; i < arguments.length; i++) count(arguments[i]);
      return real.apply(this, arguments);
    };
  });
  ["drawArrays", "drawElements", "drawArraysInstanced", "drawElementsInstanced", "clear"].forEach(function (name) { G[name] = function () {}; });
  function key(kind, code) { window.dispatchEvent(new KeyboardEvent(kind, { code: code, bubbles: true })); }

  // play starts the game, presses keys for so many frames, of which every
  // so-many-th is painted, and tells the hash.
  window.play = function (frames, every) {
    var keys = ["ArrowRight", "ArrowRight", "Space", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowLeft", "ArrowDown"], held = "";
    key("keydown", "Enter");
    for (var i = 0; i < frames; i++) {
      if (i % 45 === 0) {
        if (held) key("keyup", held);
        held = keys[(i / 45) % keys.length];
        key("keydown", held);
      }
      now += 1000 / 60;
      if (i % every) continue;
      var due = next;
      next = [];
      due.forEach(function (fn) { fn(now); });
      if (i % 15 === 0) add(document.querySelector(".kit-bar").textContent);
    }
    return hash;
  };
})();
