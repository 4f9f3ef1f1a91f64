package keyproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/redact"
	"dreamcore/internal/strictjson"
)

// maxEventBytes bounds one event of a stream.
const maxEventBytes = 8 << 20

// relay passes a stream on, event by event, at once. The first event is held
// back until it is known not to say "overloaded"; then again is true and the
// client has seen nothing.
func (c *call) relay(ctx context.Context, resp *http.Response, watch func(time.Duration), ch *charge, limit int64, try int) (s *stop, again bool) {
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is not wanted
	if s := c.acceptable(resp, "text/event-stream"); s != nil {
		return s, false
	}
	watch(c.p.timeouts.Silence)
	rd := &events{r: &watched{resp.Body, watch, c.p.timeouts.Silence}}
	out := &cleaner{call: c, ch: ch, texts: map[string]*held{}}
	var got int64
	for {
		ev, err := rd.next()
		if err != nil {
			return c.cut(ctx, err, out), false
		}
		if got += int64(rd.used); got > limit {
			return c.cut(ctx, errTooLong, out), false
		}
		out.take(ev)
		if !c.began {
			if out.overloaded && try < retries {
				return nil, true
			}
			c.copyHeaders(resp, "text/event-stream")
			c.w.Header().Set("Cache-Control", "no-store")
			c.began, c.rec.Status = true, http.StatusOK
		}
		if len(out.buf) == 0 || c.rec.BytesOut > 0 && len(out.buf) < 32<<10 && rd.more() {
			continue // several events that came at once go out at once
		}
		if s := c.send(out.buf); s != nil {
			return c.cut(ctx, errClient, out), false
		}
		out.buf = out.buf[:0]
	}
}

var (
	errTooLong = errors.New("the stream is longer than its reservation")
	errClient  = errors.New("the client takes nothing")
)

// cut ends a stream: properly when the upstream did, otherwise by breaking the
// connection, which is what every client recovers from.
func (c *call) cut(ctx context.Context, err error, out *cleaner) *stop {
	clean := errors.Is(err, io.EOF)
	if clean {
		out.flush()
		out.ch.whole = true
	}
	var s *stop
	switch {
	case clean && c.began, clean && len(out.buf) > 0:
	case clean:
		return nof(UpstreamBroken, "the stream is empty")
	case errors.Is(err, errClient) && c.job.ctx.Err() == nil:
		s, out.buf = no(ClientGone), nil
	case errors.Is(err, errTooLong):
		s = nof(BudgetSpent, "bytes")
	case errors.Is(err, errEvent):
		s = nof(UpstreamBroken, "an event is longer than %d bytes", maxEventBytes)
	default:
		if s = c.ended(ctx, err); s.reason == UpstreamDown {
			s = nof(UpstreamBroken, "the stream broke off")
		}
	}
	if !c.began {
		return s
	}
	if len(out.buf) > 0 {
		if w := c.send(out.buf); w != nil && s == nil {
			s = w
		}
	}
	if s == nil {
		return nil
	}
	c.rec.Reason, c.rec.Detail = s.reason, clip(s.detail, 200)
	panic(http.ErrAbortHandler) // finish writes the audit record and passes it on
}

// event is one server-sent event.
type event struct {
	name []byte
	data []byte
	json strictjson.Value
	ok   bool // data is JSON
}

// events reads server-sent events.
type events struct {
	r    io.Reader
	buf  []byte // read and not used
	used int    // bytes of the last event
	err  error
}

var errEvent = errors.New("an event is too long")

// more reports whether a whole event is there already.
func (e *events) more() bool { _, n := boundary(e.buf); return n > 0 }

// boundary finds the blank line that ends an event: the length of the event
// and of all including the blank line.
func boundary(b []byte) (end, all int) {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return 0, 0
		}
		i += from
		switch {
		case i+1 < len(b) && b[i+1] == '\n':
			return i, i + 2
		case i+2 < len(b) && b[i+1] == '\r' && b[i+2] == '\n':
			return i, i + 3
		}
		from = i + 1
	}
}

// next returns the next event; its bytes are valid until the next call.
func (e *events) next() (event, error) {
	for searched := 0; ; {
		// The border may lie across two reads.
		if end, n := boundary(e.buf[max(0, searched-2):]); n > 0 {
			skip := max(0, searched-2)
			raw := e.buf[:skip+end]
			e.used = skip + n
			ev := parseEvent(raw)
			e.buf = e.buf[skip+n:]
			return ev, nil
		}
		searched = len(e.buf)
		if e.err != nil {
			if rest := bytes.TrimSpace(e.buf); len(rest) > 0 && errors.Is(e.err, io.EOF) {
				// Some servers leave the last blank line out.
				ev := parseEvent(rest)
				if e.used, e.buf = len(e.buf), nil; len(ev.data) > 0 && ev.data[0] == '{' && !ev.ok {
					return event{}, io.ErrUnexpectedEOF
				}
				return ev, nil
			}
			return event{}, e.err
		}
		if len(e.buf) > maxEventBytes {
			return event{}, errEvent
		}
		if cap(e.buf)-len(e.buf) < 16<<10 {
			e.buf = append(make([]byte, 0, 2*len(e.buf)+64<<10), e.buf...)
		}
		n, err := e.r.Read(e.buf[len(e.buf):cap(e.buf)])
		e.buf = e.buf[:len(e.buf)+n]
		e.err = err
	}
}

// parseEvent keeps the fields that matter to clients: name and data.
func parseEvent(raw []byte) event {
	var ev event
	var joined bool
	for line := range bytes.SplitSeq(raw, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if v, ok := bytes.CutPrefix(line, []byte("event:")); ok {
			ev.name = bytes.TrimPrefix(v, []byte(" "))
		} else if v, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			v = bytes.TrimPrefix(v, []byte(" "))
			if ev.data == nil {
				ev.data = v
				continue
			}
			if !joined {
				ev.data, joined = bytes.Clone(ev.data), true
			}
			ev.data = append(append(ev.data, '\n'), v...)
		}
	}
	if len(ev.data) > 0 && ev.data[0] == '{' {
		v, err := strictjson.Parse(ev.data)
		ev.json, ev.ok = v, err == nil
	}
	return ev
}

// cleaner takes events and leaves in buf what may go to the client.
type cleaner struct {
	call       *call
	ch         *charge
	texts      map[string]*held
	order      []*held // of texts, as they began
	pending    int     // texts of which something is held back
	buf        []byte
	overloaded bool
	seen       bool
}

// held is one text that comes in pieces, with the event that brought the last.
type held struct {
	set    *redact.Set // of stream
	stream *redact.Stream
	name   []byte
	last   strictjson.Value
	piece  *strictjson.Value
	others []*strictjson.Value
}

func (k *cleaner) take(ev event) {
	secrets := k.call.up.secrets()
	if !ev.ok {
		if len(ev.data) == 0 {
			return // a comment, or a name without data
		}
		k.flush()
		k.write(ev.name, secrets.Bytes(ev.data))
		return
	}
	if !k.seen {
		k.seen = true
		k.overloaded = k.ch.meter.Overloaded(&ev.json)
	}
	if !k.ch.meter.Event(&ev.json) {
		return
	}
	deltas := k.ch.meter.Deltas(&ev.json)
	if len(deltas) == 0 && ev.json.Get("type").Text() != "ping" {
		k.flush() // the text ends, or something else comes between
	}
	changed := false
	for i, d := range deltas {
		k.ch.text += int64(len(d.Piece.Text()))
		if secrets == nil {
			continue
		}
		changed = k.piece(ev, deltas, i) || changed
	}
	data := ev.data
	if changed {
		data = ev.json.Append(nil)
	}
	if len(deltas) == 0 || !k.harmless(&ev.json, deltas) {
		data = k.clean(data)
	}
	k.write(ev.name, data)
	if k.ch.meter.Done() {
		k.flush()
	}
}

// piece takes delta i through the text it belongs to.
func (k *cleaner) piece(ev event, deltas []provider.Delta, i int) (changed bool) {
	d, secrets := deltas[i], k.call.up.secrets()
	t := k.texts[d.Key]
	if t == nil {
		t = &held{set: secrets, stream: secrets.Stream()}
		k.texts[d.Key] = t
		k.order = append(k.order, t)
	}
	before := t.stream.Held()
	in := d.Piece.Text()
	carried := ""
	if t.set != secrets { // the operator's key was changed meanwhile
		carried = t.stream.Flush()
		t.set, t.stream = secrets, secrets.Stream()
	}
	out := t.stream.Push(carried + in)
	after := t.stream.Held()
	if before == 0 && after > 0 {
		k.pending++
	} else if before > 0 && after == 0 {
		k.pending--
	}
	if after > 0 {
		t.name, t.last, t.piece, t.others = bytes.Clone(ev.name), ev.json, d.Piece, nil
		for j := range deltas {
			if j != i {
				t.others = append(t.others, deltas[j].Piece)
			}
		}
	}
	if out == in {
		return false
	}
	*d.Piece = strictjson.Str(out)
	return true
}

// harmless reports whether no text of an event but its deltas, which went
// through their own streams, holds a secret. Deltas are nearly all of a stream,
// and so are not searched twice.
func (k *cleaner) harmless(v *strictjson.Value, deltas []provider.Delta) bool {
	secrets := k.call.up.secrets()
	for i := range v.Len() {
		if v.Kind == strictjson.Object && !secrets.Clean(v.Name(i)) {
			return false
		}
		if !k.harmless(v.At(i), deltas) {
			return false
		}
	}
	if v.Kind != strictjson.String {
		return true
	}
	for _, d := range deltas {
		if d.Piece == v {
			return true
		}
	}
	return secrets.Clean(v.Text())
}

// flush sends what is held back of every text, each in an event like its last.
func (k *cleaner) flush() {
	if k.pending == 0 {
		return
	}
	for _, t := range k.order {
		if t.stream.Held() == 0 {
			continue
		}
		*t.piece = strictjson.Str(t.stream.Flush())
		for _, o := range t.others {
			*o = strictjson.Str("")
		}
		k.write(t.name, k.clean(t.last.Append(nil)))
	}
	k.pending = 0
}

// clean removes secrets from a whole event; one that is no JSON any more
// afterwards is not sent.
func (k *cleaner) clean(data []byte) []byte {
	out := k.call.up.secrets().Bytes(data)
	if bytes.Equal(out, data) {
		return data
	}
	if _, err := strictjson.Parse(out); err != nil {
		return []byte(`{"type":"ping"}`)
	}
	return out
}

func (k *cleaner) write(name, data []byte) {
	if len(name) > 0 {
		k.buf = append(append(append(k.buf, "event: "...), k.call.up.secrets().Bytes(name)...), '\n')
	}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		k.buf = append(append(append(k.buf, "data: "...), line...), '\n')
	}
	k.buf = append(k.buf, '\n')
}
