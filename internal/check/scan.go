package check

import (
	"regexp"
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

var identifierPattern = regexp.MustCompile(`[A-Za-z_$][\w$]*`)

// scan walks one script once and notes the facts that rules ask for.
type scan struct {
	s     *script
	stack []js.INode
	depth int // functions around
	tries int // try blocks around

	bindings   map[string]bool // names that imports bind
	called     map[string]bool // undeclared names that are called
	written    map[string]bool // undeclared names that are assigned to
	guarded    map[string]bool // names that some typeof asks about
	blockFuncs map[string]bool // functions declared inside blocks: visible outside in loose code
	assigned   map[string]bool // window.NAME = ...
	members    map[string]bool // .NAME = ... on anything (how libraries make globals)
	extends    map[string]bool // LIBRARY.NAME = ...
	uses       map[string][]spot
	counts     map[string]int  // how often an identifier occurs
	properties map[string]bool // every .name and every "string"

	strings   []literal
	events    []event
	ids       []elementUse
	calls     []call
	storage   []spot // uses outside try
	sdk       map[string]bool
	atLoad    []spot // SDK calls that fire while loading
	faults    []fault
	idMade    bool            // some id is made at run time
	sdkNames  map[string]bool // other names for the SDK
	lookups   map[string]bool // own helpers that are getElementById by another name
	keyNames  map[string]bool // "event.code" == values, see key
	keys      []keyTest
	loops     []loop
	hasTime   bool // it asks what time it is
	hasFrames bool // it uses requestAnimationFrame
}

type spot struct {
	name string
	line int
}

// literal is a string in the code.
type literal struct {
	value  string
	line   int
	role   string // "plain", "joined" (part of a +), "compared", "template", "ignored"
	callee string // the function that it is an argument of
	nth    int
	target string // what it is assigned to
}

// event is a listener: addEventListener or an on... property.
type event struct {
	name, object string
	line         int
	inRestart    bool
}

type elementUse struct {
	id    string
	line  int
	top   bool // while the script loads
	safe  bool // the code allows for null
	bound string
}

type call struct {
	path string
	line int
	top  bool
}

type fault struct {
	code string
	line int
	args []string
	warn bool
}

type keyTest struct {
	property, value string
	line            int
}

// loop is a function that asks for its own next frame.
type loop struct {
	name string
	line int
	args bool
}

func newScan(s *script) *scan {
	return &scan{
		s: s, bindings: map[string]bool{}, called: map[string]bool{}, written: map[string]bool{}, guarded: map[string]bool{},
		blockFuncs: map[string]bool{}, assigned: map[string]bool{}, members: map[string]bool{}, extends: map[string]bool{},
		uses: map[string][]spot{}, counts: map[string]int{}, properties: map[string]bool{}, sdk: map[string]bool{},
		sdkNames: map[string]bool{"DreamCoreSDK2": true}, lookups: map[string]bool{}, keyNames: map[string]bool{},
	}
}

func (v *scan) parent(n int) js.INode {
	if i := len(v.stack) - 1 - n; i >= 0 {
		return v.stack[i]
	}
	return nil
}

func isFunction(n js.INode) bool {
	switch n.(type) {
	case *js.FuncDecl, *js.ArrowFunc, *js.MethodDecl:
		return true
	}
	return false
}

// Enter notes what a node tells; the stack holds its parents.
func (v *scan) Enter(n js.INode) js.IVisitor {
	switch n := n.(type) {
	case *js.Var:
		v.identifier(n)
	case *js.LiteralExpr:
		v.literal(n)
	case *js.TemplateExpr:
		v.template(n)
	case *js.CallExpr:
		v.call(n.X, n.Args.List)
	case *js.NewExpr:
		if n.Args != nil {
			v.call(n.X, n.Args.List)
		} else {
			v.call(n.X, nil)
		}
	case *js.BinaryExpr:
		v.binary(n)
	case *js.DotExpr:
		v.dot(n)
	case *js.UnaryExpr:
		if n.Op == js.TypeofToken {
			if name, ok := n.X.(*js.Var); ok {
				v.guarded[string(name.Data)] = true
			}
		}
	case *js.FuncDecl:
		v.function(n)
	case *js.ArrowFunc:
		v.lookup("", &n.Params, &n.Body)
	case *js.WhileStmt:
		v.endless(n.Cond, n.Body, false)
	case *js.DoWhileStmt:
		v.endless(n.Cond, n.Body, false)
	case *js.ForStmt:
		v.endless(n.Cond, n.Body, true)
	case *js.SwitchStmt:
		v.keySwitch(n)
	case *js.VarDecl:
		v.declaration(n)
	case *js.Property:
		if n.Name != nil && string(n.Name.Literal.Data) == "id" {
			v.idMade = v.idMade || !isString(n.Value)
		}
	case *js.TryStmt:
		// Only its first block is guarded; the walk goes through all three, and a
		// catch block that touches storage again is rare.
		v.tries++
	}
	if isFunction(n) {
		v.depth++
	}
	v.stack = append(v.stack, n)
	return v
}

// Exit leaves a node.
func (v *scan) Exit(n js.INode) {
	v.stack = v.stack[:len(v.stack)-1]
	if isFunction(n) {
		v.depth--
	}
	if _, ok := n.(*js.TryStmt); ok {
		v.tries--
	}
}

func undeclared(v *js.Var) bool {
	for v.Link != nil {
		v = v.Link
	}
	return v.Decl == js.NoDecl
}

func (v *scan) identifier(n *js.Var) {
	name := string(n.Data)
	v.counts[name]++
	if (name == "localStorage" || name == "sessionStorage") && undeclared(n) && v.tries == 0 {
		if _, ok := v.parent(0).(*js.UnaryExpr); !ok {
			v.storage = append(v.storage, spot{name, v.s.place(n.Data)})
		}
	}
}

// pathOf writes an expression like a.b.c as text; "?" stands for what is no name.
func pathOf(n js.IExpr) string {
	switch n := n.(type) {
	case *js.Var:
		return string(n.Data)
	case *js.DotExpr:
		if y, ok := n.Y.(js.LiteralExpr); ok {
			return pathOf(n.X) + "." + string(y.Data)
		}
		if y, ok := n.Y.(*js.LiteralExpr); ok {
			return pathOf(n.X) + "." + string(y.Data)
		}
		return pathOf(n.X) + ".?"
	case *js.LiteralExpr:
		if n.TokenType == js.ThisToken {
			return "this"
		}
	case *js.GroupExpr:
		return pathOf(n.X)
	}
	return "?"
}

// plainPath is pathOf without window. and its like.
func plainPath(n js.IExpr) string {
	p := pathOf(n)
	for _, w := range []string{"window.", "globalThis.", "self.", "document.defaultView."} {
		p = strings.TrimPrefix(p, w)
	}
	return p
}

func rootVar(n js.IExpr) *js.Var {
	switch n := n.(type) {
	case *js.Var:
		return n
	case *js.DotExpr:
		return rootVar(n.X)
	case *js.GroupExpr:
		return rootVar(n.X)
	}
	return nil
}

func lineOf(s *script, n js.IExpr) int {
	switch n := n.(type) {
	case *js.Var:
		return s.place(n.Data)
	case *js.LiteralExpr:
		return s.place(n.Data)
	case *js.DotExpr:
		if y, ok := n.Y.(*js.LiteralExpr); ok {
			return s.place(y.Data)
		}
		if y, ok := n.Y.(js.LiteralExpr); ok {
			return s.place(y.Data)
		}
		return lineOf(s, n.X)
	case *js.CallExpr:
		return lineOf(s, n.X)
	case *js.GroupExpr:
		return lineOf(s, n.X)
	case *js.IndexExpr:
		return lineOf(s, n.X)
	case *js.BinaryExpr:
		return lineOf(s, n.X)
	}
	return 0
}

// line is the line of an expression, or of the nearest parent that has one.
func (v *scan) line(n js.IExpr) int {
	if l := lineOf(v.s, n); l > 0 {
		return l
	}
	for i := range v.stack {
		if e, ok := v.parent(i).(js.IExpr); ok {
			if l := lineOf(v.s, e); l > 0 {
				return l
			}
		}
	}
	return v.s.line
}

func isString(n js.IExpr) bool {
	l, ok := n.(*js.LiteralExpr)
	return ok && l.TokenType == js.StringToken
}

func stringOf(n js.IExpr) (string, bool) {
	switch l := n.(type) {
	case *js.LiteralExpr:
		if l.TokenType == js.StringToken {
			return unquote(l.Data), true
		}
	case *js.TemplateExpr:
		if len(l.List) == 0 && l.Tag == nil {
			return unquote(l.Tail), true
		}
	}
	return "", false
}

func (v *scan) literal(n *js.LiteralExpr) {
	switch v.parent(0).(type) {
	case *js.PropertyName:
		v.properties[unquote(n.Data)] = true
		return
	}
	if n.TokenType != js.StringToken {
		if n.TokenType == js.IdentifierToken {
			v.properties[string(n.Data)] = true
		}
		return
	}
	v.text(unquote(n.Data), v.s.place(n.Data), n)
}

// text notes a string with the place that it stands in.
func (v *scan) text(value string, line int, n js.INode) {
	v.properties[value] = true
	l := literal{value: value, line: line, role: "plain", nth: -1}
	child := n
	for i := range v.stack {
		p := v.parent(i)
		switch p := p.(type) {
		case *js.BinaryExpr:
			switch p.Op {
			case js.AddToken:
				l.role = "joined"
			case js.EqEqToken, js.EqEqEqToken, js.NotEqToken, js.NotEqEqToken, js.InToken:
				l.role = "compared"
			case js.EqToken, js.AddEqToken:
				l.target = pathOf(p.X)
			}
		case *js.CaseClause:
			if p.Cond == child {
				l.role = "compared"
			}
		case *js.IndexExpr:
			l.role = "compared"
		case *js.Args:
			for k := range p.List {
				if p.List[k].Value == child {
					l.nth = k
				}
			}
			child = p
			continue
		case *js.Arg:
			child = p
			continue
		case *js.CallExpr:
			l.callee = pathOf(p.X)
			v.strings = append(v.strings, l)
			return
		case *js.NewExpr:
			l.callee = "new " + pathOf(p.X)
			v.strings = append(v.strings, l)
			return
		case *js.ThrowStmt:
			l.role = "compared"
		case *js.GroupExpr, *js.CondExpr:
			// it goes on to where it is used
		default:
			v.strings = append(v.strings, l)
			return
		}
		child = p
	}
	v.strings = append(v.strings, l)
}

func (v *scan) template(n *js.TemplateExpr) {
	if len(n.List) == 0 {
		v.text(unquote(n.Tail), v.s.place(n.Tail), n)
		return
	}
	for _, part := range n.List {
		v.part(part.Value)
	}
	v.part(n.Tail)
}

// part is one piece of text of a template with expressions.
func (v *scan) part(b []byte) {
	s := strings.Trim(string(b), "`${}")
	if strings.Contains(s, `id="`) && strings.HasSuffix(s, `id="`) || strings.HasSuffix(s, "id='") || strings.HasSuffix(s, "id=") {
		v.idMade = true
	}
	v.properties[s] = true
	v.strings = append(v.strings, literal{value: s, line: v.s.place(b), role: "template", nth: -1})
}
