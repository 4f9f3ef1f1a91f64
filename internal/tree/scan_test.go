package tree

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
)

// encoders are the forms in which a secret is usually written down.
var encoders = []func([]byte) string{
	func(b []byte) string { return string(b) },
	base64.StdEncoding.EncodeToString,
	base64.URLEncoding.EncodeToString,
	base64.RawURLEncoding.EncodeToString,
	hex.EncodeToString,
	func(b []byte) string { return url.QueryEscape(string(b)) },
	func(b []byte) string { return url.PathEscape(string(b)) },
}
