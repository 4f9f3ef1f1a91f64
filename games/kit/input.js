// Kit.input: keyboard, mouse, touch and the on-screen pad, all in one.
//
//   Kit.input.left/right/up/down/action   held now
//   Kit.input.pressed("action")           went down since the last step
//   Kit.input.axis()                      {x, y}, each from -1 to 1
//   Kit.input.pointer                     {x, y, down, pressed, moved, touch} in game units
//
// With controls.stick a finger anywhere on the picture is a joystick: then use
// axis() for fingers and follow the pointer only when it is not a touch.
Kit.input = (function () {
  "use strict";
  var KEYS = {
    ArrowLeft: "left", KeyA: "left", ArrowRight: "right", KeyD: "right",
    ArrowUp: "up", KeyW: "up", ArrowDown: "down", KeyS: "down",
    Space: "action", KeyZ: "action", KeyX: "action",
  };
  var names = ["left", "right", "up", "down", "action"];
  var keys = {}, pad = {}, fresh = {}; // names held by keys, by the pad; just pressed
  var stick = null; // {x0, y0, x, y} while a finger steers
  var pointer = { x: 0, y: 0, down: false, pressed: false, moved: false, touch: false };
  var wanted = { pad: [], stick: false };
  var input = {
    pointer: pointer,
    get active() { return document.body.classList.contains("kit-playing"); },
    // active while one plays: then the pad shows, and Space is never a button's
    set active(on) { document.body.classList.toggle("kit-playing", on); },
  };

  names.forEach(function (name) {
    Object.defineProperty(input, name, {
      get: function () {
        if (keys[name] || pad[name]) return true;
        var a = stickAxis();
        return name === "left" ? a.x < -0.4 : name === "right" ? a.x > 0.4 : name === "up" ? a.y < -0.4 : name === "down" ? a.y > 0.4 : false;
      },
    });
  });

  function stickAxis() {
    if (!stick) return { x: 0, y: 0 };
    var dx = stick.x - stick.x0, dy = stick.y - stick.y0, d = Math.hypot(dx, dy);
    if (d < 8) return { x: 0, y: 0 };
    var k = Math.min(1, d / 48) / d;
    return { x: dx * k, y: dy * k };
  }

  input.axis = function () {
    var a = stickAxis();
    var x = (keys.right || pad.right ? 1 : 0) - (keys.left || pad.left ? 1 : 0);
    var y = (keys.down || pad.down ? 1 : 0) - (keys.up || pad.up ? 1 : 0);
    if (x && y) x *= Math.SQRT1_2, y *= Math.SQRT1_2; // a slant is not faster
    return { x: x || a.x, y: y || a.y };
  };
  input.pressed = function (name) { return !!fresh[name]; };

  // endStep forgets what was new in this step.
  input.endStep = function () {
    fresh = {};
    pointer.pressed = false;
    pointer.moved = false;
  };
  // clear lets go of everything: a new play, a pause.
  input.clear = function () {
    keys = {};
    pad = {};
    stick = null;
    pointer.down = false;
    input.endStep();
    drawStick();
  };

  function press(name) {
    if (!keys[name] && !pad[name]) fresh[name] = true;
  }

  window.addEventListener("keydown", function (event) {
    var name = KEYS[event.code];
    if (!name || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.tagName === "BUTTON" && !input.active) return; // let a focused button be pressed
    event.preventDefault(); // arrows and Space must not scroll the page
    if (!event.repeat) press(name);
    keys[name] = true;
  });
  window.addEventListener("keyup", function (event) {
    var name = KEYS[event.code];
    if (name) keys[name] = false;
  });
  window.addEventListener("blur", function () { keys = {}; });

  // ---- pointer: mouse and finger ----
  function place(event) {
    var p = Kit.view.fromPage(event.clientX, event.clientY);
    pointer.x = p.x;
    pointer.y = p.y;
    pointer.touch = event.pointerType === "touch";
  }
  var stickEl = null;
  function drawStick() {
    if (!wanted.stick || !document.body) return;
    if (!stickEl) {
      stickEl = document.createElement("div");
      stickEl.className = "kit-stick";
      stickEl.appendChild(document.createElement("i"));
      document.body.appendChild(stickEl);
    }
    stickEl.style.display = stick ? "block" : "none";
    if (!stick) return;
    var a = stickAxis();
    stickEl.style.left = stick.x0 + "px";
    stickEl.style.top = stick.y0 + "px";
    stickEl.firstChild.style.transform = "translate(" + a.x * 36 + "px," + a.y * 36 + "px)";
  }

  // listen starts hearing the canvas. options = {stick: bool, pad: ["left", "right", "action", ...]}
  input.listen = function (canvas, options) {
    wanted = Object.assign(wanted, options);
    canvas.addEventListener("pointerdown", function (event) {
      event.preventDefault();
      canvas.focus({ preventScroll: true }); // in a frame, keys arrive only after this
      place(event);
      pointer.down = true;
      pointer.pressed = true;
      if (event.pointerType === "touch") input.showPad();
      if (wanted.stick && event.pointerType === "touch") stick = { x0: event.clientX, y0: event.clientY, x: event.clientX, y: event.clientY, id: event.pointerId };
      drawStick();
    });
    canvas.addEventListener("pointermove", function (event) {
      place(event);
      pointer.moved = true;
      if (stick && stick.id === event.pointerId) stick.x = event.clientX, stick.y = event.clientY;
      drawStick();
    });
    function up() {
      pointer.down = false;
      stick = null;
      drawStick();
    }
    window.addEventListener("pointerup", up);
    window.addEventListener("pointercancel", up);
    canvas.addEventListener("contextmenu", function (event) { event.preventDefault(); });
    if (matchMedia("(pointer: coarse)").matches || navigator.maxTouchPoints > 0) input.showPad();
  };

  // ---- the on-screen pad ----
  var SIGNS = { left: "◀", right: "▶", up: "▲", down: "▼", action: "●" };
  var padEl = null;
  input.showPad = function () {
    if (padEl || !wanted.pad.length) return;
    padEl = document.createElement("div");
    padEl.className = "kit-pad";
    ["left", "right", "down", "up", "action"].forEach(function (name) {
      if (wanted.pad.indexOf(name) < 0) return;
      var key = document.createElement("div");
      key.className = "kit-key kit-key-" + name;
      key.textContent = SIGNS[name];
      key.addEventListener("pointerdown", function (event) {
        event.preventDefault();
        press(name);
        pad[name] = true;
      });
      ["pointerup", "pointercancel", "pointerleave"].forEach(function (kind) {
        key.addEventListener(kind, function () { pad[name] = false; });
      });
      padEl.appendChild(key);
    });
    document.body.appendChild(padEl);
  };
  return input;
})();
