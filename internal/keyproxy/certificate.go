package keyproxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"time"
)

// certificateLife is longer than a service runs between two starts.
const (
	certificateLife = 2 * 365 * 24 * time.Hour
	certificateLeft = 365 * 24 * time.Hour // a kept one is used while it has as much
)

// remoteTLS returns the certificate for name that a former life left in the
// file, so that sandboxes which know it go on after a restart, or makes one.
func remoteTLS(path, name string) (server *tls.Config, caPEM []byte, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		if server, caPEM, err = parseTLS(data, name, time.Now()); err == nil {
			return server, caPEM, nil
		}
	}
	if data, err = privateTLS(name); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return nil, nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, nil, err
	}
	return parseTLS(data, name, time.Now())
}

// parseTLS reads what privateTLS wrote. It is an error when it is for another
// name or ends soon.
func parseTLS(data []byte, name string, now time.Time) (server *tls.Config, caPEM []byte, err error) {
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, nil, err
	}
	if len(pair.Certificate) != 2 {
		return nil, nil, errors.New("not a certificate with its authority")
	}
	ca, err := x509.ParseCertificate(pair.Certificate[1])
	if err != nil {
		return nil, nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now.Add(certificateLeft)}); err != nil {
		return nil, nil, err
	}
	pair.Certificate = pair.Certificate[:1]
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), nil
}

// privateTLS makes an authority of our own, with a certificate for one name, and
// returns, in PEM, both and the certificate's key. The authority's key is
// forgotten at once: it can sign nothing else.
func privateTLS(name string) ([]byte, error) {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "DreamCore key proxy"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, MaxPathLenZero: true,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{name},
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, b := range []pem.Block{{Type: "CERTIFICATE", Bytes: leafDER}, {Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: keyDER}} {
		out = append(out, pem.EncodeToMemory(&b)...)
	}
	return out, nil
}
