package engine

import (
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever there is and however small the pages: all of them together are what
// is wanted, in order, each once.
func TestPagesTogetherAreTheList(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(t, "n")
		all := make([]infoBody, n)
		for i := range all {
			all[i] = infoBody{
				SandboxID: "id" + strconv.Itoa(i), State: rapid.SampledFrom([]string{"running", "paused"}).Draw(t, "state"),
				TemplateID: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "template"),
				Metadata:   map[string]string{"k": rapid.SampledFrom([]string{"1", "2 &=%"}).Draw(t, "k")},
				// Several start in the same moment.
				StartedAt: begin.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "start")) * time.Nanosecond),
			}
		}
		q := url.Values{"limit": {strconv.Itoa(rapid.IntRange(1, 7).Draw(t, "limit"))}}
		want := slices.Clone(all)
		if rapid.Bool().Draw(t, "by state") {
			q["state"] = []string{"paused"}
			want = slices.DeleteFunc(want, func(i infoBody) bool { return i.State != "paused" })
		}
		if rapid.Bool().Draw(t, "by template") {
			q.Set("template", "b")
			want = slices.DeleteFunc(want, func(i infoBody) bool { return i.TemplateID != "b" })
		}
		if rapid.Bool().Draw(t, "by metadata") {
			q.Set("metadata", url.Values{"k": {url.QueryEscape("2 &=%")}}.Encode())
			want = slices.DeleteFunc(want, func(i infoBody) bool { return i.Metadata["k"] == "1" })
		}
		if rapid.Bool().Draw(t, "by time") {
			after := begin.Add(3 * time.Nanosecond)
			q.Set("startedAfter", after.Format(time.RFC3339Nano))
			want = slices.DeleteFunc(want, func(i infoBody) bool { return i.StartedAt.Before(after) })
		}
		order := rapid.SampledFrom([]string{"", "asc", "desc"}).Draw(t, "order")
		if order != "" {
			q.Set("order", order)
		}
		var got []infoBody
		for {
			l, err := parseListing(q)
			if err != nil {
				t.Fatal(err)
			}
			page, next := l.page(slices.Clone(all))
			got = append(got, page...)
			if next == "" {
				break
			}
			if len(page) != l.limit {
				t.Fatalf("a page of %d with a limit of %d has another after it", len(page), l.limit)
			}
			q.Set("nextToken", next)
		}
		seen := map[string]bool{}
		for i, x := range got {
			if seen[x.SandboxID] {
				t.Fatalf("%s is twice in it", x.SandboxID)
			}
			seen[x.SandboxID] = true
			if i > 0 {
				c := got[i-1].StartedAt.Compare(x.StartedAt)
				if order == "asc" && c > 0 || order != "asc" && c < 0 {
					t.Fatalf("order %q: %v before %v", order, got[i-1].StartedAt, x.StartedAt)
				}
			}
		}
		for _, x := range want {
			if !seen[x.SandboxID] {
				t.Fatalf("%s is missing", x.SandboxID)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d of %d", len(got), len(want))
		}
	})
}

func TestListingsThatAreRefused(t *testing.T) {
	for _, query := range []string{
		"limit=0", "limit=101", "limit=x", "order=random", "startedAfter=yesterday", "nextToken=x", "nextToken=.", "metadata=%25zz", "metadata=a%3D%2525zz", "metadata=%253B%3Bx",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := parseListing(q); err == nil {
			t.Errorf("%s: %+v", query, l)
		}
	}
}

func FuzzParseListing(f *testing.F) {
	for _, s := range []string{"", "limit=2&order=asc&nextToken=5.x&startedAfter=2026-01-02T03:04:05.678Z", "metadata=a%3Db%26c%3Dd&state=running,paused&template=base", "metadata=%00&nextToken=-99999999999999999999."} {
		f.Add(s)
	}
	all := []infoBody{{SandboxID: "a", State: "running", StartedAt: time.Unix(1, 5)}, {SandboxID: "b", State: "paused", StartedAt: time.Unix(1, 5)}, {SandboxID: "c", StartedAt: time.Unix(0, 0)}}
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		l, err := parseListing(q)
		if err != nil {
			return
		}
		if page, next := l.page(slices.Clone(all)); len(page) > l.limit || next != "" && len(page) != l.limit {
			t.Errorf("a page of %d, limit %d, next %q", len(page), l.limit, next)
		}
	})
}
