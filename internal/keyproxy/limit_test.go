package keyproxy

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"dreamcore"
)

func limitUpstream(f dreamcore.Feature, l Limit) option {
	return func(cfg *Config, _ *JobTerms) { cfg.Upstreams[f][0].Limit = l }
}

func limitCreator(l Limit) option {
	return func(_ *Config, terms *JobTerms) {
		terms.Creator, terms.CreatorBudget, terms.CreatorLimit = "creator1", plenty, l
	}
}

// One call at once, for a creator or an upstream: the second is told to come
// again, and is let in when the first has ended, however that ends.
func TestB02ConcurrencyOfCreatorAndUpstream(t *testing.T) {
	for name, o := range map[string]option{
		"creator":  limitCreator(Limit{Concurrency: 1}),
		"upstream": limitUpstream(dreamcore.OpenAIChat, Limit{Concurrency: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, o)
			in, out := make(chan bool), make(chan bool)
			w.up.set(func(rw http.ResponseWriter, r *http.Request) {
				in <- true
				<-out
				standard(rw, r)
			})
			first := make(chan reply, 1)
			go func() {
				r, err := w.try("POST", chatPath, minimal(chatPath, false), nil)
				if err != nil {
					t.Error(err)
				}
				first <- r
			}()
			<-in
			r := w.post(chatPath, minimal(chatPath, false))
			if r.status != 429 || !strings.Contains(r.body, string(TooManyAtOnce)) || r.header.Get("Retry-After") == "" {
				t.Errorf("%d %v %s", r.status, r.header, r.body)
			}
			if got := w.up.calls.Load(); got != 1 {
				t.Errorf("%d calls", got)
			}
			out <- true
			if r := <-first; r.status != 200 {
				t.Errorf("the first: %d %s", r.status, r.body)
			}
			w.settled(2)
			w.up.set(standard)
			w.passes()
		})
	}
}

func TestB02RateOfCreatorAndUpstream(t *testing.T) {
	for name, o := range map[string]option{
		"creator":  limitCreator(Limit{PerMinute: 3}),
		"upstream": limitUpstream(dreamcore.OpenAIChat, Limit{PerMinute: 3}),
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			clock := &now
			w := newWorld(t, o, func(cfg *Config, _ *JobTerms) { cfg.Now = func() time.Time { return *clock } })
			for range 3 {
				w.passes()
			}
			w.settled(3)
			r := w.post(chatPath, minimal(chatPath, false))
			wait, _ := strconv.Atoi(r.header.Get("Retry-After"))
			if r.status != 429 || !strings.Contains(r.body, string(TooFast)) || wait != 20 {
				t.Errorf("%d, wait %d, %s", r.status, wait, r.body)
			}
			if got := w.up.calls.Load(); got != 3 {
				t.Errorf("%d calls", got)
			}
		})
	}
}

// The throttle by itself: what it holds is given back, and it fills with time.
func TestThrottle(t *testing.T) {
	now := time.Now()
	th := newThrottle(Limit{Concurrency: 2, PerMinute: 60}, now)
	for i, want := range []bool{true, true, false} {
		if got := th.enter(now, "x") == nil; got != want {
			t.Errorf("call %d of two at once: let in %t", i+1, got)
		}
	}
	th.leave()
	if th.idle(now) || th.enter(now, "x") != nil {
		t.Error("a place was not given back")
	}
	th.leave()
	th.leave()
	if th.idle(now) || !th.idle(now.Add(time.Minute)) {
		t.Error("idle")
	}
	var c creators
	for i := range 3 * creatorsKept {
		c.throttle(dreamcore.CreatorID(strconv.Itoa(i)), Limit{PerMinute: 1}, now)
	}
	if len(c.of) > creatorsKept {
		t.Errorf("%d creators are kept", len(c.of))
	}
}

// Retry-After of an upstream is passed on, as seconds whatever its form.
func TestRetryAfterIsPassedOn(t *testing.T) {
	for value, want := range map[string]string{"17": "17", "": "5", "-3": "5", "99999": "5", "soon": "5", time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat): "9"} {
		w := newWorld(t)
		w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", value)
			rw.WriteHeader(429)
		})
		r := w.post(chatPath, minimal(chatPath, true))
		if r.status != 429 || !strings.HasPrefix(r.header.Get("Retry-After"), want) && !(want == "9" && strings.HasPrefix(r.header.Get("Retry-After"), "8")) {
			t.Errorf("%q: %d %v", value, r.status, r.header)
		}
		if got := w.up.calls.Load(); got != 1 {
			t.Errorf("%q: asked %d times", value, got)
		}
	}
}
