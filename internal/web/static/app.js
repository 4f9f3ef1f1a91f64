// The comfort of the pages: everything here has a plain form or link behind it.
// Text from games, agents and people only ever goes through textContent.
(function () {
  "use strict";
  var $ = function (sel, root) { return (root || document).querySelector(sel); };
  var all = function (sel, root) { return Array.prototype.slice.call((root || document).querySelectorAll(sel)); };
  var lang = document.documentElement.lang;

  // ---- forms ------------------------------------------------------------
  // A wish is sent once, however often the button is pressed.
  all("form[data-once]").forEach(function (form) {
    form.addEventListener("submit", function (event) {
      if (form.dataset.sent) { event.preventDefault(); return; }
      form.dataset.sent = "1";
      all("button", form).forEach(function (b) { b.classList.add("busy"); });
    });
  });
  window.addEventListener("pageshow", function () { // back button: the form works again
    all("form[data-sent]").forEach(function (form) {
      delete form.dataset.sent;
      all("button", form).forEach(function (b) { b.classList.remove("busy"); });
    });
  });
  all("textarea[data-count]").forEach(function (area) {
    var max = Number(area.dataset.count), out = $("output[for=" + area.id + "]");
    function count() {
      var n = Array.from(area.value).length;
      if (out) {
        out.textContent = n > max * 0.75 ? n + " / " + max : "";
        out.classList.toggle("over", n > max);
      }
      if (!area.offsetParent) return; // on a tab that is not shown: there is nothing to measure
      area.style.height = "auto"; // set by script: the policy forbids style in markup only
      area.style.height = Math.min(area.scrollHeight + 2, window.innerHeight * 0.4) + "px";
    }
    area.addEventListener("input", count);
    // Enter sends, as in any chat; Shift+Enter or a composing input method does not.
    area.addEventListener("keydown", function (event) {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      if (area.form.reportValidity()) area.form.requestSubmit();
    });
    count();
    if (area.value) area.setSelectionRange(area.value.length, area.value.length);
  });
  all("[data-fill]").forEach(function (chip) {
    chip.addEventListener("click", function (event) {
      var area = document.getElementById(chip.dataset.fill);
      if (!area || area.disabled) return;
      event.preventDefault();
      area.value = chip.textContent;
      area.dispatchEvent(new Event("input"));
      area.focus();
    });
  });

  // ---- small things -----------------------------------------------------
  all("[data-copy]").forEach(function (button) {
    var label = button.textContent;
    button.addEventListener("click", function () {
      var field = $("[data-copyfrom]", button.parentNode);
      field.select();
      var done = function () {
        button.textContent = button.dataset.done;
        setTimeout(function () { button.textContent = label; }, 1800);
      };
      if (navigator.clipboard) navigator.clipboard.writeText(field.value).then(done, function () { document.execCommand("copy"); done(); });
      else { document.execCommand("copy"); done(); }
    });
  });
  function toggle(id, show) {
    var box = document.getElementById(id);
    if (box) box.hidden = show === undefined ? !box.hidden : !show;
  }
  all("[data-toggle]").forEach(function (button) {
    button.addEventListener("click", function () { toggle(button.dataset.toggle); });
  });
  all("time[data-when]").forEach(function (t) {
    t.textContent = new Date(t.dateTime).toLocaleString(lang, { dateStyle: "medium", timeStyle: "short" });
  });
  // A picture in the gallery moves while it is pointed at.
  all("img[data-moving]").forEach(function (img) {
    var still = img.src;
    var card = img.closest("a");
    card.addEventListener("pointerenter", function () { img.src = img.dataset.moving; });
    card.addEventListener("pointerleave", function () { img.src = still; });
  });
  var talk = $("[data-talk]");
  function showTab(name) {
    if (document.body.dataset.tab) document.body.dataset.tab = name;
    all("[data-tab-to]").forEach(function (a) { a.setAttribute("aria-current", String(a.dataset.tabTo === name)); });
    all("textarea[data-count]").forEach(function (area) { area.dispatchEvent(new Event("input")); });
  }
  all("[data-tab-to]").forEach(function (a) {
    a.addEventListener("click", function (event) { event.preventDefault(); showTab(a.dataset.tabTo); scrollTalk(); });
  });
  if (document.body.dataset.tab) showTab(location.hash === "#game" ? "game" : location.hash === "#chat" ? "chat" : document.body.dataset.tab);
  function scrollTalk() { if (talk) talk.scrollTop = talk.scrollHeight; }
  scrollTalk();

  // ---- the game on its stage ---------------------------------------------
  var stage = $("[data-stage]"), frame = null;
  function play() {
    if (!stage || !stage.dataset.src || frame) return;
    frame = document.createElement("iframe");
    frame.title = stage.dataset.title;
    frame.setAttribute("sandbox", stage.dataset.sandbox);
    frame.setAttribute("allow", "autoplay; fullscreen; gamepad");
    frame.referrerPolicy = "no-referrer";
    frame.src = stage.dataset.src;
    frame.addEventListener("load", function () { frame.focus(); });
    stage.replaceChildren(frame);
    stage.classList.add("playing");
    frame.focus();
  }
  var cover = $("[data-play]");
  if (cover) cover.addEventListener("click", play);
  all("[data-full]").forEach(function (button) {
    button.addEventListener("click", function () {
      play();
      if (stage.requestFullscreen) stage.requestFullscreen().then(function () { frame.focus(); }, function () { /* the browser says no: the game plays in its place */ });
    });
  });
  // When the window comes back, the keyboard belongs to the game again.
  window.addEventListener("focus", function () {
    if (frame && (document.activeElement === document.body || document.activeElement === frame)) frame.focus();
  });

  // What a game says. Anybody can send a message; only this frame's own, of the
  // known form and size, is heard, and none of it is ever more than data.
  var KEY = stage && "dreamcore.game." + stage.dataset.game;
  function load() {
    try {
      var kept = JSON.parse(localStorage.getItem(KEY));
      return kept && typeof kept === "object" && !Array.isArray(kept) ? kept : {};
    } catch (e) { return {}; }
  }
  function tell(message) {
    // "*": the frame's origin is opaque, and nothing in this is secret.
    frame.contentWindow.postMessage(Object.assign({ dreamcore: 2 }, message), "*");
  }
  window.addEventListener("message", function (event) {
    if (!frame || event.source !== frame.contentWindow) return;
    if (event.origin !== "null" && event.origin !== new URL(stage.dataset.src).origin) return;
    var m = event.data;
    if (!m || typeof m !== "object" || m.dreamcore !== 2 || typeof m.type !== "string") return;
    if (m.type === "ready") {
      tell({ type: "language", value: stage.dataset.lang });
      tell({ type: "storage", entries: load() });
    } else if (m.type === "share") {
      toggle("share", true);
    } else if (m.type === "storage" && typeof m.key === "string" && typeof m.value === "string") {
      if (m.key.length > 100 || m.value.length > 20000) return;
      var kept = load(), entries = Object.keys(kept);
      if (entries.length >= 50 && entries.indexOf(m.key) < 0) return;
      Object.defineProperty(kept, m.key, { value: m.value, enumerable: true, configurable: true, writable: true });
      try { localStorage.setItem(KEY, JSON.stringify(kept)); } catch (e) { /* full or switched off: the game still has it in memory */ }
    }
  });

  // ---- a job in the making -------------------------------------------------
  var live = $("[data-job]");
  if (live && window.EventSource) follow(live);

  function follow(box) {
    var now = $("[data-now]", box), steps = $("[data-steps]", box), says = $("[data-says]", box), log = $("[data-log]", box), clock = $("[data-clock]", box);
    var started = Number(box.dataset.started), done = false;
    setInterval(function () {
      if (done) return;
      var s = Math.max(0, Math.floor((Date.now() - started) / 1000));
      clock.textContent = Math.floor(s / 60) + ":" + ("0" + (s % 60)).slice(-2);
    }, 1000);
    function atBottom() { return !talk || talk.scrollHeight - talk.scrollTop - talk.clientHeight < 80; }
    function note(kind, name, text) {
      var li = document.createElement("li");
      li.className = kind;
      if (name) {
        var b = document.createElement("b");
        b.textContent = name;
        li.append(b, " ");
      }
      li.append(text.length > 400 ? text.slice(0, 400) + "…" : text);
      log.append(li);
      while (log.children.length > 300) log.firstChild.remove();
    }
    function on(name, f) {
      source.addEventListener(name, function (event) {
        var stick = atBottom();
        f(JSON.parse(event.data));
        if (stick) scrollTalk();
      });
    }
    var source = new EventSource("/api/jobs/" + encodeURIComponent(box.dataset.job) + "/events?lang=" + encodeURIComponent(box.dataset.lang));
    on("queue", function (q) { now.textContent = q.line; });
    function step(e) {
      if (!e.line || (steps.lastChild && steps.lastChild.textContent === e.line)) return;
      var li = document.createElement("li");
      li.textContent = e.line;
      steps.append(li);
      now.textContent = e.line;
    }
    on("step", step);
    on("state", function (e) { if (e.line && e.text === "running") step(e); });
    on("say", function (e) {
      if (!e.text) return;
      says.hidden = false;
      says.firstChild.textContent = e.text.length > 280 ? e.text.slice(0, 280) + "…" : e.text;
      note("say", "", e.text);
    });
    on("tool", function (e) { note("tool", (e.args && e.args.name) || "", e.text || e.line || ""); });
    on("find", function (e) { note("find", "", e.line || e.text || ""); });
    on("end", function (job) {
      done = true;
      source.close();
      box.classList.add("done");
      // Somebody in the middle of a play is not interrupted.
      if (frame && job.state === "published") {
        box.hidden = true;
        $("[data-ready]").hidden = false;
        scrollTalk();
        return;
      }
      reload(job.state === "published" ? "game" : "chat");
    });
  }
  function reload(tab) {
    history.replaceState(null, "", location.pathname + "#" + tab);
    location.reload();
  }
  all("[data-reload]").forEach(function (a) {
    a.addEventListener("click", function (event) { event.preventDefault(); reload("game"); });
  });
})();
