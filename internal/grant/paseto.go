package grant

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
)

// header is the version and purpose of the only form that is accepted; there is
// no other to be talked into.
const header = "v4.public."

// encoding is strict: the unused bits of the last letter must be zero, so that
// no two texts are the same token.
var encoding = base64.RawURLEncoding.Strict()

// pae is PASETO's pre-authentication encoding: the count of the pieces, then
// each with its length, all as 64-bit little-endian with the top bit clear.
func pae(pieces ...[]byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(pieces)))
	for _, p := range pieces {
		out = binary.LittleEndian.AppendUint64(out, uint64(len(p))&^(1<<63))
		out = append(out, p...)
	}
	return out
}

func sign(key ed25519.PrivateKey, message, footer, implicit []byte) string {
	sig := ed25519.Sign(key, pae([]byte(header), message, footer, implicit))
	token := header + encoding.EncodeToString(append(append([]byte(nil), message...), sig...))
	if len(footer) > 0 {
		token += "." + encoding.EncodeToString(footer)
	}
	return token
}

func open(key ed25519.PublicKey, token string, implicit []byte) (message, footer []byte, err error) {
	rest, ok := strings.CutPrefix(token, header)
	if !ok {
		return nil, nil, fmt.Errorf("%w: it does not begin with %s", ErrMalformed, header)
	}
	// The decoder skips line breaks wherever they stand.
	if strings.ContainsAny(rest, "\r\n") {
		return nil, nil, fmt.Errorf("%w: it has a line break", ErrMalformed)
	}
	body, foot, hasFooter := strings.Cut(rest, ".")
	raw, err := encoding.DecodeString(body)
	if err != nil || len(raw) < ed25519.SignatureSize {
		return nil, nil, fmt.Errorf("%w: its body is not base64 or too short", ErrMalformed)
	}
	if hasFooter {
		if footer, err = encoding.DecodeString(foot); err != nil || len(footer) == 0 {
			return nil, nil, fmt.Errorf("%w: its footer is not base64 or empty", ErrMalformed)
		}
	}
	at := len(raw) - ed25519.SignatureSize
	message = raw[:at]
	if !ed25519.Verify(key, pae([]byte(header), message, footer, implicit), raw[at:]) {
		return nil, nil, ErrSignature
	}
	return message, footer, nil
}
