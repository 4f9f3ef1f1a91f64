// Kit.game: the frame of every 2D game: it loads game.json, the pictures and
// the levels, shows title, pause and end, runs the clock, and calls the game:
//
//   Kit.game({
//     hud: ["score", "lives"],            also "time", "level", "goal"
//     controls: {stick: true, pad: []},   see Kit.input.listen
//     music: "happy",
//     begin: function (g) {},             a new play: make everything afresh
//     step: function (g, dt) {},          1/60 second of play
//     draw: function (g, ctx) {},         paint what there is
//     player: function (g) {},            {x, y} of the hero, in 3D {x, y, z}
//   });
//
// g.data is game.json; g.numbers, g.rules and g.palette are parts of it.
Kit.game = function (play) {
  "use strict";
  var STEP = 1 / 60, MERCY = 1.4; // seconds of blinking after a hit
  var g = {
    data: null, numbers: {}, rules: {}, palette: {}, pictures: {}, levels: [], hud: play.hud || ["score"],
    state: "loading", // loading, title, play, ending, over
    score: 0, lives: 0, time: 0, won: false, stars: 0, best: 0, record: false, mercy: 0,
    clock: 0,   // seconds since loading, also while the title shows
    elapsed: 0, // seconds of this play
    random: null, fx: null, input: Kit.input, view: Kit.view,
  };
  var screens = null, paused = false, last = 0, owed = 0, endTimer = 0, seed = "";
  var cheer = null; // confetti, in front of everything

  // words gives a text of game.json with {hero}, {foe}, {prize} filled in.
  g.words = function (key) {
    function name(x) { return x ? Kit.text(x.name) : ""; }
    return Kit.text((g.data.texts || {})[key], {
      hero: name(g.data.hero), foe: name((g.data.foes || [])[0]), prize: name((g.data.prizes || [])[0]), goal: g.numbers.goal,
    });
  };

  // add gives points at a place.
  g.add = function (points, x, y, tone) {
    g.score = Math.max(0, g.score + points);
    if (x !== undefined) g.fx.say(x, y, (points > 0 ? "+" : "") + points, tone || g.palette.accent);
  };
  // hurt costs a life, and says whether it did: just after a hit one is safe.
  // With the rule "lives" off nobody dies: a hit costs points.
  g.hurt = function (x, y) {
    if (g.mercy > 0 || g.state !== "play") return false;
    g.mercy = MERCY;
    g.fx.shake(12);
    g.fx.flash("#ff3b4e", 0.35);
    g.fx.burst(x, y, 22, { colors: ["#ffffff", "#ff6b6b", g.palette.accent], speed: 260 });
    Kit.sound.play("hit");
    if (g.rules.lives === false) g.add(-5);
    else if (--g.lives <= 0) g.end(false);
    return true;
  };
  g.blinking = function () { return g.mercy > 0 && Math.floor(g.clock * 12) % 2 === 0; };
  // end finishes the play; stars (1 to 3) rate a win.
  g.end = function (won, stars) {
    if (g.state !== "play") return;
    g.state = "ending";
    g.won = won;
    g.stars = won ? stars || 3 : 0;
    endTimer = 1.1;
    g.best = Number(DreamCoreSDK2.storage.get("best", 0)) || 0;
    g.record = g.score > g.best;
    if (g.record) DreamCoreSDK2.storage.set("best", (g.best = g.score));
    Kit.sound.music("");
    Kit.sound.play(won ? "win" : "lose");
    if (won) {
      for (var i = 0; i < 5; i++) {
        cheer.burst(g.view.w * (0.1 + 0.2 * i), g.view.h * 0.3, 26, { colors: ["#ff5d8f", "#ffd23f", "#3bceac", "#4d9de0", "#ffffff"], speed: 420, life: 1.6, size: 7 });
      }
    }
    DreamCoreSDK2.end({ score: g.score, won: won });
  };

  function fresh() { // all of a play that the kit owns
    g.score = g.elapsed = g.mercy = 0;
    g.won = g.record = false;
    g.lives = g.numbers.lives || 3;
    g.time = g.numbers.time || 60;
    g.random = DreamCoreSDK2.random(seed);
    g.fx = Kit.effects();
    cheer = Kit.effects();
    Kit.input.clear();
    play.begin(g);
  }
  function start() {
    if (g.state !== "title" && g.state !== "over" && g.state !== "play" && g.state !== "ending") return;
    fresh();
    g.state = "play";
    paused = false;
    owed = 0;
    Kit.input.active = true;
    screens.show("");
    tell();
    Kit.view.canvas.focus({ preventScroll: true });
    Kit.sound.wake();
    Kit.sound.hush(false);
    Kit.sound.play("go");
    Kit.sound.music(g.data.music || play.music || "happy");
    DreamCoreSDK2.start();
  }
  function pause() {
    if (g.state !== "play" || paused) return;
    paused = true;
    Kit.input.clear();
    Kit.input.active = false;
    Kit.sound.hush(true);
    screens.show("paused");
  }
  function resume() {
    if (!paused) return;
    paused = false;
    Kit.input.active = true;
    Kit.sound.hush(false);
    screens.show("");
  }

  function tell() {
    screens.tell("score", String(g.score));
    screens.tell("lives", g.rules.lives === false ? "∞" : "×" + Math.max(0, g.lives));
    screens.tell("time", g.rules.timed === false ? "" : Math.ceil(Math.max(0, g.time)) + "s");
    screens.tell("level", g.levelText || "");
    screens.tell("goal", g.goalText || "");
  }

  function step() {
    g.clock += STEP;
    if (g.state === "play") {
      g.elapsed += STEP;
      g.mercy = Math.max(0, g.mercy - STEP);
      if (g.rules.timed) g.time -= STEP;
      play.step(g, STEP);
      if (g.rules.timed && g.time <= 0 && g.state === "play") {
        if (play.timeUp) play.timeUp(g);
        else g.end(false);
      }
      tell();
    } else if (g.state === "ending" && (endTimer -= STEP) <= 0) {
      g.state = "over";
      Kit.input.active = false;
      screens.show("over");
    }
    g.fx.step(STEP);
    cheer.step(STEP);
    Kit.input.endStep();
  }
  function frame(now) {
    requestAnimationFrame(frame);
    owed = Math.min(0.1, owed + Math.max(0, now - last) / 1000); // never more than six steps
    last = now;
    if (paused) owed = 0;
    while (owed > STEP - 0.0001) {
      owed -= STEP;
      step();
    }
    var ctx = Kit.view.begin();
    play.draw(g, ctx);
    Kit.view.begin();
    g.fx.cover(ctx);
    cheer.draw(ctx);
  }

  function picture(source) {
    return new Promise(function (done, fail) {
      var i = new Image();
      i.onload = function () { done(i); };
      i.onerror = function () { fail(new Error("cannot load " + source)); };
      i.crossOrigin = "anonymous"; // else an opaque origin could not make a texture of it
      i.src = source;
    });
  }
  function json(source) {
    return fetch(source).then(function (answer) {
      if (!answer.ok) throw new Error("cannot load " + source + ": " + answer.status);
      return answer.json();
    });
  }
  function pictures(list) { return Promise.all((list || []).map(function (x) { return picture(x.picture); })); }

  function open() {
    g.numbers = g.data.numbers || {};
    g.rules = g.data.rules || {};
    g.palette = g.rules.night ? Kit.night(g.data.palette) : g.data.palette;
    // ?seed=7 repeats a play; without it every visit is a new one
    seed = new URLSearchParams(location.search).get("seed") || String(Math.random());
    Kit.view.open(play.sizes || {});
    Kit.input.listen(Kit.view.canvas, play.controls || {});
    screens = Kit.screens(g, { start: start, retry: function () { DreamCoreSDK2.retry(); }, pause: pause, resume: resume });
    if (play.load) play.load(g);
    fresh();
    g.state = "title";
    screens.show("title");
    DreamCoreSDK2.retry(start);
    DreamCoreSDK2.probe(function () {
      var p = play.player(g);
      return { player: p.z === undefined ? { x: p.x, y: p.y } : { x: p.x, y: p.y, z: p.z }, state: paused ? "paused" : g.state, score: g.score };
    });
    DreamCoreSDK2.onPause(pause);
    DreamCoreSDK2.onResume(resume);
    document.addEventListener("visibilitychange", function () { if (document.hidden) pause(); });
    window.addEventListener("keydown", function (event) {
      if (event.repeat) return;
      var go = event.code === "Enter" || event.code === "Space";
      if (go && event.target.tagName === "BUTTON") return; // the button has its own click
      if (go && g.state === "title") start();
      else if (go && g.state === "over") DreamCoreSDK2.retry();
      else if (event.code === "Enter" && paused) resume();
      else if (event.code === "Escape" || event.code === "KeyP") paused ? resume() : pause();
      else if (event.code === "KeyM") DreamCoreSDK2.mute = !DreamCoreSDK2.mute;
      else return;
      event.preventDefault();
    });
    last = performance.now();
    requestAnimationFrame(frame);
    DreamCoreSDK2.ready();
  }

  json("game.json").then(function (data) {
    g.data = data;
    return Promise.all([picture(data.hero.picture), pictures(data.foes), pictures(data.prizes), pictures(data.scenery), Promise.all((data.levels || []).map(json))]);
  }).then(function (all) {
    g.pictures = { hero: all[0], foes: all[1], prizes: all[2], scenery: all[3] };
    g.levels = all[4];
    open();
  }).catch(function (problem) {
    var line = document.createElement("p");
    line.className = "kit-problem";
    line.textContent = String(problem.message || problem);
    document.body.appendChild(line);
    throw problem; // seen by whoever tests the game
  });
  return g;
};
