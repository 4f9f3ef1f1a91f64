package app

import (
	"net/http"
	"testing"
)

// L07: neither the app nor the games show the program's inside.
func TestL07NoInsideOnPublicListeners(t *testing.T) {
	s, _ := serving(t, nil)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	get := func(url string) int {
		t.Helper()
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if code := get(s.cfg.App.URL + "/"); code >= 400 {
		t.Fatalf("the positive control: %d", code)
	}
	for _, base := range []string{s.cfg.App.URL, s.cfg.Games.URL} {
		for _, path := range []string{
			"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1", "/debug/vars", "/debug/requests", "/metrics", "/varz", "/statusz",
		} {
			if code := get(base + path); code != http.StatusNotFound {
				t.Errorf("%s%s: %d", base, path, code)
			}
		}
	}
}
