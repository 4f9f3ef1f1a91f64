package check

import (
	"regexp"
	"sort"
	"strings"
)

// own calls visit with each parsed script that is the game's own.
func (c *checker) own(visit func(*script)) {
	for _, s := range c.scripts {
		if s.tree != nil && !s.vendor {
			visit(s)
		}
	}
}

// checkUse reports what the scan of each script found at fault by itself.
func (c *checker) checkUse() {
	c.own(func(s *script) {
		for _, f := range s.scan.faults {
			if f.warn {
				c.warn(f.code, s.name, f.line, f.args...)
			} else {
				c.fail(f.code, s.name, f.line, f.args...)
			}
		}
		for _, use := range s.scan.storage {
			c.fail("storage_unguarded", s.name, use.line, "name", use.name)
			break // one place is enough to understand
		}
		for _, l := range s.scan.loops {
			// The loop's own request is one mention; its declaration another.
			if s.scan.counts[l.name] <= 2 && !c.mentioned(l.name, s) {
				c.fail("loop_never_started", s.name, l.line, "name", quote(l.name))
			}
			if !l.args && !s.scan.hasTime && !c.hasVendored("kit/") {
				c.warn("frame_rate", s.name, l.line, "name", quote(l.name))
			}
		}
		for _, e := range s.scan.events {
			if e.inRestart && e.name != "load" {
				c.warn("listener_again", s.name, e.line, "event", quote(e.name))
				break
			}
		}
	})
}

// mentioned reports whether another script or the page's markup names it.
func (c *checker) mentioned(name string, but *script) bool {
	for _, s := range c.scripts {
		if s != but && s.scan != nil && s.scan.counts[name] > 0 {
			return true
		}
	}
	for _, p := range c.pages {
		for _, h := range p.handlers {
			if strings.Contains(h.code, name) {
				return true
			}
		}
	}
	return but.scan.exportsName(name)
}

func (v *scan) exportsName(name string) bool { return v.s.exports[name] }

func (c *checker) hasVendored(prefix string) bool {
	for _, s := range c.scripts {
		if s.vendor && strings.HasPrefix(s.name, prefix) {
			return true
		}
	}
	return false
}

// What counts as input, by the names of events and of engine calls.
var (
	keyEvents    = regexp.MustCompile(`^key(down|up|press)$`)
	touchEvents  = regexp.MustCompile(`^(click|dblclick|input|change|(mouse|pointer)(down|up|move|enter|over)|touch(start|end|move)|contextmenu|drag|dragstart|drop|wheel|deviceorientation|gesture\w*)$`)
	engineKeys   = regexp.MustCompile(`^(createCursorKeys|addKeys?|isDown|axis)$`)
	enginePoints = regexp.MustCompile(`^(setInteractive|activePointer|pointer|onTap|pointerdown|pointermove|pointerup)$`)
)

// checkInput judges whether anybody can play at all.
func (c *checker) checkInput() {
	keys, touch, complete := false, false, true
	var firstKey *event
	firstKeyFile := ""
	prevents, scrollKeys := false, false
	for _, s := range c.scripts {
		if s.tree == nil {
			complete = false
			continue
		}
		for _, e := range s.scan.events {
			if keyEvents.MatchString(e.name) {
				keys = true
				if firstKey == nil && !s.vendor {
					firstKey, firstKeyFile = &e, s.name
				}
			}
			touch = touch || touchEvents.MatchString(e.name)
		}
		for name := range s.scan.properties {
			if strings.HasPrefix(name, "on") && len(name) > 4 {
				name = name[2:]
			}
			keys = keys || keyEvents.MatchString(name) || engineKeys.MatchString(name)
			touch = touch || touchEvents.MatchString(name) && name != "change" && name != "input" || enginePoints.MatchString(name)
			prevents = prevents || name == "preventDefault"
			scrollKeys = scrollKeys || name == "ArrowDown" || name == "ArrowUp" || name == "Space" || name == " "
		}
	}
	for _, p := range c.pages {
		for _, h := range p.handlers {
			keys = keys || keyEvents.MatchString(h.name)
			touch = touch || touchEvents.MatchString(h.name)
		}
	}
	if !complete || len(c.scripts) == 0 {
		return
	}
	switch {
	case !keys && !touch:
		c.fail("no_input", "", 0)
	case !touch:
		file, line := "", 0
		if firstKey != nil {
			file, line = firstKeyFile, firstKey.line
		}
		c.fail("keyboard_only", file, line)
	}
	if keys && scrollKeys && !prevents && firstKey != nil {
		c.warn("keys_scroll", firstKeyFile, firstKey.line)
	}
	c.checkKeyNames()
	c.checkFocus()
}

// rightKeys maps a wrong name to what was meant, by property of the event.
var rightKeys = map[string]map[string]string{
	"code": {
		" ": "Space", "Spacebar": "Space", "space": "Space", "Left": "ArrowLeft", "Right": "ArrowRight", "Up": "ArrowUp", "Down": "ArrowDown",
		"arrowleft": "ArrowLeft", "arrowright": "ArrowRight", "arrowup": "ArrowUp", "arrowdown": "ArrowDown",
		"LeftArrow": "ArrowLeft", "RightArrow": "ArrowRight", "UpArrow": "ArrowUp", "DownArrow": "ArrowDown",
		"left": "ArrowLeft", "right": "ArrowRight", "up": "ArrowUp", "down": "ArrowDown", "enter": "Enter", "Return": "Enter", "Esc": "Escape",
		"Shift": "ShiftLeft", "Control": "ControlLeft", "Ctrl": "ControlLeft",
	},
	"key": {
		"Space": " ", "space": " ", "Spacebar": " ", "Left": "ArrowLeft", "Right": "ArrowRight", "Up": "ArrowUp", "Down": "ArrowDown",
		"arrowleft": "ArrowLeft", "arrowright": "ArrowRight", "arrowup": "ArrowUp", "arrowdown": "ArrowDown",
		"LeftArrow": "ArrowLeft", "RightArrow": "ArrowRight", "UpArrow": "ArrowUp", "DownArrow": "ArrowDown",
		"left": "ArrowLeft", "right": "ArrowRight", "up": "ArrowUp", "down": "ArrowDown", "enter": "Enter", "Return": "Enter", "Esc": "Escape",
		"Ctrl": "Control",
	},
}

var codeOfLetter = regexp.MustCompile(`^[A-Za-z]$`)
var letterCode = regexp.MustCompile(`^Key[A-Z]$`)

// checkKeyNames reports names that no key has, where the right one is asked for
// nowhere.
func (c *checker) checkKeyNames() {
	asked := map[string]bool{}
	c.own(func(s *script) {
		for name := range s.scan.properties {
			asked[name] = true
		}
	})
	c.own(func(s *script) {
		for _, k := range s.scan.keys {
			right := rightKeys[k.property][k.value]
			switch {
			case right == "" && k.property == "code" && codeOfLetter.MatchString(k.value):
				right = "Key" + strings.ToUpper(k.value)
			case right == "" && k.property == "key" && letterCode.MatchString(k.value):
				right = strings.ToLower(k.value[3:])
			}
			if right == "" || asked[right] {
				continue
			}
			c.fail("key_name", s.name, k.line, "property", "event."+k.property, "name", quote(k.value), "right", quote(right))
		}
	})
}

// checkFocus reports key listeners on a canvas that never has the focus.
func (c *checker) checkFocus() {
	for _, p := range c.pages {
		if p.focusable {
			return
		}
	}
	focus := false
	for _, s := range c.scripts {
		if s.scan != nil && !s.vendor && (s.scan.properties["tabIndex"] || s.scan.properties["tabindex"] || s.scan.properties["focus"]) {
			focus = true
		}
	}
	if focus {
		return
	}
	c.own(func(s *script) {
		for _, e := range s.scan.events {
			if keyEvents.MatchString(e.name) && canvasName.MatchString(e.object) {
				c.fail("canvas_focus", s.name, e.line, "object", quote(e.object))
			}
		}
	})
}

var canvasName = regexp.MustCompile(`(?i)^(this\.)?(canvas|cvs|cnv|gameCanvas|canvasEl|renderer\.domElement)$`)

// checkElements judges the use of elements by their id.
func (c *checker) checkElements() {
	known := map[string]bool{}
	dynamic := false
	for _, p := range c.pages {
		for id := range p.ids {
			known[id] = true
		}
	}
	for _, s := range c.scripts {
		if s.scan == nil {
			continue
		}
		dynamic = dynamic || s.scan.idMade
		for _, l := range s.scan.strings {
			if strings.HasSuffix(l.callee, "getElementById") || strings.HasSuffix(l.callee, "querySelector") || s.scan.lookups[l.callee] {
				continue
			}
			known[l.value] = true
			for _, m := range idAttribute.FindAllStringSubmatch(l.value, -1) {
				known[m[1]] = true
			}
		}
	}
	c.own(func(s *script) {
		for _, use := range s.scan.ids {
			if known[use.id] {
				c.checkEarly(s, use)
				continue
			}
			if dynamic || use.safe || c.allowsNull(s, use.bound) {
				continue
			}
			c.fail("element_unknown", s.name, use.line, "id", quote(use.id))
		}
	})
	for _, p := range c.pages {
		for _, cv := range p.canvases {
			if cv.width != "" || cv.height != "" || c.setsSize() {
				continue
			}
			c.fail("canvas_size", p.name, cv.line)
		}
	}
}

var idAttribute = regexp.MustCompile(`\bid\s*=\s*["']?([\w-]+)`)

func (c *checker) setsSize() bool {
	for _, s := range c.scripts {
		if s.tree == nil || s.scan.members["width"] || s.scan.properties["setSize"] || s.scan.properties["width"] {
			return true
		}
	}
	return false
}

// allowsNull reports whether the code asks about the name before using it.
func (c *checker) allowsNull(s *script, name string) bool {
	if name == "" {
		return false
	}
	q := regexp.QuoteMeta(name)
	pattern, err := regexp.Compile(`(if\s*\(\s*!?\s*` + q + `\b|!` + q + `\b|` + q + `\s*(&&|\?|[!=]=|\|\|)|&&\s*` + q + `\b)`)
	return err != nil || pattern.Match(s.source)
}

// checkEarly reports a script that reaches for an element that stands further
// down the page and is not there yet.
func (c *checker) checkEarly(s *script, use elementUse) {
	if !use.top || s.wait || s.element == 0 || use.safe {
		return
	}
	for _, p := range c.pages {
		if at, ok := p.ids[use.id]; ok && p.name == "index.html" && at > s.element {
			c.fail("element_too_early", s.name, use.line, "id", quote(use.id))
		}
	}
}

// checkSDK judges the contract with the platform.
func (c *checker) checkSDK() {
	called := map[string]bool{}
	present := false
	for _, s := range c.scripts {
		if strings.HasSuffix(s.name, "dreamcore-sdk.js") {
			present = true
			continue
		}
		if s.scan == nil || s.tree == nil {
			return // what cannot be read cannot be judged
		}
		for name := range s.scan.sdk {
			called[name] = true
		}
		if !s.vendor {
			for _, a := range s.scan.atLoad {
				c.fail("sdk_at_load", s.name, a.line, "name", a.name)
			}
		}
	}
	if !present && len(called) == 0 || present && len(called) == 0 {
		c.warn("sdk_not_used", "", 0)
		return
	}
	if !present {
		return // DreamCoreSDK2 is then an undefined name
	}
	var missing []string
	for _, name := range []string{"start", "end", "retry"} {
		if !called[name] {
			missing = append(missing, name)
		}
	}
	sort.Strings(missing)
	for _, name := range missing {
		c.fail("sdk_"+name+"_missing", "", 0)
	}
	if !called["share"] {
		c.warn("sdk_share_missing", "", 0)
	}
}
