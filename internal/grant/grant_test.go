package grant

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"dreamcore"
)

// The official v4.public vectors of PASETO (facts of the specification).
func TestOfficialVectors(t *testing.T) {
	const (
		seed    = "b4cbfb43df4ce210727d953e4a713307fa19bb7d9f85041438d9e11b942a3774"
		public  = "1eb9dbbbbc047c03fd70604e0071f0987e16b28b757225c11f00415d0e20b1a2"
		message = `{"data":"this is a signed message","exp":"2022-01-01T00:00:00+00:00"}`
		footer  = `{"kid":"zVhMiPBP9fRf2snEcT7gFTioeA9COcNy9DfgL1W60haN"}`
		body    = "v4.public.eyJkYXRhIjoidGhpcyBpcyBhIHNpZ25lZCBtZXNzYWdlIiwiZXhwIjoiMjAyMi0wMS0wMVQwMDowMDowMCswMDowMCJ9"
		foot    = ".eyJraWQiOiJ6VmhNaVBCUDlmUmYyc25FY1Q3Z0ZUaW9lQTlDT2NOeTlEZmdMMVc2MGhhTiJ9"
	)
	raw, _ := hex.DecodeString(seed)
	key := ed25519.NewKeyFromSeed(raw)
	pub := key.Public().(ed25519.PublicKey)
	if hex.EncodeToString(pub) != public {
		t.Fatalf("public key %x", pub)
	}
	for name, v := range map[string]struct{ footer, implicit, token string }{
		"4-S-1": {"", "", body + "bg_XBBzds8lTZShVlwwKSgeKpLT3yukTw6JUz3W4h_ExsQV-P0V54zemZDcAxFaSeef1QlXEFtkqxT1ciiQEDA"},
		"4-S-2": {footer, "", body + "v3Jt8mx_TdM2ceTGoqwrh4yDFn0XsHvvV_D0DtwQxVrJEBMl0F2caAdgnpKlt4p7xBnx1HcO-SPo8FPp214HDw" + foot},
		"4-S-3": {footer, `{"test-vector":"4-S-3"}`, body + "NPWciuD3d0o5eXJXG5pJy-DiVEoyPYWs1YSTwWHNJq6DZD3je5gf-0M4JR9ipdUSJbIovzmBECeaWmaqcaP0DQ" + foot},
	} {
		if got := sign(key, []byte(message), []byte(v.footer), []byte(v.implicit)); got != v.token {
			t.Errorf("%s: signed\n%s, want\n%s", name, got, v.token)
		}
		m, f, err := open(pub, v.token, []byte(v.implicit))
		if err != nil || string(m) != message || string(f) != v.footer {
			t.Errorf("%s: opened %q %q %v", name, m, f, err)
		}
		if _, _, err := open(pub, v.token, []byte(v.implicit+"x")); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: another implicit assertion: %v", name, err)
		}
	}
}

func TestPreAuthenticationEncoding(t *testing.T) {
	for want, pieces := range map[string][][]byte{
		"0000000000000000":                                 nil,
		"01000000000000000000000000000000":                 {{}},
		"0100000000000000040000000000000074657374":         {[]byte("test")},
		"020000000000000000000000000000000000000000000000": {{}, {}},
	} {
		if got := hex.EncodeToString(pae(pieces...)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func claims() Claims {
	return Claims{
		ID: "id1", Job: "job1", Attempt: 2, Channel: "sbx1", Audience: "proxy", Features: []dreamcore.Feature{dreamcore.OpenAIChat},
		NotBefore: now, Expires: now.Add(MaxLife),
	}
}

func minter(t testing.TB) *Minter {
	t.Helper()
	m, err := MinterOf(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMintAndVerify(t *testing.T) {
	m := minter(t)
	token, err := m.Mint(claims())
	if err != nil {
		t.Fatal(err)
	}
	v, err := ParseVerifier(m.Verifier().String())
	if err != nil {
		t.Fatal(err)
	}
	got, err := v.Verify(token, "proxy", now.Add(time.Minute))
	want := claims()
	if err != nil || got.Job != want.Job || got.Attempt != 2 || got.Channel != "sbx1" || !slices.Equal(got.Features, want.Features) ||
		!got.Expires.Equal(want.Expires) || got.ID != "id1" {
		t.Errorf("got %+v, %v", got, err)
	}
	c := claims()
	c.Features = nil
	token, err = m.Mint(c)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.Verify(token, "proxy", now); err != nil || len(got.Features) != 0 {
		t.Errorf("a grant without features: %+v %v", got, err)
	}
}

func TestT06TimeBounds(t *testing.T) {
	m := minter(t)
	token, err := m.Mint(claims())
	if err != nil {
		t.Fatal(err)
	}
	end := now.Add(MaxLife)
	for _, c := range []struct {
		at   time.Time
		want error
	}{
		{now, nil},
		{now.Add(-Skew), nil},
		{now.Add(-Skew - time.Nanosecond), ErrNotYet},
		{end.Add(Skew), nil},
		{end.Add(Skew + time.Nanosecond), ErrExpired},
		{time.Time{}, ErrNotYet},
	} {
		if _, err := m.Verifier().Verify(token, "proxy", c.at); !errors.Is(err, c.want) {
			t.Errorf("at %s: %v, want %v", c.at, err, c.want)
		}
	}
	if _, err := m.Verifier().Verify(token, "another", now); !errors.Is(err, ErrAudience) {
		t.Errorf("another audience: %v", err)
	}
}

func TestMintRefusesWhatVerifyWould(t *testing.T) {
	m := minter(t)
	for name, change := range map[string]func(*Claims){
		"no job":      func(c *Claims) { c.Job = "" },
		"no channel":  func(c *Claims) { c.Channel = "" },
		"no audience": func(c *Claims) { c.Audience = "" },
		"attempt 0":   func(c *Claims) { c.Attempt = 0 },
		"too long":    func(c *Claims) { c.Expires = c.NotBefore.Add(MaxLife + 1) },
		"backwards":   func(c *Claims) { c.Expires = c.NotBefore },
		"huge":        func(c *Claims) { c.Channel = strings.Repeat("x", MaxTokenBytes) },
	} {
		c := claims()
		change(&c)
		if _, err := m.Mint(c); !errors.Is(err, ErrClaims) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A signer that does not check: the verifier does.
	for name, payload := range map[string]string{
		"empty":         `{}`,
		"not an object": `"x"`,
		"no expiry":     `{"jti":"a","job":"a","attempt":1,"channel":"a","aud":"proxy","features":[],"nbf":"2026-11-30T12:00:00Z"}`,
		"a year":        `{"jti":"a","job":"a","attempt":1,"channel":"a","aud":"proxy","features":[],"nbf":"2026-11-30T12:00:00Z","exp":"2027-11-30T12:00:00Z"}`,
		"extra claim":   `{"jti":"a","job":"a","attempt":1,"channel":"a","aud":"proxy","features":[],"nbf":"2026-11-30T12:00:00Z","exp":"2026-11-30T12:01:00Z","admin":true}`,
		"twice":         `{"jti":"a","job":"a","job":"b","attempt":1,"channel":"a","aud":"proxy","features":[],"nbf":"2026-11-30T12:00:00Z","exp":"2026-11-30T12:01:00Z"}`,
	} {
		token := sign(m.key, []byte(payload), nil, nil)
		if _, err := m.Verifier().Verify(token, "proxy", now); !errors.Is(err, ErrClaims) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestT03AnotherKeyVersionOrForm(t *testing.T) {
	m := minter(t)
	token, err := m.Mint(claims())
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewMinter()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Mint(claims())
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(map[string]any{"job": "job1"})
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(payload) + "."
	withFooter := sign(m.key, []byte(`{}`), []byte("kid"), nil)
	for name, tok := range map[string]string{
		"foreign":    foreign,
		"v3":         "v3" + token[2:],
		"v2":         "v2" + token[2:],
		"local":      strings.Replace(token, ".public.", ".local.", 1),
		"upper case": "V4" + token[2:],
		"jwt none":   none,
		"footer":     withFooter,
		"dot":        token + ".",
		"newline":    token[:40] + "\n" + token[40:],
		"space":      token + " ",
		"padding":    token + "=",
		"half":       token[:len(token)/2],
		"only head":  header,
		"empty":      "",
		"long":       header + strings.Repeat("A", MaxTokenBytes),
	} {
		if _, err := m.Verifier().Verify(tok, "proxy", now); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := m.Verifier().Verify(token, "proxy", now); err != nil {
		t.Errorf("the positive control: %v", err)
	}
}

func TestT04EveryBitFlip(t *testing.T) {
	m := minter(t)
	token, err := m.Mint(claims())
	if err != nil {
		t.Fatal(err)
	}
	v := m.Verifier()
	for i := range token {
		for bit := range 8 {
			b := []byte(token)
			b[i] ^= 1 << bit
			if _, err := v.Verify(string(b), "proxy", now); err == nil {
				t.Fatalf("bit %d of byte %d flipped, and accepted", bit, i)
			}
		}
	}
}

// FuzzT04 changes a good token at will: only the very same text is accepted.
func FuzzT04Verify(f *testing.F) {
	m := minter(f)
	token, err := m.Mint(claims())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	f.Add(token[:len(token)-1] + "A")
	f.Add(token + ".AA")
	f.Add(header + strings.Repeat("_", 100))
	v := m.Verifier()
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := v.Verify(s, "proxy", now); err == nil && s != token {
			t.Fatalf("accepted %q", s)
		}
	})
}
