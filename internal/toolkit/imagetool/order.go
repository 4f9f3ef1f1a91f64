package imagetool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// state is where an order stands.
type state string

const (
	running state = "running"
	done    state = "done"
	failed  state = "failed"
)

// order is one picture that was ordered, as it is kept in the state folder.
// Reason and Fix are keys of the message catalogue with their arguments, so
// that whoever asks reads them in their own language.
type order struct {
	ID          string            `json:"id"`
	Words       string            `json:"words"`
	Out         string            `json:"out"`  // as it was given
	Path        string            `json:"path"` // absolute
	Width       int               `json:"width"`
	Height      int               `json:"height"`
	Transparent bool              `json:"transparent"`
	Style       string            `json:"style,omitempty"`
	State       state             `json:"state"`
	Note        string            `json:"note,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Args        map[string]string `json:"args,omitempty"` // of Note and Reason
	Fix         string            `json:"fix,omitempty"`
	Bytes       int               `json:"bytes,omitempty"`
	GotWidth    int               `json:"gotWidth,omitempty"`
	GotHeight   int               `json:"gotHeight,omitempty"`
	PID         int               `json:"pid,omitempty"` // of its process, to look at
	Created     time.Time         `json:"created"`
}

func (o order) size() string { return fmt.Sprintf("%dx%d", o.Width, o.Height) }

// identify sets the ID: the same words, size, style and file are the same order.
func (o *order) identify() {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%s\x00%s\x00%t\x00%s", strings.Join(strings.Fields(o.Words), " "), o.Path, o.size(), o.Transparent, o.Style)
	o.ID = hex.EncodeToString(sum.Sum(nil))[:10]
}

// fail records why the order came to nothing.
func (o *order) fail(reason, fix string, args map[string]string) {
	o.State, o.Note, o.Reason, o.Fix, o.Args = failed, "", reason, fix, args
}

// maxOrders bounds the state folder.
const maxOrders = 400

// folder is the state folder: ID.json and ID.lock for each order. Whoever holds
// a lock is the order's worker and the only one who writes its file, so an
// order that is running and not locked has lost its worker.
type folder struct{ dir string }

// openFolder finds and makes the state folder.
func openFolder(env Env) (folder, error) {
	candidates := []string{env.getenv("DREAMCORE_STATE")}
	if candidates[0] == "" {
		candidates = []string{"/run/dreamcore/image"}
		if home := env.getenv("HOME"); home != "" {
			candidates = append(candidates, filepath.Join(home, ".dreamcore", "image"))
		}
	}
	var first error
	for _, dir := range candidates {
		err := usable(dir)
		if err == nil {
			return folder{dir}, nil
		}
		if first == nil {
			first = err
		}
	}
	return folder{candidates[0]}, first
}

// usable makes dir and tries to write there.
func usable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".try-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func (f folder) file(id string) string { return filepath.Join(f.dir, id+".json") }

func (f folder) load(id string) (order, error) {
	var o order
	if strings.ContainsAny(id, `/\.`) {
		return o, fs.ErrNotExist
	}
	data, err := os.ReadFile(f.file(id))
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("read order %s: %w", id, err)
	}
	return o, nil
}

// save writes the order in one step.
func (f folder) save(o order) error {
	data, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("save order %s: %w", o.ID, err)
	}
	if err := writeFile(f.file(o.ID), f.dir, data); err != nil {
		return fmt.Errorf("save order %s: %w", o.ID, err)
	}
	return nil
}

// replace forgets the orders that were to write the same file as o: their
// processes find themselves forgotten and write nothing.
func (f folder) replace(o order) error {
	all, err := f.all()
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Path != o.Path || p.ID == o.ID {
			continue
		}
		if err := os.Remove(f.file(p.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// all returns every order, the oldest first.
func (f folder) all() ([]order, error) {
	names, err := filepath.Glob(filepath.Join(f.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var orders []order
	for _, n := range names {
		o, err := f.load(strings.TrimSuffix(filepath.Base(n), ".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // replaced just now
		}
		if err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	slices.SortFunc(orders, func(a, b order) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return orders, nil
}

// look returns the order as it stands now: one whose worker is gone has failed.
func (f folder) look(id string) (order, error) {
	o, err := f.load(id)
	if err != nil || o.State != running {
		return o, err
	}
	lock, err := f.lock(id)
	if err != nil || lock == nil {
		return o, err // somebody works on it
	}
	defer lock.Close()
	// The worker may have finished between the two looks.
	if o, err = f.load(id); err != nil || o.State != running {
		return o, err
	}
	o.fail("reason_died", "fix_again", nil)
	return o, f.save(o)
}

// lock takes the order's lock; nil without an error means that another has it.
// The kernel lets go of it when the last process that holds the file ends,
// however it ends.
func (f folder) lock(id string) (*os.File, error) {
	return flock(filepath.Join(f.dir, id+".lock"))
}

func flock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, file.Close()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// writeFile writes data under a name in one step: readers see the old file or
// the whole new one. Unfinished files stand in scratch, so that a process that
// is killed leaves nothing beside the file.
func writeFile(path, scratch string, data []byte) error {
	err := replaceFile(path, scratch, data)
	if errors.Is(err, syscall.EXDEV) {
		// Another file system: there the unfinished file must stand beside it.
		err = replaceFile(path, filepath.Dir(path), data)
	}
	return err
}

func replaceFile(path, scratch string, data []byte) error {
	tmp, err := os.CreateTemp(scratch, ".part-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
