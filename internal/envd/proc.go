package envd

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// stat is what /proc says of one process.
type stat struct {
	pid, ppid, session int
	uid                uint32
	zombie             bool
}

// everyProcess lists /proc. Processes that end meanwhile are left out.
func everyProcess() []stat {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	// An error in the middle leaves what was read, which is all there is to act on.
	names, _ := d.Readdirnames(-1)
	var all []stat
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		data, err := os.ReadFile("/proc/" + n + "/stat")
		if err != nil {
			continue
		}
		// The name in parentheses may hold anything, so look behind the last one.
		f := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if len(f) < 4 {
			continue
		}
		ppid, err := strconv.Atoi(string(f[1]))
		if err != nil {
			continue
		}
		session, err := strconv.Atoi(string(f[3]))
		if err != nil {
			continue
		}
		s := stat{pid: pid, ppid: ppid, session: session, zombie: f[0][0] == 'Z'}
		if fi, err := os.Stat("/proc/" + n); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				s.uid = st.Uid
			}
		}
		all = append(all, s)
	}
	return all
}

// family returns the living processes of the session that pid leads and its
// living descendants, without pid itself.
func family(pid int) []int {
	kids := map[int][]int{}
	var all []int
	seen := map[int]bool{pid: true}
	for _, s := range everyProcess() {
		if s.zombie {
			continue
		}
		kids[s.ppid] = append(kids[s.ppid], s.pid)
		if s.session == pid && !seen[s.pid] {
			seen[s.pid] = true
			all = append(all, s.pid)
		}
	}
	for queue := append([]int{pid}, all...); len(queue) > 0; queue = queue[1:] {
		for _, k := range kids[queue[0]] {
			if !seen[k] {
				seen[k] = true
				all = append(all, k)
				queue = append(queue, k)
			}
		}
	}
	return all
}

// session returns the living processes of the session that pid leads or led,
// without pid itself.
func session(pid int) []int {
	var all []int
	for _, s := range everyProcess() {
		if s.session == pid && s.pid != pid && !s.zombie {
			all = append(all, s.pid)
		}
	}
	return all
}
