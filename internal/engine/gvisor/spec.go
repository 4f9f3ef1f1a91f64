package gvisor

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"dreamcore/internal/envd"
)

// The part of the OCI runtime specification that a box needs, written by hand:
// what is not here cannot be switched on by accident.
type (
	ociSpec struct {
		Version  string     `json:"ociVersion"`
		Process  ociProcess `json:"process"`
		Root     ociRoot    `json:"root"`
		Hostname string     `json:"hostname"`
		Mounts   []ociMount `json:"mounts"`
		Linux    ociLinux   `json:"linux"`
	}
	ociProcess struct {
		User            ociUser             `json:"user"`
		Args            []string            `json:"args"`
		Env             []string            `json:"env"`
		Cwd             string              `json:"cwd"`
		NoNewPrivileges bool                `json:"noNewPrivileges"`
		Capabilities    map[string][]string `json:"capabilities"`
		Rlimits         []ociRlimit         `json:"rlimits"`
	}
	ociUser struct {
		UID int `json:"uid"`
		GID int `json:"gid"`
	}
	ociRlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	ociRoot struct {
		Path     string `json:"path"`
		Readonly bool   `json:"readonly"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	ociLinux struct {
		Namespaces    []ociNamespace `json:"namespaces"`
		CgroupsPath   string         `json:"cgroupsPath,omitempty"`
		Resources     *ociResources  `json:"resources,omitempty"`
		MaskedPaths   []string       `json:"maskedPaths"`
		ReadonlyPaths []string       `json:"readonlyPaths"`
	}
	ociNamespace struct {
		Type string `json:"type"`
	}
	ociResources struct {
		Memory ociMemory `json:"memory"`
		CPU    ociCPU    `json:"cpu"`
		Pids   ociPids   `json:"pids"`
	}
	ociMemory struct {
		Limit int64 `json:"limit"`
	}
	ociCPU struct {
		Shares uint64 `json:"shares,omitempty"`
		Quota  int64  `json:"quota"`
		Period uint64 `json:"period"`
	}
	ociPids struct {
		Limit int64 `json:"limit"`
	}
)

// rootCapabilities are those of PID 1 and of commands that the host runs as the
// box's root: become the user, own and remove the user's files, end the user's
// processes. The user has none and, with no new privileges, no way to any.
var rootCapabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"}

// guestCapabilities are those of root in a box of the profile E2B: what installing
// software, changing users and serving low ports take. Not among them: what
// would let root into PID 1's memory (SYS_PTRACE), past the number of processes
// (SYS_RESOURCE), or at mounts and the network (SYS_ADMIN, NET_ADMIN).
var guestCapabilities = append([]string{
	"CAP_AUDIT_WRITE", "CAP_FSETID", "CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_SYS_CHROOT",
}, rootCapabilities...)

// bootCapabilities are what PID 1 has in addition until it lets its first command in:
// it bounds the number of files by mounting the folders in memory anew, then gives
// the right up, for itself and for whatever it starts. Giving it up takes the second.
var bootCapabilities = []string{"CAP_SYS_ADMIN", "CAP_SETPCAP"}

// Profile says what the users of a box may become.
type Profile string

const (
	// Job is for boxes in which something untrusted works for the host: no
	// program gains privileges, whatever its set-id bits say. The zero value
	// means the same.
	Job Profile = "job"
	// E2B is for boxes that are served to others, as E2B has them: whoever drives
	// one is root in it, by sudo or by asking.
	E2B Profile = "e2b"
)

// boxName is what programs in the box see as the machine's name.
const boxName = "sandbox"

// spec describes the box that boots root. control is the host's folder of this
// box, the only thing of the host that is mounted, and read-only.
func (r *Runtime) spec(id, root, control string) ociSpec {
	l := r.cfg.Limits
	capabilities := rootCapabilities
	if r.cfg.Profile == E2B {
		capabilities = guestCapabilities
	}
	for _, c := range bootCapabilities {
		if !slices.Contains(capabilities, c) {
			capabilities = append(slices.Clip(capabilities), c)
		}
	}
	tmpfs := func(at string, sizeBytes int64, mode string) ociMount {
		return ociMount{at, "tmpfs", "tmpfs", []string{"nosuid", "nodev", "mode=" + mode, fmt.Sprintf("size=%d", sizeBytes)}}
	}
	s := ociSpec{
		Version: "1.0.2",
		Process: ociProcess{
			Args:            []string{filepath.Join(envd.ControlDir, sandboxdName)},
			Env:             []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GOMAXPROCS=2"},
			Cwd:             "/",
			NoNewPrivileges: r.cfg.Profile != E2B,
			Capabilities: map[string][]string{
				"bounding": capabilities, "effective": capabilities, "permitted": capabilities,
			},
			Rlimits: []ociRlimit{
				// Counted per user of the box: a fork bomb is refused inside.
				{"RLIMIT_NPROC", uint64(l.Processes), uint64(l.Processes)},
				{"RLIMIT_NOFILE", 65536, 65536},
				{"RLIMIT_CORE", 0, 0},
			},
		},
		Root:     ociRoot{Path: root},
		Hostname: boxName,
		Mounts: []ociMount{
			{"/proc", "proc", "proc", []string{"nosuid", "nodev", "noexec"}},
			{"/dev", "tmpfs", "tmpfs", []string{"nosuid", "mode=755"}},
			{"/sys", "sysfs", "sysfs", []string{"nosuid", "nodev", "noexec", "ro"}},
			tmpfs("/dev/shm", l.DiskBytes/shmShare, "1777"),
			tmpfs("/tmp", l.DiskBytes/tmpShare, "1777"),
			tmpfs("/run", runBytes, "755"),
			// Root's, with the sticky bit: the user makes folders in it, and cannot
			// move away what root put there.
			tmpfs("/workspace", l.DiskBytes, "1777"),
			{envd.ControlDir, "bind", control, []string{"bind", "ro", "nosuid", "nodev"}},
		},
		Linux: ociLinux{
			Namespaces:    []ociNamespace{{"pid"}, {"ipc"}, {"uts"}, {"mount"}, {"network"}},
			MaskedPaths:   []string{"/proc/kcore", "/proc/keys", "/proc/sched_debug", "/sys/firmware"},
			ReadonlyPaths: []string{"/proc/sys"},
		},
	}
	if r.cgroups != nil {
		s.Linux.CgroupsPath = r.cgroups.path(id)
		s.Linux.Resources = &ociResources{
			Memory: ociMemory{Limit: l.MemoryBytes},
			CPU:    ociCPU{Quota: int64(l.CPUs * cpuPeriod), Period: cpuPeriod},
			// Counts the threads of gVisor itself too, so it is only the outer wall.
			Pids: ociPids{Limit: int64(l.Processes)*4 + 1024},
		}
		if r.isAside(id) {
			s.Linux.Resources.CPU.Shares = asideShares
		}
	}
	return s
}

// flags are runsc's for every command; args come before the subcommand.
func (r *Runtime) flags() []string {
	f := []string{"--root=" + r.stateDir()}
	if r.cgroups == nil {
		f = append(f, "--ignore-cgroups")
	}
	if rootless() {
		f = append(f, "--rootless")
	}
	return f
}

// bootFlags are those that decide what a box can reach.
func (r *Runtime) bootFlags(overlayDir string) []string {
	f := r.flags()
	if r.cfg.Profile == E2B {
		f = append(f, "--allow-suid")
	}
	return append(f,
		"--platform=systrap",
		"--network=none",
		"--host-uds=open",
		fmt.Sprintf("--overlay2=root:dir=%s,size=%d", overlayDir, r.cfg.Limits.DiskBytes),
	)
}

func (s ociSpec) encode() ([]byte, error) { return json.MarshalIndent(s, "", "\t") }
