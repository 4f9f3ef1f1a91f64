package tree

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"path"
	"regexp"
	"strings"

	"dreamcore"
	"dreamcore/internal/text"
)

// secretKind is a shape of credential: a literal that is cheap to look for, and
// the whole shape around it.
type secretKind struct {
	code  string
	mark  string
	shape *regexp.Regexp
}

// The shapes demand a long random part, so that a text about keys is no key.
var secretKinds = []secretKind{
	{"secret_private_key", "PRIVATE KEY-----", regexp.MustCompile(`-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----`)},
	{"secret_private_key", "PuTTY-User-Key-File-", regexp.MustCompile(`PuTTY-User-Key-File-[0-9]:`)},
	{"secret_grant", "v4.public.", regexp.MustCompile(`v4\.public\.[A-Za-z0-9_-]{60,}`)},
	{"secret_token", "sk-", regexp.MustCompile(`\bsk-[A-Za-z]{2,10}(?:-[A-Za-z0-9]{2,10})?-[A-Za-z0-9_-]{24,}`)},
	{"secret_token", "sk-", regexp.MustCompile(`\bsk-[A-Za-z0-9]{40,}\b`)},
	{"secret_token", "AKIA", regexp.MustCompile(`\bAKIA[0-9A-Z]{16}\b`)},
	{"secret_token", "ghp_", regexp.MustCompile(`\bghp_[A-Za-z0-9]{36}\b`)},
	{"secret_token", "github_pat_", regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{40,}`)},
	{"secret_token", "AIza", regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}\b`)},
	{"secret_token", "xox", regexp.MustCompile(`\bxox[abprs]-[A-Za-z0-9-]{20,}`)},
	{"secret_token", "eyJ", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{16,}\.eyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{20,}`)},
}

// Names that hold credentials whatever is in them.
var secretName = regexp.MustCompile(`(?i)^(\.env(\..*)?|env|.*\.(pem|p12|pfx|jks|keystore|kdbx)|id_(rsa|dsa|ecdsa|ed25519)|\.?netrc|\.?npmrc|credentials|\.git-credentials)$`)

// minCanaryBytes keeps a canary of a few letters from matching everywhere.
const minCanaryBytes = 8

// Scan looks through a tree for what must never be published: files of
// environment settings, private keys, tokens of known shapes, and the canaries
// (the job's grant, planted values) in plain, hex, percent and base64 form. The
// findings are FAILs in lang and never repeat what was found.
func Scan(t *Tree, lang dreamcore.Lang, canaries []string) []dreamcore.Finding {
	var needles []canary
	for _, c := range canaries {
		if len(c) >= minCanaryBytes {
			needles = append(needles, newCanary(c))
		}
	}
	var found []dreamcore.Finding
	for _, f := range t.Files {
		hit := map[string]bool{}
		report := func(code string, line int) {
			if hit[code] {
				return // one finding a file and kind is enough to act on
			}
			hit[code] = true
			found = append(found, dreamcore.Finding{
				Code: code, Severity: dreamcore.Fail, File: f.Path, Line: line,
				Message: text.T(lang, "tree."+code, "path", quote(f.Path)),
				Fix:     text.T(lang, "tree."+code+"_fix", "path", quote(f.Path)),
			})
		}
		if secretName.MatchString(path.Base(f.Path)) {
			report("secret_file", 0)
		}
		for _, k := range secretKinds {
			if !bytes.Contains(f.Data, []byte(k.mark)) {
				continue
			}
			if at := k.shape.FindIndex(f.Data); at != nil {
				report(k.code, lineAt(f.Data, at[0]))
			}
		}
		for _, c := range needles {
			if at := c.find(f.Path, f.Data); at >= 0 {
				report("secret_canary", lineAt(f.Data, at))
			}
		}
	}
	return found
}

// canary is a value in every form in which it may have been written down.
type canary struct{ forms [][]byte }

func newCanary(value string) canary {
	add := map[string]bool{value: true, url.QueryEscape(value): true, url.PathEscape(value): true}
	h := hex.EncodeToString([]byte(value))
	add[h], add[strings.ToUpper(h)] = true, true
	// Base64 of a longer text shows the value in one of three alignments; what
	// the neighbours bleed into is cut off at both ends.
	for shift := range 3 {
		raw := append(make([]byte, shift), value...)
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			s := enc.EncodeToString(raw)
			from := (shift*8 + 5) / 6
			to := len(raw) * 8 / 6
			if to-from >= minCanaryBytes {
				add[s[from:to]] = true
			}
		}
	}
	var c canary
	for form := range add {
		c.forms = append(c.forms, []byte(form))
	}
	return c
}

// find returns where in data the canary stands, 0 when its path holds it, -1
// when it is nowhere.
func (c canary) find(path string, data []byte) int {
	for _, form := range c.forms {
		if strings.Contains(path, string(form)) {
			return 0
		}
		if at := bytes.Index(data, form); at >= 0 {
			return at
		}
	}
	return -1
}

// lineAt is the 1-based line of an offset; 0 in a file that is not text.
func lineAt(data []byte, at int) int {
	if bytes.IndexByte(data[:min(len(data), 8000)], 0) >= 0 {
		return 0
	}
	return 1 + bytes.Count(data[:at], []byte{'\n'})
}
