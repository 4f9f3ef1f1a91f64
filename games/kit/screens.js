// Kit.screens: what lies over the picture: title, pause, end, and the line at
// the top with score, lives, time and the buttons.
Kit.screens = function (g, actions) {
  "use strict";
  var WORDS = {
    play: { en: "Play", ja: "スタート", zh: "开始" },
    again: { en: "Play again", ja: "もう一度", zh: "再玩一次" },
    resume: { en: "Continue", ja: "つづける", zh: "继续" },
    share: { en: "Share", ja: "シェア", zh: "分享" },
    paused: { en: "Paused", ja: "ポーズ中", zh: "暂停" },
    best: { en: "Best {n}", ja: "ベスト {n}", zh: "最高 {n}" },
    record: { en: "New record!", ja: "新記録！", zh: "新纪录！" },
    won: { en: "You did it!", ja: "クリア！", zh: "成功了！" },
    lost: { en: "So close!", ja: "おしい！", zh: "差一点！" },
    pause: { en: "Pause", ja: "ポーズ", zh: "暂停" },
    sound: { en: "Sound", ja: "音", zh: "声音" },
    keys: { en: "Keys", ja: "キー", zh: "键盘" },
    touch: { en: "Touch", ja: "タッチ", zh: "触屏" },
  };
  var LANGUAGES = { en: "English", ja: "日本語", zh: "中文" };

  // make builds one element: make("div", "class", parent, "text").
  function make(tag, name, parent, words) {
    var e = document.createElement(tag);
    if (name) e.className = name;
    if (words !== undefined) e.textContent = words;
    if (parent) parent.appendChild(e);
    return e;
  }
  function button(name, parent, words, label, fn) {
    var b = make("button", name, parent, words);
    b.type = "button";
    b.setAttribute("aria-label", label || words);
    b.addEventListener("click", function () {
      b.blur(); // so that Space plays and does not press it again
      Kit.sound.wake();
      Kit.sound.play("click");
      fn();
    });
    return b;
  }
  function picture(source, name, parent) {
    var i = make("img", name, parent);
    i.src = source;
    i.alt = "";
    i.draggable = false;
    return i;
  }
  function sources(list) { return (list || []).map(function (x) { return x.picture; }); }

  var root = make("div", "kit-ui", document.body), data = g.data;
  root.style.setProperty("--accent", g.palette.accent);
  root.style.setProperty("--ink", Kit.color.bright(g.palette.accent) > 0.55 ? Kit.color.dark(g.palette.accent, 0.8) : "#ffffff");
  root.style.setProperty("--shade", Kit.color.dark(g.palette.sky, 0.75));

  // ---- the line at the top ----
  var bar = make("div", "kit-bar", root), pills = {};
  function pill(name, icon) {
    var p = make("div", "kit-pill kit-pill-" + name, bar);
    if (icon) picture(icon, "kit-icon", p);
    pills[name] = make("span", "", p);
  }
  (g.hud || ["score"]).forEach(function (name) {
    pill(name, name === "score" ? sources(data.prizes)[0] : name === "lives" ? data.hero.picture : "");
  });
  make("div", "kit-gap", bar);
  var pauseButton = button("kit-round", bar, "II", "", actions.pause);
  var muteButton = button("kit-round", bar, "", "", function () { DreamCoreSDK2.mute = !DreamCoreSDK2.mute; });

  // ---- the cards ----
  var cards = {};
  ["title", "paused", "over"].forEach(function (name) { cards[name] = make("div", "kit-card kit-" + name, root); });

  function fillTitle(card) {
    var stage = make("div", "kit-stage", card), foes = sources(data.foes), prizes = sources(data.prizes);
    make("div", "kit-rays", stage);
    if (prizes[0]) picture(prizes[0], "kit-guest kit-guest-1", stage);
    if (foes[0]) picture(foes[0], "kit-guest kit-guest-2", stage);
    if (prizes[prizes.length - 1]) picture(prizes[prizes.length - 1], "kit-guest kit-guest-3", stage);
    picture(data.hero.picture, "kit-hero", stage);
    var side = make("div", "kit-side", card);
    var title = make("h1", "", side, Kit.text(data.title)), longest = 0;
    title.textContent.split(" ").forEach(function (word) { // width of the longest word, in letters as wide as they are high
      var width = 0;
      for (var i = 0; i < word.length; i++) width += word.charCodeAt(i) > 0x2e7f ? 1.02 : 0.6;
      longest = Math.max(longest, width);
    });
    title.style.setProperty("--longest", Math.max(4, longest));
    make("p", "kit-goal", side, g.words("goal"));
    button("kit-big", side, Kit.text(WORDS.play), "", actions.start);
    var how = make("div", "kit-how", side), line;
    line = make("p", "kit-how-keys", how);
    make("b", "", line, Kit.text(WORDS.keys));
    make("span", "", line, g.words("keys"));
    line = make("p", "kit-how-touch", how);
    make("b", "", line, Kit.text(WORDS.touch));
    make("span", "", line, g.words("touch"));
    var row = make("div", "kit-languages", card);
    Object.keys(LANGUAGES).forEach(function (tag) {
      var on = tag === DreamCoreSDK2.language;
      button("kit-chip" + (on ? " kit-on" : ""), row, LANGUAGES[tag], "", function () { DreamCoreSDK2.language = tag; });
    });
  }
  function fillPaused(card) {
    make("h2", "", card, Kit.text(WORDS.paused));
    button("kit-big", card, Kit.text(WORDS.resume), "", actions.resume);
    button("kit-small", card, Kit.text(WORDS.again), "", actions.retry);
  }
  function fillOver(card) {
    var panel = make("div", "kit-panel", card);
    picture(data.hero.picture, "kit-hero" + (g.won ? "" : " kit-sad"), panel);
    make("h2", "", panel, g.won ? g.words("won") || Kit.text(WORDS.won) : g.words("lost") || Kit.text(WORDS.lost));
    var stars = make("div", "kit-stars", panel);
    for (var i = 0; i < 3; i++) make("i", i < g.stars ? "kit-on" : "", stars, "★");
    make("div", "kit-score", panel, String(g.score));
    make("div", "kit-best", panel, g.record ? Kit.text(WORDS.record) : Kit.text(WORDS.best, { n: g.best }));
    button("kit-big", panel, Kit.text(WORDS.again), "", actions.retry);
    if (DreamCoreSDK2.inPlatform) button("kit-small", panel, Kit.text(WORDS.share), "", function () { DreamCoreSDK2.share(); });
  }
  var fill = { title: fillTitle, paused: fillPaused, over: fillOver };

  function refresh() {
    Object.keys(cards).forEach(function (name) {
      var open = name === shown;
      cards[name].textContent = "";
      cards[name].style.display = open ? "" : "none";
      if (open) fill[name](cards[name]);
    });
    bar.style.display = shown === "title" ? "none" : "";
    pauseButton.setAttribute("aria-label", Kit.text(WORDS.pause));
    muteButton.setAttribute("aria-label", Kit.text(WORDS.sound));
    muteButton.textContent = "♪";
    muteButton.classList.toggle("kit-off", DreamCoreSDK2.mute);
    document.documentElement.lang = DreamCoreSDK2.language;
    document.title = Kit.text(data.title);
  }

  var shown = "", said = {};
  DreamCoreSDK2.onLanguage(refresh);
  DreamCoreSDK2.onMute(refresh);
  return {
    // show opens a card, "" for none.
    show: function (name) {
      if (shown === name) return;
      shown = name;
      refresh();
    },
    // tell writes a value into the top line when it has changed.
    tell: function (name, value) {
      if (!pills[name] || said[name] === value) return;
      said[name] = value;
      pills[name].textContent = value;
      var p = pills[name].parentNode;
      p.style.display = value === "" ? "none" : "";
      p.classList.remove("kit-bump");
      void p.offsetWidth; // starts the little jump anew
      p.classList.add("kit-bump");
    },
  };
};
