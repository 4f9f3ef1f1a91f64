package engine_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// The way out of a living box is given and taken away; taking it away cuts what
// is open.
func TestReplaceNetwork(t *testing.T) {
	cut := make(chan struct{}, 8)
	e := enginetest.Start(t, func(c *engine.Config) {
		c.Egress = func(ctx context.Context, _ dreamcore.SandboxID, conn net.Conn) {
			defer conn.Close()
			fmt.Fprintln(conn, "out")
			<-ctx.Done()
			cut <- struct{}{}
		}
	})
	c := client{t, e}
	sb := boot(t, e)
	id := string(sb.ID())
	const try = "exec 3<>/dev/tcp/127.0.0.1/4000 && read -t 60 l <&3 && echo $l"
	if got := sh(t, sb, sandbox.User, try); strings.Contains(got, "out\n") || got == "out" {
		t.Fatalf("a box without a way out has one: %q", got)
	}
	for _, bad := range []string{`{"allowOut":["1.1.1.1/32"]}`, `{"rules":{"a.example":[{}]}}`, `{"egressProxy":{"a":1}}`, `[`} {
		c.must(http.StatusBadRequest, "PUT", "/sandboxes/"+id+"/network", bad)
	}
	c.must(http.StatusNoContent, "PUT", "/sandboxes/"+id+"/network", `{"allowOut":["`+engine.RelayCIDR+`"],"denyOut":["0.0.0.0/0"]}`)
	p, err := sb.Start(ctxOf(t), sandbox.Command{Args: []string{"bash", "-c", try + "; cat <&3; echo over"}})
	if err != nil {
		t.Fatal(err)
	}
	if o := <-p.Events(); string(o.Data) != "out\n" {
		t.Fatalf("got %q", o.Data)
	}
	// It lives on over a pause, and its connections do not.
	c.must(http.StatusNoContent, "POST", "/sandboxes/"+id+"/pause", ``)
	<-cut
	c.must(http.StatusCreated, "POST", "/v2/sandboxes/"+id+"/connect", ``)
	p, err = sb.Start(ctxOf(t), sandbox.Command{Args: []string{"bash", "-c", try + "; cat <&3; echo over"}})
	if err != nil {
		t.Fatal(err)
	}
	if o := <-p.Events(); string(o.Data) != "out\n" {
		t.Fatalf("after the pause: got %q", o.Data)
	}
	c.must(http.StatusNoContent, "PUT", "/sandboxes/"+id+"/network", `{}`)
	<-cut
	if o := <-p.Events(); string(o.Data) != "over\n" {
		t.Errorf("got %q", o.Data)
	}
	if got := sh(t, sb, sandbox.User, try); got == "out" {
		t.Error("its way out is still open")
	}
	c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
}
