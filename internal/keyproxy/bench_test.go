package keyproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"dreamcore/internal/grant"
)

// benchWorld is an upstream and two ways to it: bare httputil.ReverseProxy and
// the key proxy with all checks on.
func benchWorld(b *testing.B, answer http.HandlerFunc) (urls map[string]string, token string) {
	b.Helper()
	listen := func(h http.Handler) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		srv := &http.Server{Handler: h}
		go func() { _ = srv.Serve(l) }()
		b.Cleanup(func() { _ = srv.Close() })
		return l.Addr().String()
	}
	up := listen(answer)
	target, _ := url.Parse("http://" + up)
	tr := &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}
	b.Cleanup(tr.CloseIdleConnections)
	bare := listen(&httputil.ReverseProxy{
		FlushInterval: -1, Transport: tr,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/anthropic")
		},
	})
	m, err := grant.NewMinter()
	if err != nil {
		b.Fatal(err)
	}
	f := &fake{addr: up}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	p, err := New(Config{Verifier: m.Verifier(), Upstreams: upstreams(f), Dir: b.TempDir(), Hosts: []string{l.Addr().String()}})
	if err != nil {
		b.Fatal(err)
	}
	terms := JobTerms{Job: "benchjob", Attempt: 1, Channel: sandbox, Features: every, Budget: plenty, Models: []string{"fake-model"}, Concurrency: 1000, PerMinute: 100_000_000}
	terms.Budget.Requests = 1 << 40
	terms.Budget.InputTokens, terms.Budget.OutputTokens, terms.Budget.CostMicros, terms.Budget.Bytes = 1<<50, 1<<50, 1<<60, 1<<60
	if err := p.OpenJob(b.Context(), terms); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _ = p.Serve(ctx, sandbox, l) }()
	b.Cleanup(func() {
		cctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := p.Close(cctx); err != nil {
			b.Error(err)
		}
		cancel()
	})
	now := time.Now()
	token, err = m.Mint(grant.Claims{Job: "benchjob", Attempt: 1, Channel: sandbox, Audience: Audience, Features: every, NotBefore: now, Expires: now.Add(grant.MaxLife)})
	if err != nil {
		b.Fatal(err)
	}
	return map[string]string{"direct": "http://" + up + "/v1/messages", "reverseproxy": "http://" + bare + messagesPath, "keyproxy": "http://" + l.Addr().String() + messagesPath}, token
}

var ways = []string{"direct", "reverseproxy", "keyproxy"}

func benchRequest(b *testing.B, client *http.Client, to, token, body string) *http.Response {
	req, err := http.NewRequestWithContext(context.Background(), "POST", to, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", token)
	resp, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	if resp.StatusCode != 200 {
		data, _ := io.ReadAll(resp.Body)
		b.Fatalf("%d %s", resp.StatusCode, data)
	}
	return resp
}

// BenchmarkCall is one small call that does not stream, with a request as large
// as an agent's in the middle of a job (40 KB).
func BenchmarkCall(b *testing.B) {
	urls, token := benchWorld(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"message","content":[],"usage":{"input_tokens":1,"output_tokens":1}}`)
	})
	body := `{"model":"fake-model","max_tokens":100,"messages":[{"role":"user","content":"` + strings.Repeat("The cat flies. ", 2700) + `"}]}`
	for _, way := range ways {
		b.Run(way, func(b *testing.B) {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for b.Loop() {
				resp := benchRequest(b, client, urls[way], token, body)
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}

// BenchmarkStream is a stream of 200 events as fast as they go, by size of the
// event; it reports the time to the first event beside the throughput.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{200, 1000, 4000} {
		head := events3("/messages", "x")
		event := events3("/messages", strings.Repeat("The cat flies. ", size/15-6))[2]
		urls, token := benchWorld(b, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			f := w.(http.Flusher)
			for _, e := range head[:2] {
				_, _ = io.WriteString(w, e)
				f.Flush()
			}
			for range 200 {
				_, _ = io.WriteString(w, event)
				f.Flush()
			}
			for _, e := range head[3:] {
				_, _ = io.WriteString(w, e)
			}
		})
		for _, way := range ways {
			b.Run(fmt.Sprintf("%d/%s", size, way), func(b *testing.B) {
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				var first time.Duration
				var n int64
				for b.Loop() {
					start := time.Now()
					resp := benchRequest(b, client, urls[way], token, minimal(messagesPath, true))
					br := bufio.NewReaderSize(resp.Body, 32<<10)
					_, _ = br.ReadBytes('\n')
					first += time.Since(start)
					n, _ = io.Copy(io.Discard, br)
					_ = resp.Body.Close()
				}
				b.SetBytes(n)
				b.ReportMetric(float64(first.Microseconds())/float64(b.N), "µs/first")
			})
		}
	}
}

// BenchmarkPaced is a stream of 20 events as a model sends them, one every 5 ms;
// each carries the time at which it left. It reports the mean time that an
// event was under way, and the time to the first one.
func BenchmarkPaced(b *testing.B) {
	start := time.Now()
	urls, token := benchWorld(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 20 {
			_, _ = fmt.Fprintf(w, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"%d .\"}}\n\n", time.Since(start).Nanoseconds())
			w.(http.Flusher).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	})
	left := regexp.MustCompile(`"text":"([0-9]+) \."`)
	for _, way := range ways {
		b.Run(way, func(b *testing.B) {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			var first, under time.Duration
			var events int64
			for b.Loop() {
				began := time.Now()
				resp := benchRequest(b, client, urls[way], token, minimal(messagesPath, true))
				sc := bufio.NewScanner(resp.Body)
				seen := false
				for sc.Scan() {
					m := left.FindSubmatch(sc.Bytes())
					if m == nil {
						continue
					}
					if !seen {
						first += time.Since(began)
						seen = true
					}
					n, err := strconv.ParseInt(string(m[1]), 10, 64)
					if err != nil {
						b.Fatal(err)
					}
					under += time.Since(start) - time.Duration(n)
					events++
				}
				_ = resp.Body.Close()
			}
			b.ReportMetric(float64(first.Microseconds())/float64(b.N), "µs/first")
			b.ReportMetric(float64(under.Microseconds())/float64(events), "µs/event")
		})
	}
}
