// Kit: small plain scripts for 2D games. This file: numbers, colours, words.
window.Kit = (function () {
  "use strict";

  // clamp keeps v between low and high.
  function clamp(v, low, high) { return v < low ? low : v > high ? high : v; }

  // mix goes from a to b as t goes from 0 to 1.
  function mix(a, b, t) { return a + (b - a) * t; }

  // near moves v towards goal by step at most.
  function near(v, goal, step) { return v < goal ? Math.min(v + step, goal) : Math.max(v - step, goal); }

  // distance between two things that have x and y.
  function distance(a, b) { return Math.hypot(a.x - b.x, a.y - b.y); }

  // touching: two circles {x, y, r} overlap.
  function touching(a, b) { return distance(a, b) < a.r + b.r; }

  // text picks the player's language out of {en, ja, zh} and fills {slots}.
  function text(words, slots) {
    if (words === undefined || words === null) return "";
    var s = typeof words === "string" ? words : words[DreamCoreSDK2.language] || words.en || "";
    return s.replace(/\{(\w+)\}/g, function (all, key) { return slots && key in slots ? slots[key] : all; });
  }

  // ---- colours are "#rrggbb" ----
  function rgb(hex) {
    var n = parseInt(String(hex).slice(1), 16) || 0;
    return [n >> 16, (n >> 8) & 255, n & 255];
  }
  function hex(parts) {
    return "#" + parts.map(function (v) { return (256 + clamp(Math.round(v), 0, 255)).toString(16).slice(1); }).join("");
  }
  var color = {
    mix: function (a, b, t) {
      var p = rgb(a), q = rgb(b);
      return hex([mix(p[0], q[0], t), mix(p[1], q[1], t), mix(p[2], q[2], t)]);
    },
    light: function (c, t) { return color.mix(c, "#ffffff", t); },
    dark: function (c, t) { return color.mix(c, "#0b1026", t); },
    // alpha gives a see-through form of a colour, a from 0 to 1.
    alpha: function (c, a) { return "rgba(" + rgb(c).join(",") + "," + a + ")"; },
    // bright tells how light a colour looks, 0 to 1.
    bright: function (c) {
      var p = rgb(c);
      return (p[0] * 0.3 + p[1] * 0.59 + p[2] * 0.11) / 255;
    },
  };

  // night turns a day's palette {role: colour} into a night's.
  function night(palette) {
    var dark = {};
    Object.keys(palette).forEach(function (role) {
      var deep = /^sky/.test(role) ? 0.72 : role === "accent" || role === "text" ? 0 : 0.45;
      dark[role] = color.mix(palette[role], "#0d1440", deep);
    });
    return dark;
  }

  return { clamp: clamp, mix: mix, near: near, distance: distance, touching: touching, text: text, color: color, night: night };
})();
