package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"dreamcore"
	"dreamcore/internal/text"
)

// asNobody runs f on a thread that has no privileges; the thread ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread must not be used again
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			t.Error(errno)
			return
		}
		f()
	}()
	<-done
}

func TestWithoutRoot(t *testing.T) {
	s := open(t)
	asNobody(t, func() {
		_, err := s.Build(t.Context(), BuildOptions{Again: true})
		wantCode(t, err, dreamcore.Missing)
	})
}

// tools makes a PATH that has the named programs only; scripts replace some.
func tools(t *testing.T, names []string, scripts map[string]string) {
	t.Helper()
	t.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
	dir := t.TempDir()
	for _, name := range names {
		p, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(p, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

func TestWithoutDebianOrMmdebstrap(t *testing.T) {
	s := open(t)
	tools(t, []string{"unshare", "chroot"}, nil)
	_, err := s.Build(t.Context(), BuildOptions{Again: true})
	wantCode(t, err, dreamcore.Missing)
	if !bytes.Contains([]byte(err.Error()), []byte("image import")) {
		t.Error(err)
	}
	// apt-get that cannot install: the real one would need a broken network.
	tools(t, []string{"unshare", "chroot", "dpkg-deb"}, map[string]string{"apt-get": "echo E: Unable to locate package; exit 100"})
	_, err = s.Build(t.Context(), BuildOptions{Again: true})
	wantCode(t, err, dreamcore.Missing)
	if !bytes.Contains([]byte(err.Error()), []byte("apt-get install mmdebstrap")) {
		t.Error(err)
	}
	noLeftovers(t, s)
}

// mmdebstrap that fails the usual ways, in the real build around it.
func TestAccidentsAreNamed(t *testing.T) {
	for printed, want := range map[string]string{
		"dpkg: error: cannot copy extracted data: No space left on device": "image.err_disk",
		"E: Temporary failure resolving 'mirror.test'":                     "image.err_network",
		"E: something else": "image.err_build",
	} {
		s := open(t)
		err := s.explainBuild(t.Context(), &commandError{name: "mmdebstrap", tail: printed, err: os.ErrInvalid})
		var e *dreamcore.Error
		if e, _ = err.(*dreamcore.Error); e == nil {
			t.Fatalf("%q: %v", printed, err)
		}
		if hint := text.T(dreamcore.English, want+"_hint"); e.Hint != hint {
			t.Errorf("%q gives the hint %q", printed, e.Hint)
		}
	}
}

func TestBadDefinitions(t *testing.T) {
	good := `{"suite":"bookworm","packages":["bash","chromium"],"omit":[],"stage":["npm"],"stageOmit":[],"agent":"pi","agentName":"pi","browser":"chromium",` +
		`"npm":[{"name":"pi","range":"1.6.0","files":["a"],"to":"usr/x","links":{"usr/bin/pi":"../x/a"}}]}`
	read := func(s string) error {
		_, err := readDefinition(fstest.MapFS{"definition.json": {Data: []byte(s)}})
		return err
	}
	if err := read(good); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{`"bookworm"`, `"book worm"`},
		{`"bash"`, `"-o x"`},
		{`"browser":"chromium"`, `"browser":"other"`},
		{`"agent":"pi"`, `"agent":"other"`},
		{`"to":"usr/x"`, `"to":"../x"`},
		{`"usr/bin/pi"`, `"/usr/bin/pi"`},
		{`"../x/a"`, `"../../../x"`},
		{`"1.6.0"`, `"--x y"`},
		{`"suite"`, `"sweet":1,"suite"`},
	} {
		bad := string(bytes.Replace([]byte(good), []byte(c[0]), []byte(c[1]), 1))
		if bad == good {
			t.Fatalf("%s is not in the sample", c[0])
		}
		if read(bad) == nil {
			t.Errorf("%s was accepted", c[1])
		}
	}
	s := open(t)
	_, err := s.Build(t.Context(), BuildOptions{Definition: fstest.MapFS{}})
	wantCode(t, err, dreamcore.Invalid)
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		pattern, version string
		want             bool
	}{{"24", "24.1.0", true}, {"24", "241.1.0", false}, {"1.6.0", "1.6.0", true}, {"1.6.0", "1.6.01", false}, {"^24", "24.1.0", false}} {
		if got := (NPMPackage{Range: c.pattern}).allows(c.version); got != c.want {
			t.Errorf("%s allows %s: %v", c.pattern, c.version, got)
		}
	}
}

// Every text that the code asks for is in the catalogue, and the other way round.
func TestTextsAreThere(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code []byte
	for _, name := range sources {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code = append(code, data...)
	}
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`"(err_[a-z_]+)"`).FindAllSubmatch(code, -1) {
		used["image."+string(m[1])] = true
	}
	for _, st := range []Stage{StagePrepare, StageIndex, StageDownload, StageNPM, StageInstall, StageFinish, StageArchive, StageDigest} {
		used["image.stage_"+string(st)] = true
	}
	for key := range used {
		if text.T(dreamcore.English, key) == key {
			t.Errorf("%s is not in the catalogue", key)
		}
	}
	for key := range text.Area(dreamcore.English, "image.") {
		if base := regexp.MustCompile(`_hint(_user)?$`).ReplaceAllString(key, ""); !used[base] {
			t.Errorf("nothing uses %s", key)
		}
	}
}
