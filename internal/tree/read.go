package tree

import (
	"archive/tar"
	"errors"
	"io"
	"strings"
)

const block = 512

// Read reads a tar stream of a project folder to its end mark and returns the
// tree, or a *Refusal for the first thing in it that breaks a rule, or the
// error of r itself. The names in the stream are relative to the folder; a
// leading "./" is how tar writes them. Memory is bounded by the limits,
// whatever sizes the stream claims.
func Read(r io.Reader, limits Limits) (*Tree, error) {
	// Headers and folders cost bytes too: three blocks an entry, its name twice.
	overhead := int64(2*limits.Files+16) * int64(6*block+4*limits.PathBytes)
	src := &counter{r: r, left: limits.TotalBytes + overhead}
	in := tar.NewReader(src)
	b := newBuilder(limits)
	for {
		before := src.n
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			// The standard library takes a stream that was cut between two
			// entries for a whole one. The end mark of two zero blocks is what
			// tells them apart.
			if src.n-(before+block-1)/block*block < 2*block {
				return nil, src.refusal(io.ErrUnexpectedEOF)
			}
			return b.tree(), nil
		}
		if err != nil {
			return nil, src.refusal(err)
		}
		if err := b.entry(h, in); err != nil {
			var refusal *Refusal
			if errors.As(err, &refusal) {
				return nil, refusal
			}
			return nil, src.refusal(err)
		}
	}
}

// entry judges one header and, when it is a file, reads it.
func (b *builder) entry(h *tar.Header, in io.Reader) error {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return refuse(Sparse, h.Name, "")
		}
	}
	path := strings.TrimPrefix(h.Name, "./")
	switch h.Typeflag {
	case tar.TypeReg:
		if strings.HasSuffix(path, "/") {
			return refuse(BadName, path, "")
		}
	case tar.TypeDir:
		if path == "" || path == "." {
			return nil // the folder itself
		}
		return b.folder(strings.TrimSuffix(path, "/"))
	case tar.TypeLink, tar.TypeSymlink:
		return refuse(Link, path, h.Linkname)
	case tar.TypeGNUSparse:
		return refuse(Sparse, path, "")
	default:
		return refuse(Special, path, string(rune(h.Typeflag)))
	}
	if err := b.admit(path, h.Size); err != nil {
		return err
	}
	// The claimed size is within the limits, but nothing is allocated on the
	// word of a header: the buffer grows with what really comes.
	data, err := io.ReadAll(io.LimitReader(in, h.Size+1))
	if err != nil {
		return err
	}
	if int64(len(data)) != h.Size {
		return io.ErrUnexpectedEOF
	}
	b.add(path, data)
	return nil
}

// counter bounds the raw stream and knows how far it was read.
type counter struct {
	r    io.Reader
	n    int64
	left int64
	err  error // an error of r that is not its end
	over bool
}

func (c *counter) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.over = true
		return 0, io.ErrUnexpectedEOF
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// refusal tells a broken transport (returned as it is: trying again may help)
// from a stream that is itself at fault.
func (c *counter) refusal(err error) error {
	switch {
	case c.over:
		return refuse(TreeTooLarge, "", "")
	case c.err != nil:
		return c.err
	}
	return &Refusal{Reason: Broken, Err: err}
}
