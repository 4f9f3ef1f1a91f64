package control

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// busy is what a sandbox reads while no proxy runs: the same as when the ledger
// cannot be written, in a form that every client understands. What it has sent
// is not looked at.
const busy = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 136\r\n\r\n" +
	`{"type":"error","error":{"type":"api_error","code":"proxy_unavailable","message":"The key proxy is being started. [proxy_unavailable]"}}`

// lastWords is how long a sandbox may take over it.
const lastWords = time.Second

// ServeConn hands the proxy a connection that came in on a sandbox's listener,
// and returns when it has ended or ctx has, at which it is cut. conn is closed.
func (h *Host) ServeConn(ctx context.Context, channel string, conn net.Conn) {
	h.serve(ctx, request{Op: opConn, Channel: channel}, conn)
}

// ServeRemote does the same for a sandbox that runs elsewhere and speaks TLS.
func (h *Host) ServeRemote(ctx context.Context, conn net.Conn) {
	h.serve(ctx, request{Op: opConn, Remote: true}, conn)
}

func (h *Host) serve(ctx context.Context, r request, conn net.Conn) {
	defer func() { _ = conn.Close() }() // it is closed when the proxy has it
	own, err := copyOf(conn)
	if err != nil {
		h.log.Error("a connection cannot be handed over", "sandbox_id", r.Channel, "err", err)
		return
	}
	defer own.close()
	// Whoever else has the connection, here it can be ended.
	stop := context.AfterFunc(ctx, own.cut)
	defer stop()
	wait, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for {
		l, err := h.await(wait)
		if err != nil {
			h.log.Warn("no key proxy for a connection", "sandbox_id", r.Channel, "decision", "refused", "reason", "proxy_unavailable", "err", err)
			if !r.Remote {
				sorry(conn)
			}
			return
		}
		done, err := l.hand(r, own)
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			h.log.Error("a connection cannot be handed over", "sandbox_id", r.Channel, "err", err)
			return
		}
		_ = conn.Close() // ours and the proxy's copies live on
		select {
		case <-done:
			return
		case <-ctx.Done():
		case <-l.gone:
		}
		own.cut() // before our copy goes: the proxy's may live on
		return
	}
}

// sorry tells a sandbox to come back.
func sorry(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(lastWords)) // a sandbox that is gone misses it
	if _, err := io.WriteString(conn, busy); err != nil {
		return
	}
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite() // the same
	}
	// What it has sent is read, so that the answer is not lost with it.
	_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
}
