// Package probe is the attacker inside a sandbox: a list of attempts, each of
// which first succeeds at a target of its own in the same sandbox, so that a
// missing program or a mistyped address is never taken for a wall. It is part of
// the toolkit's binary, needs nothing of the sandbox's image, and does nothing
// by itself.
package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Kind is a way of trying.
type Kind string

// The kinds. Target is an address, a path or a name; Data what is sent.
const (
	TCP     Kind = "tcp"     // connect
	UDP     Kind = "udp"     // send a question, wait for any answer
	DNS     Kind = "dns"     // look Data up at the server Target; "" is the system's
	Unix    Kind = "unix"    // connect to a socket's path; "@name" is abstract
	Rights  Kind = "rights"  // hand a descriptor over a socket and look for one in return
	Raw     Kind = "raw"     // send Data to Target by TCP, return what comes back
	Search  Kind = "search"  // look for the masked Data in files below Target, or in "/proc"
	Links   Kind = "links"   // network interfaces other than the loopback
	Sockets Kind = "sockets" // sockets in the file system
	Count   Kind = "count"   // processes of the user whose id is Target
	Files   Kind = "files"   // open files until that fails, at most Most
	Fork    Kind = "fork"    // start processes until that fails, at most Most
	Disk    Kind = "disk"    // fill the file Target until that fails, at most Most bytes
	Memory  Kind = "memory"  // take memory until that fails, at most Most bytes
	Environ Kind = "environ" // what environment a command has
)

// Attempt is one try.
type Attempt struct {
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	Target string `json:"target,omitempty"`
	Data   []byte `json:"data,omitempty"`
	Most   int64  `json:"most,omitempty"`
}

// Outcome is how it went. Control says that the same worked at a target of the
// probe's own; Reached that the attempt did.
type Outcome struct {
	ID      string `json:"id"`
	Control bool   `json:"control"`
	Reached bool   `json:"reached"`
	Says    string `json:"says,omitempty"`
	Answer  []byte `json:"answer,omitempty"`
	Got     int64  `json:"got,omitempty"`
}

// scratch is the probe's own folder; a search leaves it out.
var scratch string

const (
	wait   = 4 * time.Second
	atOnce = 16
	// requestsAtOnce is less than a job may have at once, or a refusal would be for that.
	requestsAtOnce = 3
	maxAnswer      = 64 << 10
	maskingByte    = 0x5a
)

// Mask hides a needle, so that carrying it into a sandbox does not put it there.
func Mask(needle []byte) []byte {
	out := make([]byte, len(needle))
	for i, b := range needle {
		out[i] = b ^ maskingByte
	}
	return out
}

// Main reads a file of attempts, or with "args" prints the arguments behind it,
// and writes one outcome per line.
func Main(ctx context.Context, args []string, out io.Writer) int {
	if len(args) > 0 && args[0] == "args" {
		if err := json.NewEncoder(out).Encode(args[1:]); err != nil {
			return 2
		}
		return 0
	}
	if len(args) > 0 && args[0] == "wait" {
		<-ctx.Done()
		return 0
	}
	if len(args) != 1 {
		return 2
	}
	data, err := os.ReadFile(args[0])
	var attempts []Attempt
	if err == nil {
		err = json.Unmarshal(data, &attempts)
	}
	if err != nil {
		fmt.Fprintln(out, err)
		return 2
	}
	// The request names what is searched for, masked; it is gone before the search.
	_ = os.Remove(args[0])
	if scratch, err = os.MkdirTemp("", "probe-"); err != nil {
		fmt.Fprintln(out, err)
		return 2
	}
	defer os.RemoveAll(scratch)
	var mu sync.Mutex
	enc := json.NewEncoder(out)
	var wg sync.WaitGroup
	many, few := make(chan struct{}, atOnce), make(chan struct{}, requestsAtOnce)
	for _, a := range attempts {
		wg.Add(1)
		places := many
		if a.Kind == Raw {
			places = few
		}
		places <- struct{}{}
		go func() {
			defer wg.Done()
			o := try(ctx, a)
			<-places
			o.ID = a.ID
			o.Says = strings.ToValidUTF8(o.Says[:min(len(o.Says), 300)], "")
			mu.Lock()
			defer mu.Unlock()
			_ = enc.Encode(o) // whoever reads has gone: nothing is left to tell
		}()
	}
	wg.Wait()
	return 0
}

func try(ctx context.Context, a Attempt) Outcome {
	switch a.Kind {
	case TCP, UDP, Unix:
		return connect(a)
	case DNS:
		return lookUp(ctx, a)
	case Rights:
		return rights(a)
	case Raw:
		return raw(a)
	case Search:
		return search(a)
	case Links:
		return links()
	case Sockets:
		return sockets()
	case Count:
		return count(a)
	case Files:
		return files(a)
	case Fork:
		return fork(ctx, a)
	case Disk:
		return disk(a)
	case Memory:
		return memory(a)
	case Environ:
		return Outcome{Control: true, Answer: []byte(strings.Join(os.Environ(), "\x00"))}
	}
	return Outcome{Says: "unknown kind"}
}

// raw sends bytes and returns all that comes back.
func raw(a Attempt) Outcome {
	conn, err := net.DialTimeout("tcp", a.Target, wait)
	if err != nil {
		return Outcome{Says: err.Error()}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Write(a.Data); err != nil {
		return Outcome{Says: err.Error()}
	}
	if tcp, ok := conn.(*net.TCPConn); ok && a.Most == 1 { // the request is cut
		_ = tcp.CloseWrite()
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	o := Outcome{Control: true, Reached: len(answer) > 0, Answer: answer}
	if err != nil {
		o.Says = err.Error()
	}
	return o
}

// search looks for a needle in files, or in what processes show of themselves.
// Its control is a file of its own.
func search(a Attempt) Outcome {
	needle := Mask(a.Data)
	var o Outcome
	if f, err := os.CreateTemp(scratch, ""); err == nil {
		_, _ = f.Write(append([]byte("..."), needle...))
		f.Close()
		o.Control = holds(f.Name(), needle)
		_ = os.Remove(f.Name())
	}
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	see := func(path string) {
		if !strings.HasPrefix(path, self) && holds(path, needle) {
			o.Reached = true
			o.Says += path + " "
		}
	}
	if a.Target == "/proc" {
		for _, name := range []string{"environ", "cmdline"} {
			paths, _ := filepath.Glob("/proc/[0-9]*/" + name)
			for _, p := range paths {
				see(p)
			}
		}
		return o
	}
	_ = filepath.WalkDir(a.Target, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // what cannot be read cannot be read
		case d.IsDir() && (path == scratch || path == "/proc" || path == "/sys" || path == "/dev"):
			return filepath.SkipDir
		case d.Type().IsRegular():
			see(path)
		}
		return nil
	})
	return o
}

// holds reads a file in pieces.
func holds(path string, needle []byte) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := f.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], needle) {
			return true
		}
		if err != nil {
			return false
		}
		all := kept + n
		kept = min(len(needle)-1, all)
		copy(buf, buf[all-kept:all])
	}
}
