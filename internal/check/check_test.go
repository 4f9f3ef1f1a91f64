package check

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"
	"testing/fstest"

	"dreamcore"
	"dreamcore/internal/text"
)

// goodPage and goodScript are a small sound game; the cases change one thing.
const goodPage = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Cloud Cat</title>
<style>body { margin: 0; background: url("assets/hero.png") }</style>
</head>
<body>
<canvas id="game" width="640" height="360"></canvas>
<p id="score">0</p>
<script src="game.js"></script>
</body>
</html>
`

const goodScript = `"use strict";
const canvas = document.getElementById("game");
const ctx = canvas.getContext("2d");
const hero = { x: 100, y: 100 };
const held = new Set();
const picture = new Image();
picture.src = "assets/hero.png";
let last = 0;
addEventListener("keydown", (e) => {
  held.add(e.code);
  if (["ArrowLeft", "ArrowRight", "Space"].includes(e.code)) e.preventDefault();
});
addEventListener("keyup", (e) => held.delete(e.code));
canvas.addEventListener("pointerdown", (e) => { hero.x = e.offsetX; });
function resetGame() { hero.x = 100; }
function step(now) {
  const dt = (now - last) / 1000;
  last = now;
  if (held.has("ArrowRight")) hero.x += 200 * dt;
  if (held.has("ArrowLeft")) hero.x -= 200 * dt;
  if (hero.x > 640) resetGame();
  ctx.clearRect(0, 0, 640, 360);
  ctx.drawImage(picture, hero.x, hero.y);
  document.getElementById("score").textContent = String(Math.round(hero.x));
  requestAnimationFrame(step);
}
requestAnimationFrame(step);
`

func somePNG(t *testing.T, seed byte) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 8, 8))
	for i := range 8 {
		img.Set(i, i, color.RGBA{seed, 100, 50, 255})
	}
	return encodePNG(t, img)
}

func encodePNG(t *testing.T, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// good returns the sound game; more are files put over it, "" removes one.
func good(t *testing.T, more map[string]string) fstest.MapFS {
	t.Helper()
	fsys := fstest.MapFS{
		"index.html":      {Data: []byte(goodPage)},
		"game.js":         {Data: []byte(goodScript)},
		"game.json":       {Data: []byte(`{"hero": {"picture": "assets/hero.png"}}`)},
		"assets/hero.png": {Data: somePNG(t, 200)},
	}
	for name, data := range more {
		if data == "" {
			delete(fsys, name)
			continue
		}
		fsys[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return fsys
}

func markup(old, new string) map[string]string {
	return map[string]string{"index.html": strings.Replace(goodPage, old, new, 1)}
}

func edit(old, new string) map[string]string {
	return map[string]string{"game.js": strings.Replace(goodScript, old, new, 1)}
}

func more(lines string) map[string]string { return map[string]string{"game.js": goodScript + lines} }

// With everything else sound, each of these must be found, and nothing else
// may fail.
func TestFaults(t *testing.T) {
	flat := image.NewRGBA(image.Rect(0, 0, 16, 16))
	for i := range flat.Pix {
		flat.Pix[i] = 255
	}
	cases := []struct {
		name, code string
		files      map[string]string
		warn       bool
	}{
		{name: "no page", code: "index_missing", files: map[string]string{"index.html": ""}},
		{name: "syntax", code: "syntax_error", files: more("let a = ;\n")},
		{name: "syntax inline", code: "syntax_error", files: markup("</body>", "<script>if (;</script></body>")},
		{name: "cut off", code: "file_cut_off", files: map[string]string{"game.js": goodScript[:strings.Index(goodScript, "ctx.clearRect")]}},
		{name: "let twice", code: "duplicate_declaration", files: more("let hero = 2;\n")},
		{name: "let in two scripts", code: "duplicate_declaration", files: markup("<script src", "<script>let hero = 1;</script><script src")},
		{name: "let top", code: "duplicate_declaration", files: more("let top = 3;\n")},
		{name: "helper", code: "helper_call_unresolved", files: edit("function resetGame", "function resetAll")},
		{name: "name", code: "name_undefined", files: edit("hero.x > 640", "hero.x > WIDTH")},
		{name: "function in another function", code: "helper_call_unresolved", files: more("function a() { function inner() {} inner(); }\na(); inner();\n")},
		{name: "THREE missing", code: "engine_missing", files: more("const scene = new THREE.Scene();\n")},
		{name: "THREE as module", code: "engine_as_module", files: merge(more("const scene = new THREE.Scene();\n"), markup("<script src", `<script type="module" src="three.js"></script><script src`), map[string]string{"three.js": "export class Scene {}\n"})},
		{name: "API missing", code: "engine_api_missing", files: merge(more("const scene = new THREE.Scenery();\n"), markup("<script src", `<script src="three.js"></script><script src`), map[string]string{"three.js": "var THREE = { Scene: class {} };\n"})},
		{name: "bare import", code: "import_bare", files: merge(module(`import * as THREE from "three"; THREE.x();`))},
		{name: "import nowhere", code: "import_unresolved", files: module(`import { a } from "./other.js"; a();`)},
		{name: "export missing", code: "export_missing", files: merge(module(`import { a } from "./other.js"; a();`), map[string]string{"other.js": "export const b = 1;\n"})},
		{name: "import in classic", code: "import_in_classic", files: merge(map[string]string{"game.js": `import { b } from "./other.js";` + "\n" + goodScript + "b();\n", "other.js": "export const b = () => 1;\n"})},
		{name: "handler", code: "handler_undefined", files: markup("<p id", `<button onclick="launch()">Go</button><p id`)},
		{name: "handler in module", code: "handler_in_module", files: merge(markup(`<script src="game.js">`, `<button onclick="resetGame()">Go</button><script type="module" src="game.js">`))},
		{name: "external script", code: "external_url", files: markup("<script src", `<script src="https://cdn.example.com/x.js"></script><script src`)},
		{name: "external style", code: "external_url", files: markup("<style>", `<style>@import "https://fonts.example.com/css";`)},
		{name: "external css url", code: "external_url", files: markup(`url("assets/hero.png")`, `url(//example.com/a.png)`)},
		{name: "external fetch", code: "external_url", files: more("fetch('https://example.com/api');\n")},
		{name: "external template", code: "external_url", files: more("fetch(`https://example.com/${hero.x}`);\n")},
		{name: "external link", code: "external_link", files: markup("<p id", `<a href="https://example.com">more</a><p id`)},
		{name: "asset", code: "asset_missing", files: edit("assets/hero.png", "assets/cat.png")},
		{name: "asset in json", code: "asset_missing", files: map[string]string{"game.json": `{"foe": {"picture": "assets/foe.png"}}`}},
		{name: "asset in css", code: "asset_missing", files: markup(`url("assets/hero.png")`, `url(assets/sky.png)`)},
		{name: "asset in html", code: "asset_missing", files: markup("<p id", `<img src="assets/logo.png" alt=""><p id`)},
		{name: "script missing", code: "asset_missing", files: markup("<script src", `<script src="kit.js"></script><script src`)},
		{name: "case", code: "asset_case", files: edit("assets/hero.png", "assets/Hero.png")},
		{name: "backslash", code: "asset_backslash", files: edit("assets/hero.png", `assets\\hero.png`)},
		{name: "absolute", code: "asset_path", files: edit("assets/hero.png", "/assets/hero.png")},
		{name: "dummy picture", code: "asset_dummy", files: map[string]string{"assets/hero.png": "placeholder"}},
		{name: "dummy sound", code: "asset_dummy", files: merge(more("new Audio('assets/hit.mp3');\n"), map[string]string{"assets/hit.mp3": "not a sound at all, only words that fill space"})},
		{name: "flat picture", code: "picture_placeholder", files: map[string]string{"assets/hero.png": string(encodePNG(t, flat))}},
		{name: "one pixel", code: "picture_placeholder", files: map[string]string{"assets/hero.png": string(encodePNG(t, image.NewRGBA(image.Rect(0, 0, 1, 1))))}},
		{name: "copies", code: "picture_copies", files: map[string]string{"assets/a.png": string(somePNG(t, 9)), "assets/b.png": string(somePNG(t, 9)), "assets/c.png": string(somePNG(t, 9))}},
		{name: "element", code: "element_unknown", files: edit(`getElementById("score")`, `getElementById("points")`)},
		{name: "early element", code: "element_too_early", files: map[string]string{"index.html": strings.Replace(strings.Replace(goodPage, `<script src="game.js"></script>`, "", 1), "</head>", `<script src="game.js"></script></head>`, 1)}},
		{name: "no input", code: "no_input", files: map[string]string{"game.js": "requestAnimationFrame(function step(now) { document.title = String(now) + 'Cat'; requestAnimationFrame(step); });\n"}},
		{name: "keyboard only", code: "keyboard_only", files: edit("pointerdown", "gone")},
		{name: "key name", code: "key_name", files: merge(map[string]string{"game.js": strings.NewReplacer(`["ArrowLeft", "ArrowRight", "Space"].includes(e.code)`, `e.code === "Left" || e.code === "Right"`, `"ArrowRight"`, `"Right"`, `"ArrowLeft"`, `"Left"`).Replace(goodScript)})},
		{name: "canvas focus", code: "canvas_focus", files: more("canvas.addEventListener('keydown', resetGame);\n")},
		{name: "canvas size", code: "canvas_size", files: markup(` width="640" height="360"`, "")},
		{name: "alert", code: "dialog", files: more("alert('hello');\n")},
		{name: "window.prompt", code: "dialog", files: more("window.prompt('name');\n")},
		{name: "eval", code: "eval", files: more("eval('1');\n")},
		{name: "new Function", code: "eval", files: more("new Function('return 1')();\n")},
		{name: "document.write", code: "document_write", files: more("document.write('x');\n")},
		{name: "string timer", code: "string_timer", files: more("setTimeout('resetGame()', 10);\n")},
		{name: "navigation", code: "navigation", files: more("function leave() { location.href = 'other.html'; }\nleave();\n")},
		{name: "popup", code: "popup", files: more("window.open('x');\n")},
		{name: "camera", code: "permission", files: more("navigator.mediaDevices.getUserMedia({ video: true });\n")},
		{name: "service worker", code: "permission", files: more("navigator.serviceWorker.register('sw');\n")},
		{name: "storage", code: "storage_unguarded", files: more("localStorage.setItem('best', '1');\n")},
		{name: "endless", code: "endless_loop", files: more("while (true) { hero.x++; }\n")},
		{name: "endless for", code: "endless_loop", files: more("for (;;) { hero.x++; }\n")},
		{name: "recursion", code: "endless_recursion", files: more("function run() { hero.x++; run(); }\nrun();\n")},
		{name: "loop not started", code: "loop_never_started", files: map[string]string{"game.js": strings.TrimSuffix(goodScript, "requestAnimationFrame(step);\n")}},
		{name: "title", code: "title_placeholder", files: markup("Cloud Cat", "My Game")},
		{name: "no title", code: "title_missing", files: markup("<title>Cloud Cat</title>", "")},
		{name: "todo", code: "todo_visible", files: markup("<p id", "<p>TODO: text</p><p id")},
		{name: "viewport", code: "viewport_missing", files: markup(`<meta name="viewport" content="width=device-width, initial-scale=1">`, "")},
		{name: "charset", code: "charset_missing", files: markup(`<meta charset="utf-8">`, "")},
		{name: "json", code: "json_syntax", files: map[string]string{"game.json": `{"a": 1,}`}},
		{name: "secret", code: "secret", files: more("const key = 'AKIA" + "ABCDEFGHIJKLMNOP';\nheld.add(key);\n")},
		{name: "secret file", code: "secret_file", files: map[string]string{".env": "A=1"}},
		{name: "SDK without end", code: "sdk_end_missing", files: merge(withSDK(), more("canvas.onclick = () => { DreamCoreSDK2.start(); DreamCoreSDK2.share(); };\nDreamCoreSDK2.retry(resetGame);\n"))},
		{name: "SDK at load", code: "sdk_at_load", files: merge(withSDK(), more("DreamCoreSDK2.start(); DreamCoreSDK2.retry(resetGame); canvas.onclick = () => { DreamCoreSDK2.end({}); DreamCoreSDK2.share(); };\n"))},
		{name: "keyCode", code: "key_code_old", warn: true, files: more("addEventListener('keydown', (e) => held.add(e.keyCode));\n")},
		{name: "todo comment", code: "todo_comment", warn: true, files: more("// TODO draw the hero\n")},
		{name: "frame rate", code: "frame_rate", warn: true, files: map[string]string{"game.js": strings.NewReplacer("function step(now)", "function step()", "(now - last)", "16", "last = now;", "last = 1;").Replace(goodScript)}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			report := Run(context.Background(), good(t, c.files), Options{})
			found := false
			for _, f := range report.Findings {
				found = found || f.Code == c.code
				if f.Code != c.code && f.Severity == dreamcore.Fail {
					t.Errorf("unexpected %s", f)
				}
			}
			if !found {
				t.Errorf("%s was not found in %v", c.code, report.Findings)
			}
			want := dreamcore.Failed
			if c.warn {
				want = dreamcore.Pass
			}
			if report.Verdict != want {
				t.Errorf("verdict %s, want %s", report.Verdict, want)
			}
		})
	}
}

func merge(maps ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// module loads the script as a module, with lines before it.
func module(lines string) map[string]string {
	return map[string]string{
		"index.html": strings.Replace(goodPage, `<script src`, `<script type="module" src`, 1),
		"game.js":    lines + "\n" + goodScript,
	}
}

func withSDK() map[string]string {
	return merge(markup("<script src", `<script src="dreamcore-sdk.js"></script><script src`),
		map[string]string{"dreamcore-sdk.js": "window.DreamCoreSDK2 = { start() {}, end() {}, retry() {}, share() {} };\n"})
}

// Sound games of many makes must not be accused of anything.
func TestSound(t *testing.T) {
	cases := map[string]map[string]string{
		"plain": nil,
		"module": merge(module(`import { b as c, default as d } from "./lib/other.js"; import * as all from "./lib/other.js"; c(d, all);`),
			map[string]string{"lib/other.js": "export function b() {}\nexport default class X {}\n"}),
		"import map": merge(module(`import * as THREE from "three"; import { Thing } from "three/addons/thing.js"; new THREE.Scene(Thing);`), map[string]string{
			"index.html": strings.Replace(goodPage, `<script src`, `<script type="importmap">{"imports": {"three": "./three.js", "three/addons/": "./addons/"}}</script><script type="module" src`, 1),
			"three.js":   "export class Scene {}\n", "addons/thing.js": "export class Thing {}\n",
		}),
		"three as global": merge(markup("<script src", `<script src="three.js"></script><script src`), more("new THREE.Scene();\n"),
			map[string]string{"three.js": "(function (g) { g.THREE = {}; g.THREE.Scene = class {}; })(globalThis);\n"}),
		"typeof":            more("if (typeof zzfx !== 'undefined') zzfx(1);\n"),
		"storage in try":    more("try { localStorage.setItem('a', '1'); } catch (e) { held.clear(); }\n"),
		"window global":     more("window.score = 1;\nscore += 1;\n"),
		"sloppy global":     map[string]string{"game.js": strings.Replace(goodScript, `"use strict";`, "", 1) + "loose = 1;\nloose++;\n"},
		"element global":    more("score.hidden = false;\n"),
		"made element":      more("document.body.insertAdjacentHTML('beforeend', '<div id=\"late\"></div>');\ndocument.getElementById('late').remove();\n"),
		"null allowed":      more("const maybe = document.getElementById('maybe');\nif (maybe) maybe.remove();\ndocument.getElementById('other')?.remove();\n"),
		"own confirm":       more("function confirm2() {}\nconst ui = { alert() {} };\nui.alert(); confirm2();\n"),
		"joined path":       more("for (const n of ['hero']) { const i = new Image(); i.src = 'assets/' + n + '.png'; }\n"),
		"base and file":     more("const base = 'assets/';\nconst i2 = new Image(); i2.src = base + 'hero.png';\n"),
		"download name":     more("const link = document.createElement('a');\nlink.download = 'screenshot.png';\nlink.remove();\n"),
		"svg namespace":     more("document.createElementNS('http://www.w3.org/2000/svg', 'g');\n"),
		"generator":         more("function* ids() { let i = 0; while (true) yield i++; }\nfor (const i of ids()) { if (i > 3) break; }\n"),
		"loop with break":   more("for (;;) { hero.x++; if (hero.x > 5) break; }\n"),
		"game loop in rAF":  more("const tick = () => { hero.x += 0; requestAnimationFrame(tick); };\ntick();\n"),
		"labels":            more("outer: for (const a of [1]) { for (const b of [2]) { if (a === b) continue outer; } }\n"),
		"destructuring":     more("const { x, ...rest } = hero;\nconst [p = x, , q] = [rest];\nheld.add(p, q);\n"),
		"class fields":      more("class Foe { #hp = 1; static all = []; hit() { this.#hp--; return new.target; } get dead() { return this.#hp < 1; } }\nFoe.all.push(new Foe());\n"),
		"async":             more("(async () => { try { const r = await fetch('game.json'); hero.data = await r.json(); } catch { held.clear(); } })();\n"),
		"optional chaining": more("hero.weapon?.fire?.(1);\nhero.hp ??= 3;\n"),
		"regex":             more("const m = /[/'\"]+/u.exec('a/b');\nheld.add(m);\n"),
		"html in string":    more("const tpl = `<b>${hero.x}</b>`;\nheld.add(tpl);\n"),
		"old keys too":      more("addEventListener('keydown', (e) => { if (e.key === 'ArrowLeft' || e.key === 'Left') held.add('x'); });\n"),
		"data uri":          more("const d = new Image(); d.src = 'data:image/png;base64,AAAA';\n"),
		"worker from blob":  more("const w = () => new Worker(URL.createObjectURL(new Blob(['1'])));\nheld.add(w);\n"),
		"arguments":         more("function sum() { return arguments.length; }\nsum(1);\n"),
		"block function":    map[string]string{"game.js": strings.Replace(goodScript, `"use strict";`, "", 1) + "if (hero) { function helper() {} }\nhelper();\n"},
		"with SDK":          merge(withSDK(), more("canvas.onclick = () => { DreamCoreSDK2.start(); };\nfunction over() { DreamCoreSDK2.end({ score: 1 }); DreamCoreSDK2.share(); }\nDreamCoreSDK2.retry(resetGame); held.add(over);\n")),
		"SDK by alias":      merge(withSDK(), more("const sdk = window.DreamCoreSDK2;\ncanvas.onclick = () => { sdk.start(); };\nfunction over() { sdk.end({ score: 1 }); sdk.share(); }\nsdk.retry(resetGame); held.add(over);\n")),
		"later script":      merge(markup("</body>", "<script>function fromLater() {}</script></body>"), more("canvas.onclick = () => fromLater();\n")),
		"inline handler":    markup("<p id", `<button onclick="resetGame(); event.stopPropagation()">Again</button><p id`),
		"unicode":           more("const 猫 = { 名前: 'ミケ' };\nheld.add(猫.名前);\n"),
		"own wasd":          more("addEventListener('keydown', ({ key }) => { if (key === 'a') held.add(key); });\n"),
	}
	for name, files := range cases {
		t.Run(name, func(t *testing.T) {
			report := Run(context.Background(), good(t, files), Options{})
			for _, f := range report.Findings {
				if f.Severity == dreamcore.Fail {
					t.Error(f)
				}
			}
		})
	}
}

func TestLeftovers(t *testing.T) {
	template := fstest.MapFS{
		"template.json":   {Data: []byte(`{"tag": "2d/x", "change": {"titles": ["/title/en"], "hero": {"name": "/hero/name", "picture": "assets/hero.png"}}}`)},
		"game.json":       {Data: []byte(`{"title": {"en": "Plane Day"}, "hero": {"name": {"en": "plane"}}, "texts": {"goal": "Steer the plane home"}}`)},
		"assets/hero.png": {Data: somePNG(t, 200)},
	}
	codes := func(gameJSON string, picture []byte) string {
		fsys := good(t, map[string]string{"game.json": gameJSON, "assets/hero.png": string(picture)})
		var list []string
		for _, f := range Run(context.Background(), fsys, Options{Template: template}).Findings {
			if strings.Contains(f.Code, "template") || f.Code == "old_hero" {
				list = append(list, f.Code)
			}
		}
		return strings.Join(list, " ")
	}
	for _, c := range []struct{ game, want string }{
		{string(template["game.json"].Data), "template_unchanged"},
		{`{"title": {"en": "Plane Day"}, "hero": {"name": {"en": "cat"}}}`, "title_of_template old_hero"},
		{`{"title": {"en": "Cat Day"}, "hero": {"name": {"en": "cat"}}, "texts": {"goal": "Steer the plane home"}}`, "hero_of_template old_hero"},
	} {
		got := codes(c.game, somePNG(t, 200))
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.game, got, c.want)
		}
	}
	if got := codes(`{"title": {"en": "Cat Day"}, "hero": {"name": {"en": "cat"}}}`, somePNG(t, 7)); got != "" {
		t.Errorf("a changed game is accused of %q", got)
	}
}

// Every finding has its texts in three languages, and none tells how to make
// the checker look away.
func TestTexts(t *testing.T) {
	for _, key := range text.Keys() {
		if !strings.HasPrefix(key, "check.") || strings.HasSuffix(key, "_fix") {
			continue
		}
		for _, lang := range dreamcore.Langs {
			message, fix := text.T(lang, key), text.T(lang, key+"_fix")
			if message == key || fix == key+"_fix" || message == "" || fix == "" {
				t.Errorf("%s has no text in %s", key, lang)
			}
			if lower := strings.ToLower(message + fix); strings.Contains(lower, "ignore") || strings.Contains(lower, "disable") || strings.Contains(lower, "suppress") {
				t.Errorf("%s tells how to silence the checker", key)
			}
		}
	}
	report := Run(context.Background(), good(t, more("alert('\u202e\n<b>');\nundefinedName();\n")), Options{Lang: dreamcore.Japanese})
	for _, f := range report.Findings {
		if strings.HasPrefix(f.Message, "check.") || strings.HasPrefix(f.Fix, "check.") {
			t.Errorf("%s has no text", f.Code)
		}
	}
}

func TestPlaces(t *testing.T) {
	report := Run(context.Background(), good(t, map[string]string{
		"index.html": strings.Replace(goodPage, "</body>", "<script>\n\nmissingInline();\n</script></body>", 1),
		"game.js":    goodScript + "missingHere();\n",
	}), Options{})
	want := map[string]int{"index.html": 15, "game.js": 1 + strings.Count(goodScript, "\n")}
	for _, f := range report.Findings {
		if f.Code == "helper_call_unresolved" {
			if f.Line != want[f.File] {
				t.Errorf("%s: line %d, want %d", f.File, f.Line, want[f.File])
			}
			delete(want, f.File)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v in %v", want, report.Findings)
	}
}

// FuzzRun feeds hostile files: whatever they hold, the checker ends and judges.
func FuzzRun(f *testing.F) {
	f.Add(goodPage, goodScript, `{"a": "b.png"}`, "a{b:url(c.png)}")
	f.Add("<script>", "`${`", "[", "@import \"")
	f.Add("<!--<script>--><canvas id=a id=b>", "class A{#a;static{}}", "\xff", "/*")
	f.Fuzz(func(t *testing.T, body, script, data, style string) {
		fsys := fstest.MapFS{
			"index.html": {Data: []byte(body + `<script src="game.js"></script><link rel="stylesheet" href="a.css">`)},
			"game.js":    {Data: []byte(script)}, "game.json": {Data: []byte(data)}, "a.css": {Data: []byte(style)},
		}
		report := Run(context.Background(), fsys, Options{})
		for _, finding := range report.Findings {
			if strings.ContainsAny(finding.Message, "\n\x00\x1b") || len(finding.Message) > 4000 {
				t.Errorf("unsafe message %q", finding.Message)
			}
		}
	})
}
