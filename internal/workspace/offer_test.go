package workspace

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
	"dreamcore/internal/egress"
	"dreamcore/internal/text"
)

// offered is what a set of features adds to a sandbox: commands, variables and
// lines of the prompt, beyond those that every sandbox has.
func offered(features ...dreamcore.Feature) (commands, variables, lines []string) {
	for _, f := range Toolkit([]byte("binary"), features) {
		commands = append(commands, path.Base(f.Path))
	}
	for name := range Env("en", Offer{Features: features, ProxyURL: "http://proxy", ImageModel: "painter"}) {
		variables = append(variables, name)
	}
	lines = strings.Split(tools("en", features), "\n")
	if features != nil {
		c, v, l := offered()
		commands = slices.DeleteFunc(commands, func(s string) bool { return slices.Contains(c, s) })
		variables = slices.DeleteFunc(variables, func(s string) bool { return slices.Contains(v, s) })
		lines = slices.DeleteFunc(lines, func(s string) bool { return slices.Contains(l, s) })
	}
	slices.Sort(commands)
	slices.Sort(variables)
	return commands, variables, lines
}

// The golden offers: without a feature there are the judgements and nothing that
// leads out; each feature adds exactly its own.
func TestOfferOfFeatures(t *testing.T) {
	commands, variables, lines := offered()
	if d := cmp.Diff([]string{"check", "level", "playtest", "toolkit"}, commands); d != "" {
		t.Errorf("commands without a feature: %s", d)
	}
	if d := cmp.Diff([]string{"DREAMCORE_GRANT_FILE", "DREAMCORE_LANG", "DREAMCORE_RUNS", "HOME", "LANG", "PATH"}, variables); d != "" {
		t.Errorf("variables without a feature: %s", d)
	}
	if len(lines) != 5 {
		t.Errorf("lines without a feature: %q", lines)
	}
	type offer struct {
		Commands, Variables []string
		Words               string // of the one line of the prompt
	}
	want := map[dreamcore.Feature]offer{
		dreamcore.AnthropicMessages: {},
		dreamcore.OpenAIChat:        {},
		dreamcore.OpenAIResponses:   {},
		dreamcore.GoogleGemini:      {},
		dreamcore.ImageGeneration:   {[]string{"image"}, []string{"DREAMCORE_IMAGE_MODEL", "DREAMCORE_IMAGE_URL"}, "image order"},
		dreamcore.PackageMirror:     {[]string{"npm"}, []string{"DREAMCORE_NPM_URL"}, "npm install"},
		dreamcore.AssetFetch:        {[]string{"fetch"}, []string{"DREAMCORE_ASSET_URL"}, "fetch "},
	}
	for _, f := range egress.Features() {
		w, ok := want[f]
		if !ok {
			t.Errorf("%s has no golden offer", f)
		}
		c, v, l := offered(f)
		if d := cmp.Diff(w.Commands, c, cmpEmpty); d != "" {
			t.Errorf("%s: commands: %s", f, d)
		}
		if d := cmp.Diff(w.Variables, v, cmpEmpty); d != "" {
			t.Errorf("%s: variables: %s", f, d)
		}
		if w.Words == "" && len(l) > 0 || w.Words != "" && (len(l) != 1 || !strings.Contains(l[0], w.Words)) {
			t.Errorf("%s: the prompt says %q", f, l)
		}
	}
}

var cmpEmpty = cmp.Transformer("empty", func(s []string) string { return strings.Join(s, " ") })

// Every declared line of a prompt is in every language, and every command's
// script stands on its own.
func TestDeclarationsAreWhole(t *testing.T) {
	for _, d := range egress.Declarations(egress.Features()) {
		if d.Prompt != "" {
			for _, lang := range dreamcore.Langs {
				if s := text.T(lang, d.Prompt); s == "" || s == d.Prompt {
					t.Errorf("%s: no line in %s", d.Feature, lang)
				}
			}
		}
		if (len(d.Commands) > 0) != (d.Prompt != "") {
			t.Errorf("%s has commands that the prompt does not mention, or the other way round", d.Feature)
		}
	}
	env := Env("en", Offer{Features: egress.Features(), ProxyURL: "http://proxy", ImageModel: "painter"})
	if env["DREAMCORE_IMAGE_URL"] != "http://proxy/openai/v1/images/generations" || env["DREAMCORE_IMAGE_MODEL"] != "painter" {
		t.Errorf("%v", env)
	}
	for _, f := range Toolkit(nil, egress.Features())[1:] {
		if s := string(f.Data); !strings.HasPrefix(s, "#!/bin/sh\n") || !strings.Contains(s, `"$@"`) || f.Mode != 0o755 {
			t.Errorf("%s: %o %q", f.Path, f.Mode, s)
		}
	}
}
