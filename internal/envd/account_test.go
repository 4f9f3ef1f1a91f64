package envd

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What the box's files say of its accounts counts from one request to the next,
// however they were changed, and however quickly.
func TestAccountsChange(t *testing.T) {
	dir := t.TempDir()
	passwd, group := filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	s := newServer(Config{Passwd: passwd, Group: group})
	if _, err := s.user("user"); err == nil {
		t.Error("an account without a file")
	}
	write := func(file, text string) { must(t, os.WriteFile(file, []byte(text), 0o644)) }
	write(passwd, "user:x:1000:1000::/home/user:/bin/sh\n")
	long := time.Now().Add(-time.Hour)
	uid := func() uint32 {
		t.Helper()
		u, err := s.user("user")
		must(t, err)
		return u.uid
	}
	if uid() != 1000 {
		t.Error(uid())
	}
	// In place, with the same size.
	for n := range 20 {
		write(passwd, "user:x:"+string(rune('1'+n%9))+"000:1000::/home/user:/bin/sh\n")
		if got := uid(); got != uint32(1+n%9)*1000 {
			t.Fatalf("change %d: %d", n, got)
		}
	}
	// A new file in its place, as useradd does it, with an old date.
	write(passwd+"+", "user:x:7777:1000::/home/user:/bin/sh\nmore:x:7778:1::/:\n")
	must(t, os.Chtimes(passwd+"+", long, long), os.Rename(passwd+"+", passwd))
	if uid() != 7777 {
		t.Error(uid())
	}
	write(group, "g:x:5:other,user\nh:x:6:users\ni:x:bad:user\n")
	u, err := s.user("user")
	if err != nil || len(u.groups) != 1 || u.groups[0] != 5 || s.namer().groups[6] != "h" {
		t.Errorf("%+v, %v", u, err)
	}
	// Once the change is old enough nothing is read again, and it is right still.
	time.Sleep(2 * settled)
	for range 3 {
		if uid() != 7777 || s.namer().users[7778] != "more" {
			t.Error(uid(), s.namer())
		}
	}
	if s.passwd.names == nil {
		t.Error("it is read every time")
	}
	must(t, os.Remove(group))
	if u, err = s.user("user"); err != nil || len(u.groups) != 0 {
		t.Errorf("%+v, %v", u, err)
	}
	// What would never end is refused.
	must(t, os.Remove(passwd), unix.Mkfifo(passwd, 0o600))
	if _, err := s.user("user"); err == nil {
		t.Error("an account out of a pipe")
	}
	must(t, os.Remove(passwd), os.Symlink("/dev/zero", passwd))
	if _, err := s.user("user"); err == nil {
		t.Error("an account out of /dev/zero")
	}
}
