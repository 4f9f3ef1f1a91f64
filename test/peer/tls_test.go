package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/test/node"
)

// The SDK without E2B_SANDBOX_URL, as with E2B's cloud: each sandbox has host
// names of its own, over TLS and HTTP/2. What goes through the router is driven
// again in this way.
func TestSDKByNameOverTLS(t *testing.T) {
	e := enginetest.Start(t, func(c *enginetest.Config) { c.Profile = engine.E2B })
	var versions counter
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		versions.add(r)
		e.Handler().ServeHTTP(w, r)
	}))
	s.EnableHTTP2 = true
	ca, cert := certificate(t, "*."+domain)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}), 0o644); err != nil {
		t.Fatal(err)
	}
	drive(t, e, way{
		sdk: node.SDKs[0], domain: domain + ":" + port, preload: "names.mjs", env: []string{"NODE_EXTRA_CA_CERTS=" + file},
		parts: []string{"commands", "files", "signed", "control", "pty", "watch"},
		cases: []string{"commands", "files/write", "files/read", "files/names", "files/signed", "sandbox/kill", "pty", "watch"},
	})
	if versions.http2.Load() < 100 || versions.byName.Load() < 100 {
		t.Errorf("%d requests over HTTP/2 and %d by a sandbox's name: the SDK went another way", versions.http2.Load(), versions.byName.Load())
	}
}

// certificate makes an authority and a certificate of it for names.
func certificate(t *testing.T, names ...string) (authority []byte, cert tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	authority, err = x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: strings.Join(names, " ")}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return authority, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// forPrograms is a certificate for programs in a sandbox, as the suite reads it.
func forPrograms(t *testing.T) string {
	t.Helper()
	_, cert := certificate(t, "localhost")
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	data, err := json.Marshal(map[string]string{"key": text("PRIVATE KEY", key), "cert": text("CERTIFICATE", cert.Certificate[0])})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
