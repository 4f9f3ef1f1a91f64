package keyproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// inflight waits until the job has n calls in flight.
func (w *world) inflight(n int) {
	w.t.Helper()
	j := w.p.job(w.job)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		j.mu.Lock()
		got := j.inflight
		j.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d calls in flight, want %d", got, n)
		}
	}
}

// A box must not hold up its own end with a body that never ends, wherever the
// call stands: before the first byte, in the middle, or refused already, when
// the server reads what is left of the body. No timeout of the proxy's own
// helps in these tests.
func TestR12KillWhileTheBodyTrickles(t *testing.T) {
	for name, extra := range map[string]string{
		"plain":    "Content-Length: 60000\r\n",
		"chunked":  "Transfer-Encoding: chunked\r\n",
		"expect":   "Content-Length: 60000\r\nExpect: 100-continue\r\n",
		"large":    fmt.Sprintf("Content-Length: %d\r\n", largeBytes+60_000),
		"refused":  "Content-Length: 60000\r\nContent-Encoding: gzip\r\n",
		"refused2": "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(cfg *Config, _ *JobTerms) {
				cfg.Timeouts.ReadBody, cfg.Timeouts.Write = time.Hour, time.Hour
			})
			conn := w.dial()
			defer conn.Close()
			head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s\r\n",
				chatPath, w.addr, w.token, extra)
			if _, err := io.WriteString(conn, head); err != nil {
				t.Fatal(err)
			}
			w.inflight(1)
			if name == "large" {
				if _, err := conn.Write(make([]byte, largeBytes+1)); err != nil {
					t.Fatal(err)
				}
			}
			stop, stopped := make(chan struct{}), make(chan struct{})
			go trickle(conn, strings.Contains(extra, "chunked"), stop, stopped)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if _, err := w.p.CloseJob(ctx, w.job, 1); err != nil {
				t.Errorf("the client's trickle held up the end of the job: %v", err)
				_ = conn.Close() // let the proxy go
			}
			close(stop)
			<-stopped
			w.sent.Add(1)
			if a := w.lastAudit(); a.Decision != "refuse" || a.Reason != Killed && a.Reason != BadEncoding {
				t.Errorf("the audit says %s %s", a.Decision, a.Reason)
			}
			w.dials(0)
		})
	}
}

// trickle sends a byte of a body now and then, until it is told to stop or the
// other side has had enough.
func trickle(conn net.Conn, chunked bool, stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	piece := " "
	if chunked {
		piece = "1\r\n \r\n"
	}
	for {
		select {
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if _, err := io.WriteString(conn, piece); err != nil {
			<-stop
			return
		}
	}
}

// Nor with answers that it does not take: the refusal of an admitted call waits
// behind those in the connection's full buffers.
func TestR12KillWhileNoAnswerIsTaken(t *testing.T) {
	w := newWorld(t, func(cfg *Config, _ *JobTerms) { cfg.Timeouts.Write = time.Hour })
	client, server := net.Pipe() // has no buffer at all
	defer client.Close()
	served := make(chan struct{})
	go func() { defer close(served); w.p.ServeConn(context.Background(), sandbox, server) }()
	if _, err := io.WriteString(client, w.request("POST "+chatPath, "", "{")); err != nil {
		t.Fatal(err)
	}
	w.inflight(1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := w.p.CloseJob(ctx, w.job, 1); err != nil {
		t.Errorf("the client's silence held up the end of the job: %v", err)
	}
	_ = client.Close()
	<-served
}
