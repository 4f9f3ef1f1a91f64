package app

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"dreamcore"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/e2b"
	"dreamcore/internal/sandbox/parcel"
	"dreamcore/internal/text"
)

// place is one side of a copy: a path here, or one in a sandbox.
type place struct {
	id   string // "" is here
	path string
}

// maxFiles may come out of a sandbox in one copy.
const maxFiles = 1_000_000

var placeForm = regexp.MustCompile(`^([a-z0-9][a-z0-9-]{3,63}):(.*)$`)

// readPlace understands ID:/path; what is meant as a path here although it looks
// like that is written ./ID:/path.
func readPlace(s string) place {
	if m := placeForm.FindStringSubmatch(s); m != nil {
		return place{m[1], m[2]}
	}
	return place{path: s}
}

// copySandbox copies a file or folder into a sandbox or out of it.
func copySandbox(ctx context.Context, t Terminal, args []string) error {
	user := sandbox.User
	most := size(16 << 30)
	h, rest, err := begin(ctx, t, args, func(f *flag.FlagSet) {
		f.StringVar(&user, "u", sandbox.User, "")
		f.Var(&most, "max", "")
	})
	if err != nil {
		return err
	}
	if len(rest) != 2 {
		return usage(t)
	}
	from, to := readPlace(rest[0]), readPlace(rest[1])
	if (from.id == "") == (to.id == "") {
		return usage(t)
	}
	c := &copying{h: h, user: user, most: int64(most)}
	id := from.id + to.id
	if c.sb, err = h.open(ctx, id); err != nil {
		return err
	}
	files := 0
	if from.id != "" {
		files, err = c.out(ctx, from.path, to.path)
	} else {
		err = c.in(ctx, from.path, to.path)
	}
	if err != nil && ctx.Err() != nil {
		return interrupted(t, ctx.Err(), from.id != "", files)
	}
	if err != nil {
		return h.explain(err, id)
	}
	if from.id != "" && files == 0 {
		return text.Error(t.Lang, dreamcore.Refused, "sandbox.copy", "sandbox_cmd.copied_nothing")
	}
	if c.lacks {
		fmt.Fprintln(t.Err, text.T(t.Lang, "sandbox_cmd.not_all"))
		return errSaid
	}
	return nil
}

// interrupted says what an interrupted copy left behind: files that are whole
// on this machine, anything in a sandbox.
func interrupted(t Terminal, err error, out bool, files int) error {
	key := "sandbox_cmd.interrupted_in"
	if out && files == 0 {
		return err // which says that there is nothing
	}
	if out {
		key = "sandbox_cmd.interrupted_out"
	}
	fmt.Fprintln(t.Err, text.T(t.Lang, key))
	return &exitError{code: exitInterrupted}
}

// copying copies with tar in the sandbox: it keeps modes, links and times, and a
// folder is one stream.
type copying struct {
	h    *hand
	sb   *e2b.Remote
	user string
	most int64 // bytes that may come out
	// lacks: the copy is not all of what was to be copied.
	lacks bool
}

// contents reports whether a path means what is in a folder ("dir/."), and
// returns the path without that.
func contents(p string) (string, bool) {
	if p == "." {
		return p, true
	}
	return strings.CutSuffix(p, "/.")
}

// out copies from the sandbox to here and returns how many files came.
func (c *copying) out(ctx context.Context, from, to string) (int, error) {
	src, inner := contents(from)
	if src = path.Clean(src); src == ".." || strings.HasPrefix(src, "../") {
		// Names in the archive would begin with what is refused there.
		return 0, text.Error(c.h.t.Lang, dreamcore.Invalid, "sandbox.copy", "sandbox_cmd.bad_path", "path", printable(from, 200))
	}
	dir, base := path.Dir(src), path.Base(src)
	if src == "/" || src == "." || inner {
		dir, base, inner = src, ".", inner || src == "/" || src == "."
	}
	target := to
	if info, err := os.Stat(to); !inner && (strings.HasSuffix(to, "/") || err == nil && info.IsDir()) {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return 0, err
		}
		target = filepath.Join(to, base)
	}
	target, err := filepath.Abs(target)
	if err != nil {
		return 0, err
	}
	// A name that begins with a dash is a name because "--" is before it.
	cmd := sandbox.Command{Args: []string{"tar", "-c", "-f", "-", "-C", dir, "--", base}, User: c.user}
	s, err := c.sb.Exec(ctx, cmd, nil)
	if err != nil {
		return 0, c.noTar(err)
	}
	reader, writer := io.Pipe()
	var said bytes.Buffer
	go func() {
		for o := range s.Events() {
			if o.Stderr {
				keep(&said, o.Data)
			} else if _, err := writer.Write(o.Data); err != nil {
				// Unpacking has failed; tar must not wait for us.
				_ = s.Signal(context.WithoutCancel(ctx), "SIGKILL")
			}
		}
		writer.Close()
	}()
	stop := context.AfterFunc(ctx, func() { reader.CloseWithError(ctx.Err()) })
	defer stop()
	files, unpacked := parcel.Unpack(reader, parcel.Order{
		Base: base, Target: target, MaxBytes: c.most, MaxFiles: maxFiles, LeftOut: c.leftOut, Lang: c.h.t.Lang,
	})
	if unpacked == nil {
		_, unpacked = io.Copy(io.Discard, reader) // the padding behind the end
	}
	reader.CloseWithError(unpacked)
	exit, err := s.Wait(ctx)
	if unpacked != nil && (err != nil || exit.Code <= 0 || files > 0) {
		return files, unpacked
	}
	return files, c.tarEnded(exit, err, said.String())
}

// in copies from here into the sandbox.
func (c *copying) in(ctx context.Context, from, to string) error {
	src, inner := contents(from)
	info, err := os.Stat(src)
	if err != nil {
		return text.Error(c.h.t.Lang, dreamcore.NotFound, "sandbox.copy", "sandbox_cmd.no_file", "path", printable(src, 200)).Because(err)
	}
	if inner && !info.IsDir() {
		return text.Error(c.h.t.Lang, dreamcore.Invalid, "sandbox.copy", "sandbox_cmd.bad_path", "path", printable(from, 200))
	}
	abs, err := filepath.Abs(src)
	if err != nil {
		return err
	}
	dir, base := to, "."
	if !inner {
		into := to == "" || strings.HasSuffix(to, "/")
		if !into {
			if into, err = c.sb.IsDir(ctx, c.user, to); err != nil {
				return err
			}
		}
		base = filepath.Base(abs)
		if !into {
			dir, base = path.Dir(to), path.Base(to)
		}
	}
	if dir == "" {
		dir = "."
	}
	if dir = path.Clean(dir); dir != "." && dir != "/" {
		if err := c.sb.MakeDir(ctx, c.user, dir); err != nil {
			return err
		}
	}
	cmd := sandbox.Command{Args: []string{"tar", "-x", "-p", "--no-same-owner", "-f", "-", "-C", dir}, User: c.user, Stdin: true}
	s, err := c.sb.Exec(ctx, cmd, nil)
	if err != nil {
		return c.noTar(err)
	}
	var said bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		for o := range s.Events() {
			keep(&said, o.Data)
		}
	}()
	w := bufio.NewWriterSize(sending{ctx, s}, 1<<20)
	packed := parcel.Pack(w, abs, base, c.leftOut)
	if packed == nil {
		packed = w.Flush()
	}
	if packed == nil {
		packed = s.CloseInput(ctx)
	}
	if packed != nil {
		// Half an archive must not look like a whole one.
		_ = s.Signal(context.WithoutCancel(ctx), "SIGKILL")
	}
	exit, err := s.Wait(context.WithoutCancel(ctx))
	<-done
	// Where tar gave up by itself, its reason is the reason.
	if packed != nil && unlessOver(packed) != nil {
		return packed
	}
	if err := c.tarEnded(exit, err, said.String()); err != nil {
		return err
	}
	return packed
}

// sending writes to a command's input.
type sending struct {
	ctx context.Context
	s   *e2b.Session
}

func (w sending) Write(p []byte) (int, error) {
	if err := w.s.Send(w.ctx, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// keep adds to what a command said, within bounds.
func keep(b *bytes.Buffer, data []byte) {
	if room := 2000 - b.Len(); room > 0 {
		b.Write(data[:min(len(data), room)])
	}
}

func (c *copying) noTar(err error) error {
	if dreamcore.CodeOf(err) == dreamcore.NotFound {
		return text.Error(c.h.t.Lang, dreamcore.Missing, "sandbox.copy", "sandbox_cmd.no_tar")
	}
	return err
}

// diskFull is how tar says that there is no room for what it unpacks: the error
// where the system named one, else what it could write.
var diskFull = regexp.MustCompile(`No space left on device|Disk quota exceeded|Wrote only \d+ of \d+ bytes`)

// tarEnded judges how tar ended in the sandbox, and what it said.
func (c *copying) tarEnded(exit sandbox.Exit, err error, said string) error {
	lang := c.h.t.Lang
	switch {
	case err != nil:
		return err
	case exit.Code > 1 && diskFull.MatchString(said):
		return text.Error(lang, dreamcore.Refused, "sandbox.copy", "sandbox_cmd.disk_full", "said", printable(said, 500))
	case exit.Code > 1 || exit.Code < 0:
		return text.Error(lang, dreamcore.Refused, "sandbox.copy", "sandbox_cmd.tar_failed", "code", strconv.Itoa(exit.Code), "said", printable(said, 500))
	}
	if said = printable(said, 500); said != "" {
		fmt.Fprintln(c.h.t.Err, text.T(lang, "sandbox_cmd.tar_warned", "said", said))
	}
	// A file changed while it was read; or tar passed over what no archive holds,
	// which it does not count.
	if exit.Code == 1 || strings.Contains(said, "socket ignored") {
		c.lacks = true
	}
	return nil
}

// leftOut prints what a copy leaves out.
func (c *copying) leftOut(why parcel.Why, name string) {
	c.lacks = true
	fmt.Fprintln(c.h.t.Err, text.T(c.h.t.Lang, "sandbox_cmd."+string(why), "name", printable(name, 200)))
}
