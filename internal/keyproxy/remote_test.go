package keyproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const remoteName = "proxy.example"

func newRemoteWorld(t *testing.T) *world {
	w := newWorld(t)
	var err error
	if w.p.remote, err = newRemote(w.dir, remoteName); err != nil {
		t.Fatal(err)
	}
	return w
}

// A grant that comes from two addresses has been carried away: it is closed.
func TestGrantFromTwoAddresses(t *testing.T) {
	w := newRemoteWorld(t)
	ask := func(from, token string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, messagesPath, strings.NewReader("{}"))
		r.RemoteAddr, r.Host = from, remoteName+":4000"
		r.Header.Set("X-Api-Key", token)
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		w.sent.Add(1)
		w.p.RemoteHandler().ServeHTTP(rec, r)
		return rec.Code, rec.Body.String()
	}
	for range 2 {
		if code, body := ask("203.0.113.1:1000", w.token); code != http.StatusBadRequest || !strings.Contains(body, "[field_not_allowed]") && !strings.Contains(body, string(BadField)) {
			t.Errorf("from its own address: %d %s", code, body)
		}
	}
	code, body := ask("203.0.113.2:1000", w.token)
	if code != http.StatusForbidden || !strings.Contains(w.log.String(), "ALERT: a grant came from two addresses") || w.p.Alerts() != 1 {
		t.Errorf("from another address: %d %s", code, body)
	}
	if again, body := ask("203.0.113.1:1000", w.token); again != code {
		t.Errorf("the grant lives on: %d %s", again, body)
	}
	if code, body := ask("203.0.113.3:1000", "made-up"); code < 400 {
		t.Errorf("a token that is none: %d %s", code, body)
	}
	if len(w.p.remote.of) != 0 {
		t.Errorf("the addresses of ended jobs are kept: %v", w.p.remote.of)
	}
}

// A whole connection by TLS, known by the certificate that the proxy told of.
func TestRemoteConnection(t *testing.T) {
	w := newRemoteWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer close(ended)
		conn, err := l.Accept()
		if err == nil {
			w.p.ServeRemote(ctx, conn)
		}
	}()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(w.p.RemoteCA())) {
		t.Fatal("the authority is no certificate")
	}
	conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: roots, ServerName: remoteName})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	req, err := http.NewRequest("GET", "https://"+remoteName+"/anthropic/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", w.token)
	w.sent.Add(1)
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", resp, err)
	}
	_ = resp.Body.Close()
	cancel() // the connection is idle, and ends with its context
	<-ended
}

// The certificate is for the proxy's name and no other, and outlives the proxy.
func TestRemoteCertificate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "remote.pem")
	server, ca, err := remoteTLS(file, remoteName)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("the authority is no certificate")
	}
	leaf := server.Certificates[0].Leaf
	for name, good := range map[string]bool{remoteName: true, "example.com": false} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
	same := func(name string) bool {
		t.Helper()
		_, again, err := remoteTLS(file, name)
		if err != nil {
			t.Fatal(err)
		}
		return string(again) == string(ca)
	}
	if !same(remoteName) {
		t.Error("a restart makes another certificate")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := parseTLS(data, remoteName, time.Now().Add(certificateLife-certificateLeft/2)); err == nil {
		t.Error("a certificate that ends soon is kept")
	}
	if same("other.example") {
		t.Error("another name has the same certificate")
	}
	if err := os.WriteFile(file, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if same(remoteName) {
		t.Error("a torn file is taken")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}
