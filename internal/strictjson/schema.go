package strictjson

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Rule checks one value, and may prune it. It returns a *Violation.
type Rule func(v *Value, at Path) error

// Path is where in the document a value stands.
type Path struct {
	parent *Path
	name   string
	index  int
}

// Of returns the path of member name.
func (p *Path) Of(name string) Path { return Path{parent: p, name: name} }

// Nth returns the path of element i.
func (p *Path) Nth(i int) Path { return Path{parent: p, index: i} }

// String writes the path as messages[0].content; names are untrusted and
// therefore quoted where they are anything but plain.
func (p *Path) String() string {
	if p == nil || p.parent == nil {
		return ""
	}
	above := p.parent.String()
	if p.name == "" {
		return above + "[" + strconv.Itoa(p.index) + "]"
	}
	if above != "" {
		above += "."
	}
	return above + plain(p.name)
}

func plain(name string) string {
	if len(name) > 64 {
		name = name[:64]
	}
	for _, c := range []byte(name) {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return strconv.QuoteToASCII(name)
		}
	}
	return name
}

// Violation is the first thing in a document that its schema does not allow.
// Field is safe to print.
type Violation struct {
	Field   string // where, "" for the document itself
	Problem string // what is wrong
	Unknown bool   // the field is on no list at all: a setting may allow it
}

// Error joins both.
func (e *Violation) Error() string {
	if e.Field == "" {
		return "the request " + e.Problem
	}
	return "the field " + e.Field + " " + e.Problem
}

func fail(at Path, format string, args ...any) error {
	return &Violation{Field: at.String(), Problem: fmt.Sprintf(format, args...)}
}

func want(v *Value, at Path, k Kind) error {
	if v.Kind != k {
		return fail(at, "must be of type %s, not %s", k, v.Kind)
	}
	return nil
}

// Check applies r to a whole document.
func Check(v *Value, r Rule) error { return r(v, Path{}) }

// Field says how an object treats one of its members.
type Field struct {
	rule Rule
	need bool
	drop bool
}

// Fields lists the members that an object may have. Any other is refused.
type Fields map[string]Field

// Opt is a member that may be there.
func Opt(r Rule) Field { return Field{rule: r} }

// Need is a member that must be there.
func Need(r Rule) Field { return Field{rule: r, need: true} }

// Drop is a member that is accepted, checked, and not sent on.
func Drop(r Rule) Field { return Field{rule: r, drop: true} }

// Never is a member that is refused with a reason of its own.
func Never(why string) Field {
	return Field{rule: func(_ *Value, at Path) error { return fail(at, "is not allowed: %s", why) }}
}

// Record is an object with exactly these members.
func Record(fields Fields) Rule {
	var needed []string
	for name, f := range fields {
		if f.need {
			needed = append(needed, name)
		}
	}
	slices.Sort(needed)
	return func(v *Value, at Path) error {
		if err := want(v, at, Object); err != nil {
			return err
		}
		drops := false
		for i, name := range v.names {
			f, ok := fields[name]
			here := at.Of(name)
			if !ok {
				return &Violation{Field: here.String(), Problem: "is not allowed", Unknown: true}
			}
			if err := f.rule(&v.items[i], here); err != nil {
				return err
			}
			drops = drops || f.drop
		}
		for _, name := range needed {
			if v.Get(name) == nil {
				return fail(at.Of(name), "is missing")
			}
		}
		if !drops {
			return nil
		}
		names, items := v.names[:0], v.items[:0]
		for i, name := range v.names {
			if !fields[name].drop {
				names, items = append(names, name), append(items, v.items[i])
			}
		}
		v.names, v.items = names, items
		return nil
	}
}

// Each is an array of at most max values that all satisfy r.
func Each(max int, r Rule) Rule {
	return func(v *Value, at Path) error {
		if err := want(v, at, Array); err != nil {
			return err
		}
		if len(v.items) > max {
			return fail(at, "has %d elements, at most %d are allowed", len(v.items), max)
		}
		for i := range v.items {
			if err := r(&v.items[i], at.Nth(i)); err != nil {
				return err
			}
		}
		return nil
	}
}

// Tagged is an object whose member "type" picks the rule. A missing type picks
// fallback, which may be "". refused gives reasons for types that clients may
// well try.
func Tagged(fallback string, variants map[string]Rule, refused map[string]string) Rule {
	return func(v *Value, at Path) error {
		if err := want(v, at, Object); err != nil {
			return err
		}
		tag := fallback
		if t := v.Get("type"); t != nil {
			if err := want(t, at.Of("type"), String); err != nil {
				return err
			}
			tag = t.text
		}
		if r, ok := variants[tag]; ok {
			return r(v, at)
		}
		for prefix, why := range refused {
			if tag != "" && strings.HasPrefix(tag, prefix) {
				return fail(at, "has the type %s, which is not allowed: %s", plain(tag), why)
			}
		}
		return fail(at, "has the type %s, which is not allowed", plain(tag))
	}
}

// ByKind picks the rule by the kind of the value.
func ByKind(rules map[Kind]Rule) Rule {
	return func(v *Value, at Path) error {
		if r, ok := rules[v.Kind]; ok {
			return r(v, at)
		}
		return fail(at, "must not be of type %s", v.Kind)
	}
}

// Maybe is r or null.
func Maybe(r Rule) Rule {
	return func(v *Value, at Path) error {
		if v.Kind == Null {
			return nil
		}
		return r(v, at)
	}
}

// Text is a string of at most max bytes.
func Text(max int) Rule {
	return func(v *Value, at Path) error {
		if err := want(v, at, String); err != nil {
			return err
		}
		if len(v.text) > max {
			return fail(at, "has %d bytes, at most %d are allowed", len(v.text), max)
		}
		return nil
	}
}

// Enum is one of these strings.
func Enum(words ...string) Rule {
	return func(v *Value, at Path) error {
		if err := want(v, at, String); err != nil {
			return err
		}
		if !slices.Contains(words, v.text) {
			return fail(at, "must be one of %s", strings.Join(words, ", "))
		}
		return nil
	}
}

// YesNo is a boolean.
func YesNo(v *Value, at Path) error { return want(v, at, Bool) }

// No is the boolean false, and nothing else; why says so to the agent.
func No(why string) Rule {
	return func(v *Value, at Path) error {
		if v.Kind == Null || v.Kind == Bool && v.text == "false" {
			return nil
		}
		return fail(at, "must be false: %s", why)
	}
}

// Whole is an integer between min and max, written as one.
func Whole(min, max int64) Rule {
	return func(v *Value, at Path) error {
		n, ok := v.Int()
		if !ok || n < min || n > max {
			return fail(at, "must be a whole number from %d to %d", min, max)
		}
		return nil
	}
}

// Range is a number between min and max.
func Range(min, max float64) Rule {
	return func(v *Value, at Path) error {
		f, ok := v.Float()
		if !ok || math.IsNaN(f) || f < min || f > max {
			return fail(at, "must be a number from %g to %g", min, max)
		}
		return nil
	}
}

// Any is whatever it is: a tool's schema or arguments, which nobody on our side
// or the provider's interprets.
func Any(*Value, Path) error { return nil }

// AnyObject is an object of whatever members.
func AnyObject(v *Value, at Path) error { return want(v, at, Object) }
