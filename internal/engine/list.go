package engine

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// listing is which sandboxes a client wants to see, and how.
type listing struct {
	metadata  map[string]string
	states    []string  // empty: all
	template  string    // "": any
	after     time.Time // those that started then or later
	ascending bool      // the oldest first
	limit     int
	last      *infoBody // the end of the page before; only its time and id
}

// parseListing reads the query of a list request. Everything in it is untrusted.
func parseListing(q url.Values) (listing, error) {
	var l listing
	var err error
	if l.metadata, err = metadataFilter(q.Get("metadata")); err != nil {
		return l, errors.New("the metadata filter is malformed")
	}
	if l.limit, err = pageLimit(q.Get("limit")); err != nil {
		return l, err
	}
	if s := strings.Join(q["state"], ","); s != "" {
		l.states = strings.Split(s, ",")
	}
	l.template = q.Get("template")
	if s := q.Get("startedAfter"); s != "" {
		if l.after, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return l, errors.New("startedAfter is no time")
		}
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		l.ascending = true
	default:
		return l, errors.New("order must be asc or desc")
	}
	if s := q.Get("nextToken"); s != "" {
		at, id, _ := strings.Cut(s, ".")
		nanos, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return l, errors.New("nextToken is malformed")
		}
		l.last = &infoBody{StartedAt: time.Unix(0, nanos).UTC(), SandboxID: id}
	}
	return l, nil
}

// wants reports whether a sandbox is among those that are asked for.
func (l listing) wants(i infoBody) bool {
	return holds(i.Metadata, l.metadata) &&
		(len(l.states) == 0 || slices.Contains(l.states, i.State)) &&
		(l.template == "" || l.template == i.TemplateID) &&
		!i.StartedAt.Before(l.after)
}

// holds reports whether metadata has every pair of the filter.
func holds(metadata, filter map[string]string) bool {
	for k, v := range filter {
		if got, ok := metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func (l listing) compare(a, b infoBody) int {
	c := b.StartedAt.Compare(a.StartedAt)
	if c == 0 {
		c = strings.Compare(a.SandboxID, b.SandboxID)
	}
	if l.ascending {
		return -c
	}
	return c
}

// page sorts what is wanted of all and cuts the page out; next is the token of
// the one after it, "" when there is none.
func (l listing) page(all []infoBody) (page []infoBody, next string) {
	all = slices.DeleteFunc(all, func(i infoBody) bool {
		return !l.wants(i) || l.last != nil && l.compare(i, *l.last) <= 0
	})
	slices.SortFunc(all, l.compare)
	if len(all) > l.limit {
		all = all[:l.limit]
		last := all[l.limit-1]
		next = fmt.Sprintf("%d.%s", last.StartedAt.UnixNano(), last.SandboxID)
	}
	return all, next
}

// serveList answers with the boxes that live or are paused, the newest first
// unless the client wants it otherwise, a page at a time.
func (e *Engine) serveList(w http.ResponseWriter, r *http.Request) {
	l, err := parseListing(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	l.template = e.templateID(l.template)
	all := []infoBody{}
	e.mu.Lock()
	for _, b := range e.boxes {
		all = append(all, b.info())
	}
	// One that is being paused or resumed is on both lists for a moment.
	paused := slices.DeleteFunc(e.shelf.list(kindPaused), func(s *snapshot) bool { return e.boxes[s.ID] != nil })
	e.mu.Unlock()
	for _, s := range paused {
		all = append(all, e.pausedInfo(s))
	}
	page, next := l.page(all)
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	for i := range page {
		page[i].Lifecycle, page[i].Domain = nil, nil // E2B tells them of one box only
	}
	answer(w, http.StatusOK, page)
}

// templateID is the id under which boxes of a template are listed. An unknown
// name is its own id, which no box has.
func (e *Engine) templateID(ref string) string {
	if ref == "" {
		return ""
	}
	if s, ok := e.shelf.template(ref); ok {
		return s.body().SnapshotID
	}
	if img, err := e.cfg.Images(ref); err == nil {
		return img.Digest
	}
	return ref
}

// metadataFilter reads "key=value&…" whose keys and values clients encode once
// more than the query itself.
func metadataFilter(s string) (map[string]string, error) {
	q, err := url.ParseQuery(s)
	if err != nil {
		return nil, err
	}
	filter := map[string]string{}
	for k, vs := range q {
		k, err := url.QueryUnescape(k)
		if err != nil {
			return nil, err
		}
		v, err := url.QueryUnescape(vs[0])
		if err != nil {
			return nil, err
		}
		filter[k] = v
	}
	return filter, nil
}
