package gamehost

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"dreamcore"
)

// reportPath is where browsers report what the policy kept a game from doing.
// Its dot keeps it apart from every file of a game: those have no hidden names.
const reportPath = ".report"

// report writes one line about a violation. What is in it is untrusted, also
// how often it comes.
func (h *Host) report(w http.ResponseWriter, r *http.Request, game dreamcore.GameID) {
	plainHeaders(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	if !h.reports.allow() {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	var body struct {
		Report struct {
			Document  string `json:"document-uri"`
			Blocked   string `json:"blocked-uri"`
			Directive string `json:"effective-directive"`
		} `json:"csp-report"`
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<10))
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.log.Info("game tried what its policy forbids", "decision", "refused", "reason", clip(body.Report.Directive),
		"game", string(game), "document", clip(body.Report.Document), "blocked", clip(body.Report.Blocked))
	w.WriteHeader(http.StatusNoContent)
}

// limiter admits so many events in each window.
type limiter struct {
	mu     sync.Mutex
	most   int
	window time.Duration
	began  time.Time
	n      int
}

func newLimiter(most int, window time.Duration) *limiter { return &limiter{most: most, window: window} }

func (l *limiter) allow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.began) >= l.window {
		l.began, l.n = now, 0
	}
	l.n++
	return l.n <= l.most
}

// versionCache keeps the file lists of the versions that were asked for last.
type versionCache struct {
	mu   sync.Mutex
	most int
	all  map[dreamcore.VersionID]cachedVersion
	tick uint64
}

type cachedVersion struct {
	game  dreamcore.GameID
	files map[string]dreamcore.VersionFile
	used  uint64
}

func newVersionCache(most int) *versionCache {
	return &versionCache{most: most, all: map[dreamcore.VersionID]cachedVersion{}}
}

func (c *versionCache) get(id dreamcore.VersionID) (cachedVersion, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.all[id]
	if ok {
		c.tick++
		v.used = c.tick
		c.all[id] = v
	}
	return v, ok
}

func (c *versionCache) put(id dreamcore.VersionID, v cachedVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.most {
		oldest, at := dreamcore.VersionID(""), ^uint64(0)
		for k, v := range c.all {
			if v.used < at {
				oldest, at = k, v.used
			}
		}
		delete(c.all, oldest)
	}
	c.tick++
	v.used = c.tick
	c.all[id] = v
}
