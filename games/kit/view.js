// Kit.view: the canvas, sharp on every screen, in portrait and in landscape.
//
// A game draws in its own units. Kit.view.w and Kit.view.h say how many there
// are on this screen: at least the base size that the game asked for, and more
// in the direction in which the screen is longer.
Kit.view = (function () {
  "use strict";
  var canvas = null, ctx = null, listeners = [];
  var base = { landscape: [960, 540], portrait: [540, 960] };
  var view = { w: 960, h: 540, scale: 1, portrait: false, ctx: null, canvas: null };

  function fit() {
    var cssW = Math.max(1, window.innerWidth), cssH = Math.max(1, window.innerHeight);
    var dpr = Math.min(window.devicePixelRatio || 1, 2);
    view.portrait = cssH > cssW;
    var size = view.portrait ? base.portrait : base.landscape;
    view.css = Math.min(cssW / size[0], cssH / size[1]); // css pixels in one unit
    view.scale = view.css * dpr;
    view.w = cssW / view.css;
    view.h = cssH / view.css;
    canvas.width = Math.round(cssW * dpr);
    canvas.height = Math.round(cssH * dpr);
    listeners.forEach(function (fn) { fn(view); });
  }

  // open puts the canvas on the page; sizes = {landscape: [w, h], portrait: [w, h]}.
  view.open = function (sizes) {
    base = Object.assign(base, sizes);
    canvas = document.createElement("canvas");
    canvas.className = "kit-canvas";
    canvas.tabIndex = 0; // so that it can have the keyboard
    canvas.width = 960;
    canvas.height = 540;
    document.body.insertBefore(canvas, document.body.firstChild);
    ctx = canvas.getContext("2d", { alpha: false });
    view.ctx = ctx;
    view.canvas = canvas;
    window.addEventListener("resize", fit);
    fit();
  };

  // onResize: fn runs now and whenever the screen changes.
  view.onResize = function (fn) { listeners.push(fn); };

  // begin clears the frame and sets the units.
  view.begin = function () {
    ctx.setTransform(view.scale, 0, 0, view.scale, 0, 0);
    ctx.globalAlpha = 1;
    return ctx;
  };

  // fromPage turns a place on the page into a place in the game.
  view.fromPage = function (x, y) { return { x: x / view.css, y: y / view.css }; };
  return view;
})();
