package engine

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

const sampleLog = `W1130 21:19:53.738781   1 loader.go:10] a warning of gVisor
a line without a time
time=2026-11-30T21:20:00.500Z level=WARN msg="ended the biggest process" pid=7
time=2026-11-30T21:20:00.100Z level=ERROR msg="earlier than the one before"

E1130 21:20:01.000000   1 x.go:1] an error`

func TestParseLog(t *testing.T) {
	booted := time.Date(2026, 11, 30, 21, 19, 50, 0, time.UTC)
	var got []string
	for _, l := range parseLog([]byte(sampleLog), booted) {
		got = append(got, strings.Join([]string{l.Timestamp.Format("15:04:05.000"), l.Level, l.Fields["logger"], l.Message}, "|"))
	}
	want := []string{
		"21:19:53.738|warn|gvisor|W1130 21:19:53.738781   1 loader.go:10] a warning of gVisor",
		"21:19:53.738|info|gvisor|a line without a time",
		`21:20:00.500|warn|sandboxd|msg="ended the biggest process" pid=7`,
		`21:20:00.500|error|sandboxd|msg="earlier than the one before"`,
		"21:20:01.000|error|gvisor|E1130 21:20:01.000000   1 x.go:1] an error",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLogQuery(t *testing.T) {
	all := parseLog([]byte(sampleLog), time.Date(2026, 11, 30, 21, 19, 50, 0, time.UTC))
	for query, want := range map[string]string{
		"":                             "0 1 2 3 4",
		"limit=2":                      "0 1",
		"limit=0":                      "",
		"direction=backward&limit=2":   "4 3",
		"level=error":                  "3 4",
		"search=biggest":               "2",
		"cursor=1796073600500":         "2 3 4",
		"cursor=1796073600500&limit=1": "2",
		"cursor=1796073600500&direction=backward&limit=2": "3 2",
		"cursor=99999999999999":                           "",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		ask, problem := readLogQuery(q, "cursor")
		if problem != "" {
			t.Errorf("%s: %s", query, problem)
			continue
		}
		var got []string
		for _, l := range ask.choose(all) {
			got = append(got, string(rune('0'+slices.IndexFunc(all, func(x logLine) bool { return x.Message == l.Message }))))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s chose %q, want %q", query, s, want)
		}
	}
	for _, bad := range []string{"limit=x", "limit=-1", "limit=1001", "cursor=now", "cursor=-5", "direction=up", "level=loud", "end=99999999999999999999"} {
		q, _ := url.ParseQuery(bad)
		if _, problem := readLogQuery(q, "cursor"); problem == "" {
			t.Errorf("%s was accepted", bad)
		}
	}
}

// Whatever a box makes its machinery print, its log reads as bounded, valid
// lines whose times do not go back.
func FuzzParseLog(f *testing.F) {
	f.Add([]byte(sampleLog))
	f.Add([]byte("time= level=\nW9999 99:99:99.999999\n\xff\xfe\x00\x1b[2J\r\n\n"))
	f.Add([]byte("time=9999-12-31T23:59:59Z level=INFO x\nI0229 00:00:00.000000 leap"))
	f.Fuzz(func(t *testing.T, data []byte) {
		last := time.Unix(1_790_000_000, 0).UTC()
		for _, l := range parseLog(data, last) {
			if l.Timestamp.Before(last) || !slices.Contains(levels, l.Level) || len(l.Message) > 3*maxLogLine || strings.ToValidUTF8(l.Message, "") != l.Message {
				t.Fatalf("got %+v", l)
			}
			last = l.Timestamp
		}
	})
}
