package dreamcore

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// Identifiers are lower-case letters and digits of a fixed length per kind.
// The fixed length matters: runsc finds containers by prefix, so an id must
// never be the beginning of another.
type (
	// GameID names a game for ever; it is the last part of its public URL.
	GameID string
	// VersionID is the hex SHA-256 of a version's game, job and file list:
	// content-addressed, yet two games that happen to have equal files differ.
	VersionID string
	// JobID names the work of one chat message.
	JobID string
	// SandboxID names one disposable computer, unique over the life of an
	// installation.
	SandboxID string
	// BlobHash is the hex SHA-256 of one stored file.
	BlobHash string
	// CreatorID names the person (or, without accounts, the browser) that owns games.
	CreatorID string
	// TemplateTag is "2d/NAME" or "3d/NAME".
	TemplateTag string
)

// idAlphabet leaves out letters that are easily misread; its 32 letters make
// every byte of randomness five unbiased bits.
const idAlphabet = "abcdefghjkmnpqrstuvwxyz023456789"

// NewToken returns n random characters that are safe in a host name, a path
// and a URL. Each carries five bits.
func NewToken(n int) string {
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		panic(fmt.Sprintf("dreamcore: no randomness from the kernel: %v", err))
	}
	for i := range b {
		b[i] = idAlphabet[b[i]&31]
	}
	return string(b)
}

// IsToken reports whether s has the form of what NewToken(n) returns.
func IsToken(s string, n int) bool {
	return len(s) == n && strings.Trim(s, idAlphabet) == ""
}

// NewGameID returns a fresh id of 16 characters (80 bits: a URL that cannot be guessed).
func NewGameID() GameID { return GameID(NewToken(16)) }

// NewJobID returns a fresh id of 20 characters.
func NewJobID() JobID { return JobID(NewToken(20)) }

// NewSandboxID returns a fresh id of 20 characters.
func NewSandboxID() SandboxID { return SandboxID(NewToken(20)) }
