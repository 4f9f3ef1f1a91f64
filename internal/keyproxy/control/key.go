package control

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"

	"dreamcore"
)

// maxKeyBytes bounds the file of a key, sealed or not.
const maxKeyBytes = 16 << 10

// sealed begins a file in age's format.
const sealed = "age-encryption.org/"

// NewOpeningKey makes what seals keys and opens them again, as the text of its
// file: an identity of age, so that age's own tool can seal keys too.
func NewOpeningKey() (dreamcore.Secret, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return dreamcore.Secret{}, fmt.Errorf("make an opening key: %w", err)
	}
	return dreamcore.NewSecret(id.String() + "\n"), nil
}

// Seal returns the key as only the holder of the opening key reads it.
func Seal(key, opening dreamcore.Secret) ([]byte, error) {
	id, err := identity(strings.NewReader(opening.Reveal()))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, id.Recipient())
	if err != nil {
		return nil, fmt.Errorf("seal the key: %w", err)
	}
	if _, err := io.WriteString(w, key.Reveal()+"\n"); err != nil {
		return nil, fmt.Errorf("seal the key: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("seal the key: %w", err)
	}
	return out.Bytes(), nil
}

// identity reads an opening key.
func identity(r io.Reader) (*age.X25519Identity, error) {
	ids, err := age.ParseIdentities(io.LimitReader(r, maxKeyBytes))
	if err == nil && len(ids) == 1 {
		if id, ok := ids[0].(*age.X25519Identity); ok {
			return id, nil
		}
	}
	// The cause may quote the file.
	return nil, dreamcore.Errorf(dreamcore.Invalid, "keyproxy", "the opening key is not one age identity").
		WithHint("make one with: dreamcore key set")
}

// opening is the descriptor of the opening key; nil when there is none.
func (s *Settings) opening(files []*os.File) *os.File {
	if s.Opening == 0 {
		return nil
	}
	return files[s.Opening-1]
}

// readKey reads a key from the descriptor of its file, and opens it where it is
// sealed. The host has looked at the modes of both files.
func readKey(f, opening *os.File) (dreamcore.Secret, error) {
	odd := dreamcore.Errorf(dreamcore.Invalid, "keyproxy", "the key file does not hold exactly one key")
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxKeyBytes+1))
	if err != nil || len(data) > maxKeyBytes {
		return dreamcore.Secret{}, odd.Because(err)
	}
	defer clear(data)
	if bytes.HasPrefix(data, []byte(sealed)) {
		if opening == nil {
			return dreamcore.Secret{}, dreamcore.Errorf(dreamcore.Invalid, "keyproxy", "the key is sealed, and there is no opening key").
				WithHint("set proxy.opening_key_file in the settings")
		}
		id, err := identity(io.NewSectionReader(opening, 0, maxKeyBytes))
		if err != nil {
			return dreamcore.Secret{}, err
		}
		r, err := age.Decrypt(bytes.NewReader(data), id)
		if err != nil {
			return dreamcore.Secret{}, dreamcore.Errorf(dreamcore.Invalid, "keyproxy", "the key cannot be opened").Because(err).
				WithHint("it was sealed for another opening key, or changed since")
		}
		plain, err := io.ReadAll(io.LimitReader(r, maxKeyBytes))
		if err != nil {
			return dreamcore.Secret{}, odd.Because(err)
		}
		defer clear(plain)
		data = plain
	}
	key := strings.TrimSpace(string(data))
	if key == "" || strings.ContainsAny(key, " \t\r\n") {
		return dreamcore.Secret{}, odd
	}
	return dreamcore.NewSecret(key), nil
}
