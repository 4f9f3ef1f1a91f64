package parcel

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Pack writes src, a file or a folder of ours, as an archive in which it has the
// name base; "." leaves the folder itself out. Symbolic links inside are kept as
// links; src itself is followed. What is no file, folder or link is left out
// and told to leftOut.
func Pack(w io.Writer, src, base string, leftOut func(why Why, name string)) error {
	out := tar.NewWriter(w)
	src, err := filepath.EvalSymlinks(src)
	if err != nil {
		return err
	}
	err = filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return err
		}
		if rel == "." && base == "." {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return packOne(out, p, path.Join(base, filepath.ToSlash(rel)), info, leftOut)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

func packOne(out *tar.Writer, p, name string, info fs.FileInfo, leftOut func(why Why, name string)) error {
	target := ""
	switch info.Mode().Type() {
	case 0, fs.ModeDir:
	case fs.ModeSymlink:
		var err error
		if target, err = os.Readlink(p); err != nil {
			return err
		}
	default:
		leftOut(Special, p)
		return nil
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	// Who owns it here means nothing there.
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = name, 0, 0, "", ""
	h.Mode &= 0o777
	h.Format = tar.FormatPAX
	if info.IsDir() {
		h.Name += "/"
	}
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.CopyN(out, f, info.Size())
	if err != nil {
		return fmt.Errorf("read %s: %d of %d bytes: %w", p, n, info.Size(), err)
	}
	return nil
}
