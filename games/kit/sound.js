// Kit.sound: a tiny synthesizer. No sound files, nothing to load.
//
//   Kit.sound.play("coin")     one of the sounds below
//   Kit.sound.music("happy")   a quiet tune: happy, calm, tense, space; "" stops it
//
// A browser allows sound only after the player has done something, so nothing
// is opened before Kit.sound.wake(), which the start button calls.
Kit.sound = (function () {
  "use strict";
  // wave, from Hz, to Hz, seconds, volume, how often it repeats higher
  var SOUNDS = {
    jump: ["square", 260, 620, 0.16, 0.12],
    coin: ["triangle", 880, 1320, 0.09, 0.22, 2],
    prize: ["triangle", 660, 990, 0.1, 0.22, 3],
    hit: ["sawtooth", 220, 50, 0.3, 0.2],
    pop: ["sine", 480, 900, 0.08, 0.25],
    step: ["sine", 180, 120, 0.05, 0.1],
    shoot: ["square", 900, 200, 0.12, 0.1],
    door: ["triangle", 220, 440, 0.16, 0.2, 2],
    turbo: ["sawtooth", 110, 330, 0.4, 0.12],
    tick: ["square", 700, 700, 0.05, 0.08],
    go: ["square", 1050, 1050, 0.3, 0.1],
    win: ["triangle", 523, 540, 0.14, 0.22, 5],
    lose: ["triangle", 330, 90, 0.6, 0.22],
    click: ["sine", 520, 760, 0.06, 0.18],
  };
  // notes are half-tones above a low C; 99 is a rest
  var TUNES = {
    happy: { beat: 0.2, lead: [12, 16, 19, 16, 21, 19, 16, 14, 12, 16, 19, 24, 21, 19, 16, 99], bass: [0, 0, 7, 7, 9, 9, 5, 7] },
    calm: { beat: 0.34, lead: [12, 99, 19, 99, 16, 99, 21, 19, 12, 99, 24, 99, 21, 19, 16, 99], bass: [0, 9, 5, 7] },
    tense: { beat: 0.22, lead: [12, 15, 12, 99, 18, 15, 12, 99, 11, 15, 11, 99, 17, 15, 11, 99], bass: [0, 0, 3, 3, -1, -1, 5, 5] },
    space: { beat: 0.26, lead: [12, 19, 24, 19, 14, 21, 26, 21, 16, 23, 28, 23, 14, 21, 26, 21], bass: [0, 2, 4, 2] },
  };
  var audio = null, out = null, tune = null, timer = 0, beat = 0, next = 0;

  function level() { return DreamCoreSDK2.mute ? 0 : 0.9; }
  function note(wave, from, to, at, length, volume) {
    var o = audio.createOscillator(), g = audio.createGain();
    o.type = wave;
    o.frequency.setValueAtTime(from, at);
    o.frequency.exponentialRampToValueAtTime(Math.max(20, to), at + length);
    g.gain.setValueAtTime(0.0001, at);
    g.gain.linearRampToValueAtTime(volume, at + 0.008);
    g.gain.exponentialRampToValueAtTime(0.0001, at + length + 0.08);
    o.connect(g);
    g.connect(out);
    o.start(at);
    o.stop(at + length + 0.1);
  }
  function hz(half) { return 130.8 * Math.pow(2, half / 12); }

  function compose() { // keeps the next quarter of a second written
    while (tune && audio && next < audio.currentTime + 0.25) {
      var lead = tune.lead[beat % tune.lead.length];
      if (lead !== 99) note("triangle", hz(lead + 12), hz(lead + 12), next, tune.beat * 0.7, 0.045);
      if (beat % 2 === 0) {
        var low = hz(tune.bass[(beat / 2) % tune.bass.length]);
        note("sine", low, low, next, tune.beat * 1.6, 0.1);
      }
      beat++;
      next += tune.beat;
    }
  }

  var sound = {
    wake: function () {
      try {
        if (!audio) {
          audio = new (window.AudioContext || window.webkitAudioContext)();
          out = audio.createGain();
          out.gain.value = level();
          out.connect(audio.destination);
        }
        if (audio.state === "suspended") audio.resume().catch(function () {});
      } catch (e) {
        audio = null; // a machine without sound: the game goes on in silence
      }
    },
    // play one sound; pitch 1 is as written, 2 is an octave higher.
    play: function (name, pitch) {
      var s = SOUNDS[name], p = pitch || 1;
      if (!audio || !s || DreamCoreSDK2.mute) return;
      for (var i = 0; i < (s[5] || 1); i++) {
        var up = p * Math.pow(1.26, i);
        note(s[0], s[1] * up, s[2] * up, audio.currentTime + i * s[3] * 0.8, s[3], s[4]);
      }
    },
    music: function (name) {
      clearInterval(timer);
      tune = TUNES[name] || null;
      if (!tune || !audio) return;
      beat = 0;
      next = audio.currentTime + 0.05;
      timer = setInterval(compose, 100);
    },
    // hush is for pauses: everything stops where it is.
    hush: function (quiet) {
      if (!audio) return;
      var change = quiet ? audio.suspend() : audio.resume();
      change.catch(function () {});
    },
  };
  DreamCoreSDK2.onMute(function () {
    if (out) out.gain.value = level();
  });
  return sound;
})();
