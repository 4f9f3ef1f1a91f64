package e2btest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"testing"
	"time"
)

// recording keeps what is answered.
type recording struct {
	http.ResponseWriter
	status int
	data   bytes.Buffer
}

func (r *recording) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recording) Write(p []byte) (int, error) {
	r.data.Write(p)
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController through.
func (r *recording) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// breaking breaks the connection: before the answer, or within its body.
type breaking struct {
	http.ResponseWriter
	after int // bytes of the body that go through
	early bool
}

func (b *breaking) WriteHeader(status int) {
	if b.early {
		panic(http.ErrAbortHandler)
	}
	b.ResponseWriter.WriteHeader(status)
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.early || len(p) > b.after {
		panic(http.ErrAbortHandler)
	}
	b.after -= len(p)
	return b.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController through.
func (b *breaking) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// authority makes a private authority and a certificate for the names.
func authority(tb testing.TB, names ...string) (tls.Certificate, *x509.CertPool) {
	tb.Helper()
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a private authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	must(err)
	root, err := x509.ParseCertificate(der)
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err = x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, caKey)
	must(err)
	pool := x509.NewCertPool()
	pool.AddCert(root)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
