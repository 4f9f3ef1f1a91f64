package keyproxy

import (
	"errors"
	"slices"
	"strings"

	"dreamcore"
	"dreamcore/internal/budget"
	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/strictjson"
)

// What a call is assumed to use before it is known.
const (
	// mediaTokens is the most that a picture counts as, whatever its bytes.
	mediaTokens = 6_000
	// frameTokens covers what a provider adds around a request's own text.
	frameTokens = 2_000
	// minOutput is the least output worth asking for when a budget runs out.
	minOutput = 256
	// ownBytes is what our own fields may add to a body.
	ownBytes = 1 << 10
	// responseBytes is the most that one answer may have.
	responseBytes = 64 << 20
	// minResponseBytes is the least that an answer needs.
	minResponseBytes = 64 << 10
)

// admit checks the body against the operation's list and the job's terms, and
// writes what will be sent on into c.body.
func (c *call) admit() *stop {
	// The model says which upstream is meant; one that nobody has is refused
	// below, after the rest was checked.
	name, inPath := c.parts["model"]
	if !inPath {
		name = c.body.Get("model").Text()
	}
	c.up, c.price = c.p.route(c.op.Feature, name)
	// Extra fields are the operator's word for their own upstream; everything
	// else is checked by the list.
	extra := map[string]strictjson.Value{}
	for _, name := range c.up.ExtraFields {
		if v := c.body.Get(name); v != nil {
			extra[name] = *v
			c.body.Delete(name)
		}
	}
	if err := strictjson.Check(&c.body, c.op.Rule); err != nil {
		var v *strictjson.Violation
		if errors.As(err, &v) && v.Unknown && !strings.ContainsAny(v.Field, ".[") {
			return nof(BadField, "%v; the operator's setting upstreams.%s.extra_fields could allow it", err, c.op.Feature)
		}
		return nof(BadField, "%v; no setting allows it", err)
	}
	c.rec.Model = clip(name, 80)
	if c.price == nil || !slices.Contains(c.terms.Models, name) {
		return nof(ModelRefused, "%s", clip(name, 80))
	}
	if !c.price.priced(c.op.Kind == provider.Image) {
		return nof(NoPrice, "%s", clip(name, 80))
	}
	if c.price.Upstream != "" && !inPath {
		c.body.Set("model", strictjson.Str(c.price.Upstream))
	}
	for name, v := range extra {
		c.body.Set(name, v)
	}
	return nil
}

// reserve bounds the output and holds what the call may cost at most.
func (c *call) reserve() (budget.Reservation, *stop) {
	accounts := c.terms.accounts()
	// Writing the body anew never makes it longer, but for the fields we set.
	size := c.rec.BytesIn + ownBytes
	input := inputBound(&c.body, c.rec.BytesIn) // frameTokens covers our own fields
	for range 4 {                               // another call may take what was left in between
		left, err := c.p.ledger.Left(accounts...)
		if err != nil {
			return budget.Reservation{}, no(JobUnknown)
		}
		want := dreamcore.Usage{Requests: 1, Bytes: size + max(minResponseBytes, min(responseBytes, (left.Bytes-size)/2))}
		switch c.op.Kind {
		case provider.Generate:
			want.InputTokens = input
			cost := input * max(c.price.InputMicros, c.price.CacheWriteMicros)
			if want.OutputTokens = c.output(left, cost); want.OutputTokens < 1 {
				return budget.Reservation{}, nof(BudgetSpent, "too few tokens are left for an answer")
			}
			want.CostMicros = perMillion(cost + want.OutputTokens*c.price.OutputMicros)
		case provider.Image:
			want.Images = 1
			if n, ok := c.body.Get("n").Int(); ok {
				want.Images = n
			}
			want.CostMicros = want.Images * c.price.ImageMicros
		case provider.Count, provider.List, provider.Package, provider.Asset:
		}
		r, err := c.p.ledger.Reserve(want, accounts...)
		var spent *budget.Exhausted
		switch {
		case err == nil:
			c.bound(want.OutputTokens)
			return r, nil
		case errors.As(err, &spent):
			if c.op.Kind == provider.Generate && (spent.Limit == "outputTokens" || spent.Limit == "costMicros") && left.Requests > 0 {
				continue
			}
			return r, nof(BudgetSpent, "%s", spent.Limit)
		case errors.Is(err, budget.ErrUnavailable):
			c.p.log.Error("the ledger cannot be written", "job_id", c.rec.Job, "reason", LedgerDown, "error", err)
			return r, no(LedgerDown)
		default:
			return r, nof(BudgetSpent, "%v", err)
		}
	}
	return budget.Reservation{}, nof(BudgetSpent, "output tokens or cost")
}

// output returns how many tokens the answer may have: what the client asked
// for, within the model's cap and within what is left. 0 means none.
func (c *call) output(left dreamcore.Budget, inputCost int64) int64 {
	limit := c.price.MaxOutputTokens
	if limit == 0 {
		limit = defaultMaxOutput
	}
	want := limit
	for _, f := range c.op.OutputFields {
		if n, ok := at(&c.body, f).Int(); ok {
			want = min(want, n)
		}
	}
	have := left.OutputTokens
	if c.price.OutputMicros > 0 {
		have = min(have, (min(left.CostMicros, 1<<40)*1_000_000-inputCost)/c.price.OutputMicros)
	}
	if have >= want {
		return want
	}
	thinking, _ := c.body.Get("thinking").Get("budget_tokens").Int()
	if have < minOutput || have <= thinking {
		return 0
	}
	return have
}

// bound writes the output limit into the body.
func (c *call) bound(output int64) {
	if c.op.Kind != provider.Generate {
		return
	}
	set := false
	for _, f := range c.op.OutputFields {
		if at(&c.body, f) != nil {
			put(&c.body, f, strictjson.Int(output))
			set = true
		}
	}
	if !set {
		put(&c.body, c.op.OutputFields[0], strictjson.Int(output))
	}
}

// at finds a field whose name may lead into an object with a dot.
func at(v *strictjson.Value, field string) *strictjson.Value {
	if outer, inner, ok := strings.Cut(field, "."); ok {
		return v.Get(outer).Get(inner)
	}
	return v.Get(field)
}

// put sets such a field.
func put(v *strictjson.Value, field string, x strictjson.Value) {
	outer, inner, ok := strings.Cut(field, ".")
	if !ok {
		v.Set(field, x)
		return
	}
	if o := v.Get(outer); o != nil && o.Kind == strictjson.Object {
		o.Set(inner, x)
		return
	}
	v.Set(outer, strictjson.Obj(inner, x))
}

// inputBound is an upper bound of the input tokens of a request that is size
// bytes long: no tokenizer makes more tokens than there are bytes, and pictures count by their area.
func inputBound(v *strictjson.Value, size int64) int64 {
	var media, mediaBytes int64
	var walk func(v *strictjson.Value)
	walk = func(v *strictjson.Value) {
		if v.Kind == strictjson.String {
			if t := v.Text(); strings.HasPrefix(t, "data:image/") {
				media, mediaBytes = media+1, mediaBytes+int64(len(t))
			}
			return
		}
		if v.Get("type").Text() == "base64" {
			if d := v.Get("data"); d != nil {
				if strings.HasPrefix(v.Get("media_type").Text(), "image/") {
					media++
					mediaBytes += int64(len(d.Text()))
				}
			}
			return
		}
		if kind := v.Get("mimeType"); kind != nil && strings.HasPrefix(kind.Text(), "image/") {
			if d := v.Get("data"); d != nil {
				media++
				mediaBytes += int64(len(d.Text()))
			}
			return
		}
		for i := range v.Len() {
			walk(v.At(i))
		}
	}
	walk(v)
	return size - mediaBytes + media*mediaTokens + frameTokens
}

// cost is the price of tokens, rounded up.
func (m *ModelPrice) cost(t provider.Tokens) int64 {
	or := func(price int64) int64 {
		if price == 0 {
			return m.InputMicros
		}
		return price
	}
	return perMillion(t.Input*m.InputMicros + t.CacheRead*or(m.CacheReadMicros) + t.CacheWrite*or(m.CacheWriteMicros) + t.Output*m.OutputMicros)
}

func perMillion(micros int64) int64 { return (micros + 999_999) / 1_000_000 }
