// DreamCoreSDK2: the only thing that a game says to the page around it.
//
// Every message, in both directions, is {dreamcore: 2, type: "...", ...}.
//   game to page:  ready, start, end {score, won}, retry, share {score},
//                  mute {value}, storage {key, value}
//   page to game:  pause, resume, retry, mute {value}, language {value},
//                  storage {entries}
// Outside the platform (the game is not in a frame) nothing is sent and
// everything else still works. Nothing is sent before the game calls something.
(function () {
  "use strict";
  var LANGUAGES = ["en", "ja", "zh"];
  var framed = window.parent !== window;
  var query = new URLSearchParams(location.search);
  var pauseFns = [], resumeFns = [], languageFns = [], muteFns = [];
  var retryFn = null, probeFn = null;
  var playing = false, lastScore = 0;

  function send(type, fields) {
    if (!framed) return;
    // "*": a game may run in an opaque origin, and says nothing secret.
    window.parent.postMessage(Object.assign({ dreamcore: 2, type: type }, fields), "*");
  }

  function call(fns, value) {
    fns.slice().forEach(function (fn) { fn(value); });
  }

  function known(tag) {
    var short = String(tag || "").slice(0, 2).toLowerCase();
    return LANGUAGES.indexOf(short) >= 0 ? short : "";
  }

  // Storage: localStorage where the origin has one, else memory that the
  // page around the game may keep for us.
  var memory = {};
  var disk = (function () {
    try {
      var probe = "dreamcore.probe";
      window.localStorage.setItem(probe, "1");
      window.localStorage.removeItem(probe);
      return window.localStorage;
    } catch (e) {
      return null; // an opaque origin, or storage is switched off
    }
  })();
  var storage = {
    get: function (key, fallback) {
      var text = null;
      try {
        text = disk ? disk.getItem("game." + key) : null;
      } catch (e) {
        text = null;
      }
      if (text === null && Object.prototype.hasOwnProperty.call(memory, key)) text = memory[key];
      if (text === null) return fallback;
      try {
        return JSON.parse(text);
      } catch (e) {
        return fallback;
      }
    },
    set: function (key, value) {
      var text = JSON.stringify(value);
      memory[key] = text;
      try {
        if (disk) disk.setItem("game." + key, text);
      } catch (e) {
        disk = null; // full or forbidden: memory still has it
      }
      send("storage", { key: key, value: text });
    },
  };

  var language = known(query.get("lang")) || known(navigator.language) || "en";
  var mute = query.get("mute") === "1" || storage.get("mute", false) === true;

  function setMute(value, tell) {
    mute = !!value;
    call(muteFns, mute);
    if (tell) {
      storage.set("mute", mute);
      send("mute", { value: mute });
    }
  }

  var sdk = {
    version: 2,
    // inPlatform is true when a page is around the game that can share it.
    inPlatform: framed,
    // ready: everything is loaded, the title is on the screen.
    ready: function () { send("ready"); },
    // start: a play begins, because the player asked for it.
    start: function () {
      playing = true;
      send("start");
    },
    // end: a play is over. Said once per start.
    end: function (result) {
      if (!playing) return;
      playing = false;
      lastScore = Number(result && result.score) || 0;
      send("end", { score: lastScore, won: !!(result && result.won) });
    },
    // retry(fn): fn begins a new play. retry(): does so.
    retry: function (fn) {
      if (typeof fn === "function") {
        retryFn = fn;
      } else if (retryFn) {
        send("retry");
        retryFn();
      }
    },
    // share: asks the page to offer the game's link.
    share: function () { send("share", { score: lastScore }); },
    onPause: function (fn) { pauseFns.push(fn); },
    onResume: function (fn) { resumeFns.push(fn); },
    onLanguage: function (fn) { languageFns.push(fn); },
    onMute: function (fn) { muteFns.push(fn); },
    get language() { return language; },
    set language(tag) {
      if (!known(tag) || known(tag) === language) return;
      language = known(tag);
      call(languageFns, language);
    },
    get mute() { return mute; },
    set mute(value) { setMute(value, true); },
    storage: storage,
    // random(seed) gives a function like Math.random that repeats itself.
    random: function (seed) {
      var text = String(seed), h = 1779033703;
      for (var i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 3432918353), h = (h << 13) | (h >>> 19);
      return function () {
        h = (h + 0x6d2b79f5) | 0;
        var t = Math.imul(h ^ (h >>> 15), 1 | h);
        t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
        return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
      };
    },
    // probe(fn): fn tells {player: {x, y, z?}, state, score}. probe(): asks it.
    probe: function (fn) {
      if (typeof fn === "function") {
        probeFn = fn;
        return undefined;
      }
      return probeFn ? probeFn() : undefined;
    },
  };

  window.addEventListener("message", function (event) {
    var m = event.data;
    if (!framed || event.source !== window.parent || !m || m.dreamcore !== 2) return;
    if (m.type === "pause") call(pauseFns);
    else if (m.type === "resume") call(resumeFns);
    else if (m.type === "retry" && retryFn) retryFn();
    else if (m.type === "mute") setMute(m.value, false);
    else if (m.type === "language") sdk.language = m.value;
    else if (m.type === "storage" && m.entries) {
      Object.keys(m.entries).forEach(function (key) {
        if (typeof m.entries[key] === "string" && !(key in memory)) memory[key] = m.entries[key];
      });
    }
  });

  window.DreamCoreSDK2 = sdk;
})();
