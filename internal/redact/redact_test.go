package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

const secret = "sk-canary/7+Operator%Key_0123456789-abcdefXYZ"

// forms is every spelling of secret that must be found.
func forms() map[string]string {
	m := map[string]string{
		"plain":     secret,
		"hex":       hex.EncodeToString([]byte(secret)),
		"HEX":       strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"query":     url.QueryEscape(secret),
		"path":      url.PathEscape(secret),
		"json":      strings.ReplaceAll(secret, "/", `\/`),
		"basic":     base64.StdEncoding.EncodeToString([]byte("user:" + secret)),
		"basic key": base64.StdEncoding.EncodeToString([]byte(secret + ":")),
	}
	var percent, lower, unicode, mixed string
	for i, c := range []byte(secret) {
		percent += fmt.Sprintf("%%%02X", c)
		lower += fmt.Sprintf("%%%02x", c)
		unicode += fmt.Sprintf(`\u%04x`, c)
		mixed += []string{string(c), fmt.Sprintf("%%%02X", c), fmt.Sprintf(`\u%04X`, c)}[i%3]
	}
	m["percent"], m["percent, lower case"], m["unicode"], m["mixed"] = percent, lower, unicode, mixed
	for skip := range 3 {
		for tail := range 3 {
			in := append(append(bytes.Repeat([]byte{'<'}, skip), secret...), bytes.Repeat([]byte{'>'}, tail)...)
			m[fmt.Sprintf("base64 %d %d", skip, tail)] = base64.StdEncoding.EncodeToString(in)
			m[fmt.Sprintf("base64url %d %d", skip, tail)] = base64.RawURLEncoding.EncodeToString(in)
			m[fmt.Sprintf("base64 in a query %d %d", skip, tail)] = url.QueryEscape(base64.StdEncoding.EncodeToString(in))
			m[fmt.Sprintf("base64 in JSON %d %d", skip, tail)] = strings.ReplaceAll(base64.StdEncoding.EncodeToString(in), "/", `\/`)
		}
	}
	return m
}

func set(t testing.TB) *Set {
	s, err := New(secret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestR03EveryForm(t *testing.T) {
	s := set(t)
	for name, form := range forms() {
		in := `{"x":"` + form + `"}`
		out := string(s.Bytes([]byte(in)))
		if !strings.Contains(out, Placeholder) || strings.Contains(out, form) {
			t.Errorf("%s: %q became %q", name, in, out)
		}
		// At most the edge letters of a base64 run may stay.
		if rest := strings.Replace(out, Placeholder, "", 1); len(rest) > len(`{"x":""}`)+20 {
			t.Errorf("%s: left %q", name, rest)
		}
	}
}

func TestR02EveryBorder(t *testing.T) {
	s := set(t)
	for name, form := range forms() {
		in := "before " + form + " after"
		want := string(s.Bytes([]byte(in)))
		for cut := range len(in) + 1 {
			st := s.Stream()
			out := st.Push(in[:cut]) + st.Push(in[cut:]) + st.Flush()
			if out != want {
				t.Fatalf("%s cut at %d: %q, want %q", name, cut, out, want)
			}
		}
		st := s.Stream()
		var out string
		for i := range len(in) {
			out += st.Push(in[i : i+1])
		}
		if out += st.Flush(); out != want {
			t.Fatalf("%s byte by byte: %q, want %q", name, out, want)
		}
	}
}

func TestOrdinaryTextStays(t *testing.T) {
	s := set(t)
	for _, in := range []string{
		"", "The quick brown fox: 100% of \\n \\u0041 \\", "sk-canary/7+Operator", strings.Repeat("c2st", 1000), "%", "\\", "\\u00", "%7", "日本語のテキスト",
	} {
		if out := string(s.Bytes([]byte(in))); out != in {
			t.Errorf("%q became %q", in, out)
		}
		st := s.Stream()
		if out := st.Push(in) + st.Flush(); out != in {
			t.Errorf("stream: %q became %q", in, out)
		}
	}
	var none *Set
	if none.Text("x") != "x" || none.Stream().Push("y") != "y" {
		t.Error("a set of no secrets changed something")
	}
}

func TestShortSecretsAreRefused(t *testing.T) {
	if _, err := New("short"); err == nil {
		t.Error("accepted")
	}
}

// FuzzStream: however the text is cut, the result is the same as of the whole.
func FuzzStream(f *testing.F) {
	for _, form := range forms() {
		f.Add([]byte("x"+form+"y"), uint64(1))
	}
	s := set(f)
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		want := s.Bytes(in)
		if bytes.Contains(want, []byte(secret)) {
			t.Fatal("the secret is still there")
		}
		rnd := rand.New(rand.NewPCG(seed, 1))
		st := s.Stream()
		var out []byte
		for rest := in; len(rest) > 0; {
			n := 1 + rnd.IntN(len(rest))
			out = append(out, st.Push(string(rest[:n]))...)
			rest = rest[n:]
		}
		out = append(out, st.Flush()...)
		if !bytes.Equal(out, want) {
			t.Fatalf("%q: in pieces %q, whole %q", in, out, want)
		}
	})
}

func BenchmarkBytes(b *testing.B) {
	s := set(b)
	text := []byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + strings.Repeat("The cat flies over the city. ", 10) + `"}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		s.Bytes(text)
	}
}
