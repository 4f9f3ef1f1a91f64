package image

import (
	"strings"
	"testing"

	"dreamcore"
)

// Whoever is not root is not told to build an image, which needs root.
func TestHintForAnOrdinaryUser(t *testing.T) {
	for _, lang := range dreamcore.Langs {
		root, user := hintFor(lang, "image.err_none_hint", true), hintFor(lang, "image.err_none_hint", false)
		if !strings.Contains(root, "image build") || strings.Contains(user, "image build") || !strings.Contains(user, "image import FILE") {
			t.Errorf("%s: root reads %q, others %q", lang, root, user)
		}
		if busy := hintFor(lang, "image.err_busy_hint", false); busy == "" || busy != hintFor(lang, "image.err_busy_hint", true) {
			t.Errorf("%s: %q", lang, busy)
		}
	}
	if h := hintFor(dreamcore.English, "image.no_such_hint", false); h != "" {
		t.Errorf("%q", h)
	}
}
