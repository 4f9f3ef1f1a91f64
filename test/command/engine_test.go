package command

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An engine prints what E2B's SDK needs, its key is its owner's alone and the
// same after a restart, and Ctrl-C leaves nothing behind.
func TestEngineFromStartToEnd(t *testing.T) {
	w := newWorld(t)
	e := w.serve("--log", "json")
	key := e.vars["E2B_API_KEY"]
	if !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(key) || !strings.HasPrefix(e.vars["E2B_API_URL"], "http://127.0.0.1:") || e.vars["E2B_SANDBOX_URL"] != e.vars["E2B_API_URL"] {
		t.Errorf("it printed %v", e.vars)
	}
	for _, name := range []string{"api_key", "address.json"} {
		if info, err := os.Stat(filepath.Join(w.data, "serving", name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	id := w.must("sandbox", "create")
	if got := w.must("sandbox", "exec", id, "--", "sudo", "id", "-un"); got != "root" {
		t.Errorf("whoever is served is %q with sudo", got)
	}
	// The variables alone are enough, as for any other client.
	other := newWorld(t)
	for k, v := range e.vars {
		other.env = append(other.env, k+"="+v)
	}
	if got := other.must("sandbox", "exec", id, "echo", "over the network"); got != "over the network" {
		t.Errorf("got %q", got)
	}
	if env := w.must("sandbox", "env"); !strings.Contains(env, key) || !strings.Contains(env, e.vars["E2B_API_URL"]) {
		t.Errorf("env prints %q", env)
	}
	if code := e.stop(syscall.SIGINT); code != 0 {
		t.Errorf("after Ctrl-C the code is %d", code)
	}
	if left := w.leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	booted := false
	for line := range strings.Lines(e.log.String()) {
		var m map[string]any
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &m) == nil && m["sandbox_id"] == id {
			booted = booted || m["msg"] == "booted a sandbox"
		}
	}
	if !booted || strings.Contains(e.log.String(), key) {
		t.Errorf("the log lacks the boot, or holds the key:\n%s", e.log)
	}
	if r := w.run("", "sandbox", "ls"); r.code != 1 || !strings.Contains(r.err, "No engine runs here") || !strings.Contains(r.err, "dreamcore engine") {
		t.Errorf("without an engine: %+v", r)
	}
	if again := w.serve(); again.vars["E2B_API_KEY"] != key {
		t.Error("the key is another one after a restart")
	}
}

// SIGTERM ends it like Ctrl-C; kill -9 leaves what the next start removes.
func TestEngineIsKilled(t *testing.T) {
	w := newWorld(t)
	e := w.serve()
	w.must("sandbox", "create")
	e.stop(syscall.SIGKILL)
	if r := w.run("", "sandbox", "ls"); r.code != 1 || !strings.Contains(r.err, "does not answer") {
		t.Errorf("of a killed engine: %+v", r)
	}
	if len(w.boxes()) == 0 {
		t.Error("a killed engine left nothing: this test shows nothing")
	}
	e = w.serve()
	if got := w.must("sandbox", "ls", "--json"); got != "[]" {
		t.Errorf("after the restart there are %s", got)
	}
	if code := e.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM the code is %d", code)
	}
	if left := w.leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// With --keep a sandbox goes on over a restart, killed or not.
func TestEngineKeepsSandboxes(t *testing.T) {
	w := newWorld(t)
	e := w.serve("--keep")
	id := w.must("sandbox", "create", "-m", "kept=yes")
	w.must("sandbox", "exec", id, "--", "sh", "-c", "echo mine > /workspace/file")
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		e.stop(sig)
		e = w.serve("--keep")
		if got := w.must("sandbox", "exec", id, "cat", "/workspace/file"); got != "mine" {
			t.Errorf("after %v the file holds %q", sig, got)
		}
	}
	w.must("sandbox", "kill", "--all")
	e.stop(syscall.SIGTERM)
	if left := w.leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Over TLS with a certificate of one's own, the same user's commands trust it.
func TestEngineOverTLS(t *testing.T) {
	w := newWorld(t)
	cert, key := certificate(t)
	e := w.serve("--tls-cert", cert, "--tls-key", key, "--domain", "boxes.test")
	if !strings.HasPrefix(e.vars["E2B_API_URL"], "https://127.0.0.1:") {
		t.Errorf("it printed %v", e.vars)
	}
	id := w.must("sandbox", "create")
	if got := w.run("in", "sandbox", "exec", id, "cat"); got.out != "in" || got.code != 0 {
		t.Errorf("got %+v", got)
	}
}

// certificate makes one for this machine's loopback.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, b := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
