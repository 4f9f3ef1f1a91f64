// A small game in one file: collect the prizes, keep away from the foes.
// Everything that a wish changes stands in game.json.
(async function () {
  const data = await (await fetch("game.json")).json();
  const { numbers, rules, palette } = data;
  const asked = new URLSearchParams(location.search).get("lang") || navigator.language;
  const lang = ["en", "ja", "zh"].find((l) => asked.startsWith(l)) || "en";
  const fill = (text) => text[lang]
    .replace("{goal}", numbers.goal)
    .replace("{prize}", data.prizes[0].name[lang])
    .replace("{foe}", data.foes[0].name[lang]);

  const view = document.getElementById("view");
  const draw = view.getContext("2d");
  const screen = document.getElementById("screen");
  const title = document.getElementById("title");
  const text = document.getElementById("text");
  const keysText = document.getElementById("keys");
  const play = document.getElementById("play");

  const picture = (file) => Object.assign(new Image(), { src: file });
  const pictures = {
    hero: picture(data.hero.picture),
    foe: picture(data.foes[0].picture),
    prize: picture(data.prizes[0].picture),
  };

  document.title = data.title[lang];
  play.style.background = palette.accent;

  function resize() {
    view.width = innerWidth;
    view.height = innerHeight;
  }
  addEventListener("resize", resize);
  resize();

  // Input: keys, or a pointer held where to go.
  const held = new Set();
  const ways = {
    ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
    KeyA: [-1, 0], KeyD: [1, 0], KeyW: [0, -1], KeyS: [0, 1],
  };
  let aim = null;
  addEventListener("keydown", (e) => {
    if (ways[e.code]) {
      held.add(e.code);
      e.preventDefault();
    }
  });
  addEventListener("keyup", (e) => held.delete(e.code));
  addEventListener("blur", () => held.clear());
  view.addEventListener("pointerdown", (e) => { aim = { x: e.clientX, y: e.clientY }; });
  view.addEventListener("pointermove", (e) => { if (aim) aim = { x: e.clientX, y: e.clientY }; });
  addEventListener("pointerup", () => { aim = null; });
  addEventListener("pointercancel", () => { aim = null; });

  let hero, foes, prize, score, lives, safe, running = false;

  function somewhere() {
    return { x: 60 + Math.random() * (view.width - 120), y: 80 + Math.random() * (view.height - 140) };
  }

  function begin() {
    hero = { x: view.width / 2, y: view.height / 2, size: numbers.size, left: false };
    foes = Array.from({ length: numbers.foes }, (_, i) => {
      const angle = (i + 0.5) * 2.4;
      return { x: i % 2 ? 40 : view.width - 40, y: 80 + ((i * 137) % Math.max(1, view.height - 140)), vx: Math.cos(angle), vy: Math.sin(angle) };
    });
    prize = somewhere();
    score = 0;
    lives = numbers.lives;
    safe = 2;
    running = true;
    screen.hidden = true;
  }

  function show(headline, message, button) {
    running = false;
    title.textContent = headline;
    text.textContent = message;
    keysText.textContent = data.texts.keys[lang];
    play.textContent = button;
    screen.hidden = false;
  }
  play.addEventListener("click", begin);

  const near = (a, b, reach) => Math.hypot(a.x - b.x, a.y - b.y) < reach;

  function steer(dt) {
    let x = 0, y = 0;
    for (const key of held) {
      x += ways[key][0];
      y += ways[key][1];
    }
    if (aim && !near(hero, aim, 6)) {
      x = aim.x - hero.x;
      y = aim.y - hero.y;
    }
    const length = Math.hypot(x, y);
    if (!length) return;
    hero.x += (x / length) * numbers.speed * dt;
    hero.y += (y / length) * numbers.speed * dt;
    if (x) hero.left = x < 0;
    if (rules.wrap) {
      hero.x = (hero.x + view.width) % view.width;
      hero.y = (hero.y + view.height) % view.height;
    } else {
      hero.x = Math.min(Math.max(hero.x, 0), view.width);
      hero.y = Math.min(Math.max(hero.y, 0), view.height);
    }
  }

  function roam(dt) {
    for (const foe of foes) {
      if (rules.chase) {
        const far = Math.hypot(hero.x - foe.x, hero.y - foe.y) || 1;
        foe.vx = (hero.x - foe.x) / far;
        foe.vy = (hero.y - foe.y) / far;
      }
      foe.x += foe.vx * numbers.foeSpeed * dt;
      foe.y += foe.vy * numbers.foeSpeed * dt;
      if (foe.x < 0 || foe.x > view.width) foe.vx = foe.x < 0 ? Math.abs(foe.vx) : -Math.abs(foe.vx);
      if (foe.y < 0 || foe.y > view.height) foe.vy = foe.y < 0 ? Math.abs(foe.vy) : -Math.abs(foe.vy);
    }
  }

  function meet(dt) {
    if (near(hero, prize, hero.size * 0.8)) {
      score++;
      if (rules.grow) hero.size = Math.min(hero.size + 4, 150);
      prize = somewhere();
      if (score >= numbers.goal) return show(data.texts.won[lang], fill(data.texts.goal), data.texts.again[lang]);
    }
    safe -= dt;
    if (safe <= 0 && foes.some((foe) => near(hero, foe, hero.size * 0.6))) {
      safe = 2;
      lives--;
      if (lives <= 0) show(data.texts.lost[lang], fill(data.texts.goal), data.texts.again[lang]);
    }
  }

  function sprite(image, at, size, flip) {
    if (!image.complete || !image.naturalWidth) return;
    draw.save();
    draw.translate(at.x, at.y);
    if (flip) draw.scale(-1, 1);
    draw.drawImage(image, -size / 2, -size / 2, size, size);
    draw.restore();
  }

  function paint() {
    const back = draw.createLinearGradient(0, 0, 0, view.height);
    back.addColorStop(0, palette.sky);
    back.addColorStop(1, palette.ground);
    draw.fillStyle = back;
    draw.fillRect(0, 0, view.width, view.height);
    if (!hero) return;
    sprite(pictures.prize, prize, 48);
    for (const foe of foes) sprite(pictures.foe, foe, 64, foe.vx < 0);
    if (safe <= 0 || Math.floor(safe * 8) % 2 === 0) sprite(pictures.hero, hero, hero.size, hero.left);
    draw.fillStyle = palette.text;
    draw.font = "bold 22px system-ui, sans-serif";
    draw.fillText("★ " + score + " / " + numbers.goal + "    ♥ " + lives, 16, 34);
  }

  let last = performance.now();
  function frame(now) {
    const dt = Math.min((now - last) / 1000, 0.05);
    last = now;
    if (running && !document.hidden) {
      steer(dt);
      roam(dt);
      meet(dt);
    }
    paint();
    requestAnimationFrame(frame);
  }

  show(data.title[lang], fill(data.texts.goal), data.texts.start[lang]);
  requestAnimationFrame(frame);
})();
