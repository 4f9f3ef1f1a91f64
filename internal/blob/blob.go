// Package blob owns where the bytes of published files live: a content-addressed
// store, so that equal files are kept once and what is read can be proved to be
// what was written. The rules are tried by blobtest; fs implements them.
package blob

import (
	"context"
	"io"

	"dreamcore"
)

// Store keeps blobs. Nothing in it ever changes.
type Store interface {
	// Put stores data durably and returns its name. Storing the same bytes again
	// is cheap and harmless.
	Put(ctx context.Context, data []byte) (dreamcore.BlobHash, error)
	// Open opens a blob for reading. Code NotFound when there is none, Invalid
	// for what is no hash.
	Open(ctx context.Context, hash dreamcore.BlobHash) (File, error)
	// Get reads a whole blob of at most limitBytes (more is code Refused) and
	// proves its hash: a damaged one is code Internal.
	Get(ctx context.Context, hash dreamcore.BlobHash, limitBytes int64) ([]byte, error)
}

// File is an open blob.
type File interface {
	io.ReadSeekCloser
	SizeBytes() int64
}

// Valid reports whether hash has the form of a hash: 64 lower-case hex digits.
// Nothing else may become part of a path.
func Valid(hash dreamcore.BlobHash) bool {
	if len(hash) != 64 {
		return false
	}
	for _, c := range []byte(hash) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
