// Package grant mints and verifies the short-lived signed token of one job: the
// only credential that is ever inside a sandbox. Its form is PASETO v4.public
// (Ed25519, no algorithm field to negotiate). A grant proves which job, attempt
// and channel it was minted for; whether that job still lives is the key
// proxy's to know.
package grant

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"dreamcore"
	"dreamcore/internal/strictjson"
)

// MaxLife bounds a grant; the host renews it while the job lives.
const MaxLife = 15 * time.Minute

// Skew is how far the clocks of minter and verifier may be apart.
const Skew = 5 * time.Second

// MaxTokenBytes bounds what Verify looks at.
const MaxTokenBytes = 4096

// Prefix begins every grant.
const Prefix = header

// The reasons for which Verify refuses; test with errors.Is.
var (
	ErrMalformed = errors.New("not a grant")
	ErrSignature = errors.New("not signed by this installation")
	ErrClaims    = errors.New("the claims are incomplete or out of bounds")
	ErrAudience  = errors.New("minted for another audience")
	ErrExpired   = errors.New("expired")
	ErrNotYet    = errors.New("not valid yet")
)

// Claims is what a grant says. Every field but ID is required to mint one.
type Claims struct {
	ID        string // made by Mint when empty
	Job       dreamcore.JobID
	Attempt   int // generation of the job's sandbox, from 1
	Channel   string
	Audience  string
	Features  []dreamcore.Feature // what it opens; none means nothing
	NotBefore time.Time
	Expires   time.Time
}

// wire is the payload; the names that PASETO registers have its meaning.
type wire struct {
	ID        string   `json:"jti"`
	Job       string   `json:"job"`
	Attempt   int      `json:"attempt"`
	Channel   string   `json:"channel"`
	Audience  string   `json:"aud"`
	Features  []string `json:"features"`
	NotBefore string   `json:"nbf"`
	Expires   string   `json:"exp"`
}

// Minter holds the private key; it lives in the host, never in the key proxy.
type Minter struct{ key ed25519.PrivateKey }

// NewMinter makes a minter with a fresh key, which dies with the process: after
// a restart the grants of living jobs are minted anew.
func NewMinter() (*Minter, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	return &Minter{key}, nil
}

// MinterOf makes a minter from the 32-byte seed of its key.
func MinterOf(seed []byte) (*Minter, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("a seed has %d bytes, not %d", ed25519.SeedSize, len(seed))
	}
	return &Minter{ed25519.NewKeyFromSeed(seed)}, nil
}

// Verifier returns the public half.
func (m *Minter) Verifier() *Verifier {
	return &Verifier{m.key.Public().(ed25519.PublicKey)}
}

// Mint signs c. It refuses claims that Verify would refuse.
func (m *Minter) Mint(c Claims) (string, error) {
	if c.ID == "" {
		c.ID = dreamcore.NewToken(20)
	}
	if err := c.check(); err != nil {
		return "", fmt.Errorf("mint a grant: %w", err)
	}
	w := wire{
		ID: c.ID, Job: string(c.Job), Attempt: c.Attempt, Channel: c.Channel, Audience: c.Audience,
		Features:  []string{},
		NotBefore: c.NotBefore.UTC().Format(time.RFC3339Nano), Expires: c.Expires.UTC().Format(time.RFC3339Nano),
	}
	for _, f := range c.Features {
		w.Features = append(w.Features, string(f))
	}
	payload, err := json.Marshal(w)
	if err != nil {
		return "", fmt.Errorf("mint a grant: %w", err)
	}
	token := sign(m.key, payload, nil, nil)
	if len(token) > MaxTokenBytes {
		return "", fmt.Errorf("mint a grant: %w: %d bytes", ErrClaims, len(token))
	}
	return token, nil
}

func (c Claims) check() error {
	switch {
	case c.Job == "", c.Channel == "", c.Audience == "", c.ID == "", c.Attempt < 1:
		return fmt.Errorf("%w: a name is empty or the attempt is below 1", ErrClaims)
	case !c.Expires.After(c.NotBefore):
		return fmt.Errorf("%w: it ends before it begins", ErrClaims)
	case c.Expires.Sub(c.NotBefore) > MaxLife:
		return fmt.Errorf("%w: it lives longer than %s", ErrClaims, MaxLife)
	}
	return nil
}

// Verifier checks grants. It holds a public key only, so whoever holds it can
// mint nothing.
type Verifier struct{ key ed25519.PublicKey }

// ParseVerifier reads the form that String writes.
func ParseVerifier(text string) (*Verifier, error) {
	key, err := hex.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("a verifier is %d bytes in hex", ed25519.PublicKeySize)
	}
	return &Verifier{key}, nil
}

// String is the public key in hex.
func (v *Verifier) String() string { return hex.EncodeToString(v.key) }

// Verify returns the claims of a grant that is whole, ours, for this audience
// and valid now. Nothing in a token is looked at before its signature holds.
func (v *Verifier) Verify(token, audience string, now time.Time) (Claims, error) {
	if len(token) > MaxTokenBytes {
		return Claims{}, ErrMalformed
	}
	payload, footer, err := open(v.key, token, nil)
	if err != nil {
		return Claims{}, err
	}
	if len(footer) != 0 {
		return Claims{}, fmt.Errorf("%w: it has a footer", ErrMalformed)
	}
	c, err := parse(payload)
	if err != nil {
		return Claims{}, err
	}
	if err := c.check(); err != nil {
		return Claims{}, err
	}
	switch {
	case c.Audience != audience:
		return c, ErrAudience
	case now.Before(c.NotBefore.Add(-Skew)):
		return c, ErrNotYet
	case now.After(c.Expires.Add(Skew)):
		return c, ErrExpired
	}
	return c, nil
}

var payloadRule = strictjson.Record(strictjson.Fields{
	"jti":      strictjson.Need(strictjson.Text(64)),
	"job":      strictjson.Need(strictjson.Text(64)),
	"attempt":  strictjson.Need(strictjson.Whole(1, 1000)),
	"channel":  strictjson.Need(strictjson.Text(128)),
	"aud":      strictjson.Need(strictjson.Text(128)),
	"features": strictjson.Need(strictjson.Each(32, strictjson.Text(64))),
	"nbf":      strictjson.Need(strictjson.Text(40)),
	"exp":      strictjson.Need(strictjson.Text(40)),
})

func parse(payload []byte) (Claims, error) {
	v, err := strictjson.Parse(payload)
	if err == nil {
		err = strictjson.Check(&v, payloadRule)
	}
	if err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrClaims, err)
	}
	attempt, _ := v.Get("attempt").Int()
	c := Claims{
		ID: v.Get("jti").Text(), Job: dreamcore.JobID(v.Get("job").Text()), Attempt: int(attempt),
		Channel: v.Get("channel").Text(), Audience: v.Get("aud").Text(),
	}
	features := v.Get("features")
	for i := range features.Len() {
		c.Features = append(c.Features, dreamcore.Feature(features.At(i).Text()))
	}
	if c.NotBefore, err = time.Parse(time.RFC3339Nano, v.Get("nbf").Text()); err != nil {
		return Claims{}, fmt.Errorf("%w: nbf: %w", ErrClaims, err)
	}
	if c.Expires, err = time.Parse(time.RFC3339Nano, v.Get("exp").Text()); err != nil {
		return Claims{}, fmt.Errorf("%w: exp: %w", ErrClaims, err)
	}
	return c, nil
}
