package check

import (
	"regexp"
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

func (v *scan) fault(code string, line int, args ...string) {
	v.faults = append(v.faults, fault{code: code, line: line, args: args})
}

func (v *scan) suspect(code string, line int, args ...string) {
	v.faults = append(v.faults, fault{code: code, line: line, args: args, warn: true})
}

// call notes a call or a new expression.
func (v *scan) call(callee js.IExpr, args []js.Arg) {
	p := plainPath(callee)
	line := v.line(callee)
	root := rootVar(callee)
	free := root != nil && undeclared(root)
	if name, ok := callee.(*js.Var); ok && undeclared(name) {
		v.called[string(name.Data)] = true
	}
	v.calls = append(v.calls, call{p, line, v.depth == 0})
	first, isText := "", false
	if len(args) > 0 {
		first, isText = stringOf(args[0].Value)
	}
	last := p[strings.LastIndexByte(p, '.')+1:]

	if free {
		v.globalCall(p, pathOf(callee), line, isText)
	}
	switch last {
	case "getElementById":
		if isText {
			v.element(first, line)
		}
	case "querySelector":
		if isText && simpleID.MatchString(first) {
			v.element(first[1:], line)
		}
	case "addEventListener":
		if isText {
			v.events = append(v.events, event{first, pathOf(callee)[:max(0, strings.LastIndexByte(pathOf(callee), '.'))], line, v.inRestart()})
		}
	case "setAttribute":
		if isText && first == "id" && len(args) > 1 && !isString(args[1].Value) {
			v.idMade = true
		}
	case "requestAnimationFrame":
		v.hasFrames = true
		if len(args) > 0 {
			if name, ok := args[0].Value.(*js.Var); ok {
				v.nextFrame(string(name.Data), line)
			}
		}
	case "now", "getDelta", "getElapsedTime":
		v.hasTime = true
	}
	if name, ok := callee.(*js.Var); ok && v.lookups[string(name.Data)] && isText {
		v.element(strings.TrimPrefix(first, "#"), line)
	}
	if strings.HasPrefix(p, "DreamCoreSDK2.") || (root != nil && v.sdkNames[string(root.Data)] && strings.Count(p, ".") == 1) {
		v.sdk[last] = true
		if v.depth == 0 && (last == "start" || last == "end" || last == "share") {
			v.atLoad = append(v.atLoad, spot{last, line})
		}
	}
}

var simpleID = regexp.MustCompile(`^#[A-Za-z][\w-]*$`)

// globalCall judges calls of the browser's own functions.
func (v *scan) globalCall(p, full string, line int, textFirst bool) {
	switch p {
	case "alert", "confirm", "prompt":
		v.fault("dialog", line, "name", p)
	case "eval", "Function":
		v.fault("eval", line, "name", p)
	case "document.write", "document.writeln":
		v.fault("document_write", line)
	case "setTimeout", "setInterval":
		if textFirst {
			v.fault("string_timer", line, "name", p)
		}
	case "location.assign", "location.replace", "history.back", "history.go", "history.forward", "top.location.assign", "parent.location.assign":
		v.fault("navigation", line, "what", quote(p))
	case "location.reload":
		v.suspect("reload", line)
	case "open":
		if full != "open" {
			v.fault("popup", line)
		}
	case "navigator.mediaDevices.getUserMedia", "navigator.getUserMedia", "navigator.geolocation.getCurrentPosition",
		"navigator.geolocation.watchPosition", "Notification.requestPermission", "navigator.serviceWorker.register",
		"navigator.mediaDevices.getDisplayMedia", "navigator.requestMIDIAccess", "navigator.bluetooth.requestDevice":
		v.fault("permission", line, "what", quote(p))
	case "Worker", "SharedWorker":
		if textFirst {
			v.suspect("worker_url", line)
		}
	case "AudioContext", "webkitAudioContext":
		if v.depth == 0 {
			v.suspect("audio_early", line)
		}
	}
}

// binary judges assignments and comparisons.
func (v *scan) binary(n *js.BinaryExpr) {
	switch n.Op {
	case js.EqToken:
		v.assign(n)
	case js.EqEqToken, js.EqEqEqToken, js.NotEqToken, js.NotEqEqToken:
		if value, ok := stringOf(n.Y); ok {
			v.keyTest(n.X, value)
		} else if value, ok := stringOf(n.X); ok {
			v.keyTest(n.Y, value)
		}
	}
	if n.Op == js.AddEqToken || n.Op == js.SubEqToken || n.Op == js.MulEqToken || n.Op == js.DivEqToken {
		return // reading an unknown name fails as well: not a definition
	}
}

func (v *scan) assign(n *js.BinaryExpr) {
	full := pathOf(n.X)
	p := plainPath(n.X)
	root := rootVar(n.X)
	line := v.line(n.X)
	if name, ok := n.X.(*js.Var); ok {
		if undeclared(name) {
			v.written[string(name.Data)] = true
			if string(name.Data) == "location" {
				v.fault("navigation", line, "what", quote("location ="))
			}
		}
		return
	}
	if full != p && !strings.Contains(p, ".") { // window.NAME = ...
		v.assigned[p] = true
	}
	last := p[strings.LastIndexByte(p, '.')+1:]
	if strings.HasPrefix(full, "this.") && v.depth == 0 && strings.Count(full, ".") == 1 {
		v.assigned[last] = true
	}
	v.members[last] = true
	v.extends[p] = true
	if strings.HasPrefix(last, "on") && len(last) > 3 {
		object := full[:max(0, strings.LastIndexByte(full, '.'))]
		v.events = append(v.events, event{last[2:], object, line, v.inRestart()})
	}
	free := root != nil && undeclared(root)
	switch {
	case free && (p == "location" && full != p || p == "location.href" || p == "top.location" || p == "parent.location" || p == "document.location" || p == "top.location.href" || p == "document.location.href"):
		v.fault("navigation", line, "what", quote(full+" ="))
	case last == "id":
		if _, ok := stringOf(n.Y); !ok {
			v.idMade = true
		}
	}
	if name, ok := n.Y.(*js.Var); ok && v.sdkNames[string(name.Data)] && last == "?" {
		v.sdkNames[last] = true
	}
}

// dot notes members that are used.
func (v *scan) dot(n *js.DotExpr) {
	y, ok := n.Y.(js.LiteralExpr)
	if !ok {
		return
	}
	name := string(y.Data)
	v.properties[name] = true
	if x, ok := n.X.(*js.Var); ok {
		global := string(x.Data)
		if _, known := engines[global]; known && (undeclared(x) || v.bindings[global]) {
			v.uses[global] = append(v.uses[global], spot{name, v.s.place(y.Data)})
		}
		if v.sdkNames[global] {
			v.sdk[name] = true
		}
		switch global + "." + name {
		case "window.localStorage", "window.sessionStorage":
			if v.tries == 0 {
				if _, ok := v.parent(0).(*js.UnaryExpr); !ok {
					v.storage = append(v.storage, spot{name, v.s.place(y.Data)})
				}
			}
		}
		if (name == "keyCode" || name == "which") && eventName.MatchString(global) {
			v.suspect("key_code_old", v.s.place(y.Data), "name", name)
		}
	}
}

var eventName = regexp.MustCompile(`^(e|ev|evt|event|k|ke|keyEvent|keyboardEvent)$`)

// keyTest notes e.key === "..." and e.code === "...".
func (v *scan) keyTest(n js.IExpr, value string) {
	d, ok := n.(*js.DotExpr)
	if !ok {
		return
	}
	x, okX := d.X.(*js.Var)
	y, okY := d.Y.(js.LiteralExpr)
	if !okX || !okY || !eventName.Match(x.Data) {
		return
	}
	if property := string(y.Data); property == "key" || property == "code" {
		v.keys = append(v.keys, keyTest{property, value, v.line(n)})
	}
}

func (v *scan) keySwitch(n *js.SwitchStmt) {
	for _, c := range n.List {
		if c.Cond == nil {
			continue
		}
		if value, ok := stringOf(c.Cond); ok {
			v.keyTest(n.Init, value)
			if len(v.keys) > 0 {
				if line := lineOf(v.s, c.Cond); line > 0 {
					v.keys[len(v.keys)-1].line = line
				}
			}
		}
	}
}

// declaration notes const $ = id => document.getElementById(id), other names
// for the SDK, and what an element is bound to.
func (v *scan) declaration(n *js.VarDecl) {
	for _, e := range n.List {
		name, ok := e.Binding.(*js.Var)
		if !ok {
			if o, ok := e.Binding.(*js.BindingObject); ok && e.Default != nil && v.sdkNames[plainPath(e.Default)] {
				for _, item := range o.List {
					if item.Key != nil {
						v.sdk[string(item.Key.Literal.Data)] = true
					}
				}
			}
			continue
		}
		if e.Default == nil {
			continue
		}
		switch d := e.Default.(type) {
		case *js.ArrowFunc:
			v.lookup(string(name.Data), &d.Params, &d.Body)
		case *js.FuncDecl:
			v.lookup(string(name.Data), &d.Params, &d.Body)
		default:
			if v.sdkNames[plainPath(d)] {
				v.sdkNames[string(name.Data)] = true
			}
		}
	}
}

// lookup recognises a helper whose one line is getElementById.
func (v *scan) lookup(name string, params *js.Params, body *js.BlockStmt) {
	if name == "" || len(params.List) != 1 || len(body.List) != 1 {
		return
	}
	r, ok := body.List[0].(*js.ReturnStmt)
	if !ok || r.Value == nil {
		return
	}
	c, ok := r.Value.(*js.CallExpr)
	if !ok || len(c.Args.List) != 1 {
		return
	}
	param, okP := params.List[0].Binding.(*js.Var)
	arg, okA := c.Args.List[0].Value.(*js.Var)
	if okP && okA && string(param.Data) == string(arg.Data) && strings.HasSuffix(pathOf(c.X), "document.getElementById") {
		v.lookups[name] = true
	}
}

// element notes a use of an element by its id, and whether the code allows for
// its absence.
func (v *scan) element(id string, line int) {
	use := elementUse{id: id, line: line, top: v.depth == 0}
	for i := range 3 {
		switch p := v.parent(i).(type) {
		case *js.DotExpr:
			use.safe = use.safe || p.Optional
		case *js.CallExpr:
			use.safe = use.safe || p.Optional
		case *js.BindingElement:
			if name, ok := p.Binding.(*js.Var); ok {
				use.bound = string(name.Data)
			}
		case *js.BinaryExpr:
			if p.Op == js.EqToken {
				use.bound = pathOf(p.X)
			} else {
				use.safe = true
			}
		case *js.IfStmt, *js.UnaryExpr, *js.CondExpr, *js.Element, *js.Property, *js.Arg:
			use.safe = true
		}
	}
	v.ids = append(v.ids, use)
}

func (v *scan) inRestart() bool {
	for i := range v.stack {
		if f, ok := v.parent(i).(*js.FuncDecl); ok && f.Name != nil && restartName.Match(f.Name.Data) {
			return true
		}
	}
	return false
}

var restartName = regexp.MustCompile(`(?i)^(restart|reset|retry|startGame|newGame|resetGame|restartGame|playAgain)$`)

func (v *scan) function(n *js.FuncDecl) {
	if n.Name == nil {
		return
	}
	name := string(n.Name.Data)
	v.lookup(name, &n.Params, &n.Body)
	// In loose code a function inside a block is visible outside of it.
	if _, ok := v.parent(0).(*js.BlockStmt); ok && len(v.stack) > 1 && !isFunction(v.parent(1)) {
		v.blockFuncs[name] = true
	}
	if line, ok := v.alwaysCallsItself(name, &n.Body); ok {
		v.fault("endless_recursion", line, "name", quote(name))
	}
}

// alwaysCallsItself reports a body whose first unconditional statements call the
// function again, with nothing before that could leave it.
func (v *scan) alwaysCallsItself(name string, body *js.BlockStmt) (int, bool) {
	for _, stmt := range body.List {
		switch s := stmt.(type) {
		case *js.ExprStmt:
			if c, ok := s.Value.(*js.CallExpr); ok {
				if f, ok := c.X.(*js.Var); ok && string(f.Data) == name && len(c.Args.List) == 0 {
					return v.line(c), true
				}
			}
			if leaves(s) {
				return 0, false
			}
		case *js.VarDecl, *js.EmptyStmt, *js.FuncDecl, *js.ClassDecl:
		default:
			if leaves(s) {
				return 0, false
			}
		}
	}
	return 0, false
}

// nextFrame notes that the function around asks for its own next frame.
func (v *scan) nextFrame(name string, line int) {
	for i := range v.stack {
		f, ok := v.parent(i).(*js.FuncDecl)
		if !ok || f.Name == nil || string(f.Name.Data) != name {
			continue
		}
		if _, ok := v.parent(i + 1).(*js.BlockStmt); !ok {
			return // an expression: whoever got it may call it
		}
		v.loops = append(v.loops, loop{name: name, line: v.s.place(f.Name.Data), args: len(f.Params.List) > 0})
		return
	}
}

// endless reports while (true) and the like that nothing leaves.
func (v *scan) endless(cond js.IExpr, body js.IStmt, bare bool) {
	always := cond == nil && bare
	if l, ok := cond.(*js.LiteralExpr); ok && cond != nil {
		always = l.TokenType == js.TrueToken || (l.TokenType == js.IntegerToken || l.TokenType == js.DecimalToken) && string(l.Data) != "0"
	}
	if !always || body == nil || leaves(body) {
		return
	}
	line := v.s.line
	finder := &firstLiteral{s: v.s}
	js.Walk(finder, body)
	if finder.line > 0 {
		line = finder.line
	}
	v.fault("endless_loop", line)
}

type firstLiteral struct {
	s    *script
	line int
}

func (f *firstLiteral) Enter(n js.INode) js.IVisitor {
	if e, ok := n.(js.IExpr); ok && f.line == 0 {
		f.line = lineOf(f.s, e)
	}
	if f.line > 0 {
		return nil
	}
	return f
}

func (f *firstLiteral) Exit(js.INode) {}

// leaves reports whether anything inside could leave: break, return, throw,
// yield, await. Functions inside do not count.
func leaves(n js.INode) bool {
	l := &leaver{}
	js.Walk(l, n)
	return l.found
}

type leaver struct{ found bool }

func (l *leaver) Enter(n js.INode) js.IVisitor {
	switch n := n.(type) {
	case *js.FuncDecl, *js.ArrowFunc, *js.MethodDecl:
		return nil
	case *js.BranchStmt:
		if n.Type == js.BreakToken || n.Label != nil {
			l.found = true
		}
	case *js.ReturnStmt, *js.ThrowStmt, *js.YieldExpr:
		l.found = true
	case *js.UnaryExpr:
		if n.Op == js.AwaitToken {
			l.found = true
		}
	}
	return l
}

func (l *leaver) Exit(js.INode) {}
