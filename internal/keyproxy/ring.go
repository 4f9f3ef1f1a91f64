package keyproxy

import (
	"slices"

	"dreamcore"
	"dreamcore/internal/redact"
)

// formerKeys is how many keys that an upstream had before are still searched
// for in what comes back: whoever knew them may echo them.
const formerKeys = 4

// ring is an upstream's key of the moment, and what is cut out of its answers.
type ring struct {
	key    dreamcore.Secret
	former []string
	set    *redact.Set // nil when there has never been a key
}

func newRing(key dreamcore.Secret, was *ring) (*ring, error) {
	r := &ring{key: key}
	if was != nil {
		r.former = slices.DeleteFunc(append([]string{was.key.Reveal()}, was.former...), func(old string) bool { return old == "" || old == key.Reveal() })
		r.former = r.former[:min(len(r.former), formerKeys)]
	}
	secrets := r.former
	if !key.IsZero() {
		secrets = append([]string{key.Reveal()}, secrets...)
	}
	if len(secrets) == 0 {
		return r, nil
	}
	var err error
	r.set, err = redact.New(secrets...)
	return r, err
}

// secrets is what is cut out of an answer, as of now.
func (u *upstream) secrets() *redact.Set { return u.ring.Load().set }

// SetKey changes the key of upstream number i of a feature, counted from 0 as in
// Config. Calls that begin from now on use it; those that run go on with the
// former one. Both are cut out of all answers. It reports whether anything changed.
func (p *Proxy) SetKey(f dreamcore.Feature, i int, key dreamcore.Secret) (bool, error) {
	const op = "keyproxy.set_key"
	list := p.upstreams[f]
	if i < 0 || i >= len(list) {
		return false, dreamcore.Errorf(dreamcore.NotFound, op, "there is no upstream %d of %s", i, f)
	}
	u := list[i]
	for {
		was := u.ring.Load()
		if was.key == key {
			return false, nil
		}
		now, err := newRing(key, was)
		if err != nil {
			return false, dreamcore.Errorf(dreamcore.Invalid, op, "the key of %s: %v", u, err)
		}
		if u.ring.CompareAndSwap(was, now) {
			p.log.Info("key changed", "upstream", u.String(), "decision", "rotate", "former", len(now.former))
			return true, nil
		}
	}
}
