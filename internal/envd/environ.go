package envd

import (
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environ builds a process's environment: the account's, the sandbox's, the
// request's, later ones winning. It returns the PATH in it too.
func (s *Server) environ(u user, below, own map[string]string) (env []string, search string) {
	m := map[string]string{"PATH": defaultPath, "HOME": u.home, "USER": u.name, "LOGNAME": u.name, "LANG": "C.UTF-8"}
	if u.shell != "" {
		m["SHELL"] = u.shell
	}
	s.mu.Lock()
	for k, v := range s.env {
		m[k] = v
	}
	s.mu.Unlock()
	for _, from := range []map[string]string{below, own} {
		for k, v := range from {
			m[k] = v
		}
	}
	for k, v := range m {
		// The kernel cannot hold such a variable; execve would refuse them all.
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			continue
		}
		env = append(env, k+"="+v)
	}
	return env, m["PATH"]
}

// lookPath finds cmd as execvp would, in the process's own PATH and folder.
func lookPath(cmd, dir, search string) (string, error) {
	if strings.ContainsRune(cmd, 0) {
		return "", fmt.Errorf("a command must not hold a NUL byte: %w", unix.EINVAL)
	}
	if strings.Contains(cmd, "/") {
		if !path.IsAbs(cmd) {
			cmd = path.Join(dir, cmd)
		}
		if _, err := os.Stat(cmd); err != nil {
			return "", fmt.Errorf("%w: %q", errNoCommand, clip(cmd, 256))
		}
		return cmd, nil
	}
	for _, d := range strings.Split(search, ":") {
		if !path.IsAbs(d) {
			d = path.Join(dir, d)
		}
		file := path.Join(d, cmd)
		if fi, err := os.Stat(file); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%w: %q", errNoCommand, clip(cmd, 256))
}
