package control

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/grant"
	"dreamcore/internal/keyproxy"
)

const benchEvent = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"%s\"}}\n\n"

// benchWays is an upstream that streams 200 events of the size, and three ways to
// it: direct, bare httputil.ReverseProxy, and the key proxy in its own process,
// to which each connection is handed.
func benchWays(b *testing.B, size int, pace time.Duration) (h *Host, dial map[string]func() (net.Conn, error), token string) {
	b.Helper()
	event := fmt.Sprintf(benchEvent, strings.Repeat("The cat flies. ", max(1, size/15-6)))
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n")
		f := w.(http.Flusher)
		f.Flush()
		for range 200 {
			_, _ = io.WriteString(w, event)
			f.Flush()
			if pace > 0 {
				select {
				case <-time.After(pace):
				case <-r.Context().Done():
					return
				}
			}
		}
		_, _ = io.WriteString(w, "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	})}
	go func() { _ = srv.Serve(up) }()
	b.Cleanup(func() { _ = srv.Close() })

	target, _ := url.Parse("http://" + up.Addr().String())
	tr := &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}
	b.Cleanup(tr.CloseIdleConnections)
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	bare, err := net.Listen("unix", dir+"/bare") // both ways begin as a sandbox's do
	if err != nil {
		b.Fatal(err)
	}
	rp := &http.Server{Handler: &httputil.ReverseProxy{FlushInterval: -1, Transport: tr, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}}
	go func() { _ = rp.Serve(bare) }()
	b.Cleanup(func() { _ = rp.Close() })

	m, err := grant.NewMinter()
	if err != nil {
		b.Fatal(err)
	}
	key, err := os.CreateTemp(b.TempDir(), "key")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := key.WriteString(canary); err != nil {
		b.Fatal(err)
	}
	h, err = Start(b.Context(), Config{Dir: b.TempDir() + "/keyproxy", User: trialUser(), Settings: func() (Settings, []*os.File, error) {
		f, err := os.Open(key.Name())
		return Settings{Verifier: m.Verifier().String(), Sources: map[dreamcore.Feature][]Source{
			dreamcore.AnthropicMessages: {{KeyFile: 1, Upstream: keyproxy.Upstream{
				BaseURL: "http://" + up.Addr().String(), Private: loopback, Models: []keyproxy.ModelPrice{{Name: "fake-model", Free: true}},
			}}},
		}}, []*os.File{f}, err
	}})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/keyproxy")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go h.ServeConn(ctx, box, conn)
		}
	}()
	b.Cleanup(func() {
		_ = l.Close()
		cancel()
		cctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := h.Close(cctx); err != nil {
			b.Error(err)
		}
	})
	terms := keyproxy.JobTerms{
		Job: "bench", Attempt: 1, Channel: box, Features: []dreamcore.Feature{dreamcore.AnthropicMessages}, Models: []string{"fake-model"},
		Budget:      dreamcore.Budget{Requests: 1 << 40, InputTokens: 1 << 50, OutputTokens: 1 << 50, Bytes: 1 << 60, CostMicros: 1 << 60},
		Concurrency: 1000, PerMinute: 100_000_000,
	}
	if err := h.OpenJob(b.Context(), terms); err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	token, err = m.Mint(grant.Claims{Job: "bench", Attempt: 1, Channel: box, Audience: keyproxy.Audience, Features: terms.Features, NotBefore: now, Expires: now.Add(grant.MaxLife)})
	if err != nil {
		b.Fatal(err)
	}
	to := func(l net.Listener) func() (net.Conn, error) {
		return func() (net.Conn, error) { return net.Dial(l.Addr().Network(), l.Addr().String()) }
	}
	return h, map[string]func() (net.Conn, error){"direct": to(up), "reverseproxy": to(bare), "keyproxy": to(l)}, token
}

func benchAsk(conn net.Conn, br *bufio.Reader, token string) (*http.Response, error) {
	body := `{"model":"fake-model","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hi"}]}`
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:4000\r\nContent-Type: application/json\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n%s", path, token, len(body), body); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(br, nil)
	if err == nil && resp.StatusCode != 200 {
		data, _ := io.ReadAll(resp.Body)
		err = fmt.Errorf("%d %s", resp.StatusCode, data)
	}
	return resp, err
}

// BenchmarkStream is a stream of 200 events as fast as they go, through the
// proxy's own process; µs/first is the time to the first event.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{200, 1000, 4000} {
		_, ways, token := benchWays(b, size, 0)
		for _, way := range []string{"direct", "reverseproxy", "keyproxy"} {
			b.Run(fmt.Sprintf("%d/%s", size, way), func(b *testing.B) {
				conn, err := ways[way]()
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				br := bufio.NewReaderSize(conn, 32<<10)
				var first time.Duration
				var n int64
				for b.Loop() {
					start := time.Now()
					resp, err := benchAsk(conn, br, token)
					if err != nil {
						b.Fatal(err)
					}
					rd := bufio.NewReaderSize(resp.Body, 32<<10)
					_, _ = rd.ReadBytes('\n')
					first += time.Since(start)
					n, _ = io.Copy(io.Discard, rd)
				}
				b.SetBytes(n)
				b.ReportMetric(float64(first.Microseconds())/float64(b.N), "µs/first")
			})
		}
	}
}

// BenchmarkManyStreams is 500 streams at once; MB is the memory of the proxy's
// process while all of them run.
func BenchmarkManyStreams(b *testing.B) {
	const streams = 500
	h, ways, token := benchWays(b, 1000, 50*time.Millisecond)
	var mb float64
	for b.Loop() {
		var begun, done sync.WaitGroup
		for range streams {
			begun.Add(1)
			done.Go(func() {
				conn, err := ways["keyproxy"]()
				if err != nil {
					b.Error(err)
					begun.Done()
					return
				}
				defer conn.Close()
				resp, err := benchAsk(conn, bufio.NewReader(conn), token)
				begun.Done()
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
			})
		}
		begun.Wait()
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.PID()))
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		if err != nil {
			b.Fatal(err)
		}
		mb = max(mb, kb/1024)
		done.Wait()
	}
	b.ReportMetric(mb, "MB")
}
