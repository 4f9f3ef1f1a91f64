package engine_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
)

// An engine that may have two boxes never has three, however many ask at once,
// says so, and has room again as soon as one has ended.
func TestNoMoreBoxesThanAllowed(t *testing.T) {
	e := enginetest.Start(t, func(c *engine.Config) { c.MaxBoxes, c.Domain = 2, "boxes.test" })
	c := client{t, e}
	var mu sync.Mutex
	made := []string{}
	var wg sync.WaitGroup
	for range 5 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			status, m := c.api("POST", "/v2/sandboxes", `{"templateID":"base"}`)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case status == http.StatusCreated:
				made = append(made, m["sandboxID"].(string))
				if m["domain"] != "boxes.test" {
					t.Errorf("the domain is %v", m["domain"])
				}
			case status != http.StatusTooManyRequests || m["code"] != float64(http.StatusTooManyRequests) || !strings.Contains(m["message"].(string), "2 sandboxes"):
				t.Errorf("refused with %d %v", status, m)
			}
		}()
	}
	wg.Wait()
	if len(made) != 2 {
		t.Fatalf("%d boxes were made", len(made))
	}
	if status, _ := c.api("POST", "/sandboxes/"+made[0]+"/fork", `{}`); status == http.StatusCreated {
		if n := alive(c); n > 2 {
			t.Errorf("a fork made it %d boxes", n)
		}
	}
	// Paused, a box takes no room; it needs some to go on.
	if status, m := c.api("POST", "/sandboxes/"+made[0]+"/pause", ``); status != http.StatusNoContent {
		t.Fatalf("pause: %d %v", status, m)
	}
	id, _ := c.create("/v2/sandboxes", `{"templateID":"base"}`)
	if status, m := c.api("POST", "/v2/sandboxes/"+made[0]+"/connect", `{"timeout":60}`); status != http.StatusTooManyRequests {
		t.Errorf("resumed into a full engine: %d %v", status, m)
	}
	if status, _ := c.api("DELETE", "/sandboxes/"+id, ""); status != http.StatusNoContent {
		t.Fatal(status)
	}
	if status, m := c.api("POST", "/v2/sandboxes/"+made[0]+"/connect", `{"timeout":60}`); status/100 != 2 {
		t.Errorf("there is room again and yet: %d %v", status, m)
	}
}

func alive(c client) int {
	_, _, list := c.do("GET", "/v2/sandboxes?state=running", "", "X-API-KEY", enginetest.APIKey)
	return strings.Count(list, `"sandboxID"`)
}
