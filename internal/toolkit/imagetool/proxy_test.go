package imagetool

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"dreamcore"
	mint "dreamcore/internal/grant"
	"dreamcore/internal/keyproxy"
	"dreamcore/internal/offline/picture"
)

// The whole way of an order: this tool, the real key proxy, the real picture maker.
func TestThroughTheKeyProxy(t *testing.T) {
	b := newBox(t)
	ctx := t.Context()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	key := dreamcore.NewSecret("the-operators-key")
	dial, closeMaker := keyproxy.InProcess(picture.Handler(key, log))
	t.Cleanup(func() {
		if err := closeMaker(); err != nil {
			t.Error(err)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	minter, err := mint.NewMinter()
	if err != nil {
		t.Fatal(err)
	}
	features := []dreamcore.Feature{dreamcore.ImageGeneration}
	proxy, err := keyproxy.New(keyproxy.Config{
		Verifier: minter.Verifier(), Dir: t.TempDir(), Log: log, Hosts: []string{listener.Addr().String()},
		Upstreams: map[dreamcore.Feature][]keyproxy.Upstream{dreamcore.ImageGeneration: {{
			BaseURL: "http://pictures.invalid/v1", Key: key, Dial: dial, PictureMaker: true,
			Models: []keyproxy.ModelPrice{{Name: picture.ModelName, Free: true}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(serving, "box", listener) }()
	t.Cleanup(func() {
		stop()
		<-served
	})
	job := dreamcore.NewJobID()
	if err := proxy.OpenJob(ctx, keyproxy.JobTerms{
		Job: job, Attempt: 1, Channel: "box", Features: features, Models: []string{picture.ModelName},
		Budget: dreamcore.Budget{Requests: 10, Images: 2, Bytes: 64 << 20},
	}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token, err := minter.Mint(mint.Claims{
		Job: job, Attempt: 1, Channel: "box", Audience: keyproxy.Audience, Features: features,
		NotBefore: now.Add(-mint.Skew), Expires: now.Add(5 * time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("DREAMCORE_GRANT_FILE"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DREAMCORE_IMAGE_URL", "http://"+listener.Addr().String()+"/openai/v1/images/generations")
	b.want(exitOK, "ordered", b.orderArgs("a flying cat", "cat.png", "--style", "sticker")...)
	b.want(exitOK, "ordered", b.orderArgs("青い犬", "dog.png")...)
	b.want(exitOK, "All 2", "wait")
	checkPicture(t, b.path("cat.png"), 96, 64)
	checkPicture(t, b.path("dog.png"), 96, 64)
	// The third is beyond the job's budget, and the proxy's reason reaches the agent.
	b.want(exitOK, "ordered", b.orderArgs("a fox", "fox.png")...)
	out := b.want(exitFailed, "2 of 3 pictures are there, 1 failed", "wait")
	if !strings.Contains(out, "budget") {
		t.Errorf("the refusal does not name the budget:\n%s", out)
	}
}
