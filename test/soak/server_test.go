// Package soak shows that an engine which has served many boxes is as it was
// before: nothing of theirs is left on the machine and the server has not grown,
// whether it was closed or killed with -9. The engine is a process of its own,
// so that it can be measured and killed.
package soak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox/e2b"
)

// patience is for what must happen but may take long on a busy machine.
const patience = 3 * time.Minute

// order is what a server is told by its environment.
type order struct {
	Dir, Root, Runsc, Sandboxd string
	Limits                     engine.Limits // zero: those of enginetest
	Keep                       bool          // take back the boxes of a former server
}

const orderEnv = "DREAMCORE_SOAK_SERVER"

func TestMain(m *testing.M) {
	if text := os.Getenv(orderEnv); text != "" {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, "soak server:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	enginetest.CleanUp()
	os.Exit(code)
}

// serve is the server's process: it answers lines of its standard input.
func serve(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	e, err := enginetest.Open(o.Dir, engine.Config{Runsc: o.Runsc, Sandboxd: o.Sandboxd}, o.Root, func(c *engine.Config) {
		if o.Limits != (engine.Limits{}) {
			c.Limits = o.Limits
		}
		c.Keep = o.Keep
	})
	if err != nil {
		return err
	}
	fmt.Println(e.URL)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "measure":
			s, err := measure()
			if err != nil {
				return err
			}
			out, err := json.Marshal(s)
			if err != nil {
				return err
			}
			fmt.Println(string(out))
		case "close":
			if err := e.Shut(); err != nil {
				return err
			}
			fmt.Println("closed")
			return nil
		}
	}
	return e.Shut() // whoever started us is gone
}

// size is what a server takes of the machine.
type size struct {
	HeapBytes   uint64 // live after a collection
	Goroutines  int
	Descriptors int
	Children    int // processes whose parent it is, those that nobody waits for included
	RSSBytes    int64
}

func measure() (size, error) {
	var s size
	runtime.GC() // finalizers run after the first
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.HeapBytes, s.Goroutines = m.HeapAlloc, runtime.NumGoroutine()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return s, err
	}
	s.Descriptors = len(fds)
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return s, err
	}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(after); len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			s.Children++
		}
	}
	s.RSSBytes, err = field("/proc/self/status", "VmRSS:")
	return s, err
}

// field reads a line "NAME N kB" of a file in /proc, in bytes.
func field(file, name string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, name)
}

// server is an engine in a process of its own, and a client of it.
type server struct {
	t        *testing.T
	order    order
	url      string
	image    string
	http     *http.Client
	provider *e2b.Provider

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t *testing.T, o order) *server {
	t.Helper()
	p := enginetest.Programs(t)
	o.Runsc, o.Sandboxd, o.Root = p.Runsc, p.Sandboxd, enginetest.Image(t)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, order: o, image: "base"}
	s.cmd = exec.Command(self, "-test.run=^$")
	s.cmd.Env = append(os.Environ(), orderEnv+"="+string(text))
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill) // a test that failed half way
	s.url = s.line()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	s.http = &http.Client{Transport: transport}
	s.provider = e2b.New(e2b.Config{APIURL: s.url, SandboxURL: s.url, APIKey: dreamcore.NewSecret(enginetest.APIKey), Transport: transport})
	return s
}

func (s *server) line() string {
	s.t.Helper()
	if !s.out.Scan() {
		s.t.Fatalf("the server has ended: %v", s.cmd.Wait())
	}
	return s.out.Text()
}

func (s *server) tell(line string) string {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		s.t.Fatal(err)
	}
	return s.line()
}

func (s *server) measure() size {
	s.t.Helper()
	s.http.CloseIdleConnections()
	var m size
	if err := json.Unmarshal([]byte(s.tell("measure")), &m); err != nil {
		s.t.Fatal(err)
	}
	return m
}

// close ends the server in good order.
func (s *server) close() {
	s.t.Helper()
	s.http.CloseIdleConnections()
	if got := s.tell("close"); got != "closed" {
		s.t.Fatalf("the server says %q", got)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends the server as a power failure would. Killed twice is killed.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.http.CloseIdleConnections()
}
