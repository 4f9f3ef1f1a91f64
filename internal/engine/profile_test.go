package engine_test

import (
	"strings"
	"testing"

	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/envd"
	"dreamcore/internal/sandbox"
)

// asE2B is how `dreamcore engine` serves others.
func asE2B(c *engine.Config) { c.Profile = engine.E2B }

// A job's box gains nothing by the sudo that its image holds, not even when the
// box's own root has given it every bit and line that it needs.
func TestSudoIsNothingInAJobsBox(t *testing.T) {
	e := enginetest.Start(t)
	sb := boot(t, e)
	if got := sh(t, sb, sandbox.User, "env | grep E2B_; ls -d /run/e2b 2>/dev/null"); got != "" {
		t.Errorf("a job's box says about itself %q", got)
	}
	const try = `LC_ALL=C sudo -n id -u 2>&1 || echo refused; LC_ALL=C su -c "id -u" root </dev/null 2>&1 || echo refused`
	got := sh(t, sb, sandbox.User, try)
	if strings.Count(got, "refused") != 2 || strings.HasPrefix(got, "0") {
		t.Errorf("the user gets %q", got)
	}
	if got := sh(t, sb, sandbox.User, "find / -xdev -perm /6000 -type f 2>/dev/null | head"); got != "" {
		t.Errorf("set-id programs in the image: %q", got)
	}
	set := sh(t, sb, sandbox.Root, `chmod 4755 /usr/bin/sudo && echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/x && chmod 440 /etc/sudoers.d/x &&
		cp /usr/bin/id /usr/bin/idroot && chmod 4755 /usr/bin/idroot && stat -c %a /usr/bin/sudo /usr/bin/idroot`)
	if set != "4755\n4755" {
		t.Fatalf("root cannot prepare the attempt: %q", set)
	}
	if got := sh(t, sb, sandbox.User, try); strings.Count(got, "refused") != 2 || strings.HasPrefix(got, "0") {
		t.Errorf("with set-id bits the user gets %q", got)
	}
	if got := sh(t, sb, sandbox.User, "idroot -u; grep -E '^CapBnd' /proc/self/status"); !strings.HasPrefix(got, "1000\n") {
		t.Errorf("a set-id program runs as %q", got)
	}
	// Root of such a box has the six capabilities of PID 1 and can get no others.
	if got := sh(t, sb, sandbox.Root, "grep -E '^Cap(Eff|Bnd)' /proc/self/status | cut -f2"); got != "00000000000000eb\n00000000000000eb" {
		t.Errorf("root has the capabilities %q", got)
	}
}

// Whoever is served by the profile E2B has sudo without a password, as in E2B's
// own sandboxes, and still reaches nothing of the host.
func TestSudoInABoxThatIsServed(t *testing.T) {
	e := enginetest.Start(t, asE2B)
	sb := boot(t, e)
	got := sh(t, sb, sandbox.User, "sudo id -un; sudo -u nobody id -un; id -un; sudo -n true && echo silent")
	if got != "root\nnobody\nuser\nsilent" { // not a word on standard error either
		t.Errorf("sudo gives %q", got)
	}
	// What people use root for.
	got = sh(t, sb, sandbox.User, `set -e
		sudo sh -c 'echo hi > /etc/motd && chown nobody /etc/motd && chmod 600 /etc/motd && cat /etc/motd'
		sudo sh -c 'echo "ada:*:1001:1001::/home/ada:/bin/bash" >> /etc/passwd && install -d -o ada /home/ada' && sudo -iu ada sh -c 'id -un; pwd'
		sudo chroot / /usr/bin/id -u; sudo mknod /etc/n c 1 3 && echo node
		sudo python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",80)); print("port 80")'`)
	if got != "hi\nada\n/home/ada\n0\nnode\nport 80" {
		t.Errorf("root does %q", got)
	}
	// The positive control of the attempts below: root sees the folder.
	if got := sh(t, sb, sandbox.User, "sudo ls "+envd.ControlDir); !strings.Contains(got, envd.EgressSocket) {
		t.Errorf("root sees %q", got)
	}
	// It says about itself what E2B's sandboxes do, and a job's box does not.
	got = sh(t, sb, sandbox.User, `echo "$E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID"; cd /run/e2b && cat .E2B_SANDBOX .E2B_SANDBOX_ID .E2B_TEMPLATE_ID`)
	if id := string(sb.ID()); got != "true "+id+" "+e.Image+"\ntrue"+id+e.Image {
		t.Errorf("it says about itself %q", got)
	}
	// The host's folder, PID 1's memory and its descriptors stay closed to root.
	for _, attempt := range []string{
		"echo x > " + envd.ControlDir + "/x",
		"rm " + envd.ControlDir + "/" + envd.EgressSocket,
		"cat " + envd.ControlDir + "/" + envd.BootFile,
		"cat " + envd.ControlDir + "/" + envd.ControlSocket,
		"head -c 1 /proc/1/mem",
		"cat /proc/1/maps | grep .",
		"ls -l /proc/1/fd/2 && echo x > /proc/1/fd/2",
		"cat /proc/1/environ | grep -a .",
		"mount -t tmpfs x /mnt",
		"umount " + envd.ControlDir,
		"mount -o remount,rw " + envd.ControlDir,
		"echo 1 > /proc/sys/kernel/hostname",
		"ip link add dummy0 type dummy",
		"prlimit --pid $$ --nproc=100000:100000",
	} {
		res := run(t, sb, sandbox.Command{Args: []string{"sudo", "bash", "-c", attempt}})
		if res.Code == 0 {
			t.Errorf("root may: %s: %q", attempt, res.Stdout)
		}
	}
	seen := sh(t, sb, sandbox.User, "sudo cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
	for _, secret := range []string{enginetest.APIKey, e.Dir} {
		if strings.Contains(seen, secret) {
			t.Errorf("the box holds %q", secret)
		}
	}
	// Another box's root, the image and the files of the first are out of reach.
	other := boot(t, e)
	if got := sh(t, other, sandbox.User, "sudo cat /etc/motd 2>&1; id ada 2>&1 | grep -c 'no such user'"); strings.Contains(got, "hi") || !strings.HasSuffix(got, "1") {
		t.Errorf("the other box sees %q", got)
	}
}

// Root of a box that is served is bound by its limits too.
func TestLimitsOfRoot(t *testing.T) {
	e := enginetest.Start(t, asE2B)
	neighbour := boot(t, e)
	fine := func() {
		t.Helper()
		if got := sh(t, neighbour, sandbox.User, "sudo echo fine"); got != "fine" {
			t.Errorf("the neighbour says %q", got)
		}
	}
	eater := boot(t, e)
	res := run(t, eater, sandbox.Command{Args: []string{"perl", "-e", `$|=1; print "go\n"; my @a; while (1) { push @a, "x" x (8<<20); select undef, undef, undef, 0.01 }`}, User: sandbox.Root})
	if res.Signal != "SIGKILL" || !res.OutOfMemory || string(res.Stdout) != "go\n" {
		t.Errorf("the eater ended with %+v", res)
	}
	if got := sh(t, eater, sandbox.User, "sudo echo alive"); got != "alive" {
		t.Errorf("the box says %q", got)
	}
	fine()
	bomb := boot(t, e)
	p, err := bomb.Start(ctxOf(t), sandbox.Command{Args: []string{"sudo", "bash", "-c", "b() { b | b & }; b; echo spread; sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Events()
	go func() {
		for range p.Events() {
		}
	}()
	for range 5 {
		fine()
	}
	if err := e.Provider.Kill(ctxOf(t), bomb.ID()); err != nil {
		t.Fatal(err)
	}
	fine()
}
