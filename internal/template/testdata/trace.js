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
  function key(kind, code) { window.dispatchEvent(new KeyboardEvent(kind, { code: code, bubbles: true })); }

  // play starts the game, presses keys for so many frames, and tells the hash.
  window.play = function (frames) {
    var keys = ["ArrowRight", "ArrowRight", "Space", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowLeft", "ArrowDown"], held = "";
    key("keydown", "Enter");
    for (var i = 0; i < frames; i++) {
      if (i % 45 === 0) {
        if (held) key("keyup", held);
        held = keys[(i / 45) % keys.length];
        key("keydown", held);
      }
      now += 1000 / 60;
      var due = next;
      next = [];
      due.forEach(function (fn) { fn(now); });
      if (i % 15 === 0) add(document.querySelector(".kit-bar").textContent);
    }
    return hash;
  };
})();
